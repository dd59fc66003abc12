"""What counts as finding a fault: only what the unmodified kernel was seen not to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.errors import StoreError
from harness.faults.campaign import other_campaign
from harness.faults.catalogue import PlantedFault
from harness.faults.page import baseline_words, page_of
from harness.faults.results import (
    Campaign,
    Detection,
    FaultsPlan,
    OtherCampaign,
    Score,
    Status,
    Trial,
    joined,
    row_of,
    score_of,
)
from harness.kernels.edits import Edit

FAULT = PlantedFault(
    name="no-flush",
    summary="no flush",
    modes=("ext4/ordered",),
    oracles=("durability",),
    edits=(Edit("fs/x.c", "f", "1", "2"),),
)
CASE, OTHER = "ext4-ordered/append-fsync", "ext4-ordered/overwrite"
BASELINE = Trial(item="baseline", key="c", cases=(CASE, OTHER))


def seen(
    case: str = CASE,
    oracle: str = "durability",
    known: str = "",
    of: int = 90,
    what: str = "f is gone",
    states: int = 3,
) -> Detection:
    return Detection(f"{case} {oracle} {what}", case, oracle, states, of, what, f"{case}@7", known)


def trial(*detections: Detection, undecided: str = "") -> Trial:
    told = {OTHER: undecided} if undecided else {}
    cases = (CASE, OTHER)[: 2 - len(told)]
    return Trial(item="no-flush", key="k", cases=cases, detections=detections, undecided=told)


def test_a_finding_that_the_baseline_lacks_finds_the_fault() -> None:
    row = row_of(FAULT, trial(seen()), BASELINE)
    assert (row.status, row.workloads, row.oracles) == (Status.FOUND, ["append-fsync"], ["durability"])


def test_the_case_with_the_fewest_states_is_named_first() -> None:
    row = row_of(FAULT, trial(seen(), seen(OTHER, of=40)), BASELINE)
    assert row.workloads == ["overwrite", "append-fsync"]


@pytest.mark.parametrize(
    ("found", "baseline"),
    [
        (seen(), msgspec.structs.replace(BASELINE, detections=(seen(),))),
        (seen(known="the kernel's own"), BASELINE),
    ],
    ids=["shown by the baseline", "known of unmodified kernels"],
)
def test_what_unmodified_kernels_show_does_not_count(found: Detection, baseline: Trial) -> None:
    assert row_of(FAULT, trial(found), baseline).status is Status.MISSED


@pytest.mark.parametrize(("states", "status"), [(9, Status.MISSED), (10, Status.FOUND)])
def test_beside_a_race_of_the_baseline_a_finding_has_to_be_more_frequent(states: int, status: Status) -> None:
    """F2FS loses the first fsync after a checkpoint, now of this file, now of that one: a fault whose finding
    was as rare as that got credit for it.
    """
    race = (seen(what="g is gone", states=4), seen(what="h is gone", states=5))
    baseline = msgspec.structs.replace(BASELINE, detections=race)
    assert row_of(FAULT, trial(seen(states=states)), baseline).status is status


def test_a_known_finding_is_compared_with_the_baselines() -> None:
    """A line for the kernel's own race would have hidden every planted fault that the same oracle finds."""
    race = msgspec.structs.replace(BASELINE, detections=(seen(what="g is gone", states=4, known="a race"),))
    assert row_of(FAULT, trial(seen(states=9, known="a race")), race).status is Status.FOUND
    assert row_of(FAULT, trial(seen(states=4, known="a race")), race).status is Status.MISSED


def test_another_oracle_than_the_baselines_counts() -> None:
    baseline = msgspec.structs.replace(BASELINE, detections=(seen(oracle="size"),))
    assert row_of(FAULT, trial(seen()), baseline).status is Status.FOUND


def test_an_undecided_case_is_neither_found_nor_missed() -> None:
    row = row_of(FAULT, trial(undecided="the guest was lost"), BASELINE)
    assert (row.status, row.why) == (Status.UNDECIDED, f"{OTHER}: the guest was lost")


def test_a_finding_beside_an_undecided_case_still_counts() -> None:
    assert row_of(FAULT, trial(seen(), undecided="the guest was lost"), BASELINE).status is Status.FOUND


def test_a_finding_in_a_case_that_the_baseline_left_undecided_does_not_count() -> None:
    baseline = Trial(item="baseline", key="c", cases=(OTHER,), undecided={CASE: "the log was full"})
    row = row_of(FAULT, trial(seen()), baseline)
    assert row.status is Status.UNDECIDED
    assert "the log was full" in row.why


