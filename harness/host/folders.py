"""Temporary folders that a later start of the harness removes where their owner was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

LOCK_NAME = "owner.lock"


class OwnedFolder:
    """A new temporary folder whose name begins with `prefix`, locked (flock(2)) for as long as its owner
    lives: the kernel gives the lock back when that is killed. Making one sweeps those of dead owners.
    """

    def __init__(self, prefix: str) -> None:
        sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        unlocked = self.path / f"{LOCK_NAME}.new"  # nobody sees the lock before it is held
        self._lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / LOCK_NAME)

    def remove(self) -> None:
        """With all that is in it. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def sweep(prefix: str) -> list[Path]:
    """Remove this user's folders of that prefix whose owners have ended; returns them. One without a lock is
    just being made, or somebody else's: it stays.
    """
    gone = []
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not _abandoned(folder):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return gone


def _abandoned(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
