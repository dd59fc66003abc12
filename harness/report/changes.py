"""Compares two runs by finding: what is fixed, new, or still there, as before and after a patch.

The runs may have made recordings of their own. A finding is the same if its case, oracle and signature are;
crash points are not compared, since those of two recordings name different disks. What the second run does
not show is fixed only if that run had the same operations, and looked at every state that the first can have
looked at (`reach`), or, of the same recording, at each that the first did: at cuts in recoveries, and on a
faulty disk, where only these show it. What the second run alone shows is new only if the first one had the
same operations, and looked at every state like one that shows it or, of the same recording, at such a one.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness.errors import UsageError
from harness.known.words import named
from harness.model import CaseId, CrashPoint, CrashState, OperationKind, Verdict
from harness.model.schedules import without_schedule
from harness.oracles import BY_DEFAULT
from harness.plan import Clock, Plan
from harness.report import page
from harness.report.lines import reproduce, source_words
from harness.report.reach import Looked, SectorsOf, looked_at
from harness.report.words import covered, enumerated, number, plural
from harness.store import RunStore
from harness.store.records import CaseStatus, Coverage, DrawnEntry, Finding
from harness.summary import CaseSummary, Summary, summarise


class FindingChange(enum.StrEnum):
    """What became of a finding. GONE is not FIXED: the second run has not decided its case, or did not
    look at all that the first may have looked at. FIRST is not NEW: the first run checked no state of its
    case, ran other operations in it, or did not look in the way, or at the states, that it takes.
    """

    NEW = "new"
    FIRST = "not looked at before"
    STILL = "still there"
    FIXED = "fixed"
    GONE = "not looked at again"


_RARE = (FindingChange.FIRST, FindingChange.GONE)


@dataclass(frozen=True, slots=True)
class Changed:
    """One finding of either run, as the later of the runs that have it saw it, with the command that
    reproduces it. `why`: of FIRST, why the first run says nothing of it.
    """

    change: FindingChange
    finding: Finding
    run: str
    reproduce: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """All findings of two runs, and the cases that only one of them has, or decided. `cases`: those that both
    decided. `as_far`: of these, those of which the second run covered all that the first may have.
    """

    first: str
    second: str
    cases: int
    found: tuple[Changed, ...]
    undecided: tuple[str, ...]
    as_far: int

    def of(self, change: FindingChange) -> list[Changed]:
        return [c for c in self.found if c.change is change]

    @property
    def headline(self) -> str:
        """`2 new, 1 still there, 3 fixed; 14 cases were decided in both runs, 9 of them as far in the second
        as in the first`.
        """
        counts = ", ".join(f"{len(self.of(c))} {c}" for c in FindingChange if c not in _RARE or self.of(c))
        were = "was" if self.cases == 1 else "were"
        less = f", {self.as_far} of them as far in the second as in the first" * (self.as_far < self.cases)
        return f"{counts}; {plural(self.cases, 'case')} {were} decided in both runs{less}"


Violated: TypeAlias = AbstractSet[tuple[str, str]]
"""The violated promises, each as (oracle, signature)."""


@dataclass(frozen=True)
class Side:
    """A run to compare. `plan`: what it was asked for. `source`: see `lines.source_words`. `judged`: the
    states of a case that it decided, by name, with what is violated there. `log`: the write log of a case.
    """

    summary: Summary
    plan: Plan
    source: str
    judged: Callable[[CaseId], Mapping[str, Violated]]
    log: Callable[[CaseId], Sequence[DrawnEntry]] = lambda _: ()

    @classmethod
    def of(cls, store: RunStore, shown: str) -> Side:
        """The run of `store`, whose directory is shown to people as `shown`. Raises StoreError."""

        @functools.lru_cache(maxsize=1)  # asked for once a finding, and findings come case by case
        def judged(case: CaseId) -> Mapping[str, Violated]:
            violated = store.violated(case)
            decided = (str(v.state) for v in store.iter_verdicts(case) if v.verdict is not Verdict.UNKNOWN)
            return {state: violated.get(state, frozenset()) for state in decided}

        return cls(summarise(store), store.plan(), source_words(store, shown), judged, store.timeline)

    def looked_at(self, case: CaseId) -> Looked:
        """What it looked at of a case that it decided."""
        return looked_at(self.plan, self.cases[case].info)

    def showing(self, finding: Finding) -> tuple[str, ...]:
        """The states that show a finding of this run, the one that it is shown at first."""
        what = (finding.oracle, finding.signature)
        judged = self.judged(finding.case).items()
        return tuple(
            dict.fromkeys([str(finding.state), *(state for state, violated in judged if what in violated)])
        )

    def sectors(self, case: CaseId) -> SectorsOf:
        """The sectors of the entries of a case's log."""
        log = {e.index: range(e.sector, e.sector + e.sectors) for e in self.log(case)}
        return log.get

    @functools.cached_property
    def cases(self) -> Mapping[CaseId, CaseSummary]:
        return {c.case: c for c in self.summary.cases}


