"""Kernels: what a name stands for, found or fetched.

A kernel is a pin of `kernels/` (`debian-6.12`, or one exact version of it, `debian-6.12.117`) or a file:
bzImage or vmlinux. A pin's packages are downloaded with apt and unpacked into the cache, never installed.
Nothing here boots a kernel.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import KernelError, UsageError
from harness.host import elf
from harness.host.cache import hold
from harness.host.files import file_hash
from harness.host.packed import MODULE_SUFFIXES, read_module
from harness.host.text import whole_number
from harness.kernels.packages import cached_version, fit_library, have, need_index, only, root_of
from harness.kernels.pins import Pin, asked_version, pins, version_in
from harness.plan import KernelChoice


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel image and its modules, on this host.

    `name`: names it for `find_kernel` (`debian-6.12.117`, or the file's path). `package_version`: empty for
    a user's file. `modules`: the directory of its release; None if everything is built in. `replaced`: single
    modules that replace those of the same name.
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


def told_apart(names: Sequence[str]) -> dict[str, str]:
    """Of each name, as of a file, the shortest end of its path that no other one ends with."""
    found: dict[str, str] = {}
    for name in names:
        others, parts = [f"/{other}" for other in names if other != name], name.split("/")
        ends = ("/".join(parts[n:]) for n in range(len(parts) - 1, -1, -1))
        found[name] = next((e for e in ends if not any(o.endswith(f"/{e}") for o in others)), name)
    return found


def build_of(name: str) -> str:
    """SHA-256 of a kernel that is named by its path; empty for one that is not, or is not there."""
    path = Path(name)
    return file_hash(path) if path.is_absolute() and path.is_file() else ""


def find_kernel(spec: str, modules: Path | None = None, replaced: Sequence[Path] = ()) -> Kernel:
    """The kernel that `spec` names; downloads it on first use.

    Raises UsageError for a name that is neither a pin nor a file, and for a file that is not a kernel
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
        if not path.is_file() or not path.name.endswith(MODULE_SUFFIXES):
            raise UsageError(
                f"{path} is not a kernel module (a file whose name ends in {', '.join(MODULE_SUFFIXES)})",
                "name the module that your build made: fs/ext4/ext4.ko",
            )
        if not elf.is_object(read_module(path)):
            raise UsageError(
                f"{path} is not a kernel module: it is no ELF object ({path.stat().st_size:,} bytes)",
                "build it again: make M=DIRECTORY modules",
            )
    if modules is not None:
        _module_dirs(modules)
    if Path(spec).is_file():
        _need_image(Path(spec))
        return None
    for pin in pins().values():
        for name in (spec, f"debian-{spec}"):  # 6.12.117 alone
            if (version := asked_version(pin, name)) is not None:
                return pin, version
    raise _no_kernel(spec)


def _no_kernel(spec: str) -> UsageError:
    """What to say of words that name no kernel."""
    if "/" in spec:
        why = "that is a directory" if Path(spec).is_dir() else "there is no such file"
        return UsageError(
            f"no kernel {spec!r}: {why}",
            "name arch/x86/boot/bzImage or vmlinux of your build; powercut list kernels has Debian's",
        )
    near = _nearest(spec) or difflib.get_close_matches(spec, list(pins()), n=4)
    known = ", ".join(near or pins())
    return UsageError(
        f"no kernel {spec!r}: neither a file nor a name that powercut list kernels shows",
        f"try one of: {known}; powercut list kernels says which can be had",
    )


def _nearest(spec: str) -> list[str]:
    """The pins of the nearest versions, those first; none if `spec` names no version as pins do."""
    kind, version = _parts(spec)
    kind = kind or "debian"
    of_kind = sorted((name for name in pins() if _parts(name)[0] == kind), key=lambda name: _parts(name)[1])
    below = sum(_parts(name)[1] < version for name in of_kind)
    near = {name: below - 1 - at if at < below else at - below for at, name in enumerate(of_kind)}
    return sorted(of_kind, key=lambda name: near[name])[:4] if version else []


