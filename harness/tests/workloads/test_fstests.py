"""The workloads after fstests: each names the test that it follows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.expectations import read_expectations
from harness.host.resources import resource
from harness.model import CaseId
from harness.workloads.load import folder_sets, load_workload, workload_sets

SETS = ("fstests", "fstests-large")
FILES = [path for name in SETS for path in folder_sets()[name].values()]
MANY = 400  # operations from which on a workload is large


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workload_after_fstests_loads_and_names_its_test(path: Path) -> None:
    """One whose header names another test than its file sends the reader to the wrong golden output."""
    named = re.fullmatch(r"(generic|btrfs|ext4|xfs|f2fs)-(\d{3})(-[a-z])?", path.stem)
    assert named
    assert path.read_text().startswith(f"# After what {named[1]}/{named[2]} of fstests checks: ")
    workload = load_workload(path.stem)
    assert workload.operations
    assert (len(workload.operations) >= MANY) == (path.parent.name == "fstests-large")


def test_workloads_after_fstests_are_sets_that_all_leaves_out() -> None:
    sets = workload_sets()
    assert len(sets["fstests"]) >= 100
    for name in SETS:
        assert not set(sets[name]) & set(sets["all"])


def test_every_expected_failure_names_workloads_that_are_there() -> None:
    """A line for a workload that was renamed matches nothing, and its failure comes back as news."""
    expectations = read_expectations(resource("workloads") / "fstests.expected")
    names = [path.stem for path in FILES]
    for one in expectations:
        filesystem, _, mode = one.configuration.partition("/")
        cases = [CaseId(filesystem, mode, name) for name in names]
        assert any(one.applies_to(case) for case in cases), one.origin
