"""Minimises a failing crash state over its writes: the fewest lost, at the earliest time, that still fail the
same way, and the control, a state that differs least and does not.

States are visited through `Visits`; all else is pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.findings.ddmin import ddmin
from harness.grouping import by_key
from harness.model import CrashState
from harness.states.legal import LegalStates

VISITS = 120
"""States recovered for one finding at most: some 10 s at native speed."""
_EARLIER = 30
_LATER = 20
_BEFORE = 3
_TURNING = 16
_TAKEN = 40
"""Visits for what a later control takes: what else is asked comes first."""


@dataclass(frozen=True, slots=True)
class Minimal:
    """`state`: has lost `lost`, whole writes by their entries, and fails the same way; with any one of them
    present it does not. `control`: None where none was found; `cleared`: the entries that are on its platter
    and not on the state's; `without`: those that are on the state's and not on its. `complete`: no
    search but that of `needed` was cut short. `turning`: entries on the state's platter; a state that lacks
    one of them as well does not fail or, if there is no such entry, a few of several without all of which it
    does not.
    `less`, `more`: a state that does not fail and lacks something that the state has, and one that has
    something that it lacks; the control is one of them. `needed`: of `cleared`, where the control is a later
    cut, those without any one of which it was seen to fail; what it cannot lose is not among them. None where
    that is not known.
    """

    state: CrashState
    lost: tuple[int, ...]
    control: CrashState | None
    cleared: tuple[int, ...]
    without: tuple[int, ...]
    complete: bool
    turning: tuple[int, ...] = ()
    less: CrashState | None = None
    more: CrashState | None = None
    needed: tuple[int, ...] = ()


def always(_: CrashState) -> bool:
    """Of every state."""
    return True


class OutOfVisits(Exception):
    """The search has used up its visits."""


class Visits:
    """Whether states fail the same way: each is visited once, by `ask`, and at most `limit` are."""

    def __init__(self, ask: Callable[[CrashState], bool], limit: int = VISITS) -> None:
        self._ask, self._limit = ask, limit
        self._known: dict[CrashState, bool] = {}

    @property
    def made(self) -> int:
        return len(self._known)

    def fails(self, state: CrashState) -> bool:
        """Raises OutOfVisits."""
        if state not in self._known:
            if len(self._known) == self._limit:
                raise OutOfVisits
            self._known[state] = self._ask(state)
        return self._known[state]


def minimise(
    legal: LegalStates,
    state: CrashState,
    visits: Visits,
    promised: Callable[[CrashState], bool],
    *,
    acknowledged: bool = False,
    both: bool = False,
    keeps: Callable[[CrashState], bool] = always,
) -> Minimal:
    """`state` has to fail. `promised`: whether a crash time is late enough for the broken promise: earlier
    ones are not visited. `acknowledged`: an application gave it, so that what comes before its last
    acknowledgement is no control: it keeps what nobody had promised. `both`: look for what has to be there,
    too. `keeps`: what a control has to do beside not failing the same way; it is asked of visited states.
    """

    def has_promised(cut: CrashState) -> bool:
        return not acknowledged or legal.position(cut).app_acks >= legal.position(best).app_acks

    best, complete = state, True
    try:
        best = _fewest(legal, best, visits)
        best = _earliest(legal, best, visits, promised)
        if legal.event(best) < legal.event(state):  # what had to be lost later may be no loss that early
            best = _fewest(legal, best, visits)
    except OutOfVisits:
        complete = False
    search = _Search(legal, best, visits, lambda cut: promised(cut) and has_promised(cut), keeps)
    control = search.first(_controls(legal, best, search.promised))
    turning, less = search.turning() if both else ((), None)
    more = search.first(_later(legal, best)) if both and not _adds(legal, control, best) else None
    needed: tuple[int, ...] = ()
    if control is not None and legal.event(control) > legal.event(best) and not acknowledged:
        control, needed = search.with_fewest(control)
    lost = entries_of(legal, legal.lost(best))
    cleared: tuple[int, ...] = ()
    without: tuple[int, ...] = ()
    if control is not None:
        before, after = _on_platter(legal, best), _on_platter(legal, control)
        cleared, without = entries_of(legal, after - before), entries_of(legal, before - after)
    less = less or (control if without else None)
    more = control if cleared else more
    complete = complete and search.complete
    return Minimal(best, lost, control, cleared, without, complete, turning, less, more, needed)


@dataclass(slots=True)
class _Search:
    """For states that keep the promise, near one that does not. `complete`: no visit was refused."""

    legal: LegalStates
    best: CrashState
    visits: Visits
    promised: Callable[[CrashState], bool]
    keeps: Callable[[CrashState], bool]
    complete: bool = True

    def first(self, candidates: Iterable[CrashState]) -> CrashState | None:
        try:
            return next((c for c in candidates if not self.visits.fails(c) and self.keeps(c)), None)
        except OutOfVisits:
            self.complete = False
            return None

    def with_fewest(self, control: CrashState) -> tuple[CrashState, tuple[int, ...]]:
        """Of a later state that keeps the promise, the one that has no more than it takes of what the failing
        one lacks, as far as that may be lost: of several writes that were sent in between, most bring nothing
        back. With the entries, none of which may be lost as well. What cannot be lost at that time may be
        needed beside them.
        """
        last = self.visits.made + _TAKEN
        more = _on_platter(self.legal, control) - _on_platter(self.legal, self.best)
        free = more & self.legal.losable(control)

        def states(kept: Sequence[int]) -> Iterator[CrashState]:
            lost = frozenset(n for n in free if self.legal.chunks[n].entry not in kept)
            return _legal_losing(self.legal, control, self.legal.lost(control) | lost)

        def suffice(kept: Sequence[int]) -> bool:
            if self.visits.made >= last:
                raise OutOfVisits
            return any(not self.visits.fails(state) and self.keeps(state) for state in states(kept))

        try:
            needed = () if suffice(()) else ddmin(entries_of(self.legal, free), suffice)
        except OutOfVisits:
            return control, ()
        if free == more and not needed:  # the platter of the failing one: it is the time that tells
            return control, ()
        return next(states(needed), control), needed

    def turning(self) -> tuple[tuple[int, ...], CrashState | None]:
        """See `Minimal`: of what the cache could have lost, the last that was sent first; and the state that
        lacks the first of them. Else the crash time before.
        """
        lost = self.legal.lost(self.best)
        there = entries_of(self.legal, self.legal.losable(self.best) - lost)
        found: dict[int, CrashState] = {}
        for entry in sorted(there, key=self.legal.submitted, reverse=True)[:_TURNING]:
            if (state := self.first(self._losing(lost, [entry]))) is not None:
                found[entry] = state
        if found:
            return tuple(found), next(iter(found.values()))
        if there and (bare := self.first(self._losing(lost, there))) is not None:
            return self._together(lost, there), bare
        less = self.first(_earlier(self.legal, self.best, self.promised))
        only = () if less is None else self._without(less)
        return only if len(only) == 1 else (), less if only else None

    def _losing(self, lost: frozenset[int], entries: Collection[int]) -> Iterator[CrashState]:
        """The state that has lost these entries as well."""
        losable = self.legal.losable(self.best)
        gone = {n for n in losable if self.legal.chunks[n].entry in entries}
        return _legal_losing(self.legal, self.best, lost | gone)

    def _together(self, lost: frozenset[int], there: Sequence[int]) -> tuple[int, ...]:
        """Of entries without all of which it does not fail, a few that suffice for it to fail; none where
        the search was cut short.
        """

        def suffice(kept: Sequence[int]) -> bool:
            states = self._losing(lost, set(there) - set(kept))
            return any(self.visits.fails(state) for state in states)

        try:
            return tuple(ddmin([*there], suffice))
        except OutOfVisits:
            self.complete = False
            return ()

    def _without(self, other: CrashState) -> tuple[int, ...]:
        return entries_of(self.legal, _on_platter(self.legal, self.best) - _on_platter(self.legal, other))


def _legal_losing(legal: LegalStates, state: CrashState, lost: frozenset[int]) -> Iterator[CrashState]:
    """The state of the same crash time that has lost exactly these, if it is a legal one."""
    candidate = legal.losing(state, lost)
    try:
        if legal.lost(candidate) == lost:
            yield candidate
    except UsageError:
        return


def entries_of(legal: LegalStates, chunks: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(legal.chunks[n].entry for n in sorted(chunks)))


def _on_platter(legal: LegalStates, state: CrashState) -> frozenset[int]:
    shown = legal.on_disk(state)
    return frozenset(range(shown.prefix)) - set(shown.dropped)


def _adds(legal: LegalStates, other: CrashState | None, state: CrashState) -> bool:
    """Whether another state has something on its platter that a state lacks."""
    return other is not None and not _on_platter(legal, other) <= _on_platter(legal, state)


def _fewest(legal: LegalStates, state: CrashState, visits: Visits) -> CrashState:
    """By whole writes first, then by the blocks of those that are left. None lost, if that fails as well."""
    lost = legal.lost(state)
    if not lost:
        return state
    if _fails(legal, state, (), visits):
        return legal.losing(state, ())
    of_entry = by_key((legal.chunks[n].entry, n) for n in sorted(lost))

    def holds(entries: Sequence[int]) -> bool:
        return _fails(legal, state, [n for e in entries for n in of_entry[e]], visits)

    kept = ddmin([*of_entry], holds)
    chunks = [n for e in kept for n in of_entry[e]]
    if len(chunks) > 1:
        chunks = [*ddmin(chunks, lambda part: _fails(legal, state, part, visits))]
    return legal.losing(state, chunks)


def _fails(legal: LegalStates, state: CrashState, lost: Iterable[int], visits: Visits) -> bool:
    """Whether the state that has lost these is legal and fails."""
    return any(map(visits.fails, _legal_losing(legal, state, frozenset(lost))))


def _earliest(
    legal: LegalStates, state: CrashState, visits: Visits, promised: Callable[[CrashState], bool]
) -> CrashState:
    """The first crash time at which the same losses fail the same way. What had not been sent then is lost as
    well, and nobody has to lose it.
    """
    lost, at = legal.lost(state), legal.event(state)
    earlier = (cut for cut in legal.cuts() if legal.event(cut) < at and promised(cut))
    left = ((cut, _left(legal, cut, lost)) for cut in earlier)
    possible = ((cut, gone) for cut, gone in left if gone is not None)
    for cut, gone in itertools.islice(possible, _EARLIER):
        if _fails(legal, cut, gone, visits):
            return legal.losing(cut, gone)
    return state


def _left(legal: LegalStates, cut: CrashState, lost: frozenset[int]) -> frozenset[int] | None:
    """What a cache has to lose at a crash time for all of `lost` not to be there; None if it cannot."""
    at, losable = legal.event(cut), legal.losable(cut)
    unsent = {n for n in lost if legal.submitted(legal.chunks[n].entry) >= at}
    return lost - unsent if lost - unsent <= losable else None


def _controls(
    legal: LegalStates, state: CrashState, promised: Callable[[CrashState], bool]
) -> Iterator[CrashState]:
    """What may be the control, the most similar first: the same cut with one of the lost writes present;
    where nothing is lost, the crash time before, or the next one at which all that was sent is enough.
    """
    lost = legal.lost(state)
    for n in sorted(lost):
        yield from _legal_losing(legal, state, lost - {n})
    if lost:
        yield from _legal_losing(legal, state, frozenset())
    else:
        yield from _earlier(legal, state, promised)
    yield from _later(legal, state)


def _earlier(
    legal: LegalStates, state: CrashState, promised: Callable[[CrashState], bool]
) -> Iterator[CrashState]:
    """The crash times before, the last first, with nothing lost but what the state has lost. None whose
    platter is the state's: a verdict that differs there tells nothing of the writes.
    """
    at, lost, shown = legal.event(state), legal.lost(state), _on_platter(legal, state)
    before = [cut for cut in legal.cuts() if legal.event(cut) < at and promised(cut)]
    for cut in before[-_BEFORE:][::-1]:
        gone = _left(legal, cut, lost)
        found = () if gone is None else _legal_losing(legal, cut, gone)
        yield from (candidate for candidate in found if _on_platter(legal, candidate) != shown)


def _later(legal: LegalStates, state: CrashState) -> Iterator[CrashState]:
    """The crash times behind, with nothing lost; none whose platter is the state's."""
    at, shown = legal.event(state), _on_platter(legal, state)
    later = (cut for cut in legal.cuts() if legal.event(cut) > at)
    yield from (cut for cut in itertools.islice(later, _LATER) if _on_platter(legal, cut) != shown)
