"""Workloads by chance: possible, the same from the same name, and as long as asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import CaseId, OperationKind
from harness.oracles.replay import replay
from harness.tests.oracles.cases import ORDERED, history
from harness.tests.workloads.generate import NOT_GENERATED
from harness.workloads.generate import generate
from harness.workloads.generate.chance import longer, name_of

NAMES = st.builds(name_of, st.integers(0, 1 << 40), st.integers(3, 120), st.sampled_from((1, 2)))
K = OperationKind


def old_tree(name: str) -> list[str]:
    """What comes before the operations that a name counts."""
    if name.startswith("random1-"):
        return []
    kinds = [op.kind for op in generate(name).operations]
    return list(map(str, kinds[: next(i for i, k in enumerate(kinds) if k in (K.SYNC, K.REMOUNT)) + 1]))


@settings(deadline=None)
@given(NAMES)
def test_it_can_be_carried_out_and_is_as_long_as_its_name_says(name: str) -> None:
    workload = generate(name)
    replay(ORDERED, history(workload.operations))
    assert len(workload.operations) - len(old_tree(name)) == int(name.rpartition("-")[2])
    assert CaseId("ext4", "ordered", name).family == "random"


@settings(deadline=None)
@given(NAMES)
def test_a_name_gives_the_same_workload_again(name: str) -> None:
    assert generate(name) == generate(name)


def test_version_1_of_seed_17_is_kept() -> None:
    """A change here needs a new version: old names must not stand for other workloads."""
    assert [str(op) for op in generate("random1-17-12").operations] == [
        "mkdir A",
        "mkdir B",
        "tmpfile B/bar 5000",
        "fdatasync B/bar",
        "create B/foo",
        "create A/foo",
        "fsync A/foo",
        "write B/bar 0 4096 direct",
        "fallocate B/bar 1520 9474 zero-range",
        "append B/foo 2008",
        "truncate B/bar 20994",
        "fsync B",
    ]


@settings(deadline=None)
@given(NAMES)
def test_a_longer_one_begins_with_the_same_operations(name: str) -> None:
    more = longer(name, 240)
    assert more
    operations = generate(name).operations
    assert generate(more).operations[: len(operations)] == operations


def test_every_kind_of_operation_comes() -> None:
    """Handles, exchanges and O_SYNC came in none, and no workload began on an old tree: what btrfs
    lost of those was found by workloads written for it only.
    """
    every = [op for seed in range(200) for op in generate(name_of(seed, 40)).operations]
    assert {op.kind for op in every} == set(K) - NOT_GENERATED
    synced = {(op.kind, flag) for op in every for flag in op.flags if flag in ("sync", "dsync")}
    assert synced >= {(k, flag) for k in (K.WRITE, K.APPEND) for flag in ("sync", "dsync")}
    assert any(op.path.startswith("@") for op in every if op.kind is K.FSYNC)


def test_it_begins_with_a_tree_that_is_on_disk_and_perhaps_nowhere_else() -> None:
    trees = [old_tree(name_of(seed, 3)) for seed in range(40)]
    assert {tree[-1] for tree in trees} == {"sync", "remount"}
    assert {len(tree) for tree in trees} > {3, 6, 9}
    assert any("link" in tree for tree in trees)
