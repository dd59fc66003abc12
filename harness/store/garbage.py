"""What run directories and the cache hold, how large it is, and when it was last used: `powercut gc`.

Nothing here is needed to decide anything: what is deleted from the cache is downloaded or built again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RunLocked, StoreError
from harness.host.cache import alone, entries
from harness.store.directory import discard
from harness.store.layout import DATABASE, DELETING, LOCK, PLAN, RUN, UNPACKING, latest, runs
from harness.store.lock import holder_of, locked

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A run directory, or an entry of the cache. `used`: when a file in it was last read or written, in
    seconds since 1970. `stays`: why it cannot be deleted; empty if it can.
    """

    path: Path
    size_bytes: int
    used: float
    stays: str = ""

    @property
    def days(self) -> float:
        """How many days ago it was used."""
        return max(0.0, time.time() - self.used) / DAY_S


def kept_runs(reports: Path) -> list[Kept]:
    """The directories of runs, campaigns, sweeps and measurements below `reports`, and what was left there
    when one was unpacked, made or deleted and the process was killed, least recently used first.
    """
    newest = latest(reports).resolve()
    found = []
    for path in runs(reports).glob("*/"):
        if path.is_symlink():
            continue
        if path.name.startswith((UNPACKING, DELETING)):
            found.append(_held(path))
        elif _is_run(path):
            stays = "reports/latest points to it" if path.resolve() == newest else ""
            found.append(_measured(path, stays or _in_use(path)))
    return sorted(found, key=lambda k: k.used)


_MARKS = (RUN, PLAN, DATABASE, "measurements.json")
"""A directory with one of these files is one of ours."""


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in _MARKS)


def kept_cache(cache: Path) -> list[Kept]:
    """The entries of the cache, least recently used first: each kernel, built tree, root image, suite."""
    return sorted(map(_held, entries(cache)), key=lambda k: k.used)


def _held(path: Path) -> Kept:
    """What stays as long as a process holds it."""
    with alone(path) as used:
        stays = used
    return _measured(path, stays)


def _measured(path: Path, stays: str) -> Kept:
    size, used = 0, 0.0
    for each in _files(path):
        with contextlib.suppress(OSError):
            info = each.lstat()
            size += info.st_blocks * 512
            # Looking into a directory counts as reading it, and so does asking who holds a lock.
            if not stat.S_ISDIR(info.st_mode) and each.name != LOCK:
                used = max(used, info.st_atime, info.st_mtime)
    return Kept(path, size, used or path.lstat().st_mtime, stays)


def _files(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        for folder, _, names in os.walk(path):
            yield Path(folder)
            yield from (Path(folder, name) for name in names)


def _in_use(run: Path) -> str:
    """Why a run directory cannot be deleted: another process writes to it."""
    try:
        holder = holder_of(run / LOCK)
    except OSError as e:
        return str(e)
    return f"it is being written by {holder}" if holder else ""


def old(kept: Sequence[Kept], days: float) -> list[Kept]:
    """Those that can be deleted and were not used for so many days."""
    return [k for k in kept if not k.stays and k.days >= days]


def delete(kept: Sequence[Kept]) -> int:
    """Delete them; returns the bytes that this freed. A run that is written to by now stays, and so does what
    a run uses by now.
    """
    freed = 0
    for each in kept:
        lock = each.path / LOCK
        if each.path.is_dir() and lock.is_file() and _in_use(each.path):
            continue
        with contextlib.ExitStack() as kept_off:
            if _is_run(each.path) and lock.is_file() and not lock.is_symlink():
                try:
                    kept_off.enter_context(locked(lock, each.path, "powercut gc"))
                except RunLocked:
                    continue
                except (OSError, StoreError):  # a full disk; one that can only be read
                    pass
            used = kept_off.enter_context(alone(each.path))
            if used and not each.path.is_symlink():
                continue
            if each.path.is_dir() and not each.path.is_symlink():
                is_gone = discard(each.path)
            else:
                each.path.unlink(missing_ok=True)
                is_gone = True
        freed += each.size_bytes * is_gone
    return freed
