"""Inode flags, which CHATTR sets and clears: what each promises, as letters of chattr(1).

- `S`, of a file: each write(2) is durable when it returns, as with O_DSYNC ([code] v6.12 include/linux/fs.h,
  iocb_is_dsync: IS_SYNC; generic_write_sync). So it is wherever a file system takes the flag.
- `D`, of a directory: each change of the names in it is durable when it returns, with all that came before,
  as under the mount option dirsync. Only where the contract's `chattr` has it: [code] v6.12 ext4_handle_sync
  in ext4_add_nondir, ext4_mkdir, ext4_rmdir, __ext4_unlink, __ext4_link, ext4_rename, ext4_cross_rename; a
  checkpoint (f2fs_sync_fs) in their like of fs/f2fs/namei.c. Btrfs keeps the flag, and nothing in fs/btrfs
  asks IS_DIRSYNC.
- `F`, of an empty directory: lookup ignores case, and a name is listed as it was made ([doc] ext4.rst,
  "case-insensitive file name lookups"). A name that replaces another is spelled as that one was ([code]
  ext4_setent, f2fs_set_link), and a rename to another spelling of the same name does nothing (vfs_rename:
  both are one inode).
- `C`, of an empty file: data is overwritten in place, and has no checksums ([doc] btrfs(5), FILE ATTRIBUTES).

- `C`, of an empty file: data is overwritten in place, without checksums ([doc] btrfs(5), FILE ATTRIBUTES).
asks whether a flag is there.
"""

from __future__ import annotations

import dataclasses
import unicodedata

from harness.model import Operation, OperationKind
from harness.oracles.inodes import Inodes, Misfit

_OF_FILES = "CS"
LETTERS = "CDFS"
_INHERITED = frozenset("DF")
_TARGET_IS_NO_NAME = frozenset({OperationKind.SYMLINK, OperationKind.OPEN, OperationKind.OPEN_TMPFILE})


def chattr(m: Inodes, i: int, op: Operation) -> None:
    """Carry out CHATTR. Raises Misfit for a flag of the other kind of inode, or of an empty one."""
    sign, letter = op.value[:1].decode(), op.value[1:].decode()
    inode = m.inode(op.path, "file" if letter in _OF_FILES else "directory")
    flags = m.nodes[inode].flags
    changed = {letter} if sign == "+" else set()
    if (letter in flags) == bool(changed):
        return
    if letter == "F" and m.below(op.path):
        raise Misfit(f"{op.path or '.'} is not empty, which +F and -F need")
    if letter == "C" and m.files[inode].size:
        raise Misfit(f"{op.path} is not empty, which +C and -C need")
    m.nodes[inode].flags = flags - {letter} | changed
    m.folds |= "F" in changed
    m.touch(i, inode)


def inherited(m: Inodes, directory: int) -> frozenset[str]:
    """The flags of a new directory in this one."""
    return m.nodes[directory].flags & _INHERITED


def is_synced_at_once(m: Inodes, op: Operation) -> bool:
    """Whether the operation, which changed names, did so in a directory with `D`, where that holds."""
    if "D" not in m.contract.chattr or m.contract.namespace not in ("prefix", "each"):
        return False
    paths = [path for path in (op.path, op.target) if path and not path.startswith("@")]
    if op.kind is OperationKind.LINK:
        paths = [op.target]
    elif op.kind is OperationKind.SYMLINK:
        paths = [op.path]
    return any("D" in m.nodes[m.parent(path)].flags for path in paths)


def spelled(m: Inodes, op: Operation) -> Operation:
    """The operation by the names that its directories list, where lookup in them ignores case."""
    if not m.folds:
        return op
    target = op.target if op.kind in _TARGET_IS_NO_NAME else _listed(m, op.target)
    return dataclasses.replace(op, path=_listed(m, op.path), target=target)


def _listed(m: Inodes, path: str) -> str:
    """The path as it is listed. What is not there stays as it is."""
    if path in m.inodes or path.startswith("@"):
        return path
    at = ""
    for name in path.split("/"):
        there = m.inodes.get(at)
        folds = there is not None and "F" in m.nodes[there].flags
        alike = (p for p in m.inside.get(at, ()) if folds and _folded(p.rpartition("/")[2]) == _folded(name))
        at = next(alike, f"{at}/{name}" if at else name)
    return at


def _folded(name: str) -> str:
    """[code] utf8_strncasecmp_folded: Unicode's NFDi with full case folding."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
