"""What one file may hold after the power cut: sizes, and for every byte the origins it may have.

The file's history is cut by four numbers (`EventCounts`): events that a persistence point made durable,
events whose operations lie within the recovered namespace's j operations (*committed*), whether operation j
itself, of which some steps may be committed, is an event of this file, events begun, and events whose
operations have returned.

Rules, each with its evidence ([code] is Linux 6.12 fs/ext4; more in vms/filesystems/CONTRACTS.md):

 1. A byte holds what the last persistence point made durable, or what any write begun since then put
    there: a dirty page may be written back at any time. Sectors of both may mix.
 2. Zeroing whole blocks (shrink, punch, zero-range) is metadata: once committed, nothing older is
    left. [code] ext4_punch_hole, ext4_truncate
    Until it is committed, the range holds zeros or what it held before. A page that is written back after
    a shrink has set i_size and before it drops the page is zeroed beyond that size [infer]
    mpage_submit_folio, ext4_bio_write_folio; and a later write into a zeroed range makes ext4 write zeros
    around it in place, before the commit of either [seen] ext4_ext_convert_to_initialized,
    ext4_issue_zeroout.
 3. Zeroing part of a block is a write to the page, which may arrive early; in ordered mode it arrives
    with the commit at the latest. [code] __ext4_block_zero_page_range: ext4_jbd2_inode_add_write
    `zeroed-edges-lag`: not where a hole is punched or a range zeroed; where a file is cut off it does.
    [code] Linux 7.3 ext4_zero_partial_blocks, ext4_block_zero_eof
 4. What no write has covered reads as zeros; so does a write's new block as long as its extent is
    unwritten (`zeros_in_new_blocks`). [code] ext4_map_blocks orders only blocks that are new and not
    unwritten; ext4_should_dioread_nolock. Without `zeros_in_new_blocks`, a committed write's new blocks
    hold its data; but an append into an existing block may still show zeros, because its page is not
    ordered. So may a store into a mapping: the page fault allocates the block, and a commit may fall
    between the fault and the store.
 5. The size follows writeback where it lags, and never runs ahead of the committed operations.
    [code] mpage_map_and_submit_extent, ext4_da_do_write_end; ext4_setattr sets it at once.
 6. data=journal: exactly the committed operations; of operation j, a write's pages in their order.
    [code] ext4_write_begin opens a handle for each page, ext4_journalled_write_end closes it. Of stores
    into a mapping, any subset: a commit may fall between the page fault that adds the page to the
    transaction (ext4_page_mkwrite) and the store.

Rules that contracts choose (`contract.RULES`; [code] is Linux 6.12 fs/xfs):

 7. `extension-zeroes`: what a committed truncate or fallocate adds to the file reads as zeros.
    [code] xfs_setattr_size writes what it zeroed before it logs the size, and the log's write flushes first.
    `data-at-end`: a size that a write set is logged after the I/O that reaches it, so the last block holds
    that write's data. [code] iomap ioends: xfs_end_io, xfs_setfilesize, xfs_iomap_write_unwritten. A block
    in front of it may not be written yet. Not judged once anything has cut, zeroed or extended the file.
 8. `allocations-stay`: fallocate's blocks are there once the file was synced. A truncate that leaves the size
    may free what lies beyond it. [code] ext4_setattr

 9. msync of some pages, and a write with O_SYNC or O_DSYNC: once it has returned, the bytes of those pages,
    as far as the file reaches, or of that write, are what they were then, or what a later write put there.
    The size reaches the end of such a write, unless a committed truncate has cut that off again.
    [code] mm/msync.c, generic_write_sync: vfs_fsync_range of that range

10. A clone takes the source's blocks over, which were written before: metadata, in several transactions, each
    with a part of the range and the size so far. [code] generic_remap_file_range_prep;
    xfs_reflink_remap_extent; btrfs_clone

11. An exchange of contents writes those of both files first, and waits. Then mappings and sizes change in a
    chain of transactions, which recovery completes once the first is in the log: all of it, or nothing, in
    both files. [doc] ioctl_xfs_exchange_range(2); [code] xfs_exchange_range_prep, xfs_exchmaps_recover_work
    Where nothing of it is in the log, what was written later to one of the files, in place, is in the other
    one. [code] xfs_map_blocks goes by the mappings in memory, and waits for no log

12. Collapsing and inserting a range write what lies behind its start first, and wait. Then mappings change,
    one extent after the other, in one transaction or several: a byte is what it was, what it becomes, or
    zero. Inserting sets the size first, collapsing last. fallocate(2) promises no atomicity. [code]
    ext4_collapse_range, ext4_insert_range, ext4_ext_shift_path_extents (the handle may restart);
    xfs_collapse_file_space, xfs_insert_file_space (a transaction an extent), xfs_falloc_insert_range;
    f2fs_collapse_range, f2fs_insert_range
    Where the shift is lost, what was written later, in place, is where those blocks were before it.
13. copy_file_range copies pages, or shares blocks: what it leaves is a write of what the source held, whose
    blocks need not be new. [code] vfs_copy_file_range
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.model import BLOCK_BYTES
from harness.oracles.contract import Contract
from harness.oracles.timeline import (
    ENDLESS,
    ZERO,
    Content,
    EventKind,
    Extent,
    FileEvent,
    FileHistory,
    blocks_of,
    moved,
    pieces,
    whole_blocks,
)

Origins = frozenset[int]
"""Indices of the operations whose data a byte may hold; ZERO stands for zeros."""
ANYTHING: Origins = frozenset({-2})


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Counts of one file's events; see the module's head. `partly`: event `committed` belongs to operation j,
    of which some steps may be committed. `returned`: whether the last event begun has returned decides it, so
    there are at most two values for one `begun`.
    """

    durable: int
    committed: int
    partly: bool
    begun: int
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one file may hold. Sizes from `low` to `high` bytes, both included. `size_base`: the number of
    events that decides `low`, unless a flush of part of the file promises more. `origins[i]` applies from
    byte `starts[i]` to the next start. `growths`: the writes whose sizes came to the disk after their data.
    `allocated`: the least number of bytes in blocks.
    """

    low: int
    high: int
    size_base: int
    starts: tuple[int, ...]
    origins: tuple[Origins, ...]
    growths: tuple[FileEvent, ...] = ()
    allocated: int = 0

    def holds(self, size: int) -> bool:
        """Whether the file may have that size."""
        return self.low <= size <= self.high

    def data_at_end(self, size: int) -> tuple[int, int]:
        """The bytes (start, end) at the end of a file of that size that cannot be zeros; none if empty."""
        for event in self.growths:
            if event.size_before < size <= event.size_after:
                return max((size - 1) // BLOCK_BYTES * BLOCK_BYTES, event.start, event.size_before), size
        return size, size

    def cells(self, start: int, end: int) -> Iterator[tuple[int, int, Origins]]:
        """Split bytes `start` to `end` into (start, end, origins), in order."""
        i = bisect.bisect_right(self.starts, start) - 1
        while start < end:
            after = self.starts[i + 1] if i + 1 < len(self.starts) else ENDLESS
            yield start, min(end, after), self.origins[i]
            start, i = after, i + 1


class _Cells:
    """A file's bytes, divided wherever an event begins or ends."""

    def __init__(self, content: Content, bounds: Iterable[int]) -> None:
        cuts = {0, *bounds, *(b for start, end, _ in content for b in (start, end))}
        self.starts = sorted(cuts)
        self.index = {start: i for i, start in enumerate(self.starts)}
        self.origins: list[Origins] = [frozenset({ZERO})] * len(self.starts)
        for start, end, origin in content:
            self.put(start, end, frozenset({origin}))

    def put(self, start: int, end: int, origins: Origins) -> None:
        for i in range(self.index[start], self.index[end]):
            self.origins[i] = origins

    def hold(self, start: int, end: int, content: Content) -> None:
        """Bytes `start` to `end` are those of `content`."""
        for low, high, origin in pieces(content, start, end):
            self.put(low, high, frozenset({origin}))

    def may_hold(self, content: Iterable[Extent]) -> None:
        for start, end, origin in content:
            self.add(start, end, origin)

    def add(self, start: int, end: int, origin: int) -> None:
        for i in range(self.index[start], self.index[end]):
            if self.origins[i] is not ANYTHING:
                self.origins[i] |= {origin}


