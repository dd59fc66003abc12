"""Replay a history into its `ModelTimeline`: apply each operation to the reference model.

Which operation changes which inode decides what an fsync makes durable, so an operation counts as a change
of an inode only where the kernel is certain to dirty that inode in the operation's own transaction or a
later one ([code] v6.12 fs/ext4: ext4_update_inode_fsync_trans and its callers):

- a new inode (ialloc.c, __ext4_new_inode), its directory (namei.c, add_dirent_to_buf);
- link, rename, unlink: the inode's ctime or link count, and the directories (namei.c);
- an exchange of two names: both directories, and both inodes unless the contract has the rule
  `exchange-leaves-inodes` (namei.c, ext4_cross_rename);
- chmod, chown, setxattr and removexattr that change something;
- a write that grows the file or fills a hole (inode.c, ext4_do_update_inode: i_disksize; extents.c).
  An overwrite in place dirties the inode only if the clock has ticked since (inode_needs_update_time),
  so it counts only where data is journaled (ext4_journalled_write_end; ext4_page_mkwrite for a store into a
  mapping, whose block is allocated then or by writeback), or where the contract has the rule
  `overwrites-commit`: copy on write gives the file a new block.

The other file systems are judged by the same rules; vms/filesystems/CONTRACTS.md says why they hold there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import UsageError
from harness.model import BLOCK_BYTES, History, HistoryStep, Operation, OperationKind
from harness.oracles.contract import Contract
from harness.oracles.namespace import ABSENT, ROOT, Namespace
from harness.oracles.timeline import (
    ENDLESS,
    Entries,
    Entry,
    EventKind,
    FileEvent,
    FileHistory,
    ModelTimeline,
    PersistencePoint,
    blocks_of,
    fresh_parts,
    whole_blocks,
)

# vms/agent/src/operations.rs creates with these permissions.
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
_SETUID = 0o4000
_SETGID = 0o2000
_GROUP_EXECUTES = 0o010
_NO_DIRECTORY = ("file", "symlink", "fifo", "char")


@dataclass(slots=True)
class _Node:
    """An inode. `allocated`: every block that may be allocated by now. `linkable`: it has no name yet, and
    link may give it the first one.
    """

    kind: str
    mode: int
    target: bytes = b""
    paths: set[str] = field(default_factory=set)
    xattrs: dict[str, bytes] = field(default_factory=dict)
    allocated: set[int] = field(default_factory=set)
    linkable: bool = False
    owner: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class _Handle:
    """What an open file is of: an inode, and the name by which it was opened, as renames have changed it;
    empty if there was none or it is gone.
    """

    inode: int
    path: str


class _Model:
    """The file system as the operations so far have left it."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.nodes = {ROOT: _Node("directory", DIRECTORY_MODE, paths={""})}
        self.inodes: dict[str, int] = {"": ROOT}
        self.inside: dict[str, dict[str, None]] = {}  # directory to the paths right below it
        self.files: dict[int, FileHistory] = {}
        self.changed: dict[int, int] = {ROOT: -1}  # inode to the last operation an fsync covers
        self.data_changed: dict[int, int] = {ROOT: -1}  # ... an fdatasync covers
        self.at_once: dict[int, int] = {ROOT: -1}  # as `changed`, without writes that writeback completes
        self.data_at_once: dict[int, int] = {ROOT: -1}
        self.renamed_into: dict[int, int] = {}  # directory to the last rename into it
        self.renamed_before: dict[int, tuple[int, int]] = {}  # file to its directory, and that rename
        self.handles: dict[str, _Handle] = {}
        self.persistence: list[PersistencePoint] = []
        self.names = Namespace()
        self.entries = Entries()
        self._entry_of: dict[str, Entry] = {}
        # What the operation at hand has changed:
        self._moved: dict[str, None] = {}
        self._shown: dict[int, None] = {}
        self._xattrs: list[tuple[int, str, bytes | None, bytes | None]] = []

    # --- finding ---

    def inode(self, path: str, *kinds: str) -> int:
        if path.startswith("@") and path not in self.handles:
            raise _Misfit(f"{path} is not open")
        found = self.handles[path].inode if path in self.handles else self.inodes.get(path)
        if found is None:
            raise _Misfit(f"{path or '.'} does not exist")
        if kinds and self.nodes[found].kind not in kinds:
            raise _Misfit(f"{path or '.'} is a {self.nodes[found].kind}, not a {' or '.join(kinds)}")
        return found

    def parent(self, path: str) -> int:
        return self.inode(path.rpartition("/")[0], "directory")

    def absent(self, path: str) -> None:
        if path in self.inodes:
            raise _Misfit(f"{path or '.'} exists already")

    def below(self, path: str) -> list[str]:
        """All paths below a directory, each after the one that it is in."""
        found = list(self.inside.get(path, ()))
        for inner in found:  # which grows meanwhile
            found += self.inside.get(inner, ())
        return found

    def is_only_in(self, inode: int, directory: int) -> bool:
        """Whether the inode has one name, which is in that directory."""
        paths = self.nodes[inode].paths
        return len(paths) == 1 and self.parent(next(iter(paths))) == directory

    # --- changing ---

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

    def show(self, inode: int) -> None:
        """What is visible of the inode may have changed."""
        self._shown[inode] = None

    def note(self) -> None:
        """Note what the operation at hand has changed of the names: it is done."""
        moment = self.names.moment
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
                self.entries.note(moment, entry, inode, path)
        self._moved, self._shown, self._xattrs = {}, {}, []

    def _changed_entries(self) -> dict[Entry, tuple[int, str]]:
        """The entries of the paths that the operation moved, with the inodes that they refer to now."""
        changed = {self._entry_of.pop(p): (ABSENT, p) for p in self._moved if p in self._entry_of}
        for path in self._moved:
            if path in self.inodes:
                directory, _, name = path.rpartition("/")
                entry = self._entry_of[path] = (self.inodes[directory], name)
                changed[entry] = (self.inodes[path], path)
        return changed

    def happened(self, inode: int, event: FileEvent) -> None:
        self.files[inode].events.append(event)


