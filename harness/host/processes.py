"""Programs that the harness starts: none of them outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

_UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'


def die_with_parent(line: Sequence[str]) -> list[str]:
    """`line`, killed by the kernel when the thread that started it ends (PR_SET_PDEATHSIG, prctl(2)):
    a killed orchestrator leaves no process behind, not even a stopped one. One that was killed before the
    signal was asked for is noticed by the parent's number.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _UNLESS_ORPHANED, f"{os.getpid()}", *line]


def kill_children(thread: int) -> None:
    """SIGKILL for every process that a thread of this process (its number for the kernel) has started."""
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/self/task/{thread}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
