"""What recovery wrote: the log in which it is cut again.

Mount, walk and unmount write and flush like any workload. The disk notes that in order, and puts it behind
the blocks of the state that was recovered, into a log over the same base image (`vms/disk/src/guest_log.rs`).
So the states that a cut in a recovery may leave are legal states like all others, and their contents compare
with those of every other state of the case.

What the disk saw complete before it saw a flush counts as durable after it. So each state is one that this
very disk could have left. A kernel that does not wait for a write before its flush is caught here only if
another order of the two shows it.

Several devices are parts of one disk, and that does not see of which one a flush is: it counts as one of
each, so that no state is a false alarm, and the crash times from there on are marked as ambiguous.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import StoreError
from harness.guests.disk import BLOCK_SECTORS, BlockReads, Order
from harness.guests.session import Target
from harness.host.packed import pack, unpack
from harness.model import SECTOR_BYTES, CrashState, EntryFlag, LogEntry
from harness.states import Choices, CrashTime, LegalStates
from harness.writelog import WriteLog, read_log
from harness.writelog.log import changes
from harness.writelog.times import TimedFlush, TimedWrite, Times


@dataclass(frozen=True, slots=True)
class RecoveryLog:
    """The recovery of the state `of`. `target`: what a disk shows to have its states; the first `made_of`
    chunks of that are the state itself. `legal`: the states that a cut may leave, in which entries and chunks
    are numbered from 0. `steps`: where it wrote and when it flushed, in order; `shape`: their digest.
    """

    of: CrashState
    target: Target
    legal: LegalStates
    made_of: int
    state_entries: int
    steps: tuple[tuple[int, int, EntryFlag], ...]
    shape: str

    @classmethod
    def of_log(cls, of: CrashState, shown: Target, log: Path, state_entries: int, unit: int) -> RecoveryLog:
        """`log`: as the disk wrote it; its first `state_entries` entries are the state. `unit`: the sectors
        that a disk writes as a whole. Raises WriteLogError.
        """
        whole, unit = read_log(log), max(unit, shown.disk.physical_sectors)
        entries = [replace(e, index=i) for i, e in enumerate(whole.entries[state_entries:])]
        own = WriteLog(log, whole.unit_bytes, tuple(entries), whole.used_bytes)
        times = times_of(entries, shown.parts, through=shown.disk.write_through)
        legal = LegalStates(own, times, unit)
        state = whole.entries[:state_entries]
        order = (*(e.index for e in state), *(state_entries + n for n in legal.order))
        made_of = sum(-(-(e.sector + e.sectors) // unit) - e.sector // unit for e in state)
        target = replace(shown, log=log, order=Order(order, unit))
        steps = tuple((e.sector, e.sectors, e.flags) for e in entries)
        shape = hashlib.sha256(repr(steps).encode()).hexdigest()
        return cls(of, target, legal, made_of, state_entries, steps, shape)

    @property
    def log(self) -> Path:
        """The file that `target` shows."""
        assert self.target.log is not None  # noqa: S101 - see `of_log`; tells mypy
        return self.target.log

    def remove(self) -> None:
        """Remove the file: it holds every block in which the state differs from the base."""
        self.log.unlink(missing_ok=True)

    def decided_by(self, reads: BlockReads) -> list[int]:
        """The blocks of the state on which it depends what a cut in this recovery comes to, but for the bytes
        of files: those that were read for anything else, or written.
        """
        written = {c.sector // BLOCK_SECTORS for c in self.legal.chunks}
        return sorted((set(reads.blocks) - set(reads.data)) | (set(reads.data) & written))

    def choices(self, crash_time: CrashTime) -> Choices:
        """The choices of one of its crash times, as the disk takes them."""
        told, shift = crash_time.choices, self.made_of
        return Choices(
            shift + told.prefix,
            tuple(shift + n for n in told.absent),
            tuple(shift + n for n in told.volatile),
        )

    def name(self, crash_time: CrashTime, shown: CrashState) -> CrashState:
        """The name of a state of that crash time that the disk told."""
        lost = [n - self.made_of for n in shown.dropped]
        return self.of.cut_at(self.legal.name(crash_time, lost))

    def on_disk(self, cut: CrashState) -> CrashState:
        """A state that a cut leaves, as the disk takes it. Raises UsageError for one that cannot be."""
        shown = self.legal.on_disk(cut)
        return CrashState(self.made_of + shown.prefix, tuple(self.made_of + n for n in shown.dropped))


@dataclass(frozen=True, slots=True)
class Promised:
    """What had been promised when the power failed: more than at any other position of its `promise_set` at
    which as many operations or more had `begun` (`harness.oracles.Judge.promise_set`).
    """

    promise_set: tuple[int, ...]
    begun: int


class CutOnce:
    """Which recoveries are cut. Where two crash states are the same in what decides their recovery, a cut
    does the same to both. But a promise may have been made between the two, so a recovery of each kind is cut
    once for all that is promised, in the first state for which it is: its representative. One state may come
    up at several crash times: it is cut at the first.
    """

    def __init__(self, promised: Callable[[CrashState], Promised | None]) -> None:
        """`promised`: at a state; None where its recovery is not to be cut."""
        self._promised = promised
        self._kinds: dict[object, int] = {}
        self._of: dict[int, int] = {}
        self._representatives: dict[tuple[int, tuple[int, ...]], tuple[int, CrashState]] = {}
        self._cut: set[CrashState] = set()

    def kind(self, alike: object, number: int | None) -> int:
        """Of a recovery that wrote something: the same for those that are `alike`. `number`: of the outcome
        under which the memo knows the state, if it does.
        """
        kind = self._kinds.setdefault(alike, len(self._kinds))
        if number is not None:
            self._of.setdefault(number, kind)
        return kind

    def are_cut(self, number: int, states: Iterable[CrashState]) -> bool:
        """Whether a visit to these states, of which the memo knows the outcome's number, shows nothing new if
        it is cut.
        """
        kind = self._of.get(number)
        return kind is None or all(s in self._cut or self._is_held(kind, s) for s in states)

    def hold(self, number: int, states: Iterable[CrashState]) -> None:
        """These states, of which the memo knows the outcome's number, are going to be visited."""
        if (kind := self._of.get(number)) is not None:
            for state in states:
                self._hold(kind, state)

    def takes(self, kind: int, state: CrashState) -> bool:
        """Whether this state's recovery, which is of this kind and was seen, is to be cut: once, if no other
        state holds it.
        """
        if state in self._cut or not self._hold(kind, state):
            return False
        self._cut.add(state)
        return True

    def representative(self, kind: int, state: CrashState) -> CrashState | None:
        """The other state whose recovery, of this kind, is cut for all that is promised at this one; None:
        this one's is, or none.
        """
        promised = self._promised(state)
        if promised is None or state in self._cut or not self._is_held(kind, state):
            return None
        return self._representatives[kind, promised.promise_set][1]

    def _hold(self, kind: int, state: CrashState) -> bool:
        """Whether this state holds a recovery of this kind: it does from now on, unless another one does."""
        promised = self._promised(state)
        if promised is None or self._is_held(kind, state):
            return False
        self._representatives[kind, promised.promise_set] = (promised.begun, state)
        return True

    def _is_held(self, kind: int, state: CrashState) -> bool:
        """Whether another state holds it for all that is promised at this one."""
        promised = self._promised(state)
        if promised is None:
            return True
        begun, representative = self._representatives.get(
            (kind, promised.promise_set), (promised.begun + 1, state)
        )
        return begun <= promised.begun and representative != state


