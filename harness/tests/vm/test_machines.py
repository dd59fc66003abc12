"""Memo on and off, one guest or two, QEMU and UML: the verdicts are the same, state for state."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from harness.findings.compare import compare
from harness.host.progress import Lines
from harness.plan import Plan
from harness.run import create_run, execute
from harness.store import RunStore
from harness.summary import CaseVerdict
from harness.tests.vm.conftest import run_plan
from harness.tests.vm.test_run import children

CONFIGURATIONS = ["ext4/ordered", "ext4/nobarrier", "ext4/journal"]
WORKLOADS = ["append-fsync", "replace-rename"]


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every state looked at in QEMU: no memo, one guest."""
    plan = Plan(configurations=CONFIGURATIONS, workloads=WORKLOADS, machine="qemu", memo=False, jobs=1)
    _, path = run_plan(plan, tmp_path_factory.mktemp("plain"))
    return path


def differences(first: Path, plan: Plan, reports: Path) -> tuple[int, list[str], Path]:
    """Judge the recordings of `first` again: states compared, where the runs differ, the new run."""
    _, second = run_plan(plan, reports)
    with RunStore.open(first) as one, RunStore.open(second) as two:
        found = compare(one, two)
    return found.states, [str(d) for d in found.differences], second


def again(first: Path, **given: object) -> Plan:
    return Plan(configurations=CONFIGURATIONS, workloads=WORKLOADS, recordings=str(first), **given)  # type: ignore[arg-type]  # fields of Plan


def test_the_memo_changes_no_verdict(plain: Path, tmp_path: Path) -> None:
    states, found, second = differences(plain, again(plain, machine="qemu", jobs=1), tmp_path)
    assert states > 400
    assert found == []
    with RunStore.open(second) as store:
        recalled = [v for c in store.cases() for v in store.iter_verdicts(c.case) if v.how.value == "memo"]
    assert recalled, "the memo has answered for some"


def test_two_guests_judge_as_one(plain: Path, tmp_path: Path) -> None:
    states, found, _ = differences(plain, again(plain, machine="qemu", memo=False, jobs=2), tmp_path)
    assert (states > 400, found) == (True, [])


@pytest.mark.parametrize("memo", [False, True])
def test_uml_judges_as_qemu(plain: Path, tmp_path: Path, uml_kernel: Path, memo: bool) -> None:
    states, found, _ = differences(plain, again(plain, machine="uml", memo=memo, jobs=2), tmp_path)
    assert (states > 400, found) == (True, [])


def test_what_uml_finds_is_confirmed_in_qemu(tmp_path: Path, uml_kernel: Path) -> None:
    plan = Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"], machine="auto", jobs=1)
    summary, path = run_plan(plan, tmp_path)
    assert summary.info.machine.kind == "uml"
    with RunStore.open(path) as store:
        for finding in store.findings():
            evidence = store.evidence(finding)
            assert evidence is not None
            assert evidence.notes["confirmed"] == "qemu: yes"


def test_uml_records_too(tmp_path: Path, uml_kernel: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], machine="uml", jobs=1)
    summary, _ = run_plan(plan, tmp_path)
    assert summary.cases[0].verdict is CaseVerdict.PASS, (summary.cases[0].undecided, summary.findings)


def test_the_ready_uml_kernel_of_debian_needs_no_build(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], kernel="uml-6.1", jobs=2)
    summary, _ = run_plan(plan, tmp_path)
    assert summary.info.machine.kind == "uml"
    assert summary.cases[0].verdict is CaseVerdict.PASS, (summary.cases[0].undecided, summary.findings)


class _Kills(Lines):
    """Kills processes of that name, once, when a few states are judged."""

    def __init__(self, name: str) -> None:
        super().__init__(Console(quiet=True))
        self.name = name
        self.killed: list[int] = []

    def advance(self, what: str, count: int) -> None:
        super().advance(what, count)
        if what == "states" and self._done["states"] > 5 and not self.killed:
            self.killed = children(self.name)
            for pid in self.killed:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["powercut-disk", "image"])
def test_a_killed_disk_or_uml_costs_no_verdict(tmp_path: Path, uml_kernel: Path, name: str) -> None:
    plan = Plan(
        configurations=["ext4/ordered"], workloads=["replace-rename"], machine="uml", jobs=2, memo=False
    )
    progress = _Kills(name)
    with create_run(plan, tmp_path, "killed") as store:
        summary = execute(plan, store, progress)
    assert progress.killed
    (case,) = summary.cases
    assert case.counts.checked == case.counts.generated
    assert case.verdict is CaseVerdict.PASS, (case.undecided, case.unknown_reasons)
