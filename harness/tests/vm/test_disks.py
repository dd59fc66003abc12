"""Other kinds of disk, with real guests: what the guest's kernel sees, and what that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cases.recording import make_base, target_of
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import pack
from harness.guests.machine import machine_of
from harness.guests.session import GuestSpec, Session
from harness.host.packed import unpack
from harness.kernels.find import Kernel, find_kernel
from harness.model import CaseId, CrashState, EntryFlag
from harness.plan import Plan
from harness.store.layout import RunLayout
from harness.summary import CaseVerdict
from harness.tests.vm.conftest import run_plan
from harness.writelog import WriteLog, read_log

ASK = """
cd /sys/block/$(basename DEVICE)/queue
cat logical_block_size physical_block_size write_cache
"""
LOG_BYTES = 64 << 20


@pytest.fixture(params=["uml", "qemu"])
def spec(request: pytest.FixtureRequest, uml_kernel: Path, tmp_path: Path) -> GuestSpec:
    """With a shell in it. UML's kernel has the disk as memory elsewhere; here it takes vhost-user's."""
    machine, kernel = machine_of("uml"), Kernel("uml", uml_kernel, None, "")
    if request.param == "qemu":
        machine, kernel = machine_of("qemu"), find_kernel("debian-6.12")
    archive = tmp_path / "initramfs.cpio"
    pack(kernel, [*machine.profile.modules, "ext4"], archive, ["busybox:busybox-static"])
    return GuestSpec(machine, kernel.image, archive)


def test_the_guest_sees_the_disk_as_it_is(spec: GuestSpec, tmp_path: Path) -> None:
    """A sector had 512 bytes and the cache was volatile, whatever the mode. One session shows one kind of
    disk after another: each time with a guest that was told.
    """
    seen, script = {}, ASK.replace("DEVICE", spec.machine.data_device)
    with Session(spec, tmp_path / "session", LOG_BYTES) as session:
        for disk in ("", "@4k", "@512e", "@writethrough"):
            (profile,) = select_profiles([f"ext4/ordered{disk}"])
            target = target_of(profile, make_base(profile, tmp_path / f"{disk}.zst", tmp_path), None)
            session.boot(target)
            session.disk.switch(CrashState(0))
            seen[disk] = session.beside(target, script)[1].splitlines()
    assert seen == {
        "": ["512", "512", "write back"],
        "@4k": ["4096", "4096", "write back"],
        "@512e": ["512", "4096", "write back"],
        "@writethrough": ["512", "512", "write through"],
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, uml_kernel: Path) -> tuple[dict[str, CaseVerdict], Path]:
    """Three disks under one workload: verdicts by mode."""
    plan = Plan(
        configurations=["ext4/nobarrier@writethrough", "xfs/default@4k", "ext4/ordered@512e"],
        workloads=["append-fsync"],
        kernel=str(uml_kernel),
        machine="uml",
    )
    summary, path = run_plan(plan, tmp_path_factory.mktemp("disks"))
    return {c.case.configuration: c.verdict for c in summary.cases}, path


def test_every_promise_is_kept_on_other_disks(run: tuple[dict[str, CaseVerdict], Path]) -> None:
    """Without barriers ext4 loses what was acknowledged (`test_run.py`), but not to a disk without a volatile
    cache.
    """
    assert set(run[0].values()) == {CaseVerdict.PASS}, run[0]


def test_what_a_disk_is_shows_in_its_log(run: tuple[dict[str, CaseVerdict], Path], tmp_path: Path) -> None:
    def log_of(filesystem: str, mode: str) -> WriteLog:
        kept = RunLayout(run[1]).case(CaseId(filesystem, mode, "append-fsync")).log
        return read_log(unpack(kept, tmp_path / mode, LOG_BYTES))

    assert log_of("xfs", "default@4k").unit_bytes == 4096
    through = log_of("ext4", "nobarrier@writethrough")
    writes = [e for e in through.entries if e.sectors]
    assert all(EntryFlag.FUA in e.flags for e in writes)
    flushes = [e.index for e in through.entries if EntryFlag.FLUSH in e.flags]
    assert [*flushes, through.entry_count - 1] == [through.entry_count - 2, through.entry_count - 1]
    acked = next(m.index for m in through.marks if m.mark == "ack 2")
    assert min(e.index for e in writes) < acked, "writes stand where they completed"
