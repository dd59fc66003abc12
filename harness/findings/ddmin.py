"""Delta debugging: minimises a sequence by removing pieces.

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
    pruned: Callable[[Items[Item]], Items[Item]] = lambda items: items,
) -> Items[Item]:
    """Returns a 1-minimal subsequence of `items`: `holds` is true for it, and false once any one item is
    removed.

    `pruned` turns a candidate into a valid one by removing items that make no sense without the rest; it is
    idempotent. `holds` is called once per candidate, never for the empty one, and is assumed true for
    `items`.
    """
    asked: dict[Items[Item], bool] = {}

    def still(part: Items[Item]) -> bool:
        if part and part not in asked:
            asked[part] = holds(part)
        return bool(part) and asked[part]

    kept, pieces = tuple(items), 2
    while len(kept) > 1:
        smaller = (pruned(part) for part in _parts(kept, pieces))
        found = next((part for part in smaller if still(part)), None)
        if found is not None:
            kept, pieces = found, max(min(pieces - 1, len(found)), 2)
        elif pieces < len(kept):
            pieces = min(2 * pieces, len(kept))
        else:
            break
    return kept


def _parts(items: Items[Item], pieces: int) -> Iterator[Items[Item]]:
    """Each piece, then the complement of each piece, last first, since later items depend on earlier."""
    bounds = [len(items) * i // pieces for i in range(pieces + 1)]
    ranges = list(itertools.pairwise(bounds))
    if pieces > 2:
        yield from (items[a:b] for a, b in ranges)
    yield from (items[:a] + items[b:] for a, b in reversed(ranges))
