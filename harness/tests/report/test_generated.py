"""Hundreds of generated workloads: one column in every table, and still each by its name where it matters."""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import replace

import pytest
from rich.console import Console

from harness.model import CaseId, CrashState, Judgement, Violation
from harness.report.html import report_html
from harness.report.junit import junit_xml
from harness.report.text import print_summary, summary_text
from harness.report.words import Matrix
from harness.store import RunStore
from harness.store.records import CaseStatus, JudgedState
from harness.summary import CaseVerdict, Summary, summarise
from harness.tests.report.demo import run_info
from harness.tests.there import there
from harness.workloads.generate import names_of

NAMES = [*itertools.islice(names_of("ace1"), 60), "random1-17-20", "append-fsync"]
BROKEN = "ace-creat.A_foo+none"
UNDECIDED = "ace-creat.A_foo+sync"
LACKING = "ace-mkdir.A+none"
LOST = Judgement((Violation("durability", "f", "f is gone", "f", "nothing", "gone"),))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, demo: RunStore) -> tuple[Summary, str]:
    """ext4/ordered passes all; on ext4/journal one is broken, one undecided and one not run. And its page."""
    kept = there(demo.case(CaseId("ext4", "ordered", "create-many")))
    timeline = tuple(demo.timeline(kept.case))
    with RunStore.create(tmp_path_factory.mktemp("generated"), "t", run_info()) as store:
        for mode, name in itertools.product(("ordered", "journal"), NAMES):
            case = CaseId("ext4", mode, name)
            store.add_case(replace(kept.info, case=case, distinct=1, generated=1, timeline=timeline))
            judgement = {BROKEN: LOST, UNDECIDED: Judgement(unknown=("lost",))}.get(name, Judgement())
            lacks = (mode, name) == ("journal", LACKING)
            if not lacks:
                answer = judgement if mode == "journal" else Judgement()
                store.put_judgements(case, [JudgedState(CrashState(1), "h", answer)])
            store.set_case_status(case, CaseStatus.NOT_RUN if lacks else CaseStatus.DONE, "has none" * lacks)
        store.finish()
        summary = summarise(store)
        return summary, report_html(summary, store, "RUN")


def test_a_table_has_a_column_for_each_set(run: tuple[Summary, str]) -> None:
    matrix = Matrix.of(run[0])
    assert {*matrix.rows, *matrix.columns} == {
        "ext4/ordered",
        "ext4/journal",
        "ace1",
        "random",
        "append-fsync",
    }
    good, bad = (matrix.cell("ace1", mode) for mode in ("ext4/ordered", "ext4/journal"))
    assert good is not None
    assert bad is not None
    assert (good.figure, good.verdict) == ("60 cases", CaseVerdict.PASS)
    assert (bad.figure, bad.verdict, bad.example.case.workload) == (
        "1 of 59 (1 undecided)",
        CaseVerdict.FAIL,
        BROKEN,
    )
    alone = there(matrix.cell("append-fsync", "ext4/ordered"))
    assert alone.figure == "1"


def test_a_set_of_which_nothing_ran_is_not_green(run: tuple[Summary, str]) -> None:
    lacking = tuple(c for c in run[0].cases if c.verdict is CaseVerdict.NOT_RUN)
    cell = there(Matrix.of(replace(run[0], cases=lacking)).cell("ext4/journal", "ace1"))
    assert (cell.figure, cell.verdict) == ("", CaseVerdict.NOT_RUN)


def test_what_went_wrong_is_told_by_name(run: tuple[Summary, str]) -> None:
    out = io.StringIO()
    print_summary(run[0], "RUN", Console(file=out, width=100))
    for text in (summary_text(run[0], "RUN"), out.getvalue(), run[1]):
        assert re.search(rf"powercut repro (')?ext4-journal/{re.escape(BROKEN)}@1", text)
        assert re.search(rf"powercut repro (')?ext4-journal/{re.escape(UNDECIDED)}@1", text)
        assert f"ext4-journal/{LACKING}" in text
        assert "has none" in text


def test_what_went_well_is_counted(run: tuple[Summary, str]) -> None:
    text = summary_text(run[0], "RUN")
    assert "ext4-ordered/ace1 (60 cases)" in text
    assert "ext4-ordered/append-fsync" in text
    assert f"ext4-ordered/{BROKEN}" not in text


def test_junit_has_every_case(run: tuple[Summary, str]) -> None:
    text = junit_xml(run[0], "RUN")
    for name in NAMES:
        assert text.count(f'name="{name}"') == 2


def test_a_drawing_is_made_of_what_is_worth_one(run: tuple[Summary, str]) -> None:
    """Of the two workloads that nobody generated, and of what did not pass."""
    assert run[1].count('<figure class="timeline">') == 2 + 2


def test_the_page_links_the_set_to_the_case_that_broke(run: tuple[Summary, str]) -> None:
    """At its first finding."""
    (case,) = (c for c in run[0].cases if c.case.workload == BROKEN and c.findings)
    for anchor in (f'id="case-ext4-journal-{BROKEN}"', f'href="#finding-{case.findings[0].id}"'):
        assert anchor in run[1]
