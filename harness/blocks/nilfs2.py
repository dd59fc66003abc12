"""NILFS2: a partial segment begins with a summary that names each of its blocks.

From Documentation/filesystems/nilfs2.rst and include/uapi/linux/nilfs2_ondisk.h (6.12). Little-endian.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from harness.blocks.fields import BlockName, Image, Kind, Write, blocks, le

_SUPER_AT, _SUPER_MAGIC, _SUMMARY_MAGIC = 1024, 0x3434, 0x1EAFFA11
_ROOT_FLAG, _END_FLAG, _DATA_FLAG = 0x4, 0x2, 0x8
_DAT = 3
_FILES = {
    2: "the root directory",
    3: "the DAT",
    4: "the checkpoint file",
    5: "the segment usage file",
    6: "the inode file",
}
_MAX_BLOCKS = 1 << 16


def read(image: Image, second_bytes: int) -> Nilfs2 | None:
    """None if the image holds another format."""
    data = image.read(_SUPER_AT, 1024)
    if le(data, 6, 2) != _SUPER_MAGIC or le(data, 0x14, 4) > 6:
        return None
    return Nilfs2(1024 << le(data, 0x14, 4), ((le(data, 0x20, 8) >> 12) - 1) << 12)


class Nilfs2:
    def __init__(self, block: int, second_super: int) -> None:
        self._block, self._second_super = block, second_super
        self._known: dict[int, list[tuple[int, str, Kind]]] = {}  # by block: (entry, text, kind)
        self._waiting: dict[int, tuple[int, bytes]] = {}

    def learn(self, write: Write) -> None:
        """Summaries may be longer than a write: they are read from all that was written so far."""
        for at, data in blocks(write, self._block):
            self._waiting[at // self._block] = write.entry, data
        for at, data in blocks(write, self._block):
            if le(data, 8, 4) == _SUMMARY_MAGIC:
                place = at // self._block
                for n, (text, kind) in enumerate(self._summary(place)):
                    self._known.setdefault(place + n, []).append((write.entry, text, kind))

    def _summary(self, place: int) -> Iterator[tuple[str, Kind]]:
        """The blocks of the partial segment at `place`, in order."""
        first = self._waiting[place][1]
        length, total = le(first, 0x30, 4), min(le(first, 0x28, 4), _MAX_BLOCKS)
        flags, number, checkpoint = le(first, 0xE, 2), le(first, 0x10, 8), le(first, 0x38, 8)
        count = -(-min(length, _MAX_BLOCKS) // self._block)
        whole = b"".join(self._waiting.get(place + n, (0, b""))[1] for n in range(count))
        segment = f"segment {number}, checkpoint {checkpoint}"
        words = [
            w for bit, w in ((_ROOT_FLAG, "with a super root"), (_DATA_FLAG, "data only")) if flags & bit
        ]
        yield ", ".join([f"summary of {segment}", *words]), Kind.RECORD if flags & _END_FLAG else Kind.LOG
        for _ in range(count - 1):
            yield f"summary of {segment}, continued", Kind.LOG
        rest = max(total - count - (1 if flags & _ROOT_FLAG else 0), 0)
        for text, kind in itertools.islice(_files(whole, first, self._block), rest):
            yield f"{text}, {segment}", kind
        if flags & _ROOT_FLAG:
            yield f"super root, {segment}", Kind.RECORD

    def name(self, write: Write) -> Iterator[BlockName]:
        for at, data in blocks(write, self._block):
            place = at // self._block
            if at <= _SUPER_AT < at + len(data) and le(data, _SUPER_AT - at + 6, 2) == _SUPER_MAGIC:
                yield BlockName(at, len(data), "superblock", Kind.RECORD)
            elif at == self._second_super and le(data, 6, 2) == _SUPER_MAGIC:
                yield BlockName(at, len(data), "superblock, second copy", Kind.RECORD)
            elif known := self._known.get(place):
                # By entry, then by place in the list: a summary is written with or ahead of its blocks.
                _, text, kind = min(known, key=lambda k: (abs(k[0] - write.entry), k[0] > write.entry))
                yield BlockName(at, len(data), text, kind, sure=le(data, 8, 4) == _SUMMARY_MAGIC)
            else:
                yield BlockName(at, len(data), "", Kind.UNKNOWN, sure=False)


def _files(whole: bytes, first: bytes, block: int) -> Iterator[tuple[str, Kind]]:
    """The blocks that a summary names, file by file. An entry that would cross the end of a block stands in
    the next one (fs/nilfs2/recovery.c, nilfs_read_summary_info).
    """
    at = le(first, 0xC, 2)
    for _ in range(min(le(first, 0x2C, 4), _MAX_BLOCKS)):
        at = _fitting(at, 24, block)
        if at + 24 > len(whole):
            return
        inode, count, data = le(whole, at, 8), le(whole, at + 16, 4), le(whole, at + 20, 4)
        at += 24
        file = _FILES.get(inode, f"inode {inode}")
        for n in range(min(count, _MAX_BLOCKS)):
            size = 8 if (n < data) == (inode == _DAT) else 16
            at = _fitting(at, size, block)
            number = le(whole, at if inode == _DAT else at + 8, 8)
            at += size
            if n >= data:
                yield f"B-tree of {file}", Kind.METADATA
            elif inode in _FILES:
                yield f"{file}, block {number}", Kind.METADATA
            else:
                yield f"data of {file}, block {number}", Kind.DATA


def _fitting(at: int, size: int, block: int) -> int:
    return at if at % block + size <= block else (at // block + 1) * block
