"""The two ways in which a UML guest has its disk, as memory and over vhost-user, held against each other."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.cases.crash_and_continue import record
from harness.cases.examine import Examiner
from harness.cases.first_mount import finish_base
from harness.cases.recording import Recording, make_base
from harness.filesystems.profiles import select_profiles
from harness.guests import wire
from harness.guests.disk import BlockReads, Disk, Order
from harness.guests.guest import Guest
from harness.guests.guest_specs import spec_of
from harness.guests.session import GuestSpec, Session, Target
from harness.guests.uml import Uml, has_driver
from harness.kernels.find import Kernel
from harness.model import BLOCK_BYTES, CaseId, CrashState, Outcome, Usability
from harness.plan import Clock
from harness.store.layout import CaseLayout
from harness.workloads.load import load_workload

LOG_BYTES = 256 << 20
STATES = 12
"""Of a case, with one order of its chunks: as many prefixes, and states that lack some of the last chunks."""
LAST = 24
VISITS_MAX = 5


class ByMessages(Uml):
    """UML whose disk is vhost-user's, whatever its kernel has."""

    def shares_disk(self, image: Path) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class Seen:
    """All that the disk and the guest tell of one visit, but how many flushes there were, as the block layer
    makes one of two that wait at the same time, and with answers at once none waits; and what the kernel says
    for information, of which btrfs drops what is more than 100 lines in five seconds.
    """

    outcome: Outcome
    reads: BlockReads
    counted: wire.Counted
    hash: str
    used: Usability
    used_reads: tuple[int, ...] | None
    after: str


_INFORMATION = re.compile(r"BTRFS info |BTRFS: device fsid |_btrfs_printk: \d+ callbacks suppressed")


def said(kernel_log: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for line in kernel_log if not _INFORMATION.search(line))


_COMMIT_BLOCK = bytes.fromhex("c03b399800000002")
"""jbd2's magic number and JBD2_COMMIT_BLOCK (`include/linux/jbd2.h`, struct commit_header)."""
_CHECKSUM, _NANOSECONDS = slice(0x10, 0x14), slice(0x38, 0x3C)


_CHUNK_BYTES = 64 << 10


def without_ticks(image: Path, base: Path) -> str:
    """A hash of the image, without the nanoseconds at which jbd2 committed and the checksum of their block:
    they tell on which tick of its clock the guest was, so how busy this host is. To be fast, it leaves out
    chunks that are the base image's.
    """
    hashed = hashlib.blake2b(image.stat().st_size.to_bytes(8, "big"))
    with image.open("rb") as now, base.open("rb") as before:
        for number, chunk in enumerate(iter(lambda: now.read(_CHUNK_BYTES), b"")):
            same = before.read(_CHUNK_BYTES)
            if chunk != same and (masked := _masked(chunk)) != _masked(same):
                hashed.update(number.to_bytes(8, "big") + masked)
    return hashed.hexdigest()


def _masked(chunk: bytes) -> bytes:
    contents = bytearray(chunk)
    for at in range(0, len(chunk), BLOCK_BYTES):
        if chunk.startswith(_COMMIT_BLOCK, at):
            block = memoryview(contents)[at : at + 0x40]
            block[_CHECKSUM] = block[_NANOSECONDS] = bytes(4)
    return bytes(contents)


def visit(session: Session, target: Target, state: CrashState, *, ticks: bool) -> Seen:
    """`ticks`: with all times that recovery writes."""

    def image() -> str:
        exact = disk.image(session.image)
        return exact if ticks else without_ticks(session.image, target.base)

    recovery = session.recover(target, state)
    disk = session.disk
    reads, hashed = disk.reads(), image()
    counted = msgspec.structs.replace(disk.stats(), flushes=0)
    again = session.use(target)
    used, blocks = again.result, again.blocks
    outcome = dataclasses.replace(recovery.outcome, kernel_log=said(recovery.outcome.kernel_log))
    used = dataclasses.replace(used, kernel_log=said(used.kernel_log))
    return Seen(outcome, reads, counted, hashed, used, blocks, image())


