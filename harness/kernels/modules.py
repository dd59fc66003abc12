"""One module of a distribution's kernel, built anew with a patch of a few lines: is the bug where we say?"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host.cache import cache_dir, hold, scratch_folder
from harness.kernels.build import unpack_source
from harness.kernels.find import Kernel
from harness.kernels.headers import unpack_headers

_TOOLS = {"make": "make", "gcc": "gcc", "patch": "patch", "xz": "xz-utils"}


def patched_folder(patch: Path) -> str:
    """The folder of the kernel's source that a patch (`-p1`) changes: `fs/jbd2`, `drivers/md`. Raises
    UsageError if it is not exactly one below `fs` or `drivers`.
    """
    text = patch.read_text(errors="surrogateescape")  # a patch may have a name in Latin-1
    # diff -u writes a tab and a time behind the name
    changed = re.finditer(r"^\+\+\+ b/((?:fs|drivers)/\w+)/\S+(?:\t.*)?$", text, re.MULTILINE)
    folders: list[str] = sorted({m[1] for m in changed})
    if len(folders) != 1:
        raise UsageError(
            f"{patch} changes {', '.join(folders) or 'nothing below fs or drivers'}, not one module",
            "write it with diff -u, from a/fs/MODULE/FILE to b/fs/MODULE/FILE",
        )
    return folders[0]


def patched_module(kernel: Kernel, patch: Path, say: Callable[[str], None], name: str = "") -> Path:
    """The module of `kernel` that a patch changes, built with it; from the cache if it has been built before.
    `name`: of the module, where its folder has several, as `drivers/md` has.

    Raises EnvironmentLacks for a missing tool; KernelError if the source or the headers of just this version
    cannot be had, or it does not build; UsageError if the patch does not apply.
    """
    if kernel.modules is None or not kernel.source or not kernel.package_version:
        raise KernelError(f"{kernel.name} has no source package, so none of its modules can be built")
    folder = patched_folder(patch)
    of = f"{kernel.package_version} {kernel.modules.name}\n{name}"
    key = hashlib.sha256(of.encode() + patch.read_bytes())
    final = cache_dir("kernels", "modules") / key.hexdigest()[:24]
    if found := sorted(final.glob("*.ko")):
        return hold(found[0])
    if missing := [package for tool, package in _TOOLS.items() if not shutil.which(tool)]:
        names = " ".join(missing)
        raise EnvironmentLacks(f"building a module needs {names}", f"run: apt-get install {names}")
    with scratch_folder(cache_dir("kernels"), "building-") as scratch:
        version, tree = unpack_source(kernel.source, Path(scratch), say, folder), Path(scratch) / "tree"
        if version != kernel.package_version:
            raise KernelError(
                f"{kernel.source} is of version {version}, {kernel.name} of {kernel.package_version}",
                "powercut kernel update looks for newer kernels",
            )
        _apply(patch, tree)
        say(f"building {folder} of {kernel.name} with {patch.name}")
        built = _make(kernel, tree / folder, Path(scratch), f"{name}.ko" if name else "modules")
        part = Path(scratch) / "kept"
        part.mkdir()
        subprocess.run(["strip", "--strip-debug", "-o", part / built.name, built], check=True)
        if not final.exists():  # another process may have been faster
            part.rename(final)
    return hold(final / built.name)


def _apply(patch: Path, tree: Path) -> None:
    words = ["patch", "-p1", "--batch", "--fuzz=0", "-d", str(tree), "-i", str(patch.resolve())]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise UsageError(
            f"{patch} does not apply: {done.stdout.strip()}", "this source differs from the one it was for"
        )


def _make(kernel: Kernel, folder: Path, scratch: Path, target: str) -> Path:
    """Build a folder of modules, or one of them; returns the first module."""
    root = scratch / "headers"
    build = unpack_headers(kernel, root, scratch, build_tools=True)
    makefile = build / "Makefile"
    makefile.write_text(relocated(makefile.read_text(), root))
    (build / "vmlinux").unlink(missing_ok=True)  # only for BTF, which takes a further program
    # A kernel that dies names the file: in the kernel's tree, not in a folder of this build alone.
    flags = f"KCFLAGS=-fmacro-prefix-map={folder.parents[1]}/="
    words = ["make", "-s", "-C", str(build), f"M={folder}", flags, target]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = sorted(folder.glob("*.ko"))
    if done.returncode or not found:
        tail = "\n".join(done.stderr.splitlines()[-8:])
        raise KernelError(f"{folder.name} of {kernel.name} does not build:\n{tail}")
    return found[0]


def relocated(makefile: str, root: Path) -> str:
    """The Makefile of a headers package that is unpacked in `root`. It names its own folder (as 7.3 does) and
    the package that it includes by the places where these would be installed.
    """
    return re.sub(r"(?<=[ =])/usr/src/", f"{root}/usr/src/", makefile)
