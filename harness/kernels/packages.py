"""Packages of kernels: in the cache, or downloaded with apt and unpacked; never installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host import elf
from harness.host.archive import Archive, unpack
from harness.host.cache import cache_dir, scratch_folder
from harness.host.files import file_hash, write_atomically
from harness.kernels.pins import Pin, matching, version_in

COMPLETE = "complete"
"""A file of a kernel's folder in the cache: it is whole; contains the package's version."""
LIBRARY = "library"
_INDEXES = ("modules.dep", "modules.softdep", "modules.alias")
_RELEASE = "0.0"
"""For depmod, which takes no word that does not look like a release."""


def only(root: Path, pattern: str) -> Path:
    """The first match of a pin's pattern. Raises KernelError: the package is laid out otherwise."""
    found = _places(root, pattern)
    if not found:
        raise KernelError(
            f"the package {root.name} holds nothing like {pattern}", "correct its pin in kernels/"
        )
    return found[0]


def _places(root: Path, pattern: str) -> list[Path]:
    """Where a package has something: newer releases put below /usr what older ones have in /."""
    return sorted(root.glob(pattern)) or sorted((root / "usr").glob(pattern))


def root_of(package: str) -> Path:
    """The folder of the cache into which a package, with the other parts of its kernel, is unpacked. It has
    no `=`: env(1) would take a program in it for a variable. No package's name has an `_`.
    """
    return cache_dir("kernels") / package.replace("=", "_")


def cached_version(package: str) -> str:
    """The version of a package in the cache, as its distribution writes it."""
    return (root_of(package) / COMPLETE).read_text().strip()


def cached_packages(pin: Pin, version: str = "") -> list[str]:
    """The packages of a pin that are in the cache, oldest first; with `version`, only that one."""
    folders = {p.parent.name for p in cache_dir("kernels").glob(f"*/{COMPLETE}")}
    return matching(pin, version, {name.replace("_", "=") for name in folders})


@dataclass(frozen=True, slots=True)
class Offer:
    """A package of a pin that an archive has whole. `known`: what the archive has of its parts."""

    package: str
    archive: Archive
    known: Set[str]


def have(pin: Pin, version: str) -> str:
    """A package of a pin in the cache, with all its parts; downloads it if apt has a newer one, or there is
    none. Raises KernelError if there is none to be had, UsageError for a version that no archive has.
    """
    cached = cached_packages(pin, version)
    if cached and version:
        return cached[-1]
    if not cached:
        return _fetch(pin, version, _choose(pin, version))
    lists = [a for a in pin.archives if a.listed]  # what is in the cache is found without a network
    newest = next((offers[-1] for a in lists if (offers := _whole(pin, "", a))), None)
    if newest is None:
        return cached[-1]
    return newest.package if newest.package in cached else _fetch(pin, version, newest)


def _fetch(pin: Pin, version: str, offer: Offer) -> str:
    """Download a package of a pin with all its parts; returns its name.

    Mirrors drop old versions: lists that name a package which is no longer there are downloaded again.
    """
    try:
        _download(pin, offer)
    except EnvironmentLacks:
        if not offer.archive.suite:
            raise
        offer.archive.refresh()
        offer = _choose(pin, version)
        _download(pin, offer)
    return offer.package


def _choose(pin: Pin, version: str) -> Offer:
    """The newest package of the pin that apt has whole, or the one of that version. Raises as `have` if
    there is none.
    """
    for archive in pin.archives:
        if offers := _whole(pin, version, archive):
            return offers[-1]
    raise _not_offered(pin, version)


def offered(pin: Pin) -> tuple[str, Archive] | None:
    """The newest package of a pin that apt has whole, and from where; None if there is none. Raises
    EnvironmentLacks if an archive cannot be asked.
    """
    found = (_whole(pin, "", archive) for archive in pin.archives)
    return next(((offers[-1].package, offers[-1].archive) for offers in found if offers), None)


def _whole(pin: Pin, version: str, archive: Archive) -> list[Offer]:
    """The pin's packages in an archive none of whose parts is missing, oldest first."""
    packages = archive.offered(pin.package_pattern)
    known = _known_parts(pin, archive) if packages else set()
    return [Offer(p, archive, known) for p in matching(pin, version, packages) if not _lacking(pin, p, known)]


def _known_parts(pin: Pin, archive: Archive) -> set[str]:
    """The packages of an archive that can be parts of a pin's kernels."""
    patterns = {name.replace("{}", r"[\w.+-]+") for part in pin.parts for name in part.split("|")}
    return archive.offered("|".join(patterns)) if patterns else set()


def _lacking(pin: Pin, package: str, known: Set[str]) -> list[str]:
    """The parts of a kernel that are not among the known packages."""
    return [names[0] for names in pin.needed(package) if pin.parts and known.isdisjoint(names)]


def why_not_offered(pin: Pin) -> str:
    """Why none of a pin's packages can be had; raises EnvironmentLacks if an archive cannot be asked."""
    return _not_offered(pin, "").what


