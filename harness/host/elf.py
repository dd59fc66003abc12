"""Programs made for a newer C library than this machine's: with which loader they start."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

# elf(5), 64-bit, little-endian
_MAGIC = b"\x7fELF\x02\x01"
_PT_INTERP = 3
_HEADER_BYTES = 64
_OFFSET, _FILE_SIZE = 8, 32
"""Where a program header has the segment's offset and size in the file."""


def with_interpreter(program: bytes, loader: Path) -> bytes:
    """A program that starts with another loader (PT_INTERP); nothing else of it changes. Raises ValueError
    for what is not a dynamically linked program.

    The new path stands behind everything else: the kernel reads it from the file, and nothing maps it.
    """
    for header in _interpreters(program):
        path = bytes(loader) + b"\0"
        changed = bytearray(program + path)
        struct.pack_into("<Q", changed, header + _OFFSET, len(program))
        struct.pack_into("<Q", changed, header + _FILE_SIZE, len(path))
        return bytes(changed)
    raise ValueError("not a dynamically linked 64-bit program")


def interpreter(path: Path) -> Path | None:
    """The loader with which a program starts; None for one that needs none, and for other files."""
    program = path.read_bytes()
    for header in _interpreters(program):
        (offset,) = struct.unpack_from("<Q", program, header + _OFFSET)
        (size,) = struct.unpack_from("<Q", program, header + _FILE_SIZE)
        return Path(program[offset : offset + size].rstrip(b"\0").decode(errors="surrogateescape"))
    return None


def _interpreters(program: bytes) -> Iterator[int]:
    """Offsets of the program headers that name a loader."""
    if not program.startswith(_MAGIC) or len(program) < _HEADER_BYTES:
        return
    (table,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    for header in range(table, table + count * size, size):
        if header + size > len(program):
            return
        if struct.unpack_from("<I", program, header)[0] == _PT_INTERP:
            yield header
