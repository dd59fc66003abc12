"""The summary for terminals, and the same without colours in summary.txt.

It ends like that of fstests (`Ran:`, `Not run:`, `Failures:`, `Failed N of M`); the last line of every
failure is the command that reproduces it.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.grouping import by_key
from harness.host.console import SafeConsole
from harness.host.text import indented, one_line
from harness.model import CaseId
from harness.report.faulty_disk import faulty_disk_words
from harness.report.lines import can_be_shrunk, commands, reproduce, shrink
from harness.report.next_step import next_step
from harness.report.words import (
    Cell,
    Matrix,
    counted_findings,
    doubts,
    extent,
    grouped,
    headline,
    how_reached,
    is_shown,
    known_lines,
    known_or_new,
    less_than_asked,
    machine_name,
    number,
    pace,
    pieces,
    plural,
    recoveries_cut,
    together,
    where,
    xpass,
)
from harness.store.records import Finding
from harness.summary import CaseSummary, CaseVerdict, Summary, shell_code

STYLES = {
    CaseVerdict.PASS: "green",
    CaseVerdict.FAIL: "bold red",
    CaseVerdict.XFAIL: "magenta",
    CaseVerdict.UNKNOWN: "yellow",
    CaseVerdict.NOT_RUN: "dim",
}
_MARKS = {
    CaseVerdict.PASS: "ok",
    CaseVerdict.FAIL: "FAIL",
    CaseVerdict.XFAIL: "xfail",
    CaseVerdict.UNKNOWN: "UNKNOWN",
    CaseVerdict.NOT_RUN: "not run",
}
_PLAIN_WIDTH = 100
_MIN_COLUMN = 9
_MAX_PLANNED = 20
"""Rows of the table without any case that was started."""


def print_summary(summary: Summary, source: str, console: Console | None = None) -> None:
    """Print the run, shortened for a terminal (see `Limits`).

    rich leaves out the colours if the output is not a terminal. `source`: see `lines.source_words`.
    """
    console = console or SafeConsole(highlight=False)
    _print(summary, source, console, TERMINAL)


def summary_text(summary: Summary, source: str) -> str:
    """The same as plain text, with every unexpected finding and every undecided case."""
    out = io.StringIO()
    console = SafeConsole(file=out, width=_PLAIN_WIDTH, color_system=None, force_terminal=False)
    _print(summary, source, console, EVERYTHING)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to show; None: everything. `alike`: findings per case and oracle, and reasons per undecided
    case. `findings`: unexpected findings, and undecided cases, per run. `names`: cases named in a list.
    """

    alike: int | None = None
    findings: int | None = None
    names: int | None = None


TERMINAL = Limits(alike=3, findings=20, names=12)
EVERYTHING = Limits()


def _print(summary: Summary, source: str, console: Console, limits: Limits) -> None:
    for part in _parts(summary, source, console.width, limits):
        if isinstance(part, Table):
            console.print(part)
        else:
            console.print(part, soft_wrap=True, highlight=False)


def _parts(summary: Summary, source: str, width: int, limits: Limits) -> Iterator[Text | Table]:
    yield _line("bold", headline(summary))
    yield _line("dim", f"{machine_name(summary.info)}, {_checked(summary)}")
    if summary.checked:
        yield Text(f"{how_reached(summary)}{_paced(summary)}", style="dim")
    checked = [c for c in summary.cases if c.counts.checked]
    coverage = [c.info.coverage for c in checked if c.has_extent]
    if any(coverage) or len(coverage) < len(checked):
        yield _line("dim", f"covered: {extent(coverage, len(checked) - len(coverage))}")
    if less := less_than_asked(c.info for c in summary.cases):
        yield _line("yellow", less)
    if again := recoveries_cut(c.info for c in summary.cases):
        yield _line("dim", again)
    if erred := faulty_disk_words(c.info for c in summary.cases):
        yield _line("dim", erred)
    yield Text()
    yield from _tables(summary, width)
    yield from _unexpected(summary, source, limits)
    yield from _expected(summary, source)
    yield from _all_undecided(summary, source, limits)
    for e in summary.unmet:
        yield _line("bold magenta", f"XPASS: {e} was expected to fail and did not")
        yield _line("", f"  {e.origin}: {e.reason}")
        yield _line("", f"  {xpass(e, summary)}")
        yield Text()
    for doubt, cases in doubts(summary):
        yield Text(indented(f"note: {_names(cases, limits)}: {doubt}"), "yellow")
        yield Text()
    for note in summary.info.notes:
        yield Text(indented(f"note: {note.text}"), "yellow")
    if summary.info.notes:
        yield Text()
    yield from _tail(summary, limits)


