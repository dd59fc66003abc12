"""Programs that the harness starts: none of them outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

_UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'


def die_with_parent(line: Sequence[str]) -> list[str]:
    """`line`, killed by the kernel when the thread that started it ends (PR_SET_PDEATHSIG, prctl(2)):
    a killed orchestrator leaves no process behind, not even a stopped one. One that was killed before the
    signal was asked for is noticed by the parent's number.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _UNLESS_ORPHANED, f"{os.getpid()}", *line]


def processors_for(workers: int) -> list[int | None]:
    """The processor that each of so many workers keeps to, if each processor that this process may use gets
    the same number of them; else all None: the scheduler knows better.

    Guest, disk and this program wait for one another all the time: a visit is one thread of work. Spread
    over processors that others use as well, each wake-up waits for one that is free, while the processor it
    came from has nothing to do.
    """
    own = sorted(os.sched_getaffinity(0))
    if workers % len(own):
        return [None] * workers
    return [own[number % len(own)] for number in range(workers)]


_CROWDED_AT_MOST = 10.0


def crowding() -> float:
    """How many processes want each processor that this one may use, by the load of the last minute: from 1,
    on a host that is not busy, to 10. A limit on what a guest may take is a multiple of it: a guest that
    waits for a processor is not lost.
    """
    load, own = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return min(max(load / own, 1.0), _CROWDED_AT_MOST)


def keep_to(processor: int | None) -> None:
    """This thread, and all that it will start, run on this processor alone; None: wherever they did."""
    if processor is not None:
        with contextlib.suppress(OSError):  # it may have been taken from us since: so wherever we are left
            os.sched_setaffinity(0, {processor})


def kill_children(thread: int) -> None:
    """SIGKILL for every process that a thread of this process (its number for the kernel) has started."""
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/self/task/{thread}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def run_group(line: Sequence[str], output: BinaryIO, env: Mapping[str, str] | None = None) -> int:
    """Run a program that starts others, as make does; all that they print goes to `output`. Returns its exit
    code. `env`: its environment, if it is not ours. Whatever ends this call early (KeyboardInterrupt) ends
    every one of them; SIGKILL does not, and so they hold the locks of `harness.host.locks` until they end.
    """
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=env,
        start_new_session=True,
        close_fds=False,
    )
    try:
        return process.wait()
    except BaseException:
        _end_group(process)
        raise


_ENDING_S = 10.0
"""How long programs that were asked to end may take."""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started. They are asked first: a make that is killed leaves half an
    object, which the next one takes for made.
    """
    try:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(_ENDING_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
