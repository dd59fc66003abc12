"""The table of a campaign: plain text, HTML, JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.faults.campaign import RESULTS_NAME, Campaign
from harness.faults.results import Row, Sighting, Status, score_of
from harness.host.files import json_text, write_atomically
from harness.host.text import one_line
from harness.report.lines import source_of
from harness.report.pages import template
from harness.report.words import looked_at, number, plural, seconds, shown_path
from harness.store.directory import read_info, read_plan

_ORDER = (Status.MISSED, Status.UNDECIDED, Status.NOT_TRIED, Status.EQUIVALENT, Status.FOUND)
_CLASSES = {
    Status.FOUND: "pass",
    Status.MISSED: "fail",
    Status.UNDECIDED: "unknown",
    Status.EQUIVALENT: "xfail",
    Status.NOT_TRIED: "not-run",
}


def write_campaign_reports(path: Path, campaign: Campaign) -> None:
    """Write faults.json, summary.txt and report.html into the run directory."""
    score = score_of(campaign.rows)
    told = {"score": msgspec.to_builtins(score), **msgspec.to_builtins(campaign)}
    write_atomically(path / RESULTS_NAME, json_text(told))
    write_atomically(path / "summary.txt", campaign_text(campaign))
    write_atomically(path / "report.html", campaign_html(campaign, path))


def headline(campaign: Campaign) -> str:
    """`Found 30 of 38 planted faults (79 %): 6 missed, 2 undecided.` Equivalent ones do not count."""
    score = score_of(campaign.rows)
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
    told = f": {', '.join(rest)}" if rest else ""
    return f"Found {score.found} of {plural(score.possible, 'planted fault')} ({score.percent:.0f} %){told}."


def campaign_text(campaign: Campaign) -> str:
    """The table for a terminal."""
    return "\n".join(_lines(campaign)) + "\n"


def _lines(campaign: Campaign) -> Iterator[str]:
    yield headline(campaign)
    yield f"{campaign.kernel}; {control_words(campaign)}"
    yield ""
    table = [("fault", "", "by", "oracles", "states", "took"), *map(_cells, campaign.rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for line in table:
        cells = [
            cell.rjust(width) if i > 3 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    told = [row for row in campaign.rows if row.why or row.note]
    if told:
        yield ""
    for row in sorted(told, key=lambda r: _ORDER.index(r.status)):
        yield one_line(f"{row.fault.name}: {row.status}: {row.why or row.note}")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.fault.name,
        str(row.status),
        _by(row),
        ", ".join(row.oracles),
        _states(row),
        seconds(row.seconds) if row.status is not Status.NOT_TRIED else "",
    )


def _by(row: Row) -> str:
    """The case with the fewest states that shows it, and how many other workloads do."""
    if not row.sightings:
        return ""
    others = len(row.workloads) - 1
    return row.sightings[0].case + (f" and {plural(others, 'more workload')}" if others else "")


def _states(row: Row) -> str:
    """How many states of that case show it; of one that was not found, how many were looked at."""
    if row.sightings:
        return f"{number(row.sightings[0].states)} of {number(row.sightings[0].of)}"
    return number(row.states) if row.states else ""


def control_words(campaign: Campaign) -> str:
    """How the unmodified kernel did."""
    control = campaign.control
    if control.failed:
        return f"the unmodified kernel could not be run: {control.failed}"
    shown = [s for s in control.sightings if not s.known]
    known = len(control.sightings) - len(shown)
    parts = [
        f"the unmodified kernel: {plural(len(control.cases), 'case')}, {plural(control.states, 'state')}",
        f"{plural(len(shown), 'unexpected finding')}" if shown else "no unexpected finding",
        plural(known, "known one") if known else "",
        f"{plural(len(control.undecided), 'case')} undecided" if control.undecided else "",
    ]
    return ", ".join(filter(None, parts))


def campaign_html(campaign: Campaign, path: Path) -> str:
    """The page: one file that needs no network. `path`: the campaign's directory."""
    rows = sorted(campaign.rows, key=lambda r: (_ORDER.index(r.status), r.fault.name))
    return template("faults.html", number=number, seconds=seconds).render(
        campaign=campaign,
        headline=headline(campaign),
        control=control_words(campaign),
        looked_at=looked_at(campaign.plan.fault_models, campaign.plan.budget),
        shown=campaign.control.sightings,
        rows=[(row, _CLASSES[row.status], _by(row), _states(row), _examples(row, path)) for row in rows],
        when=_when(campaign.plan.started, campaign.finished),
        made_by=shlex.join(["powercut", *campaign.plan.argv]),
    )


def _examples(row: Row, path: Path) -> Sequence[tuple[Sighting, str]]:
    """What each oracle found first, with the command that shows it again."""
    first = {s.oracle: s for s in reversed(row.sightings)}
    inside = bool(row.runs) and (path / row.runs[0]).resolve().is_relative_to(path.resolve())
    run = _source(path / row.runs[0]) if inside else ""
    return [(s, f"powercut repro {s.example} --from {run}") for s in reversed(first.values())]


def _source(run: Path) -> str:
    """The arguments after `--from`. The kernel is a file of this host, so it has to be named; of a run that
    is not there any more, only its path is known.
    """
    try:
        return source_of(read_plan(run, read_info(run).plan), shown_path(run))
    except StoreError:
        return shlex.quote(shown_path(run))


def _when(started: datetime | None, finished: datetime | None) -> str:
    """`2026-11-22 05:47 to 07:07 UTC`, as far as it is known."""
    known = [f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" for moment in (started, finished) if moment]
    return (
        " to ".join(known) if finished else f"started {known[0]}, not finished" if known else "not finished"
    )