def test_a_kernel_that_does_not_come_up_is_undecided() -> None:
    failed = Trial(item="no-flush", key="k", failed="no guest comes up")
    assert row_of(FAULT, failed, BASELINE).status is Status.UNDECIDED


def test_a_trial_without_a_case_is_undecided() -> None:
    assert row_of(FAULT, Trial(item="no-flush", key="k"), BASELINE).status is Status.UNDECIDED


def test_an_equivalent_fault_is_named_as_such_unless_it_is_found() -> None:
    fault = msgspec.structs.replace(FAULT, equivalent="nothing reads it")
    assert row_of(fault, trial(), BASELINE).status is Status.EQUIVALENT
    found = row_of(fault, trial(seen()), BASELINE)
    assert (found.status, bool(found.note)) == (Status.FOUND, True)


def test_a_known_gap_is_told_and_its_end_is_noted() -> None:
    fault = msgspec.structs.replace(FAULT, gap="nobody looks")
    assert row_of(fault, trial(), BASELINE).why == "nobody looks"
    assert row_of(fault, trial(seen()), BASELINE).note


def test_the_score_leaves_out_equivalent_faults_alone() -> None:
    equivalent = msgspec.structs.replace(FAULT, equivalent="nothing reads it")
    rows = [
        row_of(FAULT, trial(seen()), BASELINE),
        row_of(FAULT, trial(), BASELINE),
        row_of(FAULT, trial(undecided="lost"), BASELINE),
        row_of(FAULT, None, BASELINE),
        row_of(equivalent, trial(), BASELINE),
    ]
    score = score_of(rows)
    assert (score.found, score.possible, score.percent) == (1, 4, 25)
    assert (score.missed, score.undecided, score.not_tried, score.equivalent) == (1, 1, 1, 1)
    assert score_of([]).percent == 0


def test_the_runs_of_the_baseline_count_together() -> None:
    both = joined(
        "baseline",
        [Trial(item="baseline-1", key="a", cases=(CASE,)), Trial(item="baseline-2", key="b", cases=(OTHER,))],
    )
    assert both.cases == (CASE, OTHER)


def test_what_another_campaign_found_is_a_column_of_its_own() -> None:
    """A score with workloads that were written for the faults stood alone."""
    chosen = OtherCampaign((), Score(1, 2, 1, 0, 0, 0), {"no-flush": (Status.FOUND, CASE)})
    plan = FaultsPlan(machine="uml", workloads=["all", "more"], other=chosen)
    other = msgspec.structs.replace(FAULT, name="no-wait")
    rows = tuple(row_of(fault, trial(), BASELINE) for fault in (FAULT, other))
    page = page_of(Campaign(plan, "linux", BASELINE, rows))
    text = page.text()
    assert "Found 0 of 2 planted faults (0 %): 2 missed." in text
    assert "under its own workloads: found 1 of 2 planted faults (50 %): 1 missed" in text
    told = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("no-")}
    assert told["no-flush"][:2] == ["missed", "found"]
    assert told["no-wait"][:3] == ["missed", "not", "tried"]


def test_another_campaign_is_read_from_its_results(tmp_path: Path) -> None:
    page = page_of(
        Campaign(FaultsPlan(machine="uml"), "linux", BASELINE, (row_of(FAULT, trial(seen()), BASELINE),))
    )
    (tmp_path / "faults.json").write_text(page.json())
    read = other_campaign(tmp_path)
    assert (read.asked, read.score.found, read.answers) == (
        "its own workloads",
        1,
        {"no-flush": (Status.FOUND, CASE)},
    )
    (tmp_path / "faults.json").write_text("{}")
    with pytest.raises(StoreError, match="cannot be read"):
        other_campaign(tmp_path)


def of_symptom(what: str, states: int, known: str = "") -> Detection:
    return msgspec.structs.replace(seen(what=f"{what} of a", states=states, known=known), symptom=what)


def test_another_symptom_of_an_oracle_with_a_known_failure_finds_the_fault() -> None:
    """ext4 with an external journal is known to lose data there, in 19 states. A replay that leaves out the
    last transaction showed another symptom of the same oracle in four: the run was red, the fault "missed".
    """
    baseline = trial(of_symptom("NAME: data ends early", 19, known="no flush"))
    loses = of_symptom("NAME: missing", 4)
    assert row_of(FAULT, trial(loses), baseline).status is Status.FOUND
    same = of_symptom("NAME: data ends early", 4)
    assert row_of(FAULT, trial(msgspec.structs.replace(same, id="b")), baseline).status is Status.MISSED
    more = msgspec.structs.replace(of_symptom("NAME: data ends early", 20, known="no flush"), id="b")
    assert row_of(FAULT, trial(more), baseline).status is Status.FOUND


