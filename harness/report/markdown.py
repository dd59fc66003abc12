"""summary.md: the run on a page of a CI job (`cat summary.md >>"$GITHUB_STEP_SUMMARY"`).

Markdown of GitHub and GitLab: a headline, a table of modes and workloads, and each unexpected finding with
the commands that explain and reproduce it. Text from guests is written out so that it is neither Markdown nor
HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.host.text import markdown, markdown_plain, one_line
from harness.report.lines import commands, reproduce
from harness.report.next_step import next_step
from harness.report.pages import on_page
from harness.report.words import (
    Cell,
    Matrix,
    counted_findings,
    doubts,
    headline,
    known_lines,
    known_or_new,
    less_than_asked,
    machine_name,
    number,
    plural,
    recoveries_cut,
    together,
    xpass,
)
from harness.store.records import Finding
from harness.summary import CaseSummary, CaseVerdict, Summary, shell_code

MAX_FINDINGS = 50
"""A job's page may be 1 MiB (GitHub); report.html has the rest."""
_MARKS = {
    CaseVerdict.PASS: "✅",
    CaseVerdict.FAIL: "❌ **FAIL**",
    CaseVerdict.XFAIL: "☑️ xfail",
    CaseVerdict.UNKNOWN: "❔ UNKNOWN",
    CaseVerdict.NOT_RUN: "not run",
}


def summary_markdown(summary: Summary, source: str, resuming: str = "") -> str:
    """The run as Markdown. `source`: see `lines.source_words`. `resuming`: the command that continues it."""
    return "\n".join(_lines(summary, source, resuming)) + "\n"


def _lines(summary: Summary, source: str, resuming: str) -> Iterator[str]:
    yield f"## {markdown_plain(headline(summary))}"
    yield ""
    checked = f"{plural(summary.checked, 'crash state')} checked"
    yield f"{markdown_plain(machine_name(summary.info))}, {checked}, exit code {int(shell_code(summary))}"
    for say in (less_than_asked, recoveries_cut):
        if words := say(c.info for c in summary.cases):
            yield ""
            yield markdown_plain(words)
    if summary.info.stopped or summary.interrupted:
        yield ""
        yield f"**Not complete:** {markdown_plain(summary.info.stopped or 'interrupted')}"
        if resuming:
            yield ""
            yield _command(resuming)
    yield ""
    yield from _table(Matrix.of(summary))
    yield from _unexpected(summary, source)
    yield from _without_verdict(summary, source)
    known = [f.expectation for f in summary.findings if f.expectation]
    for expectation, count in Counter(known).items():
        yield ""
        told = f"{plural(count, 'expected finding')} ({expectation.origin}): {expectation.reason}"
        yield markdown_plain(told)
    yield from _unmet(summary)
    for doubt, cases in doubts(summary):
        yield ""
        yield f"Note: {_names(cases)}: {markdown(doubt)}"
    for note in summary.info.notes[:MAX_FINDINGS]:
        yield ""
        yield f"Note: {markdown(note.text)}"
    if (more := len(summary.info.notes) - MAX_FINDINGS) > 0:
        yield ""
        yield f"... and {plural(more, 'more note')} in report.html"
    if (step := next_step(summary)).how:
        yield ""
        yield f"{markdown_plain(step.left_out)} Next:"
        yield ""
        yield _command(step.how)


def _unmet(summary: Summary) -> Iterator[str]:
    """Expectations that nothing met, and what to do."""
    for e in summary.unmet[:MAX_FINDINGS]:
        yield ""
        told = f"XPASS: {e} was expected to fail and did not ({e.origin}: {e.reason}): {xpass(e, summary)}"
        yield markdown_plain(told)
    if (more := len(summary.unmet) - MAX_FINDINGS) > 0:
        yield ""
        yield f"... and {number(more)} more XPASS in report.html"


def _names(cases: Sequence[CaseSummary]) -> str:
    return markdown_plain(", ".join(str(c.case) for c in cases[:MAX_FINDINGS]))


def _without_verdict(summary: Summary, source: str) -> Iterator[str]:
    """Why cases are undecided or were not run, and the command for the first state of those that has one."""
    missing = {c.case for c in summary.missing}
    groups = together(c for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN or c.case in missing)
    for why, cases in groups[:MAX_FINDINGS]:
        yield ""
        what = "undecided" if cases[0].undecided else "not run"
        yield f"**{_names(cases)}** {what}: {markdown(why)}"
        for r in cases[0].unknown_reasons[:1]:
            yield ""
            yield _command(reproduce(cases[0].case, r.example, source))


def _command(text: str) -> str:
    return f"    {one_line(on_page(text))}"


def _unexpected(summary: Summary, source: str) -> Iterator[str]:
    if counted := counted_findings(summary):
        yield ""
        yield counted
    if known := known_or_new(summary.unexpected, summary.info.kernel):
        yield ""
        yield markdown_plain(known)
    for f in summary.unexpected[:MAX_FINDINGS]:
        yield from _finding(f, summary, source)
    more = len(summary.unexpected) - MAX_FINDINGS
    if more > 0:
        yield ""
        yield f"... and {plural(more, 'more finding')} in report.html"
    if summary.unexpected:
        yield ""
        yield _elsewhere(summary)


def _finding(f: Finding, summary: Summary, source: str) -> Iterator[str]:
    yield ""
    found = f"{markdown_plain(f.oracle)}: {markdown(f.summary)} ({plural(f.states, 'state')})"
    yield f"**{markdown_plain(str(f.case))}** {found}"
    for line in known_lines(f)[:1]:
        yield markdown_plain(line)
    yield ""
    if why := summary.why.get(f.id):
        yield f"Why: {markdown(why)}"
        yield ""
    if fewest := summary.fewest.get(f.id):
        yield f"Fewest operations that show it: {markdown('; '.join(f'`{o}`' for o in fewest))}"
        yield ""
    for command in commands(f, source, summary.packed):
        yield _command(command.removeprefix("why: ").removeprefix("reproduce: "))


def _elsewhere(summary: Summary) -> str:
    """How whoever reads this on another machine follows the commands."""
    text = (
        "The commands name this run where it was made. On another machine, name its packed file, which "
        "`powercut pack` makes and the recipes for CI jobs publish: `--from run.tar.zst`."
    )
    modules = [f"{Path(p).name} (sha256 {sha[:12]})" for p, sha in summary.info.kernel.replaced.items()]
    if modules:
        text += (
            f" {markdown_plain(', '.join(modules))} is in that file: without `--module`, a command says how "
            "to name it, and how to look with the kernel's own instead."
        )
    return text


def _table(matrix: Matrix) -> Iterator[str]:
    yield f"| | {' | '.join(map(markdown_plain, matrix.columns))} |"
    yield f"| --- |{' ---: |' * len(matrix.columns)}"
    for row in matrix.rows:
        cells = " | ".join(_cell(matrix.cell(row, column)) for column in matrix.columns)
        yield f"| {markdown_plain(row)} | {cells} |"


def _cell(cell: Cell | None) -> str:
    return f"{cell.figure} {_MARKS[cell.verdict]}".strip() if cell else ""
