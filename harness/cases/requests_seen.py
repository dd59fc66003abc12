"""What a visit asked of its disk, and which faults may befall that.

A fault that hits nothing that was asked for changes nothing, so faults are aimed at requests of an
undisturbed visit: at each read, write and flush of mount, walk and unmount. What a block is for is told by
the namer of blocks (`harness.blocks`), by its contents once recovery is done, in words without numbers:
`inode table`.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.blocks.fields import BlockName, Kind
from harness.blocks.naming import NamedLog, named_log
from harness.cases.recording import Recording
from harness.cases.recoveries import device_of
from harness.guests import wire
from harness.guests.disk import BLOCK_SECTORS
from harness.model import SECTOR_BYTES, CrashState, DiskFault, FaultKind, RequestKind

UNNAMED = "unnamed block"


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """A fault, and what the block is for that it befalls; nothing of a flush."""

    fault: DiskFault
    where: str = ""

    @property
    def cell(self) -> tuple[str, str]:
        """Its place in tables."""
        return (self.fault.cell, self.where)


@dataclass(frozen=True, slots=True)
class RequestsSeen:
    """What the visit to a state asked of its disk. `work`: writes; of a recovery that did nothing, few."""

    of: CrashState
    targets: tuple[FaultTarget, ...]
    work: int

    def where(self, fault: DiskFault) -> str:
        """What the block is for that a fault befalls."""
        return next((t.where for t in self.targets if t.fault == fault), UNNAMED)


class FaultTargets:
    """Finds the faults of visits to one recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._names: NamedLog | None = None

    def at(self, of: CrashState, requests: Sequence[wire.Requested], image: Path) -> RequestsSeen:
        """`requests`: of the visit to the state `of`; `image`: of the disk that it left."""
        if self._names is None:
            recording = self._recording
            self._names = named_log(
                recording.base,
                recording.write_log,
                recording.log,
                second_bytes=recording.profile.second_offset,
            )
        with image.open("rb") as file:
            targets = list(self._targets(requests, lambda at, size: _read(file, at, size)))
        work = sum(r.kind is RequestKind.WRITE for r in requests)
        return RequestsSeen(of, tuple(dict.fromkeys(targets)), work)

    def _targets(
        self, requests: Sequence[wire.Requested], read: Callable[[int, int], bytes]
    ) -> Iterator[FaultTarget]:
        writes: Counter[int] = Counter()
        flushes = 0
        parts = self._recording.profile.parts
        for number, one in enumerate(requests):
            match one.kind:
                case RequestKind.FLUSH:
                    flushes += 1
                    for stays in (False, True):
                        yield FaultTarget(DiskFault(FaultKind.EIO_FLUSH, nth=flushes, stays=stays))
                case RequestKind.WRITE:
                    writes.update(range(one.sector, one.sector + one.sectors))
                    where = self._where(one.sector, read(one.sector, _piece(one.sector, one.sectors)))
                    nth = writes[one.sector]
                    for stays in (False, True):
                        yield FaultTarget(DiskFault(FaultKind.EIO_WRITE, one.sector, nth, stays), where)
                    yield FaultTarget(DiskFault(FaultKind.LOST_WRITE, one.sector, nth), where)
                    if (to := other_place(number, requests, parts)) is not None:
                        yield FaultTarget(DiskFault(FaultKind.STRAY_WRITE, one.sector, nth, to=to), where)
                case RequestKind.READ:
                    yield from self._of_read(one, read, writes)

    def _of_read(
        self, one: wire.Requested, read: Callable[[int, int], bytes], written: Container[int]
    ) -> Iterator[FaultTarget]:
        """`written`: sectors that recovery wrote before; what rotted in them is gone."""
        at, end = one.sector, one.sector + one.sectors
        while at < end:
            size = _piece(at, end - at)
            data = read(at, size)
            where = self._where(at, data)
            if at == one.sector:  # it fails whole, wherever the sector is that cannot be read
                yield FaultTarget(DiskFault(FaultKind.EIO_READ, at), where)
            yield FaultTarget(DiskFault(FaultKind.EIO_READ, at, stays=True), where)
            sector, bit = _rotting(at, data)
            if sector not in written:
                yield FaultTarget(DiskFault(FaultKind.ROT, sector, bit=bit), where)
            at += size

    def _where(self, sector: int, data: bytes) -> str:
        assert self._names is not None  # noqa: S101 - see `at`; tells mypy
        names = self._names.block(sector * SECTOR_BYTES, data)
        return class_of(names[0]) if names else UNNAMED


def other_place(number: int, requests: Sequence[wire.Requested], parts: Sequence[int]) -> int | None:
    """Where another write of the same length to the same device was going, the next one that comes later if
    there is one. `number`: of the write. `parts`: bytes of the disk at which further devices begin.
    """
    one = requests[number]
    device = device_of(one.sector, parts)
    for other in itertools.chain(
        itertools.islice(requests, number + 1, None), itertools.islice(requests, number)
    ):
        alike = other.kind is RequestKind.WRITE and other.sectors == one.sectors
        if alike and other.sector != one.sector and device_of(other.sector, parts) == device:
            return other.sector
    return None


def class_of(name: BlockName) -> str:
    """What a block is for, in words that fit other blocks of its kind, too."""
    if name.kind is Kind.DATA and name.home is None:
        return "data"
    head, _, tail = name.text.partition(":")
    text = f"{head}:{tail}" if head in _AREAS else head
    text = re.split(r"\d|,|;|\(", text, maxsplit=1)[0].strip()
    while (shorter := _LINK.sub("", text).strip()) and shorter != text:
        text = shorter
    return text or UNNAMED


_AREAS = ("journal", "log", "SSA")
"""Heads of names that say only in which area a block lies."""
_LINK = re.compile(r"(^|\s)(of|in|from|to|for|group|inodes?|pack|segment|transaction|sequence)$")


def _piece(sector: int, sectors: int) -> int:
    """How many sectors from here on lie in one block."""
    return min(sectors, BLOCK_SECTORS - sector % BLOCK_SECTORS)


def _read(file: BinaryIO, sector: int, sectors: int) -> bytes:
    file.seek(sector * SECTOR_BYTES)
    return file.read(sectors * SECTOR_BYTES)


def _rotting(sector: int, data: bytes) -> tuple[int, int]:
    """The sector of the bit that changes in `data`, and its number there: of a byte that is not zero, if
    there is one, since a file system is more likely to look at it. Always the same of the same block.
    """
    drawn = zlib.crc32(b"%d" % sector)
    used = [n for n, byte in enumerate(data) if byte] or range(max(len(data), 1))
    byte = used[drawn % len(used)]
    return sector + byte // SECTOR_BYTES, byte % SECTOR_BYTES * 8 + (drawn >> 16) % 8
