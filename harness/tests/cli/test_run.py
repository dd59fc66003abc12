"""`powercut run`: what is wrong is said with its value and the next step, and nothing is begun."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from click.testing import Result

from harness.cli import run
from harness.cli.again import Before, summary_of
from harness.cli.baseline import Baseline
from harness.cli.console import errors
from harness.cli.estimate import estimate
from harness.cli.guard import guarded
from harness.cli.options import asked_expectations
from harness.errors import ExitCode, RunChanged, UsageError
from harness.expectations import Expectation, known_failures
from harness.guests import guest_specs
from harness.host.console import OutputClosed
from harness.host.resources import resource
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.plan import Budget, Completions, ExistingDisk, Plan
from harness.report import write_reports
from harness.report.lines import resume, run_again
from harness.run import Planned, look_up, new_run, select_cases
from harness.store import RunStore
from harness.store.bundle import bundle
from harness.store.records import CaseInfo, CaseStatus, Coverage, JudgedState, KernelInfo, Step
from harness.summary import CaseVerdict, shell_code, summarise
from harness.symptoms import Symptom
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.report.demo import demo_run, run_info
from harness.tests.store.samples import INFO, put_case
from harness.workloads import load
from harness.workloads.applications import is_copy, of_program
from harness.workloads.load import absolute_word, is_own_application


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "-c", "ext4/orderd"], "ext4/ordered"),
        (["run", "-c", "ext5"], "ext4"),
        (["run", "-c", "ext4/ordered", "-w", "append-fsnc"], "append-fsync"),
        (["run", "--fault-model", "prefx"], "prefix"),
        (["run", "--disk", "error"], "errors, bit-rot, loses-one, misdirects"),
        (["run", "--disk", "errors", "--oracle", "fsck"], "honesty"),
        (["run", "-w", "append-fsync", "--kernel", "debian-6.1x"], "debian-6.1"),
        (["run", "--oracle", "fsk"], "did you mean fsck?"),
    ],
)
def test_an_unknown_name_costs_nothing_and_names_the_nearest(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    told = refused(*arguments, "--out", tmp_path)
    assert says in told
    assert "next:" in told
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_kernel_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bytes(1 << 16))
    told = refused("run", "-w", "append-fsync", "--kernel", path, "--out", tmp_path)
    assert str(path) in told
    assert "no kernel" in told


def test_an_expectation_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "expected"
    path.write_text("ext4/nobarrier * *\n")
    told = refused("run", "-c", "ext4/ordered", "--expect", path, "--out", tmp_path / "reports")
    assert f"{path}:1" in told
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("option", ["-c", "-w", "--fault-model"])
def test_an_empty_variable_is_not_taken_for_the_default(option: str, tmp_path: Path) -> None:
    """`-c "$MODES"` ran ext4/ordered and passed."""
    for empty in ("", ","):
        assert "empty value" in refused("run", option, empty, "--out", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "required"),
    [
        ([], True),
        (["-c", "ext4/ordered,xfs/default"], True),
        (["-c", "ext4"], False),
        (["-c", "all"], False),
        (["-c", "ext4/ordered,xfs"], False),
        (["-c", "all", "--require-all"], True),
        (["-c", "ext4/ordered", "--no-require-all"], False),
    ],
)
def test_a_mode_that_is_named_by_itself_is_required(
    options: list[str], required: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode that could not be run beside one that passed ended in 0, whoever had named it."""
    plan, *_ = begun_with(monkeypatch, *options, "--out", tmp_path)
    assert plan.require_all is required


Begun = tuple[Plan, tuple[Expectation, ...], str]


def begun_with(monkeypatch: pytest.MonkeyPatch, *options: object, command: str = "run") -> Begun:
    """The plan and the known failures with which a run would begin, and what was said."""
    seen: list[tuple[Plan, tuple[Expectation, ...]]] = []

    def keep(plan: Plan, _: object, __: object, known: tuple[Expectation, ...] = (), *___: object) -> None:
        seen.append((plan, known))
        raise UsageError("seen")

    monkeypatch.setattr(run, "new_run", keep)
    said = refused(command, *options)
    assert seen, said
    return *seen[0], said


def test_an_application_meets_torn_and_reordered_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An author who followed the documents tested prefixes of the log alone, and was not told."""
    monkeypatch.chdir(tmp_path)
    assert powercut("new", "my-db").exit_code == 0
    out = ("--out", tmp_path / "reports")
    plan, _, said = begun_with(monkeypatch, "-w", "workloads/my-db", *out)
    assert (plan.fault_models, plan.budget) == (("exhaustive",), Budget(400, 120))
    assert "--states exhaustive --budget 400,2m" in said
    plan, _, said = begun_with(monkeypatch, "-w", "workloads/my-db", "--budget", "9", *out)
    assert (plan.fault_models, plan.budget) == (("exhaustive",), Budget(9))
    assert "--budget 9" in said
    asked = ("-w", "workloads/my-db", "--states", "prefix"), ("-w", "workloads/my-db,append-fsync")
    for words in (*asked, ("-w", "append-fsync"), ("-w", "sqlite-wal-full"), ()):
        plan, _, said = begun_with(monkeypatch, *words, *out)
        assert (plan.fault_models, plan.budget, said) == (("prefix",), Budget(), "powercut: seen"), words


def test_a_bisection_tells_of_each_commit_in_a_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each commit printed the whole run, and git's own lines were lost among them."""
    with demo_run(tmp_path) as store:
        summary = summarise(store)
        monkeypatch.setattr(run, "execute", lambda *_: summary)
        told = {}
        for brief in (True, False):
            run._execute(Plan(configurations=[], workloads=[]), store, brief=brief)
            told[brief] = capsys.readouterr().out
    assert len(told[True].splitlines()) == 2
    assert told[True].splitlines()[0] in told[False]
    assert "reproduce:" in told[False]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ext4/orderd * durability", "no mode is called 'ext4/orderd' next: did you mean ext4/ordered"),
        ("ext4 * durability", "no mode is called 'ext4'"),
        ("ext4/ordered * durability,fsk", "did you mean fsck"),
    ],
)
def test_an_expected_failure_that_nothing_can_meet_is_refused(tmp_path: Path, line: str, says: str) -> None:
    """A mistyped mode expected nothing, in silence."""
    (tmp_path / "known").write_text(f"{line}  # why\n")
    told = refused("run", "-n", "-w", "append-fsync", "--expect", tmp_path / "known")
    assert says in told and f"{tmp_path}/known:1: " in told


