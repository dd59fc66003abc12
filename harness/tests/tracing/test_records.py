"""Records as JSON lines, and those that the two sources make of the same events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.filesystems.profiles import select_profiles
from harness.filesystems.tracepoints import SpanEvents
from harness.tracing.records import (
    Checkpoint,
    Commit,
    Lost,
    Record,
    Span,
    decode_lines,
    encode_lines,
    latencies_us,
)
from harness.tracing.tracefs import parse_trace

SAMPLES = Path(__file__).parent / "samples"
DISK = (254, 16)
NUMBERS = st.integers(0, 1 << 40)
RECORDS = st.one_of(
    st.builds(Commit, *[NUMBERS] * 10),
    st.builds(Checkpoint, *[NUMBERS] * 6),
    st.builds(Span, st.sampled_from(["fsync", "log-write"]), NUMBERS, st.none() | NUMBERS),
    st.builds(Lost, NUMBERS),
)


def sample(name: str) -> list[Record]:
    return parse_trace((SAMPLES / f"{name}.trace").read_text(), DISK, spans(name))


def spans(name: str) -> Sequence[SpanEvents]:
    (traced,) = {p.tracing for p in select_profiles([name])}
    return traced.spans if traced else ()


@given(st.lists(RECORDS))
def test_lines_decode_to_what_was_encoded(records: list[Record]) -> None:
    assert decode_lines(encode_lines(records).decode()) == records


@pytest.mark.parametrize("line", ['{"type":"commit"}', '{"type":"guess","us":1}', "not json", "[]"])
def test_a_line_that_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_lines(line)


def test_a_commit_takes_as_long_as_its_phases() -> None:
    assert Commit(0, 1, 1, 20, 300, 4000).us == 4321


def test_latencies_are_of_what_is_asked_for() -> None:
    records: list[Record] = [Commit(0, 1, 1, 1, 1, 1), Span("fsync", 5, 7), Span("transaction", 9), Lost(1)]
    assert latencies_us(records, "commit") == [4]
    assert latencies_us(records, "fsync") == [7]
    assert latencies_us(records, "transaction") == []


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "f2fs"])
def test_bcc_and_tracefs_saw_the_same(name: str) -> None:
    by_bcc = decode_lines((SAMPLES / f"{name}.jsonl").read_text())
    by_tracefs = sample(name)
    assert [_counted(r) for r in by_bcc] == [_counted(r) for r in by_tracefs]
    for a, b in zip(by_bcc, by_tracefs, strict=True):
        if not isinstance(a, Lost | Checkpoint) and not isinstance(b, Lost | Checkpoint):
            # Each event called one after the other: they differ, and lie over each other all the same.
            assert max(a.at_us, b.at_us) <= min(a.at_us + (a.us or 200), b.at_us + (b.us or 200))


def _counted(record: Record) -> tuple[object, ...]:
    """What does not depend on when an event was noticed."""
    match record:
        case Commit():
            return ("commit", record.transaction, record.sync, record.handles, record.blocks, record.logged)
        case Checkpoint():
            return ("checkpoint", record.transaction, record.written, record.dropped, record.forced)
        case Span():
            return ("span", record.what, record.us is None)
        case Lost():
            return ("lost", record.records)


def test_the_phases_of_a_commit_of_ext4() -> None:
    commits = [r for r in sample("ext4") if isinstance(r, Commit)]
    assert [c.transaction for c in commits] == [2, 3, 4, 5]
    assert commits[0] == Commit(43232263, 2, 162, 340, 226, 4577, 0, 13, 6, 8)


def test_xfs_log_writes_begin_and_end_with_their_lsn() -> None:
    assert latencies_us(sample("xfs"), "log-write") == [1677, 2391, 509, 1429, 5604, 5363, 6410]


def test_a_checkpoint_of_f2fs_spans_all_its_stages() -> None:
    assert latencies_us(sample("f2fs"), "f2fs-checkpoint") == [30555, 2723, 1260, 2784]


def test_transactions_of_btrfs_are_counted_and_not_timed() -> None:
    found = [r for r in sample("btrfs") if isinstance(r, Span) and r.what == "transaction"]
    assert [r.us for r in found] == [None, None]


@pytest.mark.parametrize(("name", "fsyncs"), [("ext4", 8), ("xfs", 6), ("btrfs", 18), ("f2fs", 6)])
def test_fsync_is_timed_everywhere(name: str, fsyncs: int) -> None:
    assert len(latencies_us(sample(name), "fsync")) == fsyncs


def test_another_disk_s_commits_are_not_ours() -> None:
    found = parse_trace((SAMPLES / "ext4.trace").read_text(), (254, 32), ())
    assert {r.what for r in found if isinstance(r, Span)} == {"fsync"}
    assert not [r for r in found if not isinstance(r, Span)]


def test_a_commit_whose_beginning_is_missing_is_no_commit() -> None:
    text = (SAMPLES / "ext4.trace").read_text()
    for event in ("start_commit", "commit_locking", "commit_flushing", "commit_logging"):
        cut = "".join(line for line in text.splitlines(True) if f"jbd2_{event}: dev 254,16" not in line)
        assert latencies_us(parse_trace(cut, DISK, ()), "commit") == []


def test_events_that_found_no_room_are_told() -> None:
    text = (SAMPLES / "ext4.trace").read_text().replace("entries-written: 52/52", "entries-written: 52/58")
    assert parse_trace(text, DISK, ())[-1] == Lost(6)
    assert Lost not in {type(r) for r in sample("ext4")}