def _parts(name: str) -> tuple[str, list[int]]:
    """What stands before a kernel's version, and its numbers: `debian-6.12`."""
    kind, _, version = name.rpartition("-")
    return kind, [whole_number(n) for n in re.findall(r"\d+", version)]


def look_up_pc_kernel(spec: str, modules: Path | None = None) -> None:
    """`look_up_kernel` where only a PC's kernel will do. Raises UsageError for a pin made for one machine."""
    pinned = look_up_kernel(spec, modules)
    if pinned and pinned[0].machine:
        others = ", ".join(name for name, pin in pins().items() if not pin.machine)
        raise UsageError(
            f"{spec} is a kernel for {pinned[0].machine.upper()} alone, and this takes one that boots a PC",
            f"try one of: {others}",
        )


def _own_kernel(image: Path, modules: Path | None, replaced: tuple[Path, ...]) -> Kernel:
    if modules is not None:
        modules = _modules_dir(modules, image)
    return Kernel(str(image.resolve()), image.resolve(), modules, file_hash(image), "", replaced)


def _need_image(image: Path) -> None:
    with image.open("rb") as f:
        head = f.read(1024)
    is_bzimage = head[0x202:0x206] == b"HdrS"  # Documentation/arch/x86/boot.rst
    if not is_bzimage and head[:4] != b"\x7fELF":
        raise UsageError(
            f"{image} is no kernel: neither a bzImage (HdrS at 0x202) nor an ELF vmlinux",
            "name arch/x86/boot/bzImage or vmlinux of your build",
        )


def release_of(image: Path) -> str:
    """The release that a kernel states, in the setup header of a bzImage (`kernel_version`,
    Documentation/arch/x86/boot.rst) or in its banner; empty if it states none.
    """
    data = image.read_bytes()
    at = int.from_bytes(data[0x20E:0x210], "little") if data[0x202:0x206] == b"HdrS" else 0
    found = (
        re.match(rb"([^\s\0]+)", data[at + 0x200 :]) if at else re.search(rb"Linux version (\S+) \(", data)
    )
    return found[1].decode(errors="replace") if found else ""


def _modules_dir(given: Path, image: Path) -> Path:
    """The directory that contains `kernel/`, of this image's release where several have modules. Raises
    UsageError if it is none of several.
    """
    found, release = _module_dirs(given), release_of(image)
    fitting = [path for path in found if path.name == release]
    if len(found) > 1 and not fitting:
        raise UsageError(
            f"{given} holds modules of several releases, and none is that of {image}"
            f"{f' ({release})' if release else ''}",
            f"name one: {', '.join(map(str, found))}",
        )
    path = [*fitting, *found][0]
    need_index(path)
    return path


def _module_dirs(given: Path) -> list[Path]:
    """The directories that contain `kernel/`: `given`, or else each one in its lib/modules, or in it. Raises
    KernelError if there is none.
    """
    if not given.is_dir():
        raise UsageError(f"{given} is no directory, so it holds no modules", "correct the path")
    for candidates in ([given], (given / "lib/modules").glob("*"), given.glob("*")):
        if found := [path for path in sorted(candidates) if any((path / "kernel").rglob("*.ko*"))]:
            return found
    raise KernelError(
        f"{given} holds no modules (no `kernel/**/*.ko` below it)",
        "name what `make modules_install INSTALL_MOD_PATH=DIR` filled: DIR, or DIR/lib/modules/RELEASE",
    )


def _pinned_kernel(pin: Pin, version: str, modules: Path | None, replaced: tuple[Path, ...]) -> Kernel:
    package = have(pin, version)
    root = root_of(package)
    image = only(root, pin.image)
    fit_library(root, image)
    own_modules = _modules_dir(modules, image) if modules else only(root, pin.modules)
    own_version = version_in(pin, package)
    name = f"debian-{own_version}" if own_version else pin.name
    package_version = cached_version(package)
    return Kernel(
        name,
        image,
        own_modules,
        file_hash(image),
        package_version,
        replaced,
        pin.machine,
        pin.suites,
        pin.source,
    )
