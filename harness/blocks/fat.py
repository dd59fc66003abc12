"""FAT32 and exFAT: the boot sector says where tables and clusters are, directories name the clusters.

From include/uapi/linux/msdos_fs.h and fs/exfat/exfat_raw.h (6.12). Little-endian. Which directory a cluster
is of follows from other blocks: from the entries of the directory above, at any time, and from the table of
clusters as it is after the last write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.blocks.fields import BlockName, Image, Kind, Write, le, several, shown_name

_ENTRY = 32
_FIRST = 2  # the first two entries of the table are of no cluster
_IS_DIRECTORY, _LONG_NAME, _VOLUME = 0x10, 0x0F, 0x08
_NUMBER = 0x0FFFFFFF
"""Bits of a cluster's number in FAT32's table. exFAT has 32, of which no table read here uses more."""
_EXFAT_TYPES = frozenset(
    bytes([kind]) for kind in (0x05, 0x40, 0x41, 0x81, 0x82, 0x83, 0x85, 0xA0, 0xC0, 0xC1)
)
_TABLE_MAX = 16 << 20
_CLUSTERS_MAX = 4096
"""Of one directory: its chain may be damaged, and lead round."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Places and sizes in bytes. `fixed`: what lies in front of the clusters: begin, end, name."""

    cluster: int
    table: int
    table_bytes: int
    clusters: int
    root: int
    fixed: Sequence[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name of a directory. `contiguous`: the table does not say where it lies. `bytes`: its size."""

    name: str
    cluster: int
    directory: bool
    contiguous: bool = False
    bytes: int = 0
    system: str = ""


def read(image: Image, second_bytes: int) -> Fat | None:
    """None if the image holds another format."""
    boot = image.read(0, 512)
    if le(boot, 510, 2) != 0xAA55:
        return None
    if boot[3:11] == b"EXFAT   ":
        return Exfat(image, layout) if (layout := _exfat(boot)) else None
    return Fat(image, layout) if (layout := _fat32(boot)) else None


def _fat32(boot: bytes) -> _Layout | None:
    sector, cluster, tables = le(boot, 11, 2), le(boot, 13, 1) * le(boot, 11, 2), le(boot, 16, 1)
    if (
        boot[82:90] != b"FAT32   "
        or sector not in (512, 1024, 2048, 4096)
        or not cluster
        or tables not in (1, 2)
    ):
        return None
    table, size = le(boot, 14, 2) * sector, le(boot, 36, 4) * sector
    backup = le(boot, 50, 2) * sector
    fixed = [
        (0, sector, "boot sector"),
        (le(boot, 48, 2) * sector, (le(boot, 48, 2) + 1) * sector, "FSInfo: free clusters"),
        (backup, backup + sector, "copy of the boot sector"),
        *((table + n * size, table + (n + 1) * size, f"FAT {n + 1}") for n in range(tables)),
    ]
    return _Layout(cluster, table, size, table + tables * size, le(boot, 44, 4), fixed)


def _exfat(boot: bytes) -> _Layout | None:
    if not 9 <= le(boot, 108, 1) <= 12 or le(boot, 109, 1) > 25 - le(boot, 108, 1):
        return None
    sector = 1 << le(boot, 108, 1)
    table, size = le(boot, 80, 4) * sector, le(boot, 84, 4) * sector
    fixed = [
        (0, sector, "boot sector"),
        (sector, 12 * sector, "boot region"),
        (12 * sector, 24 * sector, "copy of the boot region"),
        (table, table + size, "FAT"),
    ]
    cluster = sector << le(boot, 109, 1)
    return _Layout(cluster, table, size, le(boot, 88, 4) * sector, le(boot, 96, 4), fixed)


class Fat:
    def __init__(self, image: Image, layout: _Layout) -> None:
        self._image = image
        self._layout = layout
        self._table = bytearray(image.read(layout.table, min(layout.table_bytes, _TABLE_MAX)))
        self._seen: dict[int, list[bytes]] = {}
        self._owners: dict[int, _Entry] | None = None

    def learn(self, write: Write) -> None:
        """Keep each cluster that may belong to a directory, and the entries of the cluster table."""
        start, end = write.at, write.at + len(write.data)
        low, high = max(start, self._layout.table), min(end, self._layout.table + len(self._table))
        if low < high:
            self._table[low - self._layout.table : high - self._layout.table] = write.data[
                low - start : high - start
            ]
        for at, data in self._clusters(write):
            if self._may_be_directory(data):
                self._seen.setdefault(self._number(at), []).append(data)
        self._owners = None

    def name(self, write: Write) -> Iterator[BlockName]:
        at, end = write.at, write.at + len(write.data)
        while at < end:
            stop, text, sure = self._at(at, write)
            length = min(stop, end) - at
            kind = Kind.METADATA if text else Kind.UNKNOWN
            yield BlockName(at, length, text, kind, sure=sure)
            at += length

    def _at(self, at: int, write: Write) -> tuple[int, str, bool]:
        """Where the structure at a byte ends, its name, and whether the name is certain."""
        layout = self._layout
        if at >= layout.clusters:
            return self._in_cluster(at, write)
        for begin, end, text in layout.fixed:
            if begin <= at < end:
                stop = min(end, write.at + len(write.data))
                entries = f", clusters {(at - begin) // 4} to {(stop - begin) // 4 - 1}"
                return stop, text + (entries if text.startswith("FAT") else ""), True
        following = [begin for begin, _, _ in layout.fixed if begin > at]
        return min([*following, layout.clusters]), "", False

    def _in_cluster(self, at: int, write: Write) -> tuple[int, str, bool]:
        number = self._number(at)
        stop = self._begin(number) + self._layout.cluster
        owner = self._owner(number)
        if owner is None or owner.system:
            return stop, owner.system if owner else "", False
        data = write.data[at - write.at : stop - write.at]
        if any(data[:_ENTRY]) and not self._may_be_directory(data):
            return stop, "", False  # it is something else by now
        names = [e.name for e in self._entries(data) if e.name]
        text = f"directory {owner.name}" if owner.name else "root directory"
        return stop, f"{text}: {several(names, 4)}" if names else text, number == self._layout.root

    def _begin(self, number: int) -> int:
        """The byte at which a cluster begins."""
        return self._layout.clusters + (number - _FIRST) * self._layout.cluster

    def _number(self, at: int) -> int:
        return (at - self._layout.clusters) // self._layout.cluster + _FIRST

    def _clusters(self, write: Write) -> Iterator[tuple[int, bytes]]:
        """Each cluster, or part of one, of a write."""
        at, end = max(write.at, self._layout.clusters), write.at + len(write.data)
        while at < end:
            stop = min(end, self._begin(self._number(at)) + self._layout.cluster)
            yield at, write.data[at - write.at : stop - write.at]
            at = stop

    def _may_be_directory(self, data: bytes) -> bool:
        return len(data) >= _ENTRY and data[0] != 0 and data[11] & 0xC0 == 0

    def _entries(self, data: bytes) -> Iterator[_Entry]:
        return _fat_entries(data)

    def _owner(self, number: int) -> _Entry | None:
        """What a cluster is part of; None for data, and where nothing says it."""
        if self._owners is None:
            self._owners = self._found_owners()
        return self._owners.get(number)

    def _found_owners(self) -> dict[int, _Entry]:
        """What each cluster is part of, directories by their paths."""
        found: dict[int, _Entry] = {}
        waiting = [_Entry("", self._layout.root, directory=True)]
        while waiting:
            owner = waiting.pop()
            if owner.cluster in found:
                continue
            for cluster in self._chain(owner):
                found.setdefault(cluster, owner)
                if owner.directory:
                    entries = (e for data in self._versions(cluster) for e in self._entries(data))
                    waiting += [
                        replace(e, name=f"{owner.name}/{e.name}".lstrip("/"))
                        for e in entries
                        if e.cluster >= _FIRST and (e.directory or e.system)
                    ]
        return found

    def _versions(self, cluster: int) -> Iterator[bytes]:
        """What a cluster held, and was given."""
        yield self._image.read(self._begin(cluster), self._layout.cluster)
        yield from self._seen.get(cluster, [])

    def _chain(self, entry: _Entry) -> Iterator[int]:
        if entry.contiguous or entry.system:
            count = min(-(-entry.bytes // self._layout.cluster), _CLUSTERS_MAX)
            yield from range(entry.cluster, entry.cluster + max(count, 1))
            return
        cluster = entry.cluster
        for _ in range(_CLUSTERS_MAX):
            yield cluster
            cluster = int.from_bytes(self._table[4 * cluster : 4 * cluster + 4], "little") & _NUMBER
            if not _FIRST <= cluster < len(self._table) // 4:
                return


class Exfat(Fat):
    """FAT's boot sector, table and directories in another form."""

    def _may_be_directory(self, data: bytes) -> bool:
        return data[:1] in _EXFAT_TYPES

    def _entries(self, data: bytes) -> Iterator[_Entry]:
        return _exfat_entries(data)


def _fat_entries(data: bytes) -> Iterator[_Entry]:
    long = ""
    for at in range(0, len(data) - _ENTRY + 1, _ENTRY):
        raw = data[at : at + _ENTRY]
        if raw[0] in (0, 0xE5) or raw[:1] == b".":
            long = ""
        elif raw[11] == _LONG_NAME:
            part = (raw[1:11] + raw[14:26] + raw[28:32]).decode("utf-16-le", "replace")
            long = part.split("\0")[0] + ("" if raw[0] & 0x40 else long)
        elif raw[11] & _VOLUME:
            long = ""
        else:
            short = ".".join(
                filter(None, (raw[:8].rstrip().decode("cp437"), raw[8:11].rstrip().decode("cp437")))
            )
            cluster = le(raw, 20, 2) << 16 | le(raw, 26, 2)
            yield _Entry(_shown(long or short.lower()), cluster, bool(raw[11] & _IS_DIRECTORY))
            long = ""


def _exfat_entries(data: bytes) -> Iterator[_Entry]:
    for at in range(0, len(data) - _ENTRY + 1, _ENTRY):
        raw = data[at : at + _ENTRY]
        if raw[0] in (0x81, 0x82):
            text = "bitmap of clusters" if raw[0] == 0x81 else "table of upper case"
            yield _Entry("", le(raw, 20, 4), directory=False, bytes=le(raw, 24, 8), system=text)
        elif raw[0] == 0x85:
            stream, names = data[at + _ENTRY : at + 2 * _ENTRY], data[at + 2 * _ENTRY :]
            parts = [
                names[n + 2 : n + _ENTRY]
                for n in range(0, _ENTRY * (raw[1] - 1), _ENTRY)
                if names[n : n + 1] == b"\xc1"
            ]
            name = b"".join(parts).decode("utf-16-le", "replace")[: le(stream, 3, 1)]
            yield _Entry(
                _shown(name),
                le(stream, 20, 4),
                bool(raw[4] & _IS_DIRECTORY),
                contiguous=bool(le(stream, 1, 1) & 2),
                bytes=le(stream, 24, 8),
            )


def _shown(name: str) -> str:
    return shown_name(name.encode("utf-8", "replace"))
