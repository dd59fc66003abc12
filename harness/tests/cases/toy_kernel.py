"""A toy kernel in memory: the guest of the middle layer. Everything around it is real.

Session, disk process, Examiner, memo, Exploration, Casework and store are those of a run; only the guest is
played, at the seam of `Guest.request`. It reads and writes the real disk by a block front end of its own
(`frontend`), so that the disk sees it as it sees any guest.

Its file system has a flag in each of three blocks: a block is *written* or as mkfs left it. Recovery reads
the blocks 0 and 1, and block 2 only if block 1 was written; what it read is a *word*, `10` or `110`. What
becomes of a state depends on its word alone: `Kernel.kind` happens where the word is `Kernel.at`, all others
are fine.

A *journal* is block 0 as long as it holds a value: recovery writes that to block 7, flushes, and clears block
0. `OnError` says what the kernel makes of a request that failed.

A *program* gives recovery something to do: each of some blocks holds a value from 0 to 3, and each step
writes to one of them the value of another plus a number, or flushes. The values in the end show in the tree.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from harness.cases.casework import Casework
from harness.cases.pool import Pool, Worker
from harness.cases.recording import Recording, by_times, load_recording
from harness.cases.remote import RemoteSession, Sessions, WorkerProcess
from harness.errors import GuestError, GuestLost
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.filesystems.tools import Tool
from harness.guests import wire
from harness.guests.disk import Disk, find_binary
from harness.guests.guest import CONSOLE_NAME
from harness.guests.machine import Boot, Machine
from harness.guests.session import GuestSpec, Session
from harness.host.packed import pack
from harness.host.progress import Quiet
from harness.model import BLOCK_BYTES, Call, CaseId, CrashState, DifferenceKind, FileKind, Verdict, Workload
from harness.plan import Plan
from harness.store import RunStore
from harness.tests.guests.frontend import Frontend
from harness.tests.guests.toy import directory
from harness.tests.needs import needed
from harness.tests.store.samples import INFO
from harness.workloads.load import parse_operation
from harness.writelog import Flush, MarkText, Step, Write, read_log, write_log

BLOCKS = 16
LOG_BYTES = 1 << 20
SECTORS = 8
"""Of a block."""
SECTOR_BYTES = 512
BASE = bytes([ord(".")]) * BLOCK_BYTES
FLAGS = (0, 1, 2)
UNREAD, REPLAYED, SCRATCH = 4, 5, 6
"""Blocks: that no visit reads; that recovery writes; that is written to afterwards."""
COUNTER = 8
"""The block in which recoveries are counted."""
REWRITTEN = (3, 9, 10, 11, 12, 13, 14, 15)
"""Blocks that a recovery reads and then writes, without a flush: 256 states of a cut."""
NOBODY = 1 << 30
"""No process has this number: nobody can see whether a toy sleeps."""
COMPLAINT = "EXT4-fs error (device vda): toy"
PANIC = "Kernel panic - not syncing: toy"


VALUES = (0, 1, 2, 7)
"""Blocks that hold values for a program."""
VALUE_COUNT = 4


@dataclass(frozen=True)
class Put:
    """A step of a program: block `to` gets the value of block `of` plus `more`."""

    to: int
    of: int
    more: int


Program = tuple[Put | None, ...]
"""Steps of a recovery; None flushes."""


def value_of(block: bytes) -> int:
    """0 as mkfs left it; the workload's first operation writes 1, 2 and 3 into the three flags."""
    return 0 if block == BASE else (block[0] - ord("A") + 1) % VALUE_COUNT


def holding(value: int) -> bytes:
    """A block of that value."""
    return bytes([ord("A") + value - 1]) * BLOCK_BYTES if value else BASE


def told(values: Sequence[int]) -> int:
    """The root's number of links where the blocks have these values."""
    return 2 + sum(value << 2 * place for place, value in enumerate(values))


