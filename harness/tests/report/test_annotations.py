"""Annotations of a CI job: one line for each finding, and nothing that a guest said is a command."""

from __future__ import annotations

from dataclasses import replace

from harness.report.annotations import MAX_OF_A_LEVEL, annotation_lines
from harness.summary import CaseVerdict, Summary

SOURCE = "reports/latest"


def test_each_unexpected_finding_and_each_undecided_case_has_a_line(summary: Summary) -> None:
    lines = list(annotation_lines(summary, SOURCE))
    errors = [line for line in lines if line.startswith("::error title=")]
    assert len(errors) == min(MAX_OF_A_LEVEL, len(summary.unexpected)) > 0
    for f, line in zip(summary.unexpected, errors, strict=False):
        assert f"{f.case} {f.oracle}::" in line
        assert f"powercut repro {f.crash_point} --from {SOURCE}" in line
    undecided = [c for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN]
    assert [str(c.case) in line for c, line in zip(undecided, lines[len(errors) :], strict=True)]


def test_the_cause_is_in_it(summary: Summary) -> None:
    first = summary.unexpected[0]
    line = next(annotation_lines(replace(summary, why={first.id: "No flush at all."}), SOURCE))
    assert "No flush at all." in line


def test_what_a_guest_said_is_no_command(summary: Summary) -> None:
    case = next(c for c in summary.cases if c.verdict is CaseVerdict.FAIL)
    violation = replace(case.findings[0].violations[0], summary="a\n::set-output name=x::100%,\r")
    finding = replace(case.findings[0], expectation=None, violations=(violation,))
    (line, *_) = annotation_lines(replace(summary, cases=(replace(case, findings=(finding,)),)), SOURCE)
    assert "\n" not in line
    assert "\r" not in line
    assert "100%25" in line
    assert line.count("::error") == 1
