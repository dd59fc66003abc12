"""The disk of one guest: starts `powercut-disk` and requests crash states from it.

A switch costs in proportion to what the guest wrote on the state before. The disk never writes the base
image or the log, and neither may change while the disk is open. Image files (`Disk.image`) are read-only
for everybody else: a program that repairs works on a copy.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import DiskError, DiskRefused, EnvironmentLacks, VersionsDiffer
from harness.filesystems.disks import USUAL, DiskKind
from harness.filesystems.profile import MountCounter
from harness.guests import wire
from harness.host.folders import OwnedFolder
from harness.host.processes import die_with_parent
from harness.host.resources import built_part
from harness.model import BLOCK_BYTES, SECTOR_BYTES, CrashState, DiskFault, FaultKind, HoldOrder
from harness.states import Choices

FOLDER_PREFIX = "powercut-disk-"
"""Of the temporary folders of disks."""
_START_TIMEOUT_S = 20.0
_REQUEST_TIMEOUT_S = 60.0  # longest of all: indexing a log of some GiB
_CLOSE_TIMEOUT_S = 2.0
_STDERR_TAIL_BYTES = 4000
STATES_PER_REQUEST, CHUNKS_PER_REQUEST = 50_000, 1 << 20
"""Of states and the chunks that they name: a frame has at most 16 MiB, and 4 million values."""
BLOCK_SECTORS = BLOCK_BYTES // SECTOR_BYTES
EXPLORED_MAX = wire.LIMITS["STATES"]
"""States and known outcomes that one exploration may answer with."""
CONTENTS_MAX = wire.LIMITS["CONTENTS"]
"""Contents of one block that an exploration tells apart."""

M = TypeVar("M", bound=msgspec.Struct)
Asked = TypeVar("Asked", bound=Choices | CrashState)


def find_binary() -> Path:
    """The disk's program. Raises EnvironmentLacks if it does not exist or cannot be run."""
    binary = built_part("POWERCUT_DISK", "release", "powercut-disk")
    if not os.access(binary, os.X_OK):
        raise EnvironmentLacks(f"{binary} cannot be run", f"chmod +x {binary}")
    return binary


@dataclass(frozen=True, slots=True)
class Order:
    """In which order the entries of a log were applied to the device.

    `entries`: each entry that changes the device, once. Each is split at multiples of `unit_sectors` sectors
    of the device (1, 2, 4 or 8) into *chunks*. They are numbered from 0, entry by entry in this order,
    ascending by sector within an entry. In the states of such a device, chunks take the place of entries.
    """

    entries: tuple[int, ...]
    unit_sectors: int = BLOCK_SECTORS


@dataclass(frozen=True, slots=True)
class BlockReads:
    """The 4 KiB blocks that a visit read of its state, in the order of first reading. `data`: those of them
    that were read for files' contents alone.
    """

    blocks: tuple[int, ...]
    data: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """A remembered outcome that a crash time may have.

    `outcome`: its number. `state`: one state that has it; volatile blocks that no visit read are as in the
    nearer default (kept, if both are equally near). `data`: the state differs from another known outcome's in
    one block alone that holds only data. `losses`: blocks that deviate from the nearer default.
    """

    outcome: int
    state: CrashState
    data: bool
    losses: int


@dataclass(frozen=True, slots=True)
class Explored:
    """A crash time as far as it is known. `to_visit`: states to visit, each from another unexplored branch of
    the memo's tree. `waits`: what an earlier crash time of the same request wants visited may tell more of
    this one, or the answer had no room for it. With either of them the rest counts only part of the crash
    time. `unexplored`: branches that were not followed; 0: `known` are complete, but for `crowded` blocks:
    these may have more than CONTENTS_MAX contents, of which few were followed.
    """

    to_visit: tuple[CrashState, ...]
    known: tuple[KnownOutcome, ...]
    unexplored: int
    waits: bool = False
    crowded: int = 0


