"""GFS2: each metadata block has a header with its type; log descriptors name what follows them.

From Documentation/filesystems/gfs2.rst and include/uapi/linux/gfs2_ondisk.h (6.12). Big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.blocks.fields import BlockName, Image, Kind, Write, be, blocks

_SUPER_AT, _MAGIC = 65536, 0x01161970
_DINODE, _LOG_HEADER, _LOG_DESCRIPTOR = 4, 8, 9
_TYPES = {
    1: "superblock",
    2: "resource group",
    3: "resource group bitmap",
    4: "dinode",
    5: "indirect block",
    6: "directory leaf",
    7: "journaled data",
    8: "log header",
    9: "log descriptor",
    10: "extended attributes",
    11: "extended attribute data",
    12: "log buffer",
    14: "quota changes",
}
_DESCRIBED = {300: "metadata", 301: "revokes", 302: "journaled data"}
_LIST_AT = 72
_MAX_LIST = 503
_JOURNALED_PAIR = 16
_UNMOUNT = 0x1


def read(image: Image, second_bytes: int) -> Gfs2 | None:
    """None if the image holds another format."""
    data = image.read(_SUPER_AT, 512)
    block = be(data, 0x24, 4)
    if be(data, 0, 4) != _MAGIC or be(data, 4, 4) != 1 or not 512 <= block <= 65536:
        return None
    return Gfs2(block)


class Gfs2:
    def __init__(self, block: int) -> None:
        self._block = block
        self._copies: dict[int, list[tuple[int, int]]] = {}  # by log block: (entry, home)

    def learn(self, write: Write) -> None:
        for at, data in blocks(write, self._block):
            if be(data, 0, 4) != _MAGIC or be(data, 4, 4) != _LOG_DESCRIPTOR:
                continue
            kind, count = be(data, 0x18, 4), min(be(data, 0x20, 4), _MAX_LIST)
            step = _JOURNALED_PAIR if kind == 302 else 8
            if kind in (300, 302):
                for n in range(count):
                    home = be(data, _LIST_AT + step * n, 8)
                    self._copies.setdefault(at // self._block + 1 + n, []).append((write.entry, home))

    def name(self, write: Write) -> Iterator[BlockName]:
        for at, data in blocks(write, self._block):
            yield self._name(write.entry, at, data)

    def _name(self, entry: int, at: int, data: bytes) -> BlockName:
        kind = be(data, 4, 4) if be(data, 0, 4) == _MAGIC else 0
        if kind == _LOG_HEADER:
            word = ", unmounted" if be(data, 0x20, 4) & _UNMOUNT else ""
            text = f"log header {be(data, 0x18, 8)}, tail at block {be(data, 0x24, 4)} of the journal{word}"
            return BlockName(at, len(data), text, Kind.RECORD)
        if kind == _LOG_DESCRIPTOR:
            what = _DESCRIBED.get(be(data, 0x18, 4), "unknown")
            text = f"log descriptor: {be(data, 0x20, 4)} blocks of {what}"
            return BlockName(at, len(data), text, Kind.LOG)
        if (home := self._home(entry, at)) is not None:
            text = f"log copy of {self._text(kind, data, home * self._block)}"
            return BlockName(at, len(data), text, Kind.LOG, sure=False, home=home * self._block)
        if kind in _TYPES:
            text = self._text(kind, data, at)
            known = Kind.RECORD if kind == 1 else Kind.METADATA
            return BlockName(at, len(data), text, known, sure=kind != _DINODE or self._is_home(data, at))
        return BlockName(at, len(data), "", Kind.UNKNOWN, sure=False)

    def _is_home(self, data: bytes, at: int) -> bool:
        return be(data, 0x20, 8) == at // self._block

    def _text(self, kind: int, data: bytes, at: int) -> str:
        word = _TYPES.get(kind, "data")
        return f"{word} {be(data, 0x20, 8)}" if kind == _DINODE else f"{word} at block {at // self._block}"

    def _home(self, entry: int, at: int) -> int | None:
        """For which block a copy in the log is meant, by the descriptor written nearest in time."""
        found = self._copies.get(at // self._block, [])
        if not found:
            return None
        return min(found, key=lambda f: abs(f[0] - entry))[1]
