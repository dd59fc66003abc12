"""The terminal's summary and summary.txt."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from harness.expectations import Expectation, known_failures
from harness.filesystems.profiles import ANY
from harness.host.text import indented, one_line, printable
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.report.findings import write_findings
from harness.report.html import report_html
from harness.report.markdown import summary_markdown
from harness.report.text import print_summary, summary_text
from harness.report.words import Cell, counted, counted_findings, grouped, headline, pace, seconds, shown_path
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, Counts, Coverage, Finding, How, JudgedState, Step
from harness.summary import CaseSummary, CaseVerdict, Summary, summarise
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import demo_run, run_info
from harness.tests.store.samples import put_case


def test_summary_text(summary: Summary, golden: Callable[[str, str], None]) -> None:
    golden("summary.txt", summary_text(summary, SOURCE))


def test_every_unexpected_finding_and_unknown_ends_in_its_command(summary: Summary) -> None:
    blocks = summary_text(summary, SOURCE).split("\n\n")
    accused = [b for b in blocks if b.startswith(("FAIL ", "UNKNOWN "))]
    assert len(accused) == len(grouped(summary.unexpected)) + 1
    for block in accused:
        assert block.splitlines()[-1].startswith("reproduce: powercut repro ")
        assert block.endswith(" --from reports/latest")


def shown(summary: Summary, width: int = 100) -> list[str]:
    """Lines at a terminal."""
    out = io.StringIO()
    print_summary(summary, SOURCE, Console(file=out, width=width))
    return out.getvalue().splitlines()


def many(summary: Summary, expected: int, unexpected: int, oracles: int = 1) -> Summary:
    """The demo with so many findings of that sort in each of its cases, over so many oracles."""
    known = next(f for f in summary.findings if f.expectation)

    def finding(c: CaseSummary, i: int, expectation: Expectation | None) -> Finding:
        return replace(
            known,
            case=c.case,
            oracle=f"oracle{i % oracles}",
            signature=f"{i} {expectation}",
            state=CrashState(i + 1),
            expectation=expectation,
        )

    cases = tuple(
        replace(
            c,
            counts=Counts(generated=9, distinct=9, failed=9, contents=9),
            findings=tuple(
                finding(c, i, known.expectation if i < expected else None)
                for i in range(expected + unexpected)
            ),
        )
        for c in summary.cases
    )
    return replace(summary, cases=cases)


def test_expected_failures_take_one_line_a_case_and_one_reason(summary: Summary) -> None:
    lines = shown(many(summary, expected=5, unexpected=0, oracles=2))
    told = [line for line in lines if line.startswith("XFAIL ")]
    assert len(told) == len(summary.cases)
    assert told[0].startswith("XFAIL ext4-ordered/append-fsync: oracle0 x3, oracle1 x2, e.g. ")
    assert lines[lines.index(told[0]) + 1] == (
        "reproduce: powercut repro ext4-ordered/append-fsync@1 --from reports/latest"
    )
    assert sum("barrier=0 sends no flush" in line for line in lines) == 1


def test_a_run_that_only_failed_as_expected_does_not_say_passed(summary: Summary) -> None:
    only = replace(summary, cases=many(summary, expected=1, unexpected=0).cases[:1])
    assert summary_text(only, SOURCE).splitlines()[-1] == "Failed as expected: the 1 case"


def test_a_terminal_shows_three_alike_and_summary_txt_all(summary: Summary) -> None:
    crowded = many(summary, expected=0, unexpected=10, oracles=2)
    one = replace(crowded, cases=crowded.cases[:1])
    lines = shown(one)
    assert [line.split()[2] for line in lines if line.startswith("FAIL ")] == ["oracle0:", "oracle1:"] * 3
    assert "... and 4 more; report.html has them all" in lines
    text = summary_text(one, SOURCE)
    assert text.count("\nFAIL ") == 10
    assert "more: see" not in text


def test_a_terminal_shows_twenty_findings(summary: Summary) -> None:
    lines = shown(many(summary, expected=0, unexpected=2))
    assert sum(line.startswith("FAIL ") for line in lines) == 20
    assert f"... and {2 * len(summary.cases) - 20} more; report.html has them all" in lines


def test_a_terminal_shows_twenty_undecided_cases_and_says_how_many_more(summary: Summary) -> None:
    unknown = next(c for c in summary.cases if c.unknown_reasons)
    crowd = replace(
        unknown, unknown_reasons=unknown.unknown_reasons * 5, info=replace(unknown.info, steps=())
    )
    lines = shown(replace(summary, cases=(crowd,) * 25))
    assert sum(line.startswith("UNKNOWN ") for line in lines) == 20
    assert lines.count("  ... and 2 more reasons; report.html has them all") == 20
    assert "... and 5 more undecided cases; report.html has them all" in lines
    assert "Undecided: 25 cases" in lines


def grid(summary: Summary, modes: list[str], workloads: list[str]) -> Summary:
    """A run of these modes of ext4 and workloads."""
    kept = summary.cases[0]
    return replace(
        summary,
        cases=tuple(
            replace(kept, info=replace(kept.info, case=CaseId("ext4", m, w)))
            for m in modes
            for w in workloads
        ),
    )


MODES = ["journal", "ordered", "noauto_da_alloc", "nobarrier", "nodelalloc", "writeback-nodelalloc", "wb"]
WORKLOADS = [f"a-workload-{i:02}" for i in range(12)]


@pytest.mark.parametrize("count", [1, 4, 7])
def test_what_there_is_more_of_goes_down_in_one_table(summary: Summary, count: int) -> None:
    lines = shown(grid(summary, MODES[:count], WORKLOADS))
    assert sum("────" in line for line in lines) == 1
    rows = [line.split() for line in lines if line.startswith("a-workload-")]
    assert [row[0] for row in rows] == WORKLOADS
    assert all(row[1:] == ["112", "ok"] * count for row in rows)


def test_no_word_of_a_table_is_cut_off_at_any_width(summary: Summary) -> None:
    """The space between two columns was counted as two letters, and is three: at 80 columns `make run` ended
    in `xfa…`.
    """
    wide = grid(summary, MODES[:4], WORKLOADS)
    for width in range(40, 120):
        assert not any("…" in line for line in shown(wide, width)), f"{width} columns"


def test_more_modes_than_workloads_go_down(summary: Summary) -> None:
    lines = shown(grid(summary, MODES, WORKLOADS[:2]))
    rows = [line.split()[0] for line in lines if line.endswith("112 ok")]
    assert rows == [f"ext4/{mode}" for mode in MODES]


def test_how_the_verdicts_were_reached_is_shown(summary: Summary) -> None:
    lines = shown(summary)
    assert lines[2].startswith("272 recovered and judged, 266 same bytes as a judged state, 267 equal to ")
    assert lines[2].endswith("; 2 min 29 s of guest time, 5.4 states/s per guest")


def test_a_state_that_is_made_from_rules_is_not_called_recovered(summary: Summary) -> None:
    """ "510 recovered and judged", where no kernel recovers anything."""
    first, *others = summary.cases
    ruled = replace(first, info=replace(first.info, case=replace(first.case, filesystem=ANY)))
    lines = shown(replace(summary, cases=(ruled,)))
    assert "recovered" not in lines[2]
    assert lines[2].startswith(f"{first.by_how[How.JUDGED]} judged by the program's check")
    both = shown(replace(summary, cases=(ruled, *others)))[2]
    assert "recovered and judged" in both
    assert "judged by the program's check" in both


def test_what_was_left_out_is_told_of_all_cases_and_not_of_those_that_kept_their_promises(
    summary: Summary,
) -> None:
    """Only the page had it: a run that broke a promise everywhere read like one that covered everything."""
    cut = Coverage(9, 1, 7, 60, "the budget: 60 states a case")
    broken = next(c for c in summary.cases if c.verdict is CaseVerdict.FAIL)
    one = replace(summary, cases=(replace(broken, info=replace(broken.info, coverage=cut)),))
    assert "covered: 7 choices unexplored" in shown(one)
    done = replace(summary, cases=tuple(replace(c, status=CaseStatus.DONE) for c in summary.cases))
    assert not any(line.startswith("covered: ") for line in shown(done))
    short = replace(summary, cases=(replace(broken, status=CaseStatus.RECORDED),))
    assert "covered: not ended: how far is not known" in shown(short)


def test_no_pace_without_states_or_time() -> None:
    assert pace(0, 3.0) == pace(3, 0.0) == ""
    assert pace(12_000, 1.5) == "1.5 s of guest time, 8,000 states/s per guest"


def test_commands_are_not_broken_by_a_narrow_terminal(summary: Summary) -> None:
    lines = shown(summary, width=40)
    for finding in summary.findings:
        assert f"reproduce: powercut repro {finding.crash_point} --from reports/latest" in lines
    assert sum("────" in line for line in lines) == 3  # the table was split, not cut
    assert sum(line.startswith("ext4/ordered ") for line in lines) == 3
    assert max(len(line) for line in lines if "────" in line) <= 40


def test_colours_only_at_a_terminal(summary: Summary) -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    print_summary(summary, SOURCE, Console(file=plain))
    print_summary(summary, SOURCE, Console(file=coloured, force_terminal=True, color_system="standard"))
    assert "\x1b" not in plain.getvalue()
    assert "\x1b" in coloured.getvalue()


def test_a_run_of_nothing_says_so(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.finish(datetime(2026, 1, 2, tzinfo=UTC))
        text = summary_text(summarise(store), SOURCE)
    assert text.splitlines()[0].endswith("nothing was checked, so nothing is known.")
    assert text.splitlines()[-1] == "Nothing was checked (exit code 4)"


def test_an_interrupted_run_does_not_say_passed(summary: Summary) -> None:
    green = replace(summary, cases=summary.cases[:3])
    assert summary_text(green, SOURCE).splitlines()[-1] == "Passed all 3 cases"
    stopped = replace(green, info=replace(green.info, interrupted=True))
    lines = summary_text(stopped, SOURCE).splitlines()
    assert "Before it was complete, the run was interrupted." in lines
    assert lines[-1] == "Undecided 0 of 3 cases"


def test_one_case_that_passed_beside_expected_failures_was_not_expected_to_fail(summary: Summary) -> None:
    passed = next(c for c in summary.cases if c.verdict is CaseVerdict.PASS)
    failed = next(c for c in summary.cases if c.verdict is CaseVerdict.XFAIL)
    told = summary_text(replace(summary, cases=(passed, failed)), SOURCE).splitlines()[-1]
    assert told == "Passed the 1 case that was not expected to fail"


@pytest.mark.parametrize(
    ("first", "last", "answer"),
    [
        (0, 3, "ext4/ordered kept every promise at every one of 163 crash states."),
        (0, 6, "2 of 2 modes kept every promise at every one of 326 crash states."),
        (6, 9, "ext4/writeback-nodelalloc broke promises (fsck, no-stale-data)."),
        (9, 12, "ext4/nobarrier broke promises (durability), as expected."),
        (12, 15, "1 of 3 cases of xfs/default could not be decided."),
        # "None of 2 modes kept every promise" was said of one that may yet keep them.
        (
            *(9, 15),
            "1 of 3 cases of xfs/default could not be decided; ext4/nobarrier broke promises (durability), "
            "as expected.",
        ),
        (15, 18, "nothing was checked, so nothing is known."),
    ],
)
def test_the_answer_in_one_sentence(summary: Summary, first: int, last: int, answer: str) -> None:
    part = replace(summary, cases=summary.cases[first:last])
    assert headline(part).partition(": ")[2] == answer


@pytest.mark.parametrize(
    ("kinds", "answer"),
    [
        (["ordered"], "1 of 2 cases of ext4/ordered could not be decided."),
        (["a", "b", "c"], "3 cases of 3 modes could not be decided; none of 3 modes kept every promise."),
    ],
)
def test_a_mode_that_broke_promises_is_not_decided_by_that(
    summary: Summary, kinds: list[str], answer: str
) -> None:
    """A mode of which 34 of 207 cases failed and 172 were left seemed to have kept all others."""
    failed = next(c for c in summary.cases if c.verdict is CaseVerdict.FAIL)
    left = next(c for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN)
    cases = []
    for kind, c in itertools.product(kinds, (failed, left)):
        name = CaseId("ext4", kind, c.case.workload)
        found = tuple(replace(f, case=name) for f in c.findings)
        cases.append(replace(c, info=replace(c.info, case=name), findings=found))
    part = replace(summary, cases=tuple(cases), unmet=())
    assert headline(part).partition("; ")[2] == answer
    assert summary_text(part, SOURCE).endswith(
        f"\nFailed {len(kinds)} of {2 * len(kinds)} cases; {len(kinds)} undecided\n"
    )


def test_a_set_asks_each_of_its_cases_a_few_times(summary: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asked all the others: 207 cases took four of the five seconds of a report."""
    name = CaseId("ext4", "ordered", "random1-1-1")
    case = replace(summary.cases[0], info=replace(summary.cases[0].info, case=name))
    asked = []

    def verdict(case: CaseSummary) -> CaseVerdict:
        asked.append(case)
        return CaseVerdict.PASS

    monkeypatch.setattr(CaseSummary, "verdict", property(verdict))
    cell = Cell((case,) * 100)
    assert cell.figure == "100 cases"
    assert cell.example is case
    assert len(asked) <= 500


