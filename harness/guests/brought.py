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
from pathlib import Path, PurePosixPath

from harness.errors import EnvironmentLacks, UsageError
from harness.host import elf
from harness.host.trees import files_below

ELF = b"\x7fELF"
USUAL = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
"""Where distributions keep libraries."""

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


def libraries(programs: Iterable[Path], folders: Sequence[str] = ()) -> dict[str, Path]:
    """The shared libraries that programs or libraries of this host need, by their paths, as ld.so(8) finds
    them; those in `folders` come first. Nothing is run: what is needed is read from the files. Raises
    EnvironmentLacks for one that is not there.
    """
    found: dict[str, Path] = {}
    for program in programs:
        found |= {str(path): path for path in _closure(program, folders).values()}
    return found


def _closure(program: Path, folders: Sequence[str]) -> dict[str, Path]:
    """All that one program loads, by name: what has been loaded under a name is not looked for again."""
    found: dict[str, Path] = {}
    left: list[tuple[Path, tuple[str, ...]]] = [(program, ())]
    while left:
        path, above = left.pop(0)
        seen = path.stat()
        needs = _linked(path, seen.st_mtime_ns, seen.st_size)
        own = tuple(re.sub(r"\$(ORIGIN|\{ORIGIN\})", str(path.resolve().parent), f) for f in needs.folders)
        inherited = (*own, *above) if needs.for_all else above
        for name in filter(None, (needs.loader, *needs.libraries)):
            if PurePosixPath(name).name not in found:
                library = library_of(name, [*folders, *(inherited if needs.for_all else own)], path.name)
                found[PurePosixPath(name).name] = library
                left.append((library, inherited))
    return found


@functools.lru_cache(maxsize=4096)
def _linked(path: Path, mtime_ns: int, size: int) -> elf.Linked:
    """What a file of this host needs; nothing where it is no program for this machine."""
    try:
        return elf.linked(path.read_bytes())
    except ValueError:
        return elf.Linked()


def library_of(name: str, folders: Sequence[str] = (), needed_by: str = "a program of the workload") -> Path:
    """The path on this host of a library, given by name or path; looked for in `folders` first. Raises
    EnvironmentLacks if it is missing, or is none: a program may name any file.
    """
    if "/" in name:
        places = [Path(name)]
    else:
        known = [*(Path(p) for p in _known().get(name, [])), *(Path(folder, name) for folder in USUAL)]
        places = [*(Path(folder, name) for folder in folders), *known]
    path = next((p for p in places if p.is_file() and is_elf(p)), None)
    if path is None:
        raise EnvironmentLacks(
            f"this host has no {name}, which {needed_by} needs",
            "install it, lay it beside the program, or link the program statically",
        )
    return path


@functools.cache
def _known() -> dict[str, list[str]]:
    """The linker's cache: paths by name, for this architecture; last those for some processors alone."""
    listed = subprocess.run(
        ["/sbin/ldconfig", "-p"], capture_output=True, text=True, errors="replace", check=False
    )
    found: dict[str, list[str]] = {}
    for name, path in sorted(
        re.findall(r"^\s+(\S+) \([^)]*x86-64[^)]*\) => (\S+)$", listed.stdout, re.MULTILINE),
        key=lambda pair: "hwcaps" in pair[1],
    ):
        found.setdefault(name, []).append(path)
    return found


def is_elf(path: Path) -> bool:
    """Whether a file is a program or library."""
    with path.open("rb") as file:
        return file.read(len(ELF)) == ELF