def test_names_that_another_run_may_have_are_expected(tmp_path: Path) -> None:
    lines = ["ext[34]/*@raid1 * fsck", "*@4k my-db.s2 program", "any/posix append-* *", "xfs/* ace1-* size"]
    (tmp_path / "known").write_text("".join(f"{line}  # why\n" for line in lines))
    assert len(asked_expectations([tmp_path / "known"])) == len(lines)
    (tmp_path / "known").write_text("ext4/ordered append-fsync2 durability,  # of another job\n")
    assert asked_expectations([tmp_path / "known"])


def test_a_baseline_makes_its_findings_known_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with demo_run(tmp_path) as before:
        found = before.findings()
    _, known, _ = begun_with(monkeypatch, "--baseline", before.path, "--out", tmp_path / "now")
    for f in found:
        assert any(e.matches(f.case, f.symptom) for e in known)
        assert not any(e.matches(replace(f.case, workload="other"), f.symptom) for e in known)
        assert not any(e.matches(replace(f.case, mode="other"), f.symptom) for e in known)
        assert not any(e.matches(f.case, Symptom(f.symptom.oracle, "NAME: else")) for e in known)
    assert before.path.name in known[0].origin
    with RunStore.create(tmp_path, "empty", run_info()) as empty:
        empty.finish()
    refused = powercut("run", "-n", "--baseline", empty.path)
    assert refused.exit_code == ExitCode.USAGE
    assert "no baseline" in refused.output


def run_beside(
    baseline: Path, store: RunStore, monkeypatch: pytest.MonkeyPatch, *options: object
) -> tuple[Result, str]:
    """The command line of a run that came to `store`, beside a baseline; and its notes in the reports."""
    monkeypatch.setattr(run, "execute", lambda *_: summarise(store))
    monkeypatch.setattr(run, "new_run", lambda *_: contextlib.nullcontext(store))
    done = powercut("run", "-c", "ext4/ordered", "--no-why", "--baseline", baseline, *options)
    reports = ["summary.md", "report.html", "junit.xml", "summary.txt", "results.json"]
    told = [" ".join(unescape((store.path / name).read_text()).replace("\\", "").split()) for name in reports]
    told += [" ".join(text.split()) for text in (done.stdout, powercut("report", store.path).stdout)]
    assert len({text.count("may be older than") for text in told}) == 1
    return done, told[0]


def test_a_case_that_fails_beside_a_baseline_without_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another mode, or one that was stopped, was taken in silence, and every finding was new; and the
    note was on the terminal alone.
    """
    changes: dict[str, dict[str, Any]] = {
        "": {},
        "it was not checked there": {"case": replace(CASE, workload="other")},
        "a guest was lost": {"status": CaseStatus.UNKNOWN},
        "durability was not judged there": {"oracles": ("fsck",)},
        "3 of 31 different ones": {"coverage": Coverage(0, -1, 28, 3, "3 of 31 different ones")},
    }
    for number, (why, change) in enumerate(changes.items()):
        with a_run(tmp_path / f"now{number}", "now", LOST) as store:
            before = a_run(tmp_path / f"then{number}", "then", KEPT, **change)
            before.close()
            done, told = run_beside(before.path, store, monkeypatch)
        note = f"what {CASE} shows may be older than {before.path}: "
        assert (note in told) == bool(why), why
        assert why in told.partition(note)[2]
        assert done.exit_code == ExitCode.INCONSISTENT


def test_what_a_baseline_checked_itself_is_not_older_though_it_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_run(tmp_path / "now", "now", LOST) as store:
        before = a_run(tmp_path / "then", "now", KEPT, status=CaseStatus.UNKNOWN)
        before.close()
        assert "may be older" not in run_beside(before.path, store, monkeypatch)[1]
        notes = store.info.notes
    with RunStore.open(store.path) as again:
        assert again.info.notes == notes


def test_notes_on_a_baseline_are_on_standard_error_where_output_is_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = a_run(tmp_path / "then", "then", KEPT, oracles=("fsck",))
    before.close()
    with a_run(tmp_path / "now", "now", LOST) as store:
        monkeypatch.setattr(run, "execute", lambda *_: summarise(store))
        monkeypatch.setattr(run, "new_run", lambda *_: contextlib.nullcontext(store))
        done = powercut("run", "-c", "ext4/ordered", "--events", "-", "--baseline", before.path)
    assert "durability was not judged there" in " ".join(done.stderr.split())
    assert "may be older" not in done.stdout


def test_a_run_that_goes_on_is_noted_beside_the_baseline_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a resumed run showed had no note."""
    stale = Judgement((Violation("stale", "f", "f holds poison", "data", "poison", "poison f"),))
    before, other = a_run(tmp_path / "then", "then", LOST), a_run(tmp_path / "other", "other", stale)
    found = known_failures(before.findings(), f"baseline {before.path.name}")
    for store in (before, other):
        store.close()
    with a_run(tmp_path / "now", "now", stale) as store:
        store.set_expectations(found)
        store.finish(interrupted=True)
        monkeypatch.setattr(run, "execute", lambda *_: summarise(store))
        go_on = ("run", "--resume", store.path, "--no-why")
        assert "--baseline RUN" in powercut(*go_on).stderr
        assert "was not begun with the baseline" in refused(*go_on, "--baseline", other.path)
        done = powercut(*go_on, "--baseline", before.path)
    assert f"--baseline {before.path}" in done.stdout.partition("continue with: ")[2].splitlines()[0]


CASE = CaseId("ext4", "ordered", "append-fsync")
KEPT = Judgement()
LOST = Judgement((Violation("durability", "f", "f is gone", "f", "nothing", "gone f"),))