def test_a_cell_counts_the_states_that_broke(summary: Summary) -> None:
    """`111 FAIL` stood where 93 of 111 checked states had failed."""
    broken = summary.cases[7]
    assert (broken.counts.failed, broken.counts.checked) == (1, 27)
    assert Cell((broken,)).figure == "1 of 27"
    all_of_them = replace(broken, counts=replace(broken.counts, passed=0, failed=27))
    assert Cell((all_of_them,)).figure == "27"
    open_ = replace(broken, findings=(), counts=replace(broken.counts, failed=0, unknown=3, passed=24))
    assert Cell((open_,)).figure == "3 of 27"
    both = replace(broken, counts=replace(broken.counts, passed=20, unknown=6))
    assert Cell((both,)).figure == "1 of 27 (6 undecided)"


def test_a_case_that_was_not_begun_has_no_figure(summary: Summary) -> None:
    """ "0 UNKNOWN": as if none were undecided."""
    case = replace(
        summary.cases[7], status=CaseStatus.PLANNED, findings=(), counts=Counts(), unknown_reasons=()
    )
    assert case.verdict is CaseVerdict.UNKNOWN
    assert Cell((case,)).figure == ""


def test_many_kinds_of_expected_failures_are_counted_and_others_named(summary: Summary) -> None:
    known = summary.cases[9]
    (finding,) = {f.oracle: f for f in known.findings}.values()
    kinds = tuple(replace(finding, oracle=oracle) for oracle in "abcd")
    case = replace(known, findings=kinds)
    assert headline(replace(summary, cases=(case,))).endswith("broke promises (4 symptoms), as expected.")
    case = replace(known, findings=tuple(replace(f, expectation=None) for f in kinds))
    assert headline(replace(summary, cases=(case,))).endswith("ext4/nobarrier broke promises (a, b, c, d).")


