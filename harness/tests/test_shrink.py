"""`powercut shrink` as far as it needs no guest: what it is asked for, and the file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ExitCode, UsageError
from harness.expectations import Expectation
from harness.generate import generate
from harness.kernels import find_kernel
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.shrink import Shrunk, finding_to_shrink, workload_file
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, Finding, JudgedState
from harness.tests.cli.runner import powercut
from harness.tests.needs import needed
from harness.tests.report.demo import run_info
from harness.workloads import load_workload

BROKEN = CaseId("ext4", "nobarrier", "random1-17-20")
WHOLE = CaseId("ext4", "ordered", "random1-17-20")
OPEN = CaseId("ext4", "journal", "random1-17-20")


def violation(oracle: str) -> Violation:
    return Violation(oracle, "f", f"{oracle} of f", "f", "nothing", "gone")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.set_expectations([Expectation("*", "*", "durability", "known", "known.txt:1")])
        for case, status in ((BROKEN, CaseStatus.DONE), (WHOLE, CaseStatus.DONE), (OPEN, CaseStatus.UNKNOWN)):
            store.add_case(CaseInfo(case, distinct=1, generated=1))
            found = (violation("durability"), violation("size")) if case == BROKEN else ()
            store.put_judgements(case, [JudgedState(CrashState(1), "h", Judgement(found))])
            store.set_case_status(case, status, "lost" * (status is CaseStatus.UNKNOWN))
        return store.path


def test_the_finding_that_nobody_expected_comes_first(run: Path) -> None:
    with RunStore.open(run) as store:
        for text in (str(BROKEN), f"{BROKEN}@1"):
            finding = finding_to_shrink(store, text, "")
            assert finding is not None
            assert finding.oracle == "size"
        named = finding_to_shrink(store, str(BROKEN), "durability")
        assert named is not None
        assert named.oracle == "durability"
        with pytest.raises(UsageError, match="no finding of 'fsck'"):
            finding_to_shrink(store, str(BROKEN), "fsck")


def test_a_case_that_passed_has_nothing_to_shrink(run: Path) -> None:
    done = powercut("shrink", WHOLE, "--from", run)
    assert done.exit_code == ExitCode.CONSISTENT
    assert "has no finding" in done.stdout


@pytest.mark.parametrize("text", [str(OPEN), "ext4-ordered/append-fsync", "nonsense"])
def test_what_is_undecided_or_unknown_is_no_pass(run: Path, text: str) -> None:
    assert powercut("shrink", text, "--from", run).exit_code == ExitCode.USAGE


def test_the_file_is_a_workload(tmp_path: Path) -> None:
    workload = generate("ace-setxattr-replace.A_foo+fsync.A")
    finding = Finding(BROKEN, "durability", "s", state=CrashState(1), violations=(), states=1)
    path = tmp_path / "short.toml"
    path.write_text(workload_file(Shrunk(workload, "durability", 'a "quoted" \\ name', 3), finding))
    assert load_workload(str(path)).operations == workload.operations


def test_workloads_by_chance_are_chosen_by_seed() -> None:
    with needed():
        find_kernel("debian-6.12")
    done = powercut("run", "-n", "-c", "ext4/ordered", "--random", "3", "--seed", "17", "--accel", "tcg")
    assert "random1-17-20, random1-18-20, random1-19-20" in done.stdout
    part = powercut("run", "-n", "-c", "ext4/ordered", "--random", "3", "--seed", "17", "--shard", "2/3")
    assert "random1-18-20" in part.stdout
    assert "random1-17-20" not in part.stdout
    assert powercut("run", "-n", "-w", "ace1", "--shard", "0/3").exit_code == ExitCode.USAGE
