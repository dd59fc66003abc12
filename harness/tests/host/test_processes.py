"""What the harness starts does not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.host.processes import crowding, run_group

INTERRUPTED = """
import signal, sys
from harness.host import processes
processes._ENDING_S = float(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
with open(sys.argv[1], "wb") as out:
    processes.run_group(sys.argv[3:], out)
"""
BUILD = """
half:
\t@echo begun >half
\t@echo $$PPID
\t@sleep 600
"""


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_program_printed_and_its_exit_code(tmp_path: Path, code: int) -> None:
    with (tmp_path / "log").open("wb") as log:
        assert run_group(["sh", "-c", f"echo said; echo more >&2; exit {code}"], log) == code
    assert (tmp_path / "log").read_text() == "said\nmore\n"


@pytest.mark.parametrize(
    ("ending_s", "script"),
    [(600.0, "sleep 600 & echo $!; wait"), (0.1, "trap '' TERM; sleep 600 & echo $!; wait")],
    ids=["asked to end", "deaf"],
)
def test_an_interrupted_build_leaves_nothing_running(tmp_path: Path, ending_s: float, script: str) -> None:
    """SIGTERM ended `kernel build`, and the compilers that its make had started went on."""
    grandchild = interrupted(tmp_path / "log", ending_s, "sh", "-c", script)
    wait_until(lambda: is_gone(grandchild))


def test_an_interrupted_make_removes_what_it_was_making(tmp_path: Path) -> None:
    """It was killed at once: half an object counted as made, and the next commit did not link."""
    (tmp_path / "Makefile").write_text(BUILD)
    interrupted(tmp_path / "log", 600.0, "make", "-s", "-C", str(tmp_path), "half")
    assert not (tmp_path / "half").exists()


def interrupted(log: Path, ending_s: float, *line: str) -> int:
    """Interrupt a build that has printed a number; returns that."""
    command = [sys.executable, "-c", INTERRUPTED, str(log), str(ending_s), *line]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    finally:
        process.kill()
    return int(log.read_text().split()[0])


def wait_until(holds: Callable[[], bool]) -> None:
    """Fails where it does not come to hold within a minute."""
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    pytest.fail("it did not come to hold within a minute")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.mark.parametrize(("load", "expected"), [(0.0, 1.0), (2.0, 1.0), (12.0, 6.0), (400.0, 10.0)])
def test_how_crowded_a_host_is(monkeypatch: pytest.MonkeyPatch, load: float, expected: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert crowding() == expected
