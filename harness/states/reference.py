"""The legal crash states of a small recording, one by one: the plain reference that `legal` is held against.

Written from the rules alone, for clarity: every event, every subset of the volatile blocks. The number of
states doubles with each block, so it refuses more than MAX_CHUNKS.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.errors import UsageError
from harness.states.legal import Chunk, LegalStates
from harness.writelog.times import TimedWrite, Times

MAX_CHUNKS = 14


@dataclass(frozen=True, slots=True)
class Cut:
    """The power fails just before the event `at`, and `lost` chunks of what was submitted have not landed."""

    at: int
    lost: frozenset[int]


def most(times: Times) -> Times:
    """The same recording by the reading of its events that makes the least durable. `times` itself is read as
    the one that makes the most durable.
    """
    flushes = tuple(replace(f, submitted=f.earliest, since=None) for f in times.flushes)
    return replace(times, flushes=flushes)


def all_cuts(legal: LegalStates, times: Times) -> Iterator[Cut]:
    """Every legal state at every event. Raises UsageError where more than MAX_CHUNKS are volatile at once."""
    writes = {w.entry: w for w in times.writes}
    for at in range(times.events + 1):
        yield from _cuts_at(at, legal.chunks, writes, times)


def _cuts_at(at: int, chunks: list[Chunk], writes: dict[int, TimedWrite], times: Times) -> Iterator[Cut]:
    submitted = [n for n, c in enumerate(chunks) if writes[c.entry].submitted < at]
    volatile = [n for n in submitted if not is_durable(writes[chunks[n].entry], at, times)]
    if len(volatile) > MAX_CHUNKS:
        raise UsageError(f"{len(volatile)} blocks are volatile at once, the reference takes {MAX_CHUNKS}")
    for count in range(len(volatile) + 1):
        for lost in map(frozenset, itertools.combinations(volatile, count)):
            if keeps_order(at, lost, submitted, chunks, writes):
                yield Cut(at, lost)


def is_durable(write: TimedWrite, at: int, times: Times) -> bool:
    """Whether a write is durable when power fails just before the event `at`."""
    if write.fua and write.completed < at:
        return True
    flushes = [(f.submitted, f.completed) for f in times.flushes]
    flushes += [(w.submitted, w.completed) for w in times.writes if w.preflush]
    return any(write.completed < submitted and completed < at for submitted, completed in flushes)


def keeps_order(
    at: int, lost: frozenset[int], submitted: list[int], chunks: list[Chunk], writes: dict[int, TimedWrite]
) -> bool:
    """Whether no data of a PREFLUSH write has landed ahead of what its flush makes durable."""
    for n in submitted:
        later = writes[chunks[n].entry]
        if later.preflush and n not in lost:
            ahead = (m for m in lost if writes[chunks[m].entry].completed < later.submitted)
            if any(True for _ in ahead):
                return False
    return True
