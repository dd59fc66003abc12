"""Guests of QEMU that go on from where one had booted: its state is kept in the cache, and others load it.

Under emulation a boot of Debian's kernel takes 4.5 s of processor time, a load 0.6 s. The guest whose state
is saved has no disks: they differ each time, and the one over vhost-user cannot be saved. They are attached
later, and the agent looks for them (`wire.Wake`). It also takes the time from the host, and random numbers:
guests that load one state would draw the same until their kernels gather others.

A state is of one kernel, one initramfs, one QEMU and its options: `Bare.key`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from harness.errors import EnvironmentLacks, GuestLost, PowercutError
from harness.guests import wire
from harness.guests.guest import Guest, Parts, start
from harness.host.cache import cache_dir, note_use

KEPT_BYTES = 1 << 30
"""What all states may take; those that were not loaded for the longest time go first."""
LOAD_S = 60.0
_LOOK_S = 0.005
_SEED_BYTES = 32
_LINE_BYTES = 1 << 20  # of an answer of the monitor
_HEADER_BYTES = 4
_UNLIMITED = 1 << 40
_NONE: Mapping[str, object] = {}
_WITHOUT: set[str] = set()
"""Keys of guests that did not find their disks: this process boots them with the disks."""


@dataclass(frozen=True, slots=True)
class Bare:
    """A guest without disks. `key`: equal for guests that may load one state. `line`: QEMU's line, from the
    descriptors of the agent's channel, of the monitor, and of the state if one is loaded. `disks`: how the
    guest calls each, in this order, and the arguments of device_add.
    """

    key: str
    line: Callable[[int, int, int | None], list[str]]
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
        """What it returns. Raises PowercutError if it refuses, or says nothing for a minute."""
        try:
            self._channel.settimeout(LOAD_S)
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
        end = time.monotonic() + LOAD_S
        while (status := self.ask(command).get("status", "")) in while_it_is:
            if time.monotonic() > end:
                raise PowercutError(f"QEMU is still at {command}: {status}")
            time.sleep(_LOOK_S)
        return str(status)

    def close(self) -> None:
        self._answers.close()
        self._channel.close()


class BareGuest(Guest):
    """A guest that is given its disks once it is up."""

    def __init__(self, parts: Parts, bare: Bare, monitor: Monitor) -> None:
        super().__init__(*parts)
        self._bare, self._monitor = bare, monitor
        self.is_loaded = False

    def load(self, state: BinaryIO) -> None:
        """Wait until it has its state. Raises PowercutError if it cannot be loaded."""
        self.hello = _hello(state)
        status = self._monitor.wait("query-status", ["inmigrate"])
        if status != "paused":
            raise PowercutError(f"QEMU loaded a state, and is {status}")
        self.is_loaded = True

    def wait_until_up(self, timeout_s: float) -> None:
        """As for any guest. One that boots is saved first; no reason why it cannot be is an error."""
        if not self.is_loaded:
            super().wait_until_up(timeout_s)
            with contextlib.suppress(PowercutError, OSError):
                self._save()
        try:
            for device, arguments in self._bare.disks.items():
                self._monitor.ask("device_add", arguments)
                self._monitor.ask("cont")
                wake = wire.Wake(device, os.urandom(_SEED_BYTES), int(time.time()))
                self.request(wake, wire.Done, timeout_s)
        except PowercutError as e:
            _WITHOUT.add(self._bare.key)
            if isinstance(e, GuestLost):
                raise
            raise self._lost(f"it was not given its disks: {e.what}") from e

    def _save(self) -> None:
        self._monitor.ask("stop")
        kept = _path(self._bare.key)
        with tempfile.NamedTemporaryFile(dir=kept.parent, prefix="saving-") as file:
            hello = msgspec.msgpack.encode(self.hello)
            file.write(len(hello).to_bytes(_HEADER_BYTES, "little") + hello)
            file.flush()
            self._monitor.ask("getfd", {"fdname": "state"}, file.fileno())
            self._monitor.ask("migrate-set-parameters", {"max-bandwidth": _UNLIMITED})
            self._monitor.ask("migrate", {"uri": "fd:state"})
            status = self._monitor.wait("query-migrate", ["setup", "active", "device", "pre-switchover", ""])
            if status == "completed":
                os.fsync(file.fileno())  # the name may not survive a power cut without the bytes
                os.link(file.name, kept)
        trim(kept.parent)

    def kill(self) -> None:
        super().kill()
        self._monitor.close()


def launch_bare(bare: Bare, directory: Path) -> Guest:
    """Start a guest from a saved state if there is one, else one that boots: see `guest.launch`."""
    with contextlib.suppress(OSError, EnvironmentLacks), _path(bare.key).open("rb") as state:
        guest = _start(bare, directory, state)
        try:
            guest.load(state)
        except BaseException as e:
            guest.kill()
            if not isinstance(e, PowercutError | msgspec.MsgspecError):
                raise
            _path(bare.key).unlink(missing_ok=True)
        else:
            note_use(_path(bare.key))
            return guest
    return _start(bare, directory, None)


def _start(bare: Bare, directory: Path, state: BinaryIO | None) -> BareGuest:
    ours, theirs = socket.socketpair()
    with theirs:
        load = None if state is None else _after_hello(state)
        more = [theirs.fileno(), *([] if load is None else [load])]
        parts = start(lambda fd: bare.line(fd, theirs.fileno(), load), directory, more=more)
    return BareGuest(parts, bare, Monitor(ours))


def _hello(state: BinaryIO) -> wire.Hello:
    """The greeting of the guest that was saved."""
    length = int.from_bytes(os.pread(state.fileno(), _HEADER_BYTES, 0), "little")
    return msgspec.msgpack.decode(os.pread(state.fileno(), length, _HEADER_BYTES), type=wire.Hello)


def _after_hello(state: BinaryIO) -> int:
    """The descriptor, at the first byte that QEMU reads."""
    length = int.from_bytes(os.pread(state.fileno(), _HEADER_BYTES, 0), "little")
    os.lseek(state.fileno(), _HEADER_BYTES + length, os.SEEK_SET)
    return state.fileno()


def _path(key: str) -> Path:
    return cache_dir("guests") / key


def trim(folder: Path) -> None:
    """Delete what is beyond KEPT_BYTES. A guest that loads one now has it open."""
    kept = [(max(s.st_atime, s.st_mtime), s.st_size, p) for p in folder.iterdir() if (s := p.stat())]
    left = KEPT_BYTES
    for _, size, path in sorted(kept, reverse=True):
        left -= size
        if left < 0:
            path.unlink(missing_ok=True)
