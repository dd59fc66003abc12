"""A pool of guests, each with its own disk process, fed from one queue."""

from __future__ import annotations

import concurrent.futures as cf
import threading
from collections.abc import Callable

from harness.machines.worker import Worker


class Pool:
    """Threads with a worker each. `stop` is set when no further state should be begun."""

    def __init__(self, make_worker: Callable[[int], Worker], jobs: int) -> None:
        self.stop = threading.Event()
        self._local = threading.local()
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._make = make_worker
        self._threads = cf.ThreadPoolExecutor(jobs, "worker")

    def submit(self, task: Callable[[Worker], Callable[[], None]]) -> cf.Future[Callable[[], None]]:
        return self._threads.submit(lambda: task(self._worker()))

    def _worker(self) -> Worker:
        if not hasattr(self._local, "worker"):
            with self._lock:
                self._local.worker = self._make(len(self._workers))
                self._workers.append(self._local.worker)
        worker: Worker = self._local.worker
        return worker

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._workers)

    def close(self) -> None:
        """Begin nothing more, end the guests, wait for the threads."""
        self.stop.set()
        for worker in self.workers:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.close()
