"""The legal crash states of a small recording, one by one: the plain reference that `legal` is held against.

Written from the rules alone, of each device for itself, for clarity: every event, every subset of the
volatile blocks. The number of states doubles with each block, so it refuses more than MAX_CHUNKS.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.errors import UsageError
from harness.states.legal import LegalStates
from harness.states.overlaps import Chunk
from harness.writelog.times import TimedWrite, Times

MAX_CHUNKS = 14


@dataclass(frozen=True, slots=True)
class Cut:
    """The power fails just before the event `at`. Without the `lost` chunks, what was submitted before shows
    what is on the platter: they have not persisted, or another one covers them that was in flight with them.
    """

    at: int
    lost: frozenset[int]


def all_cuts(legal: LegalStates, times: Times) -> Iterator[Cut]:
    """Every legal state at every event. Raises UsageError where more than MAX_CHUNKS are volatile at once, or
    where chunks cover each other in part only.
    """
    writes = {w.entry: w for w in times.writes}
    for at in range(times.events + 1):
        yield from _cuts_at(at, legal.chunks, writes, times)


def _cuts_at(at: int, chunks: list[Chunk], writes: dict[int, TimedWrite], times: Times) -> Iterator[Cut]:
    submitted = [n for n, c in enumerate(chunks) if writes[c.entry].submitted < at]
    volatile = [n for n in submitted if not is_durable(writes[chunks[n].entry], at, times)]
    if len(volatile) > MAX_CHUNKS:
        raise UsageError(f"{len(volatile)} blocks are volatile at once, the reference takes {MAX_CHUNKS}")
    found: set[frozenset[int]] = set()
    for count in range(len(volatile) + 1):
        for lost in map(frozenset, itertools.combinations(volatile, count)):
            if keeps_order(at, lost, submitted, chunks, writes):
                persisted = [n for n in submitted if n not in lost]
                found.update(lost | covered for covered in orders(persisted, chunks, writes))
    yield from (Cut(at, lost) for lost in found)


def orders(
    persisted: Iterable[int], chunks: list[Chunk], writes: dict[int, TimedWrite]
) -> Iterator[frozenset[int]]:
    """Which of the chunks that persisted are covered by one that was submitted before them, in every order in
    which they may have persisted: one that had completed before another was submitted persisted before it.
    """
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n in persisted:
        places[chunks[n].sector, chunks[n].sectors].append(n)
    if any(b < a + length for (a, length), (b, _) in itertools.pairwise(sorted(places))):
        raise UsageError("chunks cover each other in part: the reference takes whole ones")
    for last in itertools.product(*(_may_be_last(place, chunks, writes) for place in places.values())):
        yield frozenset(n for place, top in zip(places.values(), last, strict=True) for n in place if n > top)


def _may_be_last(place: list[int], chunks: list[Chunk], writes: dict[int, TimedWrite]) -> list[int]:
    timed = {n: writes[chunks[n].entry] for n in place}
    return [n for n in place if not any(timed[n].completed < timed[m].submitted for m in place)]


def is_durable(write: TimedWrite, at: int, times: Times) -> bool:
    """Whether a write is durable when power fails just before the event `at`."""
    if write.fua and write.completed < at:
        return True
    flushes = [(f.submitted, f.completed) for f in times.flushes if f.device == write.device]
    flushes += [(w.submitted, w.completed) for w in times.writes if w.preflush and w.device == write.device]
    return any(write.completed < submitted and completed < at for submitted, completed in flushes)


def keeps_order(
    at: int, lost: frozenset[int], submitted: list[int], chunks: list[Chunk], writes: dict[int, TimedWrite]
) -> bool:
    """Whether no data of a PREFLUSH write has persisted ahead of what its flush makes durable."""
    for n in submitted:
        later = writes[chunks[n].entry]
        if later.preflush and n not in lost:
            same = (writes[chunks[m].entry] for m in lost if writes[chunks[m].entry].device == later.device)
            if any(early.completed < later.submitted for early in same):
                return False
    return True