def agree(one: Session, two: Session, target: Target, state: CrashState) -> bool:
    """Whether both show the same. On a busy host no two visits may have the same ticks of the guest's clock:
    if the first two differ, what jbd2 writes of them does not count, and for the rest each visit is compared
    with some of the other way.
    """
    if visit(one, target, state, ticks=True) == visit(two, target, state, ticks=True):
        return True
    by_memory, by_messages = [], []
    for _ in range(VISITS_MAX):
        by_memory.append(visit(one, target, state, ticks=False))
        by_messages.append(visit(two, target, state, ticks=False))
        if any(a == b for a in by_memory for b in by_messages):
            return True
    return False


def states_of(entries: tuple[int, ...], chunks: int, seed: str) -> Iterator[tuple[Order | None, CrashState]]:
    """Prefixes of the log, and states of its chunks, by sector, that lack any of the last ones."""
    draw = random.Random(seed)  # noqa: S311  # the same states every time
    for _ in range(STATES):
        yield None, CrashState(draw.randint(0, entries[-1] + 1))
        prefix = draw.randint(0, chunks)
        last = range(max(0, prefix - LAST), prefix)
        lost = tuple(sorted(draw.sample(last, draw.randint(0, len(last)))))
        yield Order(entries, 1), CrashState(prefix, lost)


def chunks_of(recording: Recording) -> tuple[tuple[int, ...], int]:
    """The entries that change the device, and how many sectors they change."""
    changing = [(n, e) for n, e in enumerate(recording.write_log.entries) if e.sectors and not e.mark]
    return tuple(n for n, _ in changing), sum(e.sectors for _, e in changing)


def recorded(
    kernel: Path, mode: str, workload: str, folder: Path, clock: Clock = Clock.AUTO
) -> tuple[GuestSpec, GuestSpec, Recording]:
    """Guests with the disk as memory and over vhost-user, and a recording made with the latter; in virtual
    time it is made with the disk as memory.
    """
    assert has_driver(kernel), "built by an earlier version: powercut kernel build"
    (profile,), asked = select_profiles([mode]), load_workload(workload)
    own = Kernel("uml", kernel, None, "")
    spec = spec_of(Uml(), own, [profile], [asked], folder / "initramfs.cpio")
    by_messages = GuestSpec(ByMessages(), spec.kernel_image, spec.initramfs)
    case = CaseId(profile.filesystem, profile.mode, workload)
    base = make_base(profile, folder / "base.zst", folder)
    kept = CaseLayout(folder / "base.zst", folder / "case")
    recording_spec = spec if clock is Clock.VIRTUAL else by_messages
    with Session(recording_spec, folder / "recorder", LOG_BYTES, clock=clock) as recorder:
        if profile.is_made_in_guest:
            finish_base(recorder, profile, base, kept.base)
        return spec, by_messages, record(recorder, profile, asked, case, base, kept, folder)


@pytest.mark.parametrize("mode", ["ext4/ordered", "ext4/journal", "xfs/default", "btrfs/default"])
@pytest.mark.parametrize("workload", ["append-fsync", "rename-new", "truncate-rewrite"])
def test_a_disk_in_memory_shows_what_vhost_user_shows(
    uml_kernel: Path, mode: str, workload: str, tmp_path: Path
) -> None:
    """State by state: the outcome, what was read and in which order, how often the disk was asked, what is
    left on it, and the same of writing to it.
    """
    spec, by_messages, recording = recorded(uml_kernel, mode, workload, tmp_path)
    plain = dataclasses.replace(recording.target, order=None)
    one, two = Session(spec, tmp_path / "one", LOG_BYTES), Session(by_messages, tmp_path / "two", LOG_BYTES)
    with one, two:
        for order, state in states_of(*chunks_of(recording), str(recording.case)):
            target = dataclasses.replace(plain, order=order)
            assert agree(one, two, target, state), (order is None, state)