def _not_offered(pin: Pin, version: str) -> KernelError | UsageError:
    """Why no package of a pin, or none of that version, can be had."""
    others = []
    for archive in pin.archives:
        offered = archive.offered(pin.package_pattern)
        if asked := matching(pin, version, offered):
            missing = ", ".join(_lacking(pin, asked[-1], _known_parts(pin, archive)))
            return KernelError(
                f"the archive does not have the whole kernel: {asked[-1]} is in {archive}, but not {missing}",
                "name another version or series: powercut list kernels",
            )
        others += matching(pin, "", offered)
    places = " and ".join(map(str, pin.archives))
    if version:
        versions = dict.fromkeys(version_in(pin, p) for p in others)  # several archives may have one
        listed = ", ".join(f"debian-{version}" for version in [*versions][-4:])
        return UsageError(
            f"apt knows no {pin.name} of version {version} in {places} (mirrors drop old ones)",
            f"ask for one of: {listed or pin.name}; for new lists, {pin.archives[-1].how_to_refresh}",
        )
    return KernelError(
        f"apt knows no package {pin.package_pattern} in {places}", pin.archives[-1].how_to_refresh
    )


def _download(pin: Pin, offer: Offer) -> None:
    """Download and unpack a kernel into the cache, atomically; `COMPLETE` contains the package's version."""
    for program in ("apt-get", "dpkg-deb", "depmod"):
        if not shutil.which(program):
            raise EnvironmentLacks(f"{program} is needed to fetch a Debian kernel", "run: make setup")
    package, archive = offer.package, offer.archive
    root = root_of(package)
    with scratch_folder(cache_dir("kernels"), "fetching-") as scratch:
        unpacked = Path(scratch) / "root"
        for names in pin.needed(package):
            wanted = next((name for name in names if name in offer.known), names[0])
            deb = archive.download(wanted, Path(scratch))
            version = unpack(deb, unpacked)
        if pin.library and archive.suite:
            _with_library(pin, archive, unpacked, root)
        for directory in _places(unpacked, pin.modules):
            depmod(directory)
        (unpacked / COMPLETE).write_text(f"{version}\n")
        if not root.exists():  # another process may have been faster
            unpacked.rename(root)


def _with_library(pin: Pin, archive: Archive, unpacked: Path, root: Path) -> None:
    """Give a program of another release that release's C library: this machine's may be too old for it."""
    deb = archive.download(pin.library, unpacked.parent)
    unpack(deb, unpacked / LIBRARY)
    image, loader = only(unpacked, pin.image), _loader(unpacked)
    image.write_bytes(elf.with_interpreter(image.read_bytes(), root / loader.relative_to(unpacked)))


def _loader(root: Path) -> Path:
    return next((root / LIBRARY).rglob("ld-linux-x86-64.so.2"))


def fit_library(root: Path, image: Path) -> None:
    """Have an image of the cache start with the C library that came along with it, where the path in it leads
    nowhere: a cache may be copied to another host, or moved. One whose digest is not its own any more stays.
    Raises KernelError if this user may not write to the image.
    """
    digest, named = digest_of(image), elf.interpreter(image)
    if named is None or not (root / LIBRARY).is_dir() or named == _loader(root) or os.access(named, os.X_OK):
        return
    if digest.is_file() and digest.read_text().strip() != file_hash(image):
        return
    try:
        digest.unlink(missing_ok=True)  # it gets another one when it is used
        program = elf.with_interpreter(image.read_bytes(), _loader(root))
        write_atomically(image, program, image.stat().st_mode & 0o777)
    except OSError as e:
        raise KernelError(
            f"{image} starts with {named}, which is not there, and cannot be mended: {e.strerror}",
            "name a cache of your own: export POWERCUT_CACHE=DIR",
        ) from e


def digest_of(image: Path) -> Path:
    """Where the digest of a kernel in the cache is kept."""
    return image.with_name(f"{image.name}.sha256")


def depmod(directory: Path) -> None:
    """Make modules.dep if it is missing (Debian's 6.1 packages leave it to the installation)."""
    if not (directory / "modules.dep").exists():
        need_index(directory)
        _run_depmod(directory.parents[2], directory.name)


def need_index(directory: Path) -> None:
    """Raises KernelError for a folder of modules without modules.dep for which depmod could make none."""
    if not (directory / "modules.dep").exists() and directory.parent.name != "modules":
        raise KernelError(
            f"{directory} has no modules.dep and is not of the form DIR/lib/modules/RELEASE",
            f"run: depmod -b DIR {directory.name}",
        )


@functools.lru_cache
def index_of(directory: Path) -> Mapping[str, str]:
    """What depmod makes of a folder of modules without modules.dep, by the files' names. It works on links
    elsewhere: the folder is a user's, who may not let us write to it.
    """
    with tempfile.TemporaryDirectory(prefix="powercut-modules-") as scratch:
        linked = Path(scratch, "lib/modules", _RELEASE)
        linked.mkdir(parents=True)
        for path in directory.iterdir():
            if path.is_dir() or path.name == "modules.order":
                (linked / path.name).symlink_to(path.absolute())
        _run_depmod(Path(scratch), _RELEASE)
        made = (linked / name for name in _INDEXES)
        return {path.name: path.read_text() for path in made if path.exists()}


def _run_depmod(base: Path, release: str) -> None:
    subprocess.run(["depmod", "-b", base, release], check=True, capture_output=True)
