"""The host's disk fills up while a guest records: told at once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cases.recording import make_base, target_of
from harness.errors import EnvironmentLacks, PowercutError
from harness.filesystems.profiles import select_profiles
from harness.guests.accel import choose_accel
from harness.guests.guest_specs import boot_once, spec_of
from harness.guests.machine import Machine
from harness.guests.session import Session
from harness.kernels.find import find_kernel
from harness.model import Operation, OperationKind
from harness.tests.needs import needed

SMALL_BYTES = 12 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of the host with little room."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(path)]
    with needed():
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PowercutError(f"a small tmpfs cannot be mounted here: {done.stderr.strip()}", "be root")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_a_full_disk_of_the_host_ends_a_recording_with_its_error(tmp_path: Path, small: Path) -> None:
    """QEMU paused its guest, which was then waited for in silence for ten minutes."""
    kernel, (profile,) = find_kernel("debian-6.12"), select_profiles(["ext4/ordered"])
    base = make_base(profile, tmp_path / "base.zst", tmp_path)

    def comes_up(machine: Machine) -> None:
        boot_once(
            spec_of(machine, kernel, [profile], [], tmp_path / "cpio"), base, tmp_path / "trial", 1 << 20
        )

    machine = choose_accel("qemu", "auto", comes_up).machine
    spec = spec_of(machine, kernel, [profile], [], tmp_path / "cpio")
    create = Operation(OperationKind.CREATE, "f")
    append = Operation(OperationKind.APPEND, "f", length=1 << 20, flags=("dsync",))
    with (
        Session(spec, small / "session", 1 << 30) as session,
        pytest.raises(EnvironmentLacks, match="the host's disk is full") as caught,
    ):
        session.record(target_of(profile, base, None), [create, *[append] * 24])
    assert str(small) in caught.value.what
