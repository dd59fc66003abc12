"""Names where a contract promises no order of them (`each`): what was synced keeps one of its names, and
fsync covers the name that was used. Pure.

Where a file has several names, the notes do not tell by which it was opened, and none is covered.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.rules.micro import Effect, Micro, Sort

_Slot = tuple[int, str]
"""A directory's inode, and a name in it."""
_Given = Mapping[_Slot, Micro]
"""The names of a file, each with what gave it."""


@dataclass(slots=True)
class KeptNames:
    """`_was`: of each file, the calls that changed its names, with those that it had then. `_givers`: what
    gave it any. `_ever`: the files that a name was of. `_synced`: the first sync of each file.
    """

    effect: Effect
    _was: dict[int, list[tuple[int, _Given]]] = field(default_factory=dict)
    _givers: dict[int, list[Micro]] = field(default_factory=dict)
    _ever: dict[_Slot, dict[int, None]] = field(default_factory=dict)
    _synced: dict[int, int] = field(default_factory=dict)
    _all_synced: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        holder: dict[_Slot, int] = {}
        for m in self._names():
            for directory, name, held in m.names:
                slot = directory, name
                if (before := holder.pop(slot, None)) is not None:
                    self._change(before, m, slot, there=False)
                if held is not None:
                    holder[slot] = held
                    self._change(held, m, slot, there=True)
                    self._givers.setdefault(held, []).append(m)
                    self._ever.setdefault(slot, {})[held] = None
        for number, call in enumerate(self.effect.notes.calls):
            if call.word == "sync":
                self._all_synced.append(number)
            elif (call.is_sync and not call.length) or call.durable:
                self._synced.setdefault(call.inode, number)

    def _names(self) -> Iterator[Micro]:
        return (m for m in self.effect.micros if m.sort is Sort.NAME)

    def _change(self, inode: int, m: Micro, slot: _Slot, *, there: bool) -> None:
        was = self._was.setdefault(inode, [])
        now = {s: n for s, n in (was[-1][1] if was else {}).items() if s != slot}
        was.append((m.call, now | ({slot: m} if there else {})))

    def _at(self, inode: int, call: int) -> _Given:
        """The names that a file has after a call."""
        was = self._was.get(inode, [])
        place = bisect.bisect_right(was, call, key=lambda known: known[0])
        return was[place - 1][1] if place else {}

    def used(self, inode: int, last: int) -> int:
        """The only name of a file after a call, with the names that lead to it; 0 if the file has not just
        one name.
        """
        given = self._at(inode, last)
        return sum(m.bit | self._leading_to(slot[0]) for slot, m in given.items()) if len(given) == 1 else 0

    def _leading_to(self, directory: int) -> int:
        """What made a directory, and those above it. Whether one that was renamed is at its old place or at
        the new one is open, and so is which directories lead to it, where these are two.
        """
        given = self._givers.get(directory, [])
        parents = {d for m in given for d, _, held in m.names if held == directory}
        above = self._leading_to(parents.pop()) if len(parents) == 1 else 0
        return given[0].bit | above if given else 0

    def rename_before(self, inode: int, last: int) -> int:
        """The last rename into the directory of a file's only name before the file was made there; -1 if
        there is none (`rename-commits`).
        """
        given, born = self._at(inode, last), next(iter(self._givers.get(inode, [])), None)
        if born is None or {directory for directory, _ in given} != {born.names[-1][0]} or len(given) > 1:
            return -1
        calls = self.effect.notes.calls
        renames = (m for m in self._names() if m.call < born.call and calls[m.call].word == "rename")
        return max((m.call for m in renames if m.names[-1][0] == born.names[-1][0]), default=-1)

    def kept(self, *, reused_loses: bool) -> Iterator[tuple[Micro, int]]:
        """What each change of names needs: one that takes a name from what was synced, what gives that the
        name that it has then; a rename, the one that gave the name that it takes away, or the file would be
        at two. `reused_loses`: not if another file gets the name.
        """
        for m in self._names():
            needed = 0
            for directory, name, held in m.names:
                for inode in self._ever.get((directory, name), ()):
                    before, now = self._at(inode, m.call - 1), self._at(inode, m.call)
                    given = before.get((directory, name))
                    if held is None and given and len(m.names) > 1 and len(given.names) > 1:
                        needed |= given.bit
                    is_moved = (
                        inode != held and len(now) == 1 and self._at(inode, len(self.effect.notes.calls))
                    )
                    if is_moved and self._was_synced(inode, m.call):
                        needed |= self._one_of(now, m, taken=reused_loses and held is not None)
            yield m, needed & ~m.bit

    def _one_of(self, now: _Given, m: Micro, *, taken: bool) -> int:
        ((slot, given),) = now.items()
        return 0 if taken and given is not m else given.bit | self._leading_to(slot[0])

    def _was_synced(self, inode: int, call: int) -> bool:
        """Whether a file, or of a directory anything in it, was synced before a call."""
        born = self._givers[inode][0].call
        if any(born < number < call for number in self._all_synced):
            return True
        return any(number < call and self._is_within(i, inode, call) for i, number in self._synced.items())

    def _is_within(self, inode: int, directory: int, call: int) -> bool:
        seen: set[int] = set()
        while inode != directory and inode not in seen:
            seen.add(inode)
            inode = next((d for d, _ in self._at(inode, call)), inode)
        return inode == directory
