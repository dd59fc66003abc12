"""Campaigns without guests: what is found, kept and grouped, and what a kill leaves."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from harness.campaigns import generators
from harness.campaigns import work as work_module
from harness.campaigns.journal import (
    Batch,
    BatchBegun,
    CampaignPlan,
    Found,
    KnownBatches,
    Reached,
    ShrunkFinding,
    UndecidedCases,
)
from harness.campaigns.page import page_of, shown
from harness.campaigns.work import CampaignSeries, create, load_plan
from harness.cli.campaign import exit_code
from harness.errors import EnvironmentLacks, ExitCode, GuestLost, StoreError, UsageError
from harness.expectations import Expectation
from harness.findings.causes import CauseMember
from harness.host.progress import Progress
from harness.known.base import KnownBug, KnownBugs, Record
from harness.model import CaseId
from harness.plan import Budget, Plan
from harness.report import words
from harness.report.pages import on_page
from harness.series import work as engine
from harness.series.journal import End, Ended, Journal
from harness.series.work import OnDone
from harness.store import RunStore, meaning
from harness.store.records import CaseInfo, CaseStatus, Counts, KernelInfo
from harness.store.recovery_code import CodeLine, RecoveryCode, write_recovery_code
from harness.summary import CaseSummary, Summary, summarise
from harness.symptoms import Symptom
from harness.tests.campaigns.toys import (
    MODE,
    Killed,
    Planted,
    ToyRuns,
    ToyTries,
    carried_out,
    killed_at_put,
    nothing,
    plan_of,
    read_ledger,
    tmpfile_lost,
)
from harness.tests.said import Said
from harness.workloads.generate import chance
from harness.workloads.load import load_workload


def begun(tmp_path: Path, plan: CampaignPlan) -> Path:
    return create(plan, tmp_path, "campaign")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> KnownBatches:
    """What two batches of random workloads come to."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(work_module, "look_up_chosen", lambda choice: None)
        patched.setattr("harness.run.look_up_chosen", lambda choice: None)
        plan = plan_of("random", batch=16)
        return carried_out(plan, begun(tmp_path_factory.mktemp("whole"), plan), ToyRuns())[1]


def gist(ledger: KnownBatches) -> object:
    """What has to be the same with and without kills: all but times and who was shrunk with how much work."""
    return (
        {n: (b.generator, b.workloads) for n, b in ledger.chosen.items()},
        {n: (d.cases, d.states, d.reached, d.found, d.failed) for n, d in ledger.done.items()},
        {f: s.member.minimal for f, s in ledger.shrunk.items()},
        {f: a.like for f, a in ledger.similar.items()},
        [c.name for c in ledger.causes],
        sorted(ledger.features),
    )


def kept(path: Path) -> set[str]:
    """The batches that are done and whose run directories are there."""
    done = read_ledger(path).done
    return {number for p in (path / "batches").iterdir() if (number := p.name) in done}


def test_findings_are_grouped_by_cause_as_they_come(undisturbed: KnownBatches) -> None:
    """One planted fault in many random workloads is one cause; most findings are like it and not shrunk."""
    ledger = undisturbed
    assert len(ledger.found) > 3
    assert [c.smallest.minimal for c in ledger.causes] == [("tmpfile foo 0", "sync")]
    assert len(ledger.shrunk) < len(ledger.found)
    assert not ledger.waiting


@pytest.mark.parametrize("at", [0, 3, 7, 8, 12])
def test_a_campaign_killed_at_any_case_comes_to_the_same(
    tmp_path: Path, undisturbed: KnownBatches, at: int
) -> None:
    plan = plan_of("random", batch=16)
    path = begun(tmp_path / "killed", plan)
    runs = ToyRuns(kill_at=at)
    ends = [carried_out(plan, path, runs)[0] for _ in range(2)]
    assert ends == [None, End.INTERRUPTED]
    assert len(runs.cases) == len(set(runs.cases)), "no case is judged twice"
    assert gist(read_ledger(path)) == gist(undisturbed)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 6])
def test_a_campaign_killed_at_any_line_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: KnownBatches, at: int, torn: bool
) -> None:
    """With half a line on the disk, too, which becomes no part of the next one."""
    plan = plan_of("random", batch=16)
    path = begun(tmp_path / "killed", plan)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "put", killed_at_put(at, torn=torn))
        carried_out(plan, path, ToyRuns())
    carried_out(plan, path, ToyRuns())
    assert gist(read_ledger(path)) == gist(undisturbed)


