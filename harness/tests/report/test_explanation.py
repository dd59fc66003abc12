"""An explanation in the report's page and in a finding's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.known.words import NEW
from harness.model import CaseId, CrashState
from harness.report.explanation import read_explanation, write_explanation
from harness.report.findings import report_text, write_findings
from harness.report.html import report_html
from harness.report.junit import junit_xml
from harness.report.lines import explain
from harness.report.markdown import summary_markdown
from harness.report.text import summary_text
from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.summary import Summary, summarise
from harness.tests.explain.test_explain import explanation
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import demo_run
from harness.tests.report.test_html import Page

INFO = CaseInfo(CaseId("ext4", "writeback-nodelalloc", "rename-replace"))


def test_a_report_shows_what_was_found_out_and_nothing_of_a_damaged_file(tmp_path: Path) -> None:
    """The file travels with a run directory, so it may come from anybody."""
    with demo_run(tmp_path) as run:
        summary = summarise(run)
        finding = summary.findings[0]
        found = msgspec.structs.replace(explanation(), finding=finding.id)
        assert 'class="explained"' not in report_html(summary, run, SOURCE)
        write_explanation(run.layout, found)
        assert read_explanation(run.layout, finding.id) == found
        page = report_html(summary, run, SOURCE)
        assert [s["class"] for s in Page(page).all("section") if "class" in s] == ["explained"]
        assert 'class="ladder"' in page
        assert "lost <b>" not in page
        write_findings(summary, run, SOURCE)
        text = (run.layout.finding(finding.id) / "report.txt").read_text()
        assert "promised:   by `fsync f`" in text
        assert text.splitlines()[-1].startswith("reproduce: powercut repro ")
        for damage in ('{"finding": 1}', "[" * 5000):
            run.layout.explanation(finding.id).write_text(damage)
            assert 'class="explained"' not in report_html(summary, run, SOURCE)


@pytest.mark.parametrize(
    "told",
    [
        lambda summary, run: summary_text(summary, SOURCE),
        lambda summary, run: summary_markdown(summary, SOURCE),
        lambda summary, run: junit_xml(summary, SOURCE),
        lambda summary, run: report_html(summary, run, SOURCE),
        lambda summary, run: report_text(summary.unexpected[0], INFO, run.info, None, SOURCE),
    ],
    ids=["console", "summary.md", "junit.xml", "report.html", "report.txt"],
)
def test_a_finding_names_the_command_that_says_why(
    told: Callable[[Summary, RunStore], str], tmp_path: Path
) -> None:
    """Nothing but its own help pointed to `powercut show`."""
    with demo_run(tmp_path) as run:
        summary = summarise(run)
        first = summary.unexpected[0].id
        assert f"powercut show {first} --from {SOURCE}" in told(summary, run)


def test_what_a_programs_check_says_is_not_called_a_new_bug(tmp_path: Path) -> None:
    """ "known bug: new: it agrees with no known bug" accused the kernel of what the program had forgotten."""
    with demo_run(tmp_path) as run:
        summary = summarise(run)
        finding = next(f for f in summary.unexpected if f.known is None)
        case = next(c for c in summary.cases if c.case == finding.case)
        for oracle, accused in ((finding.oracle, True), ("program", False)):
            told = replace(finding, oracle=oracle)
            whole = replace(summary, cases=(replace(case, findings=(told,)),))
            text = report_text(told, INFO, run.info, None, SOURCE)
            assert (NEW in text, NEW in junit_xml(whole, SOURCE)) == (accused, accused)


def test_what_was_explained_already_is_not_offered_again_and_no_cut_recovery_is(tmp_path: Path) -> None:
    with demo_run(tmp_path) as run:
        finding = summarise(run).unexpected[0]
        write_explanation(run.layout, msgspec.structs.replace(explanation(), finding=finding.id))
        assert f"powercut show {finding.id}" not in report_html(summarise(run), run, SOURCE)
    again = replace(finding, state=CrashState.parse("@t9@t3"))
    assert explain(again, SOURCE) == ""
