"""What the log and its times say about a minimal failing state: when its writes were sent, and which flush
covers them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.blocks import describe
from harness.blocks.fields import BlockName, Kind
from harness.model import SECTOR_BYTES, CrashState, History
from harness.states.legal import NEVER, LegalStates
from harness.writelog.times import TimedWrite, Times


@dataclass(frozen=True, slots=True)
class Flush:
    """A request that empties the disk's cache: a flush, or a write with PREFLUSH."""

    entry: int
    submitted: int
    completed: int


@dataclass(frozen=True)
class Facts:
    """A failing state with what is known of its log. `at`: the event just before which the power fails.
    `lost`: entries. `promise`: the operation that made the broken promise when it returned; None where the
    promise holds at any time. `subject`: the path concerned.
    """

    state: CrashState
    legal: LegalStates
    times: Times
    history: History
    names: Mapping[int, Sequence[BlockName]]
    lost: tuple[int, ...]
    promise: int | None
    subject: str

    @property
    def at(self) -> int:
        return self.legal.event(self.state)

    @property
    def writes(self) -> dict[int, TimedWrite]:
        return {w.entry: w for w in self.times.writes}

    @property
    def flushes(self) -> list[Flush]:
        found = [Flush(f.entry, f.submitted, f.completed) for f in self.times.flushes]
        found += [Flush(w.entry, w.submitted, w.completed) for w in self.times.writes if w.preflush]
        return sorted(found, key=lambda f: f.submitted)

    def mark(self, text: str) -> int | None:
        """When a mark was made."""
        return next((m.at for m in self.times.marks if m.text == text), None)

    @property
    def promised_at(self) -> int | None:
        """The event with which the operation that made the promise returned."""
        return None if self.promise is None else self.mark(f"ack {self.promise}")

    def name(self, entry: int) -> str:
        """`entry 49, data of f from 0`: what of it was lost, if only a part was."""
        chunks = [c for n in self.legal.lost(self.state) if (c := self.legal.chunks[n]).entry == entry]
        parts = [
            name
            for name in self.names.get(entry, ())
            if not chunks
            or any(
                name.at < (c.sector + c.sectors) * SECTOR_BYTES
                and c.sector * SECTOR_BYTES < name.at + name.length
                for c in chunks
            )
        ]
        text = describe(parts, 1)
        return f"entry {entry}, {text}" if text and text != "?" else f"entry {entry}"

    def part(self, entry: int) -> str:
        """`1 of 8 sectors of `: how much of a write was lost; empty where that is all of it."""
        chunks = [n for n, c in enumerate(self.legal.chunks) if c.entry == entry]
        gone = self.legal.lost(self.state).intersection(chunks)
        unit = "sectors" if self.legal.unit_sectors == 1 else "blocks"
        return f"{len(gone)} of {len(chunks)} {unit} of " if 0 < len(gone) < len(chunks) else ""

    @property
    def torn(self) -> int | None:
        """A write of which the platter has some sectors of a block, and not the others."""
        if self.legal.unit_sectors != 1:
            return None
        return next((e for e in self.lost if self.part(e)), None)

    def kinds(self, entry: int) -> set[Kind]:
        return {n.kind for n in self.names.get(entry, ())}

    # --- times ----------------------------------------------------------------------------------

    def flush_over(self, entry: int) -> Flush | None:
        """The flush that makes a write durable, whenever that is."""
        when = self.legal.durable(entry)
        write = self.writes[entry]
        if when >= NEVER or write.fua:
            return None
        return next((f for f in self.flushes if f.completed == when and f.submitted > write.completed), None)

    def submitted(self) -> list[TimedWrite]:
        """The writes that had been sent when the power failed."""
        return [w for w in self.times.writes if w.submitted < self.at]

    def in_cache(self) -> list[int]:
        """The writes that the cache could lose then."""
        return [w.entry for w in self.submitted() if self.legal.durable(w.entry) >= self.at]

    def on_platter(self, entry: int) -> bool:
        return any(w.entry == entry for w in self.submitted()) and entry not in self.lost

    def operation(self, number: int) -> str:
        """An operation in words."""
        steps = self.history.steps
        return str(steps[number].operation) if number < len(steps) else f"operation {number}"

    def data_of_subject(self) -> list[TimedWrite]:
        """The writes with data of the file concerned, of operations up to the promise."""
        last = len(self.history.steps) if self.promise is None else self.promise
        return [w for w in self.times.writes if self._holds_data(w.entry, last)]

    def _holds_data(self, entry: int, last: int) -> bool:
        steps = self.history.steps
        return any(
            n.writer is not None
            and n.writer <= last
            and n.writer < len(steps)
            and self.subject in (steps[n.writer].operation.path, steps[n.writer].operation.target)
            for n in self.names.get(entry, ())
        )
