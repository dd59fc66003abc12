"""Fills the disk under a run while it works, then frees space and resumes the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness.tests.chaos.command import Ended, end_processes, look_for_leftovers, resume_line, start
from harness.tests.chaos.kills import check_run
from harness.tests.chaos.reference import MIXED, Reference
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import said, wrong_code, wrong_words

DISK_BYTES = 2 << 30
_SOON_S = 120.0


def why_not() -> str:
    """Why this cannot be tried here; empty if it can."""
    if os.geteuid():
        return "mounting a small disk needs root"
    if not shutil.which("mkfs.ext4") or not shutil.which("losetup"):
        return "mkfs.ext4 or losetup is not installed"
    found = subprocess.run(["losetup", "-f"], capture_output=True, check=False)
    return "" if not found.returncode else "there is no loop device"


def run_full_disk(trial: Trial, reference: Reference, plant: str = "") -> None:
    """As long as there is no space it ends with an error, soon; afterwards it comes to what it would have."""
    specimen = reference.mixed
    anew = trial.random.random() < 0.5
    line = ["run", *MIXED, "--expect", reference.expectations, *reference.options]
    with _small_disk(trial) as disk:
        try:
            line += ["--out", disk] if anew else ["--out", disk, "--recordings", specimen.path]
            running = start(trial, line, plant=plant)
            time.sleep(trial.random.uniform(0.2, 4))
            _fill(disk, trial.random.choice([0, 0, 4096, 1 << 20]))
            trial.figures["full disks"] += 1
            ended = running.wait(_SOON_S)
            if ended is None:
                trial.tell("hang", f"still there {_SOON_S:.0f} s after the disk was full")
                return
            _check_end(trial, ended, specimen.code)
            (disk / "ballast").unlink()
            _resume(trial, reference, disk, anew, plant)
        finally:
            end_processes(trial)
            look_for_leftovers(trial)


def _check_end(trial: Trial, ended: Ended, right: int) -> None:
    if ended.code not in (0, 1):
        trial.figures["ended by the full disk"] += 1
    for defect in (wrong_words(ended.output), wrong_code(right, ended.code)):
        if defect is not None:
            trial.tell(defect.kind, f"on a full disk: {defect.what}")


def _resume(trial: Trial, reference: Reference, disk: Path, anew: bool, plant: str) -> None:
    runs = sorted(disk.glob("runs/*"))
    if not runs:
        return
    if not (runs[0] / "plan.json").exists():
        trial.figures["full before the plan was kept"] += 1
        return
    ended: Ended | None = None
    for _ in range(3):
        ended = start(trial, resume_line(runs[0]), plant=plant).wait()
        if ended is None:
            trial.tell("hang", "--resume after a full disk did not end")
            return
        if (defect := wrong_words(ended.output)) is not None:
            trial.tell(defect.kind, f"resumed after a full disk: {defect.what}")
        if ended.code in (0, 1):
            break
    assert ended is not None
    check_run(trial, runs[0], reference.mixed, ended, anew=anew)
    with contextlib.suppress(Exception):  # `check_run` has told it
        trial.figures["cases after a full disk"] += len(said(runs[0]).verdicts)


@contextlib.contextmanager
def _small_disk(trial: Trial) -> Iterator[Path]:
    image, mount = trial.directory / "disk.img", trial.directory / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
    try:
        yield mount
    finally:
        _unmount(mount)
        image.unlink()


def _unmount(mount: Path) -> None:
    for _ in range(50):
        if not subprocess.run(["umount", str(mount)], capture_output=True, check=False).returncode:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "-l", str(mount)], check=False)


def _fill(disk: Path, left: int) -> None:
    """Take all space of the disk but `left` bytes."""
    with (disk / "ballast").open("wb") as file:
        for size in (256 << 20, 16 << 20, 1 << 20, 4096):
            with contextlib.suppress(OSError):
                while shutil.disk_usage(disk).free - left >= size:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
