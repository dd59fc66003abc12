"""Which fsync would give a program the order that it relies on. Pure.

A sync is tried before it is named: it is put between the calls, and the states that are left are gone
through again. What helps one call is then put behind each call that differs from it in numbers alone, such
as the writes of a log.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.rules.micro import Effect, Micro, Sort, Sync
from harness.rules.states import Partial
from harness.rules.trees import Maker
from harness.rules.vulnerabilities import Vulnerability

_HALF = 0.5
_LACKING = 4
"""Files that a state lacks, of which syncs are tried."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """An fsync of `inode`, put behind call `after`."""

    after: int
    inode: int

    def sync(self, effect: Effect) -> Sync:
        return effect.sync(self.after + _HALF, self.inode)


def tried(effect: Effect, found: Vulnerability) -> Iterator[tuple[Remedy, ...]]:
    """Sets of syncs that may help: of what is lost or torn; of files that the state lacks, such as a journal;
    and of both. The smallest first, about.
    """
    single, lacking = _parts(effect, found)
    yield from ((remedy,) for remedy in single)
    yield from lacking
    yield from ((*syncs, remedy) for syncs in lacking for remedy in single)
    yield from itertools.combinations(single, 2)


def every_one(effect: Effect, found: Vulnerability) -> tuple[Remedy, ...]:
    """All syncs of these sets: where they do not help, no set of them does."""
    single, lacking = _parts(effect, found)
    return tuple(dict.fromkeys((*itertools.chain(*lacking), *single)))


def _parts(effect: Effect, found: Vulnerability) -> tuple[list[Remedy], list[tuple[Remedy, ...]]]:
    single = list(dict.fromkeys(_between(effect, r) for r in _single(effect, found)))
    lacking = (tuple(_between(effect, r) for r in some) for some in _lacking(effect, found))
    return single, list(itertools.islice(lacking, _LACKING))


def _between(effect: Effect, remedy: Remedy) -> Remedy:
    """A sync that can be put there: among stores whose order nobody saw none can be, but behind all."""
    return replace(remedy, after=effect.together(remedy.after).stop - 1)


def _lacking(effect: Effect, found: Vulnerability) -> Iterator[tuple[Remedy, ...]]:
    """For each file that the program had before what came too late, and that the state lacks, has shorter, or
    has with other contents though what came too late is not of it: syncs of the file and of its directory.
    That the program has removed it since is no loss: a journal is not among what is lost, nor is its data
    beside a torn block. Files that are gone or shorter come first, and of each sort the one changed last.
    """
    late = found.present or (1 << found.state.last if found.state.torn is not None else 0)
    if not late:
        return
    first, maker = min(m.call for m in effect.of(late)), Maker(effect)
    before, now = (maker.by_inode(s) for s in (Partial(effect.issued(first - _HALF)), found.state))
    last: dict[int, Micro] = {}
    named: dict[int, int] = {}
    for m in effect.of(effect.issued(first - _HALF)):
        last[m.inode] = m
        named |= {held: directory for directory, _, held in m.names if held is not None}
    own = {m.inode for m in effect.of(late)}

    def is_whole(inode: int) -> bool:
        return inode in now and now[inode].size >= before[inode].size

    def is_lacking(inode: int) -> bool:
        return not is_whole(inode) or (inode not in own and now[inode] != before[inode])

    gone = [i for i in before if before[i].kind == "file" and is_lacking(i)]
    for inode in sorted(gone, key=lambda i: (is_whole(i), -last[i].number)):
        syncs = [Remedy(last[inode].call, inode)]
        syncs += [] if effect.rules.fsync_names.holds else [Remedy(last[inode].call, named[inode])]
        yield tuple(syncs)


def _single(effect: Effect, found: Vulnerability) -> Iterator[Remedy]:
    if found.state.torn is not None:
        torn = effect.micros[found.state.last]
        yield Remedy(torn.call, torn.inode)
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
        same = [_between(effect, Remedy(n, i)) for n in alike for i in _same(effect, by_call, remedy, n)]
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
    call that is wanted later, or by an acknowledgement; and which the program's own syncs leave to them.
    """
    durable = list(itertools.accumulate((s.covers for s in effect.syncs), int.__or__, initial=0))
    times, later = [s.time for s in effect.syncs], dict[int, int]()
    relied = [n for n, shape in enumerate(shapes) if shape in wanted]
    relied = relied if wanted else [ack.calls for ack in effect.notes.acks]
    for remedy in sorted(remedies, key=lambda r: -r.after):
        end = later.get(remedy.inode, len(shapes))
        first = next((n for n in relied[bisect.bisect(relied, remedy.after) :] if n <= end), None)
        if first is not None and remedy.sync(effect).covers & ~durable[bisect.bisect_left(times, first)]:
            later[remedy.inode] = remedy.after
            yield remedy
