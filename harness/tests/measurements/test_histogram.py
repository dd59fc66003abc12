"""Histograms in the shape that bcc's tools print."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from harness.measurements.results import Histogram
from harness.report.measurements import histogram_text

# As `print_log2_hist("usecs")` of bcc shows these counts: header, widths, 40 stars for the fullest bucket.
EXPECTED = """\
     usecs               : count     distribution
         0 -> 1          : 1        |*****                                   |
         2 -> 3          : 0        |                                        |
         4 -> 7          : 8        |****************************************|
         8 -> 15         : 3        |***************                         |"""


def test_it_looks_as_bcc_s_own_do() -> None:
    assert histogram_text(Histogram.of("t", "usecs", [1, *[5] * 8, 8, 9, 15])) == EXPECTED


def test_bucket_limits_are_powers_of_two() -> None:
    drawn = Histogram.of("t", "usecs", [0, 1, 2, 3, 4, 1023, 1024])
    assert [(b.low, b.high, b.count) for b in drawn.buckets[:3]] == [(0, 1, 2), (2, 3, 2), (4, 7, 1)]
    assert [(b.low, b.high, b.count) for b in drawn.buckets[-2:]] == [(512, 1023, 1), (1024, 2047, 1)]


def test_wide_values_get_wide_columns_and_half_the_stars() -> None:
    last = histogram_text(Histogram.of("t", "nsecs", [1 << 33])).splitlines()[-1]
    assert last == f"{1 << 33:>20} -> {(1 << 34) - 1:<20} : 1        |{'*' * 20}|"


def test_nothing_to_show_is_said() -> None:
    assert histogram_text(Histogram.of("t", "usecs", [])) == "     usecs               : no values"


@given(st.lists(st.integers(0, 1 << 40), min_size=1))
def test_every_value_is_in_its_bucket_and_buckets_have_no_gaps(values: list[int]) -> None:
    buckets = Histogram.of("t", "usecs", values).buckets
    assert [sum(b.low <= v <= b.high for v in values) for b in buckets] == [b.count for b in buckets]
    assert sum(b.count for b in buckets) == len(values)
    assert all(a.high + 1 == b.low for a, b in itertools.pairwise(buckets))
    assert buckets[0].low == 0
    assert buckets[-1].count > 0
