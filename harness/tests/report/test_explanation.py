"""An explanation in the report's page and in a finding's folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.report.explanation import Fate, Rung, read_explanation, write_explanation
from harness.report.findings import write_findings
from harness.report.html import report_html
from harness.summary import summarise
from harness.tests.explain.test_explain import explanation
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import demo_run
from harness.tests.report.test_html import Page


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


def test_an_explanation_of_before_is_read(tmp_path: Path) -> None:
    """A write that had persisted was `kept`: the report lost the whole explanation."""
    with demo_run(tmp_path) as run:
        finding = summarise(run).findings[0].id
        rung = Rung("write", "data of f", fate=Fate.PERSISTED)
        write_explanation(run.layout, msgspec.structs.replace(explanation(), finding=finding, ladder=(rung,)))
        file = run.layout.explanation(finding)
        file.write_text(file.read_text().replace('"persisted"', '"kept"'))
        again = read_explanation(run.layout, finding)
        assert again is not None
        assert again.ladder == (rung,)
