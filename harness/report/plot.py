"""Layout of the bars and plots of measurements. The template only puts these numbers into SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.measurements.results import Curve, Histogram, Ratio, Spread
from harness.report.words import number

PLOT_WIDTH, PLOT_HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 44
COLOURS = 8
_DOTS_FROM = 60  # with more points than this, a connecting line would hide them
_MAX_POINTS = 600  # per line, to keep the page small
RATIO_WIDTH = 320
_ROW = 18
_MIN_DECADES = 0.3  # a scale of ratios spans at least a factor of two each way


@dataclass(frozen=True, slots=True)
class RatioBar:
    """A ratio on a logarithmic scale that all ratios of a page share: from 1 to the median, with whiskers
    from low to high. `published_x`: the mark of the published ratio, None if there is none.
    """

    bar_x: float
    bar_width: float
    low_x: float
    high_x: float
    one_x: float
    published_x: float | None


@dataclass(frozen=True, slots=True)
class CellBar:
    """A figure's bar, in percent of the highest figure of its column."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A series: `path` of a polyline, and its points. `colour` counts from 0."""

    name: str
    colour: int
    path: str
    dots: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines that share their axes."""

    title: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    description: str
    width: int = PLOT_WIDTH
    height: int = PLOT_HEIGHT


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """A bucket; `percent` of the fullest one."""

    low: str
    high: str
    count: str
    percent: float


def ratio_bars(ratios: Sequence[Ratio]) -> list[RatioBar]:
    """One bar per ratio, on a shared scale centred on 1."""
    reach = max([_MIN_DECADES, *(abs(math.log10(v)) for r in ratios for v in _values(r) if v > 0)])

    def x(value: float) -> float:
        inside = math.log10(value) if value > 0 else -reach
        return _px(RATIO_WIDTH / 2 * (1 + inside / (reach * 1.04)))

    bars = []
    for r in ratios:
        middle, one = x(r.measured.median), x(1)
        published = x(r.published) if r.published else None
        left, width = min(one, middle), _px(abs(middle - one))
        bars.append(RatioBar(left, width, x(r.measured.low), x(r.measured.high), one, published))
    return bars


def _values(r: Ratio) -> tuple[float, ...]:
    return (r.measured.low, r.measured.high, r.measured.median, *((r.published,) if r.published else ()))


def cell_bar(cell: Spread, highest: float) -> CellBar | None:
    """None if the column has no figure above zero."""
    if highest <= 0:
        return None
    median, low, high = (_px(max(0.0, v) / highest * 100) for v in (cell.median, cell.low, cell.high))
    return CellBar(median, low, high)


def histogram_rows(histogram: Histogram) -> list[HistogramRow]:
    """The rows in order, from the first bucket that is not empty."""
    filled = list(itertools.dropwhile(lambda b: not b.count, histogram.buckets))
    fullest = max((b.count for b in filled), default=0)
    return [
        HistogramRow(number(b.low), number(b.high), number(b.count), _px(100 * b.count / fullest))
        for b in filled
    ]


def plots(series: Sequence[Curve]) -> list[Plot]:
    """Curves grouped by `plot`, in order of first appearance."""
    together: dict[str, list[Curve]] = {}
    for s in series:
        if s.points:
            together.setdefault(s.plot, []).append(s)
    return [_plot(title, members) for title, members in together.items()]


def _plot(title: str, members: Sequence[Curve]) -> Plot:
    xs = [x for s in members for x, _ in s.points]
    ys = [y for s in members for _, y in s.points]
    x_low = min(xs) if min(xs) > max(xs) / 2 or min(xs) < 0 else 0.0  # such as times far from zero
    counts = all(float(y).is_integer() for y in ys)  # of which there are no halves
    x_steps = steps(x_low, max(xs))
    y_steps = steps(min(0.0, *ys), max(ys), least=1.0 if counts else 0.0)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_steps[0]) / (x_steps[-1] - x_steps[0])
        up = (y - y_steps[0]) / (y_steps[-1] - y_steps[0])
        inner_width, inner_height = PLOT_WIDTH - LEFT - RIGHT, PLOT_HEIGHT - TOP - BOTTOM
        return _px(LEFT + across * inner_width), _px(TOP + (1 - up) * inner_height)

    lines = tuple(_line(i, s, at) for i, s in enumerate(members))
    x_ticks = tuple(Tick(at(v, 0)[0], PLOT_HEIGHT - BOTTOM, said(v)) for v in x_steps)
    y_ticks = tuple(Tick(LEFT, at(0, v)[1], said(v)) for v in y_steps)
    caption = f"{title}. {members[0].y_title} by {members[0].x_title}: " + "; ".join(
        f"{s.name} from {said(s.points[0][1])} to {said(s.points[-1][1])}" for s in members
    )
    return Plot(title, members[0].x_title, members[0].y_title, lines, x_ticks, y_ticks, caption)


def _line(index: int, s: Curve, at) -> Line:  # type: ignore[no-untyped-def]  # the scale of its plot
    stride = math.ceil(len(s.points) / _MAX_POINTS)
    points = [at(x, y) for x, y in s.points[::stride]]
    path = " ".join(f"{x:g},{y:g}" for x, y in points) if len(points) < _DOTS_FROM else ""
    return Line(s.name, index % COLOURS, path, tuple(points))


def steps(low: float, high: float, wanted: int = 5, least: float = 0.0) -> list[float]:
    """About `wanted` + 1 round numbers, from at most `low` to at least `high`, no closer than `least`."""
    if high - low <= 1e-9 * max(1.0, abs(high)):  # practically equal
        high = low + max(abs(low), 1.0)
    rough = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.999)
    step = max(step, least)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def said(value: float) -> str:
    """A figure with three significant digits: `1,234`, `56.7`, `8.9`, `0.0123`."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 0.001 or not value:
        digits = 2 - math.floor(math.log10(size)) if value else 0
        text = f"{value:.{max(0, digits)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.2e}"


def _px(value: float) -> float:
    return round(value, 1)
