"""Which operations the records of single bugs cover, and which they leave new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.model import CaseId, Violation
from harness.symptoms import Symptom
from harness.tests.known.test_match import name_of, observed

_SIZE = Symptom("durability", "NAME: size after N")
_NAMELESS = ("mkdir d", "sync", "open-tmpfile d @t", "write @t 0 9000")


@pytest.mark.parametrize(
    ("operations", "promised", "known"),
    [
        ((*_NAMELESS, "fsync @t", "link @t d/one", "fsync d"), 4, True),
        ((*_NAMELESS, "fdatasync @t", "link @t d/one", "fsync d"), 4, True),
        ((*_NAMELESS[:3], "write @t 0 9000 sync", "link @t d/one", "fsync d"), 3, True),
        ((*_NAMELESS[:3], "append @t 9000 direct dsync", "link @t d/one", "fsync d"), 3, True),
        ((*_NAMELESS, "fdatasync @u", "link @t d/one", "fsync d"), 4, False),
        (("create f", "append f 9000", "fdatasync f"), 2, False),
    ],
)
def test_a_nameless_file_is_synced_in_many_ways(
    operations: Sequence[str], promised: int, *, known: bool
) -> None:
    """Only fsync was one: fdatasync, and a write with O_SYNC, counted as new."""
    seen = observed(_SIZE, operations=operations, promised=promised, state="@99")
    seen = replace(seen, case=CaseId("btrfs", "default", "any"), kernel="6.12.117")
    assert (name_of(seen) == "btrfs-nameless-fsync") is known


def test_a_handle_that_was_closed_holds_no_file() -> None:
    operations = ("create f", "fsync f", "open f @h", "close @h", "create g", "rename g f", "fsync f")
    said = Violation("mountable", "mount", "mount fails with EUCLEAN", "", "", "")
    seen = observed(Symptom("mountable", "mount: EUCLEAN"), operations=operations, state="@90")
    seen = replace(seen, case=CaseId("ext4", "fast_commit", "any"), violation=said)
    assert name_of(seen) != "ext4-fast-commit-nameless"


@pytest.mark.parametrize(
    ("between", "known"),
    [((), True), (("create g",), True), (("append f 4096",), False), (("sync", "append f 10"), False)],
)
def test_what_changed_behind_its_writeback_is_another_loss(between: Sequence[str], *, known: bool) -> None:
    operations = ("create f", "sync", "append f 4096", "write-back", *between, "fsync f")
    seen = observed(_SIZE, operations=operations, promised=len(operations) - 1, state="@99")
    seen = replace(seen, case=CaseId("vfat", "default", "any"), kernel="6.12.117")
    assert (name_of(seen) == "fat-fsync-beside-writeback") is known


@pytest.mark.parametrize(
    ("removes", "known"),
    [("unlink f", True), ("rename t f", True), ("rename f g", False), ("rename t h", False)],
)
def test_a_held_file_loses_its_name_by_what_is_renamed_over_it_as_well(removes: str, *, known: bool) -> None:
    operations = ("create f", "fsync f", "open f @old", "create t", removes, "append @old 10", "fsync @old")
    seen = observed(Symptom("mountable", "mount: EUCLEAN"), operations=operations, state="@90")
    said = Violation(
        "mountable", "mount", "mount fails with EUCLEAN", "", "JBD2: journal recovery failed", ""
    )
    seen = replace(seen, case=CaseId("ext4", "fast_commit", "any"), violation=said)
    assert (name_of(seen) == "ext4-fast-commit-nameless") is known


_SWAPPED = (
    "mkdir a",
    "mkdir b",
    "sync",
    "exchange a b",
    "create a/3",
    "fsync a/3",
    "exchange a b",
    "fsync b",
)


@pytest.mark.parametrize(
    ("operations", "known"),
    [
        (_SWAPPED, True),
        (tuple(op.replace("exchange a b", "exchange b a") for op in _SWAPPED), True),
        ((*_SWAPPED[:3], "remount", *_SWAPPED[3:]), False),
        ((*_SWAPPED[:3], "fsync .", *_SWAPPED[3:]), False),
    ],
)
def test_a_new_directory_of_fat_is_the_same_under_another_name(
    operations: Sequence[str], *, known: bool
) -> None:
    end = len(operations) - 1
    lost = observed(Symptom("durability", "NAME: missing"), operations=operations, promised=end, state="@99")
    case = CaseId("vfat", "default", "any")
    seen = replace(lost, violation=replace(lost.violation, subject="b/3"), case=case)
    assert (name_of(seen) == "fat-fsync-new-directory") is known


@pytest.mark.parametrize(
    ("state", "known"), [("@t90-3", True), ("@t90=", True), ("@90", True), ("@90-3", True), ("@t90", False)]
)
@pytest.mark.parametrize(
    "symptom", [Symptom("durability", "NAME: zeroing lost"), Symptom("size", "NAME: size too large, zero")]
)
def test_an_fsync_that_does_not_wait_is_not_known_where_no_write_is_lost(
    symptom: Symptom, state: str, *, known: bool
) -> None:
    """What recovery brings back by itself was put to the node block that fsync of F2FS does not wait for."""
    operations = ("create f", "write f 0 4096", "sync", "truncate f 0", "fsync f", "truncate f 100")
    seen = observed(symptom, operations=operations, promised=4, state=state)
    seen = replace(seen, violation=replace(seen.violation, subject="f"), case=CaseId("f2fs", "posix", "any"))
    assert (name_of(seen) == "f2fs-fsync-first-node") is known
