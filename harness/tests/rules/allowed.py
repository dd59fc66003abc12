"""Whether the rules leave a tree possible: of any tree, not of one that was made of micro-operations. Pure.

Where no micro-operation needs another, each name, each size and each block of data has persisted or not by
itself. So no states are gone through: each part is decided alone, from the last micro-operation about it to
the first. One that gives what is there counts as persisted, since that excuses all before it; one that does
not has to be lost, which it may be if nothing made it durable. What is left has to be what was there before:
nothing, or zeros. So the work grows with what the program did, and not with its states.

A tree is refused only if no state gives it. What is not looked at: blocks that are torn (each has to be there
as a whole, or not at all), extended attributes, and whether two names that may be of one file or of two are
of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.rules.calls import Left
from harness.rules.micro import ZEROS, Effect, Micro, Sort
from harness.rules.states import Stretch

_Span = tuple[int, int]
_Slot = tuple[int, str]
"""A directory's inode, and a name in it."""
_Given = Mapping[_Slot, frozenset[int | None]]
"""What each name may be of; None: it is not there."""
_DURABLE = " (durable by "


@dataclass(slots=True)
class Allowed:
    """What the rules allow of a program. Raises ValueError for rules by which one micro-operation needs
    another.
    """

    effect: Effect
    _own: dict[int, list[Micro]] = field(default_factory=dict)
    _names: list[Micro] = field(default_factory=list)
    _values: dict[_Slot, list[tuple[int, int | None]]] = field(default_factory=dict)
    _known: dict[tuple[int, Left, int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = self.effect.rules
        if rules.names_in_order.holds or rules.contract:
            raise ValueError("by these rules a micro-operation needs another")
        for m in self.effect.micros:
            if m.sort is Sort.NAME:
                self._names.append(m)
                for directory, name, held in m.names:
                    self._values.setdefault((directory, name), []).append((m.bit, held))
            else:
                self._own.setdefault(m.inode, []).append(m)

    def between(self, returned: int, begun: int) -> Stretch:
        """What may be left when so many calls, the first, had returned, and so many had begun: what a sync
        that returned covers is durable.
        """
        durable = 0
        for sync in self.effect.syncs:
            if sync.time < returned:
                durable |= sync.covers
        return Stretch(durable, self.effect.issued(begun - 1), float(begun))

    def kept_by(self, micro: Micro) -> str:
        """Which kind of call made a micro-operation durable, the first that did."""
        times = [sync.time for sync in self.effect.syncs if sync.covers & micro.bit]
        return f"{_DURABLE}{self.effect.notes.calls[int(min(times))].word})"

    def refusal(self, tree: Iterable[Left], stretch: Stretch) -> str:
        """Why the rules do not leave a tree possible in a stretch; empty if they do."""
        return _Tree(self, {left.path: left for left in tree}, stretch).refusal()

    def file_refusal(self, inode: int, left: Left, stretch: Stretch) -> str:
        """Why a file cannot have come back as this; empty if it can."""
        made = self.effect.made[inode]
        if made.kind != left.kind:
            return f"it is a {left.kind}, and was made as a {made.kind}"
        if made.target != left.target:
            return f"it leads to {left.target}, and was made to lead to {made.target}"
        own = self._own.get(inode, [])
        durable = sum(m.bit for m in own if m.bit & stretch.durable)
        asked = sum(m.bit for m in own if m.bit & stretch.asked)
        key = inode, left, durable, asked
        if (known := self._known.get(key)) is None:
            known = self._known[key] = _File(self, inode, left, durable, asked).refusal()
        return known

    def made_by(self, slot: _Slot, asked: int) -> list[int]:
        """The files that a name may have been given to."""
        values = self._values.get(slot, [])
        return list(dict.fromkeys(held for bit, held in values if bit & asked and held is not None))

    @property
    def slots(self) -> Iterable[_Slot]:
        """All names that were ever set."""
        return self._values

    def own(self, inode: int, asked: int) -> list[Micro]:
        """What changes a file, in order."""
        return [m for m in self._own.get(inode, []) if m.bit & asked]

    def names_refusal(self, given: _Given, stretch: Stretch) -> str:
        """Why the names cannot be these; empty if they can. A name that is not among them may be anything."""
        decided: set[_Slot] = set()
        for m in reversed(self._names):
            if not m.bit & stretch.asked:
                continue
            wrong = _wrong(m, given, decided)
            if wrong is None:
                decided.update((directory, name) for directory, name, _ in m.names)
            elif m.bit & stretch.durable:
                call = self.effect.notes.calls[m.call]
                by = self.kept_by(m)
                return f"{wrong[1]} is not what the call {m.call}, {call.text or call.word}, made{by}"
        for slot, may in given.items():
            if slot not in decided and None not in may:
                return f"{slot[1]} is there, and what gave it that name cannot have been the last"
        return ""


def _wrong(micro: Micro, given: _Given, decided: set[_Slot]) -> _Slot | None:
    """A name that is not what a micro-operation sets; None if there is none."""
    for directory, name, held in micro.names:
        slot = directory, name
        if slot in given and slot not in decided and held not in given[slot]:
            return slot
    return None


@dataclass(slots=True)
class _Tree:
    """A tree in a stretch."""

    allowed: Allowed
    tree: Mapping[str, Left]
    stretch: Stretch
    why: str = ""

    def refusal(self) -> str:
        root = self.allowed.effect.notes.root
        directories = [path for path, left in sorted(self.tree.items()) if left.kind == "directory"]
        for of in self._assigned({"": root}, directories):
            files = self._files(of)
            if files is None:
                continue
            refused = self.allowed.names_refusal(self._given(of, files), self.stretch)
            if not refused and not (refused := self._apart(files)):
                return ""
            self.why = refused
        return self.why

    def _assigned(self, of: Mapping[str, int], directories: Sequence[str]) -> Iterator[Mapping[str, int]]:
        """The ways to tell which directory each one is."""
        if not directories:
            yield of
            return
        path, rest = directories[0], directories[1:]
        for inode in self._candidates(path, of):
            if inode not in of.values():
                yield from self._assigned({**of, path: inode}, rest)

    def _candidates(self, path: str, of: Mapping[str, int]) -> list[int]:
        """The files that a name may be of, by what is in them."""
        top, _, name = path.rpartition("/")
        if top not in of:
            self.why = f"{path} is below what is no directory"
            return []
        made = self.allowed.made_by((of[top], name), self.stretch.asked)
        refused = {i: self.allowed.file_refusal(i, self.tree[path], self.stretch) for i in made}
        if found := [i for i in made if not refused[i]]:
            return found
        self.why = f"{path}: {'; or '.join(refused.values()) or 'no call gave a file this name'}"
        return []

    def _files(self, of: Mapping[str, int]) -> dict[str, frozenset[int]] | None:
        """What each name may be of that is of no directory; None if one may be of nothing."""
        found: dict[str, frozenset[int]] = {}
        for path, left in self.tree.items():
            if left.kind != "directory":
                found[path] = frozenset(self._candidates(path, of))
                if not found[path]:
                    return None
        return found

    def _given(self, of: Mapping[str, int], files: Mapping[str, frozenset[int]]) -> _Given:
        """What each name that was ever set may be of. One below a directory that is not there may be of
        anything. A directory that is there may have a second name: it is not shown twice.
        """
        path_of = {inode: path for path, inode in of.items()}
        given: dict[_Slot, frozenset[int | None]] = {}
        for directory, name in self.allowed.slots:
            if (top := path_of.get(directory)) is None:
                continue
            path = f"{top}/{name}" if top else name
            if path in of:
                given[directory, name] = frozenset({of[path]})
            else:
                given[directory, name] = files.get(path) or frozenset({None, *of.values()})
        return given

    def _apart(self, files: Mapping[str, frozenset[int]]) -> str:
        """Two names that can only be of one file have to show the same."""
        shown: dict[int, tuple[str, Left]] = {}
        for path, may in files.items():
            if len(may) == 1:
                (inode,) = may
                other, left = shown.setdefault(inode, (path, self.tree[path]))
                if (left.contents, left.owner) != (self.tree[path].contents, self.tree[path].owner):
                    return f"{other} and {path} are one file, and show two"
        return ""


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it came back, and what of its own micro-operations is durable, and was asked for."""

    allowed: Allowed
    inode: int
    left: Left
    durable: int
    asked: int

    def refusal(self) -> str:
        own = self.allowed.own(self.inode, self.asked)
        if self.left.kind != "symlink" and self.left.owner not in self._owners(own):
            return f"its permissions and owner are {self.left.owner}, which it never had, or no longer"
        if self.left.kind != "file":
            return ""
        refused = [self._size_refusal(own, cut) or self._data_refusal(own, cut) for cut in self._cuts(own)]
        # Of several, none of which can be: what was durable is told, as it holds whatever else persisted.
        return max(refused, key=lambda why: _DURABLE in why) if all(refused) else ""

    def _owners(self, own: Sequence[Micro]) -> set[tuple[int, int, int]]:
        found = {self.allowed.effect.made[self.inode].owner}
        for m in own:
            if m.sort is Sort.ATTRIBUTES and not m.xattr:
                found = {m.owner} if m.bit & self.durable else {*found, m.owner}
        return found

    def _cuts(self, own: Sequence[Micro]) -> Iterator[Micro | None]:
        """What may have been the last truncation that persisted; None: none did."""
        for m in reversed(own):
            if m.exact:
                yield m
                if m.bit & self.durable:
                    return
        yield None

    def _size_refusal(self, own: Sequence[Micro], cut: Micro | None) -> str:
        sizes = [m for m in own if m.sort is Sort.SIZE and not m.exact and (not cut or m.number > cut.number)]
        durable = [m for m in (cut, *sizes) if m and m.bit & self.durable]
        largest = max(durable, key=lambda m: m.size, default=None)
        least = max(largest.size if largest else 0, cut.size if cut else 0)
        found = len(self.left.contents)
        if found != least and not any(m.size == found > least for m in sizes):
            by = self.allowed.kept_by(largest) if largest else ""
            return f"it has {found} bytes, which no call left it with; {least} would be the least{by}"
        return ""

    def _data_refusal(self, own: Sequence[Micro], cut: Micro | None) -> str:
        """What of its bytes nothing can have given it, from the last change to the first."""
        open_: list[_Span] = [(0, len(self.left.contents))]
        for m in reversed(own):
            if m.exact and cut and m.number <= cut.number:
                end = m.size - m.size % -self.allowed.effect.rules.block_bytes
                span, origin = (end, len(self.left.contents)), ZEROS
            elif m.sort is Sort.DATA:
                span, origin = (m.offset, m.offset + m.length), m.at
            else:
                continue
            shown = list(_within(open_, span))
            if wrong := self._other(shown, span[0], origin):
                if m.bit & self.durable or m is cut:
                    told = f"the call {m.call}, {self.allowed.effect.notes.calls[m.call].text},"
                    by = self.allowed.kept_by(m) if m.bit & self.durable else ""
                    return f"its bytes {wrong[0]} to {wrong[1]} are not from {told} or a later one{by}"
            else:
                open_ = [part for one in open_ for part in _less(one, span)]
        wrong = self._other(open_, 0, ZEROS)
        return f"its bytes {wrong[0]} to {wrong[1]} are neither zeros nor from a call" if wrong else ""

    def _other(self, spans: Iterable[_Span], begin: int, origin: int) -> _Span | None:
        """The first of these spans that has other bytes than those that were noted from `origin` on, for what
        begins there; None if none has.
        """
        data = self.allowed.effect.notes.data
        for start, end in spans:
            at = origin + start - begin
            expected = bytes(end - start) if origin == ZEROS else data[at : at + end - start]
            if self.left.contents[start:end] != expected:
                return start, end
        return None


def _within(spans: Iterable[_Span], of: _Span) -> Iterator[_Span]:
    for start, end in spans:
        if max(start, of[0]) < min(end, of[1]):
            yield max(start, of[0]), min(end, of[1])


def _less(span: _Span, gone: _Span) -> Iterator[_Span]:
    """What of a span is outside of another."""
    if span[0] < min(span[1], gone[0]):
        yield span[0], min(span[1], gone[0])
    if max(span[0], gone[1]) < span[1]:
        yield max(span[0], gone[1]), span[1]
