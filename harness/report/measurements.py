"""Reports of measurements: report.html (self-contained, no network) and summary.txt.

Ratios come first: under emulation an absolute time says more about the host than about the file system. Next
to each ratio are the published value and what differs from its setup.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from harness.host.console import SafeConsole
from harness.host.files import write_atomically
from harness.host.text import one_line
from harness.measurements.directory import read_measurements
from harness.measurements.results import Cell, Histogram, Measurement, Ratio, Spread, Table
from harness.report import plot, words
from harness.report.pages import sentence, template

NOT_MEASURED = "not measured"
_PLAIN_WIDTH = 140
_STARS = 40


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell of a table: what it says, its spread in words, and its bar."""

    text: str
    spread: str = ""
    bar: plot.CellBar | None = None
    missing: bool = False


@dataclass(frozen=True, slots=True)
class RatioView:
    """A ratio as the page shows it."""

    ratio: Ratio
    measured: str
    spread: str
    published: str
    compared: str
    bar: plot.RatioBar


@dataclass(frozen=True, slots=True)
class MeasurementView:
    """A measurement as the page shows it. `made_on`: the line above every table."""

    measurement: Measurement
    emulated: bool
    made_on: str
    ratios: Sequence[RatioView]
    tables: Sequence[tuple[Table, Sequence[Sequence[CellView]]]]
    histograms: Sequence[tuple[str, str, Sequence[plot.HistogramRow]]]
    plots: Sequence[plot.Plot]
    facts: Sequence[tuple[str, str]]


def write_measurement_reports(run: Path) -> None:
    """Write report.html and summary.txt for the measurements in a run directory."""
    found = read_measurements(run)
    write_atomically(run / "summary.txt", measurements_text(found))
    write_atomically(run / "report.html", measurements_html(found))


def measurements_html(measurements: Sequence[Measurement]) -> str:
    views = [_view(m) for m in measurements]
    return template("measurements.html").render(
        views=views,
        ratio_width=plot.RATIO_WIDTH,
        headlines=[headline(m) for m in measurements],
        not_measured=NOT_MEASURED,
    )


def print_measurements(measurements: Sequence[Measurement], console: Console | None = None) -> None:
    console = console or SafeConsole(highlight=False)
    if (
        not console.is_terminal and console.width < _PLAIN_WIDTH
    ):  # a file is not limited to the terminal's width
        console = SafeConsole(file=console.file, width=_PLAIN_WIDTH, color_system=None, highlight=False)
    for part in (part for m in measurements for part in _parts(m)):
        if isinstance(part, Text):
            console.print(part, highlight=False, soft_wrap=True)
        else:
            console.print(part)


def measurements_text(measurements: Sequence[Measurement]) -> str:
    out = io.StringIO()
    print_measurements(
        measurements, SafeConsole(file=out, width=_PLAIN_WIDTH, color_system=None, force_terminal=False)
    )
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


# --- words -----------------------------------------------------------------------------------


def headline(m: Measurement) -> tuple[str, str]:
    """What was measured on what, and the main result."""
    subject = " · ".join(filter(None, [m.kernel, m.name]))
    if m.answer:
        return subject, m.answer
    if not m.ratios:
        answer = NOT_MEASURED if m.missing and not any(t.rows for t in m.tables) else m.summary
        return subject, f"{sentence(answer)}."
    first = m.ratios[0]
    published = f", published {plot.said(first.published)}" if first.published else ""
    return subject, f"{sentence(first.name)}: {plot.said(first.measured.median)}{published}."


def compared(r: Ratio) -> str:
    """How a measured ratio compares with the published one; empty if there is none."""
    if r.published is None or r.published <= 0:
        return ""
    low, median, high = r.measured.low, r.measured.median, r.measured.high
    if low <= r.published <= high:
        return "as published, within the spread"
    if (r.published - 1) * (median - 1) < 0:
        return "opposite of what was published"
    return f"{plot.said(median / r.published)} times the published ratio"


def spread_words(s: Spread) -> str:
    """`7.1 to 8.2, 5 times`; `once` for a single figure."""
    if s.samples < 2:
        return "once"
    if s.low == s.high:
        return f"{s.samples} times the same"
    return f"{plot.said(s.low)} to {plot.said(s.high)}, {s.samples} times"


def made_on(m: Measurement) -> str:
    """Kernel, machine, accelerator, sizes."""
    machine = m.machine if not m.accel or m.accel in m.machine else f"{m.machine} ({m.accel})"
    sizes = ", ".join(f"{name} {value}" for name, value in m.sizes.items())
    emulated = "emulated: absolute figures mean little" if is_emulated(m) else ""
    return "; ".join(filter(None, [m.kernel, machine, sizes, emulated]))


def is_emulated(m: Measurement) -> bool:
    """Whether the guest's processor was emulated."""
    return m.accel == "tcg"


# --- the page --------------------------------------------------------------------------------


def _view(m: Measurement) -> MeasurementView:
    bars = plot.ratio_bars(m.ratios)
    return MeasurementView(
        measurement=m,
        emulated=is_emulated(m),
        made_on=made_on(m),
        ratios=[_ratio(r, bar) for r, bar in zip(m.ratios, bars, strict=True)],
        tables=[(t, _cells(t)) for t in m.tables],
        histograms=[(h.title, h.unit, plot.histogram_rows(h)) for h in m.histograms],
        plots=plot.plots(m.series),
        facts=_facts(m),
    )


