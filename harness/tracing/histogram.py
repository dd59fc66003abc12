"""Histograms by powers of two, in the shape that bcc's tools print (`print_log2_hist`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.measure.results import Bucket, Histogram

STARS = 40
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


def render(drawn: Histogram) -> str:
    """Its lines, the unit above; "no values" where there are none."""
    if not drawn.buckets:
        return f"     {drawn.unit:<19} : no values"
    most = max(b.count for b in drawn.buckets)
    wide = drawn.buckets[-1].high >= 1 << 32
    width, stars = (20, STARS // 2) if wide else (10, STARS)
    lines = [f"{'':{width // 2}}{drawn.unit:<{2 * width - 1}} : count     distribution"]
    for b in drawn.buckets:
        bar = "*" * (stars * b.count // most)
        lines.append(f"{b.low:>{width}} -> {b.high:<{width}} : {b.count:<8} |{bar:<{stars}}|")
    return "\n".join(lines)
