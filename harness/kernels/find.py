"""Kernels: find, download and unpack them, and resolve which modules a guest must load, in order.

A kernel is a pin of `kernels/` (`debian-6.12`, or one exact version of it, `debian-6.12.117`) or a file:
bzImage or vmlinux. A pin's packages are downloaded with apt and unpacked into the cache, never installed.
Nothing here boots a kernel.
"""

from __future__ import annotations

import difflib
import hashlib
import lzma
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zstandard

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host import elf
from harness.host.archive import Archive
from harness.host.cache import cache_dir, hold, scratch_folder
from harness.host.resources import resource
from harness.plan import KernelChoice

COMPLETE = "complete"
"""A file of a kernel's folder in the cache: it is whole; contains the package's version."""
LIBRARY = "library"


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A series of distribution kernels, a file of `kernels/`.

    Group 1 of the regular expression `package_pattern`, if it has one, matches the version, which users may
    name; a pattern with `=` is one of `NAME=VERSION`. `suites`: where to look if this machine's own apt
    sources do not offer it. `parts`: the packages in which the kernel is, if not in that one; `{}` stands for
    what follows `linux-image-` in its name, `|` separates alternatives. `machine`: the only one that can boot
    it; empty: any that boots a PC's kernel. `image`, `modules`: glob patterns of their places in the
    packages, or below `usr` there. `library`: the package of the C library with which a program of another
    suite runs.
    """

    summary: str
    series: str
    package_pattern: str
    name: str = ""
    suites: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    machine: str = ""
    image: str = "boot/vmlinuz-*"
    modules: str = "lib/modules/*"
    library: str = ""

    @property
    def archives(self) -> tuple[Archive, ...]:
        """Where its packages are looked for, in order."""
        return (Archive(), *map(Archive, self.suites))

    @property
    def source(self) -> str:
        """The package with its source; empty if there is none for this series alone."""
        return f"linux-source-{self.series}" if self.series else ""

    def needed(self, package: str) -> list[list[str]]:
        """The packages of which the kernel is made, each with its alternatives."""
        suffix = package.removeprefix("linux-image-")
        return [part.replace("{}", suffix).split("|") for part in self.parts] or [[package]]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel image and its modules, on this host.

    `name`: names it for `find_kernel` (`debian-6.12.117`, or the file's path). `package_version`: empty for
    a user's file. `modules`: the directory with modules.dep; None if everything is built in. `replaced`:
    single modules that replace those of the same name.
    """

    name: str
    image: Path
    modules: Path | None
    sha256: str
    package_version: str = ""
    replaced: tuple[Path, ...] = ()
    machine: str = ""  # the only one that can boot it, by its pin; empty: any, as far as is known
    suites: tuple[str, ...] = ()  # where its package's fellows are, beside the machine's own apt sources
    source: str = ""  # the package with its source; empty if there is none


def pins() -> dict[str, Pin]:
    """Every pin of `kernels/`, by name."""
    found = {}
    for path in sorted(resource("kernels").glob("*.toml")):
        pin = msgspec.toml.decode(path.read_bytes(), type=Pin)
        found[path.stem] = msgspec.structs.replace(pin, name=path.stem)
    return found


def find_kernel(spec: str, modules: Path | None = None, replaced: Sequence[Path] = ()) -> Kernel:
    """The kernel that `spec` names; downloads it on first use.

    Raises UsageError for a name that is neither a pin nor a file, KernelError for a file that is not a kernel
    and for a package that is not available.
    """
    pinned = look_up_kernel(spec, modules, replaced)
    if pinned is None:
        found = _own_kernel(Path(spec), modules, tuple(replaced))
    else:
        found = _pinned_kernel(*pinned, modules, tuple(replaced))
    for path in (found.image, *([found.modules] if found.modules else []), *found.replaced):
        hold(path)
    return found


def find_chosen(choice: KernelChoice) -> Kernel:
    """`find_kernel` of what was asked for in one word."""
    return find_kernel(choice.spec, _modules_of(choice), [*map(Path, choice.replaced)])


