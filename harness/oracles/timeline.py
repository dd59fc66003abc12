"""The reference model: an empty file system after each operation of a history.

Computed once per history, looked up for every crash state. An *inode* is identified by the index of the
operation that made it (the root is -1), so that a file keeps its identity through renames and links. Of the
many that a snapshot makes, `copied` tells them apart.

Not modelled: timestamps, holes made by SEEK_DATA, paths that lead through a symbolic link,
block sizes other than 4096.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.model import BLOCK_BYTES, ExtentKind, Operation, OperationKind
from harness.model import Extent as ModelExtent
from harness.oracles.namespace import ABSENT, ROOT, Namespace, Versioned

ZERO = -1  # the origin of a byte that nobody wrote
_WRITERS = 1 << 16  # vms/protocol/src/pattern.rs
_MAKERS = 1 << 20  # more than the operations of any workload
ENDLESS = 1 << 63  # beyond every offset; a multiple of the block size


class EventKind(enum.Enum):
    """What an operation did to the contents of a file."""

    WRITE = "write"
    ZERO = "zero"  # the range reads as zeros from here on: shrink, punch, zero-range
    SIZE = "size"  # only the size changes
    COMMIT_SIZE = "settle"  # in signatures; the size must be on disk from here on: replace by rename
    RESERVE = "reserve"  # fallocate: the range has blocks from here on; its contents do not change
    RELEASE = (
        "release"  # blocks in the range that hold no contents may be gone: a truncate that shrinks nothing
    )
    CLONE = "clone"  # the contents become those of another file
    EXCHANGE = "exchange"  # contents and size become those of another file, at once
    COPY = "copy"  # a write of what another file held there
    SHIFT = "shift"  # a range goes, or zeros come in between: what is behind it has another place
    STRAY = "stray"  # see `FileEvent.content`
    FLUSH = "flush"  # the range's data is durable once the operation has returned; see `FileEvent.with_size`


@dataclass(frozen=True, slots=True)
class FileEvent:
    """What operation `index` did to a file's contents: bytes `start` to `end`, and the sizes in bytes before
    and after.

    `fresh`: the parts of a write that lie in blocks which no earlier operation had allocated. `mapped`: a
    write through a mapping, which the kernel may see page by page and at any time. `content`: what a clone
    or an exchange took over, whole; what a shift left, whole; what a copy wrote; of STRAY, what was written
    to a file with which this one had exchanged its contents, and lands here where the exchange is lost.
    `with_size`: a flush that also puts a size on disk that reaches the end of its range.
    """

    index: int
    kind: EventKind
    start: int
    end: int
    size_before: int
    size_after: int
    fresh: tuple[tuple[int, int], ...] = ()
    mapped: bool = False
    content: Content = ()
    with_size: bool = False

    @property
    def sets_size(self) -> bool:
        """Whether the size on disk is known once this is committed. It is not for a write, whose blocks may
        be allocated later.
        """
        return self.kind in (EventKind.COMMIT_SIZE, EventKind.EXCHANGE) or (
            not self.is_written and self.size_before != self.size_after
        )

    @property
    def origin(self) -> int:
        """Of the bytes of a write, or of zeroes."""
        return self.index if self.kind is EventKind.WRITE else ZERO

    @property
    def is_written(self) -> bool:
        """Whether the range's pages hold other data, which may be written back at any time."""
        return self.kind in (EventKind.WRITE, EventKind.COPY)

    @property
    def changes_nothing(self) -> bool:
        """Whether contents and size stay as they were: only which blocks are allocated may change."""
        return self.kind in (EventKind.RESERVE, EventKind.RELEASE, EventKind.FLUSH, EventKind.STRAY)

    @property
    def takes_over(self) -> bool:
        """Whether `content` is all that the file holds then."""
        return self.kind in (EventKind.CLONE, EventKind.EXCHANGE, EventKind.SHIFT)


Extent = tuple[int, int, int]
"""Bytes `start` to `end`, origin: ZERO, or what `moved` makes."""
Content = tuple[Extent, ...]
"""The written data that has not been overwritten or removed, in order; gaps read as zeros."""


