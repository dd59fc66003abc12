"""A machine's process: its console within bounds, its end noticed, no wait that cannot be ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import GuestLost
from harness.guests import console, wire
from harness.guests.console import CONSOLE_FILE_BYTES, CONSOLE_TAIL_BYTES
from harness.guests.guest import Guest
from harness.tests.guests.processes import GREETS, SLEEPS, Scripted


@contextmanager
def running(script: str, directory: Path) -> Iterator[Guest]:
    guest = Scripted(script).launch_in(directory)
    try:
        yield guest
    finally:
        guest.kill()


def test_a_machine_that_ends_before_its_guest_is_up_is_noticed_with_its_words(tmp_path: Path) -> None:
    """It used to be waited for until the boot's time was up, where a child of it held the channel open."""
    script = """
import subprocess, sys
subprocess.Popen(["sleep", "100"], pass_fds=[int(sys.argv[1])])
sys.exit("no such kernel")
"""
    with running(script, tmp_path) as guest, pytest.raises(GuestLost) as caught:
        guest.wait_until_up(60.0)
    assert "ended with 1; it said: no such kernel" in caught.value.what


def test_what_the_agent_answered_before_the_machine_ended_is_still_read(tmp_path: Path) -> None:
    with running(GREETS, tmp_path) as guest:
        guest.process.wait()
        guest._console.join()
        guest.wait_until_up(60.0)
        assert guest.hello.release == "6.0-fake"
        with pytest.raises(GuestLost, match="ended with 0"):
            guest.request(wire.Unmount(), wire.Unmounted, 60.0)


def test_a_guest_that_is_ended_from_another_thread_wakes_who_waits_for_it(tmp_path: Path) -> None:
    with running(SLEEPS, tmp_path) as guest:
        ending = threading.Timer(0.1, guest.end)
        ending.start()
        with pytest.raises(GuestLost, match="ended with -9"):
            guest.wait_until_up(60.0)
        ending.join()


def test_a_console_keeps_its_beginning_and_its_end_within_its_limit(tmp_path: Path) -> None:
    """A kernel that prints without end left 2.5 GB in 12 seconds, which an error then read as a whole."""
    script = """
import sys
sys.stdout.write("the first line\\n")
for i in range(300_000):
    sys.stdout.write(f"line number {i}\\n")
sys.stdout.write("the last line\\n")
"""
    with running(script, tmp_path) as guest:
        guest.process.wait()
        guest._console.join()
        text = (tmp_path / "console.txt").read_text()
        assert len(text) <= CONSOLE_FILE_BYTES
        assert text.startswith("the first line\nline number 0\n")
        assert text.endswith("line number 299999\nthe last line\n")
        assert "KiB of the console left out here" in text
        assert guest.console().endswith("the last line\n")
        assert len(guest.console()) <= CONSOLE_TAIL_BYTES


def test_a_guest_that_floods_its_console_is_ended_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "CONSOLE_REQUEST_BYTES", 1 << 20)
    script = GREETS + "while True: print('again and again')"
    with (
        running(script, tmp_path) as guest,
        pytest.raises(GuestLost, match="its console exceeded 1 MiB") as caught,
    ):
        guest.wait_until_up(60.0)
        guest.request(wire.Unmount(), wire.Unmounted, 60.0)
    assert "again and again" in caught.value.console


def test_every_request_may_print_as_much_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "CONSOLE_REQUEST_BYTES", 1000)
    with running(SLEEPS, tmp_path) as guest:
        for _ in range(5):
            guest._console.begin_request()
            guest._console._take(b"x" * 900)
        assert not guest._console.flooded
        assert guest.alive
