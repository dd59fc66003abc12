"""The series over the upstream bugs: its runs, what is kept, and its page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from harness.cli.regressions import exit_code
from harness.errors import EnvironmentLacks, ExitCode, StoreError, UsageError
from harness.expectations import Expectation
from harness.faults import campaign
from harness.host.progress import Progress
from harness.model import CaseId, Judgement, Violation, Workload
from harness.plan import Plan
from harness.regressions import catalogue
from harness.regressions.catalogue import Bug
from harness.regressions.page import headline, page_of
from harness.regressions.recall import RecallSeries, create, load_plan
from harness.regressions.results import BugOutcome, Recall, RegressionsPlan
from harness.series import work
from harness.series.work import Execute, OnDone, carry_out
from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.summary import Summary, summarise
from harness.tests.said import Said
from harness.tests.store.samples import put_case
from harness.workloads.load import select_workloads

CASE = CaseId("ext4", "journal_checksum", "append-fsync")
LOST = Judgement((Violation("durability", "f", "f is gone", "f", "nothing", "f is gone"),))
PLAN = RegressionsPlan(workloads=("quick",), argv=["regressions", "-w", "quick"])


def bug(name: str, before: str = "debian-6.12.113", after: str = "debian-6.12.115", needs: str = "") -> Bug:
    return Bug(
        name=name,
        subject=f"ext4: mend {name}",
        summary="A synced file is lost",
        before=before,
        after=after,
        modes=() if needs else ("ext4/journal_checksum",),
        oracles=() if needs else ("durability",),
        shows="the file is missing",
        evidence="a changelog",
        needs=needs,
    )


BUGS = (
    bug("found"),
    bug("missed", "debian-6.12.115", "debian-6.12.117"),
    bug("unknown", "debian-6.1.0-54", "debian-6.1.0-55"),
    bug("without", needs="a second disk"),
)
SHOWING = ("debian-6.12.113",)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels on which something was run. 6.12.113 shows something, 6.1.0-54 cannot be had."""
    kernels: list[str] = []
    monkeypatch.setattr(catalogue, "bugs", lambda: {b.name: b for b in BUGS})
    monkeypatch.setattr(work, "execute", finished(kernels))
    return kernels


def finished(kernels: list[str], expected: str = "") -> Execute:
    """In place of `harness.run.execute`."""

    def execute(plan: Plan, store: RunStore, _: Progress, on_done: OnDone) -> Summary:
        kernels.append(plan.kernel)
        if plan.kernel == "debian-6.1.0-54":
            raise EnvironmentLacks("the archive does not have it", "name another")
        if expected:
            store.set_expectations([Expectation("*", "*", "durability", expected)])
        judgement = LOST if plan.kernel in SHOWING else Judgement()
        put_case(store, CaseInfo(CASE, generated=1, distinct=1), judgement)
        store.finish(interrupted=False)
        return summarise(store)

    return execute


def carried(path: Path, progress: Progress | None = None) -> Recall:
    series = RecallSeries(load_plan(path), path)
    carry_out(series, progress or Said())
    return series.recall


def outcomes(recall: Recall) -> dict[str, BugOutcome]:
    return {r.bug.name: r.outcome for r in recall.rows}


def test_each_bug_is_found_missed_or_unknown_with_its_reason(ran: list[str], tmp_path: Path) -> None:
    path = create(PLAN, tmp_path)
    done = carried(path)
    assert outcomes(done) == {
        "found": BugOutcome.FOUND,
        "missed": BugOutcome.MISSED,
        "unknown": BugOutcome.UNKNOWN,
        "without": BugOutcome.NO_MODE,
    }
    assert "debian-6.1.0-54: the archive does not have it" in done.rows[2].why
    assert done.rows[0].silent
    assert ran.count("debian-6.12.115") == 1, "two bugs share the run of a kernel"
    assert headline(done) == (
        "Found 1 of 3 upstream bugs that were run: 1 missed, 1 UNKNOWN; 1 for which there is no mode."
    )
    assert exit_code(done) is ExitCode.INCONSISTENT
    assert page_of(done).kind == "fail", "a missed bug was told as undecided"


