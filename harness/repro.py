"""One crash point again: the same bytes, in a fresh guest, with the same verdict; or a look at it by hand."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.examine import Examiner, Unseen
from harness.filesystems import select_profiles
from harness.kernels import Kernel, find_kernel
from harness.kits import make_kits
from harness.machines import qemu
from harness.machines.machine import Boot
from harness.machines.worker import GuestKit, Worker
from harness.model import CrashPoint, Judgement, Outcome
from harness.plan import load_plan
from harness.recording import Recording, load_recording
from harness.store import RunStore
from harness.workloads import find_workload


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What one crash point came to, this time."""

    point: CrashPoint
    kernel: Kernel
    outcome: Outcome | Unseen
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Scene:
    """A crash point of a run with everything that is needed to show it: a context made by `scene`."""

    point: CrashPoint
    recording: Recording
    kernel: Kernel
    kit: GuestKit
    accel: str
    directory: Path


def find_point(text: str, store: RunStore) -> CrashPoint:
    """The crash point that `text` names, if the run has it: `ext4-ordered/append-fsync@417`, or the twelve
    digits of a finding. Raises UsageError that says what the run has.
    """
    findings = {f.id: f for f in store.findings()}
    if text in findings:
        return findings[text].crash_point
    try:
        point = CrashPoint.parse(text)
    except ValueError as e:
        raise UsageError(str(e), "the report and `powercut list runs` show what there is") from e
    record = store.case(point.case)
    if record is None:
        cases = ", ".join(str(c.case) for c in store.cases()[:6])
        raise UsageError(f"the run {store.path.name} has no case {point.case}", f"it has: {cases}")
    entries = len(store.timeline(point.case))
    if not point.state.prefix <= entries:
        raise UsageError(
            f"{point}: the log of {point.case} has {entries} entries; the crash point lies behind its end",
            f"name one from {point.case}@0 to {point.case}@{entries}",
        )
    return point


@contextlib.contextmanager
def scene(
    store: RunStore, point: CrashPoint, kernel: str | None, replaced: Sequence[Path], accel: str
) -> Iterator[Scene]:
    """Unpack the recording into a temporary folder and make a kit for guests: the run's own kernel, unless
    another is named. Raises StoreError where the recording is gone.
    """
    plan = load_plan(store)
    machine = "auto" if kernel else plan.machine  # another kernel may be for another machine
    case = point.case
    (profile,) = select_profiles([case.configuration])
    workload = find_workload(plan.workloads, case.workload)
    found = find_kernel(
        kernel or store.info.kernel.name,
        Path(plan.modules) if plan.modules and not kernel else None,
        [*replaced] or ([] if kernel else [*map(Path, plan.replaced)]),
    )
    directory = Path(tempfile.mkdtemp(prefix="powercut-repro-"))
    try:
        recording = load_recording(case, profile, workload, store.path / "cases", directory)
        if point.state.prefix > len(recording.write_log.entries):
            raise UsageError(f"{point} lies behind the end of the log")
        plan = msgspec.structs.replace(plan, accel=accel, machine=machine)
        kits = make_kits(plan, found, [profile], [workload], recording.base, directory)
        yield Scene(point, recording, found, kits.recorder, kits.accel.name, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def reproduce(shown: Scene) -> Reproduction:
    """Recover the crash point in a fresh guest and judge it."""
    examiner = Examiner(shown.recording)
    state = shown.point.state
    with Worker(shown.kit, shown.directory / "worker") as worker:
        outcome = examiner.look(worker, [state], threading.Event()).seen
    return Reproduction(shown.point, shown.kernel, outcome, examiner.judge(state, outcome))


def export(shown: Scene, file: Path) -> None:
    """Write the crashed disk, before any recovery, as a raw image. Raises UsageError if `file` is there."""
    if file.exists():
        raise UsageError(f"{file} exists already", "name a file that does not")
    with Worker(shown.kit, shown.directory / "worker") as worker:
        disk = worker.show(shown.recording.base, shown.recording.log)
        disk.switch(shown.point.state)
        disk.image(file)


def shell(shown: Scene) -> int:
    """A console in a fresh guest with the crashed disk attached, not yet mounted. What is written to it is
    dropped at the end. Returns QEMU's exit code.
    """
    if shown.kit.machine.name != "qemu":
        raise UsageError(
            f"a console can be had in QEMU only, and this run was judged in {shown.kit.machine.name}",
            "name a kernel for QEMU: --kernel debian-6.12",
        )
    with Worker(shown.kit, shown.directory / "worker") as worker:
        disk = worker.show(shown.recording.base, shown.recording.log)
        disk.switch(shown.point.state)
        worker.log_device.touch()
        with worker.log_device.open("r+b") as f:
            f.truncate(1 << 20)
        profile = shown.recording.profile
        boot = Boot(
            kernel_image=shown.kit.kernel_image,
            initramfs=shown.kit.initramfs,
            disk_socket=disk.socket,
            log=worker.log_device,
            directory=worker.directory,
            shell_mount=f"{profile.fstype}:{profile.mount_options}",
            shell_second=profile.second_offset,
        )
        return subprocess.run(qemu.command(boot, shown.accel, None), check=False).returncode
