"""What a program's calls change, cut into micro-operations, each of which persists as a whole or not at all:
a name, a size, a block of data, the attributes of a file. And which sync makes which of them durable. Pure.

Sets of micro-operations are numbers: bit N stands for micro-operation N.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.rules.calls import NotedCall, Notes
from harness.rules.rules import Rules

ZEROS = -1
"""Where bytes of a block that was zeroed come from."""
NAMELESS = "a file without a name"
"""What is told of a file of O_TMPFILE."""
FILE_BYTES_MAX = 64 << 20
"""A larger file is not followed: each state's contents are made in memory."""
_SET_ID = 0o6000
_BEFORE_ACK = 0.25
"""An acknowledgement comes behind a sync that was put behind the call before it."""


class Sort(enum.Enum):
    """What a micro-operation changes."""

    NAME = enum.auto()
    SIZE = enum.auto()
    DATA = enum.auto()
    ATTRIBUTES = enum.auto()


Place = tuple[int, Sort | str | int | None]
"""What micro-operations are about: the size, data or attributes of a file; a block of it, by its number; its
names (None); the names in a directory, or one of them.
"""
Named = tuple[int, str, int | None]
"""In the directory with this inode, this name is of the file with that inode, or is removed."""


@dataclass(frozen=True, slots=True)
class Micro:
    """`number`: its bit. `call`: the number of its call. `inode`: the file. `names`: what a NAME sets, at
    once. `offset`, `length`, `at`: of DATA, see `NotedCall`; ZEROS for zeros. `size`: the new one; `exact`:
    of a truncation, not of a write that may have been outdone. `on_the_way`: of a truncation that is half
    done; once it is done, nothing shows this. `owner`: as in `NotedCall`. `xattr`: of ATTRIBUTES that are an
    extended attribute alone, its name; `at`, `length`: its value, unless it is removed, as `removes` says.
    """

    number: int
    call: int
    sort: Sort
    inode: int
    names: tuple[Named, ...] = ()
    offset: int = 0
    length: int = 0
    at: int = 0
    size: int = 0
    exact: bool = False
    owner: tuple[int, int, int] = (0, 0, 0)
    xattr: str = ""
    removes: bool = False
    changes: frozenset[int] = frozenset()
    replaced: int = 0
    fresh: bool = False
    stored: bool = False
    on_the_way: bool = False

    @property
    def bit(self) -> int:
        return 1 << self.number


@dataclass(frozen=True, slots=True)
class Made:
    """A file as it was made. `kind`: as in `Left`."""

    kind: str
    owner: tuple[int, int, int]
    target: str = ""


@dataclass(frozen=True, slots=True)
class Sync:
    """From `time` on, what `covers` has is durable. Call N takes place at time N; a sync that is tried
    between two calls has a time between them.
    """

    time: float
    covers: int


class NotFollowed(ValueError):
    """A call that does not fit those before it: `call` is its number."""

    def __init__(self, call: int, what: str) -> None:
        super().__init__(what)
        self.call = call


