"""What the kernels of a patch showed, and what follows from that. Pure."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.faults.results import Detection, Trial
from harness.grouping import by_key
from harness.kernels.commits import CommitRange, Revision
from harness.model import bounds
from harness.model.schedules import without_schedule
from harness.patches.mistakes import Mistake
from harness.patches.questions import Stage
from harness.patches.ran import ChangedLines, RunLine

Some = TypeVar("Some", bound=Detection)
Found = tuple[str, str]
"""What one defect is told by: the oracle, and the symptom."""


class Broken(Detection, frozen=True):
    """A finding with what it breaks. `promised`: the operations whose promises do not hold in its states;
    none: its oracle names none. `in_base`: of a finding that is new, those that the base breaks, too.
    """

    promised: tuple[int, ...] = ()
    in_base: tuple[int, ...] = ()


class KernelTrial(Trial, frozen=True, kw_only=True, tag="done"):
    """See `Trial`."""

    detections: tuple[Broken, ...] = ()


class NothingPlan(msgspec.Struct):
    """In place of a plan, in the directory of a patch that nothing was asked about. `nothing_to_ask`: why."""

    argv: Sequence[str]
    nothing_to_ask: str


class PatchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked. `tree`: for people; `series`: see `CommitRange`. `mistakes`: those to plant once the
    last commit has passed, in order. `lines`: the changed lines of which it is asked whether they run.
    `untouched`: changed files of C without a changed line, such as the old name of one that was renamed.
    `nobodys`, `named`: see `AffectedModes`. `minutes`: None: until all stages are done. `first`: until the
    first finding that is new, too.
    """

    tree: str
    base: tuple[str, str]
    commits: tuple[tuple[str, str], ...]
    brought: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...]
    stages: tuple[Stage, ...]
    mistakes: tuple[Mistake, ...] = ()
    lines: tuple[ChangedLines, ...] = ()
    untouched: tuple[str, ...] = ()
    nobodys: tuple[str, ...] = ()
    named: dict[str, str] = {}
    recovery: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    machine: str
    minutes: bounds.Minutes | None = None
    first: bool = False
    jobs: bounds.Jobs = 1
    argv: list[str] = []

    @property
    def runs_none(self) -> bool:
        """Whether the modes run none of the changed files, so that a pass says nothing of the patch."""
        return bool(self.changed) and set(self.changed) <= set(self.nobodys)

    @property
    def series(self) -> CommitRange:
        commits, brought = (tuple(Revision(*c) for c in some) for some in (self.commits, self.brought))
        return CommitRange(Revision(*self.base), commits, self.changed, brought)


class Standing(enum.StrEnum):
    """How a finding of the head stands to the base."""

    NEW = "new"
    IN_BASE = "also in base"
    UNDECIDED = "not compared"


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first commit that shows a finding; or, where those in between could not be tried, the last of those
    that may be it.
    """

    first: Revision
    among: tuple[Revision, ...] = ()

    def __str__(self) -> str:
        return (
            str(self.first) if not self.among else f"one of {', '.join(map(str, [*self.among, self.first]))}"
        )


@dataclass(frozen=True, slots=True)
class Regression:
    """The findings of one oracle and symptom that stand so to the base. `seen`: the case with the fewest
    states first. `stage`: that showed the first of them, and `after_s`: seconds from the start until that
    stage was done. `culprits`: of what is new, by case: the first, and others in which commits were tried.
    """

    seen: tuple[Broken, ...]
    standing: Standing
    stage: str
    run: str
    after_s: float
    why: str = ""
    culprits: Mapping[str, Culprit] = field(default_factory=dict, hash=False)

    @property
    def culprit(self) -> Culprit | None:
        """Of the first case."""
        return self.culprits.get(self.seen[0].case)

    @property
    def found(self) -> Found:
        return self.seen[0].oracle, self.seen[0].symptom


class Fate(enum.StrEnum):
    """What became of a planted mistake."""

    NOTICED = "noticed"
    UNNOTICED = "not noticed"
    NO_KERNEL = "does not build"
    UNDECIDED = "not decided"


_OF_REVERTS = {Fate.NOTICED: "breaks a promise", Fate.UNNOTICED: "breaks no promise"}


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake that was planted in the patch. `by`: what noticed it; `why`: it was not decided."""

    mistake: Mistake
    fate: Fate
    states: int
    by: Detection | None = None
    why: str = ""

    def __str__(self) -> str:
        """`fs/ext4/fsync.c:183: ... left out: noticed by ext4-ordered/append-fsync`"""
        by = f" ({self.why})" if self.fate is Fate.UNDECIDED else ""
        if self.by:
            by = f" {'in' if self.mistake.reverts else 'by'} {self.by.case}"
        return f"{self.mistake}: {self.word}{by}"

    @property
    def word(self) -> str:
        """What became of it. Code as before the patch is no mistake: it may do the same."""
        return _OF_REVERTS.get(self.fate, self.fate) if self.mistake.reverts else self.fate


