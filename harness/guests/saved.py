"""Guests of QEMU that go on from where one had booted: its state is kept in the cache, and others load it.

Under emulation a boot of Debian's kernel takes 4.5 s of processor time, a load 0.6 s. The guest whose state
is saved has no disks: they differ each time, and the one over vhost-user cannot be saved. They are attached
later, and the agent looks for them (`wire.Wake`). It also takes the time from the host, and random numbers:
guests that load one state would draw the same until their kernels gather others.

A state is of one kernel, one initramfs, one QEMU and its options: `Bare.key`. It is kept packed by zstd, in
little more than a third of its bytes: 85 to 164 MB each, the states of one test run drove each other out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import zstandard

from harness.errors import PowercutError
from harness.guests import wire
from harness.guests.guest import Guest, start
from harness.host.cache import cache_dir, note_use
from harness.host.files import file_hash
from harness.host.processes import crowding

KEPT_BYTES = 1 << 30
"""What all states may take; those that were not loaded for the longest time go first."""
SAVED_MIB = 768
"""The memory of the largest guest that is saved: one of these leaves room for others."""
LOAD_S = 60.0
WAKE_S = 20.0
"""How long a guest may look for one disk, on a host that is not busy; it takes a tenth of a second. With the
limit on a boot, 120 s, one that never woke cost ten minutes of a busy host before another one booted.
"""
_LOOK_S = 0.005
_SEED_BYTES = 32
_LINE_BYTES = 1 << 20  # of an answer of the monitor
_HEADER_BYTES = 4
_UNLIMITED = 1 << 40
_NONE: Mapping[str, object] = {}
_DIGITS = 32
_PIECE_BYTES = 1 << 20
_PACKED = "-zstd"
"""In the name of each state: earlier versions, whose states are not packed, do not load it."""
_UNNAMED = os.O_TMPFILE | os.O_RDWR  # tempfile adds O_EXCL, and such a file cannot be given a name
_WITHOUT: set[str] = set()
"""Keys of guests that booted and were not given their disks: this process boots them with the disks."""


@dataclass(frozen=True, slots=True)
class Bare:
    """A guest without disks. `key`: equal for guests that may load one state. `line`: QEMU's line, from the
    descriptors of the agent's channel, of the monitor, and of the state if one is loaded; `usual`: that of a
    guest that has its disks from the beginning. `disks`: how the guest calls each, in this order, and the
    arguments of device_add.
    """

    key: str
    line: Callable[[int, int, int | None], list[str]]
    usual: Callable[[int], list[str]]
    disks: Mapping[str, Mapping[str, object]]

    @property
    def works(self) -> bool:
        """Whether such a guest can be given its disks later, as far as this process knows."""
        return self.key not in _WITHOUT


class Monitor:
    """QEMU's monitor (docs/interop/qmp-spec.rst), on a socket that it was given at its start."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._answers = channel.makefile("rb")
        self._greeted = False

    def ask(self, command: str, arguments: Mapping[str, object] = _NONE, *descriptors: int) -> Any:
        """What it returns. Raises PowercutError if it refuses, or says nothing for a minute, longer on a busy
        host.
        """
        try:
            self._channel.settimeout(LOAD_S * crowding())
            if not self._greeted:
                self._answers.readline(_LINE_BYTES)
                self._greeted = True
                self.ask("qmp_capabilities")
            asked = msgspec.json.encode({"execute": command, "arguments": arguments}) + b"\n"
            socket.send_fds(self._channel, [asked], descriptors)
            while line := self._answers.readline(_LINE_BYTES):
                answer = msgspec.json.decode(line, type=dict[str, Any])
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise PowercutError(f"QEMU refuses {command}: {answer['error'].get('desc')}")
        except (OSError, msgspec.MsgspecError) as e:
            raise PowercutError(f"QEMU does not answer {command}: {e}") from e
        raise PowercutError(f"QEMU ended before it answered {command}")

    def wait(self, command: str, while_it_is: Sequence[str]) -> str:
        """Ask until its status is another one: that."""
        end = time.monotonic() + LOAD_S * crowding()
        while (status := self.ask(command).get("status", "")) in while_it_is:
            if time.monotonic() > end:
                raise PowercutError(f"QEMU is still at {command}: {status}")
            time.sleep(_LOOK_S)
        return str(status)

    def close(self) -> None:
        self._answers.close()
        self._channel.close()


