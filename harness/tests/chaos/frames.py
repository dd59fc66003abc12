"""Hostile guests: malformed frames, impossible values, and requests that no driver makes."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import DiskError, PowercutError
from harness.filesystems.profiles import select_profiles
from harness.guests import wire
from harness.guests.disk import Disk
from harness.guests.guest import Guest
from harness.guests.machine import Accelerator, Boot, Machine, MachineProfile
from harness.guests.session import GuestSpec, Session, Target
from harness.model import CrashState, History, Outcome
from harness.oracles import Judge
from harness.tests.chaos.damage import look_for_leftovers_of_files
from harness.tests.chaos.reference import Reference
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import wrong_words
from harness.tests.guests import frontend
from harness.tests.guests.frontend import Frontend
from harness.tests.guests.samples import SAMPLES

FRAMES = 40  # per trial
REQUESTS = 40
MEMORY_BYTES = 512 << 20
"""Memory one frame may cost the orchestrator; a frame has at most 64 MiB."""

_NUMBERS = (0, 1, -1, 255, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1, -(2**63))
_TEXTS = ("", "..", "/", "a\0b", "\ud7ff", "x" * 70_000, "\x1b[2J", "a\nb", "../../etc/passwd", "dir", "file")


def run_frames(trial: Trial, reference: Reference, plant: str = "") -> None:
    """Each answer of a hostile guest must give an outcome or a PowercutError, at bounded memory."""
    tempfile.tempdir = str(trial.temporary)
    with contextlib.closing(_Stage(trial, reference)) as stage:
        for _ in range(FRAMES):
            trial.figures["hostile frames"] += 1
            stage.show(_script(trial.random))
    _hostile_driver(trial)
    look_for_leftovers_of_files(trial)


PROFILE = MachineProfile(
    name="played",
    title="Played",
    summary="a thread",
    accelerators={"none": Accelerator(boot_timeout_s=20)},
    memory_mib=0,
    modules=[],
    data_device="/dev/vda",
    log_device="/dev/vdb",
    channel="",
    command_line=[],
)


class _Played(Machine):
    """A machine whose guests are threads: each sends `script`, whatever the request."""

    profile, accel = PROFILE, "none"

    def __init__(self, console: Path) -> None:
        self.script: list[bytes] = []
        self._console = console
        self._threads: list[threading.Thread] = []

    def launch(self, boot: Boot) -> Guest:
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, start_new_session=True)
        thread = threading.Thread(target=_play, args=(theirs, self.script, boot.disk_socket))
        thread.start()
        self._threads.append(thread)
        return Guest(process, ours, self._console)

    def preview(self, boot: Boot) -> str:
        return ""

    def join(self) -> None:
        """Wait for the guest threads; their machines have been stopped."""
        for thread in self._threads:
            thread.join()
        self._threads.clear()


class _Stage:
    """A worker on such a machine, and an examiner that judges the answers of its guests."""

    def __init__(self, trial: Trial, reference: Reference) -> None:
        self._trial = trial
        self._machine = _Played(trial.directory / "console.txt")
        base = trial.directory / "base"
        base.write_bytes(bytes(1 << 20))
        self._target = Target("ext4", "", base, None)
        spec = GuestSpec(self._machine, trial.directory / "kernel", trial.directory / "initramfs")
        self._session = Session(spec, trial.directory / "worker", log_bytes=512)
        (profile,) = select_profiles(["ext4/ordered"])
        self._history = _history_of(reference)
        patterns = tuple(profile.console.errors)
        self._judge = Judge(profile.contract, self._history, error_patterns=patterns)

    def show(self, script: list[bytes]) -> None:
        """Ask one hostile guest to recover a state."""
        self._machine.script = script
        before = _peak_memory(reset=True)
        try:
            outcome = self._session.recover(self._target, CrashState(0)).outcome
            self._trial.figures["frames that were outcomes"] += 1
            self._judged(outcome)
        except PowercutError as e:
            self._trial.figures["frames refused"] += 1
            if len(str(e)) > 100_000:
                self._trial.tell("unbounded", f"an error of {len(str(e))} bytes")
        except Exception as e:  # whatever is no error of ours would end the run
            self._told(e, script)
        self._session.close()
        self._machine.join()
        cost = _peak_memory() - before
        if cost > MEMORY_BYTES:
            self._trial.tell("unbounded", f"a frame of {sum(map(len, script))} bytes cost {cost >> 20} MiB")

    def _judged(self, outcome: Outcome) -> None:
        self._judge.judge(self._history.position(20), outcome)

    def _told(self, error: Exception, script: list[bytes]) -> None:
        place = ""
        trace = error.__traceback__
        while trace is not None:
            place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        frame = self._trial.directory / f"frame-{self._trial.figures['hostile frames']}"
        frame.write_bytes(b"".join(script)[: 1 << 20])
        self._trial.tell("traceback", f"{type(error).__name__}: {error} ({place}) [{frame.name}]")

    def close(self) -> None:
        self._session.close()


def _history_of(reference: Reference) -> History:
    written = next(reference.green.path.rglob("history.json"))
    return msgspec.json.decode(written.read_bytes(), type=History)


def _play(channel: socket.socket, script: list[bytes], disk: Path) -> None:
    """Greet, wait for a request, read the disk as a mount would, send the script, hang up."""
    hello = wire.encode(wire.Hello(wire.PROTOCOL_VERSION, "6.12", "#1", [], ["log-writes"]))
    with channel, contextlib.suppress(OSError):
        channel.settimeout(30)
        channel.sendall(_frame(hello))
        channel.recv(4)
        with Frontend(disk) as driver:
            driver.read(0, 8)
        for data in script:
            channel.sendall(data)


def _peak_memory(*, reset: bool = False) -> int:
    """Peak memory of this process in bytes; `reset` restarts the count."""
    if reset:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


# --- frames ----------------------------------------------------------------------------------


def _frame(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def _script(chance: random.Random) -> list[bytes]:
    """A hostile guest's answer to `Recover`."""
    makers: list[tuple[int, Callable[[random.Random], list[bytes]]]] = [
        (12, _lie),
        (4, _mutated),
        (2, _reordered),
        (1, _wrong_length),
        (1, _bomb),
    ]
    maker = chance.choices([m for _, m in makers], [w for w, _ in makers])[0]
    return maker(chance)


