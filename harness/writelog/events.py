"""The events of a recording, and their join with its log: when each write was submitted and completed.

The guest's block layer reports each bio of the recorded devices when it is submitted (`block_bio_queue`) and
when it completes (`block_bio_complete`); the agent puts its marks between them (`powercut: ack 7`). The text
is the kernel's own, an event a line:

    tracing_mark_write: powercut: begin 0
    block_bio_queue: 254,0 FWFS 66312 + 8 [jbd2/dm-0-8]
    block_bio_complete: 254,0 WFS 66312 + 8 [0]

A time is the number of a line. Lines about the calls of programs are for `calls.py`. Letters before the
sector (`blk_fill_rwbs` in kernel/trace/blktrace.c): F for a flush before the data (REQ_PREFLUSH), W or D for
a write or discard, F for FUA, and hints.

How bios become entries (drivers/md/dm.c, drivers/md/dm-log-writes.c): device-mapper sends a flush with data
as an empty flush, then as the data without REQ_PREFLUSH, which is how the bio completes. So each flush, with
data or without, is one FLUSH entry, and data an entry of its own. Ordinary writes and discards queue for the
log when they complete, FUA writes are logged when they complete. So of the entries of one kind, place and
length, the n-th in the log is the n-th to complete.

Which of several flushes in flight together completes, no event tells: the line of a completion has no
number, no pointer and no task (include/trace/events/block.h, Linux 6.12). But the log does where it
matters. A flush takes the writes that have completed with it when it is submitted, and puts them into the
log, followed by itself, when it completes (`log_writes_map`, `normal_end_io`). So a FLUSH entry is a flush
that was submitted after the writes in front of it had completed, and no later than the first one after
that. Where even this leaves room, flushes most likely completed in the order in which they were submitted
(block/blk-flush.c: one queue), but one task may overtake another between the event and that queue. So there
both bounds are kept: see `TimedFlush`.

A file system that writes a block twice may put its copy behind it (btrfs' mirrored metadata:
`bio_inc_remaining` in `btrfs_submit_mirrored_bio`, fs/btrfs/bio.c): then the kernel tells the completion of
the one with that of the copy, in the next line, however long ago it was. The log has both in the order in
which they completed. So such a line is an upper bound, and what the log has behind the entry is another:
see `_tightened`.

Of two devices (the log's first mark names them: `log.py`) each has its own flushes: all of this is done for
each on its own. The lines have one order over both, since one clock numbers them.

Whatever does not fit together exactly is an EventsDiffer: a recording whose times are wrong would lead to
crash states that never existed, or hide some that did.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from harness.errors import EventsDiffer
from harness.host.text import without_error_numbers
from harness.model import SECTOR_BYTES, EntryFlag, LogEntry
from harness.writelog.calls import is_call_line
from harness.writelog.log import Devices, changes, devices_of
from harness.writelog.times import TimedFlush, TimedMark, TimedWrite, Times

_LACKING = "no events: "
END_MARK = "dm-log-writes-end"
"""The log's last mark, which the removal of the target makes. The events end before it."""

_BIO = re.compile(
    r"block_bio_(queue|complete): ([0-9]{1,9},[0-9]{1,9}) (F?)([A-Z])(F?)([A-EG-Z]*) "
    r"([0-9]{1,20}) \+ ([0-9]{1,20}) \[(.*)\]"
)
_MARK = re.compile(r"[^ ]+: powercut: (.*)")


@dataclass(frozen=True, slots=True)
class Bio:
    """A line that tells of a bio: its submission, or its completion. `kind`: W or D. `sector` and `sectors`
    in units of 512 bytes; a flush without data has none. `number`: of its device. `sector` counts from there.
    """

    at: int
    completes: bool
    preflush: bool
    kind: str
    fua: bool
    sector: int
    sectors: int
    number: str = ""

    @property
    def key(self) -> _Key:
        """What the two lines of a bio, and its entry, have in common."""
        return (self.kind, self.sector, self.sectors, self.fua)

    def on_disk(self, begin: int) -> Bio:
        """With the sector of the disk, of a device that begins at this one; a flush has the first."""
        return replace(self, sector=begin + self.sector if self.sectors else begin)


