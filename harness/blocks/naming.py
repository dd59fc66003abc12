"""Names every write of a log: the format's own names for metadata, the workload's words for data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.blocks import btrfs, ext4, f2fs, fat, gfs2, nilfs2, ntfs, words, xfs
from harness.blocks.fields import BlockName, Format, Image, Kind, Write, blocks, several
from harness.model import BLOCK_BYTES, SECTOR_BYTES, EntryFlag, LogEntry, Operation, OperationKind
from harness.oracles.pattern import POISON
from harness.writelog.log import WriteLog, changes

FORMATS: Sequence[Callable[[Image, int], Format | None]] = (
    ext4.read,
    xfs.read,
    btrfs.read,
    f2fs.read,
    nilfs2.read,
    gfs2.read,
    fat.read,
    ntfs.read,
)
"""Each reads a format from the base image; None if that holds another one."""


@dataclass(frozen=True, slots=True)
class NamedLog:
    """A log whose blocks have names. `writes`: of what each write wrote, by entry, from its first byte to its
    last.
    """

    writes: dict[int, tuple[BlockName, ...]]
    _form: Format
    _paths: Sequence[str]

    def block(self, at: int, data: bytes) -> tuple[BlockName, ...]:
        """The names of bytes that were read at a byte of the device."""
        return tuple(_with_paths(name_write(self._form, Write(-1, at, data)), self._paths))


def named_log(
    base: Path,
    log: WriteLog,
    contents: Path,
    *,
    second_bytes: int = 0,
    paths: Sequence[str] = (),
    order: Iterable[int] = (),
) -> NamedLog:
    """Names for a log.

    `base`: the plain image on which the log begins; one that is gone leaves the data its names. `contents`:
    the plain file of the log. `second_bytes`: where on the device a second one, for a journal or log, begins;
    0 without one. `paths`: of each operation, the file that it writes. `order`: entries in the order of
    submission, where that is known.
    """
    form = _format(Image(base), second_bytes)
    known = [log.entries[n] for n in order if 0 <= n < len(log.entries)]
    entries = known or list(log.entries)
    for write in _writes(entries, contents):
        form.learn(write)
    names = {w.entry: tuple(_with_paths(name_write(form, w), paths)) for w in _writes(entries, contents)}
    return NamedLog(names, form, paths)


def written_paths(operations: Sequence[Operation]) -> list[str]:
    """Of each operation, the file that it writes by its name at that time; a handle stands for the path that
    was opened.
    """
    opened: dict[str, str] = {}
    found = []
    for op in operations:
        if op.kind is OperationKind.OPEN:
            opened[op.target] = op.path
        found.append(opened.get(op.path, op.path))
    return found


def _writes(entries: Iterable[LogEntry], contents: Path) -> Iterator[Write]:
    with contents.open("rb") as file:
        for entry in entries:
            if changes(entry) and EntryFlag.DISCARD not in entry.flags:
                file.seek(entry.data_offset)
                data = file.read(entry.sectors * SECTOR_BYTES)
                yield Write(entry.index, entry.sector * SECTOR_BYTES, data)


def _format(image: Image, second_bytes: int) -> Format:
    found = (read(image, second_bytes) for read in FORMATS)
    return next((form for form in found if form is not None), Unknown())


class Unknown:
    """A file system of which nothing is known here: only data says what it is."""

    def learn(self, write: Write) -> None:
        pass

    def name(self, write: Write) -> Iterator[BlockName]:
        for at, data in blocks(write, BLOCK_BYTES):
            yield BlockName(at, len(data), "", Kind.UNKNOWN)


def name_write(form: Format, write: Write) -> Iterator[BlockName]:
    """The names of one write. What the format does not know is looked at for words of the workload."""
    for name in form.name(write):
        if name.kind not in (Kind.UNKNOWN, Kind.DATA) and name.home is None:
            yield name
        else:
            start = name.at - write.at
            yield from _data(name, write.data[start : start + name.length])


def _data(name: BlockName, data: bytes) -> Iterator[BlockName]:
    """What a block holds by its own words, each piece with the name that the format has for it."""
    found = words.extents(data)
    if not found or (name.home is not None and found[0].start):
        yield name
        return
    bounds = [0, *(e.start for e in found[1:]), len(data)]
    for extent, (start, stop) in zip(found, itertools.pairwise(bounds), strict=True):
        piece = replace(name, at=name.at + start, length=stop - start)
        if extent.writer == POISON:
            yield replace(piece, text=name.text or "what the device held before mkfs", kind=Kind.DATA)
        else:
            yield replace(
                piece,
                text=name.text if name.home is not None else "",
                kind=name.kind if name.home is not None else Kind.DATA,
                sure=True,
                writer=extent.writer,
                offset=extent.offset,
            )


def _with_paths(names: Iterator[BlockName], paths: Sequence[str]) -> Iterator[BlockName]:
    """Whose data it is, in words, with neighbours of one operation joined."""
    held: BlockName | None = None
    for name in names:
        if held is not None and _continues(held, name):
            held = replace(held, length=held.length + name.length)
            continue
        if held is not None:
            yield _worded(held, paths)
        held = name
    if held is not None:
        yield _worded(held, paths)


def _continues(held: BlockName, name: BlockName) -> bool:
    if (held.text, held.kind, held.sure, held.writer) != (name.text, name.kind, name.sure, name.writer):
        return False
    if held.home is not None or name.home is not None:
        return False
    return held.offset is None or name.offset == held.offset + held.length


def _worded(name: BlockName, paths: Sequence[str]) -> BlockName:
    if name.writer is None or name.offset is None:
        return name
    path = paths[name.writer] if name.writer < len(paths) else ""
    whose = f"data of {path}" if path else "data"
    text = f"{whose} from {name.offset}, written by operation {name.writer}"
    return replace(name, text=f"{name.text}: {text}" if name.text else text)


def describe(names: Sequence[BlockName], limit: int = 4) -> str:
    """The names of one write in a line."""
    return several([str(n) if n.named else "?" for n in {str(n): n for n in names}.values()], limit)