def test_a_campaign_killed_while_shrinking_shrinks_that_finding_again(
    tmp_path: Path, undisturbed: KnownBatches
) -> None:
    plan = plan_of("random", batch=16)
    path = begun(tmp_path / "killed", plan)
    tries = ToyTries(tmpfile_lost, kill_at=5)
    ends = [carried_out(plan, path, ToyRuns(), tries)[0] for _ in range(2)]
    assert ends == [None, End.INTERRUPTED]
    assert gist(read_ledger(path)) == gist(undisturbed)


@pytest.mark.parametrize("lost", ["run.json", "."])
def test_a_finding_whose_run_directory_is_lost_does_not_end_the_campaign(tmp_path: Path, lost: str) -> None:
    """Nor each process that takes the campaign up after that."""
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    carried_out(plan, path, ToyRuns(), ToyTries(tmpfile_lost, kill_at=0))
    (batch,) = (path / "batches" / "1" / "runs").iterdir()
    shutil.rmtree(batch) if lost == "." else (batch / lost).unlink()
    end, ledger, _ = carried_out(plan, path, ToyRuns())
    assert end is End.INTERRUPTED, "as every toy campaign"
    assert all(m.reason for m in ledger.not_again)
    assert {m.run for m in ledger.not_again} == {ledger.done["1"].run}
    assert ledger.causes, "of the second batch"
    assert exit_code(ledger, End.COMPLETE, require_all=True) is ExitCode.INCONSISTENT


def test_run_directories_without_findings_are_deleted(tmp_path: Path) -> None:
    plan = plan_of("random", batch=2)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns(batches=8))
    there = kept(path)
    assert there == {n for n, d in ledger.done.items() if d.found}
    assert there
    for number in there:
        with RunStore.open(path / ledger.done[number].run) as store:
            assert store.findings()


def test_run_directories_are_kept_on_request(tmp_path: Path) -> None:
    plan = plan_of("random", batch=2, keep=True)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns(nothing))
    assert kept(path) == set(ledger.done)


def test_what_a_kill_left_of_a_batch_that_is_done_is_swept(tmp_path: Path) -> None:
    """Killed between the line that ends a batch and the deletion of its run directory."""
    plan = plan_of("random", batch=2)
    path = begun(tmp_path, plan)
    carried_out(plan, path, ToyRuns(nothing, batches=1))
    (path / "batches" / "1").mkdir()
    carried_out(plan, path, ToyRuns(nothing))
    assert kept(path) == set()


def test_a_damaged_run_directory_of_a_batch_is_begun_anew(tmp_path: Path, undisturbed: KnownBatches) -> None:
    plan = plan_of("random", batch=16)
    path = begun(tmp_path / "damaged", plan)
    carried_out(plan, path, ToyRuns(kill_at=3))
    (path / "batches" / "1" / "latest" / "run.json").write_text("{}")
    _, ledger, said = carried_out(plan, path, ToyRuns())
    assert any("begun anew" in line for line in said)
    assert gist(ledger) == gist(undisturbed)


def test_the_time_is_kept_while_a_case_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept after each case, so that a kill took all the time of a long one from what was worked."""
    monkeypatch.setattr(engine, "_TICK_S", 0.0)
    plan = plan_of("random", batch=2)
    path = begun(tmp_path, plan)

    class Slow(ToyRuns):
        kept = False

        def __call__(self, plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
            progress.advance("states", 1)
            self.kept = (path / "seconds").is_file()
            raise KeyboardInterrupt

    carried_out(plan, path, runs := Slow())
    assert runs.kept


@pytest.mark.parametrize("stopped", ["", "the time given is up"])
def test_a_batch_that_was_stopped_goes_on_with_what_it_had(tmp_path: Path, stopped: str) -> None:
    """Its run was removed: a batch that takes longer than --hours began anew each time, and never ended."""
    plan = plan_of("random", batch=4)
    path = begun(tmp_path, plan)

    class Stopped(ToyRuns):
        def __call__(self, plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
            if self.cases:
                return super().__call__(plan, store, progress, on_done)
            self._judge(store, CaseId("ext4", "fast_commit", plan.workloads[0]))
            store.finish(interrupted=True, stopped=stopped)
            return summarise(store)

    runs = Stopped(batches=1)
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            carried_out(plan, path, runs)
    assert len(runs.cases) == len(set(runs.cases)) > 1


class Broken(ToyRuns):
    """Every run of it fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.calls = error, 0

    def __call__(self, *_: object) -> None:  # type: ignore[override]  # it returns nothing, ever
        self.calls += 1
        raise self.error