class Kind(enum.StrEnum):
    """What becomes of a state."""

    FINE = "fine"
    NOT_MOUNTED = "mount fails"
    UNREADABLE = "a directory cannot be read"
    COMPLAINS = "the kernel complains"
    COMPLAINS_ONCE = "each kernel complains the first time"
    KEEPS_BACK = "each kernel keeps part of its log back, but for the first that it does"
    NOT_UNMOUNTED = "unmount fails"
    READ_ONLY = "it refuses to be written to"
    DIES = "the kernel dies in recovery"
    DIES_ONCE = "the first kernel dies in recovery"
    HANGS = "the kernel hangs in recovery"
    NO_TREE = "the guest sends nonsense"
    LOG_LOST = "part of the kernel's log is lost"
    DISK_ENDS = "the disk process ends"
    CALL_FAILS_IN_USE = "a call fails while it is written to"
    NOT_MOUNTED_IN_USE = "the second mount fails"
    CHANGED_IN_USE = "the second mount shows something else"
    NOT_UNMOUNTED_IN_USE = "unmount fails after writing"
    FORGETS_IN_USE = "what was written is not read back"
    NOT_REMOUNTED_IN_USE = "the mount after writing fails"
    DIES_IN_USE = "the kernel dies while it is written to"
    DIES_ONCE_IN_USE = "the first kernel dies while it is written to"
    HANGS_IN_USE = "the kernel hangs while it is written to"
    LATE_IN_USE = "writing does not end before the deadline"
    REFUSED_IN_USE = "the agent cannot write to it"
    WAVERS = "two visits see different trees"


class OnError(enum.StrEnum):
    """What the kernel makes of a request that failed in recovery."""

    REPORTS = "the mount fails"
    IGNORES = "a block that cannot be read is as mkfs left it, and one that cannot be written is forgotten"
    DIES = "it dies"
    HANGS = "it does not answer"


VERDICTS = dict.fromkeys(Kind, Verdict.FAIL) | {
    Kind.FINE: Verdict.PASS,
    Kind.DIES_ONCE: Verdict.PASS,
    Kind.HANGS: Verdict.UNKNOWN,
    Kind.NO_TREE: Verdict.UNKNOWN,
    Kind.LOG_LOST: Verdict.UNKNOWN,
    Kind.DISK_ENDS: Verdict.UNKNOWN,
    Kind.DIES_ONCE_IN_USE: Verdict.PASS,
    Kind.HANGS_IN_USE: Verdict.UNKNOWN,
    Kind.LATE_IN_USE: Verdict.UNKNOWN,
    Kind.KEEPS_BACK: Verdict.PASS,
    Kind.REFUSED_IN_USE: Verdict.UNKNOWN,
    Kind.WAVERS: Verdict.PASS,
}
"""The verdict on a state of each kind."""

LOST = frozenset({Kind.DIES, Kind.HANGS, Kind.NO_TREE, Kind.LOG_LOST, Kind.DISK_ENDS})
LOST_IN_USE = frozenset({Kind.DIES_IN_USE, Kind.HANGS_IN_USE, Kind.REFUSED_IN_USE})
"""Kinds in which no visit came to its end: what it would have read is not known."""


def _ignore(word: str) -> None: ...
def _do_nothing() -> None: ...


