"""What a run comes to: exit codes, expected failures, and that nothing is never green."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import plan as plans
from harness.errors import ExitCode, UsageError
from harness.expectations import Expectation, covers, known_losses, parse_expectations, read_expectations
from harness.model import CaseId, CrashState, Extent, ExtentKind, Judgement, Outcome, Position, Violation
from harness.oracles import Judge
from harness.report.annotations import annotation_lines
from harness.report.junit import junit_xml
from harness.report.markdown import summary_markdown
from harness.report.results import results
from harness.report.text import summary_text
from harness.report.words import headline, recoveries_cut
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, Counts, Coverage, JudgedState, NestedCrashes, Step
from harness.summary import CaseSummary, CaseVerdict, Summary, exit_code, shell_code, summarise, worst
from harness.symptoms import Symptom
from harness.tests.oracles.cases import CLEAN, EACH, file, history, tree
from harness.tests.store.samples import CASE, INFO, OTHER, put_case

THIRD = CaseId("xfs", "default", "third")
OK = Judgement()
BAD = Judgement((Violation("durability", "a", "gone", "data", "nothing", "s"),))
LOST = Judgement(unknown=("guest lost",))
KNOWN = Expectation("ext4/*", "*", "durability", "no flush", "known.txt:1")
DONE, NOT_RUN, NOT_SUPPORTED = CaseStatus.DONE, CaseStatus.NOT_RUN, CaseStatus.NOT_SUPPORTED

Plan = dict[CaseId, tuple[CaseStatus, list[Judgement]]]


def summary_of(
    root: Path,
    plan: Plan,
    *known: Expectation,
    distinct: int | None = None,
    generated: int | None = None,
    finished: bool = True,
    interrupted: bool = False,
    stopped: str = "",
    oracles: tuple[str, ...] = (),
    require_all: bool = False,
    steps: Sequence[str] = (),
    asked: plans.Plan | None = None,
) -> Summary:
    with RunStore.create(root, "t", replace(INFO, require_all=require_all)) as store:
        if asked:
            store.put_plan(asked)
        store.set_expectations(known)
        for case, (status, judgements) in plan.items():
            info = CaseInfo(
                case,
                generated=len(judgements) if generated is None else generated,
                distinct=len(judgements) if distinct is None else distinct,
                oracles=oracles,
                steps=tuple(Step(i, text, None, None) for i, text in enumerate(steps)),
            )
            put_case(store, info, *judgements, status=status, reason="because")
        if finished:
            store.finish(datetime(2026, 1, 2, tzinfo=UTC), interrupted=interrupted, stopped=stopped)
        return summarise(store)


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({}, ExitCode.NOTHING_RUN),
        ({CASE: (NOT_RUN, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (DONE, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (DONE, []), OTHER: (NOT_RUN, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (DONE, [OK, OK])}, ExitCode.CONSISTENT),
        ({CASE: (DONE, [OK]), OTHER: (NOT_RUN, [])}, ExitCode.CONSISTENT),
        ({CASE: (DONE, [OK]), OTHER: (DONE, [])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK, LOST])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [LOST])}, ExitCode.UNDECIDED),
        ({CASE: (CaseStatus.UNKNOWN, [])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK]), OTHER: (CaseStatus.UNKNOWN, [])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK]), OTHER: (CaseStatus.PLANNED, [])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK]), OTHER: (CaseStatus.RECORDED, [OK])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK, BAD])}, ExitCode.INCONSISTENT),
        ({CASE: (DONE, [BAD, LOST]), OTHER: (CaseStatus.UNKNOWN, [])}, ExitCode.INCONSISTENT),
        ({CASE: (CaseStatus.RECORDED, [BAD])}, ExitCode.INCONSISTENT),
    ],
)
def test_exit_codes(tmp_path: Path, plan: Plan, code: ExitCode) -> None:
    assert exit_code(summary_of(tmp_path, plan)) is code


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({CASE: (DONE, [OK]), OTHER: (NOT_RUN, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (DONE, [OK]), OTHER: (NOT_SUPPORTED, [])}, ExitCode.CONSISTENT),
        ({CASE: (DONE, [OK])}, ExitCode.CONSISTENT),
        ({CASE: (DONE, [OK]), OTHER: (CaseStatus.NOT_RECORDED, [])}, ExitCode.CONSISTENT),
        ({CASE: (CaseStatus.NOT_RECORDED, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (NOT_SUPPORTED, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (DONE, [BAD]), OTHER: (NOT_RUN, [])}, ExitCode.INCONSISTENT),
        ({CASE: (DONE, [LOST]), OTHER: (NOT_RUN, [])}, ExitCode.UNDECIDED),
    ],
)
def test_what_was_required_and_not_run_is_no_pass(tmp_path: Path, plan: Plan, code: ExitCode) -> None:
    """A package lost in CI left its mode out, and the run green."""
    assert exit_code(summary_of(tmp_path, plan, require_all=True)) is code


def test_a_required_case_that_was_not_run_is_said_everywhere(tmp_path: Path) -> None:
    plan: Plan = {CASE: (DONE, [OK]), OTHER: (NOT_RUN, [])}
    seen = summary_of(tmp_path, plan, require_all=True)
    assert "1 required case not run" in headline(seen)
    assert summary_text(seen, "RUN").splitlines()[-1].endswith("so this is not a pass (exit code 4)")
    assert results(seen, "RUN")["verdict"] == "not everything was run"
    junit = junit_xml(seen, "RUN")
    assert '<error message="because" type="powercut.not-run"' in junit
    assert 'errors="1" skipped="0"' in junit


@pytest.mark.parametrize(
    ("plan", "given", "code", "says"),
    [
        ({CASE: (NOT_RUN, [])}, {}, ExitCode.NOTHING_RUN, "because"),
        ({CASE: (NOT_SUPPORTED, [])}, {}, ExitCode.NOTHING_RUN, "because"),
        ({CASE: (CaseStatus.PLANNED, [])}, {"stopped": "time is up"}, ExitCode.NOTHING_RUN, "because"),
        ({CASE: (DONE, [OK, LOST])}, {}, ExitCode.UNDECIDED, f"powercut repro {CASE}@1 --from RUN"),
        ({CASE: (DONE, [OK])}, {"finished": False}, ExitCode.UNDECIDED, "every promise at every one of 1"),
        ({CASE: (DONE, [OK])}, {"interrupted": True}, ExitCode.INTERRUPTED, "interrupted"),
        ({}, {"finished": False}, ExitCode.UNDECIDED, "nothing was checked"),
    ],
)
def test_a_job_that_is_red_shows_why(
    plan: Plan, given: dict[str, Any], code: ExitCode, says: str, tmp_path: Path
) -> None:
    """Each of these ended in red. JUnit was green, no annotation was an error, and neither they nor the page
    of the job had the reason of a case that was not run, or the command for an undecided one.
    """
    seen = summary_of(tmp_path, plan, **given)
    assert shell_code(seen) is code
    assert "<error " in (junit := junit_xml(seen, "RUN")) and says in junit
    assert says in summary_markdown(seen, "RUN")
    (annotation,) = annotation_lines(seen, "RUN")
    assert annotation.startswith("::error ")
    assert says in annotation


def test_a_run_that_is_green_has_no_error(tmp_path: Path) -> None:
    seen = summary_of(tmp_path, {CASE: (DONE, [OK]), OTHER: (NOT_RUN, [])})
    assert shell_code(seen) is ExitCode.CONSISTENT
    assert "<error" not in junit_xml(seen, "RUN")
    assert list(annotation_lines(seen, "RUN")) == []


def test_the_verdict_of_a_run_that_decided_nothing_fits_its_code(tmp_path: Path) -> None:
    """results.json had exit code 4 and the verdict "undecided"."""
    seen = summary_of(tmp_path, {CASE: (CaseStatus.PLANNED, [])}, stopped="the time given, 5 min, is up")
    found = results(seen, "RUN")
    assert (found["exit_code"], found["verdict"]) == (4, "nothing was run")


def test_a_run_that_was_stopped_is_undecided(tmp_path: Path) -> None:
    good: Plan = {CASE: (DONE, [OK])}
    assert exit_code(summary_of(tmp_path, good, finished=False)) is ExitCode.UNDECIDED
    assert exit_code(summary_of(tmp_path, good, interrupted=True)) is ExitCode.UNDECIDED
    assert exit_code(summary_of(tmp_path, {}, interrupted=True)) is ExitCode.UNDECIDED


def test_the_shell_is_told_that_a_run_was_interrupted(tmp_path: Path) -> None:
    """summary.txt said exit code 3 where the shell had got 130."""
    stopped = summary_of(tmp_path, {CASE: (DONE, [OK])}, interrupted=True)
    assert shell_code(stopped) is ExitCode.INTERRUPTED
    assert results(stopped, "RUN")["exit_code"] == 130
    assert results(stopped, "RUN")["verdict"] == "undecided"
    died = summary_of(tmp_path, {CASE: (DONE, [OK])}, finished=False)
    assert shell_code(died) is ExitCode.UNDECIDED
    nothing = summary_of(tmp_path, {}, interrupted=True)
    assert summary_text(nothing, "RUN").splitlines()[-1] == "Nothing was checked (exit code 130)"


def test_what_a_stopped_case_has_done_is_no_more_than_all(tmp_path: Path) -> None:
    """`the run ended after 39 of 16 states`: those with a verdict, of the different ones."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.add_case(CaseInfo(CASE, generated=40, distinct=16))
        store.put_judgements(CASE, [JudgedState(CrashState(i), str(i % 15), OK) for i in range(39)])
        store.set_case_status(CASE, CaseStatus.RECORDED)
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        assert summarise(store).cases[0].undecided == "the run ended after 15 of 16 distinct states"


