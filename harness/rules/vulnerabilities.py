"""Which order of its calls a program relies on: a failing state, reduced. Pure.

Lost micro-operations are put back and present ones taken away, piece by piece, as long as the check still
says no. The ones that are lost then have to persist before those that are there, or before the
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.rules.micro import Effect, Micro, bits_of
from harness.rules.states import Legal, Partial, Stretch

_HALF = 0.5
_BEHIND = 40
"""Calls of which the effect is tried, to find what has to be there as well."""
Passes = Callable[[Partial, int], bool]
"""Whether the check says yes to a state, with so many acknowledgements."""


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """`state` fails, with `acks` acknowledgements: `missing` is lost, `present` is there. Without `present`,
    it fails because of what was acknowledged, or of `base`. What is torn, if anything, has to persist whole.
    `base`: what was durable. `until`: where nothing is lost, the call with which the check says yes again; -1
    if none is known. `swapped`: whether it says yes to what that call leaves without `present`. `mended`:
    some of `base` is durable by the syncs that mend others, not by the program's own. `end`: the time up to
    which calls may have had an effect.
    """

    state: Partial
    acks: int
    missing: int
    present: int
    base: int
    until: int = -1
    swapped: bool = False
    mended: bool = False
    end: float = 0.0

    def explains(self, state: Partial, acks: int) -> bool:
        """Whether a state fails for the same reason; a torn one, by its tear. One that fails untorn as well
        is explained by what that is.
        """
        there = state.whole
        if self.base & ~there or acks < self.acks or (self.state.torn is None) != (state.torn is None):
            return False
        if state.torn is not None:
            return state.last == self.state.last
        return not self.present & ~there and (not self.missing or bool(self.missing & ~there))


@dataclass(frozen=True, slots=True)
class Reducer:
    """Reduces states that fail, of those that are legal. `accepts`: whether the check says yes, where a state
    also `passes` that it refuses for another reason.
    """

    legal: Legal
    passes: Passes
    accepts: Passes | None = None

    @property
    def effect(self) -> Effect:
        return self.legal.effect

    def simplest_first(self, states: Sequence[Partial]) -> list[Partial]:
        """The states in the order in which they are reduced. A whole loss comes before a torn one, which may
        fail for the same reason. A failure before a sync comes before one after it, where the sync made a
        later change durable.
        """
        return sorted(states, key=self._losses)

    def _losses(self, state: Partial) -> tuple[bool, float, int, int]:
        stretch = next(self.legal.stretches_of(state), None)
        lost = stretch.asked & ~state.whole if stretch else 0
        end = stretch.end if stretch else 0.0
        return state.torn is not None, end, lost.bit_count(), state.persisted

    def reduced(self, state: Partial, acks: int) -> Vulnerability:
        """Why a state fails that does with so many acknowledgements."""
        if state.torn is not None:
            state = next((s for s in state.untorn if not self.passes(s, acks)), state)
        stretch, acks = self._first_that_fails(state, acks)
        if state.torn is not None:
            needed = self._fewest_acks(state, acks)
            return Vulnerability(state, needed, 0, 1 << state.last, stretch.durable, end=stretch.end)
        state = self._with_more(state, stretch.asked, acks)
        missing = self._first_of(stretch.asked & ~state.persisted)
        needed = self._fewest_acks(state, acks)
        if missing and needed > self.effect.acks(min(m.call for m in self.effect.of(missing))):
            # Only what was acknowledged later can promise it, and that promises nothing called behind it.
            missing &= self.effect.issued(self.effect.notes.acks[needed - 1].calls - 1)
            missing = self._with_rest_of_calls(missing, stretch.open)
            return Vulnerability(state, needed, missing, 0, stretch.durable, end=stretch.end)
        # With as many acknowledgements as are told: with more, what is left may fail for these alone.
        late = self._too_late(state.persisted & ~stretch.durable, state, missing, needed)
        state = self._with_less(state, stretch, missing, late, needed)
        missing = self._with_rest_of_calls(missing, stretch.open & ~state.persisted)
        there = state.persisted & (late or ~stretch.durable)
        present = self._relied_on(state, self._last_of(there), needed)
        until, swapped = (-1, False) if missing else self._accepted_again(present)
        found = Vulnerability(state, needed, missing, present, stretch.durable, until, swapped)
        return replace(found, end=stretch.end)

    def _too_late(self, there: int, state: Partial, missing: int, acks: int) -> int:
        """Of what is there, what was called behind the first of the missing ones, or may have been; nothing
        if the check says no without that as well, so that it is not the reason.
        """
        first = min((m.call for m in self.effect.of(missing)), default=len(self.effect.notes.calls))
        late = there & ~self.effect.issued(first)
        if missing and len(stores := self.effect.together(first)) > 1:
            late = there & ~self.effect.issued(stores.start - 1)
        return late if late and self._passes_without(late, state, acks) else 0

    def _passes_without(self, gone: int, state: Partial, acks: int) -> bool:
        return self.passes(Partial(self.effect.without(state.persisted, gone)), acks)

    def _relied_on(self, state: Partial, present: int, acks: int) -> int:
        """Those of the present micro-operations that must not be there without the lost ones. Without any of
        the others, the check still says no; none of them matter if it does so without all.
        """
        gone = 0
        for m in self.effect.of(present):
            if not self._passes_without(gone | m.bit, state, acks):
                gone |= m.bit
        return present & ~gone

    def _accepted_again(self, present: int) -> tuple[int, bool]:
        """The first call behind what is there up to which the check says yes, and whether it does without."""
        notes, last = self.effect.notes, max((m.call for m in self.effect.of(present)), default=0)
        accepts = self.accepts or self.passes
        behind = self.effect.together(last).stop if notes.calls else 0
        for call in range(behind, min(behind + _BEHIND, len(notes.calls))):
            if call + 1 < self.effect.together(call).stop:
                continue
            whole, acks = self.effect.issued(call + _HALF), self.effect.acks(call + _HALF)
            if any(m.call == call for m in self.effect.micros) and accepts(Partial(whole), acks):
                return call, accepts(Partial(self.effect.without(whole, present)), acks)
        return -1, False

    def _first_that_fails(self, state: Partial, acks: int) -> tuple[Stretch, int]:
        """The first stretch in which a state fails, and its acknowledgements. Behind a later sync, what had
        to come later is durable, and would not be told.
        """
        stretches = list(self.legal.stretches_of(state))
        for stretch in stretches[:-1]:
            fewer = self.effect.acks(stretch.end)
            if not self.passes(state, fewer):
                return stretch, fewer
        return stretches[-1], acks

    def _first_of(self, lost: int) -> int:
        """What of it is lost by itself, not because something that it needs is."""
        found = 0
        for m in self.effect.of(lost):
            found |= 0 if self.effect.needs[m.number] & lost else m.bit
        return found

    def _last_of(self, there: int) -> int:
        """What of it is there by itself, not only because something needs it."""
        for m in self.effect.of(there):
            there &= ~self.effect.needs[m.number]
        return there

    def _with_rest_of_calls(self, missing: int, others: int) -> int:
        """The missing micro-operations, and those of `others` that the same calls made."""
        calls = {m.call for m in self.effect.of(missing)}
        for m in self.effect.of(others):
            missing |= m.bit if m.call in calls else 0
        return missing

    def _with_more(self, state: Partial, asked: int, acks: int) -> Partial:
        """As much of what was lost comes back as can, latest first."""

        def back(some: Sequence[Micro]) -> bool:
            nonlocal state
            fuller = Partial(self.effect.with_needs(state.persisted | bits_of(some)))
            if fails := not self.passes(fuller, acks):
                state = fuller
            return fails

        _in_halves(list(self.effect.of(asked & ~state.persisted))[::-1], back)
        return state

    def _with_less(self, state: Partial, stretch: Stretch, missing: int, late: int, acks: int) -> Partial:
        """A smaller state: as many present micro-operations are taken away as can be, as long as the check
        says no and the missing ones, if any, are still the reason; with what came too `late`, if that is.
        """
        calls = {m.call for m in self.effect.of(missing)}

        def go(some: Sequence[Micro]) -> bool:
            nonlocal state
            if not (some := [m for m in some if state.persisted & m.bit]):
                return True
            emptier = Partial(self.effect.without(state.persisted, bits_of(some)))
            gone = state.persisted & ~emptier.persisted
            matters = not missing or all(m.call in calls for m in some)
            matters = matters or self.passes(Partial(self.effect.without(stretch.asked, gone)), acks)
            fails = matters and not self.passes(emptier, acks)
            if fails := fails and (not late or self._passes_without(late, emptier, acks)):
                state = emptier
            return fails

        _in_halves(list(self.effect.of(state.persisted & ~stretch.durable))[::-1], go)
        return state

    def _fewest_acks(self, state: Partial, acks: int) -> int:
        """With how few acknowledgements it fails: fewer promise less."""
        fewest = 0
        while fewest < acks:
            middle = (fewest + acks) // 2
            if self.passes(state, middle):
                fewest = middle + 1
            else:
                acks = middle
        return acks


def _in_halves(some: Sequence[Micro], done: Callable[[Sequence[Micro]], bool]) -> None:
    """Do something to all at once, or else to each half, as far as that can be done."""
    if some and not done(some) and len(some) > 1:
        middle = len(some) // 2
        _in_halves(some[:middle], done)
        _in_halves(some[middle:], done)
