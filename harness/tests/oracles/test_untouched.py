"""Old data that nothing touched: what a stack may lose in a write that power cut short."""

from __future__ import annotations

import dataclasses

import pytest

from harness.model import Change, Extent, ExtentKind, Outcome, Position
from harness.oracles import Judge
from harness.oracles.contract import Contract
from harness.tests.oracles.cases import (
    CLEAN,
    EACH,
    ORDERED,
    PATTERNS,
    SYNCED,
    directory,
    file,
    history,
    judged,
    tree,
    written,
    zeros,
)

ON_STACK = dataclasses.replace(ORDERED, rules=("untouched-stays",))
EACH_ON_STACK = dataclasses.replace(EACH, rules=("untouched-stays",))
SYNCED_ON_STACK = dataclasses.replace(SYNCED, rules=("untouched-stays",))
OLD = ["create old", "write old 0 8192", "sync", "create new", "write new 0 4096", "fsync new"]


def names(found: object) -> list[str]:
    return [v.signature for v in found.violations if v.oracle == "untouched"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "wrong",
    [
        [written(1, 0, 4096), Extent(ExtentKind.FOREIGN, 4096, 4096, 0, data=b"\x17" * 64)],
        [written(1, 0, 4096), zeros(4096, 4096)],
        [written(1, 0, 4096), written(4, 4096, 4096)],
        [written(1, 0, 4096), Extent(ExtentKind.POISON, 4096, 4096, 7)],
    ],
)
def test_old_data_that_changed_is_told_by_its_own_name(wrong: list[Extent]) -> None:
    """It was one of many files with broken contents; that no operation had touched it was not said."""
    recovered = tree(file("old", *wrong), file("new", written(4, 0, 4096)))
    assert names(judged(OLD, recovered, ON_STACK)) == ["old: changed though untouched"]
    assert not names(judged(OLD, recovered, ORDERED)), "of file systems on a stack alone"


def test_an_older_write_of_the_same_file_that_comes_back_is_a_write_that_was_lost() -> None:
    """On RAID 5 with a partial parity log each fdatasync that kept nothing was told twice."""
    operations = ["create f", "write f 0 4096", "sync", "write f 0 4096", "fdatasync f"]
    found = judged(operations, tree(file("f", written(1, 0, 4096))), ON_STACK)
    assert [v.oracle for v in found.violations] == ["durability"]


def test_old_data_that_is_there_passes() -> None:
    recovered = tree(file("old", written(1, 0, 8192)), file("new", written(4, 0, 4096)))
    assert not judged(OLD, recovered, ON_STACK).violations


def test_a_hole_stays_a_hole() -> None:
    operations = ["create old", "write old 4096 4096", "sync", "create new", "write new 0 4096", "fsync new"]
    new = file("new", written(4, 0, 4096))
    assert not judged(
        operations, tree(file("old", zeros(0, 4096), written(1, 4096, 4096)), new), ON_STACK
    ).violations
    assert names(
        judged(operations, tree(file("old", written(4, 0, 4096), written(1, 4096, 4096)), new), ON_STACK)
    )


@pytest.mark.parametrize(
    "touching", ["write old 0 4096", "truncate old 4096", "unlink old", "rename old other"]
)
def test_a_file_that_an_operation_touches_is_left_to_the_others(touching: str) -> None:
    operations = ["create old", "write old 0 8192", "sync", touching]
    garbage = Extent(ExtentKind.FOREIGN, 4096, 4096, 0, data=b"\x17" * 64)
    recovered = tree(file("old", written(1, 0, 4096), garbage))
    assert not names(judged(operations, recovered, ON_STACK, begun=4))


def test_a_file_that_was_never_durable_is_left_to_the_others() -> None:
    garbage = Extent(ExtentKind.FOREIGN, 4096, 4096, 0, data=b"\x17" * 64)
    assert not names(
        judged(["create old", "write old 0 8192"], tree(file("old", written(1, 0, 4096), garbage)), ON_STACK)
    )


