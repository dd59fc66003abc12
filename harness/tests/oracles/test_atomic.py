"""Atomic writes of F2FS, and file systems that are shut down."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.model import Outcome
from harness.oracles import Judge
from harness.oracles.replay import need_possible
from harness.tests.oracles.cases import (
    CLEAN,
    EACH,
    dice,
    file,
    history,
    judged,
    oracles,
    power_cut,
    tree,
    written,
)
from harness.tests.oracles.test_judge import KEPT
from harness.workloads.load import parse_operation

BEFORE = ("create f", "append f 8192", "fsync f", "open f @h", "start-atomic @h")
WRITES = ("write @h 0 4096", "append @h 4096")
OLD = file("f", written(1, 0, 8192))
NEW = file("f", written(5, 0, 4096), written(1, 4096, 4096), written(6, 8192, 4096))
HALVES = (
    file("f", written(5, 0, 4096), written(1, 4096, 4096)),
    file("f", written(1, 0, 8192), written(6, 8192, 4096)),
)


def test_an_atomic_write_is_there_as_a_whole_or_not_at_all() -> None:
    committing = (*BEFORE, *WRITES, "commit-atomic @h")
    for whole in (OLD, NEW):
        assert not judged(committing, tree(whole), EACH, begun=8).violations
    for half in HALVES:
        assert judged(committing, tree(half), EACH, begun=8).violations


def test_without_a_commit_there_is_nothing_of_it() -> None:
    for end in ((), ("abort-atomic @h",), ("sync",)):
        assert not judged((*BEFORE, *WRITES, *end), tree(OLD), EACH).violations
        for other in (NEW, *HALVES):
            assert judged((*BEFORE, *WRITES, *end), tree(other), EACH).violations, end


def test_what_was_committed_is_durable_once_it_was_synced() -> None:
    committed = (*BEFORE, *WRITES, "commit-atomic @h")
    for whole in (OLD, NEW):
        assert not judged(committed, tree(whole), EACH).violations
    for sync in ("fsync @h", "fdatasync f", "sync"):
        assert not judged((*committed, sync), tree(NEW), EACH).violations
        assert oracles(judged((*committed, sync), tree(OLD), EACH)) == {"durability"}


def test_the_same_writes_without_atomicity_may_be_there_one_by_one() -> None:
    """The control: what refuses the halves is the commit, and nothing else."""
    plain = ("create f", "append f 8192", "fsync f", "open f @h", "write-back", *WRITES, "fsync @h")
    for any_of_them in (OLD, NEW, *HALVES):
        assert not judged(plain, tree(any_of_them), EACH, begun=8).violations


def test_a_commit_in_parts_is_found() -> None:
    operations = [parse_operation(text) for text in (*BEFORE, *WRITES, "commit-atomic @h", "create g")]
    found: set[str] = set()
    for bug in ([], ["atomic-in-parts"]):
        assert not found
        for seed in range(200):
            position, recovered = power_cut(KEPT["each"], operations, dice(seed), bug)
            judge = Judge(KEPT["each"], history(operations), error_patterns=())
            found |= oracles(judge.judge(position, Outcome(tree=recovered, fsck=CLEAN)))
    assert found & {"contents", "size"}


@pytest.mark.parametrize(
    "refused",
    ["fsync f", "write f 0 10 sync", "truncate @h 0", "unlink f", "start-atomic @h", "close @h", "remount"],
)
def test_nothing_else_is_done_to_the_file_in_between(refused: str) -> None:
    need_possible([parse_operation(text) for text in (*BEFORE, "create g", "fsync g", "gc")])
    with pytest.raises(UsageError):
        need_possible([parse_operation(text) for text in (*BEFORE, refused)])


def test_a_shutdown_by_default_syncs() -> None:
    down = ("create f", "append f 8192", "shutdown")
    assert not judged(down, tree(OLD), EACH).violations
    assert oracles(judged(down, tree(), EACH)) == {"durability"}


def test_another_shutdown_promises_what_was_synced_and_comes_last() -> None:
    for how in ("logflush", "nologflush"):
        down = ("create f", "append f 8192", "fsync f", "create g", f"shutdown {how}")
        for made in ((), (file("g"),)):
            assert not judged(down, tree(OLD, *made), EACH).violations
        assert oracles(judged(down, tree(), EACH)) == {"durability"}
        with pytest.raises(UsageError, match="shutdown"):
            need_possible([parse_operation(text) for text in (*down, "create h")])
