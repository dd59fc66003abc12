"""The files of a state. Pure.

A name that persisted leads to its file, whether what gave it an earlier name did or not. What of a file no
block that persisted covers is zeros, as far as its size reaches.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness.rules.calls import Left, Notes, Xattrs
from harness.rules.micro import ZEROS, Effect, Micro, Sort
from harness.rules.states import Partial, Tear

_SET_ID = 0o6000
_PART_BLOCKS = 8
"""Blocks of a file that are made, and looked at, together."""
Piece = tuple[int, int, int]
"""Where it begins in the bytes that were noted, where in the file, and its length."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name. `first`: for another name of the same file, the first one. `digest`: of the contents. `xattrs`:
    as in `Left`.
    """

    kind: str
    owner: tuple[int, int, int]
    size: int = 0
    pieces: tuple[Piece, ...] = ()
    target: str = ""
    digest: bytes = b""
    first: str = ""
    xattrs: Xattrs = ()

    @property
    def essence(self) -> tuple[object, ...]:
        """What a program can see of it."""
        return *self.outside, self.digest

    @property
    def outside(self) -> tuple[object, ...]:
        """What a program can see of it that does not open it."""
        return self.kind, self.owner, self.size, self.target, self.first, self.xattrs


Files = Mapping[str, Entry]
"""By path; the directory itself is not among them."""


def key_of(files: Files) -> bytes:
    """The same for trees in which a program sees the same."""
    return _key({path: entry.essence for path, entry in files.items()})


def outside_key_of(files: Files) -> bytes:
    """The same for trees in which a program sees the same that opens no file."""
    return _key({path: entry.outside for path, entry in files.items()})


def _key(seen: Mapping[str, object]) -> bytes:
    told = repr(sorted((os.fsencode(path), repr(what)) for path, what in seen.items()))
    return hashlib.blake2b(told.encode(), digest_size=16).digest()


@dataclass(slots=True)
class Maker:
    """Makes the files of states."""

    effect: Effect
    _known: dict[tuple[int, int, Tear | None], Entry] = field(default_factory=dict)
    _own: dict[int, int] = field(default_factory=dict)
    _files: dict[int, _File] = field(default_factory=dict)
    _names: int = 0
    _paths: dict[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for m in self.effect.micros:
            if m.sort is Sort.NAME:
                self._names |= m.bit
            else:
                self._own[m.inode] = self._own.get(m.inode, 0) | m.bit

    def files(self, state: Partial) -> dict[str, Entry]:
        """The names that are there, each with its file."""
        found: dict[str, Entry] = {}
        firsts: dict[int, str] = {}
        for path, inode in self._paths_of(state.persisted & self._names):
            entry = self._entry(inode, state)
            if entry.kind == "file" and inode in firsts:
                entry = replace(entry, kind="link", size=0, pieces=(), first=firsts[inode])
            firsts.setdefault(inode, path)
            found[path] = entry
        return found

    def by_inode(self, state: Partial) -> dict[int, Entry]:
        """The files that have a name."""
        paths = self._paths_of(state.persisted & self._names)
        return {inode: self._entry(inode, state) for _, inode in paths}

    def _paths_of(self, persisted: int) -> tuple[tuple[str, int], ...]:
        """The paths that names give which persisted, each with its file. A directory has the last of its
        names, even if what took an earlier one away did not persist.
        """
        if (known := self._paths.get(persisted)) is None:
            names: dict[int, dict[str, int]] = {}
            places: dict[int, tuple[int, str]] = {}
            for m in self.effect.of(persisted):
                for directory, name, held in m.names:
                    names.setdefault(directory, {}).pop(name, None)
                    if held is None:
                        continue
                    if self.effect.made[held].kind == "directory":
                        above, earlier = places.get(held, (directory, name))
                        if names[above].get(earlier) == held:
                            del names[above][earlier]
                        places[held] = directory, name
                    names[directory][name] = held
            known = self._paths[persisted] = tuple(self._reached(names))
        return known

    def _reached(self, names: Mapping[int, Mapping[str, int]]) -> Iterator[tuple[str, int]]:
        """The paths from the root, each directory once, whatever a guest noted."""
        waiting, seen = [("", self.effect.notes.root)], {self.effect.notes.root}
        while waiting:
            top, directory = waiting.pop()
            for name, inode in sorted(names.get(directory, {}).items()):
                is_directory = self.effect.made[inode].kind == "directory"
                if is_directory and inode in seen:
                    continue
                path = f"{top}/{name}" if top else name
                yield path, inode
                if is_directory:
                    seen.add(inode)
                    waiting.append((path, inode))

    def _entry(self, inode: int, state: Partial) -> Entry:
        own = self._own.get(inode, 0) & state.persisted
        torn = state.torn if state.torn and own >> state.torn.number & 1 else None
        known = self._known.get((inode, own, torn))
        if known is None:
            known = self._known[inode, own, torn] = self._made(inode, own, torn)
        return known

    def _made(self, inode: int, own: int, torn: Tear | None) -> Entry:
        made, file = self.effect.made[inode], self._file(inode)
        owner, xattrs = file.owner(own) or made.owner, file.xattrs(own)
        if made.kind != "file":
            return Entry(made.kind, owner, target=made.target, xattrs=xattrs)
        size = file.size(own)
        parts = list(file.parts(own, torn, size))
        pieces = tuple(_joined(piece for part, _ in parts for piece in part))
        digest = hashlib.blake2b(b"".join(digest for _, digest in parts), digest_size=16).digest()
        return Entry("file", owner, size, pieces, digest=digest, xattrs=xattrs)

    def _file(self, inode: int) -> _File:
        if (known := self._files.get(inode)) is None:
            known = self._files[inode] = _File(self.effect, self._own.get(inode, 0))
        return known


@dataclass(slots=True)
class _File:
    """One file in all states. It is made in parts of some blocks: most states have most parts in common with
    others, and whoever followed the file from its first write would follow it as often as there are states.
    `_changing`: by part, the micro-operations that change its bytes. `_sizes`, `_owners`, `_xattrs`: those
    that change these.
    """

    effect: Effect
    every: int
    _changing: list[int] = field(default_factory=list)
    _sizes: int = 0
    _owners: int = 0
    _xattrs: int = 0
    _known_sizes: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, int, int, Tear | None], tuple[tuple[Piece, ...], bytes]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        cuts: list[tuple[int, int]] = []
        changing: dict[int, int] = {}
        for m in self.effect.of(self.every):
            if m.xattr:
                self._xattrs |= m.bit
            elif m.sort is Sort.ATTRIBUTES:
                self._owners |= m.bit
            elif m.sort is Sort.DATA:
                part = m.offset // self._part_bytes
                changing[part] = changing.get(part, 0) | m.bit
                self._sizes |= m.bit if m.size else 0
            else:
                self._sizes |= m.bit
                cuts += [(self._cut_from(m) // self._part_bytes, m.bit)] if m.exact else []
        self._changing = [changing.get(part, 0) for part in range(max(changing, default=-1) + 1)]
        for first, bit in cuts:
            for part in range(first, len(self._changing)):
                self._changing[part] |= bit

    @property
    def _part_bytes(self) -> int:
        return _PART_BLOCKS * self.effect.rules.block_bytes

    def _cut_from(self, m: Micro) -> int:
        """What is behind a truncation: the rest of its last block stays on the disk until zeros are written
        over it.
        """
        return m.size - m.size % -self.effect.rules.block_bytes

    def owner(self, own: int) -> tuple[int, int, int] | None:
        """What a set of its micro-operations leaves as its owner; None if it changes none."""
        last = (own & self._owners).bit_length()
        return self.effect.micros[last - 1].owner if last else None

    def xattrs(self, own: int) -> Xattrs:
        """The extended attributes that it leaves."""
        data, found = self.effect.notes.data, dict[str, bytes]()
        for m in self.effect.of(own & self._xattrs):
            found.pop(m.xattr, None)
            if not m.removes:
                found[m.xattr] = data[m.at : m.at + m.length]
        return tuple(sorted(found.items()))

    def size(self, own: int) -> int:
        """The size that it leaves."""
        own &= self._sizes
        if (size := self._known_sizes.get(own)) is None:
            size = 0
            for m in self.effect.of(own):
                size = m.size if m.exact else max(size, m.size)
            self._known_sizes[own] = size
        return size

    def parts(self, own: int, torn: Tear | None, size: int) -> Iterator[tuple[tuple[Piece, ...], bytes]]:
        """What it leaves in each part of so many bytes: the pieces, and a digest of the contents."""
        for part, begin in enumerate(range(0, size, self._part_bytes)):
            there = own & self._changing[part] if part < len(self._changing) else 0
            torn_here = torn if torn and there >> torn.number & 1 else None
            key = part, there, min(size, begin + self._part_bytes), torn_here
            if (known := self._known.get(key)) is None:
                known = self._known[key] = self._part(*key)
            yield known

    def _part(self, part: int, there: int, end: int, torn: Tear | None) -> tuple[tuple[Piece, ...], bytes]:
        pieces = list[Piece]()
        for m in self.effect.of(there):
            if m.sort is Sort.SIZE:
                pieces = list(_cut(pieces, self._cut_from(m)))
            else:
                pieces.append(self._piece(m, torn if torn and m.number == torn.number else None))
        shown, begin = tuple(_joined(_cut(pieces, end))), part * self._part_bytes
        held = contents(self.effect.notes, end, shown, begin)
        return shown, hashlib.blake2b(held, digest_size=16).digest()

    def _piece(self, micro: Micro, torn: Tear | None) -> Piece:
        """All of a block, or what of it persisted: its part in the first sectors, or in the others."""
        if torn is None:
            return micro.at, micro.offset, micro.length
        cut = torn.cut - micro.offset % self.effect.rules.torn_bytes
        if not torn.end:
            return micro.at, micro.offset, cut
        at = micro.at if micro.at == ZEROS else micro.at + cut
        return at, micro.offset + cut, micro.length - cut


def _cut(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    for at, offset, length in pieces:
        if offset < size:
            yield at, offset, min(length, size - offset)


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Pieces that follow each other in the file and in what was noted are one."""
    held: Piece | None = None
    for at, offset, length in pieces:
        if held and at != ZEROS and (at, offset) == (held[0] + held[2], held[1] + held[2]):
            held = held[0], held[1], held[2] + length
            continue
        if held:
            yield held
        held = at, offset, length
    if held:
        yield held


