"""`powercut history` and `powercut matrix`, up to the first guest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.cli import releases
from harness.cli import series as cli_series
from harness.errors import ExitCode
from harness.filesystems.profiles import select_profiles
from harness.plan import ExistingDisk, Plan
from harness.releases.results import Answer, OnKernel, Seen, SweepPlan
from harness.releases.sweep import SweepSeries, VerdictSeries, every_kernel, load_plan
from harness.series.journal import End
from harness.store import RunStore
from harness.summary import CaseVerdict
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.report.demo import JUDGES, demo_run, run_info

BROKEN = next(iter(JUDGES))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A run with findings, of fault models of its own."""
    with demo_run(tmp_path) as store:
        store.put_plan(
            Plan(
                configurations=["ext4"],
                workloads=["all"],
                fault_models=("prefix", "drop"),
                modules="/mine",
                shard="1/2",
            )
        )
        return store.path


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[SweepPlan]:
    """The sweeps that were carried out: broken on the first kernel, kept on the others."""
    plans: list[SweepPlan] = []

    def carry_out(series: SweepSeries, *_: object, **__: object) -> End:
        plans.append(series.plan)
        seen = (Seen("durability", "bytes are gone", f"{BROKEN}@4", 2),)
        configuration, workload = "ext4/nobarrier", "append-fsync"
        broken = Answer(configuration, workload, CaseVerdict.FAIL, 9, 2, seen)
        kept = Answer(configuration, workload, CaseVerdict.PASS, 9)
        for number, kernel in enumerate(series.plan.kernels):
            answers = (kept if number else broken,)
            series.known.add(
                OnKernel(item=kernel, name=f"{kernel}.9", run="kernels/k/runs/r", answers=answers)
            )
        return End.COMPLETE

    monkeypatch.setattr(cli_series, "carry_out", carry_out)
    return plans


def test_a_history_asks_for_the_findings_case_as_the_run_looked_at_it(
    source: Path, carried: list[SweepPlan], tmp_path: Path
) -> None:
    done = powercut(
        *("history", f"{BROKEN}@4", "--from", source, "--kernels", "debian-6.1,debian-7.3"),
        *("--out", tmp_path / "out"),
    )
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    (asked,) = carried
    assert asked.kernels == ["debian-6.1", "debian-7.3"]
    assert (asked.plan.configurations, asked.plan.workloads) == (["ext4/nobarrier"], ["append-fsync"])
    assert asked.plan.fault_models == ("prefix", "drop")
    assert (asked.plan.modules, asked.plan.shard) == (None, "")
    assert "gone in debian-7.3.9 (last seen in debian-6.1.9)" in done.output
    assert 'class="strip"' in (source / "report.html").read_text()


