"""Annotations of a CI job: a workflow command of GitHub for each unexpected finding, and each case that is
undecided or had to be run and was not; and a notice for what a baseline does not know of a case.

GitHub shows ten of each level per step. Text from guests is escaped, so that it cannot be a command of its
own. (docs.github.com, "Workflow commands for GitHub Actions".)
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.errors import ExitCode
from harness.host.text import one_line
from harness.report.lines import reproduce
from harness.report.words import red_as_a_whole
from harness.summary import CaseVerdict, Summary, shell_code

MAX_OF_A_LEVEL = 10


def annotation_lines(summary: Summary, source: str) -> Iterator[str]:
    """A line each. `source`: see `lines.source_words`."""
    for f in summary.unexpected[:MAX_OF_A_LEVEL]:
        cause = f". {summary.why[f.id]}" if f.id in summary.why else ""
        fewest = f". Shown by: {'; '.join(summary.fewest[f.id])}" if f.id in summary.fewest else ""
        text = f"{f.summary}{cause}{fewest} ({reproduce(f.case, f.state, source)})"
        yield _line("error", f"{f.case} {f.oracle}", text)
    # An error where it is why the job fails.
    level = "error" if shell_code(summary) in (ExitCode.UNDECIDED, ExitCode.NOTHING_RUN) else "warning"
    open_cases = [c for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN]
    for c in (*open_cases, *summary.missing)[:MAX_OF_A_LEVEL]:
        again = "".join(f" ({reproduce(c.case, r.example, source)})" for r in c.unknown_reasons[:1])
        what = "is undecided" if c.undecided else "was not run"
        yield _line(level, f"{c.case} {what}", f"{c.undecided or c.reason}{again}")
    for note in summary.info.notes[:MAX_OF_A_LEVEL]:
        yield _line("notice", note.case or "powercut", note.text)
    if why := red_as_a_whole(summary):
        yield _line("error", "powercut", why)


def _line(level: str, title: str, text: str) -> str:
    name = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
