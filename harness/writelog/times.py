"""When the writes of a recording were submitted and completed, in the guest's own order.

A time is the number of an event: the guest's block layer reports each bio of the recorded devices twice, when
it is submitted and when it completes, and the agent's marks lie between them. All have one order, whatever
their device, and a time is a place in it. What was submitted before something else completed has the smaller
number.

The events do not always tell which of two requests in flight together completed (see `events.py`). Then a
time of submission has two readings: `submitted`, by which the fewest crash states are possible, and
`since`, by which the most are. Where the two are one, `since` is None.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimedWrite:
    """A write or discard of the log, with its times.

    `entry`: its number in the log. `preflush`: the disk flushes its cache before it writes the data
    (REQ_PREFLUSH), so the data cannot be durable before everything that had completed when it was submitted.
    `fua`: it is durable once it completes. `submitted`: the latest event that may be its submission; `since`:
    the earliest, if that is another one. `completed`: the event of its submission itself where it completed
    before the next one. `device`: to which it was sent; each has a cache of its own.
    """

    entry: int
    submitted: int
    completed: int
    fua: bool = False
    preflush: bool = False
    since: int | None = None
    device: int = 0

    @property
    def earliest(self) -> int:
        """The submission by the reading that has it in flight the longest."""
        return self.submitted if self.since is None else self.since


@dataclass(frozen=True, slots=True)
class TimedFlush:
    """A flush without data completes: all of its device that had completed when it was submitted is durable.

    `entry`: its number in the log. (The flush that device-mapper sends ahead of a write with REQ_PREFLUSH is
    an entry of the log as well, but no bio of its own: it is not listed.) `submitted`: of the latest flush
    that may have completed by then. `since`: of the latest that must have, if that is another one. `of_any`:
    it is not known which of several devices was flushed; by one reading all of them, by another none.
    """

    entry: int
    submitted: int
    completed: int
    since: int | None = None
    device: int = 0
    of_any: bool = False

    @property
    def earliest(self) -> int:
        """The submission by the reading that makes the least durable."""
        return self.submitted if self.since is None else self.since


@dataclass(frozen=True, slots=True)
class TimedMark:
    """A mark of the log, such as `ack 7`, and when it was made. `entry`: its number in the log."""

    entry: int
    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Times:
    """The events of a recording, joined to its log.

    `writes`: in the order of submission; exactly the log's entries that change the device, each once.
    `marks`: in order, those of the log. `events`: how many there are; times are below it.
    """

    writes: tuple[TimedWrite, ...]
    flushes: tuple[TimedFlush, ...]
    marks: tuple[TimedMark, ...]
    events: int