def contents(notes: Notes, size: int, pieces: tuple[Piece, ...], begin: int = 0) -> bytes:
    """The bytes of a file, from `begin` on, where none of its pieces begins before that."""
    made = bytearray(size - begin)
    for at, offset, length in pieces:
        piece = bytes(length) if at == ZEROS else notes.data[at : at + length]
        made[offset - begin : offset - begin + length] = piece
    return bytes(made)


def wire_pieces(pieces: tuple[Piece, ...]) -> list[Piece]:
    """The pieces as a guest is told them: what was zeroed is cut out of those before it."""
    done: list[Piece] = []
    end = 0
    for at, offset, length in pieces:
        if offset < end:
            done = [part for piece in done for part in _outside(piece, offset, offset + length)]
        end = max(end, offset + length)
        if at != ZEROS:
            done.append((at, offset, length))
    return done


def _outside(piece: Piece, start: int, end: int) -> Iterator[Piece]:
    at, offset, length = piece
    if offset < start:
        yield at, offset, min(length, start - offset)
    if offset + length > end:
        skipped = max(0, end - offset)
        yield at + skipped, offset + skipped, length - skipped


def law_broken(effect: Effect) -> str:
    """What differs between the tree that all calls give, done again, and the one that the program left, and
    the last call about it; empty if nothing does.
    """
    notes = effect.notes
    made, had = Maker(effect).files(Partial(effect.every)), dict[str, set[int]]()
    for inode, names in effect.paths.items():
        for _, name in names:
            had.setdefault(name, set()).add(inode)
    left = {found.path: found for found in notes.left if found.kind != "special"}
    for path in sorted({*made, *left}):
        if what := _differs(notes, made.get(path), left.get(path), made):
            files = had.get(path, ())
            about = [c.text or c.word for c in notes.calls if path in (c.path, c.other) or c.inode in files]
            last = f"; the last call about it was {about[-1]}" if about else "; no call was about it"
            return f"replaying the calls does not give the files that the program left: {path} {what}{last}"
    return ""


