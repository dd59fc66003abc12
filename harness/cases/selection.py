"""A budget for the states of the log's own order: which contents are visited first, and in which order.

Those at persistence points come first, whatever the budget. Then come the others, evenly spread over the log,
closer and closer together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.cases.examine import Group
from harness.cases.exploration import TimeCoverage, listed
from harness.model import CrashState, History
from harness.plan import Budget


def in_turn(groups: Sequence[Group], history: History, budget: Budget) -> list[TimeCoverage]:
    """The contents as crash times, in the order in which they are visited: in that of the log, which is
    quicker since neighbours differ little, unless a budget may end before all of them were.
    """
    if budget == Budget():
        return listed(groups)
    places = _at_persistence(history)
    first = [g for g in groups if any(_is_prefix(s) and s.prefix in places for s in g.states)]
    known = {g.content_hash for g in first}
    others = _spread([g for g in groups if g.content_hash not in known])
    return [*listed(first), *listed(others, begins=1)]


def _is_prefix(state: CrashState) -> bool:
    return not state.dropped and state.torn_sectors is None


def _at_persistence(history: History) -> set[int]:
    """The prefixes that end where an operation that makes something durable begins, and where it returns."""
    places = set()
    for step in history.steps:
        if step.operation.persists:
            places |= {mark + 1 for mark in (step.begin, step.ack) if mark is not None and mark >= 0}
    return places


def _spread(groups: Sequence[Group]) -> Iterator[Group]:
    """Each of them once: the first, then the middle, then the quarters, and so on."""
    step = 1 << max(0, len(groups) - 1).bit_length()
    yield from groups[:1]
    while step > 1:
        yield from groups[step // 2 :: step]
        step //= 2
