"""The calls of programs among the events of a recording."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EventsDiffer
from harness.model import EntryFlag, LogEntry
from harness.writelog.calls import NOT_NOTED, Places, ProgramCall, calls_of
from harness.writelog.events import read_events
from harness.writelog.times import TimedFlush, TimedMark, TimedWrite, Times

HEAD = "tracing_mark_write: "
TEXT = f"""\
{HEAD}powercut: begin 0
{HEAD}powercut-call: 0 61 openat(a b, create|truncate)
{HEAD}powercut-done: 0 3
{HEAD}powercut-call: 1 61 pwrite(a b, 10 at 0)
{HEAD}powercut-call: 2 62 fsync(a b)
block_bio_queue: 254,0 WFS 8 + 8 [x]
{HEAD}powercut-done: 1 -28
block_bio_complete: 254,0 WFS 8 + 8 [0]
{HEAD}powercut-more: 7
{HEAD}powercut: ack 0
"""


def test_calls_are_read_from_between_the_writes() -> None:
    found = calls_of(TEXT)
    assert found.more == 7
    assert found.calls == (
        ProgramCall(61, "openat(a b, create|truncate)", 1, 2, 3),
        ProgramCall(61, "pwrite(a b, 10 at 0)", 3, 6, -28),
        ProgramCall(62, "fsync(a b)", 4),
    )
    assert [c.outcome for c in found.calls] == ["= 3", "= ENOSPC", "did not return"]


def test_the_writes_and_marks_beside_calls_are_what_they_were() -> None:
    """A recording with calls was refused as one with events that nobody asked for."""
    events = read_events(TEXT)
    assert [text for _, text in events.marks] == ["begin 0", "ack 0"]
    assert [bio.at for bio in events.bios] == [5, 7]
    with pytest.raises(EventsDiffer):
        read_events(f"{HEAD}powercut-calls: 7\n")
    assert calls_of(TEXT.replace("powercut-", "other-")) == NOT_NOTED


def test_numbers_begin_anew_with_each_program() -> None:
    """The end of a call that one program left behind was taken for that of the next program's."""
    lines = ["call: 0 5 fsync(a)", "call: 1 5 fsync(c)", "more: 1", "call: 0 9 fsync(b)", "done: 1 0"]
    lines += ["done: 0 0", "done: 0 7", "more: 2"]
    found = calls_of("".join(f"{HEAD}powercut-{line}\n" for line in lines))
    assert [(c.text, c.returned) for c in found.calls] == [
        ("fsync(a)", None),
        ("fsync(c)", None),
        ("fsync(b)", 5),
    ]
    assert found.more == 3


WORDS = st.sampled_from(["call", "done", "more", "calls", ""])
LINES = st.one_of(
    st.text(),
    st.builds("{}powercut-{}: {} {}".format, st.just(HEAD), WORDS, st.integers(-2, 5), st.text()),
    st.builds("{}powercut-call: {} {} f()".format, st.just(HEAD), st.integers(0, 5), st.integers(0, 99)),
    st.builds("{}powercut-done: {} {}".format, st.just(HEAD), st.integers(0, 5), st.integers()),
)


@given(st.lists(LINES, max_size=30))
def test_any_text_has_calls_that_return_after_they_began(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = calls_of(text)
    begun = [c.began for c in found.calls]
    assert begun == sorted(set(begun))
    assert all(c.began < c.returned < len(text.split("\n")) for c in found.calls if c.returned is not None)
    assert all(c.outcome for c in found.calls)


def test_a_call_stands_behind_what_was_logged_before_it() -> None:
    """A write that nobody flushed is logged late: it does not move the calls in front of it."""
    entries = [
        LogEntry(0, 0, 0, EntryFlag.MARK, mark="begin 0", data_offset=0),
        LogEntry(1, 8, 8, EntryFlag(0), data_offset=0),
        LogEntry(2, 0, 0, EntryFlag.FLUSH, data_offset=0),
        LogEntry(3, 0, 0, EntryFlag.MARK, mark="ack 0", data_offset=0),
    ]
    times = Times(
        (TimedWrite(1, submitted=2, completed=3),),
        (TimedFlush(2, submitted=5, completed=6),),
        (TimedMark(0, 0, "begin 0"), TimedMark(3, 8, "ack 0")),
        9,
    )
    places = Places(entries, times)
    assert [places.before(event) for event in (0, 1, 4, 7, 9)] == [0, 1, 1, 3, 4]


def test_an_acknowledgement_that_is_the_next_entry_was_not_made() -> None:
    """Beside "not yet: line 2" the last calls of the same state ended in "powercut-ack line 2"."""
    entries = [LogEntry(n, 0, 0, EntryFlag.MARK, mark=f"app {n}", data_offset=0) for n in range(3)]
    times = Times((), (), tuple(TimedMark(n, 10 * n, f"app {n}") for n in range(3)), 30)
    places = Places(entries, times)
    assert [places.is_within(event, 2) for event in (0, 5, 10, 15, 20, 25)] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
