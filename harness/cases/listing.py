"""The crash states of the log's own order, by content; with a budget, which contents are visited first.

Those at persistence points come first, whatever the budget. Then come the others, evenly spread over the log,
closer and closer together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.cases.examine import Examiner, Group
from harness.cases.exploration import TimeCoverage, listed
from harness.grouping import by_key
from harness.model import CrashState, History
from harness.plan import Budget
from harness.states import enumerate_states


def groups_of(fault_models: Iterable[str], examiner: Examiner) -> list[Group]:
    """The crash states of a recording under each of the fault models, grouped by content.

    Raises DiskError.
    """
    recording = examiner.recording
    unit = recording.profile.disk.physical_sectors
    states = enumerate_states(fault_models, recording.write_log, unit, recording.times)
    return group_by_content(states, examiner.memo.hashes(states))


def group_by_content(states: Sequence[CrashState], hashes: Sequence[str]) -> list[Group]:
    """Group states of equal content, in the order of each group's first state."""
    groups = by_key((content_hash, state) for state, content_hash in zip(states, hashes, strict=True))
    return [Group(h, tuple(s)) for h, s in groups.items()]


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
