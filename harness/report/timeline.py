"""Layout of the write log timeline. The template only puts these numbers into SVG.

X axis: index of the log entry. From top to bottom: operations from their begin mark to their ack mark, and
under them what an application acknowledged, and the system calls of its programs; writes
by position on the device, in areas that leave out unwritten parts; flushes and FUA writes; crash points in
the colour of the worst verdict found there. Bands are epochs.

The drawing stays small however long the log: entries that fall on the same few pixels become one shape, whose
title gives their number.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.grouping import by_key
from harness.host.text import first_few
from harness.model import SECTOR_BYTES, Verdict
from harness.report.words import device_of, number, plural
from harness.store.records import DrawnCall, DrawnCalls, DrawnEntry, Finding, StateVerdict, Step

WIDTH = 1080
LEFT = 96
RIGHT = 16
_AXIS_Y, _OPS_Y, _OPS_HEIGHT = 12, 26, 20
_AREAS_Y = 56
_ACK_HEIGHT = 8
_CALLS_HEIGHT, _CALLS_GAP = 12, 6
_CALLS_TOLD = 12
"""Calls that one shape tells of."""
_AREA_GAP = 5
_AREAS_HEIGHT = 132
_LANE_HEIGHT = 14
_STRIP_HEIGHT = 18
_MAX_AREAS = 6
_MAX_SINGLE_WRITES = 400
_CELL_WIDTH, _CELL_HEIGHT = 3.0, 3.0
_LETTER_WIDTH = 6.2  # upper bound for the 11 px label font
_APPLICATION = "app "
"""Begins the mark of `powercut-ack`."""
_SAID = {Verdict.PASS: "kept", Verdict.FAIL: "broken", Verdict.UNKNOWN: "undecided"}
_AT_A_PLACE = {Verdict.PASS: "all kept", Verdict.FAIL: "some broken", Verdict.UNKNOWN: "some undecided"}
_WORST_FIRST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle. `kind`: what it shows, the CSS class. `title`: the tooltip."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A vertical line at the crash point of a finding."""

    x: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Timeline:
    width: int
    height: int
    left: int
    right_edge: int
    areas_y: int
    lane_y: float
    strip_y: float
    description: str
    bands: tuple[Shape, ...]
    areas: tuple[Shape, ...]
    writes: tuple[Shape, ...]
    flushes: tuple[Shape, ...]
    operations: tuple[Shape, ...]
    acknowledgements: tuple[Shape, ...]
    calls: tuple[Shape, ...]
    calls_y: float
    crash_points: tuple[Shape, ...]
    markers: tuple[Marker, ...]
    ticks: tuple[Label, ...]


def draw(
    entries: Sequence[DrawnEntry],
    steps: Sequence[Step],
    verdicts: Iterable[StateVerdict],
    findings: Sequence[Finding],
    calls: DrawnCalls | None = None,
) -> Timeline | None:
    """Lay out one case; None if there is no log to draw. `calls`: of the workload's programs, if any."""
    if not entries:
        return None
    scale = _Scale(len(entries))
    drawn_calls = _calls(calls.calls if calls else (), scale)
    areas_y = _AREAS_Y + (_CALLS_HEIGHT + _CALLS_GAP if drawn_calls else 0)
    areas = _areas(entries, areas_y)
    lane_y = max((a.y + a.height for a in areas), default=areas_y) + _AREA_GAP
    strip_y = lane_y + _LANE_HEIGHT + 8
    epochs = _epochs(entries)
    points = _points(verdicts)
    return Timeline(
        width=WIDTH,
        height=round(strip_y + _STRIP_HEIGHT + 6),
        left=LEFT,
        right_edge=WIDTH - RIGHT,
        areas_y=areas_y,
        lane_y=lane_y,
        strip_y=strip_y,
        description=_describe(entries, epochs, points) + _describe_calls(calls),
        bands=_bands(epochs, scale, areas_y, lane_y + _LANE_HEIGHT - areas_y),
        areas=tuple(a.shape for a in areas),
        writes=_writes(entries, areas, scale),
        flushes=_flushes(entries, scale, lane_y),
        operations=_operations(steps, scale),
        acknowledgements=_acknowledgements(entries, scale),
        calls=drawn_calls,
        calls_y=_AREAS_Y,
        crash_points=_strip(points, scale, strip_y),
        markers=_markers(findings, scale),
        ticks=_ticks(scale),
    )


