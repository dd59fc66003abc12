"""What applications bring of this host into the guest: files, folders, and the Python interpreter.

Everything stands in the guest at the path that it has here, symbolic links followed, so that a program finds
what it was configured to look for.
"""

from __future__ import annotations

import functools
import glob
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from harness.errors import EnvironmentLacks, UsageError
from harness.host.trees import files_below

ELF = b"\x7fELF"
LDD_AT_ONCE = 100

_WHERE = (
    "import json, sys, sysconfig; print(json.dumps("
    "[getattr(sys, '_base_executable', '') or sys.executable,"
    " sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib'), sys.implementation.cache_tag]))"
)
_NOT_BROUGHT = frozenset(
    [
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "ensurepip",
        "tkinter",
        "turtledemo",
        "pydoc_data",
        "site-packages",
        "dist-packages",
    ]
)
"""Folders of Python's library that are of no use without a screen, a network or a developer; and the packages
that were installed beside it, which `files` names one by one.
"""


def host_files(wanted: str) -> dict[str, Path]:
    """The files that `wanted` stands for, by their paths in the guest: an absolute path or glob pattern of
    this host, `PATH` or `PATH:PACKAGE`; a folder stands for all that is below it.

    Raises EnvironmentLacks, with the package, if there is nothing of that name, and for what cannot be
    brought: a link that leads nowhere, a device.
    """
    pattern, _, package = wanted.partition(":")
    places = [Path(place) for place in sorted(glob.glob(pattern, include_hidden=True))]  # noqa: PTH207  # it may begin with /
    if not places:
        raise EnvironmentLacks(
            f"{pattern}, which a workload brings into the guest, is not on this host",
            f"run: apt-get install {package}" if package else "install what it belongs to",
        )
    return dict(pair for place in places for pair in _files_at(place))


def _files_at(place: Path) -> Iterator[tuple[str, Path]]:
    if place.is_file():
        yield str(place), place
    elif place.is_dir():
        yield from ((f"{place}/{name}", path) for name, path in _below(place))
    else:
        raise EnvironmentLacks(
            f"{place}, which a workload brings into the guest, is neither a file nor a folder",
            "look at it: ls -l",
        )


def _below(folder: Path, leave_out: Callable[[str], bool] = lambda name: False) -> Iterator[tuple[str, Path]]:
    """`files_below` of this host, whose links are not the user's mistake."""
    try:
        yield from files_below(folder, leave_out)
    except UsageError as e:
        raise EnvironmentLacks(e.what, e.next_step) from e


@functools.cache
def python_files() -> tuple[str, dict[str, Path]]:
    """The interpreter's path, and by path in the guest all that it needs to run programs that import the
    standard library: the `python3` of PATH, or where that is one of a virtual environment, the one behind it.

    Raises EnvironmentLacks where there is none.
    """
    lacking = EnvironmentLacks("python3, which a workload runs in the guest, does not start on this host")
    found = shutil.which("python3")
    if not found:
        raise EnvironmentLacks(
            "python3, which a workload runs in the guest, is not installed", "run: apt-get install python3"
        )
    said = subprocess.run([found, "-I", "-c", _WHERE], capture_output=True, text=True, check=False)
    try:
        program, library, platform_library, tag = json.loads(said.stdout)
    except ValueError as e:
        raise lacking from e
    files = {program: Path(program)}
    for folder in dict.fromkeys([library, platform_library]):
        files |= {
            f"{folder}/{name}": path for name, path in _below(Path(folder), _left_out) if _is_used(name, tag)
        }
    return program, files


def _left_out(name: str) -> bool:
    return name in _NOT_BROUGHT or name.startswith("config-")


def _is_used(name: str, tag: str) -> bool:
    """Whether a file of Python's library may be read in the guest. Compiled modules come along, since
    compiling them anew takes an emulated guest longer than most workloads.
    """
    if name.endswith(".pyc"):
        return name.endswith(f".{tag}.pyc")
    return not name.endswith((".a", ".exe")) and "_tkinter." not in name


def libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries that ldd(1) names for files of this host, by their paths. Raises EnvironmentLacks
    for one that ldd does not find. Not for files from elsewhere: ldd may run them.
    """
    found: dict[str, Path] = {}
    left = [*programs]
    while left:
        batch, left = left[:LDD_AT_ONCE], left[LDD_AT_ONCE:]
        found |= _ldd(batch)
    return found


def _ldd(programs: Sequence[Path]) -> dict[str, Path]:
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    if missing := re.search(r"^\s+(\S+) => not found", listed.stdout, re.MULTILINE):
        of = ", ".join(p.name for p in programs[:3])
        raise EnvironmentLacks(
            f"this host has no {missing[1]}, which a file that the workload brings needs ({of})",
            "install it",
        )
    names = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed.stdout, re.MULTILINE)
    return {name: Path(name) for name in names}


def is_elf(path: Path) -> bool:
    """Whether a file is a program or library."""
    with path.open("rb") as file:
        return file.read(len(ELF)) == ELF
