"""All states that a power cut may legally leave, from the times of the writes.

A disk with a volatile cache promises only this (Documentation/block/writeback_cache_control.rst): a write
that completed before a flush was submitted is durable once that flush completes; a FUA write is durable once
it completes; the data of a PREFLUSH write is not written before everything that had completed when it was
submitted is durable. Every other write that was submitted may have reached the platter or not, block by
block.

If power fails just before the event T, then of the writes submitted before T

- *durable* ones have persisted: they became durable before T;
- the others are *volatile*: each of their blocks has persisted or not, independently of the others, except
  that
- the data of a PREFLUSH write which is still in flight has persisted only if all that had completed when it
  was submitted has persisted. So the choices fall into *phases*: in phase 0 no such data has persisted; in
  phase k that of the first k such writes is volatile, and what had completed when the k-th was submitted is
  durable.

Each device has a cache of its own: a flush is of one device, and says nothing of what another one holds. So
"that had completed" means: on the same device; and the phases of a crash time are those of each device,
combined.

Between two events that make something durable, the sets of what may be there only grow. So it is enough to
look just before each of these events and, since an operation that has begun may excuse what is found, just
before each `begin` mark. Promises only grow with time as well: what was acknowledged in between counts. And
just before the mark `end`: there the disk has all that was sent until the last operation had returned, and
nothing that the unmount sends, so what is missing there was never sent.

Readings: where the events leave open which of two flushes completed, or which of several devices was flushed
(`TimedFlush`), a write may be durable from the first completion on, or only from a later one. The states
here are those that are legal by both readings, so none of them is a false alarm: the write counts as durable
early. In between, its loss may be legal, and is not among the states: those crash times are marked
(`CrashTime.unclear`), and there is one at the end of each such span.

Writes to one block that were in flight together land in either order: see `overlaps.py`.
"""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.errors import UsageError
from harness.model import BLOCK_BYTES, SECTOR_BYTES, CrashState, Part, Persisted, Position
from harness.states.overlaps import Chunk, Place, overlaps
from harness.writelog import WriteLog
from harness.writelog.times import TimedFlush, TimedWrite, Times

BLOCK_SECTORS = BLOCK_BYTES // SECTOR_BYTES
NEVER = 1 << 62
"""Later than every event."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The states in which a power cut may leave the disk at one crash time, in chunks: of the first `prefix`,
    those in `absent` have not persisted, each of those in `volatile` may have persisted or not,
    independently, and all others have. Both ascend, and have nothing in common.
    """

    prefix: int
    absent: tuple[int, ...]
    volatile: tuple[int, ...]

    def state(self, kept: bool, but: Iterable[int] = ()) -> CrashState:
        """As the disk takes it: all volatile chunks persisted (`kept`) or none did, with the other fate for
        `but`.
        """
        others = set(but)
        lost = [chunk for chunk in self.volatile if (chunk in others) is kept]
        return CrashState(self.prefix, tuple(sorted([*self.absent, *lost])))


class Unclear(enum.StrEnum):
    """Why more states may be legal at a crash time than its choices have."""

    FLUSHES = "the events do not tell which of two flushes completed first"
    DEVICES = "the disk does not tell which of its devices was flushed"
    WRITES = "the events do not tell which of two equal writes completed first"
    SECTORS = "states of whole blocks have one order of writes in flight together that share part of a block"