def planted_of(mistake: Mistake, trial: KernelTrial, head: Iterable[KernelTrial]) -> Planted:
    """What became of a mistake whose kernel came to `trial`, where the patch alone came to `head`. A finding
    counts in a case that the patch passed, and a symptom that the patch does not show.
    """
    if trial.failed:
        fate = Fate.NO_KERNEL if "does not build" in trial.failed else Fate.UNDECIDED
        return Planted(mistake, fate, 0, why=trial.failed)
    by = next((seen[0] for seen in grouped(fresh(trial.detections, head)).values()), None)
    if by:
        return Planted(mistake, Fate.NOTICED, trial.states, by)
    if trial.undecided or not trial.states:
        why = next(iter(trial.undecided.values()), "no state was looked at")
        return Planted(mistake, Fate.UNDECIDED, trial.states, why=why)
    return Planted(mistake, Fate.UNNOTICED, trial.states)


@dataclass(frozen=True, slots=True)
class LinesSeen:
    """Which changed lines ran. `stages`: those whose cases were all looked at; without one, it is known which
    lines ran, but not which did not. `why`: nobody could look.
    """

    lines: tuple[RunLine, ...] = ()
    stages: tuple[str, ...] = ()
    why: str = ""

    @property
    def ran(self) -> int:
        return sum(line.ran for line in self.lines)

    @property
    def recovering(self) -> int:
        """How many ran in recoveries."""
        return sum(line.recovering for line in self.lines)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a patch has come to so far. `head`: the stages that were begun, by name. `explained`: why the
    first finding of a regression failed, in lines. `planted`: the mistakes that were tried. `lines`: which
    changed lines ran. `expected`: of each expected finding of the head, why it was not compared with the
    base; empty: it was.
    """

    plan: PatchPlan
    path: Path
    head: Mapping[str, KernelTrial]
    regressions: tuple[Regression, ...]
    explained: Mapping[Found, tuple[str, ...]]
    finished: bool = False
    interrupted: bool = False
    planted: tuple[Planted, ...] = ()
    lines: LinesSeen = LinesSeen()
    expected: tuple[str, ...] = ()

    @property
    def built(self) -> tuple[Planted, ...]:
        """The planted mistakes of which it is known whether they are noticed."""
        return tuple(p for p in self.mistakes if p.fate in (Fate.NOTICED, Fate.UNNOTICED))

    @property
    def mistakes(self) -> tuple[Planted, ...]:
        """Without hunks as before the patch: no case notices one that does the same in other words."""
        return tuple(p for p in self.planted if not p.mistake.reverts)

    @property
    def new(self) -> tuple[Regression, ...]:
        return tuple(r for r in self.regressions if r.standing is Standing.NEW)

    @property
    def compared(self) -> tuple[Regression, ...]:
        """Those of which it is known how they stand to the base."""
        return tuple(r for r in self.regressions if r.standing is not Standing.UNDECIDED)

    @property
    def states(self) -> int:
        return sum(t.states for t in self.head.values())

    @property
    def undecided(self) -> dict[str, str]:
        """Cases of the head that could not be decided, and stages of which nothing came."""
        found = {f"{s}: {case}": why for s, t in self.head.items() for case, why in t.undecided.items()}
        return found | {s: t.failed for s, t in self.head.items() if t.failed}

    @property
    def is_open(self) -> bool:
        """Whether something that was looked at is not decided, or nothing was looked at, or nothing that the
        patch changes.
        """
        if self.plan.runs_none or self.runs_no_line:
            return True
        return not self.states or bool(self.undecided) or len(self.compared) < len(self.regressions)

    @property
    def runs_no_line(self) -> bool:
        """Whether all that the head did was looked at, each changed file can take marks, and nothing ran a
        changed line.
        """
        looked = self.lines.lines and not self.unmarked and {*self.head} <= {*self.lines.stages}
        return bool(looked) and not self.lines.ran

    @property
    def unmarked(self) -> set[str]:
        """Changed files with code of which no line can take a mark."""
        looked = {line.file for line in self.lines.lines}
        without = looked.union(self.plan.nobodys, self.plan.untouched)
        return {f for f in self.plan.changed if f.endswith((".c", ".h"))} - without

    @property
    def passes(self) -> bool:
        """Whether all that was to be asked was, and nothing new came of it."""
        return not (self.new or self.interrupted or self.is_open or self.left)

    @property
    def left(self) -> tuple[Stage, ...]:
        """Stages that were not done, or not to their end."""
        done = {name for name, t in self.head.items() if how_far(t) == "done"}
        return tuple(s for s in self.plan.stages if s.name not in done)


FIRST = " first"
"""What the key ends with of a run that its first unexpected finding ended."""


def cut_short(trial: KernelTrial) -> bool:
    """Whether its first unexpected finding ended the run (`PatchPlan.first`)."""
    return trial.key.endswith(FIRST) and any(unexpected(trial))


def how_far(trial: KernelTrial) -> str:
    """How far a stage of the head came, in a word or two."""
    if trial.interrupted or trial.failed:
        return "interrupted" if trial.interrupted else "failed"
    return "to its first finding" if cut_short(trial) else "done"


def unexpected(trial: KernelTrial) -> Iterator[Broken]:
    """What the head showed that unmodified kernels are not known for."""
    return (d for d in trial.detections if not d.known)


def standing_of(
    seen: Broken, base: KernelTrial | None, again: KernelTrial | None = None
) -> tuple[Standing, str]:
    """How a finding stands to what the base came to in the same case, and why they could not be compared.
    `again`: what the base came to under other schedules, where `needs_more` asks for it.
    """
    if base is None or base.failed:
        return Standing.UNDECIDED, base.failed if base else "the base was not asked"
    if not beyond(seen, base):
        return Standing.IN_BASE, ""
    if seen.case not in base.cases:
        return Standing.UNDECIDED, base.undecided.get(seen.case, "the base did not run it")
    if not needs_more(seen, base):
        return Standing.NEW, ""
    if again is None or seen.case not in again.cases:
        why = again.failed if again else "the base was asked under one schedule alone"
        return Standing.UNDECIDED, why or "under other schedules, the base was not decided"
    return (Standing.NEW if beyond(seen, base, again) else Standing.IN_BASE), ""


def needs_more(seen: Broken, base: KernelTrial) -> bool:
    """Whether one recording of the base does not tell that a finding is new: unmodified kernels are expected
    to show it, or the base does by another operation, or as what is expected of it. By which one such a bug
    shows may be a matter of time.
    """
    return bool(seen.case in base.cases and beyond(seen, base) and (seen.known or _same(base, seen)))


def beyond(seen: Broken, *trials: KernelTrial) -> Broken | None:
    """What a finding breaks that these do not; None: nothing. What oracles say of it, such as the number of a
    block, differs from one recording to the next: the operation whose promise is broken does not.
    """
    theirs = [d for trial in trials for d in _alike(trial, seen)]
    broken = {n for d in theirs for n in d.promised}
    left = tuple(n for n in seen.promised if n not in broken)
    if theirs and (not left or any(not d.promised for d in theirs)):
        return None
    shared = tuple(n for n in seen.promised if n in broken)
    return msgspec.structs.replace(seen, promised=left, in_base=shared)


def fresh(seen: Iterable[Some], head: Iterable[KernelTrial]) -> Iterator[Some]:
    """The unexpected ones of these whose symptom the patch alone does not show in that case. By which
    operation it shows differs between recordings, and the patch is recorded once.
    """
    shown = {(d.case, d.oracle, d.symptom) for trial in head for d in trial.detections}
    return (d for d in seen if not d.known and (d.case, d.oracle, d.symptom) not in shown)


def _alike(trial: KernelTrial, seen: Broken) -> list[Broken]:
    """The same symptom in the same case. A finding that is expected excuses none that is not: it breaks the
    promise only where writes are lost, or is another one.
    """
    return [d for d in _same(trial, seen) if seen.known or not d.known]


def _same(trial: KernelTrial, seen: Broken) -> list[Broken]:
    """The same symptom in the same case, expected or not."""
    of = seen.case, seen.oracle, seen.symptom
    return [d for d in trial.detections if (d.case, d.oracle, d.symptom) == of]


def apart(
    seen: Sequence[Broken], base: KernelTrial | None, again: KernelTrial | None = None
) -> Mapping[Standing, tuple[str, tuple[Broken, ...]]]:
    """Findings of one symptom by how each stands to the base: one that is also in the base does not excuse
    another, in a case in which the base keeps the promise. With the reason for the first of those that could
    not be compared. What is new is told with what it breaks that the base does not.
    """
    found: dict[Standing, tuple[str, tuple[Broken, ...]]] = {}
    asked = [trial for trial in (base, again) if trial]
    for d in seen:
        standing, why = standing_of(d, base, again)
        told = beyond(d, *asked) if standing is Standing.NEW else d
        first, others = found.get(standing, (why, ()))
        found[standing] = first, (*others, told or d)
    return found


def shows(trial: KernelTrial | None, seen: Broken) -> bool | None:
    """Whether a commit's kernel shows a finding in its case; None: it could not be tried or decided."""
    if trial is None or trial.failed:
        return None
    if any(
        not (d.promised and seen.promised and {*d.promised}.isdisjoint(seen.promised))
        for d in _alike(trial, seen)
    ):
        return True
    return False if seen.case in trial.cases else None