def _bodies(of: str = "agent_reply") -> list[bytes]:
    return [wire.encode(message) for _, kind, message in SAMPLES if _is_reply(message, kind)]


def _is_reply(message: msgspec.Struct, kind: str) -> bool:
    return "reply" in kind.lower() and isinstance(message, wire.AgentReply)


def _recovered(chance: random.Random) -> bytes:
    """A sample answer, with a mounted file system and a complete kernel log."""
    found = [m for m in map(msgspec.msgpack.decode, _bodies()) if m["type"] == "recovered"]
    message = {**chance.choice(found), "mount_errno": 0, "unmount_errno": 0, "walk_errors": []}
    if "log_complete" in message:
        message["log_complete"] = True
    return msgspec.msgpack.encode(message)


def _lie(chance: random.Random) -> list[bytes]:
    """A complete message with one to four values changed."""
    message = msgspec.msgpack.decode(_recovered(chance))
    for _ in range(chance.randint(1, 4)):
        _change_a_value(chance, message)
    try:
        return [_frame(msgspec.msgpack.encode(message))]
    except (OverflowError, ValueError, UnicodeError):
        return [_frame(b"\xc1")]


def _change_a_value(chance: random.Random, message: Any) -> None:
    places = list(_places(message))
    parent, key, value = chance.choice(places)
    match value:
        case bool():
            parent[key] = not value
        case int():
            parent[key] = chance.choice([*_NUMBERS, value + 1, value * 2, value - 1])
        case str():
            parent[key] = chance.choice(_TEXTS)
        case bytes():
            parent[key] = chance.choice(
                [b"", b"..", b"a/../b", b"\xff\xfe", b"/", b"a\0b", b"d" * 5000, value * 2]
            )
        case list():
            grown = [*value, *value] if value else [None]
            parent[key] = chance.choice([[], grown, value[::-1], value * 200])
        case _:
            parent[key] = chance.choice([None, {}, [], 0, "x"])