def test_the_numbers_of_findings_belong_together(summary: Summary) -> None:
    """A headline of "5 ways" stood over "18 findings" and 14 lines that began with FAIL."""
    known = summary.cases[9]
    (finding,) = {f.oracle: f for f in known.findings}.values()
    found = tuple(
        replace(finding, oracle=oracle, state=CrashState(at), expectation=None)
        for oracle, at in (("size", 3), ("size", 7), ("fsck", 7), ("size", 9))
    )
    other = replace(found[3], what="another thing is gone")
    broken = replace(summary, cases=(replace(known, findings=(*found[:3], other)),))
    ways = len({f.symptom for f in broken.findings})
    said = f"4 findings ({ways} symptoms). 17 states are broken; each finding is shown at its smallest."
    assert counted_findings(broken) == said
    text = summary_text(broken, SOURCE)
    assert f"\n{said}\n" in text
    assert text.count("\nFAIL ") == 3
    assert f"broke promises ({ways} symptoms: " in headline(broken)
    assert f"\n{said}\n" in summary_markdown(broken, SOURCE)


def _violated(oracle: str, what: str, found: str) -> Violation:
    return Violation(oracle, "f", what, "something else", found, what)


def test_findings_stand_as_they_follow_from_each_other(tmp_path: Path) -> None:
    """They stood by the names of their oracles: what follows from a damaged file system was in front of what
    fsck says of it, and a later crash point in front of an earlier one.
    """
    case = CaseId("ext4", "ordered", "append-fsync")
    early = (
        _violated("durability", "f is gone", "nothing"),
        _violated("fsck", "inode 12 is bad", "exit code 4"),
    )
    steps = tuple(Step(i, f"append f {i}", i, None) for i in range(5))
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.add_case(CaseInfo(case, generated=2, distinct=2, steps=steps))
        store.put_judgements(
            case,
            [
                JudgedState(CrashState(30), "b", Judgement((_violated("atomicity", "f is half", "half"),))),
                JudgedState(CrashState(9), "a", Judgement(early)),
            ],
        )
        store.set_case_status(case, CaseStatus.DONE)
        store.finish()
        assert [f.oracle for f in store.findings()] == ["fsck", "durability", "atomicity"]
        fsck = store.findings()[0]
        lines = summary_text(summarise(store), SOURCE).splitlines()
    first = lines.index(f"FAIL {case} fsck: inode 12 is bad")
    assert lines[first + 1 : first + 12] == [
        "  at @9, the only state that was seen to show it",
        "  f",
        "    expected: something else",
        "    found:    exit code 4",
        "  at the same state, durability: f is gone",
        "  f",
        "    expected: something else",
        "    found:    nothing",
        f"fewer operations: powercut shrink {case}@9 --from {SOURCE}",
        f"why: powercut show {fsck.id} --from {SOURCE}",
        f"reproduce: powercut repro {case}@9 --from {SOURCE}",
    ]
    assert lines[first + 13] == f"FAIL {case} atomicity: f is half"
    assert lines[first + 16] == f"reproduce: powercut repro {case}@30 --from {SOURCE}", "found: is told"
    assert sum("powercut shrink" in line for line in lines) == 1


