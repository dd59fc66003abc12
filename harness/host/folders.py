"""Temporary folders; if their owner was killed, a later start of the harness removes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path

LOCK_NAME = "owner.lock"
_MAKER = re.compile(r"(\d+)-")


class OwnedFolder(contextlib.AbstractContextManager["OwnedFolder"]):
    """A new temporary folder whose name begins with `prefix`, locked (flock(2)) as long as its owner lives:
    the kernel releases the lock when the owner is killed. Making one removes those of dead owners. Its name
    has the number of the process, for those that were killed before they had locked it. `below`: the folder
    in which it is made, if not the host's for temporary files.
    """

    def __init__(self, prefix: str, below: Path | None = None) -> None:
        sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=below))
        unlocked = self.path / f"{LOCK_NAME}.new"  # renamed once it is locked: `sweep` sees no unlocked one
        self._lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / LOCK_NAME)

    def remove(self) -> None:
        """Remove the folder with its contents. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)
        self._lock = -1

    def __exit__(self, *_: object) -> None:
        self.remove()


def sweep(prefix: str) -> list[Path]:
    """Remove this user's folders with that prefix whose owners have ended, and return them. A folder without
    a lock file stays if its name has the number of a process that lives, which makes it, or of none: then it
    is somebody else's.
    """
    gone = []
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not _abandoned(folder, prefix):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return gone


def _abandoned(folder: Path, prefix: str) -> bool:
    try:
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        maker = _MAKER.match(folder.name.removeprefix(prefix))
        return maker is not None and not Path("/proc", maker[1]).exists()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
