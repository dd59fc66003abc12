"""Fault models: which crash states a write log has.

The modelled disk has a volatile cache. What completed before a completed FLUSH is durable, and so is every
completed FUA write. Anything else may or may not have reached the medium, and the write in flight may be torn
between sectors. Each fault model lists some of the states that this allows, and no others, by a log whose
flushes completed in the order in which they were sent. Where one overtook another, the log has what the later
one made durable behind entries that were sent afterwards: see `Overtaken`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from harness.model import BLOCK_BYTES, SECTOR_BYTES, CrashState, EntryFlag, LogEntry
from harness.plan import LEGAL
from harness.states.legal import NEVER, durability, is_ahead
from harness.writelog.log import WriteLog, changes
from harness.writelog.times import TimedWrite, Times

_BLOCK_SECTORS = BLOCK_BYTES // SECTOR_BYTES


class FaultModel(Protocol):
    """A way for power to fail.

    `states` yields states that are legal for a disk that writes `unit_sectors` as a whole, each at most once,
    in an order that depends on the log alone. States may have equal contents; the caller folds those.
    """

    name: str
    summary: str

    def states(self, log: WriteLog, unit_sectors: int = 1) -> Iterator[CrashState]: ...


def enumerate_prefixes(log: WriteLog) -> Iterator[CrashState]:
    """@0 to @N for a log of N entries: N + 1 states."""
    return (CrashState(prefix) for prefix in range(log.entry_count + 1))


class Prefix:
    """Power fails between two entries: the cache has written back in the log's order, which is legal."""

    name = "prefix"
    summary = "the first n entries of the log reached the platter"

    def states(self, log: WriteLog, unit_sectors: int = 1) -> Iterator[CrashState]:
        return enumerate_prefixes(log)


class Drop:
    """Each prefix less one volatile write: `@n-d`.

    d is a write or discard without FUA in the last epoch of the prefix, the one that no flush of its device
    in the prefix has ended. d = n - 1 is left out: it is the state @(n-1). The number of states grows with
    the square of an epoch's length.
    """

    name = "drop"
    summary = "a prefix of the log, less one write that no flush had made durable"

    def states(self, log: WriteLog, unit_sectors: int = 1) -> Iterator[CrashState]:
        volatile: list[LogEntry] = []
        for entry in log.entries:
            if EntryFlag.FLUSH in entry.flags:  # logged on completion: whatever precedes it is durable
                volatile = [e for e in volatile if log.device(e) != log.device(entry)]
            yield from (CrashState(entry.index + 1, (dropped.index,)) for dropped in volatile)
            if changes(entry) and EntryFlag.FUA not in entry.flags:
                volatile.append(entry)


class Torn:
    """Each prefix with its last write cut inside a block of 4 KiB: `@n/t`.

    t is one of 1 .. sectors - 1 such that the device sector of the cut (the write's first sector + t) is
    not a multiple of 8; on a disk with larger physical sectors it is a multiple of theirs. So writes of one
    sector are never torn; a write of one aligned block has 7 torn states, one of k aligned blocks 7 k. Cuts
    between whole blocks are left out: a file system that assumes atomic blocks survives them as it survives
    lost writes. FUA writes are torn like others: one that was in flight when the power failed was never
    acknowledged. Discards are not torn.
    """

    name = "torn"
    summary = "a prefix of the log, its last write cut between two sectors of a 4 KiB block"

    def states(self, log: WriteLog, unit_sectors: int = 1) -> Iterator[CrashState]:
        for entry in log.entries:
            if EntryFlag.DISCARD not in entry.flags:
                yield from (CrashState(entry.index + 1, (), cut) for cut in _inner_cuts(entry, unit_sectors))


def _inner_cuts(entry: LogEntry, unit: int) -> Iterator[int]:
    """Where to cut, in sectors from the entry's first."""
    places = range(-entry.sector % unit or unit, entry.sectors, unit)
    return (cut for cut in places if (entry.sector + cut) % _BLOCK_SECTORS)


FAULT_MODELS: dict[str, FaultModel] = {model.name: model for model in (Prefix(), Drop(), Torn())}


