"""A sweep: a run on each kernel, kept, and gone on with."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from harness.errors import EnvironmentLacks, KernelError, RunChanged, UsageError
from harness.expectations import Expectation
from harness.host.progress import Lines, Progress
from harness.known.base import KnownBug, KnownBugs, Record, Severity, Sighting
from harness.model import CaseId
from harness.oracles import ORACLES
from harness.plan import Plan
from harness.releases.page import page_of
from harness.releases.results import Answer, OnKernel, Sweep, SweepPlan
from harness.releases.sweep import SweepSeries, VerdictSeries, create, every_kernel, load_plan
from harness.report.page import Page
from harness.series import work
from harness.series.journal import End
from harness.series.work import Execute, OnDone, carry_out
from harness.store import RunStore
from harness.store.records import SCHEMA as RUN_SCHEMA
from harness.store.records import CaseInfo, CaseStatus
from harness.summary import CaseVerdict, Summary, summarise
from harness.tests.report.demo import JUDGES, add_case
from harness.tests.said import Said
from harness.tests.store.samples import INFO

QUIET = Lines(Console(quiet=True))
BROKEN = next(iter(JUDGES))
KEPT = "ext4-journal/append-fsync"
PLAN = SweepPlan(
    title="t",
    kernels=["debian-6.1", "debian-6.12", "debian-7.3"],
    plan=Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]),
    argv=["matrix"],
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels on which something was run. debian-6.12 cannot be had."""
    kernels: list[str] = []

    monkeypatch.setattr(work, "execute", finished(kernels))
    return kernels


def finished(kernels: list[str]) -> Execute:
    """In place of `harness.run.execute`."""

    def execute(plan: Plan, store: RunStore, _: Progress, on_done: OnDone) -> Summary:
        kernels.append(plan.kernel)
        if plan.kernel == "debian-6.12":
            raise KernelError("the archive does not have it", "name another")
        for name in BROKEN, KEPT:
            add_case(store, CaseId.parse(name), "")
        named = dataclasses.replace(store.info.kernel, name=plan.kernel, release="6.12.117")
        store.update_info(dataclasses.replace(store.info, kernel=named))
        store.finish(interrupted=False)
        return summarise(store)

    return execute


Part = Callable[[RunStore], None]