@dataclass(slots=True)
class Effect:
    """The micro-operations of a program, in order. `made`: its files by inode. `paths`: by inode, the names
    that each had, with the calls that gave them; `ends`: the calls that took these away, or infinity.
    `needs`: of each micro-operation, those without which it does not persist, and those that show no more
    once it is there; `_needing`: what has any. `_never`: what by these rules persists in no state. `syncs`:
    in order. `promised`: what a sync covers besides, by a contract. `_named`: the files that have a name
    now, in the order in which the names were given. `_at`: the numbers of the
    micro-operations that are about a place; `_masks`: the same as sets. `_durable`: what is durable before
    each sync, and at the end. `_together`: see there.
    """

    notes: Notes
    rules: Rules
    micros: list[Micro] = field(default_factory=list)
    made: dict[int, Made] = field(default_factory=dict)
    paths: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    ends: dict[int, list[float]] = field(default_factory=dict)
    needs: list[int] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    promised: Callable[[NotedCall, float], int] | None = None
    _needing: int = 0
    _never: int = 0
    _needed_by: dict[int, int] = field(default_factory=dict)
    _named: dict[str, dict[int, None]] = field(default_factory=dict)
    _at: dict[Place, list[int]] = field(default_factory=dict)
    _masks: dict[Place, int] = field(default_factory=dict)
    _durable: list[int] = field(default_factory=list)
    _together: list[range] = field(default_factory=list)

    def add(self, m: Micro) -> None:
        """Add a micro-operation, the next one."""
        self.micros.append(m)
        places: list[Place] = [(m.inode, None if m.names else m.sort)]
        if m.sort is Sort.DATA:
            places.append((m.inode, m.offset // self.rules.block_bytes))
        for directory, name, held in m.names:
            places += [(directory, Sort.NAME), (directory, name)]
            places += [(held, None)] if held is not None else []
        for place in dict.fromkeys(places):
            self._at.setdefault(place, []).append(m.number)

    def at(self, inode: int, what: Sort | str | int | None) -> Sequence[int]:
        """The numbers of the micro-operations that are about a place, in order."""
        return self._at.get((inode, what), ())

    def until(self, time: float, inode: int, what: Sort | str | int | None) -> Sequence[int]:
        """Of these, those asked for by a time."""
        numbers = self.at(inode, what)
        return numbers[: bisect.bisect_right(numbers, time, key=lambda n: self.micros[n].call)]

    def mask(self, inode: int, what: Sort | str | int | None) -> int:
        """All that are about a place, as a set."""
        if (known := self._masks.get((inode, what))) is None:
            known = self._masks[inode, what] = bits_of(self.micros[n] for n in self.at(inode, what))
        return known

    def path(self, inode: int, time: float) -> str:
        """The newest name that a file has at a time; if it has none, the newest that it had, or its first."""
        names = self.paths.get(inode, [(0, "?")])
        had = next((name for call, name in reversed(names) if call <= time), names[0][1])
        return next(self.names(inode, time), had)

    def names(self, inode: int, time: float) -> Iterator[str]:
        """The names that a file has at a time, the newest first."""
        names, ends = self.paths.get(inode, []), self.ends.get(inode, [])
        given = zip(reversed(names), reversed(ends), strict=True)
        return (name for (call, name), end in given if call <= time < end)

    def born(self, inode: int, time: float) -> int:
        """The call that made a file, if any had by a time; else -1."""
        made = self.paths.get(inode, [(-1, "")])[0][0]
        return made if inode != self.notes.root and made <= time else -1

    def name(self, inode: int, call: int, path: str) -> None:
        """A call gives a file a name."""
        self.paths.setdefault(inode, []).append((call, path))
        self.ends.setdefault(inode, []).append(math.inf)
        self._named.setdefault(path, {})[inode] = None

    def remove(self, inode: int, call: int, path: str) -> None:
        """A call takes a name from a file."""
        names, ends = self.paths.get(inode, []), self.ends.get(inode, [])
        for n in reversed(range(len(names))):
            if names[n][1] == path and ends[n] == math.inf:
                ends[n] = call
                del self._named[path][inode]
                if not self._named[path]:
                    del self._named[path]
                return

    def move(self, call: int, old: str, new: str, *, exchanged: bool) -> None:
        """A call renames a path: the path and everything below it get new names."""
        moved = {old: new, new: old} if exchanged else {old: new}
        below = [
            (inode, name, to + name.removeprefix(begin))
            for name, inodes in self._named.items()
            for begin, to in moved.items()
            if name == begin or name.startswith(f"{begin}/")
            for inode in inodes
        ]
        for inode, name, _ in below:
            self.remove(inode, call, name)
        for inode, _, name in below:
            self.name(inode, call, name)

    @property
    def every(self) -> int:
        """All micro-operations."""
        return (1 << len(self.micros)) - 1

    def of(self, state: int) -> Iterator[Micro]:
        """The micro-operations of a set, in order."""
        while state:
            low = state & -state
            yield self.micros[low.bit_length() - 1]
            state ^= low

    def before(self, time: float) -> int:
        """What had been asked for before a time: the micro-operations are in the order of their calls."""
        return (1 << bisect.bisect_left(self.micros, time, key=lambda m: m.call)) - 1

    def issued(self, time: float) -> int:
        """What had been asked for by a time, less what never shows."""
        every = (1 << bisect.bisect_right(self.micros, time, key=lambda m: m.call)) - 1
        return every & ~self._never

    def durable(self, time: float) -> int:
        """What syncs before a time have made durable."""
        if not self._durable:
            self._durable = [*itertools.accumulate((s.covers for s in self.syncs), int.__or__, initial=0)]
        return self._durable[bisect.bisect_left(self.syncs, time, key=lambda s: s.time)]

    def together(self, call: int) -> range:
        """The calls among which this one was made in an order that nobody saw: stores into mappings, which
        are in the order of their addresses; else the call alone.
        """
        if not self._together:
            self._together = list(_together(self.notes))
        return self._together[call]

    def acks(self, time: float) -> int:
        """How many acknowledgements had been made by a time."""
        return bisect.bisect_left(self.notes.acks, time, key=lambda ack: ack.calls - _BEFORE_ACK)

    def with_needs(self, state: int) -> int:
        """A set with all that its members need."""
        waiting = state & self._needing
        while waiting:  # what is needed has what it needs in its turn among the needs of the last one
            last = waiting.bit_length() - 1
            state |= self.needs[last]
            waiting &= ~(self.needs[last] | 1 << last)
        return state

    def without(self, state: int, lost: int) -> int:
        """A set without those, and without what needs them."""
        if self._needing:
            for m in self.of(lost):
                lost |= self.needing(m)
        return state & ~lost

    def done(self, state: int) -> int:
        """A set, with the size that a truncation leaves for what these rules never leave on the way to it."""
        if not state & self._never:
            return state
        calls = {m.call for m in self.of(state & self._never)}
        ends = (m for m in self.micros if m.call in calls and m.exact and not m.on_the_way)
        return state & ~self._never | bits_of(ends)

    def set_needs(self, needs: Sequence[int]) -> None:
        """Of each micro-operation, those without which it does not persist, and those that these need."""
        at_once = self.rules.truncates_at_once.holds
        self._never = bits_of(m for m in self.micros if m.on_the_way and at_once)
        self.needs = [needed & ~self._never for needed in _with_moves(self, needs)]
        self._needing = bits_of(m for m in self.micros if self.needs[m.number])
        self._needed_by = {}
        # What the program's calls make durable, each what none before it did
        syncs, durable = list[Sync](), 0
        for n, call in enumerate(self.notes.calls):
            if call.is_sync or call.durable:
                syncs.append(self.made_durable(call, n, durable))
                durable |= syncs[-1].covers
        self._durable, self.syncs = [], syncs

    def needing(self, micro: Micro) -> int:
        """What does not persist without it."""
        if (known := self._needed_by.get(micro.number)) is None:
            known = bits_of(m for m in self.micros if self.needs[m.number] & micro.bit)
            self._needed_by[micro.number] = known
        return known

    def sync(self, time: float, inode: int) -> Sync:
        """What an fsync(2) of a file or directory at a time makes durable."""
        return self.made_durable(NotedCall("fsync", inode=inode), time)

    def made_durable(self, call: NotedCall, time: float, durable: int = 0) -> Sync:
        """What a call that syncs, at a time, makes durable besides what is, with its needs."""
        covers = _covered(self, call, time)
        if call.durable:
            left_out = self.mask(call.inode, Sort.ATTRIBUTES) if call.durable == "dsync" else 0
            covers |= self.before(time + 1) & ~self.before(time) & ~left_out
        if self.promised:
            covers |= self.promised(call, time)
        return self.covering(time, covers & ~durable)

    def covering(self, time: float, covers: int) -> Sync:
        """A sync that makes these micro-operations durable, with their needs."""
        return Sync(time, self.with_needs(covers & ~self._never))

    def directories_of(self, micro: Micro) -> list[int]:
        """The inodes of the directories in which it sets names."""
        return list(dict.fromkeys(directory for directory, _, _ in micro.names))


def bits_of(micros: Iterable[Micro]) -> int:
    """The set of these."""
    found = 0
    for m in micros:
        found |= m.bit
    return found


def _together(notes: Notes) -> Iterator[range]:
    """For each call: `Effect.together`."""
    ends, start = {ack.calls for ack in notes.acks}, 0
    for n, call in enumerate(notes.calls, 1):
        following = notes.calls[n] if n < len(notes.calls) and n not in ends else None
        if not (following and call.is_store and following.is_store and call.number == following.number):
            yield from itertools.repeat(range(start, n), n - start)
            start = n


def effect_of(notes: Notes, rules: Rules) -> Effect:
    """The micro-operations of a program's calls, in a directory that was empty. Raises NotFollowed."""
    made = cut(notes, rules)
    made.set_needs(list(_needs(made)))
    return made


def cut(notes: Notes, rules: Rules) -> Effect:
    """The micro-operations of the calls, without their needs and without syncs. Raises NotFollowed."""
    made = Effect(notes, rules)
    made.made[notes.root] = Made("directory", notes.owner)
    made.name(notes.root, 0, ".")
    maker = _Maker(made)
    for number, call in enumerate(notes.calls):
        maker.follow(number, call)
    return made


@dataclass(slots=True)
class _Maker:
    """Follows calls. `names`: of every directory; `sizes`: of every file; `owners`, `xattrs`, where they
    changed; `blocks`: that each may have, all of them where that is not known.
    """

    effect: Effect
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    owners: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    xattrs: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    blocks: dict[int, Container[int]] = field(default_factory=dict)

    def follow(self, number: int, call: NotedCall) -> None:
        word = call.word
        self._clear_set_id(number, call)
        if word in ("create", "mkdir", "symlink", "tmpfile"):
            kind = {"mkdir": "directory", "symlink": "symlink"}.get(word, "file")
            self.effect.made[call.inode] = Made(kind, call.owner, call.other)
            self.effect.name(call.inode, number, NAMELESS if word == "tmpfile" else call.path)
        if word in ("create", "mkdir", "symlink"):
            self._name(number, call.inode, ((*self._place(number, call.path), call.inode),))
        elif word == "link":
            self._name(number, call.inode, ((*self._place(number, call.other), call.inode),))
            self.effect.name(call.inode, number, call.other)
        elif word == "unlink":
            place = self._place(number, call.path)
            self.effect.remove(self._at(number, place), number, call.path)
            self._name(number, self._at(number, place), ((*place, None),))
        elif word in ("rename", "exchange"):
            self._rename(number, call)
        else:
            self._change_file(number, call)

    def _change_file(self, number: int, call: NotedCall) -> None:
        match call.word:
            case "write":
                self._write(number, call, call.at)
            case "zero":
                self._zero(number, call)
            case "size":
                self._size(number, call)
            case "attributes" if call.inode:
                self._attributes(number, call)
            case "setxattr" | "removexattr":
                self._xattr(number, call)

    def _clear_set_id(self, number: int, call: NotedCall) -> None:
        """A process without CAP_FSETID that changes what a file holds clears its set-user-ID and set-group-ID
        bits.

        [code] fs/inode.c, file_remove_privs, and fs/attr.c, setattr_should_drop_suidgid.
        """
        owner = self._owner(call.inode) if call.word in ("write", "zero", "size") else None
        if owner is not None and not call.is_store:
            gone = owner[0] & ~call.owner[0] & _SET_ID
            if gone and call.owner == (owner[0] & ~gone, *owner[1:]):
                self._attributes(number, call)

    def _owner(self, inode: int) -> tuple[int, int, int] | None:
        made = self.effect.made.get(inode)
        return self.owners.get(inode, made.owner) if made else None

    def _attributes(self, number: int, call: NotedCall) -> None:
        differs = self._owner(call.inode) not in (None, call.owner)
        changes = frozenset({call.inode} if differs else ())
        self._add(number, Sort.ATTRIBUTES, call.inode, owner=call.owner, changes=changes)
        self.owners[call.inode] = call.owner

    def _xattr(self, number: int, call: NotedCall) -> None:
        """One extended attribute persists without the others, and without permissions and owner."""
        place, removes = (call.inode, call.other), call.word == "removexattr"
        value = None if removes else self.effect.notes.data[call.at : call.at + call.length]
        changes = frozenset({call.inode} if self.xattrs.get(place) != value else ())
        found = {"xattr": call.other, "at": call.at, "length": call.length, "removes": removes}
        self._add(number, Sort.ATTRIBUTES, call.inode, changes=changes, **found)
        self.xattrs[place] = value

    def _rename(self, number: int, call: NotedCall) -> None:
        old, new = self._place(number, call.path), self._place(number, call.other)
        moved, there = self._at(number, old), self.names.get(new)
        if moved == there:
            return
        back = there if call.word == "exchange" else None
        replaced = (there or 0) if back is None else 0
        self._name(number, moved, ((*old, back), (*new, moved)), replaced)
        kinds = {self.effect.made[inode].kind for inode in (moved, back) if inode is not None}
        if "directory" in kinds or back is not None:
            self.effect.move(number, call.path, call.other, exchanged=back is not None)
        else:
            self.effect.name(moved, number, call.other)
            self.effect.remove(moved, number, call.path)
        if replaced:
            self.effect.remove(replaced, number, call.other)

    def _write(self, number: int, call: NotedCall, at: int) -> None:
        """Block by block, each with a size up to its end: file systems write the size of a large write back
        with any part of its data. If the write leaves a gap, the block in which the file ended comes first.
        """
        end, size = call.offset + call.length, self.sizes.get(call.inode, 0)
        block, there = self.effect.rules.block_bytes, self.blocks.setdefault(call.inode, set[int]())
        if (tail := size - size % -block) <= call.offset:
            self._grow(number, call.inode, tail)
        for start, length in _blocks(call.offset, end, block):
            self._grow(number, call.inode, start + length)
            origin = at if at == ZEROS else at + start - call.offset
            comes_with = start + length if self.effect.rules.size_with_data and start + length > size else 0
            found = {"offset": start, "length": length, "at": origin, "size": comes_with}
            fresh = start // block not in there
            self._add(number, Sort.DATA, call.inode, **found, fresh=fresh, stored=call.is_store)
            if isinstance(there, set):
                there.add(start // block)

    def _grow(self, number: int, inode: int, end: int) -> None:
        """A write gives a file a size, if it is the larger one."""
        if end > (size := self.sizes.get(inode, 0)):
            self._add(number, Sort.SIZE, inode, size=end, offset=size, changes=frozenset({inode}))
            self.sizes[inode] = end

    def _size(self, number: int, call: NotedCall) -> None:
        """What a truncation cuts off within a block is zeroed there: that block may persist without the size,
        as ext4 and XFS show. Where nothing promises that it cuts at once, so may each block that it cuts off,
        and each size on the way.
        """
        block, old = self.effect.rules.block_bytes, self.sizes.get(call.inode, 0)
        changes = frozenset({call.inode} if old != call.length else ())
        for start, length in [*_blocks(call.length, old, block)][::-1] or [(call.length, 0)]:
            size = {"size": start, "offset": old, "exact": True, "changes": changes}
            self._add(number, Sort.SIZE, call.inode, on_the_way=start > call.length, **size)
            if length:
                cut = {"offset": start, "length": length, "at": ZEROS}
                self._add(number, Sort.DATA, call.inode, on_the_way=start % block == 0, **cut)
        self.sizes[call.inode] = call.length
        blocks = self.blocks.get(call.inode)
        if call.text.startswith("fallocate("):  # it may have added them anywhere
            self.blocks[call.inode] = range(FILE_BYTES_MAX)
        elif isinstance(blocks, set):
            self.blocks[call.inode] = {b for b in blocks if b * block < call.length}

    def _zero(self, number: int, call: NotedCall) -> None:
        end = min(call.offset + call.length, self.sizes.get(call.inode, 0))
        for start, length in _blocks(call.offset, end, self.effect.rules.block_bytes):
            found = {"offset": start, "length": length, "at": ZEROS, "changes": frozenset({call.inode})}
            self._add(number, Sort.DATA, call.inode, **found)
        self.blocks[call.inode] = range(FILE_BYTES_MAX)  # allocated, punched or zeroed: the notes do not tell

    def _name(self, number: int, inode: int, names: tuple[Named, ...], replaced: int = 0) -> None:
        given = (i for directory, _, held in names for i in (directory, held) if i is not None)
        changes = frozenset({inode, *given} | ({replaced} if replaced else set()))
        self._add(number, Sort.NAME, inode, names=names, changes=changes, replaced=replaced)
        for directory, name, held in names:
            self.names.pop((directory, name), None)
            if held is not None:
                self.names[directory, name] = held

    def _add(self, call: int, sort: Sort, inode: int, **fields: Any) -> None:
        if inode not in self.effect.made:
            raise NotFollowed(call, "it changes a file that no call made")
        if fields.get("size", 0) > FILE_BYTES_MAX:
            limit = f"{FILE_BYTES_MAX >> 20} MiB"
            raise NotFollowed(call, f"a file has {fields['size']:,} bytes, and can have {limit} at most")
        self.effect.add(Micro(len(self.effect.micros), call, sort, inode, **fields))

    def _place(self, number: int, path: str) -> tuple[int, str]:
        """The directory of a path, and the name in it."""
        *parents, name = path.split("/")
        if name in ("", ".", "..") or "\0" in name:
            raise NotFollowed(number, f"{name!r} is no name of a file")
        at = self.effect.notes.root
        for parent in parents:
            at = self._at(number, (at, parent))
        return at, name

    def _at(self, number: int, place: tuple[int, str]) -> int:
        if (found := self.names.get(place)) is None:
            raise NotFollowed(number, f"no call made the name {place[1]!r} that it is about")
        return found


def _blocks(start: int, end: int, block: int) -> Iterator[tuple[int, int]]:
    """The pieces of a range, each within one block: where each begins, and its length."""
    while start < end:
        stop = min(end, start - start % block + block)
        yield start, stop - start
        start = stop


def _needs(effect: Effect) -> Iterator[int]:
    last: dict[int, int] = {}
    for m, outdone in zip(effect.micros, _outdone(effect.micros), strict=True):
        needed = outdone
        if m.sort is Sort.NAME and effect.rules.names_in_order.holds:
            for directory in effect.directories_of(m):
                needed |= last.get(directory, 0)
            for directory in effect.directories_of(m):
                last[directory] = needed | m.bit
        yield needed


def _with_moves(effect: Effect, needs: Sequence[int]) -> Iterator[int]:
    """What each needs, with what keeps it from moving a directory below itself, and what that needs."""
    moves, done = list(_moves(effect)), list(needs)
    moving = bits_of(m for m in effect.micros if moves[m.number])
    for number, needed in enumerate(needs):
        for m in effect.of(moves[number] | needed & moving):
            done[number] |= m.bit | done[m.number]
        yield done[number]


def _moves(effect: Effect) -> Iterator[int]:
    """For each that moves a directory to one that may be below it, where other moves did not persist: what
    gave that one, and those above it, the places at which they are then.
    """
    places: dict[int, tuple[int, int]] = {}
    ever: dict[int, list[int]] = {}
    for m in effect.micros:
        moved = [(held, at) for at, _, held in m.names if held and effect.made[held].kind == "directory"]
        for held, at in moved:
            places[held] = at, m.bit
            ever.setdefault(held, []).append(at)
        needed = 0
        for held, at in moved if len(m.names) > 1 else ():
            needed |= _leading(places, at) if held in _above(ever, at) else 0
        yield needed & ~m.bit


def _leading(places: Mapping[int, tuple[int, int]], directory: int) -> int:
    """What gave a directory, and those above it, their places: each is in one, with what put it there."""
    found, seen = 0, set[int]()
    while directory in places and directory not in seen:  # a guest may have noted a circle
        seen.add(directory)
        directory, bit = places[directory]
        found |= bit
    return found


def _above(ever: Mapping[int, Sequence[int]], directory: int) -> set[int]:
    """A directory, and all that it may be below, by the directories in which each has ever been."""
    found, waiting = set[int](), [directory]
    while waiting:
        if (at := waiting.pop()) not in found:
            found.add(at)
            waiting += ever.get(at, ())
    return found


def _outdone(micros: Sequence[Micro]) -> Iterator[int]:
    """For each, what of the same call shows no more once it is there, so that one state stands for those with
    it and without: for a size, the sizes before it, and the blocks that are cut off.
    """
    for _, group in itertools.groupby(micros, lambda m: m.call):
        before = 0
        for m in group:
            yield before if m.sort is Sort.SIZE else 0
            before |= m.bit if m.sort is Sort.SIZE or m.on_the_way else 0


def _covered(effect: Effect, sync: NotedCall, time: float) -> int:
    """The micro-operations that a sync at a time covers, of those asked for before."""
    before = effect.before(time)
    if sync.word == "sync":
        return before
    found = _with_write(effect, sync, time) if sync.durable else _own(effect, sync)
    # The names in a directory are its data: fdatasync covers them, too, and SQLite and LevelDB call no other.
    found |= effect.mask(sync.inode, Sort.NAME)
    if effect.rules.fsync_names.holds and not effect.promised:
        found |= _names_of(effect, sync.inode, _last_change(effect, sync, time))
    return found & before


def _own(effect: Effect, sync: NotedCall) -> int:
    """The data and size of a file, and with fsync its attributes."""
    found = effect.mask(sync.inode, Sort.SIZE)
    found |= effect.mask(sync.inode, Sort.ATTRIBUTES) if sync.word != "fdatasync" else 0
    if sync.length:  # an msync(2) writes the pages of its range
        block, end = effect.rules.block_bytes, min(sync.offset + sync.length, FILE_BYTES_MAX)
        for number in range(sync.offset // block, -(-end // block)):
            found |= effect.mask(sync.inode, number)
        return found
    return found | effect.mask(sync.inode, Sort.DATA)


def _last_change(effect: Effect, sync: NotedCall, time: float) -> int:
    """The last call that changed the file or directory so that a sync of it waits for the journal, which
    then has every name up to that call. Of a file, an overwrite does not count, as it may change no more than
    a time that is the same; and fdatasync, O_DSYNC and msync wait for what made it and for its size alone: a
    name that it gets later changes nothing that reading the data needs. A file of O_TMPFILE gets all of them
    later.

    [code] fs/ext4/inode.c, ext4_update_inode_fsync_trans and ext4_do_update_inode: i_sync_tid, and
    i_datasync_tid where the size changes; fs/ext4/ialloc.c, __ext4_new_inode: both; fs/xfs/xfs_file.c,
    xfs_fsync_seq: up to the last change of the inode. ext4 commits all at any sync of a directory.
    """
    is_directory = sync.inode in effect.made and effect.made[sync.inode].kind == "directory"
    only_size = (sync.word == "fdatasync" or sync.durable == "dsync") and not is_directory
    counted = (Sort.SIZE,) if only_size else (Sort.SIZE, Sort.ATTRIBUTES, Sort.NAME, None)
    changes = (effect.until(time, sync.inode, what)[-1:] for what in counted)
    last = (effect.micros[n].call for numbers in changes for n in numbers)
    return max(last, default=effect.born(sync.inode, time))


def _with_write(effect: Effect, write: NotedCall, time: float) -> int:
    """What a durable write takes along: its size; with O_SYNC also the attributes, as fsync does.

    [code] fs/sync.c and include/linux/fs.h, generic_write_sync: vfs_fsync_range of what was written, with
    datasync but for IOCB_SYNC. [man] open(2), O_SYNC.
    """
    attributes = effect.mask(write.inode, Sort.ATTRIBUTES) if write.durable == "sync" else 0
    found = 0
    for number in reversed(effect.until(time - 1, write.inode, Sort.SIZE)):
        m = effect.micros[number]
        if m.size < write.offset + write.length:
            break
        found = m.bit
    return attributes | found


def _names_of(effect: Effect, inode: int, last: int) -> int:
    """What gave a file its names, and the directories that lead to it theirs, up to a call."""
    found, wanted, seen = 0, [inode], {inode}
    while wanted:
        of = wanted.pop()
        for m in (effect.micros[n] for n in effect.until(last, of, None)):
            given = [directory for directory, _, held in m.names if held == of]
            if given:
                found |= m.bit
                wanted += [d for d in given if d not in seen]
                seen.update(given)
    return found


def unsynced(effect: Effect, time: float) -> Iterator[tuple[str, str]]:
    """The files, and what of each a power cut at a time may take, as no sync had covered it or what hides it:
    ranges of bytes, sizes, names.
    """
    open_ = _Unsynced(effect, effect.issued(time), effect.durable(time))
    left = effect.of(open_.issued & ~open_.durable)
    for inode, group in itertools.groupby(sorted(left, key=lambda m: m.inode), lambda m: m.inode):
        if parts := list(dict.fromkeys(open_.parts(inode, sorted(group, key=lambda m: m.number)))):
            yield effect.path(inode, time), ", ".join(parts)


@dataclass(slots=True)
class _Unsynced:
    """What may be lost where so much was asked for and so much of that is durable. `_last`: of each place,
    the number of the durable micro-operation that set it last.
    """

    effect: Effect
    issued: int
    durable: int
    _last: dict[Place, int] = field(default_factory=dict)

    def parts(self, inode: int, micros: Sequence[Micro]) -> Iterator[str]:
        """In words, what of these of a file may be lost."""
        if not self._may_be_found(inode, frozenset()):
            return
        yield from _ranges(span for m in micros if m.sort is Sort.DATA for span in self._shown(m))
        if any(m.sort is Sort.SIZE and not self._is_outdone(m) for m in micros):
            yield "its size"
        if any(m.sort is Sort.ATTRIBUTES for m in micros):
            yield "its attributes"
        for m in micros:
            if any(self._is_last(m.number, (directory, name)) for directory, name, _ in m.names):
                yield _name_words(m)

    def _may_be_found(self, inode: int, below: frozenset[int]) -> bool:
        """Whether a file has a name in any state, or may get its first one yet."""
        named = [self.effect.micros[n] for n in self.effect.at(inode, None) if self.issued >> n & 1]
        given = [(m, d, name) for m in named for d, name, held in m.names if held == inode]
        if inode == self.effect.notes.root or not given:
            return True
        return inode not in below and any(
            self._is_last(m.number, (directory, name)) and self._may_be_found(directory, below | {inode})
            for m, directory, name in given
        )

    def _is_last(self, number: int, place: Place) -> bool:
        """Whether nothing durable has set the same later."""
        if (last := self._last.get(place)) is None:
            setting = reversed(self.effect.at(*place))
            last = self._last[place] = next((n for n in setting if self.durable >> n & 1), -1)
        return last <= number

    def _is_outdone(self, m: Micro) -> bool:
        """Whether the file has a size in any case that shows nothing of this one."""
        if m.exact or self._is_last(m.number, (m.inode, Sort.SIZE)):
            return False
        last = self.effect.micros[self._last[m.inode, Sort.SIZE]]
        return last.exact or last.size >= m.size

    def _shown(self, m: Micro) -> Iterator[tuple[int, int]]:
        """The ranges of a block over which nothing durable was written later."""
        spans, block = [(m.offset, m.offset + m.length)], (m.inode, m.offset // self.effect.rules.block_bytes)
        later = () if self._is_last(m.number, block) else self.effect.at(*block)
        for over in (self.effect.micros[n] for n in later if n > m.number and self.durable >> n & 1):
            end = over.offset + over.length
            parts = [part for a, b in spans for part in ((a, min(b, over.offset)), (max(a, end), b))]
            spans = [(a, b) for a, b in parts if a < b]
        yield from spans


def _ranges(spans: Iterable[tuple[int, int]]) -> Iterator[str]:
    held: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if held is not None and start <= held[1]:
            held = held[0], max(held[1], end)
            continue
        if held is not None:
            yield f"bytes {held[0]} to {held[1]}"
        held = start, end
    if held is not None:
        yield f"bytes {held[0]} to {held[1]}"


def _name_words(micro: Micro) -> str:
    gone = [name for _, name, held in micro.names if held is None]
    given = [name for _, name, held in micro.names if held == micro.inode]
    if gone and given:
        return f"its name {given[0]} in place of {gone[0]}"
    return f"its name {given[0]}" if given else f"that {gone[0]} was removed"
