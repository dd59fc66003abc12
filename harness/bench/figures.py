"""The figures of the bench, as rows of tables: what it is, what was measured, and what it is to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from harness.measurements.results import Cell, Spread, Table

Row = tuple[str, Cell, str]
"""The figure's name with its unit, its value, and its target with whether it is met."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one process, or of all processes of a machine, in MiB. `peak`: VmHWM, including shared and
    mapped memory. The others are the current proportional share (smaps_rollup, Pss): `own` and `shared`
    memory, `mapped` files. None where the kernel does not report it.
    """

    peak: float | None
    own: float | None
    shared: float | None
    mapped: float | None


def quartiles(values: Sequence[float]) -> Spread:
    """The median of `values`, of which there must be at least one, and the quartiles around it."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Spread(median(values), low, high, len(values))


def totals(times: Sequence[Mapping[str, float]]) -> Spread:
    """The quartiles of what the parts of each state come to."""
    return quartiles([sum(t.values()) for t in times])


def part_rows(times: Sequence[Mapping[str, float]]) -> list[Row]:
    """A row for each part of a state's time: its quartiles."""
    return [(f"of it {part}, ms", quartiles([t[part] for t in times]), "") for part in times[0]]


def target(said: str, met: bool) -> str:
    """`25: met`."""
    return f"{said}: {'met' if met else 'MISSED'}"


def shared_row(interpreter_ms: float) -> Row:
    """Processor time for each visit of the one process that all workers share."""
    name = "of the process that workers share, ms a visit"
    return (name, interpreter_ms, target("1", interpreter_ms <= 1))


def table(title: str, rows: Iterable[Row], note: str = "") -> Table:
    return Table(title, ["figure", "measured", "target"], [list(row) for row in rows], note)
