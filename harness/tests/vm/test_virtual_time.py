"""Recordings in virtual time: one seed, one recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cases import recording
from harness.cases.recording import Taken, make_base, recording_of, take
from harness.errors import CannotRecord, ExitCode
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import spec_of
from harness.guests.session import Session
from harness.guests.uml import Uml
from harness.kernels.find import Kernel
from harness.model import CaseId, Workload
from harness.model.schedules import schedule_of, under_schedule
from harness.plan import Clock, Plan
from harness.tests.cli.runner import powercut
from harness.tests.vm.conftest import run_plan
from harness.workloads.load import find_workload

LOG_BYTES = 256 << 20
MODES = ["ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix"]


class Recorder:
    """Records on the UML kernel, in virtual time."""

    def __init__(self, kernel: Path, mode: str, workload: Workload, folder: Path) -> None:
        assert Uml().has_virtual_time(kernel), "built by an earlier version: powercut kernel build"
        self.profile, self.workload, self.folder = select_profiles([mode])[0], workload, folder
        self.spec = spec_of(
            Uml(), Kernel("uml", kernel, None, ""), [self.profile], [workload], folder / "initramfs.cpio"
        )
        self.base = make_base(self.profile, folder / "base.zst", folder)

    def take(self, name: str, schedule: int = 0) -> Taken:
        case = CaseId(
            self.profile.filesystem, self.profile.mode, under_schedule(self.workload.name, schedule)
        )
        with Session(self.spec, self.folder / name, LOG_BYTES, clock=Clock.VIRTUAL) as session:
            assert session.guest_pid is None
            taken = take(session, self.profile, self.workload, case, self.base, self.folder)
            assert session.in_virtual_time
        return taken


@pytest.mark.parametrize("mode", MODES)
def test_two_recordings_with_one_seed_are_equal_byte_for_byte(
    uml_kernel: Path, mode: str, tmp_path: Path
) -> None:
    """Log, marks and times. Each in a guest and a folder of its own; under a schedule whose pauses and timers
    let the kernel's own threads work, too.
    """
    recorder = Recorder(uml_kernel, mode, find_workload(["append-fsync"], "append-fsync"), tmp_path)
    for schedule in (0, 2):
        seen = []
        for name in ("one", "another"):
            taken = recorder.take(f"{name}{schedule}", schedule)
            seen.append((taken.log.read_bytes(), taken.events, taken.said))
        assert seen[0] == seen[1]
        assert recording_of(taken).times is not None


def test_a_disk_that_cannot_be_memory_is_not_recorded_in_real_time_instead(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """It was, and the report said that it was recorded in virtual time."""
    recorder = Recorder(
        uml_kernel, "ext4/ordered@4k", find_workload(["append-fsync"], "append-fsync"), tmp_path
    )
    with pytest.raises(CannotRecord, match="virtual time"):
        recorder.take("one")


def test_a_recording_is_made_again_from_its_seed(
    uml_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`repro --record`: equal under the schedule of its name; under another one it says what differs."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[under_schedule("append-fsync", 2)],
        machine="uml",
        kernel=str(uml_kernel),
        clock=Clock.VIRTUAL,
    )
    _, path = run_plan(plan, tmp_path)
    asked = ("repro", "ext4-ordered/append-fsync.s2@9", "--from", path, "--kernel", uml_kernel, "--record")
    same = powercut(*asked)
    assert "the recordings are equal, byte for byte" in same.stdout, same.output
    assert same.exit_code == ExitCode.CONSISTENT
    monkeypatch.setattr(recording, "schedule_of", lambda number, operations: schedule_of(1, operations))
    other = powercut(*asked)
    assert "not the same: the write log" in other.stdout, other.output
    assert other.exit_code == ExitCode.INCONSISTENT


def test_a_recording_of_real_time_is_not_made_again(uml_kernel: Path, tmp_path: Path) -> None:
    plan = Plan(
        configurations=["ext4/ordered"], workloads=["append-fsync"], machine="uml", kernel=str(uml_kernel)
    )
    _, path = run_plan(plan, tmp_path)
    asked = ("repro", "ext4-ordered/append-fsync@9", "--from", path, "--kernel", uml_kernel, "--record")
    done = powercut(*asked)
    assert "recorded in real time: no second recording equals it" in done.stderr
    assert done.exit_code == ExitCode.USAGE
