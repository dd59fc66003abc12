"""Programs that are started once, and forked for each run: see `vms/readtrace/src/server.rs`.

Loading and linking a checker takes longer than a fork of it. A server runs one command line; each run gets
files for its output and for the trace of its reads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.host.files import memory_file

TRACE_OUT = "POWERCUT_TRACE_OUT"
_START_TIMEOUT_S = 20.0
_STATUS = struct.Struct("i")


Start = Callable[[Sequence[str], Mapping[str, str], float], subprocess.CompletedProcess[bytes]]
"""Runs a command line with this environment, for at most so many seconds; `stdout` of the result holds output
and errors. Raises TimeoutExpired.
"""


def start_anew(
    line: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program the usual way. Raises TimeoutExpired."""
    return subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        timeout=timeout_s,
        check=False,
    )


class NoServerError(Exception):
    """The program cannot be served so, or its server has ended."""


class ForkServer(contextlib.AbstractContextManager["ForkServer"]):
    """A loaded program. Owned by one thread, with which it ends. `environment`: all of the program's, with
    the library that serves it in LD_PRELOAD. `close` it.

    Raises NoServerError if the program does not come up as a server: it is linked statically, or not there.
    """

    def __init__(self, line: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**environment, "POWERCUT_SERVE": str(theirs.fileno())},
                    pass_fds=[theirs.fileno()],
                )
            except OSError as e:
                self._socket.close()
                raise NoServerError(str(e)) from e
        try:
            if not self._receive(_START_TIMEOUT_S):
                raise NoServerError(f"{line[0]} does not serve")
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the process that is forked."""
        return self._process.pid

    def run(self, trace: Path, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        """Run it once. `stdout` of the result holds output and errors; `trace`: an empty file. Raises
        NoServerError if the server has ended, TimeoutExpired if the run does not end; then close the server.
        """
        with memory_file("output") as output:
            try:
                self._socket.send(b"\0".join((str(output).encode(), str(trace).encode(), b"")))
                answer = self._receive(timeout_s)
            except OSError as e:
                raise NoServerError(str(e)) from e
            if len(answer) != _STATUS.size:
                raise NoServerError("the server has ended")
            code = os.waitstatus_to_exitcode(_STATUS.unpack(answer)[0])
            return subprocess.CompletedProcess(self._process.args, code, output.read_bytes())

    def _receive(self, timeout_s: float) -> bytes:
        """A message; empty if the server has ended. Raises TimeoutExpired."""
        self._socket.settimeout(timeout_s)
        began = time.monotonic()
        try:
            return self._socket.recv(_STATUS.size)
        except TimeoutError as e:
            raise subprocess.TimeoutExpired(self._process.args, time.monotonic() - began) from e

    def close(self) -> None:
        """End it, and the run that it may have. Safe to call twice."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


class ForkServers:
    """The servers of one thread, by command line and environment. `close` it."""

    def __init__(self) -> None:
        self._servers: dict[object, ForkServer | None] = {}

    def run(
        self, line: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """As `start_anew`, for a program that writes a trace of its reads to the file that TRACE_OUT names:
        in a fork of its server, or anew where it has none. A run whose server is killed is killed with it.
        """
        kept = {name: value for name, value in environment.items() if name != TRACE_OUT}
        key = (tuple(line), frozenset(kept.items()))
        if key not in self._servers:
            self._servers[key] = self._start(line, kept)
        server = self._servers[key]
        if server is None:
            return start_anew(line, environment, timeout_s)
        try:
            return server.run(Path(environment[TRACE_OUT]), timeout_s)
        except BaseException as e:
            del self._servers[key]
            server.close()
            if not isinstance(e, NoServerError):
                raise
            return subprocess.CompletedProcess(line, -signal.SIGKILL, b"")

    def _start(self, line: Sequence[str], environment: Mapping[str, str]) -> ForkServer | None:
        try:
            return ForkServer(line, environment)
        except (NoServerError, subprocess.TimeoutExpired):
            return None

    def pids(self) -> list[int]:
        """Of the servers that run."""
        return [server.pid for server in self._servers.values() if server]

    def close(self) -> None:
        """End all servers. They are started again when they are needed."""
        for server in filter(None, self._servers.values()):
            server.close()
        self._servers.clear()
