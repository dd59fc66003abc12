"""A pool of stations, each with its own guests and disk processes, fed from one queue."""

from __future__ import annotations

import concurrent.futures as cf
import threading
from collections.abc import Callable
from dataclasses import dataclass

from harness.guests.worker import Worker


@dataclass(frozen=True, slots=True)
class Station:
    """What one thread works with. `recorder` and `judge` are one worker where one machine does both."""

    recorder: Worker
    judge: Worker

    @property
    def workers(self) -> tuple[Worker, Worker]:
        return (self.recorder, self.judge)


Callback = Callable[[], None]
"""Runs in the thread that owns the store."""

Task = Callable[[Station], Callback]
"""Runs in a station's thread. Returns a callback for the store's thread."""


class Pool:
    """Threads with a station each. `stop` is set when no further state should be begun; `confirms`:
    the recorders look again at what the judges find.
    """

    def __init__(self, make_station: Callable[[int], Station], jobs: int, *, confirms: bool) -> None:
        self.confirms = confirms
        self.stop = threading.Event()
        self._local = threading.local()
        self._stations: list[Station] = []
        self._lock = threading.Lock()
        self._make = make_station
        self._threads = cf.ThreadPoolExecutor(jobs, "station")

    def submit(self, task: Task) -> cf.Future[Callback]:
        return self._threads.submit(lambda: task(self._station()))

    def _station(self) -> Station:
        if not hasattr(self._local, "station"):
            with self._lock:
                self._local.station = self._make(len(self._stations))
                self._stations.append(self._local.station)
            if self.stop.is_set():  # `close` has not seen it
                for worker in self._local.station.workers:
                    worker.stop()
        station: Station = self._local.station
        return station

    def close(self) -> None:
        """Begin nothing more, end the guests, wait for the threads."""
        self.stop.set()
        with self._lock:
            workers = [worker for station in self._stations for worker in station.workers]
        for worker in workers:
            worker.stop()
        self._threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()
