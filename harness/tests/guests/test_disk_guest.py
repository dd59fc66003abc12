"""The disk from the guest's side, without a guest: requests through a real queue in shared memory."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import DiskError
from harness.guests.disk import Disk, Order, find_binary
from harness.model import SECTOR_BYTES, CrashState, HoldOrder
from harness.states import Choices
from harness.tests.guests.frontend import Frontend
from harness.tests.guests.visits import recall, remember
from harness.tests.needs import needed
from harness.writelog import Write, write_log

S = SECTOR_BYTES
SECTORS = 64
BASE = b"".join(bytes([ord("a") + s // 8]) * S for s in range(SECTORS))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with needed():
        find_binary()
    (tmp_path / "base").write_bytes(BASE)
    write_log(tmp_path / "log", [Write(0, b"X" * S), Write(8, b"Y" * 8 * S), Write(16, b"Z" * S)])
    with Disk() as disk:
        disk.open(tmp_path / "base", tmp_path / "log")
        yield disk


def test_a_guest_finds_what_it_needs(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        flush, discard, write_zeroes, version_1 = 9, 13, 14, 32
        for bit in (flush, discard, write_zeroes, version_1):
            assert guest.features & 1 << bit
        assert not guest.features & 1 << 11, "the write cache cannot be turned off"
        assert guest.capacity() == SECTORS
        assert guest.identity() == b"powercut".ljust(20, b"\0")


def test_a_switch_changes_what_the_guest_reads(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        assert guest.read(0, SECTORS) == BASE
        disk.switch(CrashState(2, (0,)))
        assert guest.read(0, 16) == BASE[: 8 * S] + b"Y" * 8 * S
        disk.switch(CrashState(2, (), 1))
        assert guest.read(0, 16) == b"X" * S + BASE[S : 8 * S] + b"Y" * S + BASE[9 * S : 16 * S]


def test_data_that_the_guest_reads_between_its_marks_is_not_combined(disk: Disk, tmp_path: Path) -> None:
    """Four blocks of a file make 16 states, but to judge bytes it is enough to see each content of each of
    them. The guest marks where it reads contents by asking for the disk's name.
    """
    log = tmp_path / "data"
    write_log(log, [Write(8 * block, b"X" * S) for block in range(4)])
    disk.open(tmp_path / "base", log, Order((0, 1, 2, 3)))
    crash_time = Choices(4, (), (0, 1, 2, 3))
    counts = []
    with Frontend(disk.socket) as guest:
        for separate in (True, False):
            while (explored := disk.explore([crash_time], losses=9, separate_data=separate)[0]).to_visit:
                for state in explored.to_visit:
                    disk.switch(state)
                    guest.read(32, 8)
                    guest.identity()
                    guest.read(0, 32)
                    guest.identity()
                    remember(disk, state, 0)
            assert explored.unexplored == 0
            counts.append((len(explored.known), sum(known.data for known in explored.known)))
    # both defaults, and each with one block changed
    assert counts == [(10, 8), (16, 0)]


def test_what_the_guest_writes_is_gone_with_the_next_state(disk: Disk, tmp_path: Path) -> None:
    with Frontend(disk.socket) as guest:
        disk.switch(CrashState(1))
        guest.write(7, b"G" * 2 * S)
        assert guest.discard(9, 3) == 0
        assert guest.flush() == 0
        shown = b"X" * S + BASE[S : 7 * S] + b"G" * 2 * S + bytes(3 * S) + BASE[12 * S :]
        assert guest.read(0, SECTORS) == shown
        disk.image(tmp_path / "image")
        assert (tmp_path / "image").read_bytes() == shown
        stats = disk.stats()
        assert (stats.reads, stats.writes, stats.discards, stats.flushes) == (1, 1, 1, 1)
        disk.switch(CrashState(1))
        assert guest.read(0, SECTORS) == b"X" * S + BASE[S:]
        disk.image(tmp_path / "image")
        assert (tmp_path / "image").read_bytes() == b"X" * S + BASE[S:]
    assert (tmp_path / "base").read_bytes() == BASE


def test_a_recording_is_compared_with_its_log(disk: Disk, tmp_path: Path) -> None:
    disk.open(tmp_path / "base")
    with Frontend(disk.socket) as guest:
        guest.write(0, b"X" * S)
        guest.write(8, b"Y" * 8 * S)
        assert disk.compare(tmp_path / "log") == 16 * S
        guest.write(16, b"Z" * S)
        assert disk.compare(tmp_path / "log") is None
        guest.write(63, b"Z" * S)
        assert disk.compare(tmp_path / "log") == 63 * S


def test_the_next_guest_finds_what_the_last_one_left(disk: Disk) -> None:
    with Frontend(disk.socket) as first:
        first.write(0, b"1" * S)
    for _ in range(3):
        with Frontend(disk.socket) as following:
            assert following.read(0, 1) == b"1" * S


def test_requests_past_the_end_fail_alone(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        with pytest.raises(OSError, match="status 1"):
            guest.read(SECTORS - 1, 2)
        with pytest.raises(OSError, match="status 1"):
            guest.write(SECTORS, b"x" * S)
        assert guest.discard(SECTORS - 1, 2) == 1
        assert disk.stats().errors == 3
        assert guest.read(SECTORS - 1, 1) == BASE[-S:]


def test_requests_that_cannot_be_answered_are_counted(disk: Disk) -> None:
    """The guest finds no status, and may take what stood there for one: such a state must not be judged."""
    with Frontend(disk.socket) as guest:
        guest.unanswerable()
        assert disk.stats().errors == 2
        assert guest.read(0, 1) == BASE[:S]


def test_only_what_the_guest_read_of_the_state_decides(disk: Disk) -> None:
    """Block 0 differs from @1 on, block 1 from @2, block 2 from @3."""
    states = [CrashState(prefix) for prefix in range(4)]
    with Frontend(disk.socket) as guest:
        disk.switch(CrashState(1))
        guest.read(1, 1)  # a sector that the log leaves alone, of a block that it changes
        guest.write(8, b"G" * 8 * S)
        guest.read(8, 8)
        guest.read(24, 40)
        assert remember(disk, CrashState(1), 7) is None
        assert recall(disk, states) == [None, 7, 7, 7]
        guest.read(16, 1)
        assert remember(disk, CrashState(1), 8) == 7, "it agrees with the first visit on all that one read"


def test_a_block_that_the_guest_wrote_in_part_counts_as_read(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        disk.switch(CrashState(1))
        guest.write(8, b"G" * S)
        guest.read(8, 2)
        remember(disk, CrashState(1), 7)
        assert recall(disk, [CrashState(0), CrashState(1), CrashState(2)]) == [7, 7, None]


def test_a_visit_that_read_nothing_is_not_remembered(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        guest.read(0, 1)
        disk.switch(CrashState(1))
        guest.write(0, b"G" * S)
        with pytest.raises(DiskError, match="nothing was read"):
            disk.reads()


def test_the_device_keeps_its_size_while_a_guest_is_there(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(BASE[:-S])
    with Frontend(disk.socket) as guest:
        guest.read(0, 1)
        with pytest.raises(DiskError, match=f"{len(BASE) - S} bytes, the connected guest's device"):
            disk.open(tmp_path / "small")
        assert guest.read(0, SECTORS) == BASE


def test_uml_is_served(disk: Disk) -> None:
    """UML was first refused (its table of memory regions has room to spare), then found no interrupt
    (the disk did not offer the channel for requests), then lost the device (the disk closed it).
    """
    with Frontend(disk.socket, like_uml=True) as guest:
        assert guest.read(0, SECTORS) == BASE
        guest.write(0, b"G" * S)
        assert guest.read(0, 1) == b"G" * S
        assert guest.channel_is_open()


def test_a_guest_that_comes_first_waits(tmp_path: Path, disk: Disk) -> None:
    with Disk() as late:
        guest = Frontend(late.socket)
        late.open(tmp_path / "base")
        with guest:
            assert guest.capacity() == SECTORS


def _descriptor(address: int, length: int, flags: int = 0, following: int = 0) -> bytes:
    return struct.pack("<QIHH", address, length, flags, following)


_NEXT, _WRITE, _INDIRECT = 1, 2, 4
_EVERYTHING = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("descriptors", "head", "ahead"),
    [
        (_descriptor(0x3000, 16, _NEXT, 0), 0, 1),
        (_descriptor(0x3000, 16, _NEXT, 999), 0, 1),
        (_descriptor(0x3000, 16), 0xFFFF, 1),
        (_descriptor((1 << 64) - 8, 16, _NEXT, 1) + _descriptor(0x3800, 1, _WRITE), 0, 1),
        (_descriptor(0x3000, 16, _NEXT, 1) + _descriptor(0, _EVERYTHING, _WRITE), 0, 1),
        (
            _descriptor(0x3000, 16, _NEXT, 1)
            + b"".join(_descriptor(0, 1 << 20, _WRITE | _NEXT, n) for n in range(2, 15))
            + _descriptor(0, 1 << 20, _WRITE),
            0,
            1,
        ),
        (_descriptor(0x3000, 1 << 20, _INDIRECT), 0, 1),
        (_descriptor(0x3000, 16, _INDIRECT | _NEXT, 0), 0, 1),
        (b"", 0, 0x8000),
    ],
    ids=[
        "a circle",
        "a next outside the table",
        "a head outside the table",
        "an address that wraps",
        "more than the guest's memory",
        "more than the device",
        "an indirect table of a megabyte",
        "an indirect table with a next",
        "an index far ahead of the queue",
    ],
)
def test_descriptors_that_no_driver_makes_are_refused_and_counted(
    disk: Disk, tmp_path: Path, descriptors: bytes, head: int, ahead: int
) -> None:
    """The kernel under test writes the queue. An index far ahead of it made the disk look for ever."""
    with Frontend(disk.socket) as guest:
        disk.switch(CrashState(1))
        guest.submit_raw(descriptors, head, ahead)
        end = time.monotonic() + 20
        while not disk.stats().errors and time.monotonic() < end:
            time.sleep(0.01)
        assert disk.stats().errors
    disk.open(tmp_path / "base", tmp_path / "log")
    with Frontend(disk.socket) as another:
        assert another.read(0, SECTORS) == BASE


# --- completions -----------------------------------------------------------------------------


def test_a_fork_leaves_nothing_but_the_blocks_that_were_read(disk: Disk, tmp_path: Path) -> None:
    """fsck's image held what had been written only to see whether that works."""
    image = tmp_path / "image"
    with Frontend(disk.socket) as guest:
        disk.switch(CrashState(1))
        guest.write(24, b"R" * S)
        before = disk.image(image)
        disk.snapshot()
        guest.write(32, b"U" * 8 * S)
        guest.read(32, 8)
        guest.read(24, 1)
        guest.read(0, 8)
        assert disk.image(image) != before
        assert disk.roll_back() == (3, 0)
        assert disk.image(image) == before
        assert image.read_bytes() == b"X" * S + BASE[S : 24 * S] + b"R" * S + BASE[25 * S :]
        with pytest.raises(DiskError, match="no snapshot"):
            disk.roll_back()


