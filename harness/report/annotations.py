"""Annotations of a CI job: a workflow command of GitHub for each unexpected finding and each undecided case.

GitHub shows ten of each level per step. Text from guests is escaped, so that it cannot be a command of its
own. (docs.github.com, "Workflow commands for GitHub Actions".)
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.host.text import one_line
from harness.report.lines import reproduce
from harness.summary import CaseVerdict, Summary

MAX_OF_A_LEVEL = 10


def annotation_lines(summary: Summary, source: str) -> Iterator[str]:
    """A line each. `source`: see `lines.source_words`."""
    for f in summary.unexpected[:MAX_OF_A_LEVEL]:
        cause = f". {summary.why[f.id]}" if f.id in summary.why else ""
        fewest = f". Shown by: {'; '.join(summary.fewest[f.id])}" if f.id in summary.fewest else ""
        text = f"{f.summary}{cause}{fewest} ({reproduce(f.case, f.state, source)})"
        yield _line("error", f"{f.case} {f.oracle}", text)
    undecided = [c for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN]
    for c in undecided[:MAX_OF_A_LEVEL]:
        yield _line("warning", f"{c.case} is undecided", c.undecided)


def _line(level: str, title: str, text: str) -> str:
    name = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
