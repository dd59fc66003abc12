"""Programs of this machine: which files are such, with which loader they start, and which libraries they
need.

Read from the file alone. ldd(1) is "not to be used on untrusted executables" (its manual): it starts the
loader, which runs code of what it loads.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.host.files import remembered

# elf(5), 64-bit, little-endian
_MAGIC = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
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


@remembered
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


def is_object(data: bytes) -> bool:
    """Whether these are what a compiler makes before it is linked (ET_REL), as a kernel module is."""
    whole = data.startswith(_MAGIC) and len(data) >= _HEADER_BYTES
    return whole and struct.unpack_from("<H", data, 16)[0] == 1


def module_release(module: bytes) -> str:
    """The release of the kernel that a module was built for, by its `vermagic`; empty if it has none."""
    found = re.search(rb"\0vermagic=([^\0 ]+)", module)
    return found[1].decode(errors="replace") if found else ""


def has_symbol_versions(module: bytes) -> bool:
    """Whether a module has checksums of the symbols that it uses (CONFIG_MODVERSIONS): then a kernel compares
    these, and not its release. By the names of its sections.
    """
    return b"\0__versions\0" in module or b"\0__version_ext_crcs\0" in module


@dataclass(frozen=True, slots=True)
class Linked:
    """What a program or library needs to start: its loader by path, empty for a library; other libraries by
    name or path; and the folders in which it has them looked for first, `$ORIGIN` as it stands there.
    `for_all`: those of the libraries that it needs, too (DT_RPATH).
    """

    loader: str = ""
    libraries: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    for_all: bool = False


def linked(program: bytes) -> Linked:
    """Raises ValueError for what is damaged, or no 64-bit program."""
    if not program.startswith(_MAGIC):
        raise ValueError("it is not a 64-bit program for this architecture")
    try:
        loader = next((_segment(program, h).rstrip(b"\0").decode() for h in _all(program, _PT_INTERP)), "")
        tags = [pair for h in _all(program, _PT_DYNAMIC) for pair in _pairs(_segment(program, h))]
        texts = {kind: _texts(program, tags, kind) for kind in (_DT_NEEDED, _DT_RPATH, _DT_RUNPATH)}
    except (struct.error, IndexError, OverflowError) as e:  # OverflowError: places beyond any file
        raise ValueError(str(e)) from e
    paths = texts[_DT_RUNPATH] or texts[_DT_RPATH]
    folders = tuple(folder for path in paths for folder in path.split(":") if folder)
    return Linked(loader, texts[_DT_NEEDED], folders, for_all=not texts[_DT_RUNPATH])


def _all(program: bytes, kind: int) -> list[int]:
    """`_headers`, where all of them have to be there. Raises struct.error."""
    (table,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = {
        at: struct.unpack_from("<I32xQ", program, at)[0]
        for at in range(table, table + count * size, size or 1)
    }
    return [at for at, found in kinds.items() if found == kind]


def _segment(program: bytes, header: int) -> bytes:
    (offset,) = struct.unpack_from("<Q", program, header + _OFFSET)
    (size,) = struct.unpack_from("<Q", program, header + _FILE_SIZE)
    return program[offset : offset + size]


def _pairs(dynamic: bytes) -> list[tuple[int, int]]:
    return [*struct.iter_unpack("<QQ", dynamic)]


def _texts(program: bytes, tags: Sequence[tuple[int, int]], kind: int) -> tuple[str, ...]:
    """The texts that the dynamic section has of a kind."""
    wanted = [value for tag, value in tags if tag == kind]
    if not wanted:
        return ()
    tables = [value for tag, value in tags if tag == _DT_STRTAB]
    if not tables:
        raise ValueError("it has no table of strings")
    table = _place(program, tables[0])
    return tuple(program[table + at : program.index(b"\0", table + at)].decode() for at in wanted)


def _place(program: bytes, address: int) -> int:
    """Where in the file an address of the program is."""
    for header in _all(program, _PT_LOAD):
        offset, start, size = (
            struct.unpack_from("<Q", program, header + field)[0] for field in (_OFFSET, _ADDRESS, _FILE_SIZE)
        )
        if start <= address < start + size:
            return int(offset + address - start)
    raise ValueError(f"address {address:#x} is in no segment")


def _headers(program: bytes, kind: int) -> Iterator[int]:
    """Offsets of the program headers of a kind."""
    if not program.startswith(_MAGIC) or len(program) < _HEADER_BYTES:
        return
    (table,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    for header in range(table, table + count * size, size or 1):  # an object file has none, of no size
        if header + size > len(program):
            return
        if struct.unpack_from("<I", program, header)[0] == kind:
            yield header