LONG_S = 600.0
"""No guest of these tests is idle for so long."""


def _write(number: int) -> tuple[int, bytes]:
    return (8 * number, bytes([number]) * S)


def test_writes_complete_in_their_order_unless_they_are_held(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        guest.submit_writes([_write(n) for n in range(3)], then_flush=True)
        assert guest.completed(4) == [0, 1, 2, 3]


def test_a_flush_releases_what_is_held_the_newest_first(disk: Disk) -> None:
    """A disk that completes each write at once hides a file system that does not wait for one: when it sends
    its flush, the write has completed.
    """
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S)
        guest.submit_writes([_write(n) for n in range(3)], then_flush=True)
        assert guest.completed(4) == [2, 1, 0, 3]


def test_a_held_write_is_there_to_be_read(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S)
        guest.submit_writes([_write(1)])
        while not disk.stats().writes:
            time.sleep(0.001)
        assert guest.used() == 0
        disk.hold_completions(None)
        assert guest.completed(1) == [0]
        assert guest.read(8, 1) == _write(1)[1]


def test_a_guest_that_waits_gets_its_writes(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        disk.hold_completions(0.001)
        guest.submit_writes([_write(0)])
        assert guest.completed(1) == [0]


@contextlib.contextmanager
def _process(script: str) -> Iterator[int]:
    """A process in the place of a machine's. Yields its number."""
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_guest_whose_machine_sleeps_gets_its_writes_before_the_time_is_up(disk: Disk) -> None:
    with Frontend(disk.socket) as guest, _process("import time; time.sleep(600)") as machine:
        disk.hold_completions(LONG_S, machine)
        guest.submit_writes([_write(0)])
        assert guest.completed(1) == [0]


def test_a_guest_whose_machine_works_is_not_taken_for_one_that_waits(disk: Disk) -> None:
    """A guest that a busy host did not let run for some milliseconds got its writes, and so did not send its
    flush before they had completed.
    """
    with Frontend(disk.socket) as guest, _process("while True: pass") as machine:
        disk.hold_completions(0.2, machine)
        guest.submit_writes([_write(0)])
        time.sleep(0.5)
        assert guest.used() == 0


def test_a_queue_that_is_nearly_full_is_released(disk: Disk) -> None:
    """A queue of 16 holds 5 requests of 3 descriptors: the guest could not even ask for a flush."""
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S)
        guest.submit_writes([_write(n) for n in range(4)])
        assert guest.completed(4) == [3, 2, 1, 0]


