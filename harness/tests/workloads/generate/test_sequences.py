"""Bounded exhaustive workloads: all possible, each once, and all there from its name."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter

import pytest

from harness.errors import UsageError
from harness.model import CaseId, Operation, OperationKind, Workload
from harness.oracles.replay import replay
from harness.tests.oracles.cases import ORDERED, history
from harness.tests.workloads.generate import NOT_GENERATED, ONLY_BY_CHANCE
from harness.workloads.generate import SETS, generate, is_generated, names_of
from harness.workloads.generate.sequences import sequences
from harness.workloads.generate.steps import STEPS
from harness.workloads.load import parse_operation

K = OperationKind
ALL = list(sequences(1))
FURTHER = list(names_of("ace1more"))


@functools.cache
def of_two() -> list[str]:
    """All of two steps: a second's work, which only this module's tests wait for."""
    return list(sequences(2))


@pytest.fixture(scope="module")
def workloads() -> list[Workload]:
    return [generate(name) for name in (*ALL, *of_two()[::97])]


def test_every_workload_can_be_carried_out(workloads: list[Workload]) -> None:
    for w in workloads:
        replay(ORDERED, history(w.operations))  # raises where an operation cannot succeed
        assert [parse_operation(str(op)) for op in w.operations] == list(w.operations)


def test_their_numbers_are_those_that_are_told() -> None:
    for name, count in (("ace1", len(ALL)), ("ace1more", len(FURTHER)), ("ace2", len(of_two()))):
        assert f"{count:,} workloads" in SETS[name][1]


def test_further_single_operations_are_none_of_those_and_can_be_carried_out() -> None:
    assert not {*FURTHER} & {*ALL}
    for w in map(generate, FURTHER):
        replay(ORDERED, history(w.operations))
        assert w == generate(w.name)
        assert [parse_operation(str(op)) for op in w.operations] == list(w.operations)


def test_what_shares_exchanges_or_shifts_blocks_is_there_by_itself() -> None:
    """Only lists of operations had these: what a file system loses of one was asked of no other place, and
    with no other persistence point.
    """
    every = [op for name in FURTHER for op in generate(name).operations]
    assert {K.CLONE, K.COPY_RANGE, K.EXCHANGE_RANGE, K.TOUCH} <= {op.kind for op in every}
    flags = {flag for op in every if op.kind is K.FALLOCATE for flag in op.flags}
    assert flags >= {"collapse-range", "insert-range"}


def test_direct_and_synchronous_writes_are_there_at_several_alignments() -> None:
    """All direct writes covered whole blocks of 4 KiB, where no file system has to read or zero the rest of
    one; O_SYNC and O_DSYNC stood in random workloads alone.
    """
    every = [op for name in (*ALL, *FURTHER) for op in generate(name).operations]
    direct = [op for op in every if "direct" in op.flags]
    assert {op.offset % 512 + op.length % 512 for op in direct} == {0}
    assert {op.offset % 4096 == 0 for op in direct} == {True, False}
    assert {"sync", "dsync"} <= {flag for op in every if op.kind in (K.WRITE, K.APPEND) for flag in op.flags}


def test_none_is_there_twice(workloads: list[Workload]) -> None:
    assert len(set(of_two())) == len(of_two())
    assert len({w.operations for w in workloads}) == len(workloads)


def test_a_name_tells_the_whole_workload(workloads: list[Workload]) -> None:
    for w in workloads:
        assert is_generated(w.name)
        assert generate(w.name) == w
        case = CaseId("ext4", "ordered", w.name)
        assert CaseId.parse(str(case)) == case
        assert case.family in SETS


def test_the_order_is_the_same_every_time() -> None:
    assert list(names_of("ace1")) == ALL
    assert list(itertools.islice(names_of("ace2"), 500)) == of_two()[:500]


def test_every_operation_and_every_persistence_point_is_there(workloads: list[Workload]) -> None:
    used = Counter(op.kind for w in workloads[: len(ALL)] for op in w.operations)
    assert set(K) - set(used) == NOT_GENERATED | ONLY_BY_CHANCE
    steps = {name.removeprefix("ace-").partition(".")[0] for name in ALL}
    assert steps == set(STEPS)
    ends = {name.rpartition("+")[2].partition(".")[0] for name in ALL}
    assert ends == {"fsync", "fdatasync", "sync", "msync", "none"}
    for step in steps:
        mine = {n.rpartition("+")[2] for n in ALL if n.startswith(f"ace-{step}.")}
        assert {"sync", "none"} < mine, step
        assert any(end in ("fsync.A", "fsync.B", "fsync.root") for end in mine), step


def test_what_it_depends_on_is_durable_before(workloads: list[Workload]) -> None:
    """One sync, behind the setup, unless the setup is empty; then a step, or two of one or two operations."""
    for w in workloads[: len(ALL)]:
        steps = 1 if w.name.endswith(("+none", "+msync")) else 2
        setup = w.operations[:-steps]
        assert not setup or setup[-1] == Operation(K.SYNC)
        assert all(op.kind is not K.SYNC for op in setup[:-1])
    assert generate("ace-mkdir.A+none").operations == (Operation(K.MKDIR, "A"),)


FILE = ["create A/foo", "write A/foo 0 8192", "write A/foo 16384 5000"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ace-append.A_foo+fsync.A_foo", ["mkdir A", *FILE, "sync", "append A/foo 5000", "fsync A/foo"]),
        ("ace-setxattr.A_foo+none", ["mkdir A", *FILE, "sync", "setxattr A/foo user.a new"]),
        (
            "ace-removexattr.A_foo+none",
            ["mkdir A", *FILE, "setxattr A/foo user.a old", "sync", "removexattr A/foo user.a"],
        ),
        (
            "ace-unlink-linked.A_foo.A_bar+none",
            ["mkdir A", *FILE, "link A/foo A/bar", "sync", "unlink A/foo"],
        ),
        ("ace-rename.A_foo.B_foo+none", ["mkdir A", "mkdir B", *FILE, "sync", "rename A/foo B/foo"]),
        ("ace-rename-dir-over.A.B+none", ["mkdir A", "mkdir B", *FILE, "sync", "rename A B"]),
    ],
)
def test_the_setup_makes_what_the_operations_need_and_no_more(name: str, expected: list[str]) -> None:
    assert [str(op) for op in generate(name).operations] == expected


def test_what_a_name_stands_for_is_kept(workloads: list[Workload]) -> None:
    """Repeating an old run's workload by its name must repeat that workload."""
    told = "\n".join(f"{w.name}: {'; '.join(map(str, w.operations))}" for w in workloads)
    assert hashlib.blake2b(told.encode(), digest_size=8).hexdigest() == "45c2901c8ce2abfb"


