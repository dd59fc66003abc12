"""Visits on a faulty disk: one fault each, at what undisturbed visits asked for.

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.cases.attempts import NotAskedFor
from harness.cases.examine import Examiner, Group, JudgedGroup, judge_group
from harness.cases.exploration import Exploration, Report
from harness.cases.remote import AnySession
from harness.cases.requests_seen import FaultTarget, RequestsSeen
from harness.grouping import by_key
from harness.model import CrashState, FaultKind, Outcome, Verdict
from harness.oracles.honesty import NOT_ASKED, UNDECIDED, seen
from harness.plan import Budget
from harness.store.records import DiskCell, FaultyDiskResult

_One = TypeVar("_One")

PER_CELL = 4
"""Faults of one kind at one kind of block that are tried without a budget."""


@dataclass(frozen=True, slots=True)
class FaultInjection:
    """One fault at one state."""

    of: CrashState
    target: FaultTarget

    @property
    def state(self) -> CrashState:
        """Its name."""
        return self.of.with_fault(self.target.fault)


def lined_up(
    recoveries: Iterable[RequestsSeen], kinds: Collection[FaultKind]
) -> tuple[list[FaultInjection], int]:
    """All injections, in the order in which they have their turn: kinds of faults in turn, and of each its
    kinds of blocks, so that every kind is seen early, whatever the budget; and faults that were not tried at
    any other state first. Also how many of them a run without a budget takes.
    """
    new: dict[tuple[str, str], list[FaultInjection]] = defaultdict(list)
    known: dict[tuple[str, str], list[FaultInjection]] = defaultdict(list)
    faults = set()
    for asked in sorted(recoveries, key=lambda a: -a.work):
        for target in asked.targets:
            if target.fault.kind in kinds:
                where = known if target.fault in faults else new
                where[target.cell].append(FaultInjection(asked.of, target))
                faults.add(target.fault)
    first = {cell: injections[:PER_CELL] for cell, injections in new.items()}
    rest = {cell: injections[PER_CELL:] for cell, injections in new.items()}
    begun = [*_in_turn(first)]
    return [*begun, *_in_turn(rest), *_in_turn(known)], len(begun)


def _in_turn(cells: Mapping[tuple[str, str], Sequence[FaultInjection]]) -> Iterator[FaultInjection]:
    """One of each cell, then another. A mount reads blocks of many kinds before it writes the first one, so
    cells follow one another as their faults do in turn: a short time would go to reads alone.
    """
    faults = by_key((fault, injections) for (fault, _), injections in cells.items())
    return _one_of_each(_one_of_each(faults.values()))


def _one_of_each(lines: Iterable[Sequence[_One]]) -> Iterator[_One]:
    return (one for turn in itertools.zip_longest(*lines) for one in turn if one is not None)


class FaultyDisk:
    """Any number of workers may `work` on it at once. Every injection is reported, whatever came of it, but
    for those whose fault befell nothing while others of its kind at such a block befell something: they say
    nothing, and are counted.
    `before`: the explorations whose visits it disturbs, those of cut recoveries as well.
    """

    def __init__(
        self,
        examiner: Examiner,
        before: Sequence[Exploration],
        ways: Sequence[str],
        kinds: Collection[FaultKind],
        budget: Budget,
        stop: threading.Event,
        report: Report,
    ) -> None:
        """`ways`: as they were asked for, with the `kinds` of faults in them."""
        self._examiner, self.before, self._ways = examiner, tuple(before), tuple(ways)
        self._budget, self._stop, self._report = budget, stop, report
        self._injections, usual = lined_up((a for e in self.before for a in e.requests_seen), kinds)
        limited = budget.visits is not None or budget.seconds is not None
        self._wanted = (
            min(len(self._injections), budget.visits or len(self._injections)) if limited else usual
        )
        self._begun: float | None = None
        self._changed = threading.Lock()
        self.visits = 0
        """How many were begun by now."""
        self._done: list[tuple[FaultInjection, str]] = []
        self._missed: list[tuple[FaultInjection, JudgedGroup]] = []
        self._failed = False

    def work(self, session: AnySession) -> None:
        """Try faults with this session until there are none left."""
        while (injection := self._take()) is not None:
            try:
                observation = self._examiner.visit(session, [injection.state], self._stop)
                result = judge_group(self._examiner, Group("", (injection.state,)), observation)
                came = self._came(injection, result)
            except BaseException:  # nobody else reports this injection
                self._failed = True
                raise
            with self._changed:
                if isinstance(observation.outcome, NotAskedFor):
                    self._missed.append((injection, result))
                    continue
                self._report([result])
                self._done.append((injection, came))
        with self._changed:
            self._settle()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to try."""
        return self.visits >= self._wanted

    def _take(self) -> FaultInjection | None:
        with self._changed:
            now = time.monotonic()
            if self._begun is None:  # what waits for a worker spends nothing
                self._begun = now
            late = self._budget.is_spent(-1, now - self._begun)
            if self.ended or late or self._failed or self._stop.is_set():
                return None
            self.visits += 1
            return self._injections[self.visits - 1]

    def _settle(self) -> None:
        """Once nothing is under way, see to the injections whose fault befell nothing. If that is so of all
        of a cell, nobody knows what such a fault does.
        """
        if len(self._done) + len(self._missed) < self.visits:
            return
        known = {injection.target.cell for injection, came in self._done if came != UNDECIDED}
        while self._missed:
            injection, result = self._missed[-1]
            if injection.target.cell not in known:
                self._report([result])
            self._missed.pop()
            self._done.append((injection, NOT_ASKED if injection.target.cell in known else UNDECIDED))

    def _came(self, injection: FaultInjection, result: JudgedGroup) -> str:
        """What came of an injection, for tables."""
        outcome, undisturbed = result.observation.outcome, self._examiner.undisturbed(injection.of)
        unknown = result.judged[0].judgement.verdict is Verdict.UNKNOWN
        if unknown or undisturbed is None or not isinstance(outcome, Outcome):
            return UNDECIDED
        return seen(undisturbed, outcome)[0].value

    def erred(self) -> FaultyDiskResult:
        """The faults that were tried, and their effects. Raises RuntimeError after a failure, or if an
        injection was begun and not reported.
        """
        if self._failed or len(self._done) != self.visits:
            raise RuntimeError(f"{self.visits} faults were tried, {len(self._done)} of them reported")
        order = {injection: n for n, injection in enumerate(self._injections)}
        cells: dict[tuple[str, str], list[tuple[FaultInjection, str]]] = defaultdict(list)
        for injection, came in sorted(self._done, key=lambda done: order[done[0]]):
            cells[injection.target.cell].append((injection, came))
        has = self._examiner.recording.profile.contract.has_checksum
        return FaultyDiskResult(
            self._ways,
            sum(len(e.requests_seen) for e in self.before),
            sum(e.unasked for e in self.before),
            len(self._injections),
            self.visits,
            tuple(
                DiskCell(
                    fault,
                    where,
                    has(where),
                    dict(Counter(came for _, came in done)),
                    {came: str(injection.state) for injection, came in reversed(done)},
                )
                for (fault, where), done in sorted(cells.items())
            ),
        )