def test_of_a_stopped_case_whose_recoveries_are_cut_nobody_knows_how_many_there_are(tmp_path: Path) -> None:
    """`the run ended after 1,555 of 883 distinct states`: states are only counted once they are known of."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.add_case(CaseInfo(CASE, generated=8, distinct=8))
        store.put_judgements(CASE, [JudgedState(CrashState(i), str(i), OK) for i in range(15)])
        store.set_case_status(CASE, CaseStatus.RECORDED)
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        assert summarise(store).cases[0].undecided == "the run ended after 15 distinct states"


def test_a_finding_counts_even_when_the_run_was_stopped(tmp_path: Path) -> None:
    assert exit_code(summary_of(tmp_path, {CASE: (DONE, [BAD])}, finished=False)) is ExitCode.INCONSISTENT


def test_a_case_that_says_done_with_states_missing_is_not_green(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {CASE: (DONE, [OK])}, distinct=1234)
    assert exit_code(summary) is ExitCode.UNDECIDED
    assert summary.cases[0].undecided == "only 1 of 1,234 distinct states were checked"


@pytest.mark.parametrize(
    ("coverage", "verdict"),
    [
        (Coverage(9, -1, 4, 7, "the guests were lost"), CaseVerdict.UNKNOWN),
        (Coverage(9, 0, 4, 7, "the budget"), CaseVerdict.PASS),
        (Coverage(9, None, 0, 7), CaseVerdict.PASS),
        (Coverage(0, -1, 0, 0, "no times: prefixes"), CaseVerdict.PASS),
    ],
)
def test_less_than_the_simplest_legal_states_is_no_pass(
    tmp_path: Path, coverage: Coverage, verdict: CaseVerdict
) -> None:
    """A run said PASS of a case that lacked "all lost" or "all persisted" at some crash times."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        put_case(store, CaseInfo(CASE, generated=1, distinct=1, coverage=coverage), OK)
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        assert summarise(store).cases[0].verdict is verdict