def test_one_finding_that_is_left_is_shown(tmp_path: Path) -> None:
    """In its place stood "... and 1 more; report.html has them all", which says less."""
    case = CaseId("ext4", "ordered", "append-fsync")
    found = tuple(_violated("durability", f"{name} is gone", "nothing") for name in "abcd")
    with RunStore.create(tmp_path, "t", run_info()) as store:
        put_case(store, CaseInfo(case, generated=1, distinct=1), Judgement(found), at=9)
        store.finish()
        out = io.StringIO()
        print_summary(summarise(store), SOURCE, Console(file=out, width=100))
    assert " more; report.html" not in out.getvalue()
    assert "d is gone" in out.getvalue()


def test_a_state_of_rules_is_not_told_as_one_of_a_write_log(tmp_path: Path) -> None:
    """Its numbers are those of micro-operations: `@t4-3/0` was told as "sector 0 of entry 3 is lost"."""
    case = CaseId("any", "posix", "append-fsync")
    torn = JudgedState(CrashState.parse("@t4-3/0"), "0", Judgement((_violated("program", "no", "nothing"),)))
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.add_case(CaseInfo(case, generated=1, distinct=1))
        store.put_judgements(case, [torn])
        store.set_case_status(case, CaseStatus.DONE)
        store.finish()
        summary = summarise(store)
        write_findings(summary, store, SOURCE)
        assert "of the write log completes" not in report_html(summary, store, SOURCE)
        texts = [path.read_text() for path in store.path.glob("findings/*/report.txt")]
    assert len(texts) == 1
    assert "write log" not in texts[0]


