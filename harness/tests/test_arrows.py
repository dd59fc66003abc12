"""The arrows of the house: imports point down, from floor to floor and within a room, and nowhere else.

The floors are read from the picture in ARCHITECTURE.md, so the picture is the list that the code is held to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import harness

PACKAGE = Path(harness.__file__).parent
DOCUMENT = PACKAGE.parent / "ARCHITECTURE.md"


def places(document: str) -> dict[str, tuple[int, str, int]]:
    """Of each module in the picture: its floor from the top, its room, its group in the room.

    The picture is the block after the heading "House": a floor a paragraph; a room a line that begins with
    its name, and the indented lines after it; groups between bars. A module or folder at the top of the
    package, and a room's `__init__.py`, are group 0.
    """
    (block,) = re.findall(r"^## House\n.*?^```\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    found = {}
    for floor, paragraph in enumerate(block.split("\n\n")):
        for line in re.sub(r"\n +", " ", paragraph).splitlines():
            label, _, names = line.partition(" ")
            room = label.removesuffix(".py").removesuffix("/")
            found[room] = floor, room, 0
            for group, modules in enumerate(names.split("|"), 1):
                found |= {f"{room}.{module}": (floor, room, group) for module in modules.split()}
    return found


PLACES = places(DOCUMENT.read_text())


def module_of(path: Path) -> str:
    """`cases.examine`; a folder's `__init__.py` has the folder's name."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def files() -> dict[str, Path]:
    """Every module of the package but its tests."""
    found = {module_of(p): p for p in sorted(PACKAGE.rglob("*.py"))}
    return {name: p for name, p in found.items() if name.split(".")[0] not in ("tests", "__init__")}


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports, wherever the import stands in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harness":
            parent = node.module.removeprefix("harness").removeprefix(".")
            for alias in node.names:
                inner = f"{parent}.{alias.name}".removeprefix(".")
                yield inner if inner in known else parent
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("harness.") for a in node.names if a.name.startswith("harness."))


def arrows() -> set[tuple[str, str]]:
    """Every (module, module that it imports)."""
    known = files()
    found = {(module, other) for module, path in known.items() for other in imported(path, known)}
    return {(a, b) for a, b in found if b not in (a, "")}  # harness itself holds the version alone


def points_down(above: str, below: str) -> bool:
    """Whether a module may import another one by their places."""
    floor, room, group = PLACES[above]
    other_floor, other_room, other_group = PLACES[below]
    return group < other_group if room == other_room else floor < other_floor


def test_every_module_has_its_place() -> None:
    """Only folders were listed: a module could lie anywhere in them and import its neighbours in circles."""
    fix = 'put its name into the picture of ARCHITECTURE.md, under "House": above all that it imports'
    assert sorted(files().keys() - PLACES.keys()) == [], fix
    assert sorted(PLACES.keys() - files().keys()) == [], "the picture names modules that are not there"


def test_nothing_lies_in_the_package_outside_its_rooms() -> None:
    rooms = {room for _, room, _ in PLACES.values()}
    top = {p.name.removesuffix(".py") for p in PACKAGE.iterdir()}
    assert top - rooms - {"__init__", "__pycache__", "tests", "_data"} == set()


def test_arrows_point_down() -> None:
    up = {(a, b) for a, b in arrows() if {a, b} <= PLACES.keys() and not points_down(a, b)}
    assert sorted(up) == [], "these imports do not point down"


def test_the_nouns_need_only_the_standard_library() -> None:
    nouns = {"model", "errors"}
    assert not {b for a, b in arrows() if a.split(".")[0] in nouns and b.split(".")[0] not in nouns}


def test_a_picture_says_which_imports_point_down() -> None:
    read = places(
        "## House\nText.\n```\nrun.py\n\ncases/   casework |\n         pool wire\n\nmodel.py\n```\n"
    )
    assert read == {
        "run": (0, "run", 0),
        "cases": (1, "cases", 0),
        "cases.casework": (1, "cases", 1),
        "cases.pool": (1, "cases", 2),
        "cases.wire": (1, "cases", 2),
        "model": (2, "model", 0),
    }
