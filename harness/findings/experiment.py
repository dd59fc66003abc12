"""An experiment: operations recorded anew on a run's mode and kernel, and what their crash states show, with
all looks that the run had: its recoveries are cut, and its disk is faulty, as the plan says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cases.crash_and_continue import record, remove_own
from harness.cases.examine import Examiner, JudgedGroup, examiner_for
from harness.cases.exploration import Exploration, TimeCoverage, cut_again, legal_times, listed
from harness.cases.faulty_disk import FaultyDisk
from harness.cases.first_mount import finish_base
from harness.cases.listing import groups_of
from harness.cases.recording import Recording, by_times, make_base
from harness.errors import StoreError
from harness.filesystems.profile import Profile
from harness.guests.guest_specs import make_specs
from harness.guests.session import Session
from harness.host.folders import OwnedFolder
from harness.model import CaseId, CrashState, Operation, Violation, Workload
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.store.layout import CaseLayout
from harness.trust import Named, chosen_kernel

Violated = tuple[CrashState, Violation]
Enough = Callable[[Recording, CrashState, Violation], bool]


@dataclass(frozen=True, slots=True)
class Equipment:
    """What candidates are tried with."""

    plan: Plan
    recorder: Session
    judge: Session
    base: Path
    directory: Path

    @property
    def fast(self) -> Equipment:
        """That with which the machine that judges also records."""
        return replace(self, recorder=self.judge)


@contextlib.contextmanager
def open_equipment(
    plan: Plan, store: RunStore, profile: Profile, workload: Workload, named: Named
) -> Iterator[Equipment]:
    """Guests as the run had them, on the run's own base image; where it has none any more, on a new one,
    made and mounted once as the run's was, and not kept. Guests boot when first used.
    """
    kernel = chosen_kernel(plan, store.info.kernel.name, named)
    with OwnedFolder("powercut-shrink-") as folder, contextlib.ExitStack() as guests:
        directory = folder.path
        theirs = store.layout.base(profile.filesystem, profile.mode)
        if plan.image and not theirs.exists():
            raise StoreError(f"{theirs} is missing: no other base image is like it", "run the case again")
        kept = theirs if theirs.exists() else directory / "base.img.zst"
        base = make_base(profile, kept, directory)
        specs = make_specs(plan.guests, kernel, [profile], [workload], base, directory)
        judge = guests.enter_context(
            Session(specs.judge, directory / "judge", plan.log_bytes, plan.completions, clock=plan.clock)
        )
        recorder = judge
        if specs.recorder is not specs.judge:
            recorder = guests.enter_context(
                Session(
                    specs.recorder, directory / "recorder", plan.log_bytes, plan.completions, clock=plan.clock
                )
            )
        if kept != theirs:
            finish_base(recorder, profile, base, kept)
        yield Equipment(plan, recorder, judge, base, directory)


def violations(
    equipment: Equipment,
    profile: Profile,
    case: CaseId,
    name: str,
    operations: Sequence[Operation],
    enough: Enough,
) -> list[Violated]:
    """Record the operations and judge their crash states until a violation is `enough`; all violations found
    by then. `name` must be unique with this equipment: the disk identifies a log by its path. Raises what
    recording raises.
    """
    kept = CaseLayout(equipment.base, equipment.directory / "kept")
    workload = Workload(name, "", tuple(operations))
    scratch = equipment.directory
    try:
        recording = record(equipment.recorder, profile, workload, case, equipment.base, kept, scratch)
        return _in_recording(equipment, recording, enough)
    finally:
        remove_own(profile, workload, scratch)


def _in_recording(equipment: Equipment, recording: Recording, enough: Enough) -> list[Violated]:
    if equipment.plan.unit_sectors is not None:
        recording, _ = by_times(recording, equipment.plan.unit_sectors)
    examiner = examiner_for(equipment.plan, recording)
    try:
        said = [(recording.end, violation) for violation in examiner.of_recording.violations]
        shown = any(enough(recording, state, v) for state, v in said)
        return said if shown else said + _among(equipment, examiner, enough)
    finally:
        examiner.close()
        for recovery in examiner.recording.recoveries.values():
            recovery.log.unlink(missing_ok=True)


def _among(equipment: Equipment, examiner: Examiner, enough: Enough) -> list[Violated]:
    """Among the states that the run covered, within its budget for legal ones; then among those that cuts in
    recoveries leave, and on a faulty disk, as far as the run's plan asks for these.
    """
    plan, legal = equipment.plan, examiner.recording.legal
    stop, found = threading.Event(), list[Violated]()

    def report(seen: Sequence[JudgedGroup]) -> None:
        for violated in map(_violated, seen):
            found.extend(violated)
            if any(enough(examiner.recording, state, violation) for state, violation in violated):
                stop.set()

    def explored(times: Sequence[TimeCoverage], budget: Budget) -> Exploration:
        exploration = Exploration(examiner, times, equipment.judge.machine_name, budget, stop, report)
        exploration.work(equipment.judge)
        return exploration

    if legal is not None:
        done = [explored(legal_times(legal), plan.budget)]
    else:
        done = [explored(listed(groups_of(plan.fault_models, examiner)), Budget())]
    while len(done) <= plan.again and done[-1].recoveries and not stop.is_set():
        done.append(explored(cut_again(done[-1].recoveries), plan.budget))
    if plan.disk and not stop.is_set():
        faulty_disk = FaultyDisk(examiner, done, plan.disk, plan.fault_kinds, plan.budget, stop, report)
        faulty_disk.work(equipment.judge)
    return found


def _violated(seen: JudgedGroup) -> list[Violated]:
    return [(j.state, violation) for j in seen.judged for violation in j.judgement.violations]