def _differs(notes: Notes, made: Entry | None, left: Left | None, every: Files) -> str:
    if made is not None and made.first:
        made = every[made.first]
    if made is None or left is None:
        return "is not there" if made is None else "is not what the program left there"
    if made.kind != left.kind:
        return f"is a {made.kind}, and was a {left.kind}"
    if made.owner != left.owner and made.kind != "symlink":
        return _of_owners(made.owner, left.owner)
    if made.target != left.target:
        return f"leads to {made.target}, and led to {left.target}"
    if made.xattrs != left.xattrs:
        names = dict.fromkeys(name for name, _ in sorted({*made.xattrs} ^ {*left.xattrs}))
        return f"has other extended attributes: {', '.join(names)}"
    held = contents(notes, made.size, made.pieces) if made.kind == "file" else b""
    return _of_contents(held, left.contents) if held != left.contents else ""


def _of_owners(made: tuple[int, int, int], left: tuple[int, int, int]) -> str:
    """A write to a file from memory that cannot be read clears the bits before it fails.

    [code] mm/shmem.c, shmem_file_write_iter: file_remove_privs comes before generic_perform_write.
    """
    gone = made[0] & ~left[0]
    if made == (left[0] | gone, *left[1:]) and not gone & ~_SET_ID:
        return (
            f"was to have mode {made[0]:04o}, and had {left[0]:04o}: a write or truncation that fails may "
            "clear the set-user-ID and set-group-ID bits, and calls that fail are not noted"
        )
    shown = (f"mode {mode:04o}, user {uid}, group {gid}" for mode, uid, gid in (made, left))
    return f"has other permissions or another owner: {', and it was '.join(shown)}"


def _of_contents(made: bytes, left: bytes) -> str:
    first = next((n for n, (one, other) in enumerate(zip(made, left, strict=False)) if one != other), None)
    if first is None:
        return f"has other contents: {len(made)} bytes, and it had {len(left)}"
    return f"has other contents, from byte {first} on"