def test_a_known_failure_that_the_baseline_happened_to_miss_finds_nothing() -> None:
    baseline = trial(of_symptom("NAME: data ends early", 19, known="no flush"))
    known = of_symptom("NAME: missing", 30, known="no flush either")
    row = row_of(FAULT, trial(known), baseline)
    assert row.status is Status.MISSED
    assert row.why == (
        "ext4-ordered/append-fsync shows `NAME: missing of a` in 30 of 90 states, and the unmodified "
        "kernel does not; it is not credited, since unmodified kernels are expected to show it: "
        "no flush either"
    ), "who reads `missed` has to learn that something was seen"
    assert not row_of(FAULT, trial(), baseline).why
    assert not row_of(FAULT, trial(known), trial(known)).why


def test_a_known_bug_of_the_unmodified_kernel_is_told_by_its_name() -> None:
    """Two findings of ocfs2-root-before-recovery stood there as unexpected."""
    bug = msgspec.structs.replace(seen(), bug="ocfs2-root-before-recovery")
    campaign = Campaign(FaultsPlan(machine="uml"), "linux", trial(bug), ())
    words = baseline_words(campaign)
    assert words.endswith("no unexpected finding, 1 known one (ocfs2-root-before-recovery)")
    both = msgspec.structs.replace(campaign.baseline, detections=(bug, seen(), seen(known="a race")))
    words = baseline_words(replace(campaign, baseline=both))
    assert words.endswith("1 unexpected finding, 2 known ones (ocfs2-root-before-recovery)")
    assert page_of(campaign).html().count("known: ocfs2-root-before-recovery") == 1


def test_a_fault_whose_finding_agrees_with_a_known_bug_has_credit_and_says_so() -> None:
    row = row_of(FAULT, trial(msgspec.structs.replace(seen(), bug="ocfs2-root-before-recovery")), BASELINE)
    assert row.status is Status.FOUND
    page = page_of(Campaign(FaultsPlan(machine="uml"), "linux", BASELINE, (row,)))
    assert "it also agrees with the known bug ocfs2-root-before-recovery" in page.html()


def test_a_baseline_that_failed_in_some_cases_was_run_in_the_others() -> None:
    """One case in which nothing came of it, and the page said that the unmodified kernel could not be run."""
    failed = Trial(item="baseline-2", failed="no room left")
    campaign = Campaign(FaultsPlan(machine="uml"), "linux", joined("baseline", [failed]), ())
    assert baseline_words(campaign) == "the unmodified kernel could not be run: no room left"
    both = joined("baseline", [msgspec.structs.replace(BASELINE, detections=(seen(),)), failed, failed])
    assert baseline_words(replace(campaign, baseline=both)) == (
        "the unmodified kernel: 2 cases, 0 states, 1 unexpected finding, not run in some cases: no room left"
    )


def test_a_case_is_told_why_its_own_run_of_the_unmodified_kernel_failed() -> None:
    """The first failure of any case was told of each."""
    failed = [Trial(item="a", failed="no guest came up"), Trial(item="b", failed="no room left")]
    both = joined("baseline", failed, {"a": [OTHER], "b": [CASE]})
    row = row_of(FAULT, trial(seen()), both)
    assert row.why == f"{CASE}: the unmodified kernel's case is undecided: no room left"


def test_a_case_that_the_unmodified_kernel_has_left_out_is_not_asked_next() -> None:
    """It stood so on a finished page."""
    alone = Trial(item=f"baseline-{OTHER}", asked=(OTHER,), cases=(OTHER,), run="trials/a/runs/b")
    row = row_of(FAULT, trial(seen()), joined("baseline", [alone]))
    assert (row.status, row.why) == (Status.UNDECIDED, f"{CASE}: the unmodified kernel is asked next")
    left_out = Trial(item=f"baseline-{CASE}", asked=(CASE,), run="trials/c/runs/d")
    row = row_of(FAULT, trial(seen()), joined("baseline", [alone, left_out]))
    assert (row.status, row.why) == (Status.UNDECIDED, f"{CASE}: the unmodified kernel did not run it")
    every = msgspec.structs.replace(left_out, asked=(), cases=(OTHER,))
    assert row_of(FAULT, trial(seen()), joined("baseline", [every])).why.endswith("did not run it")
