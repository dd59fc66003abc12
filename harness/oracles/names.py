"""The namespace: find the number of whole operations that explains the recovered names.

[doc] fs/jbd2 groups handles into transactions that commit in order, whole or not at all
(Documentation/filesystems/ext4/journal.rst); [code] each namespace operation of fs/ext4/namei.c is one
handle. So after recovery the names are those after exactly j operations, and j is at least what the
last persistence point covers and at most the number of operations begun.

Not checked: timestamps, a directory's link count (fsck does), the root's own permissions, owners and
attributes, attributes outside `user.` that the history does not use.
"""

from __future__ import annotations

import bisect
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.model import OperationKind, Position, Tree, Violation
from harness.oracles.namespace import (
    ABSENT,
    Attributes,
    Name,
    Owner,
    Recovered,
    Shape,
    attributes_fingerprint,
)
from harness.oracles.timeline import ModelTimeline
from harness.oracles.undecided import Undecided

LOST_AND_FOUND = "lost+found"
LISTED = 20
"""Names of one file that a message lists."""
_APART = 3
"""Names of which a message says how they differ."""
Names = Mapping[str, Name]


@dataclass(frozen=True, slots=True)
class NamesFound:
    """The result of `find_names`. `candidates`: the numbers of operations, no fewer than promised, after
    which the names were these, descending. `violations`: what is wrong where there is no candidate. `apart`:
    those of names that may have come apart (`links-may-part`) of which no version says what they have, each
    with its inode. `used`: of these inodes, those that only one name was used of, which is not in `apart`.
    """

    candidates: tuple[int, ...]
    violations: tuple[Violation, ...] = ()
    apart: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[int, str] = field(default_factory=dict)


def is_own(timeline: ModelTimeline, position: Position, path: str) -> bool:
    """Whether an operation that had begun made something of that name."""
    return timeline.names.been(path, 0, position.begun) != {ABSENT}


def recovered(timeline: ModelTimeline, position: Position, tree: Tree) -> Names:
    """The names of a recovered tree, without the root, and without lost+found if the workload made none."""
    names = recovered_names(tree, timeline.attributes, own=is_own(timeline, position, LOST_AND_FOUND))
    if all(since >= position.begun for since in timeline.parted.values()):
        return names
    # A lower layer's inode keeps the links whose names are removed above it.
    return {p: n._replace(links=min(n.links, len(n.group))) for p, n in names.items()}


def recovered_names(tree: Tree, attributes: frozenset[str], *, own: bool = False) -> Names:
    """The names of a recovered tree, without the root and, unless it is the workload's `own`, lost+found
    itself. Extended attributes outside `user.` count only if they are in `attributes`, those that the history
    used: a kernel may add its own (security labels).
    """
    paths: dict[int, list[str]] = {}
    for path, entry in tree.items():
        if entry.kind != "directory":
            paths.setdefault(entry.inode, []).append(path)
    groups = {inode: tuple(sorted(of_it)) for inode, of_it in paths.items()}  # one for all its names
    names: dict[str, Name] = {}
    for path, e in tree.items():
        if not path or (path == LOST_AND_FOUND and e.kind == "directory" and not own):
            continue
        xattrs: tuple[tuple[str, bytes], ...] = ()
        if e.xattrs:
            kept = ((n, v) for n, v in e.xattrs.items() if n.startswith("user.") or n in attributes)
            xattrs = tuple(sorted(kept))
        if e.kind == "directory":
            names[path] = Name(e.kind, (), 0, e.mode, b"", xattrs, (e.uid, e.gid))
            continue
        mode = 0 if e.kind == "symlink" else e.mode
        owner = (e.uid, e.gid)
        names[path] = Name(e.kind, groups[e.inode], e.links, mode, e.target, xattrs, owner)
    return names


