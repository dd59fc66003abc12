"""The power cut that needs no model: a guest writes, its machine is killed, another one recovers the disk.

What dies is the machine, with all that its kernel had in memory. The disk survives with every write that had
completed, flushed or not; `powercut run` covers drives that lose their cache as well, state by state.
Operations are sent one at a time, so the host knows which were acknowledged and which one may have begun.
"""

from __future__ import annotations

import dataclasses
import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import GuestLost
from harness.filesystems.profile import Profile
from harness.guests import wire
from harness.guests.operations import check_results, to_wire
from harness.guests.session import GuestSpec, Session, Target
from harness.model import (
    CrashState,
    History,
    HistoryStep,
    Judgement,
    Operation,
    OperationKind,
    Outcome,
    Position,
)
from harness.oracles import Judge

LOG_BYTES = 256 << 20
REQUEST_TIMEOUT_S = 120.0
FILES = 6
MOST_LATE = 2.0


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """When the machine is killed: `late` times the average duration of an operation after number `operation`
    was sent.
    """

    operations: tuple[Operation, ...]
    operation: int
    late: float


@dataclass(frozen=True, slots=True)
class AfterCut:
    """The outcome of one power cut. `recovered`: the kernel's message about replaying its journal; empty if
    there was none.
    """

    position: Position
    outcome: Outcome
    judgement: Judgement
    recovered: str
    recovery_s: float


