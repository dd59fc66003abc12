"""The kinds of steps in generated workloads: one operation each, in every variant worth distinguishing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.model import BLOCK_BYTES, SECTOR_BYTES, Operation, OperationKind
from harness.workloads.generate.world import (
    ATTRIBUTE,
    DIRECTORIES,
    FILES,
    HEAD_BYTES,
    TAIL_START,
    Directory,
    File,
    Invalid,
    Symlink,
    Thing,
    World,
    parent,
)

K = OperationKind
Act = Callable[[World, Sequence[str]], Operation]
"""Applies an operation to the world and returns it; or raises Invalid, after which the world is unusable."""
Where = Callable[[File], tuple[int, int]]
"""A range of a file, offset and length in bytes. Raises Invalid for a file that has none such."""

_FILE = [(path,) for path in FILES]
_DIRECTORY = [(path,) for path in DIRECTORIES]
_TWO_FILES = [(a, b) for a in FILES for b in FILES if a != b]
_TWO_DIRECTORIES = [(a, b) for a in DIRECTORIES for b in DIRECTORIES if a != b]
_DIRECTORY_INTO = [("A", "B/foo"), ("B", "A/foo")]


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step. `name`: its word in workloads' names. `places`: the paths that it can take, in order.
    `moves`: it moves a directory, and so changes the names below it.
    """

    name: str
    places: Sequence[tuple[str, ...]]
    act: Act
    moves: bool = False


# --- contents --------------------------------------------------------------------------------


def _needs(condition: bool, what: str) -> None:
    if not condition:
        raise Invalid(what)


def _on_file(change: Callable[[File, str], Operation]) -> Act:
    return lambda world, paths: change(world.file(paths[0]), paths[0])


def _write(where: Where, kind: K = K.WRITE, *flags: str) -> Act:
    def change(file: File, path: str) -> Operation:
        offset, length = where(file)
        file.size = max(file.size, offset + length)
        if offset < TAIL_START and offset + length > HEAD_BYTES:
            file.hole = False
        return Operation(kind, path, offset=0 if kind is K.APPEND else offset, length=length, flags=flags)

    return _on_file(change)


def _start(file: File) -> tuple[int, int]:
    return 0, BLOCK_BYTES


def _end(file: File) -> tuple[int, int]:
    return file.size, 5000


def _overlap(file: File) -> tuple[int, int]:
    _needs(file.size > 0, "an empty file has no end to overlap")
    return max(0, file.size - 2000), 5000


def _of_hole(start: int, length: int) -> Where:
    """A range of the hole, which begins at byte 0 of it."""

    def where(file: File) -> tuple[int, int]:
        _needs(file.hole, "there is no hole")
        return HEAD_BYTES + start, length

    return where


_in_hole = _of_hole(1000, 3000)  # not aligned to blocks
_whole_hole = _of_hole(0, TAIL_START - HEAD_BYTES)


