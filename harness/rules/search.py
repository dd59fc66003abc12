"""The vulnerabilities of a program, each with what would mend it, until no state fails. Pure but for the
check that it asks.

A vulnerability explains the states in which what it misses is lost. One that can be mended explains besides
those that no longer fail, or are no longer possible, with its syncs. A state that is left with the syncs
found so far is looked at with these in place: else their reasons may take the place of its own. With the
syncs of all, the states that are left are gone through again, and what still fails is looked at in its turn.
In the end, each is told without the syncs of others: what these make durable may be a part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from harness.rules.micro import Effect, Micro
from harness.rules.remedies import Remedy, every_one, everywhere, tried
from harness.rules.states import Legal, Partial
from harness.rules.vulnerabilities import Reducer, Vulnerability
from harness.rules.words import Words, text_of, without_numbers

FOUND_MAX = 12
"""Vulnerabilities that are told of one program."""
TRIED_MAX = 40
"""Sets of syncs that are tried for one of them."""
ROUNDS_MAX = 4
"""How often what is left with all syncs is looked at."""
LATE_MAX = 64
"""Checks for the first cause, once the time is up."""
_SINGLY_MAX = 12
"""Syncs of which each is left out in its turn."""


class Check(Protocol):
    """The program's check."""

    def passes(self, state: Partial, acks: int) -> bool:
        """Whether it says yes to a state, with so many acknowledgements."""

    def said(self, state: Partial, acks: int) -> str:
        """What it says of such a state, without numbers."""

    def ask(self, states: Iterable[tuple[Partial, int]]) -> None:
        """Ask it about many at once: `passes` will be called with these."""

    @property
    def at_once(self) -> int:
        """About how many to ask it at once: what follows the first failing one may be spared."""

    @property
    def is_late(self) -> bool:
        """Whether it may be asked no more than what is needed to end."""

    @property
    def is_over(self) -> bool:
        """Whether that is for the time of the run."""


class _TimeUp(Exception):
    """A cause was not found in time."""


@dataclass(slots=True)
class Kind:
    """Vulnerabilities that differ in numbers alone. `remedies`: with which they are gone; empty if nothing
    that was tried helps. `is_tried`: whether time was left to try all that may help. `states`: that fail for
    them.
    """

    found: Vulnerability
    headline: str
    remedies: tuple[Remedy, ...] = ()
    is_tried: bool = True
    states: list[Partial] = field(default_factory=list)


