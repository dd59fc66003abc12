"""The summary in a terminal, and the same without colours in summary.txt.

It ends as fstests' does (`Ran:`, `Not run:`, `Failures:`, `Failed N of M`); the last line of every
failure is the command that shows it again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.report.words import (
    headline,
    machine_name,
    modes,
    number,
    plural,
    printable,
    reproduce,
    where,
    workloads,
)
from harness.store import Finding
from harness.summary import CaseSummary, CaseVerdict, Summary, exit_code

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


def print_summary(summary: Summary, source: str, console: Console | None = None) -> None:
    """Show the run. Without a terminal at the other end rich leaves the colours out.

    `source`: the run's path as reproduce commands shall give it.
    """
    console = console or Console(highlight=False)
    for part in _parts(summary, source, console.width):
        if isinstance(part, Table):
            console.print(part)
        else:
            console.print(part, soft_wrap=True, highlight=False)


def summary_text(summary: Summary, source: str) -> str:
    """The same as plain text."""
    out = io.StringIO()
    console = Console(file=out, width=_PLAIN_WIDTH, color_system=None, force_terminal=False)
    print_summary(summary, source, console)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def _parts(summary: Summary, source: str, width: int) -> Iterator[Text | Table]:
    yield Text(printable(headline(summary)), style="bold")
    yield Text(f"{machine_name(summary.info)}, {_checked(summary)}", style="dim")
    yield Text()
    yield from _tables(summary, width)
    for f in summary.findings:
        yield from _finding(f, source)
    for c in summary.cases:
        yield from _undecided(c, source)
    for e in summary.unmet:
        yield _line("bold magenta", f"XPASS: {e} was expected to fail and did not")
        yield _line("", f"  {e.origin}: {e.reason}")
        yield _line("", "  take the line out if the failure is gone")
        yield Text()
    yield from _tail(summary)


def _checked(summary: Summary) -> str:
    checked = f"{plural(summary.checked, 'crash state')} checked"
    return f"{checked}, {number(summary.unknown)} of them undecided" if summary.unknown else checked


def _tables(summary: Summary, width: int) -> Iterator[Table]:
    """Mode by workload; as many tables one below the other as the width asks for."""
    by_mode = modes(summary)
    first = max((len(name) for name in by_mode), default=0)
    columns: list[str] = []
    used = first
    for name in workloads(summary):
        cell = max(len(name), 14) + 2
        if columns and used + cell > width - 2:
            yield _table(by_mode, columns)
            columns, used = [], first
        columns.append(name)
        used += cell
    if columns:
        yield _table(by_mode, columns)


def _table(by_mode: dict[str, tuple[CaseSummary, ...]], columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(Text(name), no_wrap=True, justify="right")
    for mode, cases in by_mode.items():
        found = {c.case.workload: c for c in cases}
        table.add_row(Text(mode), *(_cell(found.get(name)) for name in columns))
    return table


def _cell(c: CaseSummary | None) -> Text:
    if c is None:
        return Text("")
    states = f"{number(c.counts.checked)} " if c.verdict is not CaseVerdict.NOT_RUN else ""
    return Text(f"{states}{_MARKS[c.verdict]}", style=STYLES[c.verdict])


def _finding(f: Finding, source: str) -> Iterator[Text]:
    known = f.expectation
    word, style = ("XFAIL", STYLES[CaseVerdict.XFAIL]) if known else ("FAIL", STYLES[CaseVerdict.FAIL])
    yield _line(style, f"{word} {f.case} {f.oracle}: {f.summary}")
    yield _line("", f"  at {where(f)}")
    for v in f.violations:
        yield _line("", f"  {v.subject}")
        yield _line("", f"    expected: {v.expected}")
        yield _line("", f"    found:    {v.found}")
    if known:
        yield _line("", f"  expected failure: {known.reason} ({known.origin})")
    yield _line("bold", f"reproduce: {reproduce(f.case, f.state, source)}")
    yield Text()


def _undecided(c: CaseSummary, source: str) -> Iterator[Text]:
    if not c.undecided:
        return
    yield _line(STYLES[CaseVerdict.UNKNOWN], f"UNKNOWN {c.case}: {c.undecided}")
    for r in c.unknown_reasons:
        yield _line("", f"  {plural(r.states, 'state')}: {r.reason}")
        yield _line("bold", f"reproduce: {reproduce(c.case, r.example, source)}")
    yield Text()


def _tail(summary: Summary) -> Iterator[Text]:
    by = {v: [c for c in summary.cases if c.verdict is v] for v in CaseVerdict}
    ran = [c for c in summary.cases if c.counts.checked]
    yield _line("", "Ran: " + _names(ran))
    if by[CaseVerdict.NOT_RUN]:
        yield _line("", "Not run: " + _names(by[CaseVerdict.NOT_RUN]))
        for c in by[CaseVerdict.NOT_RUN]:
            yield _line("dim", f"  {c.case}: {c.reason or 'no reason was given'}")
    if by[CaseVerdict.XFAIL]:
        yield _line("", "Expected failures: " + _names(by[CaseVerdict.XFAIL]))
    if by[CaseVerdict.UNKNOWN]:
        yield _line(STYLES[CaseVerdict.UNKNOWN], "Undecided: " + _names(by[CaseVerdict.UNKNOWN]))
    if summary.interrupted:
        yield _line(STYLES[CaseVerdict.UNKNOWN], "The run was interrupted before its plan was done.")
    if by[CaseVerdict.FAIL]:
        yield _line(STYLES[CaseVerdict.FAIL], "Failures: " + _names(by[CaseVerdict.FAIL]))
    yield _line("bold", _last(summary, by))


def _last(summary: Summary, by: dict[CaseVerdict, list[CaseSummary]]) -> str:
    of = len(summary.cases) - len(by[CaseVerdict.NOT_RUN])
    if by[CaseVerdict.FAIL]:
        return f"Failed {len(by[CaseVerdict.FAIL])} of {plural(of, 'case')}"
    if not summary.checked:
        return f"Nothing was checked (exit code {int(exit_code(summary))})"
    if by[CaseVerdict.UNKNOWN] or summary.interrupted:
        return f"Undecided {len(by[CaseVerdict.UNKNOWN])} of {plural(of, 'case')}"
    passed = f"Passed all {plural(of - len(by[CaseVerdict.XFAIL]), 'case')}"
    expected = len(by[CaseVerdict.XFAIL])
    return passed if not expected else f"{passed} that were not expected to fail"


def _names(cases: Sequence[CaseSummary]) -> str:
    return " ".join(str(c.case) for c in cases) or "nothing"


def _line(style: str, text: str) -> Text:
    return Text(printable(text), style=style)
