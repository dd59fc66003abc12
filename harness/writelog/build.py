"""Build write logs in the format of `log.py`, for tests and for reducing a log to an example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from harness.model import SECTOR_BYTES, EntryFlag
from harness.writelog.log import HEADER, MAGIC, SUPER, VERSION

_NO_FLAGS = EntryFlag(0)


@dataclass(frozen=True, slots=True)
class Write:
    """A write of `data`, whole sectors of 512 bytes, at `sector`. `flags`: FUA, FLUSH, METADATA."""

    sector: int
    data: bytes
    flags: EntryFlag = _NO_FLAGS


@dataclass(frozen=True, slots=True)
class Discard:
    """A discard; `sector` and `sectors` are in units of 512 bytes."""

    sector: int
    sectors: int


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush without data. `sector`: the first of its device, in a log of several."""

    sector: int = 0


@dataclass(frozen=True, slots=True)
class MarkText:
    """A mark with this text."""

    text: str


Step: TypeAlias = Write | Discard | Flush | MarkText


def write_log(path: Path, steps: Iterable[Step], unit_bytes: int = SECTOR_BYTES) -> None:
    """Write a log whose entry i is `steps[i]`. Raises ValueError unless all sectors are multiples of
    `unit_bytes` and every mark fits into one unit.
    """
    body = bytearray()
    count = 0
    for step in steps:
        body += _entry(step, unit_bytes)
        count += 1
    header = SUPER.pack(MAGIC, VERSION, count, unit_bytes)
    path.write_bytes(header.ljust(unit_bytes, b"\0") + body)


def _entry(step: Step, unit: int) -> bytes:
    match step:
        case Write(sector, data, flags):
            return _header(sector, len(data) // SECTOR_BYTES, flags, b"", unit) + data
        case Discard(sector, sectors):
            return _header(sector, sectors, EntryFlag.DISCARD, b"", unit)
        case Flush(sector):
            return _header(sector, 0, EntryFlag.FLUSH, b"", unit)
        case MarkText(text):
            return _header(0, 0, EntryFlag.MARK, text.encode(), unit)


def _header(sector: int, sectors: int, flags: EntryFlag, text: bytes, unit: int) -> bytes:
    scale = unit // SECTOR_BYTES
    if sector % scale or sectors % scale:
        raise ValueError(f"sectors {sector}+{sectors} are no multiples of {unit} bytes")
    header = HEADER.pack(sector // scale, sectors // scale, flags, len(text)) + text
    if len(header) > unit:
        raise ValueError(f"a mark of {len(text)} bytes does not fit a header of {unit}")
    return header.ljust(unit, b"\0")
