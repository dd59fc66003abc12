"""Histories from marks, and recordings that are kept and found again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.recording import (
    ATTEMPTS,
    copy_recording,
    history_of,
    is_kept,
    load_recording,
    pack,
    record,
    unpack,
)
from harness.errors import GuestLost, LogDiffers, PowercutError, StoreError, WriteLogError
from harness.filesystems.profiles import select_profiles
from harness.guests.worker import Worker
from harness.model import CaseId, EntryFlag, LogEntry, Workload
from harness.workloads.load import load_workload, parse_operation
from harness.writelog import MarkText, write_log

OPERATIONS = [parse_operation("create f"), parse_operation("fsync f")]
CASE = CaseId("ext4", "ordered", "append-fsync")


def entries(*marks: str) -> list[LogEntry]:
    """A write between any two marks."""
    found: list[LogEntry] = []
    for text in marks:
        found.append(LogEntry(len(found), 0, 8, EntryFlag(0), 0))
        found.append(LogEntry(len(found), 0, 0, EntryFlag.MARK, 0, text))
    return found


def test_marks_tell_the_history() -> None:
    log = entries("begin 0", "ack 0", "begin 1", "ack 1", "end", "unmounted", "dm-log-writes-end")
    history = history_of(log, OPERATIONS)
    assert [(s.begin, s.ack) for s in history.steps] == [(1, 3), (5, 7)]
    assert history.position(4) == history.position(5)
    position = history.position(6)
    assert (position.begun, position.acked) == (2, 1)


@pytest.mark.parametrize(
    "marks",
    [
        (),
        ("begin 0", "ack 0", "begin 1"),
        ("begin 0", "begin 1", "ack 0", "ack 1"),
        ("begin 0", "ack 0", "begin 0", "ack 0"),
        ("begin 0", "ack 0", "begin 1", "ack 1", "begin 2"),
    ],
)
def test_marks_that_tell_another_history_are_refused(marks: tuple[str, ...]) -> None:
    with pytest.raises(WriteLogError) as caught:
        history_of(entries(*marks), OPERATIONS)
    assert "record again" in str(caught.value)


@given(data=st.binary(max_size=5000))
def test_what_is_packed_unpacks_to_the_same(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("pack")
    (folder / "image").write_bytes(data)
    pack(folder / "image", folder / "kept" / "image.zst")
    assert unpack(folder / "kept" / "image.zst", folder / "again").read_bytes() == data


def test_a_recording_that_is_not_there_says_so(tmp_path: Path) -> None:
    (profile,) = select_profiles([CASE.configuration])
    with pytest.raises(StoreError) as caught:
        load_recording(CASE, profile, load_workload(CASE.workload), tmp_path, tmp_path)
    assert str(CASE) in str(caught.value)
    with pytest.raises(StoreError):
        copy_recording(CASE, tmp_path, tmp_path / "cases")


def test_a_recording_counts_as_kept_only_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "ext4-ordered" / CASE.workload
    folder.mkdir(parents=True)
    (folder / "log.zst").write_bytes(b"")
    assert not is_kept(CASE, tmp_path)
    (folder / "console.txt").write_bytes(b"")
    (folder / "history.json").write_bytes(b"{}")
    assert is_kept(CASE, tmp_path)
    copy_recording(CASE, tmp_path, tmp_path / "other")
    assert is_kept(CASE, tmp_path / "other")


@pytest.mark.parametrize("wrong", [b"no zstd at all, and long enough for a header", b"", b"torn"])
def test_a_damaged_file_is_named_and_leaves_nothing(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "image").write_bytes(bytes(range(256)) * 4096)
    pack(tmp_path / "image", tmp_path / "log.zst")
    if wrong == b"torn":
        wrong = (tmp_path / "log.zst").read_bytes()[:-20]
    (tmp_path / "log.zst").write_bytes(wrong)
    with pytest.raises(StoreError, match=r"log\.zst is damaged"):
        unpack(tmp_path / "log.zst", tmp_path / "log")
    assert not list(tmp_path.glob("log*.part"))
    assert not (tmp_path / "log").exists()


class FakeRecorder:
    """Records in vain as often as there are errors, then well."""

    def __init__(self, folder: Path, errors: Sequence[PowercutError]) -> None:
        self.directory, self.log_device = folder, folder / "log-device"
        self.errors, self.tried = list(errors), 0
        (folder / "console.txt").touch()
        write_log(self.log_device, [MarkText("begin 0"), MarkText("ack 0")])

    def record(self, *_: object) -> None:
        self.tried += 1
        if self.errors:
            raise self.errors.pop(0)


def recorded(folder: Path, *errors: PowercutError) -> tuple[int, PowercutError | None]:
    """How many recordings were made where these errors come in turn, and the error of the last."""
    recorder = FakeRecorder(folder, errors)
    workload = Workload("w", "", (parse_operation("sync"),))
    (profile,) = select_profiles([CASE.configuration])
    (folder / "kept").mkdir()
    worker = cast(Worker, cast(Any, recorder))
    try:
        record(worker, profile, workload, CASE, folder / "base", folder / "kept", folder)
    except PowercutError as e:
        return recorder.tried, e
    return recorder.tried, None


def test_a_log_that_does_not_give_the_disk_is_recorded_again(tmp_path: Path) -> None:
    """By chance: a page was changed while it was being written."""
    assert recorded(tmp_path, LogDiffers("byte 7"), LogDiffers("byte 9")) == (3, None)


def test_a_log_that_never_gives_the_disk_is_an_error(tmp_path: Path) -> None:
    errors = [LogDiffers(f"byte {n}") for n in range(ATTEMPTS + 1)]
    assert recorded(tmp_path, *errors) == (ATTEMPTS, errors[ATTEMPTS - 1])


@pytest.mark.parametrize("error", [WriteLogError("the log device is full"), GuestLost("gone")], ids=str)
def test_what_is_no_chance_is_not_recorded_again(tmp_path: Path, error: PowercutError) -> None:
    """A log device that was full was filled six times before anybody heard of it."""
    assert recorded(tmp_path, error) == (1, error)
