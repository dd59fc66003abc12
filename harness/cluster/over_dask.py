"""Workers of a Dask scheduler. The only module that imports `distributed`.

Whoever may talk to a scheduler or a worker may have it run anything. Those that are started here ask for a
certificate that is made for this run, and never leaves the memory of its processes; without one, loopback
would be open to every user of this host. They serve no HTTP, unless a dashboard was asked for.

Dask gives the connections, the workers' processes, the transfer of blobs from worker to worker, and the word
that a worker has gone. Which worker gets which case is decided by `harness.cluster.dispatch`: each task
names its worker, so that a case is never handed on behind the run's back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import dask
import distributed
import msgspec

from harness.cluster import blobs, site
from harness.cluster.addresses import is_encrypted, local_workers, wants_dashboard
from harness.cluster.messages import ClusterWorker, Done, Job, Note
from harness.errors import ClusterGone, EnvironmentLacks

T = TypeVar("T")
CONNECT_S = 15.0
CLOSE_S = 10.0
RESULT_S = 60.0
ANSWER_S = 3600.0
"""A question may have to wait for a case of another run."""
_CONFIG = {  # without most of what Dask measures: on two idle workers here that took 4 % of two processors
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.comm.retry.count": 2,
}


_NO_HTTP: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask listens for HTTP in any case; then it has nothing to say."""


