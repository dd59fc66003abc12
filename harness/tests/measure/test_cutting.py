"""Power cuts: what was acknowledged, what may have begun, and what is made of it. No guest here."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.filesystems.profiles import profiles
from harness.measure.cutting import (
    MOST_LATE,
    history,
    judge,
    plan_cut,
    position,
    recovered_line,
    some_operations,
)
from harness.model import (
    Extent,
    ExtentKind,
    FileKind,
    FsckClass,
    FsckResult,
    Operation,
    OperationKind,
    Outcome,
    Position,
    Tree,
    TreeEntry,
    Verdict,
)

ORDERED = profiles()["ext4/ordered"]
WRITTEN = (
    Operation(OperationKind.CREATE, "f"),
    Operation(OperationKind.APPEND, "f", length=4096),
    Operation(OperationKind.FSYNC, "f"),
    Operation(OperationKind.CREATE, "g"),
    Operation(OperationKind.FSYNC, "g"),
)


def entry(path: str, size: int = 0, *runs: Extent) -> TreeEntry:
    return TreeEntry(path, FileKind.FILE, ord(path), 0o644, 1, 0, 0, size, (size + 511) // 512, extents=runs)


ROOT = TreeEntry("", FileKind.DIRECTORY, 2, 0o755, 3, 0, 0, 4096, 8)
F = entry("f", 4096, Extent(ExtentKind.WRITTEN, 0, 4096, 1))
CLEAN = FsckResult(FsckClass.CLEAN, 0, "")


def outcome(*entries: TreeEntry) -> Outcome:
    tree: Tree = {e.path: e for e in (ROOT, *entries)}
    return Outcome(tree=tree, fsck=CLEAN)


class TestPosition:
    @given(st.integers(0, 500), st.booleans())
    def test_what_was_not_answered_may_have_begun(self, answered: int, in_flight: bool) -> None:
        found = position(answered + in_flight, answered)
        assert found == Position(begun=answered + in_flight, acked=answered)

    @pytest.mark.parametrize(("sent", "answered"), [(2, 0), (0, 1), (9, 7)])
    def test_more_than_one_in_flight_cannot_be(self, sent: int, answered: int) -> None:
        with pytest.raises(ValueError, match="one at a time"):
            position(sent, answered)


class TestOperations:
    @given(st.integers(0, 2**32), st.integers(2, 200))
    def test_they_are_possible_in_their_order(self, seed: int, count: int) -> None:
        files: set[str] = set()
        operations = some_operations(random.Random(seed), count)  # noqa: S311 - no secret
        assert len(operations) == count
        for op in operations:
            if op.kind is OperationKind.CREATE:
                assert op.path not in files
                files.add(op.path)
            elif op.kind is not OperationKind.SYNC:
                assert op.path in files
            if op.kind is OperationKind.RENAME:
                assert op.target in files
            if op.kind in (OperationKind.RENAME, OperationKind.UNLINK):
                files.remove(op.path)

    @given(st.text(max_size=9), st.integers(2, 99))
    def test_a_seed_is_a_cut(self, seed: str, count: int) -> None:
        cut = plan_cut(seed, count)
        assert cut == plan_cut(seed, count)
        assert 0 < cut.operation < count
        assert 0 <= cut.late <= MOST_LATE

    def test_other_seeds_are_other_cuts(self) -> None:
        assert len({plan_cut(str(n), 50) for n in range(20)}) == 20

    def test_the_oracles_know_these_operations(self) -> None:
        """The model replays all of them; else every verdict would be about nothing."""
        operations = some_operations(random.Random(5), 150)  # noqa: S311 - no secret
        found = judge(ORDERED, operations, Position(0, 0), outcome())
        assert found.verdict is Verdict.PASS, found


class TestJudge:
    def test_what_was_acknowledged_is_there(self) -> None:
        assert judge(ORDERED, WRITTEN, Position(3, 3), outcome(F)).verdict is Verdict.PASS

    def test_what_had_begun_may_be_there_or_not(self) -> None:
        for seen in (outcome(F), outcome(F, entry("g"))):
            assert judge(ORDERED, WRITTEN, Position(4, 3), seen).verdict is Verdict.PASS

    def test_an_acknowledgement_of_what_was_never_done_is_found(self) -> None:
        """The planted fault: the host believes that the fsync of `g` returned."""
        found = judge(ORDERED, WRITTEN, Position(5, 5), outcome(F))
        assert found.verdict is Verdict.FAIL
        assert any("g" in v.subject for v in found.violations)

    def test_a_lost_file_is_found(self) -> None:
        assert judge(ORDERED, WRITTEN, Position(3, 3), outcome()).verdict is Verdict.FAIL

    def test_a_dirty_fsck_is_found(self) -> None:
        dirty = replace(outcome(F), fsck=FsckResult(FsckClass.DIRTY, 4, "Free blocks count wrong"))
        assert judge(ORDERED, WRITTEN, Position(3, 3), dirty).verdict is Verdict.FAIL

    def test_an_fsck_that_could_not_run_decides_nothing(self) -> None:
        unknown = replace(outcome(F), fsck=FsckResult(FsckClass.FAILED, 8, "cannot open"))
        assert judge(ORDERED, WRITTEN, Position(3, 3), unknown).verdict is Verdict.UNKNOWN

    def test_marks_are_numbered_in_order(self) -> None:
        steps = history(WRITTEN).steps
        told = [mark for s in steps for mark in (s.begin, s.ack)]
        assert told == sorted({m for m in told if m is not None})


class TestRecoveredLine:
    LOG = (
        "EXT4-fs (vda): recovery complete",
        "EXT4-fs (vda): mounted filesystem 6a736677 r/w with ordered data mode. Quota mode: none.",
    )

    def test_the_line_in_which_the_kernel_says_so(self) -> None:
        assert recovered_line(ORDERED, self.LOG) == self.LOG[0]

    def test_a_clean_mount_says_nothing_of_it(self) -> None:
        assert recovered_line(ORDERED, self.LOG[1:]) == ""

    def test_each_file_system_has_its_own_words(self) -> None:
        xfs = profiles()["xfs/default"]
        assert recovered_line(xfs, ["XFS (vda): Ending recovery (logdev: internal)"])
        assert not recovered_line(xfs, self.LOG)
