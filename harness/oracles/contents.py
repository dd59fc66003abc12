"""The contents of files: compare what was recovered with what is allowed, and name what is wrong.

A recovered file is found in the reference model by its name after j operations. Every extent of it must have
an origin that `allowance` allows there. Not checked: which sectors of a page are new and which old, and how
bytes mix inside an extent too short to carry a whole word of the pattern.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.model import Extent, ExtentKind, OperationFlag, Position, Tree, TreeEntry, Violation
from harness.oracles.allowance import (
    ANYTHING,
    Allowance,
    EventCounts,
    Origins,
    allowance,
    journaled,
    size_kept,
    sizes,
    told_apart,
)
from harness.oracles.contract import Contract
from harness.oracles.pattern import WORD_BYTES, begins, begins_poison, data_of, may_be_poison, writer_in
from harness.oracles.timeline import (
    ZERO,
    EventKind,
    FileHistory,
    ModelTimeline,
    moved_by,
    origin_of,
    writer_of,
)
from harness.oracles.undecided import Undecided

Fault = Violation | Undecided
_CACHE_ENTRIES = 100_000
_CACHE_ALLOWANCES = 10_000
_STAT_BLOCK_BYTES = 512
_NEAREST = 8
"""How many candidates are examined in detail when none explains the state."""
_VERSIONS = 64
"""The same for the versions of one file, which tell less of how near they are."""


class ContentsJudge:
    """Judges contents for one contract and history, for all threads. Caches its results: most files are the
    same from one crash state to the next.
    """

    def __init__(self, contract: Contract, timeline: ModelTimeline) -> None:
        self._contract = contract
        self._timeline = timeline
        self._allowances: dict[tuple[int, EventCounts], Allowance] = {}
        self._judged: dict[tuple[object, ...], tuple[Fault, ...]] = {}

    def judge(self, candidates: Sequence[int], position: Position, tree: Tree) -> tuple[Fault, ...]:
        """Empty if some number of operations in `candidates` explains the contents of every file; otherwise
        the faults under the candidate that explains most of them.
        """
        undecided: tuple[Fault, ...] = ()
        for j in candidates:
            faults = tuple(_until_violation(self._tree(j, position, tree, thorough=False)))
            if not faults:
                return ()
            if not isinstance(faults[-1], Violation):
                undecided = undecided or faults
        return undecided or self._closest(candidates, position, tree)

    def _closest(self, candidates: Sequence[int], position: Position, tree: Tree) -> tuple[Fault, ...]:
        wrong = {j: sum(1 for _ in self._tree(j, position, tree, thorough=False)) for j in candidates}
        nearest = sorted(candidates, key=lambda j: (wrong[j], self._missized(j, position, tree)))[:_NEAREST]
        return min((tuple(self._tree(j, position, tree, thorough=True)) for j in nearest), key=len)

    def _missized(self, j: int, position: Position, tree: Tree) -> int:
        """The number of files that do not have that size under j operations."""
        names, files = self._timeline.names, self._timeline.files
        found = ((files[names.inode(p, j)], e) for p, e in tree.items() if e.kind == "file")
        return sum(not self._sized(f, self._counts(f, j, position)).holds(e.size) for f, e in found)

    def whenever(
        self, inode: int, position: Position, entry: TreeEntry, binding: int = 0
    ) -> tuple[Fault, ...]:
        """Empty if some version of the history explains this one file; otherwise the faults under the version
        that explains most of it, of those that explain its size if any does. `binding`: persistence points of
        operations before this one bind no longer, and none of them is named.
        """
        file = self._timeline.files[inode]
        every_one = (*(e.index for e in file.events[: file.before(position.begun)]), position.begun)
        counted = {self._counts(file, j, position): j for j in every_one}
        versions = self._told_apart(file, sorted(counted.values()), position)
        first: dict[int, tuple[Fault, ...]] = {}
        for j in reversed(versions):
            first[j] = self._file(file, j, position, entry, thorough=False)
            if not first[j]:
                return ()
        sizes_of = {j: self._sized(file, self._counts(file, j, position)) for j in versions}
        fitting = [j for j in versions if sizes_of[j].holds(entry.size)] or versions
        if len(fitting) > _VERSIONS:
            undecided = [j for j in fitting if not isinstance(first[j][-1], Violation)]
            fitting = (undecided or fitting)[-_VERSIONS:]
        every = (self._file(file, j, position, entry, thorough=True, binding=binding) for j in fitting)
        return min(every, key=_weight)

    def _told_apart(self, file: FileHistory, versions: Sequence[int], position: Position) -> list[int]:
        """The first of each that allow the same sizes and bytes. Where data is journaled, how much of a write
        came back counts as well.
        """
        if self._contract.data == "journal":
            return list(versions)
        first: dict[tuple[object, ...], int] = {}
        for j in versions:
            counts = self._counts(file, j, position)
            same = (told_apart(self._contract, file, counts), sizes(self._contract, file, counts))
            first.setdefault(same, j)
        return list(first.values())

    def quick_check(self, position: Position, tree: Tree) -> tuple[Fault, ...]:
        """Faults that do not depend on the names: poison, and data from the future."""
        faults: list[Violation] = []
        for path, entry in tree.items():
            for extent in entry.extents:
                if _is_poison(extent) and not self._contract.stale_allowed:
                    faults.append(_at_bytes("stale", path, extent.start, extent.end, *_poison(extent)))
                elif (
                    extent.kind in (ExtentKind.WRITTEN, ExtentKind.MISPLACED)
                    and extent.value >= position.begun
                    and not self._timeline.opaque
                ):
                    told = _future(self._timeline, extent.value)
                    faults.append(_at_bytes("foreign", path, extent.start, extent.end, *told))
        return tuple(_folded(faults))

    def _tree(self, j: int, position: Position, tree: Tree, thorough: bool) -> Iterator[Fault]:
        """Faults under j operations; of each file only the first, unless `thorough`."""
        names = self._timeline.names
        reported: set[int] = set()
        for path, entry in tree.items():
            if entry.kind != "file":
                continue
            if entry.inode in reported:
                continue
            reported.add(entry.inode)
            yield from self._file(self._timeline.files[names.inode(path, j)], j, position, entry, thorough)

    def _counts(self, file: FileHistory, j: int, position: Position) -> EventCounts:
        durable, committed = file.durable(position.acked)[1], file.before(j)
        begun = file.before(position.begun)
        partly = committed < begun and file.events[committed].index == j
        if committed < durable:  # which of these is committed as well changes nothing
            committed, partly = durable, False
        return EventCounts(durable, committed, partly, begun, file.before(position.acked))

    def _file(
        self,
        file: FileHistory,
        j: int,
        position: Position,
        entry: TreeEntry,
        thorough: bool,
        binding: int = 0,
    ) -> tuple[Fault, ...]:
        point, counts = file.durable(position.acked)[0], self._counts(file, j, position)
        key = (file.inode, counts, entry.path, entry.size, entry.blocks, entry.extents)
        known = self._judged.get(key)
        if known is not None:
            return known
        # No faults under a cut means none at every crash point with that cut; naming a fault needs more.
        faults_key = (*key, position, thorough, binding)
        known = self._judged.get(faults_key)
        if known is None:
            if len(self._judged) >= _CACHE_ENTRIES:
                self._judged.clear()
            acked, begun = position.acked, position.begun
            stale = self._contract.stale_allowed
            subject = _Subject(self._timeline, file, counts, point, acked, begun, entry, binding, stale)
            known = self._compare(subject, thorough)
            self._judged[faults_key if known else key] = known
        return known

    def _compare(self, subject: _Subject, thorough: bool) -> tuple[Fault, ...]:
        """The faults under the allowance that explains most."""
        if not thorough and self._contract.data != "journal":
            sized = self._sized(subject.file, subject.counts)
            if not sized.holds(subject.entry.size):
                return (subject.size_fault(sized),)  # which comes first; what bytes may hold takes long
        every = (subject.faults(allowed) for allowed in self._allowed(subject))
        found = (tuple(_folded(faults if thorough else _until_violation(faults))) for faults in every)
        return min(found, key=_weight)

    def _allowed(self, subject: _Subject) -> Iterable[Allowance]:
        if self._contract.data == "journal":
            return journaled(self._contract, subject.file, subject.counts, subject.reach())
        counts = told_apart(self._contract, subject.file, subject.counts)
        key = (subject.file.inode, counts)
        known = self._allowances.get(key)
        if known is None:
            if len(self._allowances) >= _CACHE_ALLOWANCES:
                self._allowances.clear()  # other threads may clear it at any time, too
            known = self._allowances[key] = allowance(self._contract, subject.file, counts)
        sized = self._sized(subject.file, subject.counts)
        return (dataclasses.replace(known, low=sized.low, high=sized.high, size_base=sized.size_base),)

    def _sized(self, file: FileHistory, counts: EventCounts) -> Allowance:
        """What sizes the file may have, and nothing of its bytes."""
        return Allowance(*sizes(self._contract, file, counts), (), ())


NOBODY_WROTE = "bytes nobody wrote"


@dataclass(frozen=True, slots=True)
class _Subject:
    """One recovered file and its place in the history. `point`: its last persistence point's index, or -1.
    `binding`: the index of the first that binds still. `stale_allowed`: as in the contract.
    """

    timeline: ModelTimeline
    file: FileHistory
    counts: EventCounts
    point: int
    acked: int
    begun: int
    entry: TreeEntry
    binding: int
    stale_allowed: bool

    def reach(self) -> int:
        """Offset up to which the file holds data of the operation that may be committed in part."""
        if not self.counts.partly:
            return 0
        event = self.file.events[self.counts.committed]
        reach = event.start
        for extent in self.entry.extents:
            mine = extent.kind is ExtentKind.WRITTEN and extent.value == event.index
            # A word in which the write begins or ends may be classified as another kind.
            if extent.start <= reach < extent.end and (mine or extent.end - reach < WORD_BYTES):
                reach = extent.end
        return min(reach, event.end)

    def faults(self, allowed: Allowance) -> Iterator[Fault]:
        """What is wrong, each fault once: beyond the largest size allowed, which is a fault by itself, only
        data that this file never held.
        """
        limit = self.entry.size
        if not allowed.low <= self.entry.size <= allowed.high:
            limit = allowed.high
            yield self.size_fault(allowed)
        if self.entry.blocks * _STAT_BLOCK_BYTES < allowed.allocated:
            yield self._freed(allowed.allocated)
        low, high = allowed.data_at_end(self.entry.size)
        for extent in self.entry.extents:
            if extent.kind is not ExtentKind.UNREADABLE:
                for start, end, origins in allowed.cells(extent.start, extent.end):
                    if not _fits(extent, start, end, origins) and (start < limit or self._never_here(extent)):
                        yield self._fault(extent, start, end, origins)
            if extent.kind is ExtentKind.ZERO:
                yield from self._empty_end(extent, max(low, extent.start), min(high, extent.end), allowed)

    def _never_here(self, extent: Extent) -> bool:
        if self.file.has_held(origin_of(extent)):
            return False
        if extent.kind is ExtentKind.WRITTEN:
            return not (extent.value < self.begun and self.file.writes(extent.value))
        return extent.kind is not ExtentKind.ZERO

    # --- naming what is wrong ---

    def size_fault(self, allowed: Allowance) -> Violation:
        path, size = self.entry.path, self.entry.size
        low, high = allowed.low, allowed.high
        expected = f"{low}" if low >= high else f"{low} to {high}"
        base = self.file.events[allowed.size_base - 1] if allowed.size_base else None
        durable = self.file.size_at(self.counts.durable)
        earlier = (self.file.size_at(k) for k in range(self.counts.durable))
        oracle = "durability"
        if flush := self._lost_flush(allowed):
            point, kept = flush
            operation = self.timeline.describe(point)
            what = f"{kept - size} bytes acknowledged by {operation} are gone: size is {size}"
            signature = f"size after {point}"  # of a write with O_SYNC or O_DSYNC
        elif allowed.size_base == self.counts.durable and (size < durable or size in earlier):
            point = self._first_point(size, durable)
            operation = self.timeline.describe(point)
            signature = f"size after {point}{self.timeline.of_all(point)}"
            if size < durable:
                kept = self.file.size_at(self.file.durable(point + 1)[1])
                what = f"{kept - size} bytes acknowledged by {operation} are gone: size is {size}"
            else:
                what = f"the shorter size acknowledged by {operation} is undone: size is {size}"
        else:
            word = "too small" if size < low else "too large"
            what = f"size {size} is {word}"
            signature = f"size {word}"
            if base:
                what += f"; {self.timeline.describe(base.index)} is there"
                signature += f", {base.kind.value}"
            promised = base and base.kind is not EventKind.COMMIT_SIZE and size < low
            if not (base and promised and base.index < self.timeline.floors[self.acked]):
                oracle = "size"
        return Violation(
            oracle, path, f"{path}: {what}", f"size {expected}", f"size {size}", f"{path}: {signature}"
        )

    def _lost_flush(self, allowed: Allowance) -> tuple[int, int] | None:
        """The operation whose flush keeps the file longer than it is, and the size that it keeps: the first
        since the file was that short by itself. None if no flush does, or what was before them is lost, too.
        """
        file, size, counts = self.file, self.entry.size, self.counts
        too_short = file.size_at(allowed.size_base) > size
        if size >= allowed.low or (too_short and allowed.size_base != counts.durable):
            return None
        short = [k for k in range(counts.durable, counts.returned + 1) if file.size_at(k) <= size]
        first = short[-1] if short else counts.returned
        last = counts.returned
        if not any(size_kept(file, k, last) > size for k in range(first, last)) and not too_short:
            first, last = counts.durable, max(counts.committed, counts.durable)
        kept = ((file.events[k].index, size_kept(file, k, last)) for k in range(first, counts.returned))
        return next((flush for flush in kept if flush[1] > size), None)

    def _freed(self, allocated: int) -> Violation:
        path, found = self.entry.path, self.entry.blocks * _STAT_BLOCK_BYTES
        what = (
            f"{path}: {found} bytes of blocks, although {self.timeline.describe(self.point)} was acknowledged"
        )
        promised = f"at least the {allocated} bytes that fallocate allocated"
        signature = f"{path}: blocks freed{self.timeline.of_all(self.point)}"
        return Violation("durability", path, what, promised, f"{found} bytes", signature)

    def _empty_end(self, extent: Extent, start: int, end: int, allowed: Allowance) -> Iterator[Violation]:
        """The zeros of this part, unless they are a write's: the last two bytes of its words are zeros."""
        path, size = self.entry.path, self.entry.size
        cells = allowed.cells(start, end)
        if any(not _fits(extent, low, high, origins - {ZERO}) for low, high, origins in cells):
            found = f"zeros at the end of the file, whose size {size} only comes with the data of a write"
            what, expected = "zeros at the end", "data of that write"
            yield _at_bytes("contents", path, start, end, found, what, expected)

    def _first_point(self, size: int, durable: int) -> int:
        """The first persistence point that promised more than this size, and after which no operation that
        the last one covers has made the file that short; else the last one.
        """
        if size >= durable:
            return self.point
        short = (k for k in range(self.counts.durable, 0, -1) if self.file.size_at(k) <= size)
        return self._first_since(next(short, 0))

    def _first_since(self, order: int) -> int:
        """The first persistence point that covers more than so many events, and binds still."""
        points = (p for p, k in self.file.persists if k > order and p >= self.binding)
        return next(points, self.point)

    def _fault(self, extent: Extent, start: int, end: int, origins: Origins) -> Fault:
        if extent.kind is ExtentKind.POISON:
            found, signature = _poison(extent)
            lost = self._lost(start, end, origins, 0, found) if self.stale_allowed else None
            return lost or _at_bytes("stale", self.entry.path, start, end, found, signature)
        if extent.kind in (ExtentKind.LITERAL, ExtentKind.FOREIGN):
            return self._odd_bytes(extent, start, end, origins)
        if extent.kind is ExtentKind.ZERO:
            return self._wrong_time(start, end, origins, ZERO)
        return self._alien(extent, start, end) or self._wrong_time(start, end, origins, origin_of(extent))

    def _alien(self, extent: Extent, start: int, end: int) -> Violation | None:
        """Pattern data that was never written at this offset of this file."""
        path, name = self.entry.path, self.timeline.describe
        owner = self.timeline.written.get(extent.value)
        oracle = "foreign"
        if extent.value >= self.begun:
            what, signature = _future(self.timeline, extent.value)
        elif self.file.has_held(origin_of(extent)):
            return None
        elif owner is None and OperationFlag.PAST_END in self.timeline.operations[extent.value].flags:
            oracle = "contents"
            signature = "data stored past the end"
            what = f"data that {name(extent.value)} stored past the end"
        elif owner is None:
            what = f"bytes marked as data of operation {extent.value}, which writes none"
            signature = "data of no write"
        elif owner is not self.file:
            oracle = "stale"
            what, signature = self._of_another(extent.value)
        elif extent.kind is ExtentKind.MISPLACED:
            oracle = "contents"
            what = (
                f"data of {name(extent.value)} that belongs at offset {extent.origin + start - extent.start}"
            )
            signature = f"misplaced data of operation {extent.value}"
        else:
            return None
        return _at_bytes(oracle, path, start, end, what, signature)

    def _odd_bytes(self, extent: Extent, start: int, end: int, origins: Origins) -> Fault:
        """Bytes that do not form whole words of the pattern."""
        path = self.entry.path
        seen_end = min(end, extent.start + len(extent.data))
        if start >= seen_end or _explained(extent, start, seen_end, origins):
            return Undecided(
                f"{path}: bytes {max(start, seen_end)} to {end} were not looked at closely enough"
            )
        events = self.file.events[: self.counts.begun]
        cloned = (o for content in (self.file.born, *(e.content for e in events)) for _, _, o in content)
        mine = frozenset({ZERO, *cloned, *(e.index for e in events)})
        if _explained(extent, start, seen_end, mine):
            return self._wrong_time(start, end, origins, None)
        data = extent.data[start - extent.start : seen_end - extent.start]
        if start % WORD_BYTES == 0 and (whose := self._of_part(data, cut=seen_end == self.entry.size)):
            return _at_bytes("stale", path, start, end, *whose)
        found = f"bytes that nobody wrote ({data[:16].hex(' ')})"
        if len(data) <= 2:
            found = f"bytes that do not belong there ({data.hex(' ')}), too few to tell where they come from"
        return _at_bytes("foreign", path, start, end, found, NOBODY_WROTE)

    def _of_part(self, part: bytes, *, cut: bool) -> tuple[str, str] | None:
        """What a word may be of which these are the first bytes, unless it is this file's. `cut`: the file
        ends behind them.
        """
        writer = writer_in(part)
        if writer is None:
            few = f"bytes that may be what the device held before mkfs, too few to tell ({part.hex(' ')})"
            return (few, "poison") if cut and may_be_poison(part) else None
        if begins_poison(part):
            return "what the device held before mkfs", "poison"
        owner = self.timeline.written.get(writer)
        if owner is None or owner is self.file or writer >= self.begun or not owner.writes(writer):
            return None
        event = owner.events[owner.before(writer)]
        places = range(event.start // WORD_BYTES, -(-event.end // WORD_BYTES))
        return self._of_another(writer) if begins(part, writer, places) else None

    def _of_another(self, writer: int) -> tuple[str, str]:
        return f"data of another file: {self.timeline.describe(writer)}", f"data of operation {writer}"

    def _wrong_time(self, start: int, end: int, origins: Origins, found: int | None) -> Violation:
        """Data of this file, but of another time than is allowed. `found`: its origin; None when mixed."""
        words = "bytes of several operations" if found is None else self._origin(found)
        order = 0 if found is None or found == ZERO else self.file.before(writer_of(found))
        if lost := self._lost(start, end, origins, order, words):
            return lost
        path = self.entry.path
        expected = " or ".join(self._origin(o) for o in sorted(origins)[-3:])
        kind = "mixed bytes" if found is None else f"data of operation {writer_of(found)}"
        kind = "zeros" if found == ZERO else kind
        text = f"{words}, where only {expected} can be"
        return _at_bytes("contents", path, start, end, text, f"{kind} out of place", expected)

    def _lost(self, start: int, end: int, origins: Origins, order: int, found: str) -> Violation | None:
        """Bytes that were acknowledged, whether by the whole file's persistence point or by one of its own,
        and are gone: the same is lost either way. `found`: there instead, as old as so many events.
        """
        path, durable = self.entry.path, self._origin_at(start, self.counts.durable)
        if durable in origins and order < self.counts.durable:
            point = self._first_promise(durable)
            promised = f"acknowledged by {self.timeline.describe(point)}"
            text = f"{found} instead of {self._origin(durable)}, {promised}"
            signature = f"{_lost_of(durable)}{self.timeline.of_all(point)}"
            return _at_bytes("durability", path, start, end, text, signature, self._origin(durable))
        flush = self.file.flushed(self.counts.returned, start)
        if flush is None or order > self.file.before(flush):
            return None
        text = f"{found} instead of what was acknowledged by {self.timeline.describe(flush)}"
        promised = " or ".join(map(self._origin, sorted(origins)))
        signature = _lost_of(self._origin_at(start, self.file.before(flush + 1)))
        return _at_bytes("durability", path, start, end, text, signature, promised)

    def _first_promise(self, origin: int) -> int:
        """The first persistence point that made this write durable; for zeros only the last is known."""
        if origin == ZERO:
            return self.point
        events = enumerate(self.file.events[: self.counts.durable])
        came = (EventKind.CLONE, EventKind.EXCHANGE, EventKind.COPY, EventKind.SHIFT)
        taken = (k for k, e in events if e.kind in came and any(o == origin for _, _, o in e.content))
        order = max((self.file.before(writer_of(origin)), *taken))
        return self._first_since(order)

    def _origin_at(self, at: int, events: int) -> int:
        for start, end, origin in self.file.content(events):
            if start <= at < end:
                return origin
        return ZERO

    def _origin(self, origin: int) -> str:
        if origin == ZERO:
            return "zeros"
        by = moved_by(origin)
        where = f", {abs(by)} bytes {'behind' if by > 0 else 'before'} its first place" if by else ""
        return f"data of {self.timeline.describe(writer_of(origin))}{where}"


def _lost_of(origin: int) -> str:
    """What is lost with bytes of this origin, in a signature."""
    return "zeroing lost" if origin == ZERO else f"data of operation {writer_of(origin)} lost"


def _fits(extent: Extent, start: int, end: int, origins: Origins) -> bool:
    """Whether this part of an extent has an allowed origin."""
    if origins is ANYTHING:
        return True
    if origin_of(extent) in origins:
        return True
    if extent.kind in (ExtentKind.LITERAL, ExtentKind.FOREIGN):
        return end <= extent.start + len(extent.data) and _explained(extent, start, end, origins)
    # Part of a word can equal another writer's: bytes 4 to 8 of a word hold only its place.
    return end - start < WORD_BYTES and _explained(extent, start, end, origins)


def _explained(extent: Extent, start: int, end: int, origins: Origins) -> bool:
    """Whether each byte of this part equals the byte that an allowed origin has there."""
    found = _bytes(extent, start, end)
    if found is None:
        return False
    could = [data_of(o, start, end - start) for o in origins]
    return all(any(c[i] == byte for c in could) for i, byte in enumerate(found))


def _bytes(extent: Extent, start: int, end: int) -> bytes | None:
    if extent.kind in (ExtentKind.LITERAL, ExtentKind.FOREIGN):
        return extent.data[start - extent.start : end - extent.start]
    origin = origin_of(extent)
    return None if origin is None else data_of(origin, start, end - start)


def _is_poison(extent: Extent) -> bool:
    """Whole words of poison, or a word that the end of the file has cut, if enough of it is there to tell it
    from what a program may have written.
    """
    if extent.kind is ExtentKind.LITERAL and extent.start % WORD_BYTES == 0 and len(extent.data) > _TELLING:
        return begins_poison(extent.data)
    return extent.kind is ExtentKind.POISON


_TELLING = 4


def _poison(extent: Extent) -> tuple[str, str]:
    block = f" (device block {extent.value})" if extent.kind is ExtentKind.POISON else ""
    return f"what the device held before mkfs{block}", "poison"


def _future(timeline: ModelTimeline, index: int) -> tuple[str, str]:
    """What is marked as data of an operation that had not begun. A word of garbage looks like one of the
    pattern by chance; then it mostly names an operation that the workload does not have.
    """
    if index >= len(timeline.operations):
        return f"bytes that nobody wrote (marked as data of operation {index})", NOBODY_WROTE
    known = f": `{timeline.operations[index]}`"
    return f"data of operation {index}, which had not begun{known}", "data from the future"


def _at_bytes(
    oracle: str,
    path: str,
    start: int,
    end: int,
    found: str,
    signature: str,
    expected: str = "data of this file",
) -> Violation:
    return Violation(
        oracle=oracle,
        subject=path,
        summary=f"{path}: bytes {start} to {end} hold {found}",
        expected=expected,
        found=found,
        signature=f"{path}: {signature}",
    )


def _weight(faults: Sequence[Fault]) -> int:
    return sum(1000 if isinstance(f, Violation) else 1 for f in faults)


def _until_violation(faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults up to and including the first violation."""
    for fault in faults:
        yield fault
        if isinstance(fault, Violation):
            return


def _folded(faults: Iterable[Fault]) -> Iterator[Fault]:
    """The first fault of each oracle and signature."""
    reported: set[tuple[str, str]] = set()
    for fault in faults:
        key = (fault.oracle, fault.signature) if isinstance(fault, Violation) else ("", fault.what)
        if key not in reported:
            reported.add(key)
            yield fault