class DaskPool:
    """The workers, as `harness.cluster.dispatch` sees them: their addresses, and what they are asked. `ask`
    and `give` block, each in whatever thread; the others do not, and are of one thread.
    """

    def __init__(self, address: str, run: str, scratch: Path) -> None:
        """Connect, or start workers on this host; `scratch` is for their files. Raises EnvironmentLacks
        if nobody answers there, and for an address that needs certificates where none are configured.
        """
        self._run = run
        self._address = address
        self._numbers = itertools.count(1)
        self._closing = False
        self._futures: dict[str, list[Any]] = {}  # by address
        self._giving = threading.Lock()
        self._blobs: dict[str, Any] = {}
        self._topic = f"powercut-{run}"
        self._cluster: Any = None
        shown = wants_dashboard(address)
        workers = local_workers(address)
        self._settings = dask.config.set(_CONFIG | (_NO_HTTP if workers and not shown else {}))
        for name in [*logging.root.manager.loggerDict]:
            if name.partition(".")[0] == "distributed":  # what matters of it, we say ourselves
                logging.getLogger(name).setLevel(logging.CRITICAL)
        security = distributed.Security.temporary() if workers else _configured(address)
        if workers:
            self._cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,  # guests are processes of their own, which it does not count
                host="127.0.0.1",
                protocol="tls",
                security=security,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": shown},
                local_directory=str(scratch),
                silence_logs=logging.CRITICAL,
            )
        try:
            self._client = distributed.Client(
                self._cluster or address,
                timeout=CONNECT_S,
                set_as_default=False,
                name="powercut",
                security=security,
            )
        except OSError as e:
            raise EnvironmentLacks(
                f"no Dask scheduler answers at {address}: {e}", "start one there: dask scheduler"
            ) from e

    @property
    def description(self) -> str:
        """For people: the address, and where its dashboard is."""
        served = not local_workers(self._address) or wants_dashboard(self._address)
        link = self._client.dashboard_link if served else ""
        return f"{self._address}" + (f", dashboard {link}" if link else "")

    def workers(self) -> dict[str, ClusterWorker]:
        """The workers that are there now, by address. Who is there is asked anew; what else is known may be
        of any time, and of few: some releases of Dask tell of five workers unless told otherwise. Raises
        ClusterGone.
        """
        self._need_connection()
        try:
            slots = self._client.nthreads()
            known = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TimeoutError) as e:
            raise self._gone(str(e)) from e
        return {address: _worker(address, known.get(address, {}), n) for address, n in slots.items()}

    def last_words(self, address: str) -> str:
        """What a worker that has gone printed is known on its host alone."""
        return ""

    def listen(self, on_note: Callable[[Note], None]) -> None:
        """Have what workers tell while they work passed on, in another thread."""

        def said(event: tuple[float, Any]) -> None:
            on_note(msgspec.msgpack.decode(event[1], type=Note))

        self._client.subscribe_topic(self._topic, said)

    def ask(self, address: str, question: Callable[..., T], *given: object) -> T:
        """The answer of a worker. Raises the worker's exception, and CancelledError after `forget`."""
        answer: T = self._submit(address, question, *given, first=True).result(timeout=ANSWER_S)
        return answer

    def give(self, address: str, sha256: str, blob: Path) -> None:
        """Have a worker keep a blob (`blobs.keep`). The run sends it once, to the first worker that needs it;
        the others get it from each other.
        """
        with self._giving:
            held = self._blobs.get(sha256)
            if held is None or held.status in ("cancelled", "lost", "error"):
                held = self._client.scatter(blob.read_bytes(), workers=[address], hash=False)
                self._blobs[sha256] = held
        self.ask(address, blobs.keep, sha256, held)

    def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
        """Ask for `site.work`. `on_end` is told what came of it, in another thread."""

        def ended(future: Any) -> None:
            if self._closing or future.cancelled():
                return
            try:
                found: Done | BaseException = future.result(timeout=RESULT_S)
            except Exception as e:  # whatever the worker raised, or the way from it
                found = e
            on_end(found)

        self._submit(address, _work, job, self._topic).add_done_callback(ended)

    def forget(self, address: str) -> None:
        """Do without what a worker was asked for."""
        for future in self._futures.pop(address, ()):
            future.cancel()

    def stop(self, address: str) -> None:
        """Have the worker answer with what it knows; does not wait."""
        self._client.loop.add_callback(self._tell, _stop, [address])

    def dismiss(self, address: str) -> None:
        """Have the worker end all it does for the run, guests as well; does not wait."""
        self._client.loop.add_callback(self._tell, _dismiss, [address])

    def close(self) -> None:
        """Have every worker end what it does for the run, and leave."""
        self._closing = True
        self._futures.clear()
        # Whatever has gone by now: the run has what it needs, and workers that hear nothing end their guests.
        with contextlib.suppress(Exception):
            self._client.sync(self._tell, _dismiss, None, callback_timeout=CLOSE_S)
        with contextlib.suppress(Exception):
            self._client.close(timeout=CLOSE_S)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=CLOSE_S)

    async def _tell(self, end: Callable[[str], Awaitable[None]], addresses: list[str] | None) -> None:
        with contextlib.suppress(Exception):  # whoever is gone has nothing left to end
            await self._client._run(end, self._run, workers=addresses, on_error="ignore")

    def _submit(
        self, address: str, function: Callable[..., object], *given: object, first: bool = False
    ) -> Any:
        """The future of a task that this worker is to do, and no other."""
        self._need_connection()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a recording may be larger than Dask likes
            future = self._client.submit(
                function,
                *given,
                key=f"{self._topic}-{next(self._numbers)}",
                workers=[address],
                allow_other_workers=False,
                priority=1 if first else 0,
                pure=False,
            )
        open_ones = [f for f in self._futures.get(address, ()) if not f.done()]
        self._futures[address] = [*open_ones, future]
        return future

    def _need_connection(self) -> None:
        if self._client.status != "running":
            raise self._gone(f"the connection is {self._client.status}")

    def _gone(self, why: str) -> ClusterGone:
        return ClusterGone(f"the scheduler at {self._address} is gone: {why}", "start it again")


def _configured(address: str) -> Any:
    """What Dask's configuration says of certificates. Raises EnvironmentLacks if an address needs one and
    that names none.
    """
    security = distributed.Security()
    if is_encrypted(address) and security.get_connection_args("client")["ssl_context"] is None:
        raise EnvironmentLacks(
            f"{address} needs a certificate, and Dask's configuration names none",
            "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..._TLS__CLIENT__CERT and ..._TLS__CLIENT__KEY",
        )
    return security


def _worker(address: str, known: Mapping[str, Any], slots: int) -> ClusterWorker:
    named = str(known.get("name", address))
    return ClusterWorker(address, address if named == address else f"{named} at {address}", slots)


# --- in the worker's process -----------------------------------------------------------------


def _work(job: Job, topic: str) -> Done:
    worker = distributed.get_worker()
    return site.work(job, lambda note: worker.log_event(topic, msgspec.msgpack.encode(note)))


async def _stop(run: str) -> None:
    await asyncio.to_thread(site.stop, run)


async def _dismiss(run: str) -> None:
    await asyncio.to_thread(site.dismiss, run)