def test_a_write_that_nobody_waits_for_outlives_a_flush(disk: Disk) -> None:
    """Data that a commit forgets to wait for completed with the flush in front of the commit's record: so the
    fault showed in no recording.
    """
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S, order=HoldOrder.NEWEST)
        guest.submit_writes([_write(0), _write(1)], then_flush=True)
        assert guest.completed(1) == [2]
        assert guest.used() == 1
        disk.hold_completions(None)
        assert guest.completed(3) == [2, 1, 0]


def test_who_waits_gets_half_of_what_is_held_the_newest_first(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S, order=HoldOrder.NEWEST)
        guest.submit_writes([_write(n) for n in range(4)])  # the queue is nearly full: as if it waited
        assert guest.completed(2) == [3, 2]
        assert guest.used() == 2
        disk.hold_completions(0.001, order=HoldOrder.NEWEST)
        assert guest.completed(4) == [3, 2, 1, 0]


def test_a_disk_that_completes_in_order_completes_what_came_before_a_flush(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S, order=HoldOrder.OLDEST)
        guest.submit_writes([_write(n) for n in range(3)], then_flush=True)
        assert guest.completed(4) == [0, 1, 2, 3]


def _order_by_chance(disk: Disk, seed: int) -> list[int]:
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S, order=HoldOrder.RANDOM, seed=seed)
        guest.submit_writes([_write(n) for n in range(3)], then_flush=True)
        done = 1
        while 3 not in guest.completed(done):  # the flush, which is never held
            done += 1
        disk.hold_completions(None)
        return guest.completed(4)


def test_an_order_by_chance_follows_from_its_seed(disk: Disk) -> None:
    orders = [tuple(_order_by_chance(disk, seed)) for seed in range(1, 9)]
    assert orders == [tuple(_order_by_chance(disk, seed)) for seed in range(1, 9)]
    assert len(set(orders)) > 3
    assert any(order.index(3) < 3 for order in orders), "a flush never overtook a write"


def test_what_a_lost_guest_left_held_is_forgotten(disk: Disk) -> None:
    with Frontend(disk.socket) as guest:
        disk.hold_completions(LONG_S)
        guest.submit_writes([_write(0)])
    disk.hold_completions(None)
    with Frontend(disk.socket) as guest:
        guest.write(8, b"Z" * S)
        assert guest.read(8, 1) == b"Z" * S
