"""NTFS: a record of the table of files and a block of an index say what they are, and name files.

From fs/ntfs3/ntfs.h (6.12). Little-endian. The last two bytes of each sector stand in an array in front, and
a number in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.blocks.fields import BlockName, Image, Kind, Write, le, several, shown_name

_SECTOR = 512
_FILE, _INDEX, _LOG = b"FILE", b"INDX", (b"RSTR", b"RCRD")
_FILE_NAME, _DATA, _BITMAP, _END = 0x30, 0x80, 0xB0, 0xFFFFFFFF
_LOG_PAGE = 4096
_PIECE = 1 << 16
"""Bytes that are looked at for one name: more than a record, a block of an index or a page of the log has."""
_MIRRORED = 4
_NUMBER = (1 << 48) - 1
_INDEX_HEADER = 0x18


@dataclass(frozen=True, slots=True)
class _Layout:
    """Places and sizes in bytes."""

    cluster: int
    table: int
    mirror: int
    record: int
    index: int


def read(image: Image, second_bytes: int) -> Ntfs | None:
    """None if the image holds another format."""
    boot = image.read(0, _SECTOR)
    sector, count = le(boot, 11, 2), le(boot, 13, 1)
    cluster = sector * (1 << 256 - count if count > 0x80 else count)
    if boot[3:11] != b"NTFS    " or sector not in (512, 1024, 2048, 4096) or not 0 < cluster <= 1 << 21:
        return None
    record, index = (_size(le(boot, at, 1), cluster) for at in (0x40, 0x44))
    if not (_SECTOR <= record <= 4096 and _SECTOR <= index <= 1 << 16):
        return None
    table, mirror = le(boot, 0x30, 8) * cluster, le(boot, 0x38, 8) * cluster
    return Ntfs(image, _Layout(cluster, table, mirror, record, index))


def _size(told: int, cluster: int) -> int:
    """Clusters; or, of what is smaller than one, how often 2 is multiplied."""
    return 1 << 256 - told if told >= 0x80 else told * cluster


class Ntfs:
    def __init__(self, image: Image, layout: _Layout) -> None:
        self._layout = layout
        records = [image.read(layout.table + n * layout.record, layout.record) for n in range(7)]
        self._table = next(self._run(records[0], _DATA), (layout.table, layout.table + layout.record))
        self._bitmaps = [
            *((begin, end, "bitmap of records") for begin, end in self._run(records[0], _BITMAP)),
            *((begin, end, "bitmap of clusters") for begin, end in self._run(records[6], _DATA)),
        ]

    def learn(self, write: Write) -> None:
        """Every block says of itself what it is. The table grows."""
        at = self._layout.table - write.at
        if 0 <= at < len(write.data):
            begin, end = next(self._run(write.data[at : at + self._layout.record], _DATA), self._table)
            self._table = (begin, max(end, self._table[1]))

    def name(self, write: Write) -> Iterator[BlockName]:
        at, end = write.at, write.at + len(write.data)
        while at < end:
            data = write.data[at - write.at : at - write.at + _PIECE]
            length, text, sure = self._first(at, data)
            length = min(length, len(data))
            yield BlockName(at, length, text, Kind.METADATA if text else Kind.UNKNOWN, sure=sure)
            at += length

    def _first(self, at: int, data: bytes) -> tuple[int, str, bool]:
        """How much the data begin with, what it is called, and whether that is certain."""
        layout = self._layout
        if at < _SECTOR:
            return _SECTOR - at, "boot sector", True
        if data[:4] == _FILE:
            return layout.record, *self._record(at, _mended(data[: layout.record]))
        if data[:4] == _INDEX:
            return layout.index, _index_text(_mended(data[: layout.index])), True
        if data[:4] in _LOG:
            return _LOG_PAGE, "$LogFile", True
        for begin, end, text in self._bitmaps:
            if begin <= at < end:
                return end - at, text, False
        return layout.record - at % layout.record, "", False

    def _record(self, at: int, record: bytes) -> tuple[str, bool]:
        """Its number by its place, or as it says itself, which not each driver writes."""
        begin, end = self._table
        number = (at - begin) // self._layout.record if begin <= at < end else le(record, 0x2C, 4)
        copied = self._layout.mirror <= at < self._layout.mirror + _MIRRORED * self._layout.record
        return f"{'copy of ' if copied else ''}{_record_text(number, record)}", copied or begin <= at < end

    def _run(self, record: bytes, kind: int) -> Iterator[tuple[int, int]]:
        """Where the first run of a record's attribute lies."""
        for attribute in _attributes(_mended(record)):
            if le(attribute, 0, 4) == kind and attribute[8:9] == b"\1":
                pairs = attribute[le(attribute, 0x20, 2) :]
                sizes = le(pairs, 0, 1)
                count, place = le(pairs, 1, sizes & 15), le(pairs, 1 + (sizes & 15), sizes >> 4)
                yield place * self._layout.cluster, (place + count) * self._layout.cluster


def _mended(data: bytes) -> bytes:
    """With the bytes that each sector ends in."""
    found, array = bytearray(data), le(data, 4, 2)
    for n in range(1, min(le(data, 6, 2), len(data) // _SECTOR + 1)):
        found[n * _SECTOR - 2 : n * _SECTOR] = data[array + 2 * n : array + 2 * n + 2].ljust(2, b"\0")
    return bytes(found)


def _attributes(record: bytes) -> Iterator[bytes]:
    at = le(record, 0x14, 2)
    while at + 8 <= len(record) and le(record, at, 4) != _END:
        length = le(record, at + 4, 4)
        if not 8 <= length <= len(record) - at:
            return
        yield record[at : at + length]
        at += length


def _name(key: bytes) -> str:
    """The name in a file name attribute."""
    name = key[0x42 : 0x42 + 2 * le(key, 0x40, 1)].decode("utf-16-le", "replace")
    return shown_name(name.encode("utf-8", "replace"))


def _record_text(number: int, record: bytes) -> str:
    if not le(record, 0x16, 2) & 1:
        return f"record {number}, free"
    keys = [a[le(a, 0x14, 2) :] for a in _attributes(record) if le(a, 0, 4) == _FILE_NAME]
    names = [name for key in keys if (name := _name(key))]
    return f"record {number}: {several(names, 4)}" if names else f"record {number}"


def _index_text(block: bytes) -> str:
    """Whose index it is, by the first of its names; without those of the file system itself."""
    at = _INDEX_HEADER + le(block, _INDEX_HEADER, 4)
    end = min(len(block), _INDEX_HEADER + le(block, _INDEX_HEADER + 4, 4))
    names, parents = list[str](), list[int]()
    while at + 16 <= end and (length := le(block, at + 8, 2)) >= 16:
        key = block[at + 16 : at + 16 + le(block, at + 10, 2)]
        if len(key) > 0x42:
            names.append(_name(key))
            parents.append(le(key, 0, 8) & _NUMBER)
        at += length
    shown = [name for name in names if not name.startswith(("$", "."))]
    whose = f"index of directory {parents[0]}" if parents else "index block"
    return f"{whose}: {several(shown, 6)}" if shown else whose