class BareGuest(Guest):
    """A guest that is given its disks once it is up: from a saved state if there is one, else one that boots,
    and is saved. Where either goes wrong, it boots once more, with its disks; only that failure is told.
    """

    def __init__(self, bare: Bare, directory: Path) -> None:
        self._bare, self._directory = bare, directory
        self._is_ended = self.is_loaded = False
        try:
            self._begin(_state_of(bare.key))
        except FileNotFoundError:  # another process has just deleted the state
            self._begin(None)

    def _begin(self, state: Path | None) -> None:
        hello, file = _opened(state) if state else (None, None)
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as opened:
            load = opened.enter_context(_unpacked(file)).fileno() if file else None
            more = [theirs.fileno(), *([] if load is None else [load])]
            parts = start(lambda fd: self._bare.line(fd, theirs.fileno(), load), self._directory, more=more)
        super().__init__(*parts)
        self.hello = hello or self.hello
        self._state, self._monitor = state, Monitor(ours)

    def wait_until_up(self, timeout_s: float) -> None:
        if self._state is not None:
            with contextlib.suppress(PowercutError):
                self._load()
                self._attach(timeout_s)
                self.is_loaded = True
                return
            self._again(lambda: self._begin(None))
        super().wait_until_up(timeout_s)
        with contextlib.suppress(PowercutError, OSError):
            self._save()
        try:
            self._attach(timeout_s)
        except PowercutError:
            _WITHOUT.add(self._bare.key)
            self._again(lambda: super(BareGuest, self).__init__(*start(self._bare.usual, self._directory)))
            super().wait_until_up(timeout_s)

    def _again(self, begin: Callable[[], None]) -> None:
        """Begin anew, and forget the state. Raises GuestLost if somebody has ended this guest."""
        if self._is_ended:
            raise self._lost("it was ended")
        for state in _states_of(self._bare.key):
            state.unlink(missing_ok=True)
        self.kill()
        self._is_ended = False
        begin()

    def _load(self) -> None:
        status = self._monitor.wait("query-status", ["inmigrate"])
        if status != "paused":
            raise PowercutError(f"QEMU loaded a state, and is {status}")

    def _attach(self, timeout_s: float) -> None:
        for device, arguments in self._bare.disks.items():
            self._monitor.ask("device_add", arguments)
            self._monitor.ask("cont")
            wake = wire.Wake(device, os.urandom(_SEED_BYTES), int(time.time()))
            self.request(wake, wire.Done, min(timeout_s, WAKE_S * crowding()))

    def _save(self) -> None:
        """Raises PowercutError or OSError where it cannot be saved."""
        folder = cache_dir("guests")
        lock = folder / f"{self._bare.key}.lock"
        with lock.open("wb") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else a worker saves it already
            try:
                if not self.hello.module_errors and not _states_of(self._bare.key):
                    with _unnamed(folder) as whole, _unnamed(folder) as packed:
                        self._write_to(whole)
                        self._keep(whole, packed, folder)
            finally:
                lock.unlink(missing_ok=True)

    def _write_to(self, file: BinaryIO) -> None:
        self._monitor.ask("stop")
        self._monitor.ask("getfd", {"fdname": "state"}, file.fileno())
        self._monitor.ask("migrate-set-parameters", {"max-bandwidth": _UNLIMITED})
        self._monitor.ask("migrate", {"uri": "fd:state"})
        status = self._monitor.wait("query-migrate", ["setup", "active", "device", "pre-switchover", ""])
        if status != "completed":
            raise PowercutError(f"QEMU saved a state, and says {status}")

    def _keep(self, whole: BinaryIO, packed: BinaryIO, folder: Path) -> None:
        hello = msgspec.msgpack.encode(self.hello)
        packed.write(len(hello).to_bytes(_HEADER_BYTES, "little") + hello)
        whole.seek(0)
        zstandard.ZstdCompressor(level=1).copy_stream(whole, packed)
        packed.flush()
        os.fsync(packed.fileno())  # the name may not survive a power cut without the bytes
        trim(folder, KEPT_BYTES - os.fstat(packed.fileno()).st_size)
        unnamed = Path(f"/proc/self/fd/{packed.fileno()}")
        name = folder / f"{self._bare.key}{_PACKED}.{file_hash(unnamed)[:_DIGITS]}"
        os.link(unnamed, name, src_dir_fd=packed.fileno())  # without src_dir_fd, Python follows no link

    def end(self) -> None:
        self._is_ended = True
        super().end()

    def kill(self) -> None:
        super().kill()
        self._monitor.close()


def _states_of(key: str) -> list[Path]:
    return list(cache_dir("guests").glob(f"{key}{_PACKED}.*"))


def _state_of(key: str) -> Path | None:
    """A state that can be loaded. One whose bytes are no longer those that were saved is deleted."""
    with contextlib.suppress(OSError, PowercutError):
        for path in _states_of(key):
            if file_hash(path)[:_DIGITS] == path.suffix[1:]:
                note_use(path)
                return path
            path.unlink(missing_ok=True)
    return None


def _unnamed(folder: Path) -> BinaryIO:
    """A file without a name, so that a process that is killed leaves nothing behind."""
    return os.fdopen(os.open(folder, _UNNAMED, 0o600), "w+b")


def _opened(state: Path) -> tuple[wire.Hello, BinaryIO]:
    """The greeting of the guest that was saved, and the file at what QEMU reads, packed."""
    file = state.open("rb")
    length = int.from_bytes(file.read(_HEADER_BYTES), "little")
    return msgspec.msgpack.decode(file.read(length), type=wire.Hello), file


def _unpacked(file: BinaryIO) -> socket.socket:
    """Where the rest of a packed file is read. The file is closed after it."""
    read, write = socket.socketpair()  # at the end of a pipe QEMU would wait, with a whole processor

    def unpack() -> None:
        # A reader that ends early, or bytes that zstd did not write: QEMU says that it has no state.
        with contextlib.suppress(OSError, zstandard.ZstdError), file, write, write.makefile("wb") as into:
            zstandard.ZstdDecompressor().copy_stream(file, into, write_size=_PIECE_BYTES)

    threading.Thread(target=unpack, daemon=True).start()
    return read


def trim(folder: Path, left: int) -> None:
    """Delete states that were not loaded for the longest time, until the others take at most `left` bytes."""
    states = [(max(s.st_atime, s.st_mtime), s.st_size, p) for p in folder.iterdir() if (s := p.stat())]
    for _, size, path in sorted(states, reverse=True):
        if size > left:
            path.unlink(missing_ok=True)
        else:
            left -= size
