"""Turns a guest's report of a recovered file system into the tree that the oracles judge.

The guest runs a kernel under test and may send anything. This module rejects what the agent cannot have
sent (two entries with one path, a file below a file, extents with a gap), so that no oracle has to handle it.
What a damaged file system may well show (any name, size, mode, owner, contents) passes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from harness.guests import wire
from harness.guests.wire import WireError
from harness.model import (
    CallError,
    Change,
    Difference,
    Extent,
    ExtentKind,
    FileKind,
    Outcome,
    Tree,
    TreeEntry,
    Usability,
)

_LOFF_MAX = (1 << 63) - 1
_NAME_BYTES = 255  # NAME_MAX of include/uapi/linux/limits.h
KNOWN_BYTES = 32 << 20
"""Of entries, as messages, that a session keeps to share: some versions of a large tree."""
_DATA_BYTES = 64  # kept of an extent of unknown origin
# The largest `value` of each kind of extent: a writer, a device block, an errno.
_VALUES = {
    ExtentKind.WRITTEN: 0xFFFE,
    ExtentKind.MISPLACED: 0xFFFE,
    ExtentKind.ZERO: 0,
    ExtentKind.POISON: 0xFFFF_FFFF,
    ExtentKind.LITERAL: 0,
    ExtentKind.FOREIGN: 0,
    ExtentKind.UNREADABLE: 4095,
}
_WITH_DATA = frozenset({ExtentKind.LITERAL, ExtentKind.FOREIGN})


class KnownEntries:
    """Entries of trees that were seen before, so that the trees of thousands of recoveries share what is the
    same in them: a tree of thousands of names takes megabytes, and most of its entries stay as they are.
    """

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._known: dict[bytes, TreeEntry] = {}

    def entry(self, told: wire.TreeEntry) -> TreeEntry:
        """The entry of a message. Raises WireError for one that no file system can have."""
        key = wire.encode_part(told)
        known = self._known.get(key)
        if known is None:
            self._bytes += len(key)
            if self._bytes > self._limit_bytes:
                self._known.clear()
                self._bytes = len(key)
            known = self._known[key] = _entry(told)
        return known


def outcome_of(seen: wire.Recovered, known: KnownEntries | None = None) -> Outcome:
    """The outcome of a recovery, with entries that are in `known` already. Raises WireError for what no walk
    of a tree can produce.
    """
    errors = tuple(call_error(e) for e in seen.walk_errors)
    if seen.mount_errno and (seen.entries or errors or seen.unmount_errno):
        raise WireError(f"a tree, although mount failed with errno {seen.mount_errno}")
    if seen.not_started and not seen.mount_errno:
        raise WireError("a file system was mounted on a stack that did not start")
    if not seen.mount_errno and not seen.entries and not errors:
        raise WireError("a file system was mounted, but neither its root nor an error was reported")
    return Outcome(
        mount_errno=seen.mount_errno,
        unmount_errno=seen.unmount_errno,
        tree=_tree(seen.entries, {e.path for e in errors}, (known or KnownEntries()).entry),
        walk_errors=errors,
        kernel_log=tuple(seen.kernel_log),
        not_started=seen.not_started,
        read_only=seen.read_only,
        outside=tuple(Change(os.fsdecode(c.path) or ".", c.what, c.then, c.now) for c in seen.outside),
    )


def second_tree(seen: wire.Used, known: KnownEntries, *, contents: bool) -> Tree:
    """What a second mount showed that the first did not; empty if it showed the same. `contents`: files were
    read. Raises WireError for what no walk of a tree can produce.
    """
    errors = {call_error(e).path for e in seen.errors}
    return _tree(seen.entries, errors, known.entry, contents=contents)


def usability_of(seen: wire.Used) -> Usability:
    """What writing to a recovered file system showed. Raises WireError for what no agent can have seen."""
    later = seen.differences or seen.remount_errno or seen.unmount_errno or not seen.finished or seen.entries
    if seen.mount_errno and (seen.errors or later):
        raise WireError(f"calls that failed, although mount failed with errno {seen.mount_errno}")
    if seen.remount_errno and seen.unmount_errno:
        raise WireError("a mount that failed after an unmount that failed")
    return Usability(
        mount_errno=seen.mount_errno,
        unmount_errno=seen.unmount_errno,
        errors=tuple(map(call_error, seen.errors)),
        differences=tuple(Difference(os.fsdecode(d.path), d.kind, d.found) for d in seen.differences),
        remount_errno=seen.remount_errno,
        kernel_log=tuple(seen.kernel_log),
        undecided="" if seen.finished else "not everything was tried before the deadline",
    )


def call_error(error: wire.CallError) -> CallError:
    """The model's CallError for that of a message."""
    return CallError(error.call, os.fsdecode(error.path), error.errno, error.name)