_Key: TypeAlias = tuple[str, int, int, bool]


@dataclass(frozen=True, slots=True)
class Events:
    """What a recording's lines say: bios, and marks with their times, in order. `count`: of lines."""

    bios: tuple[Bio, ...]
    marks: tuple[tuple[int, str], ...]
    count: int


def read_events(text: str) -> Events:
    """Read the lines. Raises EventsDiffer for one that is not such an event: among them are those with which
    the kernel reports that it lost some.
    """
    bios: list[Bio] = []
    marks: list[tuple[int, str]] = []
    lines = text.split("\n")
    if lines.pop():
        raise EventsDiffer(f"the events end in the middle of a line, of {len(lines) + 1}", _AGAIN)
    for at, line in enumerate(lines):
        if bio := _BIO.fullmatch(line):
            word, device, preflush, kind, fua, _, sector, sectors, last = bio.groups()
            if word == "complete" and last != "0":
                raise EventsDiffer(f"event {at}: a request failed with errno {last}: {line!r}", _AGAIN)
            if kind not in "WD":
                raise EventsDiffer(f"event {at} is neither a write nor a discard: {line!r}", _AGAIN)
            done, ahead = word == "complete", bool(preflush)
            bios.append(Bio(at, done, ahead, kind, bool(fua), int(sector), int(sectors), device))
        elif mark := _MARK.fullmatch(line):
            marks.append((at, mark[1]))
        elif not is_call_line(line):
            raise EventsDiffer(
                f"event {at} of {len(lines)} is none that was asked for: {line[:200]!r}", _AGAIN
            )
    return Events(tuple(bios), tuple(marks), len(lines))


def no_events(why: str) -> str:
    """The text that is kept where the kernel gave no events."""
    return f"{_LACKING}{' '.join(why.split())}\n"


def why_no_events(text: str) -> str:
    """Why there are none, if the text says so; else empty."""
    lacking = text.removeprefix(_LACKING).strip() if text.startswith(_LACKING) else ""
    return without_error_numbers(lacking)


def times_of(entries: Sequence[LogEntry], text: str) -> Times | None:
    """The times of the log's entries by the events in `text`; None where the kernel gave none. Raises
    EventsDiffer as `read_events` and `join` do.
    """
    return None if why_no_events(text) else join(entries, read_events(text))


_AGAIN = "events were lost, or are of another recording: record again"


def join(entries: Sequence[LogEntry], events: Events) -> Times:
    """The times of the log's entries. Raises EventsDiffer where events and entries do not fit together: an
    event or entry without its counterpart, one that fits two, marks that differ.
    """
    devices = devices_of(entries)
    marks = _join_marks(entries, events.marks)
    late = Late(behind_copies(events.bios), {m.entry: m.at for m in marks})
    joined = [
        join_device([e for e in entries if devices.of(e.sector) == device], bios, device, late)
        for device, bios in enumerate(bios_of(events, devices))
    ]
    timed, flushes = [w for ws, _ in joined for w in ws], [f for _, fs in joined for f in fs]
    completed = {w.entry: w.completed for w in timed} | {f.entry: f.completed for f in flushes}
    _check_order(len(entries), completed, marks)
    timed.sort(key=lambda w: w.submitted)
    flushes.sort(key=lambda f: f.completed)
    return Times(tuple(timed), tuple(flushes), marks, events.count)


def bios_of(events: Events, devices: Devices) -> Sequence[Sequence[Bio]]:
    """The events of each device, with sectors of the disk. Raises EventsDiffer for those of no device."""
    numbers = {bio.number for bio in events.bios}
    known = {*devices.numbers} if devices.several else {*sorted(numbers)[:1]}
    if numbers - known:
        named = ", ".join(sorted(numbers | known))
        raise EventsDiffer(f"the events are of several devices: {named}", _AGAIN)
    if not devices.several:
        return [events.bios]
    found: dict[str, list[Bio]] = {number: [] for number in devices.numbers}
    begins = dict(zip(devices.numbers, devices.begins, strict=True))
    for bio in events.bios:
        found[bio.number].append(bio.on_disk(begins[bio.number]))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Late:
    """What it takes to know when writes completed that the kernel may have told late. `events`: those of such
    completions; `marks`: the events of marks, by entry.
    """

    events: Set[int] = frozenset()
    marks: Mapping[int, int] = field(default_factory=dict)


