"""What a run without findings has not asked, and the command that asks it. See `harness.report.next_step`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path

import msgspec
import pytest

from harness.cli.run import run_command
from harness.filesystems.profiles import profiles
from harness.model import CaseId
from harness.plan import Plan
from harness.report.html import report_html
from harness.report.markdown import summary_markdown
from harness.report.next_step import next_step
from harness.report.text import summary_text
from harness.store import RunStore
from harness.store.records import Coverage
from harness.summary import CaseVerdict, Summary, summarise
from harness.workloads.load import folder_sets, workload_files

ALL = [*workload_files()]
MORE = [*folder_sets()["more"]]
STATES, CUTS, DISK, OTHERS = (
    "states out of the log's order", "a power cut during recovery", "a faulty disk", "other schedules",
)  # fmt: skip
DEFAULT = {"configurations": ["ext4/ordered"], "workloads": ["all", "more"]}
WHOLE = {"fault_models": ["exhaustive"], "again": 1, "disk": ["errors"]}


def green(
    summary: Summary,
    asked: Mapping[str, object] | None = None,
    names: Sequence[str] = (*ALL, *MORE),
    mode: str = "ext4/ordered",
) -> Summary:
    """A run of these workloads that kept every promise."""
    case = next(c for c in summary.cases if c.verdict is CaseVerdict.PASS)
    filesystem, _, rest = mode.partition("/")
    cases = tuple(
        replace(case, info=replace(case.info, case=CaseId(filesystem, rest, name))) for name in names
    )
    plan = msgspec.convert({**DEFAULT, "configurations": [mode], **(asked or {})}, Plan)
    return replace(summary, cases=cases, unmet=(), plan=plan)


@pytest.mark.parametrize(
    ("asked", "left_out", "how"),
    [
        ({}, [STATES, CUTS, DISK, OTHERS], "--states exhaustive --budget 400,120s"),
        ({"budget": {"visits": 5}}, [STATES, CUTS, DISK, OTHERS], "--states exhaustive --budget 5"),
        ({"fault_models": ["exhaustive"]}, [CUTS, DISK, OTHERS], "--states exhaustive --again 1"),
        ({"fault_models": ["sectors"]}, [CUTS, DISK, OTHERS], "--states sectors --again 1"),
        ({"again": 2}, [STATES, DISK, OTHERS], "--states exhaustive --again 2 --budget 400,120s"),
        ({**WHOLE, "disk": []}, [DISK, OTHERS], "--states exhaustive --again 1 --disk errors"),
    ],
)
def test_what_was_asked_is_not_named_and_the_next_stage_is(
    summary: Summary, asked: dict[str, object], left_out: list[str], how: str
) -> None:
    step = next_step(green(summary, asked))
    assert step.left_out == f"Not asked: {', '.join(left_out)}."
    assert step.how == f"powercut run -c ext4/ordered -w all,more {how}"


def test_states_that_were_asked_for_and_could_not_be_had_are_named(summary: Summary) -> None:
    """A kernel without times: the run asked for all legal states, and looked at the log's order."""
    run = green(summary, WHOLE, ["append-fsync"])
    case, *_ = run.cases
    info = replace(case.info, coverage=Coverage(0, -1, 0, 0, "recorded without times"))
    without = replace(run, cases=(replace(case, info=info),))
    assert f"Not asked: {STATES} (recorded without times), " in next_step(without).left_out
    assert STATES not in next_step(run).left_out
    told = "legal crash states were asked for, and could not be told in 1 case: recorded without times"
    for there, nowhere in ((summary_text(without, "r"), summary_text(run, "r")),
                           (summary_markdown(without, "r"), summary_markdown(run, "r"))):  # fmt: skip
        assert told in there and "could not be told" not in nowhere


def test_the_command_keeps_the_kernel_the_machine_and_the_disk(summary: Summary) -> None:
    image = {"path": "/d/disk img", "sha256": "", "size_bytes": 1}
    step = next_step(green(summary, {"kernel": "/k/bzImage", "machine": "uml", "image": image}))
    assert step.how.endswith(
        "--kernel /k/bzImage --machine uml --states exhaustive --budget 400,120s --image '/d/disk img'"
    )