def _tree(
    entries: Sequence[wire.TreeEntry],
    unread: set[str],
    entry_of: Callable[[wire.TreeEntry], TreeEntry],
    *,
    contents: bool = True,
) -> Tree:
    """The tree by path. `unread`: paths with an error, whose contents may be missing. `contents`: files were
    read.
    """
    tree: dict[str, TreeEntry] = {}
    before = b""
    for told in entries:
        path = told.path
        if tree and path <= before:
            raise WireError(f"the entry {path!r} follows {before!r}: paths must ascend, each once")
        before = path
        entry = entry_of(told)
        if path:
            _check_name(path)
            parent = tree.get(entry.path.rpartition("/")[0])
            if parent is None or parent.kind is not FileKind.DIRECTORY:
                raise WireError(f"the entry {path!r} is in no directory of the tree")
        told_of = contents and entry.kind is FileKind.FILE and entry.size
        if told_of and not entry.extents and entry.path not in unread:
            raise WireError(f"{path!r} has {entry.size} bytes, but no extents")
        tree[entry.path] = entry
    return tree


def _check_name(path: bytes) -> None:
    name = path[path.rfind(b"/") + 1 :]
    if path[:1] == b"/" or not name or len(name) > _NAME_BYTES or b"\0" in name or name in (b".", b".."):
        raise WireError(f"{path!r} is not a path below the mount point")


def _entry(told: wire.TreeEntry) -> TreeEntry:
    if told.size > _LOFF_MAX:
        raise WireError(f"{told.path!r} has {told.size} bytes, more than a file can have")
    xattrs = {x.name: x.value for x in told.xattrs}
    if len(xattrs) != len(told.xattrs):
        raise WireError(f"{told.path!r} has an extended attribute twice")
    if told.kind is not FileKind.FILE and (told.extents or told.digest):
        raise WireError(f"{told.path!r} is a {told.kind} and has contents")
    return TreeEntry(
        told.path.decode("utf-8", "surrogateescape"),
        told.kind,
        told.inode,
        told.mode,
        told.links,
        told.uid,
        told.gid,
        told.size,
        told.blocks,
        told.target,
        xattrs,
        _extents(told) if told.extents else (),
        told.digest,
    )


def _extents(told: wire.TreeEntry) -> tuple[Extent, ...]:
    """The entry's extents, which must cover the file from its first byte to its last."""
    end = 0
    extents = []
    for extent in told.extents:
        data = extent.data
        if (
            extent.start != end
            or not extent.length
            or extent.value > _VALUES[extent.kind]
            or (data and (extent.kind not in _WITH_DATA or len(data) > _DATA_BYTES))
            or (extent.kind is ExtentKind.LITERAL and len(data) != extent.length)
        ):
            raise WireError(f"{told.path!r} has an impossible extent at byte {end}: {extent}")
        end += extent.length
        extents.append(Extent(extent.kind, extent.start, extent.length, extent.value, extent.origin, data))
    if end != told.size:
        raise WireError(f"{told.path!r} has {told.size} bytes, its extents {end}")
    return tuple(extents)
