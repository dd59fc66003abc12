"""The results of traced rounds: ratios, tables, histograms, plots. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.measurements.results import Cell, Curve, Histogram, Ratio, Results, Spread, Table
from harness.tracing.records import Checkpoint, Commit, Lost, Record, latencies_us

_NO_COMMIT = (
    "jbd2 committed nothing: fast commits are not counted, and without a journal there are no commits"
)
_PHASES = ("starting", "locked", "flushing", "logging")


@dataclass(frozen=True, slots=True)
class Round:
    """One run of the workload: the probes' records, elapsed time, what was written to the disk, and the
    throughput that the workload reports (None: it reports none). `cpu_s`: processor time of the whole guest.
    """

    records: Sequence[Record]
    seconds: float
    written_mib: float
    mib_s: float | None
    cpu_s: float = 0.0


@dataclass
class Mode:
    """All rounds of one mode. `what`: the name of its journal's records, or empty; see `Tracepoints`."""

    name: str
    what: str
    note: str = ""
    rounds: list[Round] = field(default_factory=list)

    @property
    def file_name(self) -> str:
        """The file that keeps every record."""
        return f"{self.name.replace('/', '-')}.jsonl"

    @property
    def records(self) -> list[Record]:
        return [record for taken in self.rounds for record in taken.records]

    def latencies_us(self) -> list[int]:
        """Of every commit, or of the records that stand for commits."""
        return latencies_us(self.records, self.what)


def evaluate(modes: Sequence[Mode], unit: str, shown: Callable[[Sequence[int]], list[int]]) -> Results:
    """Compare the other modes with the first. `shown` turns microseconds into `unit`, for histograms."""
    names = dict.fromkeys([m.what for m in modes if m.what] + ["fsync"])
    histograms = [
        Histogram.of(f"{mode.name}: {what}", unit, shown(us))
        for what in names
        for mode in modes
        if (us := latencies_us(mode.records, what)) and what in (mode.what, "fsync")
    ]
    tables = [_main_table(modes)]
    if any(isinstance(r, Commit) for m in modes for r in m.records):
        tables.append(_phase_table(modes))
    return Results(_ratios(modes), tables, histograms, _series(modes), _notes(modes))


def _ratios(modes: Sequence[Mode]) -> list[Ratio]:
    """Every other mode against the first, round by round, where the same thing was timed in both."""
    found = []
    for other in modes[1:]:
        first = modes[0]
        speeds = _by_round(other, first, lambda r, _: r.mib_s)
        found += _ratio(f"throughput, {other.name} / {first.name}", speeds)
        if other.what == first.what and other.what:
            commits = _by_round(first, other, _median_us)
            found += _ratio(f"{first.what} latency, {first.name} / {other.name}", commits)
        found += _ratio(
            f"fsync latency, {first.name} / {other.name}",
            _by_round(first, other, lambda r, _: _median_us(r, "fsync")),
        )
    return found


def _by_round(a: Mode, b: Mode, of: Callable[[Round, str], float | None]) -> list[float]:
    pairs = [(of(x, a.what), of(y, b.what)) for x, y in zip(a.rounds, b.rounds, strict=False)]
    return [above / below for above, below in pairs if above is not None and below]


def _median_us(taken: Round, what: str) -> float | None:
    found = latencies_us(taken.records, what)
    return statistics.median(found) if found else None


def _ratio(name: str, values: Sequence[float]) -> list[Ratio]:
    return [Ratio(name, Spread.of(values))] if values else []


def _main_table(modes: Sequence[Mode]) -> Table:
    """Has a column for what was timed if that differs from mode to mode."""
    whats = {m.what for m in modes}
    one = next(iter(whats)) if len(whats) == 1 else ""
    timed = [f"{one}s", f"{one}, ms"] if one else ["traced", "events", "ms each"]
    columns = ["mode", "MiB/s", "round, s", "to disk, MiB", *timed, "fsync, ms"]
    return Table("By mode, each round", columns, [_main_row(m, bool(one)) for m in modes])


def _main_row(mode: Mode, alike: bool) -> list[Cell]:
    return [
        mode.name,
        _spread([r.mib_s for r in mode.rounds]),
        _spread([r.seconds for r in mode.rounds]),
        _spread([r.written_mib or None for r in mode.rounds]),
        *([] if alike else [mode.what or "not traced"]),
        _spread([_seen(taken, mode.what) for taken in mode.rounds]) if mode.what else None,
        _spread([us / 1e3 for us in mode.latencies_us()]),
        _spread([us / 1e3 for us in latencies_us(mode.records, "fsync")]),
    ]


def _spread(values: Sequence[float | None]) -> Cell:
    there = [v for v in values if v is not None]
    return Spread.of(there) if there else None


def _seen(taken: Round, what: str) -> int:
    return sum(
        1
        for r in taken.records
        if (isinstance(r, Commit) and what == "commit") or getattr(r, "what", None) == what
    )


def _phase_table(modes: Sequence[Mode]) -> Table:
    columns = ["mode", *(f"{phase}, µs" for phase in _PHASES), "blocks logged", "handles", "checkpoints"]
    rows: list[list[Cell]] = []
    for mode in modes:
        commits = [r for r in mode.records if isinstance(r, Commit)]
        if not commits:
            continue
        row: list[Cell] = [mode.name]
        row += [Spread.of(float(getattr(c, f"{phase}_us")) for c in commits) for phase in _PHASES]
        row += [Spread.of(float(c.logged) for c in commits), Spread.of(float(c.handles) for c in commits)]
        row.append(str(sum(1 for r in mode.records if isinstance(r, Checkpoint))))
        rows.append(row)
    note = (
        "starting: until the journal takes the transaction; locked: until its handles have ended; flushing: "
        "until its data is submitted; logging: until its blocks and its commit record are in the log"
    )
    return Table("Phases of a commit", columns, rows, note)


def _series(modes: Sequence[Mode]) -> list[Curve]:
    """Latency in the order of events; the time between rounds is left out."""
    return [
        Curve(f"Latency of each {what}", mode.name, f"{what} number", "ms", points)
        for mode in modes
        for what in dict.fromkeys((mode.what, "fsync"))
        if len(points := _points(mode, what)) > 1
    ]


def _points(mode: Mode, what: str) -> list[tuple[float, float]]:
    return [(float(n), us / 1e3) for n, us in enumerate(latencies_us(mode.records, what), 1)]


def _notes(modes: Sequence[Mode]) -> list[str]:
    found = [f"{m.name}: {m.note}" for m in modes if m.note]
    found += [
        f"{m.name}: its journal has no tracepoints, so only fsync is timed" for m in modes if not m.what
    ]
    for mode in modes:
        lost = sum(r.records for r in mode.records if isinstance(r, Lost))
        if lost:
            found.append(f"{mode.name}: {lost} events are missing: the buffer was full")
        if mode.what == "commit" and not mode.latencies_us():
            found.append(f"{mode.name}: {_NO_COMMIT}")
    return found
