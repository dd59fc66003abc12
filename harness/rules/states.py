"""The states that the rules leave possible: which micro-operations have persisted when the power fails.
Pure.

Between two syncs that make something durable, any set of what was asked for may have persisted, beside what
is durable, as long as each member has what it needs. Where these sets are few, all are listed. Where they
are many: all prefixes; each micro-operation lost alone, at the end and behind each later one; each one there
alone; each pair lost; and some sets drawn at random.

One block of data of a state may be torn besides: its first sectors are there, or its last ones, whatever was
called or is durable behind it. Where very few sets are possible, each block of each is torn; where few are,
each of each prefix. Where they are many, each is torn where all else is there, and the last one of each
prefix; and wherever a block alone is lost behind a later one, up to a number of states: these behind the
first sector and in the middle alone.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.model import CrashState, Part, Persisted
from harness.rules.micro import Effect, Micro, Sort, Sync

EVERY_MAX = 12
"""Micro-operations between two syncs of which every set is listed."""
TORN_MAX = 6
"""Of which blocks are torn beside every set."""
LISTED_MAX = 4000
"""States of one such stretch, where not every set is listed."""
DRAWN = 200
"""Of these, at most, drawn at random."""
TORN_LISTED_MAX = 1000
"""States of such a stretch with a torn block, where they are more than those that are listed in any case."""


@dataclass(frozen=True, slots=True)
class Tear:
    """Of the micro-operation `number`, a block of data, a part persisted: what is before `cut`, in bytes from
    the begin of the sector in which it begins; or, if it is the `end` of the block, what is behind that.
    """

    number: int
    cut: int
    end: bool = False


@dataclass(frozen=True, slots=True)
class Partial:
    """A state: the set of what persisted. `torn`: what of it persisted in part alone."""

    persisted: int
    torn: Tear | None = None

    @property
    def last(self) -> int:
        """The number of the micro-operation that is torn, or else of its last; -1 if nothing persisted."""
        return self.torn.number if self.torn else self.persisted.bit_length() - 1

    @property
    def whole(self) -> int:
        """What persisted whole."""
        return self.persisted & ~(1 << self.torn.number) if self.torn else self.persisted

    @property
    def untorn(self) -> tuple[Partial, Partial]:
        """Of a torn one: with the torn member whole, and without it. Both are left possible where it is."""
        return Partial(self.persisted), Partial(self.whole)

    def named(self, effect: Effect) -> CrashState:
        """The state as crash points are named: entries are micro-operations. `@7-2/t3` has of the last one
        its first 3 sectors; any other tear is told by the sectors that are lost, `@t7-2,4/0,4/1`.
        """
        prefix, sector, torn = self.persisted.bit_length(), effect.rules.torn_bytes, self.torn
        lost = [n for n in range(prefix) if not self.persisted >> n & 1]
        if torn is None or (torn.number == prefix - 1 and not torn.end):
            return CrashState(prefix, tuple(lost), torn.cut // sector if torn else None)
        cut, every = torn.cut // sector, len(sectors_of(effect, effect.micros[torn.number])) + 1
        gone = range(cut) if torn.end else range(cut, every)
        parts = [*map(Part, lost), *(Part(torn.number, sector=n) for n in gone)]
        return CrashState(prefix, persisted=Persisted(tuple(sorted(parts, key=lambda p: p.entry))))

    @classmethod
    def of(cls, state: CrashState, effect: Effect) -> Partial:
        """Inverse of `named`. Of a name that `named` gives to no state, some state."""
        persisted, sector = (1 << state.prefix) - 1, effect.rules.torn_bytes
        parts = state.persisted.parts if state.persisted else ()
        for n in (*state.dropped, *(p.entry for p in parts if p.sector is None)):
            persisted &= ~(1 << n)
        if state.torn_sectors is not None:
            return cls(persisted, Tear(max(0, persisted.bit_length() - 1), state.torn_sectors * sector))
        gone = [(p.entry, p.sector) for p in parts if p.sector is not None]
        if not gone or not persisted >> gone[0][0] & 1:
            return cls(persisted)
        (number, first), (_, last) = gone[0], gone[-1]
        return cls(persisted, Tear(number, first * sector or (last + 1) * sector, end=not first))


@dataclass(frozen=True, slots=True)
class Stretch:
    """The time from one sync to the next. `durable`, `asked`: the micro-operations that are durable, and
    those asked for by its `end`.
    """

    durable: int
    asked: int
    end: float

    @property
    def open(self) -> int:
        """What may or may not have persisted."""
        return self.asked & ~self.durable

    def allows(self, state: Partial) -> bool:
        """Whether a state may be left in it, as far as syncs tell."""
        return not self.durable & ~state.whole and not state.persisted & ~self.asked


@dataclass(slots=True)
class Legal:
    """The states of a program under the rules. `more`: syncs that are tried besides its own."""

    effect: Effect
    more: tuple[Sync, ...] = ()
    stretches: list[Stretch] = field(default_factory=list)

    def __post_init__(self) -> None:
        durable = 0
        for sync in sorted((*self.effect.syncs, *self.more), key=lambda s: s.time):
            if sync.covers & ~durable:
                self._add(durable, sync.time)
                durable |= sync.covers
        self._add(durable, float(len(self.effect.notes.calls)))

    def _add(self, durable: int, end: float) -> None:
        self.stretches.append(Stretch(durable, self.effect.issued(end), end))

    def until(self, end: float) -> Legal:
        """The states of the same program up to a time, as if it had ended then."""
        made = Legal(self.effect, self.more)
        before = [s for s in self.stretches if s.end < end]
        last = self.stretches[min(len(before), len(self.stretches) - 1)]
        made.stretches = [*before, Stretch(last.durable, self.effect.issued(end), end)]
        return made

    def stretch_of(self, state: Partial) -> Stretch | None:
        """The last stretch in which a state may be left; None if it may in none. From one to the next more is
        durable, and more was asked for.
        """
        place = bisect.bisect(self.stretches, 0, key=lambda s: bool(s.durable & ~state.whole))
        return last if (last := self.stretches[place - 1]).allows(state) else None

    def stretches_of(self, state: Partial) -> Iterator[Stretch]:
        """Those in which a state may be left, in order."""
        return (s for s in self.stretches if s.allows(state))

    def has(self, state: Partial) -> bool:
        """Whether the rules leave a state possible."""
        holds = self.effect.with_needs(state.persisted) == state.persisted and self._may_be_torn(state)
        return holds and self.stretch_of(state) is not None

    def _may_be_torn(self, state: Partial) -> bool:
        """Whether what it says to be torn, if anything, is a block of data of which that is a part."""
        if (torn := state.torn) is None:
            return True
        if not state.persisted >> torn.number & 1:
            return False
        micro = self.effect.micros[torn.number]
        if not may_be_torn(self.effect, micro, state.persisted):
            return False
        return 0 < torn.cut - micro.offset % self.effect.rules.torn_bytes < micro.length

    def acks(self, state: Partial) -> int:
        """The most acknowledgements that may have been made when a state was left."""
        found = self.stretch_of(state)
        return self.effect.acks(found.end) if found else 0

    def listed(self) -> Listed:
        """The states to visit."""
        ends = [Partial(end) for s in self.stretches for end in (s.durable, s.asked)]
        every = all(s.open.bit_count() <= EVERY_MAX for s in self.stretches)
        torn_left = sum(_torn_left(self.effect, s) for s in self.stretches) if every else 0
        return Listed(self, tuple(dict.fromkeys(ends)), every, torn_left)


@dataclass(frozen=True, slots=True)
class Listed:
    """The states to visit, which are made one after the other: a program of thousands of calls has hundreds
    of thousands. First the `ends`, all lost and all kept in each stretch; then the other prefixes and what
    else each has, in turn, so that a budget leaves no stretch out; those before the first acknowledgement
    last. `every_set`: those of whole micro-operations are all; then `torn_left` states with a torn block are
    left out, or some fewer.
    """

    legal: Legal
    ends: tuple[Partial, ...]
    every_set: bool
    torn_left: int

    @property
    def exhaustive(self) -> bool:
        """Whether these are all states that the rules leave possible."""
        return self.every_set and not self.torn_left

    def __iter__(self) -> Iterator[Partial]:
        """Each once."""
        seen = set(self.ends)
        yield from self.ends
        effect = self.legal.effect
        promised: list[Iterator[Partial]] = []
        before: list[Iterator[Partial]] = []
        for stretch in self.legal.stretches:
            (promised if effect.acks(stretch.end) else before).append(_others(effect, stretch))
        for state in itertools.chain(_in_turn(promised), _in_turn(before)):
            if state not in seen:
                seen.add(state)
                yield state

    @property
    def singles(self) -> bool:
        """Whether each micro-operation lost alone, and there alone, is among them."""
        return all(2 * s.open.bit_count() <= LISTED_MAX for s in self.legal.stretches)

    @property
    def at_most(self) -> int:
        """No more than so many states are listed."""
        return sum(_at_most(stretch.open.bit_count()) for stretch in self.legal.stretches)


def _at_most(open_: int) -> int:
    """Of a stretch with so many open micro-operations: sets, prefixes, and torn blocks."""
    sets = 1 << open_ if open_ <= EVERY_MAX else open_ + 1 + LISTED_MAX
    return sets + _torn_at_most(open_)


def _torn_at_most(open_: int) -> int:
    """Of these, with a torn block. Of many, in any case each where all else is there, and the last one of
    each prefix.
    """
    if open_ <= EVERY_MAX:
        beside = open_ << open_ >> 1 if open_ <= TORN_MAX else open_ * (open_ + 1) // 2
        return beside * 2 * _CUTS
    return max(TORN_LISTED_MAX, 2 * open_ * 2 * 2)


_CUTS = 7
"""Sectors behind which a block of 4 KiB may be torn."""


def _torn_left(effect: Effect, stretch: Stretch) -> int:
    """How many states with a torn block are not listed, at most: beside sets that are no prefixes."""
    if (open_ := stretch.open.bit_count()) <= TORN_MAX:
        return 0
    left = 0
    for n, micro in enumerate(effect.of(stretch.open)):
        if may_be_torn(effect, micro, effect.with_needs(micro.bit) | stretch.durable):
            left += 2 * len(sectors_of(effect, micro)) * ((1 << open_ - 1) - (open_ - n))
    return left


def _in_turn(lists: Iterable[Iterator[Partial]]) -> Iterator[Partial]:
    """The first of each, then the second, until all have ended."""
    waiting = deque(lists)
    while waiting:
        some = waiting.popleft()
        if (state := next(some, None)) is not None:
            yield state
            waiting.append(some)


def _others(effect: Effect, stretch: Stretch) -> Iterator[Partial]:
    """The states of a stretch, but for its ends: prefixes, torn blocks and other sets in turn."""
    prefixes = itertools.islice(_prefixes(effect, stretch), 1, stretch.open.bit_count())
    return _in_turn((map(Partial, prefixes), _torn(effect, stretch), _besides(effect, stretch)))


def _prefixes(effect: Effect, stretch: Stretch) -> Iterator[int]:
    """With what each needs, which may be called later: data that comes with a size."""
    every = (effect.with_needs(m.bit) for m in effect.of(stretch.open))
    return itertools.accumulate(every, int.__or__, initial=stretch.durable)


def _torn(effect: Effect, stretch: Stretch) -> Iterator[Partial]:
    """The states of a stretch with a torn block: at least where all else is there."""
    open_ = list(effect.of(stretch.open))
    bits = [m.bit for m in open_]
    beside: Iterator[tuple[Micro, int]]
    if each := len(open_) <= EVERY_MAX:
        some = _every(effect, stretch, bits) if len(open_) <= TORN_MAX else _prefixes(effect, stretch)
        beside = ((m, state) for state in some for m in open_ if state & m.bit)
    else:
        last = zip(open_, itertools.islice(_prefixes(effect, stretch), 1, None), strict=True)
        ends = ((m, end) for end in _ends(effect, stretch, bits) for m in open_ if end & m.bit)
        beside = itertools.chain(((m, stretch.asked) for m in open_), last, ends)
    states = (torn for m, state in beside for torn in torn_at(effect, m, state, each=each))
    return itertools.islice(states, _torn_at_most(len(open_)))


def _ends(effect: Effect, stretch: Stretch, bits: Sequence[int]) -> Iterator[int]:
    """The prefixes of a stretch behind which each is lost alone."""
    first, step = (1, 1) if len(bits) ** 2 <= 2 * LISTED_MAX else (0, max(1, len(bits) // 20))
    return itertools.islice(_prefixes(effect, stretch), first, None, step)


def _besides(effect: Effect, stretch: Stretch) -> Iterator[Partial]:
    """The states of a stretch that are no prefixes."""
    open_ = [m.bit for m in effect.of(stretch.open)]
    if len(open_) <= EVERY_MAX:
        yield from map(Partial, _every(effect, stretch, open_))
        return
    # Only as many as are visited are made: thousands of micro-operations have millions of pairs.
    sets: set[int] = set()
    for state in _some(effect, stretch, open_):
        if state not in sets:
            yield Partial(state)
        sets.add(state)
        if len(sets) == LISTED_MAX:
            return


def may_be_torn(effect: Effect, micro: Micro, state: int) -> bool:
    """Whether only a part of it may have persisted: of a block of data that nothing needs which persisted,
    and that is not written as a whole, through a journal.
    """
    if micro.sort is not Sort.DATA or (effect.rules.size_with_data and not micro.stored):
        return False
    return effect.without(state, micro.bit) == state & ~micro.bit


def torn_at(effect: Effect, micro: Micro, state: int, *, each: bool) -> Iterator[Partial]:
    """A state with one of its micro-operations torn, if that may be: its begin is there, or its end. `each`:
    behind every sector; else behind the first, and the one in the middle.
    """
    if may_be_torn(effect, micro, state):
        cuts = sectors_of(effect, micro)
        for cut in cuts if each else (*cuts[:1], *cuts[3:4]):
            yield from (Partial(state, Tear(micro.number, cut, end)) for end in (False, True))


def sectors_of(effect: Effect, micro: Micro) -> range:
    """Where a block of data may be torn: bytes from the begin of the sector in which it begins."""
    sector = effect.rules.torn_bytes
    return range(sector, micro.offset % sector + micro.length, sector)


def _every(effect: Effect, stretch: Stretch, bits: Sequence[int]) -> Iterator[int]:
    """Each set whose members have what they need, once."""
    states = {stretch.durable: None}
    yield stretch.durable
    for bit in bits:
        needed = effect.with_needs(bit)
        more = dict.fromkeys(state | needed for state in states)
        yield from (state for state in more if state not in states)
        states |= more


def _some(effect: Effect, stretch: Stretch, bits: Sequence[int]) -> Iterator[int]:
    durable = stretch.durable
    yield from (effect.without(stretch.asked, bit) for bit in bits)
    yield from (effect.with_needs(durable | bit) for bit in bits)
    ends = _ends(effect, stretch, bits)
    yield from (effect.without(end, bit) for end in ends for bit in bits if end & bit)
    drawing = random.Random(len(bits))  # noqa: S311 - which states are drawn is no secret, and has to be the same again
    for _ in range(DRAWN):
        lost = 0
        for bit in bits:
            lost |= bit if drawing.random() < 0.5 else 0
        yield effect.without(stretch.asked, lost)
    yield from (effect.without(stretch.asked, pair) for pair in _pairs(effect, stretch.open))


def _pairs(effect: Effect, open_: int) -> Iterator[int]:
    """Those of which neither goes with the other: else the state is that of one loss. Of thousands of names
    in order, each goes with any before it.
    """
    for m in effect.of(open_):
        others = open_ & ~((m.bit << 1) - 1) & ~effect.needing(m) & ~effect.needs[m.number]
        yield from (m.bit | other.bit for other in effect.of(others))
