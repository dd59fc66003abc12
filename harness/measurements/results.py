"""The results of measurements, as data: the report shows them, `measurements.json` keeps them.

Nothing here knows how anything is measured or drawn. Absolute times mean little under emulation, so a
measurement leads with ratios; each figure says how often it was measured and how far it spread.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The median, lowest and highest of a figure that was measured `samples` times."""

    median: float
    low: float
    high: float
    samples: int = 1

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        taken = sorted(values)
        return cls(statistics.median(taken), taken[0], taken[-1], len(taken))


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`name` says what over what (`throughput, writeback / journal`). `published`: what others measured;
    `source`: who, and on what; `remark`: why the two differ.
    """

    name: str
    measured: Spread
    published: float | None = None
    source: str = ""
    remark: str = ""


_MAX_BITS = 64
Cell = str | Spread | float | None
"""A cell of a table. None: not measured; a note says why."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`columns`: a heading for each cell of a row, with its unit; the row's name comes first."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of values from `low` to `high`, both included."""

    low: int
    high: int
    count: int


class Histogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Buckets by powers of two, in order and without gaps, up to the highest that is not empty."""

    title: str
    unit: str
    buckets: list[Bucket]

    @classmethod
    def of(cls, title: str, unit: str, values: Iterable[int]) -> Histogram:
        """Of values that are whole and not negative."""
        counts = Counter(max(value.bit_length(), 1) for value in values)
        highest = min(max(counts, default=0), _MAX_BITS)
        lows = [0, *(1 << bits for bits in range(1, highest))][:highest]
        return cls(title, unit, [Bucket(low, (1 << n) - 1, counts[n]) for n, low in enumerate(lows, 1)])


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line in the plot named `plot`; lines of one plot share its axes. Points are in order of x."""

    plot: str
    name: str
    x_title: str
    y_title: str
    points: list[tuple[float, float]]


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One measurement. `command`: repeats it. `sizes`: what was written, how often, on what disk, by name.
    `source`: where kernel events came from (`bcc`, `tracefs`), or empty. `figures`: files in the run
    directory with every single figure, such as `ext4-journal.jsonl`. `repeats`: what others measured and
    published. `answer`: the result in a sentence; empty: the first ratio says it. `verdict`: `fail` or
    `unknown`, where promises are judged and were not all kept; else empty. `missing`: what could not be
    measured, and why.
    """

    name: str
    summary: str
    command: list[str]
    kernel: str
    machine: str
    accel: str
    started: datetime
    seconds: float = 0.0
    sizes: dict[str, str] = {}
    source: str = ""
    repeats: str = ""
    answer: str = ""
    verdict: str = ""
    missing: list[str] = []
    ratios: list[Ratio] = []
    tables: list[Table] = []
    histograms: list[Histogram] = []
    series: list[Curve] = []
    notes: list[str] = []
    figures: list[str] = []


@dataclass(frozen=True, slots=True)
class Results:
    """What is computed from figures; see `Measurement`, whose fields have these names."""

    ratios: Sequence[Ratio] = ()
    tables: Sequence[Table] = ()
    histograms: Sequence[Histogram] = ()
    series: Sequence[Curve] = ()
    notes: Sequence[str] = ()
    answer: str = ""

    def of(self, measurement: Measurement) -> Measurement:
        """The measurement with these results; notes that it has already come first."""
        return msgspec.structs.replace(
            measurement,
            ratios=[*self.ratios],
            tables=[*self.tables],
            histograms=[*self.histograms],
            series=[*self.series],
            notes=[*measurement.notes, *self.notes],
            answer=self.answer,
        )
