"""Reading of foreign bytes that cannot fail, and the nouns that the formats share."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.host.text import first_few


class Kind(enum.StrEnum):
    """What a block is for. RECORD: it makes others count (a commit block, a log header, a superblock that
    points to new trees, a checkpoint). LOG: it waits in a journal or log for such a record.
    """

    RECORD = "record"
    LOG = "log"
    METADATA = "metadata"
    DATA = "data"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BlockName:
    """The name of `length` bytes of the device from `at`. `writer`, `offset`: for data of a workload, the
    number of the operation that wrote it, and where in its file the first byte was written. `home`: of a
    journal's copy, the place on the device for which it is meant.
    """

    at: int
    length: int
    text: str
    kind: Kind
    sure: bool = True
    writer: int | None = None
    offset: int | None = None
    home: int | None = None

    @property
    def named(self) -> bool:
        return self.kind is not Kind.UNKNOWN

    def __str__(self) -> str:
        return self.text if self.sure else f"{self.text} (?)"


@dataclass(frozen=True, slots=True)
class Write:
    """A write of the log: entry number, first byte on the device, what was written."""

    entry: int
    at: int
    data: bytes


class Format(Protocol):
    """The self-description of one kind of file system. `learn` takes every write of the log first, in their
    order, so that `name` knows what comes later, too. Neither raises, whatever the bytes.
    """

    def learn(self, write: Write) -> None: ...

    def name(self, write: Write) -> Iterator[BlockName]:
        """Names that cover the write from its first byte to its last."""


class Image:
    """The device before the log's first entry, in a file. Reads beyond its end, or of a file that is gone,
    are short.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, at: int, length: int) -> bytes:
        """At most `length` bytes from `at`."""
        if at < 0 or length <= 0 or at >= 1 << 62:
            return b""
        try:
            with self._path.open("rb") as file:
                return os.pread(file.fileno(), min(length, 1 << 26), at)
        except OSError:
            return b""


def le(data: bytes, at: int, size: int) -> int:
    """An unsigned little-endian number; 0 where the bytes end."""
    return int.from_bytes(data[at : at + size], "little") if 0 <= at <= len(data) - size else 0


def be(data: bytes, at: int, size: int) -> int:
    """An unsigned big-endian number; 0 where the bytes end."""
    return int.from_bytes(data[at : at + size], "big") if 0 <= at <= len(data) - size else 0


def shown_name(raw: bytes) -> str:
    """A file's name as text for people: nothing in it can end a line or act on a terminal."""
    text = raw.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class Names:
    """What inodes are called, from one write to another: a file that is renamed keeps its inode."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[int, str]]] = {}

    def learn(self, entry: int, inode: int, name: str) -> None:
        known = self._known.setdefault(inode, [])
        if not known or known[-1][1] != name:
            known.append((entry, name))

    def at(self, entry: int, inode: int) -> str:
        """The name when `entry` was written: the last known by then, else the first known after; or empty."""
        known = self._known.get(inode, [])
        return next((name for e, name in reversed(known) if e <= entry), known[0][1] if known else "")


def blocks(write: Write, size: int) -> Iterator[tuple[int, bytes]]:
    """(device byte, bytes) of each of the device's blocks that a write touches; the first and last may be
    parts of one.
    """
    at, end = write.at, write.at + len(write.data)
    while at < end:
        stop = min(end, (at // size + 1) * size)
        yield at, write.data[at - write.at : stop - write.at]
        at = stop


def several(words: list[str], limit: int = 6) -> str:
    """`a, b, c`; of many, how many more."""
    shown, left_out = first_few(words, limit)
    return ", ".join(shown) + (f", and {left_out} more" if left_out else "")
