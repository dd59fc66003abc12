"""Names without an order: each inode is as old as its own last persistence point allows.

For file systems whose fsync makes one inode durable ahead of the rest (btrfs, f2fs, ext4 with fast_commit),
so that operations on different files survive in any combination. The rules:

 1. What is judged of a name is its directory entry: a directory, as an inode, and a name in it. What a
    directory is called itself is another entry, and may be older or newer.
 2. An entry refers to an inode that it referred to at some time: no name appears that no operation made. An
    entry that has existed ever since it was made durable exists, and refers to one of the inodes that it has
    referred to since. So a replaced file is the old or the new one, and never missing.
 3. What was synced and has had a name ever since is reachable by one of those entries (or in lost+found).
 4. An inode has as many names as links, and one if it is a directory; two names of one inode are names that
    one file can have, and names that only one inode can have are names of one.
 5. Kind, permissions, owners, link targets and attributes date from some time since the inode was synced.
 6. Contents date from some time since then, by the rules of `allowance`.

Which inode a recovered directory is follows from its own name, as rule 2 allows it; where that leaves
several, each of them may explain the names in it. A name that only an older directory had there shows that
the directory is undone.

With `namespace = "synced"` only rule 2 (as far as names must exist), rule 3, and the contents and attributes
of what has not changed since it was synced are judged; of rule 4, that names which only one inode can have
are names of one. A directory that was moved may be at its old name until its removal is durable. A name over
which something has been put since may be missing: the directory and the inode that lost the name are written
in any order, and fsck removes a name without an inode. fsync of a directory covers only names of inodes that
were synced before it, for the same reason; and fsync of a file its name only if that is its only one, and was
not put over another (`_own`).

What a persistence point covers: fsync of a file, the file itself as of the last operation that changed it,
and the entry by which it was opened, if it had that then; fsync of a directory, every entry in it, but not
what lies in its subdirectories; sync and remount, everything. None of them promises what a directory above is
called. By a handle, the entry is that by which it was opened, as renames have changed it; fsync of what has
lost its last name covers nothing, and of what has none yet the file itself (not with `synced`).
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.model import Position, Tree, TreeEntry, Violation
from harness.oracles.contents import ContentsJudge, Fault
from harness.oracles.contract import Contract
from harness.oracles.names import (
    LISTED,
    LOST_AND_FOUND,
    Copies,
    came_apart,
    is_own,
    listed,
    recovered,
    shape_of,
    tell_inode,
)
from harness.oracles.namespace import ABSENT, ROOT, Attributes, Name, Owner, Shape
from harness.oracles.timeline import Entry, ModelTimeline, PersistencePoint

_Held = frozenset[tuple[Entry, int]]
"""What a recovered name may be: entries of the model, each with the inode that it refers to."""


@dataclass(frozen=True, slots=True)
class _Promise:
    """What operation `point` made durable: the state after `since` operations, or a later one."""

    since: int
    point: int


_NOTHING = _Promise(0, -1)
_NEVER = sys.maxsize


def judge_each(
    contract: Contract, timeline: ModelTimeline, contents: ContentsJudge, position: Position, tree: Tree
) -> tuple[Fault, ...]:
    """The faults of names and contents where each inode is judged by itself; see the module's head."""
    return tuple(_Each(contract, timeline, contents, position, tree).faults())