def find_names(timeline: ModelTimeline, position: Position, tree: Tree) -> NamesFound:
    """Compare a recovered tree with the reference model."""
    found = Recovered(recovered(timeline, position, tree))
    floor = timeline.floors[position.acked]
    copies = Copies(timeline, position, found.names)
    matching = copies.matching(found) if copies.since else timeline.names.matching(found)
    fitting = tuple(j for j in reversed(matching) if floor <= j <= position.begun)
    if fitting:
        apart = {p: i for j in fitting for p, i in copies.names(j).items() if copies.used.get(i) != p}
        return NamesFound(fitting, apart=apart, used=copies.used)
    older = [j for j in matching if j < floor]
    if older:
        return NamesFound((), (undone(timeline, position, older[-1]),))
    return NamesFound((), tuple(_torn(timeline, position, floor, found, copies)))


class Copies:
    """Names that may be those of copies of one inode, each with what is done by that name. `since`: these
    inodes, and from which number of operations on: the copy is a step before the change. `used`: of these,
    the one name by which all was done since the remount to an inode whose names have stayed the same.
    """

    def __init__(self, timeline: ModelTimeline, position: Position, found: Names) -> None:
        self._timeline = timeline
        self._begun = position.begun
        self._found = found
        self.since = {inode: i for inode, i in timeline.apart.items() if i < position.begun}
        self._ever = timeline.names.ever_of(self.since) if self.since else []
        self._kept = {inode: self._kept_until(inode, paths) for inode, paths in self._led_to().items()}
        self.used = {
            inode: min(by)
            for inode, by in self._uses().items()
            if len(by) == 1 and self._kept[inode] == self._begun
        }
        self._one = {inode for inode in self.since if self._is_one(inode)}

    def _led_to(self) -> dict[int, list[str]]:
        """The paths that led to each inode at some time."""
        paths = defaultdict(list)
        for path in self._ever:
            for inode in self._timeline.names.been(path, 0, self._begun) & self.since.keys():
                paths[inode].append(path)
        return paths

    def _kept_until(self, inode: int, paths: list[str]) -> int:
        """The last version until which the inode has had the same names since the remount."""
        since = self._timeline.parted[inode]

        def has_moved(version: int) -> bool:
            been = (self._timeline.names.been(path, since, version) for path in paths)
            return any(inode in at and len(at) > 1 for at in been)

        versions = range(since, self._begun + 1)
        return since - 1 + bisect.bisect_left(versions, True, key=has_moved)

    def _uses(self) -> dict[int, set[str]]:
        """The names by which something was done to each inode since the remount; an empty one where it was
        done by a handle, a symbolic link, or another file.
        """
        timeline = self._timeline
        uses: dict[int, set[str]] = {inode: set() for inode in self.since}
        named = set()
        for i in range(min(self.since.values(), default=self._begun), self._begun):
            for path in {timeline.operations[i].path, timeline.operations[i].target}:
                inode = timeline.names.inode(path, i)
                if self.since.get(inode, self._begun) <= i:
                    uses[inode].add(path)
                    named.add((inode, i))
        for inode, by in uses.items():
            if any((inode, i) not in named for i in self._done(inode)):
                by.add("")
        return uses

    def _done(self, inode: int) -> Iterator[int]:
        """The operations since the remount that changed the inode, or synced it alone."""
        since, timeline = self._timeline.parted[inode], self._timeline
        file = timeline.files.get(inode)
        changed = [version - 1 for version in timeline.names.inodes[inode].states.versions]
        written = [event.index for event in file.events] if file else []
        yield from (i for i in (*changed, *written) if since < i < self._begun)
        yield from self._synced(inode)

    def _synced(self, inode: int) -> list[int]:
        """The operations since the remount that synced the inode, or all by one of its names."""
        since, operations = self._timeline.parted[inode], self._timeline.operations
        points = ((p.index, p.inode) for p in self._timeline.persistence if since < p.index < self._begun)
        return [i for i, of in points if inode in (of, self._timeline.names.inode(operations[i].path, i))]

    def _is_one(self, inode: int) -> bool:
        """Whether its names at the remount were recovered as names of one inode: they have not come apart.
        An fsync by a name that is not copied promises nothing of the others ([code] ovl_fsync).
        """
        names, since = self._timeline.names, self._timeline.parted[inode]
        paths = tuple(sorted(path for path in self._ever if names.inode(path, since) == inode))
        one = paths[0] in self._found and self._found[paths[0]].group == paths
        return one and (inode in self.used or not self._synced(inode))

    def is_loose(self, inode: int) -> bool:
        """Whether the inode may have come apart, and nobody knows which name has what was promised."""
        one = inode in self._one and self._kept[inode] == self._begun
        return inode in self.since and not one and inode not in self.used

    def has_promised(self, path: str, inode: int) -> bool:
        """Whether this name of an inode that may have come apart has to have what was promised of it."""
        loose = inode not in self.since or self.is_loose(inode)
        return not loose and (inode in self._one or self.used[inode] == path)

    def names(self, version: int) -> dict[str, int]:
        """Such names after so many operations, each with the inode of which it may be a copy."""
        inodes = self._at(version)
        known = {path: self._timeline.names.inode(path, version) for path in self._ever if inodes}
        return {path: inode for path, inode in known.items() if inode in inodes}

    def _at(self, version: int) -> set[int]:
        """The inodes that may have come apart by then, without those that did not."""
        since, one = self.since.items(), self._one
        return {i for i, first in since if first <= version and not (i in one and version <= self._kept[i])}

    def fit(self, names: Mapping[str, int], version: int) -> bool:
        """Whether each of these was recovered, and may be what its inode is, or a copy of that."""
        return all(path in self._found and self._fits(path, inode, version) for path, inode in names.items())

    def _fits(self, path: str, inode: int, version: int) -> bool:
        """The name that was used has the attributes of then; others, where it is the only one, those of some
        time since the remount. Where several were used, each attribute is from some such time.
        """
        if inode not in self.used:
            return self.mixes(path, inode)
        first = version if self.used[inode] == path else self._timeline.parted[inode]
        return shape_of(self._found[path]) in self._timeline.names.shapes(inode, first, version)

    def mixes(self, path: str, inode: int) -> bool:
        """Whether each attribute of the name is one that the inode has had since the remount."""
        name, since = self._found[path], self._timeline.parted[inode]
        shown = self._timeline.names.shown(inode, since, self._begun, sys.maxsize)
        kinds, modes, owners, targets, xattrs = map(set, zip(*shown, strict=True))
        return (
            name.kind in kinds
            and name.mode in modes
            and name.owner in owners
            and name.target in targets
            and set.intersection(*map(set, xattrs)) <= set(name.xattrs) <= set.union(*map(set, xattrs))
        )

    def matching(self, found: Recovered) -> list[int]:
        """The versions at which the names were these, ascending, where such names fit."""
        others: dict[frozenset[str], Recovered] = {}
        matching = []
        for version in range(self._begun + 1):
            copies = self.names(version)
            key = frozenset(copies)
            if key not in others:
                others[key] = Recovered({p: n for p, n in found.names.items() if p not in key})
            rest = others[key]
            alike = self._timeline.names.matches(rest, version, self._at(version))
            if alike and self.fit(copies, version):
                matching.append(version)
        return matching


