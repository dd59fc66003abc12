"""Compares two runs by finding: what is fixed, new, or still there, as before and after a patch.

The runs may have made recordings of their own. A finding is the same if its case, oracle and signature are;
crash points are not compared, since those of two recordings name different disks. What the second run does
not show is fixed only if that run looked at least as far as the first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.model import CaseId
from harness.report.lines import reproduce
from harness.report.pages import template
from harness.report.words import covered, number, plural
from harness.store.records import Coverage, Finding
from harness.summary import CaseSummary, Summary


class Change(enum.StrEnum):
    """What became of a finding. GONE is not FIXED: the second run has not decided its case, or has not looked
    as far.
    """

    NEW = "new"
    STILL = "still there"
    FIXED = "fixed"
    GONE = "not looked at again"


@dataclass(frozen=True, slots=True)
class Changed:
    """One finding of either run, as the later of the runs that have it saw it, with the command that
    reproduces it.
    """

    change: Change
    finding: Finding
    run: str
    reproduce: str


@dataclass(frozen=True, slots=True)
class Changes:
    """All findings of two runs, and the cases that only one of them has, or decided. `cases`: those that both
    decided.
    """

    first: str
    second: str
    cases: int
    found: tuple[Changed, ...]
    undecided: tuple[str, ...]

    def of(self, change: Change) -> list[Changed]:
        return [c for c in self.found if c.change is change]

    @property
    def headline(self) -> str:
        """`2 new, 1 still there, 3 fixed; 14 cases were decided in both runs`."""
        counts = ", ".join(f"{len(self.of(c))} {c}" for c in Change if c is not Change.GONE or self.of(c))
        were = "was" if self.cases == 1 else "were"
        return f"{counts}; {plural(self.cases, 'case')} {were} decided in both runs"


def changes(first: Summary, second: Summary, sources: tuple[str, str]) -> Changes:
    """Compare the findings of two runs, expected ones too. `sources`: see `lines.source_words`. Raises
    UsageError if they share no case.
    """
    mine, others = ({c.case: c for c in s.cases} for s in (first, second))
    if mine.keys().isdisjoint(others):
        raise UsageError(f"{first.run} and {second.run} share no case", "compare runs of the same workloads")
    before, after = _findings(first.cases), _findings(second.cases)
    found = [
        _changed(Change.STILL if key in before else Change.NEW, f, second, sources[1])
        for key, f in after.items()
    ]
    for key, f in before.items():
        if key not in after:
            change = Change.FIXED if _looked_for(f, mine[f.case], others.get(f.case)) else Change.GONE
            found.append(_changed(change, f, first, sources[0]))
    order = list(Change)
    found.sort(key=lambda c: order.index(c.change))
    both = [case for case in mine if _decided(mine[case]) and _decided(others.get(case))]
    return Changes(first.run, second.run, len(both), tuple(found), tuple(_undecided(mine, others)))


def _changed(change: Change, finding: Finding, run: Summary, source: str) -> Changed:
    return Changed(change, finding, run.run, reproduce(finding.case, finding.state, source))


def _looked_for(finding: Finding, first: CaseSummary, second: CaseSummary | None) -> bool:
    """Whether the second run would have shown it again."""
    if second is None or not _decided(second):
        return False
    judged = second.info.oracles
    return _as_far(first.info.coverage, second.info.coverage) and (not judged or finding.oracle in judged)


def _as_far(first: Coverage | None, second: Coverage | None) -> bool:
    """Whether the second looked at as many of the crash states. None: at all of the write log's own order."""
    if first is not None and first.moments:
        if second is None or not second.moments:
            return False
        return second.exhaustive or (not first.exhaustive and (first.losses or 0) <= (second.losses or 0))
    if second is None or not second.open:
        return True  # the log's own order is among the legal states
    if second.moments:
        return False  # what a budget left open may be just what the first saw
    return first is not None and bool(first.open) and second.visits >= first.visits


def _findings(cases: Sequence[CaseSummary]) -> dict[tuple[CaseId, str, str], Finding]:
    return {(f.case, f.oracle, f.signature): f for c in cases for f in c.findings}


def _decided(case: CaseSummary | None) -> bool:
    return case is not None and not case.was_not_run and not case.undecided


def _undecided(mine: Mapping[CaseId, CaseSummary], others: Mapping[CaseId, CaseSummary]) -> list[str]:
    """The cases that one run has and the other does not, or has not decided, or that the second run did not
    look at as far.
    """
    lines = []
    for case in dict.fromkeys([*mine, *others]):
        told = [_state(cases.get(case)) for cases in (mine, others)]
        if told != ["", ""]:
            lines.append(f"{case}: {told[0] or 'decided'} in the first, {told[1] or 'decided'} in the second")
        elif not _as_far(mine[case].info.coverage, others[case].info.coverage):
            one, two = (_extent(cases[case].info.coverage) for cases in (mine, others))
            lines.append(f"{case}: the second run did not look as far: {two}; the first: {one}")
    return lines


def _state(case: CaseSummary | None) -> str:
    """Why a case says nothing; empty if it is decided."""
    if case is None:
        return "no such case"
    return "not run" if case.was_not_run else ("undecided" if case.undecided else "")


def _extent(coverage: Coverage | None) -> str:
    return "every state of the write log's own order" if coverage is None else covered(coverage)


def changes_text(found: Changes) -> Iterator[str]:
    """Line by line for the terminal."""
    for c in found.found:
        expected = f" (expected: {c.finding.expectation.reason})" if c.finding.expectation else ""
        what = f"{c.finding.case} {c.finding.oracle}: {c.finding.summary}"
        yield f"{c.change}: {what}{expected}, {plural(c.finding.states, 'state')}, {c.run}{c.finding.state}"
        if c.change is Change.NEW:
            yield f"reproduce: {c.reproduce}"
    yield from found.undecided
    yield found.headline


def changes_json(found: Changes) -> dict[str, Any]:
    """As JSON values."""
    return {
        "first": found.first,
        "second": found.second,
        "cases": found.cases,
        "headline": found.headline,
        "findings": [
            {
                "change": str(c.change),
                "case": str(c.finding.case),
                "oracle": c.finding.oracle,
                "signature": c.finding.signature,
                "summary": c.finding.summary,
                "states": c.finding.states,
                "crash_point": str(c.finding.crash_point),
                "run": c.run,
                "reproduce": c.reproduce,
                "expected_reason": c.finding.expectation.reason if c.finding.expectation else None,
            }
            for c in found.found
        ],
        "undecided": list(found.undecided),
    }


_ABOUT = {
    "new": "The second run shows these, the first does not.",
    "still there": "Both runs show these.",
    "fixed": "The first run shows these; the second looked at least as far and does not.",
    "not looked at again": "The first run shows these; the second did not decide the case, or look as far.",
}


def changes_html(found: Changes) -> str:
    """As one page that needs no network."""
    return template("changes.html", number=number).render(
        first=found.first,
        second=found.second,
        headline=found.headline,
        found={str(c): found.of(c) for c in Change},
        about=_ABOUT,
        undecided=found.undecided,
    )