class Disk(contextlib.AbstractContextManager["Disk"]):
    """One `powercut-disk` process. Use as a context manager, or call `close`.

    `shared`: a guest may also have it as memory, which is then at `memory`; see `vms/umldisk`. `kind`: what
    the other guests are told of it.

    Raises EnvironmentLacks where the program is missing, VersionsDiffer where it is of another protocol.
    Every method raises DiskError, with the process's output, if the process refuses, has died, or does not
    reply within `timeout_s` seconds; after the last two the disk is unusable.
    """

    def __init__(
        self, timeout_s: float = _REQUEST_TIMEOUT_S, *, shared: bool = False, kind: DiskKind = USUAL
    ) -> None:
        self._timeout_s = timeout_s
        self.memory: Path | None = None
        self._binary = find_binary()
        # of our own and short: the path of a Unix socket has at most 107 bytes
        self._folder = OwnedFolder(FOLDER_PREFIX)
        self._directory = self._folder.path
        self._stderr_path = self._directory / "stderr"
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket = self._directory / "vhost"
        try:
            self._process = self._start(kind, shared=shared)
        except BaseException:
            self._control.close()
            self._folder.remove()
            raise
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def _start(self, kind: DiskKind, *, shared: bool) -> subprocess.Popen[bytes]:
        control = self._directory / "control"
        argv = [str(self._binary), "--socket", str(self.socket), "--control", str(control)]
        argv += ["--shared"] if shared else []
        argv += ["--sectors", f"{kind.logical_bytes}/{kind.physical_bytes}"]
        argv += ["--write-through"] if kind.write_through else []
        with self._stderr_path.open("wb") as stderr:
            try:
                return subprocess.Popen(
                    die_with_parent(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,  # Ctrl-C is for the orchestrator, which ends the disk
                )
            except OSError as error:
                raise EnvironmentLacks(f"cannot start {self._binary}: {error}") from error

    def _await_ready(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for above; tells mypy
        poller = select.poll()
        poller.register(self._process.stdout, select.POLLIN)
        said = self._process.stdout.readline() if poller.poll(_START_TIMEOUT_S * 1000) else b""
        ready = re.fullmatch(rb"ready(?: (\d+))?(?: (\d+))?\n", said)
        if not ready:
            raise DiskError(self._with_output(f"the disk did not start: it said {said!r}"))
        if int(ready[1] or 0) != wire.PROTOCOL_VERSION:  # older ones named none
            raise VersionsDiffer(
                f"the disk {self._binary} does not speak the harness's protocol, {wire.PROTOCOL_VERSION}",
                "rebuild it: make setup",
            )
        if ready[2]:
            self.memory = Path(f"/proc/{self._process.pid}/fd/{int(ready[2])}")
        try:
            self._control.connect(str(self._directory / "control"))
        except OSError as error:
            raise DiskError(
                self._with_output(f"cannot connect to the disk's control socket: {error}")
            ) from error

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """From another thread: kill the process, so that the owner's request ends with DiskError."""
        self._process.kill()

    @property
    def ended(self) -> bool:
        """Whether its process is gone, however it ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process and remove its sockets. Safe to call twice."""
        self._control.close()
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.remove()

    def open(
        self,
        base: Path,
        log: Path | None = None,
        order: Order | None = None,
        *,
        keep_memo: bool = False,
        mount_counters: Sequence[MountCounter] = (),
    ) -> wire.Opened:
        """Show `base` with nothing of `log` on it (@0). Forgets the guest's writes, images and outcomes.

        With an order, the states of the device are made of chunks instead of entries; see `Order`. With
        `keep_memo`, the outcomes that were remembered on this very base stay, whatever log they came from:
        their numbers must mean the same for all logs that share a memo. `mount_counters`: what does not tell
        blocks apart, to outcomes that are remembered and in `block_hashes`.
        """
        request = wire.Open(
            base=str(base.resolve()),
            log=str(log.resolve()) if log else None,
            order=list(order.entries) if order else None,
            unit_sectors=order.unit_sectors if order else BLOCK_SECTORS,
            keep_memo=keep_memo,
            mount_counters=[
                wire.MountCounter(
                    t.mark, t.at, t.size_bytes, list(t.zeros), list(t.fields), list(t.recounted), t.crc32c_at
                )
                for t in mount_counters
            ],
        )
        return self._ask(request, wire.Opened)

    def switch(self, state: CrashState) -> None:
        """Show `state` of the open log, and drop what the guest wrote on the one before."""
        self._ask(wire.Switch(state=wire.State.of(state)), wire.Switched)

    def image(self, path: Path) -> str:
        """Make the file at `path` hold what the guest sees now; return the hash of that content.

        Comparable with `hashes` of the same base image. Costs in proportion to what changed since the last
        call with this path. The file is read-only; whoever changes it must unlink it.
        """
        return self._ask(wire.Image(path=str(path.absolute())), wire.Imaged).hash

    def hashes(self, states: Sequence[CrashState]) -> list[str]:
        """One 128-bit hexadecimal hash per state, equal exactly when the contents are."""
        found: list[str] = []
        while part := within_a_request(states[len(found) :]):
            found += self._ask(wire.Hashes(states=[*map(wire.State.of, part)]), wire.Hashed).hashes
        return found

    def compare(self, log: Path, order: Sequence[int] | None = None) -> int | None:
        """First byte of the first sector where the device as the guest left it differs from the base plus the
        whole log, whose entries were applied in `order` (see `Order`), or in its own order.
        """
        request = wire.Compare(log=str(log.resolve()), order=None if order is None else list(order))
        return self._ask(request, wire.Compared).first_difference

    def also_read(self, blocks: Iterable[int]) -> None:
        """Count 4 KiB blocks of the device as read in this visit, in this order: a program on the host saw
        them in the image. Required before the visit is learned, for every read that the guest did not make
        itself.
        """
        self._ask(wire.AlsoRead(blocks=list(dict.fromkeys(blocks))), wire.Noted)

    def reads(self) -> BlockReads:
        """What was read since the `switch`. Refused if nothing was: the guest saw its own cache."""
        were = self._ask(wire.Reads(), wire.WereRead)
        return BlockReads(tuple(were.blocks), tuple(were.data))

    def learn(self, state: CrashState, reads: BlockReads, outcome: int) -> int | None:
        """Keep the number `outcome` for a state with the contents of what was read of it by this disk's guest
        or by that of another disk with the same base image and log.

        If an outcome is already known for this state, that one stays and is returned. If the two differ in
        meaning, the outcome depends on more than what was read, and nothing recalled in this run can be
        trusted.
        """
        request = wire.Learn(
            state=wire.State.of(state), blocks=list(reads.blocks), data=list(reads.data), outcome=outcome
        )
        return self._ask(request, wire.Remembered).earlier

    def explore(
        self,
        crash_times: Sequence[Choices | CrashState],
        *,
        losses: int,
        separate_data: bool = False,
        data_together: bool = False,
        to_visit_max: int = EXPLORED_MAX,
        known_outcomes_max: int = EXPLORED_MAX,
    ) -> list[Explored]:
        """Which outcomes the states of each crash time may have, as far as the remembered visits tell, and
        which states have to be visited to know more. A state is a crash time without choices; others need a
        device opened with an order. `to_visit_max` and `known_outcomes_max` are for all crash times together.

        Visit each state of `to_visit`, let the disk `learn` its outcome, and ask again, until there are none:
        then `known` are all outcomes of the crash time within `losses`, each once. No two states to visit, of
        one crash time or of several, agree in all that is known to matter: their visits may be made at the
        same time.

        There are two defaults: every volatile chunk lost, and every one kept. A state deviates once for each
        block that a visit read and whose content is not the default's; states that deviate more than `losses`
        times from both defaults are left out. `separate_data`: blocks that are read for files' contents alone
        are not combined, see `KnownOutcome.data`; of each, what one chunk makes of a default is left out at 0
        `losses`, and its other contents at fewer than 2. `data_together`: nor is each of them lost or kept
        alone, but all of them are, whatever else is. Of a block with more than CONTENTS_MAX contents only the
        defaults are followed, and what one chunk of another fate makes of them: see `Explored.crowded`.
        Raises DiskRefused for choices that do not fit the log, and for the first crash time's answer if that
        is too long. No more crash times may be asked of than are `within_a_request`.
        """
        request = wire.Explore(
            crash_times=[_choices(m) for m in crash_times],
            losses=losses,
            separate_data=separate_data,
            data_together=data_together,
            to_visit_max=to_visit_max,
            known_outcomes_max=known_outcomes_max,
        )
        found = self._ask(request, wire.Explored).crash_times
        return [_explored(m, e) for m, e in zip(crash_times, found, strict=True)]

    def block_hashes(self, blocks: Sequence[int]) -> list[bytes]:
        """16 bytes for each 4 KiB block as the guest sees it now: equal exactly when the contents are."""
        hashes = self._ask(wire.BlockHashes(blocks=list(blocks)), wire.BlocksHashed).hashes
        return [hashes[i : i + 16] for i in range(0, len(hashes), 16)]

    def note_writes(self) -> None:
        """Note the guest's writes, flushes and requests until the next `switch`; not in forks."""
        self._ask(wire.NoteWrites(), wire.Noted)

    def log_writes(self, path: Path) -> wire.Logged:
        """Write a log in the format of dm-log-writes to the file at `path`: first each block in which the
        state differs from the base, then what was noted of the guest, in order, less what changed nothing.
        """
        return self._ask(wire.LogWrites(path=str(path.absolute())), wire.Logged)

    def requests(self) -> list[wire.Requested]:
        """What the guest asked for since `note_writes`, in that order."""
        return self._ask(wire.Requests(), wire.RequestsSeen).requests

    def inject(self, fault: DiskFault) -> None:
        """Inject this fault until `end_fault` or the next `switch`."""
        effect: wire.Error | wire.Flip | wire.Lose | wire.Divert = wire.Error()
        stays = fault.stays
        match fault.kind:
            case FaultKind.ROT:
                effect, stays = wire.Flip(fault.bit), True
            case FaultKind.LOST_WRITE:
                effect = wire.Lose()
            case FaultKind.STRAY_WRITE:
                effect = wire.Divert(fault.to)
        told = wire.Fault(fault.kind.request, fault.sector, fault.nth, stays, effect)
        self._ask(wire.Inject(told), wire.Noted)

    def end_fault(self) -> int:
        """Err no more. Returns how many requests the fault befell."""
        return self._ask(wire.EndFault(), wire.FaultEnded).hits

    def snapshot(self) -> None:
        """Keep the device as it is now, and note from here on what the guest reads of that."""
        self._ask(wire.Snapshot(), wire.Noted)

    def roll_back(self) -> tuple[int, ...]:
        """Show the device again as it was at the `snapshot`, which must come after the last `switch`. Returns
        the 4 KiB blocks that the guest has read since, before it had overwritten them, in that order: what it
        did depends on these. They do not count as read in this visit; see `also_read`.
        """
        return tuple(self._ask(wire.RollBack(), wire.RolledBack).blocks)

    def hold_completions(
        self,
        idle_s: float | None,
        guest: int | None = None,
        order: HoldOrder = HoldOrder.ALL,
        seed: int = 0,
    ) -> None:
        """From now on, report the guest's writes as completed as late as it allows, as a slow disk may: when
        it asks for a flush, its queue is nearly full, or all threads of its machine, the process `guest`,
        sleep; where that cannot be seen, when it has asked for nothing for `idle_s`. `order` says which of
        them. None: report all that are held, and from now on each at once. `seed`: of what `order` leaves to
        chance.
        """
        hold_us = None if idle_s is None else round(idle_s * 1e6)
        self._ask(wire.Completions(hold_us=hold_us, guest=guest, order=order, seed=seed), wire.Noted)

    def stats(self) -> wire.Counted:
        """Counters since the last `switch` or `open`."""
        return self._ask(wire.Stats(), wire.Counted)

    def _ask(self, request: msgspec.Struct, expected: type[M]) -> M:
        deadline = time.monotonic() + self._timeout_s
        name = type(request).__name__
        try:
            wire.send(self._control, request, deadline)
            reply = wire.receive(self._control, wire.DiskReply, deadline)
        except (wire.WireError, OSError) as error:
            raise DiskError(self._with_output(f"{name}: {error}")) from error
        if isinstance(reply, wire.DiskFailed):
            raise DiskRefused(f"{name}: {reply.what}")
        if not isinstance(reply, expected):
            raise DiskError(f"{name} was answered by {type(reply).__name__}, expected {expected.__name__}")
        return reply

    def _with_output(self, what: str) -> str:
        """`what`, with the state of the process and the end of its output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)  # a process that has just died may not be reaped yet
        code = self._process.returncode
        fate = "still runs" if code is None else f"ended with code {code}"
        try:
            said = self._stderr_path.read_bytes()[-_STDERR_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError:
            said = ""
        return f"{what}; the process {self.pid} {fate}" + (f" and said:\n{said}" if said else "")


def within_a_request(asked: Sequence[Asked]) -> Sequence[Asked]:
    """The first of `asked`, at least one if there is one, of which a disk may be told at once."""
    of_each = [_chunks(one) for one in asked[:STATES_PER_REQUEST]]
    count = bisect.bisect_right([*itertools.accumulate(of_each)], CHUNKS_PER_REQUEST)
    return asked[: max(count, 1)]


def _chunks(asked: Choices | CrashState) -> int:
    """How many it names."""
    if isinstance(asked, CrashState):
        return len(asked.dropped)
    return len(asked.absent) + len(asked.volatile)


def _choices(crash_time: Choices | CrashState) -> wire.CrashTime:
    if isinstance(crash_time, CrashState):
        return wire.CrashTime(state=wire.State.of(crash_time))
    state = wire.State(prefix=crash_time.prefix, dropped=list(crash_time.absent))
    return wire.CrashTime(state=state, volatile=list(crash_time.volatile))


def _explored(crash_time: Choices | CrashState, found: wire.ExploredCrashTime) -> Explored:
    def state(choice: wire.Choice) -> CrashState:
        return (
            crash_time
            if isinstance(crash_time, CrashState)
            else crash_time.state(choice.kept, choice.except_)
        )

    return Explored(
        tuple(state(choice) for choice in found.to_visit),
        tuple(
            KnownOutcome(known.outcome, state(known.choice), known.data, known.losses)
            for known in found.known_outcomes
        ),
        found.unexplored,
        found.waits,
        found.crowded,
    )
