"""Kernels that complain and that hang in recovery: jbd2 of a distribution's kernel, with one line more."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.kernels.find import find_kernel
from harness.kernels.modules import patched_module
from harness.plan import Budget, Plan
from harness.summary import CaseVerdict, Summary
from harness.tests.needs import needed
from harness.tests.vm import foreign_modules
from harness.tests.vm.conftest import run_plan

# After the journal has been scanned, and before it is replayed.
PATCH = """--- a/fs/jbd2/recovery.c
+++ b/fs/jbd2/recovery.c
@@ -306,3 +306,4 @@
 \terr = do_one_pass(journal, &info, PASS_SCAN);
+\t{line}
 \tif (!err)
 \t\terr = do_one_pass(journal, &info, PASS_REVOKE);
"""
WARNS = "WARN_ON(journal->j_tail);"
HANGS = "wait_event(journal->j_wait_done_commit, !journal->j_tail);"


def module_with(line: str, kernel: str, folder: Path) -> str:
    patch = folder / "fault.patch"
    patch.write_text(PATCH.format(line=line))
    with needed():
        return str(patched_module(find_kernel(kernel), patch, print))


def run(kernel: str, replaced: list[str], reports: Path) -> Summary:
    """Four states of a workload, of which the last have a journal to replay."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=["append-fsync"],
        kernel=kernel,
        machine="qemu",
        jobs=1,
        replaced=replaced,
        budget=Budget(visits=4),
    )
    summary, _ = run_plan(plan, reports)
    return summary


def test_a_warning_in_recovery_is_reported_on_a_kernel_with_the_new_banner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 6.19 on it passed, in every mode of every file system."""
    with needed():
        foreign_modules.prepare(tmp_path, monkeypatch)
    module = module_with(WARNS, "debian-7.3", tmp_path)
    summary = run("debian-7.3", [module], tmp_path)
    assert {f.oracle for f in summary.findings} == {"kernel-log"}
    (finding,) = summary.findings
    assert "jbd2_journal_recover" in finding.signature


@pytest.mark.parametrize("kernel", ["debian-6.12", "debian-7.3"])
def test_an_unmodified_kernel_complains_of_nothing(tmp_path: Path, kernel: str) -> None:
    summary = run(kernel, [], tmp_path)
    assert [f.signature for f in summary.findings] == []
    assert summary.cases[0].verdict is CaseVerdict.PASS


def test_a_kernel_that_hangs_in_recovery_fails(tmp_path: Path) -> None:
    """It was UNKNOWN: from the host, it looks like a host that is slow."""
    summary = run("debian-6.12", [module_with(HANGS, "debian-6.12", tmp_path)], tmp_path)
    assert {f.oracle for f in summary.findings} == {"mountable"}
    (finding,) = summary.findings
    assert finding.signature.startswith("hangs: powercut-agent: mount hangs in ")
    assert "jbd2_journal_recover" in finding.signature
