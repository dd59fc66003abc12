"""Measurements as a page. Ratios come first: under emulation an absolute time says more about the host than
about the file system. Next to each ratio are the published value and what differs from its setup.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path

from harness.host.files import write_atomically
from harness.measurements.directory import read_measurements
from harness.measurements.results import Cell, Histogram, Measurement, Ratio, Spread, Table
from harness.model import Verdict
from harness.report import plot, words
from harness.report.page import Cell as PageCell
from harness.report.page import Line, Page, PageTable, Section
from harness.report.pages import sentence

NOT_MEASURED = "not measured"
TEXT_COLUMNS = 140
_STARS = 40
_EMULATED = (
    "The guest's processor was emulated (tcg): absolute times and rates say more about this host than about "
    "the file system. Read the ratios: both sides of each were measured in the same round, so other load on "
    "the host affects both."
)
_BARS = "Bar: the median, from 1 (logarithmic); whisker: lowest to highest round; stroke: published."


def write_measurement_reports(run: Path) -> Page:
    """Write report.html and summary.txt for the measurements in a run directory."""
    page = page_of(read_measurements(run))
    write_atomically(run / "summary.txt", page.text(TEXT_COLUMNS))
    write_atomically(run / "report.html", page.html())
    return page


def page_of(measurements: Sequence[Measurement]) -> Page:
    """The first, with the others beside it."""
    if not measurements:
        return Page("a measurement", "nothing", NOT_MEASURED, "unknown", ())
    first = measurements[0]
    subject, answer = headline(first)
    return Page(
        what=f"{first.name}: {first.summary}",
        subject=subject,
        headline=answer,
        kind=_kind(first),
        sections=tuple(
            section
            for m in measurements
            for section in _sections(m, f", {headline(m)[0]}" if len(measurements) > 1 else "")
        ),
        figures=(made_on(first),),
        command=shlex.join(first.command),
    )


def _kind(m: Measurement) -> str:
    """As its exit code: what broke a promise is no mere figure."""
    if m.verdict == Verdict.FAIL.value:
        return "fail"
    return "unknown" if m.missing or m.verdict == Verdict.UNKNOWN.value else "measured"


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


# --- sections --------------------------------------------------------------------------------


def _sections(m: Measurement, of: str) -> Iterator[Section]:
    """`of`: whose they are, in their titles; every one of figures says on what these were taken."""
    about = made_on(m)
    yield Section(f"{sentence(NOT_MEASURED)}{of}", lines=tuple(map(Line, m.missing)))
    yield Section(
        f"Ratios{of}",
        f"{about}. {_BARS}",
        tables=(_ratio_table(m.ratios),),
        lines=tuple(map(Line, _remarks(m.ratios))),
    )
    for table in m.tables:
        notes = (Line(table.note),) if table.note else ()
        yield Section(f"{table.title}{of}", about, tables=(_table(table),), lines=notes)
    yield Section(f"Distribution{of}", about, tables=tuple(map(_histogram, m.histograms)))
    yield Section(f"Plots{of}", about, plots=tuple(plot.plots(m.series)), in_text=False)
    yield Section(f"Notes{of}", lines=tuple(map(Line, m.notes)))
    yield Section(f"What it was measured on{of}", lines=tuple(_facts(m)), in_text=False)


def _ratio_table(ratios: Sequence[Ratio]) -> PageTable:
    columns: tuple[str, ...] = ("ratio", "measured")
    if any(r.published for r in ratios):
        columns += ("published", "compared")
    rows = [
        (
            r.name,
            PageCell(plot.said(r.measured.median), spread=spread_words(r.measured), bar=bar),
            plot.said(r.published) if r.published else "",
            compared(r),
        )
        for r, bar in zip(ratios, plot.ratio_bars(ratios), strict=True)
    ]
    return PageTable(columns, tuple(row[: len(columns)] for row in rows))


def _remarks(ratios: Sequence[Ratio]) -> list[str]:
    remarks = [t for r in ratios for t in (r.source and f"published: {r.source}", r.remark) if t]
    return list(dict.fromkeys(remarks))


def _table(table: Table) -> PageTable:
    columns = zip(*table.rows, strict=True)
    highest = [max((c.high for c in column if isinstance(c, Spread)), default=0.0) for column in columns]
    rows = (tuple(_cell(cell, top) for cell, top in zip(row, highest, strict=True)) for row in table.rows)
    return PageTable(tuple(table.columns), tuple(rows), figures=1)


def _cell(cell: Cell, highest: float) -> str | PageCell:
    match cell:
        case None:
            return PageCell(NOT_MEASURED, "missing")
        case Spread():
            return PageCell(plot.said(cell.median), spread=_low_high(cell), bar=plot.bar(cell, highest))
        case str():
            return cell
        case _:
            return plot.said(cell)


def _low_high(s: Spread) -> str:
    return "" if s.samples < 2 or s.low == s.high else f"{plot.said(s.low)}–{plot.said(s.high)}"  # noqa: RUF001 - an en dash is meant


def _histogram(drawn: Histogram) -> PageTable:
    """The rows from the first bucket on that is not empty."""
    first = next((n for n, b in enumerate(drawn.buckets) if b.count), len(drawn.buckets))
    fullest = max((b.count for b in drawn.buckets), default=0)
    rows = (
        (
            f"{words.number(b.low)} – {words.number(b.high)}",  # noqa: RUF001 - as above
            words.number(b.count),
            PageCell("", bar=plot.bar(Spread.of([b.count]), fullest)),
        )
        for b in drawn.buckets[first:]
    )
    return PageTable((drawn.unit, "count", "distribution"), tuple(rows), drawn.title)


def _facts(m: Measurement) -> Iterator[Line]:
    facts = (
        ("Repeats", m.repeats),
        ("Emulated", _EMULATED if is_emulated(m) else ""),
        ("Kernel events", m.source),
        ("All figures", ", ".join(m.figures)),
        ("Command", shlex.join(m.command)),
        ("Started", f"{m.started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("Took", words.seconds(m.seconds)),
    )
    yield from (Line(value, name) for name, value in facts if value)


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