def plan_cut(seed: str, count: int) -> PlannedCut:
    """The cut of a seed: `count` operations, killed within the first four fifths of them."""
    chance = random.Random(seed)  # noqa: S311 - the same cut from the same seed, no secret
    operations = some_operations(chance, count)
    return PlannedCut(operations, chance.randrange(1, max(2, count * 4 // 5)), chance.uniform(0, MOST_LATE))


def some_operations(chance: random.Random, count: int) -> tuple[Operation, ...]:
    """A steady writer: appends, overwrites, fsyncs, files replaced by rename, files removed. Every operation
    is possible after those before it.
    """
    k = OperationKind
    sizes: dict[str, int] = {"f0": 0}
    made = [Operation(k.CREATE, "f0")]
    kinds = (k.APPEND, k.WRITE, k.FSYNC, k.CREATE, k.RENAME, k.UNLINK, k.SYNC)
    while len(made) < count:
        (kind,) = chance.choices(kinds, weights=(40, 12, 22, 10, 8, 5, 3))
        free = [name for name in map("f{}".format, range(FILES)) if name not in sizes]
        path = chance.choice(sorted(sizes)) if sizes else ""
        length = chance.randrange(1, 17) << 10
        if kind is k.CREATE and free:
            made.append(Operation(kind, free[0]))
            sizes[free[0]] = 0
        elif kind is k.APPEND and path:
            made.append(Operation(kind, path, length=length))
            sizes[path] += length
        elif kind is k.WRITE and path and sizes[path]:
            offset = chance.randrange(sizes[path])
            made.append(Operation(kind, path, offset=offset, length=length))
            sizes[path] = max(sizes[path], offset + length)
        elif kind is k.RENAME and len(sizes) > 1:
            target = chance.choice(sorted(set(sizes) - {path}))
            made.append(Operation(kind, path, target))
            sizes[target] = sizes.pop(path)
        elif kind is k.UNLINK and len(sizes) > 1:
            made.append(Operation(kind, path))
            del sizes[path]
        elif kind is k.FSYNC and path:
            made.append(Operation(kind, path))
        elif kind is k.SYNC:
            made.append(Operation(kind))
    return tuple(made)


def position(sent: int, answered: int) -> Position:
    """Where in the history the power failed: the operation that was sent and not answered may have begun."""
    if not 0 <= sent - answered <= 1:
        raise ValueError(f"{sent} operations were sent and {answered} answered: one at a time was asked for")
    return Position(begun=sent, acked=answered)


def history(operations: Sequence[Operation]) -> History:
    """The history of operations done in order; there is no log, so their marks are merely numbered."""
    return History(tuple(HistoryStep(i, op, 2 * i, 2 * i + 1) for i, op in enumerate(operations)))


def cut_power(
    spec: GuestSpec, profile: Profile, base: Path, cut: PlannedCut, directory: Path, image: Path
) -> Position:
    """Boot, write, kill the machine while it writes, and leave the disk's contents in `image`.

    Raises GuestError if an operation fails, GuestLost if the guest is lost before it is killed.
    """
    target = Target(profile.fstype, profile.mount_options, base, None)
    with Session(spec, directory, LOG_BYTES) as session:
        disk = session.show(target)
        disk.switch(CrashState(0))
        guest = session.guest()
        machine = spec.machine
        start = wire.RecordStart(data=machine.data_device, log=machine.log_device, mount=target.mount)
        guest.request(start, wire.RecordStarted, REQUEST_TIMEOUT_S)
        switch = threading.Timer(0, session.kill)
        sent = answered = 0
        begun = time.monotonic()
        try:
            for number, operation in enumerate(cut.operations):
                if number == cut.operation:
                    switch.interval = cut.late * (time.monotonic() - begun) / number
                    switch.start()
                sent += 1
                done = guest.request(_request(number, operation), wire.OperationsDone, REQUEST_TIMEOUT_S)
                check_results(done.results, number, [operation])
                answered += 1
            switch.join()
        except GuestLost:
            if not switch.ident:  # it was never started: something else has ended the guest
                raise
        finally:
            switch.cancel()
        guest.process.wait()
        disk.image(image)
    return position(sent, answered)


def _request(number: int, operation: Operation) -> wire.RunOperations:
    return wire.RunOperations(
        first_index=number, operations=[to_wire(operation)], deadline_s=int(REQUEST_TIMEOUT_S)
    )


def recover(spec: GuestSpec, profile: Profile, image: Path, directory: Path) -> tuple[Outcome, str, float]:
    """Boot another machine with the disk that the dead one left: mount, walk, unmount, then fsck on the host.
    Returns the outcome, the kernel's message about replaying its journal, and the duration of the mount in
    seconds.
    """
    with Session(spec, directory, LOG_BYTES) as session:
        target = Target(profile.fstype, profile.mount_options, image, None)
        recovery = session.recover(target, CrashState(0))
        session.disk.image(session.image)
        fsck = profile.check_filesystem(session.image)
    outcome = dataclasses.replace(recovery.outcome, fsck=fsck)
    return outcome, recovered_line(profile, outcome.kernel_log), recovery.times_us[0] / 1e6


def recovered_line(profile: Profile, kernel_log: Sequence[str]) -> str:
    """The first message about replaying the journal; empty if there is none."""
    patterns = [re.compile(pattern) for pattern in profile.console.recovered]
    return next((line for line in kernel_log if any(p.search(line) for p in patterns)), "")


def judge(profile: Profile, operations: Sequence[Operation], where: Position, outcome: Outcome) -> Judgement:
    """Judge what came back by the mode's contract."""
    steps = history(operations)
    oracles = Judge(profile.contract, steps, error_patterns=tuple(profile.console.errors))
    return oracles.judge(where, outcome)


def cut_and_judge(spec: GuestSpec, profile: Profile, base: Path, cut: PlannedCut, scratch: Path) -> AfterCut:
    """Cut the power, recover, judge. The disk that the dead machine left stays in `scratch/cut.img`."""
    image = scratch / "cut.img"
    image.unlink(missing_ok=True)
    where = cut_power(spec, profile, base, cut, scratch / "dead", image)
    outcome, line, recovery_s = recover(spec, profile, image, scratch / "alive")
    return AfterCut(where, outcome, judge(profile, cut.operations, where, outcome), line, recovery_s)
