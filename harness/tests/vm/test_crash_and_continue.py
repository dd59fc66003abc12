"""Two lives of one file system on real guests: cut, recovered, worked on, cut again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cases.recording import read_history
from harness.findings.repro import repro_context, reproduce
from harness.model import BEFORE_THE_LOG, CaseId
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary
from harness.tests.vm.conftest import run_plan
from harness.trust import Named

ORDERED = CaseId("ext4", "ordered", "crash-and-continue")
REPAIRED = CaseId("ext2", "default", "crash-and-continue")
NOBARRIER = CaseId("ext4", "nobarrier", "crash-and-continue")
CRASH = 8
"""The operation of crash-and-continue that is the first power cut."""


@pytest.fixture(scope="module")
def lived(uml_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    plan = Plan(
        configurations=["ext4/ordered", "ext4/nobarrier", "ext2/default"],
        workloads=["crash-and-continue"],
        fault_models=("exhaustive",),
        budget=Budget(visits=60),
        again=1,
        machine="uml",
    )
    return run_plan(plan, tmp_path_factory.mktemp("second"))


def test_what_both_lives_acknowledged_is_kept_wherever_recovery_is_cut(lived: tuple[Summary, Path]) -> None:
    summary, _ = lived
    case = next(c for c in summary.cases if c.case == ORDERED)
    assert case.verdict is CaseVerdict.PASS, case.findings
    assert case.counts.checked > 40


def test_where_fsck_repairs_before_the_mount_the_part_after_the_crash_goes_on(
    lived: tuple[Summary, Path],
) -> None:
    """It began on the unrepaired disk, where its first operation failed."""
    summary, _ = lived
    case = next(c for c in summary.cases if c.case == REPAIRED)
    assert case.counts.checked > 20, case
    assert case.verdict is not CaseVerdict.UNKNOWN


def test_the_log_begins_with_the_recovery_of_the_part_before_the_crash(lived: tuple[Summary, Path]) -> None:
    _, path = lived
    with RunStore.open(path) as store:
        kept = store.layout.case(ORDERED)
        history = read_history(kept.history)
    assert kept.base == kept.own_base
    assert history.earlier is not None
    assert history.earlier.operations == CRASH + 1
    assert {s.begin for s in history.steps[: CRASH + 1]} == {BEFORE_THE_LOG}
    begun = history.steps[CRASH + 1].begin
    assert begun is not None
    assert begun > 0  # what the mount wrote


def test_what_the_part_after_the_crash_loses_is_found_and_shown_again(lived: tuple[Summary, Path]) -> None:
    """Without barriers the part after the crash loses what it acknowledged, as any does."""
    summary, path = lived
    case = next(c for c in summary.cases if c.case == NOBARRIER)
    lost = [f for f in case.findings if f.oracle == "durability" and not f.state.again]
    assert lost
    with RunStore.open(path) as store, repro_context(store, lost[0].crash_point, Named(), "uml") as shown:
        again = reproduce(shown)
    assert "durability" in {v.oracle for v in again.judgement.violations}