def test_a_history_writes_to_no_run_but_that_of_its_finding(
    source: Path, carried: list[SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed without --from in the directory of some run, it wrote a finding of another one there."""
    asked = ("history", f"{BROKEN}@4", "--from", source, "--kernels", "debian-6.1", "--out", tmp_path / "out")
    printed(*asked)
    (path,) = (tmp_path / "out" / "runs").iterdir()
    with RunStore.create(tmp_path / "theirs", "t", run_info()) as store:
        theirs = store.path
    before = sorted(theirs.rglob("*"))
    monkeypatch.chdir(theirs)
    printed("history", "--resume", path)
    assert sorted(theirs.rglob("*")) == before
    sweep = SweepSeries(load_plan(path, "history"), path).sweep
    kept = OnKernel(item="k", answers=(Answer("ext4/nobarrier", "append-fsync", CaseVerdict.PASS, 9),))
    named = msgspec.structs.replace(sweep.plan, of_run=str(theirs))
    releases._add_strip(replace(sweep, plan=named, kernels=(kept,)))
    assert sorted(theirs.rglob("*")) == before, "nor to one that does not have that finding"


def test_a_history_on_the_disk_that_somebody_has_is_refused(
    source: Path, carried: list[SweepPlan], tmp_path: Path
) -> None:
    """It was asked on a disk of mkfs instead, and said on which kernels the finding was gone. Limits and
    selections of the run were those of each kernel, too.
    """
    words = ("history", BROKEN, "--from", source, "--kernels", "debian-7.3", "--out", tmp_path / "out")
    with RunStore.open(source) as store:
        begun = msgspec.structs.replace(
            store.plan(), match="ext4", only=(str(BROKEN),), max_failures=1, coverage=True
        )
        store.put_plan(begun)
    assert powercut(*words).exit_code == ExitCode.CONSISTENT
    (asked,) = carried
    taken = asked.plan
    assert (taken.match, taken.only, taken.max_failures, taken.coverage) == ("", (), None, False)
    with RunStore.open(source) as store:
        store.put_plan(msgspec.structs.replace(begun, image=ExistingDisk("/disk", "0" * 64, 1 << 20)))
    told = refused(*words)
    assert "began with the disk /disk, and a history makes each disk by mkfs" in told
    assert (
        "powercut run -c ext4/nobarrier -w append-fsync --states prefix,drop --image /disk --kernel K" in told
    )


def test_a_history_of_nothing_is_a_usage_error(source: Path, carried: list[SweepPlan]) -> None:
    for arguments in ([], ["ext4-journal/append-fsync"], ["xfs-default/never"]):
        refused("history", *arguments, "--from", source)
    assert carried == []


def test_a_matrix_takes_all_kernels_unless_some_are_named(carried: list[SweepPlan], tmp_path: Path) -> None:
    printed("matrix", "-c", "ext4/ordered", "--out", tmp_path)
    assert carried[0].kernels == every_kernel()
    assert carried[0].plan.workloads == ["quick"]
    (made,) = (tmp_path / "runs").iterdir()
    assert load_plan(made) == carried[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-c", "ext5"], "ext4"),
        (["-c", "ext4/ordered", "--kernels", "debian-5.99"], "debian-5.99"),
        (["-c", "ext4/ordered", "--fault-model", "prefx"], "prefix"),
        (["-c", "ext4/ordered,any/posix"], "any/posix: a mode that is only rules"),
    ],
)
def test_a_wrong_name_leaves_nothing_behind(
    arguments: list[str], says: str, carried: list[SweepPlan], tmp_path: Path
) -> None:
    done = powercut("matrix", *arguments, "--out", tmp_path)
    assert (done.exit_code, carried) == (ExitCode.USAGE, [])
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["history", "matrix"])
def test_only_a_sweep_is_resumed(
    command: str, source: Path, carried: list[SweepPlan], tmp_path: Path
) -> None:
    assert powercut(command, "--resume", source).exit_code == ExitCode.USAGE
    powercut("matrix", "-c", "ext4/ordered", "--kernels", "debian-6.1", "--out", tmp_path / "out")
    (made,) = (tmp_path / "out/runs").iterdir()
    assert "report: " in powercut(command, "--resume", made, "--kernels", "debian-6.1").output
    assert carried[0] == carried[1]


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("matrix", ["--expect", "expected"]),
        ("matrix", ["--kernels", "debian-6.1,debian-7.3"]),
        ("verdict", ["--expect", "expected"]),
        ("verdict", ["--known", "known"]),
        ("verdict", ["--kernels", "debian-7.3"]),
        ("verdict", ["--depth", "deep"]),
    ],
)
def test_what_a_resumed_sweep_would_not_follow_is_refused(
    command: str, others: list[str], carried: list[SweepPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another kernel beside --resume was left out without a word, and so were known bugs."""
    monkeypatch.chdir(tmp_path)
    for name in ("expected", "known"):
        (tmp_path / name).touch()
    powercut(command, "-c", "ext4/ordered", "--kernels", "debian-6.1", "--out", tmp_path / "out")
    (made,) = (tmp_path / "out/runs").iterdir()
    assert others[0] in refused(command, "--resume", made, *others)
    assert len(carried) == 1


@pytest.mark.parametrize("command", ["history", "matrix", "verdict", "litmus"])
def test_a_series_of_another_command_is_named(command: str, tmp_path: Path) -> None:
    """`history --resume` of a verdict went on, and wrote its own page over the verdict's."""
    (path := tmp_path / "theirs").mkdir()
    argv = ["campaign"]
    (path / "plan.json").write_text(json.dumps({"argv": argv}))
    told = refused(command, "--resume", path)
    assert "was begun by campaign" in told
    assert "powercut campaign --resume" in told


def test_a_verdict_goes_on_with_as_many_guests_and_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume` forgot -j and --new-only, and the command that it was named by had no end."""
    again: list[str] = []
    jobs: list[int] = []
    new_only: list[bool] = []

    def work(series: VerdictSeries, what: str, command: str, until_s: float | None = None) -> End:
        again.append(command)
        jobs.append(series.plan.plan.jobs)
        new_only.append(series.plan.new_only)
        return End.INTERRUPTED

    monkeypatch.setattr("harness.cli.verdict.run_series", work)
    words = ["-c", "ext4/ordered", "--minutes", "2.5", "-j", "7", "--new-only", "--out", tmp_path]
    powercut("verdict", *words)
    (made,) = (tmp_path / "runs").iterdir()
    powercut("verdict", "--resume", made)
    assert jobs == [7, 7]
    assert new_only == [True, True]
    assert again[0].endswith(" --minutes 2.5")


def test_a_verdict_of_rules_is_refused_with_the_command_that_asks_them(tmp_path: Path) -> None:
    """No workload of a verdict has a check of its own: it ran, and ended with "not looked at" for each."""
    told = refused("verdict", "-c", "ext4/ordered,any/posix", "--out", tmp_path / "out")
    assert "any/posix: rules judge programs by their own checks, and a verdict runs none" in told
    assert "powercut run -c any/posix -w WORKLOAD" in told
    assert not any(p.rules for p in select_profiles(["all"])), "which is what a verdict is of by default"