def join_device(
    entries: Sequence[LogEntry], bios: Sequence[Bio], device: int, late: Late = Late()
) -> tuple[list[TimedWrite], list[TimedFlush]]:
    """Writes in the order of the log and flushes in that of completion, of one device: with its entries and
    its events, both with sectors of the disk. Raises EventsDiffer.
    """
    writes, flushes = _pair(bios)
    timed = _join_writes([e for e in entries if changes(e)], writes, device)
    timed = _tightened(entries, flushes, timed, late)
    return timed, _join_flushes(entries, flushes, timed, device, late.marks)


def behind_copies(bios: Sequence[Bio]) -> Set[int]:
    """The events of completions that may be told late: each in the line behind the completion of a write of
    equal length that was submitted before it.
    """
    submitted: dict[tuple[str, _Key], int] = {}
    last, found = (-1, -1, 0), set[int]()  # of the completion before: its line, its submission, its length
    for bio in bios:
        whose = (bio.number, bio.key)
        if not bio.completes:
            submitted[whose] = bio.at
        elif bio.sectors and not bio.fua:
            begun = submitted.get(whose, -1)
            if last[0] == bio.at - 1 and last[1] < begun and last[2] == bio.sectors:
                found.add(bio.at)
            last = (bio.at, begun, bio.sectors)
    return found


def _join_marks(entries: Sequence[LogEntry], marks: Sequence[tuple[int, str]]) -> tuple[TimedMark, ...]:
    logged = [e for e in entries if EntryFlag.MARK in e.flags]
    if logged and logged[-1].mark == END_MARK:
        logged.pop()
    pairs = list(zip(logged, marks, strict=False))
    same = next((i for i, (e, (_, text)) in enumerate(pairs) if e.mark != text), len(pairs))
    if same < max(len(logged), len(marks)):
        raise EventsDiffer(
            f"the log has {len(logged)} marks, the events {len(marks)}: they differ in mark {same}", _AGAIN
        )
    return tuple(TimedMark(e.index, at, text) for e, (at, text) in pairs)


@dataclass(frozen=True, slots=True)
class _Done:
    """A bio with data that was submitted and has completed. `submitted`: the latest event that may be its
    submission; `since`: the earliest, if that is another one.
    """

    key: _Key
    preflush: bool
    submitted: int
    completed: int
    since: int | None = None


@dataclass(frozen=True, slots=True)
class _Flushes:
    """Flushes without data: when each was submitted, and when one of them completed. `ahead`: when those
    ahead of data were submitted. All ascend.
    """

    submitted: list[int]
    completed: list[int]
    ahead: list[int]


@dataclass(slots=True)
class _Flying:
    """Equal bios in flight: how many, the submissions of the first and the last since there were none,
    and whether they have a flush ahead of them: all or none.
    """

    count: int = 0
    first: int = -1
    last: int = -1
    preflush: bool = False

    def submit(self, bio: Bio) -> None:
        if not self.count:
            self.first = bio.at
        self.last, self.preflush = bio.at, bio.preflush
        self.count += 1