def look_up_chosen(choice: KernelChoice) -> tuple[Pin, str] | None:
    """`look_up_kernel` of what was asked for in one word."""
    return look_up_kernel(choice.spec, _modules_of(choice), [*map(Path, choice.replaced)])


def _modules_of(choice: KernelChoice) -> Path | None:
    return Path(choice.modules) if choice.modules else None


def look_up_kernel(
    spec: str, modules: Path | None = None, replaced: Sequence[Path] = ()
) -> tuple[Pin, str] | None:
    """The pin that `spec` names, with the version ("": the newest); None if it names a file.

    Downloads nothing. Raises as `find_kernel` does for names that cannot be used.
    """
    for path in replaced:
        if not path.exists():
            raise UsageError(
                f"there is no {path.absolute()}", "name the module that your build made: fs/ext4/ext4.ko"
            )
        if path.is_file() and path.suffix == ".ko" and not elf.is_object(path):
            raise UsageError(
                f"{path} is not a kernel module: it is no ELF object ({path.stat().st_size:,} bytes)",
                "build it again: make M=DIRECTORY modules",
            )
        if not path.is_file() or path.suffix != ".ko":
            raise UsageError(
                f"{path} is not a kernel module (a file whose name ends in .ko)",
                "name the module that your build made: fs/ext4/ext4.ko",
            )
    if modules is not None:
        _modules_dir(modules)
    if Path(spec).is_file():
        _need_image(Path(spec))
        return None
    for pin in pins().values():
        version = _asked_version(pin, spec)
        if version is not None:
            return pin, version
    near = difflib.get_close_matches(spec, list(pins()), n=4)
    known = ", ".join(near or pins())
    raise UsageError(f"no kernel {spec!r}: neither a file nor a pin of kernels/", f"try one of: {known}")


def look_up_pc_kernel(spec: str, modules: Path | None = None) -> None:
    """`look_up_kernel` where only a PC's kernel will do. Raises UsageError for a pin made for one machine."""
    pinned = look_up_kernel(spec, modules)
    if pinned and pinned[0].machine:
        others = ", ".join(name for name, pin in pins().items() if not pin.machine)
        raise UsageError(
            f"{spec} is a kernel for {pinned[0].machine.upper()} alone, and this takes one that boots a PC",
            f"try one of: {others}",
        )


def _asked_version(pin: Pin, spec: str) -> str | None:
    """ "" if `spec` names the pin itself, the version if it names one of the pin's versions, else None."""
    if spec == pin.name:
        return ""
    version = spec.removeprefix("debian-")
    return version if spec != version and version.startswith(pin.series + ".") else None


def _own_kernel(image: Path, modules: Path | None, replaced: tuple[Path, ...]) -> Kernel:
    if modules is not None:
        modules = _modules_dir(modules)
    return Kernel(str(image.resolve()), image.resolve(), modules, _sha256(image), "", replaced)


def _need_image(image: Path) -> None:
    with image.open("rb") as f:
        head = f.read(1024)
    is_bzimage = head[0x202:0x206] == b"HdrS"  # Documentation/arch/x86/boot.rst
    if not is_bzimage and head[:4] != b"\x7fELF":
        raise KernelError(
            f"{image} is no kernel: neither a bzImage (HdrS at 0x202) nor an ELF vmlinux",
            "name arch/x86/boot/bzImage or vmlinux of your build",
        )


def _modules_dir(given: Path) -> Path:
    """The directory that contains `kernel/`: `given`, or the first such one in it or in its lib/modules."""
    if not given.is_dir():
        raise UsageError(f"{given} is no directory, so it holds no modules", "correct the path")
    candidates = [given, *sorted((given / "lib/modules").glob("*")), *sorted(given.glob("*"))]
    for path in candidates:
        if any((path / "kernel").rglob("*.ko*")):
            _depmod(path)
            return path
    raise KernelError(
        f"{given} holds no modules (no `kernel/**/*.ko` below it)",
        "name what `make modules_install INSTALL_MOD_PATH=DIR` filled: DIR, or DIR/lib/modules/RELEASE",
    )


# --- packages --------------------------------------------------------------------------------