def _checked(summary: Summary) -> str:
    checked = f"{plural(summary.checked, 'crash state')} checked"
    return f"{checked}, {number(summary.unknown)} of them undecided" if summary.unknown else checked


def _paced(summary: Summary) -> str:
    said = pace(summary.checked, sum(c.seconds for c in summary.cases))
    return f"; {said}" if said else ""


# --- the table -------------------------------------------------------------------------------


def _tables(summary: Summary, width: int) -> Iterator[Table | Text]:
    """Modes and workloads, the more numerous as rows. If too wide for one table, headings are wrapped; if
    still too wide, there are several tables. Many rows that the run did not come to are counted.
    """
    matrix = Matrix.of(summary)
    begun = tuple(row for row in matrix.rows if not matrix.is_only_planned(row))
    left = len(matrix.rows) - len(begun)
    if left > _MAX_PLANNED:
        matrix = replace(matrix, rows=begun)
    first = max((len(name) for name in matrix.rows), default=0)
    headings = {name: [name] for name in matrix.columns}
    if first + sum(_column_width(matrix, n, headings[n]) for n in headings) > width:
        headings = {name: _broken(name, _cells_width(matrix, name)) for name in matrix.columns}
    columns: list[str] = []
    used = first
    for name in matrix.columns:
        column = _column_width(matrix, name, headings[name])
        if columns and used + column > width:
            yield from (_table(matrix, columns, headings), Text())
            columns, used = [], first
        columns.append(name)
        used += column
    if columns:
        yield from (_table(matrix, columns, headings), Text())
    if left > _MAX_PLANNED:
        yield _line("dim", f"and {plural(left, 'row')} of cases that were not started")
        yield Text()