# --- across ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    entries: int

    @property
    def step(self) -> float:
        return (WIDTH - LEFT - RIGHT) / self.entries

    def x(self, index: float) -> float:
        return LEFT + min(max(index, 0), self.entries) * self.step


def _ticks(scale: _Scale) -> tuple[Label, ...]:
    sizes = (digit * 10**zeros for zeros in itertools.count() for digit in (1, 2, 5))
    step: int = next(size for size in sizes if scale.entries <= 12 * size)
    return tuple(Label(_px(scale.x(i)), _AXIS_Y, number(i)) for i in range(0, scale.entries + 1, step))


# --- epochs and operations -------------------------------------------------------------------


def _epochs(entries: Sequence[DrawnEntry]) -> list[tuple[int, int]]:
    """Half-open ranges of entries between flushes; the flush belongs to the epoch that it closes."""
    ends = [i + 1 for i, e in enumerate(entries) if e.kind.startswith("flush")]
    starts = [0, *ends]
    return [(a, b) for a, b in zip(starts, [*ends, len(entries)], strict=True) if a < b]


def _bands(epochs: Sequence[tuple[int, int]], scale: _Scale, y: int, height: float) -> tuple[Shape, ...]:
    """Every other epoch; none if they would be too narrow to tell apart."""
    if len(epochs) > (WIDTH - LEFT - RIGHT) / 4:
        return ()
    return tuple(
        Shape(
            _px(scale.x(a)),
            y,
            _px((b - a) * scale.step),
            _px(height),
            "odd" if i % 2 else "even",
            f"from one flush to the next: entries {number(a)} to {number(b - 1)}",
        )
        for i, (a, b) in enumerate(epochs)
    )


def _operations(steps: Sequence[Step], scale: _Scale) -> tuple[Shape, ...]:
    """One shape per operation, or per group of operations that begin on the same pixels."""
    cells: dict[int, list[tuple[Step, int]]] = {}
    for step in steps:
        if step.begin is not None and step.begin >= 0:  # else it was in the part before the crash
            cells.setdefault(int(scale.x(step.begin) / _CELL_WIDTH), []).append((step, step.begin))
    return tuple(
        _operation(*cell[0], scale) if len(cell) == 1 else _operations_cell(cell, scale)
        for cell in cells.values()
    )


def _operation(step: Step, begin: int, scale: _Scale) -> Shape:
    end = scale.entries if step.ack is None else step.ack + 1
    width = max((end - begin) * scale.step - 1, 1.5)
    until = "not acknowledged" if step.ack is None else f"acknowledged at entry {number(step.ack)}"
    title = f"{step.index}: {step.text}\nbegun at entry {number(begin)}, {until}"
    kind = "persist" if _persists(step) else "operation"
    label = _fit(step.text, width - 8)
    return Shape(_px(scale.x(begin)), _OPS_Y, _px(width), _OPS_HEIGHT, kind, title, label)


def _operations_cell(cell: Sequence[tuple[Step, int]], scale: _Scale) -> Shape:
    (first, begin), (last, _) = cell[0], cell[-1]
    kind = "persist" if any(_persists(step) for step, _ in cell) else "operation"
    title = (
        f"{first.index} to {last.index}: {plural(len(cell), 'operation')}, from {first.text} to {last.text}"
    )
    return Shape(_px(scale.x(begin)), _OPS_Y, _CELL_WIDTH - 0.5, _OPS_HEIGHT, kind, title)


def _acknowledgements(entries: Sequence[DrawnEntry], scale: _Scale) -> tuple[Shape, ...]:
    """A tick for each mark of `powercut-ack`, at most one per pixel."""
    columns: dict[int, list[tuple[int, str]]] = {}
    for i, e in enumerate(entries):
        if e.mark.startswith(_APPLICATION):
            columns.setdefault(round(scale.x(i)), []).append((i, e.mark.removeprefix(_APPLICATION)))
    return tuple(
        Shape(x, _OPS_Y + _OPS_HEIGHT + 1, 2, _ACK_HEIGHT, "acknowledged", _acknowledged(here))
        for x, here in sorted(columns.items())
    )


def _acknowledged(here: Sequence[tuple[int, str]]) -> str:
    (first, text), (last, end) = here[0], here[-1]
    if len(here) == 1:
        return f"entry {number(first)}: the application acknowledged {text}"
    return (
        f"entries {number(first)} to {number(last)}: {len(here)} acknowledgements of the application, "
        f"from {text} to {end}"
    )


