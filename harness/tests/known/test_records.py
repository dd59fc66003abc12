"""Which operations the records of single bugs cover, and which they leave new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    ("then", "cause", "known"),
    [
        (("remount",), "", True),
        (("append f 9", "syncfs d"), "No flush at all", True),
        (("sync",), "Torn write", False),
        (("sync",), None, False),
        (("fsync a", "sync"), "", False),
        (("append f 9",), "", False),
    ],
)
def test_a_moved_file_has_both_names_until_a_sync_of_fat_is_durable(
    then: Sequence[str], cause: str | None, *, known: bool
) -> None:
    """`remount@t34=` of vfat/default counted as new: fsync of the file had acknowledged what was lost."""
    operations = ("mkdir a", "create a/f", "append a/f 100", "remount", "rename a/f f", "fsync f", *then)
    seen = observed(_SIZE, operations=operations, promised=5, state="@99", cause=cause)
    seen = replace(seen, case=CaseId("vfat", "default", "any"), kernel="6.12.117")
    assert (name_of(seen) == "vfat-sync-no-flush") is known


_ATTRIBUTES = Symptom("durability", "NAME: attributes")


@pytest.mark.parametrize(
    ("symptom", "change", "between", "known"),
    [
        (_ATTRIBUTES, "chmod f 444", (), True),
        (_ATTRIBUTES, "chmod f 444", ("touch f 9",), False),
        (_ATTRIBUTES, "chmod g 444", (), False),
        (_SIZE, "rename g f", (), True),
        (_SIZE, "rename g f", ("append f 10",), False),
        (_SIZE, "rename f g", (), False),
    ],
)
def test_writeback_hides_a_new_name_and_permissions_from_fsync_on_fat(
    symptom: Symptom, change: str, between: Sequence[str], *, known: bool
) -> None:
    """Only what was appended or written was known: these two were new."""
    operations = ("create f", "fsync f", "create g", "fsync g", change, "write-back", *between, "fsync f")
    seen = observed(symptom, operations=operations, promised=len(operations) - 1, state="@99")
    seen = replace(seen, case=CaseId("vfat", "default", "any"), kernel="6.12.117")
    assert (name_of(seen) == "fat-fsync-beside-writeback") is known


@pytest.mark.parametrize(
    ("symptom", "change"),
    [(_SIZE, "append f 4096"), (_SIZE, "rename g f"), (_ATTRIBUTES, "chmod f 444")],
)
@pytest.mark.parametrize(
    ("between", "known"),
    [
        ("touch f 9", False),
        ("chmod f 600", False),
        ("mmap-write f 0 100", False),
        ("copy-range g f 0 100", False),
        ("rename f h", False),
        ("rename h f", False),
        ("touch g 9", True),
        ("copy-range f g 0 100", True),
        ("rename g h", True),
    ],
)
def test_what_makes_an_inode_dirty_again_has_fsync_write_it_on_fat(
    symptom: Symptom, change: str, between: str, *, known: bool
) -> None:
    """The script keeps the file with a touch behind write-back; a loss there counted as this bug."""
    operations = ("create f", "fsync f", "create g", "fsync g", change, "write-back", between, "fsync f")
    seen = observed(symptom, operations=operations, promised=7, state="@99")
    seen = replace(seen, case=CaseId("vfat", "default", "any"), kernel="6.12.117")
    assert (name_of(seen) == "fat-fsync-beside-writeback") is known


@pytest.mark.parametrize(
    ("mode", "known"),
    [
        ("ordered@raid0", True),
        ("ordered@raid1-bitmap", True),
        ("ordered@raid6", True),
        ("ordered@loop@raid0", False),
        ("journal@raid0", False),
    ],
)
@pytest.mark.parametrize(
    "symptom",
    [Symptom("stale", "NAME: poison"), Symptom("contents", "NAME: data of operation N out of place")],
)
def test_stale_data_on_md_is_the_flush_ahead_in_the_modes_that_showed_it(
    symptom: Symptom, mode: str, *, known: bool
) -> None:
    """Any mode of ext4 on RAID 0 counted, and with it any layer between them."""
    seen = observed(symptom, state="@t13-11.0")
    seen = replace(seen, case=CaseId("ext4", mode, "any"), kernel="6.12.117")
    assert (name_of(seen) == "md-preflush-not-waited") is known


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


@dataclass(frozen=True)
class _Sequence:
    """What a bug does to `lost`, whose promise is operation `promised`; `-` for none."""

    bug: str
    mode: str
    symptom: Symptom
    lost: str
    said: str
    promised: int
    operations: tuple[str, ...]
    kernel: str = "6.12.117"

    def name(self, operations: Sequence[str], *, state: str = "@t999", cause: str = "") -> str:
        promise = self.operations[self.promised]
        promised = operations.index(promise) if promise in operations else len(operations) - 1
        seen = observed(
            self.symptom, operations=operations, promised=promised, state=state, cause=cause,
            kernel=self.kernel,
        )  # fmt: skip
        said = f"{self.said}, although `{promise}` (operation {promised}) was acknowledged"
        violation = replace(seen.violation, subject=self.lost, summary=said)
        if self.symptom.oracle == "contents":
            violation = replace(violation, summary=self.said)
        filesystem, _, mode = self.mode.partition("/")
        return name_of(replace(seen, violation=violation, case=CaseId(filesystem, mode, "any")))


_RENAMED_OVER = _Sequence(
    "btrfs-fsync-renamed-over", "btrfs/default", Symptom("durability", "NAME: missing"), "A/bar",
    "A/bar: missing", 3,
    ("mkdir A", "create A/bar", "append A/bar 100", "fsync A/bar", "mkdir B", "create B/bar",
     "rename B/bar A/bar", "create A/foo", "fsync A/foo"),
)  # fmt: skip
_HELD = _Sequence(
    "btrfs-held-file-replaced", "btrfs/default", Symptom("durability", "NAME: size after N"), "f",
    "f: 4096 bytes are gone", 3,
    ("create t", "open f @h", "append @h 4096", "fsync @h", "rename t f", "fsync @h"), "7.3.4",
)  # fmt: skip
_REWRITTEN = _Sequence(
    "btrfs-rewritten-old-contents", "btrfs/default",
    Symptom("contents", "NAME: data of operation N out of place"), "g", "g: bytes 0 to 8192 hold data", 1,
    ("append f 12288", "sync", "truncate f 0", "append f 8192", "rename f g", "fsync ."),
)  # fmt: skip
_OLD_XATTR = _Sequence(
    "ext4-fast-commit-old-xattr", "ext4/fast_commit", Symptom("durability", "NAME: attributes (sync)"), "bar",
    "bar: attributes that it never had", 3,
    ("create foo", "setxattr foo user.a s", "unlink foo", "sync", "create bar", "fsync bar"),
)  # fmt: skip
_INODE_REUSED = _Sequence(
    "ext4-fast-commit-inode-reused", "ext4/fast_commit", Symptom("durability", "NAME: missing"), "d/new/f",
    "d/new/f: missing", 5,
    ("sync", "unlink d/old/x", "rmdir d/old", "mkdir d/new", "create d/new/f", "fsync d/new/f"),
)  # fmt: skip
_ATTR_REPLACED = _Sequence(
    "xfs-attr-replace-fsync", "xfs/wsync", Symptom("durability", "names undone after N (sync)"), "f",
    "`setxattr f user.a old` (operation 1) is undone", 2,
    ("create f", "setxattr f user.a old", "sync", "setxattr f user.a new", "fsync f"),
)  # fmt: skip
_PREALLOCATED = _Sequence(
    "btrfs-fsync-drops-preallocated", "btrfs/default", Symptom("durability", "NAME: blocks freed (remount)"),
    "f", "f: 32768 bytes of blocks", 1,
    ("fallocate f 0 65536 keep-size", "remount", "open f @h", "fallocate @h 0 32768", "fdatasync @h"),
)  # fmt: skip
_VALUE = "v" * 64
_SHARED_XATTR = _Sequence(
    "ext4-nojournal-shared-xattr", "ext2/default", Symptom("durability", "NAME: attributes"), "f",
    "f: attributes", 5,
    ("create g", "create f", "sync", f"setxattr g user.a {_VALUE}", f"setxattr f user.a {_VALUE}", "fsync f"),
)  # fmt: skip
_COPIED_UP = _Sequence(
    "overlayfs-fdatasync-copy", "ext4/ordered@overlay",
    Symptom("durability", "NAME: data of operation N lost"),
    "f", "f: bytes 0 to 4096", 4,
    ("create f", "append f 8192", "remount", "write f 0 4096", "fdatasync f"),
)  # fmt: skip
_TWO_NAMES = _Sequence(
    "f2fs-direct-append-size", "f2fs/posix", Symptom("durability", "NAME: size after N"), "f",
    "f: 4096 bytes are gone", 3,
    ("create f", "link f g", "sync", "append f 4096 direct dsync"),
)  # fmt: skip
_INTO_NEW = _Sequence(
    "btrfs-new-name-last-log-commit", "btrfs/default", Symptom("durability", "NAME: missing"), "d",
    "d: missing", 6,
    ("create f", "sync", "mkdir d", "append f 65536", "fsync f", "link f d/g", "fsync ."), "6.17.8",
)  # fmt: skip
_SKIPPED = _Sequence(
    "btrfs-new-name-skips-dentries", "btrfs/default", Symptom("durability", "NAME: missing"), "n/x",
    "n/x: missing", 6,
    ("create f", "sync", "append f 4096", "fsync f", "create n/x", "rename f g", "fsync n"), "6.17.13",
)  # fmt: skip
_TAKEN_NAME = _Sequence(
    "btrfs-conflicting-parent-dentries", "btrfs/default", Symptom("durability", "NAME: missing"), "d/new",
    "d/new: missing", 6,
    ("sync", "rmdir d/s", "mkdir d/new", "create d/s", "link d/s d/e/l", "fsync d/e", "fsync d"), "6.18.15",
)  # fmt: skip
_EXCHANGED = _Sequence(
    "btrfs-conflicting-inode-exchange", "btrfs/default", Symptom("durability", "NAME: missing (sync)"), "d",
    "d: missing", 2,
    ("mkdir d", "mkdir e", "sync", "exchange d e", "create e/y", "fsync e"), "6.18.5",
)  # fmt: skip
_CUT = _Sequence(
    "btrfs-zero-size-after-link", "btrfs/default", Symptom("durability", "NAME: size after N"), "g",
    "g: the shorter size acknowledged by `fsync f` (operation 3) is undone", 3,
    ("append f 8192", "sync", "truncate f 0", "fsync f", "rename f g", "fsync ."), "6.12.113",
)  # fmt: skip
_LONGER = _Sequence(
    "btrfs-preallocated-size", "btrfs/holes", Symptom("durability", "NAME: size after N"), "f",
    "f: 32768 bytes are gone", 4,
    ("create f", "fallocate f 0 65536 keep-size", "remount", "fallocate f 0 32768", "fsync f"), "6.16.12",
)  # fmt: skip
_BESIDE = _Sequence(
    "f2fs-fsync-beside-checkpoint", "f2fs/strict", Symptom("durability", "NAME: attributes"), "f",
    "f: attributes", 5,
    ("create f", "sync", "create g", "setxattr f user.a value", "begin-sync", "fsync f"), "6.12.113",
)  # fmt: skip
_NTFS3 = _Sequence(
    "ntfs3-fsync-parents", "ntfs3/default", Symptom("durability", "NAME: missing"), "f", "f: missing", 2,
    ("create f", "append f 100", "fsync f"), "6.12.94",
)  # fmt: skip
_SEQUENCES = (
    _INTO_NEW, _SKIPPED, _TAKEN_NAME, _EXCHANGED, _CUT, _LONGER, _BESIDE, _NTFS3,
    _RENAMED_OVER, _HELD, _REWRITTEN, _OLD_XATTR, _INODE_REUSED, _ATTR_REPLACED, _PREALLOCATED,
    _SHARED_XATTR, _COPIED_UP, _TWO_NAMES,
)  # fmt: skip


@pytest.mark.parametrize("known", _SEQUENCES, ids=lambda known: known.bug)
def test_a_bug_is_known_by_the_operations_with_which_its_finding_shows_it(known: _Sequence) -> None:
    """Each was new: what destroyed the file came behind the promise, up to which alone it was compared."""
    assert known.name(known.operations) == known.bug


@pytest.mark.parametrize(
    ("known", "operations"),
    [
        (_RENAMED_OVER, _RENAMED_OVER.operations[:-1]),
        (_RENAMED_OVER, (*_RENAMED_OVER.operations[:-1], "fsync A/bar")),
        (_RENAMED_OVER, (*_RENAMED_OVER.operations[:4], "sync", *_RENAMED_OVER.operations[4:])),
        (_RENAMED_OVER, (*_RENAMED_OVER.operations[:6], "create A/foo", "fsync A/foo")),
        (_HELD, _HELD.operations[:-1]),
        (_HELD, (*_HELD.operations[:4], "fsync @h")),
        (_HELD, (*_HELD.operations[:-1], "fsync f")),
        (_HELD, (*_HELD.operations[:-1], "close @h", "open f @h", "fsync @h")),
        (_REWRITTEN, _REWRITTEN.operations[:-1]),
        (_REWRITTEN, (*_REWRITTEN.operations[:-1], "fsync g")),
        (_REWRITTEN, (*_REWRITTEN.operations[:4], "fsync f", *_REWRITTEN.operations[4:])),
        (_REWRITTEN, (*_REWRITTEN.operations[:2], *_REWRITTEN.operations[3:])),
        (_OLD_XATTR, (_OLD_XATTR.operations[0], *_OLD_XATTR.operations[2:])),
        (_OLD_XATTR, (*_OLD_XATTR.operations[:2], *_OLD_XATTR.operations[3:])),
        (_OLD_XATTR, (*_OLD_XATTR.operations[:4], "create baz", "fsync baz")),
        (_OLD_XATTR, _OLD_XATTR.operations[:-1]),
        (_INODE_REUSED, (*_INODE_REUSED.operations[:2], *_INODE_REUSED.operations[3:])),
        (_INODE_REUSED, (*_INODE_REUSED.operations[:3], "create d/new/f", "fsync d/new/f")),
        (_INODE_REUSED, ("mkdir d/old", *_INODE_REUSED.operations[2:])),
        (_INODE_REUSED, (*_INODE_REUSED.operations[:3], "sync", *_INODE_REUSED.operations[3:])),
        (_INODE_REUSED, (*_INODE_REUSED.operations[:4], "sync", *_INODE_REUSED.operations[4:])),
        (_SHARED_XATTR, (*_SHARED_XATTR.operations[:4], "fsync g", *_SHARED_XATTR.operations[4:])),
        (_SHARED_XATTR, (*_SHARED_XATTR.operations[:4], "sync", *_SHARED_XATTR.operations[4:])),
        (_SHARED_XATTR, (*_SHARED_XATTR.operations[:4], "remount", *_SHARED_XATTR.operations[4:])),
        (_SHARED_XATTR, (*_SHARED_XATTR.operations[:4], "append g 9 dsync", *_SHARED_XATTR.operations[4:])),
        (_SHARED_XATTR, (*_SHARED_XATTR.operations[:5], "fdatasync g", "fsync f")),
        (_SHARED_XATTR, tuple(op.replace(_VALUE, "short") for op in _SHARED_XATTR.operations)),
        (_COPIED_UP, ("remount", "create f", "append f 8192", "fsync f", *_COPIED_UP.operations[3:])),
        (_COPIED_UP, (*_COPIED_UP.operations[:4], "fsync f", *_COPIED_UP.operations[3:])),
        (_COPIED_UP, (*_COPIED_UP.operations[:3], "append f 10", "sync", *_COPIED_UP.operations[3:])),
        (_COPIED_UP, (*_COPIED_UP.operations[:3], "append f 10", *_COPIED_UP.operations[3:])),
        (_TWO_NAMES, (*_TWO_NAMES.operations[:3], "unlink g", "sync", *_TWO_NAMES.operations[3:])),
        (_TWO_NAMES, (*_TWO_NAMES.operations[:3], "rename h g", *_TWO_NAMES.operations[3:])),
        (_TWO_NAMES, (*_TWO_NAMES.operations[:3], "append o 4096 direct dsync")),
        (_ATTR_REPLACED, _ATTR_REPLACED.operations[:3]),
        (_ATTR_REPLACED, (*_ATTR_REPLACED.operations[:3], "setxattr f user.b new", "fsync f")),
        (_PREALLOCATED, _PREALLOCATED.operations[:-1]),
        (_INTO_NEW, (*_INTO_NEW.operations[:4], *_INTO_NEW.operations[5:])),
        (_INTO_NEW, (*_INTO_NEW.operations[:5], "sync", *_INTO_NEW.operations[5:])),
        (_INTO_NEW, (*_INTO_NEW.operations[:5], "link f g", "fsync .")),
        (_SKIPPED, (*_SKIPPED.operations[:5], "fsync n")),
        (_SKIPPED, (*_SKIPPED.operations[:3], *_SKIPPED.operations[4:])),
        (_SKIPPED, (*_SKIPPED.operations[:3], "create n/x", "fsync f", *_SKIPPED.operations[5:])),
        (_TAKEN_NAME, (_TAKEN_NAME.operations[0], *_TAKEN_NAME.operations[2:])),
        (_TAKEN_NAME, (*_TAKEN_NAME.operations[:5], "sync", "fsync d")),
        (_TAKEN_NAME, (*_TAKEN_NAME.operations[:4], *_TAKEN_NAME.operations[5:])),
        (_EXCHANGED, _EXCHANGED.operations[:-1]),
        (_EXCHANGED, (*_EXCHANGED.operations[:3], "rename e g", "fsync g")),
        (_EXCHANGED, (*_EXCHANGED.operations[:-1], "sync", "fsync e")),
        (_CUT, _CUT.operations[:-2]),
        (_CUT, (*_CUT.operations[:2], "truncate f 100", *_CUT.operations[3:])),
        (_CUT, (*_CUT.operations[:4], "sync", *_CUT.operations[4:])),
        (_LONGER, (*_LONGER.operations[:2], *_LONGER.operations[3:])),
        (_LONGER, (_LONGER.operations[0], *_LONGER.operations[2:])),
        (_LONGER, (*_LONGER.operations[:3], "fallocate f 65536 65536", "fsync f")),
        (_BESIDE, (*_BESIDE.operations[:4], "fsync f")),
        (_BESIDE, (*_BESIDE.operations[:5], "sync", "fsync f")),
        (_NTFS3, ("sync", "append f 100", "fsync f")),
        (_NTFS3, ("create f", "fsync .", "append f 100", "fsync f")),
        (_PREALLOCATED, (_PREALLOCATED.operations[0], "fsync f", *_PREALLOCATED.operations[2:])),
    ],
    ids=lambda value: value.bug if isinstance(value, _Sequence) else "",
)
def test_what_lacks_a_part_of_them_is_new(known: _Sequence, operations: Sequence[str]) -> None:
    """The controls of the findings, and what else could break the same promise."""
    assert known.name(operations) != known.bug


@pytest.mark.parametrize(
    ("known", "operations"),
    [
        (_COPIED_UP, (*_COPIED_UP.operations[:3], "write g 0 9", "sync", *_COPIED_UP.operations[3:])),
        (_COPIED_UP, (*_COPIED_UP.operations[:3], "open f @h", "write @h 0 9", "fdatasync f")),
        (_COPIED_UP, (*_COPIED_UP.operations[:3], "chmod f 600", *_COPIED_UP.operations[3:])),
        (_SHARED_XATTR, (*_SHARED_XATTR.operations[:4], "fsync o", *_SHARED_XATTR.operations[4:])),
        (_TWO_NAMES, (*_TWO_NAMES.operations[:3], "unlink o", "append g 4096 direct dsync")),
        (_OLD_XATTR, ("create fo", "setxattr fo user.a s", "rename fo foo", *_OLD_XATTR.operations[2:])),
    ],
    ids=lambda value: value.bug if isinstance(value, _Sequence) else "",
)
def test_what_changes_nothing_of_them_may_stand_between(known: _Sequence, operations: Sequence[str]) -> None:
    assert known.name(operations) == known.bug


def test_another_mechanism_behind_the_same_operations_is_new() -> None:
    assert _ATTR_REPLACED.name(_ATTR_REPLACED.operations, state="@t999-12") == ""
    for cause, name in (("No flush at all", ""), ("There only with a later commit", _INODE_REUSED.bug)):
        assert _INODE_REUSED.name(_INODE_REUSED.operations, cause=cause) == name


def test_thousands_of_operations_are_compared_with_a_record_at_once() -> None:
    """An expression took the fourth power of their number: half a minute for 300 of them."""
    again = (*_OLD_XATTR.operations[:2], "rename foo fox", "unlink fox", "create bar") * 400
    assert _OLD_XATTR.name((*again, "sync"), state="@t19999") == ""
    assert _OLD_XATTR.name((*again, "fsync bar"), state="@t19999") == _OLD_XATTR.bug
    fails = Symptom("mountable", "mount: EBADMSG")
    unmounted = replace(_INODE_REUSED, symptom=fails, said="Logical block already allocated")
    again = ("mkdir d", "rmdir d") * 1000
    assert unmounted.name(again, state="@t19999") == ""
    assert unmounted.name((*again, "mkdir d", "sync"), state="@t19999") == unmounted.bug
