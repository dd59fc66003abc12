"""The report of a run in which only rules decided what came back: it speaks of no disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.host.progress import Quiet
from harness.model import CaseId, Check, CheckResult, Workload
from harness.oracles import BY_DEFAULT
from harness.report.explanation import heading_of, read_explanation
from harness.report.findings import report_text
from harness.report.html import report_html
from harness.report.ladder import ladder_svg
from harness.report.pages import sentence
from harness.report.words import headline
from harness.ruled.judging import Judging
from harness.ruled.work import _Case
from harness.rules.answers import Tried
from harness.rules.calls import Left
from harness.rules.trees import Files
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus
from harness.summary import summarise
from harness.tests.report.conftest import SOURCE
from harness.tests.rules.programs import OWNER, Calls, rules
from harness.tests.store.samples import INFO
from harness.workloads.load import parse_operation

CASE = CaseId("any", "posix", "my-db")


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    """A program that acknowledges what a rename that no sync covers has put in place."""
    calls = Calls().create("t").write("t", b"x").rename("t", "f").ack("1")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"x")]), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        return Tried(CheckResult(0, int(acks > 0 and "f" not in files), "it is gone"))

    judging = Judging(notes, rules(), lambda trees: [says(*tree) for tree in trees])
    check = Check(0, ("check",), ("*",), application=True)
    path: Path = tmp_path_factory.mktemp("ruled")
    with RunStore.create(path, "t", INFO, durable=False) as store:
        store.add_case(CaseInfo(CASE, "", "", ""))
        _Case(
            store, CASE, Workload("my-db", "", (parse_operation("sync"),), (check,)), check, judging, Quiet()
        ).decide()
        store.set_case_status(CASE, CaseStatus.DONE)
        yield store


def test_it_has_no_legend_of_timelines_no_disk_and_no_operations(ruled: RunStore) -> None:
    """A list of twelve colours that the page did not have, a disk's write cache, and a line for the power
    failure with nothing around it.
    """
    page = report_html(summarise(ruled), ruled, SOURCE)
    assert "How to read the timelines" not in page
    assert "volatile write cache" not in page
    assert "the crash model is the rules of the mode" in page
    assert "the power failed here" not in page
    assert "<dt>mount</dt>" not in page


def test_a_call_has_its_number_once(ruled: RunStore) -> None:
    """`4  4 rename(t, f)`."""
    (finding,) = summarise(ruled).findings
    told = read_explanation(ruled.layout, finding.id)
    assert told is not None
    (number,) = {r.event for r in told.ladder if r.text.endswith("rename(t, f)")}
    assert f"{number} rename" not in ladder_svg(told)
    assert "rename(t, f)</text>" in ladder_svg(told)


def test_files_that_came_back_are_said_to_be_those_of_the_explained_state(ruled: RunStore) -> None:
    """Beside a state in which no file is, two were listed."""
    (case,) = summarise(ruled).cases
    (finding,) = case.findings
    told, evidence = read_explanation(ruled.layout, finding.id), ruled.evidence(finding)
    assert told is not None
    assert told.point != str(finding.crash_point)
    said = f"files that came back at {told.point}"
    assert said in report_text(finding, case.info, ruled.info, evidence, SOURCE, told)
    assert sentence(said) in report_html(summarise(ruled), ruled, SOURCE)
    assert heading_of("files that came back", finding, None) == "files that came back"


def test_its_own_check_is_all_that_can_judge_it(ruled: RunStore) -> None:
    """`says its own check; nothing else was found there; judged by program alone.`"""
    told = headline(summarise(ruled))
    assert set(summarise(ruled).cases[0].info.oracles) != set(BY_DEFAULT)
    assert told.endswith("my-db lost or damaged what it acknowledged on any/posix, says its own check.")