def a_run(
    root: Path,
    log: str,
    judgement: Judgement,
    *,
    case: CaseId = CASE,
    status: CaseStatus = CaseStatus.DONE,
    oracles: tuple[str, ...] = (),
    coverage: Coverage | None = None,
) -> RunStore:
    """A run of one case with one state, of the recording `log`, with its reports."""
    store = RunStore.create(root, "t", run_info())
    store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
    store.add_case(CaseInfo(case, "", "", "", oracles, 1, 1, log, coverage=coverage))
    store.put_judgements(case, [JudgedState(CrashState(1), "", judgement)])
    store.set_case_status(case, status, "a guest was lost" if status is CaseStatus.UNKNOWN else "")
    store.finish()
    write_reports(store)
    return store


def test_what_a_baseline_of_other_operations_shows_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of one's own ./append-fsync.toml was held against the append-fsync of Powercut: what it broke was
    expected, since "the baseline has it, too".
    """
    with demo_run(tmp_path / "before") as before:
        case = CaseId("ext4", "writeback-nodelalloc", "rename-replace")
        (there,) = (c for c in before.cases() if c.case == case)
    asked = ("-c", case.configuration, "--baseline", before.path, "--out", tmp_path / "now")
    mine = tmp_path / "rename-replace.toml"
    operations = [f'"{s.operation}"' for s in there.info.steps]
    for end, known in ((None, True), (-1, False)):
        text = f'summary = "mine"\noperations = [{", ".join(operations[:end])}]\n'
        mine.write_text(text)
        _, expected, _ = begun_with(monkeypatch, "-w", mine, *asked)
        assert any(e.applies_to(case) for e in expected) is known
    with demo_run(tmp_path / "after") as store, demo_run(tmp_path / "then") as then:
        for of in (store, then):
            of.put_plan(Plan(configurations=["ext4"], workloads=["all"]))
        mkdir = (Step(0, "mkdir d", 1, 2), *there.info.steps)
        then.add_case(replace(there.info, steps=mkdir))
        store.set_expectations(())
        (*told,) = (n.text for n in Baseline(then.path, ()).notes(store) if n.case == str(case))
    assert told == [f"what {case} shows may be older than {then.path}: its operations were others there"]


def test_what_another_program_shows_is_known_by_a_baseline_and_told(tmp_path: Path) -> None:
    """The program may be what changed: what its case showed before is known, and a note says of what."""
    run_step = (Step(0, "run /workload/my-db/run", 1, 2),)

    def with_program(folder: str) -> RunStore:
        store = demo_run(tmp_path / folder)
        store.put_plan(Plan(configurations=["ext4"], workloads=["all"]))
        store.put_pins({"workload append-fsync": folder})
        return store

    with with_program("then") as then, with_program("now") as now:
        for store in (then, now):
            for c in store.cases():
                store.add_case(replace(c.info, steps=run_step))
        known = known_failures(then.findings(), "baseline")
        now.set_expectations(known)
        told = [n.text for n in Baseline(then.path, known).notes(now)]
        same = Baseline(now.path, known).notes(now)
    case = "ext4-nobarrier/append-fsync"
    why = f"its program is not that of {then.path}"
    assert told == [f"what {case} is expected to show may be new: {why}"]
    assert same == ()


def test_a_packed_baseline_is_unpacked_where_the_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was unpacked in ./reports, whatever --out said."""
    with demo_run(tmp_path / "before") as before:
        bundle(before.path, tmp_path / "base.tar.zst")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    begun_with(monkeypatch, "--baseline", tmp_path / "base.tar.zst", "--out", tmp_path / "now")
    assert list(Path().iterdir()) == []
    assert len(list((tmp_path / "now" / "runs").glob(f"{before.path.name}.*"))) == 1


def test_smoke_takes_every_option_that_it_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--machine was offered, and not passed on."""
    monkeypatch.chdir(tmp_path)
    Path("bzImage").touch()
    own = ("--kernel", "bzImage", "--module", "a.ko", "--modules", "m")
    plan, *_ = begun_with(monkeypatch, "--machine", "qemu", "--accel", "tcg", *own, command="smoke")
    assert (plan.machine, plan.accel, plan.kernel) == ("qemu", "tcg", str(tmp_path / "bzImage"))
    assert (plan.replaced, plan.modules) == ([str(tmp_path / "a.ko")], str(tmp_path / "m"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-c", "ext4/journal"], "--config"),
        (["-w", "stale"], "--workload"),
        (["--random", "3"], "--random"),
        (["--shard", "1/2"], "--shard"),
        (["--fault-model", "drop"], "--fault-model"),
        (["--accel", "tcg"], "--accel"),
        (["--no-memo"], "--memo"),
        (["--log-size", "2048"], "--log-size"),
        (["--name", "other"], "--name"),
        (["-n"], "--no-action"),
        (["-c", "xfs", "-w", "stale"], "--config, --workload"),
    ],
)
def test_what_a_resumed_run_cannot_follow_is_refused(
    arguments: list[str], named: str, tmp_path: Path
) -> None:
    """`-c` and `-w` beside `--resume` were ignored: the run went on, and seemed to have done as told."""
    told = refused("run", "--resume", tmp_path, *arguments)
    assert f"a run is resumed as it was begun: {named} cannot change it" in told
    assert "start a new run" in told


def test_a_resumed_run_takes_another_number_of_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = noted(monkeypatch, "_execute")
    asked = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], jobs=2)
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.put_plan(asked)
    powercut("run", "--resume", tmp_path / "latest", "-j", "5")
    powercut("run", "--resume", tmp_path / "latest")
    assert [p.jobs for p in plans] == [5, 2]


def noted(monkeypatch: pytest.MonkeyPatch, function: str) -> list[Plan]:
    """The plans that a function of the command will be called with, instead of what it does."""
    plans: list[Plan] = []

    def note(plan: Plan, *_: object, **__: object) -> None:
        plans.append(plan)
        raise UsageError("seen")

    monkeypatch.setattr(run, function, note)
    return plans


def changed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> Path:
    """A run that is refused to be resumed: something is not what it was."""

    def refuse(*_: object) -> object:
        raise RunChanged("kernel that uml boots: none then, 1234 now", "start a new run", machine)

    monkeypatch.setattr(run, "execute", refuse)
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        return store.path


def test_a_run_of_before_another_machine_was_there_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `powercut kernel build`, no run begun before could be resumed, and nothing said how."""
    path = changed_run(tmp_path, monkeypatch, "qemu")
    done = powercut("run", "--resume", path)
    assert done.exit_code == ExitCode.UNDECIDED
    assert f"powercut run --resume {path} --machine qemu" in " ".join(done.stderr.split())
    plans = noted(monkeypatch, "execute")
    powercut("run", "--resume", path, "--machine", "qemu")
    powercut("run", "--resume", path)
    assert [p.machine for p in plans] == ["qemu", "auto"]


