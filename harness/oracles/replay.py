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
import unicodedata
from collections.abc import Callable, Mapping, Sequence

from harness.errors import NotSupported, UsageError
from harness.model import BLOCK_BYTES, History, HistoryStep, Operation, OperationKind
from harness.oracles.atomic import abort_atomic, commit_atomic, need_not_atomic, start_atomic, write_aside
from harness.oracles.chattr import chattr, inherited, is_synced_at_once, spelled
from harness.oracles.contract import Contract
from harness.oracles.inodes import DIRECTORY_MODE, Handle, Inode, Inodes, Misfit
from harness.oracles.persistence import (
    OF_NAMES,
    can_persist,
    floors_of,
    persist,
    persist_name,
    promise_sets_of,
    sync,
)
from harness.oracles.subvolumes import delete_subvolume, make_subvolume, need_one, snapshot
from harness.oracles.timeline import (
    ENDLESS,
    EventKind,
    FileEvent,
    FileHistory,
    ModelTimeline,
    PersistencePoint,
    blocks_of,
    fresh_parts,
    pieces,
    shifted,
    whole_blocks,
)
from harness.oracles.verity import attributes_of, enable_verity, need_no_verity
from harness.symptoms import paths_of

# vms/agent/src/operations.rs creates with these permissions.
FILE_MODE = 0o644
# It makes no other device. The agent tells the numbers of a device in the place of a link's target.
_NULL_DEVICE = b"1:3"
_SETUID = 0o4000
_SETGID = 0o2000
_GROUP_EXECUTES = 0o010
_NO_DIRECTORY = ("file", "symlink", "fifo", "char")


# --- names -----------------------------------------------------------------------------------


def _make(kind: str, mode: int, device: bytes = b"") -> Callable[[Inodes, int, Operation], None]:
    def make(m: Inodes, i: int, op: Operation) -> None:
        m.absent(op.path)
        parent = m.parent(op.path)
        group = m.nodes[parent].mode & _SETGID if kind == "directory" else 0
        m.nodes[i] = Inode(kind, mode | group, device or _raw(op.target), owner=_owner_in(m, parent))
        if kind == "file":
            m.files[i] = FileHistory(i, op.path)
        elif kind == "directory":
            m.nodes[i].flags = inherited(m, parent)
        m.add(op.path, i)
        m.touch(i, parent)
        m.touch_data(i, i)
        if kind == "file" and "rename-commits" in m.contract.rules and parent in m.renamed_into:
            m.renamed_before[i] = (parent, m.renamed_into[parent])

    return make


def _owner_in(m: Inodes, directory: int) -> tuple[int, int]:
    """[code] inode_init_owner: the caller's, but the group of a set-group-ID directory."""
    node = m.nodes[directory]
    return (0, node.owner[1] if node.mode & _SETGID else 0)


_make_file = _make("file", FILE_MODE)


def _tmpfile(m: Inodes, i: int, op: Operation) -> None:
    """The name appears last and atomically: [code] ext4_tmpfile puts the inode on the orphan list, and
    ext4_link takes it off in the transaction that adds the name. The writes before that are those of any new
    file. A link changes no data (ext4_do_update_inode: need_datasync), so fdatasync covers everything before
    it, but not the name.
    """
    _make_file(m, i, op)
    _write(m, i, op)
    m.data_changed[i] = m.data_at_once[i] = i - 1