def test_batches_of_which_nothing_comes_end_the_campaign(tmp_path: Path) -> None:
    """Each would fail like those before it, all night."""
    plan = plan_of("random")
    path, runs = begun(tmp_path, plan), Broken(GuestLost("no guest comes up"))
    with pytest.raises(GuestLost):
        carried_out(plan, path, runs)
    ledger = read_ledger(path)
    assert runs.calls == 3
    assert [d.failed for d in ledger.done.values()] == ["no guest comes up"] * 2
    assert exit_code(ledger, End.TIME_UP, require_all=True) is ExitCode.UNDECIDED


def test_the_headline_counts_the_batches_that_gave_nothing(tmp_path: Path) -> None:
    """It said "no promise was broken", and nothing of what had not been looked at."""
    plan, ledger = plan_of("random"), KnownBatches()
    for number, failed in enumerate(("", "no guest comes up", "no guest comes up"), 1):
        ledger.add(BatchBegun(item=str(number), generator="random", workloads=()))
        ledger.add(Batch(item=str(number), cases=not failed, states=not failed, failed=failed))
        if number == 2:
            one = page_of(tmp_path, plan, ledger).headline
    assert one == "no promise was broken in 1 case, 1 crash state; 1 batch gave nothing"
    assert page_of(tmp_path, plan, ledger).headline.endswith("; 2 batches gave nothing")


def test_a_batch_whose_line_is_damaged_is_not_judged_under_another_number(tmp_path: Path) -> None:
    """Of batch 2 it was known that it is done, and not what it ran: the next batch was 2 again."""
    plan = plan_of("random")
    path = begun(tmp_path, plan)
    carried_out(plan, path, ToyRuns(nothing))
    journal = path / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join(x for x in lines if b'"begun"' not in x or b'"item":"2"' not in x))
    before = read_ledger(path)
    _, ledger, _ = carried_out(plan, path, ToyRuns(nothing, batches=3))
    assert [*before.done] == ["1", "2"]
    assert [*ledger.done] == ["1", "2", "3"]
    assert [*ledger.chosen] == ["1", "3", "4"]
    assert before.done["2"] == ledger.done["2"]


def test_batches_that_failed_have_another_turn_when_the_campaign_goes_on(
    tmp_path: Path, undisturbed: KnownBatches
) -> None:
    """Their workloads were never tried again, however good the next night was: chaos found one."""
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    with pytest.raises(GuestLost):
        carried_out(plan, path, Broken(GuestLost("no guest comes up")))
    carried_out(plan, path, ToyRuns())
    assert gist(read_ledger(path)) == gist(undisturbed)


class Undecided(ToyRuns):
    """No guest of it comes up: each case is undecided, and the run itself ends well."""

    def _judge(self, store: RunStore, case: CaseId) -> None:
        self.cases.append(case.workload)
        store.add_case(CaseInfo(case))
        store.set_case_status(case, CaseStatus.UNKNOWN, "guest lost: boot")


def test_batches_of_which_nothing_is_judged_end_the_campaign(tmp_path: Path) -> None:
    """A kernel that the machine cannot boot left batch after batch undecided, each with its run directory."""
    plan = plan_of("random")
    path, runs = begun(tmp_path, plan), Undecided(batches=99)
    with pytest.raises(GuestLost, match="guest lost: boot"):
        carried_out(plan, path, runs)
    assert len(read_ledger(path).done) == 2
    assert kept(path) == set()


class Lacking(ToyRuns):
    """The host has no mkfs for a second mode."""

    def _judge(self, store: RunStore, case: CaseId) -> None:
        super()._judge(store, case)
        other = CaseId("xfs", "default", case.workload)
        store.add_case(CaseInfo(other))
        store.set_case_status(other, CaseStatus.NOT_RUN, "mkfs.xfs is missing")


