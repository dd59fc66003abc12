"""A worker's guest and disk, both played: when an outcome may be taken for that of its state, and when both
are thrown away.
"""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from harness.errors import DiskError, GuestError, GuestLost, LogDiffers, NotSupported, WriteLogError
from harness.guests import wire, worker
from harness.guests.machine import Machine
from harness.guests.worker import LOST_LINE, GuestKit, Target, Worker
from harness.model import CrashState, Operation, OperationKind

GOOD = wire.Recovered(0, [], [], 0, ["mounted"], 1, 1, 1)
COUNTED = wire.Counted(reads=5, writes=0, flushes=0, discards=0, errors=0, overlay_bytes=0)
STATE = CrashState(3)


class PlayedDisk:
    """Counts as it is told. `made`: how many there were."""

    made = 0
    counted = COUNTED
    socket = Path("/nowhere")

    def __init__(self) -> None:
        PlayedDisk.made += 1

    def open(self, base: Path, log: Path | None) -> None: ...
    def switch(self, state: CrashState) -> None: ...
    def close(self) -> None: ...

    def stats(self) -> wire.Counted:
        return self.counted


class PlayedGuest:
    """Answers every `Recover` in the same way."""

    def __init__(self, answer: wire.Recovered, hello: wire.Hello) -> None:
        self._answer = answer
        self.hello = hello

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> wire.Recovered:
        assert isinstance(message, wire.Recover)
        return self._answer

    def wait_until_up(self, timeout_s: float) -> None: ...

    def console(self) -> str:
        return "its last words"

    def kill(self) -> None: ...


class Played:
    """A worker on a machine that boots guests which answer as given."""

    def __init__(self, tmp_path: Path, answer: wire.Recovered = GOOD, **counted: int) -> None:
        self.booted = 0
        self._answer = answer
        self.hello = wire.Hello(1, "6.12", "#1", [], ["log-writes"])
        PlayedDisk.made = 0
        PlayedDisk.counted = msgspec.structs.replace(COUNTED, **counted)
        base = tmp_path / "base"
        base.write_bytes(bytes(512))
        self.target = Target("ext4", "", base, None)
        kit = GuestKit(cast(Machine, cast(Any, self)), tmp_path / "kernel", tmp_path / "initramfs")
        self.worker = Worker(kit, tmp_path / "worker", log_bytes=512)

    name = described = "played"
    data_device, log_device = "/dev/vda", "/dev/vdb"
    boot_timeout_s = 1.0

    def launch(self, boot: object) -> PlayedGuest:
        self.booted += 1
        return PlayedGuest(self._answer, self.hello)


@pytest.fixture(autouse=True)
def played_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "Disk", PlayedDisk)


def test_a_guest_and_a_disk_serve_one_state_after_the_other(tmp_path: Path) -> None:
    played = Played(tmp_path)
    for prefix in range(3):
        assert played.worker.recover(played.target, CrashState(prefix)).outcome.kernel_log == ("mounted",)
    assert (played.booted, PlayedDisk.made) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "counted", "error", "says"),
    [
        (GOOD, {"errors": 2}, DiskError, "refused 2 requests in state @3"),
        (GOOD, {"reads": 0}, GuestLost, "state @3 was mounted without a read"),
        (msgspec.structs.replace(GOOD, unmount_errno=errno.EBUSY), {}, GuestLost, "EBUSY"),
        (msgspec.structs.replace(GOOD, mount_errno=errno.EBUSY), {}, GuestLost, "EBUSY"),
        (
            msgspec.structs.replace(GOOD, kernel_log=["a", LOST_LINE]),
            {},
            GuestError,
            "log of state @3 was lost",
        ),
    ],
)
def test_what_may_not_be_this_states_outcome_is_none_and_costs_the_guest(
    tmp_path: Path,
    answer: wire.Recovered,
    counted: dict[str, int],
    error: type[Exception],
    says: str,
) -> None:
    """A file system that stays mounted would be shown again for the next state; an empty memory of what the
    kernel complained of would pass for its silence.
    """
    played = Played(tmp_path, answer, **counted)
    for again in (1, 2):
        with pytest.raises(error, match=says):
            played.worker.recover(played.target, STATE)
        assert (played.booted, PlayedDisk.made) == (again, again)


def test_a_guest_that_could_not_unmount_serves_no_other_state(tmp_path: Path) -> None:
    """Its outcome is one, and the disk is there for fsck; the next state gets a fresh guest."""
    played = Played(tmp_path, msgspec.structs.replace(GOOD, unmount_errno=errno.EIO))
    played.worker.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (1, 1)
    played.worker.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (2, 2)


def test_a_mount_that_fails_needs_no_read(tmp_path: Path) -> None:
    played = Played(tmp_path, msgspec.structs.replace(GOOD, mount_errno=errno.EINVAL), reads=0)
    assert played.worker.recover(played.target, STATE).outcome.mount_errno == errno.EINVAL


class Fails:
    """A guest whose first operation fails."""

    def __init__(self, number: int, detail: str) -> None:
        self._result = wire.OperationResult(0, number, detail)

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> wire.OperationsDone:
        return wire.OperationsDone([self._result])


@pytest.mark.parametrize(
    ("operation", "number", "detail", "error", "told"),
    [
        ("run", errno.EIO, "no space in the log", GuestError, "the program did not exit with 0: no space in"),
        ("run", errno.ETIMEDOUT, "stopped", GuestError, r"Connection timed out \(errno 110\): stopped"),
        ("append", errno.EIO, "append f", GuestError, r"Input/output error \(errno 5\): append f"),
        ("append", errno.EOPNOTSUPP, "", NotSupported, "does not support"),
    ],
)
def test_why_an_operation_failed_while_recording(
    tmp_path: Path, operation: str, number: int, detail: str, error: type[Exception], told: str
) -> None:
    argv = ("./run",) if operation == "run" else ()
    wanted = Operation(OperationKind(operation), "" if argv else "f", argv=argv)
    guest = cast(Any, Fails(number, detail))
    with pytest.raises(error, match=told):
        Played(tmp_path).worker._run(guest, [wanted], lambda _: None)


@pytest.mark.parametrize(
    ("logging_disabled", "difference", "error"),
    [(True, 7, WriteLogError), (False, 7, LogDiffers), (False, None, None)],
    ids=["full", "differs", "sound"],
)
def test_a_log_that_differs_by_chance_is_told_apart_from_a_log_device_that_is_full(
    tmp_path: Path, logging_disabled: bool, difference: int | None, error: type[Exception] | None
) -> None:
    """Only the first is worth another recording."""
    status = "logging_disabled" if logging_disabled else ""
    finished = SimpleNamespace(status=status, logging_disabled=logging_disabled, unmount_errno=0)
    disk = SimpleNamespace(compare=lambda log: difference)
    found = None
    try:
        worker._check_recording(cast(Any, finished), cast(Any, disk), tmp_path / "log", 1 << 20)
    except WriteLogError as e:
        found = type(e)
    assert found is error