class _Misfit(Exception):
    """The operation cannot have succeeded after those before it. Becomes a UsageError."""


# --- names -----------------------------------------------------------------------------------


def _make(kind: str, mode: int) -> Callable[[_Model, int, Operation], None]:
    def make(m: _Model, i: int, op: Operation) -> None:
        m.absent(op.path)
        parent = m.parent(op.path)
        inherited = m.nodes[parent].mode & _SETGID if kind == "directory" else 0
        m.nodes[i] = _Node(kind, mode | inherited, _raw(op.target), owner=_owner_in(m, parent))
        if kind == "file":
            m.files[i] = FileHistory(i, op.path)
        m.add(op.path, i)
        m.touch(i, parent)
        m.touch_data(i, i)
        if kind == "file" and "rename-commits" in m.contract.rules and parent in m.renamed_into:
            m.renamed_before[i] = (parent, m.renamed_into[parent])

    return make


def _owner_in(m: _Model, directory: int) -> tuple[int, int]:
    """[code] inode_init_owner: the caller's, but the group of a set-group-ID directory."""
    node = m.nodes[directory]
    return (0, node.owner[1] if node.mode & _SETGID else 0)


_make_file = _make("file", FILE_MODE)


def _tmpfile(m: _Model, i: int, op: Operation) -> None:
    """The name appears last and atomically: [code] ext4_tmpfile puts the inode on the orphan list, and
    ext4_link takes it off in the transaction that adds the name. The writes before that are those of any new
    file. A link changes no data (ext4_do_update_inode: need_datasync), so fdatasync covers everything before
    it, but not the name.
    """
    _make_file(m, i, op)
    _write(m, i, op)
    m.data_changed[i] = m.data_at_once[i] = i - 1