TWO = ["mkdir A", "create A/f", "append A/f 4096", "mkdir B", "create B/f", "append B/f 4096", "sync"]
SWAPPED = [*TWO, "rename A C", "rename B A"]
MORE = ["append A/f 4096", "fsync A/f"]


@pytest.mark.parametrize(
    ("contract", "persist"),
    [
        (ON_STACK, ["fsync A/f"]),
        (EACH_ON_STACK, ["fsync A/f"]),
        (EACH_ON_STACK, MORE),
        (SYNCED_ON_STACK, MORE),
    ],
)
def test_a_path_that_another_file_had_is_left_to_the_others(contract: Contract, persist: list[str]) -> None:
    """Neither rename is durable where fsync promises no more than the file (and, of an inode that had not
    changed since, not even in order): A/f was told to have changed though it was the file of before.
    """
    before = tree(
        *(directory(name) for name in "AB"),
        file("A/f", written(2, 0, 4096), inode=7),
        file("B/f", written(5, 0, 4096), inode=8),
    )
    assert not names(judged([*SWAPPED, *persist], before, contract))


def test_what_took_another_ones_name_is_judged_once_that_is_durable() -> None:
    garbage = tree(file("f", Extent(ExtentKind.FOREIGN, 0, 4096, 0, data=b"\x17" * 64)))
    told = ["f: changed though untouched"]
    taken = ["create f", "append f 4096", "sync", "create t", "append t 4096", "rename t f"]
    for contract in (ON_STACK, EACH_ON_STACK):
        assert names(judged([*taken, "fsync f"], garbage, contract)) == told
        assert not names(judged([*taken[:5], "fsync t", taken[5]], garbage, contract))
    assert not names(judged([*taken, "fsync f"], garbage, SYNCED_ON_STACK)), "f may be the old file"
    linked = [*taken, "link f g", "fsync g"]
    assert not names(judged(linked, garbage, EACH_ON_STACK)), "fsync of g keeps no other name"
    for contract in (ON_STACK, EACH_ON_STACK, SYNCED_ON_STACK):
        assert names(judged([*taken[:2], "fsync f"], garbage, contract)) == told
        assert names(judged(["tmpfile f 4096", "fdatasync f"], garbage, contract)) == told


def test_a_stack_that_does_not_start_is_told_once() -> None:
    """It would be a mount that fails, and with other errnos one that could not be tried."""
    judge = Judge(ORDERED, history(OLD), error_patterns=PATTERNS)
    outcome = Outcome(
        mount_errno=6, not_started="exit code 1: mdadm: no such array\nmdadm: giving up", fsck=CLEAN
    )
    found = judge.judge(Position(6, 6), outcome)
    assert [v.oracle for v in found.violations] == ["assembles"]
    assert "mdadm: giving up" in found.violations[0].summary
    assert not found.unknown


def test_each_change_outside_the_folder_of_a_workload_is_told() -> None:
    judge = Judge(ORDERED, history(OLD), error_patterns=PATTERNS)
    changed = (Change("etc/hosts", "size", "10", "0"), Change("etc/new", "existence", "not there", "there"))
    outcome = Outcome(outside=changed, tree=tree(file("old", written(1, 0, 8192))), fsck=CLEAN)
    found = [v for v in judge.judge(Position(6, 6), outcome).violations if v.oracle == "outside"]
    assert [(v.subject, v.expected, v.found) for v in found] == [
        ("etc/hosts", "10", "0"),
        ("etc/new", "not there", "there"),
    ]
    assert found[0].signature == "outside the folder: size", "one symptom, whichever file"
    unmounted = dataclasses.replace(outcome, mount_errno=5, tree={})
    assert "outside" not in {v.oracle for v in judge.judge(Position(6, 6), unmounted).violations}
