"""Modules of kernels that a newer release's tools were used for: what kbuild then needs on this host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.host.archive import Archive
from harness.kernels import modules
from harness.kernels.find import Kernel
from harness.kernels.headers import unpack_headers

COMPILER = "x86_64-linux-gnu-gcc-14"
# What an older compiler calls otherwise; nothing of it changes what the code does.
WRAPPER = """#!/bin/sh
for word do
    shift
    case $word in -fmin-function-alignment=*) word="-falign-functions=${word#*=}" ;; esac
    set -- "$@" "$word"
done
exec gcc "$@"
"""
SUITE = "trixie"
# Some programs of the headers only choose another, by the architecture.
CHOSEN = {"objtool": "objtool.real-x86", "modpost": "modpost.real-lsb-64"}


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let modules be built with this host's compiler and that suite's C library, which go into `folder`."""
    if not shutil.which(COMPILER):
        (folder / "bin").mkdir()
        _make_script(folder / "bin" / COMPILER, WRAPPER)
        monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    deb = Archive(SUITE).download("libc6", folder)
    subprocess.run(["dpkg-deb", "-x", deb, folder / "libc"], check=True)

    def unpack(kernel: Kernel, root: Path, scratch: Path, *, build_tools: bool = False) -> Path:
        build = unpack_headers(kernel, root, scratch, build_tools=build_tools)
        for program in sorted((root / "usr/lib").glob("linux-kbuild-*/**/*")):
            if program.is_file() and not program.is_symlink() and ".real-" not in program.name:
                _use_library(program, folder / "libc/usr/lib/x86_64-linux-gnu")
        return build

    monkeypatch.setattr(modules, "unpack_headers", unpack)


def _use_library(program: Path, libraries: Path) -> None:
    with program.open("rb") as f:
        if f.read(4) != b"\x7fELF":
            return
    real = program.with_name(CHOSEN.get(program.name, f"{program.name}.bin"))
    if program.name not in CHOSEN:
        program.rename(real)
    paths = f"{libraries}:/usr/lib/x86_64-linux-gnu"
    line = f'exec {libraries}/ld-linux-x86-64.so.2 --library-path {paths} {real} "$@"'
    program.unlink(missing_ok=True)
    _make_script(program, f"#!/bin/sh\n{line}\n")


def _make_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