def test_a_mode_that_was_named_and_cannot_be_run_is_no_pass(tmp_path: Path) -> None:
    """`-c ext4/ordered,xfs/default` was green, and ended in 0, on a host without mkfs.xfs."""
    plan = plan_of("ace2", batch=60)
    named = msgspec.structs.replace(plan, run=msgspec.structs.replace(plan.run, require_all=True))
    path = begun(tmp_path, named)
    end, ledger, _ = carried_out(named, path, Lacking(nothing, batches=99))
    assert end is not None
    assert exit_code(ledger, end, require_all=True) is ExitCode.NOTHING_RUN
    assert exit_code(ledger, end, require_all=False) is ExitCode.CONSISTENT
    assert page_of(path, named, ledger).kind == "unknown"
    assert "; xfs/default could not be run" in page_of(path, named, ledger).headline
    assert page_of(path, plan, ledger).kind == "pass"


class LeftOut(ToyRuns):
    """A second mode, in which nothing is looked at: for `why`."""

    why = CaseStatus.NOT_RECORDED

    def _judge(self, store: RunStore, case: CaseId) -> None:
        super()._judge(store, case)
        other = CaseId("nilfs2", "default", case.workload)
        store.add_case(CaseInfo(other))
        store.set_case_status(other, self.why, "this harness cannot record it there")


@pytest.mark.parametrize("why", [CaseStatus.NOT_RECORDED, CaseStatus.NOT_SUPPORTED])
def test_a_mode_in_which_nothing_was_looked_at_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: CaseStatus
) -> None:
    """The second mode was in no count, no line and no exit code: the campaign called both clean."""
    monkeypatch.setattr(LeftOut, "why", why)
    plan = plan_of("ace2", batch=60)
    named = msgspec.structs.replace(plan, run=msgspec.structs.replace(plan.run, require_all=True))
    path = begun(tmp_path, named)
    end, ledger, _ = carried_out(named, path, LeftOut(nothing, batches=99))
    count = len(generators.every_two())
    made = page_of(path, named, ledger)
    assert end is End.COMPLETE
    assert exit_code(ledger, end, require_all=True) is ExitCode.NOTHING_RUN
    assert exit_code(ledger, end, require_all=False) is ExitCode.CONSISTENT
    assert made.kind == "unknown"
    left = f"; {count} cases not supported or not recorded; nothing was judged in nilfs2/default"
    assert left in made.headline
    assert f"{count} cases of nilfs2/default, such as `nilfs2-default/" in made.text()
    (left_out,) = json.loads(made.json())["left_out"]
    assert (left_out["cases"], left_out["reason"]) == (count, "this harness cannot record it there")
    assert page_of(path, plan, ledger).kind == "pass"


def test_all_undecided_cases_are_counted(tmp_path: Path) -> None:
    """Of 26 cases with a reason each, 20 were said to be undecided."""
    names = [chr(ord("a") + n) for n in range(26)]
    cases = [
        CaseSummary(
            CaseInfo(CaseId("ext4", "ordered", n)), CaseStatus.UNKNOWN, f"lost {n}", 0.0, Counts(), (), (), {}
        )
        for n in names
    ]
    told = list(work_module._undecided(cases))
    assert sum(u.cases for u in told) == 26
    assert told[-1].reason == "other reasons"


def test_what_the_host_lacks_ends_it_at_once(tmp_path: Path) -> None:
    plan = plan_of("random")
    path, runs = begun(tmp_path, plan), Broken(EnvironmentLacks("mkfs.ext4 is missing"))
    with pytest.raises(EnvironmentLacks):
        carried_out(plan, path, runs)
    assert runs.calls == 1


def test_a_campaign_that_has_no_more_workloads_is_complete(tmp_path: Path) -> None:
    plan = plan_of("ace2", batch=60)
    path = begun(tmp_path, plan)
    end, ledger, _ = carried_out(plan, path, runs := ToyRuns(nothing, batches=99))
    assert end is End.COMPLETE
    assert sorted(runs.cases) == sorted(generators.every_two())
    assert exit_code(ledger, End.COMPLETE, require_all=True) is ExitCode.CONSISTENT


