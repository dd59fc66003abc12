"""Stations stop when they are told to, whatever they are doing."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from harness.cases.pool import Callback, Interrupted, Pool, Station, Task
from harness.model import Outcome, Position
from harness.oracles import Judge
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
def test_a_pool_can_be_closed_whatever_its_stations_do(
    work: Callable[[], None], error: type[BaseException]
) -> None:
    """SIGTERM was heard, and then tasks were waited for: minutes, with a history of thousands of names."""
    begun = threading.Event()

    def task(_: Station) -> Callback:
        begun.set()
        work()
        return lambda: None

    session = cast(Any, NoWorker())
    pool = Pool(lambda _: Station(session, session), 1, confirms=False)
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
    pool = Pool(lambda _: Station(session, session), 2, confirms=False)

    def task(number: int) -> Task:
        return lambda _: lambda: done.append(number)

    futures = [pool.submit(task(i)) for i in range(20)]
    for future in futures:
        future.result(timeout=DEADLINE_S)()
    pool.close()
    assert sorted(done) == list(range(20))
