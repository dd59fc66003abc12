"""File systems that divide their data among devices themselves, with real guests."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.summary import CaseVerdict
from harness.tests.vm.conftest import run_plan


@pytest.mark.parametrize("mode", ["raid1", "raid1-1"])
def test_btrfs_keeps_every_promise_with_both_mirrors_and_with_one(
    mode: str, tmp_path: Path, uml_kernel: Path
) -> None:
    """Each mirror is recorded with a cache of its own, and what is written to one is written to the other."""
    plan = Plan(
        configurations=[f"btrfs/{mode}"],
        workloads=["append-fsync"],
        kernel=str(uml_kernel),
        machine="uml",
        budget=Budget(visits=8),
    )
    summary, path = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.PASS, case.findings
    with RunStore.open(path) as store:
        (found,) = store.cases()
        assert len([*store.iter_verdicts(found.case)]) > 20
