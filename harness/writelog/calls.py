"""The system calls of a workload's programs, as the agent noted them among the events of a recording.

Two lines a call, between those of the block layer (`vms/agent/src/calls.rs`): its number, its thread, and
what it does to a file of the recorded file system; then its number and what it returned. Numbers begin anew
with each program. The last line of a program says how many calls were not noted.

    tracing_mark_write: powercut-call: 7 61 pwrite(test.db, 4096 at 8192)
    tracing_mark_write: powercut-done: 7 4096
    tracing_mark_write: powercut-more: 0

No verdict depends on them: lines that do not fit each other are calls that never returned, or no calls.
"""

from __future__ import annotations

import bisect
import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.model import LogEntry
from harness.writelog.times import Times

_LINE = re.compile(r"[^ ]+: powercut-(call|done|more): (-?[0-9]{1,18})(?: (.*))?")
_THREAD = re.compile(r"([0-9]{1,10}) (.+)")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_ERRNO_MAX = 4095
"""A result below zero and above this, negated, is an errno (`IS_ERR_VALUE` in include/linux/err.h)."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call. `text`: such as `fsync(journal)`. `began`, `returned`: events; it may not have returned.
    `result`: what it returned, a negative errno if it failed.
    """

    thread: int
    text: str
    began: int
    returned: int | None = None
    result: int = 0

    @property
    def outcome(self) -> str:
        """`= 4096`, `= ENOSPC`, or that it did not return."""
        if self.returned is None:
            return "did not return"
        if -_ERRNO_MAX <= self.result < 0:
            return f"= {errno.errorcode.get(-self.result, self.result)}"
        return f"= {self.result}"


@dataclass(frozen=True, slots=True)
class ProgramCalls:
    """The calls in the order in which they began. `more`: so many were not noted; None: nobody noted any."""

    calls: tuple[ProgramCall, ...] = ()
    more: int | None = None


NOT_NOTED = ProgramCalls()


def is_call_line(line: str) -> bool:
    """Whether a line of the events is about calls. Cheap: most are not."""
    return "powercut-" in line and _LINE.fullmatch(line) is not None


def calls_of(text: str) -> ProgramCalls:
    """The calls in the text of a recording's events. Total: any text has some."""
    calls: list[ProgramCall] = []
    flying: dict[str, int] = {}
    more: int | None = None
    for at, line in enumerate(text.split("\n")):
        found = _LINE.fullmatch(line) if "powercut-" in line else None
        if found is None:
            continue
        word, number, rest = found[1], found[2], found[3] or ""
        if word == "more":
            more, flying = (more or 0) + max(int(number), 0), {}
        elif word == "call" and (told := _THREAD.fullmatch(rest)):
            flying[number] = len(calls)
            calls.append(ProgramCall(int(told[1]), told[2], at))
        elif word == "done" and number in flying and _NUMBER.fullmatch(rest):
            begun = flying.pop(number)
            calls[begun] = replace(calls[begun], returned=at, result=int(rest))
    return ProgramCalls(tuple(calls), more)


class Places:
    """Where events lie in the log: how many of its entries stand before an event.

    The log has an order of its own: a write that nobody flushed comes late. So only those entries count that
    are logged when they happen: marks, FUA writes and flushes, each with all that stands before it.
    """

    def __init__(self, entries: Sequence[LogEntry], times: Times) -> None:
        logged = {w.entry: w.completed for w in times.writes if w.fua}
        logged |= {f.entry: f.completed for f in times.flushes}
        logged |= {m.entry: m.at for m in times.marks}
        self._marks = {m.at: m.entry for m in times.marks}
        last = -1
        self._at: list[int] = []
        self._entries: list[int] = []
        for e in entries:
            at = logged.get(e.index)
            if at is None:
                continue
            last = max(last, at)
            self._at.append(last)
            self._entries.append(e.index + 1)

    def before(self, event: int) -> int:
        """The number of entries that stand before the event."""
        known = bisect.bisect_left(self._at, event)
        return self._entries[known - 1] if known else 0

    def is_within(self, event: int, prefix: int) -> bool:
        """Whether an event comes before the power failure of a state with so many entries. A mark is one of
        them; a call comes before the next.
        """
        entry = self._marks.get(event)
        return self.before(event) <= prefix if entry is None else entry < prefix
