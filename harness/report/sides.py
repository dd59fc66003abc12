"""What an explanation shows side by side: the names that should be there and those that came back, and the
bytes that were lost and those on the platter. As text; pages draw it from the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.host.text import one_line
from harness.report.explanation import BlockDifference, Explanation, Mark, Trees, TreeSide

MARK_WORDS = {Mark.SAME: "", Mark.BROKEN: "broken", Mark.OTHER: "differs"}
_LABEL = 10
_BYTES_WIDTH = 16 * 3 - 1


def side_words(side: TreeSide) -> str:
    """`file, 4096 bytes`"""
    if not side.kind:
        return "nothing"
    size = "" if side.size < 0 else f"{side.size} byte{'' if side.size == 1 else 's'}"
    return ", ".join(filter(None, [side.kind, size, side.more]))


def sides_text(explanation: Explanation) -> str:
    """The trees and the bytes of an explanation; empty if it has neither."""
    parts = [_trees_lines(explanation.trees)] if explanation.trees else []
    parts += [_bytes_lines(d) for d in explanation.differences]
    return "\n\n".join("\n".join(map(one_line, part)) for part in parts) + ("\n" if parts else "")


def _trees_lines(trees: Trees) -> Iterator[str]:
    yield f"Names {trees.version}, and what came back{f': {trees.unseen}' if trees.unseen else ''}"
    for row in trees.rows:
        if row.mark is Mark.SAME:
            yield f"  {row.path}: {_whole(row.expected)}"
            continue
        yield f"  {row.path}: {MARK_WORDS[row.mark]}"
        yield f"    {'expected':{_LABEL}}{_whole(row.expected)}"
        yield f"    {'found':{_LABEL}}{_whole(row.found)}"
    if trees.left_out:
        yield f"  {trees.left_out} more names"


def _whole(side: TreeSide) -> str:
    return ": ".join(filter(None, [side_words(side), side.contents]))


# --- bytes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByteRow:
    """16 bytes of both sides: each byte in hex with whether the other side's is another, and as letters.
    `at`: `+64`, in bytes from the first line.
    """

    at: str
    platter: Sequence[tuple[str, bool]]
    platter_text: str
    lost: Sequence[tuple[str, bool]]
    lost_text: str


def byte_rows(difference: BlockDifference) -> Iterator[ByteRow]:
    """The lines of a difference. What is no hex, in somebody else's file, has no letters."""
    pairs = zip(difference.platter_hex.splitlines(), difference.lost_hex.splitlines(), strict=False)
    offsets = difference.offsets
    for n, (here, there) in enumerate(pairs):
        one, other = here.split(), there.split()
        differ = [a != b for a, b in zip(one, other, strict=False)]
        yield ByteRow(
            f"+{offsets[n] if n < len(offsets) else n * 16}",
            [*zip(one, differ, strict=False)],
            _letters(one),
            [*zip(other, differ, strict=False)],
            _letters(other),
        )


def _letters(digits: Sequence[str]) -> str:
    try:
        return "".join(chr(n) if 32 <= (n := int(d, 16)) < 127 else "." for d in digits)
    except ValueError:
        return ""


def _bytes_lines(difference: BlockDifference) -> Iterator[str]:
    yield f"Bytes that differ, from {difference.place}"
    yield f"  on the platter: {difference.on_platter}"
    yield f"  lost: {difference.lost}"
    for row in byte_rows(difference):
        for label, digits, letters in (
            (f"{row.at:7}platter", row.platter, row.platter_text),
            (f"{'':7}lost", row.lost, row.lost_text),
        ):
            shown = " ".join(digit for digit, _ in digits)
            yield f"    {label:{_LABEL + 7}}{shown:{_BYTES_WIDTH}}  {letters}"
