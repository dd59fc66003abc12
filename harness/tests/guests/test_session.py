"""A session's guest and disk, both played: when an outcome may be taken for that of its state, and when both
are thrown away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest

from harness.errors import (
    DiskError,
    EnvironmentLacks,
    EventsDiffer,
    FullDisk,
    GuestError,
    GuestLost,
    LogDiffers,
    NotSupported,
    WriteLogError,
)
from harness.filesystems.disks import USUAL, DiskKind, disks
from harness.filesystems.layers import layers
from harness.guests import session, wire
from harness.guests.machine import Boot, Machine
from harness.guests.operations import check_results
from harness.guests.recorded_log import finished_log, noted_calls
from harness.guests.session import GuestSpec, Session, Target
from harness.model import (
    Call,
    CrashState,
    DifferenceKind,
    FileKind,
    FsckClass,
    FsckResult,
    HoldOrder,
    Operation,
    OperationKind,
    Schedule,
)
from harness.writelog import Flush, Write, write_log

ROOT = wire.TreeEntry(b"", FileKind.DIRECTORY, 2, 0o755, 2, 0, 0, 4096, 8, b"", [], [], "")
GOOD = wire.Recovered(0, [ROOT], [], 0, ["mounted"], True, 1, 1, 1)
USED = wire.Used(0, [], True, 0, ["written to"], True)
COUNTED = wire.Counted(reads=5, writes=0, flushes=0, discards=0, errors=0, overlay_bytes=0)
STATE = CrashState(3)


class PlayedDisk:
    """Counts as it is told. `made`: how many there were."""

    made = 0
    held: ClassVar[list[tuple[float | None, int | None, HoldOrder, int]]] = []
    counted = COUNTED
    read_since_fork: tuple[int, ...] = (3, 1)
    ended = False
    socket = Path("/nowhere")

    def __init__(self, *, shared: bool = False, kind: DiskKind = USUAL) -> None:
        PlayedDisk.made += 1
        self.kind = kind
        self.memory = Path("/proc/7/fd/3") if shared else None

    def open(self, base: Path, log: Path | None, order: object = None, mount_counters: object = ()) -> None:
        self.opened: tuple[Path | None, ...] = (*getattr(self, "opened", ()), log)

    def switch(self, state: CrashState) -> None: ...
    def hold_completions(
        self,
        idle_s: float | None,
        guest: int | None = None,
        order: HoldOrder = HoldOrder.ALL,
        seed: int = 0,
    ) -> None:
        PlayedDisk.held.append((idle_s, guest, order, seed))

    def close(self) -> None: ...

    def stats(self) -> wire.Counted:
        return self.counted

    def snapshot(self) -> None:
        self.also: tuple[int, ...] = ()

    def image(self, path: Path) -> str:
        return ""

    def also_read(self, blocks: Iterable[int]) -> None:
        self.also += tuple(blocks)

    def roll_back(self) -> tuple[int, ...]:
        return (*self.read_since_fork, *self.also)


class PlayedGuest:
    """Answers every `Recover` in the same way, and every `Use`."""

    unmounted = wire.Unmounted(0, ["unmounted"], True)
    requests: ClassVar[list[msgspec.Struct]] = []

    process = SimpleNamespace(pid=4711)

    def __init__(self, answer: wire.Recovered, used: wire.Used, hello: wire.Hello) -> None:
        self._answer, self._used = answer, used
        self.hello = hello

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> msgspec.Struct:
        if isinstance(message, wire.Use):
            return self._used
        if isinstance(message, wire.Unmount):
            return self.unmounted
        PlayedGuest.requests.append(message)
        if isinstance(message, wire.Remember):
            return wire.OutsideSeen(5, 5, 2, 2, 13, [])
        assert isinstance(message, wire.Recover)
        return self._answer

    def wait_until_up(self, timeout_s: float) -> None: ...

    def console(self) -> str:
        return "its last words"

    def kill(self) -> None: ...


class Played:
    """A session on a machine that boots guests which answer as given."""

    def __init__(self, tmp_path: Path, answer: wire.Recovered = GOOD, **counted: int) -> None:
        self.booted = 0
        self.memory: Path | None = None
        self.noting: list[Path | None] = []
        self._answer = answer
        self.used = USED
        self.hello = wire.Hello(wire.PROTOCOL_VERSION, "6.12", "#1", [], ["log-writes"])
        PlayedDisk.made = 0
        PlayedDisk.counted = msgspec.structs.replace(COUNTED, **counted)
        base = tmp_path / "base"
        base.write_bytes(bytes(512))
        self.target = Target("ext4", "", base, None)
        spec = GuestSpec(
            cast(Machine, cast(Any, self)),
            tmp_path / "kernel",
            tmp_path / "initramfs",
            self.hits,
            self.recording_hits,
        )
        self.session = Session(spec, tmp_path / "session", log_bytes=512)

    name = described = "played"
    data_device, log_device = "/dev/vda", "/dev/vdb"
    boot_timeout_s = 1.0

    shares = False
    hits: Path | None = None
    recording_hits: Path | None = None

    def shares_disk(self, _: Path) -> bool:
        return self.shares

    def launch(self, boot: Boot) -> PlayedGuest:
        self.booted += 1
        self.memory = boot.disk_memory
        self.noting.append(boot.hits)
        return PlayedGuest(self._answer, self.used, self.hello)


@pytest.fixture(autouse=True)
def played_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Disk", PlayedDisk)


def test_a_guest_and_a_disk_serve_one_state_after_the_other(tmp_path: Path) -> None:
    played = Played(tmp_path)
    for prefix in range(3):
        assert played.session.recover(played.target, CrashState(prefix)).outcome.kernel_log == ("mounted",)
    assert (played.booted, PlayedDisk.made) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "counted", "error", "says"),
    [
        (GOOD, {"errors": 2}, DiskError, "refused 2 requests in state @3"),
        (GOOD, {"reads": 0}, GuestLost, "state @3 was mounted without a read"),
        (msgspec.structs.replace(GOOD, unmount_errno=errno.EBUSY), {}, GuestLost, "EBUSY"),
        (msgspec.structs.replace(GOOD, mount_errno=errno.EBUSY, entries=[]), {}, GuestLost, "EBUSY"),
        (msgspec.structs.replace(GOOD, log_complete=False), {}, GuestError, "log of state @3 was lost"),
        (msgspec.structs.replace(GOOD, entries=[ROOT, ROOT]), {}, GuestLost, "state @3: the guest sent no"),
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
            played.session.recover(played.target, STATE)
        assert (played.booted, PlayedDisk.made) == (again, again)


def test_each_guest_looks_once_at_what_may_not_change(tmp_path: Path) -> None:
    """And compares it after each recovery with what it saw."""
    change = wire.OutsideChange(b"etc/hosts", "size", "10", "0")
    played = Played(tmp_path, msgspec.structs.replace(GOOD, outside=[change]))
    layer = layers()["image"].above("ext4", "")
    target = dataclasses.replace(played.target, layer=layer)

    def asked() -> list[str]:
        PlayedGuest.requests.clear()
        for _ in range(2):
            seen = played.session.recover(target, STATE)
            assert [str(c) for c in seen.outcome.outside] == ["etc/hosts: size: 10, now 0"]
        assert all(m.outside for m in PlayedGuest.requests if isinstance(m, wire.Recover))
        return [type(m).__name__ for m in PlayedGuest.requests]

    assert asked() == ["Remember", "Recover", "Recover"]
    assert asked() == ["Recover", "Recover"]
    played.session.close()
    assert asked() == ["Remember", "Recover", "Recover"]
    other = tmp_path / "other"
    other.write_bytes(bytes(512))
    target = dataclasses.replace(target, base=other)
    assert asked() == ["Remember", "Recover", "Recover"], "of another disk it has seen nothing"
    os.utime(other, ns=(1, 1))
    assert asked() == ["Remember", "Recover", "Recover"], "nor of another one at the same path"
    PlayedGuest.requests.clear()
    played.session.recover(played.target, STATE)
    (request,) = PlayedGuest.requests
    assert isinstance(request, wire.Recover)
    assert not request.outside


def test_a_guest_that_could_not_unmount_serves_no_other_state(tmp_path: Path) -> None:
    """Its outcome is one, and the disk is there for fsck; the next state gets a fresh guest."""
    played = Played(tmp_path, msgspec.structs.replace(GOOD, unmount_errno=errno.EIO))
    played.session.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (1, 1)
    played.session.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (2, 2)


@pytest.mark.parametrize("complete", [(True, False), (False, True)])
def test_a_kernel_log_with_lines_missing_is_none_where_checks_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: tuple[bool, bool]
) -> None:
    """Such an outcome has two parts of the kernel's log: until the checks, and until the unmount."""
    recovered, unmounted = complete
    monkeypatch.setattr(PlayedGuest, "unmounted", wire.Unmounted(0, [], unmounted))
    played = Played(tmp_path, msgspec.structs.replace(GOOD, log_complete=recovered))
    with pytest.raises(GuestError, match="log of state @3 was lost"):
        played.session.recover(played.target, STATE, lambda tree, run: ())


