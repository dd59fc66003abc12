"""Blocks of a jbd2 journal and of ext4's fast-commit area.

From Documentation/filesystems/ext4/journal.rst, include/linux/jbd2.h and fs/ext4/fast_commit.h (6.12). The
journal is big-endian, fast-commit tags are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.blocks.fields import be, le, several, shown_name

MAGIC = 0xC03B3998
DESCRIPTOR, COMMIT, SUPER_V1, SUPER_V2, REVOKE = 1, 2, 3, 4, 5
_64BIT, _CSUM_V2, _CSUM_V3, _FAST_COMMIT = 0x2, 0x8, 0x10, 0x20
_ESCAPED, _SAME_UUID, _LAST = 1, 2, 8
_TAIL_BYTES = 4
_FC_DEFAULT = 256
_FC_NAMES = {1: "add range", 2: "delete range", 3: "create", 4: "link", 5: "unlink", 6: "inode"}
_FC_RANGES, _FC_NAMED, _FC_INODE, _FC_PAD, _FC_TAIL, _FC_HEAD = (1, 2), (3, 4, 5), 6, 7, 8, 9


@dataclass(frozen=True, slots=True)
class Super:
    """What a journal's superblock says of the layout. `fast`: the first block of the fast-commit area."""

    blocks: int
    first: int
    features: int
    fast: int

    @classmethod
    def read(cls, data: bytes) -> Super | None:
        """None if this is no journal's superblock."""
        if be(data, 0, 4) != MAGIC or be(data, 4, 4) not in (SUPER_V1, SUPER_V2):
            return None
        total, features = be(data, 0x10, 4), be(data, 0x28, 4)
        fast = total
        if features & _FAST_COMMIT:
            fast = total - (be(data, 0x54, 4) or _FC_DEFAULT)
        return cls(total, be(data, 0x14, 4), features, max(fast, 0))

    def after(self, older: Super | None) -> Super:
        """With the features of an older one: an unmount clears those that an empty journal does not need."""
        if older is None:
            return self
        fast = min(self.fast, older.fast)
        return Super(self.blocks, self.first, self.features | older.features, fast)


@dataclass(frozen=True, slots=True)
class Tag:
    """Of a descriptor: the block after it by `number` is a copy of the file system's block `home`."""

    number: int
    home: int
    escaped: bool


def header(data: bytes) -> tuple[int, int] | None:
    """(type, sequence) of a journal block; None without its magic number."""
    if be(data, 0, 4) != MAGIC:
        return None
    return be(data, 4, 4), be(data, 8, 4)


def tags(data: bytes, features: int) -> list[Tag]:
    """The tags of a descriptor, up to its last or to its end."""
    found: list[Tag] = []
    end = len(data) - (_TAIL_BYTES if features & (_CSUM_V2 | _CSUM_V3) else 0)
    size = 16 if features & _CSUM_V3 else (12 if features & _64BIT else 8)
    at = 12
    while at + size <= end:
        home = be(data, at, 4)
        flags = be(data, at + 4, 4) if features & _CSUM_V3 else be(data, at + 6, 2)
        if features & _64BIT:
            home |= be(data, at + 8, 4) << 32
        found.append(Tag(len(found) + 1, home, bool(flags & _ESCAPED)))
        at += size + (0 if flags & _SAME_UUID else 16)
        if flags & _LAST:
            break
    return found


def revoked(data: bytes, features: int) -> list[int]:
    """The file-system blocks that a revoke block names."""
    size = 8 if features & _64BIT else 4
    end = min(be(data, 12, 4), len(data))
    return [be(data, at, size) for at in range(16, end - size + 1, size)]


def super_text(data: bytes) -> str:
    start, sequence = be(data, 0x1C, 4), be(data, 0x18, 4)
    state = f"log from block {start}, sequence {sequence}" if start else f"empty, next sequence {sequence}"
    return f"journal superblock: {state}"


@dataclass(frozen=True, slots=True)
class FastTag:
    """A fast-commit tag. `inode`: the one concerned, if the tag has one; `value`: its bytes."""

    tag: int
    inode: int
    value: bytes

    def __str__(self) -> str:
        if self.tag == _FC_HEAD:
            return f"head of transaction {le(self.value, 4, 4)}"
        if self.tag == _FC_TAIL:
            return f"tail of transaction {le(self.value, 0, 4)}"
        word = _FC_NAMES.get(self.tag, f"tag {self.tag}")
        if self.tag in _FC_NAMED:
            return f"{word} {shown_name(self.value[8:])} (inode {self.inode} in {le(self.value, 0, 4)})"
        return f"{word} {self.inode}" if self.tag == _FC_INODE else f"{word} of inode {self.inode}"


def fast_tags(data: bytes) -> Iterator[FastTag]:
    """The tags of one block of the fast-commit area, as far as they make sense."""
    at = 0
    while at + 4 <= len(data):
        tag, length = le(data, at, 2), le(data, at + 2, 2)
        if not _FC_RANGES[0] <= tag <= _FC_HEAD or at + 4 + length > len(data):
            return
        value = data[at + 4 : at + 4 + length]
        inode = le(value, 4, 4) if tag in _FC_NAMED else le(value, 0, 4)
        if tag != _FC_PAD:
            yield FastTag(tag, 0 if tag in (_FC_TAIL, _FC_HEAD) else inode, value)
        at += 4 + length
        if tag == _FC_TAIL:
            return


def fast_text(found: list[FastTag]) -> str:
    return f"fast commit: {several([str(t) for t in found], 8)}"


def has_tail(found: list[FastTag]) -> bool:
    return any(t.tag == _FC_TAIL for t in found)
