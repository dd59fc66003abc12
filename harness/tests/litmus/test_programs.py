"""The litmus programs: what each of them asks, and what contracts and documents promise of it."""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec
import pytest

from harness.errors import UsageError
from harness.filesystems.profiles import profiles
from harness.litmus import programs as programs_module
from harness.litmus.programs import GROUPS, MAX_OPERATIONS, Program, programs
from harness.litmus.promises import promises, tree_of
from harness.model.questions import PlantedEntry
from harness.oracles.question import why_not
from harness.tests.oracles.cases import JOURNAL, ORDERED, SYNCED, WRITEBACK, variant
from harness.workloads.load import workload_sets

ALL = programs()
NAMES = [p.name for p in ALL]


@pytest.mark.parametrize("program", ALL, ids=NAMES)
def test_each_question_tells_its_planted_answers_apart(program: Program) -> None:
    """A predicate that no tree fails, or every tree, would be an `always` or a `no` for good."""
    asked = program.question
    assert asked.kept and asked.broken
    for planted in asked.kept:
        assert not why_not(asked, tree_of(planted))
    for planted in asked.broken:
        assert why_not(asked, tree_of(planted))


@pytest.mark.parametrize("program", ALL, ids=NAMES)
def test_each_program_is_small_and_says_what_documents_promise(program: Program) -> None:
    asked = program.question
    assert len(program.operations) - asked.setup <= MAX_OPERATIONS
    assert asked.asks.endswith("?") and asked.documented
    assert all(s.by and s.says.endswith(".") for s in asked.documented)
    assert {mode for s in asked.documented for mode in s.modes} <= profiles().keys()


def test_every_group_has_programs_and_no_other_workload_has_their_names() -> None:
    """A litmus program called `append-fsync` was loaded as the workload of that name."""
    assert set(Counter(p.question.group for p in ALL)) == set(GROUPS)
    others = [name for key, names in workload_sets().items() if key != "litmus" for name in names]
    assert not set(NAMES) & set(others)
    assert len(ALL) >= 60


def test_a_planted_directory_has_a_link_of_each_directory_in_it() -> None:
    """All had two: a question about them was refused for good."""
    directory = PlantedEntry(kind="directory")
    tree = tree_of({"d": directory, "d/s": directory, "d/t": directory, "d/f": PlantedEntry()})
    assert {path: entry.links for path, entry in tree.items()} == {
        "": 3,
        "d": 4,
        "d/s": 2,
        "d/t": 2,
        "d/f": 1,
    }


def named(name: str) -> Program:
    (program,) = programs([name])
    return program


def promised(name: str, contract: object) -> bool:
    program = named(name)
    return promises(contract, program.workload.operations, program.question)  # type: ignore[arg-type]  # a Contract


def test_a_contract_promises_what_its_oracles_would_report() -> None:
    nodelalloc = variant(size_lags=False, zeros_in_new_blocks=False)
    for contract in (JOURNAL, ORDERED, WRITEBACK, SYNCED):
        assert promised("append-fsync-file", contract)
        assert not promised("overwrite-sync-file-range", contract)
    assert promised("overwrites-in-order", JOURNAL)
    assert not promised("overwrites-in-order", ORDERED)
    # A commit may fall between two pages of a write, and between two operations.
    assert not promised("overwrite-all-or-nothing", JOURNAL)
    assert not promised("append-all-or-nothing", JOURNAL)
    assert not promised("truncate-then-write", JOURNAL)
    assert promised("append-data-before-size", nodelalloc)
    assert not promised("append-data-before-size", ORDERED), "delayed allocation may commit zeros"
    assert promised("replace-no-fsync-not-empty", ORDERED)
    assert not promised("replace-no-fsync-not-empty", WRITEBACK)
    assert promised("creates-in-order", ORDERED)
    assert not promised("creates-in-order", variant(namespace="each", persists="inode"))


def test_a_promise_has_to_hold_wherever_the_question_is_put() -> None:
    """Only the end was looked at: what an fsync there makes durable counted as promised before it."""
    program = named("append-fsync-file")
    early = msgspec.structs.replace(program.question, after=4)
    assert promises(ORDERED, program.workload.operations, program.question)
    assert not promises(ORDERED, program.workload.operations, early)


def test_a_rename_that_left_both_names_is_no_promise_broken_where_names_are_durable_one_by_one() -> None:
    """btrfs keeps the old name where only the new directory was synced. Its contract allows that, and the
    cell was red: the planted answer no had the old name alone.
    """
    each = variant(namespace="each", persists="inode", data="writeback", replace_is_safe=False)
    assert not promised("rename-fsync-new-directory", each)
    assert promised("rename-fsync-new-directory", ORDERED)


@pytest.mark.parametrize(
    "name", ["appends-in-order-two-files", "append-then-chmod-in-order", "fsync-takes-neighbours-data"]
)
def test_what_a_contract_allows_of_new_blocks_is_planted_everywhere(name: str) -> None:
    """data=writeback may leave in a new block what the device held. The planted answers no had the file at
    its old size, which the order of names excludes; so the cells of ext3/writeback were red.
    """
    stale = variant(data="writeback", size_lags=False, zeros_in_new_blocks=False, stale_allowed=True)
    zeros = variant(data="writeback", size_lags=False, zeros_in_new_blocks=True)
    whole = variant(data="writeback", size_lags=False, zeros_in_new_blocks=False)
    assert not promised(name, stale)
    assert not promised(name, zeros)
    assert promised(name, whole)


def test_a_program_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="no litmus program 'replace-no-fsink'"):
        programs(["replace-no-fsink"])


@pytest.mark.parametrize(
    ("given", "why"),
    [({"until": 3}, "until 3, so nowhere"), ({"setup": -1, "after": None}, "put after operation -1")],
)
def test_a_question_that_is_put_nowhere_is_refused(
    given: dict[str, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state had the answer no, and no contract allowed one: the cell of such a program said `always`."""
    known = named("append-fsync-file")
    asked = msgspec.structs.replace(known.question, **given)
    changed = dataclasses.replace(known.workload, question=asked)
    monkeypatch.setattr(programs_module, "load_workload", lambda name: changed)
    with pytest.raises(UsageError, match=why):
        programs([known.name])


def unstated(mode: str) -> set[str]:
    """Questions whose answer yes a document promises, and the mode's contract does not."""
    contract = profiles()[mode].contract
    return {
        p.name
        for p in ALL
        if any(s.promises for s in p.question.documented if not s.modes or mode in s.modes)
        and not promises(contract, p.workload.operations, p.question)
    }


ONLY_IN_DOCUMENTS: dict[str, set[str]] = {
    "ext3/journal": {"fallocate-fsync"},  # ext3 has no fallocate
    "ext4/journal": set(),
    # an extent is unwritten until its I/O has ended, so a committed size may show zeros
    "ext4/ordered": {"append-data-before-size", "appends-in-order", "replace-no-fsync"},
    "xfs/default": set(),
    "btrfs/default": set(),
    "f2fs/posix": {"fallocate-fsync"},  # CONTRACTS.md, "Not judged"
    "nilfs2/default": {"fallocate-fsync"},  # NILFS2 has no fallocate
}
"""What documents promise, and a contract does not, each with its reason."""


@pytest.mark.parametrize("mode", ONLY_IN_DOCUMENTS)
def test_what_documents_promise_and_no_contract_states_has_a_reason(mode: str) -> None:
    """Nobody would hold such a promise against a kernel."""
    assert unstated(mode) == ONLY_IN_DOCUMENTS[mode]
