"""What became of findings from one run to another."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.model import CrashState
from harness.plan import Clock, Plan
from harness.report.changes import Changed, Changes, FindingChange, Side, changes, changes_html, is_other_work
from harness.store.records import Finding, Step
from harness.summary import CaseSummary, summarise
from harness.tests.report.demo import demo_run


def test_what_the_other_run_could_not_show_is_neither_new_nor_fixed(tmp_path: Path) -> None:
    """A first run that judged by fsck alone made the second one's findings new; one with other options of
    mount, fixed.
    """
    with demo_run(tmp_path) as store:
        side = Side(summarise(store), Plan(configurations=[], workloads=[]), "RUN", lambda _: {})
    case = next(c for c in side.summary.cases if [f.oracle for f in c.findings] == ["durability"])
    passed = replace(case.counts, failed=0, passed=case.counts.passed + case.counts.failed)
    info = replace(case.info, coverage=None)
    broken, kept = replace(case, info=info), replace(case, info=info, findings=(), counts=passed)

    def became(first: CaseSummary, second: CaseSummary, again: int = 0) -> tuple[set[FindingChange], str]:
        sides = [replace(side, summary=replace(side.summary, cases=(c,))) for c in (first, second)]
        sides[1] = replace(sides[1], plan=msgspec.structs.replace(side.plan, again=again))
        found = changes(*sides)
        return {c.change for c in found.found}, "\n".join(found.undecided)

    by_fsck = replace(kept, info=replace(info, oracles=("fsck",)))
    assert became(kept, broken)[0] == {FindingChange.NEW}
    assert became(by_fsck, broken)[0] == {FindingChange.FIRST}
    (finding,) = case.findings
    cut = replace(broken, findings=(replace(finding, state=CrashState.parse("@t12@t4-1")),))
    assert became(kept, cut, again=1)[0] == {FindingChange.FIRST}
    assert became(broken, kept)[0] == {FindingChange.FIXED}
    changed, told = became(broken, replace(kept, info=replace(info, mount_options="data=journal")))
    assert changed == {FindingChange.GONE}
    assert "in the second run the options of mount differed" in told


def test_a_run_that_judges_the_recordings_of_another_has_no_completions_of_its_own(tmp_path: Path) -> None:
    """It was said to have other completions, and nothing could be fixed in it."""
    with demo_run(tmp_path) as store:
        side = Side(summarise(store), Plan(configurations=[], workloads=[]), "RUN", lambda _: {})
    case = next(c for c in side.summary.cases if [f.oracle for f in c.findings] == ["durability"])
    passed = replace(case.counts, failed=0, passed=case.counts.passed + case.counts.failed)
    prompt = msgspec.structs.replace(side.plan, completions="prompt")

    def became(log: str) -> set[FindingChange]:
        info = replace(case.info, coverage=None, log_hash="a")
        first = replace(case, info=info)
        second = replace(case, info=replace(info, log_hash=log), findings=(), counts=passed)
        one = replace(side, plan=prompt, summary=replace(side.summary, cases=(first,)))
        two = replace(side, summary=replace(side.summary, cases=(second,)))
        return {c.change for c in changes(one, two).found}

    assert became("a") == {FindingChange.FIXED}
    assert became("b") == {FindingChange.GONE}


@pytest.mark.parametrize(
    ("workload", "first", "second", "change"),
    [
        ("", "virtual", "real", FindingChange.GONE),
        ("", "virtual", "auto", FindingChange.GONE),
        ("", "real", "auto", FindingChange.FIXED),
        (".s3", "auto", "real", FindingChange.GONE),
        (".s3", "auto", "virtual", FindingChange.FIXED),
    ],
)
def test_what_was_seen_in_virtual_time_is_not_fixed_in_real_time(
    tmp_path: Path, workload: str, first: str, second: str, change: FindingChange
) -> None:
    """What only a timer shows that virtual time lets fire was told as fixed."""
    with demo_run(tmp_path) as store:
        summary = summarise(store)
    case = next(c for c in summary.cases if [f.oracle for f in c.findings] == ["durability"])
    machine = replace(summary.info.machine, details={"clock": "schedules recorded in virtual time"})
    named = replace(case.case, workload=case.case.workload + workload)
    own = replace(case.info, case=named, coverage=None, log_hash="")
    passed = replace(case.counts, failed=0, passed=case.counts.passed + case.counts.failed)
    broken = replace(case, info=own, findings=tuple(replace(f, case=named) for f in case.findings))

    def side(clock: str, case: CaseSummary) -> Side:
        seen = replace(summary, cases=(case,), info=replace(summary.info, machine=machine))
        return Side(seen, Plan(configurations=[], workloads=[], clock=Clock(clock)), "RUN", lambda _: {})

    found = changes(side(first, broken), side(second, replace(broken, findings=(), counts=passed)))
    assert [c.change for c in found.found] == [change]
    assert ("the clock differed" in "".join(found.undecided)) == (change is FindingChange.GONE)


def test_a_finding_of_other_operations_is_not_fixed(tmp_path: Path) -> None:
    """A file of operations that lost its fsync was told as one whose finding was fixed."""
    with demo_run(tmp_path) as store:
        first = Side(summarise(store), Plan(configurations=[], workloads=[]), "RUN", lambda _: {})
    case = next(c for c in first.summary.cases if [f.oracle for f in c.findings] == ["durability"])
    passed = replace(case.counts, failed=0, passed=case.counts.passed + case.counts.failed)
    mine = tuple(Step(n, text, n, n) for n, text in enumerate(("create f", "crash 2: @t3-1", "fsync f")))

    def became(*texts: str) -> tuple[set[FindingChange], str]:
        def with_steps(c: CaseSummary, steps: tuple[Step, ...], **more: object) -> CaseSummary:
            info = replace(c.info, steps=steps, coverage=None)
            return replace(c, info=info, **more)  # type: ignore[arg-type]

        steps = tuple(Step(n, text, n, n) for n, text in enumerate(texts))
        sides = [
            replace(first, summary=replace(first.summary, cases=(c,)))
            for c in (
                with_steps(case, mine),
                with_steps(case, steps, findings=(), counts=passed),
            )
        ]
        found = changes(*sides)
        return {c.change for c in found.found}, "\n".join(found.undecided)

    assert became("create f", "crash 2: @t9", "fsync f")[0] == {FindingChange.FIXED}
    changed, told = became("create f", "crash 2: @t3-1")
    assert changed == {FindingChange.GONE}
    assert "the operations of the second run are not those of the first" in told


def test_a_finding_of_other_operations_is_not_still_there(tmp_path: Path) -> None:
    """`still there: `create zz` is undone`, of a first run without zz, stood above the line that said
    that the operations were others; one with another symptom was new.
    """
    with demo_run(tmp_path) as store:
        side = Side(summarise(store), Plan(configurations=[], workloads=[]), "RUN", lambda _: {})
    case = next(c for c in side.summary.cases if [f.oracle for f in c.findings] == ["durability"])
    (finding,) = case.findings
    other = replace(finding, signature="another", what="another")

    def became(found: Finding, operation: str) -> list[FindingChange]:
        info = replace(case.info, steps=(Step(0, operation, 1, 2),))
        second = replace(case, info=info, findings=(found,))
        first = replace(case, info=replace(case.info, steps=(Step(0, "create f", 1, 2),)))
        sides = [replace(side, summary=replace(side.summary, cases=(c,))) for c in (first, second)]
        return [c.change for c in changes(*sides).found]

    assert became(finding, "create f") == [FindingChange.STILL]
    for found in (finding, other):
        assert became(found, "create zz") == [FindingChange.FIRST, FindingChange.GONE]


def test_a_side_goes_over_its_cases_once(tmp_path: Path) -> None:
    """It did so for each case, several times: to compare two runs of 4,000 cases took minutes."""
    with demo_run(tmp_path) as store:
        side = Side(summarise(store), Plan(configurations=[], workloads=[]), "RUN", lambda _: {})
    assert side.cases is side.cases


@pytest.mark.parametrize(
    ("change", "cases", "kind"),
    [
        (FindingChange.NEW, 1, "fail"),
        (FindingChange.FIRST, 1, "unknown"),
        (FindingChange.STILL, 1, "pass"),
        (FindingChange.STILL, 0, "unknown"),
    ],
)
def test_the_page_is_as_green_as_the_exit_code(
    tmp_path: Path, change: FindingChange, cases: int, kind: str
) -> None:
    """A finding in a way in which the first run had not looked made the exit code 3, and the page green."""
    with demo_run(tmp_path) as store:
        found = Changed(change, store.findings()[0], "RUN", "powercut repro")
    page = changes_html(Changes("one", "two", cases, (found,), (), cases))
    assert re.findall(r'<header class="(\w+)"', page) == [kind]


def test_an_image_of_a_program_that_was_made_anew_is_no_other_operation() -> None:
    """Its digest is in the words of the operation: nothing was fixed, or new, beside another image."""
    then, now = (["mkdir d", f"run powercut-in /images/{image} /workload/my-db/run"] for image in "ab")
    assert not is_other_work(then, now)
    assert is_other_work(then, now[1:])
    assert is_other_work(then, ["mkdir e", now[1]])
    assert not is_other_work([], now)
