"""An orchestrator that is killed (SIGKILL) leaves no process behind, and no folder for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.cases.fsck_reads import find_library
from harness.guests import disk as disk_module
from harness.guests.disk import Disk
from harness.guests.uml import find_shim
from harness.host.folders import LOCK_NAME, OwnedFolder, sweep
from harness.tests.needs import needed

DEADLINE_S = 30.0
ORCHESTRATOR = """
import pathlib, sys, time
from harness.guests.disk import Disk
from harness.tests.guests.processes import SLEEPS, Scripted
disk = Disk()
guest = Scripted("print('up', flush=True);" + SLEEPS).launch_in(pathlib.Path(sys.argv[1]))
while sys.argv[2] == "True" and "up" not in guest.console():
    time.sleep(0.01)
print(disk.pid, guest.process.pid, disk.socket.parent, flush=True)
time.sleep(120)
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder, for this process and those that it starts. With a short name: that of a socket in
    it has at most 107 characters (unix(7)), and pytest's own folders take most of them.
    """
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Path(folder)


def has_ended(pid: int) -> bool:
    """Also where nobody has reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def ended(pids: Sequence[int]) -> bool:
    """Whether all of them end; they are given time."""
    deadline = time.monotonic() + DEADLINE_S
    while not all(map(has_ended, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return all(map(has_ended, pids))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_orchestrator_leaves_no_process_and_its_folder_is_swept(
    temporary: Path, stopped: bool
) -> None:
    """A disk that was stopped, or was just being started, stayed for ever, and its folder always."""
    with needed():
        disk_module.find_binary()
    argv = [sys.executable, "-c", ORCHESTRATOR, str(temporary), str(stopped)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as orchestrator:
        assert orchestrator.stdout is not None
        disk, guest, folder = orchestrator.stdout.readline().split()
        children = [int(disk), int(guest)]
        if stopped:
            for pid in children:
                os.kill(pid, signal.SIGSTOP)
        orchestrator.kill()
    assert ended(children)
    assert Path(folder).exists()
    with Disk() as next_one:
        assert not Path(folder).exists()
        assert next_one.socket.exists()


TRACER = """
import os, subprocess, sys
environment = {**os.environ, "LD_PRELOAD": sys.argv[1], "POWERCUT_TRACE_OUT": sys.argv[2]}
fsck = subprocess.Popen(["sh", "-c", "echo up; exec sleep 120"], stdout=subprocess.PIPE, env=environment)
fsck.stdout.readline()
print(fsck.pid, flush=True)
fsck.wait()
"""


def test_a_killed_orchestrator_leaves_no_traced_fsck(tmp_path: Path) -> None:
    """It went on alone, and for ever where it had been stopped."""
    with needed():
        library = find_library()
    trace = tmp_path / "trace"
    trace.touch()
    argv = [sys.executable, "-c", TRACER, str(library), str(trace)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as orchestrator:
        assert orchestrator.stdout is not None
        pid = int(orchestrator.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        orchestrator.kill()
    assert ended([pid])


UML_WITH_A_HELPER = """
import ctypes, signal, time
library, stack = ctypes.CDLL(None), ctypes.create_string_buffer(1 << 16)
print(library.clone(library.pause, ctypes.byref(stack, 1 << 15), signal.SIGCHLD, None), flush=True)
time.sleep(120)
"""


UML_THAT_STARTS = """
import ctypes, os, signal, time
library = ctypes.CDLL(None)
child = library.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, os.WUNTRACED)
print(child, flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("script", [UML_WITH_A_HELPER, UML_THAT_STARTS], ids=["a-helper", "while-it-starts"])
def test_a_killed_uml_leaves_no_child(script: str) -> None:
    """Debian's ready UML clones a helper for each of its devices: they slept on, and held its memory. While
    it starts it tries ptrace on a child that stops itself, which then waited for ever: chaos found one.
    """
    with needed():
        environment = {**os.environ, "LD_PRELOAD": str(find_shim())}
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as uml:
        assert uml.stdout is not None
        child = int(uml.stdout.readline())
        assert not has_ended(child)
        uml.kill()
    assert ended([child])


def test_a_folder_whose_owner_lives_is_not_swept(temporary: Path) -> None:
    with OwnedFolder("powercut-test-") as owned, OwnedFolder("powercut-test-") as another:
        assert sweep("powercut-test-") == []
        assert (owned.path / LOCK_NAME).exists()
        assert another.path.exists()
    assert list(temporary.iterdir()) == []


def test_a_folder_without_a_lock_is_not_swept(temporary: Path) -> None:
    """It may be just being made, or a user's own that has such a name."""
    new = temporary / "powercut-test-notes"
    new.mkdir()
    assert sweep("powercut-test-") == []
    (new / LOCK_NAME).touch()
    assert sweep("powercut-test-") == [new]


def test_a_folder_of_a_process_that_was_killed_before_it_had_locked_it_is_swept(temporary: Path) -> None:
    """It stayed for ever: chaos found one on a busy host, where nothing is done in an instant."""
    ended_one = subprocess.Popen(["true"])
    ended_one.wait()
    gone, making = (temporary / f"powercut-test-{pid}-x1y2" for pid in (ended_one.pid, os.getpid()))
    gone.mkdir()
    making.mkdir()
    (gone / f"{LOCK_NAME}.new").touch()
    assert sweep("powercut-test-") == [gone]
    assert list(temporary.iterdir()) == [making]
