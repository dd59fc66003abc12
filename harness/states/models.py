"""Fault models: which crash states a log has.

The disk that is modelled has a volatile cache. What completed before a completed FLUSH is durable, and
so is every completed FUA write; anything else may be there or not, and the write that was under way
may be torn between sectors. Each model lists some of the states that this allows, never one that it
does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from harness.model import BLOCK_BYTES, SECTOR_BYTES, CrashState, EntryFlag, LogEntry
from harness.writelog.log import WriteLog, changes

_BLOCK_SECTORS = BLOCK_BYTES // SECTOR_BYTES


class FaultModel(Protocol):
    """A way for power to fail.

    `states` yields states that are legal for the modelled disk, each at most once, in an order that
    depends on the log alone. States may agree in content; folding those is the caller's.
    """

    name: str
    summary: str

    def states(self, log: WriteLog) -> Iterator[CrashState]: ...


def enumerate_prefixes(log: WriteLog) -> Iterator[CrashState]:
    """@0 to @N for a log of N entries: N + 1 states."""
    return (CrashState(prefix) for prefix in range(log.entry_count + 1))


class Prefix:
    """Power fails between two entries. The log's order is one in which the cache may lose writes."""

    name = "prefix"
    summary = "the first n entries of the log reached the platter"

    def states(self, log: WriteLog) -> Iterator[CrashState]:
        return enumerate_prefixes(log)


class Drop:
    """Each prefix less one volatile write: `@n-d`.

    d is a write or discard without FUA in the last epoch of the prefix, the one that no flush in the
    prefix has ended. d = n - 1 is left out, being the state @(n-1). The number of states grows with
    the square of an epoch's length.
    """

    name = "drop"
    summary = "a prefix of the log, less one write that no flush had made durable"

    def states(self, log: WriteLog) -> Iterator[CrashState]:
        volatile: list[int] = []
        for entry in log.entries:
            if EntryFlag.FLUSH in entry.flags:
                volatile.clear()  # logged on completion: whatever stands before it is durable
            yield from (CrashState(entry.index + 1, (dropped,)) for dropped in volatile)
            if changes(entry) and EntryFlag.FUA not in entry.flags:
                volatile.append(entry.index)


class Torn:
    """Each prefix with its last write cut inside a block of 4 KiB: `@n/t`.

    t runs over 1 .. sectors - 1 as far as the device sector at which the write is cut (its first
    sector + t) is not a multiple of 8. So writes of one sector are never torn; a write of one aligned
    block has 7 torn states, one of k aligned blocks 7 k. Cuts between whole blocks are left out: a file
    system that takes blocks for atomic withstands them as it withstands lost writes. FUA writes are torn
    like others: one that power failed on was never acknowledged. Discards are not torn.
    """

    name = "torn"
    summary = "a prefix of the log, its last write cut between two sectors of a 4 KiB block"

    def states(self, log: WriteLog) -> Iterator[CrashState]:
        for entry in log.entries:
            if EntryFlag.DISCARD not in entry.flags:
                yield from (CrashState(entry.index + 1, (), cut) for cut in _inner_cuts(entry))


def _inner_cuts(entry: LogEntry) -> Iterator[int]:
    return (cut for cut in range(1, entry.sectors) if (entry.sector + cut) % _BLOCK_SECTORS)


FAULT_MODELS: dict[str, FaultModel] = {model.name: model for model in (Prefix(), Drop(), Torn())}