def test_a_finished_run_says_that_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed_run(tmp_path, monkeypatch, "qemu")
    case = CaseId("ext4", "ordered", "append-fsync")
    with RunStore.open(path) as store:
        put_case(store, CaseInfo(case, generated=1, distinct=1), Judgement())
        store.finish()
    assert "is finished: nothing was left to do" in printed("run", "--resume", path)
    with RunStore.open(path) as store:
        store.set_case_status(case, CaseStatus.UNKNOWN, "lost")
        store.finish()
    done = powercut("run", "--resume", path)
    assert done.exit_code == ExitCode.UNDECIDED
    assert f"powercut run --failed-from {path}" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("mode", "verdict", "own", "asks"),
    [
        ("ordered", CaseVerdict.PASS, True, True),
        ("ordered", CaseVerdict.FAIL, True, False),
        ("posix", CaseVerdict.PASS, True, False),
        ("ordered", CaseVerdict.PASS, False, False),
    ],
)
def test_a_program_that_kept_all_is_led_to_what_no_file_system_promises(
    mode: str, verdict: CaseVerdict, own: bool, asks: bool, tmp_path: Path
) -> None:
    """Its author stopped there: on ext4, XFS and btrfs a file that was written in place had been kept."""
    (tmp_path / "workload.toml").write_text('summary = ""\n')
    filesystem = "any" if mode == "posix" else "ext4"
    case = SimpleNamespace(case=CaseId(filesystem, mode, "mine"), verdict=verdict)
    plan = Plan(configurations=[f"{filesystem}/{mode}"], workloads=[str(tmp_path) if own else "stale"])
    told = run._asks_rules(plan, cast(Any, SimpleNamespace(cases=[case])))
    assert ("powercut run -c any -w" in told) is asks


