"""A patch as a series: what is run on which kernel, and what its page says. Runs are made up, all else is
real.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import shutil
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.cases.casework import EnoughDone
from harness.cli.patch import exit_code
from harness.errors import ExitCode, KernelError, UsageError
from harness.expectations import Expectation
from harness.faults.results import Detection
from harness.host.progress import Progress
from harness.host.resources import resource
from harness.kernels.commits import CommitRange, Revision
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.patches.mistakes import Mistake
from harness.patches.page import junit_of, page_of
from harness.patches.questions import Stage
from harness.patches.ran import ChangedLines
from harness.patches.results import Answer, Below, Broken, Fate, KernelTrial, PatchPlan, Regression, Standing
from harness.patches.work import Explain, PatchSeries, Phase, create, load_plan
from harness.plan import Plan
from harness.series.work import Execute, OnDone, carry_out
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, JudgedState
from harness.summary import Summary, summarise
from harness.tests.said import Said

CASE = CaseId("ext4", "ordered", "append-fsync")
LOST = Judgement((Violation("durability", "f", "f: missing", "f", "nothing", "f is gone"),))
QUICK = Stage("quick", ("ext4/ordered",), ("append-fsync",))
MORE = Stage("more", ("ext4/ordered",), ("append-fsync",), again=1)
COMMITS = tuple((str(n) * 40, f"commit {n}") for n in range(1, 6))
BASE = ("b" * 40, "the base")
HEAD = COMMITS[-1][0]
Shows = Callable[[str], Judgement | None]
"""By the commit: what its kernel shows; None: the case cannot be decided."""


IMAGES = Path(tempfile.mkdtemp(prefix="powercut-test-images-"))
atexit.register(shutil.rmtree, IMAGES, ignore_errors=True)


MARKED = "marked"
"""What the image of a kernel with marks is called."""
SOURCE = "int sync(void)\n{\n\tflush();\n\treturn 0;\n}\n"


class Kernels:
    """The image of a commit is called after it. `broken`: commits that do not build. Each file of each is
    SOURCE, and a commit on top of one is called after the text that it has.
    """

    def text(self, commit: str, file: str) -> str:
        return SOURCE

    def below(self, series: CommitRange) -> Below:
        return [(1 << n) - 1 for n in range(len(series.commits))]

    def with_text(self, commit: Revision, file: str, text: str, subject: str) -> Revision:
        return Revision(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), subject)

    def noting_kernel(self, commit: Revision, texts: Mapping[str, str], marks: int) -> Path:
        if MARKED in self.broken:
            raise KernelError(f"{commit} does not build: error: no such name", "the log")
        self.marked = texts, marks
        image = IMAGES / MARKED
        if not image.exists():
            shutil.copy("/bin/true", image)
        return image

    def __init__(self, *broken: str) -> None:
        self.broken, self.built = broken, []  # type: tuple[str, ...], list[str]

    def key(self, commit: str) -> str:
        return commit

    def kernel(self, commit: Revision) -> Path:
        if commit.id in self.broken:
            raise KernelError(f"{commit} does not build: error: no such name", "the log")
        self.built.append(commit.id)
        image = IMAGES / commit.id
        if not image.exists():
            shutil.copy("/bin/true", image)
        return image


def ran(shows: Shows, asked: list[tuple[str, Plan]]) -> Execute:
    """In place of `harness.run.execute`."""

    def execute(plan: Plan, store: RunStore, _: Progress, on_done: OnDone) -> Summary:
        commit = Path(plan.kernel).name
        asked.append((commit, plan))
        store.add_case(CaseInfo(CASE, generated=1, distinct=1))
        if (judgement := shows(commit)) is None:
            judgement = Judgement(unknown=("guests were lost",))
        store.put_judgements(CASE, [JudgedState(CrashState(0), "0", judgement)])
        store.set_case_status(CASE, CaseStatus.DONE)
        with contextlib.suppress(EnoughDone):
            on_done(CASE)
        store.finish()
        return summarise(store)

    return execute


def plan(*stages: Stage) -> PatchPlan:
    return PatchPlan(
        tree="/linux", base=BASE, commits=COMMITS, changed=("fs/ext4/fsync.c", "README"), stages=stages,
        nobodys=("README",), machine="uml", argv=["patch"],
    )  # fmt: skip


def carried_out(
    tmp_path: Path,
    shows: Shows,
    stages: Sequence[Stage] = (QUICK,),
    kernels: Kernels | None = None,
    explain: Explain | None = None,
) -> tuple[PatchSeries, list[tuple[str, Plan]], Said]:
    asked: list[tuple[str, Plan]] = []
    path = create(plan(*stages), tmp_path)
    series = PatchSeries(load_plan(path), path, kernels or Kernels(), explain)
    said = Said()
    carry_out(series, said, run=ran(shows, asked))
    return series, asked, said


def from_third_on(commit: str) -> Judgement:
    return LOST if commit in [c for c, _ in COMMITS[2:]] else Judgement()


def test_a_patch_that_breaks_nothing_asks_nothing_of_its_base(tmp_path: Path) -> None:
    series, asked, _ = carried_out(tmp_path, lambda commit: Judgement(), (QUICK, MORE))
    assert [(c, p.again) for c, p in asked] == [(HEAD, 0), (HEAD, 1)]
    assert series.page().headline == "no promise broken that the base keeps, in 2 crash states of 1 case."
    assert exit_code(series.answer) is ExitCode.CONSISTENT


def test_what_only_the_patch_breaks_is_new_and_the_first_commit_that_does_is_named(tmp_path: Path) -> None:
    series, asked, said = carried_out(tmp_path, from_third_on)
    (told,) = series.answer.regressions
    assert (told.standing, str(told.culprit)) == (Standing.NEW, "333333333333 (commit 3)")
    assert asked[1][0] == BASE[0]
    assert asked[1][1].only == (str(CASE),)
    assert exit_code(series.answer) is ExitCode.INCONSISTENT
    assert any("new: ext4-ordered/append-fsync: durability" in line for line in said.lines)
    page = series.page()
    assert "first broken by 333333333333 (commit 3)" in page.text()
    assert json.loads(page.json())["regressions"][0]["commit"] == COMMITS[2][0]


def test_the_command_that_explains_has_the_name_that_every_page_gives_it(tmp_path: Path) -> None:
    """It was `explain:` here and `why:` elsewhere, and the button of the page copied that word with it."""
    page = carried_out(tmp_path, from_third_on)[0].page()
    (labels,) = {tuple(c.partition(": ")[0] for c in f.commands) for s in page.sections for f in s.findings}
    assert labels == ("reproduce", "why")
    copied = resource("reports", "templates", "report.js").read_text()
    assert "(reproduce|why|" in copied


def test_what_the_base_breaks_as_well_is_no_news(tmp_path: Path) -> None:
    series, asked, _ = carried_out(tmp_path, lambda commit: LOST)
    assert [r.standing for r in series.answer.regressions] == [Standing.IN_BASE]
    assert [c for c, _ in asked] == [HEAD, BASE[0]]
    assert exit_code(series.answer) is ExitCode.CONSISTENT


def expecting(
    tmp_path: Path, shows: Shows, kernels: Kernels | None = None, **changes: Any
) -> tuple[PatchSeries, list[tuple[str, Plan]]]:
    """A patch in a mode of which all that is lost is expected."""
    asked: list[tuple[str, Plan]] = []
    path = create(msgspec.structs.replace(plan(QUICK), **changes), tmp_path)
    series = PatchSeries(load_plan(path), path, kernels or Kernels())
    series.expectations = [Expectation("ext4/ordered", "*", "durability", "a race of this mode")]
    carry_out(series, Said(), run=ran(shows, asked))
    return series, asked


def test_an_expected_finding_that_the_base_does_not_show_is_new(tmp_path: Path) -> None:
    """A patch to F2FS whose fsync wrote no node passed: whatever is lost in that mode is a known bug."""
    series, asked = expecting(tmp_path, from_third_on)
    assert [(c, p.only) for c, p in asked[:3]] == [
        (HEAD, ()), (BASE[0], (str(CASE),)), (BASE[0], (f"{CASE}.s1", f"{CASE}.s2")),
    ]  # fmt: skip
    (told,) = series.answer.regressions
    assert (told.standing, str(told.culprit)) == (Standing.NEW, "333333333333 (commit 3)")
    assert exit_code(series.answer) is ExitCode.INCONSISTENT
    text = series.page().text()
    assert "expected of this mode, but the base does not show it: a race of this mode" in text
    assert "1 of 1 expected finding compared with the base" in text
    assert "<failure" in (series.path / "junit.xml").read_text()
    assert not series.follows_left


def test_each_case_is_asked_again_of_the_base(tmp_path: Path) -> None:
    """Beside one without a schedule, a case with one was not: its finding was never compared."""
    path = create(plan(Stage("asked", QUICK.modes, ("append-fsync", "overwrite.s1"))), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    other = "ext4-ordered/overwrite.s1"
    found = [
        Broken("id", case, "durability", 1, 1, "f is gone", f"{case}@0", "a race", "f: missing")
        for case in (str(CASE), other)
    ]
    series.known.done["base-asked"] = KernelTrial(item="base-asked", cases=(str(CASE), other))
    (item,) = series._under_schedules(series.plan.stages[0], {("durability", "f: missing"): found})
    assert callable(item.plan)
    assert item.plan().only == (f"{CASE}.s1", f"{CASE}.s2", other)


def test_an_expected_finding_that_the_base_shows_too_is_counted_and_no_more(tmp_path: Path) -> None:
    series, asked = expecting(tmp_path, lambda commit: LOST)
    assert [c for c, _ in asked] == [HEAD, BASE[0]]
    assert (series.answer.regressions, exit_code(series.answer)) == ((), ExitCode.CONSISTENT)
    assert "1 of 1 expected finding compared with the base" in series.page().text()


def test_an_expected_finding_that_was_not_compared_is_told(tmp_path: Path) -> None:
    """The page said nothing of it."""
    series, _ = expecting(tmp_path, from_third_on, Kernels(BASE[0]))
    assert exit_code(series.answer) is ExitCode.UNDECIDED
    assert "0 of 1 expected finding compared with the base; 1 was not (" in series.page().text()


def test_the_base_is_not_asked_of_expected_findings_of_another_file_system(tmp_path: Path) -> None:
    other = ("fs/xfs/xfs_file.c",)
    series, asked = expecting(tmp_path, lambda commit: LOST, changed=other, nobodys=other)
    assert [c for c, _ in asked] == [HEAD]
    assert "1 was not (its mode runs none of the changed files)" in series.page().text()


def test_a_base_that_cannot_be_asked_makes_no_finding_new(tmp_path: Path) -> None:
    for shows, kernels in (
        (lambda c: None if c == BASE[0] else LOST, Kernels()),
        (lambda c: LOST, Kernels(BASE[0])),
    ):  # type: Shows, Kernels
        series, _, _ = carried_out(tmp_path, shows, kernels=kernels)
        assert [r.standing for r in series.answer.regressions] == [Standing.UNDECIDED]
        assert series.page().kind == "unknown", "it was green, and ended in 3"
        assert exit_code(series.answer) is ExitCode.UNDECIDED
        assert "1 finding not compared with the base" in series.page().headline


def test_a_head_that_cannot_be_decided_is_not_green(tmp_path: Path) -> None:
    series, _, _ = carried_out(tmp_path, lambda commit: None)
    assert exit_code(series.answer) is ExitCode.UNDECIDED
    assert series.page().kind == "unknown"


def test_commits_that_do_not_build_are_passed_over(tmp_path: Path) -> None:
    series, _, _ = carried_out(tmp_path, from_third_on, kernels=Kernels(COMMITS[1][0], COMMITS[2][0]))
    (told,) = series.answer.regressions
    assert told.culprit is not None
    assert [c.subject for c in (*told.culprit.among, told.culprit.first)] == [
        "commit 2", "commit 3", "commit 4",
    ]  # fmt: skip


def test_a_new_finding_is_explained_once_and_what_cannot_be_explained_is_said(tmp_path: Path) -> None:
    explained: list[str] = []

    def explain(run: Path, seen: Detection, image: Path) -> list[str]:
        assert (run / "run.json").exists()
        assert image.name == HEAD
        explained.append(seen.id)
        if len(explained) > 1:
            raise UsageError("it has no times")
        return ["the flush was left out"]

    series, _, said = carried_out(tmp_path, from_third_on, (QUICK, MORE), explain=explain)
    assert len(explained) == 1
    assert "the flush was left out" in series.page().text()
    series, _, said = carried_out(tmp_path, from_third_on, explain=explain)
    assert any("no cause is known: it has no times" in line for line in said.lines)


def test_what_is_known_to_be_new_is_not_asked_of_the_base_again(tmp_path: Path) -> None:
    """Each stage compared it anew, and tried the commits in between once more."""
    series, asked, said = carried_out(tmp_path, from_third_on, (QUICK, MORE))
    assert [c for c, p in asked if p.again] == [HEAD]
    assert len([line for line in said.lines if line.startswith("new: ")]) == 1
    (told,) = series.answer.regressions
    assert (told.stage, str(told.culprit)) == ("quick", "333333333333 (commit 3)")
    assert not series.follows_left


def test_when_the_time_is_up_what_was_found_is_still_compared(tmp_path: Path) -> None:
    """It was left as "not compared", although the base was never asked."""
    asked: list[tuple[str, Plan]] = []
    path = create(plan(QUICK, MORE), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())

    def execute(p: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        series.known.at = 100.0
        return ran(from_third_on, asked)(p, store, progress, on_done)

    carry_out(series, Said(), until_s=0.000_001, run=execute)
    assert asked == []
    carry_out(series, Said(), until_s=60, run=ran(from_third_on, asked))
    assert exit_code(series.answer) is ExitCode.INCONSISTENT


OTHER_CASE = CaseId("ext4", "ordered", "rename-fsync")
TORN = Judgement((Violation("atomicity", "g", "g: torn", "g", "nothing", "g is torn"),))
TWO = Stage("quick", ("ext4/ordered",), ("append-fsync", "rename-fsync"))


def ran_two(
    shows: Mapping[CaseId, Shows], asked: list[tuple[str, Plan]], *, cut: CaseId | None = None
) -> Execute:
    """As `ran`, with two cases. `cut`: the time of the first run is up in this case; before it, if it shows
    None.
    """

    def execute(plan: Plan, store: RunStore, _: Progress, on_done: OnDone) -> Summary:
        commit, is_cut = Path(plan.kernel).name, cut is not None and not asked
        asked.append((commit, plan))
        there = {c.case for c in store.cases()}
        for case in (c for c in shows if not plan.only or str(c) in plan.only):
            if (judgement := shows[case](commit)) is None:
                break
            if case not in there:
                store.add_case(CaseInfo(case, generated=1, distinct=1))
                store.put_judgements(case, [JudgedState(CrashState(0), "0", judgement)])
            if is_cut and case == cut:
                store.set_case_status(case, CaseStatus.RECORDED)
                break
            store.set_case_status(case, CaseStatus.DONE)
            with contextlib.suppress(EnoughDone):
                on_done(case)
        store.finish(stopped="the time given is up" if is_cut else "")
        return summarise(store)

    return execute


def carried_out_with_two(
    tmp_path: Path, run: Execute, phases: Sequence[Phase] = (Phase.ASKING,)
) -> PatchSeries:
    path = create(plan(TWO), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    for series.phase in phases:
        carry_out(series, Said(), run=run)
    return series


def from_commit(number: int, judgement: Judgement) -> Shows:
    return lambda commit: judgement if commit in [c for c, _ in COMMITS[number - 1 :]] else Judgement()


def test_what_a_case_showed_counts_though_the_time_was_up_in_it(tmp_path: Path) -> None:
    """Its findings were dropped, and no promise was broken."""
    run = ran_two({CASE: from_commit(9, LOST), OTHER_CASE: from_third_on}, [], cut=OTHER_CASE)
    series = carried_out_with_two(tmp_path, run, (Phase.ASKING, Phase.FOLLOWING))
    (told,) = series.answer.regressions
    assert (told.standing, told.seen[0].case) == (Standing.NEW, str(OTHER_CASE))
    assert series.answer.head["quick"].cases == (str(CASE),)
    assert exit_code(series.answer) is ExitCode.INCONSISTENT
    assert "in 2 crash states of 2 cases" in series.page().headline
    assert 'name="rename-fsync"' in junit_of(series.answer)


def test_a_commit_that_was_tried_for_another_case_is_tried_for_a_later_finding(tmp_path: Path) -> None:
    """It counted as one that could not be tried, so that the commit was "one of" three for good."""
    shows, asked = {CASE: from_third_on, OTHER_CASE: from_commit(2, TORN)}, list[tuple[str, Plan]]()

    def run(p: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if asked or p.only:
            return ran_two(shows, asked)(p, store, progress, on_done)
        first = {CASE: from_third_on, OTHER_CASE: lambda c: None}  # type: dict[CaseId, Shows]
        return ran_two(first, asked, cut=OTHER_CASE)(p, store, progress, on_done)

    twice = (Phase.ASKING, Phase.FOLLOWING) * 2
    series = carried_out_with_two(tmp_path, run, twice)
    assert {r.found[0]: str(r.culprit) for r in series.answer.regressions} == {
        "durability": "333333333333 (commit 3)",
        "atomicity": "222222222222 (commit 2)",
    }
    assert not series.follows_left


def test_a_commit_is_named_for_no_case_in_which_none_was_tried(tmp_path: Path) -> None:
    """Of two cases with one symptom, the commit of the first was said to break both first."""
    run = ran_two({CASE: from_third_on, OTHER_CASE: from_commit(2, LOST)}, [])
    series = carried_out_with_two(tmp_path, run)
    (told,) = series.answer.regressions
    assert {case: str(c) for case, c in told.culprits.items()} == {str(CASE): "333333333333 (commit 3)"}
    assert "which commit breaks 1 more case first was not tried" in series.page().text()


def test_findings_of_one_case_are_one_case(tmp_path: Path) -> None:
    """`and 3 more cases` stood there, of four findings in the only two cases that were asked."""
    lost = (f"f: data of operation {n} lost" for n in (1, 3))
    twice = Judgement(tuple(Violation("durability", "f", said, "f", "nothing", said) for said in lost))
    shows: dict[CaseId, Shows] = {CASE: from_commit(3, twice), OTHER_CASE: from_commit(9, LOST)}
    series = carried_out_with_two(tmp_path, ran_two(shows, []))
    text = series.page().text()
    (told,) = series.answer.regressions
    assert len(told.seen) > len({d.case for d in told.seen}) == 1
    assert "more case" not in text


def test_another_case_of_a_symptom_has_a_commit_of_its_own_where_it_was_tried(tmp_path: Path) -> None:
    both = Judgement((*LOST.violations, *TORN.violations))
    shows: dict[CaseId, Shows] = {
        CASE: from_third_on,
        OTHER_CASE: lambda c: both if c in (HEAD, COMMITS[3][0]) else from_commit(2, LOST)(c),
    }
    series = carried_out_with_two(tmp_path, ran_two(shows, []))
    text = series.page().text()
    assert f"{OTHER_CASE}: first broken by " in text
    assert "was not tried" not in text


@pytest.mark.parametrize(("first", "told"), [(1, True), (3, False)])
def test_a_merge_that_is_named_says_which_commits_it_brings(tmp_path: Path, first: int, told: bool) -> None:
    merged = msgspec.structs.replace(plan(QUICK), brought=(("a" * 40, "mine"),))
    path = create(merged, tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    carry_out(series, Said(), run=ran(from_commit(first, LOST), []))
    words = "; 111111111111 brings 1 commit not on top of the base, and so not tried"
    assert (words in series.page().text()) is told
    assert "aaaaaaaaaaaa (mine)" in series.page().html()


@pytest.mark.parametrize(("first", "told"), [(1, True), (3, False)])
def test_a_commit_that_the_base_is_not_below_says_what_else_it_may_show(
    tmp_path: Path, first: int, told: bool
) -> None:
    """Of a pull request whose base has moved on, its first commit was named for what the base had mended."""
    pulled = msgspec.structs.replace(plan(QUICK), brought=plan(QUICK).commits[:2])
    path = create(pulled, tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    carry_out(series, Said(), run=ran(from_commit(first, LOST), []))
    words = "; not on top of the base, 111111111111 may show what the base has mended since"
    assert (words in series.page().text()) is told
    assert "not tried" not in series.page().html()


def test_a_stage_that_was_not_done_is_named_and_the_exit_code_says_so(tmp_path: Path) -> None:
    path = create(plan(QUICK, MORE), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    series.phase = Phase.FOLLOWING
    carry_out(series, Said(), run=ran(lambda commit: Judgement(), []))
    assert [s.name for s in series.answer.left] == ["quick", "more"]
    assert exit_code(series.answer) is ExitCode.UNDECIDED, "nothing was looked at"
    assert series.page().headline == "nothing was looked at, so nothing is known."


def test_a_page_is_green_only_where_the_exit_code_is_0(tmp_path: Path) -> None:
    """Interrupted, or with stages left when the time was up, it was green, and ended in 130 or in 5."""
    done = KernelTrial(item="head-quick", cases=(str(CASE),), states=4)
    for stages, interrupted, code in (
        ((QUICK,), False, ExitCode.CONSISTENT),
        ((QUICK, MORE), False, ExitCode.TIME_UP),
        ((QUICK,), True, ExitCode.INTERRUPTED),
    ):
        answer = Answer(plan(*stages), tmp_path, {"quick": done}, (), {}, interrupted=interrupted)
        assert exit_code(answer) is code
        assert page_of(answer).kind == ("pass" if code is ExitCode.CONSISTENT else "unknown")


def test_a_pass_where_no_changed_file_is_run_is_undecided(tmp_path: Path) -> None:
    """`-c ext4/ordered` of a change to a network driver was a green page, and exit code 0."""
    done = KernelTrial(item="head-quick", cases=(str(CASE),), states=4)
    nothing = msgspec.structs.replace(plan(QUICK), nobodys=plan(QUICK).changed)
    answer = Answer(nothing, tmp_path, {"quick": done}, (), {})
    assert exit_code(answer) is ExitCode.UNDECIDED
    page = page_of(answer)
    assert page.kind == "unknown"
    assert page.headline.endswith("the modes that were asked run none of the changed files.")


def test_a_series_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    series, _, _ = carried_out(tmp_path, from_third_on, (QUICK, MORE))
    again = PatchSeries(load_plan(series.path), series.path, Kernels())
    more: list[tuple[str, Plan]] = []
    carry_out(again, Said(), run=ran(from_third_on, more))
    assert more == []
    assert [str(r.culprit) for r in again.answer.regressions] == [
        str(r.culprit) for r in series.answer.regressions
    ]


def test_a_commit_whose_time_was_up_is_asked_again_before_one_is_named(tmp_path: Path) -> None:
    """It counted as one that could not be tried, so that `one of` two commits was named for good."""
    asked: list[tuple[str, Plan]] = []

    def execute(p: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if Path(p.kernel).name != COMMITS[2][0]:
            return ran(from_third_on, asked)(p, store, progress, on_done)
        store.finish(stopped="the time given is up")
        return summarise(store)

    path = create(plan(QUICK), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    carry_out(series, Said(), run=execute)
    assert series.follows_left
    series.phase = Phase.FOLLOWING
    carry_out(series, Said(), run=ran(from_third_on, asked))
    assert [str(r.culprit) for r in series.answer.regressions] == ["333333333333 (commit 3)"]
    assert not series.follows_left


@pytest.mark.parametrize("name", ["README", "more"])
def test_the_page_says_what_was_not_asked(tmp_path: Path, name: str) -> None:
    path = create(plan(QUICK, MORE), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    text = series.page().text()
    assert name in text[text.index("What was not asked") :]


def test_junit_has_a_failure_for_what_only_the_patch_breaks(tmp_path: Path) -> None:
    """A job whose test view showed nothing of `patch` was red without a reason, or green."""
    by_all = {
        "": lambda commit: Judgement(),
        "failure": from_third_on,
        "skipped": lambda commit: LOST,
        "error": lambda commit: None,
    }  # type: dict[str, Shows]
    for kind, shows in by_all.items():
        series, _, _ = carried_out(tmp_path / (kind or "passed"), shows)
        (suite,) = ET.fromstring((series.path / "junit.xml").read_text())  # noqa: S314 - our own
        (case,) = suite
        assert (suite.get("name"), case.get("classname"), case.get("name")) == (
            "quick", "powercut.ext4-ordered", "append-fsync",
        )  # fmt: skip
        assert [child.tag for child in case] == ([kind] if kind else []), kind
        if kind == "failure":
            assert "first broken by 333333333333" in (case[0].text or "")


def test_junit_excuses_no_case_for_what_the_base_breaks_in_another() -> None:
    def seen(case: str) -> Broken:
        return Broken(case, case, "durability", 1, 9, f"{case} is gone", f"{case}@1", "", "NAME: missing")

    cases = "ext4-ordered/a", "ext4-ordered/b"
    stage = KernelTrial(item="head-quick", cases=cases, detections=tuple(map(seen, cases)))
    told = tuple(
        Regression((seen(case),), standing, "quick", "", 0)
        for case, standing in zip(cases, (Standing.IN_BASE, Standing.NEW), strict=True)
    )
    answer = Answer(plan(QUICK), Path(), {"quick": stage}, told, {})
    (suite,) = ET.fromstring(junit_of(answer))  # noqa: S314 - our own
    assert [child.tag for case in suite for child in case] == ["skipped", "failure"]


# --- mistakes ---------------------------------------------------------------------------------

PASSES = Judgement()
LEFT_OUT = Mistake("fs/ext4/fsync.c", 3, 3, "\t;\n", "`flush()` left out")
OTHER = Mistake("fs/ext4/fsync.c", 4, 4, "\treturn 1;\n", "another value")


def planted(
    tmp_path: Path,
    shows: Shows,
    kernels: Kernels | None = None,
    head: Judgement = PASSES,
    mistakes: tuple[Mistake, ...] = (LEFT_OUT, OTHER),
) -> PatchSeries:
    """A patch whose last commit came to `head`, and what kernels with mistakes came to."""
    path = create(msgspec.structs.replace(plan(QUICK), mistakes=mistakes), tmp_path)
    series = PatchSeries(load_plan(path), path, kernels or Kernels())
    of_mistake = ran(lambda commit: head if commit == HEAD else shows(commit), [])
    for series.phase in (Phase.ASKING, Phase.PLANTING):
        carry_out(series, Said(), run=of_mistake)
    return series


def commit_with(mistake: Mistake) -> str:
    return Kernels().with_text(Revision(HEAD, ""), mistake.file, mistake.planted(SOURCE), "").id


def test_a_mistake_that_no_case_notices_is_told_as_that(tmp_path: Path) -> None:
    """A page that says nothing of it lets its reader take a pass for more than it is."""
    series = planted(tmp_path, lambda commit: LOST if commit == commit_with(LEFT_OUT) else PASSES)
    assert [(str(p.mistake), p.fate) for p in series.answer.planted] == [
        ("fs/ext4/fsync.c:3: `flush()` left out", Fate.NOTICED),
        ("fs/ext4/fsync.c:4: another value", Fate.UNNOTICED),
    ]
    text = series.page().text()
    assert "1 of 2 mistakes that were planted in the patch were noticed" in text
    assert "Hunks as before the patch" not in text
    assert exit_code(series.answer) is ExitCode.CONSISTENT, "of the patch itself nothing is known to be wrong"


def test_a_mistake_that_does_not_build_or_is_undecided_counts_for_nothing(tmp_path: Path) -> None:
    series = planted(tmp_path, lambda commit: None, Kernels(commit_with(LEFT_OUT)))
    assert [p.fate for p in series.answer.planted] == [Fate.NO_KERNEL, Fate.UNDECIDED]
    text = series.page().text()
    assert "mistakes that were planted in the patch counts: 1 was not decided, 1 does not build" in text


def test_mistakes_that_do_not_count_are_told_beside_those_that_do(tmp_path: Path) -> None:
    """ "1 of 1 mistake was noticed", and nothing of the one that does not build."""
    series = planted(tmp_path, lambda commit: LOST, Kernels(commit_with(OTHER)))
    text = " ".join(series.page().text().split())
    assert "1 of 1 mistake that were planted in the patch were noticed; beside them, 1 does not build" in text


def test_what_the_patch_shows_itself_notices_no_mistake(tmp_path: Path) -> None:
    """Every mistake was noticed by a finding that the base has as well."""
    series = planted(tmp_path, lambda commit: LOST, head=LOST)
    assert [p.fate for p in series.answer.planted] == [Fate.UNNOTICED, Fate.UNNOTICED]


def test_a_hunk_as_before_the_patch_is_no_mistake(tmp_path: Path) -> None:
    """Of a change that does the same, `line 130 as before the patch: not noticed`: 1 of 2 mistakes."""
    reverted = Mistake("fs/ext4/fsync.c", 4, 4, "\treturn 2;\n", "line 4 as before the patch", reverts=True)
    series = planted(
        tmp_path,
        lambda commit: LOST if commit == commit_with(LEFT_OUT) else PASSES,
        mistakes=(LEFT_OUT, reverted),
    )
    text = series.page().text()
    assert "1 of 1 mistake that were planted in the patch were noticed" in text
    assert "not noticed" not in text
    assert "breaks no promise" in text[text.index("Hunks as before the patch") :]
    series = planted(tmp_path / "mends", lambda commit: LOST, mistakes=(reverted,))
    assert [str(p) for p in series.answer.planted] == [
        f"fs/ext4/fsync.c:4: line 4 as before the patch: breaks a promise in {CASE}"
    ]
    assert "mistake" not in series.page().text()


def test_mistakes_are_given_the_general_cases_behind_those_of_operations(tmp_path: Path) -> None:
    """A link by itself notices no mistake in the log that it is written to."""
    operations = Stage("operations", QUICK.modes, ("overwrite",))
    path = create(msgspec.structs.replace(plan(operations, QUICK), mistakes=(LEFT_OUT,)), tmp_path)
    series, asked = PatchSeries(load_plan(path), path, Kernels()), list[tuple[str, Plan]]()
    assert series._given == (operations,), "of a finding in the others it is not known whether it is new"
    for series.phase in (Phase.ASKING, Phase.PLANTING):
        carry_out(series, Said(), run=ran(lambda commit: PASSES, asked))
    assert asked[-1][0] == commit_with(LEFT_OUT)
    assert asked[-1][1].workloads == [*operations.workloads, *QUICK.workloads]


def test_mistakes_that_were_not_tried_are_counted(tmp_path: Path) -> None:
    path = create(msgspec.structs.replace(plan(QUICK), mistakes=(LEFT_OUT, OTHER)), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    assert "2 more mistakes that could be planted" in series.page().text()


# --- changed lines ----------------------------------------------------------------------------

LINES = (ChangedLines("fs/ext4/fsync.c", ((3, 2),)),)


def looked(
    tmp_path: Path,
    noted: tuple[bytes, bytes],
    kernels: Kernels | None = None,
    *,
    until_s: float | None = None,
) -> PatchSeries:
    """A patch that passes, whose kernel with marks noted these bytes in recordings and in recoveries."""
    path = create(msgspec.structs.replace(plan(QUICK, MORE), lines=LINES), tmp_path)
    series = PatchSeries(load_plan(path), path, kernels or Kernels())
    carry_out(series, Said(), run=noting(noted, []))
    series.phase = Phase.LOOKING
    carry_out(series, Said(), run=noting(noted, []), until_s=until_s)
    return series


def noting(noted: tuple[bytes, bytes], asked: list[tuple[str, Plan]]) -> Execute:
    """A run that finds nothing and, on the kernel with marks, notes these bytes."""

    def execute(p: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        assert p.coverage is (Path(p.kernel).name == MARKED)
        if p.coverage:
            store.layout.recording_hits.write_bytes(noted[0])
            store.layout.hits.write_bytes(noted[1])
        return ran(lambda commit: PASSES, asked)(p, store, progress, on_done)

    return execute


def test_a_changed_line_that_nothing_ran_is_named(tmp_path: Path) -> None:
    """A green page said nothing of what of the patch had been run."""
    series = looked(tmp_path, (b"\1\0", b"\0\0"))
    text = series.page().text()
    assert "1 of 2 changed lines were run, 0 of them in recoveries (quick, more)" in text
    unrun = text[text.index("Changed lines that nothing ran") :]
    assert "fs/ext4/fsync.c:4 in sync()" in unrun
    told = json.loads(series.page().json())["lines"]
    assert (told["of"], told["ran"], told["in_recoveries"], told["stages"]) == (2, 1, 0, ["quick", "more"])
    assert told["not_run"] == [{"file": "fs/ext4/fsync.c", "first": 4, "last": 4, "function": "sync"}]
    assert exit_code(series.answer) is ExitCode.CONSISTENT


def test_a_run_that_came_to_no_guest_ran_no_line(tmp_path: Path) -> None:
    """`recording-code.hits: No such file or directory`, and no page: nothing had been recorded."""

    def execute(p: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if not p.coverage:
            return ran(lambda commit: PASSES, [])(p, store, progress, on_done)
        store.add_case(CaseInfo(CASE))
        store.set_case_status(CASE, CaseStatus.NOT_RUN, "CONFIG_XFS_RT is missing")
        store.finish()
        return summarise(store)

    path = create(msgspec.structs.replace(plan(QUICK), lines=LINES), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    for series.phase in (Phase.ASKING, Phase.LOOKING):
        carry_out(series, Said(), run=execute)
    assert [line.ran for line in series.answer.lines.lines] == [False, False]
    assert "nothing ran" not in series.page().text(), "nobody looked"


def test_a_kernel_that_lacks_what_the_mode_needs_is_told_with_the_reason(tmp_path: Path) -> None:
    """`2 cases undecided`, and then a kernel with marks was built for them."""

    def execute(p: Plan, store: RunStore, _: Progress, __: OnDone) -> Summary:
        assert not p.coverage, "what has not run once is not run for its lines"
        store.add_case(CaseInfo(CASE))
        store.set_case_status(CASE, CaseStatus.NOT_RUN, "CONFIG_XFS_RT is missing")
        store.finish()
        return summarise(store)

    path = create(msgspec.structs.replace(plan(QUICK), lines=LINES), tmp_path)
    series, said = PatchSeries(load_plan(path), path, Kernels()), Said()
    for series.phase in (Phase.ASKING, Phase.LOOKING):
        carry_out(series, said, run=execute)
    assert any("1 case undecided (CONFIG_XFS_RT is missing)" in line for line in said.lines)
    assert "CONFIG_XFS_RT is missing" in series.page().text()
    assert exit_code(series.answer) is ExitCode.UNDECIDED


def test_a_pass_that_ran_no_changed_line_is_undecided(tmp_path: Path) -> None:
    """`0 of 2 changed lines were run`, on a green page, and exit code 0."""
    series = looked(tmp_path, (b"\0\0", b"\0\0"))
    assert exit_code(series.answer) is ExitCode.UNDECIDED
    page = series.page()
    assert page.kind == "unknown"
    assert page.headline.endswith("none of the changed lines was run.")
    changed = ("fs/ext4/old.c", *series.plan.changed)
    renamed = msgspec.structs.replace(series.plan, changed=changed, untouched=("fs/ext4/old.c",))
    assert exit_code(replace(series.answer, plan=renamed)) is ExitCode.UNDECIDED


def test_a_pass_of_which_not_all_was_looked_at_for_lines_stands(tmp_path: Path) -> None:
    """Nothing was known of the second stage, or of a header, and the pass was undecided all the same."""
    series = looked(tmp_path, (b"\0\0", b"\0\0"))
    header = msgspec.structs.replace(series.plan, changed=("fs/ext4/ext4.h", *series.plan.changed))
    told = series.answer
    part = replace(told, lines=replace(told.lines, stages=told.lines.stages[:1]))
    for answer in (part, replace(told, plan=header)):
        assert exit_code(answer) is ExitCode.CONSISTENT
        assert "none of the changed lines" not in page_of(answer).headline


def test_a_line_that_only_a_recovery_runs_was_run(tmp_path: Path) -> None:
    series = looked(tmp_path, (b"\1\0", b"\0\1"))
    text = series.page().text()
    assert "2 of 2 changed lines were run, 1 of them in recoveries" in text
    assert "nothing ran" not in text


def test_lines_that_nobody_looked_at_are_not_called_unrun(tmp_path: Path) -> None:
    """The time is up, or the kernel with marks does not build: then it is not known."""
    series = looked(tmp_path / "late", (b"\0\0", b"\0\0"), until_s=0.000_001)
    text = series.page().text()
    assert "nothing ran" not in text
    assert "which changed lines run" in text[text.index("What was not asked") :]
    series = looked(tmp_path / "broken", (b"", b""), Kernels(MARKED))
    text = series.page().text()
    assert "nothing ran" not in text
    assert "which changed lines run (" in text[text.index("What was not asked") :]
    assert "no such name" in text


def test_a_mistake_that_nothing_runs_is_not_built(tmp_path: Path) -> None:
    """Each cost a kernel and the cases of the first stage, although none of them could notice it."""
    reverted = Mistake("fs/ext4/fsync.c", 4, 4, "", "line 4 as before the patch", reverts=True)
    asked: list[tuple[str, Plan]] = []
    path = create(
        msgspec.structs.replace(plan(QUICK), lines=LINES, mistakes=(LEFT_OUT, OTHER, reverted)), tmp_path
    )
    series = PatchSeries(load_plan(path), path, Kernels())
    carry_out(series, Said(), run=noting((b"\1\0", b"\0\0"), asked))
    for series.phase in (Phase.LOOKING, Phase.PLANTING):
        carry_out(series, Said(), run=noting((b"\1\0", b"\0\0"), asked))
    assert [c for c, _ in asked] == [HEAD, MARKED, commit_with(LEFT_OUT), commit_with(reverted)]
    assert [(p.fate, p.why) for p in series.answer.planted] == [
        (Fate.UNNOTICED, ""), (Fate.UNNOTICED, "no case of the first stage runs it"), (Fate.UNNOTICED, ""),
    ]  # fmt: skip


def test_a_look_that_was_stopped_tells_what_ran_and_not_what_did_not(tmp_path: Path) -> None:
    series = looked(tmp_path, (b"\1\0", b"\0\0"))
    for stage in ("quick", "more"):
        done = series.known.done[f"lines-{stage}"]
        series.known.done[f"lines-{stage}"] = msgspec.structs.replace(done, interrupted=True)
    text = series.page().text()
    assert "1 of 2 changed lines were run" in text
    assert "nothing ran" not in text


def test_a_look_with_undecided_cases_says_of_no_line_that_nothing_ran_it(tmp_path: Path) -> None:
    """A case whose guest was lost may have run it; mistakes in such lines were not planted, either."""
    mistaken = msgspec.structs.replace(plan(QUICK), lines=LINES, mistakes=(OTHER,))
    path = create(mistaken, tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    for series.phase in (Phase.ASKING, Phase.LOOKING):
        carry_out(series, Said(), run=noting((b"\1\0", b"\0\0"), []))
    assert [p.why for p in series.answer.planted] == ["no case of the first stage runs it"]
    done = series.known.done["lines-quick"]
    series.known.done["lines-quick"] = msgspec.structs.replace(done, undecided={"ext4-ordered/b": "lost"})
    assert series.answer.planted == ()
    assert "nothing ran" not in series.page().text()


def carried_out_to_the_first(
    tmp_path: Path, shows: Shows, stages: Sequence[Stage] = (QUICK, MORE)
) -> tuple[PatchSeries, list[tuple[str, Plan]]]:
    asked: list[tuple[str, Plan]] = []
    path = create(msgspec.structs.replace(plan(*stages), first=True), tmp_path)
    series = PatchSeries(load_plan(path), path, Kernels())
    carry_out(series, Said(), run=ran(shows, asked))
    return series, asked


def test_the_first_new_finding_is_enough_once_its_commit_is_named(tmp_path: Path) -> None:
    series, asked = carried_out_to_the_first(tmp_path, from_third_on)
    assert [c for c, _ in asked][:2] == [HEAD, BASE[0]]
    assert not any(p.again for _, p in asked)
    assert str(series.answer.regressions[0].culprit) == "333333333333 (commit 3)"
    assert [s.name for s in series.answer.left] == ["quick", "more"]
    text = series.page().text()
    assert "to its first finding" in text
    assert "stages not done when it ended with its first finding: quick, more" in text
    again: list[tuple[str, Plan]] = []
    carry_out(series, Said(), run=ran(from_third_on, again))
    assert not again


def test_a_finding_that_the_base_shows_too_does_not_end_a_stage(tmp_path: Path) -> None:
    series, asked = carried_out_to_the_first(tmp_path, lambda commit: LOST, (QUICK,))
    assert [c for c, _ in asked].count(HEAD) == 2
    assert not series.answer.left
    assert exit_code(series.answer) is ExitCode.CONSISTENT
    again: list[tuple[str, Plan]] = []
    carry_out(series, Said(), run=ran(lambda commit: LOST, again))
    assert not again