def _pair(bios: Iterable[Bio]) -> tuple[list[_Done], _Flushes]:
    """Bios with data, in the order of completion, and flushes without.

    Of equal writes in flight together no event tells which one completes. Each of them was submitted at the
    earliest when the first of them was since none was in flight, at the latest with the last one before it
    completed. So are two updates of the superblock of a bitmap of md, each with a flush ahead of it.
    """
    flying: dict[_Key, _Flying] = defaultdict(_Flying)
    writes, flushes = list[_Done](), _Flushes([], [], [])
    for bio in bios:
        key = bio.key if bio.sectors else _FLUSH
        of_key = flying[key]
        if not bio.completes:
            if bio.sectors and of_key.count and bio.preflush != of_key.preflush:
                raise EventsDiffer(
                    f"two equal writes are in flight at once, submitted in events {of_key.first} and "
                    f"{bio.at}, with a flush ahead of only one of them: {_shown(key)}",
                    "which of them completes first cannot be told: record again",
                )
            of_key.submit(bio)
            if not bio.sectors:
                flushes.submitted.append(bio.at)
            elif bio.preflush:
                flushes.ahead.append(bio.at)
        elif not of_key.count:
            raise EventsDiffer(f"event {bio.at} completes what was not submitted: {_shown(key)}", _ANOTHERS)
        else:
            of_key.count -= 1
            if bio.sectors:
                since = of_key.first if of_key.first != of_key.last else None
                writes.append(_Done(key, of_key.preflush, of_key.last, bio.at, since))
            else:
                flushes.completed.append(bio.at)
    if left := [(key, of_key) for key, of_key in flying.items() if of_key.count]:
        raise EventsDiffer(
            f"{sum(of_key.count for _, of_key in left)} requests never completed, the first submitted in "
            f"event {left[0][1].first}: {_shown(left[0][0])}",
            _AGAIN,
        )
    return writes, flushes


_FLUSH: _Key = ("W", 0, 0, False)
_ANOTHERS = (
    "record again; or a layer above gives the device's number to requests that it does not send there, as "
    "bcache does: put `linear` between them, as in vms/stacks/bcache.toml"
)


def _join_flushes(
    entries: Sequence[LogEntry],
    flushes: _Flushes,
    writes: Sequence[TimedWrite],
    device: int,
    marks: Mapping[int, int],
) -> list[TimedFlush]:
    """The flushes without data, in the order of completion. `marks`: see `Late`."""
    logged = [e.index for e in entries if EntryFlag.FLUSH in e.flags]
    ahead = [w for w in writes if w.preflush]
    submitted = sorted([*flushes.ahead, *flushes.submitted])
    if len(logged) != len(submitted):
        raise EventsDiffer(f"the log has {len(logged)} flushes, the events {len(submitted)}", _AGAIN)
    first = _groups(logged, submitted, sorted([*flushes.completed, *(w.completed for w in ahead)]), writes)
    rank = {at: number for number, at in enumerate(submitted)}
    for write in ahead:
        flush = logged[first[rank[write.earliest]]]
        if flush > write.entry:
            raise EventsDiffer(
                f"entry {write.entry} was written before the flush ahead of it, entry {flush}", _AGAIN
            )
    timed: list[TimedFlush] = []
    for start, group in itertools.groupby(flushes.submitted, key=lambda at: first[rank[at]]):
        own = list(group)
        completed = flushes.completed[len(timed) : len(timed) + len(own)]
        of_group = logged[start : bisect.bisect_right(first, start)]
        named = _apart_by_marks(of_group, [logged[rank[at]] for at in own], completed, marks)
        for entry, at, may, must in zip(named, completed, *flush_bounds(own, completed), strict=True):
            timed.append(TimedFlush(entry, may, at, None if may == must else must, device))
    return timed


def _apart_by_marks(
    group: Sequence[int], likely: Sequence[int], completed: Sequence[int], marks: Mapping[int, int]
) -> list[int]:
    """Which entries of a group are the flushes that completed in these events, where a mark tells. `likely`:
    those by the order in which they were submitted. One that completed behind the event of a mark is no entry
    in front of that mark: a flush ahead of data, of whose completion no event tells, is.
    """
    places = sorted(marks)
    named: list[int] = []
    for entry, at in zip(likely, completed, strict=True):
        later = (e for e in group if e >= entry and not (named and e <= named[-1]))
        fits = (e for e in later if marks.get(_next(places, e), at) >= at)
        named.append(next(fits, entry))
    return named


def _next(places: Sequence[int], entry: int) -> int:
    """The first of them behind an entry; -1: there is none."""
    at = bisect.bisect_right(places, entry)
    return places[at] if at < len(places) else -1