def test_the_command_that_asks_the_rules_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-w tomb` is a set of Powercut's own, and `-w a b` a program with an argument."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "workload.toml").write_text('summary = "mine"\n')
    case = SimpleNamespace(case=CaseId("ext4", "ordered", "one"), verdict=CaseVerdict.PASS)
    plan = Plan(configurations=["ext4/ordered"], workloads=[str(tmp_path / n) for n in ("one", "two")])
    told = run._asks_rules(plan, cast(Any, SimpleNamespace(cases=[case])))
    assert told.endswith("powercut run -c any -w ./one,./two")


# --- which cases, and how long ---------------------------------------------------------------


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Plan:
    """The plan that these arguments make."""
    return begun_with(monkeypatch, *arguments)[0]


def test_schedules_are_further_workloads_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a run that is resumed, sharded or done again needs nothing else."""
    own = tmp_path / "own.toml"
    own.write_text('summary = ""\noperations = ["create f"]\n')
    plan = planned(monkeypatch, "-c", "ext4/ordered", "-w", f"stale,{own}", "--random", 1, "--schedules", 1)
    assert plan.workloads[:2] == ["stale", str(own)]
    names = [w.name for _, w in select_cases(plan)]
    assert names[:2] == ["stale", "own"]
    assert names[3:] == [f"{name}.s1" for name in names[:3]]
    typed = planned(monkeypatch, "-w", f"{own}.s2").workloads
    assert typed == [f"{own}.s2"]
    monkeypatch.chdir(tmp_path)
    assert planned(monkeypatch, "-w", "./own.toml.s2").workloads == typed
    assert not planned(monkeypatch, "-w", "stale").workloads[1:]


def test_cases_are_selected_by_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch, "-c", "ext4/ordered,xfs/default", "-w", "quick", "-k", "rename and not xfs")
    assert [f"{p.name} {w.name}" for p, w in select_cases(plan)] == [
        "ext4/ordered rename-new",
        "ext4/ordered replace-rename",
    ]


def test_an_expression_that_selects_nothing_is_an_error_with_an_example(tmp_path: Path) -> None:
    told = refused("run", "-c", "ext4/ordered", "-w", "quick", "-k", "nothing", "--out", tmp_path)
    assert "'nothing' selects none of 9 cases" in told
    assert "ext4-ordered/append-fsync" in told
    assert not list(tmp_path.iterdir())


LOST = Judgement((Violation("durability", "f", "lost", "f", "nothing", "f"),))


def earlier(root: Path, plan: Plan, cases: dict[CaseId, Judgement | None]) -> Path:
    """A run that judged these cases; None: could not decide."""
    with RunStore.create(root, "t", replace(INFO, kernel=KernelInfo("debian-6.12.117"))) as store:
        store.put_plan(plan)
        for case, judgement in cases.items():
            judged = (judgement,) if judgement else ()
            status = CaseStatus.DONE if judgement else CaseStatus.UNKNOWN
            put_case(store, CaseInfo(case, generated=1, distinct=1), *judged, status=status)
    return root / "latest"


def test_the_cases_that_failed_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workloads that are files of one's own are found where the run found them, if they are named again."""
    own = tmp_path / "own.toml"
    own.write_text('summary = ""\noperations = ["create f"]\n')
    before = earlier(
        tmp_path,
        Plan(configurations=["ext4/ordered", "ext4/journal"], workloads=[str(own), "stale"]),
        {CaseId("ext4", "ordered", "own"): Judgement(), CaseId("ext4", "journal", "own"): LOST},
    )
    assert f", add: -w {own}" in refused("run", "--failed-from", before)
    plan = planned(monkeypatch, "--failed-from", before, "-w", own)
    assert plan.only == ("ext4-journal/own",)
    assert [f"{p.name} {w.name}" for p, w in select_cases(plan)] == ["ext4/journal own"]


DEEP = Plan(
    configurations=["ext4/ordered"],
    workloads=["append-fsync", "stale"],
    fault_models=("sectors",),
    again=2,
    disk=("errors",),
    budget=Budget(400),
    kernel="debian-6.12",
    machine="qemu",
    oracles=("durability", "honesty"),
    completions=Completions.PROMPT,
    memo=False,
    sample_rate=0.5,
    log_bytes=2 << 30,
    cluster="tcp://elsewhere:8786",
    recordings="/elsewhere",
    minutes=3,
    jobs=7,
)
FAILED, OPEN = CaseId("ext4", "ordered", "append-fsync"), CaseId("ext4", "ordered", "stale")


def test_a_failure_is_looked_for_again_where_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that had failed in a state by sectors, on another kernel, was looked at in prefixes on the usual
    one: red turned green. What could not be decided was not looked at again at all. Nor would it be noticed
    if one that failed in a cut recovery, or on a faulty disk, were run again without.
    """
    before = earlier(tmp_path, DEEP, {FAILED: LOST, OPEN: None})
    plan = planned(monkeypatch, "--failed-from", before)
    assert plan.only == (str(FAILED), str(OPEN))
    looks = ("fault_models", "again", "disk", "budget")
    same = (*looks, "machine", "oracles", "completions", "memo", "sample_rate", "log_bytes")
    assert [getattr(plan, name) for name in same] == [getattr(DEEP, name) for name in same]
    assert plan.kernel == "debian-6.12.117"
    assert (plan.cluster, plan.recordings, plan.minutes) == ("", None, None)
    assert plan.jobs == (os.cpu_count() or 1)


def test_a_required_case_that_could_not_be_run_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave the run its exit code, and `--failed-from` went on without it: red turned green."""
    before = earlier(tmp_path, DEEP, {FAILED: LOST, OPEN: None})
    with RunStore.open(before) as store:
        store.set_case_status(OPEN, CaseStatus.NOT_RUN, "this host lacks something")
        store.update_info(replace(store.info, require_all=True))
    assert planned(monkeypatch, "--failed-from", before).only == (str(FAILED), str(OPEN))


def test_what_is_named_again_wins_over_what_is_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = earlier(tmp_path, DEEP, {FAILED: LOST})
    named = ["--kernel", "debian-6.1", "--states", "prefix", "--oracle", "honesty", "--memo", "--budget", "5"]
    plan = planned(monkeypatch, "--failed-from", before, *named)
    assert (plan.kernel, plan.fault_models, plan.oracles) == ("debian-6.1", ("prefix",), ("honesty",))
    assert (plan.memo, plan.budget, plan.machine) == (True, Budget(5), "qemu")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cluster", "local:2"], "--again, --disk: works on this host alone"),
        (["--oracle", "fsck"], "--disk errors: what comes of a faulty disk is judged by the oracle honesty"),
        (["--machine", "uml", "--accel", "tcg"], "--accel tcg is for QEMU; UML runs as a process"),
    ],
)
def test_what_is_named_has_to_go_with_what_is_inherited(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--cluster` was refused beside `--again`, and not beside a run that had it: on its workers the cut
    recoveries of findings were lost.
    """
    before = earlier(tmp_path, DEEP, {FAILED: LOST})
    monkeypatch.setattr(run, "need_cluster", lambda _: None)
    assert says in refused("run", "--failed-from", before, *words)


@pytest.mark.parametrize(
    ("more", "option"),
    [({"again": 1}, "--again"), ({"disk": ("errors",)}, "--disk"), ({"coverage": True}, "--coverage")],
)
def test_a_run_that_looks_where_a_cluster_cannot_is_not_resumed_on_one(
    more: dict[str, Any], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this command line was looked at, and the run itself had the option."""
    monkeypatch.setattr(run, "need_cluster", lambda _: None)
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], **more))
    told = refused("run", "--resume", tmp_path / "latest", "--cluster", "local:2")
    assert f"{option}: works on this host alone, and not on the cluster local:2" in told


def test_a_mode_that_is_on_its_image_already_is_named_with_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that runs a candidate of such a run again, `-c ext4/ordered@image --image FILE`, was
    refused: "takes no layer".
    """
    (tmp_path / "disk").touch()
    monkeypatch.setattr(run, "look_at", lambda path, _: ExistingDisk(str(path), "0" * 64, 1 << 20))
    for mode in ("ext4/ordered", "ext4/ordered@image"):
        plan = planned(monkeypatch, "-c", mode, "-w", "stale", "--image", tmp_path / "disk")
        assert plan.configurations == ["ext4/ordered@image"]
        again = run_again(plan, plan.configurations[0], "stale").removeprefix("powercut run ")
        assert planned(monkeypatch, *shlex.split(again)).configurations == ["ext4/ordered@image"]


@pytest.mark.parametrize("at", ["before its pins", "before a case", "reports"])
def test_a_run_that_is_interrupted_outside_of_its_cases_says_how_to_go_on(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`interrupted`, while reports were written, and no report. Then it named a directory that was gone, or
    two commands.
    """

    def interrupt(plan: Plan, store: RunStore, *_: object) -> None:
        if at != "before its pins":
            store.put_pins({"powercut": "1"})
        if at == "reports":
            store.finish()
        raise KeyboardInterrupt

    def carry_out() -> ExitCode:
        with new_run(plan, tmp_path, "test") as store:
            return shell_code(run._execute(plan, store))

    monkeypatch.setattr(run, "execute", interrupt)
    plan = Plan(configurations=["ext4/ordered"], workloads=["stale"])
    with pytest.raises(SystemExit):
        guarded(carry_out)()
    said = " ".join(capsys.readouterr().err.split())
    there = [str(path) for path in tmp_path.glob("runs/*-test")]
    if at == "before its pins":
        assert (there, said) == ([], "powercut: interrupted")
    else:
        again = f"powercut report {there[0]}" if at == "reports" else resume(plan, there[0])
        assert said == f"powercut: interrupted; continue with: {again}"


