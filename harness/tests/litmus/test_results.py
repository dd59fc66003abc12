"""What a table of litmus programs says: of a cell, of a promise, of what was not looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.expectations import Expectation
from harness.litmus.page import headline, markdown, page_of, sentence_of, word
from harness.litmus.programs import programs
from harness.litmus.results import (
    NOT_YET,
    CellAnswer,
    Litmus,
    LitmusPlan,
    OnMode,
    Standing,
    cell_of,
    contradictions,
)
from harness.litmus.together import together
from harness.model import CaseId, CrashState, Violation
from harness.store.records import CaseInfo, CaseStatus, Counts, Coverage, Finding
from harness.summary import CaseSummary

NAME = "replace-no-fsync"
CASE = CaseId("ext4", "ordered", NAME)
ALL_LEGAL = Coverage(crash_times=5, losses=None, unexplored=0, visits=9)
DRAWN = Coverage(crash_times=5, losses=2, unexplored=0, visits=9, sampled=1, drawn=1024)
SOME = Coverage(crash_times=5, losses=1, unexplored=7, visits=9, why="the budget of 9 states was used up")


def finding(oracle: str, states: int = 2, at: int = 4) -> Finding:
    seen = Violation(oracle, "f", "f is empty", "8192 bytes", "f has 0 bytes", "s")
    return Finding(CASE, oracle, "s", CrashState(at), (seen,), states)


def case(*found: Finding, coverage: Coverage | None = ALL_LEGAL, unknown: int = 0) -> CaseSummary:
    failed = sum(f.states for f in found)
    counts = Counts(20, 20, 20 - failed - unknown, failed, unknown, 20)
    info = CaseInfo(CASE, coverage=coverage)
    return CaseSummary(info, CaseStatus.DONE, "", 1.0, counts, found, (), {})


def not_run(status: CaseStatus = CaseStatus.NOT_SUPPORTED) -> CaseSummary:
    return CaseSummary(CaseInfo(CASE), status, "no exchange", 0, Counts(), (), (), {})


@pytest.mark.parametrize(
    ("cases", "promised", "standing"),
    [
        ([case(), case()], True, Standing.KEPT),
        ([case(), case()], False, Standing.LUCK),
        ([case(), case(coverage=SOME)], True, Standing.KEPT_SO_FAR),
        ([case(), case(coverage=None)], False, Standing.LUCK_SO_FAR),
        ([case(), case(unknown=1)], True, Standing.KEPT_SO_FAR),
        ([case(), not_run()], True, Standing.KEPT_SO_FAR),
        ([case(), case(finding("question"))], False, Standing.NO),
        ([case(), case(finding("question"))], True, Standing.BROKEN),
        ([case(finding("fsck")), case()], True, Standing.KEPT),
        ([case(unknown=20)], True, Standing.UNSEEN),
        ([case(unknown=20), case()], True, Standing.KEPT_SO_FAR),
        ([not_run()], True, Standing.UNSEEN),
        ([], True, Standing.UNSEEN),
    ],
)
def test_a_cell_is_always_only_where_every_recording_was_looked_at_whole(
    cases: list[CaseSummary], promised: bool, standing: Standing
) -> None:
    """A recording that was cut short, or not made, left `always` standing."""
    assert cell_of(NAME, promised, cases).standing is standing


def test_the_text_says_why_nothing_was_looked_at() -> None:
    """A `-` stood there alone: the reason was in the cell of the HTML page only."""
    unseen = cell_of(NAME, True, [not_run()])
    columns = {m: OnMode(item=m, mode=m, cells=(unseen,)) for m in ("ext4/ordered", "xfs/default")}
    plan = LitmusPlan(modes=[*columns], names=[NAME], kernels=["debian-6.12"], machine="uml")
    text = page_of(Litmus(plan, columns), programs([NAME])).text()
    assert "Not looked at\nreplace-no-fsync in ext4/ordered and xfs/default: no exchange" in text


def test_a_state_that_could_not_be_decided_is_none_of_which_the_answer_was_yes() -> None:
    """`always so far (20)` stood where no guest had come up twenty times."""
    cell = cell_of(NAME, True, [case(unknown=20)])
    assert sentence_of("m", cell) == "not looked at: 20 of 20 states could not be decided"
    cell = cell_of(NAME, True, [case(unknown=3), case(coverage=DRAWN)])
    said = "yes in all 37 crash states of 2 recordings; the contract promises yes. Not all legal ones: "
    why = "3 of 20 states could not be decided; where there are too many, 1,024 were drawn at random"
    assert sentence_of("m", cell) == said + why


@pytest.mark.parametrize(
    ("cells", "decided", "again"),
    [
        ([[case()]], True, False),
        ([[case()], [not_run()]], True, False),
        ([[case()], [case(unknown=1)]], False, True),
        ([[case()], [not_run(CaseStatus.NOT_RUN)]], False, False),
        ([[not_run()]], False, False),
    ],
    ids=["answered", "not supported", "undecided", "lacking here", "nothing at all"],
)
def test_a_table_with_a_hole_is_not_green(cells: list[list[CaseSummary]], decided: bool, again: bool) -> None:
    """Guests that were lost left a column of dashes, the page was green, and the exit code 0. What could not
    be decided is tried again; a mode that lacks an operation has no answer to give.
    """
    litmus = table(*(cell_of(NAME, True, [*of]) for of in cells))
    assert litmus.decided is decided
    assert page_of(litmus, programs([NAME])).kind == ("pass" if decided else "unknown")
    assert any(not m.decided for m in litmus.columns.values()) is again
    unseen = [c for m in litmus.columns.values() for c in m.cells if c.standing is Standing.UNSEEN]
    assert ("1 question not looked at" in headline(litmus)) is bool(unseen)


def test_a_cell_tells_how_much_was_looked_at_and_the_smallest_state_that_answers_no() -> None:
    cell = cell_of(NAME, False, [case(finding("question", 2, 9)), case(finding("question", 3, 4))])
    assert (cell.recordings, cell.states, cell.no) == (2, 40, 5)
    assert cell.point == f"{CASE}@4"
    assert cell.found == "f has 0 bytes"
    said = sentence_of("ext4/ordered", cell)
    assert said.startswith("no in 5 of 40 crash states of 2 recordings; the contract promises nothing")


def test_what_another_oracle_finds_under_a_program_is_told_beside_its_answer() -> None:
    cell = cell_of(NAME, True, [case(finding("fsck"))])
    assert cell.others == (f"fsck: f is empty ({CASE}@4)",)
    assert table(cell).others and not table(cell).broken


def table(*cells: CellAnswer, compare: bool = False, **more: object) -> Litmus:
    modes = ["ext4/ordered", "xfs/default"][: len(cells)]
    plan = LitmusPlan(modes=modes, kernels=["debian-6.12"], machine="uml", compare=compare, argv=["litmus"])
    columns = {
        m: OnMode(item=m, mode=m, kernel="debian-6.12.1", run="modes/m/runs/20261129-120000-r", cells=(c,))
        for m, c in zip(modes, cells, strict=True)
    }
    return replace(Litmus(plan, columns, Path("/t")), **more)  # type: ignore[arg-type]  # its own fields


NO = CellAnswer(program=NAME, recordings=2, states=40, no=5, point=f"{CASE}@4", found="f has 0 bytes")
BROKEN = msgspec.structs.replace(NO, promised=True, others=("size: too small (x@1)",))
KEPT = CellAnswer(program=NAME, promised=True, recordings=2, states=40)
HELD = CellAnswer(program=NAME, recordings=2, states=40)


def test_luck_is_told_apart_from_a_promise_in_words_as_well() -> None:
    """A page that is printed, or read by somebody who sees no colours, says it, too."""
    assert [word(c) for c in (KEPT, HELD, NO, BROKEN)] == ["always", "held", "no", "BROKEN"]
    assert len({word(CellAnswer(program=NAME, states=9, left="x", promised=p)) for p in (True, False)}) == 2


def test_a_promise_that_was_broken_makes_the_page_red_and_luck_does_not() -> None:
    chosen = programs([NAME])
    for cell, kind in ((KEPT, "pass"), (HELD, "pass"), (NO, "pass"), (BROKEN, "fail")):
        assert page_of(table(cell), chosen).kind == kind
    assert "1 of 1 answer is yes" in headline(table(KEPT))
    assert headline(table(KEPT, BROKEN)) == "2 modes: 1 of 2 answers are yes, 1 no; 1 promise broken; " + (
        "new findings of other oracles in 1 cell"
    )


def test_the_head_counts_modes_and_kernels_and_not_columns_that_the_table_does_not_have() -> None:
    """`80 columns`, over a table of nine: each file system has one there."""
    one = table(KEPT)
    (mode,) = one.columns.values()
    of = {k: msgspec.structs.replace(mode, item=k, asked=k) for k in ("debian-6.12", "debian-7.3")}
    assert headline(replace(one, columns=of)).startswith("1 mode on 2 kernels: ")


KNOWN = msgspec.structs.replace(NO, promised=True, known_no=5, known=("a-bug",))


def test_the_head_says_for_how_many_answers_all_legal_states_were_looked_at() -> None:
    """`crash states (exhaustive)` stood over a table of `so far`."""
    page = page_of(table(KEPT, CellAnswer(program=NAME, states=9, left="the budget")), programs([NAME]))
    assert "49 crash states; all legal ones for 1 of 2 answers" in page.text()
    assert "2 of 2 answers are yes (1 so far), 0 no" in page.headline


def test_what_a_document_promises_is_told_apart_from_the_contract() -> None:
    """`the mode never promised otherwise` was said of what auto_da_alloc promises."""
    html = page_of(table(NO), programs([NAME])).html()
    assert "ext4/ordered, ext4/nodelalloc: yes" in html
    assert "the contract does not promise yes" in html and "A document may promise more" in html
    assert "never promised" not in html and "nobody" not in html


def test_a_promise_that_a_known_bug_broke_is_told_apart_and_named() -> None:
    """Modes without barriers were as red as a new bug, in every row."""
    chosen = programs([NAME])
    assert (KNOWN.standing, word(KNOWN)) == (Standing.KNOWN, "broken, known")
    partly = msgspec.structs.replace(KNOWN, known_no=4)
    assert partly.standing is Standing.BROKEN
    assert msgspec.structs.replace(KNOWN, promised=False).standing is Standing.NO
    assert "promises yes. Known: a-bug. At `" in sentence_of("m", KNOWN)
    page = page_of(table(KNOWN, KEPT), chosen)
    assert page.kind == "xfail"
    assert (
        "a-bug: in 1 cell of ext4/ordered, in 1 of them with the answer no against a promise" in page.text()
    )
    assert "1 promise broken, by known bugs and losses alone" in page.headline
    assert "1 promise broken, and 1 more by known bugs and losses" in headline(table(KNOWN, BROKEN))
    assert not contradictions(table(KNOWN))


def test_a_finding_of_another_oracle_is_new_or_has_its_name() -> None:
    bug = Finding(CASE, "fsck", "s", CrashState(4), finding("fsck").violations, 2, loss="no barriers")
    cell = cell_of(NAME, True, [case(bug, finding("question"), finding("size"))], known_no=2)
    assert (cell.known, cell.others) == (("no barriers",), (f"size: f is empty ({CASE}@4)",))
    assert cell.standing is Standing.KNOWN
    assert table(cell).known and table(cell).others
    assert cell_of(NAME, True, [case(bug, finding("question", 3))], known_no=2).standing is Standing.BROKEN


def test_every_cell_leads_to_its_program_and_the_command_that_shows_it() -> None:
    chosen = programs([NAME])
    html = page_of(table(KEPT, NO), chosen).html()
    assert '<td class="unknown" title="no in 5 of 40' in html
    assert f'<a href="#{NAME}">no</a>' in html
    assert f'id="{NAME}"' in html
    assert f"powercut repro {CASE}@4 --from /t/modes/m/runs/20261129-120000-r" in html


def test_columns_with_the_same_answer_share_a_line_and_each_no_has_its_own() -> None:
    """A program had as many lines as the table has columns, nearly all of them alike."""
    chosen = programs([NAME])

    def told(*cells: CellAnswer) -> list[str]:
        (section,) = [s for s in page_of(table(*cells), chosen).sections if s.title == "The programs"]
        return [str(line) for line in section.findings[0].lines if "crash state" in str(line)]

    (line,) = told(KEPT, KEPT)
    assert line.startswith(
        "ext4/ordered (40), xfs/default (40): yes in all legal crash states, as the contract"
    )
    assert told(KEPT, HELD)[0].startswith("ext4/ordered (40): ")
    assert told(NO, NO)[0].startswith("ext4/ordered: no in 5 of 40")
    assert told(KEPT, msgspec.structs.replace(KEPT, left="the budget"))[0].startswith("ext4/ordered (40): ")


def wide(**cells: CellAnswer) -> Litmus:
    """More columns than a page has room for: five modes of ext4 and one of btrfs, on two kernels. `cells`: by
    mode and kernel, `journal_6`; all others KEPT.
    """
    modes = [f"ext4/{m}" for m in ("ordered", "writeback", "journal", "fast", "inline")] + ["btrfs/default"]
    plan = LitmusPlan(modes=modes, kernels=["debian-6", "debian-7"], machine="uml", argv=["litmus"])
    columns = {}
    for mode, kernel in plan.columns:
        cell = cells.get(f"{mode.partition('/')[2]}_{kernel[-1]}", KEPT)
        name = plan.column(mode, kernel)
        columns[name] = OnMode(item=name, mode=mode, asked=kernel, run="modes/m/runs/r", cells=(cell,))
    return Litmus(plan, columns, Path("/t"))


def in_row(litmus: Litmus, section: str = "The table") -> dict[str, str]:
    chosen = programs([NAME])
    tables = [t for s in page_of(litmus, chosen).sections if s.title == section for t in s.tables]
    return {c: str(cell) for t in tables for c, cell in zip(t.columns, t.rows[0], strict=True)}


def test_of_many_columns_a_file_system_has_one_cell_that_names_who_answers_otherwise() -> None:
    """A table of 80 columns was read sideways."""
    row = in_row(wide())
    assert (row["ext4"], row["btrfs"]) == ("always", "always")
    row = in_row(wide(writeback_6=NO, writeback_7=NO, journal_7=BROKEN, default_7=HELD))
    assert row["ext4"] == "BROKEN: journal on 7; no: writeback; else always"
    assert row["btrfs"] == "held: on 7; else always"
    modes = ("ordered", "writeback", "journal", "fast", "inline")
    assert in_row(wide(**{f"{m}_7": NO for m in modes}))["ext4"] == "no: on 7; else always"
    row = in_row(wide(writeback_6=NO, writeback_7=NO, journal_7=BROKEN), "Mode by mode")
    assert row["ext4/writeback"] == "no"
    assert row["ext4/journal"] == "BROKEN: on 7; else always"
    assert row["btrfs/default"] == "always"


def test_a_cell_for_several_columns_says_no_more_than_the_least_of_them() -> None:
    """What was left open in one of them is open in what is said of all, and the worst gives the colour."""
    some = msgspec.structs.replace(KEPT, left="the budget")
    assert in_row(wide(fast_6=some))["ext4"] == "always so far"
    unseen = CellAnswer(program=NAME, reason="no mkfs")
    assert in_row(wide(fast_6=unseen, fast_7=unseen))["ext4"] == "not looked at: fast; else always"
    none = {f"{m}_{k}": unseen for m in ("default",) for k in (6, 7)}
    assert in_row(wide(**none))["btrfs"] == "-"
    for cell, kind in (
        (BROKEN, "fail"),
        (KNOWN, "pass"),
        (NO, "unknown"),
        (HELD, "luck"),
        (some, "pass"),
        (unseen, "pass"),
    ):
        html = page_of(wide(fast_6=cell), programs([NAME])).html()
        assert f'<td class="{kind}"><a href="#{NAME}">' in html


def test_a_known_loss_of_one_mode_does_not_colour_its_file_system() -> None:
    """Each file system has a mode without barriers."""
    assert in_row(wide(fast_6=KNOWN, fast_7=KNOWN))["ext4"] == "broken, known: fast; else always"
    html = page_of(wide(default_6=KNOWN, default_7=KNOWN), programs([NAME])).html()
    assert f'<td class="xfail"><a href="#{NAME}">broken, known</a>' in html


def test_a_mode_that_could_not_be_run_stands_with_its_file_system() -> None:
    litmus = wide()
    failed = OnMode(item="ext4/fast debian-7", mode="ext4/fast", asked="debian-7", failed="no mkfs")
    litmus = replace(litmus, columns={**litmus.columns, failed.item: failed})
    assert in_row(litmus)["ext4"] == "not looked at: fast on 7; else always"
    assert "1 question not looked at" in page_of(litmus, programs([NAME])).headline
    assert "## ext4" in markdown(litmus, programs([NAME]))


def test_in_the_file_for_programs_a_cell_has_what_is_not_empty() -> None:
    data: Any = page_of(table(KEPT, NO), programs([NAME])).data
    kept, no = [column["cells"] for column in data["columns"]]
    assert kept == [{"standing": "kept", "program": NAME, "promised": True, "recordings": 2, "states": 40}]
    assert no[0]["found"] == "f has 0 bytes"


def test_a_column_that_was_not_reached_is_listed_and_stands_in_no_table() -> None:
    """An interrupted table had a column of dashes for each mode that nobody had looked at."""
    litmus = table(KEPT, KEPT)
    late = OnMode(item="xfs/default", failed=NOT_YET)
    litmus = replace(litmus, columns={**litmus.columns, "xfs/default": late}, interrupted=True)
    assert not litmus.decided
    page = page_of(litmus, programs([NAME]))
    assert [t.columns[2:] for s in page.sections for t in s.tables] == [("ext4/ordered",)]
    assert "xfs/default: not yet" in page.text()


def test_a_mode_that_could_not_be_run_is_a_column_with_its_reason() -> None:
    litmus = replace(table(KEPT), columns={"ext4/ordered": OnMode(item="ext4/ordered", failed="no mkfs")})
    assert "not looked at: no mkfs" in page_of(litmus, programs([NAME])).html()


def test_a_comparison_shows_what_differs_and_nothing_else() -> None:
    chosen = programs([NAME])
    same, other = table(KEPT, KEPT, compare=True), table(KEPT, NO, compare=True)
    assert "\nno answer differs\n" in page_of(same, chosen).text()
    (differs,) = [s for s in page_of(other, chosen).sections if s.title == "Differences"]
    assert [len(t.rows) for t in differs.tables] == [1]


def test_two_columns_without_an_answer_are_not_told_to_agree() -> None:
    nothing = CellAnswer(program=NAME, reason="no mkfs")
    unseen = table(nothing, nothing, compare=True)
    assert "no answer differs" not in page_of(unseen, programs([NAME])).text()
    both = programs([NAME, "append-o-sync"])
    assert (
        "no answer differs; 1 question not looked at" in page_of(table(KEPT, KEPT, compare=True), both).text()
    )


def test_a_comparison_waits_for_its_second_column() -> None:
    """The page of one column was written with a heading for two: `litmus --compare` ended in a traceback."""
    litmus = table(KEPT, NO, compare=True)
    late = OnMode(item="xfs/default", mode="xfs/default", kernel="debian-6.12.1", failed=NOT_YET)
    page = page_of(
        replace(litmus, columns={**litmus.columns, "xfs/default": late}, interrupted=True), programs([NAME])
    )
    assert not [s for s in page.sections if s.title == "Differences" and s.holds]
    assert page.text()


def test_a_promise_that_no_oracle_misses_is_told_as_a_contradiction() -> None:
    """A planted answer that is too narrow would make a promise of what a contract leaves open."""
    alone = msgspec.structs.replace(BROKEN, alone=1)
    assert contradictions(table(alone))
    assert not contradictions(table(BROKEN))
    known_elsewhere = msgspec.structs.replace(alone, known=("a-bug",))
    assert contradictions(table(known_elsewhere)), "what other states show does not speak for this one"


def test_the_table_in_markdown_has_a_row_for_each_program() -> None:
    text = markdown(table(KEPT, NO), programs([NAME]))
    (row,) = [line for line in text.splitlines() if f"`{NAME}`" in line]
    assert row.endswith("| always | no |")


def test_a_promise_that_is_broken_as_expected_is_broken() -> None:
    """The headline said so; the page was green, and nothing was named as known."""
    reason = "our controller ignores flushes"
    expected = replace(
        finding("durability"),
        expectation=Expectation("ext4/ordered", "*", "durability", reason, "expected:1"),
    )
    cell = cell_of(NAME, True, [case(expected, finding("question", 2))], known_no=2)
    assert cell.standing is Standing.KNOWN
    assert f"Known: {reason}. At" in sentence_of("ext4/ordered", cell)
    broken = table(cell)
    assert broken.known
    page = page_of(broken, programs([NAME]))
    assert page.kind == "xfail"
    assert reason in page.text()
    kept = table(cell_of(NAME, True, [case(expected)]))
    assert not kept.known, "what is expected, and breaks no promise that was asked about, is no failure"


@pytest.mark.parametrize(
    ("kernels", "told"),
    [
        (["/w/base-tree/vmlinux", "/w/patched-tree/vmlinux"], "BROKEN: on patched-tree/vmlinux; else always"),
        (["debian-6.12", "debian-7.3"], "BROKEN: on 7.3; else always"),
        (["debian-7.3", "own-7.3"], "BROKEN: on own-7.3; else always"),
    ],
)
def test_kernels_that_share_a_cell_are_told_apart(kernels: list[str], told: str) -> None:
    """Two files of one name were both `tree/vmlinux`."""
    columns = [
        OnMode(
            item=k,
            mode="ext4/ordered",
            asked=k,
            cells=(msgspec.structs.replace(KEPT, no=int(k == kernels[1])),),
        )
        for k in kernels
    ]
    assert str(together(columns, NAME)) == told
