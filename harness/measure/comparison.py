"""What a measurement is: a module of this folder with one `Comparison`.

`run.py` asks it for its configurations, measures each of them once per round, keeps every figure, and passes
all of them back for evaluation. A comparison knows neither the run directory nor the report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from harness.errors import UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles
from harness.host.progress import Progress
from harness.kernels.find import Kernel
from harness.measurements.results import Ratio, Results, Table
from harness.measurements.samples import Sample, Samples, ratios
from harness.model import Verdict

Sizes = Mapping[str, int]
"""How much work is done, by name, with the unit last in the name."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A file system as it is made and mounted. `mkfs`: arguments added to those of its profile."""

    name: str
    profile: Profile
    options: str
    mkfs: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, name: str, *, called: str = "", options: str | None = None, mkfs: Sequence[str] = ()
    ) -> Configuration:
        """The mode `name` of `vms/filesystems`, with its own mount options unless others are given."""
        try:
            profile = profiles()[name]
        except KeyError:
            raise UsageError(f"there is no mode {name}", "powercut list modes") from None
        mounted = profile.mount_options if options is None else options
        return cls(called or name, profile, mounted, tuple(mkfs))


@dataclass(frozen=True, slots=True)
class Host:
    """What a comparison works with. `scratch`: a folder that is deleted when the run ends; `kept`: the run
    directory. `seed`: of everything random.
    """

    kernel: Kernel
    accel: str
    scratch: Path
    kept: Path
    seed: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What it was measured on, as the report shows it."""

    kernel: str
    machine: str
    accel: str
    source: str = ""


RigT = TypeVar("RigT")


class Comparison(ABC, Generic[RigT]):
    """One measurement. `repeats`: what others measured and where they published it. `modes`: by name, what is
    measured, where `configurations` has no more to say; `rounds`: how often each is by default. `warms_up`: a
    small round goes first and is not counted, because an emulator translates code when it first runs.
    """

    name: str
    summary: str
    repeats: str
    modes: Sequence[str] = ()
    rounds: int
    warms_up = False

    def configurations(self) -> Sequence[Configuration]:
        """In the order in which each round measures them."""
        return [Configuration.of(name) for name in self.modes]

    @abstractmethod
    def sizes(self, scale: float) -> Sizes:
        """The sizes of the work: at `scale` 1, what emulation does in minutes."""

    @abstractmethod
    def rig(self, host: Host, sizes: Sizes) -> AbstractContextManager[RigT]:
        """Where it is measured; set up once for all rounds."""

    @abstractmethod
    def surroundings(self, rig: RigT) -> Surroundings:
        """What it was measured on; asked for after the first sample."""

    @abstractmethod
    def take(self, rig: RigT, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        """Measure one configuration in round `number`. Raises PowercutError if it cannot be measured."""

    @abstractmethod
    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        """The results of all samples."""

    def verdict(self, samples: Samples) -> Verdict:
        """Whether promises were kept, if that is what is measured; figures alone break none."""
        return Verdict.PASS


def scaled(scale: float, **sizes: int) -> Sizes:
    """Each of the sizes times `scale`, and at least 1."""
    return {name: max(1, round(size * scale)) for name, size in sizes.items()}


def spread_table(
    title: str, samples: Samples, columns: Mapping[str, str], rows: Sequence[Configuration], note: str = ""
) -> Table:
    """A row per configuration, a column per figure. `columns`: the heading of each figure."""
    return Table(
        title=title,
        columns=["configuration", *columns.values()],
        rows=[[row.name, *(samples.spread(row.name, figure) for figure in columns)] for row in rows],
        note=note,
    )


def ratio(
    name: str,
    upper: Mapping[int, float],
    lower: Mapping[int, float],
    *,
    published: float | None = None,
    source: str = "",
    remark: str = "",
) -> list[Ratio]:
    """`upper / lower` of two figures, round by round (see `Samples.values`): a list of one ratio, or an empty
    list if either was not measured.
    """
    measured = ratios(upper, lower)
    return [Ratio(name, measured, published, source, remark)] if measured else []
