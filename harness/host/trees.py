"""All files below a folder, with symbolic links followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import UsageError


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
