"""The report of measurements: ratios first, what is missing said so, one file without network."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from harness.measurements.directory import FILE_NAME
from harness.measurements.results import (
    Bucket,
    Curve,
    Histogram,
    Measurement,
    Ratio,
    Spread,
    Table,
)
from harness.report.measurements import (
    compared,
    headline,
    page_of,
    write_measurement_reports,
)

MEASUREMENT = Measurement(
    name="double-write",
    summary="10 MiB under three modes",
    command=["powercut", "measure", "double-write"],
    kernel="Linux 6.12.117",
    machine="QEMU 7.2.22",
    accel="tcg",
    started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    seconds=75.0,
    sizes={"written": "10 MiB", "rounds": "3"},
    repeats="what others published",
    ratios=[
        Ratio("writeback / journal", Spread(5.0, 4.0, 6.0, 3), 3.6, "someone, 2001", "no arm to move"),
        Ratio("ordered / journal", Spread(0.5, 0.4, 0.6, 3)),
    ],
    tables=[
        Table(
            "By mode",
            ["mode", "throughput, MiB/s", "commits"],
            [["ext4/journal", Spread(10.0, 9.0, 12.5, 3), 1.0], ["ext4/<b>", None, "none"]],
            "A note on the table.",
        )
    ],
    histograms=[Histogram("commits", "usecs", [Bucket(0, 1, 0), Bucket(2, 3, 8), Bucket(4, 7, 2)])],
    series=[
        Curve("Growth", "with index", "entries", "seconds", [(1000.0, 1.0), (2000.0, 2.0)]),
        Curve("Growth", "without", "entries", "seconds", [(1000.0, 1.0), (2000.0, 4.0)]),
    ],
    notes=["A note."],
    figures=["samples.jsonl"],
)


def without(*names: str, **changed: object) -> Measurement:
    return msgspec.structs.replace(MEASUREMENT, **{n: [] for n in names}, **changed)


@pytest.fixture(scope="module")
def page() -> str:
    return page_of([MEASUREMENT]).html()


class TestPage:
    def test_ratios_come_before_every_absolute_figure(self, page: str) -> None:
        assert page.index("<h2>Ratios</h2>") < page.index("<h2>By mode</h2>") < page.index("<h2>Plots</h2>")

    def test_the_published_ratio_stands_beside_the_measured_one(self, page: str) -> None:
        row = page[page.index("writeback / journal</th>") :].partition("</tr>")[0]
        assert re.search(r">\s*5\s*<span class=\"spread\">4 to 6, 3 times</span>", row)
        assert re.search(r">\s*3.6\s*<", row)
        assert "1.39 times the published ratio" in row
        assert "no arm to move" in page

    def test_every_table_says_on_what_it_was_taken(self, page: str) -> None:
        line = "Linux 6.12.117; QEMU 7.2.22 (tcg); written 10 MiB, rounds 3; emulated: absolute figures"
        drawn = [s for s in page.split("<section>")[1:] if "<table" in s or "<figure" in s]
        assert len(drawn) == 4
        assert all(line in s for s in drawn)

    def test_hardware_is_not_called_emulated(self) -> None:
        assert "mulated" not in page_of([without(accel="kvm")]).html()

    def test_a_page_is_as_green_as_the_exit_code(self) -> None:
        """A power cut that had broken a promise ended with 1, and its page had the colour of any figure."""
        for verdict, kind in (("fail", "fail"), ("unknown", "unknown"), ("", "measured")):
            assert f'header class="{kind}"' in page_of([without(verdict=verdict)]).html()

    def test_what_is_missing_is_said(self) -> None:
        page = page_of([without("ratios", missing=["reiserfs/ordered, round 1: mount failed"])]).html()
        assert "<li>reiserfs/ordered, round 1: mount failed</li>" in page
        assert 'header class="unknown"' in page
        assert "<h2>Ratios</h2>" not in page

    def test_a_missing_cell_is_said_too(self, page: str) -> None:
        assert re.search(r'<td class="missing n">\s*not measured', page)

    def test_foreign_text_is_escaped(self, page: str) -> None:
        assert "ext4/&lt;b&gt;" in page
        assert "ext4/<b>" not in page

    def test_one_file_without_network(self, page: str) -> None:
        assert not re.search(r"(src|href)\s*=|url\(|@import", page)

    def test_bars_histogram_and_curves_are_drawn(self, page: str) -> None:
        assert page.count('<line class="one"') == 2
        assert page.count('<line class="published"') == 1
        assert page.count('<svg class="cell"') == 2 + 1 + 2
        assert page.count("<polyline") == 2
        assert "0 – 1" not in page, "it begins at the first bucket that holds anything"  # noqa: RUF001 - an en dash
        assert "2 – 3" in page  # noqa: RUF001 - as above
        assert "with index" in page

    def test_nothing_at_all(self) -> None:
        assert "Not measured" in page_of([]).html()


def text_of(m: Measurement) -> str:
    return page_of([m]).text(140)


class TestText:
    def test_ratios_first_then_tables_then_the_command(self) -> None:
        text = text_of(MEASUREMENT)
        parts = ("5, published 3.6", "writeback / journal  ", "By mode", "A note.", "made with: powercut")
        places = [text.index(words) for words in parts]
        assert places == sorted(places)
        assert "4 to 6, 3 times" in text

    def test_what_is_missing_is_said(self) -> None:
        text = text_of(without("ratios", "tables", missing=["ext3/journal, round 2: lost"]))
        assert "Not measured\next3/journal, round 2: lost" in text
        assert text.startswith("Linux 6.12.117 · double-write: Not measured.")

    def test_the_histogram_is_drawn_with_stars(self) -> None:
        assert re.search(r"2 – 3 +8 +\*{40}\n4 – 7 +2 +\*{10}\n", text_of(MEASUREMENT))  # noqa: RUF001 - en dashes


@pytest.mark.parametrize(
    ("low", "median", "high", "published", "words"),
    [
        (3.0, 5.0, 6.0, 3.6, "as published, within the spread"),
        (4.0, 5.0, 6.0, 2.5, "2 times the published ratio"),
        (1.1, 1.2, 1.3, 3.6, "0.333 times the published ratio"),
        (0.4, 0.5, 0.6, 3.6, "opposite of what was published"),
        (1.5, 2.0, 2.5, 0.5, "opposite of what was published"),
        (1.0, 1.0, 1.0, None, ""),
    ],
)
def test_where_they_differ_it_says_so_plainly(
    low: float, median: float, high: float, published: float | None, words: str
) -> None:
    assert compared(Ratio("x", Spread(median, low, high, 3), published)) == words


def test_the_headline_is_the_first_ratio() -> None:
    assert headline(MEASUREMENT)[1] == "Writeback / journal: 5, published 3.6."
    assert headline(without("ratios"))[1] == "10 MiB under three modes."
    assert headline(without(answer="Both kept."))[1] == "Both kept."


def test_both_reports_are_written_from_the_file(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(msgspec.json.encode([MEASUREMENT]))
    write_measurement_reports(tmp_path)
    assert "<h2>Ratios</h2>" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "summary.txt").read_text() == text_of(MEASUREMENT)
