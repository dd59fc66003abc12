"""XFS: v5 metadata says what it is, whose and where; log records hold items that name what they change.

From the "XFS Algorithms & Data Structures" document and fs/xfs/libxfs/{xfs_format,xfs_log_format,
xfs_da_format}.h (6.12). Big-endian on the disk; log items are in the machine's order, here little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.blocks.fields import BlockName, Image, Kind, Write, be, le, several

_SECTOR = 512
_RECORD_MAGIC = 0xFEEDBABE
_HEADER_AT, _CYCLES, _CYCLE_BYTES = 0x2C, 64, 32768
_START, _COMMIT, _UNMOUNT = 0x01, 0x02, 0x20
_TRAN = 0x5452414E
_MAX_OPS = 1 << 14
_PIECE = 1 << 19
"""Bytes of the log that are looked at for one name: a record has 260 KiB at most."""
_GROUP = {
    b"XAGF": ("free space header (AGF)", 0x40),
    b"XAGI": ("inode header (AGI)", 0x128),
    b"XAFL": ("free list (AGFL)", 8),
}
"""By magic number: what it is, and where its UUID stands."""
_SHORT = (0x10, 0x20, 0x30, 4)
_LONG = (0x18, 0x28, 0x38, 8)
_DIRECTORY = (8, 0x18, 0x28, 8)
_DA = (0x10, 0x20, 0x30, 8)
_REMOTE = (0x28, 0x10, 0x20, 8)
_HEADERS = {
    b"AB3B": ("free space by block, group", *_SHORT),
    b"AB3C": ("free space by size, group", *_SHORT),
    b"IAB3": ("inode B+tree, group", *_SHORT),
    b"FIB3": ("free inode B+tree, group", *_SHORT),
    b"RMB3": ("reverse mappings, group", *_SHORT),
    b"R3FC": ("reference counts, group", *_SHORT),
    b"BMA3": ("extent B+tree of inode", *_LONG),
    b"XDB3": ("directory block of inode", *_DIRECTORY),
    b"XDD3": ("directory data of inode", *_DIRECTORY),
    b"XDF3": ("directory free index of inode", *_DIRECTORY),
    b"XSLM": ("symbolic link, inode", *_REMOTE),
    b"XARM": ("attribute value of inode", *_REMOTE),
    b"\x3d\xf1": ("directory leaf of inode", *_DA),
    b"\x3d\xff": ("directory leaf of inode", *_DA),
    b"\x3e\xbe": ("index node of inode", *_DA),
    b"\x3b\xee": ("attribute leaf of inode", *_DA),
}
"""By magic number, which stands first or (two bytes) at 8: what it is, and where the block says its place,
its UUID and its owner, a number of so many bytes.
"""
_LEVELS = (b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"RMB3", b"R3FC", b"BMA3")
_ITEMS = {
    0x1236: "intent to free extents",
    0x1237: "extents freed",
    0x1238: "unlinked list",
    0x123B: "inode",
    0x123C: "buffer",
    0x123D: "dquot",
    0x123E: "quota off",
    0x123F: "inode chunk",
    0x1240: "intent for reverse mappings",
    0x1241: "reverse mappings done",
    0x1242: "intent for reference counts",
    0x1243: "reference counts done",
    0x1244: "intent for mappings",
    0x1245: "mappings done",
    0x1246: "intent for attributes",
    0x1247: "attributes done",
    0x1248: "intent to exchange mappings",
    0x1249: "mappings exchanged",
}
_INODE, _BUFFER, _CREATE = 0x123B, 0x123C, 0x123F


@dataclass(frozen=True, slots=True)
class _Layout:
    block: int
    sector: int
    inode: int
    group_blocks: int
    log_at: int
    log_bytes: int
    uuid: bytes


def read(image: Image, second_bytes: int) -> Xfs | None:
    """None if the image holds another format."""
    data = image.read(0, _SECTOR)
    if data[:4] != b"XFSB":
        return None
    block, group_log = be(data, 4, 4), be(data, 0x7C, 1)
    group_blocks = be(data, 0x54, 4)
    if not _SECTOR <= block <= 65536 or not group_blocks or group_log > 31:
        return None
    start = be(data, 0x30, 8)
    log_block = (start >> group_log) * group_blocks + (start & ((1 << group_log) - 1))
    return Xfs(
        _Layout(
            block,
            max(be(data, 0x66, 2), _SECTOR),
            max(be(data, 0x68, 2), 256),
            group_blocks,
            log_block * block if start else second_bytes,
            be(data, 0x60, 4) * block,
            data[0x20:0x30],
        )
    )


class Xfs:
    def __init__(self, layout: _Layout) -> None:
        self._l = layout
        self._records: list[tuple[int, int, int, str]] = []  # (entry, first byte, end, its number)

    def learn(self, write: Write) -> None:
        if not self._in_log(write.at):
            return
        for at, record in _records(write):
            end = at + _header_bytes(record) + be(record, 0xC, 4)
            self._records.append((write.entry, at, end, _lsn(be(record, 0x10, 8))))

    def _in_log(self, at: int) -> bool:
        return self._l.log_at <= at < self._l.log_at + self._l.log_bytes

    def name(self, write: Write) -> Iterator[BlockName]:
        at, end = write.at, write.at + len(write.data)
        while at < end:
            in_log = self._in_log(at)
            data = write.data[at - write.at : at - write.at + (_PIECE if in_log else self._l.block)]
            if in_log:
                name = self._name_log(write.entry, at, data)
            else:
                size = self._size(at, data)
                name = self._name_home(at, data[:size])
            yield name
            at += max(name.length, 1)

    def _size(self, at: int, data: bytes) -> int:
        """How much of `data` has one name: to the end of the block, of the sector in a group's headers."""
        unit = self._l.block
        if data[:4] == b"XFSB" or data[:4] in _GROUP:
            unit = self._l.sector
        return min(len(data), (at // unit + 1) * unit - at)

    # --- the log ------------------------------------------------------------------------------

    def _name_log(self, entry: int, at: int, data: bytes) -> BlockName:
        """The record that begins here, else what is left of one that was begun elsewhere."""
        if be(data, 0, 4) == _RECORD_MAGIC:
            length = _header_bytes(data) + be(data, 0xC, 4)
            length = min(-(-length // _SECTOR) * _SECTOR, len(data))
            if not be(data, 0x28, 4):
                return BlockName(at, min(_stamps(data), len(data)), "log: stamp ahead of the head", Kind.LOG)
            ops = _operations(data[:length])
            commits = any("commit" in op or "unmount" in op for op in ops)
            kind = Kind.RECORD if commits else Kind.LOG
            return BlockName(at, length, f"log record {_lsn(be(data, 0x10, 8))}: {several(ops, 8)}", kind)
        stop = next((n for n in range(_SECTOR, len(data), _SECTOR) if be(data, n, 4) == _RECORD_MAGIC), None)
        length = len(data) if stop is None else stop
        nearest = [(abs(n - entry), number) for n, first, end, number in self._records if first <= at < end]
        if not nearest:
            wrapped = [
                (abs(n - entry), number)
                for n, _, end, number in self._records
                if end > self._l.log_at + self._l.log_bytes
            ]
            nearest = wrapped
        text = f"log record {min(nearest)[1]}, continued" if nearest else "log, without a record's header"
        return BlockName(at, length, text, Kind.LOG, sure=False)

    # --- metadata at home ---------------------------------------------------------------------

    def _name_home(self, at: int, data: bytes) -> BlockName:
        found = self._known(at, data)
        if found is None:
            return BlockName(at, len(data), "", Kind.UNKNOWN, sure=False)
        text, place, uuid = found
        sure = uuid == self._l.uuid and place in (None, at // _SECTOR)
        kind = Kind.RECORD if text == "superblock" else Kind.METADATA
        return BlockName(at, len(data), text, kind, sure)

    def _known(self, at: int, data: bytes) -> tuple[str, int | None, bytes] | None:
        """(text, the 512-byte sector at which the block says it is, its UUID)"""
        magic, group = data[:4], at // (self._l.group_blocks * self._l.block)
        if magic == b"XFSB":
            return ("superblock" if not at else f"copy of the superblock in group {group}"), None, data[32:48]
        if magic in _GROUP:
            text, uuid = _GROUP[magic]
            return f"{text} of group {group}", None, data[uuid : uuid + 16]
        if magic[:2] == b"IN":
            return self._inodes(data)
        found = _HEADERS.get(magic) or _HEADERS.get(data[8:10])
        if found is None:
            return None
        text, place, uuid, owner, size = found
        text = f"{text} {be(data, owner, size)}"
        if magic in _LEVELS:
            text += f", level {be(data, 4, 2)}"
        return text, be(data, place, 8), data[uuid : uuid + 16]

    def _inodes(self, data: bytes) -> tuple[str, int | None, bytes]:
        size = self._l.inode
        used = [
            str(be(data, n + 0x98, 8))
            for n in range(0, len(data) - size + 1, size)
            if data[n : n + 2] == b"IN" and be(data, n + 2, 2)
        ]
        what = f"inodes {several(used)}" if used else f"free inodes from {be(data, 0x98, 8)}"
        return what, None, data[0xA0:0xB0]


def _records(write: Write) -> Iterator[tuple[int, bytes]]:
    """(device byte, what follows) of each record that begins in a write and holds something."""
    for n in range(0, len(write.data), _SECTOR):
        if be(write.data, n, 4) == _RECORD_MAGIC and be(write.data, n + 0x28, 4):
            yield write.at + n, write.data[n : n + _PIECE]


def _stamps(data: bytes) -> int:
    """The bytes of consecutive empty records: what a mount writes ahead of the log's head."""
    n = 0
    while n < len(data) and be(data, n, 4) == _RECORD_MAGIC and not be(data, n + 0x28, 4):
        n += _SECTOR
    return max(n, _SECTOR)


def _header_bytes(record: bytes) -> int:
    """A record's header: a sector for each 32 KiB that the log buffer may hold."""
    size = be(record, 0x140, 4)
    return _SECTOR * min(max(1, -(-size // _CYCLE_BYTES)), 8)


def _lsn(number: int) -> str:
    """`3:1200`: cycle and block."""
    return f"{number >> 32}:{number & 0xFFFFFFFF}"


def _payload(record: bytes) -> bytes:
    """A record's data with the first word of each sector put back, in whose place the log has its cycle."""
    header = _header_bytes(record)
    data = bytearray(record[header : header + be(record, 0xC, 4)])
    for n in range(0, len(data), _SECTOR):
        sector = n // _SECTOR
        at = _HEADER_AT + 4 * sector
        if sector >= _CYCLES:  # the extended headers: a cycle, then 64 words more
            at = sector // _CYCLES * _SECTOR + 4 + 4 * (sector % _CYCLES)
        if at + 4 <= header and n + 4 <= len(data):
            data[n : n + 4] = record[at : at + 4]
    return bytes(data)


def _operations(record: bytes) -> list[str]:
    """What a record says: the items of its transactions, without repeats."""
    data, at, found = _payload(record), 0, []
    for _ in range(min(be(record, 0x28, 4), _MAX_OPS)):
        if at + 12 > len(data):
            break
        length, flags = be(data, at + 4, 4), be(data, at + 9, 1)
        region = data[at + 12 : at + 12 + min(length, len(data))]
        if flags & _COMMIT:
            found.append("commit record")
        elif flags & _UNMOUNT:
            found.append("unmount record")
        elif text := _item(region):
            found.append(text)
        at += 12 + length
    return list(dict.fromkeys(found))


def _item(region: bytes) -> str:
    """The head of a log item; empty for the regions that follow it."""
    if le(region, 0, 4) == _TRAN:
        return ""
    kind, big = le(region, 0, 2), be(region, 0, 2)
    if kind == _INODE and len(region) >= 48:
        return f"inode {le(region, 16, 8)}"
    if kind == _BUFFER and len(region) >= 20:
        return f"buffer at sector {le(region, 8, 8)}"
    if _CREATE in (kind, big):
        return f"inode chunk in group {be(region, 4, 4)}"
    return _ITEMS.get(kind, "") if le(region, 2, 2) else ""
