"""The figures as a table, beside the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from harness.bench.figures import (
    BenchResult,
    Decided,
    Floor,
    Growth,
    Memory,
    NotMeasured,
    Quartiles,
    Raw,
    Scaling,
    Usual,
    Whole,
)
from harness.bench.setup import PROFILE
from harness.guests.machine import profile_of

Row: TypeAlias = tuple[str, str, str]
"""The figure's name, its value, and its target with whether it is met."""


def rows(bench: BenchResult) -> list[Row]:
    found: list[Row] = []
    for machine, raw in bench.raw.items():
        found += _raw_rows(machine, raw, bench.floor)
    found += _way_rows("floor: host mount, unmount, fsck", bench.floor)
    found += _way_rows("usual way: copy, replay, processes", bench.usual)
    for machine, growth in bench.growth.items():
        found += _growth_rows(machine, growth)
    for machine, decided in bench.decided.items():
        found += _decided_rows(machine, decided)
    for machine, whole in bench.whole.items():
        found += _whole_rows(machine, whole)
    for machine, scaling in bench.scaling.items():
        found += _scaling_rows(machine, scaling)
    return found


def _raw_rows(machine: str, raw: Raw | NotMeasured, floor: Floor | NotMeasured) -> list[Row]:
    what = f"raw, {machine}: states/s per core"
    if isinstance(raw, NotMeasured):
        return [_missing(what, raw)]
    return [
        (what, f"{raw.per_core:.1f} ({raw.per_second:.1f} by the clock)", _raw_target(machine, raw, floor)),
        ("  ms a state", f"{_said(raw.state_ms)}, processor time {raw.cpu_ms:.1f}", ""),
        ("  of it", _parts(raw.split_ms), ""),
        ("  writing to it, where that is done: ms", _said(raw.use_ms), ""),
        ("  Python's part: ms", f"{raw.interpreter_ms:.1f}", ""),
    ]


def _raw_target(machine: str, raw: Raw, floor: Floor | NotMeasured) -> str:
    if profile_of(machine).host_process:
        if isinstance(floor, NotMeasured):
            return "1.2 x floor: the floor was not measured"
        wanted, share = 1.2 * floor.per_second, raw.per_second / floor.per_second
        return _target(f"1.2 x floor = {wanted:.0f} by the clock: {share:.2f}", raw.per_second >= wanted)
    return _target("25 under TCG", raw.per_core >= 25)


def _way_rows(what: str, way: Floor | Usual | NotMeasured) -> list[Row]:
    if isinstance(way, NotMeasured):
        return [_missing(what, way)]
    return [
        (f"{what}: states/s", f"{way.per_second:.1f}", ""),
        ("  ms a state", _said(way.state_ms) + _processor(way), ""),
        ("  of it", _parts(way.split_ms), ""),
    ]


def _processor(way: Floor | Usual) -> str:
    return f", processor time {way.cpu_ms:.1f}" if isinstance(way, Floor) else ""


def _growth_rows(machine: str, growth: Growth | NotMeasured) -> list[Row]:
    what = f"log size, {machine}"
    if isinstance(growth, NotMeasured):
        return [_missing(what, growth)]
    first = growth.points[0]
    found = []
    for point in growth.points:
        change = point.state_ms.median / first.state_ms.median - 1
        target = "" if point is first else _target(f"flat within 20 %: {change:+.0%}", abs(change) <= 0.2)
        found += [
            (
                f"{what}: {point.entries:,} entries",
                f"{_said(point.state_ms)} ms a state, processor time {point.cpu_ms:.1f}",
                target,
            ),
            ("  of it", _parts(point.split_ms), ""),
            (
                "  switch; to a neighbour and read, us",
                f"{_said(point.switch_us)}; {_said(point.switch_and_read_us)}",
                "",
            ),
            ("  memory at its peak, MiB", _peaks(point.memory), ""),
            ("  of one session beyond the images, MiB", *_beyond(point.beyond_image_mib)),
        ]
    return found


def _beyond(mib: float | None) -> tuple[str, str]:
    if mib is None:
        return "not measured: this kernel has no smaps_rollup", ""
    return f"{mib:.0f}", _target("256", mib <= 256)


