"""Writes to one place that were in flight together: a disk may apply them in either order.

Nothing orders two writes of which the second was submitted before the first had completed. A kernel should
wait for the first (a page under writeback and a locked buffer do), but direct I/O does not, and a kernel
that forgets to is what is looked for. A flush makes durable what was applied last, whichever that was. So a
chunk may be what its place shows if nothing that was submitted after it had completed has to have persisted
there: while the two are volatile, and just as well when both are durable, until a later write covers them.

The recorded disk applied them in one order, and a read in between may have told the kernel which. That
binds no other disk, so it is not kept: the end of a recording has to fit one of these orders
(`writelog.events`), and crash states have all of them.

In states of chunks the other order needs no word of its own. Chunks are applied in the order of submission,
so *the earlier one was applied last* looks like *the later one is missing*, and is named like that.

That is so for chunks of the same sectors, which all are by sectors, and by blocks wherever whole blocks are
written. Of chunks that cover each other in part only, the other order is no state of chunks; from the second
of them on it is left out, and said to be (`Overlaps.torn_from`).
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

from harness.writelog.times import TimedWrite


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the disk writes as a whole: the sectors of one write within one unit of the device. `number`: of
    the unit within the write, from 0.
    """

    entry: int
    number: int
    sector: int
    sectors: int


_Extent: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """All chunks of the same sectors, some of which were in flight together, by their numbers, ascending;
    each with its write. `until`: the event from which on one of them may lie under, or over, a part of what
    was in flight with it, if there is one.
    """

    chunks: tuple[int, ...]
    writes: tuple[TimedWrite, ...]
    until: int | None = None

    def holds(self, at: int) -> bool:
        """Whether states of chunks have all orders of it if power fails just before this event."""
        return self.until is None or at <= self.until

    def open(self, prefix: int, persisted: Set[int]) -> tuple[int, ...]:
        """Those of the first `prefix` chunks that the place may show, if `persisted` have persisted: no
        durable write was submitted after the chunk's write completed. Empty if nothing has to have persisted.
        """
        count = bisect.bisect_left(self.chunks, prefix)
        known = list(zip(self.chunks[:count], self.writes, strict=False))
        newest = max((w.submitted for n, w in known if n in persisted), default=None)
        return () if newest is None else tuple(n for n, w in known if w.completed >= newest)

    def buried(self, prefix: int, persisted: Set[int]) -> set[int]:
        """Those that lie above one that may show, in the order of submission, but cannot show themselves."""
        shown = self.open(prefix, persisted)
        return {n for n in self.chunks if shown and shown[0] < n < prefix} - set(shown)

    def covers(self, chunk: int, prefix: int, lost: Set[int]) -> bool:
        """Whether the place may show what it does without the `lost` chunks, although this one persisted."""
        shown = max((n for n in self.chunks if n < prefix and n not in lost), default=None)
        if shown is None:
            return False
        completed = self.writes[self.chunks.index(shown)].completed
        return completed >= self.writes[self.chunks.index(chunk)].submitted


@dataclass(frozen=True, slots=True)
class Overlaps:
    """What was in flight together. `torn_from`: events from which on more is legal than chunks can tell: two
    chunks differ in their sectors. `unclear_from`: from which on more may be legal: the events do not tell
    whether two chunks were in flight together.
    """

    places: tuple[Place, ...]
    torn_from: tuple[int, ...]
    unclear_from: tuple[int, ...]


def overlaps(chunks: Sequence[Chunk], writes: Mapping[int, TimedWrite], unit: int) -> Overlaps:
    """The overlaps among chunks in the order of submission. `writes`: by entry. `unit`: see `LegalStates`."""
    timed = [writes[chunk.entry] for chunk in chunks]
    still = [*itertools.accumulate((w.earliest for w in reversed(timed)), min)][::-1]
    flying: dict[int, list[int]] = defaultdict(list)
    equal: set[_Extent] = set()
    ragged: dict[_Extent, int] = {}
    torn_from: set[int] = set()
    unclear_from: set[int] = set()
    for number, chunk in enumerate(chunks):
        before = flying[chunk.sector // unit]
        before[:] = [n for n in before if timed[n].completed > still[number]]
        for other in before:
            if timed[other].completed < timed[number].earliest or not _meet(chunks[other], chunk):
                continue
            if timed[other].completed < timed[number].submitted:
                unclear_from.add(timed[number].submitted)
            elif _extent(chunks[other]) == _extent(chunk):
                equal.add(_extent(chunk))
            else:
                for extent in (_extent(chunks[other]), _extent(chunk)):
                    ragged.setdefault(extent, timed[number].submitted)
                torn_from.add(timed[number].submitted)
        before.append(number)
    places = _places(chunks, timed, equal, ragged)
    return Overlaps(places, tuple(sorted(torn_from)), tuple(sorted(unclear_from)))


def _places(
    chunks: Sequence[Chunk],
    timed: Sequence[TimedWrite],
    extents: set[_Extent],
    until: Mapping[_Extent, int],
) -> tuple[Place, ...]:
    numbers: dict[_Extent, list[int]] = {extent: [] for extent in sorted(extents)}
    if numbers:
        for number, chunk in enumerate(chunks):
            if (found := numbers.get(_extent(chunk))) is not None:
                found.append(number)
    return tuple(
        Place(tuple(of_it), tuple(timed[n] for n in of_it), until.get(extent))
        for extent, of_it in numbers.items()
    )


def _extent(chunk: Chunk) -> _Extent:
    return chunk.sector, chunk.sectors


def _meet(a: Chunk, b: Chunk) -> bool:
    return a.sector < b.sector + b.sectors and b.sector < a.sector + a.sectors
