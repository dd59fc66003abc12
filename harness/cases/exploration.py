"""Exploration: all legal crash states of one recording, as far as a budget goes.

The disk branches only where a visit read a block that may hold different contents (`Disk.explore`); it asks
for the states that it knows no outcome of, a guest recovers them, and the disk asks again, until every
branch ends in a known outcome. Choices are counted against two defaults, everything volatile lost and
everything kept: depth 0 looks at these two of every moment, depth 1 at what differs from one of them in one
block, and so on to the end.

A moment may have more states than can ever be looked at: XFS at unmount has some 20 blocks in flight, and
recovery reads each of them for its log sequence number. If all its states up to depth 2 have one outcome,
and all of DRAWN states that are drawn at random have it as well, the moment counts as *alike* and is left.

Every outcome of a moment is judged once, at that moment's place in the history. Depth 0 is looked at whatever
the budget: less would be no answer. What the budget cuts off beyond it is counted and said: see `Coverage`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.cases.attempts import ATTEMPTS, Unseen
from harness.cases.examine import Examiner, Group, JudgedGroup, Look, judge_group
from harness.errors import DiskError
from harness.guests.disk import Explored, Leaf
from harness.guests.worker import Worker
from harness.model import CrashState
from harness.plan import Budget
from harness.states import LegalStates, Moment
from harness.store.records import Coverage

WANTED_MAX = 64
"""States to visit per request. Each comes from another unknown end of the tree."""
VISITS_MAX = 3
"""How often one state is visited, should a disk process that knew its outcome be lost."""
PAIRS = 2
"""The depth up to which every state of an alike moment is looked at."""
TOO_MANY = 600
"""Branches left at that depth from which on states are drawn: 14 blocks of two contents, 16,384 states."""
DRAWN = 1024
"""States drawn, each chunk lost or kept with equal chance. An outcome that takes certain contents of six
blocks of two contents escapes all of them with a chance of 1 in 10 million, one that takes eight with 2 %.
"""

Report = Callable[[Sequence[JudgedGroup]], None]
"""Takes states that were looked at and judged; called in the station's thread."""


@dataclass(slots=True)
class _Spent:
    """What an exploration has used of its budget."""

    budget: Budget
    begun: float = field(default_factory=time.monotonic)
    visits: int = 0

    @property
    def all(self) -> bool:
        return self.budget.is_spent(self.visits, time.monotonic() - self.begun)


@dataclass(slots=True)
class _Open:
    """A moment that is not exhausted. `cut`: branches not followed at the depth that was looked at last.
    `lost`: states that no guest came back from; what lies behind them is not known. `alike`: see the module.
    """

    moment: Moment
    cut: int = 1
    lost: int = 0
    alike: bool = False
    reported: set[int] = field(default_factory=set)
    visited: dict[int, Look] = field(default_factory=dict)
    drawn: dict[int, Look] = field(default_factory=dict)
    tried: dict[CrashState, int] = field(default_factory=dict)