def test_time_that_is_up_before_anything_ran_is_no_pass(tmp_path: Path) -> None:
    plan = plan_of("ace2")
    path = begun(tmp_path, plan)
    end = engine.carry_out(CampaignSeries(plan, path), Said(), until_s=0.0, run=ToyRuns())
    assert end is End.TIME_UP
    assert exit_code(read_ledger(path), end, require_all=True) is ExitCode.NOTHING_RUN


class OnLinux(ToyRuns):
    """Runs on a kernel of a version."""

    def __call__(self, plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        kernel = KernelInfo("debian-6.12", "6.12.117-1", "6.12.117")
        store.update_info(replace(store.info, kernel=kernel))
        return super().__call__(plan, store, progress, on_done)


def test_a_known_bug_of_the_user_is_no_finding_of_a_campaign_that_wants_new_ones(tmp_path: Path) -> None:
    """`powercut campaign` had no --known, and its findings were those of the installed bugs or new."""
    lost = msgspec.convert({
        "severity": "loses-synced", "mechanism": "m", "first": "5.0",
        "shows": [{"modes": [MODE], "oracles": ["durability"], "symptoms": ["NAME: missing"]}],
    }, type=Record)  # fmt: skip
    bug = KnownBug(name="own-bug", title="it forgets", record=lost)
    found = {}
    for new_only in (False, True):
        known = KnownBugs(bug=(bug,), new_only=new_only)
        plan = msgspec.structs.replace(plan_of("random", batch=16), known=known)
        path = begun(tmp_path / str(new_only), plan)
        end, ledger, _ = carried_out(plan, path, OnLinux(batches=1))
        (batch,) = ledger.done.values()
        found[new_only] = [f.known for f in batch.found]
        assert load_plan(path).known == known
        assert (batch.expected > 0) is new_only
        assert (exit_code(ledger, End.COMPLETE, require_all=True) is ExitCode.CONSISTENT) is new_only
        assert end is End.INTERRUPTED
    assert set(found[False]) == {"own-bug"} and not found[True]


class StoppedEarly(ToyRuns):
    """The run of the first batch ends in the middle: its time is up, or the user stops it."""

    why = "the time is up"

    def __call__(self, plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        for name in plan.workloads[:3]:
            self._judge(store, CaseId("ext4", "fast_commit", name))
        store.finish(interrupted=True, stopped=self.why)
        return summarise(store)


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize(
    ("planted", "says", "code"),
    [
        (nothing, "no promise was broken so far in 3 cases, 3 crash states", ExitCode.TIME_UP),
        (tmpfile_lost, "promises were broken: 3 findings in 3 cases, 3 crash states", ExitCode.INCONSISTENT),
    ],
)
def test_a_first_batch_that_did_not_end_says_what_it_has_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    planted: Planted,
    says: str,
    code: ExitCode,
    *,
    stopped: bool,
) -> None:
    """`nothing was judged so far` was said of it, and its findings ended in 4, as where nothing was run."""
    monkeypatch.setattr(StoppedEarly, "why", StoppedEarly.why if stopped else "")
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    end, ledger, _ = carried_out(plan, path, StoppedEarly(planted))
    made = page_of(path, plan, ledger)
    assert made.headline == f"{says} of batch 1, which has not come to its end"
    assert made.kind == ("fail" if code is ExitCode.INCONSISTENT else "unknown")
    assert "was begun and is not counted; 3 cases judged" in " ".join(made.text().split())
    assert end is (End.TIME_UP if stopped else End.INTERRUPTED)
    assert exit_code(ledger, End.TIME_UP, require_all=True) is code
    _, ledger, _ = carried_out(plan, path, ToyRuns(planted, batches=1))
    assert ledger.partial is None
    assert "not come to its end" not in page_of(path, plan, ledger).headline


@pytest.mark.parametrize(
    ("expected", "undecided", "says"),
    [
        (0, 0, "no promise was broken in 50 cases, 90 crash states"),
        (2, 0, "no promise was broken but by 2 known failures in 50 cases, 90 crash states"),
        (0, 20, "no promise was broken in 50 cases, 90 crash states; 20 cases not decided"),
    ],
)
def test_the_headline_says_no_more_than_what_was_seen(
    expected: int, undecided: int, says: str, tmp_path: Path
) -> None:
    """`no promise was broken in 50 cases`, of which twenty were undecided, or had losses that are known."""
    ledger = KnownBatches()
    left = (UndecidedCases("no guest", undecided, "c"),) if undecided else ()
    ledger.add(Batch(item="1", cases=50, states=90, expected=expected, undecided=left))
    assert page_of(tmp_path, plan_of("ace2"), ledger).headline == says


def test_the_page_names_the_cause_its_commands_and_what_was_new(tmp_path: Path) -> None:
    plan = plan_of("random", "grown", batch=16)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns(batches=4))
    told, made = shown(path, plan, ledger), page_of(path, plan, ledger)
    (cause,) = told.causes
    text, page = made.text(), made.html()
    for shown_there in (text, page):
        assert (on_page(cause.reproduce) if shown_there is page else cause.reproduce) in shown_there
        assert "tmpfile foo 0" in shown_there
        assert told.headline[1:] in shown_there
        assert (
            "the write log's own order (prefix)".replace("'", "&#39;" if shown_there is page else "'")
            in shown_there
        )
    assert cause.reproduce.startswith("powercut repro ext4-fast_commit/random2-")
    assert [str(op) for op in load_workload(cause.file).operations] == ["tmpfile foo 0", "sync"]
    assert "polyline" in page
    assert made.data and made.data["findings"] == len(ledger.found)
    assert {g.generator for g in told.generators if g.batches} == {"random", "grown"}
    assert (path / "campaign.json").is_file() and (path / "summary.txt").is_file()


