"""Whether the log of a recording may be trusted: it is complete, its events fit, and its replay gives the
data disk.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.errors import EnvironmentLacks, EventsDiffer, LogDiffers, WriteLogError
from harness.guests import wire
from harness.guests.disk import Disk
from harness.writelog import read_log
from harness.writelog.events import first_difference, no_events, times_of
from harness.writelog.merge import log_places, merge_logs, written_through

EVENTS_BYTES_MAX = 256 << 20
FULL_BYTES = 1 << 20
"""A host disk with less than this free counts as full."""


def finished_log(
    finished: wire.RecordFinished,
    disk: Disk,
    device: Path,
    log_bytes: int,
    *,
    write_through: bool = False,
) -> tuple[Path, str]:
    """The log of a recording that has been made, and the text of its events. `write_through`: the disk has
    no volatile cache. Raises WriteLogError if it cannot be trusted: LogDiffers and EventsDiffer if another
    may.
    """
    _check_log(finished, device, log_bytes)
    told, log = finished.events, device
    events = no_events(told.lacking) if told.lacking else _events(told, device)
    written = read_log(device)
    used = written.used_bytes
    if write_through and told.lacking:
        raise WriteLogError(
            f"nothing tells when writes to a disk without a volatile cache completed ({told.lacking})",
            "name a kernel with events: powercut list kernels",
        )
    if written.devices.several or write_through:
        log = device.with_name("merged.log")
        places = log_places(device.stat().st_size, len(written.devices.begins))
        used = merge_logs(device, places, events, log, write_through=write_through)
        events = written_through(events) if write_through else events
        written = read_log(log)
    if told.bytes and told.offset < used:
        raise WriteLogError(
            f"the log device has no room for the log, {used} bytes, and {told.bytes} bytes of events",
            "record a shorter workload, or give --log-size a larger value",
        )
    times = times_of(written.entries, events)
    if times is None:
        difference = disk.compare(log)
    else:
        difference = first_difference(written.entries, times, lambda order: disk.compare(log, order))
    if difference is not None:
        raise LogDiffers(
            f"replaying the whole log does not give the data disk: first difference at byte {difference}",
            "a page was changed while it was being written, or the log is incomplete: record again",
        )
    return log, events


def _check_log(finished: wire.RecordFinished, log: Path, log_bytes: int) -> None:
    """Raises WriteLogError if the log is incomplete."""
    if finished.logging_disabled:
        need_host_space(log)
        raise WriteLogError(
            f"dm-log-writes stopped logging (status: {finished.status.strip()}): the log device of "
            f"{log_bytes >> 20} MiB is full, or the guest is out of memory",
            "record a shorter workload, or give --log-size a larger value",
        )
    if finished.unmount_errno:
        raise WriteLogError(
            f"the recorded file system could not be unmounted: {os.strerror(finished.unmount_errno)}"
        )


def _events(told: wire.RecordedEvents, log: Path) -> str:
    """The text of the events, which the agent put at the end of the log device."""
    return _last(log, told.offset, told.bytes, "events").decode(errors="backslashreplace")


def noted_calls(finished: wire.RecordFinished, device: Path) -> bytes:
    """The notes of the calls of a recording, behind its events; empty if there are none. Raises EventsDiffer
    if they are not there.
    """
    told = finished.events
    return _last(device, told.offset + told.bytes, told.notes, "notes")


def _last(log: Path, offset: int, length: int, what: str) -> bytes:
    """What the agent put at the end of the log device."""
    with log.open("rb") as device:
        device.seek(offset)
        found = device.read(min(length, EVENTS_BYTES_MAX))
    if len(found) != length:
        raise EventsDiffer(
            f"the guest announced {length} bytes of {what} at byte {offset} of the log device, "
            f"{len(found)} are there",
            "record again",
        )
    return found


def need_host_space(log: Path) -> None:
    """Raises EnvironmentLacks if the host's disk, on which the sparse log device grows, is full."""
    free = shutil.disk_usage(log.parent).free
    if free < FULL_BYTES:
        raise EnvironmentLacks(
            f"the host's disk is full: {log.parent} has {free >> 10} KiB free, and the guest's writes to the "
            f"log failed",
            "free some space, or put the run elsewhere",
        )