def test_what_a_case_came_to_is_told_once() -> None:
    """`190 generated, 190 distinct, 190 checked` and `126 kept, 64 broken, 0 undecided`."""
    whole = Counts(190, 190, passed=126, failed=64)
    assert counted(whole) == "190 checked: 126 kept, 64 broken"
    assert counted(Counts(190, 180, passed=100, unknown=1)) == (
        "101 of 190 checked: 100 kept, 1 undecided; 180 different disks"
    )


def _application_fails(
    summary: Summary, systems: Sequence[str], expectation: Expectation | None = None
) -> list[CaseSummary]:
    """my-db on several file systems, its check failing on each."""
    broken = summary.cases[7]
    finding = replace(broken.findings[0], oracle="program", expectation=expectation)
    cases = [CaseId(fs, mode, "my-db") for fs, _, mode in (name.partition("/") for name in systems)]
    return [
        replace(broken, info=replace(broken.info, case=c), findings=(replace(finding, case=c),))
        for c in cases
    ]


def test_what_only_an_applications_own_check_found_is_not_held_against_the_file_system(
    summary: Summary,
) -> None:
    """A bug of an application was `ext4, btrfs, xfs: 3 modes broke promises`."""
    cases = _application_fails(summary, ["ext4/ordered", "btrfs/default", "xfs/default"])
    told = headline(replace(summary, cases=tuple(cases)))
    assert told.endswith(
        " · ext4, btrfs, xfs: my-db lost or damaged what it acknowledged on 3 of 3 file systems, says its "
        "own check; nothing else was found there."
    )
    beside = headline(replace(summary, cases=(*summary.cases[:3], cases[0])))
    assert beside.partition(": ")[2] == (
        "my-db lost or damaged what it acknowledged on ext4/ordered, says its own check; "
        "in all other cases ext4/ordered kept every promise at every one of 163 crash states."
    )