@dataclass(frozen=True, slots=True)
class CrashTime:
    """A time at which the power may fail, in one of its phases, which are numbered.

    `entry`: of the log, just before which completes (is made, for a mark) the power fails; the number of
    entries at the end. `at`: the event.

    `unclear`: why more states may be legal here than `choices` has: by another reading of the events (see
    "Readings" above), or because chunks cannot tell them. Each state of `choices` is legal whatever the
    reading, so what is found in it is a violation; but a case with such a crash time was not covered in all
    its states.
    """

    entry: int
    at: int
    phase: int
    choices: Choices
    unclear: tuple[Unclear, ...] = ()

    @property
    def ambiguous(self) -> bool:
        return bool(self.unclear)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A write, its place in the order of submission, the event that makes it durable, the one that does so by
    the latest reading, and its chunks: a range, and the numbers in it, which all crash times share.
    """

    write: TimedWrite
    place: int
    durable: int
    late: int
    chunks: range
    numbers: tuple[int, ...]


class LegalStates:
    """The legal crash states of one recording.

    `unit_sectors`: what a disk writes as a whole, 8 (a block of 4 KiB) or 1. Chunks are numbered in the
    order of submission: that is the order in which `powercut-disk` applies them (`order`). `given`: how many
    operations were done before the log begins.
    """

    def __init__(
        self, log: WriteLog, times: Times, unit_sectors: int = BLOCK_SECTORS, given: int = 0
    ) -> None:
        self.unit_sectors = unit_sectors
        self._given = given
        self._times = times
        self._entries = log.entry_count
        self.chunks: list[Chunk] = []
        self._writes: list[_Timed] = []
        durable, late = _readings(times)
        for place, write in enumerate(times.writes):
            first = len(self.chunks)
            entry = log.entries[write.entry]
            self.chunks += _cut(write.entry, entry.sector, entry.sectors, unit_sectors)
            chunks = range(first, len(self.chunks))
            self._writes.append(_Timed(write, place, durable(write), late(write), chunks, tuple(chunks)))
        self._of = {t.write.entry: t for t in self._writes}
        self._durable = [t.durable for t in self._writes]
        self._numbers = tuple(itertools.chain.from_iterable(t.numbers for t in self._writes))
        self._devices = 1 + max((w.device for w in times.writes), default=0)
        self._overlaps = overlaps(self.chunks, {w.entry: w for w in times.writes}, unit_sectors)

    def __getstate__(self) -> dict[str, object]:
        """A copy: another thread may compute a property while this one pickles."""
        return dict(vars(self))

    @property
    def order(self) -> tuple[int, ...]:
        """The entries that change the device, in the order of submission."""
        return tuple(t.write.entry for t in self._writes)

    # --- crash times ------------------------------------------------------------------------------

    @functools.cached_property
    def crash_times(self) -> tuple[CrashTime, ...]:
        """Where to look, in order: every legal state has the contents and the promises of a state of one of
        them.
        """
        return tuple(m for entry, at in self._cuts() for m in self._phases(entry, at))

    def _cuts(self) -> list[tuple[int, int]]:
        """(entry, event) of each crash time."""
        ends = {at for t in self._writes for at in (t.durable, t.late)}
        next_begins = {m.at for m in self._times.marks if m.text == "end" or m.text.startswith("begin ")}
        cuts = sorted((at, entry) for entry, at in self._events.items() if at in ends or at in next_begins)
        return [(entry, at) for at, entry in cuts] + [(self._entries, self._times.events)]

    @functools.cached_property
    def _events(self) -> dict[int, int]:
        """The event with which an entry completes or, for a mark, is made."""
        times = self._times
        found = {w.entry: w.completed for w in times.writes}
        found |= {f.entry: f.completed for f in times.flushes}
        return found | {m.entry: m.at for m in times.marks}

    def _phases(self, entry: int, at: int) -> Iterator[CrashTime]:
        volatile, prefix = self._volatile(at), self._prefix(at)
        flying = self._flying(volatile, at)
        for phase, counts in enumerate(itertools.product(*(range(len(of) + 1) for of in flying))):
            flushed = [of[n - 1].write.submitted if n else 0 for of, n in zip(flying, counts, strict=True)]
            late = {t.write.entry for of, n in zip(flying, counts, strict=True) for t in of[n:]}
            absent: list[_Timed] = []
            free = volatile
            if late or any(flushed):
                absent = [t for t in volatile if t.write.entry in late]  # of several devices, in one order
                free = [
                    t
                    for t in volatile
                    if t.write.completed >= flushed[t.write.device] and t.write.entry not in late
                ]
            choices = Choices(prefix, self._numbers_of(absent), self._numbers_of(free))
            if self._places(at):
                choices = self._in_any_order(choices, at)
            yield CrashTime(entry, at, phase, choices, self._unclear(at))

    def _flying(self, volatile: Sequence[_Timed], at: int) -> list[list[_Timed]]:
        """By device, the writes in flight whose data waits for a flush."""
        found: list[list[_Timed]] = [[] for _ in range(self._devices)]
        for timed in volatile if self._any_preflush else ():
            if _in_flight_behind_a_flush(timed, at):
                found[timed.write.device].append(timed)
        return found

    @functools.cached_property
    def _any_preflush(self) -> bool:
        return any(w.preflush for w in self._times.writes)

    def _in_any_order(self, choices: Choices, at: int) -> Choices:
        """The choices, with the orders of writes that were in flight together among them: of the chunks that
        may be what a place shows, the earliest has persisted, and each later one may cover it or not.
        """
        prefix, absent, free = choices.prefix, set(choices.absent), set(choices.volatile)
        for place in self._places(at):
            persisted = {n for n in place.chunks if n < prefix and n not in absent and n not in free}
            shown = [n for n in place.open(prefix, persisted) if n not in absent]
            if shown:
                first, *others = shown
                under = {n for n in place.chunks if first < n < prefix} - set(others)
                under |= place.buried(prefix, self._durable_at(place, at))
                absent |= under
                free -= under | {first}
                free.update(others)
        return Choices(prefix, tuple(sorted(absent)), tuple(sorted(free)))

    def _places(self, at: int) -> list[Place]:
        """Where states of chunks have every order of the writes that were in flight together."""
        return [place for place in self._overlaps.places if place.holds(at)]

    def _durable_at(self, place: Place, at: int) -> set[int]:
        return {n for n in place.chunks if self._of[self.chunks[n].entry].durable < at}

    @property
    def ambiguous(self) -> int:
        """How many crash times are ambiguous: have states that are not covered. Unless it is 0, no
        exploration of these crash times is exhaustive.
        """
        return sum(crash_time.ambiguous for crash_time in self.crash_times)

    @property
    def unclear(self) -> Counter[Unclear]:
        """Why crash times are ambiguous, and how many for that reason."""
        return Counter(why for crash_time in self.crash_times for why in crash_time.unclear)

    def _unclear(self, at: int) -> tuple[Unclear, ...]:
        spans = self._unclear_spans.items()
        return tuple(why for why, of_it in spans if any(begin < at <= end for begin, end in of_it))

    @functools.cached_property
    def _unclear_spans(self) -> dict[Unclear, set[tuple[int, int]]]:
        """The times, after one event up to another, at which more may be legal: a write counts as durable, or
        as not submitted yet, that may not be; or see `Overlaps`.
        """
        flushed = {(t.durable, t.late) for t in self._writes if t.durable != t.late}
        unknown = any(f.of_any for f in self._times.flushes)
        writes = {(w.earliest, w.submitted) for w in self._times.writes if w.since is not None}
        return {
            Unclear.DEVICES if unknown else Unclear.FLUSHES: flushed,
            Unclear.WRITES: writes | {(at, NEVER) for at in self._overlaps.unclear_from[:1]},
            Unclear.SECTORS: {(at, NEVER) for at in self._overlaps.torn_from[:1]},
        }

    def _volatile(self, at: int) -> list[_Timed]:
        """The writes submitted before the event and not durable by then, in order."""
        begin, end = bisect.bisect_left(self._all_durable, at), self._submitted(at)
        if min(self._durable[begin:end], default=NEVER) >= at:
            return self._writes[begin:end]  # all, without a look at each: a log may have no flush at all
        return [t for t in self._writes[begin:end] if t.durable >= at]

    def _numbers_of(self, writes: Sequence[_Timed]) -> tuple[int, ...]:
        """The numbers of their chunks; of writes one behind another without a look at each."""
        if writes and writes[-1].place - writes[0].place == len(writes) - 1:
            return self._numbers[writes[0].chunks.start : writes[-1].chunks.stop]
        return tuple(itertools.chain.from_iterable(t.numbers for t in writes))

    def _submitted(self, at: int) -> int:
        """How many writes were submitted before the event."""
        return bisect.bisect_left(self._writes, at, key=lambda t: t.write.submitted)

    def _prefix(self, at: int) -> int:
        """How many chunks were submitted before the event."""
        count = self._submitted(at)
        return self._writes[count - 1].chunks.stop if count else 0

    @functools.cached_property
    def _all_durable(self) -> list[int]:
        """For each write, the event by which it and all before it are durable: those need not be searched."""
        return list(itertools.accumulate((t.durable for t in self._writes), max))

    def position_at(self, at: int) -> Position:
        """The position in the history of an event."""
        begun, acked, app_acks = (
            bisect.bisect_left(self._made[word], at) for word in ("begin", "ack", "app")
        )
        return Position(begun=self._given + begun, acked=self._given + acked, app_acks=app_acks)

    @functools.cached_property
    def _made(self) -> dict[str, list[int]]:
        """When marks were made, by their first word."""
        found: dict[str, list[int]] = {"begin": [], "ack": [], "app": []}
        for mark in self._times.marks:
            found.setdefault(mark.text.partition(" ")[0], []).append(mark.at)
        return found

    # --- states -------------------------------------------------------------------------------

    def position(self, state: CrashState) -> Position:
        """The position in the history of a state. Raises UsageError for one of no crash time."""
        return self.position_at(self.event(state))

    def name(self, crash_time: CrashTime, lost: Iterable[int]) -> CrashState:
        """The state of a crash time in which these chunks have not persisted, in its one short form."""
        return self._name(crash_time.entry, crash_time.at, lost)

    def _name(self, entry: int, at: int, lost: Iterable[int]) -> CrashState:
        losable, buried = self._losable(at)
        gone = set(lost) - buried
        less, only = self._parts(gone), self._parts(losable - gone)
        best = Persisted(only, only=True) if len(only) < len(less) else Persisted(less)
        return CrashState(entry, persisted=best)

    def cuts(self) -> list[CrashState]:
        """The states of all crash times in which all that was submitted has persisted, in order."""
        return [CrashState(entry, persisted=Persisted()) for entry, _ in self._cuts()]

    def lost(self, state: CrashState) -> frozenset[int]:
        """The chunks that a state has lost, of those that it could lose. Raises UsageError, see `on_disk`."""
        losable, _ = self._losable(self.event(state))
        return frozenset(losable.intersection(self.on_disk(state).dropped))

    def losing(self, state: CrashState, lost: Iterable[int]) -> CrashState:
        """A state of the same crash time that has lost these chunks and no others; not always a legal one."""
        return self._name(state.prefix, self.event(state), lost)

    def losable(self, state: CrashState) -> frozenset[int]:
        """The chunks that a cache may lose at the crash time of a state."""
        return frozenset(self._losable(self.event(state))[0])

    def durable(self, entry: int) -> int:
        """The event that makes a write durable; NEVER if none does."""
        return self._of[entry].durable if entry in self._of else NEVER

    def submitted(self, entry: int) -> int:
        """The event with which a write was sent."""
        return self._of[entry].write.submitted

    def _losable(self, at: int) -> tuple[set[int], set[int]]:
        """The chunks that a state's name may say are lost, and those that are in none of the states."""
        losable, buried, prefix = set(self._numbers_of(self._volatile(at))), set[int](), self._prefix(at)
        for place in self._places(at):
            persisted = self._durable_at(place, at)
            losable.update(place.open(prefix, persisted))
            buried |= place.buried(prefix, persisted)
        return losable - buried, buried

    def _parts(self, chosen: set[int]) -> tuple[Part, ...]:
        """These chunks, as whole writes where all of a write is chosen."""
        found: list[Part] = []
        for entry in sorted({self.chunks[n].entry for n in chosen}):
            chunks = self._of[entry].chunks
            of_it = [n - chunks.start for n in chunks if n in chosen]
            if len(of_it) == len(chunks):
                found.append(Part(entry))
            elif self.unit_sectors == 1:
                found += [Part(entry, sector=n) for n in of_it]
            else:
                found += [Part(entry, block=n) for n in of_it]
        return tuple(found)

    def on_disk(self, state: CrashState) -> CrashState:
        """The state as the disk takes it: a prefix of the chunks, less those that have not persisted, or that
        another one covers which was in flight with them.

        Raises UsageError for a state of no crash time, or one that no disk that honours flushes can be in.
        """
        at = self.event(state)
        losable, buried = self._losable(at)
        lost = self._named(state, losable | buried)
        if state.persisted is not None and state.persisted.only:
            lost = losable - lost
        lost |= buried
        self._need_legal(state, at, lost)
        return CrashState(self._prefix(at), tuple(sorted(lost)))

    def _named(self, state: CrashState, losable: set[int]) -> set[int]:
        """The chunks that a state's parts name."""
        found: set[int] = set()
        for part in state.persisted.parts if state.persisted else ():
            timed = self._of.get(part.entry)
            if timed is None or losable.isdisjoint(timed.chunks):
                raise UsageError(
                    f"{state}: entry {part.entry} is not a write that a cache could lose then", _SEE
                )
            number = part.block if part.block is not None else part.sector
            unit = 1 if part.sector is not None else BLOCK_SECTORS
            if number is not None and (unit != self.unit_sectors or number >= len(timed.chunks)):
                raise UsageError(f"{state}: entry {part.entry} has no part {part}", _SEE)
            chosen = timed.chunks if number is None else [timed.chunks.start + number]
            if not losable.issuperset(chosen):
                raise UsageError(f"{state}: {part} is not all something that a cache could lose then", _SEE)
            found.update(chosen)
        return found

    def _need_legal(self, state: CrashState, at: int, lost: set[int]) -> None:
        """Raises UsageError if data of a PREFLUSH write has persisted and something ahead of its flush has
        not, or nothing can cover what is durable.
        """
        volatile, prefix = self._volatile(at), self._prefix(at)
        covers = {n: place for place in self._places(at) for n in place.chunks}
        late = [t for t in volatile if _in_flight_behind_a_flush(t, at) and not lost.issuperset(t.chunks)]
        for later in late:
            for early in (t for t in volatile if is_ahead(t.write, later.write)):
                gone = lost.intersection(early.chunks)
                if any(n not in covers or not covers[n].covers(n, prefix, lost) for n in gone):
                    raise UsageError(
                        f"{state}: entry {later.write.entry} flushes the cache before its own data is "
                        f"written, so entry {early.write.entry} cannot be lost",
                        _SEE,
                    )
        for n in lost.intersection(covers):
            entry = self.chunks[n].entry
            if self._of[entry].durable < at and not covers[n].covers(n, prefix, lost):
                raise UsageError(
                    f"{state}: entry {entry} is durable, and nothing that is left was in flight with it", _SEE
                )

    def event(self, state: CrashState) -> int:
        """The event just before which the power fails. Raises UsageError for a state of no crash time."""
        if state.persisted is None:
            raise UsageError(f"{state} is a state of the log's order, not one by times", _SEE)
        if state.prefix == self._entries:
            return self._times.events
        at = self._events.get(state.prefix)
        if at is None:
            raise UsageError(f"{state}: the log has no entry {state.prefix} of which the time is known", _SEE)
        return at


