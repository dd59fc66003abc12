"""The mutants: read from their files, and planted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent


class _Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    file: str
    old: str
    new: str
    why: str
    tests: list[str] = []


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tests`: files or folders for pytest; `crates`: packages whose tests cargo runs. A mutant may name
    tests of its own.
    """

    mutant: list[_Mutant]
    tests: list[str] = []
    crates: list[str] = []


@dataclass(frozen=True, slots=True)
class Tests:
    """What is run: `pytest` on files and folders, `cargo test` on crates."""

    paths: tuple[str, ...] = ()
    crates: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([*self.paths, *(f"cargo:{crate}" for crate in self.crates)])


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` occurs once in `file` and becomes `new`. `why`: what would go unnoticed. `tests`: of its part."""

    name: str
    part: str
    file: str
    old: str
    new: str
    why: str
    tests: Tests


class CannotPlant(Exception):
    """Why a mutant says nothing: its words are gone, or what comes of them is no Python."""


def catalogue(folder: Path = FOLDER, only: Sequence[str] = ()) -> list[Mutant]:
    """All mutants, or those whose name or part holds one of the words `only`. Raises ValueError for a file
    that does not parse, and for two of one name.
    """
    found: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            part = msgspec.toml.decode(path.read_bytes(), type=_Part)
        except msgspec.MsgspecError as e:
            raise ValueError(f"{path}: {e}") from e
        for m in part.mutant:
            tests = Tests(tuple(m.tests or part.tests), tuple(() if m.tests else part.crates))
            if m.name in found:
                raise ValueError(f"{path}: a second mutant {m.name!r}")
            found[m.name] = Mutant(m.name, path.stem, m.file, m.old, m.new, m.why, tests)
    mutants = list(found.values())
    return [m for m in mutants if not only or any(word in (m.name, m.part) for word in only)]


def planted(text: str, mutant: Mutant) -> str:
    """The text of the mutant's file with the defect in it. Raises CannotPlant."""
    count = text.count(mutant.old)
    if count != 1 or mutant.old == mutant.new:
        raise CannotPlant(f"its words occur {count} times in {mutant.file}")
    changed = text.replace(mutant.old, mutant.new)
    if mutant.file.endswith(".py"):
        try:
            compile(changed, mutant.file, "exec")
        except SyntaxError as e:
            raise CannotPlant(f"{mutant.file} is no Python with it: {e}") from e
    return changed
