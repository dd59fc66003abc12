"""Figures by round, and what is made of them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import StoreError
from harness.measure.comparison import ratio
from harness.measurements.directory import read_measurements
from harness.measurements.results import Spread
from harness.measurements.samples import Sample, Samples, ratios
from harness.tests.there import there

FIGURES = st.floats(1e-6, 1e9)
ROUNDS = st.dictionaries(st.integers(0, 20), FIGURES, min_size=1, max_size=8)


@given(ROUNDS, ROUNDS)
def test_a_ratio_is_taken_within_rounds_that_have_both(
    upper: dict[int, float], lower: dict[int, float]
) -> None:
    found = ratios(upper, lower)
    both = upper.keys() & lower.keys()
    if not both:
        assert found is None
        return
    assert found is not None
    assert found.samples == len(both)
    assert found.median == statistics.median(upper[n] / lower[n] for n in both)
    assert found.low <= found.median <= found.high


@given(ROUNDS, st.floats(0.01, 100))
def test_load_that_meets_both_sides_of_a_round_does_not_change_their_ratio(
    figures: dict[int, float], factor: float
) -> None:
    """The reason for taking it within rounds: each round here is as slow as it likes."""
    found = there(ratios({n: v * factor for n, v in figures.items()}, figures))
    assert found.low == pytest.approx(factor)
    assert found.high == pytest.approx(factor)


@given(ROUNDS)
def test_what_is_held_against_itself_is_equal(figures: dict[int, float]) -> None:
    assert ratios(figures, figures) == Spread(1.0, 1.0, 1.0, len(figures))


@given(st.lists(FIGURES, min_size=1, max_size=9))
def test_a_spread_holds_every_figure(values: list[float]) -> None:
    samples = Samples([Sample("a", n, {"x": v}) for n, v in enumerate(values)])
    found = there(samples.spread("a", "x"))
    assert (found.low, found.high, found.samples) == (min(values), max(values), len(values))
    assert found.median == statistics.median(values)


def test_nothing_is_divided_by_zero() -> None:
    assert ratios({0: 1.0}, {0: 0.0}) is None
    assert ratio("x", {0: 1.0}, {1: 1.0}) == []


def test_what_could_not_be_measured_is_not_a_figure() -> None:
    samples = Samples([Sample("a", 0, {"x": 3.0}), Sample("a", 1, {"x": 99.0}, reason="it broke")])
    assert samples.values("a", "x") == {0: 3.0}
    assert samples.spread("b", "x") is None
    assert samples.has("a", 0)
    assert not samples.has("a", 1)


def test_samples_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    kept = Samples()
    for sample in (Sample("a", 0, {"x": 1.5}, {"seed": "7"}), Sample("b", 0, reason="no such module")):
        kept.add(sample, path)
    assert Samples.load(path).taken == kept.taken


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    Samples().add(Sample("a", 0, {"x": 1.0}), path)
    with path.open("ab") as file:
        file.write(b'{"configuration":"a","rou')
    loaded = Samples.load(path)
    assert [s.round for s in loaded.taken] == [0]


def test_a_measurement_that_was_killed_twice_goes_on(tmp_path: Path) -> None:
    """The next line was put behind one that was cut off: then none of the file could be read any more."""
    path = tmp_path / "samples.jsonl"
    for number in range(3):
        loaded = Samples.load(path)
        loaded.add(Sample("a", number, {"x": 1.0}), path)
        loaded.add(Sample("b", number, words={"name": "\u00e9"}), path)
        path.write_bytes(path.read_bytes()[:-9])  # in the middle of a letter
    assert [(s.configuration, s.round) for s in Samples.load(path).taken] == [("a", 0), ("a", 1), ("a", 2)]


@pytest.mark.parametrize("content", [b"", b"[{", b"{}", b'[{"name":"\xff"}]', b"[" * 10000])
def test_measurements_that_cannot_be_read_are_named(tmp_path: Path, content: bytes) -> None:
    """A damaged file was called a defect of powercut."""
    (tmp_path / "measurements.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"measurements\.json cannot be read"):
        read_measurements(tmp_path)
