"""What the log and its times say about a minimal failing state: when its writes were sent, and which flush
covers them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from harness.blocks import describe
from harness.blocks.fields import BlockName, Kind
from harness.explain.program import Program
from harness.model import SECTOR_BYTES, CrashState, History, Operation, OperationKind
from harness.oracles.timeline import OF_ALL
from harness.states.legal import NEVER, LegalStates
from harness.writelog.calls import ProgramCall
from harness.writelog.times import TimedFlush, TimedWrite, Times

Flush: TypeAlias = TimedFlush | TimedWrite
"""A request that empties the cache of one device: a flush, or a write with PREFLUSH."""


@dataclass(frozen=True)
class Facts:
    """A failing state with what is known of its log. `at`: the event just before which the power fails.
    `lost`: entries. `promise`: the operation that made the broken promise when it returned; None where the
    promise holds at any time. `subject`: the path concerned. `cleared`: entries on the platter of the control
    that are not on its own; `needed`: of these, some without any one of which it fails (see `Minimal`).
    `program`: of an application's finding. `devices`: of each entry, where there are several. `turning`:
    entries on its platter without any one of which it does not fail (see `Minimal`). `without`: those on its
    platter that are not on that of the control. `keeps`: whether the control keeps every promise. `commits`:
    whether the file system makes changes durable by a commit; `commits_data`: with the data of every file
    (see `Contract`); `leaves_names`: whether fsync of a file promises nothing of its name (see `RULES`).
    `synced`: the program's sync in which the first lost write was sent and which had returned, where none of
    its calls explains the loss.
    """

    state: CrashState
    legal: LegalStates
    times: Times
    history: History
    names: Mapping[int, Sequence[BlockName]]
    lost: tuple[int, ...]
    promise: int | None
    subject: str
    cleared: tuple[int, ...] = ()
    program: Program | None = None
    devices: Mapping[int, str] = field(default_factory=dict)
    turning: tuple[int, ...] = ()
    without: tuple[int, ...] = ()
    commits: bool = True
    synced: ProgramCall | None = None
    keeps: bool = False
    needed: tuple[int, ...] = ()
    commits_data: bool = False
    leaves_names: bool = False

    @property
    def may_want_names(self) -> bool:
        """Whether a program made the promise, and fsync of a file promises nothing of its name: the program
        may want one whose directory it has not synced.
        """
        steps = self.history.steps
        if not self.leaves_names or self.promise is None or self.promise >= len(steps):
            return False
        return steps[self.promise].operation.kind is OperationKind.RUN

    @property
    def brings_back(self) -> tuple[int, ...]:
        """Of `cleared`, what is known to be needed; all of it, where that is not known."""
        return self.needed or self.cleared

    @property
    def at(self) -> int:
        return self.legal.event(self.state)

    @cached_property
    def writes(self) -> dict[int, TimedWrite]:
        return {w.entry: w for w in self.times.writes}

    @cached_property
    def flushes(self) -> list[Flush]:
        of_both: list[Flush] = [*self.times.flushes, *(w for w in self.times.writes if w.preflush)]
        return sorted(of_both, key=lambda f: f.submitted)

    def mark(self, text: str) -> int | None:
        """When a mark was made."""
        return next((m.at for m in self.times.marks if m.text == text), None)

    @property
    def promised_at(self) -> int | None:
        """The event with which the operation, or the call, that made the promise returned."""
        if self.promise is None:
            return self.synced.returned if self.synced is not None else None
        return self.mark(f"ack {self.promise}")

    def name(self, entry: int) -> str:
        """`entry 49, data of f from 0`: what of it was lost, if only a part was. Of several devices: `entry
        49 of the second device, data of f from 0`.
        """
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
        whose = f" of {self.device(entry)}" if self.devices else ""
        return f"entry {entry}{whose}, {text}" if text and text != "?" else f"entry {entry}{whose}"

    def device(self, entry: int) -> str:
        """`the second device`, `member 2`; empty where there is one."""
        name = self.devices.get(entry, "")
        return f"the {name}" if name.endswith("device") else name

    def part(self, entry: int, there: CrashState | None = None) -> str:
        """`1 of 8 sectors of `: how much of a write was lost, or is `there` in a state that has lost less;
        empty where that is all of it.
        """
        chunks = [n for n, c in enumerate(self.legal.chunks) if c.entry == entry]
        lost = len(self.legal.lost(there or self.state).intersection(chunks))
        shown = len(chunks) - lost if there else lost
        unit = "sectors" if self.legal.unit_sectors == 1 else "blocks"
        return f"{shown} of {len(chunks)} {unit} of " if 0 < shown < len(chunks) else ""

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
        after = (f for f in self.flushes_of(write) if f.submitted > write.completed)
        return next((f for f in after if f.completed == when), None)

    def flushes_of(self, write: TimedWrite) -> list[Flush]:
        """The flushes of the device that a write was sent to: those of another device say nothing of it."""
        return [f for f in self.flushes if f.device == write.device]

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
        return [w for w in self.times.writes if any(map(self._is_of, self.names.get(w.entry, ())))]

    def data_not_sent(self, by: int) -> TimedWrite | None:
        """The first write with data of the file concerned that was not sent by an event. Data that is sent
        again later was.
        """
        sent: list[Part] = []
        for write in sorted(self.data_of_subject(), key=lambda w: w.submitted):
            parts = [_part(n) for n in self.names.get(write.entry, ()) if self._is_of(n)]
            if write.submitted > by and not all(_holds(sent, part) for part in parts):
                return write
            sent += parts
        return None

    @property
    def promises_data(self) -> bool:
        """Whether the operation that made the promise promises data of the file concerned: one about it, or a
        sync of everything. The sync of another file may promise its name; its data, where commits have that.
        """
        steps = self.history.steps
        if self.commits_data or self.promise is None or self.promise >= len(steps):
            return True
        is_of_all = steps[self.promise].operation.kind in OF_ALL
        return is_of_all or self._concerns(self.promise)

    def was_asked_for(self, by: int, some: Sequence[TimedWrite] | None = None) -> bool:
        """Whether a write, or one of `some`, was sent by an event that may have what was promised of the file
        concerned: its data, or anything else but data of others, sent since the first operation on the file
        began.
        """
        writes = self.times.writes if some is None else some
        known = range(min((self.promise or 0) + 1, len(self.history.steps)))
        begun = self.mark(f"begin {next(filter(self._concerns, known), 0)}") or 0
        others = (w for w in writes if self.kinds(w.entry) != {Kind.DATA})
        sent = any(begun < w.submitted < by for w in others)
        return sent or any(w.submitted < by and w in writes for w in self.data_of_subject())

    def has_journal(self) -> bool:
        """Whether the log shows a journal: blocks that count only once a record of it is written."""
        return any(Kind.LOG in self.kinds(entry) for entry in self.names)

    def owner(self, name: BlockName) -> str:
        """The path of the file whose data it is, the one concerned where it is that; empty where that is not
        known.
        """
        steps = self.history.steps
        if name.writer is None or name.writer >= len(steps):
            return ""
        path = steps[name.writer].operation.path
        return self.subject if self._concerns(name.writer) else path

    def owner_before(self, entry: int) -> int | None:
        """A write before one, with data of the file concerned, that was the last to some place that it
        covers.
        """
        left, sent = self._places(entry), self.writes[entry].submitted
        for write in reversed([w for w in self.submitted() if w.submitted < sent]):
            covered = left & self._places(write.entry)
            if covered and self.subject in {
                self.owner(n) for n in self.names.get(write.entry, ()) if n.kind is Kind.DATA
            }:
                return write.entry
            left -= covered
            if not left:
                break
        return None

    def _places(self, entry: int) -> set[int]:
        """The sectors that a write covers."""
        of_it = (c for c in self.legal.chunks if c.entry == entry)
        return {sector for c in of_it for sector in range(c.sector, c.sector + c.sectors)}

    def next_record(self, event: int) -> int | None:
        """The first record of a journal that was sent after an event."""
        late = (w.entry for w in self.times.writes if w.submitted > event)
        return next((e for e in late if Kind.RECORD in self.kinds(e)), None)

    def _is_of(self, name: BlockName) -> bool:
        """Whether it is data of the file concerned, of operations up to the promise."""
        steps = self.history.steps
        last = len(steps) - 1 if self.promise is None else self.promise
        if name.writer is None or name.writer > last or name.writer >= len(steps):
            return False
        return self._concerns(name.writer)

    def _concerns(self, operation: int) -> bool:
        return self._about[operation]

    @cached_property
    def _about(self) -> Sequence[bool]:
        return about_file([step.operation for step in self.history.steps], self.subject, self.promise)


def about_file(operations: Sequence[Operation], path: str, promise: int | None) -> list[bool]:
    """For each operation, whether it is about the file that a path names: the one that has the name when the
    operation `promise` returns, or one that is given it in its place later; where the promise is of one of
    these, that one. Any file that ever has the name, where there is no promise, or the name was free then.
    """
    names = NamesNow()
    of_each: list[tuple[Set[str], ...]] = []
    chosen: set[int] = set()
    for n, op in enumerate(operations):
        of_each.append(names.follow(op))
        held = names.now.get(path)
        if promise is not None and held is not None and (n == promise or (n > promise and chosen)):
            chosen.add(id(held))
    if promise is not None:
        chosen = chosen.intersection(id(f) for files in of_each[promise:][:1] for f in files) or chosen
    return [any(id(f) in chosen if chosen else path in f for f in files) for files in of_each]


_ASIDE = "\0"


class NamesNow:
    """Which names there are (`now`), each with all that its file ever had."""

    def __init__(self) -> None:
        self.now: dict[str, set[str]] = {}
        self._above: set[str] = set()  # of any name that there was: only below these are other names

    def follow(self, op: Operation) -> tuple[Set[str], ...]:
        """Of each file that an operation is about, the names that it ever has, handles among them: one set
        for each file, which operations share.
        """
        mine = self.of(op.path)
        match op.kind:
            case OperationKind.RENAME:
                self.move(op.path, op.target)
            case OperationKind.EXCHANGE:
                self.move(op.path, _ASIDE)
                self.move(op.target, op.path)
                self.move(_ASIDE, op.target)
            case OperationKind.LINK | OperationKind.OPEN:
                self.give(op.target, mine)
            case OperationKind.OPEN_TMPFILE:
                self.give(op.target, set())
            case OperationKind.UNLINK | OperationKind.RMDIR | OperationKind.SUBVOLUME_DELETE:
                self.drop(op.path)
            case OperationKind.SNAPSHOT:
                self.give(op.target, set())
            case OperationKind.CLONE | OperationKind.COPY_RANGE | OperationKind.EXCHANGE_RANGE:
                return mine, self.of(op.target)
        return (mine,)

    def of(self, path: str) -> set[str]:
        if path not in self.now:
            self.give(path, set())
        return self.now[path]

    def give(self, path: str, names: set[str]) -> None:
        names.add(path)
        self.now[path] = names
        top = path
        while (top := top.rpartition("/")[0]) and top not in self._above:
            self._above.add(top)

    def drop(self, path: str) -> None:
        del self.now[path]

    def move(self, old: str, new: str) -> None:
        """Give a file, or a directory with what is below it, another name. From one name of a file to another
        nothing is moved: rename(2).
        """
        if old in self.now and self.now[old] is self.now.get(new):
            return
        below = [p for p in self.now if p.startswith(f"{old}/")] if old in self._above else []
        for path in filter(self.now.__contains__, [old, *below]):
            self.give(new + path.removeprefix(old), self.now.pop(path))


Part = tuple[int, int, int]
"""Of a file's data: the operation that wrote it, and from which byte to which."""


def _part(name: BlockName) -> Part:
    begin = name.offset or 0
    return name.writer or 0, begin, begin + name.length


def _holds(sent: Sequence[Part], part: Part) -> bool:
    """Whether every byte of a part is in those that were sent."""
    writer, at, end = part
    for _, begin, to in sorted(p for p in sent if p[0] == writer):
        if begin <= at < to:
            at = to
    return at >= end