def _groups(
    logged: Sequence[int], submitted: Sequence[int], completed: Sequence[int], writes: Sequence[TimedWrite]
) -> list[int]:
    """For each flush, the first of its group: which entry is which flush is certain but for the order within
    a group. The flushes ahead of data are among them; `completed`: events by which so many had completed.

    An entry is at most the last flush submitted before so many had completed, and the first submitted after
    all writes in front of the entry had. Raises EventsDiffer for a write that is logged behind a flush that
    would have taken it along.
    """
    behind: list[list[TimedWrite]] = [[] for _ in range(len(logged) + 1)]
    for write in writes:
        if not write.fua:
            behind[bisect.bisect_left(logged, write.entry)].append(write)
    first, start, highest = list[int](), 0, -1
    for number, taken in enumerate(behind[:-1]):
        bound = bisect.bisect_left(submitted, completed[number]) - 1
        if taken:
            bound = min(bound, bisect.bisect_left(submitted, max(w.completed for w in taken)))
        highest = max(highest, bound)
        first.append(start)
        if highest == number:
            start = number + 1
    for at, taken in zip([*first, len(logged)], behind, strict=True):
        for write in taken:
            if bisect.bisect_left(submitted, write.completed) < at:
                raise EventsDiffer(
                    f"entry {write.entry} had completed when a flush was submitted, and is logged behind it",
                    _AGAIN,
                )
    return first


def flush_bounds(submitted: Sequence[int], completed: Sequence[int]) -> tuple[list[int], list[int]]:
    """For each completion of a flush, the submission of the latest flush that may have completed by then, and
    of the latest that must have. Both arguments ascend. Raises EventsDiffer where one completes too early.
    """
    for begin, at in zip(submitted, completed, strict=True):
        if begin > at:
            raise EventsDiffer(f"event {at} completes a flush that is submitted in event {begin}", _AGAIN)
    may = [submitted[bisect.bisect_left(submitted, at) - 1] for at in completed]
    return may, list(submitted)


def _join_writes(entries: Sequence[LogEntry], writes: Sequence[_Done], device: int) -> list[TimedWrite]:
    """In the order of the log."""
    waiting: dict[_Key, list[_Done]] = defaultdict(list)
    for done in writes:
        waiting[done.key].append(done)
    occurrences: dict[_Key, int] = defaultdict(int)
    timed: list[TimedWrite] = []
    for entry in entries:
        kind = "D" if EntryFlag.DISCARD in entry.flags else "W"
        key = (kind, entry.sector, entry.sectors, EntryFlag.FUA in entry.flags)
        number = occurrences[key]
        occurrences[key] += 1
        if number >= len(waiting[key]):
            raise EventsDiffer(
                f"entry {entry.index} of the log has no event: {_shown(key)}, occurrence {number}", _AGAIN
            )
        done, fua = waiting[key][number], EntryFlag.FUA in entry.flags
        timed.append(
            TimedWrite(entry.index, done.submitted, done.completed, fua, done.preflush, done.since, device)
        )
    for key, all_of_it in waiting.items():
        if len(all_of_it) != occurrences[key]:
            extra = all_of_it[occurrences[key]].submitted
            raise EventsDiffer(f"event {extra} has no entry in the log: {_shown(key)}", _AGAIN)
    return timed


def _tightened(
    entries: Sequence[LogEntry], flushes: _Flushes, writes: Sequence[TimedWrite], late: Late
) -> list[TimedWrite]:
    """The writes, with those that completed before the kernel told it no later than the log allows: before
    ordinary writes behind them completed, a flush behind them was submitted, and a mark behind them was made.

    One that completed before anything else happened counts as completed in the event of its submission.
    """
    number = sum(EntryFlag.FLUSH in e.flags for e in entries)
    submitted = sorted([*flushes.ahead, *flushes.submitted])
    completed = sorted([*flushes.completed, *(w.completed for w in writes if w.preflush)])
    by_entry = {w.entry: w for w in writes}
    if not late.events or len(submitted) != number:
        return list(writes)
    bound, tightened = math.inf, dict(by_entry)
    for entry in reversed(entries):
        write = by_entry.get(entry.index)
        if EntryFlag.FLUSH in entry.flags:
            number -= 1
            latest = bisect.bisect_left(submitted, completed[number]) - 1
            bound = min(bound, submitted[max(latest, 0)] - 1)
        elif write is None or write.fua:
            bound = min(bound, late.marks.get(entry.index, bound))
        elif write.completed in late.events and write.submitted <= bound < write.completed:
            tightened[write.entry] = replace(write, completed=int(bound))
        else:
            bound = min(bound, write.completed)
    return [tightened[w.entry] for w in writes]