def _table(matrix: Matrix, columns: Sequence[str], headings: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    for name in columns:
        heading = Text("\n".join(headings[name]))
        table.add_column(heading, no_wrap=True, justify="right", vertical="bottom")
    for row in matrix.rows:
        table.add_row(_line("", row), *(_cell(matrix.cell(row, name)) for name in columns))
    return table


def _cells_width(matrix: Matrix, column: str) -> int:
    return max((len(_cell(matrix.cell(row, column))) for row in matrix.rows), default=0)


def _column_width(matrix: Matrix, column: str, heading: Sequence[str]) -> int:
    """The width including the space between columns: the padding of both, and the box's."""
    return max(_cells_width(matrix, column), *map(len, heading)) + 3


def _broken(name: str, width: int) -> list[str]:
    """`name` wrapped to about `width` letters."""
    lines = [""]
    for piece in pieces(name):
        if lines[-1] and len(lines[-1]) + len(piece) > max(width, _MIN_COLUMN):
            lines.append("")
        lines[-1] += piece
    return lines


def _cell(c: Cell | None) -> Text:
    if c is None:
        return Text("")
    return Text(f"{c.figure} {_MARKS[c.verdict]}".lstrip(), style=STYLES[c.verdict])


# --- findings --------------------------------------------------------------------------------


def _unexpected(summary: Summary, source: str, limits: Limits) -> Iterator[Text]:
    shown: list[Finding] = []
    alike: Counter[tuple[CaseId, str]] = Counter()
    unexpected = summary.unexpected
    here = [f for f in unexpected if summary.packed in (None, f.case)]
    for f in here:
        alike[f.case, f.oracle] += 1
        if _within(alike[f.case, f.oracle], limits.alike) and _within(len(shown) + 1, limits.findings):
            shown.append(f)
    if len(here) == len(shown) + 1:
        shown = here  # "and 1 more" would hide it, and be as long
    infos = {c.case: c.info for c in summary.cases}
    if counted := counted_findings(summary):
        yield _line("bold", counted)
    if known := known_or_new(unexpected, summary.info.kernel):
        yield _line("", known)
        yield Text()
    for i, group in enumerate(grouped(shown)):
        offered = i == 0 and can_be_shrunk(infos[group[0].case])
        yield from _group(group, source, summary.packed, offered=offered)
    if left := len(here) - len(shown):
        yield _line(STYLES[CaseVerdict.FAIL], f"... and {number(left)} more; report.html has them all")
        yield Text()
    if elsewhere := [f for f in unexpected if summary.packed not in (None, f.case)]:
        (why,) = commands(elsewhere[0], source, summary.packed)
        yield _line("", f"{plural(len(elsewhere), 'finding')} of other cases {why}")
        yield Text()


def _within(count: int, limit: int | None) -> bool:
    return limit is None or count <= limit


def _group(group: Sequence[Finding], source: str, packed: CaseId | None, *, offered: bool) -> Iterator[Text]:
    """Findings at one crash state, the command that says why, and the one that shows them; where `offered`,
    after the one that makes the workload short.
    """
    first, *others = group
    yield _line(STYLES[CaseVerdict.FAIL], f"FAIL {first.case} {first.oracle}: {first.summary}")
    yield _line("", f"  at {where(first)}")
    yield from _known(first)
    yield from _violations(first)
    for f in others:
        yield _line(STYLES[CaseVerdict.FAIL], f"  at the same state, {f.oracle}: {f.summary}")
        yield from _known(f)
        yield from _violations(f)
    if offered:
        yield _line("", f"fewer operations: {shrink(first.crash_point, source)}")
    for command in commands(first, source, packed):
        yield _line("bold" if command.startswith("reproduce") else "", command)
    yield Text()


def _known(f: Finding) -> Iterator[Text]:
    """What is known of a finding, and what to do."""
    for i, line in enumerate(known_lines(f)):
        yield _line("", f"{'    ' if i else '  '}{line}")


def _violations(f: Finding) -> Iterator[Text]:
    """What was expected and found; without what the finding's own line says."""
    for v in f.violations:
        if v.summary != f.summary or not is_shown(v):
            yield _line("", f"  {v.subject}")
            yield _line("", f"    expected: {v.expected}")
            yield _line("", f"    found:    {v.found}")


def _expected(summary: Summary, source: str) -> Iterator[Text]:
    """Expected failures: the reason once, then one line per case with an example."""
    known = [(f.expectation, f) for f in summary.findings if f.expectation]
    for expectation in dict.fromkeys(e for e, _ in known):
        yield _line("", f"expected failures ({expectation.origin}): {expectation.reason}")
        by_case = by_key((f.case, f) for e, f in known if e == expectation)
        for case, findings in by_case.items():
            oracles = Counter(f.oracle for f in findings)
            said = ", ".join(f"{oracle} x{count}" for oracle, count in oracles.most_common())
            example = next(f for f in findings if f.oracle == oracles.most_common(1)[0][0])
            yield _line(STYLES[CaseVerdict.XFAIL], f"XFAIL {case}: {said}, e.g. {example.summary}")
            yield _line("bold", commands(example, source, summary.packed)[-1])
        yield Text()


def _all_undecided(summary: Summary, source: str, limits: Limits) -> Iterator[Text]:
    groups = together(c for c in summary.cases if c.undecided)
    for why, (c, *others) in groups[: limits.findings]:
        who = plural(len(others) + 1, "case") if others else str(c.case)
        yield Text(indented(f"UNKNOWN {who}: {why}"), STYLES[CaseVerdict.UNKNOWN])
        if others and _within(len(others) + 1, limits.names):
            yield _line("", "  " + " ".join(str(c.case) for c in (c, *others)))
        for r in c.unknown_reasons[: limits.alike]:
            yield Text(indented(f"  {plural(r.states, 'state')}: {r.reason}"))
            yield _line("bold", f"reproduce: {reproduce(c.case, r.example, source)}")
        if left := len(c.unknown_reasons[limits.alike :] if limits.alike else ()):
            yield _line("", f"  ... and {plural(left, 'more reason')}; report.html has them all")
        yield Text()
    if left := sum(len(cases) for _, cases in groups[limits.findings :]) if limits.findings else 0:
        yield _line("", f"... and {number(left)} more undecided cases; report.html has them all")
        yield Text()


# --- the end ---------------------------------------------------------------------------------


def _tail(summary: Summary, limits: Limits) -> Iterator[Text]:
    by = {v: [c for c in summary.cases if c.verdict is v] for v in CaseVerdict}
    ran = [c for c in summary.cases if c.counts.checked]
    yield _line("", "Ran: " + (_sets(ran) if limits.names is None else _names(ran, limits)))
    if not_run := by[CaseVerdict.NOT_RUN]:
        yield _line("", "Not run: " + _names(not_run, limits))
        groups = together(not_run)
        for why, cases in groups[: limits.names]:
            who = f"{_names(cases, limits)}: " if len(groups) > 1 else ""
            yield Text(indented(f"  {who}{why}"), "dim")
    if by[CaseVerdict.XFAIL]:
        yield _line("", "Expected failures: " + _names(by[CaseVerdict.XFAIL], limits))
    if by[CaseVerdict.UNKNOWN]:
        yield _line(STYLES[CaseVerdict.UNKNOWN], "Undecided: " + _names(by[CaseVerdict.UNKNOWN], limits))
    if summary.interrupted:
        how = f"stopped: {summary.info.stopped}" if summary.info.stopped else "interrupted"
        yield _line(STYLES[CaseVerdict.UNKNOWN], f"Before it was complete, the run was {how}.")
    if by[CaseVerdict.FAIL]:
        yield _line(STYLES[CaseVerdict.FAIL], "Failures: " + _names(by[CaseVerdict.FAIL], limits))
    if told := next_step(summary).text:
        yield _line("", told)
    yield _line("bold", _last(summary, by))


def _last(summary: Summary, by: dict[CaseVerdict, list[CaseSummary]]) -> str:
    of = len(summary.cases) - len(by[CaseVerdict.NOT_RUN])
    undecided = len(by[CaseVerdict.UNKNOWN])
    if by[CaseVerdict.FAIL]:
        left = f"; {number(undecided)} undecided" if undecided else ""
        return f"Failed {len(by[CaseVerdict.FAIL])} of {plural(of, 'case')}{left}"
    if not summary.checked:
        return f"Nothing was checked (exit code {int(shell_code(summary))})"
    if undecided or summary.interrupted:
        return f"Undecided {undecided} of {plural(of, 'case')}"
    others = of - len(by[CaseVerdict.XFAIL])
    if not others:
        text = f"Failed as expected: {_all(of)}"
    else:
        were = "was" if others == 1 else "were"
        expected = f" that {were} not expected to fail" if by[CaseVerdict.XFAIL] else ""
        text = f"Passed {_all(others)}{expected}"
    left_out = len(by[CaseVerdict.NOT_RUN])
    if missing := len(summary.missing):
        cases = plural(missing, "required case")
        return f"{text}; {cases} not run, so this is not a pass (exit code {int(shell_code(summary))})"
    return text + (f"; {number(left_out)} not run" if left_out else "")


def _all(cases: int) -> str:
    return "the 1 case" if cases == 1 else f"all {plural(cases, 'case')}"


def _names(cases: Sequence[CaseSummary], limits: Limits) -> str:
    if not cases:
        return "nothing"
    if not _within(len(cases), limits.names):
        return plural(len(cases), "case")
    return " ".join(str(c.case) for c in cases)


def _sets(cases: Sequence[CaseSummary]) -> str:
    """Names of cases; for generated workloads, the names of their sets."""
    counted = Counter((c.case.filesystem, c.case.mode, c.case.family, c.case.is_generated) for c in cases)
    return (
        " ".join(
            f"{filesystem}-{mode}/{name}" + (f" ({plural(count, 'case')})" if generated else "")
            for (filesystem, mode, name, generated), count in counted.items()
        )
        or "nothing"
    )


def _line(style: str, text: str) -> Text:
    """One line: untrusted text in it cannot start another line that looks like ours."""
    return Text(one_line(text), style=style)
