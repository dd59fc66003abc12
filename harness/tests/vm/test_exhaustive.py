"""All legal crash states of real recordings, by times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from harness.cases.recording import load_recording
from harness.filesystems.profiles import select_profiles
from harness.findings.repro import repro_context, reproduce
from harness.guests.guest_specs import make_specs
from harness.guests.session import Session
from harness.host.progress import Lines
from harness.kernels.find import find_chosen
from harness.model import CaseId, CrashPoint, CrashState, Verdict
from harness.plan import Budget, Plan
from harness.run import execute
from harness.store import RunStore
from harness.store.records import CaseStatus, How, state_order
from harness.summary import CaseVerdict, Summary
from harness.tests.vm.conftest import run_plan
from harness.trust import Named
from harness.workloads.load import load_workload

ORDERED = CaseId("ext4", "ordered", "append-fsync")
NOBARRIER = CaseId("ext4", "nobarrier", "append-fsync")


@pytest.fixture(scope="module")
def explored(uml_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    """ext4 with and without barriers, all their legal states, as far as a budget goes."""
    plan = Plan(
        configurations=["ext4/ordered", "ext4/nobarrier"],
        workloads=["append-fsync"],
        fault_models=("exhaustive",),
        budget=Budget(visits=600),
        jobs=os.cpu_count() or 1,
    )
    return run_plan(plan, tmp_path_factory.mktemp("legal"))


def test_ordered_keeps_its_promises_in_every_legal_state(explored: tuple[Summary, Path]) -> None:
    summary, path = explored
    case = next(c for c in summary.cases if c.case == ORDERED)
    assert case.verdict is CaseVerdict.PASS, case.findings
    assert case.info.coverage is not None
    assert case.info.coverage.exhaustive, case.info.coverage
    with RunStore.open(path) as store:
        states = [v.state for v in store.iter_verdicts(ORDERED)]
    assert any(
        s.persisted and len(s.persisted.parts) > 1 for s in states
    )  # no prefix, and no prefix less one write


def test_without_barriers_the_smallest_state_is_shown_again_in_qemu(explored: tuple[Summary, Path]) -> None:
    summary, path = explored
    case = next(c for c in summary.cases if c.case == NOBARRIER)
    assert case.verdict is CaseVerdict.FAIL
    finding = min(case.findings, key=lambda f: state_order(f.state))
    with (
        RunStore.open(path) as store,
        repro_context(store, CrashPoint(NOBARRIER, finding.state), Named(), "auto") as shown,
    ):
        again = reproduce(shown)
    assert again.judgement.verdict is Verdict.FAIL
    assert finding.oracle in {v.oracle for v in again.judgement.violations}


def test_a_budget_is_not_called_exhaustive_and_a_resumed_run_stays_as_it_is(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """Without barriers nearly everything is volatile at once; with them, nothing is left open any more."""
    plan = Plan(
        configurations=["ext4/nobarrier"],
        workloads=["append-fsync"],
        fault_models=("exhaustive",),
        budget=Budget(visits=200),
    )
    summary, path = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert case.info.coverage is not None
    assert not case.info.coverage.exhaustive
    assert case.info.coverage.unexplored
    assert case.info.coverage.visits >= 200
    with RunStore.open(path) as store:
        before = {str(v.state): v for v in store.iter_verdicts(case.case)}
        again = execute(plan, store, Lines(Console(quiet=True)))
        assert {str(v.state): v for v in store.iter_verdicts(case.case)} == before
    assert again.cases[0].info.coverage == case.info.coverage
    assert again.cases[0].status is CaseStatus.DONE


def test_without_the_memo_every_leaf_is_recovered(uml_kernel: Path, tmp_path: Path) -> None:
    """--no-memo: the tree still tells which states there are, and each of them is looked at in a guest."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=["append-no-fsync"],
        fault_models=("exhaustive",),
        budget=Budget(visits=300),
        memo=False,
    )
    summary, _ = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.PASS, (case.undecided, case.findings)
    assert set(case.by_how) == {How.JUDGED}


def test_by_sector_a_superblock_is_torn(uml_kernel: Path, tmp_path: Path) -> None:
    """ext4 writes its superblock in place; of a part of it, the checksum is wrong."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=["append-fsync"],
        fault_models=("sectors",),
        budget=Budget(visits=300),
    )
    summary, _ = run_plan(plan, tmp_path)
    (case,) = summary.cases
    (mountable,) = [f for f in case.findings if f.oracle == "mountable"]
    persisted = mountable.state.persisted
    assert persisted is not None
    assert any(part.sector is not None for part in persisted.parts), mountable.state


def test_a_state_of_xfs_comes_back_the_same_each_time(uml_kernel: Path, tmp_path: Path) -> None:
    """Else no answer of fsck would ever be known: a stock kernel writes random numbers into XFS's log."""
    plan = Plan(configurations=["xfs/default"], workloads=["append-fsync"], budget=Budget(visits=3))
    _, path = run_plan(plan, tmp_path)
    with RunStore.open(path) as store:
        (record,) = store.cases()
        (profile,) = select_profiles(plan.configurations)
        workload = load_workload("append-fsync")
        recording = load_recording(
            record.case, profile, workload, store.layout, tmp_path, plan.log_bytes, record.info.files
        )
    kernel = find_chosen(plan.kernel_choice)
    specs = make_specs(plan.guests, kernel, [profile], [workload], recording.base, tmp_path)
    last = CrashState(len(recording.write_log.entries))
    came_back = []
    with Session(specs.judge, tmp_path / "judge", plan.log_bytes) as session:
        for _ in range(3):
            session.recover(recording.target, recording.on_disk(last))
            came_back.append(session.disk.image(session.image))
    assert len(set(came_back)) == 1
