"""Workloads that ask a question: updates of a boot partition, how engines of containers unpack a layer."""

from __future__ import annotations

import pytest

from harness.litmus.promises import tree_of
from harness.oracles.question import why_not
from harness.workloads.load import load_workload, workload_sets

NAMES = workload_sets()["boot"]


@pytest.mark.parametrize("name", [*NAMES, *workload_sets()["containers"], "replace-old"])
def test_each_question_tells_its_planted_answers_apart(name: str) -> None:
    """A predicate that no tree fails, or every tree, would make every way safe, or none."""
    workload = load_workload(name)
    asked = workload.question
    assert asked is not None
    assert asked.kept and asked.broken
    assert asked.setup <= asked.first <= len(workload.operations)
    for planted in asked.kept:
        assert not why_not(asked, tree_of(planted))
    for planted in asked.broken:
        assert why_not(asked, tree_of(planted))


@pytest.mark.parametrize("name", NAMES)
def test_what_boots_today_is_synced_before_the_update(name: str) -> None:
    """FAT's sync flushes nothing, so only fsync makes a setup that a disk with a cache keeps."""
    workload = load_workload(name)
    assert workload.question is not None
    setup = [str(op) for op in workload.operations[: workload.question.setup]]
    made = {op.split()[1] for op in setup if op.startswith("create ")}
    directories = {op.split()[1] for op in setup if op.startswith("mkdir ")} | {"."}
    assert {f"fsync {path}" for path in made | directories} <= set(setup)
    assert setup[-1] == "fsync ."
