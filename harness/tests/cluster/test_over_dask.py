"""Dask as the crowd: real worker processes, without guests."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from harness.cluster.crowd import Answer, Crowd, Member, need_cluster
from harness.cluster.messages import Errand, Identity, NotFitted, encode
from harness.errors import ClusterGone, EnvironmentLacks, UsageError
from harness.model import CaseId
from harness.tests.cli.runner import powercut
from harness.tests.needs import needed

DEADLINE_S = 120.0
RUN_WITHOUT = """
import sys
from harness.cli import main
try:
    main(["run", "-n", "-c", "ext4/ordered", "-w", "append-fsync"])
except SystemExit as e:
    assert not e.code, e.code
import harness.run, harness.pytest_plugin, harness.cluster.dispatch, harness.cluster.parts
print(sorted({m.split(".")[0] for m in sys.modules} & {"dask", "distributed", "tornado"}))
"""


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """One worker process, with a cache of its own."""
    with needed():
        need_cluster("local:1")
    from harness.cluster.over_dask import DaskCrowd  # noqa: PLC0415 - where it is missing, the test is skipped

    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    made = DaskCrowd("local:1", "test-run", tmp_path)
    yield made
    made.close()


def until(crowd: Crowd, is_so: Callable[[dict[str, Member]], bool]) -> dict[str, Member]:
    """The members, once it is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so(members := crowd.members()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return members


def answer(crowd: Crowd, ticket: int) -> Answer:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for event in crowd.events(0.5):
            if isinstance(event, Answer) and event.ticket == ticket:
                return event
    raise AssertionError("no answer")


def asked(crowd: Crowd, ask: Callable[[int], None]) -> Answer:
    ticket = crowd.ticket()
    ask(ticket)
    return answer(crowd, ticket)


def test_a_worker_says_who_it_is_keeps_parts_and_is_missed(crowd: Crowd, tmp_path: Path) -> None:
    (address,) = until(crowd, lambda members: len(members) == 1)
    told = asked(crowd, lambda ticket: crowd.identify(ticket, address))
    identity = msgspec.convert(told.value, Identity)
    part = tmp_path / "part"
    part.write_bytes(b"a kernel")
    sha = hashlib.sha256(b"a kernel").hexdigest()
    assert asked(crowd, lambda ticket: crowd.give(ticket, address, sha, part)).error is None
    kept = tmp_path / "cache" / "parts" / sha
    assert kept.read_bytes() == b"a kernel"
    assert os.access(kept, os.X_OK)
    wrong = asked(crowd, lambda ticket: crowd.give(ticket, address, "0" * 64, part))
    assert "changed on its way" in str(wrong.error)
    assert not (tmp_path / "cache" / "parts" / ("0" * 64)).exists()

    process = int(identity.process.partition("@")[0])
    os.kill(process, signal.SIGKILL)
    (other,) = until(crowd, lambda members: bool(members) and address not in members)
    again = msgspec.convert(asked(crowd, lambda ticket: crowd.identify(ticket, other)).value, Identity)
    assert (again.place, again.source) == (identity.place, identity.source)
    assert again.process != identity.process


def test_every_worker_is_a_member_however_few_dask_describes(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask of 2025 describes five: a sixth was never used, and one that fell out of the five was taken for
    lost.
    """
    (address,) = until(crowd, lambda members: len(members) == 1)
    monkeypatch.setattr(cast(Any, crowd)._client, "scheduler_info", lambda **_: {"workers": {}})
    assert crowd.members() == {address: Member(address, address, 1)}


def test_a_part_for_a_worker_that_has_gone_is_no_end_of_the_run(crowd: Crowd, tmp_path: Path) -> None:
    """The scheduler's KeyError for a worker that went while parts were given out ended the run."""
    part = tmp_path / "part"
    part.write_bytes(b"a kernel")
    told = asked(crowd, lambda ticket: crowd.give(ticket, "tcp://127.0.0.1:1", "0" * 64, part))
    assert told.error is not None


def test_a_worker_without_the_outfit_says_so(crowd: Crowd) -> None:
    (address,) = until(crowd, lambda members: len(members) == 1)
    errand = encode(Errand("test-run", 1, CaseId("ext4", "ordered", "w"), "w"))
    told = asked(crowd, lambda ticket: crowd.work(ticket, address, errand))
    assert isinstance(told.error, NotFitted)


def test_a_scheduler_that_ended_is_noticed(tmp_path: Path) -> None:
    with needed():
        need_cluster("local:1")
    import distributed  # noqa: PLC0415 - where it is missing, the test is skipped

    from harness.cluster.over_dask import DaskCrowd  # noqa: PLC0415 - as above

    elsewhere = distributed.LocalCluster(
        n_workers=0, processes=True, host="127.0.0.1", dashboard_address=None
    )
    crowd = DaskCrowd(elsewhere.scheduler_address, "test-run", tmp_path)
    try:
        assert crowd.members() == {}
        elsewhere.close()
        with pytest.raises(ClusterGone, match="is gone"):
            until(crowd, lambda _: False)
    finally:
        crowd.close()


def test_nobody_there_is_told_with_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with needed():
        need_cluster("tcp://127.0.0.1:1")
    from harness.cluster import over_dask  # noqa: PLC0415 - as above

    monkeypatch.setattr(over_dask, "CONNECT_S", 0.5)
    with pytest.raises(EnvironmentLacks, match="no Dask scheduler answers"):
        over_dask.DaskCrowd("tcp://127.0.0.1:1", "test-run", tmp_path)


def test_nobody_connects_to_workers_of_this_host_without_their_certificate(crowd: Crowd) -> None:
    """Every user of the host could have them run anything, with the rights of whoever had typed `local:4`."""
    import distributed  # noqa: PLC0415 - as above
    from distributed.comm import connect  # noqa: PLC0415 - as above

    async def connected(address: str, security: Any) -> None:
        await connect(address, timeout=DEADLINE_S, **security.get_connection_args("client"))

    (worker,) = until(crowd, lambda members: len(members) == 1)
    scheduler = cast(Any, crowd)._client.scheduler.address
    ours, theirs = cast(Any, crowd)._client.security, distributed.Security.temporary()
    for address in scheduler, worker:
        assert address.startswith("tls://127.0.0.1:")
        asyncio.run(connected(address, ours))
        plain = address.replace("tls", "tcp")
        for to, security in (address, theirs), (plain, distributed.Security()):
            with pytest.raises(OSError, match=r"certificate|reset|closed"):
                asyncio.run(connected(to, security))
    assert crowd.members()  # whoever has it still can


def test_workers_of_this_host_show_nothing_unless_asked(crowd: Crowd) -> None:
    """Dask's pages told every user of the host what was run, and where."""
    until(crowd, lambda members: len(members) == 1)
    assert crowd.description == "local:1"
    scheduler = cast(Any, crowd)._cluster.scheduler
    workers = cast(Any, crowd)._client.scheduler_info(n_workers=-1)["workers"].values()
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

    from harness.cluster.over_dask import DaskCrowd  # noqa: PLC0415 - as above

    made = distributed.Security.temporary()
    elsewhere = distributed.LocalCluster(
        n_workers=0, host="127.0.0.1", protocol="tls", security=made, dashboard_address=None
    )
    address = elsewhere.scheduler_address
    try:
        with pytest.raises(EnvironmentLacks, match="needs a certificate") as caught:
            DaskCrowd(address, "test-run", tmp_path)
        assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in caught.value.next_step
        for name in ("ca_file", "client_cert", "client_key"):
            (tmp_path / name).write_text(getattr(made, f"tls_{name}"))
        client = {"cert": str(tmp_path / "client_cert"), "key": str(tmp_path / "client_key")}
        tls = {
            "distributed.comm.tls.ca-file": str(tmp_path / "ca_file"),
            "distributed.comm.tls.client": client,
        }
        with dask.config.set(tls):
            crowd = DaskCrowd(address, "test-run", tmp_path)
            try:
                assert crowd.members() == {}
            finally:
                crowd.close()
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
