"""Programs of other releases: run from Powercut's cache with the libraries of their own release.

For a program that this machine's release does not have, or not in a version that will do. Nothing is
installed, and no other program sees these libraries.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.errors import EnvironmentLacks
from harness.host.archive import Archive, unpack
from harness.host.cache import cache_dir, hold, scratch_folder

_COMPLETE = "complete"
_LOADER = "ld-linux-x86-64.so.2"


def cached_program(program: str, package: str, release: str = "") -> Path | None:
    """A program that `fetch_program` has put into the cache."""
    root = _root(package, release)
    found = (root / folder / program for folder in ("usr/sbin", "usr/bin", "sbin", "bin"))
    return next((hold(p) for p in found if p.is_file()), None) if (root / _COMPLETE).exists() else None


def command_of(path: Path) -> list[str]:
    """The command that starts a program: one in the cache with its own loader and libraries."""
    cache = cache_dir("programs")
    if cache not in path.parents:
        return [str(path)]
    root = cache / path.relative_to(cache).parts[0]
    loader = next(p for p in root.rglob(_LOADER) if not p.is_symlink())
    folders = dict.fromkeys(str(p.parent) for p in sorted(root.rglob("*.so*")))
    return [str(loader), "--library-path", ":".join(folders), str(path)]


def fetch_program(program: str, package: str, suites: Sequence[str], release: str = "") -> Path:
    """Download a package with the libraries that it depends on, each from the first suite that has it, and
    unpack them into the cache. Returns the program. Raises EnvironmentLacks.

    `release`: a word that keeps it apart from the same package of other suites.
    """
    if found := cached_program(program, package, release):
        return found
    archives = [Archive(suite) for suite in suites]
    with scratch_folder(cache_dir("programs"), "fetching-") as scratch:
        unpacked = Path(scratch) / "root"
        left, had = [package], {package}
        while left:
            deb = _download(left.pop(0), archives, Path(scratch))
            more = [name for name in _libraries(unpack(deb, unpacked, "Depends")) if name not in had]
            left += more
            had.update(more)
        (unpacked / _COMPLETE).touch()
        if not _root(package, release).exists():  # another process may have been faster
            unpacked.rename(_root(package, release))
    if found := cached_program(program, package, release):
        return found
    raise EnvironmentLacks(f"the package {package} of {', '.join(suites)} has no program {program}")


def _root(package: str, release: str) -> Path:
    return cache_dir("programs") / "@".join(filter(None, [package, release]))


def _download(package: str, archives: Sequence[Archive], folder: Path) -> Path:
    if not shutil.which("dpkg-deb"):
        raise EnvironmentLacks("dpkg-deb is needed to unpack Debian packages", "run: make setup")
    archive = next((a for a in archives if a.offered(re.escape(package))), None)
    if archive is None:
        places = " or ".join(map(str, archives))
        raise EnvironmentLacks(f"there is no package {package} in {places}", archives[-1].how_to_refresh)
    return archive.download(package, folder)


def _libraries(depends: str) -> list[str]:
    """The libraries that a package depends on, the first of alternatives."""
    names = [re.match(r"\s*([a-z0-9.+-]+)", wanted) for wanted in depends.split(",")]
    return [m[1] for m in names if m and m[1].startswith("lib")]