@dataclass(slots=True)
class FileHistory:
    """One regular file's contents over time. `persists`: (index of a persistence point, number of events that
    it made durable), both ascending. `born`: what a file of a snapshot holds before any event, in `born_size`
    bytes: where it is, it has at least that.
    """

    inode: int
    path: str
    events: list[FileEvent] = field(default_factory=list)
    persists: list[tuple[int, int]] = field(default_factory=list)
    born: Content = ()
    born_size: int = 0
    _contents: dict[int, Content] = field(default_factory=dict)
    _volatile: tuple[int, Content | None] = (0, ())  # after so many events, as `volatile` returns it

    @property
    def size(self) -> int:
        return self.size_at(len(self.events))

    def size_at(self, events: int) -> int:
        return self.events[events - 1].size_after if events else self.born_size

    def before(self, index: int) -> int:
        """The number of events of operations before `index`."""
        return bisect.bisect_left(self.events, index, key=_index_of)

    def flushed(self, events: int, at: int) -> int | None:
        """The last operation among so many events that made the byte at that offset durable by itself."""
        flushes = (e for e in reversed(self.events[:events]) if e.kind is EventKind.FLUSH)
        return next((e.index for e in flushes if e.start <= at < e.end), None)

    def durable(self, acked: int) -> tuple[int, int]:
        """(persistence point, number of events it made durable) when `acked` operations had returned;
        (-1, 0) without one.
        """
        at = bisect.bisect_left(self.persists, (acked, 0))
        return self.persists[at - 1] if at else (-1, 0)

    def volatile(self, *, gaps: bool) -> Content | None:
        """The bytes that writes have put there since the last persistence point, without those that a flush
        has made durable since, in order; None if anything but writes has happened. `gaps`: a write behind the
        end of the file is one of what lies between as well. It is asked after each event of thousands, so
        each is looked at once.
        """
        durable = self.persists[-1][1] if self.persists else 0
        seen, volatile = self._volatile if self._volatile[0] > durable else (durable, ())
        for event in self.events[seen:]:
            if volatile is None:
                break
            if event.kind is EventKind.FLUSH and event.with_size:
                volatile = _apply(volatile, dataclasses.replace(event, kind=EventKind.ZERO))
            elif event.kind is EventKind.WRITE:
                first = min(event.start, event.size_before) if gaps else event.start
                volatile = _apply(volatile, dataclasses.replace(event, start=first))
            elif event.kind is not EventKind.FLUSH:
                volatile = None
        self._volatile = (len(self.events), volatile)
        return volatile

    def content(self, events: int) -> Content:
        """The contents after so many events."""
        known = events
        while known and known not in self._contents:
            known -= 1
        content = self._contents[known] if known else self.born
        for event in self.events[known:events]:
            content = _apply(content, event)
        self._contents[events] = content
        return content

    def has_held(self, origin: int | None) -> bool:
        """Whether bytes of this origin came into the file other than by a write of its own."""
        came = (e.content for e in self.events if e.kind is not EventKind.STRAY)
        return any(o == origin for content in (self.born, *came) for _, _, o in content)

    def writes(self, index: int) -> bool:
        """Whether operation `index` wrote to this file."""
        at = self.before(index)
        return (
            at < len(self.events)
            and self.events[at].index == index
            and self.events[at].kind is EventKind.WRITE
        )


def _index_of(event: FileEvent) -> int:
    return event.index


def _apply(content: Content, event: FileEvent) -> Content:
    if event.changes_nothing:
        return content
    if event.takes_over:
        return event.content
    start, end = event.start, event.end
    first = bisect.bisect_right(content, start, key=lambda e: e[1])
    last = bisect.bisect_left(content, end, key=lambda e: e[0])
    middle: list[Extent] = []
    if first < last and content[first][0] < start:
        middle.append((content[first][0], start, content[first][2]))
    if event.kind is EventKind.WRITE:
        middle.append((start, end, event.index))
    elif event.kind is EventKind.COPY:
        middle += event.content
    if first < last and content[last - 1][1] > end:
        middle.append((end, content[last - 1][1], content[last - 1][2]))
    return (*content[:first], *middle, *content[last:])


Entry = tuple[int, str]
"""A directory entry: the directory's inode and a name in it. Renaming the directory does not change it."""


