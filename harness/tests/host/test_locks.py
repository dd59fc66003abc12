"""One process at a time; the others are told who has it, and wait no longer than they said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import InUse
from harness.host.locks import exclusive

HOLDS = """
import sys
from pathlib import Path
from harness.host.locks import exclusive
with exclusive(Path(sys.argv[1]), "it", lambda _: None):
    print("has it", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def held(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock until it is told a line, or this ends."""
    argv = [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "has it\n"
            yield holder
        finally:
            holder.kill()


BUILDS = """
import sys
from pathlib import Path
from harness.host.locks import exclusive
from harness.host.processes import run_group
with exclusive(Path(sys.argv[1]), "it", lambda _: None):
    run_group(["sh", "-c", "echo $$; exec sleep 600"], sys.stdout.buffer)
"""


def test_a_killed_build_has_its_lock_until_the_last_of_its_programs_has_ended(tmp_path: Path) -> None:
    """make went on in the kept tree, and the next build of another process worked in it at the same time."""
    lock = tmp_path / "lock"
    argv = [sys.executable, "-c", BUILDS, str(lock)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        program = int(build.stdout.readline())
        build.kill()
        build.wait()
        try:
            with pytest.raises(InUse), exclusive(lock, "it", print, 0.01):
                pass
        finally:
            os.kill(program, signal.SIGKILL)
        with exclusive(lock, "it", print, 60):
            pass


def test_the_second_waits_for_the_first_and_says_for_whom(tmp_path: Path) -> None:
    """Two test processes each built the same kernel, for minutes."""
    lock, said = tmp_path / "lock", list[str]()
    with held(lock) as holder:

        def say(text: str) -> None:
            said.append(text)
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()

        with exclusive(lock, "the kernel", say, 600):
            assert lock.read_text() == f"{os.getpid()}"
    (line,) = said
    assert line.startswith(f"the kernel: in use by process {holder.pid} ({sys.executable} -c")
    assert line.endswith(f"; waiting for it, up to 10 min (lock file {lock})")


def test_a_wait_has_an_end_and_a_next_step(tmp_path: Path) -> None:
    """`powercut faults` waited without a limit for the tree of another campaign, which has it for hours."""
    lock, said = tmp_path / "lock", list[str]()
    with held(lock) as holder, pytest.raises(InUse) as caught, exclusive(lock, "the tree", said.append, 0.3):
        pytest.fail("two have it")
    assert f"the tree: still in use by process {holder.pid} (" in caught.value.what
    assert f"(lock file {lock})" in caught.value.what
    assert "stop it" in caught.value.next_step


def test_nobody_is_told_of_a_lock_that_is_free(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with exclusive(tmp_path / "lock", "the kernel", said.append):
            pass
    assert said == []
