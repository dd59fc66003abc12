"""The merge of two devices' logs: held against simulated devices."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EventsDiffer, WriteLogError
from harness.model import SECTOR_BYTES, EntryFlag, LogEntry
from harness.states import LegalStates
from harness.states.models import Drop
from harness.tests.states.reference import is_durable
from harness.tests.writelog.test_events import DEVICES, Device, pairs, step_of_a_device
from harness.writelog import Discard, Flush, MarkText, Step, Write, WriteLog, read_log, write_log
from harness.writelog.events import times_of
from harness.writelog.log import devices_of
from harness.writelog.merge import _timed, log_places, merge_logs, written_through
from harness.writelog.times import Times

SECOND_AT = 1 << 20
BEGIN = 1024
"""The sector at which the second device begins."""


def step_of(entry: LogEntry, device: int) -> Step:
    if EntryFlag.MARK in entry.flags:
        return MarkText(entry.mark)
    if EntryFlag.FLUSH in entry.flags:
        return Flush()
    if EntryFlag.DISCARD in entry.flags:
        return Discard(entry.sector, entry.sectors)
    return Write(entry.sector, data_of(device, entry.index, entry.sectors), entry.flags)


def data_of(device: int, entry: int, sectors: int) -> bytes:
    return bytes([device, entry]) * (sectors * SECTOR_BYTES // 2)


def merged(pair: tuple[Device, Device], folder: Path) -> WriteLog:
    device, other, log = folder / "device", folder / "other", folder / "merged"
    write_log(device, [step_of(e, 0) for e in pair[0].entries])
    write_log(other, [step_of(e, 1) for e in pair[1].entries])
    with device.open("r+b") as target:
        target.seek(SECOND_AT)
        target.write(other.read_bytes())
    merge_logs(device, (0, SECOND_AT), pair[0].text, log)
    return read_log(log)


def times_in(log: WriteLog, text: str) -> Times:
    times = times_of(log.entries, text)
    assert times is not None
    return times


@pytest.mark.fuzz
@given(pairs())
def test_the_merged_log_has_the_times_and_the_data_of_both(pair: tuple[Device, Device]) -> None:
    """Both of a device's: its own log's order, its sectors behind the first's, its data."""
    with tempfile.TemporaryDirectory() as folder:
        log = merged(pair, Path(folder))
        data = log.path.read_bytes()
    times = times_in(log, pair[0].text)
    assert log.devices.begins == (0, BEGIN)
    assert times.events == len(pair[0].lines)
    for number, device in enumerate(pair):
        known = {b.submitted: b for b in device.done if b.sectors}
        found = [w for w in times.writes if w.device == number]
        assert len(found) == len(known)
        for write in found:
            bio, entry = known[write.submitted], log.entries[write.entry]
            assert (write.completed, write.fua, write.preflush) == (bio.completed, bio.fua, bio.preflush)
            assert (entry.sector, entry.sectors) == (number * BEGIN + bio.sector, bio.sectors)
            if EntryFlag.DISCARD not in entry.flags:
                written = data[entry.data_offset : entry.data_offset + entry.sectors * SECTOR_BYTES]
                assert written == data_of(number, bio.entry, bio.sectors)
        flushes = [(f.earliest, f.completed) for f in times.flushes if f.device == number]
        assert flushes == [(b.submitted, b.completed) for b in device.done if not b.sectors]


@pytest.mark.fuzz
@given(pairs())
def test_each_prefix_of_the_merged_log_is_what_a_power_cut_may_leave(pair: tuple[Device, Device]) -> None:
    """At some time all that is durable has persisted, what has persisted was submitted, and the marks fit."""
    with tempfile.TemporaryDirectory() as folder:
        log = merged(pair, Path(folder))
    times = times_in(log, pair[0].text)
    for prefix in range(log.entry_count + 1):
        assert any(is_left(prefix, at, times) for at in range(times.events + 1)), prefix


def is_left(prefix: int, at: int, times: Times) -> bool:
    """Whether the first entries may be what has persisted when the power fails just before the event `at`."""
    persisted = (w.submitted < at if w.entry < prefix else not is_durable(w, at, times) for w in times.writes)
    marks = ((m.at < at) == (m.entry < prefix) for m in times.marks)
    return all(persisted) and all(marks)


def two() -> tuple[Device, Device]:
    """Data on the first device; then a commit on the second, which is acknowledged."""
    first = Device(number="254,3")
    second = Device(number="254,4", lines=first.lines)
    first.mark(DEVICES)
    first.mark("begin 0")
    first.submit("W", 8, 8, preflush=False, fua=False)
    first.advance(0)
    second.submit("W", 8, 8, preflush=False, fua=False)
    second.advance(0)
    second.submit("W", 16, 8, preflush=True, fua=True)
    second.advance(0)
    second.advance(0)
    first.mark("ack 0")
    first.finish()
    second.finish()
    return first, second


def test_a_prefix_at_an_acknowledgement_lacks_what_no_flush_of_its_own_device_had_made_durable(
    tmp_path: Path,
) -> None:
    """One log of both devices had the data in front of the commit: no prefix showed a device that was not
    flushed.
    """
    log = merged(two(), tmp_path)
    assert [e.mark or e.sector for e in log.entries] == [
        DEVICES, "begin 0", BEGIN + 8, BEGIN, BEGIN + 16, "ack 0", 8, 0, BEGIN, "dm-log-writes-end",
    ]  # fmt: skip
    assert [log.device(e) for e in log.entries] == [0, 0, 1, 1, 1, 0, 0, 0, 1, 0]