def test_a_case_without_states_is_never_green(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    nothing = summary_of(tmp_path, {CASE: (DONE, [])})
    assert (nothing.cases[0].verdict, nothing.cases[0].undecided) == (
        CaseVerdict.UNKNOWN,
        "no state was checked",
    )
    unchecked = summary_of(tmp_path / "other", {CASE: (DONE, [])}, distinct=5)
    assert exit_code(unchecked) is ExitCode.UNDECIDED


def test_many_states_of_one_content_do_not_stand_in_for_the_others(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.add_case(CaseInfo(CASE, generated=4, distinct=2))
        store.put_judgements(CASE, [JudgedState(CrashState(i), "same", OK) for i in range(3)])
        store.set_case_status(CASE, DONE)
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        summary = summarise(store)
    assert summary.cases[0].undecided == "only 1 of 2 distinct states were checked"
    assert exit_code(summary) is ExitCode.UNDECIDED


def test_counts_add_up(tmp_path: Path) -> None:
    counts = summary_of(tmp_path, {CASE: (DONE, [OK, OK, BAD, LOST])}).cases[0].counts
    assert (counts.passed, counts.failed, counts.unknown, counts.checked) == (2, 1, 1, 4)


def test_the_worst_of_nothing_is_not_green() -> None:
    assert worst([]) is CaseVerdict.NOT_RUN
    assert worst([CaseVerdict.PASS, CaseVerdict.XFAIL]) is CaseVerdict.XFAIL
    assert worst([CaseVerdict.PASS, CaseVerdict.NOT_RUN]) is CaseVerdict.PASS
    assert worst([CaseVerdict.UNKNOWN, CaseVerdict.FAIL]) is CaseVerdict.FAIL


# --- expected failures -----------------------------------------------------------------------


def test_an_expected_finding_is_xfail_and_keeps_its_counts(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {CASE: (DONE, [OK, BAD])}, KNOWN)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.XFAIL
    assert case.counts.failed == 1
    assert case.findings[0].expectation == KNOWN
    assert exit_code(summary) is ExitCode.CONSISTENT
    assert summary.unmet == ()


def test_an_expectation_does_not_cover_another_oracle(tmp_path: Path) -> None:
    other = Expectation("ext4/*", "*", "fsck", "no flush")
    summary = summary_of(tmp_path, {CASE: (DONE, [BAD])}, other)
    assert exit_code(summary) is ExitCode.INCONSISTENT
    assert summary.unmet == (other,)


def test_an_expectation_does_not_cover_another_workload_or_mode(tmp_path: Path) -> None:
    for n, other in enumerate((("ext4/*", "none"), ("ext4/none", "*"))):
        (tmp_path / str(n)).mkdir()
        known = Expectation(*other, "durability", "no flush")
        assert exit_code(summary_of(tmp_path / str(n), {CASE: (DONE, [BAD])}, known)) is ExitCode.INCONSISTENT


def test_expected_and_undecided_is_undecided(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {CASE: (DONE, [BAD, LOST])}, KNOWN)
    assert summary.cases[0].verdict is CaseVerdict.UNKNOWN
    assert exit_code(summary) is ExitCode.UNDECIDED


@pytest.mark.parametrize(
    ("plan", "unmet"),
    [
        ({CASE: (DONE, [OK])}, True),
        ({CASE: (DONE, [BAD])}, False),
        ({OTHER: (DONE, [OK])}, False),  # it does not speak of XFS
        ({CASE: (NOT_RUN, [])}, False),
        ({CASE: (DONE, [OK, LOST])}, False),  # the failure may hide in the state that was lost
        ({CASE: (CaseStatus.UNKNOWN, [])}, False),
    ],
)
def test_xpass_needs_a_decided_case_without_the_failure(tmp_path: Path, plan: Plan, unmet: bool) -> None:
    summary = summary_of(tmp_path, plan, KNOWN)
    assert summary.unmet == ((KNOWN,) if unmet else ())


def test_xpass_needs_every_case_that_it_speaks_of_decided(tmp_path: Path) -> None:
    everywhere = Expectation("*", "*", "durability", "no flush")
    assert summary_of(tmp_path, {CASE: (DONE, [OK]), OTHER: (DONE, [LOST])}, everywhere).unmet == ()


@pytest.mark.parametrize("mode", ["ext4/ordered", "ext4/nobarrier", "xfs/default@loop", "any/posix"])
def test_a_star_alone_covers_every_mode_and_no_other_wildcard_does(mode: str) -> None:
    """What a program gives up by itself, as workloads/applications.expected has it, is lost under each."""
    filesystem, _, name = mode.partition("/")
    case = CaseId(filesystem, name, "w")
    assert covers("*", case)
    apart = mode in ("ext4/nobarrier", "xfs/default@loop")
    assert covers("*/*", case) is not apart
    assert covers(mode, case)


def test_xpass_needs_an_oracle_that_was_asked(tmp_path: Path) -> None:
    plan: Plan = {CASE: (DONE, [OK])}
    assert summary_of(tmp_path, plan, KNOWN, oracles=("fsck",)).unmet == ()
    assert summary_of(tmp_path, plan, KNOWN, oracles=("durability",)).unmet == (KNOWN,)


@pytest.mark.parametrize(
    ("oracle", "options"), [("confluence", {"again": 1}), ("honesty", {"disk": ("errors",)})]
)
def test_xpass_needs_cut_recoveries_or_a_faulty_disk_where_only_these_are_judged(
    tmp_path: Path, oracle: str, options: dict[str, Any]
) -> None:
    known = replace(KNOWN, oracle=oracle)
    for name, given, unmet in (("plain", {}, ()), ("asked", options, (known,))):
        asked = plans.Plan(configurations=["ext4/ordered"], workloads=["quick"], **given)
        seen = summary_of(tmp_path / name, {CASE: (DONE, [OK])}, known, oracles=("fsck", oracle), asked=asked)
        assert seen.unmet == unmet


def test_xpass_does_not_fail_the_run(tmp_path: Path) -> None:
    assert exit_code(summary_of(tmp_path, {CASE: (DONE, [OK])}, KNOWN)) is ExitCode.CONSISTENT


def test_the_file_of_expected_failures() -> None:
    text = "# heading\n\n ext4/nobarrier  *  durability  # barrier=0 sends no # flush \n"
    (one,) = parse_expectations(text, "known.txt")
    assert one == Expectation(
        "ext4/nobarrier", "*", "durability", "barrier=0 sends no # flush", "known.txt:3"
    )
    assert one.matches(CaseId("ext4", "nobarrier", "x"), Symptom("durability", "NAME: missing"))
    assert not one.matches(CaseId("ext4", "nobarrier", "x"), Symptom("fsck", "NAME: missing"))
    assert not one.matches(CaseId("ext4", "ordered", "x"), Symptom("durability", "NAME: missing"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("@t9-3", True),
        ("@t9=", True),
        ("@9", True),  # what comes behind a prefix of the log is lost
        ("@9-3", True),
        ("@t9", False),
        ("@t9@t2-1", True),  # a write of recovery is lost
        ("@t9+lost-write2048", True),
    ],
)
def test_a_missing_flush_explains_nothing_where_the_disk_had_all(state: str, expected: bool) -> None:
    """JFS' log was never replayed, and each name that was gone without a lost write was a missing flush."""
    text = 'jfs/default * durability lost-writes "NAME: missing"  # no flush\n'
    (line,) = parse_expectations(text, "f")
    assert str(line) == text.partition("  #")[0]
    case, symptom = CaseId("jfs", "default", "x"), Symptom("durability", "NAME: missing")
    assert line.matches(case, symptom, CrashState.parse(state)) is expected
    assert not line.matches(case, Symptom("fsck", "NAME: missing"), CrashState.parse(state))
    (any_state,) = parse_expectations(text.replace("lost-writes", ""), "f")
    assert any_state.matches(case, symptom, CrashState.parse(state))


def test_no_installed_line_explains_by_a_missing_flush_what_lacks_no_write() -> None:
    lines = [e for e in known_losses() if "no cache flush" in e.reason or "/nobarrier" in e.configuration]
    assert len(lines) > 10
    for line in (e for e in lines if not e.symptoms):
        assert line.lost_writes, line


@pytest.mark.parametrize(
    ("mode", "known"),
    [
        ("external-journal", True),
        ("external-journal@4k", True),
        ("external-journal@512e", True),
        ("external-journal@writethrough", False),
        ("external-journal@raid1", False),
        ("external-journal@raid1@4k", False),
        ("ordered@4k", False),
    ],
)
def test_what_is_known_of_a_mode_is_known_on_other_sectors(mode: str, known: bool) -> None:
    """A line that named the mode left the same failures unexpected with sectors of 4096 bytes."""
    text = 'ext4/external-journal [!c]* durability "NAME: lost"  # no flush\n'
    (line,) = parse_expectations(text, "f")
    assert line.matches(CaseId("ext4", mode, "append-fsync"), Symptom("durability", "NAME: lost")) is known
    (named,) = parse_expectations("ext4/ordered@4k * fsck  # torn\n", "f")
    assert named.applies_to(CaseId("ext4", mode, "x")) is (mode == "ordered@4k")


def test_a_known_symptom_is_not_every_fault_of_its_oracle(tmp_path: Path) -> None:
    """`f2fs/posix * durability` was there for files that an fsync did not wait for, and covered any other
    loss: a new fault of that oracle was expected.
    """
    text = 'ext4/ordered * durability "NAME: missing" "made by N: *"  # the known race\n'
    (known,) = parse_expectations(text, "known.txt")
    assert known.symptoms == ("NAME: missing", "made by N: *")
    assert str(known) == 'ext4/ordered * durability "NAME: missing" "made by N: *"'
    steps = ["create A/foo", "append A/foo 4096", "fsync A/foo"]
    losses = ("A/foo: missing", "made by 17: unreachable", "A/foo: data of operation 1 lost")
    seen = [Judgement((Violation("durability", "A/foo", "gone", "it", "none", s),)) for s in losses]
    summary = summary_of(tmp_path, {CASE: (DONE, seen)}, known, steps=steps)
    assert [f.signature for f in summary.unexpected] == ["A/foo: data of operation 1 lost"]
    assert [str(f.symptom) for f in summary.unexpected] == ["durability: NAME: data of operation N lost"]
    assert exit_code(summary) is ExitCode.INCONSISTENT
    assert summary.unmet == ()


def test_the_headline_counts_symptoms_not_files(tmp_path: Path) -> None:
    """Three files lost in one way were three findings, and read as if three things were wrong."""
    lost = [
        Violation("durability", name, "gone", "it", "none", f"{name}: missing")
        for name in ("foo", "bar", "baz")
    ]
    steps = ["create foo", "create bar", "create baz", "sync"]
    one_way = summary_of(tmp_path / "1", {CASE: (DONE, [Judgement(tuple(lost))])}, steps=steps)
    assert len(one_way.findings) == 3
    assert headline(one_way).endswith(f"{CASE.configuration} broke promises (durability).")
    other = Violation("size", "foo", "small", "1", "0", "foo: size too small")
    undone = Violation("durability", "foo", "old", "new", "old", "foo: undone")
    three_ways = summary_of(tmp_path / "2", {CASE: (DONE, [Judgement((*lost, other, undone))])}, steps=steps)
    assert headline(three_ways).endswith(
        f"{CASE.configuration} broke promises (3 symptoms: durability, size)."
    )


def test_the_headline_says_what_is_left_where_recoveries_were_cut(tmp_path: Path) -> None:
    """It said "all legal crash states" while 603 choices in cut recoveries had not been looked at."""
    whole = Coverage(crash_times=5, losses=None, unexplored=0, visits=9)
    summary = summary_of(tmp_path, {CASE: (DONE, [OK])})

    def told(left: int) -> str:
        cut = NestedCrashes(1, 3, 0, replace(whole, losses=None if not left else 1, unexplored=left))
        cases = tuple(replace(c, info=replace(c.info, coverage=whole, again=(cut,))) for c in summary.cases)
        return headline(replace(summary, cases=cases))

    assert "kept every promise in all " in told(0)
    assert told(603).endswith(" legal crash states (complete, 603 choices unexplored in cut recoveries).")


def test_the_headline_says_where_states_of_cut_recoveries_were_sampled(tmp_path: Path) -> None:
    """It said "all legal crash states", and the line below "every legal state"."""
    whole = Coverage(crash_times=5, losses=None, unexplored=0, visits=9)
    cut = NestedCrashes(1, 3, 0, replace(whole, losses=2, sampled=2, drawn=512))
    summary = summary_of(tmp_path, {CASE: (DONE, [OK])})
    cases = tuple(replace(c, info=replace(c.info, coverage=whole, again=(cut,))) for c in summary.cases)
    assert headline(replace(summary, cases=cases)).endswith(
        " legal crash states (complete, 512 states sampled without a difference in cut recoveries)."
    )
    said = recoveries_cut(c.info for c in cases)
    assert said.endswith(" none before had read, 512 states sampled without a difference at 2")


def test_a_symptom_that_no_finding_has_is_not_met(tmp_path: Path) -> None:
    known = Expectation("*", "*", "durability", "why", symptoms=("NAME: missing",))
    assert summary_of(tmp_path / "1", {CASE: (DONE, [OK])}, known).unmet == (known,)
    assert summary_of(tmp_path / "2", {CASE: (DONE, [BAD])}, known).unmet == (known,)


@pytest.mark.parametrize(
    ("line", "symptoms"),
    [
        ("a b c", ()),
        ('a b c "x"', ("x",)),
        ('a b c  "inode #N: *"  "y, z"', ("inode #N: *", "y, z")),
    ],
)
def test_symptoms_are_quoted_and_may_hold_any_other_letter(line: str, symptoms: tuple[str, ...]) -> None:
    (one,) = parse_expectations(f'{line}  # it\'s "so" # and so\n', "f")
    assert (one.configuration, one.workload, one.oracle, one.symptoms) == ("a", "b", "c", symptoms)
    assert one.reason == 'it\'s "so" # and so'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ext4/* * durability", "known.txt:2: the expected failure 'ext4/* * durability' has no reason"),
        ("ext4/* * durability #  ", "known.txt:2: .* has no reason"),
        ("ext4/* durability # why", "known.txt:2: 2 patterns where three belong"),
        ("ext4/* * a b # why", "known.txt:2: 4 patterns where three belong"),
        ("ext4/* * a b lost-writes # why", "known.txt:2: 5 patterns where three belong"),
        ('ext4/* * a "lost" lost-writes # why', "known.txt:2: 4 patterns where three belong"),
        ('ext4/* * "lost" # why', "known.txt:2: 2 patterns where three belong"),
        ('ext4/* "lost" * a # why', "known.txt:2: 3 patterns where three belong"),
        ('ext4/* * a "" # why', "known.txt:2: 3 patterns where three belong"),
        ('ext4/* * a "lost # why', "known.txt:2: .* patterns where three belong"),
    ],
)
def test_a_line_without_reason_or_pattern_is_refused(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("*", "\\*").replace(".\\*", ".*")):
        parse_expectations(f"# first\n{line}\n", "known.txt")


def test_a_file_that_cannot_be_read_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the expected failures"):
        read_expectations(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"ext4/* * fsck # caf\xe9")
    with pytest.raises(UsageError, match="cannot read the expected failures"):
        read_expectations(tmp_path / "latin")


def test_an_expectation_may_name_several_oracles() -> None:
    (known,) = parse_expectations("ext4/nobarrier * durability,si*  # no flush", "f")
    case = CaseId("ext4", "nobarrier", "w")
    assert [o for o in ("durability", "size", "stale", "program") if known.matches(case, Symptom(o, ""))] == [
        "durability",
        "size",
    ]


def test_an_expected_oracle_with_much_to_say_does_not_hide_another(tmp_path: Path) -> None:
    """A state of 25 expected losses and one file of poison read XFAIL: the poison stood behind the limit."""
    steps = [f"create f{i}" for i in range(25)] + ["create g", "append g 4096", "sync"]
    done = Judge(EACH, history(steps), error_patterns=())
    end = Position(len(steps), len(steps))
    recovered = tree(file("g", Extent(ExtentKind.POISON, 0, 4096, 5)))
    seen = done.judge(end, Outcome(tree=recovered, fsck=CLEAN))
    known = Expectation("*", "*", "durability", "no flush is sent")
    summary = summary_of(tmp_path, {CASE: (DONE, [OK, seen])}, known)
    assert [f.oracle for f in summary.unexpected] == ["stale"]
    assert summary.cases[0].verdict is CaseVerdict.FAIL
    assert exit_code(summary) is ExitCode.INCONSISTENT


PLANNED, RECORDED = CaseStatus.PLANNED, CaseStatus.RECORDED


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({CASE: (DONE, [OK])}, ExitCode.TIME_UP),
        ({CASE: (RECORDED, [OK])}, ExitCode.TIME_UP),
        ({CASE: (DONE, [OK]), OTHER: (PLANNED, [])}, ExitCode.TIME_UP),
        ({CASE: (DONE, [BAD])}, ExitCode.INCONSISTENT),
        ({CASE: (RECORDED, [OK, BAD]), OTHER: (PLANNED, [])}, ExitCode.INCONSISTENT),
        ({}, ExitCode.NOTHING_RUN),
        ({CASE: (PLANNED, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (RECORDED, []), OTHER: (PLANNED, [])}, ExitCode.NOTHING_RUN),
        ({CASE: (DONE, [LOST])}, ExitCode.UNDECIDED),
        ({CASE: (RECORDED, [OK, LOST])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK]), OTHER: (CaseStatus.UNKNOWN, [])}, ExitCode.UNDECIDED),
        ({CASE: (DONE, [OK]), OTHER: (DONE, [])}, ExitCode.UNDECIDED),
        (
            {CASE: (DONE, [OK]), OTHER: (DONE, []), THIRD: (PLANNED, [])},
            ExitCode.UNDECIDED,
        ),
    ],
)
def test_only_a_run_that_decided_something_and_nothing_red_ends_with_time_up(
    plan: Plan, code: ExitCode, tmp_path: Path
) -> None:
    """`--minutes` that were over before the first state ended in 5, and both recipes for CI jobs pass that;
    so did a run whose every guest was lost.
    """
    summary = summary_of(tmp_path, plan, stopped="the time given, 5 min, is up")
    assert shell_code(summary) is code
    assert summary.interrupted
    assert results(summary, "RUN")["exit_code"] == int(code)


def test_a_required_case_that_was_not_run_is_no_matter_of_time(tmp_path: Path) -> None:
    plan: Plan = {CASE: (DONE, [OK]), OTHER: (NOT_RUN, [])}
    summary = summary_of(tmp_path, plan, stopped="the time is up", require_all=True)
    assert shell_code(summary) is ExitCode.NOTHING_RUN


def test_failed_states_without_a_finding_are_no_pass() -> None:
    """A case that lost its violations would have failed states, no finding, and PASS."""
    info = CaseInfo(CASE, generated=1, distinct=1)
    counts = Counts(generated=1, distinct=1, failed=1, contents=1)
    case = CaseSummary(info, CaseStatus.DONE, "", 0.0, counts, (), (), {})
    assert case.undecided == "1 states failed, but there are 0 findings"
    assert case.verdict is CaseVerdict.UNKNOWN