@pytest.mark.parametrize("ends", [KeyboardInterrupt, OutputClosed])
def test_a_run_that_is_gone_on_with_says_how_to_do_so_again(
    ends: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run --resume RUN | head -1` ended without a word."""

    def end(*_: object) -> None:
        raise ends

    monkeypatch.setattr(run, "execute", end)
    plan = Plan(configurations=["ext4/ordered"], workloads=["stale"])
    with RunStore.create(tmp_path, "test", INFO) as store, pytest.raises(ends) as caught:
        store.put_plan(plan)
        run._resumed(plan, store, None, None, None)
    assert caught.value.__notes__ == [resume(plan, str(store.path))]


def test_stacks_alone_are_refused_only_where_a_faulty_disk_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ran nothing where `--overnight` had asked for it: "leave out --disk", which nobody had typed."""
    both = ("-c", "ext4/ordered,ext4/ordered@raid1", "-w", "stale")
    assert planned(monkeypatch, *both, "--overnight", "-k", "raid1").disk == ("errors",)
    assert planned(monkeypatch, *both, "--disk", "errors").disk == ("errors",)
    says = "--disk errors is for single disks, and here are stacks alone: ext4/ordered@raid1 next: leave out"
    assert says in refused("run", *both, "--disk", "errors", "-k", "raid1")
    assert says in refused("run", "-c", "any,ext4/ordered@raid1", "-w", "stale", "--disk", "errors")


def test_a_mode_on_a_disk_that_nobody_named_is_refused() -> None:
    """It kept every promise, on a disk of mkfs."""
    said = refused("run", "-n", "-c", "ext4/ordered@image", "-w", "stale")
    assert "ext4/ordered@image begins with a disk that you have: which? next: add --image FILE" in said


@pytest.mark.parametrize(
    "words",
    [
        ["litmus", "-c", "ext4/ordered@image"],
        ["verdict", "-c", "ext4/ordered@image"],
        ["campaign", "-c", "ext4/ordered@image"],
    ],
)
def test_no_series_begins_with_a_disk_that_nobody_can_name(words: list[str], tmp_path: Path) -> None:
    said = refused(*words, "--out", tmp_path)
    assert "ext4/ordered@image begins with a disk that you have: which?" in said
    assert not list(tmp_path.iterdir())


def test_cases_that_are_run_again_begin_with_no_disk_that_nobody_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--failed-from RUN -c ext4/ordered@image` kept every promise, on a disk of mkfs."""
    plan = Plan(configurations=["ext4/ordered@image"], workloads=["stale"])
    begun = Before("r", plan, (CaseId.parse("ext4-ordered@image/stale"),), ())
    monkeypatch.setattr(run, "before", lambda *_: begun)
    for words in ([], ["-c", "ext4/ordered@image"]):
        said = refused("run", "--failed-from", tmp_path, *words, "--out", tmp_path)
        assert "ext4/ordered@image begins with a disk that you have: which?" in said


def test_what_is_inherited_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = earlier(tmp_path, DEEP, {FAILED: LOST, OPEN: None})
    *_, said = begun_with(monkeypatch, "--failed-from", before, "--budget", "5", "-k", "stale")
    assert "1 case that failed and 1 case left undecided" in said
    assert "as there: --kernel debian-6.12.117 --states sectors --again 2 --disk errors --oracle " in said
    assert "--oracle durability,honesty --machine qemu" in said
    assert "--completions prompt --no-memo --memo-sample 50 --log-size 2048" in said
    assert f"left out, since this command line chooses others: {FAILED}" in said


def test_a_program_that_was_copied_is_said_to_be_the_old_one(tmp_path: Path) -> None:
    """A program that had been mended failed again, since its copy had not."""
    folder = of_program(Path("/bin/true"), [], tmp_path)
    run_of_it = Before("r", Plan(configurations=["any"], workloads=[str(folder)]), (), ())
    (_, told, *_) = summary_of(run_of_it.plan, run_of_it, set())
    assert told == "true: as copied then; one mended since is run by: -- ./true"


def test_a_failed_case_that_is_gone_is_not_a_failure_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its workload renamed, the run of what was left was green."""
    gone = CaseId("ext4", "ordered", "renamed-since")
    before = earlier(
        tmp_path, Plan(configurations=["ext4/ordered"], workloads=["quick"]), {FAILED: LOST, gone: LOST}
    )
    for more in ([], ["-k", "renamed or append"]):
        told = refused("run", "--failed-from", before, *more, "--out", tmp_path / "reports")
        assert f"there is no such mode or workload any more: {gone}" in told
    assert planned(monkeypatch, "--failed-from", before, "-w", "append-fsync").workloads == ["append-fsync"]


def test_modules_that_only_the_earlier_run_names_are_not_taken_over(tmp_path: Path) -> None:
    before = earlier(tmp_path, msgspec.structs.replace(DEEP, replaced=["/elsewhere/evil.ko"]), {FAILED: LOST})
    told = refused("run", "--failed-from", before, "--out", tmp_path / "reports")
    assert "--module /elsewhere/evil.ko" in told


def test_a_run_without_failures_has_none_to_run_again(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO):
        pass
    assert "nothing to run again" in refused("run", "--failed-from", tmp_path / "latest")


def test_oracles_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, "--oracle", "fsck,durability").oracles == ("fsck", "durability")
    assert "did you mean durability?" in refused("run", "--oracle", "durabilty")


