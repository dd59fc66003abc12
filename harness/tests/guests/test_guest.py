"""A machine's process: its console within bounds, its end noticed, no wait that cannot be ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import GuestError, GuestLost
from harness.guests import console, wire
from harness.guests.console import CONSOLE_FILE_BYTES, CONSOLE_TAIL_BYTES
from harness.guests.guest import Guest
from harness.tests.guests.processes import GREETS, SLEEPS, Scripted
from harness.writelog.events import no_events, why_no_events


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


def test_a_failure_is_told_in_words_without_numbers_of_errors(tmp_path: Path) -> None:
    """A verdict said "no tracefs (No such file or directory (os error 2)) (errno 5)" to a layman."""
    failed = wire.AgentFailed("no tracefs (No such file or directory (os error 2))", 5)
    with running(SLEEPS, tmp_path) as guest, pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire, "receive", lambda *_: failed)
        with pytest.raises(GuestError) as caught:
            guest.hear(wire.Unmounted, 60.0, "Unmount")
    assert caught.value.what == "no tracefs (No such file or directory)"
    assert why_no_events(no_events(failed.what)) == "no tracefs (No such file or directory)"


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


THROTTLED = """
import os, socket, struct, sys
from harness.guests import wire
channel = socket.socket(fileno=int(sys.argv[1]))
def need_silence():
    try:
        sys.exit(f"the line holds more: {len(channel.recv(1 << 20, socket.MSG_DONTWAIT))}")
    except BlockingIOError:
        pass
wire.send(channel, wire.Hello(wire.PROTOCOL_VERSION, "6.0-fake", "#1", [], ["log-writes"]))
while True:
    (left,) = struct.unpack("<I", channel.recv(4, socket.MSG_WAITALL))
    body = b""
    while left:
        piece = channel.recv(min(left, wire.LIMITS["PIECE_BYTES"]), socket.MSG_WAITALL)
        body += piece
        left -= len(piece)
        if left:
            need_silence()
            channel.send(wire.MORE)
    request = wire.decode(body, wire.AgentRequest)
    wire.send(channel, wire.ProgramDone(0, request.data))
"""


def test_no_request_is_longer_than_the_line_to_the_guest_can_hold(tmp_path: Path) -> None:
    """UML's serial line stopped for good in requests above some 3.9 KiB: "no answer within 600 s". It goes in
    pieces, each once the guest has read the one before; replies of any length were never in danger.
    """
    piece = wire.LIMITS["PIECE_BYTES"]
    with running(THROTTLED, tmp_path) as guest:
        guest.wait_until_up(60.0)
        for length in (0, piece, piece + 1, 5 * piece, 1 << 20):
            put = wire.PutFile(path="/x", mode=0o644, data=bytes(length))
            assert guest.request(put, wire.ProgramDone, 60.0).output == put.data


def test_a_guest_that_answers_in_the_middle_of_a_request_is_lost(tmp_path: Path) -> None:
    script = GREETS + "wire_fd = int(sys.argv[1]); os.write(wire_fd, b'?'); time.sleep(120)"
    with running(script, tmp_path) as guest:
        guest.wait_until_up(60.0)
        put = wire.PutFile(path="/x", mode=0o644, data=bytes(10_000))
        with pytest.raises(GuestLost, match=r"the agent answered b'\?' after 2048 of"):
            guest.request(put, wire.Done, 60.0)


@pytest.mark.parametrize(("load", "limit"), [(0.0, 30.0), (6.0, 180.0)])
def test_a_guest_may_take_longer_to_boot_on_a_busy_host(
    monkeypatch: pytest.MonkeyPatch, load: float, limit: float
) -> None:
    """A guest that had waited for a processor for half a minute was lost, and its case undecided."""
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert Scripted("", boot_timeout_s=30.0).boot_timeout_s == limit
