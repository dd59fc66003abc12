"""A guest's console: what its kernel prints, in bounded space."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

CONSOLE_FILE_BYTES = 1 << 20
"""The most that a console's file holds: its beginning and its end."""
CONSOLE_REQUEST_BYTES = 64 << 20
"""The most that a guest may print between two requests; beyond that it is killed."""
CONSOLE_TAIL_BYTES = 16_384
"""How much of the end an error carries."""
_KEPT_BYTES = 128 << 10  # of the beginning, and of the end, when the file is full
_READ_BYTES = 1 << 16
_LOOK_MS = 500  # how often to look whether the machine still runs
_JOIN_S = 2.0


class Console:
    """Drains `pipe`, the output of `process`, into the file at `path` in a thread of its own.

    The file never exceeds CONSOLE_FILE_BYTES: when it would, only its first and last 128 KiB stay.
    Calls `on_flood` once the guest has printed more than CONSOLE_REQUEST_BYTES since `begin_request`;
    `on_end` when the machine has ended and its last output is in the file.
    """

    def __init__(
        self,
        path: Path,
        pipe: BinaryIO,
        process: subprocess.Popen[bytes],
        on_flood: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self.path = path
        self.flooded = False
        self.limit_bytes = CONSOLE_REQUEST_BYTES
        self._pipe = pipe
        self._process = process
        self._on_flood = on_flood
        self._on_end = on_end
        self._since_request = 0
        self._file = path.open("w+b", buffering=0)
        self._size = 0
        self._left_out = 0
        self._thread = threading.Thread(target=self._drain, name="console", daemon=True)
        self._thread.start()

    def begin_request(self) -> None:
        """The guest may print another CONSOLE_REQUEST_BYTES."""
        self._since_request = 0

    def tail(self) -> str:
        """The end of what was printed."""
        try:
            with self.path.open("rb") as f:
                f.seek(max(0, f.seek(0, os.SEEK_END) - CONSOLE_TAIL_BYTES))
                data = f.read(CONSOLE_TAIL_BYTES)
        except OSError:
            return ""
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    def join(self) -> None:
        """Wait until the last output of a machine that has ended is in the file, at most two seconds."""
        self._thread.join(_JOIN_S)

    def _drain(self) -> None:
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        try:
            with self._pipe, self._file:
                while True:
                    if poller.poll(_LOOK_MS):
                        data = os.read(self._pipe.fileno(), _READ_BYTES)
                        if not data:
                            break
                        self._take(data)
                    elif self._process.poll() is not None:
                        break  # a process of the machine's own may still hold the pipe
        finally:
            self._on_end()

    def _take(self, data: bytes) -> None:
        self._since_request += len(data)
        if self._since_request > self.limit_bytes and not self.flooded:
            self.flooded = True
            self._on_flood()
        try:
            if self._size + len(data) > CONSOLE_FILE_BYTES:
                self._shorten()
            self._file.write(data)
            self._size += len(data)
        except OSError:
            pass  # the host's disk is full: keep draining, or the guest would block

    def _shorten(self) -> None:
        """Keep the file's beginning and end, with a line between them that says what is missing."""
        self._file.seek(self._size - _KEPT_BYTES)
        end = self._file.read(_KEPT_BYTES)
        self._left_out += self._size - 2 * _KEPT_BYTES
        note = f"\n[about {self._left_out >> 10} KiB of the console left out here]\n".encode()
        self._file.seek(_KEPT_BYTES)
        self._file.truncate()
        self._file.write(note + end)
        self._size = 2 * _KEPT_BYTES + len(note)
