"""Generated workloads in real guests: the operations that only they use, and a finding made short."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from harness.errors import ExitCode
from harness.findings.shrink import finding_to_shrink, shrink, workload_file
from harness.findings.triage import triage
from harness.host.progress import Lines
from harness.plan import Plan
from harness.store import RunStore
from harness.summary import CaseSummary, CaseVerdict, Summary, shell_code
from harness.tests.vm.conftest import run_plan
from harness.trust import Named
from harness.workloads.load import load_workload

MAPPED = "ace-mmap-hole.A_foo+msync"
NAMELESS = "ace-tmpfile.A_foo+fsync.A_foo"
ALLOCATED = "ace-falloc.A_foo+none"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Summary, Path]]:
    configurations = ["ext4/ordered", "ext4/nobarrier", "ext3/ordered"]
    plan = Plan(configurations=configurations, workloads=[MAPPED, NAMELESS, ALLOCATED], jobs=2)
    yield run_plan(plan, tmp_path_factory.mktemp("generated"))


def case(generated: tuple[Summary, Path], configuration: str, workload: str) -> CaseSummary:
    return next(
        c for c in generated[0].cases if (c.case.configuration, c.case.workload) == (configuration, workload)
    )


@pytest.mark.parametrize("workload", [MAPPED, NAMELESS, ALLOCATED])
def test_ordered_keeps_its_promises(generated: tuple[Summary, Path], workload: str) -> None:
    seen = case(generated, "ext4/ordered", workload)
    assert seen.verdict is CaseVerdict.PASS, seen.findings
    assert seen.counts.distinct > 5


def test_what_msync_acknowledged_is_lost_without_barriers(generated: tuple[Summary, Path]) -> None:
    seen = case(generated, "ext4/nobarrier", MAPPED)
    assert any(f.oracle == "durability" and "mmap-write" in f.summary for f in seen.findings)


def test_what_a_file_system_does_not_have_is_not_run_and_says_why(generated: tuple[Summary, Path]) -> None:
    seen = case(generated, "ext3/ordered", ALLOCATED)
    assert (seen.verdict, seen.lacks) == (CaseVerdict.NOT_RUN, False)
    assert seen.reason == "this file system does not support `fallocate A/foo 20384 10000`"
    assert case(generated, "ext3/ordered", MAPPED).verdict is CaseVerdict.PASS
    assert shell_code(generated[0]) is ExitCode.INCONSISTENT  # for nobarrier's sake


def test_a_finding_is_made_short(generated: tuple[Summary, Path], tmp_path: Path) -> None:
    with RunStore.open(generated[1]) as store:
        assert finding_to_shrink(store, f"ext4-ordered/{NAMELESS}", "") is None
        finding = finding_to_shrink(store, f"ext4-nobarrier/{NAMELESS}", "durability")
        assert finding is not None
        shrunk = shrink(store, finding, Named(), lambda _: None)
    assert shrunk is not None
    file = tmp_path / "short.toml"
    file.write_text(workload_file(shrunk, finding.case, finding.id))
    left = load_workload(str(file)).operations
    assert left == shrunk.workload.operations
    # The setup ends in a sync: what comes behind it is more than is needed.
    assert len(left) < len(load_workload(NAMELESS).operations)
    assert left[-1].kind.value in ("fsync", "sync")


def test_two_ways_to_one_fault_are_one_cause(tmp_path: Path) -> None:
    """fast_commit forgets a file that was made without a name, in whatever way it is then synced."""
    ways = [NAMELESS, NAMELESS.replace("+fsync.A_foo", "+fdatasync.A_foo")]
    plan = Plan(configurations=["ext4/fast_commit"], workloads=ways, jobs=2)
    _, path = run_plan(plan, tmp_path)
    with RunStore.open(path) as store, Lines(Console(file=io.StringIO())) as progress:
        found = triage([store], Named(), progress)
        assert found.not_again == ()
        lost = [g for g in found.causes if any(s.oracle == "durability" for s in g.symptoms)]
    assert len(lost) == 1
    assert {m.workload for m in lost[0].members} == set(ways)
    assert lost[0].smallest.confirmed
    assert lost[0].smallest.minimal[-2:] == ("tmpfile foo 0", "fsync foo")
