"""Disks of other kinds than the usual one: the files of `vms/disks`.

The usual disk has sectors of 512 bytes and a volatile cache. A mode runs on another one by name:
`xfs/default@4k`.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource
from harness.model import SECTOR_BYTES

SIZES = (512, 4096)
"""Of sectors, in bytes. Nothing between them is sold."""
_NAME = re.compile(r"[a-z0-9]+")


class DiskKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a disk tells the kernel of itself: a file of `vms/disks`. `logical_bytes`: the unit of its
    requests; `physical_bytes`: what it writes as a whole, so no crash tears it. `write_through`: it has no
    volatile cache, so the kernel sends it no flushes. `name`: of the file; empty for the usual disk.
    """

    name: str = ""
    summary: str
    logical_bytes: int = SECTOR_BYTES
    physical_bytes: int = SECTOR_BYTES
    write_through: bool = False

    @property
    def physical_sectors(self) -> int:
        """What it writes as a whole, in units of 512 bytes."""
        return self.physical_bytes // SECTOR_BYTES

    @property
    def is_usual(self) -> bool:
        return not self.name


USUAL = DiskKind(summary="")


@functools.cache
def disks() -> dict[str, DiskKind]:
    """Every other kind of disk, by name. Raises UsageError for a file that does not parse, or describes a
    disk that cannot be.
    """
    return {path.stem: _load(path) for path in sorted(resource("vms", "disks").glob("*.toml"))}


def with_sectors(sizes: str) -> DiskKind:
    """The disk with sectors of these sizes: `4096`, or `512/4096` where the physical ones are larger. Raises
    UsageError if there is none.
    """
    by_sizes = {f"{d.logical_bytes}/{d.physical_bytes}": d for d in (*disks().values(), USUAL)}
    found = by_sizes.get(sizes if "/" in sizes else f"{sizes}/{sizes}")
    if found is None:
        raise UsageError(
            f"no disk has sectors of {sizes or 'no size'}",
            f"one of: {', '.join(sorted(by_sizes))} (logical/physical; one number stands for both)",
        )
    return found


def _load(path: Path) -> DiskKind:
    try:
        read = msgspec.toml.decode(path.read_bytes(), type=DiskKind)
    except (OSError, msgspec.MsgspecError) as e:
        raise UsageError(f"{path}: {e}", f"compare it with its neighbours in {path.parent}") from e
    made = msgspec.structs.replace(read, name=path.stem)
    if wrong := _wrong(made):
        raise UsageError(f"{path}: {wrong}", f"compare it with its neighbours in {path.parent}")
    return made


def _wrong(disk: DiskKind) -> str:
    if not _NAME.fullmatch(disk.name):
        return "its name is of small letters and digits"
    if {disk.logical_bytes, disk.physical_bytes} - {*SIZES}:
        return f"sectors have {' or '.join(map(str, SIZES))} bytes"
    if disk.logical_bytes > disk.physical_bytes:
        return "a physical sector holds whole logical ones"
    if disk.name[0].isdigit() == disk.write_through:  # by this, known failures tell them apart
        return "the name begins with a digit if only sectors differ from the usual disk, else with a letter"
    return ""
