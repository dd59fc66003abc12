"""fs-verity: what ENABLE_VERITY promises.

The flag comes with one transaction that ends what was begun: the hash tree is written and waited for before
([code] v6.12 ext4_end_enable_verity, f2fs_end_enable_verity: filemap_write_and_wait; btrfs finish_verity). So
after a crash a file has verity, with a tree that fits, or has none and is what it was. A file whose tree does
not fit cannot be read (EIO), which the oracle `readable` sees. The flag itself is durable with an fsync of
the inode: nothing in fs/verity/enable.c and in these functions waits for a commit.

A guest tells the flag (statx(2), STATX_ATTR_VERITY) as one more extended attribute, whose name none can have.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import Operation, OperationKind
from harness.oracles.inodes import Inodes, Misfit

VERITY = "verity"
"""vms/agent/src/walk.rs has the same word."""


def enable_verity(m: Inodes, i: int, op: Operation) -> None:
    """Carry out ENABLE_VERITY. Raises Misfit for a file that has it."""
    inode = m.inode(op.path, "file")
    if VERITY in m.nodes[inode].xattrs:
        raise Misfit(f"{op.path} has verity already")
    m.set_xattr(inode, VERITY, b"")
    m.touch(i, inode)


def need_no_verity(m: Inodes, path: str) -> None:
    """Raises Misfit for a file that cannot be written ([doc] fsverity.rst: EPERM)."""
    if VERITY in m.nodes[m.inode(path)].xattrs:
        raise Misfit(f"{path} has verity, and is never written again")


def attributes_of(operations: Iterable[Operation]) -> frozenset[str]:
    """The names of extended attributes that operations use."""
    operations = tuple(operations)
    verity = any(op.kind is OperationKind.ENABLE_VERITY for op in operations)
    return frozenset({*(op.name for op in operations if op.name), *[VERITY] * verity})
