"""Guests that do not come up, and runs that are stopped meanwhile: an end within seconds, and why."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from harness.errors import DiskError, GuestLost, NeverBoots, VersionsDiffer
from harness.guests import disk as disk_module
from harness.guests.boots import BOOTS_IN_A_ROW, Boots
from harness.guests.session import GuestSpec, Session, Target
from harness.model import CrashState
from harness.tests.guests.processes import GREETS, SLEEPS, Scripted
from harness.tests.needs import needed

FAILS = "import sys; sys.exit('not a kernel')"


@pytest.fixture(autouse=True)
def a_disk_can_be_had() -> None:
    with needed():
        disk_module.find_binary()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base"
    path.write_bytes(bytes(1 << 20))
    return path


def spec(machine: Scripted, directory: Path) -> GuestSpec:
    for name in ("kernel", "initramfs"):
        (directory / name).touch()
    return GuestSpec(machine, directory / "kernel", directory / "initramfs")


def test_a_kernel_that_never_boots_is_tried_three_times_by_all_workers_together(
    tmp_path: Path, base: Path
) -> None:
    """Each state of each case waited for three boots of its own: 3 x 120 s under emulation."""
    machine = Scripted(FAILS)
    shared = spec(machine, tmp_path)
    target = Target("ext4", "", base, None)
    sessions = [Session(shared, tmp_path / f"{i}", 512) for i in range(2)]
    for session in (sessions[0], sessions[1]):
        with pytest.raises(GuestLost, match="not a kernel"):
            session.recover(target, CrashState(0))
    for session in (sessions[0], sessions[1], sessions[0]):
        with pytest.raises(NeverBoots, match="3 guests in a row did not come up") as caught:
            session.recover(target, CrashState(0))
        assert "its console ends: not a kernel" in caught.value.what
        assert str(shared.kernel_image) in caught.value.what
    assert machine.launched == BOOTS_IN_A_ROW
    with pytest.raises(NeverBoots):
        sessions[1].refuse_if_given_up()


def test_a_guest_of_another_version_is_the_last_that_is_booted(tmp_path: Path, base: Path) -> None:
    """Each case booted one, and was UNKNOWN for it."""
    machine = Scripted(GREETS.replace("wire.PROTOCOL_VERSION", "wire.PROTOCOL_VERSION - 1") + SLEEPS)
    shared = spec(machine, tmp_path)
    with Session(shared, tmp_path / "one", 512) as one, Session(shared, tmp_path / "other", 512) as other:
        for session in (one, other):
            with pytest.raises(VersionsDiffer, match="the agent speaks protocol"):
                session.recover(Target("ext4", "", base, None), CrashState(0))
    assert machine.launched == 1
    with pytest.raises(VersionsDiffer):
        other.refuse_if_given_up()


def test_a_disk_of_another_version_is_the_last_that_is_started(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each state asked for one, and was UNKNOWN for it."""
    script = tmp_path / "disk"
    script.write_text("#!/bin/sh\necho ready 0\nsleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("POWERCUT_DISK", str(script))
    shared = spec(Scripted(GREETS + SLEEPS), tmp_path)
    with Session(shared, tmp_path / "one", 512) as one, Session(shared, tmp_path / "other", 512) as other:
        with pytest.raises(VersionsDiffer, match="does not speak the harness's protocol"):
            one.recover(Target("ext4", "", base, None), CrashState(0))
        for session in (one, other):
            with pytest.raises(VersionsDiffer):
                session.refuse_if_given_up()


def test_a_guest_that_comes_up_resets_the_count() -> None:
    boots = Boots()
    for _ in range(5):
        for _ in range(BOOTS_IN_A_ROW - 1):
            boots.failed("a machine", GuestLost("guest lost: boot"))
        boots.refuse_if_given_up()
        boots.succeeded()


def test_a_run_can_be_stopped_while_a_guest_boots(tmp_path: Path, base: Path) -> None:
    """SIGTERM during a boot was heard when the boot's time was up: two minutes, three times in a row."""
    shared = spec(Scripted(SLEEPS), tmp_path)
    with Session(shared, tmp_path / "session", 512) as session:
        session.show(Target("", "", base, None))
        stopping = threading.Timer(0.2, session.stop)
        stopping.start()
        with pytest.raises(GuestLost, match="the run was stopped"):
            session.guest()
        stopping.join()
        with pytest.raises(GuestLost, match="the run was stopped"):
            session.recover(Target("ext4", "", base, None), CrashState(0))
    session.refuse_if_given_up()  # a guest that was ended says nothing of its kernel


def test_a_run_can_be_stopped_while_its_disk_does_not_answer(tmp_path: Path, base: Path) -> None:
    """A disk that was stopped (SIGSTOP) was waited for for a minute at each request."""
    shared = spec(Scripted(GREETS + SLEEPS), tmp_path)
    with Session(shared, tmp_path / "session", 512) as session:
        disk = session.show(Target("", "", base, None))
        os.kill(disk.pid, signal.SIGSTOP)
        stopping = threading.Timer(0.2, session.stop)
        stopping.start()
        with pytest.raises(DiskError, match="ended with code -9"):
            disk.switch(CrashState(0))
        stopping.join()


def test_a_power_cut_leaves_the_disk(tmp_path: Path, base: Path) -> None:
    """`kill` is not `stop`: what the dead guest has written is looked at."""
    shared = spec(Scripted(GREETS + SLEEPS), tmp_path)
    with Session(shared, tmp_path / "session", 512) as session:
        disk = session.show(Target("", "", base, None))
        guest = session.guest()
        session.kill()
        guest.process.wait()
        disk.image(tmp_path / "image")
        assert (tmp_path / "image").read_bytes() == base.read_bytes()
