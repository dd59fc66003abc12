"""Programs of this machine: which files are such, and with which loader they start."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

# elf(5), 64-bit, little-endian
_MAGIC = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_INTERP = 1, 3
_HEADER_BYTES = 64
_OFFSET, _ADDRESS, _FILE_SIZE = 8, 16, 32
"""Where a program header has the segment's offset in the file, its address, and its size in the file."""
_KERNEL_HALF = 1 << 63
"""Addresses from here on are the kernel's."""


def with_interpreter(program: bytes, loader: Path) -> bytes:
    """A program that starts with another loader (PT_INTERP); nothing else of it changes. Raises ValueError
    for what is not a dynamically linked program.

    The new path stands behind everything else: the kernel reads it from the file, and nothing maps it.
    """
    for header in _headers(program, _PT_INTERP):
        path = bytes(loader) + b"\0"
        changed = bytearray(program + path)
        struct.pack_into("<Q", changed, header + _OFFSET, len(program))
        struct.pack_into("<Q", changed, header + _FILE_SIZE, len(path))
        return bytes(changed)
    raise ValueError("not a dynamically linked 64-bit program")


def interpreter(path: Path) -> Path | None:
    """The loader with which a program starts; None for one that needs none, and for other files."""
    program = path.read_bytes()
    for header in _headers(program, _PT_INTERP):
        (offset,) = struct.unpack_from("<Q", program, header + _OFFSET)
        (size,) = struct.unpack_from("<Q", program, header + _FILE_SIZE)
        return Path(program[offset : offset + size].rstrip(b"\0").decode(errors="surrogateescape"))
    return None


def is_program(path: Path) -> bool:
    """Whether a file runs as a process of this machine, as a User Mode Linux kernel does: it is loaded where
    processes are, and not where kernels are, as vmlinux is.
    """
    program = path.read_bytes() if path.is_file() else b""
    first = next(_headers(program, _PT_LOAD), None)
    return first is not None and struct.unpack_from("<Q", program, first + _ADDRESS)[0] < _KERNEL_HALF


def is_object(path: Path) -> bool:
    """Whether a file is what a compiler makes before it is linked (ET_REL), as a kernel module is."""
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    whole = head.startswith(_MAGIC) and len(head) == _HEADER_BYTES
    return whole and struct.unpack_from("<H", head, 16)[0] == 1


def _headers(program: bytes, kind: int) -> Iterator[int]:
    """Offsets of the program headers of a kind."""
    if not program.startswith(_MAGIC) or len(program) < _HEADER_BYTES:
        return
    (table,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    for header in range(table, table + count * size, size):
        if header + size > len(program):
            return
        if struct.unpack_from("<I", program, header)[0] == kind:
            yield header
