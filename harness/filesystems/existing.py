"""A disk that somebody has, as a file or a block device: what is on it, and a copy to work on. The disk
itself is only ever read.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.errors import EnvironmentLacks, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.tools import Tool
from harness.plan import ExistingDisk

MIB = 1 << 20
_HOLE = bytes(4096)
BLKID = Tool("blkid", "util-linux")
_AMBIVALENT = 8  # blkid(8), "EXIT STATUS"


def look_at(path: Path, profiles: Sequence[Profile]) -> ExistingDisk:
    """The disk at `path`, for these modes. Raises UsageError for one that has no file system of theirs, or
    is in use; EnvironmentLacks without blkid.
    """
    size = _size(path)
    found = _fstype(path)
    if other := next((p for p in profiles if p.fstype != found), None):
        raise UsageError(
            f"{path} is {found}, and {other.name} takes {other.fstype}", f"name modes of {found}"
        )
    return ExistingDisk(str(path.resolve()), contents_of(path), size)


def need_made(profiles: Iterable[Profile], next_step: str = "powercut run --image FILE names it") -> None:
    """Raises UsageError for a mode that begins with a disk that somebody has, where nobody has named one: it
    would be tested on a disk of mkfs.
    """
    if found := next((p for p in profiles if p.folder), None):
        raise UsageError(f"{found.name} begins with a disk that you have: which?", next_step)


def copy_of(image: ExistingDisk, copy: Path) -> None:
    """Copy it, holes as holes, and fill it up to whole MiB. Raises UsageError for a disk that has changed
    since it was looked at, EnvironmentLacks if there is no room.
    """
    try:
        contents = _copied(Path(image.path), copy)
    except OSError as e:
        raise EnvironmentLacks(f"{image.path} cannot be copied: {e.strerror}", "free some space") from e
    if contents != image.sha256:
        raise UsageError(
            f"{image.path} is not what it was when the run began", "unmount it, or name a copy or a snapshot"
        )
    os.truncate(copy, -(-image.size_bytes // MIB) * MIB)


def _copied(disk: Path, copy: Path) -> str:
    """Copy it, blocks of zeros as holes. Returns the SHA-256 of what was read."""
    contents = hashlib.sha256()
    with disk.open("rb", buffering=MIB) as source, copy.open("wb", buffering=MIB) as made:
        while block := source.read(len(_HOLE)):
            contents.update(block)
            if block == _HOLE:
                made.seek(len(block), os.SEEK_CUR)
            else:
                made.write(block)
    return contents.hexdigest()


def allocated_bytes(image: ExistingDisk) -> int:
    """How much room a copy takes: the holes of a file take none."""
    found = Path(image.path).stat()
    return found.st_blocks * 512 if stat.S_ISREG(found.st_mode) else image.size_bytes


def _size(path: Path) -> int:
    """In bytes. Raises UsageError for what is no disk, or is in use."""
    try:
        # A block device that is mounted cannot be opened so (open(2), O_EXCL).
        device = path.is_block_device()
        descriptor = os.open(path, os.O_RDONLY | (os.O_EXCL if device else 0))
    except OSError as e:
        raise UsageError(
            f"{path} cannot be read: {e.strerror}",
            "unmount it, or name a snapshot of it" if device else "name a file or a block device",
        ) from e
    try:
        if not device and not path.is_file():
            raise UsageError(f"{path} is no disk", "name a file or a block device")
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _fstype(path: Path) -> str:
    """What blkid(8) finds by its superblock. Raises UsageError for anything but one file system."""
    done = subprocess.run(
        [BLKID.path(), "--probe", "--output", "export", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if told.get("USAGE") == "filesystem":
        return told["TYPE"]
    what = told.get("TYPE") or ("a partition table" if "PTTYPE" in told else "")
    if done.returncode == _AMBIVALENT:
        what = "more than one thing"
    raise UsageError(
        f"{path} holds {what or 'nothing that blkid knows'}, and not a file system",
        "name a partition or volume of it" if what else "name a disk with a file system",
    )


def contents_of(path: Path) -> str:
    """SHA-256. A device has no time by which a hash of it could be kept. Raises UsageError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}", "name a file or a block device") from e
