"""Damaged logs, and files that never were logs: both readers, the host's (`harness.writelog`) and the disk's
(`vms/disk/src/log.rs`), refuse them in one line or read them alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.cases.recording import history_of
from harness.errors import DiskError, WriteLogError
from harness.guests.disk import Disk, find_binary
from harness.model import CrashState, Operation, OperationKind
from harness.states import enumerate_prefixes
from harness.tests.budget import budget
from harness.tests.needs import needed
from harness.tests.states.logs import BASE, logs
from harness.tests.states.replay import replay
from harness.writelog import Step, WriteLog, read_log, write_log
from harness.writelog.log import MAGIC, SUPER, VERSION

# one folder, and one disk process, serve all examples
shared_folder = [HealthCheck.function_scoped_fixture]

_OPERATIONS = [Operation(OperationKind("create"), "f"), Operation(OperationKind("fsync"), "f")]

# where a change means something: the superblock's fields, and those of the headers of 512-byte units
_interesting = st.one_of(
    st.integers(0, 27), st.builds(lambda unit, at: unit * 512 + at, st.integers(1, 12), st.integers(0, 40))
)
_values = st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Bytes to be changed: (place, value)."""
    places = st.one_of(_interesting, st.integers(0, 8192))
    return draw(st.lists(st.tuples(places, _values), min_size=1, max_size=6))


def _damage(
    path: Path, steps: list[Step], changes: list[tuple[int, int]], cut: int | None, more: int
) -> None:
    """Write a log with some bytes changed, cut off at `cut`, and `more` zeros behind it."""
    path.unlink(missing_ok=True)  # the disk may have the last example's log mapped
    write_log(path, steps)
    data = bytearray(path.read_bytes())
    for at, value in changes:
        if at < len(data):
            data[at] = value
    path.write_bytes(bytes(data[:cut]) + bytes(more))


cuts = st.one_of(st.none(), st.none(), st.integers(0, 8192))
ends = st.sampled_from([0, 0, 512, 4096])


def _read(path: Path) -> WriteLog | WriteLogError:
    try:
        return read_log(path)
    except WriteLogError as error:
        return error


@pytest.mark.fuzz
@settings(budget(200), suppress_health_check=shared_folder)
@given(logs, damages(), cuts, ends)
def test_a_damaged_log_is_read_or_refused(
    tmp_path: Path, steps: list[Step], changes: list[tuple[int, int]], cut: int | None, more: int
) -> None:
    """What is read lies within the file, and everything that takes entries works with these."""
    path = tmp_path / "log"
    _damage(path, steps, changes, cut, more)
    log = _read(path)
    if isinstance(log, WriteLogError):
        assert "\n" not in log.what
        return
    assert log.used_bytes <= path.stat().st_size
    assert [e.index for e in log.entries] == list(range(log.entry_count))
    try:
        history_of(log.entries, _OPERATIONS)
    except WriteLogError as error:
        assert "marks" in error.what


@pytest.mark.fuzz
@settings(budget(100), suppress_health_check=shared_folder)
@given(
    st.integers(0, 2**64 - 1),
    st.sampled_from([512, 4096, 65536, 0, 1, 513, 2**32 - 1]),
    st.binary(max_size=4096),
)
def test_any_bytes_behind_a_superblock_are_read_or_refused(
    tmp_path: Path, count: int, unit: int, body: bytes
) -> None:
    path = tmp_path / "log"
    path.write_bytes(SUPER.pack(MAGIC, VERSION, count, unit).ljust(512, b"\0") + body)
    log = _read(path)
    assert isinstance(log, WriteLogError) or log.entry_count == count


@pytest.fixture(scope="module")
def disk() -> Iterator[Disk]:
    with needed():
        find_binary()
    with Disk() as started:
        yield started


@pytest.mark.fuzz
@settings(budget(100), suppress_health_check=shared_folder)
@given(logs, damages(), cuts, ends)
def test_both_readers_agree_on_a_damaged_log(
    disk: Disk, tmp_path: Path, steps: list[Step], changes: list[tuple[int, int]], cut: int | None, more: int
) -> None:
    """Else a crash state would be one thing to the judge and another to the kernel. The disk knows where the
    device ends, the host knows all flags; whatever else one of them refuses, the other refuses too.
    """
    base, path = tmp_path / "base", tmp_path / "log"
    base.write_bytes(BASE)
    _damage(path, steps, changes, cut, more)
    read = _read(path)
    try:
        opened = disk.open(base, path)
    except DiskError as error:
        assert isinstance(read, WriteLogError) or "the device ends at sector" in error.what, (read, error)
        return
    if isinstance(read, WriteLogError):
        assert "unknown flags" in read.what, read
        return
    assert opened.entries == read.entry_count
    states = list(enumerate_prefixes(read))
    shown = disk.hashes(states)
    contents = [replay(BASE, read, state) for state in states]
    for i, state in enumerate(states):
        assert (shown[i] == shown[0]) == (contents[i] == contents[0]), state
    disk.switch(CrashState(read.entry_count))
    image = tmp_path / "image"
    disk.image(image)
    assert image.read_bytes() == contents[-1]
