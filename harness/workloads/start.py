"""Workloads to start from: `powercut new` writes them from `workloads/new`. They run and pass as they are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from harness.errors import EnvironmentLacks, UsageError
from harness.host.files import not_made
from harness.host.resources import resource
from harness.host.text import one_line
from harness.workloads.applications import DESCRIPTION, need_name

OPERATIONS = "operations"

_APPLICATIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "shell": {"run": "shell-run", "check": "shell-check"},
        "python": {"run": "python-run", "check": "python-check"},
        "c": {"run.c": "run.c", "Makefile": "c.mk", "check": "shell-check"},
        "go": {"run.go": "run.go", "Makefile": "go.mk", "check": "shell-check"},
        "rust": {"run.rs": "run.rs", "Makefile": "rust.mk", "check": "shell-check"},
    }
)
"""The files of each kind, beside its description: those of `workloads/new`."""
_COMPILERS: Mapping[str, tuple[Mapping[str, str], str]] = MappingProxyType(
    {
        "c": ({"cc": "gcc libc6-dev"}, "C"),
        "go": ({"go": "golang-go"}, "Go"),
        "rust": ({"rustc": "rustc", "cc": "gcc libc6-dev"}, "Rust"),
    }
)
"""What compiles a kind, each program with its packages, and what the language is called."""
KINDS = (*_APPLICATIONS, OPERATIONS)


def make_workload(place: Path, kind: str) -> Path:
    """Write a workload of one of KINDS: an application's directory, or a file of operations, whose name ends
    in .toml. Returns where it is. Raises UsageError for a name that no workload can have, and if something
    is there already; EnvironmentLacks if it would have to be compiled, and cannot be here.
    """
    if kind == OPERATIONS and place.suffix != ".toml":
        place = place.with_name(f"{place.name}.toml")
    name = place.stem if kind == OPERATIONS else place.name
    need_name(name)
    if place.exists() or place.is_symlink():
        raise UsageError(f"{place} is there already", "choose another name, or remove it")
    above = place.absolute().parent
    if not above.is_dir() and not above.parent.is_dir():
        raise UsageError(f"{place} cannot be made: there is no {above.parent}", f"mkdir -p {above}")
    if kind in _COMPILERS:
        _need_compiler(kind)
    try:
        _write(place, name, kind)
    except OSError as e:
        raise UsageError(not_made(place, e), "name a folder that you may write to") from e
    return place


def _need_compiler(kind: str) -> None:
    """Before anything is written: a workload without its program is none."""
    programs, language = _COMPILERS[kind]
    needed = {**programs, "make": "make"}
    if missing := [program for program in needed if not shutil.which(program)]:
        listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
        packages = " ".join(needed[program] for program in missing)
        raise EnvironmentLacks(f"a workload in {language} needs {listed}", f"run: apt-get install {packages}")


def _compile(place: Path) -> None:
    made = subprocess.run(
        ["make", "-s", "-C", str(place)], capture_output=True, text=True, errors="replace", check=False
    )
    if made.returncode:
        said = one_line(made.stderr.strip().splitlines()[0]) if made.stderr.strip() else "make failed"
        raise EnvironmentLacks(
            f"{place} is written, and cannot be compiled: {said}", f"fix that, and run: make -C {place}"
        )


def _write(place: Path, name: str, kind: str) -> None:
    if kind == OPERATIONS:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_template("operations.toml.in").replace("{name}", name))
        return
    runtime = '\nruntime = "python"' if kind == "python" else ""
    place.mkdir(parents=True)
    described = _template("workload.toml.in").replace("{name}", name).replace("{runtime}", runtime)
    (place / DESCRIPTION).write_text(described)
    for file, template in _APPLICATIONS[kind].items():
        text = _template(template)
        (place / file).write_text(text)
        (place / file).chmod(0o755 if text.startswith("#!") else 0o644)
    if kind in _COMPILERS:
        _compile(place)


def _template(name: str) -> str:
    return resource("workloads", "new", name).read_text()
