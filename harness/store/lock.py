"""One writer at a time: two processes in one run directory would share its scratch images, and one's fsck
would check the other's half-recovered disk.

The lock is an open file description lock (fcntl(2)) on a file in the run directory: unlike with flock(2), who
asks whether somebody holds it need not take it, and gets into nobody's way. The kernel drops it when its
holder ends, however it ends; the holder named in the file is only for people, and stale once nobody holds the
lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.errors import RunLocked, StoreError
from harness.host.files import json_bytes

HOLDER_BYTES = 1 << 16
"""Upper bound on what is read of the lock file, which is untrusted data."""


_FLOCK = "hhqqi"
"""struct flock: type, whence, start, length, process."""
_ALL_OF_IT = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class Holder(msgspec.Struct, frozen=True):
    """The holder of the lock. `since`: when it was taken."""

    pid: int
    host: str
    since: datetime
    command: str

    def __str__(self) -> str:
        since = f"{self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"process {self.pid} on {self.host} since {since} ({self.command})"


@contextlib.contextmanager
def locked(file: Path, run: Path, command: str) -> Iterator[None]:
    """Hold the lock `file` of the run directory `run`; `command` is shown to other processes.

    Raises RunLocked, naming the holder, if another process (or another part of this one) holds it, StoreError
    if the directory can only be read.
    """
    descriptor = _opened(file, run)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _ALL_OF_IT)
        except BlockingIOError as error:
            raise RunLocked(
                f"{run} is being written by {_holder(descriptor)}",
                "wait for that process to finish, or stop it; then try again",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(
            descriptor, json_bytes(Holder(os.getpid(), socket.gethostname(), datetime.now(UTC), command)), 0
        )
        yield
    finally:
        os.close(descriptor)


def _opened(file: Path, run: Path) -> int:
    """The lock file, to be written. Raises StoreError if the run directory can only be read."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise StoreError(
            f"{run} cannot be written to: {e.strerror}",
            "copy it to a folder that can be written to, and name the copy",
        ) from e


def holder_of(file: Path) -> str:
    """Who holds a lock file, which may be another user's; empty if nobody does. Unlike `locked`, leaves the
    file as it is.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _ALL_OF_IT)
        return "" if struct.unpack(_FLOCK, found)[0] == fcntl.F_UNLCK else _holder(descriptor)
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """The holder named in the lock file, which may not have been written yet."""
    try:
        return str(msgspec.json.decode(os.pread(descriptor, HOLDER_BYTES, 0), type=Holder))
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return "another process"
