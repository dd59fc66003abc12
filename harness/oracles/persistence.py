"""What fsync, sync and the like make durable: the contract's field `persists`, carried out on the reference
model.

vms/filesystems/CONTRACTS.md says what each value means ("The fields"), and which operations count as a change
of an inode ("When an inode counts as changed").
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from harness.model import Operation, OperationKind
from harness.oracles.inodes import Inodes
from harness.oracles.timeline import EventKind, FileEvent, FileHistory, PersistencePoint, maker_of


def persist(m: Inodes, i: int, path: str, data_only: bool, written: tuple[int, int] | None = None) -> None:
    """[code] fsync.c, ext4_sync_file: write the data and wait, then commit i_sync_tid (fdatasync:
    i_datasync_tid). Under `persists = "nothing"` it makes nothing durable; under `inode` nothing of what
    nobody could find (`_is_lost`).

    `written`: only these bytes of the file were written before, as after a write with O_SYNC or O_DSYNC
    (generic_write_sync: vfs_fsync_range). A commit of contents as part of the transaction has all of them.
    """
    inode = m.inode(path)
    if not can_persist(m, inode):
        return
    if m.contract.data == "journal":
        written = None
    if written is None:
        last = (m.data_changed if data_only else m.changed)[inode]
    else:
        last = _last_change(m, inode, data_only, *written)
    alone = inode if m.contract.persists == "inode" else None
    named = "" if "fsync-leaves-names" in m.contract.rules else m.opened_by(path)
    m.persistence.append(PersistencePoint(i, last + 1, alone, named))
    if (renamed := m.renamed_before.get(inode)) is not None and m.is_only_in(inode, renamed[0]):
        m.persistence.append(PersistencePoint(i, renamed[1] + 1))
    if inode not in m.files:
        return
    file = m.files[inode]
    if written is None or _is_all_written(file, *written, gaps=m.contract.fills_gaps):
        file.persists.append((i, len(file.events)))
    else:
        m.happened(inode, FileEvent(i, EventKind.FLUSH, *written, file.size, file.size, with_size=True))


def can_persist(m: Inodes, inode: int) -> bool:
    """Whether anything can make what the inode is now durable."""
    return m.contract.persists != "nothing" and not (m.contract.persists == "inode" and _is_lost(m, inode))


def _is_lost(m: Inodes, inode: int) -> bool:
    """Whether the inode has no name, and no later operation leads to what is durable of it now.

    What has lost its last name gets no other. A file of O_TMPFILE may get its first one, and then holds what
    fsync made durable before ([doc] fsync(2): the data are the file's, and the name is the directory's;
    [code] btrfs since 5e85262e542d). Not where `namespace = "synced"`: there fsync of the directory writes
    the name, and no inode, and the inode on the disk is one without links, which fsck clears (ext2_tmpfile).
    """
    node = m.nodes[inode]
    return not node.paths and not (node.linkable and m.contract.namespace == "each")


def _last_change(m: Inodes, inode: int, data_only: bool, start: int, end: int) -> int:
    """The last operation that has changed the inode for certain, once bytes `start` to `end` have been
    written, with a size that reaches their end. What earlier writes allocate elsewhere may still be delayed.
    """
    last = (m.data_at_once if data_only else m.at_once)[inode]
    for event in reversed(m.files[inode].events):
        if event.index <= max(last, maker_of(inode)):
            break
        if event.kind is EventKind.WRITE:
            ranges = (*event.fresh, *[(event.start, event.end)] * ("overwrites-commit" in m.contract.rules))
            grows = event.size_before < min(end, event.size_after)
            if grows or any(low < end and start < high for low, high in ranges):
                return event.index
    return last


def _is_all_written(file: FileHistory, start: int, end: int, *, gaps: bool) -> bool:
    """Whether nothing of the file is volatile once bytes `start` to `end` are durable: its other writes have
    been since they were made, and nothing else has happened to it. `gaps`: a write behind the end of the file
    has written what lies between as well.

    [code] generic_write_sync gives vfs_fsync_range the bytes of the write alone.
    """
    volatile = file.volatile(gaps=gaps)
    return volatile is not None and (not volatile or (start <= volatile[0][0] and volatile[-1][1] <= end))


def sync(m: Inodes, i: int) -> None:
    """[doc] sync(2): all pending modifications, whatever the file system. [code] super.c, ext4_sync_fs: every
    inode's data, then the running transaction.
    """
    if m.contract.persists == "nothing":
        return
    m.persistence.append(PersistencePoint(i, i))
    for file in m.files.values():
        file.persists.append((i, len(file.events)))


OF_NAMES = frozenset(
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
        OperationKind.SUBVOLUME,
        OperationKind.SUBVOLUME_DELETE,
    }
)
"""[doc] xfs.rst, wsync: the change to the namespace is on stable storage when the operation completes."""


def persist_name(m: Inodes, i: int, path: str) -> None:
    """[doc] mount(8), dirsync: updates of directories are done synchronously. `path`: a name that operation
    i has made or moved; or removed, of which nothing is promised: `synced` judges no name that is back.
    """
    if path in m.inodes:
        m.persistence.append(PersistencePoint(i, i + 1, m.inode(path), path, of_name=True))


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


def promise_sets_of(
    operations: Sequence[Operation], persistence: Sequence[PersistencePoint]
) -> tuple[int, ...]:
    points = {p.index for p in persistence}
    more = (op.kind not in PERSISTS_NOTHING or i in points for i, op in enumerate(operations))
    return tuple(itertools.accumulate(more, initial=0))


def floors_of(persistence: Sequence[PersistencePoint], operations: int) -> tuple[int, ...]:
    floors = [0] * (operations + 1)
    for point in persistence:
        if point.inode is None:
            floors[point.index + 1] = point.floor
    return tuple(itertools.accumulate(floors, max))
