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
from harness.host.processes import run_group
signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
with open(sys.argv[1], "wb") as out:
    run_group(["sh", "-c", "sleep 600 & echo $!; wait"], out)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_program_printed_and_its_exit_code(tmp_path: Path, code: int) -> None:
    with (tmp_path / "log").open("wb") as log:
        assert run_group(["sh", "-c", f"echo said; echo more >&2; exit {code}"], log) == code
    assert (tmp_path / "log").read_text() == "said\nmore\n"


def test_an_interrupted_build_leaves_nothing_running(tmp_path: Path) -> None:
    """SIGTERM ended `kernel build`, and the compilers that its make had started went on."""
    log = tmp_path / "log"
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(log)], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
        grandchild = int(log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    finally:
        process.kill()
    wait_until(lambda: is_gone(grandchild))


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
