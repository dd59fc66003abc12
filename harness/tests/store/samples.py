"""A run, its cases and verdicts, as the store's tests need them."""

from __future__ import annotations

from datetime import UTC, datetime

from harness.model import CaseId, CrashState, Judgement, Violation
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, JudgedState, KernelInfo, MachineInfo, RunInfo

CASE = CaseId("ext4", "ordered", "append-fsync")
OTHER = CaseId("xfs", "default", "append-fsync")
INFO = RunInfo(
    name="any",
    powercut="0.1.0",
    git_head="abc",
    argv=("powercut", "run"),
    kernel=KernelInfo("bzImage"),
    machine=MachineInfo("qemu", "tcg"),
    host="host",
    started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
)


def broken(signature: str = "s", oracle: str = "durability", subject: str = "a") -> Judgement:
    return Judgement((Violation(oracle, subject, "gone", "data", "nothing", signature),))


def put(store: RunStore, *judged: JudgedState) -> None:
    store.put_judgements(CASE, judged)


def put_case(
    store: RunStore,
    info: CaseInfo,
    *judgements: Judgement,
    at: int = 0,
    status: CaseStatus = CaseStatus.DONE,
    reason: str = "",
) -> None:
    """A case whose states, from the one `at` entries on, were judged so."""
    store.add_case(info)
    states = [JudgedState(CrashState(n), f"{n}", j) for n, j in enumerate(judgements, at)]
    store.put_judgements(info.case, states)
    store.set_case_status(info.case, status, reason)