def test_a_cause_is_a_known_bug_or_new(tmp_path: Path) -> None:
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns())
    assert "new: it agrees with no known bug" in page_of(path, plan, ledger).text()
    for name, done in ledger.done.items():
        found = tuple(msgspec.structs.replace(f, known="ext4-forgets") for f in done.found)
        ledger.done[name] = msgspec.structs.replace(done, found=found)
    made = page_of(path, plan, ledger)
    assert "known: ext4-forgets" in made.text()
    assert f"{len(ledger.found)} of them known bugs" in made.headline
    (cause,) = json.loads(made.json())["causes"]
    assert cause["known"] == ["ext4-forgets"]


def test_what_a_mode_is_known_to_lose_is_not_called_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ext4/nobarrier the page said "new: it agrees with no known bug"; `run` told the known loss."""
    lossy = Expectation(MODE, "*", "*", "it sends no flush", "losses:1")
    monkeypatch.setattr(meaning, "known_losses", lambda: (lossy,))
    monkeypatch.setattr(words, "known_losses", lambda: (lossy,))
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns())
    told = f"known loss of {MODE}: it sends no flush"
    made = page_of(path, plan, ledger)
    assert told in made.text() and "new: it agrees" not in made.text()
    assert f"{len(ledger.found)} of them known losses, in" in made.headline
    (cause,) = json.loads(made.json())["causes"]
    assert (cause["known"], cause["losses"]) == ([], [told])
    for name, done in ledger.done.items():
        first, *others = done.found
        known = msgspec.structs.replace(first, known="ext4-forgets", loss="")
        ledger.done[name] = msgspec.structs.replace(done, found=(known, *others))
    assert "of them known bugs or losses, in" in page_of(path, plan, ledger).headline


def test_a_cause_of_which_some_findings_are_new_says_so(tmp_path: Path) -> None:
    """One finding was a known loss, and all others were new: the page told the loss alone."""
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns())
    assert len(ledger.found) > 1
    name, done = next((name, done) for name, done in ledger.done.items() if done.found)
    first, *others = done.found
    lost = msgspec.structs.replace(first, loss="known loss of it: no flush")
    ledger.done[name] = msgspec.structs.replace(done, found=(lost, *others))
    told = "new: it agrees with no known bug, but for some findings: known loss of it: no flush"
    made = page_of(path, plan, ledger)
    assert told in made.text()
    assert [cause["new"] for cause in json.loads(made.json())["causes"]] == [True]


class RunsThatNote(ToyRuns):
    """The second case of the first batch runs a line of recovery, as the third does again."""

    def __call__(self, plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        summary = super().__call__(plan, store, progress, on_done)
        second = str(summary.cases[1].case)
        lines = (CodeLine("fs/a.c", "replay", 7, second), CodeLine("fs/a.c", "undo", 9))
        write_recovery_code(RecoveryCode("linux 1", lines), store.layout)
        return summary


def test_a_workload_that_reaches_a_line_of_recovery_is_kept(tmp_path: Path) -> None:
    """What recovery itself does was not seen: a workload that alone reached it was thrown away."""
    plan = plan_of("random", batch=4)
    plan = msgspec.structs.replace(plan, run=msgspec.structs.replace(plan.run, coverage=True))
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, RunsThatNote(nothing, batches=2))
    reached = {r.workload for d in ledger.done.values() for r in d.reached for t in r.features if "undo" in t}
    assert reached == set()
    feature = "ext4/fast_commit recovery: fs/a.c:replay:7"
    found = [r.workload for d in ledger.done.values() for r in d.reached if feature in r.features]
    assert found == [ledger.chosen["1"].workloads[1]], "once, though the second batch ran it, too"
    made = page_of(path, plan, ledger)
    assert "1 of them lines of recovery" in made.text()
    assert made.data and made.data["recovery_lines"] == 1


def test_what_was_begun_and_not_finished_is_told(tmp_path: Path) -> None:
    """The time of a batch that was stopped was counted as work, and nothing said what had become of it."""
    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    ledger = KnownBatches()
    ledger.add(BatchBegun(item="1", at=2.0, generator="ace2", workloads=("ace-creat.A_foo+sync",)))
    made = page_of(path, plan, ledger)
    for shown_there in (made.text(), made.html()):
        assert "batch 1 (ace2, 1 workload) was begun and is not counted" in shown_there


def test_a_campaign_that_looked_at_legal_states_says_so(tmp_path: Path) -> None:
    plan = plan_of("random", batch=16)
    legal = msgspec.structs.replace(
        plan,
        run=msgspec.structs.replace(plan.run, fault_models=("exhaustive",), budget=Budget(visits=40)),
    )
    path = begun(tmp_path, legal)
    _, ledger, _ = carried_out(legal, path, ToyRuns(nothing, batches=1))
    told = shown(path, legal, ledger)
    assert told.figures[0] == "legal crash states (exhaustive, up to 40 states a case)"


def test_names_in_findings_cannot_change_the_page(tmp_path: Path) -> None:
    """A summary may quote a guest: neither markup nor a terminal's sequences get through."""

    def marked(ops: list[str]) -> dict[str, str]:
        return {o: f"{s} <script>\x1b[31m" for o, s in tmpfile_lost(ops).items()}

    plan = plan_of("random", batch=16)
    path = begun(tmp_path, plan)
    _, ledger, _ = carried_out(plan, path, ToyRuns(marked))
    made = page_of(path, plan, ledger)
    assert ledger.causes
    assert made.html().count("<script>") == 1, "only the page's own"
    assert "\x1b" not in made.html() + made.text()


