"""Which order of its calls a program relies on, and which fsync would give it. Pure.

A state that fails is reduced: what was lost comes back, and what was there goes, piece by piece, as long as
the check still says no. What then is lost has to persist before what then is there, or before what was
acknowledged. A sync is tried before it is named: it is put between the calls, and all states that are left
are gone through again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.host.text import one_line
from harness.rules.calls import Noted
from harness.rules.micro import Effect, Micro, Sort, Sync
from harness.rules.states import Legal, Partial, Stretch

Passes = Callable[[Partial, int], bool]
"""Whether the check says yes to a state, with so many acknowledgements."""
FOUND_MAX = 12
"""Vulnerabilities that are told of one program."""
TRIED_MAX = 40
"""Sets of syncs that are tried for one of them."""
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Remedy:
    """An fsync of `inode`, put behind call `after`; -1: before the first."""

    after: int
    inode: int

    def sync(self, effect: Effect) -> Sync:
        return effect.sync(self.after + _HALF, self.inode)


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """`state` fails, with `acks` acknowledgements: `missing` is lost, `present` is there. Without `present`,
    it fails because of what was acknowledged. `torn`: its last member has to persist whole. `base`: what was
    durable.
    """

    state: Partial
    acks: int
    missing: int
    present: int
    base: int

    def explains(self, state: Partial, acks: int) -> bool:
        """Whether a state fails for the same reason."""
        there = state.whole
        if self.base & ~there or acks < self.acks:
            return False
        if self.state.torn is not None:
            return state.torn is not None and state.last == self.state.last
        return not self.present & ~there and (not self.missing or bool(self.missing & ~there))


@dataclass(slots=True)
class Search:
    """Looks for the vulnerabilities of a program. `causes`: of each failing state, what explains it."""

    legal: Legal
    passes: Passes
    found: list[Vulnerability] = field(default_factory=list)
    causes: dict[Partial, Vulnerability] = field(default_factory=dict)

    @property
    def effect(self) -> Effect:
        return self.legal.effect

    def look(self, failed: Sequence[Partial]) -> list[Vulnerability]:
        """The vulnerabilities that explain these states; where there are too many, some have no cause."""
        for state in sorted(failed, key=self._losses):
            acks = self.legal.acks(state)
            cause = next((v for v in self.found if v.explains(state, acks)), None)
            if cause is None and len(self.found) < FOUND_MAX:
                cause = self._reduced(state, acks)
                self.found.append(cause)
            if cause is not None:
                self.causes[state] = cause
        return self.found

    def _losses(self, state: Partial) -> tuple[bool, float, int, int]:
        """What is lost whole is looked at before what is torn, which may fail for the same reason; and what
        fails before a sync, before what fails behind it, where the sync has made durable what had to come
        later.
        """
        stretch = self.legal.stretch_of(state)
        lost = stretch.asked & ~state.whole if stretch else 0
        end = stretch.end if stretch else 0.0
        return state.torn is not None, end, lost.bit_count(), state.persisted

    def _reduced(self, state: Partial, acks: int) -> Vulnerability:
        stretch = self.legal.stretch_of(state)
        assert stretch is not None  # noqa: S101 - only legal states are visited
        if state.torn is not None:
            needed = self._fewest_acks(state, acks)
            return Vulnerability(state, needed, 0, 1 << state.last, stretch.durable)
        state = self._with_more(state, stretch.asked, acks)
        missing = self._first_of(stretch.asked & ~state.persisted)
        needed = self._fewest_acks(state, acks)
        if missing and needed > self.effect.acks(min(m.call for m in self.effect.of(missing))):
            # Only what was acknowledged later can promise it.
            missing = self._with_rest_of_calls(missing, stretch.open)
            return Vulnerability(state, needed, missing, 0, stretch.durable)
        state = self._with_less(state, stretch, missing, acks)
        missing = self._with_rest_of_calls(missing, stretch.open & ~state.persisted)
        return Vulnerability(state, needed, missing, state.persisted & ~stretch.durable, stretch.durable)

    def _first_of(self, lost: int) -> int:
        """What of it is lost by itself, not because something that it needs is."""
        found = 0
        for m in self.effect.of(lost):
            found |= 0 if self.effect.needs[m.number] & lost else m.bit
        return found

    def _with_rest_of_calls(self, missing: int, others: int) -> int:
        """What is missing, with what else of `others` the same calls made."""
        calls = {m.call for m in self.effect.of(missing)}
        for m in self.effect.of(others):
            missing |= m.bit if m.call in calls else 0
        return missing

    def _with_more(self, state: Partial, asked: int, acks: int) -> Partial:
        """As much of what was lost comes back as can, latest first."""
        for m in reversed(list(self.effect.of(asked & ~state.persisted))):
            fuller = Partial(self.effect.with_needs(state.persisted | m.bit))
            if not self.passes(fuller, acks):
                state = fuller
        return state

    def _with_less(self, state: Partial, stretch: Stretch, missing: int, acks: int) -> Partial:
        """As much of what was there goes as can, without which what is lost still matters."""
        calls = {m.call for m in self.effect.of(missing)}
        for m in reversed(list(self.effect.of(state.persisted & ~stretch.durable))):
            if not state.persisted & m.bit:
                continue
            emptier = Partial(self.effect.without(state.persisted, m.bit))
            gone = state.persisted & ~emptier.persisted
            matters = m.call in calls or self.passes(Partial(self.effect.without(stretch.asked, gone)), acks)
            if not self.passes(emptier, acks) and matters:
                state = emptier
        return state

    def _fewest_acks(self, state: Partial, acks: int) -> int:
        """With how few acknowledgements it fails."""
        return next((few for few in range(acks) if not self.passes(state, few)), acks)

    # --- remedies -----------------------------------------------------------------------------

    def remedies(self, found: Vulnerability) -> tuple[Remedy, ...]:
        """The smallest set of syncs, of those that are tried, with which it is gone; empty if none is."""
        single = list(dict.fromkeys(self._single(found)))
        sets = itertools.chain(((r,) for r in single), itertools.combinations(single, 2))
        for tried in itertools.islice(sets, TRIED_MAX):
            if self.is_gone(found, tried):
                return tried
        return tuple(single) if single and self.is_gone(found, single) else ()

    def is_gone(self, found: Vulnerability, remedies: Sequence[Remedy]) -> bool:
        """Whether no state that is left with these syncs fails for its reason."""
        legal = Legal(self.effect, tuple(r.sync(self.effect) for r in remedies))
        for state in legal.listed().states:
            acks = legal.acks(state)
            if found.explains(state, acks) and not self.passes(state, acks):
                return False
        return True

    def failing_with(self, remedies: Sequence[Remedy]) -> tuple[int, int]:
        """With these syncs: how many states fail, of how many."""
        legal = Legal(self.effect, tuple(r.sync(self.effect) for r in remedies))
        states = legal.listed().states
        return sum(not self.passes(s, legal.acks(s)) for s in states), len(states)

    def _single(self, found: Vulnerability) -> Iterator[Remedy]:
        for m in self.effect.of(found.missing):
            of = [m.inode] if m.sort is not Sort.NAME else self.effect.directories_of(m)
            last = max(n.call for n in self.effect.of(found.missing))
            for inode in of:
                yield Remedy(last, inode)
                if m.call != last:
                    yield Remedy(m.call, inode)
            if m.sort is Sort.NAME and self.effect.rules.fsync_names.holds:
                yield Remedy(last, m.inode)

    # --- words --------------------------------------------------------------------------------

    def headline(self, found: Vulnerability) -> str:
        """What has to be so, in a sentence."""
        calls = self.effect.notes.calls
        if found.state.torn is not None:
            return f"`{_text(calls[self.effect.micros[found.state.last].call])}` must not be torn"
        lost = self.words(found.missing)
        if not found.present:
            if found.acks == 0:
                return f"without {lost}, what is durable already is refused"
            return f"{lost} must persist before `{self.ack(found.acks)}` is acknowledged"
        if not found.missing:
            return f"a power cut after {self.words(found.present)} is refused, although nothing is lost"
        first = self._calls(found.missing)
        if set(first) & set(self._calls(found.present)):
            text = _text(calls[first[0]])
            return f"`{text}` must not be torn: {lost} is lost, the rest is there"
        return f"{lost} must persist before {self.words(found.present)}"

    def signature(self, found: Vulnerability) -> str:
        """The same for the same vulnerability in another run: the headline without the numbers of calls."""
        return one_line(self.headline(found))

    def ack(self, number: int) -> str:
        """The text of an acknowledgement, counted from 1."""
        acks = self.effect.notes.acks
        return acks[number - 1].text if 0 < number <= len(acks) else ""

    def words(self, state: int) -> str:
        """What calls did, in words: the last two of them."""
        by_call: dict[int, list[Micro]] = {}
        for m in self.effect.of(state):
            by_call.setdefault(m.call, []).append(m)
        parts = [self._what(micros) for micros in by_call.values()]
        return " and ".join(parts[-2:]) if parts else "nothing"

    def _what(self, micros: Sequence[Micro]) -> str:
        text = f"`{_text(self.effect.notes.calls[micros[0].call])}`"
        path = self.effect.paths.get(micros[0].inode, "?")
        sorts = {m.sort for m in micros}
        if Sort.DATA in sorts:
            return f"the data of {text}"
        if Sort.SIZE in sorts:
            return f"the size of {path} after {text}"
        if Sort.ATTRIBUTES in sorts:
            return f"the attributes of {path} after {text}"
        return f"the change of names by {text}"

    def _calls(self, state: int) -> list[int]:
        return sorted({m.call for m in self.effect.of(state)})

    def remedy_words(self, remedy: Remedy) -> str:
        """Which sync, and where."""
        made = self.effect.made[remedy.inode]
        what = "the directory " if made.kind == "directory" else ""
        call = self.effect.notes.calls[remedy.after]
        path = self.effect.paths.get(remedy.inode, "?")
        return f"fsync of {what}`{path}` after call {remedy.after}, `{_text(call)}`"

    def named(self, found: Vulnerability) -> str:
        """Its calls, each with its number and thread."""
        numbers = self._calls(found.missing | found.present)
        calls = self.effect.notes.calls
        return "; ".join(f"call {n} of thread {calls[n].thread}: {_text(calls[n])}" for n in numbers[:8])


def _text(call: Noted) -> str:
    return call.text or f"{call.word}({call.path or call.inode})"


def without_duplicates(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Each once, in the order of the calls."""
    return tuple(sorted(dict.fromkeys(remedies), key=lambda r: (r.after, r.inode)))


def smallest(search: Search, remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """A set without which nothing can be left out: with it, no more states fail than with all of them."""
    kept = list(without_duplicates(remedies))
    fewest = search.failing_with(kept)[0]
    for one in tuple(kept):
        fewer = [r for r in kept if r != one]
        if fewer and search.failing_with(fewer)[0] <= fewest:
            kept = fewer
    return tuple(kept)