@dataclass(slots=True)
class Search:
    """Looks for the vulnerabilities of a program. `rest`: failing states that none explains."""

    legal: Legal
    check: Check
    kinds: dict[str, Kind] = field(default_factory=dict)
    rest: list[Partial] = field(default_factory=list)
    words: Words = field(init=False)
    _shapes: list[str] = field(init=False)
    _micros: dict[int, int] = field(default_factory=dict)
    _late: int = 0

    def __post_init__(self) -> None:
        self.words = Words(self.effect)
        self._shapes = [without_numbers(text_of(call)) for call in self.effect.notes.calls]
        for m in self.effect.micros:
            self._micros[m.call] = self._micros.get(m.call, 0) | m.bit

    @property
    def effect(self) -> Effect:
        return self.legal.effect

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """All that help."""
        every = dict.fromkeys(r for kind in self.kinds.values() for r in kind.remedies)
        return tuple(sorted(every, key=lambda r: (r.after, r.inode)))

    def look(self, failed: Sequence[Partial]) -> list[Kind]:
        """What explains these states, and those that fail once that is mended."""
        self.rest = self._explain(self.legal, failed)
        for _ in range(ROUNDS_MAX):
            before = self.remedies
            if not before or self.check.is_late:
                break
            self._look_again(self._with(before))
            legal = self._with(self.remedies)
            left = [s for s in self._failing(legal) if not self._known(legal, s)]
            if not left:
                break
            self._explain(legal, left)
            if self.remedies == before:
                break
        self._tell_alone()
        return list(self.kinds.values())

    def _tell_alone(self) -> None:
        """Tell each that was found with syncs of others in place as it is with the program's own alone."""
        told = [(kind, self._alone(kind)) for kind in self.kinds.values()]
        self.kinds = {}
        for kind, found in told:
            kind.found, kind.headline = found, self.words.headline(found)
            holder = self.kinds.setdefault(without_numbers(kind.headline), kind)
            if holder is not kind:
                holder.states = list(dict.fromkeys((*holder.states, *kind.states)))
                holder.remedies = tuple(dict.fromkeys((*holder.remedies, *kind.remedies)))

    def _alone(self, kind: Kind) -> Vulnerability:
        """A cause where what syncs of others made durable may be a part of it: as it was found, if another
        reason takes its place there, or if the time is up.
        """
        before, own = kind.found, self.legal.until(kind.found.end).stretch_of(kind.found.state)
        if own is None or not before.base & ~own.durable:
            return before
        try:
            found = self._cause(self.legal.until(before.end), before.state, before.acks)
        except _TimeUp:
            return replace(before, mended=True)
        if (found.missing, found.present) == (before.missing, before.present):
            return found
        others = (k.found for k in self.kinds.values() if k is not kind)
        is_another = any(other.explains(found.state, found.acks) for other in others)
        is_another |= bool(before.missing and (not found.missing or found.missing & ~before.missing))
        return replace(before, mended=True) if is_another else found

    def _look_again(self, mended: Legal) -> None:
        """Look once more at what nothing mends, now that there are syncs for the rest: its own may be one of
        several that lack, or its reason that of another.
        """
        for name, kind in [(name, kind) for name, kind in self.kinds.items() if not kind.remedies]:
            if self.is_gone(mended, kind.found, ()):
                kind.remedies = self._fewest(self.legal, kind.found, self.remedies)
            left = [s for s in kind.states if mended.has(s) and not self.check.passes(s, mended.acks(s))]
            if kind.remedies or not left:
                continue
            del self.kinds[name]
            before = {other: len(k.states) for other, k in self.kinds.items()}
            self._explain(mended, left)
            found = (k for other, k in self.kinds.items() if len(k.states) != before.get(other))
            holder = next(found, None) or self.kinds.setdefault(name, kind)
            holder.states = list(dict.fromkeys((*holder.states, *kind.states)))

    def _explain(self, legal: Legal, failed: Sequence[Partial]) -> list[Partial]:
        """Find what explains these states. Returns those of which nothing does."""
        reducer = Reducer(legal, self._passes)
        states = reducer.simplest_first(failed)
        while states and len(self.kinds) < FOUND_MAX and not (self.kinds and self.check.is_late):
            first = states[0]
            mended = self._with(self.remedies, legal)
            fails = mended.has(first) and not self.check.passes(first, mended.acks(first))
            within = mended if fails else legal
            try:
                found = self._cause(within, first, within.acks(first))
            except _TimeUp:
                break
            kind = self._kind_of(within, found)
            # What the check says is told beside the cause: a state of which it says something else has one of
            # its own.
            alike = self.check.said(first, legal.acks(first))
            explained = self._explained(legal, kind, found, states)
            mine = {first, *(s for s in explained if self.check.said(s, legal.acks(s)) == alike)}
            kind.states += [s for s in states if s in mine]
            states = [s for s in states if s not in mine]
        return states

    def _cause(self, legal: Legal, state: Partial, acks: int) -> Vulnerability:
        """Why a state fails with so many acknowledgements. What the check says of it must be said of the
        cause as well: on the way, another reason may have taken the place of the first. Raises _TimeUp.
        """
        said = self.check.said(state, acks)
        found = Reducer(legal, self._passes).reduced(state, acks)
        if self.check.said(found.state, found.acks) == said:
            return found

        def passes(other: Partial, given: int) -> bool:
            return self._passes(other, given) or self.check.said(other, given) != said

        return Reducer(legal, passes, self._passes).reduced(state, acks)

    def _passes(self, state: Partial, acks: int) -> bool:
        """What the check says of a state on the way to a cause. Raises _TimeUp."""
        self._late += self.check.is_late
        if self._late > LATE_MAX:
            raise _TimeUp
        return self.check.passes(state, acks)

    def _kind_of(self, legal: Legal, found: Vulnerability) -> Kind:
        headline = self.words.headline(found)
        kind = self.kinds.setdefault(without_numbers(headline), Kind(found, headline))
        remedies = self._helping(legal, kind, found)
        kind.remedies = tuple(dict.fromkeys((*kind.remedies, *remedies)))
        return kind

    def _helping(self, legal: Legal, kind: Kind, found: Vulnerability) -> tuple[Remedy, ...]:
        """The smallest set of syncs, of those that are tried, with which it is gone, for all calls like its
        own; empty if none is.
        """
        every = every_one(self.effect, found)
        some = every if every and self.is_gone(legal, found, every) else ()
        if len(some) > 1:
            sets = itertools.islice(tried(self.effect, found), TRIED_MAX)
            fewer = next((few for few in sets if self.is_gone(legal, found, few)), None)
            some = fewer or self._fewest(legal, found, some)
        if self.check.is_late:
            kind.is_tried = False
            return ()
        return everywhere(self.effect, found, some, self._shapes)

    def _fewest(self, legal: Legal, found: Vulnerability, enough: Sequence[Remedy]) -> tuple[Remedy, ...]:
        """Of syncs with which it is gone, a set of which none can be left out; all, if they are many."""
        kept = tuple(enough)
        for remedy in enough if len(enough) <= TRIED_MAX else ():
            fewer = tuple(r for r in kept if r != remedy)
            kept = fewer if self.is_gone(legal, found, fewer) else kept
        return kept

    def is_gone(self, legal: Legal, found: Vulnerability, remedies: Sequence[Remedy]) -> bool:
        """Whether no state that is left with these syncs fails for its reason; False if there was no time to
        ask of all.
        """
        left = self._with(remedies, legal)
        asked = ((s, acks) for s, acks in self._listed(left) if found.explains(s, acks))
        return all(passed for _, passed in self._answers(asked)) and not self.check.is_late

    def _listed(self, legal: Legal) -> Iterator[tuple[Partial, int]]:
        """The states, each with its acknowledgements, as far as there is time."""
        for state in itertools.takewhile(lambda _: not self.check.is_late, legal.listed()):
            yield state, legal.acks(state)

    def _answers(self, asked: Iterator[tuple[Partial, int]]) -> Iterator[tuple[Partial, bool]]:
        """Whether the check passes each, as far as there is time for it."""
        while some := list(itertools.islice(asked, self.check.at_once)):
            if self.check.is_late:
                return
            self.check.ask(some)
            yield from ((s, self.check.passes(s, acks)) for s, acks in some)

    def _answers_of(self, legal: Legal) -> Iterator[tuple[Partial, bool]]:
        return self._answers(self._listed(legal))

    def _explained(
        self, legal: Legal, kind: Kind, found: Vulnerability, states: Sequence[Partial]
    ) -> Iterable[Partial]:
        mine = {s for s in states if found.explains(s, legal.acks(s))}
        if not kind.remedies:
            mine |= {s for s in states if self._fails_alike(legal, found, s)}
        yield from mine
        yield from (s for s in states if s.torn is not None and not mine.isdisjoint(s.untorn))
        if not kind.remedies:
            return
        mended = self._with(kind.remedies, legal)
        yield from (s for s in states if not mended.has(s))
        asked = [(s, mended.acks(s)) for s in states if mended.has(s)]
        fewer = [(s, acks) for s, acks in asked if acks < legal.acks(s)]
        yield from (s for s, passed in self._answers(iter(fewer)) if passed)

    def _fails_alike(self, legal: Legal, found: Vulnerability, state: Partial) -> bool:
        """Whether of a call like one of those that matter the same is lost, and the same is there."""
        if found.state.torn is not None:
            return state.torn is not None and self._shape(state.last) == self._shape(found.state.last)
        stretch = legal.stretch_of(state)
        if stretch is None or state.torn is not None or not found.missing:
            return False
        first = next(iter(self.effect.of(found.missing)))
        alike = [m for m in self.effect.of(stretch.asked) if self._shapes[m.call] == self._shapes[first.call]]
        if not any(m.call == first.call for m in self.effect.of(found.present)):
            return any(m.sort is first.sort and not state.persisted & m.bit for m in alike)
        return any(self._is_torn(m, state) for m in alike)

    def _shape(self, number: int) -> str:
        return self._shapes[self.effect.micros[number].call]

    def _is_torn(self, micro: Micro, state: Partial) -> bool:
        own = self._micros[micro.call]
        return bool(own & state.persisted) and bool(own & ~state.persisted)

    def _known(self, legal: Legal, state: Partial) -> bool:
        """Whether what cannot be mended explains a state."""
        unmended = (kind.found for kind in self.kinds.values() if not kind.remedies)
        acks = legal.acks(state)
        same = (state,) if state.torn is None else (state, *state.untorn)
        return any(
            v.explains(s, acks) or self._fails_alike(legal, v, s)
            for v in unmended
            for s in same
            if s == state or not self.check.passes(s, acks)
        )

    def _with(self, remedies: Iterable[Remedy], legal: Legal | None = None) -> Legal:
        more = tuple(r.sync(self.effect) for r in remedies)
        return Legal(self.effect, (*(legal or self.legal).more, *more))

    def _failing(self, legal: Legal) -> list[Partial]:
        return [s for s, passed in self._answers_of(legal) if not passed]

    def failing_with(self, remedies: Iterable[Remedy]) -> tuple[int, int]:
        """With these syncs: how many states fail, of how many that there was time to look at."""
        passes = [passed for _, passed in self._answers_of(self._with(remedies))]
        return passes.count(False), len(passes)

    def lists_all(self, remedies: Iterable[Remedy]) -> bool:
        """Whether the states with these syncs are few enough that all are listed."""
        return self._with(remedies).listed().exhaustive

    def smallest(self) -> tuple[Remedy, ...]:
        """Of all that help, a set without which nothing can be left out: with it, no more states fail than
        with all of them.
        """
        kept = self.remedies
        fewest, _ = self.failing_with(kept)
        parts = [kind.remedies for kind in self.kinds.values()]
        if len(kept) <= _SINGLY_MAX:
            parts += [(remedy,) for remedy in kept]
        for part in parts:
            fewer = tuple(r for r in kept if r not in part)
            if not fewer or fewer == kept:
                continue
            failing, _ = self.failing_with(fewer)
            if failing <= fewest and not self.check.is_late:
                kept = fewer
        return kept
