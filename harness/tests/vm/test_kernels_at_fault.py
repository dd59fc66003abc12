"""Kernels that complain, hang and die in recovery: jbd2 of a distribution's kernel, with one line more."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.kernels.find import find_kernel
from harness.kernels.modules import patched_module
from harness.model import Verdict
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary, exit_code
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
# Where the journal holds a transaction: not of the states before the first commit.
DIES = "BUG_ON(info.end_transaction != info.start_transaction);"
ONE_COMMIT = """
summary = "One file, one transaction"
operations = ["create f", "append f 4K", "fsync f"]
"""


def module_with(line: str, kernel: str, folder: Path) -> str:
    patch = folder / "fault.patch"
    patch.write_text(PATCH.format(line=line))
    with needed():
        return str(patched_module(find_kernel(kernel), patch, print))


def run(kernel: str, replaced: list[str], reports: Path, visits: int = 4) -> Summary:
    """The first states of a workload, at its fsyncs. From the second on there is a journal to replay."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=["append-fsync"],
        kernel=kernel,
        machine="qemu",
        jobs=1,
        replaced=replaced,
        budget=Budget(visits=visits),
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
    """It was UNKNOWN: from the host, it looks like a host that is slow. Two states are enough: three guests
    are looked at for half a minute each, and more states would take more of them.
    """
    summary = run("debian-6.12", [module_with(HANGS, "debian-6.12", tmp_path)], tmp_path, visits=2)
    assert {f.oracle for f in summary.findings} == {"mountable"}
    (finding,) = summary.findings
    assert finding.signature.startswith("hangs: powercut-agent: mount hangs in ")
    assert "jbd2_journal_recover" in finding.signature


@pytest.mark.parametrize("states", ["prefix", "exhaustive"])
def test_a_kernel_that_panics_in_recovery_fails_whatever_states_are_asked_for(
    tmp_path: Path, states: str
) -> None:
    """With all legal states, exit code 0 and "kept every promise": what the memo may not keep was dropped."""
    workload = tmp_path / "one-commit.toml"
    workload.write_text(ONE_COMMIT)
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[str(workload)],
        kernel="debian-6.12",
        machine="qemu",
        jobs=1,
        replaced=[module_with(DIES, "debian-6.12", tmp_path)],
        fault_models=(states,),
        budget=Budget(visits=4),
    )
    summary, path = run_plan(plan, tmp_path)
    (case,) = summary.cases
    (finding,) = case.findings
    assert finding.oracle == "mountable"
    assert finding.signature == "lost: kernel BUG at fs/jbd2/recovery.c:N! in jbd2_journal_recover"
    assert (case.verdict, exit_code(summary)) == (CaseVerdict.FAIL, ExitCode.INCONSISTENT)
    with RunStore.open(path) as store:
        found = {v.verdict for v in store.iter_verdicts(case.case)}
    assert found == {Verdict.PASS, Verdict.FAIL}
    if states == "exhaustive":
        assert case.info.coverage is not None
        assert not case.info.coverage.exhaustive
        assert case.info.coverage.open