@dataclass
class Kernel:
    """How the toy behaves, and what it has seen. `on_visit`: called with each word that a recovery read.
    `meanwhile`: called after it, in the worker's thread; what else happens in the time of a visit.
    `program`: what recovery does. `journal`, `on_error`: see the module; `checksums`: it knows that all bytes
    of a block are equal. `has_file`: its tree has a file, whose contents are block 4, and are read last;
    `marks`: how often the guest asks for the serial number around that, as the walk does.
    `counts`: each recovery adds 1 to the second byte of block 8. `comes_up`: whether it boots. `refuses`: its
    tree has a file with the word that was read, and programs exit with 1 where that is `at`. `loses`: its
    tree has a file, `kept`, unless block 7 holds 1. `rewrites`: recovery reads and writes REWRITTEN.
    `breaks`: its tree has a file, `broken`, if it found the first three of these as they were, and the next
    three written. `data`: blocks that every operation but the first one writes, and that are read last, as
    those of a file are. `joins`: the tree has a file, `broken`, if so many of them are written; `stale`: if
    so many are, and recovery found that it had been there before.
    `in_memory`: a journal is replayed in memory, never on the disk, and emptied.
    `complains_in`, `dies_in`: an operation of the workload in which it complains, or dies.
    """

    kind: Kind = Kind.FINE
    at: str = "110"
    on_visit: Callable[[str], None] = _ignore
    meanwhile: Callable[[], None] = _do_nothing
    program: Program = ()
    journal: bool = False
    on_error: OnError = OnError.REPORTS
    checksums: bool = False
    has_file: bool = False
    marks: int = 2
    counts: bool = False
    comes_up: bool = True
    refuses: bool = False
    loses: bool = False
    rewrites: bool = False
    breaks: bool = False
    data: tuple[int, ...] = ()
    joins: Collection[int] = ()
    stale: Collection[int] = ()
    in_memory: bool = False
    complains_in: int | None = None
    dies_in: int | None = None
    visits: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)
    boots: int = 0

    def kind_of(self, word: str) -> Kind:
        return self.kind if word == self.at else Kind.FINE

    def verdict_on(self, word: str) -> Verdict:
        return VERDICTS[self.kind_of(word)]


