"""`powercut compare` and `list`: what is kept, told again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.campaigns.journal import CampaignPlan
from harness.cli.stored import stored_rows
from harness.errors import ExitCode
from harness.measurements.directory import write_measurements
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.plan import Completions, Plan
from harness.releases.results import SweepPlan
from harness.series.journal import Done, End, Ended, Journal, Known, Started
from harness.series.work import begin
from harness.store import RunStore
from harness.store.garbage import Kept
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Coverage,
    DrawnEntry,
    FaultyDiskResult,
    How,
    JudgedState,
    NestedCrashes,
)
from harness.tests.cli.runner import powercut, refused
from harness.tests.report.demo import demo_run, run_info
from harness.tests.report.test_measurements import MEASUREMENT
from harness.workloads.load import workload_sets


@pytest.mark.parametrize("what", ["filesystems", "workloads", "kernels"])
def test_list_names_what_there_is(what: str) -> None:
    done = powercut("list", what)
    assert done.exit_code == 0
    assert {"filesystems": "ext4/ordered", "workloads": "append-fsync", "kernels": "debian-6.12"}[
        what
    ] in done.output


def test_modes_are_listed_by_their_own_name_too() -> None:
    """Every page says modes, and the list was to be asked for file systems."""
    assert powercut("list", "modes").output == powercut("list", "filesystems").output
    named = (powercut("list", word, "--json").output for word in ("modes", "filesystems"))
    assert len({*named}) == 1


def test_a_folder_of_many_workloads_is_one_row() -> None:
    """A hundred rows of one folder pushed the workloads of `all` off the screen."""
    rows = [line.split()[0] for line in powercut("list", "workloads").output.splitlines()]
    assert "fstests" in rows
    assert "journal-wrap" in rows
    assert not set(workload_sets()["fstests"]) & set(rows)


@pytest.mark.parametrize(("count", "size_mib", "told"), [(31, 0, True), (2, 2048, True), (30, 0, False)])
def test_runs_that_pile_up_are_mentioned_with_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, size_mib: int, told: bool
) -> None:
    """Many small ones were, without their size; a few that fill the disk were not."""
    kept = [Kept(tmp_path, (size_mib << 20) // count, 0)] * count
    monkeypatch.setattr("harness.cli.report.kept_runs", lambda reports: kept)
    done = powercut("list", "runs", "--out", tmp_path)
    assert (f"{count} runs, {size_mib:,} MiB; powercut gc" in done.stdout) is told


def test_list_runs_of_an_empty_folder_is_empty_and_says_so(tmp_path: Path) -> None:
    """Nothing was said, also of a folder that does not exist."""
    done = powercut("list", "runs", "--out", tmp_path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"no run in {tmp_path}/runs" in " ".join(done.stderr.split())
    assert "nope" in refused("list", "runs", "--out", tmp_path / "nope")


def test_list_runs_knows_every_kind_of_run_and_how_it_ended(tmp_path: Path) -> None:
    """An interrupted run was called finished, and no matrix, history, trace or campaign was there."""
    done = {}
    for name, finished, how in (("whole", True, False), ("cut", True, True), ("killed", False, False)):
        with RunStore.create(tmp_path, name, replace(run_info(), argv=("run", name))) as store:
            if finished:
                store.finish(interrupted=how)
            done[store.path.name] = {"whole": "finished", "cut": "interrupted", "killed": "not finished"}[
                name
            ]
    run = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], argv=["campaign"])
    for name, end in (("campaign", End.COMPLETE), ("night", End.TIME_UP), ("stopped", End.INTERRUPTED)):
        path = begin(CampaignPlan(run=run, generators=("ace1",)), tmp_path, name)
        journal = Journal(path, Known(Done))
        journal.put(Started(when="2026-11-20", powercut="1"))
        journal.put(Ended(when="2026-11-21", how=end))
        done[path.name] = {"campaign": "finished", "night": "stopped: time up", "stopped": "interrupted"}[
            name
        ]
    path = begin(
        SweepPlan(title="history", plan=run, kernels=["debian-6.1", "debian-6.12"]), tmp_path, "history"
    )
    Journal(path, Known(Done)).put(Started(when="2026-11-20", powercut="1"))
    done[path.name] = "not finished"
    (measured := tmp_path / "runs" / "20261120-000000-trace").mkdir()
    write_measurements(measured, [MEASUREMENT])
    done[measured.name] = "finished"
    for name, why in (("measure-stopped", "4 of 6 samples: not reached"), ("measure-part", "xfs: no module")):
        path = tmp_path / "runs" / f"20261120-000000-{name}"
        path.mkdir()
        (path / "plan.json").write_text('{"kernel": "debian-6.12", "argv": ["measure", "x"]}')
        write_measurements(path, [msgspec.structs.replace(MEASUREMENT, missing=[why])])
        done[path.name] = "not finished" if "reached" in why else "finished"
    (damaged := tmp_path / "runs" / "20261120-000001-odd").mkdir()
    (damaged / "plan.json").write_text("[" * 9_000)
    done[damaged.name] = "cannot be read"
    told = json.loads(powercut("list", "runs", "--out", tmp_path, "--json").stdout)
    assert {Path(row["path"]).name: row["state"] for row in told} == done
    assert next(row["kernel"] for row in told if "history" in row["path"]) == "debian-6.1, debian-6.12"
    assert [row["path"] for row in told] == sorted(row["path"] for row in told)


def recorded(
    root: Path,
    *verdicts: Violation | None,
    log_hash: str = "log",
    status: CaseStatus = CaseStatus.DONE,
    coverage: Coverage | None = None,
    oracles: tuple[str, ...] = (),
    states: tuple[str, ...] = ("prefix",),
    unknown: bool = False,
    again: tuple[NestedCrashes, ...] = (),
    disk: FaultyDiskResult | None = None,
    at: CrashState | None = None,
    completions: Completions = Completions.HOLD,
) -> Path:
    """A run of one case with a state for each of `verdicts`; None passes, or is `unknown`. `at`: the state of
    the last one. Entry 5 of the log writes two blocks, each other one block.
    """
    case = CaseId("ext4", "ordered", "append-fsync")
    with RunStore.create(root, "test", run_info()) as store:
        plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], fault_models=states)
        errs = disk.ways if disk else ()
        looks = {"again": len(again), "disk": errs, "completions": completions}
        store.put_plan(msgspec.structs.replace(plan, **looks))
        log = tuple(DrawnEntry(i, "write", 80 * i, 16 if i == 5 else 8) for i in range(9))
        info = CaseInfo(case, "", "", "", (), len(verdicts), len(verdicts), log_hash, timeline=log)
        store.add_case(replace(info, coverage=coverage, oracles=oracles, again=again, disk=disk))
        named = [CrashState(i) for i in range(len(verdicts))]
        named = [*named[:-1], at] if at else named
        store.put_judgements(
            case,
            [
                JudgedState(state, str(i), Judgement((v,) if v else (), ("lost",) * unknown), How.JUDGED)
                for i, (state, v) in enumerate(zip(named, verdicts, strict=True))
            ],
        )
        store.set_case_status(case, status)
        return store.path


FSCK = Violation("fsck", "file system", "dirty", "clean", "dirty", "dirty")
LOST = Violation("durability", "f", "f is gone", "f", "nothing", "gone f")
STALE = Violation("stale", "f", "f holds poison", "data", "poison", "poison f")


def test_compare_finds_a_state_that_differs(tmp_path: Path) -> None:
    first = recorded(tmp_path / "a", None, LOST, None)
    for second, differences in (
        (recorded(tmp_path / "b", None, LOST, None), 0),
        (recorded(tmp_path / "c", None, STALE, None), 1),
        (recorded(tmp_path / "d", None, LOST, LOST), 1),
    ):
        done = powercut("compare", first, second)
        told = {0: "0 differences", 1: "1 difference"}[differences]
        assert done.output.endswith(f"3 crash states compared, {told}\n")
        assert done.exit_code == (ExitCode.INCONSISTENT if differences else 0)


def test_compare_counts_the_states_that_one_run_lacks(tmp_path: Path) -> None:
    """A run of 3 states against one of 1 was "0 differences", exit 0."""
    first, second = recorded(tmp_path / "a", None, None, None), recorded(tmp_path / "b", None)
    for sides, lacking in (((first, second), "second"), ((second, first), "first")):
        done = powercut("compare", *sides)
        assert done.exit_code == ExitCode.INCONSISTENT
        assert f"not judged in the {lacking}" in done.output
        assert "1 crash state compared, 2 differences, 2 of them in states that only one run" in done.output


def test_what_a_guest_said_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """A name from a crashed disk could clear the screen, or begin a line that reads like ours."""
    evil = Violation("durability", "f", "gone", "f", "nothing", "x\x1b[2J\r\n0 crash states compared")
    done = powercut("compare", recorded(tmp_path / "a", evil), recorded(tmp_path / "b", None))
    assert "\x1b" not in done.output
    assert r"x\x1b[2J\r\n0 crash states compared" in done.output
    assert len(done.output.splitlines()) == 2


def test_list_runs_shows_what_it_cannot_trust_as_text(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "1"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"kernel": {"name": "k\\u001b[31m"}, "argv": ["a\\nb"]}')
    done = powercut("list", "runs", "--out", tmp_path)
    assert r"k\x1b[31m" in done.output
    assert r"a\nb" in done.output
    assert len(done.output.splitlines()) == 1


def test_compare_by_states_refuses_recordings_that_differ(tmp_path: Path) -> None:
    sides = recorded(tmp_path / "a", None), recorded(tmp_path / "b", None, log_hash="other")
    assert "--recordings" in refused("compare", *sides, "--by", "states")


# --- by findings -----------------------------------------------------------------------------


def test_a_page_compares_findings_of_the_same_recordings_too(tmp_path: Path) -> None:
    """It was refused with `add --by findings`: there is no other page."""
    sides = recorded(tmp_path / "a", LOST), recorded(tmp_path / "b", LOST)
    assert powercut("compare", *sides, "--html", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").is_file()
    refused("compare", *sides, "--html", tmp_path / "no.html", "--by", "states")


def test_recordings_of_their_own_are_compared_by_finding(tmp_path: Path) -> None:
    """Before and after a patch could not be compared: "judged different recordings"."""
    before = recorded(tmp_path / "a", None, LOST, STALE)
    after = recorded(tmp_path / "b", STALE, FSCK, None, None, log_hash="other")
    done = powercut("compare", before, after)
    assert done.exit_code == ExitCode.INCONSISTENT
    new, again, still, fixed, headline = done.output.splitlines()
    assert again.startswith("reproduce: powercut repro ext4-ordered/append-fsync@")
    assert new.startswith("new: ext4-ordered/append-fsync fsck: dirty, 1 state")
    assert still.startswith("still there: ext4-ordered/append-fsync stale: f holds poison")
    assert fixed.startswith("fixed: ext4-ordered/append-fsync durability: f is gone")
    assert headline == "1 new, 1 still there, 1 fixed; 1 case was decided in both runs"
    assert powercut("compare", after, before, "--oracle").exit_code == ExitCode.USAGE


def test_a_patch_that_breaks_nothing_new_is_consistent(tmp_path: Path) -> None:
    before, after = recorded(tmp_path / "a", LOST), recorded(tmp_path / "b", None, log_hash="other")
    done = powercut("compare", before, after)
    assert (done.exit_code, done.output.splitlines()[0][:5]) == (ExitCode.CONSISTENT, "fixed")


def test_what_the_second_run_did_not_decide_is_not_fixed(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", LOST)
    after = recorded(tmp_path / "b", None, log_hash="other", status=CaseStatus.UNKNOWN)
    done = powercut("compare", before, after)
    assert done.exit_code == ExitCode.NOTHING_RUN
    assert "not looked at again: ext4-ordered/append-fsync durability" in done.output
    assert "decided in the first, undecided in the second" in done.output


LEGAL = Coverage(crash_times=14, losses=None, unexplored=0, visits=40)
CUT = Coverage(crash_times=14, losses=1, unexplored=64, visits=40, why="the budget: 40 states a case")


EXHAUSTIVE, SECTORS, PREFIX = ("exhaustive",), ("sectors",), ("prefix",)


@pytest.mark.parametrize(
    ("first", "second", "change"),
    [
        ((PREFIX, None), (PREFIX, None), "fixed"),
        ((PREFIX, None), (EXHAUSTIVE, LEGAL), "fixed"),
        ((PREFIX, None), (EXHAUSTIVE, CUT), "not looked at again"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, CUT), "not looked at again"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, LEGAL), "fixed"),
        ((EXHAUSTIVE, LEGAL), (PREFIX, None), "not looked at again"),
        ((EXHAUSTIVE, LEGAL), (EXHAUSTIVE, CUT), "not looked at again"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, replace(CUT, losses=0)), "not looked at again"),
        ((SECTORS, LEGAL), (EXHAUSTIVE, LEGAL), "not looked at again"),
        ((("prefix", "torn"), None), (PREFIX, None), "not looked at again"),
        ((PREFIX, None), (PREFIX, Coverage(0, -1, 36, 5, "5 of 41 states")), "not looked at again"),
    ],
)
def test_what_the_second_run_did_not_look_for_is_not_fixed(
    tmp_path: Path,
    first: tuple[tuple[str, ...], Coverage | None],
    second: tuple[tuple[str, ...], Coverage | None],
    change: str,
) -> None:
    """A run of prefixes `fixed` what a run of all legal states had found; one of blocks what only sectors
    show; and one whose budget ended at other states of the same depth.
    """
    before = recorded(tmp_path / "a", LOST, states=first[0], coverage=first[1])
    after = recorded(tmp_path / "b", None, log_hash="other", states=second[0], coverage=second[1])
    done = powercut("compare", before, after)
    assert done.output.startswith(f"{change}: ext4-ordered/append-fsync durability")
    assert done.exit_code == (ExitCode.CONSISTENT if change == "fixed" else ExitCode.UNDECIDED)
    said = "neither run covered all" if first == second else "the second run did not cover as much"
    assert (said in done.output) == (change != "fixed")
    counted = "decided in both runs" + ", 0 of them as far in the second as in the first" * (
        change != "fixed"
    )
    assert done.output.splitlines()[-1].endswith(counted)


LEFT = Coverage(0, -1, 36, 5, "5 of 41 states")
CUT_TWO = CrashState(0, again=(CrashState.parse("@t9-3,4"),))
CUT_AGAIN = CrashState(0, again=(CrashState.parse("@t3"),))
FAULTY = CrashState.parse("@0+eio-read2048")
CUTS = NestedCrashes(1, 3, 0, LEGAL)
ERRED = FaultyDiskResult(("errors",), 3, 0, 9, 9, ())


@pytest.mark.parametrize(
    ("at", "first", "second", "change"),
    [
        (CUT_AGAIN, {"again": (CUTS,)}, {}, "not looked at again"),
        (CUT_AGAIN, {"again": (CUTS,)}, {"again": (CUTS,)}, "fixed"),
        (CUT_AGAIN, {"again": (CUTS,)}, {"again": (replace(CUTS, coverage=CUT),)}, "not looked at again"),
        (FAULTY, {"disk": ERRED}, {}, "not looked at again"),
        (FAULTY, {"disk": ERRED}, {"disk": replace(ERRED, ways=("bit-rot",))}, "not looked at again"),
        (FAULTY, {"disk": ERRED}, {"disk": ERRED}, "fixed"),
        (CrashState(1), {"again": (CUTS,), "disk": ERRED}, {}, "fixed"),
    ],
)
def test_what_only_a_cut_recovery_or_an_faulty_disk_disk_showed_is_not_fixed_by_a_run_without(
    tmp_path: Path, at: CrashState, first: dict[str, Any], second: dict[str, Any], change: str
) -> None:
    """`1 fixed`, exit 0, of a finding of `--again`, and `28 fixed` of findings of `--disk`, by a second run
    that had neither.
    """
    before = recorded(tmp_path / "a", None, FSCK, at=at, **first)
    after = recorded(tmp_path / "b", None, log_hash="other", **second)
    done = powercut("compare", before, after)
    assert done.output.startswith(f"{change}: ext4-ordered/append-fsync fsck")
    lacking = "the second" in done.output
    assert lacking == (first != second), "a run that looked at less says so, whatever it found"
    assert done.exit_code == (ExitCode.UNDECIDED if lacking else ExitCode.CONSISTENT)


@pytest.mark.parametrize(
    ("first", "second", "at", "change"),
    [
        ((PREFIX, None), (PREFIX, None), "@1", "new"),
        ((PREFIX, None), (PREFIX, LEFT), "@1", "new"),
        ((PREFIX, LEFT), (PREFIX, None), "@1", "not looked at before"),
        ((PREFIX, LEFT), (PREFIX, LEFT), "@1", "not looked at before"),
        ((PREFIX, None), (("prefix", "drop"), None), "@1", "new"),
        ((PREFIX, None), (("prefix", "drop"), None), "@2-0", "not looked at before"),
        ((("prefix", "drop"), None), (("prefix", "torn"), None), "@2/t1", "not looked at before"),
        ((PREFIX, None), (EXHAUSTIVE, LEGAL), "@t6-2", "not looked at before"),
        ((EXHAUSTIVE, LEGAL), (PREFIX, None), "@1", "new"),
        ((EXHAUSTIVE, LEGAL), (EXHAUSTIVE, LEGAL), "@t6-2", "new"),
        ((EXHAUSTIVE, LEGAL), (EXHAUSTIVE, CUT), "@t6-2,5", "new"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, LEGAL), "@t6-2", "new"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, CUT), "@t6=2", "new"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, CUT), "@t6", "new"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, LEGAL), "@t6-5", "not looked at before"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, LEGAL), "@t6-5.1", "new"),
        ((EXHAUSTIVE, CUT), (EXHAUSTIVE, LEGAL), "@t6-2,5.1", "not looked at before"),
        ((EXHAUSTIVE, CUT), (PREFIX, None), "@1", "not looked at before"),
        ((EXHAUSTIVE, LEGAL), (SECTORS, LEGAL), "@t6-5/3", "not looked at before"),
        ((EXHAUSTIVE, LEGAL), (SECTORS, LEGAL), "@t6-5", "new"),
        ((SECTORS, LEGAL), (EXHAUSTIVE, LEGAL), "@t6-5.1", "new"),
    ],
)
def test_what_the_first_run_did_not_look_for_is_not_new(
    tmp_path: Path,
    first: tuple[tuple[str, ...], Coverage | None],
    second: tuple[tuple[str, ...], Coverage | None],
    at: str,
    change: str,
) -> None:
    """`18 new`, exit 1, of states that no run of prefixes has, and `1 new` behind a budget that had ended at
    17 states of 47. Entry 5 writes two blocks, entry 2 one.
    """
    before = recorded(tmp_path / "a", None, None, states=first[0], coverage=first[1])
    state = CrashState.parse(at)
    after = recorded(
        tmp_path / "b", None, LOST, log_hash="other", states=second[0], coverage=second[1], at=state
    )
    done = powercut("compare", before, after)
    assert done.output.startswith(f"{change}: ext4-ordered/append-fsync durability")
    assert done.exit_code == (ExitCode.INCONSISTENT if change == "new" else ExitCode.UNDECIDED)
    assert ("such a state may not have been looked at there" in done.output) == (change != "new")


@pytest.mark.parametrize(
    ("at", "first", "second", "change"),
    [
        (CUT_AGAIN, {}, {"again": (CUTS,)}, "not looked at before"),
        (CUT_AGAIN, {"again": (CUTS,)}, {"again": (CUTS,)}, "new"),
        (CUT_AGAIN, {"again": (replace(CUTS, coverage=CUT),)}, {"again": (CUTS,)}, "new"),
        (CUT_TWO, {"again": (replace(CUTS, coverage=CUT),)}, {"again": (CUTS,)}, "not looked at before"),
        (CUT_TWO, {"again": (replace(CUTS, not_cut=1),)}, {"again": (CUTS,)}, "not looked at before"),
        (CUT_TWO, {"again": (CUTS,)}, {"again": (replace(CUTS, coverage=CUT),)}, "new"),
        (FAULTY, {}, {"disk": ERRED}, "not looked at before"),
        (FAULTY, {"disk": replace(ERRED, ways=("bit-rot",))}, {"disk": ERRED}, "not looked at before"),
        (FAULTY, {"disk": ERRED}, {"disk": ERRED}, "new"),
        (CrashState(1), {}, {"again": (CUTS,), "disk": ERRED}, "new"),
    ],
)
def test_what_only_a_cut_recovery_or_a_faulty_disk_shows_is_new_beside_a_run_with_these(
    tmp_path: Path, at: CrashState, first: dict[str, Any], second: dict[str, Any], change: str
) -> None:
    before = recorded(tmp_path / "a", None, **first)
    after = recorded(tmp_path / "b", None, FSCK, at=at, log_hash="other", **second)
    done = powercut("compare", before, after)
    assert done.output.startswith(f"{change}: ext4-ordered/append-fsync fsck")


def test_what_a_cut_recovery_shows_is_told_beside_how_far_recoveries_were_cut(tmp_path: Path) -> None:
    """The reason was "such a state may not have been looked at there; covered there: every state"."""
    cuts = NestedCrashes(1, 3, 2, CUT)
    before = recorded(tmp_path / "a", None, again=(cuts,))
    after = recorded(tmp_path / "b", None, FSCK, at=CUT_TWO, log_hash="other", again=(CUTS,))
    told = powercut("compare", before, after).output.splitlines()[0]
    own, _, in_cuts = told.partition("covered there: ")[2].partition("; in cut recoveries: ")
    assert own == "every state of the write log's own order (prefix)"
    assert in_cuts.startswith("states with up to 1 block lost")
    assert in_cuts.endswith("the budget: 40 states a case; 2 recoveries were not cut")


@pytest.mark.parametrize("status", [CaseStatus.DONE, CaseStatus.RECORDED])
@pytest.mark.parametrize("log", ["log", "other"])
def test_what_shows_at_a_state_that_the_first_run_looked_at_is_new_however_far_that_came(
    tmp_path: Path, status: CaseStatus, log: str
) -> None:
    """Of one recording a state has one name; of another, a run that --minutes ended says nothing of it."""
    coverage = LEFT if status is CaseStatus.DONE else None
    before = recorded(tmp_path / "a", None, None, coverage=coverage, status=status)
    for at, known in (("@1", "new"), ("@7", "not looked at before")):
        after = recorded(tmp_path / at, None, LOST, log_hash=log, at=CrashState.parse(at))
        done = powercut("compare", before, after, "--by", "findings")
        assert done.output.startswith(known if log == "log" else "not looked at before")


def test_what_was_recorded_otherwise_is_neither_fixed_nor_new(tmp_path: Path) -> None:
    """What only writes that completed late show was new beside a run in which they completed at once."""
    held = recorded(tmp_path / "a", LOST, log_hash="other")
    at_once = recorded(tmp_path / "b", None, completions=Completions.PROMPT)
    for sides, told in (((held, at_once), "not looked at again"), ((at_once, held), "not looked at before")):
        done = powercut("compare", *sides)
        assert done.output.startswith(told)
        assert "completions differed" in done.output


def test_the_same_states_of_one_recording_are_looked_at_again_whatever_the_budget(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", None, LOST, states=EXHAUSTIVE, coverage=CUT)
    for number, (verdicts, change) in enumerate([((None, None), "fixed"), ((None,), "not looked at again")]):
        after = recorded(tmp_path / f"b{number}", *verdicts, states=EXHAUSTIVE, coverage=CUT)
        assert powercut("compare", before, after, "--by", "findings").output.startswith(f"{change}: ")


def test_a_run_that_recorded_nothing_is_compared_by_finding(tmp_path: Path) -> None:
    """`0 crash states compared, 47 differences`, exit 1, beside a run that --minutes ended at once."""
    ended = recorded(tmp_path / "a", log_hash="", status=CaseStatus.PLANNED)
    whole = recorded(tmp_path / "b", LOST, None)
    for sides in ((ended, whole), (whole, ended)):
        done = powercut("compare", *sides)
        assert "0 new" in done.output
        assert done.exit_code in (ExitCode.UNDECIDED, ExitCode.NOTHING_RUN)
    assert powercut("compare", ended, whole, "--by", "states").exit_code == ExitCode.INCONSISTENT


def test_two_unknown_do_not_agree(tmp_path: Path) -> None:
    """Two runs that lost every guest were "0 differences", exit 0."""
    sides = [recorded(tmp_path / name, None, None, unknown=True) for name in "ab"]
    done = powercut("compare", *sides)
    assert done.exit_code == ExitCode.UNDECIDED
    assert "ext4-ordered/append-fsync@0: UNKNOWN in both" in done.output
    assert done.output.endswith("2 crash states compared, 0 differences; 2 undecided in both\n")
    unfinished = [recorded(tmp_path / name, None, status=CaseStatus.UNKNOWN) for name in "cd"]
    assert powercut("compare", *unfinished).exit_code == ExitCode.UNDECIDED


def test_what_the_second_run_did_not_judge_is_not_fixed(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", LOST)
    after = recorded(tmp_path / "b", None, log_hash="other", oracles=("fsck",))
    done = powercut("compare", before, after)
    assert done.output.startswith("not looked at again: ")
    assert "the second run did not judge by" in done.output
    assert done.exit_code == ExitCode.UNDECIDED


def test_a_comparison_is_json_and_a_page_too(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", LOST)
    after = recorded(tmp_path / "b", STALE, log_hash="other")
    done = powercut("compare", before, after, "--json", "--html", tmp_path / "page.html")
    told = json.loads(done.output)
    assert [(f["change"], f["oracle"]) for f in told["findings"]] == [
        ("new", "stale"),
        ("fixed", "durability"),
    ]
    page = (tmp_path / "page.html").read_text()
    assert "f holds poison" in page
    assert "1 new, 0 still there, 1 fixed" in page


def test_a_comparison_by_states_is_json_too(tmp_path: Path) -> None:
    done = powercut("compare", recorded(tmp_path / "a", LOST), recorded(tmp_path / "b", None), "--json")
    told = json.loads(done.output)
    assert told["states"] == 1
    assert told["differences"][0]["crash_point"] == "ext4-ordered/append-fsync@0"


def test_both_comparisons_have_one_shape_in_json(tmp_path: Path) -> None:
    """`cases` was a number in one and a list in the other, and one did not say of which runs."""
    sides = recorded(tmp_path / "a", LOST), recorded(tmp_path / "b", None)
    shapes = {}
    for by in ("states", "findings"):
        told = json.loads(powercut("compare", *sides, "--by", by, "--json").output)
        assert (told["by"], told["cases"]) == (by, 1)
        shapes[by] = {key: type(value) for key, value in told.items()}
    assert shapes["states"] == shapes["findings"]


@pytest.mark.parametrize(
    ("what", "column"), [("filesystems", "mount_options"), ("workloads", "summary"), ("kernels", "newest")]
)
def test_lists_are_json_too(what: str, column: str) -> None:
    rows = json.loads(powercut("list", what, "--json").output)
    assert all(row["name"] and column in row for row in rows)


def test_compare_of_nothing_is_no_agreement(tmp_path: Path) -> None:
    done = powercut("compare", recorded(tmp_path / "a"), recorded(tmp_path / "b"))
    assert done.exit_code == ExitCode.NOTHING_RUN


def test_list_runs_goes_on_behind_one_that_cannot_be_read(tmp_path: Path) -> None:
    for name, text in (("1", b"torn {"), ("2", b"[]"), ("3", b"{}"), ("4", b'{"kernel": "\xd8\n"}')):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_bytes(text)
    done = powercut("list", "runs", "--out", tmp_path)
    assert done.exit_code == 0
    assert done.output.count("cannot be read") == 4


def test_a_finding_in_a_case_that_the_first_run_has_not_is_not_new(tmp_path: Path) -> None:
    """`5 new`, all in a workload that the first run did not have: nobody knows whether they are new."""
    before, after = recorded(tmp_path / "a", None), recorded(tmp_path / "b", None, log_hash="other")
    with RunStore.open(after) as store:
        case = CaseId("ext4", "ordered", "another")
        store.add_case(replace(store.cases()[0].info, case=case))
        violation = Violation("durability", "f", "f is gone", "", "", "f: missing")
        state = JudgedState(CrashState(0), "x", Judgement((violation,)), How.JUDGED)
        store.put_judgements(case, [state])
        store.set_case_status(case, CaseStatus.DONE)
    done = powercut("compare", before, after)
    assert "not looked at before: ext4-ordered/another durability: f is gone" in done.output
    assert "0 new, 1 not looked at before, 0 still there" in done.output
    assert done.exit_code == ExitCode.UNDECIDED


def test_expectations_of_one_look_are_not_kept(tmp_path: Path) -> None:
    """`report --expect FILE` turned a run green for good: for `report`, for the page, and for `triage`."""
    run = recorded(tmp_path, LOST)
    with RunStore.open(run) as store:
        store.finish()
    (expected := tmp_path / "expected").write_text("ext4/ordered append-fsync durability  # known\n")
    powercut("report", run)
    before = {
        p: p.read_bytes() for p in run.iterdir() if p.suffix in (".html", ".json", ".xml", ".md", ".txt")
    }
    assert powercut("report", run, "--expect", expected).exit_code == ExitCode.CONSISTENT
    assert {p: p.read_bytes() for p in before} == before
    assert powercut("report", run).exit_code == ExitCode.INCONSISTENT


def test_reports_that_another_process_may_be_writing_are_left_to_it(tmp_path: Path) -> None:
    """`report` wrote into the run that another process had taken, beside it."""
    with demo_run(tmp_path) as store, store.lock("powercut run"):
        done = powercut("report", store.path)
        assert "its reports stay as they are" in done.stderr
        assert "(powercut run)" in done.stderr
        assert "Failed" in done.stdout
        assert not (store.path / "report.html").exists()
    assert powercut("report", store.path).stderr == ""
    assert (store.path / "report.html").exists()


def test_known_bugs_of_one_look_are_not_kept(tmp_path: Path) -> None:
    """`report --expect FILE --known OURS --new-only` rewrote nothing, and kept the bugs in the run: from then
    on it was green for every command.
    """
    run = recorded(tmp_path, LOST)
    with RunStore.open(run) as store:
        store.finish()
    (expected := tmp_path / "expected").write_text("ext4/ordered stale durability  # another workload's\n")
    (ours := tmp_path / "ours.toml").write_text(
        '[[bug]]\nname = "ours"\ntitle = "ours: it forgets"\n[bug.record]\nseverity = "loses-synced"\n'
        'mechanism = "m"\nfirst = "5.0"\n[[bug.record.shows]]\nmodes = ["ext4/*"]\n'
        'oracles = ["durability"]\nsymptoms = ["*gone*"]\n'
    )
    look = ("report", run, "--known", ours, "--new-only")
    for words, then in (
        (("--expect", expected), ExitCode.INCONSISTENT),
        ((), ExitCode.CONSISTENT),  # without it, the run's reports are rewritten so, and say so from then on
    ):
        assert powercut(*look, *words).exit_code == ExitCode.CONSISTENT
        assert powercut("report", run).exit_code == then


def test_the_list_of_runs_has_what_each_came_to(tmp_path: Path) -> None:
    """Of thirty nightly runs it said `finished`."""
    run = recorded(tmp_path, LOST)
    with RunStore.open(run) as store:
        store.finish()
    powercut("report", run)
    (row,) = list(stored_rows(tmp_path))
    assert row[2] == "finished: Failed 1 of 1 case"


def test_a_finding_in_a_case_of_which_one_state_was_undecided_is_new(tmp_path: Path) -> None:
    """One undecided state before, and a regression was "not looked at before"."""
    before = recorded(tmp_path / "a", None, unknown=True)
    after = recorded(tmp_path / "b", LOST, log_hash="other")
    done = powercut("compare", before, after)
    assert done.output.startswith("new: ext4-ordered/append-fsync durability: f is gone")
    assert done.exit_code == ExitCode.INCONSISTENT
