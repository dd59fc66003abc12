"""Inode flags: which promises each makes, and how names are found in directories that ignore case."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import UsageError
from harness.filesystems.profiles import select_profiles
from harness.model import Outcome, Verdict
from harness.oracles import Judge
from harness.oracles.contract import Contract
from harness.oracles.replay import fitting, need_possible, replay
from harness.tests.oracles.cases import (
    CLEAN,
    EACH,
    ORDERED,
    dice,
    directory,
    file,
    history,
    judged,
    oracles,
    power_cut,
    tree,
    written,
    zeros,
)
from harness.workloads.load import load_workload, parse_operation

PASS = Verdict.PASS
D_HOLDS = dataclasses.replace(ORDERED, chattr=("D",))
EACH_D = dataclasses.replace(EACH, chattr=("D",))
FOLDED = ("mkdir d", "chattr d +F")


def names(*operations: str) -> dict[str, int]:
    known, version = replay(ORDERED, history(operations)).names, len(operations)
    return {path: known.inode(path, version) for path in known.names(version)}


# --- S ---

S_WRITE = ("create f", "append f 4096", "sync", "chattr f +S", "write f 0 4096")


@pytest.mark.parametrize("contract", [ORDERED, EACH])
def test_a_write_to_a_file_with_s_is_durable(contract: Contract) -> None:
    kept = judged(S_WRITE, tree(file("f", written(4, 0, 4096))), contract)
    assert kept.verdict is PASS
    lost = tree(file("f", written(1, 0, 4096)))
    assert "durability" in oracles(judged(S_WRITE, lost, contract))
    assert judged([op for op in S_WRITE if "chattr" not in op], lost, contract).verdict is PASS


def test_once_s_is_cleared_a_write_promises_nothing() -> None:
    operations = (*S_WRITE[:4], "chattr f -S", "write f 0 4096")
    assert judged(operations, tree(file("f", written(1, 0, 4096))), ORDERED).verdict is PASS


# --- D ---


@pytest.mark.parametrize("contract", [D_HOLDS, EACH_D])
@pytest.mark.parametrize(
    "last", ["create d/g", "link f d/g", "rename f d/g", "rename d/old g", "exchange f d/old", "mkdir d/g"]
)
def test_a_change_of_names_in_a_directory_with_d_is_durable(contract: Contract, last: str) -> None:
    operations = ("create f", "chmod f 600", "mkdir d", "create d/old", "sync", "chattr d +D", last)
    before = tree(file("f", mode=0o600), directory("d"), file("d/old"))
    assert "durability" in oracles(judged(operations, before, contract))
    plain = dataclasses.replace(contract, chattr=())
    assert judged(operations, before, plain).verdict is PASS


@pytest.mark.parametrize("last", ["create g", "link d/old g", "append d/old 100", "chmod d/old 600"])
def test_what_changes_no_name_there_is_not(last: str) -> None:
    operations = ("create f", "mkdir d", "create d/old", "sync", "chattr d +D", last)
    before = tree(file("f"), directory("d"), file("d/old"))
    assert judged(operations, before, D_HOLDS).verdict is PASS


def test_a_new_directory_inherits_d() -> None:
    operations = ("mkdir d", "sync", "chattr d +D", "mkdir d/e", "create d/e/f")
    lost = tree(directory("d"), directory("d/e"))
    assert "durability" in oracles(judged(operations, lost, D_HOLDS))


def test_the_file_systems_for_which_d_holds() -> None:
    """Btrfs takes the flag, and does nothing with it."""
    modes = select_profiles(["ext3/ordered", "ext4/ordered", "f2fs/posix", "btrfs/default", "xfs/default"])
    holds = [str(p.name) for p in modes if "D" in p.contract.chattr]
    assert holds == ["ext3/ordered", "ext4/ordered", "f2fs/posix"]


def test_what_is_no_letter_that_depends_on_the_file_system_is_refused() -> None:
    with pytest.raises(UsageError, match="only D depends"):
        dataclasses.replace(ORDERED, chattr=("F",))


# --- F ---


def test_a_name_is_found_whatever_its_case_and_kept_as_it_was_made() -> None:
    assert names(*FOLDED, "create d/Name", "append d/nAME 10") == {"d": 0, "d/Name": 2}
    assert names(*FOLDED, "create d/Name", "create g", "rename g d/NAME") == {"d": 0, "d/Name": 3}
    assert names(*FOLDED, "create d/Name", "rename d/name d/NAME") == {"d": 0, "d/Name": 2}
    assert names(*FOLDED, "create d/Name", "rename d/name d/Other") == {"d": 0, "d/Other": 2}
    assert names(*FOLDED, "create d/Name", "unlink d/name", "create d/NAME") == {"d": 0, "d/NAME": 4}
    assert names(*FOLDED, "create d/Stra\u00dfe", "unlink d/STRASSE") == {"d": 0}
    assert names(*FOLDED, "create d/\u00e9", "unlink d/E\u0301") == {"d": 0}


def test_a_new_directory_ignores_case_as_the_one_it_is_in() -> None:
    assert names(*FOLDED, "mkdir d/Inner", "create d/INNER/f", "unlink d/inner/F") == {"d": 0, "d/Inner": 2}
    assert names(*FOLDED, "mkdir e", "create e/a", "create e/A") == {"d": 0, "e": 2, "e/a": 3, "e/A": 4}


def test_which_operations_are_possible_depends_on_the_flag() -> None:
    texts = [*FOLDED, "create d/a", "create d/A", "unlink d/A"]
    assert fitting(ORDERED, [parse_operation(text) for text in texts]) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        ((*FOLDED, "create d/a", "create d/A"), "d/a exists already"),
        ((*FOLDED, "create d/a", "link d/a d/A"), "d/a exists already"),
        (("mkdir d", "create d/a", "chattr d +F"), "d is not empty"),
        (("create f", "append f 10", "chattr f +C"), "f is not empty"),
        (("create f", "chattr f +D"), "f is a file, not a directory"),
        (("mkdir d", "chattr d +S"), "d is a directory, not a file"),
    ],
)
def test_what_cannot_succeed_is_refused(operations: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        need_possible([parse_operation(text) for text in operations])


@pytest.mark.parametrize("word", ["S", "+s", "+i", "*S", "+SD", "+"])
def test_a_flag_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is no inode flag"):
        parse_operation(f"chattr f {word}")


def test_the_other_spelling_after_a_crash_is_a_broken_promise() -> None:
    operations = (*FOLDED, "create d/Name", "create g", "append g 100", "rename g d/NAME", "sync")
    kept = tree(directory("d"), file("d/Name", written(4, 0, 100)))
    assert judged(operations, kept, ORDERED).verdict is PASS
    spelled = tree(directory("d"), file("d/NAME", written(4, 0, 100)))
    assert oracles(judged(operations, spelled, ORDERED))
    old = tree(directory("d"), file("d/Name"), file("g", zeros(0, 100)))
    assert "durability" in oracles(judged(operations, old, ORDERED))


# --- the simple disk ---


@pytest.mark.parametrize(
    ("name", "bug"), [("sync-flag", "sync-flag-does-nothing"), ("dirsync-flag", "dirsync-flag-does-nothing")]
)
def test_the_workloads_pass_on_the_simple_disk_and_fail_where_the_flag_does_nothing(
    name: str, bug: str
) -> None:
    operations = load_workload(name).operations

    def told(*bugs: str) -> set[str]:
        one, found = Judge(D_HOLDS, history(operations), error_patterns=()), set()
        for cut in range(60):
            position, recovered = power_cut(D_HOLDS, operations, dice(cut), bugs)
            found |= oracles(one.judge(position, Outcome(tree=recovered, fsck=CLEAN)))
        return found

    assert told() == set()
    assert "durability" in told(bug)