class Entries:
    """Every directory entry that there ever was, over the versions of a history.

    `paths`: the path under which an entry was first made, in that order. `below`: the entries that a
    directory ever had.
    """

    def __init__(self) -> None:
        self.paths: dict[Entry, str] = {}
        self.below: dict[int, list[Entry]] = {}
        self._inodes: dict[Entry, Versioned[int]] = {}
        self._of: dict[int, dict[Entry, None]] = {}  # all that ever referred to an inode
        self._counts: dict[int, Versioned[int]] = {}  # of the entries that refer to an inode

    def note(self, version: int, entry: Entry, inode: int, path: str) -> None:
        """From this version on, which is no earlier than the last, the entry refers to that inode (ABSENT: to
        none). `path`: what leads to it.
        """
        kept = self._inodes.setdefault(entry, Versioned())
        before = kept.values[-1] if kept.values else ABSENT
        if before == inode:
            return
        if entry not in self.paths:
            self.paths[entry] = path
            self.below.setdefault(entry[0], []).append(entry)
        kept.put(version, inode)
        for whose, by in ((before, -1), (inode, 1)):
            if whose != ABSENT:
                counts = self._counts.setdefault(whose, Versioned())
                counts.put(version, (counts.values[-1] if counts.values else 0) + by)
                self._of.setdefault(whose, {})[entry] = None

    def path(self, entry: Entry, version: int) -> str:
        """What led to the entry then, or, where its directory had no name, when it was first made."""
        directory, name = entry
        if directory == ROOT:
            return name
        above = (e for e in self._of.get(directory, ()) if directory in self.been(e, version, version))
        found = next(above, None)
        return self.paths[entry] if found is None else f"{self.path(found, version)}/{name}"

    def been(self, entry: Entry, since: int, until: int) -> dict[int, None]:
        """The inodes that the entry referred to between these versions, latest first; ABSENT: to none."""
        if (kept := self._inodes.get(entry)) is None:
            return {ABSENT: None}
        return dict.fromkeys((*reversed(kept.after(since, until)), kept.at(since, ABSENT)))

    def is_put_over(self, entry: Entry, version: int) -> bool:
        """Whether the inode to which the entry referred then took the place of another one there."""
        kept = self._inodes.get(entry)
        at = bisect.bisect_right(kept.versions, version) if kept else 0
        return kept is not None and at > 1 and ABSENT not in kept.values[at - 2 : at]

    def named(self, inode: int, since: int, until: int) -> bool:
        """Whether an entry referred to the inode at every version between these."""
        counts = self._counts.get(inode)
        return counts is not None and all((counts.at(since, 0), *counts.after(since, until)))

    def names(self, inode: int, since: int, until: int) -> frozenset[Entry]:
        """The entries that referred to the inode at some version between these."""
        return frozenset(e for e in self._of.get(inode, ()) if inode in self.been(e, since, until))

    def moves(self, inode: int, since: int, until: int) -> bool:
        """Whether between these versions an entry began or ceased to refer to the inode, or to a directory
        that it was in.
        """
        of_it = self._of.get(inode, ())
        if any(inode in self.been(e, since, until) and len(self.been(e, since, until)) > 1 for e in of_it):
            return True
        return any(
            entry[0] != inode and self.moves(entry[0], since, until)
            for entry in self.names(inode, since, until)
        )


@dataclass(frozen=True, slots=True)
class PersistencePoint:
    """A persistence point: once operation `index` has returned, the first `floor` operations are
    durable; where `inode` is given, only as far as they concern it and the name used, `path`, which is empty
    for the root, for what was opened by a name that is gone, and where fsync leaves names. `of_name`: the
    operation made or moved that name, so it is durable whatever it has replaced.
    """

    index: int
    floor: int
    inode: int | None = None
    path: str = ""
    of_name: bool = False