def test_a_directory_without_a_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no campaign"):
        load_plan(tmp_path)


def test_a_plan_with_generators_that_there_are_not_is_refused(tmp_path: Path) -> None:
    """A plan from elsewhere that named one ended in a KeyError when its page was made."""
    path = begun(tmp_path, plan_of("random", batch=16))
    changed = json.loads((path / "plan.json").read_text()) | {"generators": ["random", "."]}
    (path / "plan.json").write_text(json.dumps(changed))
    with pytest.raises(StoreError, match=r"no generator is called '\.'.*\n.*one of: ace2, random, grown"):
        load_plan(path)


def test_a_kill_is_no_interruption(tmp_path: Path) -> None:
    """The toy's kill must not be caught: else these tests would show nothing."""
    assert not issubclass(Killed, Exception | KeyboardInterrupt)


@pytest.mark.parametrize(
    "line",
    [
        BatchBegun(item="1", at=0, generator="random", workloads=("random1-1-20", "/theirs/app")),
        Batch(item="1", at=0, run="/home/me/runs/private"),
        Batch(item="1", at=0, run="batches/1/runs/../../../../../private"),
    ],
)
def test_a_journal_names_no_files_of_the_host(line: BatchBegun | Batch, tmp_path: Path) -> None:
    """The journal of somebody else's campaign named applications for its next batch: they came along."""
    path = begun(tmp_path, plan_of("random"))
    Journal(path, KnownBatches()).put(line)
    ledger = read_ledger(path)
    assert (ledger.chosen, ledger.done, ledger.damaged) == ({}, {}, 1)


