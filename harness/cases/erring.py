"""Visits on a disk that errs: one fault each, at what undisturbed visits asked for.

The recoveries that wrote the most come first, since a fault can do most harm there. Of each kind of fault at
each kind of block, PER_CELL faults are tried, all different; a budget asks for more or fewer, and with one
that is large enough, every fault is tried at every recovery. Nothing is recalled here and nothing is learned:
the memo knows what states come to on a disk that keeps its promises.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.cases.asked import Asked, Target
from harness.cases.examine import Examiner, Group, JudgedGroup, judge_group
from harness.cases.exploration import Exploration, Report
from harness.cases.remote import AnySession
from harness.model import CrashState, FaultKind, Outcome, Verdict
from harness.oracles.honesty import UNDECIDED, seen
from harness.plan import Budget
from harness.store.records import DiskCell, DiskErred

PER_CELL = 4
"""Faults of one kind at one kind of block that are tried without a budget."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault at one state."""

    of: CrashState
    target: Target

    @property
    def state(self) -> CrashState:
        """Its name."""
        return self.of.on_erring(self.target.fault)


def lined_up(recoveries: Iterable[Asked], kinds: Collection[FaultKind]) -> tuple[list[Trial], int]:
    """All trials, in the order in which they have their turn: kinds of faults and blocks in turn, so that
    each of them is seen early, and faults that were not tried at any other state first. Also how many of them
    a run without a budget takes.
    """
    new: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    known: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    faults = set()
    for asked in sorted(recoveries, key=lambda a: -a.work):
        for target in asked.targets:
            if target.fault.kind in kinds:
                where = known if target.fault in faults else new
                where[target.cell].append(Trial(asked.of, target))
                faults.add(target.fault)
    first = {cell: trials[:PER_CELL] for cell, trials in new.items()}
    rest = {cell: trials[PER_CELL:] for cell, trials in new.items()}
    begun = [*_in_turn(first.values())]
    return [*begun, *_in_turn(rest.values()), *_in_turn(known.values())], len(begun)


def _in_turn(lines: Iterable[Sequence[Trial]]) -> Iterator[Trial]:
    return (one for turn in itertools.zip_longest(*lines) for one in turn if one is not None)


class Erring:
    """Any number of stations may `work` on it at once. Every trial is reported, whatever came of it.
    `before`: the explorations whose visits it disturbs, those of cut recoveries as well.
    """

    def __init__(
        self,
        examiner: Examiner,
        before: Sequence[Exploration],
        profiles: Sequence[str],
        kinds: Collection[FaultKind],
        budget: Budget,
        stop: threading.Event,
        report: Report,
    ) -> None:
        """`profiles`: as they were asked for, with the `kinds` of faults in them."""
        self._examiner, self.before, self._profiles = examiner, tuple(before), tuple(profiles)
        self._budget, self._stop, self._report = budget, stop, report
        self._trials, usual = lined_up((a for e in self.before for a in e.asked), kinds)
        limited = budget.visits is not None or budget.seconds is not None
        self._wanted = min(len(self._trials), budget.visits or len(self._trials)) if limited else usual
        self._begun = time.monotonic()
        self._changed = threading.Lock()
        self._next = 0
        self._done: list[tuple[Trial, str]] = []
        self._failed = False

    def work(self, session: AnySession) -> None:
        """Try faults with this session until there are none left."""
        while (trial := self._take()) is not None:
            try:
                observation = self._examiner.visit(session, [trial.state], self._stop)
                result = judge_group(self._examiner, Group("", (trial.state,)), observation)
                came = self._came(trial, result)
            except BaseException:  # nobody else reports this trial
                self._failed = True
                raise
            with self._changed:
                self._report([result])
                self._done.append((trial, came))

    @property
    def visits(self) -> int:
        """How many were begun by now."""
        return self._next

    @property
    def ended(self) -> bool:
        """Whether nothing is left to try."""
        return self._next >= self._wanted

    def _take(self) -> Trial | None:
        with self._changed:
            late = self._budget.is_spent(-1, time.monotonic() - self._begun)
            if self.ended or late or self._failed or self._stop.is_set():
                return None
            self._next += 1
            return self._trials[self._next - 1]

    def _came(self, trial: Trial, result: JudgedGroup) -> str:
        """What came of a trial, for tables."""
        outcome, undisturbed = result.observation.outcome, self._examiner.undisturbed(trial.of)
        unknown = result.judged[0].judgement.verdict is Verdict.UNKNOWN
        if unknown or undisturbed is None or not isinstance(outcome, Outcome):
            return UNDECIDED
        return seen(undisturbed, outcome)[0].value

    def erred(self) -> DiskErred:
        """What was tried, and what came of it. Raises RuntimeError after a failure, or if a trial that was
        begun was not reported.
        """
        if self._failed or len(self._done) != self._next:
            raise RuntimeError(f"{self._next} faults were tried, {len(self._done)} of them reported")
        order = {trial: n for n, trial in enumerate(self._trials)}
        cells: dict[tuple[str, str], list[tuple[Trial, str]]] = defaultdict(list)
        for trial, came in sorted(self._done, key=lambda done: order[done[0]]):
            cells[trial.target.cell].append((trial, came))
        has = self._examiner.recording.profile.contract.has_checksum
        return DiskErred(
            self._profiles,
            sum(len(e.asked) for e in self.before),
            sum(e.unasked for e in self.before),
            len(self._trials),
            self._next,
            tuple(
                DiskCell(
                    fault,
                    where,
                    has(where),
                    dict(Counter(came for _, came in done)),
                    {came: str(trial.state) for trial, came in reversed(done)},
                )
                for (fault, where), done in sorted(cells.items())
            ),
        )
