"""The format: what was built is read back, and errors name a file that is not a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError, WriteLogError
from harness.model import SECTOR_BYTES, EntryFlag
from harness.tests.states.logs import logs, step_sectors
from harness.writelog import Discard, Flush, MarkText, Step, Write, read_log, select, write_log

S = SECTOR_BYTES


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def _sample(path: Path) -> list[Step]:
    steps: list[Step] = [
        MarkText("begin 0"),
        Write(1, b"1" * S),
        Write(2, b"2" * S, EntryFlag.METADATA),
        Flush(),
        Write(3, b"3" * S, EntryFlag.FUA | EntryFlag.FLUSH),
        MarkText("ack 0"),
        Discard(4, 2),
        Write(5, b"5" * S, EntryFlag.FLUSH),
        MarkText("end"),
    ]
    write_log(path, steps)
    return steps


@pytest.mark.fuzz
@given(logs)
def test_what_was_built_is_read(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    write_log(path, steps)
    log = read_log(path)
    assert [entry.index for entry in log.entries] == list(range(len(steps)))
    assert log.used_bytes == path.stat().st_size
    raw = path.read_bytes()
    for step, entry in zip(steps, log.entries, strict=True):
        assert entry.sectors == step_sectors(step)
        match step:
            case Write(sector, data, flags):
                assert (entry.sector, entry.flags) == (sector, flags)
                assert raw[entry.data_offset : entry.data_offset + len(data)] == data
            case Discard(sector, _):
                assert (entry.sector, entry.flags) == (sector, EntryFlag.DISCARD)
            case MarkText(text):
                assert entry.mark == text


@pytest.mark.fuzz
@given(logs, st.data())
def test_a_cut_log_is_refused(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    write_log(path, steps)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(WriteLogError):
        read_log(path)


def test_sectors_count_512_bytes_whatever_the_logs_unit(log_path: Path) -> None:
    write_log(log_path, [Write(16, b"x" * 4096), Discard(24, 8)], unit_bytes=4096)
    log = read_log(log_path)
    assert [(e.sector, e.sectors) for e in log.entries] == [(16, 8), (24, 8)]
    assert log.entries[0].data_offset == 8192
    assert log.used_bytes == 4 * 4096


def test_the_rest_of_a_log_device_is_not_used(log_path: Path) -> None:
    _sample(log_path)
    used = log_path.stat().st_size
    with log_path.open("ab") as file:
        file.truncate(1 << 20)
    assert read_log(log_path).used_bytes == used


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: b"", "is empty"),
        (lambda raw: raw[:100], "has 100 bytes"),
        (lambda raw: b"\x01" + raw[1:], "magic"),
        (lambda raw: raw[:8] + b"\x07" + raw[9:], "version 7"),
        (lambda raw: raw[:24] + b"\x01" + raw[25:], "sector size 513"),
        (lambda raw: raw[:-1], "entry 8 of 9 starts at byte"),
        (lambda raw: raw[: 512 * 3], "entry 1 of 9 ends at byte 1536"[:20]),
        (lambda raw: raw[: 512 + 17] + b"\x80" + raw[512 + 18 :], "unknown flags 0x8008"),
    ],
)
def test_what_is_wrong_is_named(log_path: Path, change: object, says: str) -> None:
    _sample(log_path)
    assert callable(change)
    log_path.write_bytes(change(log_path.read_bytes()))
    with pytest.raises(WriteLogError, match=says):
        read_log(log_path)


def test_a_missing_log_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(WriteLogError, match="cannot read"):
        read_log(tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(9)),
        ({"limit": 3}, range(3)),
        ({"limit": 99}, range(9)),
        ({"next_flush": True}, range(4)),
        ({"start_entry": 4, "next_flush": True}, range(4, 5)),
        ({"start_entry": 5, "next_flush": True}, range(5, 8)),
        ({"next_fua": True}, range(5)),
        ({"start_mark": "begin 0"}, range(1, 9)),
        ({"start_mark": "begin 0", "end_mark": "ack 0"}, range(1, 6)),
        ({"start_mark": "begin 0", "end_mark": "ack 0", "limit": 2}, range(1, 3)),
        ({"start_mark": "end"}, range(0)),
    ],
)
def test_select(log_path: Path, options: dict[str, object], expected: range) -> None:
    _sample(log_path)
    found = select(read_log(log_path), **options)  # type: ignore[arg-type]  # options of several types
    assert [entry.index for entry in found] == list(expected)


@pytest.mark.parametrize(
    "options", [{"start_mark": "none"}, {"start_mark": "ack 0", "end_mark": "begin 0"}, {"start_entry": 10}]
)
def test_select_names_what_is_missing(log_path: Path, options: dict[str, object]) -> None:
    _sample(log_path)
    with pytest.raises(UsageError, match=r"mark|entry 10"):
        select(read_log(log_path), **options)  # type: ignore[arg-type]  # options of several types
