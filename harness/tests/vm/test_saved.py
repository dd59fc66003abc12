"""A guest of QEMU that loads the state of another records and recovers as one that boots."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cases.crash_and_continue import record
from harness.cases.recording import make_base
from harness.errors import PowercutError
from harness.filesystems.profiles import profiles
from harness.guests import saved
from harness.guests.guest_specs import spec_of
from harness.guests.machine import machine_of
from harness.guests.saved import BareGuest
from harness.guests.session import Session
from harness.host.files import file_hash
from harness.kernels.find import find_kernel
from harness.model import CaseId, CrashState
from harness.store.layout import CaseLayout
from harness.workloads.load import load_workload

LOG_BYTES = 64 << 20
HOUR_S = 3600
LATER_S = 2_000_000_000
_LATER = SimpleNamespace(time=lambda: LATER_S, monotonic=time.monotonic, sleep=time.sleep)


class Recorder:
    """Records one small workload in a new guest each time."""

    def __init__(self, scratch: Path) -> None:
        file = scratch / "new.toml"
        file.write_text('summary = "a new file"\noperations = ["create f", "append f 4K", "fsync f"]\n')
        self.profile, self.workload = profiles()["ext4/ordered"], load_workload(str(file))
        machine, kernel = machine_of("qemu", "tcg"), find_kernel("debian-6.12")
        self.spec = spec_of(machine, kernel, [self.profile], [self.workload], scratch / "initramfs.cpio")
        self.base = make_base(self.profile, scratch / "base.zst", scratch)
        self.scratch = scratch

    def inode(self, name: str) -> tuple[bool, str]:
        """Whether the guest loaded a state, and what debugfs(8) says of the file."""
        scratch = self.scratch / name
        scratch.mkdir()
        case = CaseId(self.profile.filesystem, self.profile.mode, self.workload.name)
        kept = CaseLayout(self.scratch / "base.zst", scratch / "case")
        with Session(self.spec, scratch / "session", LOG_BYTES) as session:
            made = record(session, self.profile, self.workload, case, self.base, kept, scratch)
            session.recover(made.target, CrashState(len(made.write_log.entries)))
            guest = session.guest()
            assert isinstance(guest, BareGuest)
            session.disk.image(session.image)
            asked = ["debugfs", "-R", "stat f", str(session.image)]
            return guest.is_loaded, subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def written(said: str) -> int:
    """When the file was written, in seconds since 1970."""
    found = re.search(r"mtime: 0x([0-9a-f]+)", said)
    assert found
    return int(found[1], 16)


def test_a_guest_that_loads_a_state_records_and_recovers_as_one_that_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path)
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    _, booted = recorder.inode("boots")
    monkeypatch.setattr(saved, "time", _LATER)
    is_loaded, said = recorder.inode("loads")
    assert is_loaded
    assert all("Size: 4096" in each for each in (booted, said))
    assert LATER_S <= written(said) < LATER_S + HOUR_S, "the host tells it the time"
    assert abs(written(booted) - time.time()) < HOUR_S
    (state,) = (tmp_path / "cache" / "guests").iterdir()
    size = state.stat().st_size
    with state.open("r+b") as file:
        file.truncate(size // 2)
    state.rename(state.with_suffix(f".{file_hash(state)[:32]}"))  # so that QEMU looks at it
    is_loaded, said = recorder.inode("finds-half-a-state")
    assert not is_loaded
    assert "Size: 4096" in said
    (state,) = (tmp_path / "cache" / "guests").iterdir()
    assert state.stat().st_size > size // 2, "it is saved again"


def test_a_guest_that_is_not_given_its_disks_boots_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker's first case was undecided, and three of them ended the run."""
    recorder = Recorder(tmp_path)
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(saved, "_WITHOUT", set())
    monkeypatch.setattr(BareGuest, "_attach", _refused)
    is_loaded, said = recorder.inode("with-its-disks")
    assert not is_loaded
    assert "Size: 4096" in said
    assert list((tmp_path / "cache" / "guests").iterdir()) == [], "others would meet it"


def _refused(self: BareGuest, timeout_s: float) -> None:
    raise PowercutError("QEMU refuses device_add")