class Exploration:
    """Explores in one station's thread. Deterministic for a budget in states.

    What goes wrong with a state is reported as its UNKNOWN, and what could lie behind it stays open. `run`
    raises DiskError where no disk process answers.
    """

    def __init__(
        self, examiner: Examiner, worker: Worker, budget: Budget, stop: threading.Event, report: Report
    ) -> None:
        assert examiner.recording.legal is not None  # noqa: S101 - the caller's contract; tells mypy
        self._legal: LegalStates = examiner.recording.legal
        self._examiner, self._worker, self._stop, self._report = examiner, worker, stop, report
        self._spent = _Spent(budget)
        self._separate = examiner.recording.profile.contract.data != "journal"

    def run(self) -> Coverage:
        """Look at everything, or as much as the budget allows."""
        moments = [_Open(m) for m in self._legal.moments]
        left, losses = moments, 0
        while left:
            done = self._deepen(left, losses)
            left = [o for o in left if o.cut]
            if not self._examiner.recalls and not self._examiner.doubt:
                return self._defaults()
            if not done:
                return self._coverage(moments, losses - 1, self._why())
            losses += 1
        if any(o.lost for o in moments):
            return self._coverage(moments, losses - 1, "states of which every guest was lost")
        return self._coverage(moments, None, "")

    def _defaults(self) -> Coverage:
        """Without a memo no two states are known to be alike: look at the two defaults of each moment, and
        at equal contents once.
        """
        moments = self._legal.moments
        states = [
            self._legal.name(m, lost)
            for m in moments
            for lost in (m.choices.absent, (*m.choices.absent, *m.choices.volatile))
        ]
        states = list(dict.fromkeys(states))
        disk = self._worker.show(self._examiner.recording.target)
        groups: dict[str, list[CrashState]] = {}
        for state, content in zip(states, disk.hashes([self._legal.on_disk(s) for s in states]), strict=True):
            groups.setdefault(content, []).append(state)
        done = True
        for content, of_it in groups.items():
            if done := not self._stop.is_set():
                look = self._examiner.look(self._worker, of_it, self._stop)
                self._spent.visits += 1
                self._report([judge_group(self._examiner, Group(content, tuple(of_it)), look)])
        why = "what fsck or a repair program reads cannot be followed, so no two states are known to be alike"
        volatile = sum(1 for m in moments if m.choices.volatile)
        return Coverage(len(moments), 0 if done else -1, volatile, self._spent.visits, why)

    def _deepen(self, left: Sequence[_Open], losses: int) -> bool:
        """Look at every state of these moments with at most `losses` deviations. False: not at all of
        them.
        """
        return all(
            not self._over(losses) and self._moment(one, losses) and (losses != PAIRS or self._compare(one))
            for one in left
        )

    def _over(self, losses: int) -> bool:
        beyond_budget = losses > 0 and self._spent.all
        return beyond_budget or self._stop.is_set() or not self._examiner.recalls

    def _moment(self, one: _Open, losses: int) -> bool:
        """As `_deepen`, for one moment."""
        while True:
            found = self._explore(one.moment, losses)
            self._tell(one, found.leaves)
            one.cut, one.lost = found.cut, len(found.wanted)
            named = [self._name(one.moment, s) for s in found.wanted]
            wanted = [s for s in named if one.tried.get(s, 0) < VISITS_MAX]
            if not wanted:
                return True
            for state in wanted:
                if self._over(losses):
                    return False
                self._visit(one, state)

    def _explore(self, moment: Moment, losses: int) -> Explored:
        """Ask the disk; another one, should it be lost. Raises DiskError when that did not help."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                disk = self._worker.show(self._examiner.recording.target)
                return disk.explore(
                    moment.choices, losses=losses, separate_data=self._separate, wanted_max=WANTED_MAX
                )
            except DiskError:
                self._worker.close()
                if attempt == ATTEMPTS or self._stop.is_set():
                    raise
        raise AssertionError("the loop returns or raises")

    def _name(self, moment: Moment, state: CrashState) -> CrashState:
        """The name of a state that the disk told, in chunks."""
        return self._legal.name(moment, state.dropped)

    def _visit(self, one: _Open, state: CrashState) -> None:
        """Recover a state in a guest. Its outcome is reported as a leaf, once the disk knows it."""
        one.tried[state] = one.tried.get(state, 0) + 1
        self._spent.visits += 1
        look = self._examiner.look(self._worker, [state], self._stop)
        if isinstance(look.seen, Unseen):
            one.tried[state] = VISITS_MAX
            self._report([judge_group(self._examiner, Group("", (state,)), look)])
        elif not look.recalled:
            one.visited[id(look.seen)] = look

    # --- alike moments ------------------------------------------------------------------------

    def _compare(self, one: _Open) -> bool:
        """Find out whether a moment with too many states is alike. False: the budget or a stop ended that."""
        if one.cut <= TOO_MANY or one.lost:
            return True
        first, *others = (self._examiner.outcome(number) for number in one.reported)
        if not all(self._examiner.same(first, other) for other in others):
            return True
        alike, states = True, self._drawn(one.moment)
        hashes = self._worker.show(self._examiner.recording.target).hashes(
            [self._legal.on_disk(state) for state in states]
        )
        for state, content in zip(states, hashes, strict=True):
            if self._over(PAIRS):
                return False
            look = self._examiner.look(self._worker, [state], self._stop)
            self._spent.visits += not look.recalled
            self._report([judge_group(self._examiner, Group(content, (state,)), look)])
            one.drawn[id(look.seen)] = look
            alike &= not isinstance(look.seen, Unseen) and self._examiner.same(first, look.seen)
        if alike:
            one.alike, one.cut = True, 0
        return True

    def _drawn(self, moment: Moment) -> list[CrashState]:
        """The states to draw at a moment, the same in every run."""
        choices, chance = moment.choices, random.Random(moment.entry)  # noqa: S311  # no secret
        found = []
        for _ in range(DRAWN):
            lost = [chunk for chunk in choices.volatile if chance.getrandbits(1)]
            found.append(self._legal.name(moment, (*choices.absent, *lost)))
        return found

    # --- leaves -------------------------------------------------------------------------------

    def _tell(self, one: _Open, leaves: Sequence[Leaf]) -> None:
        """Judge and report the leaves that are new."""
        new = [leaf for leaf in leaves if leaf.outcome not in one.reported]
        one.reported.update(leaf.outcome for leaf in new)
        new = [leaf for leaf in new if id(self._examiner.outcome(leaf.outcome)) not in one.drawn]
        if not new:
            return
        states = [self._name(one.moment, leaf.state) for leaf in new]
        hashes = self._worker.disk.hashes([leaf.state for leaf in new])
        looks = [self._look(one, leaf, state) for leaf, state in zip(new, states, strict=True)]
        self._report(
            [
                judge_group(self._examiner, Group(content, (state,)), look)
                for state, content, look in zip(states, hashes, looks, strict=True)
            ]
        )

    def _look(self, one: _Open, leaf: Leaf, state: CrashState) -> Look:
        """What was seen of a leaf: at this moment, at another one, or in a guest once more."""
        if (visited := one.visited.get(id(self._examiner.outcome(leaf.outcome)))) is not None:
            return visited
        known = self._examiner.known(leaf.outcome, state)
        if known is not None:
            return known
        look = self._examiner.look(self._worker, [state], self._stop)
        self._spent.visits += not look.recalled
        return look

    def _coverage(self, moments: Sequence[_Open], losses: int | None, why: str) -> Coverage:
        alike = sum(o.alike for o in moments)
        if alike:
            losses = PAIRS if losses is None else min(losses, PAIRS)
        left = sum(o.cut + o.lost for o in moments)
        return Coverage(len(moments), losses, left, self._spent.visits, why, alike, alike * DRAWN)

    def _why(self) -> str:
        """Why the exploration ends before its end."""
        return self._examiner.doubt or f"the budget: {self._spent.budget.text}"