def test_applications_that_lost_something_on_the_same_file_systems_share_a_sentence(
    summary: Summary,
) -> None:
    """The same twelve words stood in it for each: the headline of a phone was all of its screen."""
    (case,) = _application_fails(summary, ["ext4/ordered"])
    other = replace(case, info=replace(case.info, case=replace(case.case, workload="my-kv")))
    told = headline(replace(summary, cases=(case, other)))
    assert told.endswith(
        "my-db and my-kv lost or damaged what they acknowledged on ext4/ordered, say their own checks; "
        "nothing else was found there."
    )


def test_what_fsck_finds_as_well_is_held_against_the_file_system(summary: Summary) -> None:
    (case,) = _application_fails(summary, ["ext4/ordered"])
    both = replace(case, findings=(*case.findings, replace(case.findings[0], oracle="fsck")))
    told = headline(replace(summary, cases=(both,)))
    assert told.endswith("ext4/ordered broke promises (fsck, program).")


def test_an_undecided_application_is_undecided(summary: Summary) -> None:
    known = next(f.expectation for f in summary.findings if f.expectation)
    (case,) = _application_fails(summary, ["ext4/ordered"], known)
    told = headline(replace(summary, cases=(replace(case, mismatch="it differs"),)))
    assert told.endswith("ext4/ordered could not be decided.")


def test_many_broken_modes_are_counted_not_named(summary: Summary) -> None:
    broken = summary.cases[7]
    cases = tuple(
        replace(broken, info=replace(broken.info, case=replace(broken.case, mode=f"m{i}"))) for i in range(3)
    )
    assert ": 3 modes broke promises; " in headline(replace(summary, cases=cases))


