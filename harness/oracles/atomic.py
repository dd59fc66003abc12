"""Atomic writes of F2FS, carried out on the reference model ([code] is Linux 6.12 fs/f2fs).

From F2FS_IOC_START_ATOMIC_WRITE on, what is written to the file goes to blocks of another inode, which has no
name (file.c, f2fs_ioc_start_atomic_write: f2fs_get_tmpfile), and the file's own inode is not written with the
new size (inode.c, f2fs_update_inode: FI_ATOMIC_COMMITTED). F2FS_IOC_COMMIT_ATOMIC_WRITE writes these blocks
and waits, puts them into the file under the lock that keeps checkpoints out (segment.c,
f2fs_commit_atomic_write: f2fs_lock_op), and then writes the node blocks, of which only the last is marked for
fsync, behind which roll-forward takes none (node.c, f2fs_fsync_node_pages; recovery.c, find_fsync_dnodes,
recover_data). So after a power cut all of these writes are there or none. F2FS_IOC_ABORT_ATOMIC_WRITE forgets
them.

The commit promises no more than that: it waits for no node block, and sends no flush after it (file.c,
f2fs_do_sync_file with `atomic`, which a comment calls just fine for the order). SQLite takes what was
committed for durable (doc/F2FS.txt of its source). fsync after the commit has to make it so.

In the model a commit is one event, which takes over all that the file holds then.

Refused in between: everything else that is done to the file, by any of its names.
"""

from __future__ import annotations

from harness.model import Operation, OperationKind
from harness.oracles.inodes import Inodes, Misfit
from harness.oracles.timeline import ENDLESS, EventKind, FileEvent, FileHistory, blocks_of

_IN_BETWEEN = frozenset(
    {
        OperationKind.WRITE,
        OperationKind.APPEND,
        OperationKind.COMMIT_ATOMIC,
        OperationKind.ABORT_ATOMIC,
        OperationKind.SHUTDOWN,
        OperationKind.CRASH,
    }
)


def start_atomic(m: Inodes, i: int, op: Operation) -> None:
    inode = _by_handle(m, op)
    file = m.files[inode]
    m.atomic[inode] = FileHistory(inode, file.path, born=file.content(len(file.events)), born_size=file.size)


def write_aside(m: Inodes, i: int, op: Operation) -> None:
    """A write to a file that waits for its commit."""
    if op.flags:
        raise Misfit("an atomic write is synced by its commit alone")
    inode = m.inode(op.path, "file")
    file = m.atomic[inode]
    start = file.size if op.kind is OperationKind.APPEND else op.offset
    end = start + op.length
    if op.length:
        file.events.append(FileEvent(i, EventKind.WRITE, start, end, file.size, max(file.size, end)))
        m.aside[i] = inode


def commit_atomic(m: Inodes, i: int, op: Operation) -> None:
    inode = _started(m, op)
    aside, file = m.atomic.pop(inode), m.files[inode]
    if aside.events:
        content = aside.content(len(aside.events))
        m.nodes[inode].allocated.update(b for e in aside.events for b in blocks_of(e.start, e.end))
        event = FileEvent(i, EventKind.EXCHANGE, 0, ENDLESS, file.size, aside.size, content=content)
        m.happened(inode, event)
        m.touch_data(i, inode)


def abort_atomic(m: Inodes, i: int, op: Operation) -> None:
    del m.atomic[_started(m, op)]


def need_not_atomic(m: Inodes, op: Operation) -> None:
    """Raise Misfit for what is done to a file in the middle of its atomic write: the last close aborts it
    (f2fs_release_file), and what comes of the rest is not followed.
    """
    if not m.atomic or op.kind in _IN_BETWEEN:
        return
    for path in (op.path, op.target):
        inode = m.handles[path].inode if path in m.handles else m.inodes.get(path)
        if inode in m.atomic:
            raise Misfit(f"{path} is in the middle of an atomic write")


def _by_handle(m: Inodes, op: Operation) -> int:
    if not op.path.startswith("@"):
        raise Misfit(f"{op.path} is no handle, and closing it would abort the atomic write")
    return m.inode(op.path, "file")


def _started(m: Inodes, op: Operation) -> int:
    inode = _by_handle(m, op)
    if inode not in m.atomic:
        raise Misfit(f"{op.path} has no atomic write to end")
    return inode
