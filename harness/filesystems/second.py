"""A second device, for an external journal or log: the tail of the disk.

A guest has one disk. Its front is the file system's device, its tail the second one. The agent maps two
devices onto it, so a crash state is a state of both; each has a log and a cache of its own. Programs on the
host get two files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from harness.errors import EnvironmentLacks

NODE = "/dev/second"
"""Its name in mount options (`vms/agent/src/second.rs`)."""


class Patch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that no program writes for us: `hex` is written at byte `at` of the second device."""

    at: int
    hex: str

    @property
    def data(self) -> bytes:
        """Raises ValueError if `hex` is not hexadecimal."""
        return bytes.fromhex(self.hex)


def file_for(image: Path) -> Path:
    """The file that holds the second device of an image."""
    return image.with_suffix(".second")


def split_off(image: Path, offset: int) -> Path:
    """Copy the image from `offset` on into a file of its own, holes as holes: this is done for every fsck,
    and most of a journal is empty. The image stays as it is.
    """
    second = file_for(image)
    with image.open("rb") as source, second.open("wb") as target:
        target.truncate(os.fstat(source.fileno()).st_size - offset)
        for begin, end in _data(source.fileno(), offset):
            target.seek(begin - offset)
            _copy(source, target, begin, end - begin)
    return second


def _copy(source: BinaryIO, target: BinaryIO, at: int, count: int) -> None:
    """`count` bytes from `at` on, to where the target stands."""
    while count:
        done = os.sendfile(target.fileno(), source.fileno(), at, count)
        at, count = at + done, count - done


def _data(file: int, at: int) -> Iterator[tuple[int, int]]:
    """Where a file has data from `at` on, each stretch as begin and end. One whose file system knows no holes
    is all data (lseek(2)).
    """
    while True:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError as e:
            if e.errno != errno.ENXIO:
                raise
            return
        at = os.lseek(file, begin, os.SEEK_HOLE)
        yield begin, at


def join(image: Path, second: Path, front_bytes: int, tail_bytes: int) -> None:
    """Inverse of `cut`, for an image that was truncated to its front; the file `second` is removed.

    Raises EnvironmentLacks if a program changed the size of either.
    """
    for path, expected in ((image, front_bytes), (second, tail_bytes)):
        if (found := path.stat().st_size) != expected:
            raise EnvironmentLacks(f"mkfs made {path.name} {found} bytes long; the device has {expected}")
    with image.open("r+b") as target, second.open("rb") as source:
        target.seek(front_bytes)
        _copy(source, target, 0, tail_bytes)
    second.unlink()


def patch(second: Path, patches: Sequence[Patch]) -> None:
    """Write all patches."""
    with second.open("r+b") as f:
        for p in patches:
            f.seek(p.at)
            f.write(p.data)