def changes(first: Side, second: Side) -> Changes:
    """Compare the findings of two runs, expected ones too. Raises UsageError if they share no case."""
    one, two, mine, others = first.summary, second.summary, first.cases, second.cases
    if mine.keys().isdisjoint(others):
        raise UsageError(f"{one.run} and {two.run} share no case", "compare runs of the same workloads")
    as_far = {case for case in mine if case in others and _as_far(case, _NO_FURTHER, first, second)}
    before, after = _findings(one.cases), _findings(two.cases)
    alike = {case for case in mine if case in others and not _other_work(case, first, second)}
    same = {key for key in before.keys() & after.keys() if key[0] in alike}
    found = []
    for key, f in after.items():
        why = "" if key in same else unseen(f, first, second)
        unlike = FindingChange.FIRST if why else FindingChange.NEW
        found.append(_changed(FindingChange.STILL if key in same else unlike, f, second, why))
    for key, f in before.items():
        if key not in same:
            covered_too = f.case in others and _as_far(f.case, f.state, first, second)
            covered_too = covered_too and f.oracle in _judging(others[f.case])
            found.append(_changed(FindingChange.FIXED if covered_too else FindingChange.GONE, f, first))
    order = list(FindingChange)
    found.sort(key=lambda c: order.index(c.change))
    both = [case for case in mine if _decided(mine[case]) and _decided(others.get(case))]
    undecided = _undecided(first, second, as_far)
    far = len(as_far.intersection(both))
    return Changes(one.run, two.run, len(both), tuple(found), tuple(undecided), far)


def unseen(finding: Finding, first: Side, second: Side) -> str:
    """Why a first run says nothing of a finding of a second one, which it has not; empty if it would have
    shown it.
    """
    case = finding.case
    mine = first.cases.get(case)
    if mine is None or not mine.counts.checked:
        return "it was not checked there"
    if _other_work(case, first, second):
        return "its operations were others there"
    if otherwise := _made_otherwise(case, first, second):
        return f"there {otherwise} differed"
    if finding.oracle not in _judging(mine):
        return f"{finding.oracle} was not judged there"
    return _not_looked_at(finding, first, second)


def _not_looked_at(finding: Finding, first: Side, second: Side) -> str:
    """Why the first run may have looked at no state like those that show a finding; empty if it did."""
    case, state = finding.case, finding.state
    looked, mine = first.looked_at(case), first.cases[case]
    if len(state.again) > len(looked.cuts):
        return f"recoveries were cut {plural(len(looked.cuts), 'time')} there (--again)"
    if state.fault and state.fault.kind not in looked.faults:
        return "the disk was not as faulty there (--disk)"
    if decided_itself(finding, first, second):
        return ""
    maybe = "such a state may not have been looked at there"
    if not _ended(mine):
        return f"{maybe}: {mine.undecided or mine.reason}"
    sectors = second.sectors(case)
    points = (CrashPoint(case, CrashState.parse(s)) for s in second.showing(finding))
    covers = looked.covers(second.looked_at(case), state) or any(looked.has_like(p, sectors) for p in points)
    return "" if covers else f"{maybe}; covered there: {'; '.join(_extents(first, case, state))}"


def decided_itself(finding: Finding, first: Side, second: Side) -> bool:
    """Whether the first run has a verdict on a state, of the same recording, that shows a finding of the
    second.
    """
    if not _of_one_recording(finding.case, first, second):
        return False
    return not first.judged(finding.case).keys().isdisjoint(second.showing(finding))


def _ended(case: CaseSummary) -> bool:
    """Whether what a case says of its coverage holds: it came to its end, though some of its states may be
    undecided.
    """
    counts = case.counts
    every = counts.contents >= counts.distinct and counts.checked >= counts.generated
    return case.status is CaseStatus.DONE and every


def _changed(change: FindingChange, finding: Finding, run: Side, why: str = "") -> Changed:
    again = reproduce(finding.case, finding.state, run.source)
    return Changed(change, finding, run.summary.run, again, why)


def _judging(case: CaseSummary) -> AbstractSet[str]:
    """The oracles that judged a case; a case that lists none was judged by all."""
    return set(case.info.oracles or BY_DEFAULT)


_NO_FURTHER = CrashState(0)
"""Stands for states that neither a cut in a recovery nor a fault of the disk is needed for."""


