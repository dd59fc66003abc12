"""Annotations of a CI job: one line for each finding, and nothing that a guest said is a command."""

from __future__ import annotations

from dataclasses import replace

from harness.report.annotations import MAX_OF_A_LEVEL, annotation_lines
from harness.store.records import CaseNote
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


def test_what_a_baseline_does_not_know_is_a_notice(summary: Summary) -> None:
    """A job's page called a finding new that the baseline had left undecided."""
    notes = (CaseNote("ext4-ordered/a", "what it shows may be older"), CaseNote("", "it cannot be told"))
    lines = annotation_lines(replace(summary, info=replace(summary.info, notes=notes)), SOURCE)
    assert [line for line in lines if line.startswith("::notice")] == [
        "::notice title=ext4-ordered/a::what it shows may be older",
        "::notice title=powercut::it cannot be told",
    ]


def test_what_a_guest_said_is_no_command(summary: Summary) -> None:
    case = next(c for c in summary.cases if c.verdict is CaseVerdict.FAIL)
    violation = replace(case.findings[0].violations[0], summary="a\n::set-output name=x::100%,\r")
    finding = replace(case.findings[0], expectation=None, violations=(violation,))
    (line, *_) = annotation_lines(replace(summary, cases=(replace(case, findings=(finding,)),)), SOURCE)
    assert "\n" not in line
    assert "\r" not in line
    assert "100%25" in line
    assert line.count("::error") == 1
