"""The reference file system: inodes and names as the operations so far have left them, and when each inode
was last changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.oracles.contract import Contract
from harness.oracles.namespace import ABSENT, ROOT, Namespace
from harness.oracles.timeline import (
    Entries,
    Entry,
    EventKind,
    FileEvent,
    FileHistory,
    PersistencePoint,
)

DIRECTORY_MODE = 0o755
"""With which vms/agent/src/operations.rs creates."""


@dataclass(slots=True)
class Inode:
    """An inode. `allocated`: every block that may be allocated by now. `linkable`: it has no name yet, and
    link may give it the first one. `flags`: those of chattr(1), by their letters.
    """

    kind: str
    mode: int
    target: bytes = b""
    paths: set[str] = field(default_factory=set)
    xattrs: dict[str, bytes] = field(default_factory=dict)
    allocated: set[int] = field(default_factory=set)
    linkable: bool = False
    owner: tuple[int, int] = (0, 0)
    flags: frozenset[str] = frozenset()


@dataclass(slots=True)
class Handle:
    """What an open file is of: an inode, and the name by which it was opened, as renames have changed it;
    empty if there was none or it is gone.
    """

    inode: int
    path: str


class Inodes:
    """The file system as the operations so far have left it."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.nodes = {ROOT: Inode("directory", DIRECTORY_MODE, paths={""})}
        self.inodes: dict[str, int] = {"": ROOT}
        self.inside: dict[str, dict[str, None]] = {}  # directory to the paths right below it
        self.files: dict[int, FileHistory] = {}
        self.changed: dict[int, int] = {ROOT: -1}  # inode to the last operation an fsync covers
        self.data_changed: dict[int, int] = {ROOT: -1}  # ... an fdatasync covers
        self.at_once: dict[int, int] = {ROOT: -1}  # as `changed`, without writes that writeback completes
        self.data_at_once: dict[int, int] = {ROOT: -1}
        self.renamed_into: dict[int, int] = {}  # directory to the last rename into it
        self.renamed_before: dict[int, tuple[int, int]] = {}  # file to its directory, and that rename
        self.handles: dict[str, Handle] = {}
        self.exchanged: dict[int, set[int]] = {}  # file to all that exchanged contents, itself too
        self.parted: dict[int, int] = {}  # inode with several names to the first remount with them
        self.apart: dict[int, int] = {}  # ... to the first operation since then that names it
        self.atomic: dict[int, FileHistory] = {}  # file to what it holds with the writes of its atomic write
        self.aside: dict[int, int] = {}  # operation that wrote such to the file
        self.subvolumes: set[int] = set()  # their topmost directories, the root aside
        self.copies: dict[int, int] = {}  # directory of a snapshot to the operation that made it
        self.deleted: dict[int, int] = {}  # inode of a deleted subvolume to the operation that deleted it
        self.folds = False  # whether a directory has ever ignored case
        self.persistence: list[PersistencePoint] = []
        self.names = Namespace()
        self.entries = Entries()
        self._entry_of: dict[str, Entry] = {}
        # What the operation at hand has changed:
        self._moved: dict[str, None] = {}
        self._hidden: set[str] = set()
        self._shown: dict[int, None] = {}
        self._xattrs: list[tuple[int, str, bytes | None, bytes | None]] = []

    # --- finding ---

    def inode(self, path: str, *kinds: str) -> int:
        if path.startswith("@") and path not in self.handles:
            raise Misfit(f"{path} is not open")
        found = self.handles[path].inode if path in self.handles else self.inodes.get(path)
        if found is None:
            raise Misfit(f"{path or '.'} does not exist")
        if kinds and self.nodes[found].kind not in kinds:
            raise Misfit(f"{path or '.'} is a {self.nodes[found].kind}, not a {' or '.join(kinds)}")
        return found

    def parent(self, path: str) -> int:
        return self.inode(path.rpartition("/")[0], "directory")

    def absent(self, path: str) -> None:
        if path in self.inodes:
            raise Misfit(f"{path or '.'} exists already")

    def below(self, path: str) -> list[str]:
        """All paths below a directory, each after the one that it is in."""
        found = list(self.inside.get(path, ()))
        for inner in found:  # which grows meanwhile
            found += self.inside.get(inner, ())
        return found

    def subvolume(self, path: str) -> str:
        """The path of the subvolume that a path is in; of a subvolume, itself."""
        while path and self.inodes.get(path) not in self.subvolumes:
            path = path.rpartition("/")[0]
        return path

    def is_only_in(self, inode: int, directory: int) -> bool:
        """Whether the inode has one name, which is in that directory."""
        paths = self.nodes[inode].paths
        return len(paths) == 1 and self.parent(next(iter(paths))) == directory

    # --- changing ---

    def named_by(self, index: int, *paths: str) -> None:
        """The operation names these: what had several names at a remount may be copied by that, even where
        nothing changes (`links-may-part`).
        """
        for path in paths:
            inode = self.handles[path].inode if path in self.handles else self.inodes.get(path)
            if inode in self.parted:
                self.apart.setdefault(inode, index)

    def touch(self, index: int, *inodes: int) -> None:
        for inode in inodes:
            self.changed[inode] = self.at_once[inode] = index

    def touch_data(self, index: int, inode: int) -> None:
        self.touch(index, inode)
        self.data_changed[inode] = self.data_at_once[inode] = index

    def touch_written(self, index: int, inode: int) -> None:
        """A write has changed the inode: at once, or, where the size lags, when its pages are written."""
        if self.contract.size_lags:
            self.changed[inode] = self.data_changed[inode] = index
        else:
            self.touch_data(index, inode)

    def add(self, path: str, inode: int) -> None:
        self.inodes[path] = inode
        self.nodes[inode].paths.add(path)
        self.inside.setdefault(path.rpartition("/")[0], {})[path] = None
        self._moved[path] = None
        self.show(inode)

    def remove(self, path: str) -> int:
        inode = self.inodes.pop(path)
        self.nodes[inode].paths.discard(path)
        del self.inside[path.rpartition("/")[0]][path]
        self._moved[path] = None
        self.show(inode)
        return inode

    def drop(self, path: str) -> int:
        """Remove a name for good."""
        for handle in self.handles.values():
            handle.path = "" if handle.path == path else handle.path
        return self.remove(path)

    def hide(self, path: str) -> int:
        """Remove a name because what it is in is gone as a whole: there the entry stays."""
        self._hidden.add(path)
        return self.drop(path)

    def follow(self, moved: Mapping[str, str]) -> None:
        """Names have become others: so have those of what is open."""
        for handle in self.handles.values():
            handle.path = moved.get(handle.path, handle.path)

    def opened_by(self, path: str) -> str:
        """The name that a path stands for: a handle's, or itself."""
        return self.handles[path].path if path in self.handles else path

    def set_xattr(self, inode: int, name: str, value: bytes | None) -> None:
        """Give an extended attribute this value, or remove it (None)."""
        xattrs = self.nodes[inode].xattrs
        before = xattrs.pop(name, None)
        if value is not None:
            xattrs[name] = value
        self._xattrs.append((inode, name, before, value))
        self.show(inode)

    @property
    def has_moved(self) -> bool:
        """Whether the operation at hand changed a name: a rename between two names of one file has not."""
        return bool(self._moved)

    def show(self, inode: int) -> None:
        """What is visible of the inode may have changed."""
        self._shown[inode] = None

    def note(self) -> None:
        """Note what the operation at hand has changed of the names: it is done."""
        version = self.names.version
        for inode in self._shown.keys() - {ROOT}:
            node = self.nodes[inode]
            self.names.put_inode(inode, node.kind, node.mode, node.target, node.owner)
        for inode, name, before, value in self._xattrs:
            if inode != ROOT:
                self.names.put_xattr(inode, name, before, value)
        for path in self._moved:
            self.names.put_path(path, self.inodes.get(path, ABSENT))
        self.names.close()
        if self.contract.namespace in ("each", "synced"):
            for entry, (inode, path) in self._changed_entries().items():
                self.entries.note(version, entry, inode, path)
        self._moved, self._shown, self._xattrs, self._hidden = {}, {}, [], set()

    def _changed_entries(self) -> dict[Entry, tuple[int, str]]:
        """The entries of the paths that the operation moved, with the inodes that they refer to now."""
        gone = [(self._entry_of.pop(p), p) for p in self._moved if p in self._entry_of]
        changed = {entry: (ABSENT, p) for entry, p in gone if p not in self._hidden}
        for path in self._moved:
            if path in self.inodes:
                directory, _, name = path.rpartition("/")
                entry = self._entry_of[path] = (self.inodes[directory], name)
                changed[entry] = (self.inodes[path], path)
        return changed

    def happened(self, inode: int, event: FileEvent) -> None:
        self.files[inode].events.append(event)
        if event.is_written or event.kind is EventKind.ZERO:
            for other in self.exchanged.get(inode, set()) - {inode}:
                self._strays(other, event)

    def _strays(self, inode: int, event: FileEvent) -> None:
        """The event happened to another file, on blocks that the exchange took from this one."""
        file = self.files[inode]
        content = event.content or ((event.start, event.end, event.origin),)
        stray = FileEvent(
            event.index, EventKind.STRAY, event.start, event.end, file.size, file.size, content=content
        )
        file.events.append(stray)

    def join(self, one: int, other: int) -> None:
        """Two files have exchanged their contents."""
        joined = self.exchanged.get(one, {one}) | self.exchanged.get(other, {other})
        self.exchanged |= dict.fromkeys(joined, joined)


class Misfit(Exception):
    """The operation cannot have succeeded after those before it. Becomes a UsageError."""