def _in_flight_behind_a_flush(timed: _Timed, at: int) -> bool:
    return timed.write.preflush and timed.write.completed >= at


_SEE = "powercut log ls shows the entries of a log, with their times"


def is_ahead(early: TimedWrite, later: TimedWrite) -> bool:
    """Whether a flush that is submitted with `later` makes `early` durable."""
    return early.device == later.device and early.completed < later.submitted


_Flush: TypeAlias = tuple[int, int, int]
"""Its device, and when it was submitted and completed."""
Durable: TypeAlias = Callable[[TimedWrite], int]
"""The event by which a write is durable, or NEVER."""


def _readings(times: Times) -> tuple[Durable, Durable]:
    """By the reading that makes the most durable, and by the one that makes the least."""
    known: list[TimedFlush | TimedWrite] = [f for f in times.flushes if not f.of_any]
    known += [w for w in times.writes if w.preflush]
    devices = {w.device for w in times.writes}
    of_any = [(device, f.submitted, f.completed) for f in times.flushes if f.of_any for device in devices]
    most = _durability(times, [*((f.device, f.submitted, f.completed) for f in known), *of_any])
    return most, _durability(times, [(f.device, f.earliest, f.completed) for f in known])


def durability(times: Times) -> Durable:
    """By the reading that makes the most durable."""
    return _readings(times)[0]


def _durability(times: Times, flushes: Iterable[_Flush]) -> Durable:
    """`flushes`: with those ahead of data."""
    flushes = [*flushes]
    devices = {w.device for w in times.writes}
    first = {device: _first([(s, c) for d, s, c in flushes if d == device]) for device in devices}
    return lambda write: write.completed if write.fua else _flushed(*first[write.device], write)


def _first(flushes: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """When the flushes of one device were submitted, and the first completion of one from each on."""
    flushes.sort()
    first = [NEVER] * (len(flushes) + 1)
    for i in range(len(flushes) - 1, -1, -1):
        first[i] = min(first[i + 1], flushes[i][1])
    return [submitted for submitted, _ in flushes], first


def _flushed(submitted: list[int], first: list[int], write: TimedWrite) -> int:
    return first[bisect.bisect_right(submitted, write.completed)]


def _cut(entry: int, sector: int, sectors: int, unit: int) -> Iterator[Chunk]:
    end, number = sector + sectors, 0
    while sector < end:
        stop = min(end, (sector // unit + 1) * unit)
        yield Chunk(entry, number, sector, stop - sector)
        sector, number = stop, number + 1
