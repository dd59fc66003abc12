"""The cache of what can be rebuilt: kernels, root images, booted guests, which accelerator works.

Who uses an entry holds a shared lock (flock(2)) on it until its process ends, however it ends; who deletes
one takes it alone. So `powercut gc` takes nothing away from a run. (The state of a guest is open while it is
loaded, which is enough.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness.errors import EnvironmentLacks, InUse

_PARTED = (
    "kernels",
    "kernels/modules",
    "kernels/trees",
    "kernels/commits",
    "kernels/variants",
    "kernels/instrumented",
    "rootfs",
    "images",
    "archive",
    "programs",
    "triage",
    "tools",
    "parts",
    "guests",
)
"""Folders of the cache whose entries are used each for itself."""

_DELETING_S = 60.0
"""How long a deletion is waited for."""
_LOOK_S = 0.05
_held: dict[Path, int] = {}
_holding = threading.Lock()


def cache_dir(*parts: str) -> Path:
    """A directory below the user's cache, made on first use.

    `$POWERCUT_CACHE`, else `$XDG_CACHE_HOME/powercut`, else `~/.cache/powercut`. Raises EnvironmentLacks
    where none of them can be had: a container's user has no home directory, or one that is not writable.
    """
    try:
        path = _top().joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as e:  # RuntimeError: Path.home() without HOME and an entry in passwd
        raise EnvironmentLacks(
            f"no directory for the cache: {e}",
            "name one that this user may write to: export POWERCUT_CACHE=DIR",
        ) from e
    return path


def _top() -> Path:
    configured = os.environ.get("POWERCUT_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "powercut"
    # absolute, since it is named to programs that run elsewhere, and without links, as kernels are named
    return (Path(configured) if configured else base).resolve()


def entries(cache: Path) -> Iterator[Path]:
    """What is used, and deleted, as a whole. Lock files of its owners are none: who waits for one has it
    open.
    """
    folders = [cache.joinpath(name) for name in _PARTED]
    for folder in (cache, *folders):
        if folder.is_dir() and not folder.is_symlink():
            yield from (p for p in sorted(folder.iterdir()) if p not in folders and p.suffix != ".lock")


def entry_of(path: Path) -> Path | None:
    """The entry of this user's cache in which a path is; None for one that is somewhere else."""
    top = _top()
    folders = [top.joinpath(name) for name in ("", *_PARTED)]
    named = (path.absolute(), path.resolve())
    inside = [p for one in named for p in (one, *one.parents) if p.parent in folders]
    return next((p for p in inside if p not in folders), None)


def hold(path: Path) -> Path:
    """Keep the entry of the cache in which `path` is from being deleted until this process ends; nothing for
    a path somewhere else, or that is not there. Returns `path`. Raises InUse if it is being deleted.
    """
    entry = entry_of(path)
    if entry is None or not entry.exists():
        return path
    if path.is_file():
        note_use(path)  # `powercut gc` asks when
    with _holding:
        if (before := _held.get(entry)) is not None:
            if _is_still(entry, before):
                return path
            os.close(_held.pop(entry))
        _held[entry] = _shared(entry)
    return path


def note_use(path: Path) -> None:
    """Set when a file was last read to now, if this user may: a file system may not do it (noatime)."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _shared(entry: Path) -> int:
    """A descriptor with the shared lock. Who asks whether an entry is used has it alone for a moment."""
    end = time.monotonic() + _DELETING_S
    while True:
        descriptor = os.open(entry, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if entry.exists() and _is_still(entry, descriptor):
                return descriptor
        os.close(descriptor)
        if time.monotonic() >= end or not entry.exists():
            raise InUse(f"{entry} is being deleted from the cache", "try again: it is made anew")
        time.sleep(_LOOK_S)


def _is_still(entry: Path, descriptor: int) -> bool:
    """Whether the entry is what was opened then, and not one that was made since."""
    return os.path.samestat(entry.stat(), os.fstat(descriptor))


def let_go(path: Path) -> None:
    """End `hold`, for what this process itself is done with."""
    with _holding:
        descriptor = _held.pop(entry_of(path) or path, None)
    if descriptor is not None:
        os.close(descriptor)


@contextlib.contextmanager
def scratch_folder(folder: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder in a folder of the cache, held while something is made in it."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as made:
        try:
            yield hold(Path(made).absolute())
        finally:
            let_go(Path(made).absolute())


@contextlib.contextmanager
def alone(entry: Path) -> Iterator[str]:
    """Have an entry to oneself, to delete it. Yields who uses it, empty if nobody does."""
    with contextlib.ExitStack() as opened:
        try:
            for path in (entry, entry / "lock"):  # of a kept tree
                if path == entry or path.is_file():
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                    opened.callback(os.close, descriptor)
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield f"in use by {_users(path)}"
        except OSError as e:  # a link, or not ours to open
            yield str(e) if path.exists() else ""
        else:
            yield ""


def _users(path: Path) -> str:
    """The processes that hold a lock on a file or folder, as far as the kernel tells (proc_locks(5))."""
    inode = path.stat().st_ino
    with contextlib.suppress(OSError):
        lines = re.findall(rf"FLOCK\s+\S+\s+\S+\s+(\d+) \S+:{inode} ", Path("/proc/locks").read_text())
        if pids := sorted({int(pid) for pid in lines} - {0}):
            return f"process {', '.join(map(str, pids))}"
    return "another process"
