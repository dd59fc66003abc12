"""Dask as the pool: real worker processes, without guests."""

from __future__ import annotations

import asyncio
import hashlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from harness.cluster import site
from harness.cluster.addresses import need_cluster
from harness.cluster.messages import ClusterWorker, Done, Identity, Job, NotFitted
from harness.errors import ClusterGone, EnvironmentLacks, PowercutError, UsageError
from harness.model import CaseId
from harness.tests.cli.runner import powercut
from harness.tests.needs import needed

if TYPE_CHECKING:  # where it is missing, tests are skipped
    from harness.cluster.over_dask import DaskPool

DEADLINE_S = 120.0
RUN_WITHOUT = """
import sys
from harness.cli import main
try:
    main(["run", "-n", "-c", "ext4/ordered", "-w", "append-fsync"])
except SystemExit as e:
    assert not e.code, e.code
import harness.run, harness.pytest_plugin, harness.cluster.dispatch, harness.cluster.blobs
print(sorted({m.split(".")[0] for m in sys.modules} & {"dask", "distributed", "tornado"}))
"""


@pytest.fixture
def pool(tmp_path: Path, cache: Path) -> Iterator[DaskPool]:
    """One worker process, with a cache of its own."""
    with needed():
        need_cluster("local:1")
    from harness.cluster.over_dask import DaskPool  # noqa: PLC0415 - where it is missing, the test is skipped

    made = DaskPool("local:1", "test-run", tmp_path)
    yield made
    made.close()


def until(pool: DaskPool, is_so: Callable[[dict[str, ClusterWorker]], bool]) -> dict[str, ClusterWorker]:
    """The workers, once it is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so(workers := pool.workers()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return workers


def who(pool: DaskPool, address: str) -> Identity:
    return msgspec.convert(pool.ask(address, site.identity), Identity)


def test_a_worker_says_who_it_is_keeps_blobs_and_is_missed(pool: DaskPool, tmp_path: Path) -> None:
    (address,) = until(pool, lambda workers: len(workers) == 1)
    identity = who(pool, address)
    blob = tmp_path / "blob"
    blob.write_bytes(b"a kernel")
    sha = hashlib.sha256(b"a kernel").hexdigest()
    pool.give(address, sha, blob)
    kept = tmp_path / "cache" / "parts" / sha
    assert kept.read_bytes() == b"a kernel"
    assert os.access(kept, os.X_OK)
    with pytest.raises(PowercutError, match="changed on its way"):
        pool.give(address, "0" * 64, blob)
    assert not (tmp_path / "cache" / "parts" / ("0" * 64)).exists()

    process = int(identity.process.partition("@")[0])
    os.kill(process, signal.SIGKILL)
    (other,) = until(pool, lambda workers: bool(workers) and address not in workers)
    again = who(pool, other)
    assert (again.place, again.source) == (identity.place, identity.source)
    assert again.process != identity.process


def test_every_worker_is_a_member_however_few_dask_describes(
    pool: DaskPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask of 2025 describes five: a sixth was never used, and one that fell out of the five was taken for
    lost.
    """
    (address,) = until(pool, lambda workers: len(workers) == 1)
    monkeypatch.setattr(cast(Any, pool)._client, "scheduler_info", lambda **_: {"workers": {}})
    assert pool.workers() == {address: ClusterWorker(address, address, 1)}


def test_a_blob_for_a_worker_that_has_gone_is_no_end_of_the_run(pool: DaskPool, tmp_path: Path) -> None:
    """The scheduler's KeyError for a worker that went while blobs were given out ended the run."""
    blob = tmp_path / "blob"
    blob.write_bytes(b"a kernel")
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1|0{64}"):
        pool.give("tcp://127.0.0.1:1", "0" * 64, blob)


def test_a_worker_without_the_outfit_says_so(pool: DaskPool) -> None:
    (address,) = until(pool, lambda workers: len(workers) == 1)
    came: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
    pool.work(address, Job("test-run", 1, CaseId("ext4", "ordered", "w"), "w"), came.put)
    assert isinstance(came.get(timeout=DEADLINE_S), NotFitted)


def test_who_waits_for_a_worker_that_was_lost_waits_no_more(pool: DaskPool) -> None:
    """It held the lock of its host, and the others there got no blobs."""
    (address,) = until(pool, lambda workers: len(workers) == 1)
    came: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            pool.ask(address, time.sleep, DEADLINE_S)
        except BaseException as e:
            came.put(e)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    until(pool, lambda _: bool(cast(Any, pool)._futures.get(address)))
    pool.forget(address)
    assert isinstance(came.get(timeout=DEADLINE_S / 2), CancelledError)


def test_a_scheduler_that_ended_is_noticed(tmp_path: Path) -> None:
    with needed():
        need_cluster("local:1")
    import distributed  # noqa: PLC0415 - where it is missing, the test is skipped

    from harness.cluster.over_dask import DaskPool  # noqa: PLC0415 - as above

    elsewhere = distributed.LocalCluster(
        n_workers=0, processes=True, host="127.0.0.1", dashboard_address=None
    )
    pool = DaskPool(elsewhere.scheduler_address, "test-run", tmp_path)
    try:
        assert pool.workers() == {}
        elsewhere.close()
        with pytest.raises(ClusterGone, match="is gone"):
            until(pool, lambda _: False)
    finally:
        pool.close()


