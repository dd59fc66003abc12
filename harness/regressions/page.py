"""The upstream bugs as a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.faults.page import states_words
from harness.regressions.catalogue import Bug
from harness.regressions.results import BugOutcome, Recall, Row, kind_of
from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.words import asked_states, plural, shown_path

_ORDER = [*BugOutcome]
_CLASSES = {
    BugOutcome.FOUND: "pass",
    BugOutcome.OWN: "xfail",
    BugOutcome.MISSED: "fail",
    BugOutcome.UNKNOWN: "unknown",
    BugOutcome.NOT_RUN: "not-run",
    BugOutcome.NO_MODE: "not-run",
}
_ABOUT = (
    "Each was mended upstream. A bug is found by an unexpected finding on the last stock kernel that has it, "
    "if the first without it decided the same case and does not show that finding. States: those that show "
    "it, of the case with the fewest; for a bug that was not found, those that were covered."
)


def headline(recall: Recall) -> str:
    """`Found 5 of 12 upstream bugs that were run: 6 missed, 1 UNKNOWN; 4 not run, 6 need what ...`"""
    decided = recall.count(BugOutcome.FOUND, BugOutcome.OWN, BugOutcome.MISSED, BugOutcome.UNKNOWN)
    found = f"Found {recall.count(BugOutcome.FOUND)} of {plural(decided, 'upstream bug')} that were run"
    missed, unknown = recall.count(BugOutcome.MISSED), recall.count(BugOutcome.UNKNOWN)
    own = recall.count(BugOutcome.OWN)
    rest = [f"{own} only by a workload that was written for it"] * bool(own)
    rest += [f"{missed} missed"] * bool(missed) + [f"{unknown} UNKNOWN"] * bool(unknown)
    left, no_mode = recall.count(BugOutcome.NOT_RUN), recall.count(BugOutcome.NO_MODE)
    more = [f"{left} not run"] * bool(left) + [f"{no_mode} for which there is no mode"] * bool(no_mode)
    return f"{': '.join(filter(None, [found, ', '.join(rest)]))}{'; ' * bool(more)}{', '.join(more)}."


def page_of(recall: Recall) -> Page:
    rows = sorted(recall.rows, key=lambda r: (_ORDER.index(r.outcome), r.bug.name))
    run = [r for r in rows if r.outcome is not BugOutcome.NO_MODE]
    plan = recall.plan
    sets = ", ".join(plan.workloads) + (f", part {plan.shard}" if plan.shard else "")
    return Page(
        what="upstream bugs",
        subject="upstream bugs",
        headline=headline(recall),
        kind=kind_of(recall),
        figures=(
            f"under {sets}: general workloads; what one finds that was written for a bug is counted apart",
            asked_states(plan.fault_models, plan.budget),
            f"finished {recall.finished}" if recall.finished else "not finished",
        ),
        notice="Interrupted: what has not been run is listed as such." * recall.interrupted,
        sections=(
            Section("Bugs", _ABOUT, tables=(_table(run),)),
            Section("Not found", lines=tuple(Line(r.why, r.bug.name) for r in run if r.why)),
            Section(
                "Kernels after that were not silent",
                "What is unexpected there is no news of these bugs: another one, or one that was not mended.",
                lines=tuple(dict.fromkeys(Line(r.after, r.bug.after) for r in run if r.silent is False)),
            ),
            Section(
                "Kernels after that were not decided",
                lines=tuple(
                    dict.fromkeys(Line(r.after, r.bug.after) for r in run if r.silent is None and r.after)
                ),
            ),
            Section(
                "For which there is no mode",
                "Counted apart: Powercut cannot run what it takes.",
                lines=tuple(Line(r.bug.subject, r.bug.name, aside=r.why) for r in rows if r.bug.needs),
            ),
            Section(
                "What was mended, and what was seen",
                findings=tuple(_details(recall, rows)),
                in_text=False,
            ),
        ),
        command=shlex.join(["powercut", *plan.argv]),
        data={
            "plan": plan,
            "score": {str(outcome): recall.count(outcome) for outcome in BugOutcome},
            "rows": rows,
            "finished": recall.finished or None,
            "interrupted": recall.interrupted,
        },
    )


def _table(rows: Sequence[Row]) -> PageTable:
    return PageTable(
        ("bug", "before", "after", "result", "found by", "oracles", "after it", "states"),
        tuple(
            (
                row.bug.name,
                row.bug.before,
                row.bug.after,
                Cell(str(row.outcome), _CLASSES[row.outcome]),
                _by(row),
                ", ".join(dict.fromkeys(d.oracle for d in row.credited)),
                row.after.partition(",")[0].partition(":")[0],
                states_words(row.credited, row.states),
            )
            for row in rows
        ),
        figures=7,
    )


def _by(row: Row) -> str:
    if not row.credited:
        return ""
    others = len({d.case for d in row.credited}) - 1
    more = f" and {plural(others, 'more case')}" if others else ""
    return row.credited[0].case + more + (f"; or {' or '.join(row.shared)}" if row.shared else "")


def _details(recall: Recall, rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        yield Finding(
            f"{row.bug.name}: {row.outcome}",
            (
                Line(row.bug.summary),
                Line(aside=_origin(row.bug)),
                Line(aside=f"what should show: {row.bug.shows} · {row.bug.evidence}"),
                *(Line(d.summary, d.case, d.oracle) for d in row.credited),
                *([Line(row.why)] if row.why else []),
            ),
            commands=tuple(f"reproduce: {command}" for command in _commands(row, recall.path)),
            kind=_CLASSES[row.outcome],
        )


def _origin(bug: Bug) -> str:
    commit = f"{bug.commit} ({bug.subject})" if bug.commit else bug.subject
    parts = [
        f"mended by {commit}",
        f"made by {bug.fixes}" if bug.fixes else "",
        f"stable: {', '.join(bug.stable)}" if bug.stable else "",
        f"fstests: {bug.test}" if bug.test else "",
    ]
    return " · ".join(filter(None, parts))


def _commands(row: Row, path: Path) -> Iterator[str]:
    """A finding of each oracle once more."""
    first = {d.oracle: d for d in reversed(row.credited)}
    for seen in reversed(first.values()):
        if run := row.runs.get(seen.mode):
            yield f"powercut repro {seen.example} --from {shlex.quote(shown_path(path / run))}"