class ToyGuest:
    """A booted toy. `end_disk` kills the disk process."""

    hello = wire.Hello(wire.PROTOCOL_VERSION, "6.12.0-toy", "#1", [], ["log-writes"])

    def __init__(self, kernel: Kernel, boot: Boot, end_disk: Callable[[], None]) -> None:
        self._kernel, self._log, self._end_disk = kernel, boot.log, end_disk
        self._disk = Frontend(boot.disk_socket).start()
        self._said = "toy: up"
        self.process = SimpleNamespace(pid=NOBODY)
        self._tape = Tape(self._disk, ())
        self._complained = False
        self._recovered_before = False
        (boot.directory / CONSOLE_NAME).write_text("toy: up\n")

    def wait_until_up(self, _: float) -> None:
        if not self._kernel.comes_up:
            raise GuestLost("no greeting")

    def console(self) -> str:
        return self._said

    def end(self) -> None:
        """From another thread; the toy answers at once anyway."""

    def kill(self) -> None:
        self._disk.__exit__(None, None, None)

    def request(self, message: msgspec.Struct, reply: type, timeout_s: float) -> msgspec.Struct:
        match message:
            case wire.RecordStart():
                self._tape = Tape(self._disk, self._kernel.data or (UNREAD,))
                return wire.RecordStarted()
            case wire.RunOperations(first_index=first, operations=operations):
                return self._run(range(first, first + len(operations)))
            case wire.RecordFinish():
                said = [wire.Said(self._kernel.complains_in, [COMPLAINT])]
                written = self._tape.write(self._log)
                return wire.RecordFinished(
                    "", False, 0, said if self._kernel.complains_in is not None else [], True, written
                )
            case wire.Recover():
                return self._recover()
            case wire.Use(before=before):
                return self._use(before)
            case wire.PutFile():
                return wire.Done()
            case wire.RunProgram(argv=argv):
                refused = self._kernel.refuses and self._kernel.visits[-1] == self._kernel.at
                return wire.ProgramDone(int(refused), f"toy: {' '.join(argv)}".encode())
            case wire.Unmount():
                return wire.Unmounted(0, [], True)
        raise AssertionError(f"a toy is not asked to {message}")

    def _run(self, numbers: range) -> wire.OperationsDone:
        for number in numbers:
            if number == self._kernel.dies_in:
                self._die()
            self._tape.run(number)
        return wire.OperationsDone([wire.OperationResult(number) for number in numbers])

    def _recover(self) -> wire.Recovered:
        try:
            return self._recovered()
        except OSError:
            if self._kernel.on_error is OnError.DIES:
                self._die()
            if self._kernel.on_error is OnError.HANGS:
                raise GuestLost("the guest did not answer within 120 s", self._said) from None
            return wire.Recovered(errno.EIO, [], [], 0, ["toy: cannot mount"], True, 1, 1, 1)

    def _recovered(self) -> wire.Recovered:
        kernel, word = self._kernel, read_word(self._read)
        kernel.visits.append(word)
        kernel.on_visit(word)
        kernel.meanwhile()
        kind, times = kernel.kind_of(word), Counter(kernel.visits)[word]
        if kind is Kind.DIES or (kind is Kind.DIES_ONCE and times == 1):
            self._die()
        if kind is Kind.HANGS:
            raise GuestLost("the guest did not answer within 120 s", self._said)
        if kind is Kind.DISK_ENDS:
            self._end_disk()
            raise GuestError("the guest sees I/O errors")
        good = wire.Recovered(0, [directory(b"", 8)], [], 0, ["toy: mounted"], True, 1, 1, 1)
        if kind is Kind.NOT_MOUNTED:
            return msgspec.structs.replace(good, mount_errno=errno.EUCLEAN, entries=[])
        good.entries[0] = msgspec.structs.replace(good.entries[0], links=self._run_program())
        good.looks = self._looks(good.entries[0].links)
        if kernel.refuses:
            good.entries.append(_file(b"word", 12, word))
        if kernel.counts:
            count = self._read(COUNTER)[1] + 1
            self._write(COUNTER, BASE[:1] + bytes([count]) + BASE[2:])
            self._disk.flush()
        good.entries.extend(self._files())
        self._write(REPLAYED, b"r" * BLOCK_BYTES)
        changes: dict[Kind, dict[str, Any]] = {
            Kind.UNREADABLE: {"walk_errors": [wire.CallError(Call.GETDENTS, b"", "", errno.EUCLEAN)]},
            Kind.COMPLAINS: {"kernel_log": [COMPLAINT]},
            Kind.COMPLAINS_ONCE: {"kernel_log": [] if self._complained else [COMPLAINT]},
            Kind.KEEPS_BACK: {"kernel_log": ["toy: 3 callbacks suppressed"] * self._recovered_before},
            Kind.NOT_UNMOUNTED: {"unmount_errno": errno.EIO},
            Kind.READ_ONLY: {"read_only": True},
            Kind.NO_TREE: {"entries": [directory(b"", 8), directory(b"", 8)]},
            Kind.LOG_LOST: {"log_complete": False},
            Kind.WAVERS: {"entries": [directory(b"", 8 * times)]},
        }
        self._complained |= kind is Kind.COMPLAINS_ONCE
        self._recovered_before = True
        return msgspec.structs.replace(good, **changes.get(kind, {}))

    def _files(self) -> Iterator[wire.TreeEntry]:
        """Those of the tree that depend on what is on the disk."""
        kernel = self._kernel
        if kernel.has_file:
            self._disk.identity()
            digest = hashlib.sha256(self._read(UNREAD)).hexdigest()
            for _ in range(1, kernel.marks):
                self._disk.identity()
            yield _file(b"file", 13, digest)
        again = bool(kernel.stale) and self._read(REPLAYED) != BASE
        if kernel.data:
            written = self._written(kernel.data)
            if written in kernel.joins or (again and written in kernel.stale):
                yield _file(b"broken", 15)
        if kernel.loses and value_of(self._read(7)) != 1:
            yield _file(b"kept", 14)
        if kernel.rewrites and self._rewrite() == [False] * 3 + [True] * 3 and kernel.breaks:
            yield _file(b"broken", 15)

    def _run_program(self) -> int:
        """Returns the root's links."""
        program = self._kernel.program
        if self._kernel.journal:
            return self._replay()
        for step in program:
            if step is None:
                self._disk.flush()
            else:
                value = (value_of(self._read(step.of)) + step.more) % VALUE_COUNT
                self._disk.write(step.to * SECTORS, holding(value))
        return told([value_of(self._read(block)) for block in VALUES]) if program else 2

    def _written(self, data: Sequence[int]) -> int:
        """How many blocks of files are not as mkfs left them."""
        self._disk.identity()
        written = sum(self._read(block) != BASE for block in data)
        self._disk.identity()
        return written

    def _rewrite(self) -> list[bool]:
        """Returns of the first six whether they were written before."""
        before = [self._read(block) != BASE for block in REWRITTEN]
        for block in REWRITTEN:
            self._write(block, b"w" * BLOCK_BYTES)
        return before[:6]

    def _replay(self) -> int:
        waiting = value_of(self._read(0))
        if waiting and self._kernel.in_memory:
            self._write(0, BASE)
            return told([waiting if block == 7 else value_of(self._read(block)) for block in VALUES])
        if waiting:
            self._write(7, holding(waiting))
            if self._disk.flush() and self._kernel.on_error is not OnError.IGNORES:
                raise OSError("a flush failed")
            self._write(0, BASE)
        return told([value_of(self._read(block)) for block in VALUES])

    def _looks(self, links: int) -> wire.Looks:
        """Of the tree; only a journal changes that from one mount to the next."""
        return wire.Looks(names=f"links: {links}" if self._kernel.journal else "")

    def _second_tree(self) -> list[wire.TreeEntry]:
        links = told([value_of(self._read(block)) for block in VALUES])
        return [msgspec.structs.replace(directory(b"", 8), links=links)]

    def _use(self, before: wire.Looks) -> wire.Used:
        kernel, word = self._kernel, read_word(self._read)
        kernel.uses.append(word)
        kind, times = kernel.kind_of(word), Counter(kernel.uses)[word]
        self._read(REPLAYED)
        if kind is Kind.DIES_IN_USE or (kind is Kind.DIES_ONCE_IN_USE and times == 1):
            self._die()
        if kind is Kind.HANGS_IN_USE:
            raise GuestLost("the guest did not answer within 180 s", self._said)
        if kind is Kind.REFUSED_IN_USE:
            raise GuestError("the agent has no memory left")
        good = wire.Used(0, [], True, 0, [], True)
        if kind is Kind.NOT_MOUNTED_IN_USE:
            return msgspec.structs.replace(good, mount_errno=errno.EUCLEAN)
        if kernel.journal:
            entries = self._second_tree()
            good.looks = self._looks(entries[0].links)
            good.entries = entries if good.looks != before else []
        self._disk.write(SCRATCH * SECTORS, b"u" * BLOCK_BYTES)
        changes: dict[Kind, dict[str, Any]] = {
            Kind.CHANGED_IN_USE: {
                "looks": wire.Looks(names="others"),
                "entries": [msgspec.structs.replace(directory(b"", 8), links=3)],
            },
            Kind.CALL_FAILS_IN_USE: {"errors": [wire.CallError(Call.UNLINK, b"f", "", errno.EUCLEAN)]},
            Kind.NOT_UNMOUNTED_IN_USE: {"unmount_errno": errno.EIO},
            Kind.FORGETS_IN_USE: {"differences": [wire.Difference(b"f", DifferenceKind.SIZE, 0)]},
            Kind.NOT_REMOUNTED_IN_USE: {"remount_errno": errno.EUCLEAN},
            Kind.LATE_IN_USE: {"finished": False},
        }
        return msgspec.structs.replace(good, **changes.get(kind, {}))

    def _read(self, block: int) -> bytes:
        try:
            found = self._disk.read(block * SECTORS, SECTORS)
        except OSError:
            if self._kernel.on_error is OnError.IGNORES:
                return BASE
            raise
        if self._kernel.checksums and len(set(found)) > 1:
            raise OSError("a checksum does not fit")
        return found

    def _write(self, block: int, data: bytes) -> None:
        try:
            self._disk.write(block * SECTORS, data)
        except OSError:
            if self._kernel.on_error is not OnError.IGNORES:
                raise

    def _die(self) -> None:
        self._said = PANIC
        raise GuestLost("the guest closed its channel", PANIC)