def _as_far(case: CaseId, state: CrashState, first: Side, second: Side) -> bool:
    """Whether the second run decided the case, with the same operations, and looked at every state like
    `state` that the first may have looked at; of the same recording, at each state that the first has a
    verdict on.
    """
    if not _decided(second.cases[case]) or _other_work(case, first, second):
        return False
    if _made_otherwise(case, first, second):
        return False
    if second.looked_at(case).covers(first.looked_at(case), state):
        return True
    return _same_states(case, first, second)


def _other_work(case: CaseId, first: Side, second: Side) -> bool:
    """Whether the operations of the runs differ, see `is_other_work`."""
    mine, others = ([s.operation for s in side.cases[case].info.steps] for side in (first, second))
    return is_other_work(mine, others)


def is_other_work(mine: Sequence[str], others: Sequence[str]) -> bool:
    """Whether operations, as steps have them, are not those of another run; no operations are those of a case
    that was not recorded. A program, which stands for all that it does, may differ.
    """
    run = f"{OperationKind.RUN.value} "
    one, two = ([run if o.startswith(run) else o for o in of] for of in (mine, others))
    return bool(one and two) and one != two


def _made_otherwise(case: CaseId, first: Side, second: Side) -> str:
    """In what the runs differ by which one cannot show what the other does; empty if in nothing."""
    one, two = first.cases[case].info, second.cases[case].info
    recorded = {
        "completions": (first.plan.completions, second.plan.completions),
        "the clock": (_in_virtual_time(case, first), _in_virtual_time(case, second)),
        "the disk that it began with": (first.plan.image, second.plan.image),
    }
    # A run that judges another one's recordings has none of its own.
    both = ({} if _of_one_recording(case, first, second) else recorded) | {
        "the options of mkfs": (one.mkfs_options, two.mkfs_options),
        "the options of mount": (one.mount_options, two.mount_options),
    }
    return enumerated([what for what, (mine, theirs) in both.items() if mine != theirs])


def _in_virtual_time(case: CaseId, side: Side) -> bool:
    """Whether a case was recorded in virtual time: of its own accord, only one under a schedule is."""
    if side.plan.clock is not Clock.AUTO:
        return side.plan.clock is Clock.VIRTUAL
    scheduled = bool(without_schedule(case.workload)[1])
    return scheduled and "clock" in side.summary.info.machine.details


def _of_one_recording(case: CaseId, first: Side, second: Side) -> bool:
    one, two = (side.cases[case].info.log_hash for side in (first, second))
    return bool(one) and one == two


def _same_states(case: CaseId, first: Side, second: Side) -> bool:
    """Whether the second run has decided each state that the first has, of the same recording."""
    return _of_one_recording(case, first, second) and first.judged(case).keys() <= second.judged(case).keys()


def _findings(cases: Sequence[CaseSummary]) -> dict[tuple[CaseId, str, str], Finding]:
    return {(f.case, f.oracle, f.signature): f for c in cases for f in c.findings}


def _decided(case: CaseSummary | None) -> bool:
    return case is not None and not case.was_not_run and not case.undecided


def _undecided(first: Side, second: Side, as_far: AbstractSet[CaseId]) -> list[str]:
    """The cases that one run has and the other does not, or has not decided, or of which the second run did
    not cover all that the first may have, or did not judge by all of its oracles.
    """
    lines, mine, others = [], first.cases, second.cases
    for case in dict.fromkeys([*mine, *others]):
        both = [_state(cases.get(case)) for cases in (mine, others)]
        if both != ["", ""]:
            lines.append(f"{case}: {both[0] or 'decided'} in the first, {both[1] or 'decided'} in the second")
            continue
        if _other_work(case, first, second):
            lines.append(f"{case}: the operations of the second run are not those of the first")
        elif otherwise := _made_otherwise(case, first, second):
            lines.append(f"{case}: in the second run {otherwise} differed")
        elif case not in as_far:
            one, two = (_extent(side, case) for side in (first, second))
            less = f"the second run did not cover as much: {two}; the first: {one}"
            lines.append(f"{case}: {f'neither run covered all: {one}' if one == two else less}")
        lines += [f"{case}: the second run {less}" for less in _looks_lacking(case, first, second)]
        if missing := _judging(mine[case]) - _judging(others[case]):
            lines.append(f"{case}: the second run did not judge by {enumerated(sorted(missing))}")
    return lines


def _looks_lacking(case: CaseId, first: Side, second: Side) -> Iterator[str]:
    """Which looks beside plain crash states only the first run had, in words that follow "the second run"."""
    one, two = first.looked_at(case), second.looked_at(case)
    if _same_states(case, first, second):
        return
    if len(one.cuts) > len(two.cuts):
        yield f"cut recoveries {plural(len(two.cuts), 'time')} (--again), the first {len(one.cuts)}"
    elif not all(mine.covers(others) for mine, others in zip(two.cuts, one.cuts, strict=False)):
        yield "did not cover as many cuts in recoveries (--again) as the first may have"
    if lacking := one.faults - two.faults:
        yield f"did not look on a faulty disk as in the first (--disk): {enumerated(sorted(lacking))}"


