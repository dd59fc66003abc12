"""Workers stop when they are told to, whatever they are doing."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.pool import Callback, Interrupted, Pool, Task, Worker, pool_of
from harness.cases.remote import RemoteSession
from harness.errors import PowercutError
from harness.guests import session as guest_sessions
from harness.guests.guest_specs import GuestSpecs
from harness.guests.session import Target
from harness.host import processes
from harness.model import Outcome, Position
from harness.oracles import Judge
from harness.plan import Plan
from harness.tests.cases.toy_kernel import Kernel, toy_spec
from harness.tests.oracles.cases import CLEAN, ORDERED, directory, file, history, tree

DEADLINE_S = 60.0


class NoWorker:
    """Has nothing to end."""

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


def compute() -> None:
    """As judging does on a history of thousands of names."""
    while True:
        pass


def judge() -> None:
    """Thousands of names, of which one is missing, at one position after the other."""
    judge = Judge(
        ORDERED, history(["mkdir d", *(f"create d/{n}" for n in range(2000)), "fsync d"]), error_patterns=()
    )
    names = tree(directory("d"), *(file(f"d/{n}", inode=n + 9000) for n in range(1, 2000)))
    for at in itertools.cycle(range(2003)):
        judge.judge(Position(at, at), Outcome(tree=names, fsck=CLEAN))


def wait_for_a_program() -> None:
    """As for an fsck that somebody has stopped."""
    subprocess.run(["sleep", "3600"], check=True, timeout=3000)


@pytest.mark.parametrize(
    ("work", "error"), [(compute, Interrupted), (judge, Interrupted), (wait_for_a_program, BaseException)]
)
def test_a_pool_can_be_closed_whatever_its_workers_do(
    work: Callable[[], None], error: type[BaseException]
) -> None:
    """SIGTERM was heard, and then tasks were waited for: minutes, with a history of thousands of names."""
    begun = threading.Event()

    def task(_: Worker) -> Callback:
        begun.set()
        work()
        return lambda: None

    session = cast(Any, NoWorker())
    pool = Pool(lambda _: Worker(session, session), 1, confirms=False)
    future = pool.submit(task)
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=pool.close, daemon=True)
    closing.start()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    with pytest.raises(error):
        future.result(timeout=DEADLINE_S)


def test_a_pool_whose_tasks_are_done_interrupts_none() -> None:
    done: list[int] = []
    session = cast(Any, NoWorker())
    pool = Pool(lambda _: Worker(session, session), 2, confirms=False)

    def task(number: int) -> Task:
        return lambda _: lambda: done.append(number)

    futures = [pool.submit(task(i)) for i in range(20)]
    for future in futures:
        future.result(timeout=DEADLINE_S)()
    pool.close()
    assert sorted(done) == list(range(20))


# --- where they run ---------------------------------------------------------------------------


@given(own=st.sets(st.integers(0, 200), min_size=1, max_size=70), workers=st.integers(1, 130))
def test_each_processor_has_as_many_workers_or_none_is_held_to_one(own: set[int], workers: int) -> None:
    """One processor with two workers and another with one would be slower than what the scheduler does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: own)
        chosen = processes.processors_for(workers)
    assert len(chosen) == workers
    if workers % len(own):
        assert set(chosen) == {None}
    else:
        assert Counter(chosen) == dict.fromkeys(own, workers // len(own))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_keeps_to_its_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Two workers took 0.7 of the time of one: each waited for processors on which the other worked."""
    all_of_them = os.sched_getaffinity(0)
    own = min(all_of_them)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {own, own + 1000} if workers == 1 else {own})
    spec = toy_spec(Kernel(), tmp_path)
    plan = Plan(configurations=[], workloads=[], jobs=workers)
    pool = pool_of(GuestSpecs(spec, spec, "toys"), tmp_path, plan)
    monkeypatch.undo()
    seen: list[set[int]] = []

    def task(worker: Worker) -> Callback:
        session = cast(RemoteSession, worker.judge)
        with pytest.raises(PowercutError):  # there is no such disk; but its process has answered
            session.boot(Target("ext4", "", tmp_path / "base", None))
        process = session._process._process
        assert process is not None
        seen.append(os.sched_getaffinity(process.pid))
        return lambda: None

    try:
        pool.submit(task).result(timeout=DEADLINE_S)
    finally:
        pool.close()
    assert seen == [{own} if workers == 2 else all_of_them]


def test_a_worker_of_a_shard_keeps_to_the_processor_that_it_was_given(tmp_path: Path) -> None:
    spec, plan = toy_spec(Kernel(), tmp_path), Plan(configurations=[], workloads=[], jobs=2)
    pool = pool_of(GuestSpecs(spec, spec, "toys"), tmp_path, plan, processors=[7, 9])
    made = [cast(RemoteSession, pool._make(number).judge)._process._make for number in range(2)]
    pool.close()
    assert [cast(Any, make).keywords["processor"] for make in made] == [7, 9]


def test_how_long_a_guest_is_waited_for_reaches_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set in the run, it was not known in the workers' processes, and a busy host let a recording fail."""
    monkeypatch.setattr(guest_sessions, "IDLE_S", 0.3)
    spec, several = toy_spec(Kernel(), tmp_path), len(os.sched_getaffinity(0)) + 1
    plan = Plan(configurations=[], workloads=[], jobs=several)
    pool = pool_of(GuestSpecs(spec, spec, "toys"), tmp_path, plan)
    monkeypatch.undo()
    made = cast(RemoteSession, pool._make(0).judge)._process._make()
    pool.close()
    assert {session._idle_s for session in made.values()} == {0.3}
