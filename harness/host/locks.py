"""Waiting for other processes of this host."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path, what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock file `path` (flock(2)): one process at a time; the kernel releases it when its holder
    dies. `say` is told that another process has `what`, if one does.
    """
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is using {what}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
