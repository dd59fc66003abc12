"""A booted guest that answers: one request, one reply, each with a deadline.

This lowest layer tells apart a guest that reports a failure (GuestError) and a guest that no longer
answers (GuestLost, with its console).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import GuestError, GuestLost, VersionsDiffer
from harness.guests import wire
from harness.guests.console import Console
from harness.host.processes import die_with_parent
from harness.host.text import without_error_numbers

CONSOLE_NAME = "console.txt"
_SAID_BYTES = 400  # of the output of a machine that ended before its guest was up

Reply = TypeVar("Reply", bound=msgspec.Struct)


class Guest:
    """A machine's process with the agent in it, started by `launch`. Owned by one thread; any thread may
    call `end`, and the owner's request then fails with GuestLost at once.

    The process leads a group, since a machine may have several processes. `hello` is the agent's greeting.
    """

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, console: Path) -> None:
        assert process.stdout is not None  # noqa: S101  # `launch` asks for it; tells mypy
        self.process = process
        self._channel = channel
        self._console = Console(console, process.stdout, process, on_flood=self.end, on_end=self._hang_up)  # type: ignore[arg-type]  # Popen's pipe is unbuffered
        self.hello = wire.Hello(protocol=0, release="", version="", module_errors=[], dm_targets=[])

    def wait_until_up(self, timeout_s: float) -> None:
        """Receive the agent's greeting. Raises GuestLost if none comes in time, VersionsDiffer if it is of
        another protocol.
        """
        try:
            self.hello = self._receive(wire.Hello, timeout_s, "boot")
        except GuestLost as e:
            said = "" if self.alive else e.console.strip()[-_SAID_BYTES:]
            if said:
                raise GuestLost(f"{e.what}; it said: {said}", e.console, e.next_step) from e
            raise
        if self.hello.protocol != wire.PROTOCOL_VERSION:
            raise VersionsDiffer(
                f"the agent speaks protocol {self.hello.protocol}, the harness {wire.PROTOCOL_VERSION}",
                "rebuild it: make setup",
            )

    def request(self, message: msgspec.Struct, reply: type[Reply], timeout_s: float) -> Reply:
        """Send `message` and wait for the reply.

        Raises GuestError if the agent replies `Failed` or another type; GuestLost if it does not reply
        within `timeout_s`, the machine has ended, or the guest floods its console.
        """
        what = type(message).__name__
        self._console.begin_request()
        try:
            wire.send_in_pieces(self._channel, message, time.monotonic() + timeout_s)
        except wire.WireError as e:
            raise self._lost(f"{what}: cannot be sent ({e.what})") from e
        return self._receive(reply, timeout_s, what)

    def hear(self, reply: type[Reply], timeout_s: float, what: str) -> Reply:
        """Wait for the reply to a request that the guest had from the beginning. Raises as `request`."""
        self._console.begin_request()
        return self._receive(reply, timeout_s, what)

    def _receive(self, expected: type[Reply], timeout_s: float, what: str) -> Reply:
        try:
            reply = wire.receive(self._channel, wire.AgentReply, time.monotonic() + timeout_s)
        except wire.WireTimeoutError as e:
            raise self._lost(f"{what}: no answer within {timeout_s:g} s") from e
        except wire.WireError as e:
            raise self._lost(f"{what}: {e.what}") from e
        if isinstance(reply, expected):
            return reply
        if isinstance(reply, wire.AgentFailed):
            raise GuestError(without_error_numbers(reply.what))
        raise GuestError(f"{what}: expected {expected.__name__}, the agent answered {type(reply).__name__}")

    def _lost(self, what: str) -> GuestLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=0.5)  # a panic ends the machine; let its last output arrive
            self._console.join()
        if self._console.flooded:
            why = (
                f"its console exceeded {self._console.limit_bytes >> 20} MiB in one request, so it was ended"
            )
            return GuestLost(f"guest lost: {what}; {why}", self.console())
        code = self.process.poll()
        state = "still running" if code is None else f"ended with {code}"
        return GuestLost(f"guest lost: {what}; machine {state}", self.console())

    def console(self) -> str:
        """The end of what the guest's kernel printed."""
        return self._console.tail()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill it at once, as a power cut would, and reap it."""
        self.end()
        self.process.wait()
        self._console.join()
        self._channel.close()

    def end(self) -> None:
        """Kill the machine with all its processes; may be called from any thread."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _hang_up(self) -> None:
        """The machine has ended: wake whoever waits for a reply. What has arrived can still be read."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)


Parts = tuple[subprocess.Popen[bytes], socket.socket, Path]
"""What a guest is made of."""


def launch(
    line_for: Callable[[int], list[str]],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    where: Path | None = None,
) -> Guest:
    """Start a machine; `line_for` makes its command line from the descriptor of the agent's channel. Its
    console, the output of the process, goes to CONSOLE_NAME in `directory`. `where`: its working directory;
    the channel is then its standard input, so that the line is the same each time. Does not wait for the
    agent.
    """
    return Guest(*start(line_for, directory, environment, where))


def start(
    line_for: Callable[[int], list[str]],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    where: Path | None = None,
    more: Sequence[int] = (),
) -> Parts:
    """The same for another kind of guest. `more`: descriptors that the machine has besides."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            die_with_parent(line_for(0 if where else theirs.fileno())),
            stdin=theirs.fileno() if where else subprocess.DEVNULL,
            cwd=where,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=environment,
            pass_fds=[theirs.fileno(), *more],
            start_new_session=True,  # Ctrl-C is for us; we kill the guest, with all its processes
        )
    return process, ours, directory / CONSOLE_NAME