def allowance(contract: Contract, file: FileHistory, counts: EventCounts) -> Allowance:
    """What `file` may hold in ordered and writeback modes (rules 1 to 5)."""
    events = file.events[counts.durable : counts.begun]
    moves = tuple(_moves(file, counts))
    first = moves[0][0] if moves else counts.begun
    strays = {k: tuple(_misplaced(file.events[k], k, moves)) for k in range(first, counts.begun)}
    bounds = (b for e in events for b in _bounds(e))
    elsewhere = (b for parts in strays.values() for start, end, _ in parts for b in (start, end))
    cells = _Cells(file.content(counts.durable), (*bounds, *elsewhere))
    for k, event in enumerate(events, counts.durable):
        committed = k < counts.committed
        cells.may_hold(strays.get(k, ()))  # of a STRAY, this is all
        if event.is_written:
            _write(contract, cells, event, committed)
        elif event.kind is EventKind.SIZE and contract.stale_allowed:
            cells.put(event.size_before, _around(0, event.size_after)[1], ANYTHING)
        elif event.kind is EventKind.SIZE and committed and "extension-zeroes" in contract.rules:
            cells.put(event.size_before, event.size_after, frozenset({ZERO}))
        elif event.kind is EventKind.ZERO:
            _zero(contract, cells, event, committed)
        elif event.kind is EventKind.CLONE:
            _clone(cells, event, committed)
        elif event.kind in (EventKind.EXCHANGE, EventKind.SHIFT) and committed:
            cells.hold(event.start, event.end, event.content)
        elif event.kind is EventKind.SHIFT:
            cells.may_hold(_on_the_way(event))
        elif event.kind is EventKind.FLUSH and k < counts.returned:
            cells.hold(event.start, event.end, file.content(k))
    return Allowance(
        *sizes(contract, file, counts),
        tuple(cells.starts),
        tuple(cells.origins),
        tuple(_growths(events)) if "data-at-end" in contract.rules else (),
        allocated(contract, file, counts),
    )


