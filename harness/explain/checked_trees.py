"""Of several files that may be the cause, which is it? Where no state that the kernel leaves tells, a tree
does that is made of what the program wrote: it lacks what one file lacked, and the program's own check looks
at it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from harness.explain.effects import Change, Effects, Sort, distinct
from harness.explain.program import Gap, Order, Program
from harness.grouping import by_key
from harness.oracles.surface import telling_line
from harness.ruled.judging import Judging
from harness.rules import micro
from harness.rules.rules import Rule, Rules
from harness.rules.states import EVERY_MAX, Partial, torn_at
from harness.rules.words import without_numbers
from harness.writelog.calls import ProgramCall
from harness.writelog.times import TimedMark

ANY_ORDER = Rules(Rule(holds=True, source=""), Rule(holds=False, source=""), Rule(holds=True, source=""))
"""A tree may lack anything: nothing else goes with it."""
_MICROS = {
    Sort.DATA: (micro.Sort.SIZE, micro.Sort.DATA),
    Sort.ATTRIBUTES: (micro.Sort.ATTRIBUTES,),
    Sort.GIVEN: (micro.Sort.NAME,),
    Sort.TAKEN: (micro.Sort.NAME,),
}
_NAMELESS = re.compile(r"#\d+ \(deleted\)")
"""How d_path() tells a file of O_TMPFILE."""
_LAST = 8
"""Of the changes of one file, the last ones that are lost alone."""
_TURNING = 40
"""Calls behind a lost one that are tried, each as the last before the power failed."""


@dataclass(slots=True)
class CheckedTrees:
    """`calls`: as they were recorded. `judging`: of the program, run once more with its calls noted whole.
    What it does otherwise then, such as a file of another name, is not matched, and nothing is said of it.
    """

    judging: Judging
    calls: Sequence[ProgramCall]
    changes: Sequence[Change] = field(init=False)

    def __post_init__(self) -> None:
        self.changes = Effects(self.calls, in_order=True, commits=lambda _: True).changes

    def broken(self, program: Program, said: str, marks: Sequence[TimedMark]) -> TimedMark | None:
        """The first acknowledgement behind the one call of which the loss makes the check say the same.
        `said`: of the failing state; `marks`: the acknowledgements before it. Raises GuestLost.
        """
        calls = list(distinct(program.unsynced))[:_TURNING]
        alike = [
            call
            for call in calls
            if said in (self._words([c for c in program.unsynced if c.call == call], len(marks)) or ())
        ]
        if len(alike) != 1:
            return None
        return next((m for m in marks if m.at > (alike[0].returned or 0)), None)

    def settled(
        self, program: Program, acknowledged: int, cut: int, differing: Collection[str] = (), said: str = ""
    ) -> Program:
        """The program with the files that are the cause, each by itself. `acknowledged`: so many
        acknowledgements had been given when it made the one that is broken. `cut`: the event at which the
        power failed. `differing`: the paths that tell the trees apart; `said`: of the failing state. Raises
        GuestLost.
        """
        unsynced, tried = self._of_blamed(program.blamed, acknowledged)
        taken, order = self._of_order(program.taken, differing), self._of_order(program.order, differing)
        if taken is not None and program.taken is not None and taken.ahead != program.taken.ahead:
            taken, order = None, taken
        if tried:
            taken, order = _unless_refuted(taken), _unless_refuted(order)
        program = replace(program, unsynced=unsynced, tried=tried)
        if (part := program.half or program.whole) is not None:
            program = replace(program, in_part=self._may_refuse_part(part))
        if program.gap is not None and self._accepts(self._before(program.gap.made.began)):
            program = replace(program, gap=None)
        if program.early is not None and not self._is_early(program.early, cut):
            program = replace(program, early=None, bare=())
        if taken is not None or order is not None:
            taken, order = (
                self._with_alike(taken, program.open, said),
                self._with_alike(order, program.open, said),
            )
        program = replace(program, taken=taken, order=order)
        if not program.is_explained:
            found = self._turning(program.uncovered, cut)
            found = found or (self._turning(program.open, cut, said) if said else None)
            program = replace(program, order=self._with_alike(found, program.open, said))
        return program if program.is_explained else replace(program, gap=self._exposed(program, cut))

    def refuses(self, lost: Sequence[Change], until: ProgramCall | int) -> bool:
        """Whether the check says no where these changes alone are lost, and yes where nothing is: once a call
        had returned, or at so many acknowledgements. Of several changes, the last few are lost alone as well.
        Raises GuestLost.
        """
        return bool(self._words(lost, until))

    def _words(self, lost: Sequence[Change], until: ProgramCall | int) -> set[str] | None:
        """What the check says then; nothing where it refuses none, None where that is not known."""
        effect = self.judging.effect
        end, acks = self._end(until)
        found = [self._micros(change) for change in lost]
        if end < 0 or not all(found):
            return None
        whole = effect.issued(end)
        if not self.judging.passes(Partial(whole), acks):
            return None
        gone = (_some(found[first:]) for first in range(max(0, len(found) - _LAST), len(found)))
        states = dict.fromkeys(Partial(whole & ~bits) for sets in (_some(found), *gone) for bits in sets)
        self.judging.ask((state, acks) for state in states)
        results = (self.judging.result(state, acks) for state in states)
        return {telling_line(r.output.strip() or "?") for r in results if r.exit_code == 1}

    def _of_blamed(
        self, blamed: Sequence[Change], until: ProgramCall | int
    ) -> tuple[tuple[Change, ...], bool]:
        """The changes of the files of which the loss alone is refused, and True. Where there are none: those
        that are not accepted, as far as that is known, and False.
        """
        files = [(own, self._words(own, until)) for own in _by_file(blamed)]
        refused = [own for own, words in files if words]
        if refused:
            return tuple(c for own in refused for c in self._of_calls(own, until)), True
        left = [own for own, words in files if words is None]
        if not left and self._words(blamed, until) != set():  # refused only where all are lost
            left = [own for own, _ in files]
        return tuple(c for own in left for c in own), False

    def _of_calls(self, own: Sequence[Change], until: ProgramCall | int) -> Sequence[Change]:
        """Of several calls that changed one file, those of which the loss alone is refused; all, if none is,
        or there are many.
        """
        calls = list(distinct(own))
        if not 1 < len(calls) <= _TURNING:
            return own
        refused = {n for n in calls if self.refuses([c for c in own if c.call == n], until)}
        return [c for c in own if c.call in refused] or own

    def _of_order(self, order: Order | None, differing: Collection[str]) -> Order | None:
        """With the first call that must not be there without what is missing, and what that is. None where
        the check accepts each tree in which such a call came without it; where it cannot be asked, and other
        files may be the cause.
        """
        if order is None or order.is_in_place:
            return self._in_place(order, differing)
        until = order.until or order.ahead
        first: dict[ProgramCall, list[Change]] = {}
        known = False
        for own in _by_file(order.missing):
            if self._words(own, own[-1].call):
                known = True  # refused whatever was called later: no call relies on it
                continue
            for call in self._behind(own, until):
                words = self._words(own, call)
                known |= bool(words) or (call == until and words is not None)
                if words:
                    if self._may_help(call):
                        first.setdefault(call, []).extend(self._of_calls(own, call))
                    break
        if first:
            ahead = order.ahead if order.ahead in first else min(first, key=lambda call: call.began)
            taken = order.taken and ahead == order.ahead
            return replace(order, ahead=ahead, missing=tuple(first[ahead]), taken=taken, later=(), tried=True)
        if not known:
            return order if order.is_all_of(differing) else None
        together = len(_by_file(order.missing)) > 1 and self.refuses(order.missing, until)
        return order if together else None

    def _with_alike(self, order: Order | None, others: Sequence[Change], said: str) -> Order | None:
        """With what else `ahead` relies on: of other files, changes without which the check says the same.
        One sync alone would leave a state that fails like this one.
        """
        if order is None or not order.tried or order.is_in_place or not said:
            return order
        known = {c.inode for c in order.missing}
        before = [c for c in others if c.began < order.ahead.began and c.inode not in known]
        more = [own for own in _by_file(before) if _says(said, self._words(own, order.ahead) or ())]
        more = [own for own in more if not self._words(own, own[-1].call)]
        missing = (*order.missing, *(c for own in more for c in self._of_calls(own, order.ahead)))
        return replace(order, missing=missing)

    def _behind(self, own: Sequence[Change], until: ProgramCall) -> list[ProgramCall]:
        """The calls after a change, up to one, that may be the first with which the check says no: the last
        ones, and as many before as it takes for the check to say yes to the first of them.
        """
        calls = list(distinct([c for c in self.changes if own[0].began < c.began <= until.began]))
        begin = max(0, len(calls) - _TURNING)
        while begin and self._words(own, calls[begin]):
            begin = max(0, begin - _TURNING)
        return calls[begin:]

    def _in_place(self, order: Order | None, differing: Collection[str]) -> Order | None:
        """A file that was emptied, unless the check accepts what that leaves until all is written anew."""
        if order is None:
            return None
        if (between := self._accepts(order.ahead)) is None:
            return order if order.is_all_of(differing) else None
        refused = not between or self.refuses(order.missing, order.missing[-1].call)
        return replace(order, tried=True) if refused else None

    def _is_early(self, named: Change, cut: int) -> bool:
        """Whether the check refuses the name of a file without the file's contents: as it is given, or at a
        later call.
        """
        calls = list(distinct([c for c in self.changes if c.began < cut]))
        at = calls.index(named.call)
        contents = [c for c in self.changes if (c.sort, c.inode) == (Sort.DATA, named.inode)]
        if all(c.began > named.began for c in contents):
            before = self._accepts(calls[at - 1]) if at else True
            if before and self._accepts(named.call) is False:
                return True
        held = ((call, [c for c in contents if c.began <= call.began]) for call in calls[at:][:_TURNING])
        return any(self.refuses(lost, call) for call, lost in held if lost)

    def _turning(self, uncovered: Sequence[Change], cut: int, said: str = "") -> Order | None:
        """A call whose effect must not be there without that of an earlier one, which no sync had covered.
        `said`: by the check, if it has to say the same then.
        """
        turns: dict[ProgramCall, list[Change]] = {}
        names = {c.call: c for c in uncovered if not c.is_of_file}.values()  # two changes of a rename are one
        for change in [*[c for c in uncovered if c.sort is Sort.DATA][-_LAST:], *list(names)[-_LAST:]]:
            if self.refuses([change], change.call):
                continue  # whatever was called later: no call relies on it
            # Names may have an order of their own: what relies on one is a file.
            after = [c for c in self.changes if change.began < c.began < cut]
            later = distinct([c for c in after if c.is_of_file or change.is_of_file])
            calls = list(itertools.islice(later, _TURNING))
            refused = (
                call for call in calls if (words := self._words([change], call)) and _says(said, words)
            )
            if (first := next(refused, None)) is not None and self._may_help(first):
                turns.setdefault(first, []).append(change)
        if not turns:
            return None
        ahead, missing = next(iter(turns.items()))
        return Order(ahead, tuple(missing), paths=frozenset(c.path for c in missing), tried=True)

    def _exposed(self, program: Program, cut: int) -> Gap | None:
        """The last pair of calls before the power failed between which the check refuses the tree, although
        no write is lost, if the change of the later call is not there.
        """
        absent = {c.call for c in program.uncovered}
        calls = list(distinct(self.changes))
        refused = [self._accepts(call) is False for call in calls]
        for n in reversed(range(1, len(calls))):
            if calls[n].began < cut and refused[n] and not refused[n - 1] and not all(refused[n:]):
                made = next(c for c in self.changes if c.call == calls[n + refused[n:].index(False)])
                if made.began < cut and made.call not in absent:
                    return None
                first = [c for c in self.changes if c.call == calls[n]]
                return Gap(calls[n], None, made, swapped=self._words(first, made.call) == set())
        return None

    def _may_refuse_part(self, change: Change) -> bool:
        """Whether the check says no where a part of what a call wrote is there; true if that is not known."""
        effect, (end, acks) = self.judging.effect, self._end(change.call)
        blocks = [m for m in self._micros(change) if m.sort is micro.Sort.DATA]
        whole = effect.issued(end)
        if not blocks or not self.judging.passes(Partial(whole), acks):
            return True
        begun = [whole & ((m.bit << 1) - 1) for m in blocks]  # up to each block
        states = [
            *map(Partial, begun),
            *(Partial(whole & ~m.bit) for m in blocks),
            *(
                torn  # with those before it there, and with all else
                for block, up_to in zip(blocks, begun, strict=True)
                for state in (up_to, whole)
                for torn in torn_at(effect, block, state, each=len(blocks) <= EVERY_MAX)
            ),
        ]
        self.judging.ask((state, acks) for state in states)
        return any(self.judging.result(state, acks).exit_code == 1 for state in states)

    def _before(self, event: int) -> ProgramCall:
        """The last call before an event that changed something."""
        return max((c.call for c in self.changes if c.began < event), key=lambda call: call.began)

    def _may_help(self, ahead: ProgramCall) -> bool:
        """Whether a sync before a call may help: not if the check refuses what that leaves until the call."""
        return self._accepts(self._before(ahead.began)) is not False

    def _accepts(self, call: ProgramCall) -> bool | None:
        """Whether the check says yes to what the calls leave up to one; None where that is not known."""
        end, acks = self._end(call)
        return None if end < 0 else self.judging.passes(Partial(self.judging.effect.issued(end)), acks)

    def _end(self, until: ProgramCall | int) -> tuple[int, int]:
        """The number of the last call by then among those that were noted, and how many acknowledgements had
        been given; -1 if that is not known.
        """
        notes = self.judging.notes
        if isinstance(until, int):
            return (notes.acks[until - 1].calls - 1, until) if 0 < until <= len(notes.acks) else (-1, 0)
        end = max((n for sort in Sort for n in self._numbers(until, sort)), default=-1)
        return end, self.judging.effect.acks(end + 0.5)

    def _numbers(self, call: ProgramCall, sort: Sort) -> list[int]:
        """Where a call is among those that were noted: of those with its text, the one in the same place."""
        effect = self.judging.effect
        wanted = {m.call for m in effect.micros if m.sort in _MICROS[sort]}
        own = _as_told(call.text)
        there = [n for n in sorted(wanted) if _as_told(effect.notes.calls[n].text) == own]
        recorded = list(
            distinct([c for c in self.changes if c.sort is sort and _as_told(c.call.text) == own])
        )
        if call not in recorded or len(there) != len(recorded):
            return []
        return [there[recorded.index(call)]]

    def _micros(self, change: Change) -> list[micro.Micro]:
        numbers = self._numbers(change.call, change.sort)
        every = (m for m in self.judging.effect.micros if m.call in numbers)
        return [m for m in every if m.sort in _MICROS[change.sort]]


def _says(said: str, words: Collection[str]) -> bool:
    """Whether it is among these, but for numbers: of half of a transfer, each half has another sum."""
    return not said or without_numbers(said) in map(without_numbers, words)


def _as_told(text: str) -> str:
    """A call, but for the inode number of a file that never had a name: another one each time."""
    return _NAMELESS.sub("# (deleted)", text)


def _by_file(changes: Sequence[Change]) -> list[list[Change]]:
    return [*by_key((c.inode, c) for c in changes).values()]


def _some(changes: Sequence[Sequence[micro.Micro]]) -> tuple[int, int]:
    """The micro-operations of some changes: all, and without sizes, which leaves zeros."""
    every = zeroed = 0
    for m in (m for own in changes for m in own):
        every |= m.bit
        zeroed |= m.bit if m.sort is not micro.Sort.SIZE else 0
    return every, zeroed


def _unless_refuted(order: Order | None) -> Order | None:
    """None where the check accepts a tree with this order: then what was acknowledged is the cause."""
    return order if order is None or order.tried or order.is_in_place else None