@dataclass(frozen=True, slots=True)
class ModelTimeline:
    """Everything about a history that does not depend on the crash state.

    `opaque`: programs ran, which the model cannot follow. `floors[a]`: the number of operations that are
    durable once `a` have returned. `attributes`: names of the extended attributes that the history uses.
    `kinds`: the kind of every inode. `written`: the file that each writing operation wrote. `entries`: of all
    directories, where the contract judges each inode by itself; else empty. `promise_sets[i]`: how many of
    the first i operations may persist something (not in `replay.PERSISTS_NOTHING`). `parted`: what had
    several names at a remount, with the first such, where links may part then. `apart`: of these, with the
    first operation since then that names it: from there on some of its names may be those of a copy.
    `copies`: the directories of snapshots, with the operation that made them. `deleted`: all that was in
    deleted subvolumes, with the operation that deleted it.
    """

    operations: tuple[Operation, ...]
    opaque: bool
    names: Namespace
    files: dict[int, FileHistory]
    persistence: tuple[PersistencePoint, ...]
    floors: tuple[int, ...]
    attributes: frozenset[str]
    kinds: dict[int, str]
    written: dict[int, FileHistory]
    entries: Entries
    promise_sets: tuple[int, ...]
    parted: Mapping[int, int] = field(default_factory=dict)
    apart: Mapping[int, int] = field(default_factory=dict)
    copies: Mapping[int, int] = field(default_factory=dict)
    deleted: Mapping[int, int] = field(default_factory=dict)

    def describe(self, index: int) -> str:
        """An operation, or the one that made an inode, in words: `append f 4096 (operation 3)`."""
        index = maker_of(index)
        return f"`{self.operations[index]}` (operation {index})"

    def of_all(self, index: int) -> str:
        """What a signature adds if operation `index`, whose promise is broken, made it for the whole file
        system. That is another path through the kernel than fsync's: who expects a loss after one of them
        expects none after the other.
        """
        kind = self.operations[index].kind if index >= 0 else None
        return f" ({kind.value})" if kind in OF_ALL else ""


OF_ALL = frozenset(
    {OperationKind.SYNC, OperationKind.REMOUNT, OperationKind.SHUTDOWN, OperationKind.SNAPSHOT}
)
"""Operations that promise something for the whole file system."""


def copied(maker: int, number: int) -> int:
    """The inode with that number, from 1, among the many that operation `maker` makes."""
    return maker + number * _MAKERS


def maker_of(inode: int) -> int:
    """The operation that made the inode; the root is its own."""
    return inode % _MAKERS if inode >= 0 else inode


def pieces(content: Content, start: int, end: int) -> Iterator[Extent]:
    """Bytes `start` to `end` of contents, in order, the gaps with origin ZERO."""
    for low, high, origin in content:
        if low < end and high > start:
            if start < low:
                yield start, low, ZERO
            yield max(start, low), min(high, end), origin
            start = min(high, end)
    if start < end:
        yield start, end, ZERO


def moved(origin: int, by: int) -> int:
    """The origin of bytes that are `by` bytes further back than where they were."""
    return origin if origin == ZERO else origin + by * _WRITERS


def writer_of(origin: int) -> int:
    """The operation that wrote what has this origin, which is not ZERO."""
    return origin % _WRITERS


def moved_by(origin: int) -> int:
    """How many bytes further back it is than where it was written."""
    return origin // _WRITERS


def origin_of(extent: ModelExtent) -> int | None:
    """The origin of an extent of a recovered file that is pattern or zeros."""
    if extent.kind is ExtentKind.ZERO:
        return ZERO
    if extent.kind is ExtentKind.WRITTEN:
        return extent.value
    if extent.kind is ExtentKind.MISPLACED:
        return moved(extent.value, extent.start - extent.origin)
    return None


def shifted(content: Content, start: int, by: int) -> Content:
    """The content with everything from `start` on moved by `by` bytes. A negative `by` overwrites the bytes
    before `start`.
    """
    kept = [e for e in pieces(content, 0, min(start, start + by)) if e[2] != ZERO]
    rest = pieces(content, start, max([start, *(end for _, end, _ in content)]))
    return (*kept, *((low + by, high + by, moved(o, by)) for low, high, o in rest if o != ZERO))


def blocks_of(start: int, end: int) -> range:
    """Numbers of the 4 KiB blocks that bytes `start` to `end` touch."""
    return range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))


def whole_blocks(start: int, end: int) -> tuple[int, int]:
    """The whole blocks within bytes `start` to `end`: (start, end) in bytes. There are none unless the second
    is larger.
    """
    return -(-start // BLOCK_BYTES) * BLOCK_BYTES, end // BLOCK_BYTES * BLOCK_BYTES


def fresh_parts(start: int, end: int, blocks: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The parts of bytes `start` to `end` that lie in these blocks, which must ascend."""
    parts: list[tuple[int, int]] = []
    for block in blocks:
        low, high = max(start, block * BLOCK_BYTES), min(end, (block + 1) * BLOCK_BYTES)
        if parts and parts[-1][1] == low:
            low = parts.pop()[0]
        parts.append((low, high))
    return tuple(parts)
