"""What a measurement is: a file of this folder that holds one `Comparison`.

`run.py` asks it for its configurations, takes each of them once a round, keeps every figure, and hands all
of them back to be told. A comparison knows neither the run directory nor the report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from harness.errors import UsageError
from harness.filesystems.profiles import Profile, profiles
from harness.host.progress import Progress
from harness.kernels.find import Kernel
from harness.measurements.results import Histogram, Ratio, Series, Table
from harness.measurements.samples import Sample, Samples, ratios
from harness.model import Verdict

Sizes = Mapping[str, int]
"""How much is done, by name; the unit stands last in the name."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A file system as it is made and mounted. `mkfs`: arguments beside those of its profile."""

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
            raise UsageError(f"there is no mode {name}", "powercut list filesystems") from None
        mounted = profile.mount_options if options is None else options
        return cls(called or name, profile, mounted, tuple(mkfs))


@dataclass(frozen=True, slots=True)
class Host:
    """What a comparison is given to work with. `scratch`: a folder that goes when the run ends; `kept`: the
    run's own. `accel`: `auto`, `kvm` or `tcg`. `seed`: of everything random.
    """

    kernel: Kernel
    accel: str
    scratch: Path
    kept: Path
    seed: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Surroundings:
    """On what it was measured, as the report says it."""

    kernel: str
    machine: str
    accel: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What the figures come to; see `Measurement`, which has fields of these names."""

    ratios: Sequence[Ratio] = ()
    tables: Sequence[Table] = ()
    histograms: Sequence[Histogram] = ()
    series: Sequence[Series] = ()
    notes: Sequence[str] = ()
    answer: str = ""


RigT = TypeVar("RigT")


class Comparison(ABC, Generic[RigT]):
    """One measurement. `repeats`: what others did and published, and where; `rounds`: how often each
    configuration is taken unless the user says otherwise. `warms_up`: a small round goes before, and is not
    counted: an emulator translates code when it is run for the first time.
    """

    name: str
    summary: str
    repeats: str
    rounds: int
    warms_up = False

    @abstractmethod
    def configurations(self) -> Sequence[Configuration]:
        """In the order in which they are taken in each round."""

    @abstractmethod
    def sizes(self, scale: float) -> Sizes:
        """At `scale` 1 they are what emulation does in minutes."""

    @abstractmethod
    def rig(self, host: Host, sizes: Sizes) -> AbstractContextManager[RigT]:
        """What it is measured in."""

    @abstractmethod
    def surroundings(self, rig: RigT) -> Surroundings:
        """On what; asked for once the first figure has been taken."""

    @abstractmethod
    def take(self, rig: RigT, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        """The figures of one configuration in round `number`. Raises PowercutError where there are none."""

    @abstractmethod
    def tell(self, samples: Samples, sizes: Sizes) -> Told:
        """What they come to."""

    def verdict(self, samples: Samples) -> Verdict:
        """Whether promises were kept, where that is what is looked at; figures alone break none."""
        return Verdict.PASS


def scaled(scale: float, **sizes: int) -> Sizes:
    """Each of the sizes times `scale`, and at least 1."""
    return {name: max(1, round(size * scale)) for name, size in sizes.items()}


def spread_table(
    title: str, samples: Samples, columns: Mapping[str, str], rows: Sequence[Configuration], note: str = ""
) -> Table:
    """Configurations down, figures across. `columns`: the heading of each figure."""
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
    """`upper / lower` of two figures by round (see `Samples.values`): a list of one, or none where either
    was not measured.
    """
    measured = ratios(upper, lower)
    return [Ratio(name, measured, published, source, remark)] if measured else []