@pytest.mark.parametrize(
    ("options", "failures", "minutes"),
    [([], None, None), (["-x"], 1, None), (["--maxfail", "3"], 3, None), (["--minutes", "0.5"], None, 0.5)],
)
def test_limits_stand_in_the_plan(
    options: list[str], failures: int | None, minutes: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(monkeypatch, *options)
    assert (plan.max_failures, plan.minutes) == (failures, minutes)


def test_no_action_counts_what_it_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed 6 MB of names for ace2."""
    kernel = Kernel("k", Path("bzImage"), None, "")
    monkeypatch.setattr(run, "look_up", lambda plan: Planned(select_cases(plan), kernel, {}))
    shown = powercut("run", "-n", "-w", "ace1").stdout
    assert "ext4/ordered (mount -o data=ordered): 207 workloads (-v: names)" in shown
    assert "207 recordings, about " in shown
    assert len(shown) < 2_000
    assert len(powercut("run", "-n", "-v", "-w", "ace1").stdout) > 5_000


def test_no_action_reads_the_known_bugs_and_names_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken --known was found by the run, after its -n had passed; of --module nothing was said."""
    own, known = tmp_path / "ext4.ko", tmp_path / "known.toml"
    kernel = Kernel("k", Path("bzImage"), None, "", "", (own,))
    monkeypatch.setattr(run, "look_up", lambda plan: Planned(select_cases(plan), kernel, {}))
    known.write_text("")
    shown = powercut("run", "-n", "-w", "append-fsync", "--known", known)
    assert f"module: {own}, in place of the kernel's own" in shown.stdout.replace("\n", " ")
    known.write_text("[[bug\n")
    assert powercut("run", "-n", "-w", "append-fsync", "--known", known).exit_code == ExitCode.USAGE


def test_no_action_counts_the_recordings_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It announced recordings that another run does not have; the run itself refused all of them. A case
    without one was "not run" here, and UNKNOWN there.
    """
    kernel = Kernel("k", Path("bzImage"), None, "")
    monkeypatch.setattr(run, "look_up", lambda plan: Planned(select_cases(plan), kernel, {}))
    with RunStore.create(tmp_path, "first", run_info()) as store:
        store.add_case(CaseInfo(case := CaseId("ext4", "ordered", "append-fsync")))
        (store.case_directory(case) / "history.json").write_bytes(b"{}")
    words = ["run", "-n", "-w", "append-fsync", "--recordings", store.path, "-c"]
    shown = powercut(*words, "ext4/ordered,xfs/default").stdout
    assert "1 recording," in shown
    left = f"UNKNOWN: xfs/default: {store.path} has no recording of 1 workload"
    assert left.replace(" ", "") in "".join(shown.split())
    none = powercut(*words, "xfs/default")
    assert none.exit_code == ExitCode.UNDECIDED
    assert "has none of the 1 recordings requested" in " ".join(none.stderr.split())


def test_what_was_recorded_is_not_estimated_again() -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["quick"], recordings="/w", jobs=2)
    cases = select_cases(plan)
    anew = estimate(msgspec.structs.replace(plan, recordings=None), cases, "uml")
    assert estimate(plan, cases, "uml").seconds < anew.seconds


def test_no_action_is_not_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """-n of all modes under ace2 said nothing for minutes."""
    monkeypatch.setattr("harness.host.progress.PLAIN_INTERVAL_S", 0.01)
    heard, say = threading.Event(), errors.say

    def saying(text: str) -> None:
        say(text)
        heard.set()

    def look_up(plan: Plan) -> Planned:
        assert heard.wait(60)
        return Planned(select_cases(plan), Kernel("k", Path("bzImage"), None, ""), {})

    monkeypatch.setattr(errors, "say", saying)
    monkeypatch.setattr(run, "look_up", look_up)
    assert "finding the kernel and the cases" in powercut("run", "-n", "-w", "quick").stderr


def test_a_file_system_that_writes_less_has_fewer_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mode was said to have as many, though NILFS2 has half of what ext4 has."""
    kernel = Kernel("k", Path("bzImage"), None, "")
    monkeypatch.setattr(run, "look_up", lambda plan: Planned(select_cases(plan), kernel, {}))
    shown = [powercut("run", "-n", "-w", "quick", "-c", c).stdout for c in ("ext4/ordered", "nilfs2/default")]
    assert ["about 920" in shown[0], "about 420" in shown[1]] == [True, True], shown


def test_no_action_leaves_out_what_the_machine_cannot_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It planned bcachefs on UML, whose kernel lacks it, and named a kernel that UML cannot boot."""
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\n# CONFIG_BCACHEFS_FS is not set\n")
    built = Kernel("built", tmp_path / "image", None, "")
    monkeypatch.setattr(guest_specs, "built_kernel", lambda name, version: built)
    shown = powercut("run", "-n", "-c", "ext4/ordered,bcachefs/default", "-w", "quick", "--machine", "uml")
    assert f"kernel: built ({tmp_path}/image)" in shown.stdout
    refused = "not run: bcachefs/default: UML built is built without its drivers (CONFIG_BCACHEFS_FS)"
    assert refused in shown.stdout
    assert "9 recordings" in shown.stdout
    nothing = powercut("run", "-n", "-c", "bcachefs/default", "-w", "quick", "--machine", "uml")
    assert nothing.exit_code == ExitCode.NOTHING_RUN


def test_a_program_is_asked_of_rules_as_it_is_by_then(tmp_path: Path) -> None:
    """The copy that was tested, which the command named, does not change with the program."""
    case = SimpleNamespace(case=CaseId("ext4", "ordered", "mine"), verdict=CaseVerdict.PASS)
    folder = of_program(Path("/bin/true"), [], tmp_path)
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[str(folder.resolve())],
        argv=["run", "--", "./my-test", "two words"],
    )
    told = run._asks_rules(plan, cast(Any, SimpleNamespace(cases=[case])))
    assert told.endswith("powercut run -c any -- ./my-test 'two words'")
    assert is_copy(folder)
    assert not is_copy(folder.parent)


def test_an_option_behind_the_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-- ./my-test --states sectors`: the program got it, in silence."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-test").write_text("#!/bin/sh\n")
    done = powercut("run", "-n", "-c", "any", "--", "./my-test", "--states", "sectors", "-q")
    assert "--states: given to ./my-test; options of powercut stand before --" in done.stderr


def test_an_application_that_lies_in_the_checkout_is_the_users_own_by_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-w my-db` looked at prefixes alone, and passed, where `-w workloads/my-db` looked at legal states."""
    place = tmp_path / "workloads"
    shutil.copytree(resource("workloads"), place)
    monkeypatch.setattr(load, "resource", tmp_path.joinpath)
    monkeypatch.chdir(tmp_path)
    assert powercut("new", "my-db").exit_code == 0
    own = ("my-db", "my-db-forgets", "workloads/my-db", "my-db.s2", "my-db,./workloads/my-db")
    for words in own:
        assert run._are_own([absolute_word(w) for w in words.split(",")]), words
    for words in (
        "sqlite",
        "workloads/sqlite",
        "sqlite-wal-full",
        "applications",
        "append-fsync",
        "my-db,stale",
    ):
        assert not run._are_own([absolute_word(w) for w in words.split(",")]), words


def test_the_applications_of_this_installation_are_listed() -> None:
    """Another one in its folder counts as the user's own."""
    place = resource("workloads")
    names = (place / "applications.txt").read_text().split()
    there = {str(path.parent.relative_to(place)) for path in place.rglob("workload.toml")}
    assert names == sorted(names) and set(names) <= there
    tracked = subprocess.run(
        ["git", "ls-files", "*/workload.toml"], cwd=place, capture_output=True, text=True, check=False
    ).stdout.split()
    assert {name.removesuffix("/workload.toml") for name in tracked} <= set(names)
    assert not any(is_own_application(str(place / name)) for name in names)


def test_states_that_do_not_exist_are_refused_before_anything_is_said_of_them() -> None:
    told = refused("run", "-n", "-c", "any", "-w", "stale", "--states", "banana")
    assert told.startswith("powercut: no crash states are called 'banana'")


def test_rules_alone_are_not_told_which_states_of_a_disk_are_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-test").write_text("#!/bin/sh\n")
    for mode, said in (("any", False), ("any,ext4/ordered", True)):
        done = powercut("run", "-n", "-c", mode, "--", "./my-test")
        assert "--budget 400,2m" in done.stderr
        assert ("--states prefix" in done.stderr) is said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bisect", "-n"], "--bisect runs, and -n runs nothing"),
        (["--machine", "uml", "--accel", "kvm", "-n"], "--accel kvm is for QEMU; UML runs as a process"),
        (["--seed", "5"], "--seed means nothing here: a seed is for --random"),
        (["--no-memo", "--memo-sample", "5"], "--memo-sample means nothing here: --no-memo leaves no answer"),
        (["--recordings", ".", "--clock", "real"], "--clock means nothing here: --recordings judges"),
        (["--failed-from", ".", "--schedules", "2"], "--schedules means nothing here: --failed-from runs"),
        (["--failed-from", ".", "--random", "2"], "--random means nothing here: --failed-from runs"),
        (["-v"], "--verbose means nothing here: more is said with -n alone"),
    ],
)
def test_options_that_do_not_go_together_are_told_apart(words: list[str], says: str) -> None:
    """`--failed-from RUN --schedules 2` was taken, and no schedule was run."""
    done = powercut("run", "-c", "ext4/ordered", "-w", "append-fsync", *words)
    assert done.exit_code in (ExitCode.USAGE, ExitCode.BISECT_STOP)
    assert says in " ".join(done.stderr.split())


