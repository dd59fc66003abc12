"""How much a run will be: what `powercut run -n` says before anything is done.

The times are those of `quick` on ext4, XFS, btrfs and F2FS of Linux 6.12 and of `ace1` on ext4, with two
guests at once on an idle machine of two cores (2026-11-22). They tell a minute from an hour, not more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.filesystems.profile import Profile
from harness.model import Workload
from harness.plan import Budget, Plan
from harness.report.words import number, plural, seconds

STATES_PER_OPERATION = 6.0
"""Prefixes of the log. All legal states are more, of which about as many need a guest."""
OF_FILESYSTEM: Mapping[str, float] = {
    "btrfs": 5.8,
    "ext2": 4.1,
    "ext4": 7.0,
    "f2fs": 4.5,
    "jfs": 4.4,
    "nilfs2": 3.2,
    "xfs": 4.6,
}
"""The same where it was counted (`docs/results/costs.md`): some file systems write more for an operation."""
OPERATIONS_OF_A_PROGRAM = 60
"""How many operations a program, such as fio or SQLite, is taken for."""
RECORDING_S = 0.3
STATE_S = {"uml": 0.005, "qemu": 0.07}
"""Seconds of a guest for each state, most of which the memo answers."""
START_S = 6.0
CASE_MIB = 0.1
"""What a case leaves in the run directory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """About how much a run is. `seconds`: by the clock."""

    cases: int
    states: int
    seconds: float
    mib: float
    limited: str = ""

    @property
    def text(self) -> str:
        """`207 recordings, about 12,000 crash states, 2 minutes, 20 MiB`, and what may end it earlier."""
        parts = [
            plural(self.cases, "recording"),
            f"about {number(_rounded(self.states))} crash states",
            f"{seconds(_rounded(round(self.seconds)))} on an idle machine",
            f"{number(max(1, _rounded(round(self.mib))))} MiB",
        ]
        return ", ".join(parts) + (f"; {self.limited}" if self.limited else "")


def estimate(plan: Plan, cases: Sequence[tuple[Profile, Workload]], judge: str) -> Estimate:
    """About how much a run of these cases is, judged on the machine `judge`."""
    states = round(sum(_states_of(profile.filesystem, workload) for profile, workload in cases))
    to_record = 0 if plan.recordings else len(cases)
    guest_s = to_record * RECORDING_S + states * STATE_S.get(judge, STATE_S["qemu"])
    limits = [f"it stops after {plan.minutes:g} min"] if plan.minutes is not None else []
    harder = [name for name, asked in (("--again", plan.again), ("--disk", plan.disk)) if asked]
    if plan.unit_sectors is not None or harder:
        looks = "looks" if len(harder) == 1 else "look"
        beside = f", {' and '.join(harder)} {looks} at each again" if harder else ""
        budget = "no budget" if plan.budget == Budget() else f"budget: {plan.budget.text}"
        more = f"all legal states may be many more{beside}" if plan.unit_sectors is not None else beside[2:]
        limits.append(f"{more}; {budget}")
        if plan.budget.seconds is not None:
            most = math.ceil(len(cases) / plan.jobs) * plan.budget.seconds + START_S + guest_s / plan.jobs
            limits.append(f"about {seconds(round(most))} if all of it is used")
    return Estimate(
        len(cases), states, START_S + guest_s / plan.jobs, len(cases) * CASE_MIB, "; ".join(limits)
    )


def _states_of(filesystem: str, workload: Workload) -> float:
    operations = OPERATIONS_OF_A_PROGRAM if workload.opaque else len(workload.operations)
    return operations * OF_FILESYSTEM.get(filesystem, STATES_PER_OPERATION)


def _rounded(value: int) -> int:
    """To two digits."""
    digits = max(0, len(str(value)) - 2)
    return round(value, -digits)