def times_of(entries: Sequence[LogEntry], parts: Sequence[int] = (), *, through: bool = False) -> Times:
    """The times of a recovery's entries: each was submitted when the one before it had completed. `parts`:
    bytes of the disk at which further devices begin. `through`: to a disk without a volatile cache, where
    completion makes a write durable.
    """
    writes = [
        TimedWrite(e.index, 2 * e.index, 2 * e.index + 1, fua=through, device=device_of(e.sector, parts))
        for e in entries
        if changes(e)
    ]
    flushes = [
        TimedFlush(e.index, 2 * e.index, 2 * e.index + 1, of_any=bool(parts))
        for e in entries
        if EntryFlag.FLUSH in e.flags
    ]
    return Times(tuple(writes), tuple(flushes), (), 2 * len(entries))


def device_of(sector: int, parts: Sequence[int]) -> int:
    """The device on which a sector of the disk lies. `parts`: bytes at which further devices begin."""
    return bisect.bisect_right(parts, sector * SECTOR_BYTES)


def keep(recovery: RecoveryLog, kept: Path) -> None:
    """Pack what a recovery wrote, for `load`."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    marked = recovery.log.with_suffix(".kept")
    header = recovery.state_entries.to_bytes(_HEADER_BYTES, "little")
    marked.write_bytes(header + recovery.log.read_bytes())
    pack(marked, kept)
    marked.unlink()


def load(of: CrashState, shown: Target, kept: Path, log: Path, unit: int) -> RecoveryLog:
    """What was kept of the recovery of `of`, unpacked to `log`. Raises StoreError for a file that is not
    there or is damaged, WriteLogError.
    """
    if not kept.is_file():
        raise StoreError(
            f"what the recovery of {of} wrote was not kept",
            "it is where something was found in one of its cuts: name a state that the report names",
        )
    data = unpack(kept, log, LOG_BYTES_MAX).read_bytes()
    log.write_bytes(data[_HEADER_BYTES:])
    return RecoveryLog.of_log(of, shown, log, int.from_bytes(data[:_HEADER_BYTES], "little"), unit)


_HEADER_BYTES = 8
LOG_BYTES_MAX = 4 << 30
"""Of a recovery's log: more than a disk keeps, with a state of that size."""