def told_apart(contract: Contract, file: FileHistory, counts: EventCounts) -> EventCounts:
    """The counts with the fewest committed events under which the bytes may hold the same. A write that may
    read as what was there before does so whether it is committed or not.
    """
    committed = counts.committed
    while committed > counts.durable and not _shows(contract, file.events[committed - 1]):
        committed -= 1
    return dataclasses.replace(counts, committed=committed, partly=False)


def _shows(contract: Contract, event: FileEvent) -> bool:
    """Whether bytes may tell that an event is committed."""
    if event.is_written:
        return not (contract.zeros_in_new_blocks or contract.stale_allowed)
    return not event.changes_nothing and event.kind is not EventKind.COMMIT_SIZE


def _moves(file: FileHistory, counts: EventCounts) -> Iterator[tuple[int, FileEvent]]:
    """The shifts and exchanges that the log may lack, with their places among the events."""
    for k in range(max(counts.committed, counts.durable), counts.begun):
        if file.events[k].kind in (EventKind.SHIFT, EventKind.EXCHANGE):
            yield k, file.events[k]


def _misplaced(event: FileEvent, k: int, moves: Sequence[tuple[int, FileEvent]]) -> Iterator[Extent]:
    """Where event k puts its bytes if the log lacks shifts or exchanges before it (rules 11 and 12)."""
    before = [move for place, move in moves if place < k]
    if event.kind is EventKind.STRAY and any(move.kind is EventKind.EXCHANGE for move in before):
        yield from event.content
    if not event.is_written and event.kind is not EventKind.ZERO:
        return
    parts = list(event.content or [(event.start, event.end, event.origin)])
    for shift in reversed(before):
        if shift.kind is EventKind.SHIFT:
            parts = [earlier for part in parts for earlier in _before_shift(shift, *part)]
            yield from parts