def read_word(read: Callable[[int], bytes]) -> str:
    """What recovery reads of a disk; `read` returns a block."""

    def flag(block: int) -> str:
        return "0" if read(block) == BASE else "1"

    word = flag(0) + flag(1)
    return word + flag(2) if word[1] == "1" else word


def _block(content: bytes, block: int) -> bytes:
    return content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]


def _file(path: bytes, inode: int, digest: str = "") -> wire.TreeEntry:
    file = {"kind": FileKind.FILE, "inode": inode, "mode": 0o644, "links": 1, "size": 0, "digest": digest}
    return msgspec.structs.replace(directory(path, 0), **file)


class Tape:
    """What dm-log-writes and the block layer's events say of a workload: operation 0 writes the three flags,
    in flight together, and flushes; every later one writes blocks of `data`, and flushes.
    """

    def __init__(self, disk: Frontend, data: Sequence[int]) -> None:
        self._disk, self._data = disk, data
        self._steps: list[Step] = []
        self._lines: list[str] = []

    def run(self, operation: int) -> None:
        """One operation, with its marks."""
        self._mark(f"begin {operation}")
        blocks = FLAGS if operation == 0 else self._data
        written = [(block, bytes([ord("A") + operation + block]) * BLOCK_BYTES) for block in blocks]
        for block, data in written:
            self._tell("queue", "WS", block * SECTORS, SECTORS, "toy")
            self._disk.write(block * SECTORS, data)
        for block in blocks:
            self._tell("complete", "WS", block * SECTORS, SECTORS, "0")
        self._tell("queue", "FWS", 0, 0, "toy")
        self._disk.flush()
        self._steps += [*(Write(block * SECTORS, data) for block, data in written), Flush()]
        self._tell("complete", "FWS", 0, 0, "0")
        self._mark(f"ack {operation}")

    def write(self, device: Path) -> wire.RecordedEvents:
        """Put log and events onto the log device."""
        write_log(device, self._steps)
        text = "".join(f"{line}\n" for line in self._lines).encode()
        offset = read_log(device).used_bytes
        with device.open("r+b") as f:
            f.seek(offset)
            f.write(text)
        return wire.RecordedEvents(offset, len(text))

    def _mark(self, text: str) -> None:
        self._steps.append(MarkText(text))
        self._lines.append(f"tracing_mark_write: powercut: {text}")

    def _tell(self, word: str, letters: str, sector: int, sectors: int, last: str) -> None:
        self._lines.append(f"block_bio_{word}: 254,3 {letters} {sector} + {sectors} [{last}]")


