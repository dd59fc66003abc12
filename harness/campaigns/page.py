"""A campaign as a page."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.campaigns.features import in_words, recovery_lines
from harness.campaigns.generators import GENERATORS
from harness.campaigns.journal import (
    SCHEMA,
    Batch,
    CampaignPlan,
    Found,
    KnownBatches,
    LeftOutCases,
    Reached,
    UndecidedCases,
    totals,
)
from harness.findings.causes import Cause, CauseMember
from harness.findings.triage import workload_of
from harness.host.files import write_atomically
from harness.host.text import one_line
from harness.known.words import NEW
from harness.measurements.results import Curve
from harness.report.lines import run_again, source_of
from harness.report.page import Finding, Line, Page, PageTable, Section
from harness.report.plot import Plot, plots
from harness.report.words import asked_states, enumerated, number, plural, seconds, shown_path

_NEWEST = 40
"""Cases that reached something new, of which the page tells; all are in the journal."""
_WAITING = 40
_PLOTTED = 2
"""Batches from which on a curve says something."""
HOUR_S = 3600.0
_LONG_S = 2 * HOUR_S
"""Work of less than this is shown in minutes."""
_NAMED = 4
"""Novelty features, or points, that are named of several."""
_ABOUT_CAUSES = (
    "Findings that shrink to one workload have one cause. Those that look like it were not shrunk: their "
    "workload contains this one, and they show one of its symptoms."
)
_ABOUT_NEW = (
    "The generator `grown` makes workloads that showed something new longer, and `scheduled` records them "
    "under further schedules. A novelty feature is how an operation wrote (in what order, how much), how a "
    "promise was broken, or what the kernel logged where it was, with N for numbers. An order tells the "
    "place of each write on the disk, and the flushes. A flat line says that these workloads have little "
    "left to show."
)


@dataclass(frozen=True, slots=True)
class ShownCause:
    """A cause with the commands that show it. `similar`: points of findings that only look like it.
    `first_s`: seconds of work after which the first finding of it came. `file`: its workload; None: it was
    not shrunk. `known`: the known bugs that its findings agree with; `losses`: in words, the known losses
    that they are. `is_new`: some finding is neither.
    """

    cause: Cause
    similar: tuple[str, ...]
    first_s: float
    file: str
    reproduce: str
    run_it: str
    known: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    is_new: bool = False

    @property
    def standing(self) -> str:
        """Which known bugs and losses it is, and whether it is new."""
        bugs = f"known: {', '.join(self.known)}" if self.known else ""
        told = "; ".join(filter(None, [bugs, *self.losses]))
        if told and self.is_new:
            return f"{NEW}, but for some findings: {told}"
        return told or NEW

    @property
    def smallest(self) -> CauseMember:
        """The member with the shortest workload."""
        return self.cause.smallest

    @property
    def counted(self) -> str:
        """`2 findings, and 7 that look like it`."""
        similar = f", and {number(len(self.similar))} that look like it" if self.similar else ""
        return plural(len(self.cause.members), "finding") + similar


class GeneratorCount(msgspec.Struct, frozen=True):
    """What came of one generator's batches."""

    generator: str
    batches: int
    workloads: int
    cases: int
    states: int
    seconds: float
    features: int
    findings: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A campaign as the page tells it. `command`: goes on with it; empty: nothing is left to be done."""

    path: Path
    plan: CampaignPlan
    ledger: KnownBatches
    causes: tuple[ShownCause, ...]
    command: str

    @property
    def totals(self) -> tuple[int, int, float]:
        """Cases, crash states, seconds of all batches."""
        return totals(self.ledger.done.values())

    @property
    def headline(self) -> str:
        cases, states, _ = self.totals
        left, out = sum(u.cases for u in self.undecided), sum(u.cases for u in self.left_out)
        amount = f"{plural(cases, 'case')}, {plural(states, 'crash state')}"
        amount += f"; {plural(left, 'case')} not decided" if left else ""
        amount += f"; {plural(out, 'case')} not supported or not recorded" if out else ""
        amount += f"; {plural(len(self.failed), 'batch', 'batches')} gave nothing" if self.failed else ""
        found = len(self.ledger.found)
        if not found:
            but = f" but by {plural(self.expected, 'known failure')}" if self.expected else ""
            lacking = f"; {enumerated(self.lacking)} could not be run" if self.lacking else ""
            lacking += f"; nothing was judged in {enumerated(self.never_judged)}" * bool(self.never_judged)
            counted = f"no promise was broken{but} in {amount}{lacking}" if states else ""
            return "; ".join(filter(None, [counted, self.so_far])) or "nothing was judged so far"
        waiting = len(self.ledger.waiting)
        causes = f"{plural(len(self.causes), 'cause')} behind " if self.causes else ""
        rest = f" ({number(waiting)} still to be shrunk)" if waiting else ""
        rest += _known_among([f for _, f in self.ledger.found])
        return f"promises were broken: {causes}{plural(found, 'finding')}{rest}, in {amount}"

    @property
    def so_far(self) -> str:
        """What the batch that did not come to its end has shown; empty where there is none, or where it adds
        nothing to whole ones.
        """
        partial, counted = self.ledger.partial, self.totals[1]
        if partial is None or not partial.states or (counted and not partial.broken):
            return ""
        broken = f"promises were broken: {plural(partial.broken, 'finding')}" if partial.broken else ""
        amount = f"{plural(partial.cases, 'case')}, {plural(partial.states, 'crash state')}"
        where = f"batch {partial.item}, which has not come to its end"
        return f"{broken or 'no promise was broken so far'} in {amount} of {where}"

    @property
    def modes(self) -> str:
        return ", ".join(self.plan.run.configurations)

    @property
    def figures(self) -> list[str]:
        """How long, how many, how fast, how large."""
        cases, states, took = self.totals
        ledger = self.ledger
        rate = f"{states / took:,.0f} states/s, {cases / took * 3600:,.0f} cases/h" if took else ""
        kept = [d.size_bytes for d in ledger.done.values() if d.run]
        starts = len(ledger.started)
        shrinking = f", {seconds(ledger.shrinking_s)} of it shrinking findings" if ledger.shrunk else ""
        new = plural(len(ledger.corpus), "case")
        ran = recovery_lines(ledger.features)
        lines = f", {number(ran)} of them lines of recovery" if self.plan.run.coverage else ""
        return [
            self.asked_states,
            f"{seconds(ledger.at)} of work{shrinking}"
            + (
                f", resumed {plural(starts - 1, 'time')} since {ledger.started[0].when}" if starts > 1 else ""
            ),
            f"{plural(len(ledger.done), 'batch', 'batches')} done",
            *filter(None, [rate]),
            f"{new} showed something new ({plural(len(ledger.features), 'novelty feature')}{lines})",
            f"{plural(len(kept), 'run directory', 'run directories')} kept, {sum(kept) >> 20:,} MiB",
        ]

    @property
    def asked_states(self) -> str:
        """Which crash states of each case were covered."""
        return asked_states(self.plan.run.fault_models, self.plan.run.budget)

    @property
    def unfinished(self) -> str:
        """What of the last batch, if it was begun and did not come to its end; empty: it did."""
        begun = self.ledger.unfinished
        if begun is None:
            return ""
        workloads = plural(len(begun.workloads), "workload")
        what = f"batch {begun.item} ({begun.generator}, {workloads})"
        partial = self.ledger.partial
        found = f", {plural(partial.broken, 'finding')}" if partial and partial.broken else ""
        judged = f"; {plural(partial.cases, 'case')} judged{found}" if partial and partial.states else ""
        return f"{what} was begun and is not counted{judged}: --resume finishes it"

    @property
    def generators(self) -> list[GeneratorCount]:
        return [self._count(g) for g in self.plan.generators]

    def _count(self, generator: str) -> GeneratorCount:
        begun = self.ledger.chosen
        done = [d for n, d in self.ledger.done.items() if n in begun and begun[n].generator == generator]
        workloads = sum(len(begun[d.item].workloads) for d in done if not d.failed)
        cases, states, took = totals(done)
        features = sum(len(r.features) for d in done for r in d.reached)
        found = sum(len(d.found) for d in done)
        return GeneratorCount(generator, len(done), workloads, cases, states, took, features, found)

    @property
    def undecided(self) -> list[UndecidedCases]:
        count: Counter[str] = Counter()
        example: dict[str, str] = {}
        for done in self.ledger.done.values():
            for u in done.undecided:
                count[u.reason] += u.cases
                example.setdefault(u.reason, u.example)
        return [UndecidedCases(reason, cases, example[reason]) for reason, cases in count.most_common()]

    @property
    def failed(self) -> list[tuple[str, str]]:
        return [(n, d.failed) for n, d in self.ledger.done.items() if d.failed]

    @property
    def not_run(self) -> dict[str, str]:
        return {mode: why for d in self.ledger.done.values() for mode, why in d.not_run.items()}

    @property
    def lacking(self) -> list[str]:
        """Of the modes that were asked for by their full names, those that cannot be run here."""
        return [*self.not_run] if self.plan.run.require_all else []

    @property
    def left_out(self) -> list[LeftOutCases]:
        """Cases in which nothing was looked at, by mode."""
        count: Counter[str] = Counter()
        first: dict[str, LeftOutCases] = {}
        for u in (u for d in self.ledger.done.values() for u in d.left_out):
            count[u.configuration] += u.cases
            first.setdefault(u.configuration, u)
        return [msgspec.structs.replace(first[mode], cases=cases) for mode, cases in count.items()]

    @property
    def never_judged(self) -> list[str]:
        """Of the modes that were asked for by their full names, those in which every case was left out."""
        return self.ledger.never_judged if self.plan.run.require_all else []

    @property
    def expected(self) -> int:
        return sum(d.expected for d in self.ledger.done.values())

    @property
    def newest(self) -> list[tuple[Batch, Reached]]:
        """The last cases that reached something new, latest first."""
        return self.ledger.corpus[: -_NEWEST - 1 : -1]

    @property
    def plots(self) -> list[Plot]:
        """Novelty features by time, and findings where there are some."""
        if len(self.ledger.done) < _PLOTTED:
            return []
        return plots([s for s in (self._series("features"), self._series("findings")) if s.points])

    def _series(self, name: str) -> Curve:
        unit, name_of_it = (60, "minutes") if self.ledger.at < _LONG_S else (3600, "hours")
        total, points = 0, [(0.0, 0.0)]
        for _, done in self.ledger.done.items():
            new = len(done.found) if name == "findings" else sum(len(r.features) for r in done.reached)
            total += new
            points.append((done.at / unit, float(total)))
        if name == "findings" and not total:
            points = []
        return Curve(
            f"{name.capitalize()} over time", name, f"{name_of_it} of work", f"{name} so far", points
        )


def shown(path: Path, plan: CampaignPlan, ledger: KnownBatches) -> Shown:
    """A campaign in its directory; writes the workload file of each cause."""
    similar: dict[str, list[Found]] = {}
    for _, found in ledger.found:
        if found.id in ledger.similar:
            similar.setdefault(ledger.similar[found.id].like, []).append(found)
    when = {found.id: done.at for done, found in ledger.found}
    causes = tuple(_shown_cause(path, plan, ledger, c, similar, when) for c in ledger.causes)
    return Shown(path, plan, ledger, causes, _resume(path, plan, ledger))


def _resume(path: Path, plan: CampaignPlan, ledger: KnownBatches) -> str:
    if ledger.finished:
        return ""
    is_over = plan.hours is not None and ledger.at >= plan.hours * HOUR_S
    hours = f" --hours {plan.hours:g}" if is_over else ""
    return f"powercut campaign --resume {source_of(plan.run, shown_path(path))}{hours}"


def _shown_cause(
    path: Path,
    plan: CampaignPlan,
    ledger: KnownBatches,
    cause: Cause,
    similar: dict[str, list[Found]],
    when: dict[str, float],
) -> ShownCause:
    folder = path / "causes"
    folder.mkdir(exist_ok=True)
    file = folder / f"{cause.name}.toml"
    write_atomically(file, workload_of(cause))
    found = [f for m in cause.members for f in similar.get(m.finding, ())]
    like = tuple(f.point for f in found)
    own = {m.finding for m in cause.members}
    of_it = [f for _, f in ledger.found if f.id in own or f in found]
    member = cause.smallest
    point = shlex.quote(one_line(member.point))
    return ShownCause(
        cause,
        like,
        min(when.get(m.finding, 0.0) for m in cause.members),
        shown_path(file),
        f"powercut repro {point} --from {source_of(plan.run, shown_path(path / member.run))}",
        run_again(plan.run, member.configuration, f"{shown_path(file)}{member.schedule}"),
        tuple(dict.fromkeys(f.known for f in of_it if f.known)),
        tuple(dict.fromkeys(f.loss for f in of_it if f.loss)),
        any(not f.known and not f.loss for f in of_it),
    )


def page_of(path: Path, plan: CampaignPlan, ledger: KnownBatches) -> Page:
    """All of it; writes the workload file of each cause."""
    facts = shown(path, plan, ledger)
    undecided = facts.undecided or facts.failed or facts.lacking or facts.never_judged
    return Page(
        what="campaign",
        subject=f"{facts.modes} · {plan.run.kernel}",
        headline=facts.headline,
        kind="fail" if ledger.is_broken else "unknown" if undecided or not facts.totals[1] else "pass",
        figures=tuple(facts.figures),
        sections=(
            Section(
                "Causes",
                _ABOUT_CAUSES,
                findings=tuple(_cause(n, c) for n, c in enumerate(facts.causes, 1)),
            ),
            Section(
                "Still to be shrunk",
                "Shrinking gets at most half of the time. These come next.",
                lines=tuple(_waiting(facts)),
            ),
            Section(
                "Not shown again",
                "New recordings of the whole workload did not show these. The run directory still holds the "
                "recording that did.",
                lines=tuple(
                    Line(f"{m.summary}: {m.reason}", m.point, m.symptom.oracle, shown_path(path / m.run))
                    for m in ledger.not_again
                ),
            ),
            Section("Not decided", lines=tuple(_open(facts))),
            Section("Generators", tables=(_generators(facts),), lines=tuple(_known(facts))),
            Section("What was new, and when", _ABOUT_NEW, plots=tuple(facts.plots), tables=(_newest(facts),)),
        ),
        command=shlex.join(["powercut", *plan.run.argv]),
        again=facts.command,
        data=_for_programs(facts),
    )


def _cause(place: int, c: ShownCause) -> Finding:
    more = f" and {number(len(c.similar) - _NAMED)} more" if len(c.similar) > _NAMED else ""
    unlike = f"; {c.smallest.why_unconfirmed}" if c.smallest.why_unconfirmed else ""
    lines = [Line(f"{c.counted}; first after {seconds(c.first_s)} of work{unlike}"), Line(c.standing)]
    for symptom, text in c.smallest.shows:
        what, point = _shows(symptom.oracle, text)
        lines.append(Line(what, oracle=symptom.oracle, aside=f"at {point} of this workload" if point else ""))
    lines += [
        Line(aside=f"contains the operations of {name}: perhaps a consequence of that")
        for name in c.cause.contains
    ]
    if c.similar:
        lines.append(Line(aside=f"look like it: {', '.join(c.similar[:_NAMED])}{more}"))
    return Finding(
        f"{place}. {c.cause.name}",
        tuple(lines),
        tuple(c.smallest.minimal),
        (f"reproduce: {c.reproduce}", f"run it: {c.run_it}"),
    )


def _waiting(facts: Shown) -> Iterator[Line]:
    waiting = facts.ledger.waiting
    for done, f in waiting[:_WAITING]:
        yield Line(f.summary, f.point, f.symptom.oracle, shown_path(facts.path / done.run))
    if len(waiting) > _WAITING:
        yield Line(f"and {number(len(waiting) - _WAITING)} more")


def _open(facts: Shown) -> Iterator[Line]:
    """What was not decided, or not covered."""
    for u in facts.undecided:
        yield Line(f"{plural(u.cases, 'case')}, such as `{u.example}`: {u.reason}")
    for batch, why in facts.failed:
        yield Line(f"nothing came of batch {batch}: {why}")
    if facts.unfinished:
        yield Line(facts.unfinished)
    for left in facts.left_out:
        cases = f"{plural(left.cases, 'case')} of {left.configuration}, such as `{left.example}`"
        yield Line(f"{cases}, not looked at: {left.reason}")
    for mode, why in facts.not_run.items():
        yield Line(f"{mode} cannot be run here: {why}")


def _known_among(found: Sequence[Found]) -> str:
    """`, 3 of them known bugs or losses`; empty where all are new."""
    known = sum(bool(f.known or f.loss) for f in found)
    kinds = ["bugs"] * any(f.known for f in found) + ["losses"] * any(f.loss for f in found)
    return f", {number(known)} of them known {' or '.join(kinds)}" if known else ""


def _known(facts: Shown) -> Iterator[Line]:
    if facts.expected:
        yield Line(f"not counted: {plural(facts.expected, 'known failure')}")


def _generators(facts: Shown) -> PageTable:
    counted = ("batches", "workloads", "cases", "states", "time", "novelty features", "findings")
    rows = tuple(
        (
            g.generator,
            GENERATORS[g.generator],
            number(g.batches),
            number(g.workloads),
            number(g.cases),
            number(g.states),
            seconds(g.seconds) if g.batches else "",
            number(g.features),
            number(g.findings),
        )
        for g in facts.generators
    )
    return PageTable(("generator", "what it makes", *counted), rows, figures=2)


def _newest(facts: Shown) -> PageTable:
    rows = tuple((seconds(d.at), r.configuration, r.workload, _features(r)) for d, r in facts.newest)
    return PageTable(("after", "mode", "workload", "new"), rows, in_text=_NAMED)


def _for_programs(facts: Shown) -> dict[str, object]:
    """`campaign.json`. Times are seconds of work."""
    cases, states, took = facts.totals
    ledger = facts.ledger
    return {
        "schema": SCHEMA,
        "modes": facts.plan.run.configurations,
        "seconds": round(ledger.at, 1),
        "started": [s.when for s in ledger.started],
        "cases": cases,
        "states": states,
        "batch_seconds": round(took, 1),
        "shrinking_seconds": round(ledger.shrinking_s, 1),
        "findings": len(ledger.found),
        "waiting": [f.point for _, f in ledger.waiting],
        "known_failures": facts.expected,
        "features": len(ledger.features),
        "recovery_lines": recovery_lines(ledger.features),
        "generators": facts.generators,
        "causes": [
            {
                "name": c.cause.name,
                "operations": c.smallest.minimal,
                "configuration": c.smallest.configuration,
                "symptoms": [str(s) for s in c.cause.symptoms],
                "points": [m.point for m in c.cause.members],
                "known": c.known,
                "losses": c.losses,
                "new": c.is_new,
                "similar": c.similar,
                "first_after": round(c.first_s, 1),
                "workload": c.file,
                "reproduce": c.reproduce,
                "run_it": c.run_it,
            }
            for c in facts.causes
        ],
        "not_shown_again": [{"point": m.point, "reason": m.reason} for m in ledger.not_again],
        "undecided": facts.undecided,
        "failed_batches": dict(facts.failed),
        "not_run": facts.not_run,
        "left_out": facts.left_out,
        "reached": [
            {"after": round(d.at, 1), "mode": r.configuration, "workload": r.workload, "features": r.features}
            for d, r in ledger.corpus
        ],
        "go_on": facts.command,
    }


def _features(reached: Reached) -> str:
    more = len(reached.features) - _NAMED
    mode = f"{reached.configuration} "
    return "; ".join(in_words(feature.removeprefix(mode)) for feature in reached.features[:_NAMED]) + (
        f"; and {number(more)} more" if more > 0 else ""
    )


def _shows(oracle: str, text: str) -> tuple[str, str]:
    """`@26 fsck: inode 13` of the oracle fsck as (`inode 13`, `@26`)."""
    point, _, what = text.partition(f" {oracle}: ")
    return (what, point) if what and point.startswith("@") else (text, "")