def shape_of(name: Name) -> Shape:
    """The attributes that are visible through any name of its inode."""
    return Shape(name.kind, name.mode, name.target, attributes_fingerprint(name.xattrs), name.owner)


def came_apart(paths: Iterable[str]) -> Undecided:
    """These names of one file are copies, and which has which of its changes is not known."""
    return Undecided(f"{listed(sorted(paths))}: a file whose names came apart at a remount: contents unknown")


def older_versions(timeline: ModelTimeline, position: Position, tree: Tree) -> Iterator[tuple[int, Position]]:
    """The numbers of operations, fewer than promised, after which the names were these as well, latest
    first; each with the position at which it would have been allowed.
    """
    found = Recovered(recovered(timeline, position, tree))
    floor = timeline.floors[position.acked]
    for j in reversed(timeline.names.matching(found)):
        if j < floor:
            yield j, Position(position.begun, bisect.bisect_right(timeline.floors, j) - 1)


def undone(timeline: ModelTimeline, position: Position, back: int) -> Violation:
    """The violation for names that date from before the last persistence point: those after `back`
    operations.
    """
    describe = timeline.describe
    point = min(
        (p for p in timeline.persistence if p.floor > back and p.index < position.acked),
        key=lambda p: p.index,
    )
    lost = next(i for i in range(back, point.floor) if timeline.names.changed(i) or i + 1 == point.floor)
    wanted, seen = _apart(timeline.names.names(point.floor), timeline.names.names(back))
    return Violation(
        oracle="durability",
        subject=timeline.operations[lost].path,
        summary=f"{describe(lost)} is undone, although {describe(point.index)} was acknowledged",
        expected=f"the names after at least {first_operations(point.floor)}{wanted}",
        found=f"the names after {first_operations(back)}{seen}",
        signature=f"names undone after {point.index}{timeline.of_all(point.index)}",
    )


