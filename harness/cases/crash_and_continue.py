"""A workload in which the power fails between two operations, and whose recording begins with what is left.

The operations in front of `crash` come first. They are recorded, one of the crash states of that log
is chosen, and it becomes the base image of the case: so the case's log begins with the mount that recovers
it, and every cut is one in that recovery, or in what was done since. What a journal replays there may be
stale, and its numbers may have been used before.

What has to be there is known only if recovery came to what some number of whole operations had left. So a
guest recovers the chosen state first, and that is judged as if these operations had been synced. A state
chosen by chance for which no number passes is replaced by another one: that it breaks a promise, or shows
half an operation, is for workloads without `crash` to say.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from harness.cases.attempts import Unobserved
from harness.cases.examine import Examiner
from harness.cases.recording import (
    Recording,
    Taken,
    by_times,
    image_name,
    keep_taken,
    log_name,
    recording_of,
    take,
)
from harness.cases.remote import AnySession
from harness.cases.repair import repair
from harness.errors import CannotRecord, UsageError
from harness.filesystems.profile import Profile
from harness.guests.disk import BLOCK_SECTORS, Disk
from harness.host.packed import pack
from harness.model import (
    BEFORE_THE_LOG,
    BeforeCrash,
    CaseId,
    CrashState,
    History,
    HistoryStep,
    Operation,
    OperationKind,
    Outcome,
    Position,
    Workload,
)
from harness.oracles import ORACLES, Judge
from harness.oracles.contract import Contract
from harness.store.layout import CaseLayout

TRIES = 24
"""States by chance that are recovered until one comes to what whole operations had left."""
_NOT_ASKED = ("usable", "program", "confluence", "honesty")
"""Oracles that say nothing of which operations survived."""


def crash_of(operations: Sequence[Operation]) -> int | None:
    """The place of the crash, if the power fails between two of them."""
    return next((i for i, op in enumerate(operations) if op.kind is OperationKind.CRASH), None)


def record(
    session: AnySession,
    profile: Profile,
    workload: Workload,
    case: CaseId,
    base: Path,
    kept: CaseLayout,
    scratch: Path,
) -> Recording:
    """Run the workload in the session's guest and keep its log and history as `kept`: see `take_parts`."""
    if crash_of(workload.operations) is not None:
        kept = replace(kept, base=kept.own_base)
    return keep_taken(take_parts(session, profile, workload, case, base, kept, scratch), kept, scratch)