@pytest.mark.parametrize(
    ("names", "words", "left", "then"),
    [
        (["append-fsync"], ["append-fsync"], f"{len(ALL) - 1} workloads of the set all", "append-fsync,all"),
        (ALL, ["all"], f"{len(MORE)} workloads of the set more", "all,more"),
        ([f"{n}.s1" for n in [*ALL, *MORE[1:]]], ["all"], "1 workload of the set more", "all,more"),
    ],
)
def test_the_workloads_of_a_set_are_counted(
    summary: Summary, names: list[str], words: list[str], left: str, then: str
) -> None:
    step = next_step(green(summary, {"workloads": words, **WHOLE}, names))
    told = f"Not asked: {left}." if ".s1" in names[0] else f"Not asked: {left}, {OTHERS}."
    assert step.left_out == told
    assert step.how.startswith(f"powercut run -c ext4/ordered -w {then} --states")


def test_a_program_of_the_users_own_is_not_asked_for_workloads(summary: Summary) -> None:
    step = next_step(green(summary, {"workloads": ["/my/program"], "again": 1}, ["mine"]))
    assert step.left_out == f"Not asked: {STATES}, {DISK}, {OTHERS}."
    assert step.how.startswith("powercut run -c ext4/ordered -w /my/program --states exhaustive --again 1")


def test_after_the_last_stage_there_is_a_page_and_then_nothing(summary: Summary) -> None:
    step = next_step(green(summary, WHOLE))
    assert step.text == f"Not asked: {OTHERS}. Next: docs/howto/look-harder.md"
    assert Path(__file__).parents[3].joinpath(step.how).is_file()
    scheduled = [*ALL, *MORE, f"{ALL[0]}.s1"]
    assert not next_step(green(summary, WHOLE, scheduled)).text


def test_no_disk_of_a_stack_is_faulty(summary: Summary) -> None:
    (stack, *_) = [name for name, p in profiles().items() if p.stacked] or ["ext4/ordered@raid1"]
    assert DISK not in next_step(green(summary, mode=stack)).left_out
    assert DISK in next_step(green(summary)).left_out


def test_rules_have_no_such_questions(summary: Summary) -> None:
    ruled = green(summary, mode="any/posix")
    assert not next_step(ruled).text
    both = replace(ruled, cases=ruled.cases + green(summary).cases)
    both = replace(both, plan=msgspec.convert({**DEFAULT, "configurations": ["any", "ext4/ordered"]}, Plan))
    assert "-c ext4/ordered -w" in next_step(both).how


def undone(run: Summary) -> Iterator[Summary]:
    """Runs that something else is to be done about, or of which one does not know what was asked."""
    first, *_ = run.cases
    yield replace(run, plan=None)
    yield replace(run, info=replace(run.info, interrupted=True))
    cut = Coverage(crash_times=3, visits=9, losses=1, unexplored=4, why="the budget ended")
    yield replace(run, cases=(replace(first, info=replace(first.info, coverage=cut)), *run.cases))
    yield replace(run, cases=(replace(first, mismatch="another content"), *run.cases))
    yield replace(run, cases=())
    for part in ({"only": ("a",)}, {"oracles": ("fsck",)}, {"recordings": "/r"}, {"cluster": "local:2"}):
        assert run.plan
        yield replace(run, plan=msgspec.structs.replace(run.plan, **part))


def test_where_something_else_comes_first_nothing_is_said(summary: Summary) -> None:
    assert not next_step(summary).text  # it has findings
    told = [next_step(run).text for run in undone(green(summary))]
    assert told == [""] * 9


def test_each_report_says_it(summary: Summary, demo: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run = green(summary)
    step = next_step(run)
    *_, said, last = summary_text(run, "r").splitlines()
    assert (said, last) == (step.text, f"Passed all {len(run.cases)} cases")
    assert f"{step.left_out} Next:\n\n    {step.how}\n" in summary_markdown(run, "r").replace("\\", "")
    assert "Not asked" not in report_html(summary, demo, "r")
    monkeypatch.setattr("harness.report.html.next_step", lambda _: step)
    page = unescape(report_html(summary, demo, "r"))
    assert step.left_out in page and f"<code>{step.how}</code>" in page


def test_a_summary_has_the_plan_of_its_run(tmp_path: Path, summary: Summary) -> None:
    with RunStore.create(tmp_path, "t", summary.info) as store:
        assert summarise(store).plan is None
        store.put_plan(plan := msgspec.convert(DEFAULT, Plan))
        assert summarise(store).plan == plan


def test_a_command_is_taken_by_the_command_line(summary: Summary) -> None:
    words = shlex.split(next_step(green(summary)).how)[2:]
    given = run_command.make_context("run", words).params
    assert [*given["configurations"], *given["workloads"]] == ["ext4/ordered", "all", "more"]
    assert [*given["fault_models"]] == ["exhaustive"]