def by_plain_names(trial: KernelTrial) -> KernelTrial:
    """What came of cases under other schedules, as what came of those without, too."""
    plain = (msgspec.structs.replace(d, case=without_schedule(d.case)[0]) for d in trial.detections)
    cases = (*trial.cases, *(without_schedule(case)[0] for case in trial.cases))
    return msgspec.structs.replace(trial, cases=cases, detections=(*trial.detections, *plain))


Below = Sequence[int]
"""For each commit of a series, those of the others that are in its history: commit `n` as `1 << n`."""


def next_commit(below: Below, known: Mapping[int, bool | None]) -> int | None:
    """Which commit to try next; None once no further one tells more. The last one shows the finding, the base
    does not. One that could not be tried (None) is passed over, the nearest to the middle first.
    """
    _, left = _first_and_left(below, known)
    open_ = [n for n in left if n not in known]
    return min(open_, key=lambda n: (abs(2 * n - left[0] - left[-1]), n)) if open_ else None


def culprit_of(commits: Sequence[Revision], below: Below, known: Mapping[int, bool | None]) -> Culprit:
    """What is known of the first commit that shows it."""
    first, left = _first_and_left(below, known)
    return Culprit(commits[first], tuple(commits[n] for n in left))


def _first_and_left(below: Below, known: Mapping[int, bool | None]) -> tuple[int, list[int]]:
    """The first commit known to show it, with no other in its history, and those of its history that are not
    in that of one known not to. A commit that does not show it says nothing of another branch. One may stand
    before another that is in its history: its branch has merged that of the other.
    """
    bad = {n for n, answer in known.items() if answer} or {len(below) - 1}
    first = min(n for n in bad if not any(below[n] >> m & 1 for m in bad))
    without = [n for n, answer in known.items() if answer is False and not below[n] >> first & 1]
    left = below[first] & ~reduce(operator.or_, (below[n] | 1 << n for n in without), 0)
    return first, [n for n in range(left.bit_length()) if left >> n & 1]


def grouped(seen: Iterable[Broken]) -> dict[Found, tuple[Broken, ...]]:
    """Findings by oracle and symptom, those of the case with the fewest states first. States count in
    powers of two: each recording has a few more or fewer, and the case that is named should be the same.
    """
    found = by_key(((d.oracle, d.symptom), d) for d in seen)
    return {key: tuple(sorted(ds, key=lambda d: (d.of.bit_length(), d.case))) for key, ds in found.items()}
