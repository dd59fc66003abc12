"""The events of a recording, and their join with its log: when each write was submitted and completed.

The guest's block layer reports each bio of the recorded device when it is submitted (`block_bio_queue`) and
when it completes (`block_bio_complete`); the agent puts its marks between them (`powercut: ack 7`). The text
is the kernel's own, an event a line:

    tracing_mark_write: powercut: begin 0
    block_bio_queue: 254,0 FWFS 66312 + 8 [jbd2/dm-0-8]
    block_bio_complete: 254,0 WFS 66312 + 8 [0]

A time is the number of a line. Letters before the sector (`blk_fill_rwbs` in kernel/trace/blktrace.c): F for
a flush before the data (REQ_PREFLUSH), W or D for a write or discard, F for FUA, and hints.

How bios become entries (drivers/md/dm.c, drivers/md/dm-log-writes.c): device-mapper sends a flush with data
as an empty flush, then as the data without REQ_PREFLUSH, which is how the bio completes. So each flush, with
data or without, is one FLUSH entry, and data an entry of its own. Ordinary writes and discards queue for the
log when they complete, FUA writes are logged when they complete. So of the entries of one kind, place and
length, the n-th in the log is the n-th to complete. Flushes complete in the order in which they were
submitted (block/blk-flush.c), so the n-th FLUSH entry is the n-th flush.

Whatever does not fit together exactly is an EventsDiffer: a recording whose times are wrong would lead to
crash states that never existed, or hide some that did.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.errors import EventsDiffer
from harness.model import EntryFlag, LogEntry
from harness.writelog.log import changes
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
    in units of 512 bytes; a flush without data has none.
    """

    at: int
    completes: bool
    preflush: bool
    kind: str
    fua: bool
    sector: int
    sectors: int

    @property
    def key(self) -> _Key:
        """What the two lines of a bio, and its entry, have in common."""
        return (self.kind, self.sector, self.sectors, self.fua)


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
    devices: set[str] = set()
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
            devices.add(device)
            bios.append(
                Bio(at, word == "complete", bool(preflush), kind, bool(fua), int(sector), int(sectors))
            )
        elif mark := _MARK.fullmatch(line):
            marks.append((at, mark[1]))
        else:
            raise EventsDiffer(
                f"event {at} of {len(lines)} is none that was asked for: {line[:200]!r}", _AGAIN
            )
    if len(devices) > 1:
        raise EventsDiffer(f"the events are of several devices: {', '.join(sorted(devices))}", _AGAIN)
    return Events(tuple(bios), tuple(marks), len(lines))


def no_events(why: str) -> str:
    """The text that is kept where the kernel gave no events."""
    return f"{_LACKING}{' '.join(why.split())}\n"


def why_no_events(text: str) -> str:
    """Why there are none, if the text says so; else empty."""
    return text.removeprefix(_LACKING).strip() if text.startswith(_LACKING) else ""


def times_of(entries: Sequence[LogEntry], text: str) -> Times | None:
    """The times of the log's entries by the events in `text`; None where the kernel gave none. Raises
    EventsDiffer as `read_events` and `join` do.
    """
    return None if why_no_events(text) else join(entries, read_events(text))


_AGAIN = "events were lost, or are of another recording: record again"


def join(entries: Sequence[LogEntry], events: Events) -> Times:
    """The times of the log's entries.

    Where several flushes without data are in flight at once, the lines do not tell which one completes. The
    one submitted last is taken: that makes the most writes durable, so no crash state is derived that the
    device could not be in.

    Raises EventsDiffer where events and entries do not fit together: an event or entry without its
    counterpart, one that fits two, marks that differ.
    """
    marks = _join_marks(entries, events.marks)
    writes, flushes = _pair(events.bios)
    timed = _join_writes([e for e in entries if changes(e)], writes)
    timed_flushes = _join_flushes([e.index for e in entries if EntryFlag.FLUSH in e.flags], flushes, timed)
    completed = {w.entry: w.completed for w in timed} | {f.entry: f.completed for f in timed_flushes}
    _check_order(len(entries), completed, marks)
    in_order = sorted(timed, key=lambda w: w.submitted)
    return Times(tuple(in_order), tuple(timed_flushes), marks, events.count)


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
    """A bio with data that was submitted and has completed."""

    bio: Bio
    completed: int


