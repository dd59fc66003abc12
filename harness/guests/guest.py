"""A guest that has booted and answers: one request, one reply, each with a deadline.

Told apart here, at the lowest layer: a guest that said "I could not" (GuestError), and a guest that
says nothing any more (GuestLost, with its console).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import GuestError, GuestLost
from harness.guests import wire

CONSOLE_TAIL_BYTES = 16_384

Reply = TypeVar("Reply", bound=msgspec.Struct)


class Guest:
    """A running machine with the agent in it. Owned by one thread. `group`: it leads a process group.

    `hello` is what the agent said of itself when it came up.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], channel: socket.socket, console: Path, *, group: bool = False
    ) -> None:
        self.process = process
        self.console_path = console
        self._channel = channel
        self._group = group
        self.hello = wire.Hello(protocol=0, release="", version="", module_errors=[], dm_targets=[])

    def wait_until_up(self, timeout_s: float) -> None:
        """Receive the agent's greeting. Raises GuestLost where none comes in time."""
        self.hello = self._receive(wire.Hello, timeout_s, "boot")
        if self.hello.protocol != wire.PROTOCOL_VERSION:
            raise GuestError(
                f"the agent speaks protocol {self.hello.protocol}, the harness {wire.PROTOCOL_VERSION}",
                "rebuild it: make setup",
            )

    def request(self, message: msgspec.Struct, reply: type[Reply], timeout_s: float) -> Reply:
        """Send and wait for the reply.

        Raises GuestError where the agent answers `Failed` or another type, GuestLost where it does
        not answer within `timeout_s` or the machine has ended.
        """
        what = type(message).__name__
        try:
            wire.send(self._channel, message, time.monotonic() + timeout_s)
        except wire.WireError as e:
            raise self._lost(f"{what}: cannot be sent ({e.what})") from e
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
            raise GuestError(f"{what}: {reply.what} (errno {reply.errno})")
        raise GuestError(f"{what}: expected {expected.__name__}, the agent answered {type(reply).__name__}")

    def _lost(self, what: str) -> GuestLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=0.5)  # a panic ends the machine; let its last words arrive
        code = self.process.poll()
        state = "still running" if code is None else f"ended with {code}"
        return GuestLost(f"guest lost: {what}; machine {state}", self.console())

    def console(self) -> str:
        """The end of what the guest's kernel printed."""
        try:
            data = self.console_path.read_bytes()[-CONSOLE_TAIL_BYTES:]
        except OSError:
            return ""
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it at once, as a power cut would; nothing in it is worth keeping."""
        with contextlib.suppress(OSError):
            self._channel.close()
        self.end()
        self.process.wait()

    def end(self) -> None:
        """Kill the machine, all its processes where it has several; may be called from any thread."""
        if self._group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
