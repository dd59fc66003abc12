"""Kernels that complain, hang and die in recovery, or replay in memory alone: jbd2 of a distribution's
kernel, with one line more, or another one.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.kernels.find import find_kernel
from harness.kernels.modules import patched_module
from harness.model import Verdict
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.store.layout import latest
from harness.store.records import How
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
# What is replayed stays in memory; the journal is emptied all the same.
IN_MEMORY = """--- a/fs/jbd2/recovery.c
+++ b/fs/jbd2/recovery.c
@@ -719,5 +719,5 @@
 \t\t\t\t\tBUFFER_TRACE(nbh, "marking dirty");
 \t\t\t\t\tset_buffer_uptodate(nbh);
-\t\t\t\t\tmark_buffer_dirty(nbh);
+\t\t\t\t\tclear_buffer_dirty(nbh);
 \t\t\t\t\tBUFFER_TRACE(nbh, "marking uptodate");
 \t\t\t\t\t++info->nr_replays;
"""
# At each commit: while the workload runs, and in no recovery.
COMMIT_WARNS = """--- a/fs/jbd2/commit.c
+++ b/fs/jbd2/commit.c
@@ -405,2 +405,3 @@
 \tJ_ASSERT(journal->j_running_transaction != NULL);
+\tWARN_ON(journal->j_running_transaction);
 \tJ_ASSERT(journal->j_committing_transaction == NULL);
"""
WARNS_ONCE = "WARN_ON_ONCE(journal->j_tail);"
# QEMU, with a setting of the agent more on the kernel's command line.
OFTEN = """#!/bin/sh
for word do
    shift
    case $word in *powercut.port=*) word="$word powercut.look_ms=200" ;; esac
    set -- "$@" "$word"
done
exec {qemu} "$@"
"""
ROOT_ONLY = """
summary = "The root's inode alone changes: fsck accepts the state before each of these operations"
operations = ["chmod . 700", "fsync .", "setxattr . user.a value", "fsync ."]
"""
ONE_COMMIT = """
summary = "One file, one transaction"
operations = ["create f", "append f 4K", "fsync f"]
"""


def module_with(line: str, kernel: str, folder: Path) -> str:
    return module_of(PATCH.format(line=line), kernel, folder)


def module_of(text: str, kernel: str, folder: Path) -> str:
    patch = folder / "fault.patch"
    patch.write_text(text)
    with needed():
        return str(patched_module(find_kernel(kernel), patch, print))


def look_often(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agents of guests look for a hang five times a second instead of once."""
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu
    wrapper = folder / "bin" / Path(qemu).name
    wrapper.parent.mkdir()
    wrapper.write_text(OFTEN.format(qemu=shlex.quote(qemu)))
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=":")


def run(
    kernel: str, replaced: list[str], reports: Path, visits: int = 4, workload: str = "append-fsync"
) -> Summary:
    """The first states of a workload, at its fsyncs. From the second on there is a journal to replay."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[workload],
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


def test_a_kernel_that_hangs_in_recovery_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was UNKNOWN: from the host, it looks like a host that is slow. Two states are enough: a hang is 30
    looks in each of three guests, and more states would take more of them.
    """
    look_often(tmp_path, monkeypatch)
    summary = run("debian-6.12", [module_with(HANGS, "debian-6.12", tmp_path)], tmp_path, visits=2)
    assert {f.oracle for f in summary.findings} == {"mountable"}
    (finding,) = summary.findings
    assert finding.signature.startswith("hangs: powercut-agent: mount hangs in ")
    assert "jbd2_journal_recover" in finding.signature


def test_a_replay_in_memory_alone_fails_though_fsck_accepts_what_it_left(tmp_path: Path) -> None:
    """It kept every promise: nobody looked at what recovery had left a second time."""
    workload = tmp_path / "root-only.toml"
    workload.write_text(ROOT_ONLY)
    module = module_of(IN_MEMORY, "debian-6.12", tmp_path)
    summary = run("debian-6.12", [module], tmp_path, workload=str(workload))
    assert {f.oracle for f in summary.findings} == {"usable"}
    assert "second mount: .: permissions" in {f.signature for f in summary.findings}


def test_a_warning_while_the_workload_runs_fails(tmp_path: Path) -> None:
    """The kernel log of the recording was thrown away."""
    module = module_of(COMMIT_WARNS, "debian-6.12", tmp_path)
    summary = run("debian-6.12", [module], tmp_path, visits=2)
    said = [f for f in summary.findings if f.signature.startswith("while the workload runs: ")]
    (finding,) = said  # it warns as well when a recovered file system is written to
    assert finding.signature.startswith("while the workload runs: WARNING: ")
    assert "jbd2_journal_commit_transaction" in finding.signature
    assert finding.states == 1


def test_what_a_kernel_says_once_is_said_of_every_state(tmp_path: Path) -> None:
    """WARN_ON_ONCE was heard of the first state of a guest alone."""
    module = module_with(WARNS_ONCE, "debian-6.12", tmp_path)
    summary = run("debian-6.12", [module], tmp_path)
    (case,) = summary.cases
    assert {f.oracle for f in case.findings} == {"kernel-log"}
    with RunStore.open(latest(tmp_path)) as store:
        visited = [v.verdict for v in store.iter_verdicts(case.case) if v.how is How.JUDGED]
    first, *others = visited  # the first one has no journal to replay
    assert (first, set(others)) == (Verdict.PASS, {Verdict.FAIL})
    assert len(others) > 1


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
        assert case.info.coverage.unexplored