def on_last(monkeypatch: pytest.MonkeyPatch, ran: list[str], part: Part, *, complete: bool = False) -> None:
    """From now on `part` is what is run on debian-7.3; with `complete`, after all that is run elsewhere."""
    usual = finished(ran)

    def execute(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        last = plan.kernel == "debian-7.3"
        if complete or not last:
            usual(plan, store, progress, on_done)
        if last:
            part(store)
        return summarise(store)

    monkeypatch.setattr(work, "execute", execute)


def carried(path: Path, tell: Callable[[Sweep], None] = lambda _: None, progress: Progress = QUIET) -> Sweep:
    class Telling(SweepSeries):
        def write(self) -> Page:
            tell(self.sweep)
            return super().write()

    series = Telling(load_plan(path), path)
    carry_out(series, progress)
    return series.sweep


def test_every_kernel_has_an_answer_or_a_reason(ran: list[str], tmp_path: Path) -> None:
    told: list[int] = []
    path = create(PLAN, tmp_path, "matrix")
    done = carried(path, lambda s: told.append(sum(bool(k.answers) for k in s.kernels)))
    assert ran == PLAN.kernels
    assert [k.failed for k in done.kernels] == ["", "the archive does not have it; name another", ""]
    assert [a.verdict for a in done.kernels[0].answers] == [CaseVerdict.FAIL, CaseVerdict.PASS]
    assert done.kernels[0].answers[0].findings[0].point.startswith(f"{BROKEN}@")
    assert (bool(done.finished), done.decided) == (True, False)
    assert told == [0, 1, 1, 2, 2]


def test_what_was_answered_is_not_run_again(ran: list[str], tmp_path: Path) -> None:
    """A kernel that could not be had is tried again: the archive may have it by now."""
    path = create(PLAN, tmp_path, "matrix")
    first = carried(path)
    ran.clear()
    again = carried(path)
    assert ran == ["debian-6.12"]
    assert (again.kernels[0], again.kernels[2]) == (first.kernels[0], first.kernels[2])


def test_an_interrupted_run_is_gone_on_with(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had answered by then was left out, and so was the kernel: as if it had not been reached."""
    path = create(PLAN, tmp_path, "matrix")

    def stopped(store: RunStore) -> None:
        add_case(store, CaseId.parse(BROKEN), "")
        store.add_case(CaseInfo(CaseId.parse(KEPT)))
        store.finish(interrupted=True)

    on_last(monkeypatch, ran, stopped)
    first = carried(path)
    assert first.interrupted
    assert [bool(k.run) for k in first.kernels] == [True, False, True]
    assert [k.interrupted for k in first.kernels] == [False, False, True]
    assert [a.verdict for a in first.kernels[2].answers] == [CaseVerdict.FAIL, CaseVerdict.UNKNOWN]
    assert first.kernels[2].answers[1].reason == "the run ended before it was recorded"

    def rest(store: RunStore) -> None:
        add_case(store, CaseId.parse(KEPT), "")
        store.finish(interrupted=False)

    on_last(monkeypatch, ran, rest)
    told: list[int] = []
    again = carried(path, lambda s: told.append(len(s.kernels[2].answers)))
    assert [k.decided for k in again.kernels] == [True, False, True]
    assert [k.interrupted for k in again.kernels] == [False, False, False]
    assert told[0] == 2, "what is known is shown until it is done anew"
    assert len(list((path / "kernels/debian-7.3/runs").iterdir())) == 1


def test_a_run_that_was_killed_while_it_was_made_is_begun_anew(tmp_path: Path) -> None:
    """It was gone on with, without the known bugs that its series had been given."""
    record = Record(severity=Severity.COSMETIC, mechanism="m", first="6.1")
    bugs = KnownBugs(bug=(KnownBug(name="ours", title="t", record=record),))
    plan = msgspec.structs.replace(PLAN, kernels=["debian-6.1"], known=bugs)
    series = SweepSeries(plan, create(plan, tmp_path, "matrix"))
    RunStore.create(series.place("debian-6.1"), "run", INFO).close()
    known: list[KnownBugs] = []

    def execute(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        known.append(store.known())
        return finished([])(plan, store, progress, on_done)

    carry_out(series, QUIET, run=execute)
    assert known == [bugs]
    assert "killed while it was made" in series.sweep.kernels[0].anew


def test_what_was_left_undecided_is_tried_again(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that did not come up on a busy host left a hole in the table that --resume did not fill."""
    path = create(PLAN, tmp_path, "matrix")
    lost = CaseId.parse(KEPT)
    on_last(
        monkeypatch, ran, lambda store: store.set_case_status(lost, CaseStatus.UNKNOWN, "lost"), complete=True
    )
    assert [k.decided for k in carried(path).kernels] == [True, False, False]
    ran.clear()

    def rest(store: RunStore) -> None:
        ran.append("debian-7.3")
        store.set_case_status(lost, CaseStatus.DONE)
        store.finish(interrupted=False)

    on_last(monkeypatch, ran, rest)
    again = carried(path)
    assert [k.decided for k in again.kernels] == [True, False, True], again.kernels[2]
    assert ran == ["debian-6.12", "debian-7.3"]


@pytest.mark.parametrize("version", [False, True])
def test_a_sweep_of_another_installation_is_gone_on_with(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: bool
) -> None:
    """After an upgrade each --resume said that other parts had begun the kernel's run, and dropped what it
    had answered, for ever. Kernels that are done stay; the run of another is begun anew, and that is said.
    """
    path = create(PLAN, tmp_path, "matrix")

    def stopped(store: RunStore) -> None:
        add_case(store, CaseId.parse(BROKEN), "")
        store.finish(interrupted=True)

    on_last(monkeypatch, ran, stopped)
    first, complete = carried(path), finished(ran)
    old = path / first.kernels[2].run
    (old / "of the old installation").touch()
    with RunStore.open(old) as store:
        store.set_expectations([Expectation("*", "*", "*", "known", "known.txt:1")])

    def upgraded(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if (store.path / "of the old installation").exists():
            raise RunChanged("begun with other parts: fsck 1 then, 2 now", "start a new run")
        return complete(plan, store, progress, on_done)

    monkeypatch.setattr(work, "execute", upgraded)
    if version:
        info = (old / "run.json").read_text()
        (old / "run.json").write_text(info.replace(f'"schema": {RUN_SCHEMA}', f'"schema": {RUN_SCHEMA - 1}'))
    ran.clear()
    again = carried(path)
    assert ran == ["debian-6.12", "debian-7.3"]
    assert again.kernels[0] == first.kernels[0]
    assert again.kernels[2].decided
    verdicts = [a.verdict for a in again.kernels[2].answers]
    assert verdicts == [CaseVerdict.FAIL if version else CaseVerdict.XFAIL, CaseVerdict.PASS]
    assert ("schema" if version else "fsck 1 then, 2 now") in again.kernels[2].anew
    assert "begun anew, so its answers are of this installation" in page_of(again).text()
    assert carried(path).kernels[2] == again.kernels[2]


def test_what_a_kernel_had_answered_stays_where_its_run_cannot_be_gone_on_with(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With mkfs gone from the host its answers were gone from the page."""
    path = create(PLAN, tmp_path, "matrix")
    on_last(monkeypatch, ran, lambda store: store.finish(interrupted=True), complete=True)
    first = carried(path)

    def lacking(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        raise EnvironmentLacks("nothing can be run any more: no mkfs.ext4", "restore what is missing")

    monkeypatch.setattr(work, "execute", lacking)
    for _ in range(2):
        again = carried(path)
        assert again.kernels[2].answers == first.kernels[2].answers
        assert not again.kernels[2].decided
        assert "no mkfs.ext4" in again.kernels[2].failed
    assert (path / again.kernels[2].run).is_dir()


def test_a_run_stays_until_one_that_was_begun_anew_has_an_answer(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers were kept, and the run that their commands name was gone."""
    path = create(PLAN, tmp_path, "matrix")
    on_last(monkeypatch, ran, lambda store: store.finish(interrupted=True), complete=True)
    old = carried(path).kernels[2].run

    def upgraded(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if str(store.path).endswith(old):
            raise RunChanged("begun with other parts", "start a new run")
        raise KernelError("the archive does not have it any more", "name another")

    monkeypatch.setattr(work, "execute", upgraded)
    for _ in range(2):
        again = carried(path).kernels[2]
        assert "does not have it any more" in again.failed
        assert again.run == old and (path / old / "run.json").is_file()
    monkeypatch.setattr(work, "execute", finished(ran))
    last = carried(path).kernels[2]
    assert last.decided and last.run != old
    assert [str(p.relative_to(path)) for p in (path / old).parent.iterdir()] == [last.run]


def test_progress_says_which_kernel_it_is_of(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix of five hundred cases said nothing for an hour."""
    out = io.StringIO()
    complete = finished(ran)

    def telling(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        progress.say("2 at once")
        progress.begin("recorded", 4)
        progress.advance("recorded", 3)
        return complete(plan, store, progress, on_done)

    monkeypatch.setattr(work, "execute", telling)
    path = create(PLAN, tmp_path, "matrix")
    with Lines(Console(file=out, width=200)) as progress:
        carried(path, progress=progress)
    assert "debian-7.3: 2 at once\n" in out.getvalue()
    assert out.getvalue().splitlines()[-1].endswith("recorded 9/12")


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no matrix"):
        load_plan(tmp_path)


def test_an_unknown_kernel_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    unknown = SweepPlan(title="t", kernels=["debian-5.99"], plan=PLAN.plan)
    with pytest.raises(UsageError, match=r"debian-5\.99"):
        create(unknown, tmp_path, "matrix")
    assert list(tmp_path.iterdir()) == []


def test_all_kernels_are_those_that_boot_a_pc_in_order() -> None:
    named = every_kernel()
    assert named[:2] == ["debian-6.1", "debian-6.12"]
    assert named[-1] == "debian-7.3"
    assert not [name for name in named if name.startswith("uml")]


def test_each_kernel_has_an_equal_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first kernel took all of it, and the table said nothing of the second."""
    given: list[float | None] = []

    def stopped(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        given.append(plan.minutes)
        add_case(store, CaseId.parse(KEPT), "")
        store.finish(interrupted=True, stopped="the time given is up")
        return summarise(store)

    monkeypatch.setattr(work, "execute", stopped)
    path = create(PLAN, tmp_path, "matrix")
    series = SweepSeries(load_plan(path), path)
    assert carry_out(series, QUIET, until_s=3600) is End.TIME_UP
    assert [round(minutes or 0) for minutes in given] == [20, 30, 60], "of what is left: a third, half, all"
    assert [k.interrupted for k in series.sweep.kernels] == [True, True, True]


def test_a_page_says_which_cases_earlier_runs_decided() -> None:
    runs = {"a": "x", "b": "", "c": "x"}
    answers = [Answer("ext4/ordered", w, CaseVerdict.PASS, 3, taken_from=run) for w, run in runs.items()]
    done = OnKernel(item="k", release="6.12", answers=tuple(answers))
    assert done.words == "6.12; 2 of 3 cases decided by x"
    assert OnKernel(item="k", release="6.12", answers=tuple(answers[1:2])).words == "6.12"


def test_what_a_kernel_leaves_of_its_time_goes_to_those_that_were_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the minutes was for a kernel that needed one of them; the other one was left undecided."""
    given: list[tuple[str, int]] = []

    def stops_at_first(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        slow = plan.kernel == "debian-6.1" and plan.kernel not in dict(given)
        given.append((plan.kernel, round(plan.minutes or 0)))
        add_case(store, CaseId.parse(KEPT), "")
        store.finish(interrupted=slow, stopped="the time given is up" if slow else "")
        return summarise(store)

    monkeypatch.setattr(work, "execute", stops_at_first)
    path = create(PLAN, tmp_path, "matrix")
    series = SweepSeries(load_plan(path), path)
    assert carry_out(series, QUIET, until_s=3600) is End.COMPLETE
    kernels = PLAN.kernels
    assert given == [(kernels[0], 20), (kernels[1], 30), (kernels[2], 60), (kernels[0], 60)]
    assert [k.interrupted for k in series.sweep.kernels] == [False, False, False]


def test_a_sweep_whose_last_answer_took_the_rest_of_the_time_is_complete(
    ran: list[str], tmp_path: Path
) -> None:
    """It said "time up; continue with", and there was nothing to go on with."""
    plan = msgspec.structs.replace(PLAN, kernels=["debian-6.1"])
    path = create(plan, tmp_path, "matrix")
    assert carry_out(SweepSeries(plan, path), QUIET) is End.COMPLETE
    assert carry_out(SweepSeries(plan, path), QUIET, until_s=0) is End.COMPLETE


def test_a_verdict_leaves_a_table_and_takes_known_bugs_along(ran: list[str], tmp_path: Path) -> None:
    symptoms = ("*-fsync*", "eN*", "stale*")
    shows = (Sighting(modes=("ext4/nobarrier",), oracles=(*ORACLES, "no-stale-data"), symptoms=symptoms),)
    record = Record(severity=Severity.COSMETIC, mechanism="m", first="5.0", shows=shows)
    known = KnownBugs(bug=(KnownBug(name="ours", title="t", record=record),))
    plan = msgspec.structs.replace(PLAN, depth="quick", known=known, kernels=["debian-6.1", "debian-6.12"])
    path = create(plan, tmp_path, "verdict")
    series = VerdictSeries(load_plan(path), path)
    carry_out(series, QUIET)
    rows = list(csv.DictReader(io.StringIO((path / "verdict.csv").read_text())))
    found = {(r["configuration"], r["kernel"]): (r["verdict"], r["known_bugs"]) for r in rows}
    assert found[CaseId.parse(BROKEN).configuration, "debian-6.1"] == ("broken: known", "ours")
    assert found["ext4/journal", "debian-6.1"][0] == "safe as far as looked"
    assert found["ext4/journal", "debian-6.12"][0] == "not looked at"
    for name in ("report.html", "summary.txt", "summary.md", "verdict.json"):
        assert "ours" in (path / name).read_text(), name


def test_a_verdict_knows_what_the_verdicts_beside_it_said_before(ran: list[str], tmp_path: Path) -> None:
    """Of nightly verdicts nobody was told that a configuration which was safe is broken now."""
    plan = msgspec.structs.replace(PLAN, kernels=["debian-6.1"], depth="quick")
    paths = []
    for name, depth in (("a", "quick"), ("b", "quick"), ("c", "deep"), ("d", "quick")):
        paths.append(create(msgspec.structs.replace(plan, depth=depth), tmp_path, name))
        carry_out(VerdictSeries(load_plan(paths[-1]), paths[-1]), QUIET)
    first, second, _, last = (path / "verdict.json" for path in paths)
    for day, file in enumerate((first, second), 1):  # a journal's times are whole seconds
        begun = re.sub('"begun": "2[^"]+"', f'"begun": "2026-01-0{day}T00:00:00+00:00"', file.read_text())
        file.write_text(begun.replace("broken: new", "safe as far as looked") if day == 1 else begun)
    (tmp_path / "runs/none").mkdir()
    (tmp_path / "runs/none/verdict.json").write_text("{")
    before = VerdictSeries(load_plan(last.parent), last.parent).sweep.before
    assert [b.verdict for b in before["ext4/journal", "debian-6.1"]] == ["safe as far as looked"] * 2
    assert [b.verdict[:6] for b in before[CaseId.parse(BROKEN).configuration, "debian-6.1"]] == [
        "safe a",
        "broken",
    ]
    assert (
        len(VerdictSeries(load_plan(second.parent), second.parent).sweep.before["ext4/ordered", "debian-6.1"])
        == 1
    )


@pytest.mark.parametrize(
    ("series", "results"), [(VerdictSeries, "verdict.json"), (SweepSeries, "releases.json")]
)
def test_a_run_directory_that_is_gone_is_not_cited(
    tmp_path: Path, ran: list[str], series: type[SweepSeries], results: str
) -> None:
    """Gone on with, a verdict named it beside the kernel and in the commands, as if it were there."""
    plan = msgspec.structs.replace(PLAN, depth="quick", kernels=["debian-6.1", "debian-7.3"])
    path = create(plan, tmp_path, "verdict")
    carry_out(series(plan, path), QUIET)
    both = (path / "summary.txt").read_text()
    shutil.rmtree(path / "kernels" / "debian-7.3")
    carry_out(series(plan, path), QUIET)
    told = (path / "summary.txt").read_text()
    gone = "its run directory is gone"
    assert ran == plan.kernels, "what is known is not run again"
    assert ("kernels/debian-7.3" in both, gone in both) == (True, False)
    assert "kernels/debian-6.1" in told
    assert re.search(rf"^debian-7.3: [^:]*\({gone}\)$", told, re.MULTILINE)
    for file in ("summary.txt", "summary.md", "report.html", results):
        assert "kernels/debian-7.3" not in (path / file).read_text(), file
    if series is VerdictSeries:
        assert "kernels/debian-7.3" not in (path / "verdict.csv").read_text()


def test_a_workload_that_the_file_system_cannot_run_is_not_left_to_be_decided(tmp_path: Path) -> None:
    """`18 cases, 1 not decided` of a verdict in which nothing was open: FAT has no links."""
    series = SweepSeries(PLAN, create(PLAN, tmp_path, "matrix"))
    kept = Answer("vfat/default", "overwrite", CaseVerdict.PASS, 5)
    cannot = Answer("vfat/default", "namespace", CaseVerdict.NOT_RUN, reason="does not support `link`")
    lacking = Answer("xfs/default", "overwrite", CaseVerdict.NOT_RUN, reason="no mkfs.xfs", lacks=True)
    told = [
        series.words(OnKernel(item="k", name="k", answers=answers))
        for answers in ((kept, cannot), (kept, cannot, lacking))
    ]
    assert told == ["k: 1 case, 0 with findings", "k: 2 cases, 1 not decided, 0 with findings"]


def test_a_file_that_was_built_anew_is_run_again(tmp_path: Path, ran: list[str]) -> None:
    """The answers of the build before stood beside those of the new one. Those of a file that is gone
    stay.
    """
    images = [tmp_path / "one", tmp_path / "two"]
    for image in images:
        image.write_bytes(b"\x7fELF one")
    begun = msgspec.structs.replace(PLAN, kernels=[str(i) for i in images])
    path = create(begun, tmp_path, "matrix")
    carry_out(SweepSeries(load_plan(path), path), QUIET)
    images[0].write_bytes(b"\x7fELF another")
    images[1].unlink()
    ran.clear()
    again = SweepSeries(load_plan(path), path)
    assert [bool(k.answers) for k in again.sweep.kernels] == [False, True]
    said = Said()
    carry_out(again, said)
    assert ran == [str(images[0])]
    assert f"{images[0]} was built anew since it was run: it is run again" in said.lines
    assert [bool(k.answers) for k in again.sweep.kernels] == [True, True]


@pytest.mark.parametrize("missing", [False, True])
def test_answers_that_were_kept_without_their_build_stay(
    tmp_path: Path, ran: list[str], *, missing: bool
) -> None:
    """After an upgrade every kernel of a file was "built anew", and run again. What was no answer, as of a
    file that was not there, is none of a build either.
    """
    image = tmp_path / "one"
    image.write_bytes(b"\x7fELF one")
    path = create(msgspec.structs.replace(PLAN, kernels=[str(image)]), tmp_path, "matrix")
    carry_out(SweepSeries(load_plan(path), path), QUIET)
    again = SweepSeries(load_plan(path), path)
    (done,) = again.known.done.values()
    gone = {"answers": (), "failed": "it is not there"} if missing else {}
    again.known.add(msgspec.structs.replace(done, key="", **gone))
    assert again._key(str(image)) == (done.key if missing else "")
    assert bool(again.sweep.kernels[0].answers) is not missing


def test_a_file_that_was_missing_was_not_built_anew(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "one"
    image.write_bytes(b"\x7fELF one")
    path = create(msgspec.structs.replace(PLAN, kernels=[str(image)]), tmp_path, "matrix")
    image.unlink()

    def missing(plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        raise KernelError(f"{image} is not there", "name another")

    monkeypatch.setattr(work, "execute", missing)
    carried(path)
    image.write_bytes(b"\x7fELF one")
    monkeypatch.setattr(work, "execute", finished(ran))
    said = Said()
    carried(path, progress=said)
    assert ran == [str(image)]
    assert not [line for line in said.lines if "built anew" in line]