def _open(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file", "directory")
    _hold(m, op.target, _Handle(inode, op.path))


def _open_tmpfile(m: _Model, i: int, op: Operation) -> None:
    """[code] ext4_tmpfile: a new inode without a name, on the orphan list; its directory does not change."""
    directory = m.inode(op.path, "directory")
    _hold(m, op.target, _Handle(i, ""))
    m.nodes[i] = _Node("file", FILE_MODE, linkable=True, owner=_owner_in(m, directory))
    m.files[i] = FileHistory(i, op.target)
    m.touch_data(i, i)


def _hold(m: _Model, name: str, handle: _Handle) -> None:
    if name in m.handles:
        raise _Misfit(f"{name} is open already")
    m.handles[name] = handle


def _close(m: _Model, i: int, op: Operation) -> None:
    """What has no name is then freed, which nothing shows."""
    m.inode(op.path)
    del m.handles[op.path]


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _link(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path, *_NO_DIRECTORY)
    node = m.nodes[inode]
    if not node.paths and not node.linkable:
        raise _Misfit(f"{op.path} has lost its last name, and link cannot give it another")
    m.absent(op.target)
    parent = m.parent(op.target)
    node.linkable = False
    m.add(op.target, inode)
    m.touch(i, inode, parent)


def _unlink(m: _Model, i: int, op: Operation) -> None:
    m.inode(op.path, *_NO_DIRECTORY)
    m.touch(i, m.drop(op.path), m.parent(op.path))


def _rmdir(m: _Model, i: int, op: Operation) -> None:
    m.inode(op.path, "directory")
    if not op.path or m.below(op.path):
        raise _Misfit(f"{op.path or '.'} is not empty")
    m.touch(i, m.drop(op.path), m.parent(op.path))


def _rename(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path)
    replaced = m.inodes.get(op.target)
    if replaced == inode:
        return  # rename(2) between two names of one file does nothing
    parents = (m.parent(op.path), m.parent(op.target))
    if f"{op.target}/".startswith(f"{op.path}/"):
        raise _Misfit(f"{op.target} lies in {op.path}")
    if replaced is not None:
        if m.below(op.target) or (m.nodes[inode].kind == "directory") != (
            m.nodes[replaced].kind == "directory"
        ):
            raise _Misfit(f"{op.target} cannot be replaced")
        m.touch(i, m.drop(op.target))
        _commit_size(m, i, inode)
    inner = [(path, m.inodes[path]) for path in m.below(op.path)]
    for path, _ in inner:
        m.remove(path)
    m.remove(op.path)
    m.add(op.target, inode)
    for path, there in inner:
        m.add(op.target + path.removeprefix(op.path), there)
    m.follow({p: op.target + p.removeprefix(op.path) for p in (op.path, *(p for p, _ in inner))})
    m.touch(i, inode, *parents)
    m.renamed_into[parents[1]] = i


def _exchange(m: _Model, i: int, op: Operation) -> None:
    """One transaction swaps the two entries; what lies below a directory goes with it."""
    one, other = m.inode(op.path), m.inode(op.target)
    if one == other:
        return  # renameat2(2) between two names of one file does nothing
    for path, beside in ((op.path, op.target), (op.target, op.path)):
        if not path or path.startswith(f"{beside}/"):
            raise _Misfit(f"{path or '.'} and {beside or '.'} cannot change places")
    moved: dict[str, str] = {}
    for path, target in ((op.path, op.target), (op.target, op.path)):
        moved |= {p: target + p.removeprefix(path) for p in (path, *m.below(path))}
    parents = (m.parent(op.path), m.parent(op.target))
    inodes = {path: m.remove(path) for path in moved}
    for path, inode in inodes.items():
        m.add(moved[path], inode)
    m.follow(moved)
    m.touch(i, *parents)
    if "exchange-leaves-inodes" not in m.contract.rules:
        m.touch(i, one, other)


def _commit_size(m: _Model, i: int, inode: int) -> None:
    """[doc] ext4.rst, auto_da_alloc; [code] ext4_rename: ext4_alloc_da_blocks comes before the handle."""
    if m.contract.replace_is_safe and inode in m.files:
        size = m.files[inode].size
        m.happened(inode, FileEvent(i, EventKind.COMMIT_SIZE, 0, 0, size, size))


def _chmod(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file", "directory", "fifo", "char")
    if m.nodes[inode].mode != op.length & 0o7777:
        m.nodes[inode].mode = op.length & 0o7777
        m.show(inode)
        m.touch(i, inode)


def _chown(m: _Model, i: int, op: Operation) -> None:
    """[code] chown_common: of anything but a directory it takes the set-user-ID bit and, where the group may
    execute, the set-group-ID bit (setattr_should_drop_sgid).
    """
    inode = m.inode(op.path, "file", "directory", "fifo", "char")
    node = m.nodes[inode]
    before = (node.mode, node.owner)
    if node.kind != "directory":
        node.mode &= ~(_SETUID | _SETGID if node.mode & _GROUP_EXECUTES else _SETUID)
    node.owner = (op.offset, op.length)
    if before != (node.mode, node.owner):
        m.show(inode)
        m.touch(i, inode)


def _setxattr(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path)
    if m.nodes[inode].xattrs.get(op.name) != op.value:
        m.set_xattr(inode, op.name, op.value)
        m.touch(i, inode)


def _removexattr(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path)
    if op.name not in m.nodes[inode].xattrs:
        raise _Misfit(f"{op.path} has no attribute {op.name}")
    m.set_xattr(inode, op.name, None)
    m.touch(i, inode)


# --- contents --------------------------------------------------------------------------------


def _write(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file")
    size = m.files[inode].size
    start = size if op.kind is OperationKind.APPEND else op.offset
    end = start + op.length
    if op.length:
        allocated = m.nodes[inode].allocated
        new = [b for b in blocks_of(start, end) if b not in allocated]
        allocated.update(new)
        grown = max(size, end)
        fresh = fresh_parts(start, end, new)
        mapped = op.kind is OperationKind.MMAP_WRITE
        m.happened(inode, FileEvent(i, EventKind.WRITE, start, end, size, grown, fresh, mapped))
        overwrites = m.contract.data == "journal" or "overwrites-commit" in m.contract.rules
        if new or grown > size or overwrites:
            m.touch_written(i, inode)
    if op.length and {"sync", "dsync"} & set(op.flags):
        _persist(m, i, op.path, data_only="sync" not in op.flags, written=(start, end))


def _mmap_write(m: _Model, i: int, op: Operation) -> None:
    """[code] mm/msync.c: vfs_fsync_range with datasync: over the whole file or, with `sync-range`, over the
    pages stored into. Of the latter only their data counts: what else the file has in memory need not be
    written, so neither its size nor any other operation is promised.
    """
    size = m.files[m.inode(op.path, "file")].size
    if op.offset + op.length > size:
        raise _Misfit(f"{op.path} has {size} bytes, and a mapping cannot make it longer")
    ranged = "sync-range" in op.flags
    _write(m, i, dataclasses.replace(op, flags=()))
    if op.flags and (not ranged or m.contract.data == "journal"):
        _persist(m, i, op.path, data_only=True)
    elif ranged and m.contract.persists != "nothing":
        pages = blocks_of(op.offset, op.offset + op.length)
        start, end = pages.start * BLOCK_BYTES, pages.stop * BLOCK_BYTES
        m.happened(m.inode(op.path), FileEvent(i, EventKind.FLUSH, start, end, size, size))


def _truncate(m: _Model, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file")
    size = m.files[inode].size
    if op.length < size:
        kept = blocks_of(0, op.length)
        m.nodes[inode].allocated = {b for b in m.nodes[inode].allocated if b in kept}
        m.happened(inode, FileEvent(i, EventKind.ZERO, op.length, ENDLESS, size, op.length))
    elif op.length > size:
        m.happened(inode, FileEvent(i, EventKind.SIZE, 0, 0, size, op.length))
    if op.length != size:
        m.touch_data(i, inode)
    if op.length >= size:
        # [code] ext4_setattr calls ext4_truncate even if the size stays: for preallocated blocks.
        m.happened(inode, FileEvent(i, EventKind.RELEASE, op.length, ENDLESS, op.length, op.length))


def _fallocate(m: _Model, i: int, op: Operation) -> None:
    """[code] extents.c: ext4_do_fallocate, ext4_zero_range; inode.c: ext4_punch_hole."""
    inode = m.inode(op.path, "file")
    size, start, end = m.files[inode].size, op.offset, op.offset + op.length
    allocated = m.nodes[inode].allocated
    if "punch-hole" in op.flags:
        reach = min(end, -(-size // BLOCK_BYTES) * BLOCK_BYTES)
        if start < size:
            low, high = whole_blocks(start, reach)
            allocated.difference_update(range(low // BLOCK_BYTES, high // BLOCK_BYTES))
            m.happened(inode, FileEvent(i, EventKind.ZERO, start, reach, size, size))
            m.touch_data(i, inode)
        m.happened(inode, FileEvent(i, EventKind.RELEASE, start, end, size, size))
        return
    allocated.update(blocks_of(start, end))
    grown = size if "keep-size" in op.flags else max(size, end)
    if "zero-range" in op.flags:
        m.happened(inode, FileEvent(i, EventKind.ZERO, start, end, size, grown))
        m.touch_data(i, inode)
    elif grown > size:
        m.happened(inode, FileEvent(i, EventKind.SIZE, 0, 0, size, grown))
        m.touch_data(i, inode)
    m.happened(inode, FileEvent(i, EventKind.RESERVE, start, end, grown, grown))


def _clone(m: _Model, i: int, op: Operation) -> None:
    """[code] do_clone_file_range of the whole source. What the target has beyond that would stay, which is
    refused here; so is a file cloned into itself (generic_remap_checks).
    """
    source, target = m.inode(op.path, "file"), m.inode(op.target, "file")
    size, before = m.files[source].size, m.files[target].size
    if source == target or before > size:
        raise _Misfit(f"{op.target} is {'the same file' if source == target else 'longer'}")
    if size:
        content = m.files[source].content(len(m.files[source].events))
        m.nodes[target].allocated = set(m.nodes[source].allocated)
        m.happened(target, FileEvent(i, EventKind.CLONE, 0, size, before, size, content=content))
        m.touch_data(i, target)


# --- persistence -----------------------------------------------------------------------------


def _persist(m: _Model, i: int, path: str, data_only: bool, written: tuple[int, int] | None = None) -> None:
    """[code] fsync.c, ext4_sync_file: write the data and wait, then commit i_sync_tid (fdatasync:
    i_datasync_tid). Under `persists = "nothing"` it makes nothing durable; under `inode` nothing of what has
    no name, since nobody could find it (btrfs_log_inode_parent: BTRFS_NO_LOG_SYNC).

    `written`: only these bytes of the file were written before, as after a write with O_SYNC or O_DSYNC
    (generic_write_sync: vfs_fsync_range). A commit of contents as part of the transaction has all of them.
    """
    inode = m.inode(path)
    if m.contract.persists == "nothing" or (m.contract.persists == "inode" and not m.nodes[inode].paths):
        return
    if m.contract.data == "journal":
        written = None
    if written is None:
        last = (m.data_changed if data_only else m.changed)[inode]
    else:
        last = _last_change(m, inode, data_only, *written)
    alone = inode if m.contract.persists == "inode" else None
    m.persistence.append(PersistencePoint(i, last + 1, alone, m.opened_by(path)))
    if (renamed := m.renamed_before.get(inode)) is not None and m.is_only_in(inode, renamed[0]):
        m.persistence.append(PersistencePoint(i, renamed[1] + 1))
    if inode not in m.files:
        return
    file = m.files[inode]
    if written is None or _is_all_written(file, *written):
        file.persists.append((i, len(file.events)))
    else:
        m.happened(inode, FileEvent(i, EventKind.FLUSH, *written, file.size, file.size, with_size=True))


def _last_change(m: _Model, inode: int, data_only: bool, start: int, end: int) -> int:
    """The last operation that has changed the inode for certain, once bytes `start` to `end` have been
    written, with a size that reaches their end. What earlier writes allocate elsewhere may still be delayed.
    """
    last = (m.data_at_once if data_only else m.at_once)[inode]
    for event in reversed(m.files[inode].events):
        if event.index <= max(last, inode):
            break
        if event.kind is EventKind.WRITE:
            ranges = (*event.fresh, *[(event.start, event.end)] * ("overwrites-commit" in m.contract.rules))
            grows = event.size_before < min(end, event.size_after)
            if grows or any(low < end and start < high for low, high in ranges):
                return event.index
    return last


def _is_all_written(file: FileHistory, start: int, end: int) -> bool:
    """Whether nothing of the file is volatile once bytes `start` to `end` are durable: its other writes have
    been since they were made, and nothing else has happened to it.
    """
    later = [(start, end)]  # what has been made durable since
    for event in reversed(file.events[file.persists[-1][1] if file.persists else 0 :]):
        if event.kind is EventKind.FLUSH:
            later += [(event.start, event.end)] * event.with_size
        elif event.kind is not EventKind.WRITE or not _is_within(event, later):
            return False
    return True


def _is_within(event: FileEvent, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= event.start and event.end <= end for start, end in ranges)


def _fsync(m: _Model, i: int, op: Operation) -> None:
    m.inode(op.path, "file", "directory")
    _persist(m, i, op.path, data_only=op.kind is OperationKind.FDATASYNC)


def _sync(m: _Model, i: int, op: Operation) -> None:
    """[doc] sync(2): all pending modifications, whatever the file system. [code] super.c, ext4_sync_fs: every
    inode's data, then the running transaction.
    """
    if m.contract.persists == "nothing":
        return
    m.persistence.append(PersistencePoint(i, i))
    for file in m.files.values():
        file.persists.append((i, len(file.events)))


def _remount(m: _Model, i: int, op: Operation) -> None:
    """A clean unmount makes durable what sync does."""
    if m.handles:
        raise _Misfit(f"{', '.join(m.handles)} is still open, and keeps the file system mounted")
    _sync(m, i, op)


def _write_back(m: _Model, i: int, op: Operation) -> None:
    """[doc] sync_file_range(2): "none of these operations writes out the file's metadata", and there is no
    flush. Dirty pages may be written at any time anyway.
    """
    m.inode(op.path, "file")


def _nothing(m: _Model, i: int, op: Operation) -> None:
    """What is clean can be evicted at any time anyway."""


def _run(m: _Model, i: int, op: Operation) -> None:
    """Programs are not modelled; `ModelTimeline.opaque` keeps names and contents from being judged."""


_APPLY: Mapping[OperationKind, Callable[[_Model, int, Operation], None]] = {
    OperationKind.CREATE: _make_file,
    OperationKind.TMPFILE: _tmpfile,
    OperationKind.OPEN: _open,
    OperationKind.OPEN_TMPFILE: _open_tmpfile,
    OperationKind.CLOSE: _close,
    OperationKind.MKDIR: _make("directory", DIRECTORY_MODE),
    OperationKind.SYMLINK: _make("symlink", 0),
    OperationKind.LINK: _link,
    OperationKind.UNLINK: _unlink,
    OperationKind.RMDIR: _rmdir,
    OperationKind.RENAME: _rename,
    OperationKind.EXCHANGE: _exchange,
    OperationKind.MKFIFO: _make("fifo", FILE_MODE),
    OperationKind.MKNOD: _make("char", FILE_MODE),
    OperationKind.CHMOD: _chmod,
    OperationKind.CHOWN: _chown,
    OperationKind.CLONE: _clone,
    OperationKind.SETXATTR: _setxattr,
    OperationKind.REMOVEXATTR: _removexattr,
    OperationKind.WRITE: _write,
    OperationKind.APPEND: _write,
    OperationKind.MMAP_WRITE: _mmap_write,
    OperationKind.TRUNCATE: _truncate,
    OperationKind.FALLOCATE: _fallocate,
    OperationKind.FSYNC: _fsync,
    OperationKind.FDATASYNC: _fsync,
    OperationKind.SYNC_FILE_RANGE: _write_back,
    OperationKind.SYNC: _sync,
    OperationKind.DROP_CACHES: _nothing,
    OperationKind.REMOUNT: _remount,
    OperationKind.RUN: _run,
}


_OF_NAMES = frozenset(
    {
        OperationKind.CREATE,
        OperationKind.TMPFILE,
        OperationKind.MKDIR,
        OperationKind.SYMLINK,
        OperationKind.LINK,
        OperationKind.UNLINK,
        OperationKind.RMDIR,
        OperationKind.RENAME,
        OperationKind.EXCHANGE,
        OperationKind.MKFIFO,
        OperationKind.MKNOD,
    }
)
"""[doc] xfs.rst, wsync: the change to the namespace is on stable storage when the operation completes."""


PERSISTS_NOTHING = frozenset(
    {
        OperationKind.CREATE,
        OperationKind.MKDIR,
        OperationKind.SYMLINK,
        OperationKind.LINK,
        OperationKind.UNLINK,
        OperationKind.RMDIR,
        OperationKind.SETXATTR,
        OperationKind.REMOVEXATTR,
        OperationKind.CHMOD,
    }
)
"""Operations that change names and attributes, and nothing else. Their return promises nothing, unless they
are persistence points themselves.
"""


_ANY = Contract(
    namespace="none",
    persists="nothing",
    data="writeback",
    size_lags=False,
    zeros_in_new_blocks=False,
    stale_allowed=True,
    replace_is_safe=False,
    fsck_clean=False,
)


def replay(contract: Contract, history: History) -> ModelTimeline:
    """The timeline of the operations that had begun when the log ended.

    Raises UsageError for an operation that cannot have succeeded after those before it.
    """
    operations = tuple(s.operation for s in history.steps if s.begin is not None)
    opaque = any(op.kind is OperationKind.RUN for op in operations)
    m = _Model(contract)
    for i, op in enumerate(operations):
        try:
            if not opaque:
                _APPLY[op.kind](m, i, op)
                if contract.persists == "operations" and op.kind in _OF_NAMES:
                    m.persistence.append(PersistencePoint(i, i + 1))
        except _Misfit as e:
            raise UsageError(f"operation {i}, `{op}`: {e}", "correct the workload") from e
        m.note()
    return ModelTimeline(
        operations=operations,
        opaque=opaque,
        names=m.names,
        files=m.files,
        persistence=tuple(m.persistence),
        floors=_floors(m.persistence, len(operations)),
        attributes=frozenset(op.name for op in operations if op.name),
        kinds={inode: node.kind for inode, node in m.nodes.items()},
        written={e.index: f for f in m.files.values() for e in f.events if e.kind is EventKind.WRITE},
        entries=m.entries,
        epochs=_epochs(operations, m.persistence),
    )


def need_possible(operations: Sequence[Operation]) -> None:
    """Raises UsageError for the first operation that cannot succeed after those before it, in any mode."""
    replay(_ANY, History(tuple(HistoryStep(i, op, i, i) for i, op in enumerate(operations))))


def fitting(contract: Contract, operations: Sequence[Operation]) -> list[int]:
    """The places of those operations that can succeed, each after the ones kept before it."""
    m = _Model(contract)
    kept: list[int] = []
    for place, op in enumerate(operations):
        with contextlib.suppress(_Misfit):  # which is raised before anything has changed
            _APPLY[op.kind](m, len(kept), op)
            kept.append(place)
    return kept


def _epochs(operations: Sequence[Operation], persistence: Sequence[PersistencePoint]) -> tuple[int, ...]:
    points = {p.index for p in persistence}
    more = (op.kind not in PERSISTS_NOTHING or i in points for i, op in enumerate(operations))
    return tuple(itertools.accumulate(more, initial=0))


def _floors(persistence: Sequence[PersistencePoint], operations: int) -> tuple[int, ...]:
    floors = [0] * (operations + 1)
    for point in persistence:
        if point.inode is None:
            floors[point.index + 1] = point.floor
    return tuple(itertools.accumulate(floors, max))
