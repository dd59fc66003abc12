"""However many shards a run has, and whichever of them is killed: states, verdicts, findings and their order
are those of one process. The shards are real processes; only their guests are played (`toy_kernel`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from harness import __version__
from harness.cases.casework import EnoughDone
from harness.cluster import dispatch, shards, site
from harness.cluster.dispatch import Dispatch
from harness.cluster.messages import Done, Job, NotFitted
from harness.cluster.shards import PER_SHARD, ShardLost, Shards, shard_sizes
from harness.errors import ClusterGone, PowercutError, VersionsDiffer
from harness.model import CaseId
from harness.store import RunStore
from harness.store.directory import making_run
from harness.store.records import CaseStatus
from harness.tests.cluster.test_workers import (  # noqa: F401 - a fixture
    PLAN,
    REQUIREMENTS,
    WANTED,
    kept_in,
    on_one_host,
    told,
)
from harness.tests.guests.test_orphans import ended
from harness.tests.said import Said
from harness.tests.store.samples import INFO

DEADLINE_S = 120.0
OWN = msgspec.structs.replace(REQUIREMENTS, pins={"powercut": __version__})
PROGRAM = shards._PROGRAM.replace(
    "harness.cluster.shards import serve", "harness.tests.cluster.test_shards import serve_toys as serve"
)


def serve_toys(descriptor: int) -> None:
    """In a shard's process, with toys for guests."""
    cast(Any, site).fitted = lambda asked, _, slots, __, below: kept_in(below, asked, slots)
    shards.serve(descriptor)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_PROGRAM", PROGRAM)
    monkeypatch.setattr(dispatch, "LOOK_S", 0.0)
    monkeypatch.setattr(dispatch, "WAIT_S", 0.01)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Shards]:
    """One shard, with one worker."""
    made = Shards("run", [1], tmp_path / "scratch")
    yield made
    made.close()


def in_shards(
    store: RunStore,
    scratch: Path,
    count: int,
    plan: Any = PLAN,
    work: Callable[[Shards, Callable[..., None]], Callable[..., None]] = lambda pool, usual: usual,
    said: Said | None = None,
) -> Said:
    """`work`: stands for `Shards.work`, which it is given."""
    said, done = said or Said(), cast(list[str], [])
    pool = Shards("run", [1] * count, scratch)
    cast(Any, pool).work = work(pool, pool.work)
    try:
        made = Dispatch(plan, store, said, pool, OWN, {}, lambda c: done.append(str(c)))
        made.work(WANTED, {})
    finally:
        pool.close()
    assert len(done) == len({*done}) == len(WANTED)
    assert not any(said.left.values())
    return said


def process_of(pool: Shards, name: str) -> int:
    return int(pool.ask(name, site.identity)["process"].partition("@")[0])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_number_of_shards_changes_nothing_that_is_told(
    on_one_host: tuple[list[Any], dict[str, Any]],  # noqa: F811 - the fixture
    tmp_path: Path,
    count: int,
) -> None:
    with RunStore.create(tmp_path, "t", INFO) as store:
        in_shards(store, tmp_path / "scratch", count)
        assert told(store) == on_one_host


