"""The names of the reference model over a history, kept as changes.

Thousands of operations on thousands of names: a copy of all names for each operation takes time and memory
that grow with the square of their number, and so does a list of all of a file's names beside each of them. So
an operation notes only what it changes, of paths (to which inode they lead) and of inodes (mode, attributes,
names), and what was current at a *version*, the number of operations done, is looked up.

Namespaces are compared by *fingerprints*: sums of 128-bit hashes, one for each inode with all its names,
which an operation brings up to date by subtracting and adding. Where fingerprints agree, the names are
compared themselves.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

ROOT = -1
ABSENT = -2  # in place of an inode: there is no such name
_BITS = (1 << 128) - 1

Attributes = tuple[tuple[str, bytes], ...]
Owner = tuple[int, int]
"""User and group."""
_ROOT_USER: Owner = (0, 0)
V = TypeVar("V")


class Name(NamedTuple):
    """What is visible of a name, except times and inode numbers. `group`: every name of the file (hard
    links), this one included, in order; empty for a directory, whose link count is not judged.
    """

    kind: str
    group: tuple[str, ...]
    links: int
    mode: int
    target: bytes
    xattrs: Attributes
    owner: Owner = _ROOT_USER


class Shape(NamedTuple):
    """The attributes of an inode that are visible through any of its names. `xattrs`: their fingerprint."""

    kind: str
    mode: int
    target: bytes
    xattrs: int
    owner: Owner = _ROOT_USER


class InodeState(NamedTuple):
    """An inode between two changes. `links`: the number of its names. `xattrs`: how many changes of its
    extended attributes have been made. `fingerprint`: of shape and names, 0 without a name.
    """

    shape: Shape
    links: int
    xattrs: int
    fingerprint: int


def _hash(*parts: bytes) -> int:
    """128 bits that depend on every part and on where it ends."""
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return int.from_bytes(whole.digest(), "little")


@functools.lru_cache(1 << 16)
def path_fingerprint(path: str) -> int:
    return _hash(path.encode("utf-8", "surrogateescape"))


def attribute_fingerprint(name: str, value: bytes) -> int:
    return _hash(name.encode("utf-8", "surrogateescape"), value)


def attributes_fingerprint(attributes: Attributes) -> int:
    return sum(attribute_fingerprint(n, v) for n, v in attributes) & _BITS


def inode_fingerprint(shape: Shape, links: int, paths: int) -> int:
    """`paths`: the sum of the fingerprints of all its names."""
    numbers = f"{links} {shape.mode} {shape.owner} {shape.xattrs} {paths & _BITS}"
    return _hash(shape.kind.encode(), numbers.encode(), shape.target)


class Versioned(Generic[V]):
    """A value over time: what it became, and at which versions."""

    __slots__ = ("values", "versions")

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.values: list[V] = []

    def put(self, version: int, value: V) -> None:
        """The value from this version on, which is no earlier than the last."""
        if self.versions and self.versions[-1] == version:
            self.values[-1] = value
        else:
            self.versions.append(version)
            self.values.append(value)

    def at(self, version: int, default: V) -> V:
        at = bisect.bisect_right(self.versions, version)
        return self.values[at - 1] if at else default

    def after(self, since: int, until: int) -> Sequence[V]:
        """What it became after the first of these versions and until the second, in order."""
        first = bisect.bisect_right(self.versions, since)
        return self.values[first : bisect.bisect_right(self.versions, until, lo=first)]

    def spans(self, since: int, until: int) -> Iterator[tuple[int, int, V]]:
        """The values between these versions, both included, in order, each with its first and last version
        there. Nothing for the time before the first.
        """
        for i in range(max(bisect.bisect_right(self.versions, since) - 1, 0), len(self.versions)):
            if self.versions[i] > until:
                return
            after = self.versions[i + 1] if i + 1 < len(self.versions) else until + 1
            yield max(self.versions[i], since), min(after - 1, until), self.values[i]


class InodeHistory:
    """One inode over time. `states`: what it was; the last `InodeState` for all later versions."""

    def __init__(self, kind: str, target: bytes) -> None:
        self.kind, self.target = kind, target
        self.states: Versioned[InodeState] = Versioned()
        self.xattrs: list[tuple[str, bytes | None]] = []
        self._versions: dict[int, list[tuple[int, int]]] | None = None

    def attributes(self, changes: int) -> Attributes:
        """The extended attributes after so many of their changes, in order."""
        now: dict[str, bytes] = {}
        for name, value in self.xattrs[:changes]:
            if value is None:
                now.pop(name, None)
            else:
                now[name] = value
        return tuple(sorted(now.items()))

    def had(self, fingerprint: int, since: int, until: int) -> bool:
        """Whether that was its fingerprint at some version between these."""
        if self._versions is None:
            found: dict[int, list[tuple[int, int]]] = defaultdict(list)
            for first, last, state in self.states.spans(0, _BITS):
                found[state.fingerprint].append((first, last))
            self._versions = dict(found)
        return any(first <= until and last >= since for first, last in self._versions.get(fingerprint, ()))


class Recovered:
    """The names that were recovered, as they are compared with those of the model.

    `paths`: the names of each fingerprint; `of_path`: the fingerprint of each name. `fingerprint`: of all
    names, or None where names of one inode differ in more than their paths, as no model's do.
    """

    def __init__(self, names: Mapping[str, Name]) -> None:
        self.names = names
        self.paths: dict[int, list[str]] = {}
        self.of_path: dict[str, int] = {}
        inodes: dict[str, list[str]] = defaultdict(list)
        for path, name in names.items():
            inodes[name.group[0] if name.group else path].append(path)
        for first, paths in inodes.items():
            group = names[first].group if first in names else ()
            self._take(paths, sum(map(path_fingerprint, group or paths)))
        alike = len(self.paths) == len(inodes)
        self.fingerprint = sum(self.paths) & _BITS if alike else None

    def _take(self, paths: Sequence[str], sums: int) -> None:
        """Names of one inode, whose fingerprints come to `sums`."""
        known: dict[tuple[object, ...], int] = {}
        for path in paths:
            name = self.names[path]
            looks = (name.kind, name.links, name.mode, name.target, name.xattrs, name.owner)
            number = known.get(looks)
            if number is None:
                xattrs = attributes_fingerprint(name.xattrs)
                shape = Shape(name.kind, name.mode, name.target, xattrs, name.owner)
                number = known[looks] = inode_fingerprint(shape, name.links, sums)
            self.paths.setdefault(number, []).append(path)
            self.of_path[path] = number


class Namespace:
    """All names and inodes over the versions of a history. The operations put in what they change, in order
    (`put_inode`, `put_xattr`, `put_path`, then `close`); after that it is only read.
    """

    def __init__(self) -> None:
        self.inodes: dict[int, InodeHistory] = {}
        self._paths: dict[str, Versioned[int]] = {}
        self._count: Versioned[int] = Versioned()  # of paths
        self._changed: dict[int, list[int]] = {}  # version to the inodes that were changed at it
        self._fingerprints: list[int] = [0]  # by version
        self._versions: dict[int, list[int]] = {0: [0]}
        self._now: dict[str, int] = {}
        self._sums: dict[int, int] = defaultdict(int)  # of the fingerprints of an inode's names
        self._counts: dict[int, int] = defaultdict(int)
        self._xattrs: dict[int, int] = defaultdict(int)  # fingerprints
        # inodes changed by the current operation, with their modes and owners
        self._touched: dict[int, tuple[int, Owner]] = {}
        self.changes = 0

    # --- written by the replay ---

    @property
    def version(self) -> int:
        """The version that the changes put in next belong to."""
        return len(self._fingerprints)

    def put_inode(self, inode: int, kind: str, mode: int, target: bytes, owner: Owner = _ROOT_USER) -> None:
        """An inode has this mode and owner now, or new names or attributes."""
        if inode not in self.inodes:
            self.inodes[inode] = InodeHistory(kind, target)
        self._touched[inode] = (mode, owner)

    def put_xattr(self, inode: int, name: str, old: bytes | None, new: bytes | None) -> None:
        """Call `put_inode` as well."""
        for sign, value in ((-1, old), (1, new)):
            if value is not None:
                self._xattrs[inode] += sign * attribute_fingerprint(name, value)
        self._xattrs[inode] &= _BITS
        self.inodes[inode].xattrs.append((name, new))

    def put_path(self, path: str, inode: int) -> None:
        """The path leads to that inode now, or to none (ABSENT). Call `put_inode` for both, as well."""
        before = self._now.get(path, ABSENT)
        if before == inode:
            return
        for sign, whose in ((-1, before), (1, inode)):
            if whose != ABSENT:
                self._sums[whose] += sign * path_fingerprint(path)
                self._counts[whose] += sign
        if inode == ABSENT:
            del self._now[path]
        else:
            self._now[path] = inode
        self._paths.setdefault(path, Versioned()).put(self.version, inode)
        self.changes += 1

    def close(self) -> None:
        """The current operation has put in all its changes."""
        version, total = self.version, self._fingerprints[-1]
        for inode, (mode, owner) in self._touched.items():
            known = self.inodes[inode]
            before = known.states.values[-1].fingerprint if known.states.values else 0
            state = self._state(inode, known, mode, owner)
            known.states.put(version, state)
            total += state.fingerprint - before
            self.changes += 1
        if self._touched:
            self._changed[version] = list(self._touched)
            self._touched = {}
            self._count.put(version, len(self._now))
        self._fingerprints.append(total & _BITS)
        self._versions.setdefault(total & _BITS, []).append(version)

    def _state(self, inode: int, known: InodeHistory, mode: int, owner: Owner) -> InodeState:
        shape = Shape(known.kind, mode, known.target, self._xattrs[inode], owner)
        count = self._counts[inode]
        links = 0 if known.kind == "directory" else count
        number = inode_fingerprint(shape, links, self._sums[inode]) if count else 0
        return InodeState(shape, count, len(known.xattrs), number)

    # --- read by the judges ---

    def changed(self, operation: int) -> bool:
        """Whether the operation changed the names."""
        return self._fingerprints[operation] != self._fingerprints[operation + 1]

    def inode(self, path: str, version: int) -> int:
        """Where the path led then, or ABSENT."""
        if not path:
            return ROOT
        kept = self._paths.get(path)
        return kept.at(version, ABSENT) if kept else ABSENT

    def ever_of(self, inodes: Collection[int]) -> list[str]:
        """The paths that led to one of these inodes at some version."""
        return [p for p, kept in self._paths.items() if not set(inodes).isdisjoint(kept.values)]

    def been(self, path: str, since: int, until: int) -> set[int]:
        """Where the path led at the versions between these, both included; ABSENT among them if nowhere."""
        kept = self._paths.get(path)
        return {kept.at(since, ABSENT), *kept.after(since, until)} if kept else {ABSENT}

    def matching(self, recovered: Recovered) -> Sequence[int]:
        """The versions at which the names were these, ascending."""
        if recovered.fingerprint is None:
            return ()
        versions = self._versions.get(recovered.fingerprint, ())
        # Equal sums of different names would be a chance of 1 in 2^128, and defects have better ones.
        return versions if versions and self._is(recovered, versions[-1]) else ()

    def matches(self, recovered: Recovered, version: int, without: Collection[int]) -> bool:
        """Whether the names were these then, those of some inodes aside."""
        states = (self.inodes[inode].states.at(version, _NO_STATE) for inode in without)
        rest = self._fingerprints[version] - sum(state.fingerprint for state in states)
        return recovered.fingerprint == rest & _BITS

    def _is(self, recovered: Recovered, version: int) -> bool:
        """Whether the names were these, compared one by one."""
        if len(recovered.names) != self._count.at(version, 0):
            return False
        for paths in recovered.paths.values():
            found = {self.inode(p, version) for p in paths}
            inode = found.pop()
            if found or inode == ABSENT:
                return False
            known, name = self.inodes[inode], recovered.names[paths[0]]
            state = known.states.at(version, _NO_STATE)
            links = 0 if known.kind == "directory" else state.links
            shape, xattrs = state.shape, known.attributes(state.xattrs)
            expected = Name(known.kind, name.group, links, shape.mode, known.target, xattrs, shape.owner)
            if state.links != len(paths) or expected != name:
                return False
        return True

    def nearest(self, recovered: Recovered, since: int, until: int) -> int:
        """The version between these at which the fewest names differed, the latest of several: a name that is
        there on both sides, but different, counts twice.
        """
        alike = {inode: self._alike(recovered, inode, since) for inode in self.inodes}
        same = sum(alike.values())
        best = (self._count.at(since, 0) - 2 * same, -since)
        for version in range(since + 1, until + 1):
            for inode in self._changed.get(version, ()):
                now = self._alike(recovered, inode, version)
                same += now - alike[inode]
                alike[inode] = now
            best = min(best, (self._count.at(version, 0) - 2 * same, -version))
        return -best[1]

    def _alike(self, recovered: Recovered, inode: int, version: int) -> int:
        """How many of the names that an inode then had were recovered like this."""
        state = self.inodes[inode].states.at(version, _NO_STATE)
        return len(recovered.paths.get(state.fingerprint, ()))

    def names(self, version: int) -> dict[str, Name]:
        """All names as they were then."""
        groups: dict[int, list[str]] = defaultdict(list)
        for path, kept in self._paths.items():
            if (inode := kept.at(version, ABSENT)) != ABSENT:
                groups[inode].append(path)
        found: dict[str, Name] = {}
        for inode, paths in groups.items():
            known = self.inodes[inode]
            state = known.states.at(version, _NO_STATE)
            group = () if known.kind == "directory" else tuple(sorted(paths))
            xattrs = known.attributes(state.xattrs)
            mode, owner = state.shape.mode, state.shape.owner
            name = Name(known.kind, group, len(group), mode, known.target, xattrs, owner)
            found |= dict.fromkeys(paths, name)
        return found

    def fingerprints(self, path: str, since: int, until: int) -> Iterator[int]:
        """What the path was between these versions, in order: the fingerprints of its inode; 0 for no such
        name.
        """
        kept = self._paths.get(path)
        if kept is None or not kept.versions or kept.versions[0] > since:
            yield 0
        for first, last, inode in kept.spans(since, until) if kept else ():
            if inode == ABSENT:
                yield 0
            else:
                yield from (s.fingerprint for _, _, s in self.inodes[inode].states.spans(first, last))

    def last_other(self, path: str, fingerprint: int, before: int) -> int:
        """The last version before this one at which the path was anything but this; -1 if it never was."""
        kept = self._paths.get(path)
        spans = [] if kept is None else list(kept.spans(0, before - 1))
        for first, last, inode in reversed(spans):
            if inode == ABSENT:
                if fingerprint:
                    return last
                continue
            for _, until, state in reversed(list(self.inodes[inode].states.spans(first, last))):
                if state.fingerprint != fingerprint:
                    return until
        never = spans[0][0] if spans else before
        return never - 1 if fingerprint else -1

    def had(self, path: str, fingerprint: int, before: int) -> bool:
        """Whether the path was this at some version before that one."""
        kept = self._paths.get(path)
        spans = [] if kept is None else list(kept.spans(0, before - 1))
        if not fingerprint:
            return before > 0 and (not spans or spans[0][0] > 0 or any(i == ABSENT for _, _, i in spans))
        return any(i != ABSENT and self.inodes[i].had(fingerprint, a, b) for a, b, i in spans)

    def shapes(self, inode: int, since: int, until: int) -> set[Shape]:
        """The attributes of an inode at the versions between these at which it had a name."""
        states = self.inodes[inode].states.spans(since, until)
        return {state.shape for _, _, state in states if state.links}

    def shown(
        self, inode: int, since: int, until: int, limit: int
    ) -> list[tuple[str, int, Owner, bytes, Attributes]]:
        """At most `limit` of the same, for people, each once."""
        known = self.inodes[inode]
        states = {s.shape: s for _, _, s in known.states.spans(since, until) if s.links}
        return [
            (s.shape.kind, s.shape.mode, s.shape.owner, s.shape.target, known.attributes(s.xattrs))
            for s in itertools.islice(states.values(), limit)
        ]


_NO_STATE = InodeState(Shape("", 0, b"", 0), 0, 0, 0)