def _places(value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Every value in a message, with its path."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        if key != "type":
            yield value, key, inner
        if isinstance(inner, (dict, list)):
            yield from _places(inner)


def _mutated(chance: random.Random) -> list[bytes]:
    body = bytearray(chance.choice(_bodies()))
    for _ in range(chance.randint(1, 3)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return [_frame(bytes(body))]


def _reordered(chance: random.Random) -> list[bytes]:
    return [_frame(body) for body in chance.sample(_bodies(), chance.randint(1, 3))]


def _wrong_length(chance: random.Random) -> list[bytes]:
    body = chance.choice(_bodies())
    length = chance.choice([0, 1, len(body) - 1, len(body) + 1, 64 << 20, (64 << 20) + 1, 2**32 - 1])
    return [struct.pack("<I", length) + body]


def _bomb(chance: random.Random) -> list[bytes]:
    """Small on the wire, large in memory: deep nesting, long lists, lengths without data."""
    many = chance.choice([100_000, 1_000_000, 8_000_000])
    head = b"\x88\xa4type\xa9recovered\xacmount_errno\x00\xa7entries\x90\xabwalk_errors"
    bodies = [
        b"\x91" * many,
        head + b"\xdd" + struct.pack(">I", many) + b"\xa0" * many,
        head + b"\xdd" + struct.pack(">I", 2**32 - 1),
        b"\xdf" + struct.pack(">I", 2**32 - 1),
        b"\xc6" + struct.pack(">I", 2**32 - 1),
    ]
    return [_frame(chance.choice(bodies))]


# --- the disk --------------------------------------------------------------------------------


def _hostile_driver(trial: Trial) -> None:
    """Requests and messages of a faulty driver: the disk must refuse or hang up, never crash."""
    base = trial.directory / "base"
    patience, frontend._TIMEOUT_S = frontend._TIMEOUT_S, 1
    try:
        with Disk(timeout_s=20) as disk:
            disk.open(base, None)
            attack = trial.random.choice([_hostile_requests, _hostile_messages])
            with contextlib.suppress(OSError, struct.error):
                attack(trial, disk)
            try:
                disk.stats()
            except DiskError as e:
                trial.figures["disks that hung up"] += 1
                if (defect := wrong_words(str(e))) is not None or "code -" in str(e):
                    trial.tell("traceback", f"the disk: {defect.what if defect else e}")
    except DiskError as e:
        trial.tell("traceback", f"the disk: {e}")
    finally:
        frontend._TIMEOUT_S = patience


def _hostile_requests(trial: Trial, disk: Disk) -> None:
    chance = trial.random
    with Frontend(disk.socket) as guest:
        for _ in range(REQUESTS):
            trial.figures["hostile requests"] += 1
            kind = chance.choice([0, 1, 4, 8, 11, 13, chance.randrange(2**32)])
            sector = chance.choice([0, 2047, 2048, 2**53, 2**64 - 1])
            guest._memory[0x3000:0x3010] = struct.pack("<IIQ", kind, 0, sector)
            guest._memory[0x10000:0x10010] = chance.randbytes(16)
            with contextlib.suppress(TimeoutError):
                guest._submit([_piece(chance) for _ in range(chance.randint(1, 5))])


def _piece(chance: random.Random) -> tuple[int, int, int]:
    address = chance.choice([0x3000, 0x3000, 0x3800, 0x10000, 0xFFFFF, 2**40, 2**64 - 1])
    length = chance.choice([0, 1, 16, 16, 20, 512, 4096, 70_000, 2**31, 2**32 - 1])
    return address, length, chance.choice([0, 0, 2, 4])


def _hostile_messages(trial: Trial, disk: Disk) -> None:
    chance = trial.random
    with Frontend(disk.socket) as guest:
        for _ in range(REQUESTS):
            trial.figures["hostile requests"] += 1
            body = chance.choice([b"", chance.randbytes(8), chance.randbytes(40), b"\xff" * 64, bytes(8)])
            fd = os.eventfd(0) if chance.random() < 0.3 else None
            try:
                guest._send(chance.randrange(45), body, fd)
            finally:
                if fd is not None:
                    os.close(fd)
