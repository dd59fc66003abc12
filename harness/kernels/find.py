"""Kernels: find, download and unpack them, and resolve which modules a guest must load, in order.

A kernel is a pin of `kernels/` (`debian-6.12`, or one exact version of it, `debian-6.12.117`) or a file:
bzImage or vmlinux. A pin's package is downloaded with apt and unpacked into the cache, never installed.
Nothing here boots a kernel.
"""

from __future__ import annotations

import difflib
import hashlib
import lzma
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zstandard

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host.cache import cache_dir
from harness.host.resources import resource
from harness.plan import KernelChoice

DOWNLOAD_TIMEOUT_S = 1800


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A series of distribution kernels, a file of `kernels/`. Group 1 of the regular expression
    `package_pattern`, if it has one, matches the version, which users may name. `machine`: the only one that
    can boot it; empty: any that boots a PC's kernel. `image`, `modules`: glob patterns of their places in the
    package.
    """

    summary: str
    series: str
    package_pattern: str
    name: str = ""
    machine: str = ""
    image: str = "boot/vmlinuz-*"
    modules: str = "lib/modules/*"


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
        return _own_kernel(Path(spec), modules, tuple(replaced))
    return _pinned_kernel(*pinned, modules, tuple(replaced))


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
    near = difflib.get_close_matches(spec, list(pins()), n=2)
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
    package = _choose_package(pin, version)
    root = cache_dir("kernels") / package
    if not (root / "complete").exists():
        _download(package, root)
    image = next(root.glob(pin.image))
    own_modules = _modules_dir(modules) if modules else next(root.glob(pin.modules))
    own_version = _version(pin, package)
    name = f"debian-{own_version}" if own_version else pin.name
    package_version = (root / "complete").read_text().strip()
    return Kernel(name, image, own_modules, _sha256(image), package_version, replaced, pin.machine)


def _choose_package(pin: Pin, version: str) -> str:
    """The newest package of the pin, or the one of that version, among those in the cache and in apt."""
    cached = {p.parent.name for p in cache_dir("kernels").glob("*/complete")}
    offered = cached if _matching(pin, version, cached) and version else cached | _apt_packages(pin)
    matching = _matching(pin, version, offered)
    if matching:
        return matching[-1]
    if version:
        others = ", ".join(f"debian-{_version(pin, p)}" for p in _matching(pin, "", offered)[-4:])
        raise KernelError(
            f"apt knows no {pin.name} of version {version} (mirrors drop old ones)",
            f"ask for one of: {others or pin.name}",
        )
    raise KernelError(f"apt knows no package {pin.package_pattern}", "run: apt-get update")


def _matching(pin: Pin, version: str, packages: set[str]) -> list[str]:
    """The packages of the pin, only those of `version` if it is not empty; oldest first."""
    mine = [p for p in packages if re.fullmatch(pin.package_pattern, p)]
    wanted = [p for p in mine if version in ("", _version(pin, p))]
    return sorted(wanted, key=lambda p: [int(n) for n in re.findall(r"\d+", _version(pin, p))])


def _version(pin: Pin, package: str) -> str:
    """The version in the package's name; "" for a pin whose pattern has no version."""
    match = re.fullmatch(pin.package_pattern, package)
    return match[1] if match and match.re.groups else ""


def _apt_packages(pin: Pin) -> set[str]:
    if not shutil.which("apt-cache"):
        return set()
    prefix = re.match(r"[a-z-]*", pin.package_pattern)
    command = ["apt-cache", "pkgnames", prefix[0] if prefix else ""]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return {p for p in listed.stdout.split() if re.fullmatch(pin.package_pattern, p)}


def _download(package: str, root: Path) -> None:
    """Download and unpack into `root`, atomically; `root/complete` contains the package's version."""
    for program in ("apt-get", "dpkg-deb", "depmod"):
        if not shutil.which(program):
            raise EnvironmentLacks(f"{program} is needed to fetch a Debian kernel", "run: make setup")
    with tempfile.TemporaryDirectory(dir=cache_dir("kernels")) as scratch:
        got = subprocess.run(
            ["apt-get", "download", "-q", package],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
        debs = list(Path(scratch).glob("*.deb"))
        if got.returncode or not debs:
            raise KernelError(
                f"apt-get download {package} failed: {got.stderr.strip()}", "run: apt-get update"
            )
        unpacked = Path(scratch) / "root"
        subprocess.run(["dpkg-deb", "-x", debs[0], unpacked], check=True)
        for directory in (unpacked / "lib/modules").glob("*"):
            _depmod(directory)
        field = subprocess.run(
            ["dpkg-deb", "-f", debs[0], "Version"], capture_output=True, text=True, check=True
        )
        (unpacked / "complete").write_text(field.stdout)
        if not root.exists():  # another process may have been faster
            unpacked.rename(root)


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