def _pinned_kernel(pin: Pin, version: str, modules: Path | None, replaced: tuple[Path, ...]) -> Kernel:
    package = _available(pin, version) or _fetch(pin, version)
    root = _root(package)
    image = _only(root, pin.image)
    own_modules = _modules_dir(modules) if modules else _only(root, pin.modules)
    own_version = _version(pin, package)
    name = f"debian-{own_version}" if own_version else pin.name
    package_version = cached_version(package)
    return Kernel(
        name,
        image,
        own_modules,
        _sha256(image),
        package_version,
        replaced,
        pin.machine,
        pin.suites,
        pin.source,
    )


def _only(root: Path, pattern: str) -> Path:
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


def _root(package: str) -> Path:
    """The folder of the cache into which a package, with the other parts of its kernel, is unpacked. It has
    no `=`: env(1) would take a program in it for a variable. No package's name has an `_`.
    """
    return cache_dir("kernels") / package.replace("=", "_")


def cached_version(package: str) -> str:
    """The version of a package in the cache, as its distribution writes it."""
    return (_root(package) / COMPLETE).read_text().strip()


def cached_packages(pin: Pin, version: str = "") -> list[str]:
    """The packages of a pin that are in the cache, oldest first; with `version`, only that one."""
    folders = {p.parent.name for p in cache_dir("kernels").glob(f"*/{COMPLETE}")}
    return _matching(pin, version, {name.replace("_", "=") for name in folders})


def _available(pin: Pin, version: str) -> str:
    """The package in the cache that answers the question; empty if apt has a newer one, or there is none."""
    cached = cached_packages(pin, version)
    if version or not cached:
        return cached[-1] if cached else ""
    lists = [a for a in pin.archives if a.listed]  # what is in the cache is found without a network
    newest = next((found for a in lists if (found := _whole(pin, "", a))), cached)[-1]
    return newest if newest in cached else ""


def _fetch(pin: Pin, version: str) -> str:
    """Download a package of a pin with all its parts; returns its name.

    Mirrors drop old versions: lists that name a package which is no longer there are downloaded again.
    """
    package, archive = _choose_package(pin, version)
    try:
        _download(pin, package, archive)
    except EnvironmentLacks:
        if not archive.suite:
            raise
        archive.refresh()
        package, archive = _choose_package(pin, version)
        _download(pin, package, archive)
    return package


def _choose_package(pin: Pin, version: str) -> tuple[str, Archive]:
    """The newest package of the pin that apt has whole, or the one of that version; and from where. Raises
    KernelError if there is none.
    """
    for archive in pin.archives:
        if found := _whole(pin, version, archive):
            return found[-1], archive
    raise _not_offered(pin, version)


def offered(pin: Pin) -> tuple[str, Archive] | None:
    """The newest package of a pin that apt has whole, and from where; None if there is none. Raises
    EnvironmentLacks if an archive cannot be asked.
    """
    found = ((_whole(pin, "", archive), archive) for archive in pin.archives)
    return next(((packages[-1], archive) for packages, archive in found if packages), None)


def _whole(pin: Pin, version: str, archive: Archive) -> list[str]:
    """The pin's packages in an archive none of whose parts is missing, oldest first."""
    offered = archive.offered(pin.package_pattern)
    known = _known_parts(pin, archive) if offered else set()
    return [p for p in _matching(pin, version, offered) if not _lacking(pin, p, known)]


def _known_parts(pin: Pin, archive: Archive) -> set[str]:
    """The packages of an archive that can be parts of a pin's kernels."""
    patterns = {name.replace("{}", r"[\w.+-]+") for part in pin.parts for name in part.split("|")}
    return archive.offered("|".join(patterns)) if patterns else set()


def _lacking(pin: Pin, package: str, known: set[str]) -> list[str]:
    """The parts of a kernel that are not among the known packages."""
    return [names[0] for names in pin.needed(package) if pin.parts and not known.intersection(names)]


def why_not_offered(pin: Pin) -> str:
    """Why none of a pin's packages can be had; raises EnvironmentLacks if an archive cannot be asked."""
    return _not_offered(pin, "").what


