"""Layout of the bars and plots of measurements. The template only puts these numbers into SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.grouping import by_key
from harness.measurements.results import Curve, Ratio, Spread

PLOT_WIDTH, PLOT_HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 44
COLOURS = 8
_DOTS_FROM = 60  # with more points than this, a connecting line would hide them
_MAX_POINTS = 600  # per line, to keep the page small
_MIN_DECADES = 0.3  # a scale of ratios spans at least a factor of two each way


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of a figure, in percent of its place: from `start` to `stop`, with whiskers from `low` to
    `high`. `one`: where 1 is, on a scale of ratios; `mark`: where another value is; None for neither.
    """

    start: float
    stop: float
    low: float
    high: float
    one: float | None = None
    mark: float | None = None


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


def ratio_bars(ratios: Sequence[Ratio]) -> list[Bar]:
    """One bar per ratio, from 1 to the median, on a logarithmic scale that all of them share. `mark`: the
    published ratio.
    """
    reach = max([_MIN_DECADES, *(abs(math.log10(v)) for r in ratios for v in _values(r) if v > 0)])

    def x(value: float) -> float:
        inside = math.log10(value) if value > 0 else -reach
        return _px(50 * (1 + inside / (reach * 1.04)))

    bars = []
    for r in ratios:
        low, middle, high = x(r.measured.low), x(r.measured.median), x(r.measured.high)
        published = x(r.published) if r.published else None
        bars.append(Bar(min(50.0, middle), max(50.0, middle), low, high, 50.0, published))
    return bars


def _values(r: Ratio) -> tuple[float, ...]:
    return (r.measured.low, r.measured.high, r.measured.median, *((r.published,) if r.published else ()))


def bar(figure: Spread, highest: float) -> Bar | None:
    """A figure beside the highest of its column; None if that has none above zero."""
    if highest <= 0:
        return None
    median, low, high = (_px(max(0.0, v) / highest * 100) for v in (figure.median, figure.low, figure.high))
    return Bar(0.0, median, low, high)


def plots(series: Sequence[Curve]) -> list[Plot]:
    """Curves grouped by `plot`, in order of first appearance."""
    together = by_key((s.plot, s) for s in series if s.points)
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
