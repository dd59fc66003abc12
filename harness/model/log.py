"""Entries of the write log, and crash states: recipes for what a power cut leaves of them."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

from harness.model.disk_faults import DiskFault


class EntryFlag(enum.IntFlag):
    """Flags of a dm-log-writes entry (drivers/md/dm-log-writes.c)."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a write log. `sector` and `sectors` are in units of 512 bytes. `mark`: a mark's text."""

    index: int
    sector: int
    sectors: int
    flags: EntryFlag
    data_offset: int  # where its data is in the log file, in bytes
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A write of the log, or a part of it that a disk writes as a whole. Written `41`, `41.2`, `41/13`.

    `block`: the number, from 0, of one of the 4 KiB blocks of the device that the write touches; `sector`:
    of one of its sectors of 512 bytes. Both None: the whole write.
    """

    entry: int
    block: int | None = None
    sector: int | None = None

    def __str__(self) -> str:
        if self.block is not None:
            return f"{self.entry}.{self.block}"
        return f"{self.entry}" if self.sector is None else f"{self.entry}/{self.sector}"

    @classmethod
    def parse(cls, text: str) -> Part:
        """Inverse of `str`. Raises ValueError."""
        m = re.fullmatch(r"(\d+)(?:([./])(\d+))?", text, re.ASCII)
        if not m:
            raise ValueError(f"{text!r} is not a part of a write such as 41, 41.2 or 41/13")
        number = int(m[3]) if m[3] else None
        return cls(int(m[1]), number if m[2] == "." else None, number if m[2] == "/" else None)


@dataclass(frozen=True, slots=True)
class Persisted:
    """Which of the writes that a disk was free to lose had reached the platter: all but `parts` or, with
    `only`, no others than `parts`.
    """

    parts: tuple[Part, ...] = ()
    only: bool = False

    def __str__(self) -> str:
        if not self.parts and not self.only:
            return ""
        return ("=" if self.only else "-") + ",".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class CrashState:
    """A recipe for the contents of the disk, of one of two kinds.

    Without `persisted`: the first `prefix` log entries, without those in `dropped`, and of entry `prefix - 1`
    only the first `torn_sectors` sectors, if given. Written `@417`, `@417-402,405`, `@417/t3`,
    `@417-402/t3`.

    With `persisted`: the power fails just before entry `prefix` completes (a mark: is made), in the order in
    which the guest saw its writes complete; `persisted` tells what the cache had written by then. Written
    `@t417` (all that was submitted), `@t417-402,405.1` (all but these), `@t417=402` (only this), `@t417=`
    (only what was durable). See `harness.states.legal`.

    `again`: cuts in recoveries, each a state by times. The first is one of what the recovery of this state
    without them wrote, whose entries are numbered from 0; the next is one of the recovery of that; and so on.
    Written behind it, `@t417-402@t12-3`. The other fields are those of the first cut.

    `fault`: what the disk does wrong while this is recovered. Written last, `@t417-402+eio-write2048.3`; see
    `DiskFault`.
    """

    prefix: int
    dropped: tuple[int, ...] = ()
    torn_sectors: int | None = None
    persisted: Persisted | None = None
    again: tuple[CrashState, ...] = ()
    fault: DiskFault | None = None

    def __post_init__(self) -> None:
        if self.again and any(c.persisted is None or c.again or c.fault for c in self.again):
            raise ValueError("a cut in a recovery is a state by times, such as @t12-3")
        if self.prefix < 0 or (self.dropped and any(not 0 <= d < self.prefix for d in self.dropped)):
            dropped = ", ".join(map(str, self.dropped))
            raise ValueError(f"entry {dropped} is not among the first {self.prefix}, and cannot be dropped")
        if self.dropped and list(self.dropped) != sorted(set(self.dropped)):
            raise ValueError(f"dropped entries {self.dropped} must ascend without repeats")
        if self.persisted is None:
            return
        if self.dropped or self.torn_sectors is not None:
            raise ValueError("a state by times has neither dropped entries nor a torn one")
        parts = self.persisted.parts
        if len(parts) > 1 and list(parts) != sorted(set(parts), key=_part_order):
            raise ValueError(f"the writes in {self.persisted} must ascend without repeats")

    @property
    def is_whole(self) -> bool:
        """Whether the disk had all that it was sent, and wrote and read it as it was told. A state that is a
        prefix of the log lacks what comes behind that, so of it this is never said.
        """
        kept = self.persisted
        return kept is not None and not (kept.only or kept.parts or self.again or self.fault)

    @property
    def first(self) -> CrashState:
        """The state that the first cut left."""
        return replace(self, again=(), fault=None) if self.again or self.fault else self

    @property
    def recovered(self) -> CrashState:
        """The state in whose recovery the last of several cuts was made."""
        return replace(self, again=self.again[:-1], fault=None)

    @property
    def without_fault(self) -> CrashState:
        """The same on a disk that does nothing wrong."""
        return replace(self, fault=None) if self.fault else self

    def with_fault(self, fault: DiskFault) -> CrashState:
        """The same on a disk that does this wrong."""
        return replace(self, fault=fault)

    def cut_at(self, cut: CrashState) -> CrashState:
        """The state that `cut` leaves in the recovery of this one."""
        return replace(self, again=(*self.again, cut))

    def __str__(self) -> str:
        if self.fault:
            return f"{self.without_fault}+{self.fault}"
        if self.again:
            return "".join(map(str, (self.first, *self.again)))
        if self.persisted is not None:
            return f"@t{self.prefix}{self.persisted}"
        text = f"@{self.prefix}"
        if self.dropped:
            text += "-" + ",".join(map(str, self.dropped))
        if self.torn_sectors is not None:
            text += f"/t{self.torn_sectors}"
        return text

    @classmethod
    def parse(cls, text: str) -> CrashState:
        """Inverse of `str`. Raises ValueError that shows the form expected."""
        if "+" in text:
            without_fault, _, fault = text.partition("+")
            return replace(cls.parse(without_fault), fault=DiskFault.parse(fault))
        if text.count("@") > 1:
            first, *cuts = (cls.parse(f"@{one}") for one in text.removeprefix("@").split("@"))
            return replace(first, again=tuple(cuts))
        if timed := re.fullmatch(rf"@t(\d+)(?:(-)({_PARTS})|(=)({_PARTS})?)?", text, re.ASCII):
            parts = tuple(Part.parse(p) for p in (timed[3] or timed[5] or "").split(",") if p)
            return cls(int(timed[1]), persisted=Persisted(parts, only=timed[4] is not None))
        m = re.fullmatch(r"@(\d+)(?:-(\d+(?:,\d+)*))?(?:/t(\d+))?", text)
        if not m:
            raise ValueError(
                f"crash state {text!r} is none of the forms @417, @417-402,405, @417/t3, @t417-402,405.1, "
                "@t417=402, nor one followed by cuts in recoveries, @t417@t12-3, or a fault of the disk, "
                "@417+eio-read2048"
            )
        dropped = tuple(int(d) for d in m[2].split(",")) if m[2] else ()
        return cls(int(m[1]), dropped, int(m[3]) if m[3] else None)


_PART = r"\d+(?:[./]\d+)?"
_PARTS = rf"{_PART}(?:,{_PART})*"


def _part_order(part: Part) -> tuple[int, int, int]:
    return (part.entry, -1 if part.block is None else part.block, -1 if part.sector is None else part.sector)
