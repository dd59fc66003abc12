"""Which tracepoints of the kernel tell what a file system's journal does: `[tracing]` of filesystem.toml."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec


class SpanEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The events at which something named `what` begins and ends: regular expressions, matched from the
    event's name on (`xlog_iclog_syncing: dev 254:16 state`). Without `begin` it is counted and not timed.
    `key`: its group tells apart those that are under way at one time.
    """

    what: str
    end: str
    begin: str = ""
    key: str = ""

    def begins(self, event: str) -> bool:
        return bool(self.begin and re.match(self.begin, event))

    def ends(self, event: str) -> bool:
        return bool(re.match(self.end, event))

    def place(self, event: str) -> str:
        """Equal for the two events of one span."""
        found = re.search(self.key, event) if self.key else None
        return f"{self.what} {found[1] if found else ''}"


class Tracepoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Tracepoints that belong together. `what`: the name of the records that stand for a commit; `spans`: how
    they are made of events, where they are not commits of the journaling layer that several file systems
    share. `programs`: C for bcc, of the same folder, with a TRACEPOINT_PROBE for each of `events`; there the
    kind of a record is its name in capitals, LOG_WRITE for `log-write`. `times_fsync`: fsync is among them.
    `note`: what the figures are of, where that is not the whole of a commit.
    """

    name: str
    what: str
    programs: tuple[str, ...]
    events: tuple[str, ...]
    spans: tuple[SpanEvents, ...] = ()
    times_fsync: bool = False
    note: str = ""

    @cached_property
    def timed(self) -> bool:
        """Whether its main records have a beginning."""
        return all(span.begin for span in self.spans if span.what == self.what)
