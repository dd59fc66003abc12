"""A second device, for a journal or log of its own: the tail of the disk.

A guest has one disk. Its front is the file system's device, its tail the second one; the agent makes two
devices of it, above the one log, so that a crash state is a state of both. The host's programs get two files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks

NODE = "/dev/second"
"""The name by which mount options call it (`vms/agent/src/second.rs`)."""


class Patch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that no program writes for us: `hex` goes to byte `at` of the second device."""

    at: int
    hex: str

    @property
    def data(self) -> bytes:
        """Raises ValueError where `hex` is none."""
        return bytes.fromhex(self.hex)


def file_for(image: Path) -> Path:
    """Where the second device of an image is cut out to."""
    return image.with_suffix(".second")


def cut(image: Path, offset: int) -> Path:
    """The image's bytes from `offset` on as a file of their own. The image stays as it is."""
    second = file_for(image)
    with image.open("rb") as source, second.open("wb") as target:
        left = os.fstat(source.fileno()).st_size - offset
        while left:
            done = os.sendfile(target.fileno(), source.fileno(), offset, left)
            offset, left = offset + done, left - done
    return second


def join(image: Path, second: Path, front_bytes: int, tail_bytes: int) -> None:
    """Inverse of `cut`, for an image that was truncated to its front; the file `second` goes.

    Raises EnvironmentLacks where a program has changed the size of one of the two.
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
    """Write each of them."""
    with second.open("r+b") as f:
        for p in patches:
            f.seek(p.at)
            f.write(p.data)