def _ratio(r: Ratio, bar: plot.RatioBar) -> RatioView:
    published = plot.said(r.published) if r.published else ""
    return RatioView(r, plot.said(r.measured.median), spread_words(r.measured), published, compared(r), bar)


def _cells(table: Table) -> list[list[CellView]]:
    highest = [
        max((row[i].high for row in table.rows if isinstance(row[i], Spread)), default=0.0)  # type: ignore[union-attr]  # checked by isinstance
        for i in range(len(table.columns))
    ]
    return [[_cell(cell, top) for cell, top in zip(row, highest, strict=True)] for row in table.rows]


def _cell(cell: Cell, highest: float) -> CellView:
    match cell:
        case None:
            return CellView(NOT_MEASURED, missing=True)
        case Spread():
            return CellView(plot.said(cell.median), _low_high(cell), plot.cell_bar(cell, highest))
        case str():
            return CellView(cell)
        case _:
            return CellView(plot.said(cell))


def _low_high(s: Spread) -> str:
    return "" if s.samples < 2 or s.low == s.high else f"{plot.said(s.low)}–{plot.said(s.high)}"  # noqa: RUF001 - an en dash is meant


def _facts(m: Measurement) -> list[tuple[str, str]]:
    facts = [
        ("Repeats", m.repeats),
        ("Kernel", m.kernel),
        ("Machine", m.machine),
        ("Accelerator", f"{m.accel}, emulation" if is_emulated(m) else m.accel),
        *((sentence(name), value) for name, value in m.sizes.items()),
        ("Kernel events", m.source),
        ("All figures", ", ".join(m.figures)),
        ("Command", " ".join(m.command)),
        ("Started", f"{m.started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("Took", words.seconds(m.seconds)),
    ]
    return [(name, value) for name, value in facts if value]


# --- the text --------------------------------------------------------------------------------


def _parts(m: Measurement) -> Iterator[Text | RichTable]:
    subject, answer = headline(m)
    yield Text(one_line(f"{subject}: {answer}"), style="bold")
    yield Text(one_line(made_on(m)), style="dim")
    yield Text()
    if m.ratios:
        yield _ratio_table(m.ratios)
        yield Text()
        yield from (Text(one_line(f"  {text}"), style="dim") for text in _remarks(m.ratios))
    for table in m.tables:
        yield _plain_table(table)
        if table.note:
            yield Text(one_line(f"  {table.note}"), style="dim")
        yield Text()
    for histogram in m.histograms:
        yield Text(one_line(histogram.title), style="bold")
        yield from (Text(line, no_wrap=True) for line in histogram_text(histogram).split("\n"))
        yield Text()
    for reason in m.missing:
        yield Text(one_line(f"{NOT_MEASURED}: {reason}"), style="yellow")
    for note in m.notes:
        yield Text(one_line(f"note: {note}"))
    yield Text(one_line(f"again: {' '.join(m.command)}"))


def _remarks(ratios: Sequence[Ratio]) -> list[str]:
    remarks = [t for r in ratios for t in (r.source and f"published: {r.source}", r.remark) if t]
    return list(dict.fromkeys(remarks))


def _ratio_table(ratios: Sequence[Ratio]) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("ratio", overflow="fold")
    table.add_column("measured", justify="right")
    table.add_column("spread")
    if any(r.published for r in ratios):
        table.add_column("published", justify="right")
        table.add_column("")
    for r in ratios:
        row = [r.name, plot.said(r.measured.median), spread_words(r.measured)]
        if any(other.published for other in ratios):
            row += [plot.said(r.published) if r.published else "", compared(r)]
        table.add_row(*(Text(one_line(text)) for text in row))
    return table


def _plain_table(table: Table) -> RichTable:
    shown = RichTable(
        title=Text(one_line(table.title), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
    )
    for i, name in enumerate(table.columns):
        numbers = any(isinstance(row[i], Spread | float) for row in table.rows)
        justify: Literal["left", "right"] = "right" if numbers else "left"
        heading = Text(one_line(name), overflow="fold")
        shown.add_column(heading, justify=justify, overflow="fold", no_wrap=i == 0)
    for row in table.rows:
        cells = [_cell(cell, 0) for cell in row]
        texts = ["\n".join(map(one_line, filter(None, (c.text, c.spread)))) for c in cells]
        shown.add_row(*map(Text, texts))
    return shown


def histogram_text(drawn: Histogram) -> str:
    """The histogram as bcc's `print_log2_hist` prints it; "no values" if it is empty."""
    if not drawn.buckets:
        return f"     {drawn.unit:<19} : no values"
    most = max(b.count for b in drawn.buckets)
    wide = drawn.buckets[-1].high >= 1 << 32
    width, stars = (20, _STARS // 2) if wide else (10, _STARS)
    lines = [f"{'':{width // 2}}{drawn.unit:<{2 * width - 1}} : count     distribution"]
    for b in drawn.buckets:
        bar = "*" * (stars * b.count // most)
        lines.append(f"{b.low:>{width}} -> {b.high:<{width}} : {b.count:<8} |{bar:<{stars}}|")
    return "\n".join(lines)
