"""Records that are made from what a recording tells."""

from __future__ import annotations

from harness.model import EntryFlag, LogEntry
from harness.store.records import timeline_of


def test_the_drawn_log_names_what_each_entry_was() -> None:
    flags = [EntryFlag(0), EntryFlag.FLUSH, EntryFlag.FUA, EntryFlag.FLUSH | EntryFlag.FUA, EntryFlag.DISCARD]
    entries = [LogEntry(i, 8, 8, f, 0) for i, f in enumerate([*flags, EntryFlag.MARK])]
    assert [e.kind for e in timeline_of(entries)] == ["write", "flush", "fua", "flush+fua", "discard", "mark"]