def test_a_mount_that_fails_needs_no_read(tmp_path: Path) -> None:
    played = Played(tmp_path, msgspec.structs.replace(GOOD, mount_errno=errno.EINVAL, entries=[]), reads=0)
    assert played.session.recover(played.target, STATE).outcome.mount_errno == errno.EINVAL


def test_what_was_written_to_is_recovered_in_the_same_guest(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.session.recover(played.target, STATE)
    used = played.session.use(played.target)
    assert (used.result.kernel_log, used.result.undecided, used.blocks) == (("written to",), "", (3, 1))
    played.session.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (1, 1)


@pytest.mark.parametrize(
    ("used", "counted", "blocks", "error", "says"),
    [
        ({}, {"errors": 2}, (3,), DiskError, "refused 2 requests"),
        ({}, {}, (), GuestLost, "mounted without a read"),
        ({"unmount_errno": errno.EBUSY}, {}, (3,), GuestLost, "EBUSY"),
        ({"mount_errno": errno.EBUSY}, {}, (3,), GuestLost, "EBUSY"),
        ({"log_complete": False}, {}, (3,), GuestError, "kernel's log was lost"),
        ({"mount_errno": errno.EIO, "unmount_errno": errno.EIO}, {}, (3,), GuestLost, "makes no sense"),
        ({"mount_errno": errno.EIO, "remount_errno": errno.EIO}, {}, (3,), GuestLost, "makes no sense"),
        ({"remount_errno": errno.EIO, "unmount_errno": errno.EIO}, {}, (3,), GuestLost, "makes no sense"),
        ({"remount_errno": errno.EBUSY}, {}, (3,), GuestLost, "EBUSY"),
    ],
)
def test_an_answer_that_says_nothing_of_writing_costs_the_guest(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    used: dict[str, Any],
    counted: dict[str, int],
    blocks: tuple[int, ...],
    error: type[Exception],
    says: str,
) -> None:
    played = Played(tmp_path)
    played.session.recover(played.target, STATE)
    played.used = msgspec.structs.replace(USED, **used)
    played.session.close()
    played.session.recover(played.target, STATE)
    monkeypatch.setattr(PlayedDisk, "read_since_fork", blocks)
    monkeypatch.setattr(PlayedDisk, "counted", msgspec.structs.replace(COUNTED, **counted))
    with pytest.raises(error, match=says):
        played.session.use(played.target)
    monkeypatch.setattr(PlayedDisk, "counted", COUNTED)
    played.session.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (3, 3)


def test_what_a_guest_says_of_a_disk_that_has_ended_is_the_loss_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state whose disk was killed was UNKNOWN for what its guest said of that, and not tried again."""
    played = Played(tmp_path)
    played.session.recover(played.target, STATE)
    played.used = msgspec.structs.replace(USED, log_complete=False)
    played.session.close()
    played.session.recover(played.target, STATE)
    monkeypatch.setattr(PlayedDisk, "ended", True)
    with pytest.raises(DiskError, match="the disk ended, and the guest says"):
        played.session.use(played.target)


def test_a_guest_that_could_not_unmount_what_it_wrote_to_serves_no_other_state(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.used = msgspec.structs.replace(USED, unmount_errno=errno.EIO)
    played.session.recover(played.target, STATE)
    assert played.session.use(played.target).result.unmount_errno == errno.EIO
    played.session.recover(played.target, STATE)
    assert (played.booted, PlayedDisk.made) == (2, 2)


def test_what_was_not_tried_before_the_deadline_is_undecided(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.used = msgspec.structs.replace(USED, finished=False)
    played.session.recover(played.target, STATE)
    assert "deadline" in played.session.use(played.target).result.undecided


def test_what_is_left_in_the_end_is_checked_and_what_that_reads_counts(tmp_path: Path) -> None:
    """fsck saw nothing of what comes of writing to what recovery left."""
    played = Played(tmp_path)
    played.session.recover(played.target, STATE)
    dirty = FsckResult(FsckClass.DIRTY, 4, "bad")
    used = played.session.use(played.target, (), lambda image: (dirty, (9, 8)))
    assert (used.result.fsck, used.blocks) == (dirty, (3, 1, 9, 8))
    unknown = played.session.use(played.target, (), lambda image: (dirty, None))
    assert (unknown.result, unknown.blocks) == (used.result, None)


@pytest.mark.parametrize(
    "used",
    [
        {"errors": [wire.CallError(Call.UNLINK, b"f", "", errno.EUCLEAN)]},
        {"differences": [wire.Difference(b"f", DifferenceKind.DATA, 0)]},
        {"remount_errno": errno.EIO},
        {"unmount_errno": errno.EIO},
        {"finished": False},
    ],
)
def test_what_went_wrong_already_is_not_checked(tmp_path: Path, used: dict[str, Any]) -> None:
    def check(image: Path) -> tuple[FsckResult, None]:
        raise AssertionError("it was checked")

    played = Played(tmp_path)
    played.used = msgspec.structs.replace(USED, **used)
    played.session.recover(played.target, STATE)
    assert played.session.use(played.target, (), check).result.fsck is None


class Answers:
    """A guest that gives these results, whatever it is asked. `deadlines`: of the operations, with the time
    that the host waited for them.
    """

    def __init__(self, *results: wire.OperationResult) -> None:
        self._results = list(results)
        self.deadlines: list[tuple[int, float]] = []

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> wire.OperationsDone:
        assert isinstance(message, wire.RunOperations)
        self.deadlines.append((message.deadline_s, timeout_s))
        return wire.OperationsDone(self._results)


class NoRoom:
    """A guest whose log device no longer takes the events."""

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> wire.RecordFinished:
        raise GuestError("RecordFinish: write /dev/vdb: EIO (5)")


@pytest.mark.parametrize(
    ("free", "error", "says"),
    [(0, EnvironmentLacks, "the host's disk is full"), (1 << 30, GuestError, "write /dev/vdb: EIO")],
)
def test_a_full_disk_of_the_host_is_named_where_only_the_events_had_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, error: type[Exception], says: str
) -> None:
    """The log had just fitted: the run then ended with the guest's I/O error, which says nothing to do."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(error, match=says):
        Played(tmp_path).session._finish(cast(Any, NoRoom()))


def record(tmp_path: Path, kind: OperationKind, *results: wire.OperationResult) -> None:
    argv = ("./run",) if kind is OperationKind.RUN else ()
    wanted = Operation(kind, "" if argv else "f", argv=argv)
    Played(tmp_path).session._run(cast(Any, Answers(*results)), [wanted], lambda _: None)


def test_an_operation_with_a_long_value_is_named_in_short(tmp_path: Path) -> None:
    """`removed` of the set `beside` filled screens with the value that ext4 has no room for."""
    wanted = Operation(OperationKind.SETXATTR, "f", name="user.a", value=b"v" * 3000)
    with pytest.raises(NotSupported, match=r"`setxattr f user\.a v+\.\.\. \(3,0\d\d characters\)`$") as said:
        check_results([failed(Call.SETXATTR, errno.ENOSPC)], 0, [wanted])
    assert len(said.value.line) < 200


def test_a_program_has_ten_minutes_to_do_its_work(tmp_path: Path) -> None:
    """It was ended after two, too few for a database in an emulated guest."""
    guest = Answers(wire.OperationResult(0))
    wanted = Operation(OperationKind.RUN, argv=("./run",))
    Played(tmp_path).session._run(cast(Any, guest), [wanted], lambda _: None)
    ((deadline_s, timeout_s),) = guest.deadlines
    assert deadline_s == 600
    assert timeout_s > deadline_s


@pytest.mark.parametrize(
    ("code", "output", "line", "hint"),
    [
        (1, b"no space", "the program ended with 1: no space", "its last output is above"),
        (1, b"\n", "the program ended with 1", "it printed nothing besides its acknowledgements"),
        (134, b"", "the program ended with 134 (SIGABRT)", "it printed nothing besides its acknowledgements"),
    ],
)
def test_output_is_above_only_where_a_program_printed_some(
    code: int, output: bytes, line: str, hint: str
) -> None:
    """ "Its last output is above", and nothing was; SIGABRT was told as "exit code 134"."""
    ended = wire.OperationResult(0, None, code, output)
    with pytest.raises(GuestError) as said:
        check_results([ended], 0, [Operation(OperationKind.RUN, argv=("./p",))])
    assert said.value.line.endswith(f"{line}; correct the program: {hint}")


def failed(call: Call, number: int, output: bytes = b"") -> wire.OperationResult:
    return wire.OperationResult(0, wire.CallError(call, b"f", "", number), None, output)


@pytest.mark.parametrize(
    ("operation", "result", "error", "told"),
    [
        (
            "run",
            wire.OperationResult(0, None, 5, b"no space in the log"),
            GuestError,
            "the program ended with 5: no space in",
        ),
        (
            "run",
            wire.OperationResult(0, None, 77, b"no atomic writes here\n"),
            NotSupported,
            "lacks what the program needs: no atomic writes here$",
        ),
        (
            "run",
            failed(Call.DEADLINE, errno.ETIMEDOUT, b"begun\n"),
            GuestError,
            "timed out: begun",
        ),
        ("run", failed(Call.SPAWN, errno.EIO), GuestError, r"spawn f: EIO \(5\)"),
        ("append", failed(Call.WRITE, errno.EIO), GuestError, r"write f: EIO \(5\), Input/output error"),
        ("append", failed(Call.OPEN, errno.EOPNOTSUPP), NotSupported, "does not support"),
        ("link", failed(Call.LINK, errno.EPERM), NotSupported, "does not support"),
        ("symlink", failed(Call.SYMLINK, errno.EPERM), NotSupported, "does not support"),
        ("append", failed(Call.OPEN, errno.EPERM), GuestError, "EPERM"),
        ("rename", failed(Call.RENAME, errno.EXDEV), NotSupported, "does not support"),
        ("append", failed(Call.OPEN, errno.EXDEV), GuestError, "EXDEV"),
        ("setxattr", failed(Call.SETXATTR, errno.ENOSPC), NotSupported, "no room for so many attributes"),
        ("setxattr", failed(Call.SETXATTR, errno.E2BIG), NotSupported, "no room for so many attributes"),
        ("symlink", failed(Call.SYMLINK, errno.ENAMETOOLONG), NotSupported, "no names so long"),
        ("link", failed(Call.LINK, errno.EMLINK), NotSupported, "no room for so many links"),
        ("append", failed(Call.WRITE, errno.EFBIG), NotSupported, "no files so large"),
        ("append", failed(Call.WRITE, errno.ENOSPC), FullDisk, r"ENOSPC \(28\)"),
        ("append", failed(Call.WRITE, errno.EDQUOT), FullDisk, "EDQUOT"),
    ],
)
def test_why_an_operation_failed_while_recording(
    tmp_path: Path, operation: str, result: wire.OperationResult, error: type[Exception], told: str
) -> None:
    """A program's exit code went over the wire as EIO, so that an I/O error of starting it read "the program
    did not exit with 0". And limits that a file system documents left `many-attributes` UNKNOWN on F2FS.
    """
    with pytest.raises(error, match=told):
        record(tmp_path, OperationKind(operation), result)


@pytest.mark.parametrize(
    "results",
    [(), (wire.OperationResult(1),), (wire.OperationResult(0), wire.OperationResult(1))],
    ids=["none", "of another operation", "one too many"],
)
def test_results_that_are_not_of_what_was_asked_lose_the_guest(
    tmp_path: Path, results: tuple[wire.OperationResult, ...]
) -> None:
    """A result's index chose the operation to name: IndexError. No result at all counted as success."""
    with pytest.raises(GuestLost, match="operations"):
        record(tmp_path, OperationKind.SYNC, *results)


def test_fewer_results_than_operations_lose_the_guest(tmp_path: Path) -> None:
    """What nobody did would be held against the file system."""
    guest, wanted = Answers(wire.OperationResult(0)), [Operation(OperationKind.SYNC)] * 2
    with pytest.raises(GuestLost, match="1 results of 2 operations"):
        Played(tmp_path).session._run(cast(Any, guest), wanted, lambda _: None)


@pytest.mark.parametrize(
    ("kind", "result", "advice"),
    [
        (OperationKind.RUN, wire.OperationResult(0, None, 5, b"line 3: oops"), "correct the program"),
        (OperationKind.APPEND, failed(Call.WRITE, errno.EDQUOT), "the file system refuses it"),
    ],
)
def test_a_users_own_mistake_is_not_put_down_to_the_file_system(
    tmp_path: Path, kind: OperationKind, result: wire.OperationResult, advice: str
) -> None:
    """A program with a typing error read "the workload does not fit this file system"."""
    with pytest.raises(GuestError) as caught:
        record(tmp_path, kind, result)
    assert caught.value.next_step.startswith(advice)


def test_a_result_of_what_was_asked_is_success(tmp_path: Path) -> None:
    record(tmp_path, OperationKind.RUN, wire.OperationResult(0, None, 0, b"fine"))


@pytest.mark.parametrize(
    ("logging_disabled", "difference", "error"),
    [(True, 7, WriteLogError), (False, 7, LogDiffers), (False, None, None)],
    ids=["full", "differs", "sound"],
)
def test_a_log_that_differs_by_chance_is_told_apart_from_a_log_device_that_is_full(
    tmp_path: Path, logging_disabled: bool, difference: int | None, error: type[Exception] | None
) -> None:
    """Only the first is worth another recording."""
    found = None
    try:
        finish(tmp_path, lambda *_: difference, logging_disabled=logging_disabled)
    except WriteLogError as e:
        found = type(e)
    assert found is error


def finish(
    tmp_path: Path,
    compare: Callable[[Path, Sequence[int] | None], int | None],
    *,
    logging_disabled: bool = False,
    text: str = "",
    offset: int = 1 << 20,
    length: int | None = None,
) -> str:
    """What a session makes of a finished recording with these events at the end of its log device."""
    log = tmp_path / "log"
    write_log(log, [Write(8, bytes(512)), Flush(), Write(8, bytes(512)), Flush()])
    with log.open("r+b") as device:
        device.seek(offset)
        device.write(text.encode())
    lacking = "" if text else "this kernel has no tracefs"
    told = wire.RecordedEvents(offset if text else 0, len(text) if length is None else length, 0, lacking)
    status = "logging_disabled" if logging_disabled else ""
    finished = wire.RecordFinished(status, logging_disabled, 0, [], True, told)
    return finished_log(finished, cast(Any, SimpleNamespace(compare=compare)), log, 2 << 20)[1]


def _bios(*numbers: int) -> str:
    """Events of two writes to one place, the flushes aside."""
    lines = []
    for _ in numbers:
        lines += ["queue: 254,0 W 8 + 1 [a]", "complete: 254,0 W 8 + 1 [0]"]
        lines += ["queue: 254,0 FW 0 + 0 [a]", "complete: 254,0 FW 0 + 0 [0]"]
    return "".join(f"block_bio_{line}\n" for line in lines)


def test_the_replay_is_in_the_order_of_submission_where_it_is_known(tmp_path: Path) -> None:
    """XFS writes a block of its log again with FUA, while the older write waits for its flush: dm-log-writes
    logs the newer one first, and no replay in the log's order gave the disk.
    """
    asked: list[Sequence[int] | None] = []

    def compare(_: Path, order: Sequence[int] | None = None) -> int | None:
        asked.append(order)
        return None

    assert finish(tmp_path, compare, text=_bios(0, 1)) == _bios(0, 1)
    finish(tmp_path, compare)
    assert asked == [(0, 2), None]


def test_events_that_do_not_fit_the_log_void_the_recording(tmp_path: Path) -> None:
    with pytest.raises(EventsDiffer, match="never completed"):
        finish(tmp_path, lambda *_: None, text=_bios(0, 1).rsplit("\n", 2)[0] + "\n")


def test_events_that_are_not_there_void_the_recording(tmp_path: Path) -> None:
    with pytest.raises(EventsDiffer, match="announced 5000000 bytes"):
        finish(tmp_path, lambda *_: None, text=_bios(0, 1), length=5_000_000)


def test_notes_stand_behind_the_events_and_must_be_there(tmp_path: Path) -> None:
    """Notes that were cut off would be of a program that did less."""
    (tmp_path / "log").write_bytes(b"log eventsnotes")

    def finished(length: int) -> wire.RecordFinished:
        return wire.RecordFinished("", False, 0, [], True, wire.RecordedEvents(4, 6, length))

    assert noted_calls(finished(5), tmp_path / "log") == b"notes"
    assert noted_calls(finished(0), tmp_path / "log") == b""
    with pytest.raises(EventsDiffer, match="announced 9 bytes of notes"):
        noted_calls(finished(9), tmp_path / "log")


def test_events_that_overwrote_the_log_void_the_recording(tmp_path: Path) -> None:
    """They were put where the log seemed to end, while the kernel still wrote its last entries."""
    with pytest.raises(WriteLogError, match="no room for the log, "):
        finish(tmp_path, lambda *_: None, text=_bios(0, 1), offset=3200)


def test_a_log_that_does_not_give_the_disk_in_any_order_voids_the_recording(tmp_path: Path) -> None:
    with pytest.raises(LogDiffers, match="first difference at byte 7"):
        finish(tmp_path, lambda *_: 7, text=_bios(0, 1))


class PlayedShared(Played):
    """One whose kernel has the disk's driver."""

    shares = True


def test_a_guest_that_records_has_its_disk_by_messages_and_one_that_judges_as_memory(tmp_path: Path) -> None:
    """Completions are held only over vhost-user: recorded on memory, a file system that forgets to wait is
    not caught.
    """
    played = PlayedShared(tmp_path)
    played.session.recover(played.target, CrashState(0))
    assert (played.booted, played.memory) == (1, Path("/proc/7/fd/3"))
    with contextlib.suppress(AssertionError):  # the played guest cannot record
        played.session.record(played.target, [])
    assert (played.booted, played.memory) == (2, None)
    played.session.recover(played.target, CrashState(0))
    assert (played.booted, played.memory) == (3, Path("/proc/7/fd/3"))


def test_a_guest_that_has_only_messages_records_and_judges(tmp_path: Path) -> None:
    played = Played(tmp_path)
    with contextlib.suppress(AssertionError):
        played.session.record(played.target, [])
    played.session.recover(played.target, CrashState(0))
    assert played.memory is None


@pytest.mark.parametrize("name", ["uml", "qemu"])
def test_a_disk_that_refused_requests_is_told_before_its_log_is_read(tmp_path: Path, name: str) -> None:
    """Such a disk differs from its log, of which the next step was to record again: that never helped."""
    played = Played(tmp_path, errors=3)
    played.name = name  # as a machine has it
    ended = SimpleNamespace(log_complete=True)
    played.session._converse = lambda *_: (ended, None)  # type: ignore[assignment,method-assign]
    with pytest.raises(DiskError, match="refused 3 requests while recording") as told:
        played.session.record(played.target, [])
    assert ("--machine qemu" in told.value.next_step) == (name == "uml")


class PlayedNoting(Played):
    """One whose kernel notes what it runs, and which has only messages."""

    hits = Path("/hits")


def test_a_guest_that_records_notes_nothing_of_what_it_runs(tmp_path: Path) -> None:
    """What a workload does while it is recorded would have counted as what recovery ran; and a guest that had
    recorded would have judged without a note.
    """
    played = PlayedNoting(tmp_path)
    played.session.recover(played.target, CrashState(0))
    with contextlib.suppress(AssertionError):
        played.session.record(played.target, [])
    played.session.recover(played.target, CrashState(0))
    assert played.noting == [Path("/hits"), None, Path("/hits")]


class RecordingGuest(PlayedGuest):
    """Does any operations, and is lost before the recording ends."""

    def __init__(self, hello: wire.Hello) -> None:
        super().__init__(GOOD, USED, hello)
        self.asked: list[msgspec.Struct] = []

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> msgspec.Struct:
        self.asked.append(message)
        match message:
            case wire.RunOperations(first, operations):
                return wire.OperationsDone(
                    [wire.OperationResult(first + i, None, None, b"") for i in range(len(operations))]
                )
            case wire.RecordStart():
                return wire.RecordStarted()
            case wire.PutFile():
                return wire.Done()
        raise GuestLost("it was played to here", "")


class PlayedRecorder(Played):
    """Its guests record."""

    def launch(self, boot: Boot) -> PlayedGuest:
        self.guest = RecordingGuest(self.hello)
        return self.guest


def test_a_schedule_is_the_disks_order_the_pauses_and_the_kernels_timers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording was one schedule of many: all that was held came at a flush, and no timer ever fired. The
    guest judges as well: it gets its own timers back.
    """
    monkeypatch.setattr(PlayedDisk, "held", [])
    played = PlayedRecorder(tmp_path)
    waited: list[float] = []
    monkeypatch.setattr(played.session._stopped, "wait", waited.append)
    schedule = Schedule(7, HoldOrder.NEWEST, 4, ((2, 0.5),), (20, 5))
    with pytest.raises(GuestLost, match="played to here"):
        played.session.record(played.target, [Operation(OperationKind.SYNC)] * 20, schedule=schedule)
    assert PlayedDisk.held == [(4 * session.IDLE_S, None, HoldOrder.NEWEST, 7)]
    told = [
        (m.path.rpartition("/")[2], m.data) if isinstance(m, wire.PutFile) else type(m).__name__
        for m in played.guest.asked
    ]
    expire, wake = "dirty_expire_centisecs", "dirty_writeback_centisecs"
    assert told == [
        "RecordStart",
        (expire, b"20\n"),
        (wake, b"5\n"),
        *["RunOperations"] * 3,  # up to the pause, up to a full batch, the rest
        (expire, b"3000\n"),
        (wake, b"500\n"),
        "RecordFinish",
    ]
    assert waited == [0, 0.5, 0]


def test_a_recording_without_a_schedule_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayedDisk, "held", [])
    played = PlayedRecorder(tmp_path)
    with pytest.raises(GuestLost):
        played.session.record(played.target, [Operation(OperationKind.SYNC)])
    assert PlayedDisk.held == [(session.IDLE_S, 4711, HoldOrder.ALL, 0)]
    assert not [m for m in played.guest.asked if isinstance(m, wire.PutFile)]


def test_a_session_that_shows_another_kind_of_disk_begins_another_guest(tmp_path: Path) -> None:
    """A disk tells of its sectors and its cache at boot: the guest that was there took the next disk for one
    like the last. As memory, it has sectors of 512 bytes and a volatile cache.
    """
    played = PlayedShared(tmp_path)
    for kind, memory in ((USUAL, True), (disks()["4k"], False), (disks()["4k"], False), (USUAL, True)):
        target = dataclasses.replace(played.target, disk=kind)
        assert played.session.recover(target, CrashState(1)).outcome.kernel_log == ("mounted",)
        disk = played.session.disk
        assert isinstance(disk, PlayedDisk)
        assert disk.kind == kind
        assert (played.memory is not None) is memory
    assert (played.booted, PlayedDisk.made) == (3, 3)


def test_another_log_at_the_path_of_an_earlier_one_is_shown(tmp_path: Path) -> None:
    """A case that came back to a worker of a cluster was recorded anew under the same name, and its session
    went on showing the states of the recording before.
    """
    played = Played(tmp_path)
    target = dataclasses.replace(played.target, log=(log := tmp_path / "log"))
    for blocks in (1, 2):
        log.unlink(missing_ok=True)
        write_log(log, [Write(0, b"A" * 4096 * blocks)])
        for _ in range(2):
            played.session.recover(target, CrashState(1))
    disk = played.session.disk
    assert isinstance(disk, PlayedDisk)
    assert disk.opened == (log, log), "each once"
