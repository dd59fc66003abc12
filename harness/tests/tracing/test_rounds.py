"""What a trace says while it works."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.filesystems.profiles import select_profiles
from harness.guests.accel import Chosen
from harness.kernels.find import Kernel
from harness.tests.said import Said
from harness.tools_image import guest
from harness.tracing import rounds
from harness.tracing.evaluate import Round
from harness.tracing.records import Record
from harness.tracing.rounds import TracePlan, Tracing

WAIT_S = 60


class Heard(Said):
    """Progress that notes what is said, and lets work wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._more = threading.Event()

    def say(self, text: str) -> None:
        super().say(text)
        self._more.set()

    def wait(self) -> None:
        """Long work: until something is said of it."""
        self._more.clear()
        assert self._more.wait(WAIT_S), self.lines


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    monkeypatch.setattr("harness.host.progress.PLAIN_INTERVAL_S", 0.01)
    return Heard()


def test_a_long_round_says_which_it_is(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever traced under emulation saw nothing for half a minute."""

    @contextlib.contextmanager
    def mounted(*_: object) -> Iterator[str]:
        yield "/mnt"

    def take(_: Tracing) -> Round:
        heard.wait()
        return Round(list[Record](), 1.0, 1.0, None)

    monkeypatch.setattr(rounds, "mounted", mounted)
    monkeypatch.setattr(rounds, "take", take)
    nothing: Any = SimpleNamespace()
    t = Tracing(TracePlan(rounds=1), nothing, nothing, select_profiles(["ext4/ordered"]), {})
    (mode,) = rounds._rounds(t, heard)
    assert len(mode.rounds) == 1
    assert any(text.endswith("s  ext4/ordered: round 1 of 1") for text in heard.lines)


def test_a_guest_with_tools_says_that_it_boots(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> Any:
        heard.wait()
        return SimpleNamespace()

    machine: Any = SimpleNamespace(name="qemu", accel="tcg")
    monkeypatch.setattr(guest, "root_image", lambda _: tmp_path / "root")
    monkeypatch.setattr(guest, "pack", lambda *_: tmp_path / "initramfs")
    monkeypatch.setattr(guest, "choose_accel", lambda *_, **__: Chosen(machine, "asked for"))
    monkeypatch.setattr(guest, "_start", start)
    kernel = Kernel("k", tmp_path / "k", None, "")
    guest.boot_tools_guest(kernel, tmp_path, disk_bytes=1 << 20, progress=heard, headers=False)
    assert heard.lines[0].endswith("s  a guest with tools boots")


class HostAsGuest:
    """A guest with tools whose shell is that of this host, in a folder."""

    kernel_release, machine, accel, device, alive = "6.12", "qemu", "tcg", "/dev/vdb", True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *_: object) -> None: ...

    def mount(self, *_: object) -> str:
        return str(self._folder)

    def unmount(self) -> None: ...

    def put(self, path: str, data: bytes) -> None:
        (self._folder / Path(path).name).write_bytes(data)

    def shell(self, script: str, timeout_s: float) -> SimpleNamespace:
        script = script.replace("/run/trace", str(self._folder))
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
        return SimpleNamespace(output=done.stdout)


@pytest.mark.parametrize(
    ("workload", "missing"),
    [
        ("echo >>ran", ""),
        ("echo >>ran; exit 7", "ended with 7"),
        ("echo >>ran; no-such-program", "ended with 127"),
        ("echo >>ran\nif", "ended with 2"),  # it does not parse
    ],
)
def test_a_workload_that_fails_in_the_background_is_no_measurement(
    workload: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals of a program that the guest does not have read as ones in which nothing was synced."""
    ran = tmp_path / ("failed" if missing else "ran")

    def collect() -> list[Record]:
        """An interval lasts until the workload has run once."""
        while probes.begun and not ran.exists():
            threading.Event().wait(0.01)
        probes.begun = True
        return []

    probes: Any = SimpleNamespace(source="bcc", reason="", collect=collect, begun=False)
    tools: Any = HostAsGuest(tmp_path)
    monkeypatch.setattr(rounds, "MOUNT_POINT", str(tmp_path))
    plan = TracePlan(workload=workload, interval_s=0.01, count=1)
    t = Tracing(plan, tools, probes, select_profiles(["ext4/ordered"]), {})
    m = rounds.intervals(t, lambda _: None, tmp_path)
    assert [text.partition(",")[0] for text in m.missing] == (
        [f"ext4/ordered: the workload {missing}"] if missing else []
    )