def test_what_a_page_counts_is_what_it_names(tmp_path: Path) -> None:
    """Each case was a workload, twice as many with two modes; runs that were deleted had their MiB."""
    ledger, plan = KnownBatches(), plan_of("random")
    ledger.add(BatchBegun(item="1", generator="random", workloads=("random2-1-20", "random2-2-20")))
    ledger.add(Batch(item="1", at=60, seconds=60, cases=4, states=90, size_bytes=40 << 20))
    ledger.add(BatchBegun(item="2", generator="random", workloads=("random2-3-20",)))
    ledger.add(
        Batch(item="2", at=90, seconds=30, cases=2, states=9, size_bytes=3 << 20, run="batches/2/runs/r")
    )
    told = shown(tmp_path, plan, ledger)
    (count,) = told.generators
    assert (count.workloads, count.cases) == (3, 6)
    assert "1 run directory kept, 3 MiB" in told.figures
    assert "1 states/s, 240 cases/h" in told.figures
    path = begun(tmp_path, plan)
    _, _, said = carried_out(plan, path, ToyRuns(nothing, batches=1))
    assert any("random: 2 cases" in line for line in said)


def test_a_batch_that_had_another_turn_is_the_last_one(tmp_path: Path) -> None:
    """It kept its place: the curves went back in time, and what was newest was not the first to be told."""
    ledger = KnownBatches()
    for item, at, new in (("1", 60, ()), ("2", 120, ("x",)), ("1", 3000, ("y", "z"))):
        reached = (Reached("ext4/ordered", f"w{item}", new),) if new else ()
        failed = "" if new else "no guest"
        ledger.add(Batch(item=item, at=at, failed=failed, reached=reached))
    told = shown(tmp_path, plan_of("random"), ledger)
    assert told._series("features").points == [(0.0, 0.0), (2.0, 1.0), (50.0, 3.0)]
    assert [r.workload for _, r in told.newest] == ["w1", "w2"]


@pytest.mark.parametrize(
    ("hours", "how", "ends_with"),
    [
        (0.01, End.TIME_UP, " --hours 0.01"),
        (1.0, End.INTERRUPTED, "-campaign"),
        (None, End.INTERRUPTED, "-campaign"),
        (0.01, End.COMPLETE, ""),
    ],
)
def test_the_command_that_goes_on_does(tmp_path: Path, hours: float | None, how: End, ends_with: str) -> None:
    """Of a campaign whose hours were over it was refused; a complete one has nothing to go on with."""
    plan = msgspec.structs.replace(plan_of("random"), hours=hours)
    path, ledger = begun(tmp_path, plan), KnownBatches()
    ledger.add(Batch(item="1", at=40, seconds=40, cases=1, states=9))
    ledger.add(Ended(at=40, when="2026-01-01T00:00:40+00:00", how=how))
    again = page_of(path, plan, ledger).again
    assert again.endswith(ends_with) and bool(again) is bool(ends_with)


def test_a_finding_that_waits_is_compared_with_each_shrunk_one_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workload was generated, and compared with all of them, after each batch."""
    compared: list[object] = []
    monkeypatch.setattr(work_module, "contains", lambda *both: compared.append(both))
    plan = plan_of("random")
    series = CampaignSeries(plan, begun(tmp_path, plan))
    symptom, ledger, mode = Symptom("durability", "NAME: missing"), series.ledger, "ext4/nobarrier"
    member = CauseMember(
        run="r",
        kernel="k",
        configuration=mode,
        workload="w",
        point="p",
        finding="m",
        symptom=symptom,
        summary="s",
        operations=20,
        minimal=("create A",),
        shows=((symptom, "s"),),
    )
    ledger.add(ShrunkFinding(member=member, at=1, seconds=1000))  # so that others wait
    batches = series.items(cast(Any, SimpleNamespace(at=100.0, time_is_up=False, put=ledger.add)))
    for item in itertools.islice(batches, 3):
        found = Found(
            id=f"f{item.name}",
            configuration=mode,
            workload=chance.name_of(int(item.name), 20),
            point="p",
            symptom=symptom,
            summary="s",
            states=1,
        )
        ledger.add(Batch(item=item.name, found=(found,)))
    assert len(ledger.waiting) == 3
    assert len(compared) == 2, "those of the first two batches"