class ToyMachine:
    """Boots toys, all in this process."""

    name, described = "toy", "a toy"
    data_device, log_device = "/dev/vda", "/dev/vdb"
    boot_timeout_s = 1.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.session: Session | None = None

    def shares_disk(self, _: Path) -> bool:
        return False

    def has_virtual_time(self, _: Path) -> bool:
        return False

    def launch(self, boot: Boot) -> ToyGuest:
        self._kernel.boots += 1
        return ToyGuest(self._kernel, boot, self._end_disk)

    def _end_disk(self) -> None:
        assert self.session is not None
        disk = self.session.disk
        disk.end()
        os.waitid(os.P_PID, disk.pid, os.WEXITED | os.WNOWAIT)  # it has been killed: this ends


def toy_spec(kernel: Kernel, folder: Path) -> GuestSpec:
    """Of guests that are toys."""
    return GuestSpec(cast(Machine, cast(Any, ToyMachine(kernel))), folder / "kernel", folder / "initramfs")


def toy_session(spec: GuestSpec, folder: Path) -> Session:
    """A real session of a toy's spec."""
    machine = cast(ToyMachine, cast(Any, spec.machine))
    machine.session = Session(spec, folder / "session", LOG_BYTES)
    return machine.session


def toy_worker(kernel: Kernel, folder: Path) -> Session:
    """A real session whose guests are toys."""
    return toy_session(toy_spec(kernel, folder), folder)


def toy_sessions(spec: GuestSpec, folder: Path) -> Sessions:
    """Of a worker's process, where the spec is another one than the run's, as in `pool_of`."""
    session = toy_session(spec, folder)
    return {"recorder": session, "judge": session}


def remote_session(kernel: Kernel, folder: Path) -> RemoteSession:
    """A worker's process, whose guests are toys. The kernel must be picklable."""
    spec = toy_spec(kernel, folder)
    process = WorkerProcess(functools.partial(toy_sessions, spec, folder), folder)
    return RemoteSession(process, "judge", spec)


