"""What was done, where in the log, and how far a power cut let it come."""

from __future__ import annotations

import bisect
import sys
from dataclasses import dataclass

from harness.model.operations import Operation


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """An operation with the places of its marks in the log.

    `begin`, `ack`: index of the log entry that is the mark; None where the log ends before it, BEFORE_THE_LOG
    of the part before the crash.
    """

    index: int
    operation: Operation
    begin: int | None
    ack: int | None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What the application of RUN operation `operation` reported as done (`powercut-ack TEXT`).

    `entry`: index of the log entry that is the mark.
    """

    operation: int
    text: str
    entry: int


@dataclass(frozen=True, slots=True)
class BeforeCrash:
    """What came before a log that begins with a crash state: the first `operations` steps, the last of which
    is the crash. Recovery came to what the first `kept` of them had left. `state`: the crash state's name.
    """

    operations: int
    kept: int
    state: str

    @property
    def text(self) -> str:
        """In words."""
        done = self.operations - 1
        came = "all of them" if self.kept == done else f"the first {self.kept}"
        return f"operations 0 to {done - 1} before the crash, cut at {self.state}; recovery came to {came}"


@dataclass(frozen=True, slots=True)
class Said:
    """Lines of the kernel's log while a workload was recorded. `operation`: the one that was under way; None
    at the mount and the unmount.
    """

    operation: int | None
    lines: tuple[str, ...]


BEFORE_THE_LOG = -1
"""The place of the marks of the part before the crash."""


@dataclass(frozen=True, slots=True)
class History:
    """The operations done to an empty file system, and what applications acknowledged meanwhile, both in the
    order of their marks. `earlier`: those that were done before the log begins.
    """

    steps: tuple[HistoryStep, ...]
    acknowledgements: tuple[Acknowledgement, ...] = ()
    earlier: BeforeCrash | None = None

    @property
    def given(self) -> int:
        """How many steps were done before the log begins."""
        return self.earlier.operations if self.earlier else 0

    def position(self, prefix: int) -> Position:
        """The position in the history of a crash after the first `prefix` log entries."""
        return Position(
            begun=bisect.bisect_left(self.steps, prefix, key=lambda s: _place(s.begin)),
            acked=bisect.bisect_left(self.steps, prefix, key=lambda s: _place(s.ack)),
            app_acks=bisect.bisect_left(self.acknowledgements, prefix, key=lambda a: a.entry),
        )

    def app_acks(self, operation: int, count: int) -> tuple[str, ...]:
        """What `operation` acknowledged among the first `count` acknowledgements."""
        return tuple(a.text for a in self.acknowledgements[:count] if a.operation == operation)


def _place(entry: int | None) -> int:
    """Of a mark; the log ends before one that is None."""
    return sys.maxsize if entry is None else entry


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the history the power failed: `begun` operations had begun and `acked` of them had returned;
    begun - acked is 0 or 1. `app_acks`: the number of applications' acknowledgements.
    """

    begun: int
    acked: int
    app_acks: int = 0
