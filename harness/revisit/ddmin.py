"""Delta debugging: the shortest part of a sequence that one finds by taking out pieces.

A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002: `ddmin`. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Items = tuple[Item, ...]


def ddmin(
    items: Sequence[Item],
    holds: Callable[[Items[Item]], bool],
    mended: Callable[[Items[Item]], Items[Item]] = lambda items: items,
) -> Items[Item]:
    """A part of `items`, in their order, for which `holds`; and for which it no longer does with any one item
    taken out (1-minimal).

    `mended` makes of a part one that can be tried, by leaving out what makes no sense without the rest; what
    it gives back it leaves as it is. `holds` is asked once for each part, never for the empty one, and is
    taken to hold for `items` itself.
    """
    asked: dict[Items[Item], bool] = {}

    def still(part: Items[Item]) -> bool:
        if part and part not in asked:
            asked[part] = holds(part)
        return bool(part) and asked[part]

    kept, pieces = tuple(items), 2
    while len(kept) > 1:
        smaller = (mended(part) for part in _parts(kept, pieces))
        found = next((part for part in smaller if still(part)), None)
        if found is not None:
            kept, pieces = found, max(min(pieces - 1, len(found)), 2)
        elif pieces < len(kept):
            pieces = min(2 * pieces, len(kept))
        else:
            break
    return kept


def _parts(items: Items[Item], pieces: int) -> Iterator[Items[Item]]:
    """Each of so many pieces, then all without each of them, from the end: later ones depend on earlier."""
    bounds = [len(items) * i // pieces for i in range(pieces + 1)]
    ranges = list(itertools.pairwise(bounds))
    if pieces > 2:
        yield from (items[a:b] for a, b in ranges)
    yield from (items[:a] + items[b:] for a, b in reversed(ranges))
