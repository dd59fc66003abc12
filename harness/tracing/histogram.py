"""Values in buckets by powers of two; `harness.report.measurements.histogram_text` draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.measurements.results import Bucket, Histogram

_MAX_BITS = 64


def histogram(title: str, unit: str, values: Iterable[int]) -> Histogram:
    """Buckets 0 to 1, 2 to 3, 4 to 7 and so on, from the first up to the highest that holds a value.

    Values are whole and not negative.
    """
    counts = Counter(max(value.bit_length(), 1) for value in values)
    highest = min(max(counts, default=0), _MAX_BITS)
    return Histogram(title, unit, [_bucket(bits, counts[bits]) for bits in range(1, highest + 1)])


def _bucket(bits: int, count: int) -> Bucket:
    return Bucket(0 if bits == 1 else 1 << (bits - 1), (1 << bits) - 1, count)
