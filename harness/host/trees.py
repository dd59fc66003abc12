"""All files below a folder: with symbolic links followed, where the folder is the user's; with none at all,
where it may come from somebody else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import StoreError, UsageError

_OWN_LINK = re.compile("runs/[^/]+")
"""Where a link `latest` leads that is our own (`store.directory.point_latest`)."""


def files_below(
    folder: Path, leave_out: Callable[[str], bool] = lambda name: False
) -> Iterator[tuple[str, Path]]:
    """Each regular file below `folder`, in order of names: its path relative to it, and where it is. Links to
    files and folders are followed. `leave_out` is asked for the name of each folder.

    Raises UsageError for a link that leads nowhere or back to a folder that it is in; sockets, pipes and
    devices are passed over.
    """
    yield from _below(folder, "", (folder.resolve(),), leave_out)


def _below(
    folder: Path, prefix: str, above: tuple[Path, ...], leave_out: Callable[[str], bool]
) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        name = path.name
        if path.is_dir():
            if leave_out(name):
                continue
            real = path.resolve()
            if real in above:
                raise UsageError(f"{path} leads back to {real}, in which it lies", "remove the link")
            yield from _below(path, f"{prefix}{name}/", (*above, real), leave_out)
        elif path.is_file():
            yield f"{prefix}{name}", path
        elif path.is_symlink():
            raise UsageError(
                f"{path} is a link to {path.readlink()}, which does not exist",
                "remove the link, or put there what it names",
            )


def need_plain(folder: Path, passed_over: Callable[[Path], bool] = lambda place: False) -> None:
    """Raises StoreError for anything below `folder` but files and folders: a directory from somebody else
    could name files of this host by links, which would be read, written to or deleted, and a pipe is read for
    ever. The folder itself may be a link. `passed_over` is asked for each folder below it.
    """
    left = [folder]
    while left:
        try:
            entries = [*os.scandir(left.pop())]
        except FileNotFoundError:  # another process is at work here
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                left += [] if passed_over(path) else [path]
            elif entry.is_symlink() and not _is_own_link(path):
                raise StoreError(
                    f"{path} is a symbolic link, which a run directory, maybe somebody else's, must not hold",
                    "look where it leads; if you made it, put what it names in its place",
                )
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink() and path.exists():
                raise StoreError(f"{path} is neither a file nor a folder", "remove it")


def _is_own_link(path: Path) -> bool:
    try:
        return path.name == "latest" and _OWN_LINK.fullmatch(str(path.readlink())) is not None
    except FileNotFoundError:
        return True
