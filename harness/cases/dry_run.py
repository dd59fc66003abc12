"""A workload run once, without a power cut: its output, its acknowledgements, the answers of its checks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from harness.cases.attempts import Unobserved
from harness.cases.crash_and_continue import record
from harness.cases.examine import Examiner
from harness.cases.first_mount import finish_base
from harness.cases.recording import make_base
from harness.errors import EnvironmentLacks, PowercutError
from harness.filesystems.profile import Profile
from harness.guests.guest_specs import make_specs, missing_for, missing_program
from harness.guests.made_trees import MadeTrees
from harness.guests.session import Session, Target
from harness.host.folders import OwnedFolder
from harness.kernels.find import Kernel
from harness.model import CaseId, Judgement, Outcome, Workload
from harness.plan import GuestChoice
from harness.rules.calls import Notes
from harness.store.layout import CaseLayout


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run without a power cut showed. `outputs`: of each operation, empty for all but programs.
    `acknowledged`: by its programs, in order. `entries`: of the log. `outcome`: after a clean unmount.
    `calls`: those of an application, which ran again in an empty directory in memory, or why they are not
    known. `doubt`: why its check may find nothing, in words.
    """

    workload: Workload
    machine: str
    outputs: tuple[str, ...]
    acknowledged: tuple[str, ...]
    entries: int
    outcome: Outcome | Unobserved
    judgement: Judgement
    calls: Notes | PowercutError | None = None
    doubt: str = ""


def dry_run(profile: Profile, workload: Workload, kernel: Kernel, asked: GuestChoice) -> DryRun:
    """Run a workload in a guest, unmount, and judge what is there then, in the guest that is fastest here
    and can do both.

    Raises EnvironmentLacks for what this host lacks, GuestError with its output for a program that fails, and
    what recording raises.
    """
    if lacks := missing_for(profile, kernel) or missing_program(workload):
        raise EnvironmentLacks(lacks)
    profile, folder = profile.sized(workload.image_mib), OwnedFolder("powercut-try-")
    try:
        scratch = folder.path
        base = make_base(profile, scratch / "base.zst", scratch)
        spec = make_specs(asked, kernel, [profile], [workload], base, scratch).doing_both(profile)
        with Session(spec, scratch / "session", asked.log_bytes) as session:
            case = CaseId(profile.filesystem, profile.mode, workload.name)
            kept = CaseLayout(scratch / "base.zst", scratch / "kept")
            if profile.is_made_in_guest or profile.folder:
                finish_base(session, profile, base, scratch / "base.zst")
            recording = record(session, profile, workload, case, base, kept, scratch)
            outputs = tuple(session.outputs)
            examiner = Examiner(recording)
            observation = examiner.visit(session, [recording.end], threading.Event())
            calls = _calls_of(session, workload, base)
        told = recording.history.acknowledgements
        return DryRun(
            workload,
            spec.machine.profile.title,
            outputs,
            tuple(a.text for a in told),
            len(recording.write_log.entries),
            observation.outcome,
            examiner.judge(recording.end, observation),
            calls,
            examiner.doubt,
        )
    finally:
        folder.remove()


def _calls_of(session: Session, workload: Workload, base: Path) -> Notes | PowercutError | None:
    check = next((c for c in workload.checks if c.application), None)
    if check is None:
        return None
    try:
        with MadeTrees(session, Target("tmpfs", "", base, None), apart=False) as trees:
            return trees.note(workload.operations[check.operation].argv)
    except PowercutError as e:
        return e