def _pair(bios: Iterable[Bio]) -> tuple[list[_Done], list[_Done]]:
    """Submissions with completions, in the order of completion: bios with data, and flushes without."""
    open_bios: dict[_Key, list[Bio]] = defaultdict(list)
    writes: list[_Done] = []
    flushes: list[_Done] = []
    for bio in bios:
        waiting = open_bios[bio.key if bio.sectors else _FLUSH]
        if not bio.completes:
            if waiting and bio.sectors:
                raise EventsDiffer(
                    f"two equal writes are in flight at once, submitted in events {waiting[0].at} and "
                    f"{bio.at}: {_shown(bio.key)}",
                    "which of them completes first cannot be told: record again",
                )
            waiting.append(bio)
        elif not waiting:
            raise EventsDiffer(f"event {bio.at} completes what was not submitted: {_shown(bio.key)}", _AGAIN)
        else:
            (writes if bio.sectors else flushes).append(_Done(waiting.pop(), bio.at))
    if left := [bio for waiting in open_bios.values() for bio in waiting]:
        raise EventsDiffer(
            f"{len(left)} requests never completed, the first submitted in event {left[0].at}: "
            f"{_shown(left[0].key)}",
            _AGAIN,
        )
    return writes, flushes


_FLUSH: _Key = ("W", 0, 0, False)


def _join_flushes(
    entries: Sequence[int], flushes: Sequence[_Done], writes: Sequence[TimedWrite]
) -> list[TimedFlush]:
    """The flushes without data, in the order of completion. `entries`: numbers of the log's flushes, those
    ahead of a write with REQ_PREFLUSH among them.
    """
    ahead = [w for w in writes if w.preflush]
    if len(entries) != len(flushes) + len(ahead):
        raise EventsDiffer(
            f"the log has {len(entries)} flushes, the events {len(flushes) + len(ahead)}", _AGAIN
        )
    submitted = sorted([*(w.submitted for w in ahead), *(f.bio.at for f in flushes)])
    entry_of = dict(zip(submitted, entries, strict=True))
    for write in ahead:
        if entry_of[write.submitted] > write.entry:
            raise EventsDiffer(
                f"entry {write.entry} was written before the flush ahead of it, entry "
                f"{entry_of[write.submitted]}",
                _AGAIN,
            )
    own = sorted(entry_of[f.bio.at] for f in flushes)
    return [TimedFlush(n, f.bio.at, f.completed) for n, f in zip(own, flushes, strict=True)]


def _join_writes(entries: Sequence[LogEntry], writes: Sequence[_Done]) -> list[TimedWrite]:
    """In the order of the log."""
    waiting: dict[_Key, list[_Done]] = defaultdict(list)
    for done in writes:
        waiting[done.bio.key].append(done)
    occurrences: dict[_Key, int] = defaultdict(int)
    timed: list[TimedWrite] = []
    for entry in entries:
        key = _key_of(entry)
        number = occurrences[key]
        occurrences[key] += 1
        if number >= len(waiting[key]):
            raise EventsDiffer(
                f"entry {entry.index} of the log has no event: {_shown(key)}, occurrence {number}", _AGAIN
            )
        bio, completed = waiting[key][number].bio, waiting[key][number].completed
        timed.append(TimedWrite(entry.index, bio.at, completed, bio.fua, bio.preflush))
    for key, all_of_it in waiting.items():
        if len(all_of_it) != occurrences[key]:
            extra = all_of_it[occurrences[key]].bio
            raise EventsDiffer(f"event {extra.at} has no entry in the log: {_shown(key)}", _AGAIN)
    return timed


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


def _key_of(entry: LogEntry) -> _Key:
    kind = "D" if EntryFlag.DISCARD in entry.flags else "W"
    return (kind, entry.sector, entry.sectors, EntryFlag.FUA in entry.flags)


def _shown(key: _Key) -> str:
    kind, sector, sectors, fua = key
    if not sectors:
        return "a flush"
    what = "discard" if kind == "D" else "FUA write" if fua else "write"
    return f"{what} of sectors {sector} + {sectors}"


# --- true order ------------------------------------------------------------------------------


def true_orders(entries: Sequence[LogEntry], times: Times) -> list[tuple[int, ...]]:
    """Orders, as entry numbers, in which the device may have applied the writes: as they were submitted, or,
    of writes that overlap and were in flight together, as they completed. One order where there are none of
    these.
    """
    submitted = tuple(w.entry for w in times.writes)
    if not _overlap_in_flight(entries, times):
        return [submitted]
    completed = sorted(times.writes, key=lambda w: w.completed)
    return list(dict.fromkeys([submitted, tuple(w.entry for w in completed)]))


def _overlap_in_flight(entries: Sequence[LogEntry], times: Times) -> bool:
    flying: list[TimedWrite] = []
    for write in times.writes:
        flying = [w for w in flying if w.completed > write.submitted]
        if any(_overlap(entries[w.entry], entries[write.entry]) for w in flying):
            return True
        flying.append(write)
    return False


def _overlap(a: LogEntry, b: LogEntry) -> bool:
    return a.sector < b.sector + b.sectors and b.sector < a.sector + a.sectors