def test_names_that_are_equal_are_used_in_their_order() -> None:
    assert not [n for n in ALL if n.partition(".")[2].startswith(("B", "A_bar"))]
    assert {n.partition("+")[0] for n in ALL if n.startswith("ace-link.")} == {
        "ace-link.A_foo.A_bar",
        "ace-link.A_foo.B_foo",
    }


def test_two_steps_say_what_one_does_to_the_next() -> None:
    names = set(of_two())
    assert "ace-creat.A_foo+none--unlink.A_foo+fsync.A" in names
    assert "ace-unlink.A_foo+none--creat.A_foo+fsync.A_foo" in names
    assert not [n for n in names if n.startswith("ace-creat.A_foo+none--creat.A_foo+")]
    # Behind the rename of a directory bar is no longer what foo is: there is one file in it, foo.
    assert "ace-rename-dir.A.B+none--creat.B_bar+fsync.B" in names
    two = generate("ace-unlink.A_foo+none--creat.A_foo+fsync.A_foo")
    assert [str(op) for op in two.operations[-3:]] == ["unlink A/foo", "create A/foo", "fsync A/foo"]


@pytest.mark.parametrize(
    "name",
    [
        "ace-creat.A_foo+fsync.B_bar",  # does not belong to it
        "ace-creat.A_baz+sync",
        "ace-frobnicate.A_foo+sync",
        "ace-creat.A_foo+sync--creat.A_foo+sync",
        "ace-rename.A_foo+sync",
        "ace-creat.A_foo+msync",
        "ace-mkdir.A+none--unlink.A_foo+none",  # a new directory is empty
        "ace-rename-dir-over.A.B+none--unlink.B_bar+none",  # so is one that is replaced
        "ace-+",
        "ace-creat.A_foo+reboot",
        "random3-17-20",
        "random2-17-2",
        "random1-17-2",
        "random1-17-99999999",
    ],
)
def test_a_name_of_no_workload_is_refused(name: str) -> None:
    assert is_generated(name)
    with pytest.raises(UsageError):
        generate(name)
