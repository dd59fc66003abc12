"""A campaign of planted faults as a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.faults.results import (
    Campaign,
    Detection,
    OtherCampaign,
    Row,
    Score,
    Status,
    kind_of,
    score_of,
)
from harness.report.lines import source_in
from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.pages import sentence
from harness.report.words import asked_states, number, plural, seconds

_CLASSES = {
    Status.MISSED: "fail",
    Status.UNDECIDED: "unknown",
    Status.NOT_TRIED: "not-run",
    Status.EQUIVALENT: "xfail",
    Status.FOUND: "pass",
}
"""What was not found comes first."""
_ORDER = [*_CLASSES]


_ABOUT = (
    "Each is a few changed words in one kernel; equivalent ones break no promise that the unmodified kernel "
    "keeps. States: those that show it, of the case with the fewest; for a fault that was not found, those "
    "that were covered. A finding counts if the unmodified kernel, under the same workload, does not show "
    "it; where the same oracle found other things there, only if more states show it than show all of those."
)

_FIRST = (
    "each fault's run ended with the first case that found it; the unmodified kernel was asked only in cases "
    "in which a fault's kernel showed something"
)


def page_of(campaign: Campaign) -> Page:
    """All of it. What was not found comes first."""
    rows = sorted(campaign.rows, key=lambda r: (_ORDER.index(r.status), r.fault.name))
    open_rows = [r for r in rows if r.why or r.note]
    return Page(
        what="planted kernel faults",
        subject=campaign.kernel,
        headline=headline(campaign),
        kind=kind_of(campaign),
        figures=(
            asked_states(campaign.plan.fault_models, campaign.plan.budget),
            baseline_words(campaign),
            *_other_words(campaign.plan.other),
            *[_FIRST] * campaign.plan.first,
            _when(campaign),
        ),
        notice="Interrupted: the faults not tried are listed as such." * campaign.interrupted,
        sections=(
            Section(
                "Faults",
                _ABOUT,
                tables=(_table(rows, campaign.plan.other),),
            ),
            Section("Not found, or against what their files say", lines=tuple(map(_why, open_rows))),
            Section(
                "What each breaks, and what was seen",
                findings=tuple(_details(campaign, rows)),
                in_text=False,
            ),
            Section(
                "What the unmodified kernel shows",
                "No fault gets credit for these.",
                lines=tuple(
                    Line(s.summary, s.case, s.oracle, f"known: {s.reason}" if s.reason else "")
                    for s in campaign.baseline.detections
                ),
                in_text=False,
            ),
            Section(
                "What the unmodified kernel left undecided",
                lines=tuple(Line(why, case) for case, why in campaign.baseline.undecided.items()),
            ),
        ),
        command=shlex.join(["powercut", *campaign.plan.argv]),
        data=_for_programs(campaign),
    )


def _for_programs(campaign: Campaign) -> dict[str, object]:
    """`faults.json`. Paths are below its own directory."""
    baseline = {
        name: v for name, v in msgspec.to_builtins(campaign.baseline).items() if name not in ("type", "at")
    }
    return {
        "score": score_of(campaign.rows),
        "plan": campaign.plan,
        "kernel": campaign.kernel,
        "baseline": {"name": baseline.pop("item"), **baseline},
        "rows": campaign.rows,
        "finished": campaign.finished or None,
        "interrupted": campaign.interrupted,
    }


def _table(rows: Sequence[Row], other: OtherCampaign | None) -> PageTable:
    more = (f"under {other.asked}",) if other else ()
    return PageTable(
        ("fault", "result", *more, "found by", "oracles", "states", "took"),
        tuple(
            (
                row.fault.name,
                Cell(str(row.status), _CLASSES[row.status]),
                *([_answer(other, row.fault.name)] if other else []),
                _by(row),
                ", ".join(row.oracles),
                states_words(row.detections, row.states),
                seconds(row.seconds) if row.status is not Status.NOT_TRIED else "",
            )
            for row in rows
        ),
        figures=4 + len(more),
    )


def _answer(other: OtherCampaign, name: str) -> Cell:
    status, by = other.answers.get(name, (Status.NOT_TRIED, ""))
    return Cell(str(status), _CLASSES[status], detail=by)


def _other_words(other: OtherCampaign | None) -> list[str]:
    return [f"under {other.asked}: {score_words(other.score)}"] if other else []


def _why(row: Row) -> Line:
    return Line(row.why or row.note, row.fault.name, aside="" if row.why else "found")


def _details(campaign: Campaign, rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        fault = row.fault
        imitates = f" · imitates {fault.imitates}" if fault.imitates else ""
        examples = _examples(row, campaign.path)
        yield Finding(
            f"{fault.name}: {row.status}",
            (
                Line(fault.summary),
                Line(aside=f"{fault.places} · matters in {', '.join(fault.modes)}{imitates}"),
                *([Line(f"Found by {_by(row)}")] if row.detections else []),
                *(Line(s.summary, oracle=s.oracle, aside=_agrees(s)) for s, _ in examples),
                *(Line(why) for why in (row.why, row.note) if why),
            ),
            commands=tuple(f"reproduce: {again}" for _, again in examples),
            kind=_CLASSES[row.status],
        )


def _agrees(seen: Detection) -> str:
    return f"it also agrees with the known bug {seen.bug}" if seen.bug else ""


def headline(campaign: Campaign) -> str:
    """`Found 30 of 38 planted faults (79 %): 6 missed, 2 undecided.` Equivalent ones do not count."""
    return f"{sentence(score_words(score_of(campaign.rows)))}."


def score_words(score: Score) -> str:
    """The same, inside a sentence."""
    rest = [
        f"{count} {word}"
        for count, word in (
            (score.missed, "missed"),
            (score.undecided, "undecided"),
            (score.not_tried, "not tried"),
            (score.equivalent, "equivalent to the unmodified kernel"),
        )
        if count
    ]
    more = f": {', '.join(rest)}" if rest else ""
    return f"found {score.found} of {plural(score.possible, 'planted fault')} ({score.percent:.0f} %){more}"


def _by(row: Row) -> str:
    """The case with the fewest states that shows it, and how many other workloads do."""
    if not row.detections:
        return ""
    others = len(row.workloads) - 1
    return row.detections[0].case + (f" and {plural(others, 'more workload')}" if others else "")


def states_words(detections: Sequence[Detection], states: int) -> str:
    """How many states of the first case show it; of what was not found, how many were covered."""
    if detections:
        return f"{number(detections[0].states)} of {number(detections[0].of)}"
    return number(states) if states else ""


def baseline_words(campaign: Campaign) -> str:
    """How the unmodified kernel did."""
    baseline = campaign.baseline
    if baseline.failed and not (baseline.cases or baseline.undecided):
        return f"the unmodified kernel could not be run: {baseline.failed}"
    shown = [s for s in baseline.detections if not s.reason]
    known = len(baseline.detections) - len(shown)
    bugs = sorted({s.bug for s in baseline.detections if s.bug})
    parts = [
        f"the unmodified kernel: {plural(len(baseline.cases), 'case')}, {plural(baseline.states, 'state')}",
        f"{plural(len(shown), 'unexpected finding')}" if shown else "no unexpected finding",
        plural(known, "known one") + (f" ({', '.join(bugs)})" if bugs else "") if known else "",
        f"{plural(len(baseline.undecided), 'case')} undecided" if baseline.undecided else "",
        f"not run in some cases: {baseline.failed}" if baseline.failed else "",
    ]
    return ", ".join(filter(None, parts))


def _examples(row: Row, path: Path) -> Sequence[tuple[Detection, str]]:
    """What each oracle found first, with the command that shows it again."""
    first = {s.oracle: s for s in reversed(row.detections)}
    inside = bool(row.runs) and (path / row.runs[0]).resolve().is_relative_to(path.resolve())
    run = source_in(path / row.runs[0]) if inside else ""
    return [(s, f"powercut repro {s.example} --from {run}") for s in reversed(first.values())]


def _when(campaign: Campaign) -> str:
    """`2026-11-22 05:47 to 07:07 UTC`, as far as it is known."""
    finished = datetime.fromisoformat(campaign.finished) if campaign.finished else None
    known = [
        f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC" for when in (campaign.plan.started, finished) if when
    ]
    if finished:
        return " to ".join(known)
    return f"started {known[0]}, not finished" if known else "not finished"
