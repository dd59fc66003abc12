"""Old data that no operation touched: a stack must not lose what nobody wrote.

Where blocks of different files share a stripe, a write of one that power cuts short may take the other along
(the write hole of RAID 5, md(4)). To the file system, that is a block that changed by itself. The other
oracles see broken contents; this one says that nothing had any business there.

Looked at: files that were durable, and then not touched by any operation, that have their name still. Not
checked: metadata, free blocks, and files whose name an operation in flight may have changed. Where an older
write of the same file comes back, that is durability's: a write was lost, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.model import Extent, ExtentKind, TreeEntry, Violation
from harness.oracles.case import Case
from harness.oracles.namespace import ABSENT, ROOT
from harness.oracles.pattern import data_of
from harness.oracles.timeline import ZERO, FileHistory, origin_of, pieces
from harness.oracles.undecided import Undecided

RULE = "untouched-stays"


def untouched(case: Case) -> Iterator[Violation | Undecided]:
    """A file that was durable, and that no operation has touched since, reads as it did."""
    if RULE not in case.contract.rules or not case.mounted or case.timeline.opaque:
        return
    for path, entry in case.tree.items():
        if (file := _untouched(case, path)) is None or entry.kind != "file":
            continue
        point, durable = file.durable(case.position.acked)
        since = case.timeline.describe(point)
        if changed := _first_changed(entry, file, durable):
            start, end, what = changed
            yield Violation(
                "untouched",
                path,
                f"{path}: bytes {start} to {end} hold {what}; nothing has touched the file since {since}",
                "the data as it was",
                what,
                f"{path}: changed though untouched",
            )


def _untouched(case: Case, path: str) -> FileHistory | None:
    """The file of that name, if it was durable and nothing that has begun since touches it or its name."""
    timeline, acked, begun = case.timeline, case.position.acked, case.position.begun
    inode = timeline.names.inode(path, acked)
    if inode == ABSENT or inode not in timeline.files:
        return None
    file = timeline.files[inode]
    point, durable = file.durable(acked)
    if point < 0 or durable != file.before(begun):
        return None
    if timeline.names.been(path, point + 1, begun) != {inode} or _led_elsewhere(case, path, inode):
        return None
    return file


def _led_elsewhere(case: Case, path: str, inode: int) -> bool:
    """Whether the path may lead to another inode, since a rename that gave it to this one, or to a directory
    above, need not be durable.
    """
    timeline, acked, begun = case.timeline, case.position.acked, case.position.begun
    floor, known, either = timeline.floors[acked], timeline.entries, {inode, ABSENT}
    if case.contract.namespace == "prefix":
        return not timeline.names.been(path, floor, begun) <= either
    directory, (*above, leaf) = ROOT, path.split("/")
    for name in above:
        been = known.been((directory, name), floor, begun).keys() - {ABSENT}
        if len(been) != 1:
            return True
        (directory,) = been
    own = [p.floor for p in timeline.persistence if p.index < acked and (p.inode, p.path) == (inode, path)]
    held = [f for f in own if case.contract.namespace == "each" and timeline.names.inode(path, f) == inode]
    return not known.been((directory, leaf), max([floor, *held]), begun).keys() <= either


def _first_changed(entry: TreeEntry, file: FileHistory, durable: int) -> tuple[int, int, str] | None:
    """The first bytes within the durable size that differ from the durable contents, and the bytes found
    there.
    """
    size = file.size_at(durable)
    for extent in entry.extents:
        if extent.kind is ExtentKind.UNREADABLE:
            continue  # `readable` says so
        end = min(extent.end, size)
        for start, stop, origin in pieces(file.content(durable), extent.start, end):
            older = extent.kind in (ExtentKind.WRITTEN, ExtentKind.MISPLACED) and file.writes(extent.value)
            if not older and not comes_from(extent, start, stop, origin):
                return start, stop, extent.text
    return None


def comes_from(extent: Extent, start: int, end: int, origin: int) -> bool:
    """Whether these bytes of an extent are what this origin wrote there, as far as they were looked at."""
    expected = data_of(origin, start, end - start)
    if extent.kind in (ExtentKind.WRITTEN, ExtentKind.MISPLACED):
        found = origin_of(extent)
        return found == origin or (found is not None and data_of(found, start, end - start) == expected)
    if extent.kind is ExtentKind.ZERO:
        return origin == ZERO or not any(expected)
    if extent.kind in (ExtentKind.LITERAL, ExtentKind.FOREIGN):
        seen = extent.data[start - extent.start : end - extent.start]
        return expected.startswith(seen)
    return False
