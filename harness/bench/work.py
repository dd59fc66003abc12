"""The bench's material: a workload that is always the same, and logs padded to a given length."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from harness.model import (
    BLOCK_BYTES,
    SECTOR_BYTES,
    CrashState,
    EntryFlag,
    LogEntry,
    Operation,
    OperationKind,
    Workload,
)
from harness.oracles.pattern import POISON, POISON_BLOCK_BYTES, WORD_BYTES, word
from harness.writelog import WriteLog
from harness.writelog.log import HEADER, MAGIC, SUPER, VERSION, changes

SEED = 1

# --- the workload ----------------------------------------------------------------------------

_FILES, _FEWEST = 12, 4
_LARGEST_BYTES = 128 << 10
_MIX = (
    (OperationKind.APPEND, 35),
    (OperationKind.WRITE, 20),
    (OperationKind.FSYNC, 20),
    (OperationKind.RENAME, 8),
    (OperationKind.UNLINK, 5),
    (OperationKind.CREATE, 12),
)


def make_workload(count: int) -> Workload:
    """`count` operations on a few files: the same ones every time, each possible after those before it."""
    random = Random(SEED)  # noqa: S311  # it has to be the same every time
    sizes: dict[str, int] = {}
    operations = [_next_operation(random, sizes) for _ in range(count)]
    return Workload(
        f"bench-{count}", "A mix of appends, writes, fsyncs, renames and unlinks", tuple(operations)
    )


def _next_operation(random: Random, sizes: dict[str, int]) -> Operation:
    """An operation that the files in `sizes` allow; updates `sizes`, which is in bytes by path."""
    # only random() gives the same sequence in every version of Python
    kind = _pick(random, [k for k, weight in _MIX for _ in range(weight)])
    free = [name for name in (f"f{i}" for i in range(_FILES)) if name not in sizes]
    if not sizes or (kind is OperationKind.CREATE and free):
        path = _pick(random, free)
        sizes[path] = 0
        return Operation(OperationKind.CREATE, path)
    path = _pick(random, sorted(sizes))
    length = 512 + int(random.random() * 12288)
    match kind:
        case OperationKind.RENAME:
            over = [name for name in sorted(sizes) if name != path]
            fuller = len(sizes) > _FEWEST
            target = _pick(random, over if not free or (fuller and random.random() < 0.3) else free)
            sizes[target] = sizes.pop(path)
            return Operation(kind, path, target)
        case OperationKind.UNLINK if len(sizes) > _FEWEST:
            del sizes[path]
            return Operation(kind, path)
        case OperationKind.WRITE if sizes[path]:
            offset = int(random.random() * sizes[path])
            sizes[path] = max(sizes[path], offset + length)
            return Operation(kind, path, offset=offset, length=length)
        case OperationKind.APPEND if sizes[path] < _LARGEST_BYTES:
            sizes[path] += length
            return Operation(kind, path, length=length)
        case _:
            return Operation(OperationKind.FSYNC, path)


def _pick(random: Random, choices: Sequence[Any]) -> Any:
    return choices[int(random.random() * len(choices))]


def write_workload(workload: Workload, folder: Path) -> Path:
    """Write the workload as a file for `powercut run -w`, and return its path."""
    path = folder / f"{workload.name}.toml"
    lines = [f'    "{operation}",' for operation in workload.operations]
    path.write_text("\n".join([f'summary = "{workload.summary}"', "operations = [", *lines, "]", ""]))
    return path


def spaced(last: int, count: int) -> list[CrashState]:
    """`count` crash states spread evenly over the prefixes 1 to `last`, without repeats."""
    step = last / min(count, last)
    return [CrashState(round(step * (i + 1))) for i in range(min(count, last))]


# --- padding ---------------------------------------------------------------------------------


def unused_blocks(base: Path, log: WriteLog) -> list[int]:
    """Numbers of the 4 KiB blocks that mkfs left as poison and no entry of the log touches: no recovery, walk
    or fsck reads them.
    """
    touched: set[int] = set()
    per_block = BLOCK_BYTES // SECTOR_BYTES
    for entry in filter(changes, log.entries):
        touched.update(range(entry.sector // per_block, (entry.sector + entry.sectors - 1) // per_block + 1))
    unused = []
    with base.open("rb") as file:
        for block, data in enumerate(iter(lambda: file.read(BLOCK_BYTES), b"")):
            poison = struct.pack("<Q", word(POISON, block)) * (POISON_BLOCK_BYTES // WORD_BYTES)
            if block not in touched and data == poison:
                unused.append(block)
    return unused


def pad_log(log: WriteLog, blocks: Sequence[int], entries: int, path: Path) -> list[int]:
    """Write `log` to `path`, padded to `entries` entries: writes to each of `blocks` in turn are spread
    between its own.

    Returns for each prefix of `log` (0 to its length) the prefix of the padded log whose state is the same
    except for `blocks`. Raises ValueError if `log` is longer than that, or there are no blocks.
    """
    real = log.entry_count
    pads = entries - real
    if pads < 0 or not blocks:
        raise ValueError(f"a log of {real} entries cannot be padded to {entries} with {len(blocks)} blocks")
    where = [0]
    done = 0
    with log.path.open("rb") as source, path.open("wb") as padded:
        unit = log.unit_bytes
        padded.write(SUPER.pack(MAGIC, VERSION, entries, unit).ljust(unit, b"\0"))
        for entry in log.entries:
            due = pads * (entry.index + 1) // real
            for number in range(done, due):
                padded.write(_pad_entry(number, blocks[number % len(blocks)], unit))
            done = due
            padded.write(_raw_entry(source.fileno(), entry, unit))
            where.append(entry.index + 1 + done)
    return where


def _pad_entry(number: int, block: int, unit: int) -> bytes:
    """A write of one block. Its data is its number, so that no two states have equal contents by accident."""
    header = HEADER.pack(block * BLOCK_BYTES // unit, BLOCK_BYTES // unit, EntryFlag(0), 0)
    return header.ljust(unit, b"\0") + struct.pack("<Q", number) * (BLOCK_BYTES // 8)


def _raw_entry(file: int, entry: LogEntry, unit: int) -> bytes:
    """The bytes of an entry in its log, header and data."""
    has_data = changes(entry) and EntryFlag.DISCARD not in entry.flags
    length = entry.sectors * SECTOR_BYTES if has_data else 0
    return os.pread(file, unit + length, entry.data_offset - unit)