def test_what_a_killed_shard_had_is_decided_by_others(
    on_one_host: tuple[list[Any], dict[str, Any]],  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    killed: list[str] = []

    def work(pool: Shards, usual: Callable[..., None]) -> Callable[..., None]:
        def kill_first(address: str, job: Job, on_end: Callable[..., None]) -> None:
            if len(killed) < 2:
                killed.append(address)
                os.kill(process_of(pool, address), signal.SIGKILL)
            usual(address, job, on_end)

        return kill_first

    with RunStore.create(tmp_path, "t", INFO) as store:
        said = in_shards(store, tmp_path / "scratch", 2, work=work)
        assert told(store) == on_one_host
    assert len({*killed}) == 2
    assert sum("is gone; it worked on" in line for line in said.lines) == 2


def test_a_run_that_ended_early_goes_on_with_more_shards(
    on_one_host: tuple[list[Any], dict[str, Any]],  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    with RunStore.create(tmp_path, "t", INFO) as store:
        with pytest.raises(EnoughDone):
            in_shards(store, tmp_path / "one", 2, msgspec.structs.replace(PLAN, max_failures=1))
        in_shards(store, tmp_path / "more", 5)
        assert told(store) == on_one_host


def test_a_shard_without_requirements_says_so(pool: Shards) -> None:
    (name,) = pool.workers()
    came = cast(list[Done | BaseException], [])
    has_come = threading.Event()

    def on_end(found: Done | BaseException) -> None:
        came.append(found)
        has_come.set()

    pool.work(name, Job("run", 1, CaseId("ext4", "ordered", "w"), "w"), on_end)
    assert has_come.wait(DEADLINE_S)
    assert isinstance(came[0], NotFitted)


def test_who_asks_a_shard_that_is_killed_waits_no_more_and_another_one_comes(pool: Shards) -> None:
    (name,) = pool.workers()
    process = process_of(pool, name)
    asking = pool._shards[name].ask(time.sleep, DEADLINE_S)
    os.kill(process, signal.SIGKILL)
    assert isinstance(asking.exception(DEADLINE_S), ShardLost)
    (other,) = pool.workers()
    assert other != name
    assert process_of(pool, other) != process


def test_shards_that_do_not_start_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would come for them without an end. What they had printed was not told."""
    monkeypatch.setattr(shards, "_PROGRAM", "raise SystemExit('no such module')")
    said = Said()
    with RunStore.create(tmp_path, "t", INFO) as store, pytest.raises(ClusterGone, match="was refused"):
        in_shards(store, tmp_path / "scratch", 2, said=said)
    assert "worker shard-1 is left out: shard-1 has ended: no such module" in said.lines


OWNER = """
import sys, time
from pathlib import Path
from harness.cluster import site
from harness.cluster.shards import Shards
pool = Shards("run", [1], Path(sys.argv[1]))
(name,) = pool.workers()
print(pool.ask(name, site.identity)["process"].partition("@")[0], flush=True)
time.sleep(600)
"""


def test_no_shard_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    line = [sys.executable, "-c", OWNER, str(tmp_path / "scratch")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        process = int(owner.stdout.readline())
        owner.kill()
    assert ended([process])


def test_there_are_as_many_shards_as_workers_cases_and_processors_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(64)})
    assert shard_sizes(PER_SHARD, 100) == [PER_SHARD]
    assert shard_sizes(60, 100) == [15] * 4
    assert shard_sizes(70, 100) == [14] * 5
    assert shard_sizes(64, 3) == [22, 21, 21], "a case belongs to one shard"
    assert shard_sizes(64, 0) == [64]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert shard_sizes(64, 100) == [32, 32]


def test_an_error_of_a_shard_is_raised(pool: Shards, tmp_path: Path) -> None:
    (name,) = pool.workers()
    blob = tmp_path / "blob"
    blob.write_bytes(b"a kernel")
    with pytest.raises(PowercutError, match="changed on its way"):
        pool.give(name, "0" * 64, blob)


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def fail(error: str) -> None:
    """What a shard is asked for that raises."""
    if error == "odd":
        raise Odd("one", "other")
    if error == "differs":
        raise VersionsDiffer("the disk does not speak protocol 4", "rebuild it: make setup")
    with making_run(Path()) if error == "full store" else contextlib.nullcontext():
        raise OSError(errno.ENOSPC, "No space left on device")


class Poison:
    """Can be pickled; whoever unpickles it fails."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return fail, ("odd",)


@pytest.mark.parametrize(
    ("question", "given", "raised"),
    [
        (threading.Lock, (), "cannot pickle"),
        (fail, ("odd",), "Odd: one and other"),
        (Poison, (), "shard-1 has ended"),
    ],
)
def test_nobody_waits_for_an_answer_that_cannot_be_read(
    pool: Shards, question: Callable[..., object], given: tuple[object, ...], raised: str
) -> None:
    """A run waited for an hour."""
    asking = pool._shards["shard-1"].ask(question, *given)
    assert raised in str(asking.exception(DEADLINE_S))


def failing(error: str) -> Callable[[Shards, Callable[..., None]], Callable[..., None]]:
    """Stands for `Shards.work`: each case ends with this error, raised in the shard."""

    def work(pool: Shards, usual: Callable[..., None]) -> Callable[..., None]:
        def fails(address: str, job: Job, on_end: Callable[..., None]) -> None:
            asked = pool._shards[address].ask(fail, error)
            asked.add_done_callback(lambda future: on_end(future.exception()))

        return fails

    return work


@pytest.mark.parametrize("error", ["full", "full store"])
def test_a_full_disk_that_a_shard_finds_ends_the_run_as_in_one_process(tmp_path: Path, error: str) -> None:
    """Each case lost three shards to it, and was UNKNOWN; later, if it was an error of the shard's store."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        with pytest.raises(OSError, match="No space left") as caught:
            in_shards(store, tmp_path / "scratch", 2, work=failing(error))
        assert caught.value.errno == errno.ENOSPC
        assert not [c for c in store.cases() if c.status is CaseStatus.UNKNOWN]


def test_a_part_of_another_version_ends_the_run_as_in_one_process(tmp_path: Path) -> None:
    """It was told as that every worker was refused, to a user who has no cluster."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        with pytest.raises(VersionsDiffer, match="does not speak protocol 4") as caught:
            in_shards(store, tmp_path / "scratch", 2, work=failing("differs"))
        assert caught.value.next_step == "rebuild it: make setup"
        assert not [c for c in store.cases() if c.status is CaseStatus.UNKNOWN]


def test_a_lost_shard_leaves_no_folder_and_its_last_words_are_known(pool: Shards, tmp_path: Path) -> None:
    """Its images took room for as long as the run lasted, and nobody saw why it had ended."""
    (name,) = pool.workers()
    pool.ask(name, site.identity)
    asking = pool._shards[name].ask(say_and_end, "Fatal: a defect")
    assert isinstance(asking.exception(DEADLINE_S), ShardLost)
    assert [*pool.workers()] == ["shard-2"]
    assert pool.last_words(name) == "Fatal: a defect"
    assert [p.name for p in (tmp_path / "scratch").iterdir()] == ["shard-2"]


def say_and_end(words: str) -> None:
    """What a shard is asked for that ends it."""
    print(f"Traceback\n{words}", file=sys.stderr, flush=True)
    os._exit(1)


def test_workers_of_shards_keep_to_the_processors_that_those_of_one_process_keep_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard chose for its own workers, of which there are fewer than processors: none kept to one."""
    kept = list[Sequence[int | None]]()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(64)})
    monkeypatch.setattr(
        shards, "_Shard", lambda known, folder, make, processors, tell: kept.append(processors)
    )
    Shards("run", [22, 21, 21], tmp_path)
    assert [number for of_shard in kept for number in of_shard] == [*range(64)]
    assert [*map(len, kept)] == [22, 21, 21]
