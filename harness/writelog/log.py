"""The format of dm-log-writes, as in drivers/md/dm-log-writes.c (`struct log_write_super`,
`struct log_write_entry`, `log_one_block`).

A superblock {magic, version, nr_entries, sectorsize}, then for each entry a header of one unit {sector,
nr_sectors, flags, data_len} followed by its data. A unit is `sectorsize` bytes; `sector` and `nr_sectors` are
in units. A discard has no data; the text of a mark is in its header.

A log of several devices was merged from the log of each (`merge.py`). Its first mark says which devices there
are: `devices 254,2+0 254,3+131072`, each with its number in the guest and the sector of the disk at which it
begins. Whatever an entry does, it does to the device in which its sector lies; so a flush has one too.

Not checked here: that the log is complete. Recording stops silently when the log device is full, which shows
in the target's status line and in a comparison with the data disk.
"""

from __future__ import annotations

import bisect
import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from harness.errors import WriteLogError
from harness.model import SECTOR_BYTES, EntryFlag, LogEntry

MAGIC = 0x6A736677736872
VERSION = 1
SUPER = struct.Struct("<QQQI")
HEADER = struct.Struct("<QQQQ")
_UNIT_BYTES_MAX = 65536
_COPY_BYTES = 1 << 20
_KNOWN_FLAGS = sum(EntryFlag)


