"""A trial: its name, random source, directory, and what it found."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_TEMPORARY = tempfile.gettempdir()  # before a trial changes it


@dataclass(frozen=True, slots=True)
class Defect:
    """`kind`: false green, false red, traceback, hang, left behind, ...; `what`: a one-line description."""

    kind: str
    what: str


@dataclass(slots=True)
class Trial:
    """Attack `attack`, number `number` of `seed`: the same choices every time, though not the same timing.

    `directory` is its own. So is `temporary`, the TMPDIR of all its processes, which has a short path
    elsewhere: a socket path has at most 107 bytes. It is removed at the end of the `with` block.
    """

    attack: str
    number: int
    seed: int
    directory: Path
    figures: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)
    random: random.Random = field(init=False)
    temporary: Path = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.attack}/{self.number}")  # noqa: S311  # not for secrets
        self.directory.mkdir(parents=True, exist_ok=True)
        self.temporary = Path(tempfile.mkdtemp(prefix="chaos-", dir=_TEMPORARY))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        tempfile.tempdir = None  # code run in this process may have set it to the directory removed below
        shutil.rmtree(self.temporary, ignore_errors=True)

    @property
    def name(self) -> str:
        return f"{self.attack}/{self.number}"

    def tell(self, kind: str, what: str) -> None:
        """Record a defect."""
        self.defects.append(Defect(kind, " ".join(what.split())[:600]))

    def took(self, what: str, seconds: float) -> None:
        """Record how long something took; the slowest of each kind is reported."""
        self.slowest[what] = max(seconds, self.slowest.get(what, 0.0))
