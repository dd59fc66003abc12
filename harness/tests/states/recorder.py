"""Recordings in miniature, with the times of their writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from harness.model import BLOCK_BYTES, SECTOR_BYTES, EntryFlag, LogEntry
from harness.states.legal import LegalStates
from harness.writelog import Flush, MarkText, Step, Write, WriteLog, write_log
from harness.writelog.events import flush_bounds
from harness.writelog.times import TimedFlush, TimedMark, TimedWrite, Times

BLOCKS = 6
"""Of the device that recorders write."""


@dataclass
class Recorder:
    """Builds a log and its times, event by event. Entries are numbered as they are submitted. `ambiguous`:
    nothing tells which of the flushes that are in flight together completes. `second`: the block at which a
    second device begins, if there is one.
    """

    entries: list[LogEntry] = field(default_factory=list)
    open: dict[int, tuple[int, bool, bool, bool]] = field(default_factory=dict)
    writes: dict[int, TimedWrite] = field(default_factory=dict)
    flushes: list[TimedFlush] = field(default_factory=list)
    marks: list[TimedMark] = field(default_factory=list)
    events: int = 0
    ambiguous: bool = False
    second: int = 1 << 30

    def device(self, sector: int) -> int:
        return int(sector >= self.second * 8)

    def _event(self) -> int:
        self.events += 1
        return self.events - 1

    def _entry(self, sector: int, sectors: int, flags: EntryFlag, mark: str = "") -> int:
        number = len(self.entries)
        self.entries.append(LogEntry(number, sector, sectors, flags, 0, mark))
        return number

    def submit(self, block: int, blocks: int = 1, *, fua: bool = False, preflush: bool = False) -> int:
        return self.submit_sectors(block * 8, blocks * 8, fua=fua, preflush=preflush)

    def submit_sectors(self, sector: int, sectors: int, *, fua: bool = False, preflush: bool = False) -> int:
        entry = self._entry(sector, sectors, EntryFlag(0))
        self.open[entry] = (self._event(), fua, preflush, False)
        return entry

    def flush(self, device: int = 0) -> int:
        entry = self._entry(self.second * 8 if device else 0, 0, EntryFlag.FLUSH)
        self.open[entry] = (self._event(), False, False, True)
        return entry

    def complete(self, entry: int) -> None:
        submitted, fua, preflush, flush = self.open.pop(entry)
        device, at = self.device(self.entries[entry].sector), self._event()
        if flush:
            self.flushes.append(TimedFlush(entry, submitted, at, device=device))
        else:
            self.writes[entry] = TimedWrite(entry, submitted, at, fua=fua, preflush=preflush, device=device)

    def mark(self, text: str) -> None:
        self.marks.append(TimedMark(self._entry(0, 0, EntryFlag.MARK, text), self._event(), text))

    def write(self, block: int, **how: bool) -> int:
        entry = self.submit(block, **how)
        self.complete(entry)
        return entry

    @property
    def times(self) -> Times:
        return self._times(ambiguous=self.ambiguous)

    def _times(self, *, ambiguous: bool) -> Times:
        for entry in sorted(self.open):
            self.complete(entry)
        writes = sorted(self.writes.values(), key=lambda w: w.submitted)
        flushes = sorted(self.flushes, key=lambda f: f.completed)
        if ambiguous:
            flushes = [f for device in (0, 1) for f in _ambiguous([g for g in flushes if g.device == device])]
            flushes.sort(key=lambda f: f.completed)
        return Times(tuple(writes), tuple(flushes), tuple(self.marks), self.events)

    def legal(self, unit_sectors: int = 8, *, real: bool = False) -> LegalStates:
        """`real`: by what really happened, whatever the events tell."""
        log = WriteLog(Path("log"), 512, tuple(self.entries), 0)
        return LegalStates(log, self._times(ambiguous=self.ambiguous and not real), unit_sectors)


def _ambiguous(flushes: list[TimedFlush]) -> list[TimedFlush]:
    """Those of one device, where nothing tells which of them completes."""
    bounds = flush_bounds(sorted(f.submitted for f in flushes), [f.completed for f in flushes])
    return [
        TimedFlush(f.entry, may, f.completed, None if may == must else must, f.device)
        for f, may, must in zip(flushes, *bounds, strict=True)
    ]


@st.composite
def recorders(draw: st.DrawFn, *, ambiguous: bool = False, devices: int = 1) -> Recorder:
    """A few writes, flushes and marks, in flight together in every way, on so many devices."""
    made, operations, blocks = Recorder(ambiguous=ambiguous), 0, 0
    steps = ["write", "write", "fua", "commit", "barrier", "flush", "complete", "complete", "mark"]
    if devices > 1:
        made.second = 2
        steps += ["flush", "complete", "complete"]  # so that often a flush of one ends while the other waits
    for _ in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(steps))
        if what == "complete" and made.open:
            made.complete(draw(st.sampled_from(sorted(made.open))))
        elif what == "mark":
            made.mark(f"{'ack' if operations % 2 else 'begin'} {operations // 2}")
            operations += 1
        elif what == "flush":
            made.flush(draw(st.integers(0, devices - 1)))
        elif blocks < 8:
            wide, block = draw(st.integers(1, 2)), draw(st.integers(0, 3))
            if block < made.second:
                wide = min(wide, made.second - block)
            blocks += wide
            fua, preflush = what in ("fua", "commit"), what in ("commit", "barrier")
            made.submit(block, wide, fua=fua, preflush=preflush)
    return made


def contents(entry: int, sectors: int) -> bytes:
    """What an entry writes: few different contents, so that writes often agree."""
    return bytes([ord("A") + entry % 5]) * (sectors * SECTOR_BYTES)


def write_files(made: Recorder, folder: Path, blocks: int = BLOCKS) -> tuple[Path, Path]:
    """The base image and the log of a recorder, as files."""
    base, log = folder / "base.img", folder / "test.log"
    base.write_bytes(bytes([ord("a")]) * (blocks * BLOCK_BYTES))
    write_log(log, map(_step, made.entries))
    return base, log


def _step(entry: LogEntry) -> Step:
    if entry.flags & EntryFlag.MARK:
        return MarkText(entry.mark)
    return Write(entry.sector, contents(entry.index, entry.sectors)) if entry.sectors else Flush(entry.sector)
