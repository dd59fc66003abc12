"""Events joined to a log: a simulated device-mapper device tells both, and the join finds what it knows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EventsDiffer
from harness.model import SECTOR_BYTES, EntryFlag, LogEntry
from harness.writelog.events import (
    END_MARK,
    first_difference,
    join,
    no_events,
    read_events,
    times_of,
    why_no_events,
)
from harness.writelog.times import TimedFlush, TimedWrite, Times


@dataclass(slots=True)
class Bio:
    """A bio in the simulated device. `entry`: the number of its entry, or of its flush if it has no data."""

    letters: str
    sector: int
    sectors: int
    preflush: bool
    fua: bool
    submitted: int
    carried: list[Bio] = field(default_factory=list)
    flushed: bool = False
    copy: Bio | None = None
    of: Bio | None = None
    completed: int = -1
    entry: int = -1

    @property
    def flags(self) -> EntryFlag:
        discard = EntryFlag.DISCARD if self.letters == "D" else EntryFlag(0)
        return discard | (EntryFlag.FUA if self.fua else EntryFlag(0))


class Device:
    """dm-log-writes in a device-mapper device, as in drivers/md: `lines` are its events, `entries` its log.

    A flush takes the completed writes with it when it is submitted, and puts them and itself into the log
    when it completes. Flushes complete in the order in which they were submitted, unless one `overtakes`.
    `twins`: equal writes may be in flight together, with a flush ahead of all of them or of none. `number`:
    what events call it; `lines`: events of other devices that one clock numbers with its own.
    """

    def __init__(
        self,
        *,
        overtakes: bool = False,
        twins: bool = False,
        number: str = "254,3",
        lines: list[str] | None = None,
    ) -> None:
        self.overtakes, self.twins, self.number = overtakes, twins, number
        self.lines: list[str] = [] if lines is None else lines
        self.entries: list[LogEntry] = []
        self.flying: list[Bio] = []
        self.done: list[Bio] = []
        self.marks: list[int] = []
        self._unflushed: list[Bio] = []
        self._flushes: list[Bio] = []

    def submit(self, letters: str, sector: int, sectors: int, *, preflush: bool, fua: bool) -> None:
        fua = fua and letters == "W" and sectors > 0
        preflush = (preflush and letters == "W") or not sectors
        key = (letters, sector, sectors, fua)
        untold = [b.of for b in self.flying if b.of is not None]
        equal = [b for b in self.flying + untold if (b.letters, b.sector, b.sectors, b.fua) == key]
        if sectors and equal and (not self.twins or preflush != equal[0].preflush):
            return
        bio = Bio(letters, sector, sectors, preflush, fua, len(self.lines))
        self._tell("queue", "F" * preflush, bio, "fsx [] 1")
        self.flying.append(bio)
        if preflush:
            bio.carried, self._unflushed = self._unflushed, []
            self._flushes.append(bio)

    def submit_twice(self, sector: int, other: int, sectors: int) -> None:
        """A write behind its copy, which is submitted first: the completion of both is told with the copy's,
        if that is the later one.
        """
        before = len(self.flying)
        for place in (sector, other):
            self.submit("W", place, sectors, preflush=False, fua=False)
        if len(self.flying) == before + 2:
            copy, bio = self.flying[-2:]
            bio.copy, copy.of = copy, bio

    def advance(self, number: int) -> None:
        """Let a bio in flight do its next step: its flush, or its data."""
        if not self.flying:
            return
        bio = self.flying[number % len(self.flying)]
        if bio.preflush and not bio.flushed:
            self._finish_flushes_up_to(bio)
            return
        self._log(bio) if bio.fua else self._unflushed.append(bio)
        if bio.copy in self.flying:
            self.flying.remove(bio)
            bio.completed = len(self.lines)
            return
        self._complete(bio)
        if bio.of is not None and bio.of not in self.flying and bio.of not in self.done:
            self._tell("complete", "", bio.of, "0")
            self.done.append(bio.of)

    def mark(self, text: str) -> None:
        self.entries.append(LogEntry(len(self.entries), 0, 0, EntryFlag.MARK, 0, text))
        self.marks.append(len(self.lines))
        self.lines.append(f"tracing_mark_write: powercut: {text}")

    def finish(self) -> None:
        while self.flying:
            self.advance(0)
        self.submit("W", 0, 0, preflush=True, fua=False)
        self.advance(0)
        self.entries.append(LogEntry(len(self.entries), 0, 0, EntryFlag.MARK, 0, END_MARK))

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def times(self) -> Times:
        return join(self.entries, read_events(self.text))

    def _finish_flushes_up_to(self, bio: Bio) -> None:
        while not bio.flushed:
            first = self._flushes.pop(self._flushes.index(bio) if self.overtakes else 0)
            first.flushed = True
            for write in first.carried:
                self._log(write)
            number = len(self.entries)
            self.entries.append(LogEntry(number, 0, 0, EntryFlag.FLUSH, 0))
            if not first.sectors:
                first.entry = number
                self._complete(first)

    def _complete(self, bio: Bio) -> None:
        self.flying.remove(bio)
        bio.completed = len(self.lines)
        self._tell("complete", "F" * (not bio.sectors), bio, "0")
        self.done.append(bio)

    def _log(self, bio: Bio) -> None:
        bio.entry = len(self.entries)
        self.entries.append(LogEntry(bio.entry, bio.sector, bio.sectors, bio.flags, 0))

    def _tell(self, word: str, before: str, bio: Bio, last: str) -> None:
        letters = f"{before}{bio.letters}{'F' * bio.fua}SM"
        self.lines.append(f"block_bio_{word}: {self.number} {letters} {bio.sector} + {bio.sectors} [{last}]")


step_of_a_device = st.one_of(
    st.tuples(
        st.sampled_from("WWWWD"),
        st.integers(0, 3).map(lambda n: 8 * n),
        st.sampled_from([8, 8, 16, 0]),
        st.booleans(),
        st.booleans(),
    ),
    st.integers(0, 7),
    st.just("mark"),
)
_steps = st.lists(step_of_a_device, max_size=60)


@st.composite
def devices(draw: st.DrawFn, *, overtakes: bool = False, twins: bool = False) -> Device:
    device = Device(overtakes=overtakes, twins=twins)
    for number, step in enumerate(draw(_steps)):
        if step == "mark":
            device.mark(f"app {number}: a b")
        else:
            do(device, step)
    device.finish()
    return device


def do(device: Device, step: object) -> None:
    match step:
        case int():
            device.advance(step)
        case str(letters), int(sector), int(sectors), bool(preflush), bool(fua):
            kind = letters if sectors else "W"
            place = sector if sectors else 0
            device.submit(kind, place, sectors, preflush=preflush, fua=fua)


@st.composite
def pairs(draw: st.DrawFn, *, overtakes: bool = False) -> tuple[Device, Device]:
    """Two devices with one clock. The first takes the marks."""
    first = Device(overtakes=overtakes, number="254,3")
    second = Device(overtakes=overtakes, number="254,4", lines=first.lines)
    first.mark(DEVICES)
    for number, (step, other) in enumerate(
        draw(st.lists(st.tuples(step_of_a_device, st.booleans()), max_size=60))
    ):
        if step == "mark":
            first.mark(f"app {number}: a b")
        else:
            do(second if other else first, step)
    first.finish()
    second.finish()
    return first, second


DEVICES = "devices 254,3+0 254,4+1024"


@pytest.mark.fuzz
@given(devices())
def test_the_join_finds_the_times_that_the_device_knows(device: Device) -> None:
    times = device.times
    known = [
        TimedWrite(b.entry, b.submitted, b.completed, b.fua, b.preflush) for b in device.done if b.sectors
    ]
    assert list(times.writes) == sorted(known, key=lambda w: w.submitted)
    assert [m.at for m in times.marks] == device.marks
    assert [device.entries[m.entry].mark for m in times.marks] == [m.text for m in times.marks]
    assert times.events == len(device.lines)


step_with_copies = step_of_a_device | st.tuples(
    st.integers(0, 3).map(lambda n: 8 * n), st.integers(8, 11).map(lambda n: 8 * n), st.just(8)
)


@st.composite
def devices_with_copies(draw: st.DrawFn) -> Device:
    device = Device()
    for number, step in enumerate(draw(st.lists(step_with_copies, max_size=60))):
        match step:
            case "mark":
                device.mark(f"app {number}: a b")
            case int(sector), int(other), int(sectors):
                device.submit_twice(sector, other, sectors)
            case _:
                do(device, step)
    device.finish()
    return device


@pytest.mark.fuzz
@given(devices_with_copies())
def test_what_is_told_with_its_copy_is_durable_by_the_flush_that_made_it_so(device: Device) -> None:
    """btrfs under a schedule could not be recorded: the kernel had told a completion after the mark that the
    log has behind the write.
    """
    known, times = {b.entry: b for b in device.done if b.sectors}, device.times
    flushes = sorted((b.submitted, b.completed) for b in device.done if b.preflush)
    one_at_a_time = all(end < begin for (_, end), (begin, _) in itertools.pairwise(flushes))
    for write in times.writes:
        real = known[write.entry]
        assert write.submitted == real.submitted
        if not write.fua:
            for at, _ in flushes:
                found, truly = write.completed < at, real.completed <= at
                assert found == truly or (truly and not one_at_a_time)


@pytest.mark.parametrize("marked", [True, False])
def test_a_write_that_completed_at_once_is_durable_by_the_flush_that_took_it_along(*, marked: bool) -> None:
    """The kernel had told of it after that flush. It counted as volatile from then on: a legal state had lost
    what was durable. With a mark between, the recording was refused.
    """
    device = Device()
    device.submit_twice(0, 64, 8)
    device.advance(1)
    device.submit("W", 0, 0, preflush=True, fua=False)
    device.advance(1)
    if marked:
        device.mark("app a")
    device.finish()
    write = next(w for w in device.times.writes if device.entries[w.entry].sector == 64)
    assert (write.entry, write.submitted, write.completed) == (0, 1, 1)


@pytest.mark.fuzz
@given(devices(twins=True))
def test_the_submission_of_equal_writes_in_flight_together_lies_between_the_bounds(device: Device) -> None:
    known = {b.entry: b for b in device.done if b.sectors}
    found = {w.entry: w for w in device.times.writes}
    assert found.keys() == known.keys()
    for entry, write in found.items():
        real = known[entry]
        assert write.earliest <= real.submitted <= write.submitted < write.completed == real.completed
        assert (write.fua, write.preflush) == (real.fua, real.preflush)


def covered(pairs: list[tuple[int, int]]) -> list[int]:
    """For each completion of a flush, the latest submission of those that have completed by then."""
    return list(itertools.accumulate((submitted for _, submitted in sorted(pairs)), max))


@pytest.mark.fuzz
@given(devices() | devices(overtakes=True))
def test_what_flushes_in_flight_together_make_durable_lies_between_the_bounds(device: Device) -> None:
    """Whichever completes first: no less is durable by one reading, and no more by the other."""
    try:
        times = device.times
    except EventsDiffer:
        assert device.overtakes  # then the n-th equal write in the log need not be the n-th that completed
        places = [(b.letters, b.sector, b.sectors, b.fua) for b in device.done if b.sectors]
        assert len(set(places)) < len(places)
        return
    known = [(b.completed, b.submitted) for b in device.done if not b.sectors]
    assert [f.completed for f in times.flushes] == sorted(completed for completed, _ in known)
    for real, found in zip(covered(known), times.flushes, strict=True):
        assert found.earliest <= real <= found.submitted < found.completed
    assert sorted(f.entry for f in times.flushes) == [f.entry for f in times.flushes]
    if not device.overtakes:
        assert {f.entry for f in times.flushes} == {b.entry for b in device.done if not b.sectors}


@pytest.mark.fuzz
@given(devices(), st.data())
def test_damaged_events_are_refused(device: Device, data: st.DataObject) -> None:
    """A missing line, a doubled one, a line cut off, marks swapped: each gives wrong times, or none."""
    lines = list(device.lines)
    at = data.draw(st.integers(0, len(lines) - 1))
    damages: list[Callable[[], object]] = [
        lambda: lines.pop(at),
        lambda: lines.insert(at, lines[at]),
        lambda: lines.insert(at, "CPU:0 [LOST 7 EVENTS]"),
        lambda: lines.__setitem__(
            at, lines[at].replace("[0]", "[-5]").replace("powercut: app", "powercut: App")
        ),
    ]
    data.draw(st.sampled_from(damages))()
    if lines == device.lines:
        return
    with pytest.raises(EventsDiffer):
        join(device.entries, read_events("".join(f"{line}\n" for line in lines)))


def _sample() -> Device:
    """Two ordinary writes, the second of them rewritten, and a FUA write with a flush ahead of it."""
    device = Device()
    device.mark("begin 0")
    for sector in (8, 16):
        device.submit("W", sector, 8, preflush=False, fua=False)
    device.advance(1)
    device.submit("W", 16, 8, preflush=False, fua=False)
    device.submit("W", 24, 8, preflush=True, fua=True)
    for _ in range(2):
        device.advance(0)
    device.advance(0)
    device.advance(0)
    device.mark("ack 0")
    device.finish()
    return device


def test_a_mark_that_is_made_one_event_before_what_stands_in_front_of_it_is_refused() -> None:
    """An acknowledgement would count ahead of the write that it waited for."""
    device = _sample()
    at = device.lines.index("tracing_mark_write: powercut: ack 0")
    device.lines[at - 1 : at + 1] = [device.lines[at], device.lines[at - 1]]
    with pytest.raises(EventsDiffer, match=f"'ack 0' was made in event {at - 1}, .* completed in event {at}"):
        join(device.entries, read_events(device.text))


def test_a_fua_write_is_logged_ahead_of_an_older_write_and_keeps_its_time() -> None:
    device = _sample()
    assert [(e.sector, bool(e.flags & EntryFlag.FUA)) for e in device.entries if e.sectors] == [
        (16, False),
        (24, True),
        (8, False),
        (16, False),
    ]
    times = device.times
    assert [(device.entries[w.entry].sector, w.fua, w.preflush) for w in times.writes] == [
        (8, False, False),
        (16, False, False),
        (16, False, False),
        (24, True, True),
    ]
    assert times.flushes == (TimedFlush(len(device.entries) - 2, times.events - 2, times.events - 1),)


def test_of_two_flushes_the_log_tells_which_one_completed() -> None:
    """A write between the two counted as durable when the first completed."""
    device = _flushes_with_a_write_between(first_carries=True)
    first, second = (f for f in device.times.flushes[:2])
    assert [f.since for f in (first, second)] == [None, None]
    assert [f.submitted for f in (first, second)] == [2, 5]


def test_a_flush_that_overtakes_another_makes_its_writes_durable_at_once() -> None:
    """By the log it was the second one: a state in which its write is lost would be no state at all."""
    device = _flushes_with_a_write_between(first_carries=True, overtakes=True)
    first, second = (f for f in device.times.flushes[:2])
    assert (first.submitted, first.since) == (5, 2)
    assert (second.submitted, second.since) == (5, None)


def test_of_flushes_that_the_log_does_not_tell_apart_both_readings_are_kept() -> None:
    device = _flushes_with_a_write_between(first_carries=False)
    first, second = (f for f in device.times.flushes[:2])
    assert (first.submitted, first.since) == (3, 0)
    assert (second.submitted, second.since) == (3, None)


def _flushes_with_a_write_between(*, first_carries: bool, overtakes: bool = False) -> Device:
    """Two flushes in flight together, and a write that completes between their submissions."""
    device = Device(overtakes=overtakes)
    if first_carries:
        device.submit("W", 8, 8, preflush=False, fua=False)
        device.advance(0)
    device.submit("W", 0, 0, preflush=True, fua=False)
    device.submit("W", 16, 8, preflush=False, fua=False)
    device.advance(1)
    device.submit("W", 0, 0, preflush=True, fua=False)
    device.advance(1 if overtakes else 0)
    device.advance(0)
    device.finish()
    return device


def test_a_flush_ahead_of_data_that_overtakes_another_stands_before_the_mark_behind_it() -> None:
    """It was taken for the other one, which completes behind the mark: the recording was refused."""
    device = Device(overtakes=True)
    device.submit("W", 0, 0, preflush=True, fua=False)
    device.submit("W", 8, 8, preflush=True, fua=True)
    device.advance(1)
    device.mark("begin 0")
    device.finish()
    first, _ = device.times.flushes
    assert [e.flags for e in device.entries[:2]] == [EntryFlag.FLUSH, EntryFlag.MARK]
    assert (first.completed, first.entry) == (3, 2)


def test_a_flush_that_took_along_what_completed_after_its_event_is_not_told() -> None:
    """A task that submits a flush waits behind another one's: the first FLUSH entry, with all writes in front
    of it, is the second flush. Or the last of these completed just after the first flush's event.
    """
    device = _flushes_with_a_write_between(first_carries=True)
    flush, write = device.entries[1:3]
    shown = [device.entries[0], write, flush, *device.entries[3:]]
    entries = [replace(entry, index=number) for number, entry in enumerate(shown)]
    first, second, *_ = join(entries, read_events(device.text)).flushes
    assert (first.submitted, first.since) == (5, 2)
    assert (second.submitted, second.since) == (5, None)


def test_a_write_that_is_logged_behind_a_flush_that_took_it_along_is_refused() -> None:
    device = _flushes_with_a_write_between(first_carries=True)
    moved = device.entries[0]
    shown = [*device.entries[1:4], moved, *device.entries[4:]]
    entries = [replace(entry, index=number) for number, entry in enumerate(shown)]
    with pytest.raises(EventsDiffer, match="entry 3 had completed when a flush was submitted"):
        join(entries, read_events(device.text))


def test_data_that_is_logged_before_the_flush_ahead_of_it_is_refused() -> None:
    """Nothing tested that: a log with the two swapped was taken."""
    device = Device()
    device.submit("W", 8, 8, preflush=True, fua=True)
    device.advance(0)
    device.advance(0)
    device.finish()
    flush, data, *rest = device.entries
    entries = [replace(data, index=0), replace(flush, index=1), *rest]
    with pytest.raises(EventsDiffer, match="entry 0 was written before the flush ahead of it, entry 1"):
        join(entries, read_events(device.text))


def test_an_event_without_an_entry_is_refused() -> None:
    """A write that the log does not have, of a place that it has or of another: its loss is no state."""
    for sector in (8, 80):
        device = _sample()
        for word, last in (("queue", "fsx"), ("complete", "0")):
            device.lines.append(f"block_bio_{word}: 254,3 WS {sector} + 8 [{last}]")
        with pytest.raises(EventsDiffer, match=f"has no entry in the log: write of sectors {sector} "):
            _ = device.times


def test_swapped_marks_are_refused() -> None:
    device = _sample()
    begin, ack = device.marks
    device.lines[begin], device.lines[ack] = device.lines[ack], device.lines[begin]
    with pytest.raises(EventsDiffer, match="they differ in mark 0"):
        _ = device.times


def test_a_mark_before_what_the_log_has_before_it_is_refused() -> None:
    device = _sample()
    device.lines.insert(1, device.lines.pop(device.marks[1]))
    with pytest.raises(EventsDiffer, match="what the log has before it completed"):
        _ = device.times


def test_an_entry_without_events_is_refused() -> None:
    device = _sample()
    device.entries.append(LogEntry(len(device.entries), 80, 8, EntryFlag(0), 0))
    with pytest.raises(EventsDiffer, match="write of sectors 80 \\+ 8, occurrence 0"):
        _ = device.times


def _equal_writes(*letters: str) -> tuple[list[LogEntry], str]:
    lines = [f"block_bio_queue: 254,0 {of_it} 8 + 8 [a]\n" for of_it in letters]
    lines += ["block_bio_complete: 254,0 WS 8 + 8 [0]\n"] * 2
    return [LogEntry(i, 8, 8, EntryFlag(0), 0) for i in range(2)], "".join(lines)


def test_equal_writes_in_flight_together_may_each_be_the_one_submitted_first() -> None:
    """Direct I/O does that. They voided the recording, however often it was made again."""
    entries, text = _equal_writes("WS", "WS")
    assert join(entries, read_events(text)).writes == (
        TimedWrite(0, 1, 2, since=0),
        TimedWrite(1, 1, 3, since=0),
    )


def test_equal_writes_with_a_flush_ahead_of_each_may_be_either() -> None:
    """md writes the superblock of a bitmap so, twice at once: no recording of such a mirror counted."""
    lines = ["block_bio_queue: 254,0 FWFS 8 + 8 [a]\n"] * 2
    lines += ["block_bio_complete: 254,0 WFS 8 + 8 [0]\n"] * 2
    flags = [EntryFlag.FLUSH, EntryFlag.FLUSH, EntryFlag.FUA, EntryFlag.FUA]
    entries = [LogEntry(i, 8, 8 if f is EntryFlag.FUA else 0, f, 0) for i, f in enumerate(flags)]
    times = join(entries, read_events("".join(lines)))
    assert times.writes == (
        TimedWrite(2, 1, 2, fua=True, preflush=True, since=0),
        TimedWrite(3, 1, 3, fua=True, preflush=True, since=0),
    )
    assert times.flushes == ()


@pytest.mark.parametrize("letters", [("FWS", "WS"), ("WS", "FWS")])
def test_equal_writes_with_a_flush_ahead_of_one_of_them_are_refused(letters: tuple[str, str]) -> None:
    entries, text = _equal_writes(*letters)
    with pytest.raises(EventsDiffer, match="two equal writes are in flight at once"):
        join(entries, read_events(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("block_bio_queue: 254,0 N 8 + 8 [a]\n", "neither a write nor a discard"),
        ("block_bio_complete: 254,0 W 8 + 8 [-5]\n", "errno -5"),
        ("block_bio_queue: 254,0 W 8 + 8 [a]", "in the middle of a line"),
        ("cpu0: overrun: 7\n", "event 0 of 1 is none"),
        (f"block_bio_queue: 254,0 W {'9' * 5000} + 8 [a]\n", "event 0 of 1 is none"),
    ],
)
def test_what_are_no_events_is_refused(text: str, told: str) -> None:
    with pytest.raises(EventsDiffer, match=told):
        read_events(text)


def test_events_of_a_device_that_the_log_does_not_name_are_refused() -> None:
    text = "block_bio_queue: 254,0 W 8 + 8 [a]\nblock_bio_queue: 254,1 W 0 + 8 [a]\n"
    with pytest.raises(EventsDiffer, match="several devices: 254,0, 254,1"):
        join([], read_events(text))
    named = [LogEntry(0, 0, 0, EntryFlag.MARK, 0, "devices 254,0+0 254,2+1024")]
    with pytest.raises(EventsDiffer, match="several devices: 254,0, 254,1, 254,2"):
        join(named, read_events(f"tracing_mark_write: powercut: {named[0].mark}\n{text}"))


def test_a_kernel_without_events_gives_no_times_and_says_why() -> None:
    text = no_events("tracefs: trace_clock:\nnot found")
    assert times_of([], text) is None
    assert why_no_events(text) == "tracefs: trace_clock: not found"
    assert why_no_events(_sample().text) == ""


def applied(device: Device, order: Sequence[int]) -> dict[int, int]:
    """What each sector holds: the entry that wrote it last."""
    entries = (device.entries[n] for n in order)
    return {s: e.index for e in entries for s in range(e.sector, e.sector + e.sectors)}


def told(device: Device, real: Sequence[int], asked: list[tuple[int, ...]] | None = None) -> int | None:
    """What is found of a device that applied its writes in the order `real`."""
    holds = applied(device, real)

    def differs(order: Sequence[int]) -> int | None:
        if asked is not None:
            asked.append(tuple(order))
        differing = [s for s, entry in applied(device, order).items() if holds[s] != entry]
        return min(differing) * SECTOR_BYTES + 7 if differing else None

    return first_difference(device.entries, device.times, differs)


def test_writes_are_replayed_as_they_were_submitted() -> None:
    device = _sample()
    asked: list[tuple[int, ...]] = []
    order = [w.entry for w in device.times.writes]
    assert told(device, order, asked) is None
    assert asked == [tuple(order)]
    assert [device.entries[n].sector for n in order] == [8, 16, 16, 24]


def test_a_device_that_turned_two_writes_round_that_were_not_in_flight_together_is_refused() -> None:
    device = _sample()
    a, b, c, d = (w.entry for w in device.times.writes)
    assert told(device, (a, c, b, d)) == 16 * SECTOR_BYTES + 7


def test_each_pair_of_writes_in_flight_together_may_have_been_applied_either_way() -> None:
    """All had to fit the order of submission, or all that of completion: a queue that turned only some round
    voided the recording.
    """
    device = Device()
    for sector in (8, 40, 72):
        device.submit("W", sector, 8, preflush=False, fua=False)
        device.submit("W", sector, 16, preflush=False, fua=False)
    device.finish()
    short_1, long_1, short_2, long_2, short_3, long_3 = (w.entry for w in device.times.writes)
    for real in (
        (short_1, long_1, short_2, long_2, short_3, long_3),
        (short_1, long_1, long_2, short_2, short_3, long_3),
        (long_1, short_1, short_2, long_2, long_3, short_3),
    ):
        assert told(device, real) is None


@given(devices(twins=True), st.data())
def test_whatever_order_a_device_may_apply_writes_in_is_found(device: Device, data: st.DataObject) -> None:
    """Of each two writes that were in flight together, any first."""
    left, real = list(device.times.writes), list[int]()
    while left:
        ready = [w for w in left if not any(v.completed < w.submitted for v in left)]
        chosen = data.draw(st.sampled_from(ready))
        left.remove(chosen)
        real.append(chosen.entry)
    assert told(device, real) is None