def test_nobody_there_is_told_with_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with needed():
        need_cluster("tcp://127.0.0.1:1")
    from harness.cluster import over_dask  # noqa: PLC0415 - as above

    monkeypatch.setattr(over_dask, "CONNECT_S", 0.5)
    with pytest.raises(EnvironmentLacks, match="no Dask scheduler answers"):
        over_dask.DaskPool("tcp://127.0.0.1:1", "test-run", tmp_path)


def test_nobody_connects_to_workers_of_this_host_without_their_certificate(pool: DaskPool) -> None:
    """Every user of the host could have them run anything, with the rights of whoever had typed `local:4`."""
    import distributed  # noqa: PLC0415 - as above
    from distributed.comm import connect  # noqa: PLC0415 - as above

    async def connected(address: str, security: Any) -> None:
        await connect(address, timeout=DEADLINE_S, **security.get_connection_args("client"))

    (worker,) = until(pool, lambda workers: len(workers) == 1)
    scheduler = cast(Any, pool)._client.scheduler.address
    ours, theirs = cast(Any, pool)._client.security, distributed.Security.temporary()
    for address in scheduler, worker:
        assert address.startswith("tls://127.0.0.1:")
        asyncio.run(connected(address, ours))
        plain = address.replace("tls", "tcp")
        for to, security in (address, theirs), (plain, distributed.Security()):
            with pytest.raises(OSError, match=r"certificate|reset|closed"):
                asyncio.run(connected(to, security))
    assert pool.workers()  # whoever has it still can


def test_workers_of_this_host_show_nothing_unless_asked(pool: DaskPool) -> None:
    """Dask's pages told every user of the host what was run, and where."""
    until(pool, lambda workers: len(workers) == 1)
    assert pool.description == "local:1"
    scheduler = cast(Any, pool)._cluster.scheduler
    workers = cast(Any, pool)._client.scheduler_info(n_workers=-1)["workers"].values()
    for port in (scheduler.http_server.port, *(w["services"]["dashboard"] for w in workers)):
        for page in ("status", "info/main/workers.html", "json/identity.json", "metrics"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=DEADLINE_S)


def test_a_scheduler_with_certificates_is_reached_by_those_of_dasks_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with needed():
        need_cluster("local:1")
    import dask  # noqa: PLC0415 - as above
    import distributed  # noqa: PLC0415 - as above

    from harness.cluster.over_dask import DaskPool  # noqa: PLC0415 - as above

    made = distributed.Security.temporary()
    elsewhere = distributed.LocalCluster(
        n_workers=0, host="127.0.0.1", protocol="tls", security=made, dashboard_address=None
    )
    address = elsewhere.scheduler_address
    try:
        with pytest.raises(EnvironmentLacks, match="needs a certificate") as caught:
            DaskPool(address, "test-run", tmp_path)
        assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in caught.value.next_step
        for name in ("ca_file", "client_cert", "client_key"):
            (tmp_path / name).write_text(getattr(made, f"tls_{name}"))
        client = {"cert": str(tmp_path / "client_cert"), "key": str(tmp_path / "client_key")}
        tls = {
            "distributed.comm.tls.ca-file": str(tmp_path / "ca_file"),
            "distributed.comm.tls.client": client,
        }
        with dask.config.set(tls):
            pool = DaskPool(address, "test-run", tmp_path)
            try:
                assert pool.workers() == {}
            finally:
                pool.close()
    finally:
        elsewhere.close()


@pytest.mark.parametrize(
    ("address", "warned"),
    [("tcp://h:8786", True), ("ws://h:8786", True), ("tls://h:8786", False), ("local:2", False)],
)
def test_a_scheduler_without_certificates_is_warned_of(address: str, warned: bool) -> None:
    """Nothing said that whoever reaches it runs programs as the user."""
    with needed():
        need_cluster(address)
    done = powercut("run", "-n", "-c", "ext4/ordered", "-w", "append-fsync", "--cluster", address)
    assert done.exit_code == 0, done.output
    assert (f"{address} is neither encrypted nor authenticated" in done.stderr) is warned


def test_workers_of_this_host_need_certificates_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "cryptography" else name)
    with pytest.raises(EnvironmentLacks, match="package cryptography"):
        need_cluster("local:1")
    need_cluster("tcp://h:8786")


@pytest.mark.parametrize(
    "address",
    ["local", "local:0", "local:2+", "local:2+page", "local:x", "host:8786", "tcp://host", "http://h:1"],
)
def test_other_addresses_are_refused_before_anything_is_begun(address: str) -> None:
    with pytest.raises(UsageError, match="names no cluster"):
        need_cluster(address)


def test_a_run_on_one_host_imports_no_dask() -> None:
    """It takes more than a second to import, and need not be installed."""
    done = subprocess.run([sys.executable, "-c", RUN_WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