def take_parts(
    session: AnySession,
    profile: Profile,
    workload: Workload,
    case: CaseId,
    base: Path,
    kept: CaseLayout,
    scratch: Path,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Taken:
    """As `recording.take`; with a crash, from the base image that it leaves, kept as `kept.own_base`.

    Raises CannotRecord on a stack, and where no crash state that was tried comes to what whole operations
    had left, UsageError for one that was named and does not, or cannot be.
    """
    crash = crash_of(workload.operations)
    if crash is None:
        return take(session, profile, workload, case, base, scratch, on_progress)
    if profile.stacked:
        raise CannotRecord(f"{workload.name}: on a stack, no workload with a crash is recorded")
    before = Workload(f"{workload.name}.before", workload.summary, workload.operations[:crash])
    taken = take(session, profile, before, case, base, scratch, on_progress)
    try:
        first, _ = by_times(recording_of(taken), BLOCK_SECTORS)
        earlier = _chosen(session, first, workload)
        image = scratch / image_name(profile, _second(workload))
        make_image(first, CrashState.parse(earlier.state), image)
    finally:
        taken.log.unlink()
    pack(image, kept.own_base)
    second = take(session, profile, workload, case, image, scratch, on_progress, earlier)
    return replace(second, said=(*taken.said, *second.said))


def remove_own(profile: Profile, workload: Workload, scratch: Path) -> None:
    """Remove the working copies that are one case's alone, whole or half made: the log, and the base images
    where it has its own. The size of each is that of a disk, and the scratch folder lasts as long as a run.
    """
    (scratch / log_name(CaseId(profile.filesystem, profile.mode, workload.name))).unlink(missing_ok=True)
    for of in (workload.name, _second(workload)):
        image = scratch / image_name(profile, of)
        image.unlink(missing_ok=True)
        image.with_suffix(".part").unlink(missing_ok=True)


def _second(workload: Workload) -> str:
    """To whom the base image belongs that the crash leaves."""
    return f"{workload.name}.second"


def _chosen(session: AnySession, first: Recording, workload: Workload) -> BeforeCrash:
    """A crash state of the part before the crash, with what of it recovery brought back. Raises as
    `take_parts`.
    """
    crash = len(first.workload.operations)
    (wanted,) = workload.operations[crash].argv
    named = wanted.startswith("@")
    states = iter([CrashState.parse(wanted)]) if named else by_chance(first, int(wanted))
    examiner = Examiner(first)
    why = ""
    try:
        for state in islice(states, TRIES):
            outcome = examiner.visit(session, [state], threading.Event()).outcome
            if isinstance(outcome, Unobserved):
                why = f": {outcome.reason}"
                continue
            number = survived(first.profile.contract, workload.operations, crash, outcome)
            if number is not None:
                return BeforeCrash(crash + 1, number, str(state))
    finally:
        examiner.close()
    if named:
        raise UsageError(
            f"{workload.name}: recovery of {wanted} does not come to what whole operations had left{why}",
            "name another crash state, or a number, which chooses one",
        )
    raise CannotRecord(
        f"{workload.name}: none of {TRIES} crash states comes to what whole operations had left{why}"
    )


def by_chance(first: Recording, seed: int) -> Iterator[CrashState]:
    """Crash states of a log, the same ones for each seed and log: of all legal ones, or, of a log without
    times, of the log's own order.
    """
    chance = random.Random(seed)  # noqa: S311  # no secret
    while True:
        if first.legal is None:
            yield CrashState(chance.randint(1, len(first.write_log.entries)))
            continue
        time = chance.choice(first.legal.crash_times)
        lost = [chunk for chunk in time.choices.volatile if chance.getrandbits(1)]
        yield first.legal.name(time, (*time.choices.absent, *lost))


def survived(contract: Contract, operations: Sequence[Operation], crash: int, outcome: Outcome) -> int | None:
    """How many of the operations in front of the crash recovery came to, and to no more than these, so that
    those behind it can be carried out; None if there is no such number.
    """
    if contract.namespace == "none" or contract.persists == "nothing":
        return None
    oracles = {name: oracle for name, oracle in ORACLES.items() if name not in _NOT_ASKED}
    for kept in range(crash, -1, -1):
        told = _done([*operations[:kept], Operation(OperationKind.SYNC)])
        judge = Judge(contract, told, error_patterns=(), oracles=oracles)
        judgement = judge.judge(Position(kept + 1, kept + 1), outcome)
        if not judgement.violations and not judgement.unknown and _goes_on(contract, operations, crash, kept):
            return kept
    return None


def _goes_on(contract: Contract, operations: Sequence[Operation], crash: int, kept: int) -> bool:
    """Whether the operations behind the crash can be carried out on the state that it left."""
    told = replace(_done(operations), earlier=BeforeCrash(crash + 1, kept, ""))
    try:
        Judge(contract, told, error_patterns=(), oracles={})
    except UsageError:
        return False
    return True


def _done(operations: Sequence[Operation]) -> History:
    steps = (HistoryStep(i, op, BEFORE_THE_LOG, BEFORE_THE_LOG) for i, op in enumerate(operations))
    return History(tuple(steps))


def make_image(first: Recording, state: CrashState, image: Path) -> None:
    """What the disk holds at this state, once the profile's program has repaired it: the guest that goes on
    with it has to find what the judge of its recovery saw.
    """
    target, shown = first.shown(state)
    part = image.with_suffix(".part")
    with Disk() as disk:
        disk.open(target.base, target.log, target.order)
        disk.switch(shown)
        disk.image(part)
    part.chmod(0o644)
    if first.profile.repair is not None:
        repair(part, state, first.profile.repair)
    part.replace(image)