def _next_block(file: File) -> tuple[int, int]:
    return -(-file.size // BLOCK_BYTES) * BLOCK_BYTES, BLOCK_BYTES


def _last_block(file: File) -> tuple[int, int]:
    _needs(file.size % BLOCK_BYTES > 0, "the file ends at a block's end: direct-end does it")
    return file.size // BLOCK_BYTES * BLOCK_BYTES, 2 * BLOCK_BYTES


def _sector(file: File) -> tuple[int, int]:
    """One of the first block's, so that a direct write covers no block."""
    return 3 * SECTOR_BYTES, SECTOR_BYTES


def _tail_sectors(file: File) -> tuple[int, int]:
    """From the last whole sector over the end of the file, which lies in no sector's end."""
    _needs(file.size % SECTOR_BYTES > 0, "the file ends at a sector's end")
    return file.size // SECTOR_BYTES * SECTOR_BYTES, 3 * SECTOR_BYTES


def _mapped_start(file: File) -> tuple[int, int]:
    _needs(file.size > 0, "an empty file cannot be mapped")
    return 0, min(BLOCK_BYTES, file.size)


def _mapped_end(file: File) -> tuple[int, int]:
    _needs(file.size > 0, "an empty file cannot be mapped")
    return max(0, file.size - 2000), min(2000, file.size)


def _fallocate(where: Where, *flags: str) -> Act:
    def change(file: File, path: str) -> Operation:
        offset, length = where(file)
        if not {"keep-size", "punch-hole"} & set(flags):
            file.size = max(file.size, offset + length)
        if offset < TAIL_START and offset + length > HEAD_BYTES:
            file.hole = file.hole and "punch-hole" in flags
        return Operation(K.FALLOCATE, path, offset=offset, length=length, flags=flags)

    return _on_file(change)


def _middle(file: File) -> tuple[int, int]:
    """Part of the first block, the second, and part of the third."""
    _needs(file.size > 2000, "the file is too short")
    return 2000, 8000


def _truncate(size_of: Callable[[int], int]) -> Act:
    def change(file: File, path: str) -> Operation:
        size = size_of(file.size)
        _needs(size != file.size, "nothing to cut off")
        file.hole = file.hole and size > TAIL_START
        file.size = size
        return Operation(K.TRUNCATE, path, length=size)

    return _on_file(change)


# --- names -----------------------------------------------------------------------------------


def _new(thing: Callable[[], Thing], kind: K, target: str = "", length: int = 0) -> Act:
    def act(world: World, paths: Sequence[str]) -> Operation:
        world.absent(paths[0])
        world.put(paths[0], thing())
        return Operation(kind, paths[0], target, length=length)

    return act


def _link(world: World, paths: Sequence[str]) -> Operation:
    file = world.file(paths[0])
    world.absent(paths[1])
    world.put(paths[1], file)
    return Operation(K.LINK, paths[0], paths[1])


def _no_directory(world: World, path: str) -> None:
    """Require a file or a symbolic link at `path`; an undecided name becomes a file."""
    if not isinstance(world.now.get(path), Symlink):
        world.file(path)


def _unlink(world: World, paths: Sequence[str]) -> Operation:
    _no_directory(world, paths[0])
    world.put(paths[0], None)
    return Operation(K.UNLINK, paths[0])


def _unlink_linked(world: World, paths: Sequence[str]) -> Operation:
    world.linked(paths[0], paths[1])
    return _unlink(world, paths)


def _rmdir(world: World, paths: Sequence[str]) -> Operation:
    _needs(not world.inside(paths[0]), "the directory is not empty")
    world.put(paths[0], None)
    return Operation(K.RMDIR, paths[0])


def _moved(world: World, paths: Sequence[str]) -> Operation:
    world.move(paths[0], paths[1])
    return Operation(K.RENAME, paths[0], paths[1])


def _rename(world: World, paths: Sequence[str]) -> Operation:
    _no_directory(world, paths[0])
    world.absent(paths[1])
    return _moved(world, paths)


def _two_files(world: World, paths: Sequence[str]) -> tuple[File, File]:
    one, other = world.file(paths[0]), world.file(paths[1])
    _needs(one is not other, "both are names of one file")
    return one, other


def _rename_over(world: World, paths: Sequence[str]) -> Operation:
    _two_files(world, paths)
    return _moved(world, paths)


def _fill(world: World, path: str) -> None:
    """Put a file into a directory that is about to be moved, unless its contents are decided already."""
    if f"{path}/foo" not in world.now:
        world.file(f"{path}/foo")
    world.inside(path)


def _rename_directory(world: World, paths: Sequence[str]) -> Operation:
    world.directory(paths[0])
    world.absent(paths[1])
    _fill(world, paths[0])
    return _moved(world, paths)


def _rename_directory_over(world: World, paths: Sequence[str]) -> Operation:
    world.directory(paths[0])
    _needs(not world.inside(paths[1]), "the directory to be replaced is not empty")
    _fill(world, paths[0])
    return _moved(world, paths)


# --- attributes ------------------------------------------------------------------------------


def _setxattr(world: World, paths: Sequence[str]) -> Operation:
    file = world.file(paths[0])
    _needs(not file.attribute, "it has the attribute: setxattr-replace does it")
    file.attribute = True
    return Operation(K.SETXATTR, paths[0], name=ATTRIBUTE, value=b"new")


def _setxattr_replace(world: World, paths: Sequence[str]) -> Operation:
    """Replace the attribute by a value too large for the inode of any file system."""
    world.with_attribute(paths[0])
    return Operation(K.SETXATTR, paths[0], name=ATTRIBUTE, value=b"larger" * 64)


def _removexattr(world: World, paths: Sequence[str]) -> Operation:
    world.with_attribute(paths[0]).attribute = False
    return Operation(K.REMOVEXATTR, paths[0], name=ATTRIBUTE)


STEPS: Mapping[str, StepKind] = {
    step.name: step
    for step in (
        StepKind("creat", _FILE, _new(File, K.CREATE)),
        StepKind("mkdir", _DIRECTORY, _new(Directory, K.MKDIR)),
        StepKind("write-start", _FILE, _write(_start)),
        StepKind("write-end", _FILE, _write(_end)),
        StepKind("write-overlap", _FILE, _write(_overlap)),
        StepKind("write-hole", _FILE, _write(_in_hole)),
        StepKind("append", _FILE, _write(_end, K.APPEND)),
        StepKind("falloc", _FILE, _fallocate(lambda f: (max(0, f.size - 1000), 10000))),
        StepKind("falloc-hole", _FILE, _fallocate(_whole_hole)),
        StepKind("falloc-keep", _FILE, _fallocate(lambda f: (f.size, 10000), "keep-size")),
        StepKind("falloc-zero", _FILE, _fallocate(_middle, "zero-range")),
        StepKind("falloc-zero-keep", _FILE, _fallocate(_overlap, "zero-range", "keep-size")),
        StepKind("falloc-punch", _FILE, _fallocate(_middle, "punch-hole")),
        StepKind("truncate-shrink", _FILE, _truncate(lambda size: 5000 if size > 5000 else size // 2)),
        StepKind("truncate-zero", _FILE, _truncate(lambda _: 0)),
        StepKind("truncate-grow", _FILE, _truncate(lambda size: size + 10000)),
        StepKind("link", _TWO_FILES, _link),
        StepKind("symlink", _FILE, _new(Symlink, K.SYMLINK, "elsewhere")),
        StepKind("unlink", _FILE, _unlink),
        StepKind("unlink-linked", _TWO_FILES, _unlink_linked),
        StepKind("rmdir", _DIRECTORY, _rmdir),
        StepKind("rename", _TWO_FILES, _rename),
        StepKind("rename-over", _TWO_FILES, _rename_over),
        StepKind("rename-dir", [*_TWO_DIRECTORIES, *_DIRECTORY_INTO], _rename_directory, moves=True),
        StepKind("rename-dir-over", _TWO_DIRECTORIES, _rename_directory_over, moves=True),
        StepKind("setxattr", _FILE, _setxattr),
        StepKind("setxattr-replace", _FILE, _setxattr_replace),
        StepKind("removexattr", _FILE, _removexattr),
        StepKind("direct-start", _FILE, _write(_start, K.WRITE, "direct")),
        StepKind("direct-end", _FILE, _write(_next_block, K.WRITE, "direct")),
        StepKind("direct-overlap", _FILE, _write(_last_block, K.WRITE, "direct")),
        StepKind("direct-hole", _FILE, _write(_of_hole(0, BLOCK_BYTES), K.WRITE, "direct")),
        StepKind("mmap-start", _FILE, _write(_mapped_start, K.MMAP_WRITE)),
        StepKind("mmap-end", _FILE, _write(_mapped_end, K.MMAP_WRITE)),
        StepKind("mmap-hole", _FILE, _write(_in_hole, K.MMAP_WRITE)),
        StepKind("tmpfile", _FILE, _new(lambda: File(5000), K.TMPFILE, length=5000)),
    )
}


# --- what only workloads by chance do --------------------------------------------------------


def _exchange(world: World, paths: Sequence[str]) -> Operation:
    _two_files(world, paths)
    return _exchanged(world, paths)


def _exchange_directories(world: World, paths: Sequence[str]) -> Operation:
    for path in paths:
        world.directory(path)
    return _exchanged(world, paths)


def _exchanged(world: World, paths: Sequence[str]) -> Operation:
    world.exchange(paths[0], paths[1])
    return Operation(K.EXCHANGE, paths[0], paths[1])


def _set(kind: K, offset: int = 0, length: int = 0) -> Act:
    """Sets something of a file that no other step asks for."""
    return _on_file(lambda file, path: Operation(kind, path, offset=offset, length=length))


def _write_back(file: File, path: str) -> Operation:
    _needs(file.size > 0, "there is nothing to write")
    return Operation(K.SYNC_FILE_RANGE, path, length=file.size, flags=("async",))


MORE_STEPS: Mapping[str, StepKind] = {
    step.name: step
    for step in (
        *STEPS.values(),
        StepKind("exchange", _TWO_FILES, _exchange),
        StepKind("exchange-dirs", [("A", "B")], _exchange_directories, moves=True),
        StepKind("chmod", _FILE, _set(K.CHMOD, length=0o600)),
        StepKind("chown", _FILE, _set(K.CHOWN, 1000, 100)),
        StepKind("sync-file-range", _FILE, _on_file(_write_back)),
        StepKind("write-sync", _FILE, _write(_start, K.WRITE, "sync")),
        StepKind("write-dsync", _FILE, _write(_overlap, K.WRITE, "dsync")),
        StepKind("append-sync", _FILE, _write(_end, K.APPEND, "sync")),
        StepKind("append-dsync", _FILE, _write(_end, K.APPEND, "dsync")),
        StepKind("direct-sync", _FILE, _write(_start, K.WRITE, "direct", "sync")),
        StepKind("direct-dsync", _FILE, _write(_next_block, K.WRITE, "direct", "dsync")),
    )
}
"""Those of sequences, and more: each of these would make thousands of sequences of two. Those of random
workloads, whose names would mean others if one were added.
"""

# --- what only single steps do ---------------------------------------------------------------


def _second_block(file: File) -> tuple[int, int]:
    _needs(file.size > 2 * BLOCK_BYTES, "the file is too short")
    return BLOCK_BYTES, BLOCK_BYTES


def _shift(where: Where, flag: str) -> Act:
    """Takes a range of whole blocks out of a file, or makes room for one; what is behind it moves."""

    def change(file: File, path: str) -> Operation:
        offset, length = where(file)
        file.size += length if flag == "insert-range" else -length
        file.hole = False
        return Operation(K.FALLOCATE, path, offset=offset, length=length, flags=(flag,))

    return _on_file(change)


def _clone(world: World, paths: Sequence[str]) -> Operation:
    source, target = _two_files(world, paths)
    _needs(target.size <= source.size, "what the target has beyond the source would stay")
    target.size, target.hole = source.size, source.hole
    return Operation(K.CLONE, paths[0], paths[1])


def _copy_range(world: World, paths: Sequence[str]) -> Operation:
    """The second block of data, and the first of a hole."""
    source, target = _two_files(world, paths)
    offset, length = BLOCK_BYTES, 2 * BLOCK_BYTES
    _needs(source.size >= offset + length, "the source is too short")
    target.size, target.hole = max(target.size, offset + length), False
    return Operation(K.COPY_RANGE, paths[0], paths[1], offset=offset, length=length)


def _exchange_range(world: World, paths: Sequence[str]) -> Operation:
    one, other = _two_files(world, paths)
    one.size, other.size, one.hole, other.hole = other.size, one.size, other.hole, one.hole
    return Operation(K.EXCHANGE_RANGE, paths[0], paths[1])


SINGLE_STEPS: Mapping[str, StepKind] = {
    step.name: step
    for step in (
        *MORE_STEPS.values(),
        StepKind("direct-sector", _FILE, _write(_sector, K.WRITE, "direct")),
        StepKind("direct-tail", _FILE, _write(_tail_sectors, K.WRITE, "direct")),
        StepKind(
            "direct-hole-sector", _FILE, _write(_of_hole(3 * SECTOR_BYTES, SECTOR_BYTES), K.WRITE, "direct")
        ),
        StepKind("direct-tail-dsync", _FILE, _write(_tail_sectors, K.WRITE, "direct", "dsync")),
        StepKind("overlap-sync", _FILE, _write(_overlap, K.WRITE, "sync")),
        StepKind("hole-dsync", _FILE, _write(_in_hole, K.WRITE, "dsync")),
        StepKind("falloc-collapse", _FILE, _shift(_second_block, "collapse-range")),
        StepKind("falloc-collapse-hole", _FILE, _shift(_whole_hole, "collapse-range")),
        StepKind("falloc-insert", _FILE, _shift(_second_block, "insert-range")),
        StepKind("clone", _TWO_FILES, _clone),
        StepKind("copy-range", _TWO_FILES, _copy_range),
        StepKind("exchange-range", _TWO_FILES, _exchange_range),
        StepKind("touch", _FILE, _set(K.TOUCH, length=1_000_000_000)),
    )
}
"""Those, and more again: each by itself."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """How an operation is made durable: `kind` is fsync or fdatasync of `path`, sync, msync or none."""

    kind: str
    path: str | None = None

    def after(self, operation: Operation) -> list[Operation]:
        """The operation with its persistence point."""
        match self.kind:
            case "none":
                return [operation]
            case "msync":
                return [dataclasses.replace(operation, flags=("sync",))]
            case _:
                return [operation, Operation(K(self.kind), self.path or "")]


def persistences(world: World, paths: Sequence[str], operation: Operation) -> list[Persistence]:
    """What can make the operation durable: fsync and fdatasync of each path that is now a file, fsync of each
    that is a directory, fsync of their parent directories, sync, msync after a store into a mapping; and
    none. On directories, fdatasync would add nothing to fsync.
    """
    files = [p for p in paths if isinstance(world.now[p], File)]
    found = [Persistence(kind, p) for kind in ("fsync", "fdatasync") for p in files]
    found += [Persistence("fsync", p) for p in paths if isinstance(world.now[p], Directory)]
    found += [Persistence("fsync", holder) for p in paths if _is_directory(world, holder := parent(p))]
    if operation.kind is K.MMAP_WRITE:
        found.append(Persistence("msync"))
    return list(dict.fromkeys([*found, Persistence("sync"), Persistence("none")]))


def _is_directory(world: World, path: str) -> bool:
    return not path or isinstance(world.now.get(path), Directory)