def _decided_rows(machine: str, decided: Decided | NotMeasured) -> list[Row]:
    what = f"decided, {machine}: states/s"
    if isinstance(decided, NotMeasured):
        return [_missing(what, decided)]
    how = ", ".join(f"{count:,} {how}" for how, count in decided.by_how.items())
    wanted = 1000 if profile_of(machine).host_process else 150
    return [
        (what, f"{decided.per_second:,.0f}", _target(f"{wanted:,}", decided.per_second >= wanted)),
        ("  states", f"{decided.states:,} of {decided.contents:,} contents: {how}", ""),
        (
            "  seconds",
            f"{decided.seconds:.1f}, with boot and recording {decided.with_recording_s:.1f}, "
            f"processor time {decided.cpu_s:.1f}",
            "",
        ),
        _shared_row(decided.interpreter_ms),
    ]


_WHOLE_S = {"ace1": 20, "quick": 45}
"""What a whole run is to take on two processors, in seconds."""


def _whole_rows(machine: str, whole: Sequence[Whole] | NotMeasured) -> list[Row]:
    if isinstance(whole, NotMeasured):
        return [_missing(f"whole runs, {machine}", whole)]
    found: list[Row] = []
    for one in whole:
        wanted = _WHOLE_S[one.workloads]
        target = _target(f"{wanted} on 2 cores", one.seconds <= wanted) if one.jobs == 2 else ""
        found += [
            (f"{one.workloads}, {one.fault_model}, {', '.join(one.modes)}: s", f"{one.seconds:.1f}", target),
            (
                f"  {one.jobs} workers",
                f"{one.cases} cases, {one.states:,} states, {one.visits:,} visits, "
                f"processor time {one.cpu_s:.1f}",
                "",
            ),
            _shared_row(one.interpreter_ms),
        ]
    return found


def _scaling_rows(machine: str, scaling: Scaling | NotMeasured) -> list[Row]:
    what = f"workers that only wait, {machine}"
    if isinstance(scaling, NotMeasured):
        return [_missing(what, scaling)]
    fewest, most = min(scaling.per_second), max(scaling.per_second)
    times = scaling.per_second[most] / scaling.per_second[fewest]
    return [
        (
            f"{what}, {scaling.visit_ms:.0f} ms a visit: visits/s",
            ", ".join(f"{n}: {rate:,.0f}" for n, rate in scaling.per_second.items()),
            f"{most} are {times:.1f} times as fast as {fewest}",
        ),
        _shared_row(scaling.interpreter_ms),
    ]


def _shared_row(interpreter_ms: float) -> Row:
    met = _target("1", interpreter_ms <= 1)
    return ("  of the process that workers share: ms a visit", f"{interpreter_ms:.1f}", met)


def _missing(what: str, figure: NotMeasured) -> Row:
    return (what, f"not measured: {figure.reason}", "")


def _target(said: str, met: bool) -> str:
    return f"{said}: {'met' if met else 'MISSED'}"


def _said(spread: Quartiles) -> str:
    """`31.2 (29.8 to 35.0)`: median and quartiles."""
    digits = 0 if spread.median >= 100 else 1
    return f"{spread.median:,.{digits}f} ({spread.low:,.{digits}f} to {spread.high:,.{digits}f})"


def _parts(split: Mapping[str, Quartiles]) -> str:
    return ", ".join(f"{part} {spread.median:.1f}" for part, spread in split.items())


def _peaks(memory: Mapping[str, Memory]) -> str:
    return ", ".join(f"{name} {'?' if m.peak is None else f'{m.peak:.0f}'}" for name, m in memory.items())


def table(bench: BenchResult) -> Table:
    """All figures as a table for people, with a legend below it."""
    host = bench.host
    title = (
        f"{bench.tested_kernel}, {PROFILE}, 64 MiB: {bench.operations:,} operations, "
        f"{bench.entries:,} log entries, {bench.states} states\n"
        f"{host.cpu}, {host.cores} cores, {host.memory_mib:,} MiB, Linux {host.kernel}, {host.machine}, "
        f"load {host.load[0]} before and {host.load[1]} after"
    )
    caption = (
        "Medians, quartiles in brackets. Per core: by the clock or by processor time, whichever is slower; "
        "with a load above 1, other processes have affected the times."
    )
    shown = Table(
        title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left"
    )
    for heading in ("", "measured", "target"):
        shown.add_column(heading)
    for row in rows(bench):
        shown.add_row(*map(Text, row))
    return shown
