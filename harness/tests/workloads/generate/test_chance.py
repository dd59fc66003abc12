"""Workloads by chance: possible, the same from the same name, and as long as asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import CaseId, OperationKind
from harness.oracles.replay import replay
from harness.tests.oracles.cases import ORDERED, history
from harness.tests.workloads.generate import NOT_GENERATED
from harness.workloads.generate import generate
from harness.workloads.generate.chance import name_of

NAMES = st.builds(name_of, st.integers(0, 1 << 40), st.integers(3, 120))


@settings(deadline=None)
@given(NAMES)
def test_it_can_be_carried_out_and_is_as_long_as_its_name_says(name: str) -> None:
    workload = generate(name)
    replay(ORDERED, history(workload.operations))
    assert len(workload.operations) == int(name.rpartition("-")[2])
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


def test_every_kind_of_operation_comes() -> None:
    used = {op.kind for seed in range(200) for op in generate(name_of(seed, 40)).operations}
    assert used == set(OperationKind) - NOT_GENERATED
