"""Kernels that break promises in ways at which nobody looked once, with real guests. Kernels with planted
faults come from the kept tree, where one takes seconds to build.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.patch import explained
from harness.faults.campaign import detection_of
from harness.faults.catalogue import faults
from harness.guests.machine import flavour_of
from harness.kernels.variants import kept_tree
from harness.plan import Budget, Plan
from harness.report.results import results
from harness.run import execute
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary
from harness.tests.said import Said
from harness.tests.vm.conftest import run_plan
from harness.workloads.load import workload_sets

SYNCED_THEN_NAMED = """
summary = "A file is synced, then named"
operations = ["open-tmpfile . @h", "append @h 5000", "fsync @h", "link @h f", "fsync .", "close @h"]
"""


def kernel_with(fault: str) -> Path:
    flavour = flavour_of("uml")
    with kept_tree("linux-source-6.12", "uml", flavour, 2, print) as tree:
        return tree.variant(faults()[fault].edits)


def run(kernel: Path, workload: str, reports: Path, mode: str = "ext4/ordered") -> tuple[Summary, Path]:
    plan = Plan(
        configurations=[mode],
        workloads=[workload],
        kernel=str(kernel),
        machine="uml",
        fault_models=("exhaustive",),
        budget=Budget(visits=40),
    )
    return run_plan(plan, reports)


@pytest.mark.parametrize(
    ("fault", "workload", "oracle", "symptom"),
    [
        ("replay-in-memory-alone", "append-fsync", "usable", "second mount"),
        ("read-only-after-recovery", "append-fsync", "usable", "read-only"),
        ("link-warns", "namespace", "kernel-log", "while the workload runs: WARNING"),
        ("replay-warns-once", "append-fsync", "kernel-log", "WARNING"),
    ],
)
def test_what_is_seen_only_by_looking_twice_or_elsewhere_is_found(
    uml_kernel: Path, tmp_path: Path, fault: str, workload: str, oracle: str, symptom: str
) -> None:
    """All were green: the second mount, statfs, the log of the recording, and what a kernel says once."""
    assert workload in workload_sets()["quick"]
    summary, _ = run(kernel_with(fault), workload, tmp_path)
    told = [f.signature for f in summary.findings if f.oracle == oracle]
    assert any(symptom in signature for signature in told), told


def test_what_is_written_over_freed_blocks_is_named_with_both_owners_and_the_commit_to_come(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """It said that recovery had made it up, which did nothing wrong. Nothing in `quick` found it."""
    assert "reuse" in workload_sets()["quick"]
    kernel = kernel_with("freed-blocks-reused")
    summary, path = run(kernel, "reuse", tmp_path)
    (finding,) = summary.findings
    assert finding.oracle == "stale"
    text = " ".join(" ".join(explained(path, detection_of(finding, 1), kernel)).split())
    assert "Written over blocks that were not free yet." in text
    assert ", data of b from 0, written by operation 6, was sent at event" in text
    assert "to blocks of `a` (entry" in text
    assert "whose removal was in no commit yet: the next one is entry" in text
    assert "commit record of transaction" in text
    assert "made it up" not in text


def test_synced_contents_that_another_file_replaced_are_not_dropped_by_recovery(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """Half of the file was written over, beside a write that did no harm: "recovery dropped it"."""
    summary, path = run(uml_kernel, "reuse", tmp_path, "ext3/writeback")
    (finding,) = summary.findings
    assert finding.oracle == "durability"
    text = " ".join(" ".join(explained(path, detection_of(finding, 1), uml_kernel)).split())
    assert "Written over blocks that were not free yet." in text
    assert "dropped" not in text


def test_a_file_that_was_synced_before_it_had_a_name_is_kept_or_missed(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """No inode without a name counted as synced: 5000 bytes of 6.12's btrfs went unmissed."""
    workload = tmp_path / "named.toml"
    workload.write_text(SYNCED_THEN_NAMED)
    kept, _ = run(uml_kernel, str(workload), tmp_path / "ext4")
    lost, _ = run(uml_kernel, str(workload), tmp_path / "btrfs", "btrfs/default")
    assert [c.verdict for c in kept.cases] == [CaseVerdict.PASS]
    assert {f.oracle for f in lost.findings} == {"durability"}
    assert "acknowledged by `fsync @h`" in lost.findings[0].summary


def test_a_resumed_run_keeps_what_cuts_and_faults_came_to(uml_kernel: Path, tmp_path: Path) -> None:
    """Resumed, it forgot both of every case that was finished: UNKNOWN became PASS."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=["append-fsync"],
        kernel=str(uml_kernel),
        machine="uml",
        fault_models=("exhaustive",),
        budget=Budget(visits=10),
        again=1,
        disk=("errors",),
    )
    before, path = run_plan(plan, tmp_path)
    (case,) = before.cases
    assert case.info.again
    assert case.info.disk is not None
    with RunStore.open(path) as store:
        after = execute(store.plan(), store, Said())
    told, now = (results(summary, "RUN")["cases"] for summary in (before, after))
    assert told == now