def _not_offered(pin: Pin, version: str) -> KernelError:
    """Why no package of a pin, or none of that version, can be had."""
    others = []
    for archive in pin.archives:
        offered = archive.offered(pin.package_pattern)
        if asked := _matching(pin, version, offered):
            missing = ", ".join(_lacking(pin, asked[-1], _known_parts(pin, archive)))
            return KernelError(
                f"the archive does not have the whole kernel: {asked[-1]} is in {archive}, but not {missing}",
                "name another version or series: powercut list kernels",
            )
        others += _matching(pin, "", offered)
    places = " and ".join(map(str, pin.archives))
    if version:
        listed = ", ".join(f"debian-{_version(pin, p)}" for p in others[-4:])
        return KernelError(
            f"apt knows no {pin.name} of version {version} in {places} (mirrors drop old ones)",
            f"ask for one of: {listed or pin.name}; for new lists, {pin.archives[-1].how_to_refresh}",
        )
    return KernelError(
        f"apt knows no package {pin.package_pattern} in {places}", pin.archives[-1].how_to_refresh
    )


def _matching(pin: Pin, version: str, packages: set[str]) -> list[str]:
    """The packages of the pin, only those of `version` if it is not empty; oldest first."""
    mine = [p for p in packages if re.fullmatch(pin.package_pattern, p)]
    wanted = [p for p in mine if version in ("", _version(pin, p))]
    return sorted(wanted, key=lambda p: [int(n) for n in re.findall(r"\d+", _version(pin, p) or p)])


def version_of(pin: Pin, package: str) -> str:
    """The version of a pin's package, for people."""
    return _version(pin, package) or package.partition("=")[2]


def _version(pin: Pin, package: str) -> str:
    """The version in the package's name; "" for a pin whose pattern has no version."""
    match = re.fullmatch(pin.package_pattern, package)
    return match[1] if match and match.re.groups else ""


def _download(pin: Pin, package: str, archive: Archive) -> None:
    """Download and unpack a kernel into the cache, atomically; `COMPLETE` contains the package's version."""
    for program in ("apt-get", "dpkg-deb", "depmod"):
        if not shutil.which(program):
            raise EnvironmentLacks(f"{program} is needed to fetch a Debian kernel", "run: make setup")
    root = _root(package)
    known = _known_parts(pin, archive)
    with scratch_folder(cache_dir("kernels"), "fetching-") as scratch:
        unpacked = Path(scratch) / "root"
        for names in pin.needed(package):
            wanted = next((name for name in names if name in known), names[0])
            deb = archive.download(wanted, Path(scratch))
            subprocess.run(["dpkg-deb", "-x", deb, unpacked], check=True)
            field = subprocess.run(
                ["dpkg-deb", "-f", deb, "Version"], capture_output=True, text=True, check=True
            )
        if pin.library and archive.suite:
            _with_library(pin, archive, unpacked, root)
        for directory in _places(unpacked, pin.modules):
            _depmod(directory)
        (unpacked / COMPLETE).write_text(field.stdout)
        if not root.exists():  # another process may have been faster
            unpacked.rename(root)


def _with_library(pin: Pin, archive: Archive, unpacked: Path, root: Path) -> None:
    """Give a program of another release that release's C library: this machine's may be too old for it."""
    deb = archive.download(pin.library, unpacked.parent)
    library = unpacked / LIBRARY
    subprocess.run(["dpkg-deb", "-x", deb, library], check=True)
    loader = next(library.rglob("ld-linux-x86-64.so.2")).relative_to(unpacked)
    image = _only(unpacked, pin.image)
    image.write_bytes(elf.with_interpreter(image.read_bytes(), root / loader))


