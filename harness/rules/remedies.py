"""Which fsync would give a program the order that it relies on. Pure.

A sync is tried before it is named: it is put between the calls, and the states that are left are gone
through again. What helps one call is then put behind each call that differs from it in numbers alone, such
as the writes of a log.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.rules.micro import Effect, Micro, Sort, Sync
from harness.rules.vulnerabilities import Vulnerability

_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Remedy:
    """An fsync of `inode`, put behind call `after`."""

    after: int
    inode: int

    def sync(self, effect: Effect) -> Sync:
        return effect.sync(self.after + _HALF, self.inode)


def tried(effect: Effect, found: Vulnerability) -> Iterator[tuple[Remedy, ...]]:
    """Sets of syncs that may help, the smallest first."""
    single = list(dict.fromkeys(_single(effect, found)))
    yield from ((remedy,) for remedy in single)
    yield from itertools.combinations(single, 2)
    if len(single) > 2:
        yield tuple(single)


def _single(effect: Effect, found: Vulnerability) -> Iterator[Remedy]:
    for m in effect.of(found.missing):
        # Of a rename, the directory with the new name first: that is the one to sync.
        of = [m.inode] if m.sort is not Sort.NAME else effect.directories_of(m)[::-1]
        last = max(n.call for n in effect.of(found.missing))
        for inode in of:
            yield Remedy(last, inode)
            if m.call != last:
                yield Remedy(m.call, inode)
        if m.sort is Sort.NAME and effect.rules.fsync_names.holds:
            yield Remedy(last, m.inode)


def everywhere(
    effect: Effect, found: Vulnerability, remedies: Sequence[Remedy], shapes: Sequence[str]
) -> tuple[Remedy, ...]:
    """Those, and the same behind each call like theirs that needs it. `shapes`: of each call; calls are alike
    where these are equal.
    """
    by_call: dict[int, list[Micro]] = {}
    for m in effect.micros:
        by_call.setdefault(m.call, []).append(m)
    wanted = {shapes[m.call] for m in effect.of(found.present)}
    all_of = list(remedies)
    for remedy in remedies:
        alike = [n for n in by_call if shapes[n] == shapes[remedy.after]]
        same = [Remedy(n, i) for n in alike for i in _same(effect, by_call, remedy, n)]
        all_of += _that_matter(effect, same, wanted, shapes)
    return tuple(dict.fromkeys(all_of))


def _same(effect: Effect, by_call: dict[int, list[Micro]], remedy: Remedy, call: int) -> list[int]:
    """The files of a call that are to it what the remedy's file is to its call."""
    mine, others = by_call.get(remedy.after, []), by_call[call]
    if any(m.inode == remedy.inode for m in mine):
        is_name = all(m.sort is Sort.NAME for m in mine if m.inode == remedy.inode)
        return [m.inode for m in others if (m.sort is Sort.NAME) == is_name][:1]
    if any(remedy.inode in effect.directories_of(m) for m in mine):
        return [d for m in others for d in effect.directories_of(m)][-1:]
    return []


def _that_matter(
    effect: Effect, remedies: Sequence[Remedy], wanted: set[str], shapes: Sequence[str]
) -> Iterator[Remedy]:
    """Those between which and the next of the same file the program relies on what they make durable: by a
    call that is wanted later, or by an acknowledgement.
    """
    later: dict[int, int] = {}
    for remedy in sorted(remedies, key=lambda r: -r.after):
        end = later.get(remedy.inode, len(shapes))
        if wanted:
            matters = any(shapes[n] in wanted for n in range(remedy.after + 1, end + 1) if n < len(shapes))
        else:
            matters = any(remedy.after < ack.calls <= end for ack in effect.notes.acks)
        if matters:
            later[remedy.inode] = remedy.after
            yield remedy