def first_operations(count: int) -> str:
    """So many operations from the first on, in words."""
    if count < 2:
        return "the first operation" if count else "no operation"
    return f"the first {count} operations"


def _apart(wanted: Names, seen: Names) -> tuple[str, str]:
    """Where two sets of names differ, each side in words; empty where they do not."""
    paths = sorted(path for path in {*wanted, *seen} if wanted.get(path) != seen.get(path))
    more = f"; and {len(paths) - _APART} more" if len(paths) > _APART else ""

    def words(names: Names) -> str:
        told = "; ".join(f"{path}: {_words(names.get(path))}" for path in paths[:_APART])
        return f": {told}{more}" if told else ""

    return words(wanted), words(seen)


def _torn(
    timeline: ModelTimeline, position: Position, floor: int, found: Recovered, copies: Copies
) -> Iterator[Violation]:
    """The names match no version of the history: say how they differ from the nearest one."""
    begun = position.begun
    nearest = timeline.names.nearest(found, floor, begun)
    there = timeline.names.names(nearest)
    differing = {path for path in {**found.names, **there} if found.names.get(path) != there.get(path)}
    differing -= {p for p, inode in copies.names(nearest).items() if copies.fit({p: inode}, nearest)}
    renames = (i for i in range(begun) if timeline.operations[i].kind is OperationKind.RENAME)
    for i in sorted(renames, key=lambda i: abs(2 * i + 1 - 2 * nearest)):
        op = timeline.operations[i]
        if {op.path, op.target} & differing:
            violation = _torn_rename(timeline, i, found.names, there)
            if violation:
                yield violation
                differing -= {op.path, op.target}
    for path in sorted(differing):
        yield _differs(timeline, position, floor, nearest, path, there.get(path), found)


def _torn_rename(timeline: ModelTimeline, i: int, found: Names, nearest: Names) -> Violation | None:
    op, known = timeline.operations[i], timeline.names
    if known.inode(op.path, i) == ABSENT or known.inode(op.path, i + 1) != ABSENT:
        return None  # rename(2) between two names of one file does nothing
    old, new = op.path in found, op.target in found
    there = (op.path in nearest) + (op.target in nearest)
    if not old and not new and there:
        what, seen = "neither the old nor the new name is there", "neither"
    elif old and new and there < 2 and _same(found, op.path, op.target):
        what, seen = "both the old and the new name are there", "both"
    else:
        return None
    return Violation(
        oracle="atomicity",
        subject=op.target,
        summary=f"{timeline.describe(i)}: {what}",
        expected=f"either {op.path} or {op.target}",
        found=seen,
        signature=f"rename {i}: {seen}",
    )


