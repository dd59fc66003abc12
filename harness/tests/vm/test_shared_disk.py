"""The two ways in which a UML guest has its disk, as memory and over vhost-user, held against each other."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.cases.recording import Recording, make_base, record, target_of
from harness.filesystems.profiles import profiles
from harness.guests import wire
from harness.guests.disk import Order, Reads
from harness.guests.guest_specs import spec_of
from harness.guests.session import GuestSpec, Session, Target
from harness.guests.uml import Uml, has_driver
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashState, Outcome, Usability
from harness.store.layout import CaseLayout
from harness.workloads.load import find_workload

LOG_BYTES = 256 << 20
STATES = 40
"""Of a case, with one order of its chunks: as many prefixes, and states that lack some of the last chunks."""
LAST = 24
VISITS_MAX = 5


class ByMessages(Uml):
    """UML whose disk is vhost-user's, whatever its kernel has."""

    def shares_disk(self, image: Path) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class Seen:
    """All that the disk and the guest tell of one visit, but how many flushes there were: the block layer
    makes one of two that wait at the same time, and with answers at once none waits.
    """

    outcome: Outcome
    reads: Reads
    counted: wire.Counted
    hash: str
    used: Usability
    used_reads: tuple[int, ...] | None
    after: str


def visit(session: Session, target: Target, state: CrashState) -> Seen:
    recovery = session.recover(target, state)
    disk = session.disk
    reads, hashed = disk.reads(), disk.image(session.image)
    counted = msgspec.structs.replace(disk.stats(), flushes=0)
    used, blocks = session.use(target)
    return Seen(recovery.outcome, reads, counted, hashed, used, blocks, disk.image(session.image))


def agree(one: Session, two: Session, target: Target, state: CrashState) -> bool:
    """Whether both show the same. A tick of the guest's clock within a visit shows in times that recovery
    writes, so each visit is compared with some of the other way.
    """
    by_memory, by_messages = [], []
    for _ in range(VISITS_MAX):
        by_memory.append(visit(one, target, state))
        by_messages.append(visit(two, target, state))
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


@pytest.mark.parametrize("mode", ["ext4/ordered", "ext4/journal", "xfs/default", "btrfs/default"])
@pytest.mark.parametrize("workload", ["append-fsync", "rename-new", "truncate-rewrite"])
def test_a_disk_in_memory_shows_what_vhost_user_shows(
    uml_kernel: Path, mode: str, workload: str, tmp_path: Path
) -> None:
    """State by state: the outcome, what was read and in which order, how often the disk was asked, what is
    left on it, and the same of writing to it.
    """
    assert has_driver(uml_kernel), "built by an earlier version: powercut kernel build"
    profile = profiles()[mode]
    kernel = Kernel("uml", uml_kernel, None, "")
    asked = find_workload([workload], workload)
    spec = spec_of(Uml(), kernel, [profile], [asked], tmp_path / "initramfs.cpio")
    by_messages = GuestSpec(ByMessages(), spec.kernel_image, spec.initramfs)
    case = CaseId(profile.filesystem, profile.mode, workload)
    base = make_base(profile, tmp_path / "base.zst", tmp_path)
    kept = CaseLayout(tmp_path / "base.zst", tmp_path / "case")
    with (
        Session(spec, tmp_path / "one", LOG_BYTES) as one,
        Session(by_messages, tmp_path / "two", LOG_BYTES) as two,
    ):
        recording = record(two, profile, asked, case, base, kept, tmp_path)
        plain = target_of(profile, base, recording.log)
        for order, state in states_of(*chunks_of(recording), case.workload):
            target = dataclasses.replace(plain, order=order)
            assert agree(one, two, target, state), (order is None, state)
