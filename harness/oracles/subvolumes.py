"""Subvolumes of btrfs, carried out on the reference model ([code] is Linux 6.12 fs/btrfs).

- A new subvolume is durable with the transaction that made it, and creating it ends no transaction
  (ioctl.c, create_subvol, since 1b53e51a4a8f). Until then neither its directory nor anything in it can be
  logged: both force a commit (tree-log.c: btrfs_record_new_subvolume; btrfs_log_inode_parent, where the
  root's generation is that of the transaction).
- A snapshot holds what its source held when it was asked for, with data that nobody has synced
  (btrfs_mksnapshot: btrfs_start_delalloc_snapshot, btrfs_wait_ordered_extents). It is made within a commit
  of the transaction, for which the call waits (create_snapshot: btrfs_commit_transaction; transaction.c,
  create_pending_snapshot). So it is there as a whole or not at all; once the call has returned, it is
  durable, as is all that was done to names and attributes before, everywhere, and the data of the source.
- A deleted subvolume goes as a whole, too, with the transaction (inode.c, btrfs_delete_subvolume, which
  ends none); what it held is freed later.
- Names cannot be moved from one subvolume to another, except that of a subvolume (btrfs_rename: EXDEV); nor
  can a file have names in two (btrfs_link).

Not modelled: a snapshot of what has subvolumes in it, which become empty directories there.
"""

from __future__ import annotations

from harness.model import Operation
from harness.oracles.inodes import DIRECTORY_MODE, Inode, Inodes, Misfit
from harness.oracles.namespace import ROOT
from harness.oracles.timeline import FileHistory, PersistencePoint, copied


def make_subvolume(m: Inodes, i: int, op: Operation) -> None:
    """[code] btrfs_new_subvol_inode: of its parent it inherits nothing."""
    m.absent(op.path)
    parent = m.parent(op.path)
    m.nodes[i] = Inode("directory", DIRECTORY_MODE)
    m.subvolumes.add(i)
    m.add(op.path, i)
    m.touch(i, i, parent)
    m.touch_data(i, i)


def snapshot(m: Inodes, i: int, op: Operation) -> None:
    """A copy of every inode of the source, with the same names below the target."""
    source = _subvolume(m, op.path)
    m.absent(op.target)
    parent = m.parent(op.target)
    inner = m.below(op.path)
    if any(m.inodes[path] in m.subvolumes for path in inner):
        raise Misfit(f"{op.path or '.'} has another subvolume in it, of which a snapshot holds nothing")
    m.touch(i, parent)
    copies = {source: _copy(m, i, i, source)}
    m.subvolumes.add(i)
    m.add(op.target, i)
    for path in inner:
        inode = m.inodes[path]
        if inode not in copies:
            copies[inode] = _copy(m, i, copied(i, len(copies)), inode)
        m.add(op.target + "/" + path.removeprefix(f"{op.path}/"), copies[inode])
    if m.contract.persists != "nothing":
        m.persistence.append(PersistencePoint(i, i + 1))
        for inode in copies.keys() & m.files.keys():
            m.files[inode].persists.append((i, len(m.files[inode].events)))


def _copy(m: Inodes, i: int, number: int, inode: int) -> int:
    """The copy of an inode, without names, as operation i makes it."""
    node = m.nodes[inode]
    copy = Inode(node.kind, node.mode, node.target, allocated=set(node.allocated), owner=node.owner)
    m.nodes[number] = copy
    for name, value in node.xattrs.items():
        m.set_xattr(number, name, value)
    if inode in m.files:
        file = m.files[inode]
        born = file.content(len(file.events))
        m.files[number] = FileHistory(number, file.path, born=born, born_size=file.size)
    if node.kind == "directory":
        m.copies[number] = i
    m.touch_data(i, number)
    return number


def delete_subvolume(m: Inodes, i: int, op: Operation) -> None:
    """Raises Misfit where another subvolume is in it (may_destroy_subvol), or something of it is open."""
    top = _subvolume(m, op.path)
    if top == ROOT:
        raise Misfit(". cannot be deleted")
    inner = m.below(op.path)
    held = {top, *(m.inodes[path] for path in inner)}
    if any(inode in m.subvolumes for inode in held - {top}):
        raise Misfit(f"{op.path} has another subvolume in it")
    if any(handle.inode in held for handle in m.handles.values()):
        raise Misfit(f"something in {op.path} is open")
    for path in reversed(inner):
        m.hide(path)
    m.deleted |= dict.fromkeys(held, i)
    m.touch(i, m.drop(op.path), m.parent(op.path))


def need_one(m: Inodes, *paths: str) -> None:
    """Raise Misfit unless what has these names is all in one subvolume (EXDEV)."""
    if m.subvolumes and len({m.subvolume(path.rpartition("/")[0]) for path in paths}) > 1:
        raise Misfit(f"{' and '.join(paths)} are in different subvolumes")


def _subvolume(m: Inodes, path: str) -> int:
    inode = m.inode(path, "directory")
    if inode != ROOT and inode not in m.subvolumes:
        raise Misfit(f"{path} is no subvolume")
    return inode