def _state(case: CaseSummary | None) -> str:
    """Why a case says nothing; empty if it is decided."""
    if case is None:
        return "no such case"
    return "not run" if case.was_not_run else ("undecided" if case.undecided else "")


def _extent(side: Side, case: CaseId) -> str:
    coverage: Coverage | None = side.cases[case].info.coverage
    what = "every state of the write log's own order" if coverage is None else covered(coverage)
    return f"{what} ({', '.join(side.plan.fault_models)})"


def _extents(side: Side, case: CaseId, state: CrashState) -> Iterator[str]:
    """How far the states of a case were covered; where a cut in a recovery left `state`, such cuts, too."""
    yield _extent(side, case)
    for cut in side.cases[case].info.again[: len(state.again)]:
        yield f"in cut recoveries: {covered(cut.coverage)}"
        if cut.not_cut:
            were = "was" if cut.not_cut == 1 else "were"
            yield f"{plural(cut.not_cut, 'recovery', 'recoveries')} {were} not cut"


def changes_text(found: Changes) -> Iterator[str]:
    """Line by line for the terminal."""
    for c in found.found:
        expected = f" (expected: {c.finding.expectation.reason})" if c.finding.expectation else ""
        expected += f" ({named(c.finding.known)})" if c.finding.known else ""
        what = f"{c.finding.case} {c.finding.oracle}: {c.finding.summary}"
        where = f"{plural(c.finding.states, 'state')}, {c.run}{c.finding.state}"
        yield f"{c.change}: {what}{expected}, {where}{f'; {c.why}' * bool(c.why)}"
        if c.change in (FindingChange.NEW, FindingChange.FIRST):
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
                **({"why": c.why} if c.why else {}),
                "case": str(c.finding.case),
                "oracle": c.finding.oracle,
                "signature": c.finding.signature,
                "summary": c.finding.summary,
                "states": c.finding.states,
                "crash_point": str(c.finding.crash_point),
                "run": c.run,
                "reproduce": c.reproduce,
                "expected_reason": c.finding.expectation.reason if c.finding.expectation else None,
                "known": c.finding.known.bug.name if c.finding.known else None,
            }
            for c in found.found
        ],
        "undecided": list(found.undecided),
    }


_ABOUT = {
    "new": "The second run shows these, the first does not.",
    "not looked at before": "The second run shows these, of which the first checked nothing, or ran "
    "other operations, or in a way in which, or at states at which, it may not have looked.",
    "still there": "Both runs show these.",
    "fixed": "The first run shows these; the second covered all that the first did, and does not.",
    "not looked at again": "The first run shows these; the second did not decide the case, or did not "
    "look at all that the first may have looked at.",
}


def changes_html(found: Changes) -> str:
    """As one page that needs no network."""
    open_ = found.undecided or found.of(FindingChange.FIRST) or not found.cases
    sections = [
        page.Section(
            f"{change.value.capitalize()} ({number(len(entries))})",
            _ABOUT[change.value],
            findings=tuple(_finding(c) for c in entries),
        )
        for change in FindingChange
        if (entries := found.of(change))
    ]
    open_title = f"What could not be compared ({number(len(found.undecided))})"
    return page.Page(
        "two runs compared",
        f"{found.first} → {found.second}",
        found.headline,
        "fail" if found.of(FindingChange.NEW) else "unknown" if open_ else "pass",
        (
            *sections,
            page.Section(open_title, lines=tuple(map(page.Line, found.undecided))),
            page.Section("How", lines=(page.Line(_HOW),)),
        ),
    ).html()


_HOW = (
    "A finding is the same in both runs if its case, its oracle and what it says of the history are the "
    "same; crash points belong to the recording of one run."
)


def _finding(c: Changed) -> page.Finding:
    f = c.finding
    expected = f"; expected: {f.expectation.reason}" if f.expectation else ""
    expected += f"; {named(f.known)}" if f.known else ""
    kind = {FindingChange.FIXED: "pass", FindingChange.GONE: "unknown"}.get(c.change, "fail")
    expected += f"; {c.why}" if c.why else ""
    line = page.Line(f.summary, oracle=f.oracle, aside=f"{plural(f.states, 'state')} of {c.run}{expected}")
    return page.Finding(str(f.case), (line,), commands=(f"reproduce: {c.reproduce}",), kind=kind)
