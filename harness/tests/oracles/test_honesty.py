"""What counts as a report, and what a fault may leave behind."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from harness.model import (
    Call,
    CallError,
    DiskFault,
    FaultKind,
    FileKind,
    FsckClass,
    FsckResult,
    Judgement,
    Outcome,
    Position,
    TreeEntry,
    Verdict,
)
from harness.oracles import ORACLES, Judge
from harness.oracles.case import InjectedFault
from harness.oracles.contract import Contract
from harness.oracles.honesty import Seen, seen
from harness.tests.oracles.cases import ORDERED, history

ROOT = TreeEntry("", FileKind.DIRECTORY, 2, 0o755, 2, 0, 0, 4096, 8)
FILE = TreeEntry("f", FileKind.FILE, 12, 0o644, 1, 0, 0, 100, 8, digest="a")
CLEAN = FsckResult(FsckClass.CLEAN, 0, "")
WHOLE = Outcome(tree={"": ROOT, "f": FILE}, kernel_log=("EXT4-fs (vda): recovery complete",), fsck=CLEAN)
OTHER = replace(WHOLE, tree={"": ROOT, "f": replace(FILE, digest="b")})
REFUSED = Outcome(mount_errno=errno.EIO)


def on_faulty_disk(outcome: Outcome, after_fault: Outcome = WHOLE) -> Seen:
    return seen(WHOLE, replace(outcome, after_fault=after_fault))[0]


def saying(outcome: Outcome, *lines: str) -> Outcome:
    return replace(outcome, kernel_log=(*outcome.kernel_log, *lines))


def test_from_best_to_worst() -> None:
    assert on_faulty_disk(WHOLE) is Seen.INTACT
    assert on_faulty_disk(REFUSED) is Seen.REPORTED
    assert on_faulty_disk(OTHER) is Seen.SILENT
    assert on_faulty_disk(WHOLE, OTHER) is Seen.DESTROYED
    assert seen(WHOLE, Outcome(lost="Kernel panic - not syncing: toy"))[0] is Seen.DIED


def test_a_refusal_excuses_nothing_that_is_lost_for_good() -> None:
    assert on_faulty_disk(REFUSED, OTHER) is Seen.DESTROYED
    assert on_faulty_disk(REFUSED, REFUSED) is Seen.DESTROYED


def test_what_fsck_finds_only_after_the_fault_was_destroyed_by_it() -> None:
    dirty = FsckResult(FsckClass.DIRTY, 4, "Inode bitmap differences")
    assert on_faulty_disk(WHOLE, replace(WHOLE, fsck=dirty)) is Seen.DESTROYED
    assert seen(replace(WHOLE, fsck=dirty), replace(REFUSED, after_fault=WHOLE))[0] is Seen.REPORTED


@pytest.mark.parametrize(
    ("line", "reports"),
    [
        ("EXT4-fs error (device vda): ext4_lookup:1: inode #2: comm walk: iget: checksum invalid", True),
        ("JBD2: IO error -5 recovering block 7 in log", True),
        ("I/O error, dev vda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", False),
        ("Buffer I/O error on dev vda, logical block 1, async page read", False),
        ("EXT4-fs (vda): recovery complete", False),
        ("XFS (vda): Ending clean mount", False),
        ("EXT4-fs (vda): 1 orphan inode deleted", False),
        ("XFS (vda): Metadata CRC error detected at xfs_agf_read_verify, xfs_agf block 0x1", True),
        ("BTRFS warning (device vda): csum failed root 5 ino 257 off 0", True),
    ],
)
def test_the_block_layer_reports_for_nobody(line: str, reports: bool) -> None:
    """An application reads wrong names: a line of the block layer's in the log does not help it."""
    assert on_faulty_disk(saying(OTHER, line)) is (Seen.REPORTED if reports else Seen.SILENT)


def test_a_call_that_fails_only_now_is_a_report() -> None:
    failed = CallError(Call.READ, "f", errno.EIO)
    assert on_faulty_disk(replace(OTHER, walk_errors=(failed,))) is Seen.REPORTED
    before = replace(WHOLE, walk_errors=(failed,))
    assert seen(before, replace(OTHER, walk_errors=(failed,), after_fault=before))[0] is Seen.SILENT


def test_what_the_kernel_says_at_every_recovery_is_no_report() -> None:
    """Such a line would have excused whatever a fault did silently."""
    line = "EXT4-fs warning (device vda): checktime reached, running e2fsck is recommended"
    before = saying(WHOLE, line)
    assert seen(before, replace(saying(OTHER, line), after_fault=before))[0] is Seen.SILENT
    assert seen(WHOLE, replace(saying(OTHER, line), after_fault=WHOLE))[0] is Seen.REPORTED


def judged(outcome: Outcome, undisturbed: Outcome = WHOLE, contract: Contract = ORDERED) -> Judgement:
    judge = Judge(contract, history([]), error_patterns=(), oracles={"honesty": ORACLES["honesty"]})
    injected_fault = InjectedFault(DiskFault(FaultKind.EIO_WRITE, 8), "inode table", checked=True)
    return judge.judge(Position(0, 0, 0), outcome, undisturbed, injected_fault)


def test_what_nobody_could_look_at_is_unknown() -> None:
    """A mount without memory, or an fsck that gave up, says nothing of the disk."""
    refused = replace(WHOLE, mount_errno=errno.ENOMEM)
    gave_up = replace(WHOLE, fsck=FsckResult(FsckClass.FAILED, 3, "internal error"))
    for outcome, why in (
        (replace(refused, after_fault=WHOLE), "could not be tried"),
        (replace(WHOLE, after_fault=refused), "could not be tried"),
        (replace(WHOLE, after_fault=gave_up), "fsck failed: internal error"),
        (WHOLE, "nobody saw"),
    ):
        found = judged(outcome)
        assert found.verdict is Verdict.UNKNOWN, outcome
        assert why in found.unknown[0]
    assert judged(replace(REFUSED, after_fault=WHOLE), gave_up).verdict is Verdict.UNKNOWN
    assert judged(replace(WHOLE, after_fault=WHOLE)).verdict is Verdict.PASS
    assert judged(replace(OTHER, after_fault=OTHER)).verdict is Verdict.FAIL


def test_where_fsck_promises_nothing_mounts_and_trees_decide() -> None:
    """NILFS2 has no fsck, and of no fault of its disk was there a verdict."""
    none = FsckResult(FsckClass.FAILED, -1, "there is no fsck for nilfs2")
    whole, other, refused = (replace(seen, fsck=none) for seen in (WHOLE, OTHER, REFUSED))
    without = replace(ORDERED, fsck_clean=False)
    for outcome, after_fault, verdict in (
        (whole, whole, Verdict.PASS),
        (REFUSED, whole, Verdict.PASS),
        (other, whole, Verdict.FAIL),
        (whole, other, Verdict.FAIL),
        (whole, refused, Verdict.FAIL),
        (whole, replace(WHOLE, fsck=CLEAN), Verdict.PASS),
    ):
        assert judged(replace(outcome, after_fault=after_fault), whole, without).verdict is verdict
    assert (
        judged(replace(whole, after_fault=whole), replace(WHOLE, fsck=CLEAN), without).verdict is Verdict.PASS
    )
    assert judged(replace(whole, after_fault=whole), whole).verdict is Verdict.UNKNOWN