def test_of_an_image_only_the_ticks_do_not_count(tmp_path: Path) -> None:
    """A commit block of the base image, and one that is new."""
    commit = _COMMIT_BLOCK + b"\7" * 0x38 + b"a file's"
    plain = bytearray(3 * _CHUNK_BYTES)
    plain[BLOCK_BYTES : BLOCK_BYTES + len(commit)] = commit
    base, image = tmp_path / "base", tmp_path / "image"
    base.write_bytes(plain)

    def hashed(*changes: tuple[int, int]) -> str:
        contents = bytearray(plain)
        contents[_CHUNK_BYTES : _CHUNK_BYTES + len(commit)] = commit
        for at, byte in changes:
            contents[at] = byte
        image.write_bytes(contents)
        return without_ticks(image, base)

    same = hashed()
    for block in (BLOCK_BYTES, _CHUNK_BYTES):
        for tick in (*range(0x10, 0x14), *range(0x38, 0x3C)):
            assert hashed((block + tick, 1)) == same
        for other in (0, 0x0F, 0x14, 0x37, 0x3C, 0x44):
            assert hashed((block + other, 1)) != same
    assert len({same, hashed((0, 1)), hashed((2 * _CHUNK_BYTES, 1)), hashed((_CHUNK_BYTES - 1, 1))}) == 4
    hashed()
    os.truncate(image, 2 * _CHUNK_BYTES)
    assert without_ticks(image, base) != same


@dataclasses.dataclass
class Costs:
    """What one visit takes, counted: no load of this host changes it."""

    messages_to_guest: int = 0
    messages_to_disk: int = 0
    wakes_of_disk: int = 0
    processes: int = 0
    image_bytes: int = 0

    def within(self, most: Costs) -> bool:
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(most)
        return all(a <= b for a, b in zip(mine, theirs, strict=True))


MOST = Costs(messages_to_guest=3, messages_to_disk=23, wakes_of_disk=31, processes=0, image_bytes=300_000)
"""Less than twice what was counted: 2, 12, 16, 0 and 159,744. Over vhost-user the disk wakes 153 times."""


def counted(monkeypatch: pytest.MonkeyPatch, costs: Costs) -> None:
    """Count messages, processes and bytes."""
    ask, request, popen = Disk._ask, Guest.request, subprocess.Popen

    def asked(disk: Disk, *given: Any) -> Any:
        costs.messages_to_disk += 1
        reply = ask(disk, *given)
        costs.image_bytes += reply.copied_bytes if isinstance(reply, wire.Imaged) else 0
        return reply

    def requested(guest: Guest, *given: Any) -> Any:
        costs.messages_to_guest += 1
        return request(guest, *given)

    def started(*given: Any, **more: Any) -> Any:
        costs.processes += 1
        return popen(*given, **more)

    monkeypatch.setattr(Disk, "_ask", asked)
    monkeypatch.setattr(Guest, "request", requested)
    monkeypatch.setattr(subprocess, "Popen", started)


def waits(pid: int) -> int:
    """How often the threads of a process have waited for something: each message to it is such a wait."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(int(re.findall(r"(?m)^voluntary_ctxt_switches:\s*(\d+)", t.read_text())[0]) for t in tasks)


def test_a_visit_costs_no_more_messages_processes_and_bytes_than_it_did(
    uml_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts, not clocks: one that doubles is a visit that costs more on every host."""
    spec, _, recording = recorded(uml_kernel, "ext4/ordered", "append-fsync", tmp_path)
    states = [CrashState(n) for n in range(10, len(recording.write_log.entries), 40)]
    with Session(spec, tmp_path / "counted", LOG_BYTES) as session:
        examiner = Examiner(recording, memo=True, sample_rate=0.0)
        examiner.visit(session, states[-1:], threading.Event())  # boots, makes the image, loads fsck
        pid = session.disk.pid
        for state in states:
            with monkeypatch.context() as patch:
                costs = Costs()
                counted(patch, costs)
                before = waits(pid)
                seen = examiner.visit(session, [state], threading.Event())
                costs.wakes_of_disk = waits(pid) - before
            assert isinstance(seen.outcome, Outcome)
            assert costs.within(MOST), (str(state), costs)