class Overtaken:
    """Tells states of a log's order that no disk can be in: such a state lacks a write that was durable
    before something else that it has was sent, or marked; or one that the flush ahead of data that it has
    made durable. Where the times leave open which flush it was, the one that makes more durable counts, so
    that no state is a false alarm; a few that a disk could be in are left out.
    """

    def __init__(self, log: WriteLog, times: Times) -> None:
        self._log, self._writes = log, {w.entry: w for w in times.writes}
        durable = durability(times)
        self._durable = {w.entry: durable(w) for w in times.writes}
        self._marks = {m.entry: m.at for m in times.marks}
        sent = {w.entry: w.submitted for w in times.writes} | self._marks
        flushed = {w.entry: w.submitted for w in times.writes if w.preflush}
        completed = {w.entry: w.completed for w in times.writes}
        self._sent, self._flushed = (_so_far(log, of) for of in (sent, flushed))
        self._durable_behind, self._completed_behind = (_behind(log, of) for of in (self._durable, completed))

    def has(self, state: CrashState) -> bool:
        """Whether a state is one of these."""
        inside = self._lacking_inside(state)
        durable = min([self._durable_behind[state.prefix], *(self._durable.get(n, NEVER) for n in inside)])
        completed = min(
            [
                self._completed_behind[state.prefix],
                *(self._writes[n].completed for n in inside if n in self._writes),
            ]
        )
        if durable > self._sent[state.prefix] and completed >= self._flushed[state.prefix]:
            return False  # nearly all, without a look at each write
        begun = [w for n, w in self._writes.items() if n < state.prefix and n not in state.dropped]
        kept = [w for w in begun if w.entry not in inside]
        marked = [at for n, at in self._marks.items() if n < state.prefix]
        at = max([*(w.submitted for w in begun), *marked], default=-1)
        ahead = [w for w in kept if w.preflush]
        lacking = (w for n, w in self._writes.items() if n >= state.prefix or n in inside)
        needed = (w for w in lacking if self._durable[w.entry] <= at or any(is_ahead(w, k) for k in ahead))
        return any(not self._is_covered(w, kept) for w in needed)

    def _lacking_inside(self, state: CrashState) -> set[int]:
        """The entries of its prefix that a state lacks, if only in part."""
        return {*state.dropped} | ({state.prefix - 1} if state.torn_sectors is not None else set())

    def _is_covered(self, write: TimedWrite, kept: Iterable[TimedWrite]) -> bool:
        """Whether one that was in flight with it, or came later, may lie over all of it."""
        under = self._log.entries[write.entry]
        over = (self._log.entries[w.entry] for w in kept if w.completed >= write.submitted)
        return any(
            o.sector <= under.sector and under.sector + under.sectors <= o.sector + o.sectors for o in over
        )


def _so_far(log: WriteLog, events: Mapping[int, int]) -> list[int]:
    """For each prefix, the last of its entries' events; -1: there is none."""
    return [*itertools.accumulate((events.get(n, -1) for n in range(log.entry_count)), max, initial=-1)]


def _behind(log: WriteLog, events: Mapping[int, int]) -> list[int]:
    """For each prefix, the first event of the entries behind it; NEVER: there is none."""
    of_each = (events.get(n, NEVER) for n in reversed(range(log.entry_count)))
    return [*itertools.accumulate(of_each, min, initial=NEVER)][::-1]


def enumerate_states(
    fault_models: Iterable[str], log: WriteLog, unit_sectors: int = 1, times: Times | None = None
) -> list[CrashState]:
    """The crash states of a log under each of the fault models, without repeats, in order, without those that
    its times tell to be none. Prefixes where all legal states are asked for and the recording has no times.
    `unit_sectors`: what the disk writes as a whole.
    """
    named = [name for name in fault_models if name not in LEGAL] or ["prefix"]
    states = dict.fromkeys(state for name in named for state in FAULT_MODELS[name].states(log, unit_sectors))
    overtaken = None if times is None else Overtaken(log, times)
    return [state for state in states if overtaken is None or not overtaken.has(state)]