def _before_shift(shift: FileEvent, start: int, end: int, origin: int) -> Iterator[Extent]:
    """Where the blocks of these bytes were before the shift, if anywhere."""
    by = shift.size_after - shift.size_before
    if start < shift.start:
        yield start, min(end, shift.start), origin
    if (first := max(start, shift.start + max(by, 0))) < end:
        yield first - by, end - by, moved(origin, -by)


def _on_the_way(shift: FileEvent) -> Iterator[Extent]:
    """The contents that bytes may have during the shift, beside their old ones."""
    yield shift.start, shift.end, ZERO
    yield from pieces(shift.content, shift.start, shift.end)


def _growths(events: Sequence[FileEvent]) -> Iterator[FileEvent]:
    """The writes that made the file longer, if nothing else may have set its size or removed data."""
    if not any(e.kind in (EventKind.ZERO, EventKind.SIZE) or e.takes_over for e in events):
        yield from (e for e in events if e.kind is EventKind.WRITE and e.size_after > e.size_before)


def allocated(contract: Contract, file: FileHistory, counts: EventCounts) -> int:
    """The least number of bytes in the file's blocks (rule 8): those in whole blocks that fallocate allocated
    before the last persistence point, without those that anything begun since may have freed.
    """
    if "allocations-stay" not in contract.rules:
        return 0
    blocks: set[int] = set()
    for k, event in enumerate(file.events[: counts.begun]):
        if event.kind is EventKind.RESERVE and k < counts.durable:
            low, high = whole_blocks(event.start, event.end)
            blocks.update(range(low // BLOCK_BYTES, high // BLOCK_BYTES))
        elif event.kind in (EventKind.ZERO, EventKind.RELEASE) or event.takes_over:
            blocks -= {b for b in blocks if b in blocks_of(event.start, event.end)}
    return len(blocks) * BLOCK_BYTES


def _bounds(event: FileEvent) -> Iterator[int]:
    """Offsets at which an event's effect on the bytes may change."""
    yield from (event.start, event.end)
    if event.kind is EventKind.ZERO:
        yield from whole_blocks(event.start, event.end)
    for start, end, _ in event.content:
        yield from (start, end)
    if event.kind is EventKind.SIZE:
        yield from (event.size_before, _around(0, event.size_after)[1])
    for start, end in event.fresh:
        yield from _around(start, end)


def _around(start: int, end: int) -> tuple[int, int]:
    blocks = blocks_of(start, end)
    return blocks.start * BLOCK_BYTES, blocks.stop * BLOCK_BYTES


def _write(contract: Contract, cells: _Cells, event: FileEvent, committed: bool) -> None:
    content = event.content or ((event.start, event.end, event.index),)
    cells.may_hold(content)
    for start, end in event.fresh:
        if contract.stale_allowed:
            cells.put(*_around(start, end), ANYTHING)
        elif committed and not (contract.zeros_in_new_blocks or event.mapped):
            cells.hold(start, end, content)


def _clone(cells: _Cells, event: FileEvent, committed: bool) -> None:
    """Rule 10. Until it is committed any part may have been taken over."""
    for start, end, origin in pieces(event.content, event.start, event.end):
        if committed:
            cells.put(start, end, frozenset({origin}))
        else:
            cells.add(start, end, origin)


def _zero(contract: Contract, cells: _Cells, event: FileEvent, committed: bool) -> None:
    low, high = whole_blocks(event.start, event.end)
    if low < high:
        if committed:
            cells.put(low, high, frozenset({ZERO}))
        else:
            cells.add(low, high, ZERO)
        parts = [(event.start, low), (high, event.end)]
    else:
        parts = [(event.start, event.end)]
    cut_off = event.end == ENDLESS
    ordered = contract.data == "ordered" and (cut_off or "zeroed-edges-lag" not in contract.rules)
    for start, end in parts:
        if committed and ordered:
            cells.put(start, end, frozenset({ZERO}))
        else:
            cells.add(start, end, ZERO)


def sizes(contract: Contract, file: FileHistory, counts: EventCounts) -> tuple[int, int, int]:
    """Rule 5: the lowest and the highest size allowed, and the number of events that decides the lowest."""
    last = max(counts.committed, counts.durable)
    base = last
    if contract.size_lags:
        base = max(
            (k + 1 for k in range(counts.durable, last) if file.events[k].sets_size), default=counts.durable
        )
    low = max(
        (file.size_at(base), *(size_kept(file, k, last) for k in range(counts.durable, counts.returned)))
    )
    high = file.size_at(last)
    whole = counts.partly and file.events[counts.committed].kind is EventKind.EXCHANGE
    if (
        counts.partly and not whole and last == counts.committed
    ):  # a smaller size is covered by j + 1 operations
        high = max(high, file.size_at(last + 1))
    return low, high, base


def size_kept(file: FileHistory, k: int, committed: int) -> int:
    """The size in bytes that event k, which has returned, keeps on disk (rule 9)."""
    event = file.events[k]
    if event.kind is not EventKind.FLUSH or not event.with_size:
        return 0
    cut_off = (e.size_after for e in file.events[k + 1 : committed] if e.size_after < e.size_before)
    return min((event.end, *cut_off))


def journaled(contract: Contract, file: FileHistory, counts: EventCounts, reach: int) -> Iterator[Allowance]:
    """What `file` may hold in data=journal (rule 6), the most common case first. `reach`: the offset up to
    which the recovered file holds data of operation j; it selects the pages to try.
    """
    events = max(counts.committed, counts.durable)
    size = file.size_at(events)
    content = file.content(events)
    cells = _Cells(content, ())
    least = allocated(contract, file, counts)
    yield Allowance(size, size, events, tuple(cells.starts), tuple(cells.origins), (), least)
    if counts.partly and events == counts.committed:
        event = file.events[events]
        if event.kind is EventKind.WRITE and not event.mapped:
            partly = _first_pages(content, events, event, reach)
            yield from (dataclasses.replace(a, allocated=least) for a in partly)
        elif not event.changes_nothing and event.kind is not EventKind.EXCHANGE:
            yield dataclasses.replace(_half_done(content, events, event), allocated=least)


def _first_pages(content: Content, events: int, event: FileEvent, reach: int) -> Iterator[Allowance]:
    """The write's whole pages, up to `reach`."""
    end = reach // BLOCK_BYTES * BLOCK_BYTES
    if end > event.start:
        cells = _Cells(content, (event.start, end))
        cells.put(event.start, end, frozenset({event.index}))
        grown = max(event.size_before, end)
        yield Allowance(grown, grown, events, tuple(cells.starts), tuple(cells.origins))


def _half_done(content: Content, events: int, event: FileEvent) -> Allowance:
    """Any subset of the blocks of a shrink, punch, zero-range, extension, clone, copy or shift, or of the
    bytes stored into a mapping.
    """
    cells = _Cells(content, _bounds(event))
    if event.kind is EventKind.CLONE:
        _clone(cells, event, committed=False)
    elif event.kind is EventKind.SHIFT:
        cells.may_hold(_on_the_way(event))
    elif event.kind is EventKind.COPY:
        cells.may_hold(event.content)
    else:
        cells.add(event.start, event.end, event.index if event.kind is EventKind.WRITE else ZERO)
    low, high = event.size_before, max(event.size_before, event.size_after)
    return Allowance(low, high, events, tuple(cells.starts), tuple(cells.origins))
