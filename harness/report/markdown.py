"""summary.md: the run on a page of a CI job (`cat summary.md >>"$GITHUB_STEP_SUMMARY"`).

Markdown of GitHub and GitLab: a headline, a table of modes and workloads, and each unexpected finding with
the command that reproduces it. Text from guests is written out so that it is neither Markdown nor HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from harness.host.text import one_line
from harness.report.lines import reproduce
from harness.report.words import Cell, Matrix, counted_findings, headline, machine_name, plural
from harness.summary import CaseVerdict, Summary, shell_code

MAX_FINDINGS = 50
"""A job's page may be 1 MiB (GitHub); report.html has the rest."""
_MARKS = {
    CaseVerdict.PASS: "✅",
    CaseVerdict.FAIL: "❌ **FAIL**",
    CaseVerdict.XFAIL: "☑️ xfail",
    CaseVerdict.UNKNOWN: "❔ UNKNOWN",
    CaseVerdict.NOT_RUN: "not run",
}


def summary_markdown(summary: Summary, source: str) -> str:
    """The run as Markdown. `source`: see `lines.source_words`."""
    return "\n".join(_lines(summary, source)) + "\n"


def _lines(summary: Summary, source: str) -> Iterator[str]:
    yield f"## {_text(headline(summary))}"
    yield ""
    checked = f"{plural(summary.checked, 'crash state')} checked"
    yield f"{_text(machine_name(summary.info))}, {checked}, exit code {int(shell_code(summary))}"
    if summary.info.stopped or summary.interrupted:
        yield ""
        yield f"**Not complete:** {_text(summary.info.stopped or 'interrupted')}"
    yield ""
    yield from _table(Matrix.of(summary))
    if counted := counted_findings(summary):
        yield ""
        yield f"{counted.replace(' (one FAIL each)', '')}:"
    for f in summary.unexpected[:MAX_FINDINGS]:
        yield ""
        yield f"**{_text(str(f.case))}** {_text(f.oracle)}: {_text(f.summary)} ({plural(f.states, 'state')})"
        yield ""
        yield f"    {one_line(reproduce(f.case, f.state, source))}"
    more = len(summary.unexpected) - MAX_FINDINGS
    if more > 0:
        yield ""
        yield f"... and {plural(more, 'more finding')} in report.html"
    for c in summary.cases:
        if c.verdict is CaseVerdict.UNKNOWN:
            yield ""
            yield f"**{_text(str(c.case))}** undecided: {_text(c.undecided)}"


def _table(matrix: Matrix) -> Iterator[str]:
    yield f"| | {' | '.join(map(_text, matrix.columns))} |"
    yield f"| --- |{' ---: |' * len(matrix.columns)}"
    for row in matrix.rows:
        cells = " | ".join(_cell(matrix.cell(row, column)) for column in matrix.columns)
        yield f"| {_text(row)} | {cells} |"


def _cell(cell: Cell | None) -> str:
    return f"{cell.figure} {_MARKS[cell.verdict]}".strip() if cell else ""


def _text(text: str) -> str:
    """Text of which nothing is markup."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(one_line(text), quote=False))
