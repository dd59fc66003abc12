"""What a measurement came to, as data: the report shows it, `measurements.json` keeps it.

Nothing here knows how anything is measured or drawn. Absolute times under emulation mean little, so a
measurement leads with ratios; each figure says how many times it was taken and how far it spread.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from datetime import datetime

import msgspec


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure that was taken `samples` times: its median, the lowest and the highest."""

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
    """`name` says what over what (`throughput, writeback / journal`). `published`: what others have
    measured, with `source` saying who and on what; `remark`: where the two differ, and what is different.
    """

    name: str
    measured: Spread
    published: float | None = None
    source: str = ""
    remark: str = ""


Cell = str | Spread | float | None
"""Of a table. None: not measured; a note says why."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`columns`: one for each cell of a row, the row's name first; its unit stands in a column's name."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many values lay between `low` and `high`, both included."""

    low: int
    high: int
    count: int


class Histogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Buckets by powers of two, in order, without gaps from the lowest to the highest that holds anything."""

    title: str
    unit: str
    buckets: list[Bucket]


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the plot `plot`; those of one plot share their axes. Points in order of x."""

    plot: str
    name: str
    x_title: str
    y_title: str
    points: list[tuple[float, float]]


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One measurement. `command`: what makes it again. `sizes`: what was written, how often, on what disk,
    by name. `source`: how kernel events were had (`bcc`, `tracefs`), or empty. `figures`: files in the run's
    directory with every single figure, such as `ext4-journal.jsonl`. `repeats`: what others did and
    published that this repeats. `answer`: what it came to in a sentence; empty: the first ratio says it.
    `missing`: what could not be measured, and why.
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
    missing: list[str] = []
    ratios: list[Ratio] = []
    tables: list[Table] = []
    histograms: list[Histogram] = []
    series: list[Series] = []
    notes: list[str] = []
    figures: list[str] = []