DEVICES_MARK = "devices"
_ORDINALS = ("first", "second")
_DEVICE = re.compile(r"([0-9]{1,9},[0-9]{1,9})\+([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a recording: `begins`, the first sector of each on the disk, and `numbers`, what the
    guest called them. One has no number.
    """

    begins: tuple[int, ...] = (0,)
    numbers: tuple[str, ...] = ("",)

    def of(self, sector: int) -> int:
        """Which device a sector belongs to, from 0."""
        return bisect.bisect_right(self.begins, sector) - 1

    @property
    def several(self) -> bool:
        return len(self.begins) > 1

    def name(self, sector: int) -> str:
        """Of the device of a sector, where there are several; else empty: `second device` of two, `member 2`
        of more.
        """
        number = self.of(sector)
        if len(self.begins) > len(_ORDINALS):
            return f"member {number}"
        return f"{_ORDINALS[number]} device" if self.several else ""


ONE_DEVICE = Devices()


def devices_of(entries: Sequence[LogEntry]) -> Devices:
    """The devices that the first entry tells, if it does. Raises WriteLogError for those that cannot be."""
    if not entries or not entries[0].mark.startswith(f"{DEVICES_MARK} "):
        return ONE_DEVICE
    devices = [_DEVICE.fullmatch(word) for word in entries[0].mark.split()[1:]]
    found = [(m[1], int(m[2])) for m in devices if m]
    numbers, begins = tuple(n for n, _ in found), tuple(b for _, b in found)
    if (
        len(found) != len(devices)
        or begins[:1] != (0,)
        or sorted({*begins}) != [*begins]
        or len({*numbers}) < len(devices)
    ):
        raise WriteLogError(f"the log's first mark names no devices that can be: {entries[0].mark!r}", _CUT)
    return Devices(begins, numbers)


@dataclass(frozen=True)
class WriteLog:
    """A validated log. Entry i of the file is `entries[i]`."""

    path: Path
    unit_bytes: int
    entries: tuple[LogEntry, ...]
    used_bytes: int
    """Length of the log itself; on a log device, the rest of the file can be cut off."""

    def __getstate__(self) -> dict[str, object]:
        """A copy: another thread may compute a property while this one pickles."""
        return dict(vars(self))

    @property
    def entry_count(self) -> int:
        return len(self.entries)

    @cached_property
    def devices(self) -> Devices:
        """The devices that were recorded, each with a cache of its own. Raises WriteLogError."""
        return devices_of(self.entries)

    def device(self, entry: LogEntry) -> int:
        """Which device the entry belongs to, from 0."""
        return self.devices.of(entry.sector)

    @cached_property
    def marks(self) -> tuple[LogEntry, ...]:
        """Entries that are marks, in order."""
        return tuple(entry for entry in self.entries if EntryFlag.MARK in entry.flags)


def changes(entry: LogEntry) -> bool:
    """Whether the entry changes the device: a write or a discard of at least one sector."""
    return entry.sectors > 0 and EntryFlag.MARK not in entry.flags


def read_log(path: Path, at: int = 0) -> WriteLog:
    """Read the headers of the log in the file `path`, from its byte `at` on, a multiple of a page. Offsets
    are from there. Raises WriteLogError if it is not a log, or is truncated.
    """
    try:
        with path.open("rb") as file, _mapped(file.fileno(), path, at) as data:
            unit, count = _read_super(data, path)
            entries, used = _read_entries(data, unit, count, path)
    except OSError as error:
        raise WriteLogError(f"cannot read the write log {path}: {error}") from error
    return WriteLog(path, unit, tuple(entries), used)


def copy_part(source: BinaryIO, target: BinaryIO, length: int, what: str) -> None:
    """Copy so many bytes of a log device. Raises WriteLogError where it ends before `what` does."""
    while length:
        chunk = source.read(min(length, _COPY_BYTES))
        if not chunk:
            raise WriteLogError(f"the log device ends {length} bytes before {what} does")
        target.write(chunk)
        length -= len(chunk)


def _mapped(fileno: int, path: Path, at: int) -> mmap.mmap:
    try:
        return mmap.mmap(fileno, 0, access=mmap.ACCESS_READ, offset=at)
    except ValueError as error:
        raise WriteLogError(f"{path} is empty: no write log", _NOT_A_LOG) from error


_NOT_A_LOG = "give the log device (or its file) of dm-log-writes, not the data device"
_CUT = "the log was cut off or is still being written: remove the dm target first, then read it again"


def _read_super(data: mmap.mmap, path: Path) -> tuple[int, int]:
    """(unit in bytes, number of entries)"""
    if len(data) < SECTOR_BYTES:
        raise WriteLogError(f"{path} has {len(data)} bytes, a write log at least {SECTOR_BYTES}", _NOT_A_LOG)
    magic, version, count, unit = SUPER.unpack_from(data)
    if magic != MAGIC:
        raise WriteLogError(f"{path}: magic {magic:#x} where a write log has {MAGIC:#x}", _NOT_A_LOG)
    if version != VERSION:
        raise WriteLogError(f"{path}: write log of version {version}, only {VERSION} is known")
    if not SECTOR_BYTES <= unit <= _UNIT_BYTES_MAX or unit & (unit - 1):
        raise WriteLogError(
            f"{path}: sector size {unit}, expected a power of two from {SECTOR_BYTES} to {_UNIT_BYTES_MAX}"
        )
    return unit, count


def _read_entries(data: mmap.mmap, unit: int, count: int, path: Path) -> tuple[list[LogEntry], int]:
    scale = unit // SECTOR_BYTES
    entries: list[LogEntry] = []
    at = unit
    for index in range(count):
        if at + unit > len(data):
            raise WriteLogError(
                f"{path}: entry {index} of {count} starts at byte {at}, the file ends at {len(data)}", _CUT
            )
        sector, sectors, raw_flags, text_bytes = HEADER.unpack_from(data, at)
        if raw_flags & ~_KNOWN_FLAGS:
            raise WriteLogError(
                f"{path}: entry {index} of {count} has the unknown flags {raw_flags:#x}", _CUT
            )
        flags = EntryFlag(raw_flags)
        is_mark = EntryFlag.MARK in flags
        text = _mark(data, at, unit, text_bytes) if is_mark else ""
        length = 0 if EntryFlag.DISCARD in flags else sectors * unit
        if at + unit + length > len(data):
            raise WriteLogError(
                f"{path}: entry {index} of {count} ends at byte {at + unit + length}, "
                f"the file at {len(data)}",
                _CUT,
            )
        kept = 0 if is_mark else sectors * scale
        entries.append(LogEntry(index, sector * scale, kept, flags, at + unit, text))
        at += unit + length
    return entries, at


def _mark(data: mmap.mmap, at: int, unit: int, text_bytes: int) -> str:
    start = at + HEADER.size
    return data[start : start + min(text_bytes, unit - HEADER.size)].decode(errors="backslashreplace")
