"""Reports of a run. Everything here reads the store and judges nothing."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from harness.errors import RunLocked
from harness.host.files import refuses, write_atomically
from harness.report.annotations import annotation_lines
from harness.report.explanation import read_explanation
from harness.report.findings import write_findings
from harness.report.html import report_html
from harness.report.junit import junit_xml
from harness.report.lines import resume_of, source_words
from harness.report.markdown import summary_markdown
from harness.report.results import results_json
from harness.report.shrunk import shrunk_file
from harness.report.text import print_summary, summary_text
from harness.report.words import shown_path
from harness.store import RunStore
from harness.summary import Summary, summarise

__all__ = [
    "annotation_lines",
    "explained",
    "print_summary",
    "rewrite_reports",
    "shown_path",
    "source_words",
    "write_reports",
]


def explained(store: RunStore) -> Summary:
    """The run, with the causes of those findings that were explained, each with its crash point where that is
    not the finding's own, and the operations of those that were shrunk.
    """
    summary = summarise(store)
    found = [(f, read_explanation(store.layout, f.id)) for f in summary.findings]
    why = {
        f.id: e.mechanism + f" Explained at {e.point}." * (e.point != str(f.crash_point))
        for f, e in found
        if e and e.mechanism
    }
    shrunk = {f.id: shrunk_file(store.layout, f) for f in summary.findings}
    return replace(
        summary, why=why, fewest={n: s.operations for n, s in shrunk.items() if s and s.operations}
    )


def rewrite_reports(store: RunStore) -> None:
    """Write the reports of a finished run again: one of its findings was explained or shrunk. `store` may
    have been opened minutes ago: the reports are of the run as it is now. Those of a run that can only be
    read stay as they are, and so do those that another process will write: it works on the run.
    """
    if refuses(store.path) or refuses(store.layout.lock):
        return
    lock = store.lock("powercut, writing reports")
    with contextlib.suppress(RunLocked), lock, RunStore.open(store.path) as now:
        if now.info.finished:
            write_reports(now)


def write_reports(store: RunStore, source: Path | None = None) -> None:
    """Write report.html, results.json, junit.xml, summary.txt, summary.md and findings/
    into the run's directory.

    `source`: the run's path for reproduce commands, such as `reports/latest`; default: the run directory. It
    is shown relative to the working directory if it lies below it.
    """
    summary = explained(store)
    shown = source_words(store, shown_path(source or store.path))
    write_findings(summary, store, shown)
    write_atomically(store.path / "results.json", results_json(summary, shown))
    write_atomically(store.path / "junit.xml", junit_xml(summary, shown))
    write_atomically(store.path / "summary.txt", summary_text(summary, shown))
    again = resume_of(store, shown_path(store.path))
    write_atomically(store.path / "summary.md", summary_markdown(summary, shown, again))
    write_atomically(store.path / "report.html", report_html(summary, store, shown))
