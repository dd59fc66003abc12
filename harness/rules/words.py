"""A vulnerability in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.host.text import first_few
from harness.rules.calls import NotedCall
from harness.rules.micro import NAMELESS, Effect, Micro, Sort
from harness.rules.remedies import Remedy
from harness.rules.vulnerabilities import Vulnerability

_NUMBER = re.compile(r"\d+")
_NAMELESS = re.compile(r"#\d+ \(deleted\)")
"""How d_path() tells a file of O_TMPFILE."""
_ASKED = re.compile(r", \d+(?=(?: at \d+)?(?:, dsync)?\)$)")
"""How many bytes a call was asked to write."""
_CALLS_SHOWN = 6
_PLACES_SHOWN = 4


def without_numbers(text: str) -> str:
    """The same for calls, or words about them, that differ in numbers alone."""
    return _NUMBER.sub("#", text)


@dataclass(frozen=True, slots=True)
class Words:
    """Tells of a program."""

    effect: Effect

    def headline(self, found: Vulnerability) -> str:
        """What has to be so, in a sentence."""
        others = ", with the syncs of the other findings in place" if found.mended else ""
        return f"{self._needed(found)}{others}"

    def _needed(self, found: Vulnerability) -> str:
        calls = self.effect.notes.calls
        if found.state.torn is not None:
            last = self.effect.micros[found.state.last]
            return f"`{text_of(calls[last.call])}` must not be torn"
        acks, missing = self.effect.notes.acks, found.missing
        if not found.present and 0 < found.acks <= len(acks):
            missing = missing & self.effect.issued(acks[found.acks - 1].calls - 1) or missing
        if not missing and not found.present:
            return "what is durable is refused, although nothing is lost"
        lost = self.words(missing)
        if not found.present:
            earliest = min((m.call for m in self.effect.of(found.missing)), default=0)
            if found.acks <= self.effect.acks(earliest):
                return f"the check refuses what is durable already, unless {lost} has persisted too"
            return f"{lost} must persist before `{self.ack(found.acks)}` is acknowledged"
        return self._of_order(found) if found.missing else self._between(found)

    def _between(self, found: Vulnerability) -> str:
        until = f" and before `{text_of(self.effect.notes.calls[found.until])}`" if found.until >= 0 else ""
        return f"a power cut after {self.words(found.present)}{until} is refused, although nothing is lost"

    def _of_order(self, found: Vulnerability) -> str:
        """One missing micro-operation is enough to name, and the earliest call of the present ones. Where a
        call is torn, another call that is lost before it, or there after it, says more.
        """
        lost_calls, there_calls = self._calls(found.missing), self._calls(found.present)
        torn = [n for n in lost_calls if n in there_calls]
        present = found.present
        if torn and lost_calls[0] == torn[0]:
            if not (behind := present & ~self.effect.issued(torn[-1])):
                return f"`{text_of(self.effect.notes.calls[torn[0]])}` must not be torn"
            present = behind
        first, later = lost_calls[0], self._calls(present)[0]
        lost = self.words(found.missing & self.effect.issued(later - 1) or found.missing, "or")
        there = self.words(present)
        if lost in there:  # two calls of one text
            which = "a later" if first < later else "an earlier"
            there = there.replace(lost, f"that of {which} call like it")
        return f"{lost} must persist before {there}"

    def ack(self, number: int) -> str:
        """The text of an acknowledgement, counted from 1."""
        acks = self.effect.notes.acks
        return acks[number - 1].text if 0 < number <= len(acks) else ""

    def words(self, state: int, joined: str = "and") -> str:
        """What calls did, in words: the last two of them."""
        by_call: dict[int, list[Micro]] = {}
        for m in self.effect.of(state):
            by_call.setdefault(m.call, []).append(m)
        parts = [self._what(micros) for micros in by_call.values()]
        return f" {joined} ".join(parts[-2:]) if parts else "nothing"

    def _what(self, micros: Sequence[Micro]) -> str:
        text = f"`{text_of(self.effect.notes.calls[micros[0].call])}`"
        path = self.effect.path(micros[0].inode, micros[0].call)
        sorts = {m.sort for m in micros}
        if Sort.DATA in sorts and not any(m.exact for m in micros):
            return f"the data of {text}"
        if Sort.SIZE in sorts:
            return f"the size of {path} after {text}"
        if Sort.ATTRIBUTES in sorts:
            return f"the attributes of {path} after {text}"
        return f"the change of names by {text}"

    def _calls(self, state: int) -> list[int]:
        return sorted({m.call for m in self.effect.of(state)})

    def named(self, found: Vulnerability) -> str:
        """Its calls, each with its number, and its thread if the program had several."""
        numbers = self._calls(found.missing | found.present)
        calls = self.effect.notes.calls
        several = len({call.thread for call in calls}) > 1
        return "; ".join(
            f"call {n}{f' of thread {calls[n].thread}' if several else ''}: {text_of(calls[n])}"
            f"{in_brackets(calls[n].place)}"
            for n in numbers[:8]
        )

    def places(self, found: Vulnerability) -> str:
        """Where in the program its calls were made; empty where that is not known."""
        calls = [self.effect.notes.calls[n] for n in self._calls(found.missing | found.present)]
        told = dict.fromkeys(f"`{text_of(call)}` at {call.place}" for call in calls if call.place)
        shown, more = first_few(list(told), _PLACES_SHOWN)
        return "; ".join([*shown, *([f"and {more} more"] if more else [])])

    def remedies(self, remedies: Iterable[Remedy]) -> str:
        """Which syncs, and where: those behind calls that differ in numbers alone are told by the first."""
        alike: dict[tuple[str, str], list[Remedy]] = {}
        for remedy in sorted(set(remedies), key=lambda r: (r.after, r.inode)):
            call = without_numbers(text_of(self.effect.notes.calls[remedy.after]))
            alike.setdefault((self._of(remedy), call), []).append(remedy)
        return "; ".join(self._alike(of, group) for (of, _), group in alike.items())

    def _alike(self, of: str, group: Sequence[Remedy]) -> str:
        call = self.effect.notes.calls[group[0].after]
        others = [str(remedy.after) for remedy in group[1:]]
        shown, left = first_few(others, _CALLS_SHOWN)
        more = f" and {left} more" if left else ""
        alike = f", and after calls like it: {', '.join(shown)}{more}" if others else ""
        return f"{of} after call {group[0].after}, `{text_of(call)}`{in_brackets(call.place)}{alike}"

    def _of(self, remedy: Remedy) -> str:
        made, calls = self.effect.made[remedy.inode], self.effect.notes.calls
        born = self.effect.paths.get(remedy.inode, [(0, "")])
        names = [n for n, _ in born[1:] if n <= remedy.after]
        if made.kind == "file" and calls[born[0][0]].word == "tmpfile" and not names:
            return f"fsync of the file without a name that call {born[0][0]} made"
        what = "the directory " if made.kind == "directory" else ""
        newest = self.effect.path(remedy.inode, remedy.after)
        return f"fsync of {what}`{self._used(remedy) or newest}`"

    def _used(self, remedy: Remedy) -> str:
        """Of several names of a file, the one by which the call in front of the sync knows it."""
        call = self.effect.notes.calls[remedy.after]
        names = () if call.other else self.effect.names(remedy.inode, remedy.after)
        first = call.text.partition("(")[2]
        return next((name for name in names if first.startswith((f"{name},", f"{name})"))), "")


def text_of(call: NotedCall) -> str:
    """A call, for people; of one that writes, with the bytes that it wrote."""
    text = _ASKED.sub(f", {call.length}", call.text) if call.word == "write" else call.text
    return _NAMELESS.sub(NAMELESS, text) or f"{call.word}({call.path or call.inode})"


def in_brackets(words: str) -> str:
    """To stand behind something, such as where a call was made."""
    return f" ({words})" if words else ""
