"""A second device, for an external journal or log: the tail of the disk.

A guest has one disk. Its front is the file system's device, its tail the second one. The agent maps two
devices onto it, so a crash state is a state of both; each has a log and a cache of its own. Programs on the
host get two files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

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


def cut(image: Path, offset: int) -> Path:
    """Copy the image from `offset` on into a file of its own. The image stays as it is."""
    second = file_for(image)
    with image.open("rb") as source, second.open("wb") as target:
        left = os.fstat(source.fileno()).st_size - offset
        while left:
            done = os.sendfile(target.fileno(), source.fileno(), offset, left)
            offset, left = offset + done, left - done
    return second


def join(image: Path, second: Path, front_bytes: int, tail_bytes: int) -> None:
    """Inverse of `cut`, for an image that was truncated to its front; the file `second` is removed.

    Raises EnvironmentLacks if a program changed the size of either.
    """
    for path, expected in ((image, front_bytes), (second, tail_bytes)):
        if (found := path.stat().st_size) != expected:
            raise EnvironmentLacks(f"mkfs made {path.name} {found} bytes long; the device has {expected}")
    with image.open("r+b") as target, second.open("rb") as source:
        target.seek(front_bytes)
        left = tail_bytes
        while left:
            left -= os.sendfile(target.fileno(), source.fileno(), tail_bytes - left, left)
    second.unlink()


def patch(second: Path, patches: Sequence[Patch]) -> None:
    """Write all patches."""
    with second.open("r+b") as f:
        for p in patches:
            f.seek(p.at)
            f.write(p.data)
