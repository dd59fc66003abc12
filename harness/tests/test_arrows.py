"""The arrows of ARCHITECTURE.md: imports point down, from a floor to one below it, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import harness

PACKAGE = Path(harness.__file__).parent

# From the top down. A room is a folder or a module at the top of the package; rooms of one floor do not
# import each other.
FLOORS: list[list[str]] = [
    ["__main__"],
    ["cli", "pytest_plugin"],
    ["bench", "revisit"],
    ["run", "measure"],
    ["tracing", "report", "doctor"],
    ["toolbox", "cases"],
    ["guests"],
    ["summary", "plan"],
    ["store", "workloads", "filesystems", "kernels"],
    ["oracles", "states"],
    ["writelog", "measurements", "expectations"],
    ["host"],
    ["model"],
    ["errors"],
]

# Arrows that still point up, each to go.
KNOWN_UP = {("plan", "cases"), ("plan", "guests"), ("tracing", "measure")}

HEIGHT = {room: -floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return [p for p in PACKAGE.rglob("*.py") if room_of(p) not in {"tests", "__init__"}]


def imported_rooms(file: Path) -> Iterator[str]:
    """Rooms of the package that a module imports, wherever the import stands in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harness":
            parts = node.module.split(".")
            yield from parts[1:2] or [a.name for a in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("harness."))


def arrows() -> set[tuple[str, str]]:
    """Every (room, room that it imports)."""
    found = {(room_of(f), room) for f in files() for room in imported_rooms(f)}
    return {(a, b) for a, b in found if b not in (a, "__version__")}


def test_every_module_has_its_room_on_a_floor() -> None:
    assert {room_of(f) for f in files()} == set(HEIGHT)


def test_arrows_point_down() -> None:
    up = {(a, b) for a, b in arrows() if HEIGHT[b] >= HEIGHT[a]}
    assert up == KNOWN_UP


def test_the_nouns_need_only_the_standard_library() -> None:
    assert not {b for a, b in arrows() if a in {"model", "errors"}}
