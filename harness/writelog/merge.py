"""One log of several devices, from the log of each: in the order in which things were logged.

Each device has a dm-log-writes of its own, so its log has what its own flushes made durable, when they did.
The order over both is that of the events, which one clock numbers. An entry has the time at which it was
logged: for a mark, a FUA write and a flush the event that says so; for all else that of the next such entry
of its log, which is the flush that took it along.

So a prefix of the merged log is a state that a power cut may leave: at the time of its last entry, each
device has what its own log had by then, and that contains whatever was durable.

Of a disk without a volatile cache, a write is logged when it completes: it is durable then, as with FUA, and
its entry says so. The guest's log has it whenever a flush came at last, so here times alone make the order.

The devices lie one behind the other on the disk. The merged log has the sectors of the disk, also for
flushes: theirs is the first of their device.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from harness.errors import WriteLogError
from harness.model import SECTOR_BYTES, EntryFlag, LogEntry
from harness.writelog.events import END_MARK, Events, bios_of, join_device, read_events
from harness.writelog.log import (
    HEADER,
    MAGIC,
    SUPER,
    VERSION,
    WriteLog,
    changes,
    copy_part,
    devices_of,
    read_log,
)

_PAGE_BYTES = 4096


def log_places(device_bytes: int, devices: int) -> tuple[int, ...]:
    """Where on a log device of this size the log of each device begins (`vms/agent/src/logs.rs`)."""
    slice_bytes = device_bytes // devices // _PAGE_BYTES * _PAGE_BYTES
    return tuple(number * slice_bytes for number in range(devices))


def merge_logs(
    device: Path, places: Sequence[int], text: str, merged: Path, *, write_through: bool = False
) -> int:
    """Write the merged log as `merged`. `device`: the log device, on which the log of each device begins at
    one of `places`; `text`: the events of all. `write_through`: the disk has no volatile cache. Returns where
    the last log ends.

    Raises WriteLogError for a log that is none, is truncated or reaches into the next, EventsDiffer for
    events that do not fit.
    """
    logs = [read_log(device, at) for at in places]
    for (at, behind), log in zip(itertools.pairwise(places), logs, strict=False):
        if at + log.used_bytes > behind:
            raise WriteLogError(
                f"{device}: the log at byte {at} reaches into the next: it has {log.used_bytes} bytes",
                "record a shorter workload, or give --log-size a larger value",
            )
    with device.open("rb") as source, merged.open("wb") as target:
        chosen = _in_order(logs, read_events(text), through=write_through)
        target.write(SUPER.pack(MAGIC, VERSION, len(chosen), SECTOR_BYTES).ljust(SECTOR_BYTES, b"\0"))
        for number, entry in chosen:
            _put(source, places[number] + entry.data_offset, entry, target)
    return places[-1] + logs[-1].used_bytes


_FROM_QUEUE = re.compile(r"(?m)^(block_bio_(?:queue|complete): [0-9,]+ F?[WD])(?=[A-EG-Z]* [0-9]+ \+ [1-9])")


def written_through(text: str) -> str:
    """The events of a disk without a volatile cache, in which each write says that it is durable once it
    completes: as with FUA.
    """
    return _FROM_QUEUE.sub(r"\1F", text)


def _in_order(logs: Sequence[WriteLog], events: Events, *, through: bool) -> list[tuple[int, LogEntry]]:
    """The entries, each with the number of its log, and with the sectors of the disk."""
    devices = devices_of(logs[0].entries)
    timed: list[Iterator[tuple[int, int, LogEntry]]] = []
    for number, (log, bios) in enumerate(zip(logs, bios_of(events, devices), strict=True)):
        begin = devices.begins[number]
        entries = [
            replace(e, sector=begin + e.sector) for e in log.entries if not number or e.mark != END_MARK
        ]
        writes, flushes = join_device(entries, bios, number)
        logged = {w.entry: w.completed for w in writes if w.fua or through}
        logged |= {f.entry: f.completed for f in flushes}
        if not number:
            marks = [e.index for e in entries if EntryFlag.MARK in e.flags and e.mark != END_MARK]
            logged |= dict(zip(marks, (at for at, _ in events.marks), strict=False))
        if through:
            # In the order of their events, each write as one with FUA
            in_order = sorted(entries, key=lambda e: logged.get(e.index, events.count))
            entries = [replace(e, flags=e.flags | EntryFlag.FUA) if changes(e) else e for e in in_order]
        timed.append(_timed(number, entries, logged, events.count))
    return [(number, entry) for _, number, entry in heapq.merge(*timed, key=lambda t: t[:2])]


def _timed(
    number: int, entries: Sequence[LogEntry], logged: dict[int, int], end: int
) -> Iterator[tuple[int, int, LogEntry]]:
    """The entries, each with when it was logged."""
    times: list[int] = []
    for entry in reversed(entries):
        end = min(end, logged.get(entry.index, end))
        times.append(end)
    for at, entry in zip(reversed(times), entries, strict=True):
        yield at, number, entry


def _put(source: BinaryIO, at: int, entry: LogEntry, target: BinaryIO) -> None:
    """Write the entry with its data, which are at byte `at` of `source`."""
    mark = entry.mark.encode(errors="backslashreplace") if EntryFlag.MARK in entry.flags else b""
    header = HEADER.pack(entry.sector, entry.sectors, entry.flags, len(mark)) + mark
    target.write(header.ljust(SECTOR_BYTES, b"\0"))
    source.seek(at)
    if EntryFlag.DISCARD not in entry.flags:
        copy_part(source, target, entry.sectors * SECTOR_BYTES, f"entry {entry.index}")