def _open(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file", "directory")
    _hold(m, op.target, Handle(inode, op.path))


def _open_tmpfile(m: Inodes, i: int, op: Operation) -> None:
    """[code] ext4_tmpfile: a new inode without a name, on the orphan list; its directory does not change."""
    directory = m.inode(op.path, "directory")
    _hold(m, op.target, Handle(i, ""))
    m.nodes[i] = Inode("file", FILE_MODE, linkable=True, owner=_owner_in(m, directory))
    m.files[i] = FileHistory(i, op.target)
    m.touch_data(i, i)


def _hold(m: Inodes, name: str, handle: Handle) -> None:
    if name in m.handles:
        raise Misfit(f"{name} is open already")
    m.handles[name] = handle


def _close(m: Inodes, i: int, op: Operation) -> None:
    """What has no name is then freed, which nothing shows."""
    m.inode(op.path)
    del m.handles[op.path]


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _link(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path, *_NO_DIRECTORY)
    node = m.nodes[inode]
    if not node.paths and not node.linkable:
        raise Misfit(f"{op.path} has lost its last name, and link cannot give it another")
    m.absent(op.target)
    parent = m.parent(op.target)
    need_one(m, *sorted(node.paths)[:1], op.target)
    node.linkable = False
    m.add(op.target, inode)
    m.touch(i, inode, parent)


def _unlink(m: Inodes, i: int, op: Operation) -> None:
    m.inode(op.path, *_NO_DIRECTORY)
    m.touch(i, *_dropped(m, op.path), m.parent(op.path))


def _dropped(m: Inodes, path: str) -> tuple[int, ...]:
    """Remove a name for good: the inode that changes by it. One of overlayfs's lower layer does not: a
    whiteout, or what was put over it, hides it (`links-may-part`).
    """
    inode = m.drop(path)
    return () if inode in m.parted else (inode,)


def _rmdir(m: Inodes, i: int, op: Operation) -> None:
    m.inode(op.path, "directory")
    if not op.path or m.below(op.path):
        raise Misfit(f"{op.path or '.'} is not empty")
    m.touch(i, m.drop(op.path), m.parent(op.path))


def _rename(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path)
    if not op.path or not op.target:
        raise Misfit(". has no other name")
    replaced = m.inodes.get(op.target)
    if replaced == inode:
        return  # rename(2) between two names of one file does nothing
    parents = (m.parent(op.path), m.parent(op.target))
    if f"{op.target}/".startswith(f"{op.path}/"):
        raise Misfit(f"{op.target} lies in {op.path}")
    if inode not in m.subvolumes:
        need_one(m, op.path, op.target)
    if replaced in m.subvolumes:
        raise Misfit(f"{op.target} is a subvolume, and nothing takes its place")
    if replaced is not None:
        if m.below(op.target) or (m.nodes[inode].kind == "directory") != (
            m.nodes[replaced].kind == "directory"
        ):
            raise Misfit(f"{op.target} cannot be replaced")
        m.touch(i, *_dropped(m, op.target))
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


def _exchange(m: Inodes, i: int, op: Operation) -> None:
    """One transaction swaps the two entries; what lies below a directory goes with it."""
    one, other = m.inode(op.path), m.inode(op.target)
    if one == other:
        return  # renameat2(2) between two names of one file does nothing
    for path, beside in ((op.path, op.target), (op.target, op.path)):
        if not path or path.startswith(f"{beside}/"):
            raise Misfit(f"{path or '.'} and {beside or '.'} cannot change places")
    need_one(m, op.path, op.target)
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


def _commit_size(m: Inodes, i: int, inode: int) -> None:
    """[doc] ext4.rst, auto_da_alloc; [code] ext4_rename: ext4_alloc_da_blocks comes before the handle."""
    if m.contract.replace_is_safe and inode in m.files:
        size = m.files[inode].size
        m.happened(inode, FileEvent(i, EventKind.COMMIT_SIZE, 0, 0, size, size))


def _chmod(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file", "directory", "fifo", "char")
    if m.nodes[inode].mode != op.length & 0o7777:
        m.nodes[inode].mode = op.length & 0o7777
        m.show(inode)
        m.touch(i, inode)


def _chown(m: Inodes, i: int, op: Operation) -> None:
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


def _setxattr(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path)
    if m.nodes[inode].xattrs.get(op.name) != op.value:
        m.set_xattr(inode, op.name, op.value)
        m.touch(i, inode)


def _removexattr(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path)
    if op.name not in m.nodes[inode].xattrs:
        raise Misfit(f"{op.path} has no attribute {op.name}")
    m.set_xattr(inode, op.name, None)
    m.touch(i, inode)


# --- contents --------------------------------------------------------------------------------


_WRITES = (OperationKind.WRITE, OperationKind.APPEND)


def _write(m: Inodes, i: int, op: Operation) -> None:
    inode = m.inode(op.path, "file")
    if inode in m.atomic:
        write_aside(m, i, op)
        return
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
    synchronous = "writes-at-once" in m.contract.rules or "S" in m.nodes[inode].flags
    at_once = {"dsync"} if synchronous and op.kind in _WRITES else set()
    if op.length and {"sync", "dsync"} & {*op.flags, *at_once}:
        persist(m, i, op.path, data_only="sync" not in op.flags, written=(start, end))


def _mmap_write(m: Inodes, i: int, op: Operation) -> None:
    """[code] mm/msync.c: vfs_fsync_range with datasync: over the whole file or, with `sync-range`, over the
    pages stored into. Of the latter only their data counts: what else the file has in memory need not be
    written, so neither its size nor any other operation is promised.
    """
    inode = m.inode(op.path, "file")
    size = m.files[inode].size
    if "past-end" in op.flags:
        _stored_past_end(m, i, op)
        return
    if op.offset + op.length > size:
        raise Misfit(f"{op.path} has {size} bytes, and a mapping cannot make it longer")
    ranged = "sync-range" in op.flags
    _write(m, i, dataclasses.replace(op, flags=()))
    if op.flags and (not ranged or m.contract.data == "journal"):
        persist(m, i, op.path, data_only=True)
    elif ranged and can_persist(m, inode):
        pages = blocks_of(op.offset, op.offset + op.length)
        start, end = pages.start * BLOCK_BYTES, pages.stop * BLOCK_BYTES
        m.happened(inode, FileEvent(i, EventKind.FLUSH, start, end, size, size))


def _stored_past_end(m: Inodes, i: int, op: Operation) -> None:
    """No part of the file, then or ever. [man] mmap(2), NOTES: what is stored into the last page past the end
    of a file is not written out to it. [POSIX] ftruncate: the extended area shall appear as if it were
    zero-filled. But the page is made writable, which allocates a block where the file has a hole.
    """
    inode = m.inode(op.path, "file")
    size = m.files[inode].size
    page = blocks_of(op.offset, op.offset + op.length)
    if not (size <= op.offset and op.length and list(page) == list(blocks_of(size - 1, size))):
        raise Misfit(f"{op.path} has {size} bytes: what lies past its end has to be in its last page of 4096")
    if not m.nodes[inode].allocated.issuperset(page):
        m.nodes[inode].allocated.update(page)
        m.touch_written(i, inode)


def _truncate(m: Inodes, i: int, op: Operation) -> None:
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


def _fallocate(m: Inodes, i: int, op: Operation) -> None:
    """[code] extents.c: ext4_do_fallocate, ext4_zero_range; inode.c: ext4_punch_hole."""
    inode = m.inode(op.path, "file")
    size, start, end = m.files[inode].size, op.offset, op.offset + op.length
    allocated = m.nodes[inode].allocated
    if {"collapse-range", "insert-range"} & {*op.flags}:
        _shift(m, i, op, inode)
        return
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


def _shift(m: Inodes, i: int, op: Operation, inode: int) -> None:
    """[doc] fallocate(2): whole blocks, and neither the range to be collapsed nor the place to insert at
    reaches the end of the file. Rule 12 of `allowance`.
    """
    file, start, length = m.files[inode], op.offset, op.length
    collapses = "collapse-range" in op.flags
    if len(op.flags) > 1 or not length or (start | length) % BLOCK_BYTES:
        raise Misfit("a range is collapsed or inserted alone, in whole blocks of 4096 bytes")
    if start + length * collapses >= file.size:
        raise Misfit(f"{op.path} has {file.size} bytes, and more must be left behind the range")
    if inode in m.exchanged:
        raise Misfit(f"{op.path} has exchanged its contents, and where its blocks were is not followed")
    by = -length if collapses else length
    first, blocks = start + length * collapses, m.nodes[inode].allocated
    kept = {b for b in blocks if b * BLOCK_BYTES < start}
    later = {b + by // BLOCK_BYTES for b in blocks if b * BLOCK_BYTES >= first}
    m.nodes[inode].allocated = kept | later
    content = shifted(file.content(len(file.events)), first, by)
    m.happened(
        inode, FileEvent(i, EventKind.SHIFT, start, ENDLESS, file.size, file.size + by, content=content)
    )
    m.touch_data(i, inode)


def _copy_range(m: Inodes, i: int, op: Operation) -> None:
    """Rule 13 of `allowance`."""
    source, target = m.inode(op.path, "file"), m.inode(op.target, "file")
    start, end, size = op.offset, op.offset + op.length, m.files[target].size
    if source == target or end > m.files[source].size:
        raise Misfit(f"{op.path} is {'the same file' if source == target else 'shorter'}")
    if start == end:
        return
    new = [b for b in blocks_of(start, end) if b not in m.nodes[target].allocated]
    m.nodes[target].allocated.update(new)
    held = tuple(pieces(m.files[source].content(len(m.files[source].events)), start, end))
    grown = max(size, end)
    fresh = fresh_parts(start, end, new)
    m.happened(target, FileEvent(i, EventKind.COPY, start, end, size, grown, fresh, content=held))
    if new or grown > size or m.contract.data == "journal" or "overwrites-commit" in m.contract.rules:
        m.touch_written(i, target)


def _touch(m: Inodes, i: int, op: Operation) -> None:
    """[code] setattr_copy: the times of the inode, which are not judged, and ctime. utimensat(2) of what is
    there already dirties it again (notify_change sets ctime).
    """
    m.touch(i, m.inode(op.path))


def _clone(m: Inodes, i: int, op: Operation) -> None:
    """[code] do_clone_file_range of the whole source. What the target has beyond that would stay, which is
    refused here; so is a file cloned into itself (generic_remap_checks).
    """
    source, target = m.inode(op.path, "file"), m.inode(op.target, "file")
    size, before = m.files[source].size, m.files[target].size
    if source == target or before > size:
        raise Misfit(f"{op.target} is {'the same file' if source == target else 'longer'}")
    if size:
        content = m.files[source].content(len(m.files[source].events))
        m.nodes[target].allocated = set(m.nodes[source].allocated)
        m.happened(target, FileEvent(i, EventKind.CLONE, 0, size, before, size, content=content))
        m.touch_data(i, target)


def _exchange_range(m: Inodes, i: int, op: Operation) -> None:
    """[code] xfs_exchange_range: rule 11 of `allowance`. Where both files are one, or empty, nothing happens
    (xfs_exchange_range_checks). With `dsync`, and where operations persist, the log is forced with the first
    transaction, which is enough for recovery to complete the exchange (xfs_exchrange_mappings:
    xfs_trans_set_sync).
    """
    one, other = m.inode(op.path, "file"), m.inode(op.target, "file")
    if one == other:
        raise Misfit(f"{op.target} is the same file")
    if any(e.kind is EventKind.SHIFT for inode in (one, other) for e in m.files[inode].events):
        raise Misfit("a range of one was collapsed or inserted, and where its blocks were is not followed")
    files = [m.files[one], m.files[other]]
    sizes = [file.size for file in files]
    if any(sizes):
        contents = [file.content(len(file.events)) for file in files]
        for file, before, after, content in zip(files, sizes, sizes[::-1], contents[::-1], strict=True):
            event = FileEvent(i, EventKind.EXCHANGE, 0, ENDLESS, before, after, content=content)
            m.happened(file.inode, event)
            m.touch_data(i, file.inode)
        nodes = m.nodes[one], m.nodes[other]
        nodes[0].allocated, nodes[1].allocated = nodes[1].allocated, nodes[0].allocated
        m.join(one, other)
    if "dsync" in op.flags or m.contract.persists == "operations":
        persist(m, i, op.path, data_only=True)
        persist(m, i, op.target, data_only=True)


def _fsync(m: Inodes, i: int, op: Operation) -> None:
    """[doc] open(2), path_resolution(7): a symbolic link is followed, so fsync is of what it leads to, by the
    name that is there, and promises nothing of the link.
    """
    path = _led_to(m, op.path)
    m.inode(path, "file", "directory")
    persist(m, i, path, data_only=op.kind is OperationKind.FDATASYNC)


_MAX_LINKS = 40
"""[code] MAXSYMLINKS."""


def _led_to(m: Inodes, path: str) -> str:
    """The path that symbolic links at this path lead to, each of them down from its own directory."""
    for _ in range(_MAX_LINKS):
        node = m.nodes[m.inode(path)]
        if node.kind != "symlink":
            return path
        target = node.target.decode("utf-8", "surrogateescape")
        if not target or target.startswith("/") or {"", ".", ".."} & set(target.split("/")):
            raise Misfit(f"{path} leads to {target!r}, which is no path below its own directory")
        directory = path.rpartition("/")[0]
        path = f"{directory}/{target}" if directory else target
    raise Misfit(f"{path} leads to more than {_MAX_LINKS} symbolic links")


def _sync(m: Inodes, i: int, op: Operation) -> None:
    sync(m, i)


def _remount(m: Inodes, i: int, op: Operation) -> None:
    """A clean unmount makes durable what sync does."""
    if m.handles:
        raise Misfit(f"{', '.join(m.handles)} is still open, and keeps the file system mounted")
    sync(m, i)
    if "links-may-part" in m.contract.rules:
        m.parted = {inode: i for inode, node in m.nodes.items() if len(node.paths) > 1} | m.parted


def _shutdown(m: Inodes, i: int, op: Operation) -> None:
    """[code] By default the file system is frozen first, which syncs it (xfs_fs_goingdown,
    ext4_force_shutdown, f2fs_do_shutdown: bdev_freeze). With `logflush` or `nologflush` nothing is promised
    of what was not synced before, and nobody knows what the next mount finds of that: no operation can follow
    (`need_possible`).
    """
    m.handles.clear()
    m.atomic.clear()
    if not op.flags:
        _remount(m, i, op)


def _crash(m: Inodes, i: int, op: Operation) -> None:
    """What recovery came to is known (`History.earlier`), so it is as if all of that had been synced."""
    m.handles.clear()
    m.atomic.clear()
    sync(m, i)


def _write_back(m: Inodes, i: int, op: Operation) -> None:
    """[doc] sync_file_range(2): "none of these operations writes out the file's metadata", and there is no
    flush. Dirty pages may be written at any time anyway.
    """
    m.inode(op.path, "file")


def _nothing(m: Inodes, i: int, op: Operation) -> None:
    """No effect. Clean pages may be evicted, and dirty ones written, at any time anyway. When a sync(2) of
    another thread returns is not known.
    """


def _run(m: Inodes, i: int, op: Operation) -> None:
    """Programs are not modelled; `ModelTimeline.opaque` keeps names and contents from being judged."""


_APPLY: Mapping[OperationKind, Callable[[Inodes, int, Operation], None]] = {
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
    OperationKind.MKNOD: _make("char", FILE_MODE, _NULL_DEVICE),
    OperationKind.CHMOD: _chmod,
    OperationKind.CHOWN: _chown,
    OperationKind.CHATTR: chattr,
    OperationKind.ENABLE_VERITY: enable_verity,
    OperationKind.CLONE: _clone,
    OperationKind.EXCHANGE_RANGE: _exchange_range,
    OperationKind.COPY_RANGE: _copy_range,
    OperationKind.TOUCH: _touch,
    OperationKind.SUBVOLUME: make_subvolume,
    OperationKind.SNAPSHOT: snapshot,
    OperationKind.SUBVOLUME_DELETE: delete_subvolume,
    OperationKind.START_ATOMIC: start_atomic,
    OperationKind.COMMIT_ATOMIC: commit_atomic,
    OperationKind.ABORT_ATOMIC: abort_atomic,
    OperationKind.GC: _nothing,
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
    OperationKind.BEGIN_SYNC: _nothing,
    OperationKind.WRITE_BACK: _nothing,
    OperationKind.DROP_CACHES: _nothing,
    OperationKind.REMOUNT: _remount,
    OperationKind.SHUTDOWN: _shutdown,
    OperationKind.CRASH: _crash,
    OperationKind.RUN: _run,
}


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


_CHANGES_CONTENTS = frozenset(
    {
        OperationKind.WRITE,
        OperationKind.APPEND,
        OperationKind.MMAP_WRITE,
        OperationKind.TRUNCATE,
        OperationKind.FALLOCATE,
        OperationKind.CLONE,
        OperationKind.COPY_RANGE,
        OperationKind.EXCHANGE_RANGE,
    }
)
"""Operations that a file with verity refuses: the target, or the only file that they name."""


_TO_TARGET = frozenset({OperationKind.LINK, OperationKind.RENAME, OperationKind.EXCHANGE})
"""Operations on names whose new name is the target."""


_COPIES_NOTHING = frozenset({OperationKind.UNLINK, OperationKind.SYMLINK})
"""Operations for which overlayfs copies no file that they name: a whiteout takes no copy, and what a symbolic
link leads to is text.
"""


def replay(contract: Contract, history: History) -> ModelTimeline:
    """The timeline of the operations that had begun when the log ended.

    Raises UsageError for an operation that cannot have succeeded after those before it, NotSupported for
    names that are others to this file system.
    """
    operations = tuple(s.operation for s in history.steps if s.begin is not None)
    opaque = any(op.kind is OperationKind.RUN for op in operations)
    lost = range(history.earlier.kept, history.given - 1) if history.earlier else ()
    if contract.folds_names and not opaque:
        need_kept_names(contract, operations)
    m = Inodes(contract)
    done = [*operations]
    for i, given in enumerate(operations):
        try:
            if not opaque and i not in lost:
                op = done[i] = spelled(m, given)
                if op.kind in _CHANGES_CONTENTS:
                    need_no_verity(m, op.target or op.path)
                if op.kind not in _COPIES_NOTHING:
                    m.named_by(i, op.path, op.target)
                _apply(m, i, op)
                of_names = op.kind in OF_NAMES and m.has_moved
                if of_names and (contract.persists == "operations" or is_synced_at_once(m, op)):
                    m.persistence.append(PersistencePoint(i, i + 1))
                if "names-at-once" in contract.rules and of_names:
                    persist_name(m, i, op.target if op.kind in _TO_TARGET else op.path)
        except Misfit as e:
            raise UsageError(f"operation {i}, `{given}`: {e}", "correct the workload") from e
        m.note()
    return ModelTimeline(
        operations=tuple(done),
        opaque=opaque,
        names=m.names,
        files=m.files,
        persistence=tuple(m.persistence),
        floors=floors_of(m.persistence, len(operations)),
        attributes=attributes_of(operations),
        kinds={inode: node.kind for inode, node in m.nodes.items()},
        written={e.index: f for f in m.files.values() for e in f.events if e.kind is EventKind.WRITE}
        | {index: m.files[inode] for index, inode in m.aside.items()},
        entries=m.entries,
        promise_sets=promise_sets_of(operations, m.persistence),
        parted=m.parted,
        apart=m.apart,
        copies=m.copies,
        deleted=m.deleted,
    )


def _apply(m: Inodes, i: int, op: Operation) -> None:
    need_not_atomic(m, op)
    _APPLY[op.kind](m, i, op)


def need_kept_names(contract: Contract, operations: Sequence[Operation]) -> None:
    """Raises NotSupported for names that are one to this file system, or are not kept as they are, wherever
    they are used: a directory may be moved to the other one.

    [code] vfat_hashi, vfat_striptail_len; exfat_d_hash, exfat_striptail_len; hfsplus_hash_dentry,
    hfsplus_uni2asc
    """
    names = dict.fromkeys(name for path in paths_of(operations) for name in path.split("/"))
    known: dict[str, str] = {}
    for name in names:
        if "ends" in contract.folds_names and name != name.rstrip(". "):
            raise NotSupported(f"this file system keeps no dot or space at the end of a name: {name!r}")
        if "composed" in contract.folds_names and name != unicodedata.normalize("NFC", name):
            raise NotSupported(f"this file system composes a letter and its accent: {name!r}")
        other = known.setdefault(_lower(name) if "case" in contract.folds_names else name, name)
        if other != name:
            raise NotSupported(f"this file system ignores case: {other!r} and {name!r} are one name")


def _lower(name: str) -> str:
    """As these file systems fold it: one character for one."""
    return "".join(lower if len(lower := c.lower()) == 1 else c for c in name)


def need_possible(operations: Sequence[Operation]) -> None:
    """Raises UsageError for the first operation that cannot succeed after those before it, in any mode."""
    crashes = [i for i, op in enumerate(operations) if op.kind is OperationKind.CRASH]
    if crashes and (len(crashes) > 1 or crashes[0] in (0, len(operations) - 1)):
        raise UsageError("the power fails once at most, between two operations", "correct the workload")
    if any(op.kind is OperationKind.SHUTDOWN and op.flags for op in operations[:-1]):
        raise UsageError("nobody knows what such a shutdown leaves", "put it at the end of the workload")
    replay(_ANY, History(tuple(HistoryStep(i, op, i, i) for i, op in enumerate(operations))))


def most_names(operations: Sequence[Operation]) -> int:
    """The most names that are there at once, the root aside. The operations are possible."""
    m, most = Inodes(_ANY), 0
    for place, op in enumerate(operations):
        _apply(m, place, spelled(m, op))
        most = max(most, len(m.inodes) - 1)
    return most


def fitting(contract: Contract, operations: Sequence[Operation]) -> list[int]:
    """The places of those operations that can succeed, each after the ones kept before it."""
    m = Inodes(contract)
    kept: list[int] = []
    for place, op in enumerate(operations):
        with contextlib.suppress(Misfit):  # which is raised before anything has changed
            _apply(m, len(kept), spelled(m, op))
            kept.append(place)
    return kept