def _calls(calls: Sequence[DrawnCall], scale: _Scale) -> tuple[Shape, ...]:
    """A bar from the begin of each call to its return; calls that begin on the same pixels are one. Long ones
    lie behind.
    """
    cells = by_key((int(scale.x(call.begin) / _CELL_WIDTH), call) for call in calls)
    shapes = [_calls_cell(cell, scale) for cell in cells.values()]
    return tuple(sorted(shapes, key=lambda s: (-s.width, s.x)))


def _calls_cell(cell: Sequence[DrawnCall], scale: _Scale) -> Shape:
    begin = cell[0].begin
    end = max(scale.entries if call.end is None else call.end for call in cell)
    kinds = {_call_kind(call) for call in cell}
    kind = next(k for k in ("call-persist", "call-name", "call") if k in kinds)
    width = max(scale.x(end) - scale.x(begin) - 0.5, _CELL_WIDTH - 0.5)
    x = min(scale.x(begin), WIDTH - RIGHT - width)
    return Shape(_px(x), _AREAS_Y, _px(width), _CALLS_HEIGHT, kind, _calls_title(cell, scale))


def _calls_title(cell: Sequence[DrawnCall], scale: _Scale) -> str:
    begin = cell[0].begin
    place = f"before entry {number(begin)}" if begin < scale.entries else "after the last entry"
    shown, left_out = first_few(cell, _CALLS_TOLD)
    lines = [f"{call.text} {call.outcome}{_until(call)}" for call in shown]
    if left_out:
        lines.append(f"and {number(left_out)} more")
    calls = "system call" if len(cell) == 1 else f"{number(len(cell))} system calls"
    return "\n".join([f"{calls} of the program, {place}:", *lines])


def _until(call: DrawnCall) -> str:
    if call.end is None or call.end == call.begin:
        return ""
    return f", returned after entry {number(call.end - 1)}"


_PERSIST = ("fsync", "fdatasync", "sync", "syncfs", "msync", "sync_file_range")
_NAMES = ("open", "creat", "rename", "link", "symlink", "unlink", "mkdir", "rmdir")


def _call_kind(call: DrawnCall) -> str:
    name = call.text.partition("(")[0]
    if name in _PERSIST:
        return "call-persist"
    return "call-name" if name.startswith(_NAMES) else "call"


def _persists(step: Step) -> bool:
    """Whether the operation asks for durability: an fsync, a write with O_SYNC or O_DSYNC, or an msync."""
    kind, *rest = step.text.split(" ")
    return kind in ("fsync", "fdatasync", "sync") or (
        kind in ("write", "append", "mmap-write") and not {"sync", "dsync"}.isdisjoint(rest[2:])
    )


def _fit(text: str, width: float) -> str:
    """As much of `text` as fits; nothing if that is too little to help."""
    letters = int(width / _LETTER_WIDTH)
    if len(text) <= letters:
        return text
    return text[: letters - 1].rstrip() + "…" if letters >= 5 else ""


# --- writes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Area:
    """A part of the device that was written, `start` to `end` in sectors, and its place in the drawing."""

    start: int
    end: int
    y: float
    height: float

    @property
    def shape(self) -> Shape:
        return Shape(
            LEFT,
            _px(self.y),
            WIDTH - LEFT - RIGHT,
            _px(self.height),
            "area",
            f"sectors {number(self.start)} to {number(self.end - 1)}",
            _mebibytes(self.start, self.end),
        )

    def place(self, sector: int, sectors: int) -> tuple[float, float]:
        """(y, height) of a write, never too thin to see."""
        size = max(self.end - self.start, 1)
        height = min(max(self.height * sectors / size, 2.5), self.height)
        y = self.y + (self.height - height) * (sector - self.start) / max(size - sectors, 1)
        return y, height


def _areas(entries: Sequence[DrawnEntry], top: int) -> tuple[_Area, ...]:
    """Cut the device at its widest unwritten gaps, low sectors on top."""
    extents = sorted({(e.sector, e.sector + e.sectors) for e in entries if e.sectors and e.kind != "mark"})
    gap = 2048  # 1 MiB
    clusters = _clusters(extents, gap)
    while len(clusters) > _MAX_AREAS:
        gap *= 2
        clusters = _clusters(extents, gap)
    weights = [math.sqrt(sum(1 for s, _ in extents if a <= s < b)) for a, b in clusters]
    areas, y = [], float(top)
    for (start, end), weight in zip(clusters, weights, strict=True):
        height = max(_AREAS_HEIGHT * weight / sum(weights), 16.0)
        areas.append(_Area(start, end, y, height))
        y += height + _AREA_GAP
    return tuple(areas)