class _Each:
    def __init__(
        self,
        contract: Contract,
        timeline: ModelTimeline,
        contents: ContentsJudge,
        position: Position,
        tree: Tree,
    ) -> None:
        self._contract = contract
        self._all = contract.namespace == "each"
        self._timeline = timeline
        self._contents = contents
        self._position = position
        self._tree = tree
        self._names = recovered(timeline, position, tree)
        self._copies = Copies(timeline, position, self._names)
        self._everything = _NOTHING
        self._of_entry: dict[Entry, _Promise] = {}
        self._of_directory: dict[int, _Promise] = {}  # of all entries in it
        self._of_inode: dict[int, _Promise] = {}
        self._of_place: dict[int, _Promise] = {}  # that the inode is at one of its names
        self._shapes: dict[tuple[int, int], set[Shape]] = {}
        self._lost_as: dict[str, int] = {}  # what is in lost+found, and the inode that it has to be
        self._spoken_for: set[str] = set()  # of that, what can be no other inode any more
        self._synced: dict[int, list[int]] = defaultdict(list)  # file to the operations that synced it alone
        for point in timeline.persistence:
            if point.inode in timeline.files and point.index < position.begun:
                self._synced[point.inode].append(point.index)
        self._gather()

    # --- what was promised ---

    def _gather(self) -> None:
        only_sync = "only-sync" in self._contract.rules
        first: dict[int, int] = {}  # inode to the first operation that synced it
        of_names: dict[int, list[_Promise]] = defaultdict(list)  # directory to what synced it, in order
        for point in self._timeline.persistence:
            if point.index >= self._position.acked:
                continue
            promise = _Promise(point.floor, point.index)
            if point.inode is None:
                if not only_sync or point.index + 1 == self._position.begun:
                    self._everything = _later(self._everything, promise)
                continue
            if only_sync:
                continue
            self._of_inode[point.inode] = _later(self._of_inode.get(point.inode, _NOTHING), promise)
            first.setdefault(point.inode, point.index)
            if self._timeline.kinds[point.inode] == "directory":
                of_names[point.inode].append(promise)
            self._cover_name(point, point.inode, promise)
        for directory, promises in of_names.items():
            if self._all:
                self._of_directory[directory] = functools.reduce(_later, promises)
            else:
                self._cover(directory, promises, first)
        self._gather_copies()

    def _gather_copies(self) -> None:
        """Where a directory of a snapshot is, everything is in it that was in its source."""
        for directory, maker in self._timeline.copies.items():
            if maker < self._position.begun:
                whole = _Promise(maker + 1, maker if maker < self._position.acked else -1)
                held = self._of_directory.get(directory, _NOTHING)
                self._of_directory[directory] = _later(held, whole)

    def _cover_name(self, point: PersistencePoint, inode: int, promise: _Promise) -> None:
        """Note what the persistence point promises of the name by which it opened the inode."""
        own = self._own(point, inode)
        if self._all or own:
            self._of_place[inode] = _later(self._of_place.get(inode, _NOTHING), promise)
        for entry in own:
            if self._at(entry, point.floor) == inode:
                self._of_entry[entry] = _later(self._of_entry.get(entry, _NOTHING), promise)

    def _own(self, point: PersistencePoint, inode: int) -> tuple[Entry, ...]:
        """The entry by which the persistence point opened the inode, if it covers that.

        [code] Without a journal, fsync syncs the directory of one of the file's names (ext4_sync_parent:
        d_find_any_alias), and only where a name was added since (ext4_add_entry: EXT4_STATE_NEWENTRY), not
        where one was put over another (ext4_setent).
        """
        if not point.path:
            return ()
        directory, _, name = point.path.rpartition("/")
        index = point.index
        known, entry = self._timeline.entries, (self._timeline.names.inode(directory, index + 1), name)
        other = known.is_put_over(entry, index) or len(known.names(inode, index, index)) > 1
        return () if other and not (self._all or point.of_name) else (entry,)

    def _cover(self, directory: int, promises: Sequence[_Promise], first: Mapping[int, int]) -> None:
        """Note which promises of a directory, in order, cover the entries in it: those of inodes that were
        synced before. `first`: when each inode was synced first.
        """
        for entry in self._timeline.entries.below.get(directory, ()):
            covers = _NOTHING
            for promise in reversed(promises):
                if promise.since < covers.since:
                    break
                if first.get(self._at(entry, promise.point), promise.point + 1) <= promise.point:
                    covers = promise
            self._of_entry[entry] = _later(self._of_entry.get(entry, _NOTHING), covers)

    def _at(self, entry: Entry, version: int) -> int:
        return next(iter(self._timeline.entries.been(entry, version, version)))

    def _entry(self, entry: Entry) -> _Promise:
        own = self._of_entry.get(entry)
        directory = self._of_directory.get(entry[0])
        if own and directory:
            own = _later(own, directory)
        return _later(own or directory or _NOTHING, self._everything)

    def _inode(self, inode: int) -> _Promise:
        return _later(self._of_inode.get(inode, _NOTHING), self._everything)

    def _been(self, entry: Entry, since: int) -> dict[int, None]:
        """The inodes that the entry has referred to since then, latest first; ABSENT: to none."""
        return self._timeline.entries.been(entry, since, self._position.begun)

    # --- what was recovered ---

    def faults(self) -> Iterator[Fault]:
        root: Entry = (ROOT, "")
        could: dict[str, _Held] = {"": frozenset({(root, ROOT)})}
        for path in sorted(self._names, key=lambda p: p.count("/")):  # a directory before the names in it
            if path.split("/")[0] == LOST_AND_FOUND and LOST_AND_FOUND not in self._names:
                continue
            directory, _, leaf = path.rpartition("/")
            entries = [(inode, leaf) for inode in _inodes(could.get(directory, frozenset()))]
            faults, could[path] = self._found(path, self._names[path], entries)
            yield from self._in_older(path, faults, could) or faults
        yield from self._links(could)
        yield from self._apart(could)
        held = frozenset().union(*could.values())
        sole = {min(inodes) for inodes in map(_inodes, could.values()) if len(inodes) == 1}
        missing = dict(self._missing(held, sole))
        yield from missing.values()
        yield from self._unreachable(held, missing.keys())

    def _found(self, path: str, name: Name, entries: Sequence[Entry]) -> tuple[tuple[Fault, ...], _Held]:
        """The faults of a name that exists, and what it may be. `entries`: those that it may be, one for each
        inode that its directory may be; none if that has been reported already or is not judged.
        """
        if not entries:
            return (), frozenset()
        promise = self._entry(entries[0])
        been = [(e, i) for e in entries for i in self._been(e, self._entry(e).since) if i != ABSENT]
        if not been:
            return (() if not self._all else (self._impossible(path, name, entries),)), frozenset()
        wrong: list[tuple[Fault, ...]] = []
        fitting = set()
        for entry, inode in been:
            faults = self._as_inode(path, name, inode, self._inode(inode))
            if faults:
                wrong.append(faults)
            else:
                fitting.add((entry, inode))
        if fitting:
            return (), frozenset(fitting)
        ever = ((e, i) for e in entries for i in self._been(e, 0))
        older = [(e, i) for e, i in ever if i != ABSENT and (e, i) not in been]
        # A promise about an inode made while it had no name does not cover the time when it had this one.
        if any(not self._as_inode(path, name, i, _NOTHING) for _, i in older):
            return (self._undone(path, promise),), frozenset({*been, *older})
        return min(wrong, key=len), frozenset(been)

    def _undone(self, path: str, promise: _Promise) -> Violation:
        what = f"{path}: is what it was before{self._although(promise)}"
        signature = f"{path}: undone{self._of_all(promise)}"
        return Violation("durability", path, what, "what it has become", "older", signature)

    def _in_older(self, path: str, faults: Sequence[Fault], could: dict[str, _Held]) -> tuple[Fault, ...]:
        """Instead of `faults`: that a directory above, the nearest such, is what it was before, if the name
        was in that and nothing like it can be there now. `could` is then that, too. A directory has one name:
        an older one that may be at another is not taken for this one.
        """
        parts, kinds = path.split("/"), {self._timeline.kinds[inode] for inode in _inodes(could[path])}
        never = any(isinstance(f, Violation) and f.oracle == "atomicity" for f in faults)
        is_other = never or (kinds and self._names[path].kind not in kinds)
        for depth in range(len(parts) - 1, 0, -1) if self._all and is_other else ():
            above, leaf = "/".join(parts[: depth - 1]), parts[depth - 1]
            entries = [(inode, leaf) for inode in _inodes(could[above])]
            older = dict(self._ever(parts, depth, entries, could))
            if older.get(path):
                could.update({p: could.get(p, frozenset()) | held for p, held in older.items()})
                return (self._undone("/".join(parts[:depth]), self._entry(entries[0])),)
        return ()

    def _ever(
        self, parts: Sequence[str], depth: int, entries: Sequence[Entry], could: Mapping[str, _Held]
    ) -> Iterator[tuple[str, _Held]]:
        """What the path may be, and each directory above from that depth on, as old as may be. `entries`:
        what its first `depth` parts may be.
        """
        for end in range(depth, len(parts) + 1):
            path = "/".join(parts[:end])
            ever = ((e, i) for e in entries for i in self._been(e, 0) if i != ABSENT)
            name = self._names[path]
            alike = [(e, i) for e, i in ever if not self._as_inode(path, name, i, _NOTHING)]
            held = frozenset((e, i) for e, i in alike if not self._may_be_at_another(i, path, could))
            yield path, held
            entries = [(inode, parts[end]) for inode in _inodes(held)] if end < len(parts) else []

    def _may_be_at_another(self, inode: int, path: str, could: Mapping[str, _Held]) -> bool:
        """Whether the inode is a directory that may be at another recovered path: as `could` says, and for
        what is not judged yet, by the names that it has had since it was synced.
        """
        if self._timeline.kinds[inode] != "directory":
            return False
        if any(inode in _inodes(held) for other, held in could.items() if other != path):
            return True
        names = self._timeline.entries.names(inode, self._inode(inode).since, self._position.begun)
        return any(other not in could for other in self._paths(inode, names) - {path})

    def _as_inode(self, path: str, name: Name, inode: int, promise: _Promise) -> tuple[Fault, ...]:
        """The faults if this name refers to that inode, which may be as old as the promise allows."""
        position = self._position
        if not self._all and (not self._untouched(inode) or self._moved(inode, named=False)):
            return ()
        since = promise.since if self._is_bound(path, inode) else min(promise.since, self._parted(inode))
        mixed = self._copies.is_loose(inode) and self._copies.mixes(path, inode)
        if not mixed and shape_of(name) not in self._been_shaped(inode, since):
            although = self._although(promise)
            return (
                Violation(
                    "atomicity" if promise is _NOTHING else "durability",
                    path,
                    f"{path}: kind, permissions, owner, target or attributes that it never had{although}",
                    self._shapes_words(inode, since),
                    tell_inode(*_shown(name)),
                    f"{path}: attributes{self._of_all(promise)}",
                ),
            )
        entry = self._tree[path]
        if entry.kind != "file" or self._is_changed_apart(inode):
            return ()
        faults = self._contents.whenever(inode, position, entry)
        if not faults or "moved-may-be-lost" not in self._contract.rules:
            return faults
        if not entry.size and self._is_cut(inode):
            return ()
        return self._contents.whenever(inode, position, entry, self._binding(inode))

    def _binding(self, inode: int) -> int:
        """The index of the first persistence point of an inode that no move has voided since."""
        known = self._timeline.entries
        points = (p for p in self._timeline.persistence if p.inode in (None, inode))
        return next((p.index for p in points if not known.moves(inode, p.floor, self._position.begun)), 0)

    def _been_shaped(self, inode: int, since: int) -> set[Shape]:
        """The attributes that the inode has had since then, while it had a name."""
        known = self._shapes.get((inode, since))
        if known is None:
            known = self._timeline.names.shapes(inode, since, self._position.begun)
            self._shapes[inode, since] = known
        return known

    def _shapes_words(self, inode: int, since: int) -> str:
        shown = self._timeline.names.shown(inode, since, self._position.begun, LISTED + 1)
        more = f" or {len(self._been_shaped(inode, since)) - LISTED} others" if len(shown) > LISTED else ""
        return " or ".join(sorted(tell_inode(*s) for s in shown[:LISTED])) + more

    def _parted(self, inode: int) -> int:
        """The operation from which on names of the inode may be copies of it (`links-may-part`), each with
        what is done to it by that name.
        """
        since = self._timeline.parted.get(inode, _NEVER)
        return since if since < self._position.begun else _NEVER

    def _is_bound(self, path: str, inode: int) -> bool:
        """Whether what was promised of the inode is promised of that name, too, where names come apart."""
        return self._all and self._copies.has_promised(path, inode)

    def _is_changed_apart(self, inode: int) -> bool:
        """Whether its contents may have changed under some of its names alone."""
        since, file = self._parted(inode), self._timeline.files[inode]
        return since != _NEVER and file.before(since) != file.before(self._position.begun)

    def _apart(self, could: dict[str, _Held]) -> Iterator[Fault]:
        """Files that were changed under some of their names alone, where that leaves open what each name has.
        It does not where one of them has what was promised, and each some contents since they parted; and
        where only one was used, that has to be the one.
        """
        for inode in self._timeline.files:
            since = self._parted(inode)
            if since == _NEVER or not self._is_changed_apart(inode):
                continue
            held = [path for path, each in could.items() if _inodes(each) == {inode}]
            parted = replace(self._position, acked=min(self._position.acked, since + 1))
            of = [self._tree[path] for path in held if self._tree[path].kind == "file"]
            if any(self._is_bound(path, inode) for path in held):
                for entry in of:
                    at = self._position if self._is_bound(entry.path, inode) else parted
                    yield from self._contents.whenever(inode, at, entry)
                continue
            whole = any(not self._contents.whenever(inode, self._position, entry) for entry in of)
            if of and not (whole and all(not self._contents.whenever(inode, parted, entry) for entry in of)):
                yield came_apart(held)

    def _untouched(self, inode: int) -> bool:
        """Whether the inode was synced and has not changed since: of a file its contents; of what is none its
        names and attributes. An inode has the number of the operation that made it: neither that operation
        (`names-at-once`) nor any before it synced it. FAT and its like have attributes of files alone.
        """
        file, promise = self._timeline.files.get(inode), self._inode(inode)
        if promise is _NOTHING:
            return False
        if file is None:
            unix = "moved-may-be-lost" not in self._contract.rules
            return unix and inode < promise.point and self._stays(inode, promise.since)
        point, durable = file.durable(self._position.acked)
        return inode < max(promise.point, point) and durable == file.before(self._position.begun)

    def _stays(self, inode: int, since: int) -> bool:
        """Whether names and attributes of an inode have been the same since then."""
        names = self._timeline.entries.names(inode, since, self._position.begun)
        return len(self._been_shaped(inode, since)) == 1 and all(
            len(self._been(e, since)) == 1 for e in names
        )

    def _impossible(self, path: str, name: Name, entries: Sequence[Entry]) -> Violation:
        once = next((e for e in entries if any(i != ABSENT for i in self._been(e, 0))), None)
        if once:
            promise, oracle = self._entry(once), "durability"
            what = f"is there again{self._although(promise)}"
        else:
            promise, oracle = _NOTHING, "atomicity"
            what = "is there, and no operation that had begun makes it"
        signature = f"{path}: should not be there{self._of_all(promise)}"
        return Violation(oracle, path, f"{path}: {what}", "no such name", name.kind, signature)

    def _links(self, could: dict[str, _Held]) -> Iterator[Violation]:
        """What contradicts rule 4."""
        if not self._all and "moved-may-be-lost" in self._contract.rules:
            return  # an inode number is that of an entry
        groups: dict[int, list[str]] = defaultdict(list)
        for path in self._names:
            groups[self._tree[path].inode].append(path)
        held: dict[int, list[str]] = defaultdict(list)  # by the inode that all of these can be alone
        for paths in groups.values():
            of_each = [_inodes(could[p]) for p in paths if could.get(p)]
            if not of_each:
                continue
            common = set.intersection(*of_each)
            if self._all:
                yield from self._odd_names(sorted(paths), common)
            if len(common) == 1 and self._parted(min(common)) == _NEVER:
                held[common.pop()].append(min(paths))
        for inode, paths in held.items():
            if len(paths) > 1:
                names = listed(sorted(paths))
                what = f"{names}: each its own, though all are what {self._timeline.describe(inode)} made"
                yield Violation("atomicity", names, what, "names of one inode", names, f"{names}: split")

    def _odd_names(self, paths: Sequence[str], common: Collection[int]) -> Iterator[Violation]:
        """What is wrong with these names of one inode, all of which can be one of the inodes in `common`."""
        entry, names = self._tree[paths[0]], listed(paths)
        links = 1 if entry.kind == "directory" else entry.links
        if len(paths) > links or (len(paths) < links and all(self._parted(i) == _NEVER for i in common)):
            of, has = f"one {entry.kind} with {links} link{'s' * (links != 1)}", f"these {len(paths)} names"
            what = f"{names}: {of} has {has if len(paths) > 1 else 'this one name'}"
            yield Violation("atomicity", names, what, "as many names as links", names, f"{names}: links")
        elif not common:
            what = f"{names}: names of one file, and no time that is allowed had them as names of one"
            yield Violation("atomicity", names, what, "different files", names, f"{names}: one file")

    def _missing(self, could: _Held, sole: Collection[int]) -> Iterator[tuple[Entry, Violation]]:
        """Entries that must exist and do not. `sole`: the inodes that some recovered name has to be."""
        there, inodes = {entry for entry, _ in could}, _inodes(could)
        directories = {directory for directory, _ in there}
        for entry, _ in sorted(self._timeline.entries.paths.items(), key=lambda known: known[1]):
            promise = self._entry(entry)
            if promise is _NOTHING or entry in there or self._is_gone(entry[0], promise, sole):
                continue
            been = self._been(entry, promise.since)
            put_over = not self._all and len(been) > 1
            if ABSENT in been or put_over or self._removed(entry[0]):
                continue
            if self._moved(entry[0], named=entry[0] not in inodes):
                continue
            if entry[0] not in directories and self._is_cut(entry[0]):
                continue
            if any(self._is_elsewhere(inode, promise.since, could) for inode in been) or self._rescued(been):
                continue
            path = self._timeline.entries.path(entry, promise.point)
            oracle, what = "durability", f"{path}: missing{self._although(promise)}"
            signature = f"{path}: missing{self._of_all(promise)}"
            if promise.point < 0:
                oracle, what = "atomicity", f"{what} from a snapshot, of which the rest is there"
            yield entry, Violation(oracle, path, what, "the name", "no such name", signature)

    def _is_gone(self, directory: int, promise: _Promise, sole: Collection[int]) -> bool:
        """Whether a directory, and so all that is in it, may be lacking, or be another one: a subvolume is
        there as a whole or not at all, and so is one that was deleted.
        """
        deleted = self._timeline.deleted.get(directory, _NEVER) < self._position.begun
        return (deleted or promise.point < 0) and directory not in sole

    def _unreachable(self, could: _Held, reported: Collection[Entry]) -> Iterator[Violation]:
        """Inodes that were synced, have had a name ever since, and are at none of those names; without those
        whose names are in `reported`, which are reported already.
        """
        known = self._timeline.entries
        for inode in self._timeline.kinds:
            promise = _later(self._of_place.get(inode, _NOTHING), self._everything)
            if inode == ROOT or promise is _NOTHING:
                continue
            if self._timeline.deleted.get(inode, _NEVER) < self._position.begun:
                continue
            if not known.named(inode, promise.since, self._position.begun):
                continue
            since = known.names(inode, promise.since, self._position.begun)
            if self._removed(inode) or self._moved(inode, named=True):
                continue
            if self._is_elsewhere(inode, promise.since, could):
                continue
            there = any((entry, inode) in could for entry in since)
            if since.isdisjoint(reported) and not there and not self._rescued([inode]):
                paths = sorted(known.path(entry, promise.point) for entry in since)
                more = f" ... ({len(paths)} in all)" if len(paths) > LISTED else ""
                listed = " or ".join(paths[:LISTED]) + more
                what = f"what {self._timeline.describe(inode)} made is at none of its names ({listed})"
                yield Violation(
                    "durability",
                    listed,
                    f"{what}{self._although(promise)}",
                    "one of its names",
                    "none",
                    f"made by {inode}: unreachable{self._of_all(promise)}",
                )

    def _removed(self, inode: int) -> bool:
        """Whether recovery may have removed the inode (`reused-name-loses`): since it became durable, a file
        was synced under an entry that it, or a directory that it has been in, had had.
        """
        if "reused-name-loses" not in self._contract.rules:
            return False
        above = {inode}  # and every directory that it has been in, each once, however it came there
        waiting = [inode]
        for each in waiting:  # which grows meanwhile
            since = self._inode(each).since
            for entry in self._timeline.entries.names(each, since, self._position.begun):
                if self._reused(entry, each, since):
                    return True
                if entry[0] not in above:
                    above.add(entry[0])
                    waiting.append(entry[0])
        return False

    def _reused(self, entry: Entry, inode: int, since: int) -> bool:
        """Whether, since then, a file was synced while it had the entry that the inode had had."""
        return any(
            index >= since
            and self._at(entry, index) == other
            and inode in self._timeline.entries.been(entry, since, index)
            for other in self._been(entry, since).keys() - {inode}
            for index in self._synced.get(other, ())
        )

    def _moved(self, inode: int, *, named: bool) -> bool:
        """Whether the inode may be lost with a name (`moved-may-be-lost`): since it became durable, it or a
        directory above has lost a name or been given another, and no fsync of the directories covers both.
        `named`: or its first name has not become durable, which matters to the name alone.

        [code] vfat_rename writes the new entry and the removal of the old one to different sectors, in any
        order; and an entry that is replaced leads to clusters that are freed at once (fat_evict_inode).
        """
        if inode == ROOT or "moved-may-be-lost" not in self._contract.rules:
            return False
        promises = self._of_place if named else self._of_inode
        since = _later(promises.get(inode, _NOTHING), self._everything).since
        names = self._timeline.entries.names(inode, since, self._position.begun)
        entries = names if named else [e for e in names if inode in self._been(e, self._left_by(e, since))]
        allowed = [(inode,)] if named or len(entries) > 1 else [(inode,), (inode, ABSENT)]
        return not entries or any(
            tuple(self._been(e, since if named else max(since, self._entry(e).since))) not in allowed
            or self._moved(e[0], named=named)
            for e in entries
        )

    def _left_by(self, entry: Entry, since: int) -> int:
        """From when on what has left the entry is durably gone: fsync of its directory writes removals."""
        return max(since, self._inode(entry[0]).since)

    def _is_cut(self, inode: int) -> bool:
        """Whether what came back empty may be due to an entry that is left of the inode, or of a directory
        above, and came back beside another one. Of two that lead to the same clusters, fsck.fat cuts one
        short.
        """
        rules = self._contract.rules
        if inode == ROOT or "moved-may-be-lost" not in rules or "names-at-once" in rules:
            return False
        since, known = self._inode(inode).since, self._timeline.entries
        left = self._paths(inode, self._left(inode, since))
        if left and len(left | self._paths(inode, known.names(inode, since, self._position.begun))) > 1:
            return True
        above = {directory for directory, _ in known.names(inode, since, since)}
        return any(self._is_cut(directory) for directory in above)

    def _paths(self, inode: int, entries: Iterable[Entry]) -> set[str]:
        """The recovered paths that may be these entries of the inode, wherever their directories are."""
        kind = self._timeline.kinds.get(inode)
        paths = (path for entry in entries for path in self._places.get(entry, ()))
        return {path for path in paths if self._names[path].kind == kind}

    @cached_property
    def _places(self) -> dict[Entry, list[str]]:
        """The recovered paths that may be each entry, wherever its directory has ever been."""
        places: dict[Entry, list[str]] = defaultdict(list)
        may_be: dict[str, set[int]] = {"": {ROOT}}
        for path in sorted(self._names, key=lambda p: p.count("/")):  # a directory before the names in it
            directory, _, leaf = path.rpartition("/")
            entries = [(above, leaf) for above in may_be.get(directory, ())]
            for entry in entries:
                places[entry].append(path)
            been = {inode for entry in entries for inode in self._been(entry, 0)} - {ABSENT}
            kind, kinds = self._names[path].kind, self._timeline.kinds
            may_be[path] = {inode for inode in been if kinds[inode] == kind}
        return places

    def _is_elsewhere(self, inode: int, since: int, could: _Held) -> bool:
        """Whether a directory is at a name that is left of it then: of two, e2fsck clears one, and that may
        be the new one.
        """
        directory = not self._all and self._timeline.kinds.get(inode) == "directory"
        return directory and any((entry, inode) in could for entry in self._left(inode, since))

    def _left(self, inode: int, since: int) -> Iterator[Entry]:
        """The entries that the inode had lost by then, and whose removal nothing covers: no sync, and no
        fsync of their directories.
        """
        known = self._timeline.entries
        for entry in known.names(inode, 0, since) - known.names(inode, since, since):
            covered = min(_later(self._of_inode.get(entry[0], _NOTHING), self._everything).since, since)
            if inode in known.been(entry, covered, since):
                yield entry

    def _rescued(self, inodes: Collection[int]) -> bool:
        """Whether fsck has put one of them into lost+found, judging by kind, attributes and contents. What is
        there is one inode each: all that were asked for before are there as well.
        """
        held = self._lost_as.values()
        return any(inode in held for inode in inodes) or any(map(self._assign, inodes))

    def _assign(self, inode: int) -> bool:
        """Whether what is in lost+found can be this inode, too, beside all those that it had to be so far: an
        augmenting path of a matching.
        """
        came: dict[str, int] = {}  # of what is in lost+found, the inode for which it was looked at
        waiting = [inode]
        for each in waiting:  # which grows meanwhile
            for path in self._lost_like(each):
                if path in came or path in self._spoken_for:
                    continue
                came[path] = each
                if path not in self._lost_as:
                    self._move_up(path, came)
                    return True
                waiting.append(self._lost_as[path])
        self._spoken_for |= came.keys()
        return False

    def _move_up(self, free: str, came: Mapping[str, int]) -> None:
        """Each inode on the way takes what it was looked at for, and leaves what it had been."""
        held = {inode: path for path, inode in self._lost_as.items()}
        path: str | None = free
        while path is not None:
            self._lost_as[path] = came[path]
            path = held.get(came[path])

    def _lost_like(self, inode: int) -> list[str]:
        """What is in lost+found, and may be this inode."""
        promise, kind = self._inode(inode), self._timeline.kinds.get(inode)
        alike = ((path, entry) for path, entry in self._lost.items() if entry.kind == kind)
        return [
            path
            for path, entry in alike
            if not self._as_inode(path, self._names[path], inode, promise)
            and (kind != "file" or not self._contents.whenever(inode, self._position, entry))
        ]

    @cached_property
    def _lost(self) -> dict[str, TreeEntry]:
        """What fsck has put into lost+found, by one name of each inode."""
        found = {
            e.inode: e
            for p, e in self._tree.items()
            if p.startswith(f"{LOST_AND_FOUND}/") and not is_own(self._timeline, self._position, p)
        }
        return {e.path: e for e in found.values()}

    def _of_all(self, promise: _Promise) -> str:
        return self._timeline.of_all(promise.point)

    def _although(self, promise: _Promise) -> str:
        return (
            ""
            if promise.point < 0
            else f", although {self._timeline.describe(promise.point)} was acknowledged"
        )


def _later(a: _Promise, b: _Promise) -> _Promise:
    if b is _NOTHING:
        return a
    return b if a is _NOTHING or (b.since, -b.point) > (a.since, -a.point) else a


def _inodes(held: _Held) -> set[int]:
    return {inode for _, inode in held}


def _shown(name: Name) -> tuple[str, int, Owner, bytes, Attributes]:
    return (name.kind, name.mode, name.owner, name.target, name.xattrs)