def _check_order(count: int, completed: dict[int, int], marks: Sequence[TimedMark]) -> None:
    """Whatever stands before a mark in the log had completed when the mark was made. Raises EventsDiffer.
    `completed`: by number of entry, of `count` entries.
    """
    at_mark = {m.entry: m for m in marks}
    so_far = -1
    for entry in range(count):
        so_far = max(so_far, completed.get(entry, -1))
        mark = at_mark.get(entry)
        if mark is not None and so_far > mark.at:
            raise EventsDiffer(
                f"the mark {mark.text!r} was made in event {mark.at}, but what the log has before it "
                f"completed in event {so_far}",
                _AGAIN,
            )


def _shown(key: _Key) -> str:
    kind, sector, sectors, fua = key
    if not sectors:
        return "a flush"
    what = "discard" if kind == "D" else "FUA write" if fua else "write"
    return f"{what} of sectors {sector} + {sectors}"


# --- true order ------------------------------------------------------------------------------

_ORDERS_MAX = 256
"""Orders to try: each is a comparison of the whole device."""


def first_difference(
    entries: Sequence[LogEntry], times: Times, differs: Callable[[Sequence[int]], int | None]
) -> int | None:
    """None if the recorded device holds what one order leaves in which it may have applied the writes; else
    the first byte that differs by the order of submission. `differs` compares the device with the log's
    entries applied in an order, and returns the first byte that differs.

    Begins with the order of submission. Where a sector differs, each of its writes is put last that was in
    flight with the one that is: a queue, or a disk, may have turned them round. The order that agrees with
    most of the device is gone on with first.
    """
    timed = {w.entry: w for w in times.writes}
    submitted = tuple(w.entry for w in times.writes)
    first = differs(submitted)
    if first is None:
        return None
    seen, waiting = {submitted}, [(-first, submitted)]
    while waiting:
        byte, order = heapq.heappop(waiting)
        for other in _turned(order, entries, timed, -byte // SECTOR_BYTES):
            if other in seen:
                continue
            if len(seen) == _ORDERS_MAX:
                return first
            seen.add(other)
            found = differs(other)
            if found is None:
                return None
            heapq.heappush(waiting, (-found, other))
    return first


def _turned(
    order: Sequence[int], entries: Sequence[LogEntry], timed: Mapping[int, TimedWrite], sector: int
) -> Iterator[tuple[int, ...]]:
    """The orders in which another write of the sector is the last."""
    here = [n for n in order if entries[n].sector <= sector < entries[n].sector + entries[n].sectors]
    for entry in reversed(here[:-1]):
        turned = _behind(order, entries, timed, entry, here[-1])
        if turned is not None:
            yield turned


def _behind(
    order: Sequence[int], entries: Sequence[LogEntry], timed: Mapping[int, TimedWrite], entry: int, last: int
) -> tuple[int, ...] | None:
    """The order with `entry` behind `last`, and what has to come after it behind that; None where `last` has
    to.
    """
    begin, end = order.index(entry), order.index(last)
    moved, stay = [entry], list[int]()
    for other in order[begin + 1 : end + 1]:
        after = any(
            _overlap(entries[m], entries[other]) and timed[m].completed < timed[other].earliest for m in moved
        )
        (moved if after else stay).append(other)
    return None if last in moved else (*order[:begin], *stay, *moved, *order[end + 1 :])


def _overlap(a: LogEntry, b: LogEntry) -> bool:
    return a.sector < b.sector + b.sectors and b.sector < a.sector + a.sectors
