"""The names of cases and crash points."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.model.log import CrashState
from harness.model.schedules import under_schedule, without_schedule


@dataclass(frozen=True, slots=True)
class CaseId:
    """A file system in a mode under a workload: `ext4-ordered/append-fsync`; on a stack or
    another kind of disk, `ext4-ordered@raid1/append-fsync`.
    """

    filesystem: str
    mode: str
    workload: str

    def __str__(self) -> str:
        return f"{self.filesystem}-{self.mode}/{self.workload}"

    @property
    def configuration(self) -> str:
        return f"{self.filesystem}/{self.mode}"

    @property
    def family(self) -> str:
        """The name of the workload in tables: for a generated one (`harness.workloads.generate`), of which
        there are hundreds, the name of its set: `ace1`, `ace2`, `random`.
        """
        plain, number = without_schedule(self.workload)
        if re.fullmatch(r"random\d+-\d+-\d+", plain):
            return under_schedule("random", number)
        if plain.startswith("ace-") and "+" in plain:
            return under_schedule(f"ace{plain.count('--') + 1}", number)
        return self.workload

    @property
    def is_generated(self) -> bool:
        return self.family != self.workload

    @classmethod
    def parse(cls, text: str) -> CaseId:
        """Inverse of `str`; the mode may stand as in -c, too: `ext4/ordered/append-fsync`. Raises ValueError
        that shows the form expected.
        """
        text = _as_named(text)
        m = re.fullmatch(r"([a-z0-9]+)-([a-z0-9_+-]+(?:@[a-z0-9-]+)*)/([A-Za-z0-9_.+-]+)", text)
        if not m:
            raise ValueError(f"case {text!r} is not of the form ext4-ordered/append-fsync")
        return cls(m[1], m[2], m[3])

    @classmethod
    def named_in(cls, text: str) -> CaseId:
        """The case that `text` names, itself or by one of its crash points. Raises ValueError as `parse`."""
        folder, slash, rest = _as_named(text).partition(
            "/"
        )  # a mode on a stack or another disk has an @, too
        return cls.parse(folder + slash + rest.partition("@")[0])


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One crash state of one case: `ext4-ordered/append-fsync@417`."""

    case: CaseId
    state: CrashState

    def __str__(self) -> str:
        return f"{self.case}{self.state}"

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """Inverse of `str`. Raises ValueError that shows the form expected."""
        _, at, state = _as_named(text).partition("/")[2].partition("@")
        if not at:
            raise ValueError(f"crash point {text!r} is not of the form ext4-ordered/append-fsync@417")
        return cls(CaseId.named_in(text), CrashState.parse(at + state))


def _as_named(text: str) -> str:
    """A case, or a crash point, whose mode stands as in -c (`ext4/ordered`), as it is named."""
    return re.sub(r"^([a-z0-9]+)/", r"\1-", text)