def _clusters(extents: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    clusters: list[tuple[int, int]] = []
    for start, end in extents:
        if clusters and start - clusters[-1][1] < gap:
            clusters[-1] = (clusters[-1][0], max(clusters[-1][1], end))
        else:
            clusters.append((start, end))
    return clusters


def _writes(entries: Sequence[DrawnEntry], areas: Sequence[_Area], scale: _Scale) -> tuple[Shape, ...]:
    drawn = [(i, e) for i, e in enumerate(entries) if e.sectors and e.kind != "mark"]
    if len(drawn) <= _MAX_SINGLE_WRITES:
        device = device_of(entries)
        return tuple(_write(i, e, areas, scale, device(e.index)) for i, e in drawn)
    cells: dict[tuple[int, int], list[tuple[int, DrawnEntry]]] = {}
    for i, e in drawn:
        y, _ = _area_of(e, areas).place(e.sector, e.sectors)
        cells.setdefault((int(scale.x(i) / _CELL_WIDTH), int(y / _CELL_HEIGHT)), []).append((i, e))
    return tuple(_cell(column, row, cell) for (column, row), cell in sorted(cells.items()))


def _write(i: int, e: DrawnEntry, areas: Sequence[_Area], scale: _Scale, device: str) -> Shape:
    y, height = _area_of(e, areas).place(e.sector, e.sectors)
    size = _size(e.sectors)
    place = f"at sector {number(e.sector)}{device and f', {device}'}"
    title = f"entry {number(i)}: {_kind_words(e)} of {size} {place}"
    width = max(scale.step - 0.5, 1.6)
    return Shape(_px(scale.x(i)), _px(y), _px(width), _px(height), _write_kind(e), title)


def _cell(column: int, row: int, cell: Sequence[tuple[int, DrawnEntry]]) -> Shape:
    kinds = {_write_kind(e) for _, e in cell}
    kind = next(k for k in ("fua", "discard", "write") if k in kinds)
    total = _size(sum(e.sectors for _, e in cell))
    title = f"entries {number(cell[0][0])} to {number(cell[-1][0])}: {plural(len(cell), 'write')}, {total}"
    return Shape(_px(column * _CELL_WIDTH), _px(row * _CELL_HEIGHT), _CELL_WIDTH, _CELL_HEIGHT, kind, title)


def _area_of(e: DrawnEntry, areas: Sequence[_Area]) -> _Area:
    return next(a for a in areas if a.start <= e.sector < a.end)


def _write_kind(e: DrawnEntry) -> str:
    if e.kind == "discard":
        return "discard"
    return "fua" if e.kind.endswith("fua") else "write"


def _kind_words(e: DrawnEntry) -> str:
    words = {
        "flush": "flush, then write",
        "fua": "FUA write",
        "flush+fua": "flush, then FUA write",
        "discard": "discard",
    }
    return words.get(e.kind, "write")


def _flushes(entries: Sequence[DrawnEntry], scale: _Scale, lane_y: float) -> tuple[Shape, ...]:
    """A tick for every flush and FUA write, at most one per pixel."""
    columns: dict[int, list[tuple[int, str]]] = {}
    device = device_of(entries)
    for i, e in enumerate(entries):
        if e.kind in ("flush", "fua", "flush+fua"):
            of = device(e.index)
            columns.setdefault(round(scale.x(i + 0.5)), []).append((i, f"{e.kind} ({of})" if of else e.kind))
    shapes = []
    for x, here in sorted(columns.items()):
        kind = "flush" if any(k.startswith("flush") for _, k in here) else "fua-tick"
        if len(here) == 1:
            title = f"entry {number(here[0][0])}: {here[0][1].replace('fua', 'FUA')}"
        else:
            title = (
                f"entries {number(here[0][0])} to {number(here[-1][0])}: {len(here)} flushes and FUA writes"
            )
        shapes.append(Shape(x - 0.75, _px(lane_y), 1.5, _LANE_HEIGHT, kind, title))
    return tuple(shapes)


# --- crash points ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Points:
    """Crash points from prefix `first` to prefix `last`, with their states by verdict."""

    first: int
    last: int
    states: Counter[Verdict]

    @property
    def worst(self) -> Verdict:
        return min(self.states, key=_WORST_FIRST.index)

    def with_next(self, other: _Points) -> _Points:
        return _Points(self.first, other.last, self.states + other.states)


def _points(verdicts: Iterable[StateVerdict]) -> list[_Points]:
    """One entry per prefix at which a state was judged, ascending."""
    by_prefix: dict[int, Counter[Verdict]] = {}
    for seen in verdicts:
        by_prefix.setdefault(seen.state.prefix, Counter())[seen.verdict] += 1
    return [_Points(prefix, prefix, states) for prefix, states in sorted(by_prefix.items())]


def _strip(points: Sequence[_Points], scale: _Scale, y: float) -> tuple[Shape, ...]:
    """Neighbours with equal verdicts become one shape; a pixel shows the worst verdict on it."""
    pixels: list[_Points] = []
    for point in points:
        if pixels and int(scale.x(pixels[-1].first)) == int(scale.x(point.first)):
            pixels[-1] = pixels[-1].with_next(point)
        else:
            pixels.append(point)
    runs: list[_Points] = []
    for point in pixels:
        near = runs and (point.first - runs[-1].last == 1 or (point.first - runs[-1].last) * scale.step < 2)
        if near and runs[-1].worst is point.worst:
            runs[-1] = runs[-1].with_next(point)
        else:
            runs.append(point)
    return tuple(_strip_shape(run, scale, y) for run in runs)


def _strip_shape(run: _Points, scale: _Scale, y: float) -> Shape:
    at = f"@{run.first}" if run.first == run.last else f"@{run.first} to @{run.last}"
    said = ", ".join(f"{number(run.states[v])} {_SAID[v]}" for v in Verdict if run.states[v])
    left = scale.x(run.first - 0.5)
    width = max(scale.x(run.last + 0.5) - left, 1.2)
    # The height repeats what the colour says, for people who do not see the colour.
    drop = {Verdict.FAIL: 0, Verdict.UNKNOWN: 5, Verdict.PASS: 9}[run.worst]
    title = f"crash points {at}: {said}"
    return Shape(_px(left), _px(y + drop), _px(width), _STRIP_HEIGHT - drop, run.worst.value, title)


def _markers(findings: Sequence[Finding], scale: _Scale) -> tuple[Marker, ...]:
    by_prefix = by_key((finding.state.prefix, finding) for finding in findings)
    return tuple(
        Marker(
            _px(scale.x(prefix)),
            "fail" if any(f.expectation is None for f in here) else "xfail",
            "\n".join(f"{f.state} {f.oracle}: {f.summary}" for f in here),
        )
        for prefix, here in sorted(by_prefix.items())
    )


# --- words -----------------------------------------------------------------------------------


def _describe(entries: Sequence[DrawnEntry], epochs: Sequence[object], points: Sequence[_Points]) -> str:
    by = Counter(p.worst for p in points)
    places = ", ".join(f"{_AT_A_PLACE[v]} at {number(by[v])}" for v in _WORST_FIRST if by[v])
    states = plural(sum(sum(p.states.values()) for p in points), "state")
    return (
        f"Write log: {plural(len(entries), 'entry', 'entries')}; flushes divide them into "
        f"{plural(len(epochs), 'part')}. "
        f"The power was cut at {plural(len(points), 'place')} in it, in {states}: {places or 'none judged'}."
    )


def _describe_calls(calls: DrawnCalls | None) -> str:
    if calls is None:
        return ""
    if calls.lacking:
        return f" The program's system calls were not noted: {calls.lacking}."
    made = plural(len(calls.calls) + calls.more, "system call")
    told = f" The program made {made} on files of this file system"
    return f"{told}; {number(calls.more)} of them, the last, were not noted." if calls.more else f"{told}."


def _size(sectors: int) -> str:
    size = sectors * SECTOR_BYTES
    return f"{size >> 10} KiB" if size % 1024 == 0 else f"{size} bytes"


def _mebibytes(start: int, end: int) -> str:
    """`4.2-12 MiB` with an en dash: from the first written sector to the end of the last."""
    return f"{_mebibyte(start, math.floor)}\u2013{_mebibyte(end, math.ceil)} MiB"


def _mebibyte(sector: int, rounded: Callable[[float], int]) -> str:
    tenths = rounded(sector * SECTOR_BYTES * 10 / (1 << 20))
    if tenths % 10 == 0 or tenths >= 10_000:
        return number(rounded(tenths / 10))
    return f"{tenths / 10:.1f}"


def _px(value: float) -> float:
    return round(value, 1)
