"""A budget for the states of the log's own order: which contents are looked at, and in which order.

Those at persistence points come first, whatever the budget. Then come the others, evenly spread over the log,
closer and closer together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from harness.cases.examine import Group
from harness.model import CrashState, History, OperationFlag, OperationKind
from harness.plan import Budget

_PERSIST = frozenset(
    {
        OperationKind.FSYNC,
        OperationKind.FDATASYNC,
        OperationKind.SYNC,
        OperationKind.REMOUNT,
        OperationKind.RUN,
    }
)
_PERSIST_FLAGS = frozenset({OperationFlag.SYNC, OperationFlag.DSYNC, OperationFlag.SYNC_RANGE})


class Selection:
    """What to look at of one case. `groups`: in this order. Its clock begins when it is made.

    The choice by a number of states is the same in every run; that by time depends on the machine. Any thread
    may call `take`.
    """

    def __init__(self, groups: Sequence[Group], history: History, budget: Budget) -> None:
        self._budget = budget
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        places = _at_persistence(history)
        first = [g for g in groups if any(_is_prefix(s) and s.prefix in places for s in g.states)]
        self._first = {g.content_hash for g in first}
        others = list(_spread([g for g in groups if g.content_hash not in self._first]))
        if budget.visits is not None:
            others = others[: max(0, budget.visits - len(first))]
        self.groups = [*first, *others]
        if budget.seconds is None:  # neighbours differ little, which is quicker
            chosen = {g.content_hash for g in self.groups}
            self.groups = [g for g in groups if g.content_hash in chosen]
        self._taken: set[str] = set()

    def take(self, group: Group) -> bool:
        """Whether to look at this content now: the budget is not used up, or does not apply to it."""
        with self._lock:
            spent = self._budget.is_spent(-1, time.monotonic() - self._begun)
            if spent and group.content_hash not in self._first | self._taken:
                return False
            self._taken.add(group.content_hash)
            return True


def _is_prefix(state: CrashState) -> bool:
    return not state.dropped and state.torn_sectors is None


def _at_persistence(history: History) -> set[int]:
    """The prefixes that end where an operation that makes something durable begins, and where it returns."""
    places = set()
    for step in history.steps:
        if step.operation.kind in _PERSIST or _PERSIST_FLAGS & set(step.operation.flags):
            places |= {mark + 1 for mark in (step.begin, step.ack) if mark is not None}
    return places


def _spread(groups: Sequence[Group]) -> Iterator[Group]:
    """Each of them once: the first, then the middle, then the quarters, and so on."""
    step = 1 << max(0, len(groups) - 1).bit_length()
    yield from groups[:1]
    while step > 1:
        yield from groups[step // 2 :: step]
        step //= 2
