"""File data by its own words: which operation wrote it, and where in its file (`harness.oracles.pattern`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from harness.oracles.pattern import POISON, WORD_BYTES, word

_ENOUGH = 2  # one word of 64 bits passes by chance once in 65,536 words


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes `start` to `stop` of a block. `writer` None: of no operation; POISON: what the device held before
    mkfs. `offset`: in the file, where `writer` is an operation.
    """

    start: int
    stop: int
    writer: int | None
    offset: int = 0


def extents(data: bytes) -> list[Extent]:
    """What operations wrote of a block, in order; zeros and other bytes between are left out. Words of which
    fewer than two stand together count only if nothing but zeros is beside them.
    """
    words = struct.unpack_from(f"<{len(data) // WORD_BYTES}Q", data)
    found = [_with_tail(e, data) for e in _runs(words)]
    known = sum(-(-(e.stop - e.start) // WORD_BYTES) for e in found)
    others = sum(1 for w in words if w) - known
    return [e for e in found if e.stop - e.start >= _ENOUGH * WORD_BYTES or not others]


def _runs(words: tuple[int, ...]) -> Iterator[Extent]:
    at = 0
    while at < len(words):
        writer, place = (words[at] >> 16) & 0xFFFF, words[at] >> 32
        if not words[at] or word(writer, place) != words[at]:
            at += 1
            continue
        step = 0 if writer == POISON else 1
        stop = at + 1
        while stop < len(words) and words[stop] == word(writer, place + step * (stop - at)):
            stop += 1
        yield Extent(at * WORD_BYTES, stop * WORD_BYTES, writer, place * WORD_BYTES)
        at = stop


def _with_tail(extent: Extent, data: bytes) -> Extent:
    """With the bytes of a last word that was not written whole, and has zeros behind them."""
    if extent.writer in (None, POISON):
        return extent
    last = data[extent.stop : extent.stop + WORD_BYTES].rstrip(b"\0")
    place = (extent.offset + extent.stop - extent.start) // WORD_BYTES
    expected = struct.pack("<Q", word(extent.writer or 0, place))
    more = len(last) if expected.startswith(last) else 0
    return Extent(extent.start, extent.stop + more, extent.writer, extent.offset)
