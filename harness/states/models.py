"""Fault models: which crash states a write log has.

The modelled disk has a volatile cache. What completed before a completed FLUSH is durable, and so is every
completed FUA write. Anything else may or may not have reached the medium, and the write in flight may be torn
between sectors. Each fault model lists some of the states that this allows, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from harness.model import BLOCK_BYTES, SECTOR_BYTES, CrashState, EntryFlag, LogEntry
from harness.plan import LEGAL
from harness.writelog.log import WriteLog, changes

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


def enumerate_states(fault_models: Iterable[str], log: WriteLog, unit_sectors: int = 1) -> list[CrashState]:
    """The crash states of a log under each of the fault models, without repeats, in order. Prefixes where all
    legal states are asked for and the recording has no times. `unit_sectors`: what the disk writes as a
    whole.
    """
    named = [name for name in fault_models if name not in LEGAL] or ["prefix"]
    states = (state for name in named for state in FAULT_MODELS[name].states(log, unit_sectors))
    return list(dict.fromkeys(states))
