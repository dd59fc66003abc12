"""Waiting for other processes of this host, and for how long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import InUse
from harness.host.text import one_line

BUILD_S = 3600.0
"""How long a build by another process is waited for; one takes minutes."""
_LOOK_S = 0.2
_COMMAND_CHARACTERS = 200


@contextlib.contextmanager
def exclusive(path: Path, what: str, say: Callable[[str], None], wait_s: float = BUILD_S) -> Iterator[None]:
    """Hold the lock file `path` (flock(2)): one process at a time. The kernel releases it when its holder and
    all that `run_group` started for it are gone: a killed build's make goes on. `say` is told who has `what`,
    if somebody does. Raises InUse if that is so after `wait_s`.
    """
    with path.open("a+") as lock:
        os.set_inheritable(lock.fileno(), True)
        if not _taken(lock.fileno()):
            minutes = f"{wait_s / 60:.0f} min" if wait_s >= 60 else f"{wait_s:g} s"
            say(f"{what}: in use by {_holder(path)}; waiting for it, up to {minutes} (lock file {path})")
            end = time.monotonic() + wait_s
            while not _taken(lock.fileno()):
                if time.monotonic() >= end:
                    raise InUse(
                        f"{what}: still in use by {_holder(path)} after {minutes} (lock file {path})",
                        "wait for that process to end, or stop it; then try again",
                    )
                time.sleep(_LOOK_S)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    """The process that wrote its number into the lock file, with its command line as far as that is known."""
    try:
        pid = int(path.read_text())
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except (OSError, ValueError):
        return "another process"
    command = one_line(line.decode(errors="replace"))[:_COMMAND_CHARACTERS]
    return f"process {pid} ({command})"