@st.composite
def without_cache(draw: st.DrawFn) -> Device:
    """A device without a volatile cache: the kernel sends neither flushes nor FUA. The agent sends a flush at
    last, so that all is logged.
    """
    device, marks = Device(twins=draw(st.booleans())), 0
    for step in draw(st.lists(step_of_a_device, max_size=40)):
        match step:
            case "mark":
                device.mark(f"{'ack' if marks % 2 else 'begin'} {marks // 2}")
                marks += 1
            case (letters, sector, sectors, _, _) if sectors:
                device.submit(letters, sector, sectors, preflush=False, fua=False)
            case int(number):
                device.advance(number)
    device.finish()
    return device


@pytest.mark.fuzz
@given(without_cache())
def test_in_every_state_of_a_disk_without_a_cache_each_completed_write_is_durable(device: Device) -> None:
    """The law of write-through. Such a disk's log came whole behind all marks, as one that nothing flushed:
    an acknowledged write was lost in a legal state, and in a prefix.
    """
    with tempfile.TemporaryDirectory() as folder:
        raw, log = Path(folder) / "device", Path(folder) / "merged"
        write_log(raw, [step_of(e, 0) for e in device.entries])
        merge_logs(raw, (0,), device.text, log, write_through=True)
        written = read_log(log)
    times = times_in(written, written_through(device.text))
    assert len(times.writes) == len([e for e in device.entries if e.sectors])
    legal = LegalStates(written, times)
    completed = {w.entry: w.completed for w in times.writes}
    for crash_time in legal.crash_times:
        open_ = {*crash_time.choices.volatile, *crash_time.choices.absent}
        losable = {legal.chunks[n].entry for n in open_}
        twins = {c.entry for place in legal._overlaps.places for n in place.chunks for c in [legal.chunks[n]]}
        assert all(completed[entry] >= crash_time.at for entry in losable - twins)
    for prefix in range(written.entry_count + 1):
        assert any(is_left(prefix, at, times) for at in range(times.events + 1)), prefix
    assert list(Drop().states(written)) == []


def test_the_events_of_a_disk_without_a_cache_say_that_writes_are_durable() -> None:
    text = (
        "block_bio_queue: 254,0 W 8 + 8 [fsx]\nblock_bio_complete: 254,0 WSM 8 + 8 [0]\n"
        "block_bio_queue: 254,0 DS 8 + 8 [fsx]\nblock_bio_queue: 254,0 FW 0 + 0 [fsx]\n"
        "tracing_mark_write: powercut: app block_bio_queue: 254,0 W 8 + 8 [fsx]\n"
    )
    said = written_through(text)
    assert said == (
        "block_bio_queue: 254,0 WF 8 + 8 [fsx]\nblock_bio_complete: 254,0 WFSM 8 + 8 [0]\n"
        "block_bio_queue: 254,0 DFS 8 + 8 [fsx]\nblock_bio_queue: 254,0 FW 0 + 0 [fsx]\n"
        "tracing_mark_write: powercut: app block_bio_queue: 254,0 W 8 + 8 [fsx]\n"
    )
    assert written_through(said) == said


def test_a_log_that_reaches_into_the_other_is_refused(tmp_path: Path) -> None:
    pair = two()
    merged(pair, tmp_path)
    device, second = tmp_path / "device", 4096
    write_log(device, [MarkText(DEVICES), Write(8, bytes(1 << 16)), Flush()])
    with device.open("r+b") as log:
        log.seek(second)
        log.write((tmp_path / "other").read_bytes())
    with pytest.raises(WriteLogError, match="the log at byte 0 reaches into the next"):
        merge_logs(device, (0, second), pair[0].text, tmp_path / "merged")


def test_events_of_another_recording_are_refused(tmp_path: Path) -> None:
    pair = two()
    merged(pair, tmp_path)
    lines = [line for line in pair[0].lines if "254,4 FWFSM" not in line]
    with pytest.raises(EventsDiffer):
        merge_logs(
            tmp_path / "device", (0, SECOND_AT), "".join(f"{line}\n" for line in lines), tmp_path / "merged"
        )


@pytest.mark.parametrize(
    "mark",
    [
        "devices ",
        "devices 254,3",
        "devices 254,3+8 254,4+16",
        "devices 254,3+0 254,3+8",
        "devices 1,3+0 1,4+0 2",
    ],
)
def test_a_mark_that_names_no_devices_that_can_be_is_refused(mark: str) -> None:
    with pytest.raises(WriteLogError, match="names no devices"):
        devices_of([LogEntry(0, 0, 0, EntryFlag.MARK, 0, mark)])


def test_each_log_begins_at_a_page() -> None:
    assert log_places(1 << 30, 2) == (0, 1 << 29)
    assert log_places((1 << 30) + 4096 + 512, 2) == (0, 1 << 29)
    assert log_places(3 * 4096 + 512, 3) == (0, 4096, 8192)


def test_what_is_logged_before_a_flush_is_no_later_than_that() -> None:
    """A FUA write may complete after the flush behind it in its log: by its own time alone, entries of two
    logs came in an order in which neither log has them.
    """
    entries = [LogEntry(i, 8 * i, 8, EntryFlag(0), 0) for i in range(4)]
    logged = {0: 10, 1: 8, 3: 30}
    assert list(_timed(0, entries, logged, 40)) == [
        (at, 0, entry) for at, entry in zip([8, 8, 30, 30], entries, strict=True)
    ]
