"""summary.md: the run on a page of a CI job (`cat summary.md >>"$GITHUB_STEP_SUMMARY"`).

Markdown of GitHub and GitLab: a headline, a table of modes and workloads, and each unexpected finding with
the commands that explain and reproduce it. Text from guests is written out so that it is neither Markdown nor
HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from harness.host.text import one_line
from harness.report.lines import commands
from harness.report.words import (
    Cell,
    Matrix,
    counted_findings,
    headline,
    machine_name,
    plural,
    recoveries_cut,
)
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
    if again := recoveries_cut(c.info for c in summary.cases):
        yield ""
        yield _text(again)
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
        yield f"**{_text(str(f.case))}** {_text(f.oracle)}: {_prose(f.summary)} ({plural(f.states, 'state')})"
        yield ""
        for command in commands(f, source, summary.packed):
            yield f"    {one_line(command.removeprefix('why: ').removeprefix('reproduce: '))}"
    more = len(summary.unexpected) - MAX_FINDINGS
    if more > 0:
        yield ""
        yield f"... and {plural(more, 'more finding')} in report.html"
    if summary.unexpected:
        yield ""
        yield _elsewhere(summary)
    for c in summary.cases:
        if c.verdict is CaseVerdict.UNKNOWN:
            yield ""
            yield f"**{_text(str(c.case))}** undecided: {_prose(c.undecided)}"


def _elsewhere(summary: Summary) -> str:
    """How whoever reads this on another machine follows the commands."""
    text = (
        "The commands name this run where it was made. On another machine, name the file that "
        "`powercut pack` made of it, and the recipes for CI jobs publish: `--from run.tar.zst`."
    )
    modules = [f"{Path(p).name} (sha256 {sha[:12]})" for p, sha in summary.info.kernel.replaced.items()]
    if modules:
        text += (
            f" {_text(', '.join(modules))} is in that file: without `--module`, a command says how to name "
            "it, and how to look with the kernel's own instead."
        )
    return text


def _table(matrix: Matrix) -> Iterator[str]:
    yield f"| | {' | '.join(map(_text, matrix.columns))} |"
    yield f"| --- |{' ---: |' * len(matrix.columns)}"
    for row in matrix.rows:
        cells = " | ".join(_cell(matrix.cell(row, column)) for column in matrix.columns)
        yield f"| {_text(row)} | {cells} |"


def _cell(cell: Cell | None) -> str:
    return f"{cell.figure} {_MARKS[cell.verdict]}".strip() if cell else ""


def _prose(text: str) -> str:
    """Text in which `quoted` words are code, and nothing else is markup."""
    parts = one_line(text).split("`")
    if len(parts) % 2 == 0 or not all(parts[1::2]):
        return _text(text)
    return "".join(f"`{part}`" if n % 2 else _text(part) for n, part in enumerate(parts))


def _text(text: str) -> str:
    """Text of which nothing is markup."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(one_line(text), quote=False))