def toy_profile() -> Profile:
    """ext4's promises on a disk of 64 KiB, with an fsck that reads its first block and is content."""
    (profile,) = select_profiles(["ext4/ordered"])
    fsck = Tool("head", "coreutils", ["--bytes=4096"])
    return replace(profile, size_bytes=BLOCKS * BLOCK_BYTES, fsck=fsck)


@dataclass
class Bench:
    """A run of one case, from its recording to its verdict, in a run directory that stays."""

    store: RunStore
    folder: Path
    profile: Profile = field(default_factory=toy_profile)
    workload: Workload = field(
        default_factory=lambda: Workload("w", "", (parse_operation("sync"), parse_operation("sync")))
    )
    _pool: Pool | None = None

    @property
    def case(self) -> CaseId:
        return CaseId(self.profile.filesystem, self.profile.mode, self.workload.name)

    def run(
        self,
        kernel: Kernel,
        states: str,
        stop_at: int = 0,
        jobs: int = 1,
        *,
        apart: bool = False,
        **plan: Any,
    ) -> None:
        """Work on the case; again, if it was worked on. `stop_at`: the visit, counted from 1, during which
        the run is stopped. `jobs`: workers. `apart`: they are processes, each with a kernel like this one,
        which must be picklable.
        """
        base = self.folder / "base.img"
        if not base.exists():
            base.write_bytes(BASE * BLOCKS)
            pack(base, self.store.layout.base(self.profile.filesystem, self.profile.mode))
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)

        def worker(number: int) -> Worker:
            folder = self.folder / f"worker-{number}"
            session = remote_session(kernel, folder) if apart else toy_worker(kernel, folder)
            return Worker(session, session)

        self._pool = pool = Pool(worker, jobs, confirms=False)

        def on_visit(word: str) -> None:
            if len(kernel.visits) == stop_at:
                pool.stop.set()

        if not apart:
            kernel.on_visit = on_visit
        asked = Plan(
            configurations=[self.profile.name],
            workloads=[self.workload.name],
            fault_models=(states,),
            jobs=jobs,
            log_bytes=LOG_BYTES,
            **plan,
        )
        try:
            Casework(asked, self.store, Quiet(), scratch, {self.profile.name: base}).work(
                pool, [(self.profile, self.workload)], {}
            )
        finally:
            pool.close()

    def stop(self) -> None:
        """From another thread."""
        assert self._pool is not None
        self._pool.close()

    def recording(self, states: str) -> Recording:
        """As the run directory keeps it."""
        scratch = self.folder / "recording"
        scratch.mkdir(exist_ok=True)
        layout = self.store.layout
        kept = load_recording(self.case, self.profile, self.workload, layout, scratch, LOG_BYTES)
        return by_times(kept, 8)[0] if states == "exhaustive" else kept

    def words(self, states: str) -> dict[CrashState, str]:
        """Of each state in the store, what a recovery reads of it."""
        recording = self.recording(states)
        image = self.folder / "image"
        with Disk() as disk:
            target = recording.target
            disk.open(target.base, target.log, target.order)
            found = {}
            for row in self.store.iter_verdicts(self.case):
                disk.switch(recording.on_disk(row.state))
                disk.image(image)
                found[row.state] = read_word(functools.partial(_block, image.read_bytes()))
        return found

    def verdicts(self, states: str) -> dict[str, set[Verdict]]:
        """The verdicts in the store, by word."""
        words, found = self.words(states), dict[str, set[Verdict]]()
        for row in self.store.iter_verdicts(self.case):
            found.setdefault(words[row.state], set()).add(row.verdict)
        return found


@contextlib.contextmanager
def bench_in(folder: Path) -> Iterator[Bench]:
    """A bench for the time of a block."""
    with needed():
        find_binary()
    with RunStore.create(folder / "reports", "t", INFO, durable=False) as store:
        yield Bench(store, folder)


@pytest.fixture
def a_bench(tmp_path: Path) -> Iterator[Bench]:
    """One for a test, in whose module it is called `bench`."""
    with bench_in(tmp_path) as made:
        yield made
