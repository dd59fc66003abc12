"""The requests of a recording, written down before its guest boots.

In virtual time (`Machine.has_virtual_time`) a guest does not wait for the host: while it has nothing to do,
its clock jumps from timer to timer. So a recording gets all its requests beforehand, on its log device, and
nothing in it depends on the host. `vms/agent/src/script.rs` reads what `encoded` writes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from harness.guests import wire
from harness.guests.operations import to_wire
from harness.model import Operation, OperationKind, Schedule, Threads

BATCH = 16
"""Operations per request: a bar moves that often."""
RECOVER_TIMEOUT_S = 120.0
OPERATIONS_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 600
ONLY_BYTES = 4000
"""A parameter of the kernel is a page at most."""
USUAL_TIMERS = (3000, 500)
"""The kernel's own (mm/page-writeback.c)."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A request, after a pause of so many seconds, and the reply to it. `number`: of the first of
    `operations`.
    """

    request: msgspec.Struct
    reply: type[msgspec.Struct]
    timeout_s: float = RECOVER_TIMEOUT_S
    pause_s: float = 0.0
    number: int = 0
    operations: Sequence[Operation] = ()


def steps_of(
    start: wire.RecordStart, operations: Sequence[Operation], schedule: Schedule, number: int
) -> list[Scripted]:
    """All steps of a recording. `number`: of the first operation."""
    return [
        Scripted(start, wire.RecordStarted),
        *timers(schedule.timers),
        *(decisions(schedule.threads) if schedule.threads else ()),
        *batches(operations, schedule, number),
        *([_parameter("threads", "0")] if schedule.threads else ()),
        *timers(schedule.timers and USUAL_TIMERS),
        Scripted(wire.RecordFinish(), wire.RecordFinished),
    ]


def timers(of: tuple[int, int] | None) -> list[Scripted]:
    """Set those of writeback; see `Schedule`. `append`: these files are there, and cannot be made anew."""
    return [
        Scripted(
            wire.PutFile(f"/proc/sys/vm/{name}_centisecs", 0o644, b"%d\n" % value, append=True), wire.Done
        )
        for name, value in zip(("dirty_expire", "dirty_writeback"), of or (), strict=False)
    ]


def decisions(of: Threads) -> list[Scripted]:
    """Let a seed decide which thread runs, until told to end; see vms/umldisk/threads_kern.c. Raises
    ValueError for more numbers than the kernel takes.
    """
    # A script's length is on the kernel's command line, which is stirred into its random numbers: a schedule
    # that is cut to some of its decisions is to be the same else.
    only = " ".join(map(str, of.only)).ljust(ONLY_BYTES)
    if len(only) > ONLY_BYTES:
        raise ValueError(f"{len(of.only)} numbers of decisions are too many")
    begin = f"{of.seed} {of.yields} {of.picks} {of.stalls} {round(of.stall_s * 1e9)} {of.slow}"
    return [_parameter("only", only), _parameter("threads", begin)]


def _parameter(name: str, text: str) -> Scripted:
    path = f"/sys/module/powercut/parameters/{name}"
    return Scripted(wire.PutFile(path, 0o200, text.encode(), append=True), wire.Done)


def batches(operations: Sequence[Operation], schedule: Schedule, number: int = 0) -> list[Scripted]:
    """Carry out the operations, with the schedule's pauses."""
    pauses = dict(schedule.pauses)
    starts = sorted({*range(0, len(operations), BATCH), *pauses})
    steps = []
    for first, end in itertools.pairwise([*starts, len(operations)]):
        batch = operations[first:end]
        request = wire.RunOperations(number + first, [to_wire(op) for op in batch], RUN_TIMEOUT_S)
        programs = sum(op.kind is OperationKind.RUN for op in batch)
        timeout_s = OPERATIONS_TIMEOUT_S + programs * RUN_TIMEOUT_S
        pause_s = pauses.get(first, 0.0)
        steps.append(Scripted(request, wire.OperationsDone, timeout_s, pause_s, number + first, batch))
    return steps


def encoded(steps: Sequence[Scripted]) -> bytes:
    """The script of these steps. Raises WireError for a request that is too long."""
    parts = []
    for step in steps:
        body = wire.encode(step.request)
        parts.append(struct.pack("<QI", round(step.pause_s * 1e6), len(body)) + body)
    return b"".join(parts)