def _same(found: Names, path: str, other: str) -> bool:
    """Whether two names may refer to one inode. For two directories this is always possible."""
    return path in found[other].group or found[path].kind == found[other].kind == "directory"


def _differs(
    timeline: ModelTimeline,
    position: Position,
    floor: int,
    nearest: int,
    path: str,
    expected: Name | None,
    recovered: Recovered,
) -> Violation:
    found = recovered.names.get(path)
    word = _difference(expected, found)
    lost = _lost_promise(timeline, position, floor, path, recovered.of_path.get(path, 0))
    if expected is None and lost is None and found and found.kind == "file" and not found.mode:
        word += ", without permissions"  # half of an open with O_EXCL, where that is two calls
    since = "" if nearest == 0 else f" (nearest: the names after {timeline.describe(nearest - 1)})"
    promise = f", although {timeline.describe(lost)} was acknowledged" if lost is not None else ""
    return Violation(
        oracle="atomicity" if lost is None else "durability",
        subject=path,
        summary=f"{path}: {word}{promise or ', and no number of whole operations leaves it so'}",
        expected=f"{_words(expected)}{since}",
        found=_words(found),
        signature=f"{path}: {word}{timeline.of_all(lost) if lost is not None else ''}",
    )


def _lost_promise(
    timeline: ModelTimeline, position: Position, floor: int, path: str, found: int
) -> int | None:
    """The persistence point whose promise about this one name is broken, or None. It is broken if every
    allowed version agrees on the name, and what was found (a fingerprint; 0: no such name) dates from before
    them.
    """
    allowed = timeline.names.fingerprints(path, floor, position.begun)
    agreed = next(allowed)
    if any(other != agreed for other in allowed) or not timeline.names.had(path, found, floor):
        return None
    changed = timeline.names.last_other(path, agreed, floor) + 1
    covering = (p.index for p in timeline.persistence if p.floor >= changed and p.index < position.acked)
    return min(covering, default=None)


_DEVICES = ("block", "char")


def _difference(expected: Name | None, found: Name | None) -> str:
    """The kind of difference, in words that do not depend on the crash point."""
    if found is None:
        return "missing"
    if expected is None:
        return "should not be there"
    for attribute, word in (
        ("kind", "of another kind"),
        ("mode", "other permissions"),
        ("owner", "another owner"),
        ("target", "another symbolic link"),
        ("xattrs", "other extended attributes"),
        ("group", "other hard links"),
    ):
        if getattr(expected, attribute) != getattr(found, attribute):
            return "another device" if attribute == "target" and expected.kind in _DEVICES else word
    return "another link count"


def _words(name: Name | None) -> str:
    if name is None:
        return "no such name"
    words = tell_inode(name.kind, name.mode, name.owner, name.target, name.xattrs)
    if name.links > 1 or len(name.group) > 1:
        words += f" links={name.links} {_list(name.group)}"
    return words


def tell_inode(kind: str, mode: int, owner: Owner, target: bytes, xattrs: Attributes) -> str:
    """What is visible of an inode, in words: `file 0644 of 7:8 user.a=b'x'`."""
    words = [f"{kind}"]
    if kind != "symlink":
        words.append(f"{mode:04o}")
    if owner != (0, 0):
        words.append("of {}:{}".format(*owner))
    if target:
        words.append(f"to {target.decode(errors='backslashreplace')!r}")
    words += [f"{attribute}={value!r}" for attribute, value in xattrs]
    return " ".join(words)


def _list(paths: Iterable[str]) -> str:
    return "{" + listed(paths) + "}"


def listed(words: Iterable[str]) -> str:
    """The words in their order: the first few, and how many there are, if they are many."""
    every = list(words)
    more = f" ... ({len(every)} in all)" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more