def test_a_bug_that_takes_a_faulty_disk_has_runs_of_its_own(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No upstream bug could say so: on a disk without faults it is missed."""
    faulty_disk = msgspec.structs.replace(bug("faulty_disk"), disk=("errors",))
    monkeypatch.setattr(catalogue, "bugs", lambda: {"found": BUGS[0], "faulty_disk": faulty_disk})
    asked: list[tuple[str, tuple[str, ...]]] = []
    real = finished(ran)

    def execute(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        asked.append((plan.kernel or "", plan.disk))
        return real(plan, store, progress, on_done)

    monkeypatch.setattr(work, "execute", execute)
    done = carried(create(PLAN, tmp_path))
    kernels = ("debian-6.12.113", "debian-6.12.115")
    assert sorted(asked) == [(k, disk) for k in kernels for disk in ((), ("errors",))]
    assert {len(r.runs) for r in done.rows} == {1}


def test_only_general_sets_are_run(tmp_path: Path, ran: list[str]) -> None:
    """`fstests` holds a workload for most of these bugs: that it finds them says nothing of a plain run. One
    workload of a general set was refused as "written for a bug".
    """
    for workloads in (("fstests",), ("quick", "generic-784"), ("./mine.toml",)):
        with pytest.raises(UsageError, match="is no general set"):
            create(msgspec.structs.replace(PLAN, workloads=workloads), tmp_path)
    generated = "ace-rename-over.A_foo.B_foo+fsync.B_foo"
    general = ("ace1", "oldtree", "append-fsync", "append-fsync.s2", generated)
    path = create(msgspec.structs.replace(PLAN, workloads=general), tmp_path)
    assert load_plan(path).workloads == general
    raw = json.loads((path / "plan.json").read_text())
    (path / "plan.json").write_text(json.dumps({**raw, "workloads": ["/etc/evil"]}))
    with pytest.raises(StoreError, match="is no general set"):
        load_plan(path)
    assert ran == []


def test_known_failures_are_expected_and_find_nothing(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "execute", finished(ran, expected="a race"))
    assert outcomes(carried(create(PLAN, tmp_path)))["found"] is BugOutcome.MISSED


def test_a_stopped_series_goes_on_and_calls_nothing_missed_that_was_not_run(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create(PLAN, tmp_path)
    complete = finished(ran)

    def stopped(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if plan.kernel == "debian-6.12.115":
            ran.append(plan.kernel)
            store.finish(interrupted=True)
            return summarise(store)
        return complete(plan, store, progress, on_done)

    monkeypatch.setattr(work, "execute", stopped)
    first = carried(path)
    assert first.interrupted
    assert outcomes(first)["found"] is BugOutcome.NOT_RUN, "the kernel after is not known"
    assert outcomes(first)["missed"] is BugOutcome.NOT_RUN
    assert "0 upstream bugs that were run; 3 not run" in headline(first)
    assert exit_code(first) is ExitCode.INTERRUPTED
    monkeypatch.setattr(work, "execute", complete)
    ran.clear()
    again = carried(path)
    assert "debian-6.12.113" not in ran, "what was decided is not run again"
    assert outcomes(again)["found"] is BugOutcome.FOUND


def test_a_kernel_that_could_not_be_had_is_tried_again(ran: list[str], tmp_path: Path) -> None:
    path = create(PLAN, tmp_path)
    carried(path)
    ran.clear()
    carried(path)
    assert ran == ["debian-6.1.0-54"]


def test_a_bug_that_a_faulty_disk_shows_has_a_command_too(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of its run ends with the disk, and was taken for that of another mode."""
    faulty = msgspec.structs.replace(bug("found"), disk=("errors",))
    monkeypatch.setattr(catalogue, "bugs", lambda: {"found": faulty})
    page = page_of(carried(create(PLAN, tmp_path))).html()
    assert "powercut repro ext4-journal_checksum/append-fsync@0 --from" in page
    assert "ext4-journal_checksum_errors/runs/" in page


def test_the_page_shows_what_found_it_and_how_to_see_it_again(ran: list[str], tmp_path: Path) -> None:
    path = create(PLAN, tmp_path)
    text = page_of(carried(path)).text()
    assert "under quick: general workloads;" in text
    assert "ext4-journal_checksum/append-fsync" in text
    assert "unknown: debian-6.1.0-54: the archive does not have it" in text
    assert "without: ext4: mend without (needs a second disk)" in text
    page = (path / "report.html").read_text()
    assert "powercut repro ext4-journal_checksum/append-fsync@0 --from" in page
    assert "kernels/debian-6.12.113_ext4-journal_checksum/runs/" in page
    told = json.loads((path / "regressions.json").read_text())
    assert [*told["rows"][0]["runs"]] == ["ext4-journal_checksum"]
    assert told["score"] == {
        "found": 1,
        "missed": 1,
        "UNKNOWN": 1,
        "not run": 0,
        "no mode": 1,
        "own workload": 0,
    }
    assert [r["outcome"] for r in told["rows"]] == ["found", "missed", "UNKNOWN", "no mode"]


def test_a_kernel_after_that_is_not_silent_is_told_once(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bugs were mended in a kernel that has a third: what that one shows looked like theirs."""
    both = (
        bug("one", "debian-6.12.111", "debian-6.12.113"),
        bug("two", "debian-6.12.107", "debian-6.12.113"),
    )
    monkeypatch.setattr(catalogue, "bugs", lambda: {b.name: b for b in both})
    done = carried(create(PLAN, tmp_path))
    assert [(r.outcome, r.silent) for r in done.rows] == [(BugOutcome.MISSED, False)] * 2
    text = page_of(done).text()
    assert text.count("debian-6.12.113: 1 unexpected, such as ext4-journal_checksum/append-fsync@0") == 1


def test_a_series_where_all_is_found_and_silent_ends_well(ran: list[str], tmp_path: Path) -> None:
    done = carried(create(msgspec.structs.replace(PLAN, names=["found", "without"]), tmp_path))
    assert exit_code(done) is ExitCode.CONSISTENT
    loud = dataclasses.replace(
        done, rows=tuple(msgspec.structs.replace(r, silent=False) for r in done.rows[:1])
    )
    assert exit_code(loud) is ExitCode.INCONSISTENT
    assert [page_of(recall).kind for recall in (done, loud)] == ["pass", "fail"], "it was green"
    nothing = dataclasses.replace(done, rows=done.rows[1:])
    assert exit_code(nothing) is ExitCode.UNDECIDED, "nothing was run"


def test_workloads_are_read_once_for_all_runs(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read for each kernel in each mode: it took 100 s before anything was run."""
    read: list[Sequence[str]] = []

    def selected(wanted: Sequence[str], shard: str = "") -> list[Workload]:
        read.append(wanted)
        return select_workloads(wanted, shard)

    path = create(PLAN, tmp_path)
    monkeypatch.setattr(campaign, "select_workloads", selected)
    series = RecallSeries(load_plan(path), path)
    assert len(series.items(cast(Any, None))) > 1
    assert len(read) == 1
