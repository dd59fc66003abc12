"""Bars and lines: every shape lies inside its drawing, whatever was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.measurements.results import Curve, Ratio, Spread
from harness.report import plot

FIGURES = st.floats(1e-6, 1e9)
SPREADS = st.lists(FIGURES, min_size=1, max_size=5).map(Spread.of)


@given(st.lists(st.tuples(SPREADS, st.none() | st.floats(1e-3, 1e3)), min_size=1, max_size=6))
def test_bars_of_ratios(measured: list[tuple[Spread, float | None]]) -> None:
    ratios = [Ratio("x", spread, published) for spread, published in measured]
    for ratio, bar in zip(ratios, plot.ratio_bars(ratios), strict=True):
        assert 0 <= bar.low <= bar.high <= 100
        assert 0 <= bar.start <= 50 <= bar.stop <= 100
        assert bar.one == 50
        assert (bar.start if ratio.measured.median > 1 else bar.stop) == bar.one
        if bar.mark is not None:
            assert 0 <= bar.mark <= 100


@given(SPREADS)
def test_a_bar_is_drawn_beside_the_highest_of_its_column(spread: Spread) -> None:
    assert plot.bar(spread, 0.0) is None
    drawn = plot.bar(spread, spread.high)
    assert drawn is not None
    assert 0 == drawn.start <= drawn.low <= drawn.stop <= drawn.high == 100


@given(FIGURES | st.just(0.0), FIGURES | st.just(0.0))
def test_steps_cover_what_they_are_for(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    found = plot.steps(low, high)
    assert found == sorted(set(found))
    assert found[0] <= low * (1 + 1e-6)
    assert found[-1] >= high * (1 - 1e-6)
    assert 2 <= len(found) <= 12


POINTS = st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7)), min_size=1, max_size=700)


@given(st.lists(POINTS, min_size=1, max_size=3))
def test_lines_lie_inside_their_plot(lines: list[list[tuple[float, float]]]) -> None:
    series = [Curve("p", str(i), "x", "y", sorted(points)) for i, points in enumerate(lines)]
    (drawn,) = plot.plots(series)
    assert len(drawn.lines) == len(series)
    for line in drawn.lines:
        assert 0 < len(line.dots) <= 600
        for x, y in line.dots:
            assert plot.LEFT - 0.1 <= x <= plot.PLOT_WIDTH - plot.RIGHT + 0.1
            assert plot.TOP - 0.1 <= y <= plot.PLOT_HEIGHT - plot.BOTTOM + 0.1


def test_counts_have_no_halves_on_their_axis() -> None:
    """A plot of one finding had ticks at 0.2, 0.4, 0.6 and 0.8 findings."""
    (drawn,) = plot.plots([Curve("Findings", "findings", "hours", "findings", [(0.0, 0.0), (0.5, 1.0)])])
    assert [t.text for t in drawn.y_ticks] == ["0", "1"]
    (drawn,) = plot.plots([Curve("Latency", "ms", "n", "ms", [(0.0, 0.0), (1.0, 0.5)])])
    assert "0.1" in [t.text for t in drawn.y_ticks]


def test_series_of_one_plot_share_their_axes() -> None:
    one, two = Curve("a", "1", "x", "y", [(0, 1), (1, 2)]), Curve("a", "2", "x", "y", [(0, 9)])
    other = Curve("b", "3", "x", "y", [(0, 1)])
    assert [len(p.lines) for p in plot.plots([one, other, two])] == [2, 1]


def test_figures_have_three_digits_that_count() -> None:
    said = {0.0: "0", 1234.5: "1,234", 56.78: "56.8", 8.904: "8.9", 0.01234: "0.0123", 100.0: "100", 2.0: "2"}
    assert {v: plot.said(v) for v in said} == said
    assert plot.said(0.00001) == "1.00e-05"