def _depmod(directory: Path) -> None:
    """Make modules.dep if it is missing (Debian's 6.1 packages leave it to the installation)."""
    if (directory / "modules.dep").exists():
        return
    base = directory.parents[2] if directory.parent.name == "modules" else None
    if base is None:
        raise KernelError(
            f"{directory} has no modules.dep and is not of the form DIR/lib/modules/RELEASE",
            f"run: depmod -b DIR {directory.name}",
        )
    subprocess.run(["depmod", "-b", base, directory.name], check=True, capture_output=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


# --- modules ---------------------------------------------------------------------------------


def resolve_modules(kernel: Kernel, wanted: Sequence[str]) -> list[Path]:
    """The module files to load, in order, for every module of `wanted`.

    Follows hard dependencies (modules.dep) and soft ones (modules.softdep, through modules.alias). Built-in
    modules need no file. Raises KernelError for a module that the kernel does not have.
    """
    if kernel.modules is None:
        return list(kernel.replaced)
    index = _ModuleIndex(kernel)
    order: dict[Path, None] = {}
    for name in wanted:
        if index.built_in(name):
            continue
        if not index.has(name):
            raise KernelError(
                f"kernel {kernel.name} has no module {name}, and it is not built in",
                f"enable it in the kernel's configuration ({_config_name(name)}), or name another kernel",
            )
        index.add(name, order)
    return list(order)


def need_replaced(kernel: Kernel, wanted: Sequence[str]) -> None:
    """Raises UsageError for a module of `kernel.replaced` that replaces none of the modules loaded for
    `wanted`: the run would not test it, and would seem to.
    """
    loaded = resolve_modules(kernel, wanted)
    for path in kernel.replaced:
        if path not in loaded:
            names = ", ".join(_key(p) for p in loaded) or "none: all that is needed is built in"
            raise UsageError(
                f"{kernel.name} loads no module {_key(path)} here: {path} would not be tested",
                f"a file is called as the module that it replaces; loaded are {names}",
            )


def _config_name(module: str) -> str:
    """The option that builds a module, by Powercut's own kernel configurations; otherwise a guess."""
    name = "CONFIG_" + module.replace("-", "_").upper()
    lines = (line for file in resource("kernels").glob("*.config") for line in file.read_text().splitlines())
    known = {line.partition("=")[0] for line in lines}
    return next((option for option in (name, f"{name}_FS") if option in known), name)


class _ModuleIndex:
    """modules.dep, modules.softdep, modules.alias and modules.builtin of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        assert kernel.modules is not None  # noqa: S101 - resolve_modules has checked
        self._dir = kernel.modules
        self._replaced = {_key(p): p for p in kernel.replaced}
        self._depends: dict[str, list[Path]] = {}
        self._path: dict[str, Path] = {}
        for line in self._lines("modules.dep"):
            path, _, depends = line.partition(":")
            self._path[_key(Path(path))] = self._dir / path
            # modules.dep lists the deepest dependency last
            self._depends[_key(Path(path))] = [self._dir / d for d in reversed(depends.split())]
        self._builtin = {_key(Path(line)) for line in self._lines("modules.builtin")}
        self._soft: dict[str, list[str]] = {}
        for line in self._lines("modules.softdep"):
            match = re.fullmatch(r"softdep (\S+) pre: (.*?)(?: post:.*)?", line)
            if match:
                self._soft.setdefault(_key(Path(match[1])), []).extend(match[2].split())
        self._alias: dict[str, list[str]] = {}
        for line in self._lines("modules.alias"):
            _, alias, module = line.split(None, 2)
            self._alias.setdefault(alias, []).append(module)

    def _lines(self, name: str) -> list[str]:
        path = self._dir / name
        text = path.read_text().splitlines() if path.exists() else []
        return [line for line in text if line and not line.startswith("#")]

    def built_in(self, name: str) -> bool:
        return _key(Path(name)) in self._builtin

    def has(self, name: str) -> bool:
        return _key(Path(name)) in self._path or _key(Path(name)) in self._replaced

    def add(self, name: str, order: dict[Path, None]) -> None:
        key = _key(Path(name))
        chain = [*self._depends.get(key, []), self._path.get(key) or self._replaced[key]]
        for path in chain:
            final = self._replaced.get(_key(path), path)
            if final in order:
                continue
            for soft in self._soft.get(_key(path), []):
                for module in self._alias.get(soft, [soft]):
                    if self.has(module):
                        self.add(module, order)
            order[final] = None


def _key(path: Path) -> str:
    """A module's name as the kernel compares it: no directory, no suffix, `-` as `_`."""
    return path.name.split(".ko")[0].replace("-", "_")


def read_module(path: Path) -> bytes:
    """The module's ELF bytes, decompressed if it is a .ko.xz or .ko.zst."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data