def test_rules_that_had_nothing_to_judge_say_what_they_judge() -> None:
    """`-c any -w append-fsync` ended with 4 and no next step. That of a program whose interpreter is missing
    was to name one that has a check.
    """
    no_check, no_start = "append-fsync has no check of its own, and", "there is no program /usr/bin/nosuch"
    cases = [
        SimpleNamespace(case=CaseId("any", "posix", "append-fsync"), verdict=verdict, reason=why)
        for verdict, why in (
            (CaseVerdict.NOT_RUN, no_check),
            (CaseVerdict.PASS, ""),
            (CaseVerdict.NOT_RUN, no_start),
        )
    ]
    plan = Plan(configurations=["any/posix"], workloads=["append-fsync"])
    says = [
        run._asks_rules(plan, cast(Any, SimpleNamespace(cases=of)))
        for of in (cases[:1], cases[:2], cases[2:])
    ]
    assert says == ["next: name a program that has a check: -w workloads/my-db, or -- ./my-test", "", ""]


def test_a_plan_that_looks_harder_is_not_estimated_as_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--overnight`, ten minutes a case, was 3 min 20 s."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=["append-fsync"],
        fault_models=("exhaustive",),
        again=1,
        disk=("errors",),
        budget=Budget(5000, 600),
        jobs=2,
    )
    said = estimate(plan, select_cases(plan), "uml").text
    assert "--again and --disk look at each again" in said
    assert said.endswith("10 min 6 s if all of it is used")


@pytest.mark.parametrize("option", [["--again", "1"], ["--disk", "errors"], ["--coverage"]])
def test_looks_that_rules_cannot_have_are_refused_alone_and_told_beside_a_kernel(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--again`, and so `--thorough`, made a mode that is only rules "not run": the program that
    `-c any/posix,ext4/ordered` names was not asked of the rules, and the run ended with 4.
    """
    told = refused("run", "-n", "-c", "any/posix", "-w", "git-commit-default", *option)
    assert f"{option[0]}: a mode that is only rules has no kernel that recovers" in told
    modes = ["-c", "any/posix,ext4/ordered", "-w", "git-commit-default", "--out", tmp_path]
    plan, _, said = begun_with(monkeypatch, *modes, *option)
    assert f"any/*: {option[0]} is for the modes of kernels" in said
    monkeypatch.setattr("harness.run.recording_machine", lambda *_: "qemu")
    assert "any/posix" not in look_up(msgspec.structs.replace(plan, coverage=False)).lacking
    _, _, said = begun_with(monkeypatch, "-c", "any/posix", "--thorough", "--out", tmp_path)
    assert "any/*: --states, --again are for the modes of kernels" in said


def test_rules_take_a_program_once_and_no_schedule_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk completes nothing under rules: each schedule was the same case again."""
    plan = planned(monkeypatch, "-c", "any/posix,ext4/ordered", "-w", "stale", "--schedules", "2")
    names = [(p.filesystem, w.name) for p, w in select_cases(plan)]
    assert names == [("any", "stale"), *(("ext4", f"stale{s}") for s in ("", ".s1", ".s2"))]
    alone = msgspec.structs.replace(plan, configurations=["any/posix"], workloads=["stale.s1"])
    with pytest.raises(UsageError, match=r"^stale.s1: a mode that is only rules tries every order"):
        select_cases(alone)
