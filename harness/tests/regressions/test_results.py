"""What counts as finding an upstream bug: only what the kernel after was seen not to show."""

from __future__ import annotations

import msgspec
import pytest

from harness.faults.results import Detection, Trial
from harness.regressions.catalogue import Bug
from harness.regressions.results import BugOutcome, row_of, with_shared

BUG = Bug(
    name="lost",
    subject="ext4: mend it",
    summary="A synced file is lost",
    before="debian-6.12.113",
    after="debian-6.12.115",
    modes=("ext4/ordered",),
    oracles=("durability",),
    shows="the file is missing",
    evidence="a changelog",
)
CASE, OTHER = "ext4-ordered/append-fsync", "ext4-ordered/overwrite"


def seen(
    case: str = CASE,
    oracle: str = "durability",
    what: str = "f is gone",
    known: str = "",
    states: int = 3,
    of: int = 90,
    symptom: str = "",
) -> Detection:
    return Detection(f"{case} {oracle} {what}", case, oracle, states, of, what, f"{case}@7", known, symptom)


def trial(*detections: Detection, undecided: str = "", failed: str = "") -> Trial:
    if failed:
        return Trial(item="t", failed=failed)
    told = {CASE: undecided} if undecided else {}
    cases = tuple(c for c in (CASE, OTHER) if c not in told)
    return Trial(item="t", cases=cases, detections=detections, undecided=told, states=180)


def test_another_bug_of_the_same_oracle_does_not_hide_one() -> None:
    """btrfs 6.17.13 loses names that 6.18.5 keeps, in a case where both bring old contents back: since more
    states show that, the lost names counted for nothing.
    """
    gone, old = seen(symptom="NAME: missing"), seen(what="g is old", states=9, symptom="NAME: old contents")
    assert row_of(BUG, [trial(gone, old)], [trial(old)]).outcome is BugOutcome.FOUND
    race = seen(what="g is gone", states=9, symptom="NAME: missing")
    assert row_of(BUG, [trial(gone)], [trial(race)]).outcome is BugOutcome.MISSED
    unknown = seen(what="g is gone", states=9)
    assert row_of(BUG, [trial(gone)], [trial(unknown)]).outcome is BugOutcome.MISSED


def test_a_finding_that_is_gone_afterwards_finds_the_bug() -> None:
    row = row_of(BUG, [trial(seen())], [trial()])
    assert (row.outcome, row.after, row.silent) == (BugOutcome.FOUND, "silent", True)
    assert [d.case for d in row.credited] == [CASE]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (trial(seen()), trial(seen())),
        (trial(seen(states=3)), trial(seen(what="g is gone", states=4))),
        (trial(seen(oracle="fsck")), trial()),
        (trial(seen(known="a race")), trial()),
        (trial(), trial()),
    ],
    ids=["both show it", "the same oracle shows more", "another oracle", "a known failure", "nothing"],
)
def test_what_is_not_this_bugs_does_not_count(before: Trial, after: Trial) -> None:
    assert row_of(BUG, [before], [after]).outcome is BugOutcome.MISSED


def test_a_known_failure_that_is_this_bug_counts() -> None:
    bug = msgspec.structs.replace(BUG, known="(the_function)")
    found = row_of(bug, [trial(seen(known="the disk is not told (the_function)"))], [trial()])
    assert found.outcome is BugOutcome.FOUND
    assert row_of(bug, [trial(seen(known="something else"))], [trial()]).outcome is BugOutcome.MISSED


def test_what_only_its_own_workload_finds_is_counted_apart() -> None:
    """`link-parent` is the example of btrfs's bfe3d755ef7c, written for a planted fault that imitates it:
    that it finds that bug says nothing of the next one.
    """
    bug = msgspec.structs.replace(BUG, own=("append-fsync",))
    row = row_of(bug, [trial(seen())], [trial()])
    assert (row.outcome, [d.case for d in row.credited]) == (BugOutcome.OWN, [CASE])
    both = row_of(bug, [trial(seen(), seen(OTHER))], [trial()])
    assert (both.outcome, [d.case for d in both.credited]) == (BugOutcome.FOUND, [OTHER])


def test_what_was_not_run_is_never_missed() -> None:
    """Half of a bug's modes were run, and nothing was found there: that was called missed."""
    two = msgspec.structs.replace(BUG, modes=("ext4/ordered", "ext4/journal"))
    assert row_of(BUG, [None], [None]).outcome is BugOutcome.NOT_RUN
    assert row_of(two, [trial(), None], [None, None]).outcome is BugOutcome.NOT_RUN
    row = row_of(BUG, [trial(seen())], [None])
    assert (row.outcome, row.silent) == (BugOutcome.NOT_RUN, None)
    assert "has not been run" in row.why


def test_a_miss_needs_only_the_kernel_before() -> None:
    row = row_of(BUG, [trial()], [None])
    assert (row.outcome, row.after, row.silent) == (BugOutcome.MISSED, "not run", None)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (trial(failed="the archive does not have it"), trial(), "debian-6.12.113: the archive does not"),
        (trial(seen()), trial(failed="no such package"), "debian-6.12.115: no such package"),
        (trial(undecided="the guest was lost"), trial(), "the guest was lost"),
        (trial(seen()), trial(undecided="the log was full"), "the log was full"),
        (Trial(item="t"), trial(), "no case was decided"),
    ],
)
def test_a_kernel_that_cannot_answer_leaves_it_unknown(before: Trial, after: Trial, why: str) -> None:
    row = row_of(BUG, [before], [after])
    assert row.outcome is BugOutcome.UNKNOWN
    assert why in row.why


def test_a_case_that_the_kernel_after_left_out_decides_nothing() -> None:
    """It was neither decided nor undecided there, and the bug passed for missed."""
    after = Trial(item="t", cases=(OTHER,))
    assert row_of(BUG, [trial(seen())], [after]).outcome is BugOutcome.UNKNOWN


def test_a_finding_beside_an_undecided_case_still_counts() -> None:
    before = trial(seen(OTHER), undecided="the guest was lost")
    assert row_of(BUG, [before], [trial()]).outcome is BugOutcome.FOUND


def test_a_kernel_after_that_is_not_silent_is_told() -> None:
    row = row_of(BUG, [trial(seen())], [trial(seen(OTHER, "fsck", "bitmap"))])
    assert (row.outcome, row.silent) == (BugOutcome.FOUND, False)
    assert OTHER in row.after
    assert row_of(BUG, [trial()], [trial(seen(known="a race"))]).silent, "known failures are no news"
    assert row_of(BUG, [trial()], [trial(undecided="lost")]).silent is None


def test_a_bug_without_a_mode_is_counted_apart() -> None:
    row = row_of(msgspec.structs.replace(BUG, modes=(), needs="a second disk"), [], [])
    assert (row.outcome, row.why) == (BugOutcome.NO_MODE, "needs a second disk")


def test_bugs_that_share_a_finding_are_told_of_each_other() -> None:
    """Two bugs of btrfs were mended between the same kernels, and one finding found both."""
    twin = msgspec.structs.replace(BUG, name="twin")
    apart = msgspec.structs.replace(BUG, name="apart", after="debian-6.12.117")
    rows = with_shared(row_of(b, [trial(seen())], [trial()]) for b in (BUG, twin, apart))
    assert [r.shared for r in rows] == [("twin",), ("lost",), ()]
