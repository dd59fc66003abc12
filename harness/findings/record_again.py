"""Makes a recording once more, and compares: in virtual time, a seed and a kernel give one recording."""

from __future__ import annotations

import msgspec

from harness.cases.crash_and_continue import crash_of
from harness.cases.recording import read_events_of, take
from harness.errors import UsageError
from harness.findings.repro import ReproContext
from harness.guests.machine import IN_VIRTUAL_TIME
from harness.guests.session import Session
from harness.model.schedules import without_schedule
from harness.plan import Clock
from harness.report.lines import run_again
from harness.trust import may_hold
from harness.workloads.load import is_installed


def need_repeatable(shown: ReproContext) -> None:
    """Raises UsageError for a recording that no other equals, or that is of another kernel."""
    case = shown.point.case
    schedule, machine = without_schedule(case.workload)[1], shown.spec.machine
    can = shown.plan.clock is not Clock.REAL and machine.has_virtual_time(shown.spec.kernel_image)
    if not can or (shown.plan.clock is Clock.AUTO and not schedule):
        plan = msgspec.structs.replace(shown.plan, clock=Clock.VIRTUAL, machine=IN_VIRTUAL_TIME)
        own = (w for w in plan.workloads if not is_installed(w) and may_hold(w, case.workload))
        raise UsageError(
            f"{case} was recorded in real time: no second recording equals it",
            f"record it in virtual time: {run_again(plan, case.configuration, next(own, case.workload))}",
        )
    if shown.recorded_on:
        raise UsageError(
            f"{case} was recorded on {shown.recorded_on}, not on {shown.kernel.name}", "name that kernel"
        )
    if crash_of(shown.loaded.workload.operations) is not None:
        raise UsageError(f"{case} goes on after a power cut", "a workload without `crash` is recorded again")


def record_again(shown: ReproContext) -> tuple[str, ...]:
    """Record the case in a fresh guest, from the run's base image, and compare with what the run kept.
    Returns what differs, in words; nothing: the recordings are equal, byte for byte.

    Raises UsageError as `need_repeatable`, and as `harness.cases.recording.take`.
    """
    need_repeatable(shown)
    kept, scratch = shown.loaded, shown.directory / "recorded-again"
    scratch.mkdir()
    plan = shown.plan
    with Session(
        shown.spec, scratch / "guest", plan.log_bytes, plan.completions, clock=Clock.VIRTUAL
    ) as session:
        taken = take(session, kept.profile, kept.workload, kept.case, kept.base, scratch)
    events = read_events_of(shown.store.layout.case(kept.case), scratch / "events")
    parts = {
        "the write log": taken.log.read_bytes() == kept.log.read_bytes(),
        "when writes were sent and completed": taken.events == events,
        "what the kernel said": taken.said == kept.said,
    }
    return tuple(name for name, equal in parts.items() if not equal)