def test_paths_below_the_working_directory_are_relative_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "latest").symlink_to("real")
    assert shown_path(tmp_path / "latest", tmp_path) == "latest"
    assert shown_path(tmp_path / "latest", tmp_path / "real") == str(tmp_path / "latest")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (207, "3 min 27 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(value: float, said: str) -> None:
    assert seconds(value) == said


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31m\tb\n\x00\udcff\ufffe ü") == "a\\x1b[31m\tb\n\\x00\\udcff\\ufffe ü"


def test_what_turns_the_writing_around_is_written_out() -> None:
    """U+202E shows `gpj.exe` as `exe.jpg`; U+2028 ends a line in some viewers."""
    assert printable("a\u202eb\u2028c") == r"a\u202eb\u2028c"


def test_one_line_stays_one() -> None:
    assert one_line("a\nPassed all 3 cases\r") == r"a\nPassed all 3 cases\r"
    assert indented("a\nPassed all 3 cases") == "a\n    Passed all 3 cases"


def test_a_guest_cannot_write_a_line_of_the_summary(summary: Summary) -> None:
    """A file's name with a newline in it ended the line, and the next one read like ours."""
    (first, *_), forged = summary.findings, "\nPassed all 99 cases\x1b[2J"
    violation = replace(first.violations[0], summary=f"f{forged}", found=f"g{forged}", subject=f"h{forged}")
    finding = replace(first, violations=(violation,), expectation=None)
    case = next(c for c in summary.cases if c.case == first.case)
    told = summary_text(replace(summary, cases=(replace(case, findings=(finding,)),)), "RUN")
    assert not [line for line in told.splitlines() if line.startswith("Passed all 99")]
    assert "\x1b" not in told
    assert r"\nPassed all 99 cases\x1b[2J" in told


def stopped(summary: Summary, count: int, reason: str = "") -> Summary:
    """The demo's first case, and so many that the run did not come to, or that `reason` left out."""
    kept = summary.cases[0]
    status = CaseStatus.NOT_RUN if reason else CaseStatus.PLANNED
    left = [
        replace(
            kept,
            info=replace(kept.info, case=CaseId("ext4", "journal", f"w{i}")),
            status=status,
            reason=reason,
            counts=Counts(),
            findings=(),
            unknown_reasons=(),
        )
        for i in range(count)
    ]
    return replace(summary, cases=(kept, *left), unmet=())


def test_cases_that_the_run_did_not_come_to_take_one_line(summary: Summary) -> None:
    """An interrupted run of ace1 said the same sentence for each of 200 cases."""
    many = stopped(summary, 200)
    lines = shown(many)
    assert [line for line in lines if line.startswith("UNKNOWN ")] == [
        "UNKNOWN 200 cases: the run ended before it was recorded"
    ]
    text = summary_text(many, SOURCE)
    assert text.count("before it was recorded") == 1
    assert "ext4-journal/w0 ext4-journal/w1 " in text
    assert summary_text(stopped(summary, 1), SOURCE).count("UNKNOWN ext4-journal/w0: the run ended") == 1


def test_many_rows_that_the_run_did_not_come_to_are_counted(summary: Summary) -> None:
    """A run of 201 schedules that ended with its first finding printed 199 rows, each UNKNOWN."""

    def rows(count: int) -> list[str]:
        lines = summary_text(stopped(summary, count), SOURCE).splitlines()
        return [line for line in lines if re.match(r"w\d+ .*UNKNOWN$", line)]

    assert (len(rows(20)), len(rows(21))) == (20, 0)
    assert "and 21 rows of cases that were not started" in summary_text(stopped(summary, 21), SOURCE)


def test_cases_not_run_for_one_reason_take_one_line(summary: Summary) -> None:
    run = stopped(summary, 3, "mkfs.jfs is not installed")
    assert headline(run).endswith("; ext4/journal was not run.")
    assert summary_text(run, SOURCE).endswith("Passed the 1 case; 3 not run\n")
    names = "ext4-journal/w0 ext4-journal/w1 ext4-journal/w2"
    assert f"Not run: {names}\n  mkfs.jfs is not installed\n" in summary_text(run, SOURCE)
    other = replace(run.cases[-1], reason="no mkfs.xfs")
    text = summary_text(replace(run, cases=(*run.cases, other)), SOURCE)
    assert f"\n  {names}: mkfs.jfs is not installed\n  ext4-journal/w2: no mkfs.xfs\n" in text


def test_an_expectation_of_many_workloads_is_not_taken_for_cured_by_a_few(summary: Summary) -> None:
    """A run of one workload told to take out what twelve others meet."""
    for pattern, says in (
        (
            "*",
            "not met in the 1 case of this run it applies to; remove the line if no other case meets it",
        ),
        (summary.cases[0].case.workload, "remove the line if the failure is gone"),
    ):
        e = Expectation(summary.cases[0].case.configuration, pattern, "size", "known", "f:1")
        told = replace(summary, cases=summary.cases[:1], unmet=(e,))
        assert f"  {says}\n" in summary_text(told, SOURCE)


def test_what_a_baseline_alone_has_is_not_a_line_to_remove(summary: Summary) -> None:
    """`remove the line`: of a package there is none."""
    (e, *_) = known_failures(summary.findings, "baseline of-the-week")
    text = summary_text(replace(summary, cases=summary.cases[:1], unmet=(e,)), SOURCE)
    assert "  fixed since the baseline, or not shown by this run" in text
    assert "remove the line" not in text


def test_a_doubt_about_a_check_is_told_beside_what_it_passed(summary: Summary) -> None:
    """A check that says yes to everything was a green line."""
    first, *others = summary.cases
    first = replace(first, info=replace(first.info, doubt="it says yes to nothing"))
    told = replace(summary, cases=(first, *others))
    assert f"note: {first.case}: it says yes to nothing" in " ".join(shown(told))
    page = summary_markdown(told, "DIR")
    assert "Note: " in page
    assert "it says yes to nothing" in page
    assert "says yes to nothing" not in " ".join(shown(summary))


def test_findings_are_not_compared_with_each_other(summary: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight thousand of them took nine seconds, twice a run."""
    monkeypatch.setattr(Finding, "__eq__", lambda *_: pytest.fail("two were compared"))
    assert summary_text(summary, "RUN").count("FAIL ") > 1


def test_the_folders_of_findings_cost_no_fsync_and_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four thousand findings were 24,000 fsyncs, more than a minute, again at each `powercut show`."""
    with demo_run(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("it was synced"))
        write_findings(summarise(store), store, "RUN")
        files = {p: p.stat().st_ino for p in store.layout.findings.rglob("*") if p.is_file()}
        (changed := next(p for p in files if p.name == "dmesg")).write_text("torn")
        write_findings(summarise(store), store, "RUN")
        again = {p: p.stat().st_ino for p in store.layout.findings.rglob("*") if p.is_file()}
    assert [p for p in files if files[p] != again[p]] == [changed]
