"""summary.md, for the pages of CI jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.host.text import markdown_plain
from harness.report.markdown import MAX_FINDINGS, summary_markdown
from harness.report.words import xpass
from harness.store.records import Coverage, NestedCrashes
from harness.summary import Summary

SOURCE = "reports/latest"


def test_the_demo(summary: Summary, golden: Callable[[str, str], None]) -> None:
    golden("summary.md", summary_markdown(summary, SOURCE))


def test_every_unexpected_finding_has_its_command(summary: Summary) -> None:
    text = summary_markdown(summary, SOURCE)
    assert summary.unexpected
    for f in summary.unexpected[:MAX_FINDINGS]:
        assert f"    powercut repro {f.crash_point} --from {SOURCE}" in text


def test_what_a_guest_said_is_no_markup(summary: Summary) -> None:
    evil = "<img src=x> | `a` **b** [c](d)\n# e"
    case = summary.cases[0]
    finding = replace(summary.findings[0], expectation=None, violations=())
    violation = replace(summary.findings[0].violations[0], summary=evil)
    finding = replace(finding, violations=(violation,))
    shown = summary_markdown(replace(summary, cases=(replace(case, findings=(finding,)),)), SOURCE)
    assert "<img" not in shown
    assert "\n# e" not in shown
    assert r"\*\*b\*\* \[c\](d)" in shown


def test_a_run_that_was_stopped_says_so(summary: Summary) -> None:
    info = replace(summary.info, interrupted=True, stopped="the time given, 5 min, is up")
    assert "**Not complete:** the time given, 5 min, is up" in summary_markdown(
        replace(summary, info=info), SOURCE
    )


def test_how_far_recoveries_were_cut_is_said(summary: Summary) -> None:
    """The terminal said it, and the page of the job did not."""
    cut = NestedCrashes(1, 3, 2, Coverage(crash_times=5, losses=1, unexplored=4, visits=9))
    first, *rest = summary.cases
    cases = (replace(first, info=replace(first.info, again=(cut,))), *rest)
    text = summary_markdown(replace(summary, cases=cases), SOURCE)
    assert "\ncut again, 1 deep: 3 recoveries, 5 crash times in them" in text
    assert "cut again" not in summary_markdown(summary, SOURCE)


def test_quoted_words_are_code(summary: Summary) -> None:
    """A job's page showed the backticks: \\`append f 32768\\`."""
    finding = summary.unexpected[0]
    case = next(c for c in summary.cases if c.case == finding.case)
    for said, shown in (
        ("f holds data of `append f 32768` | *", r"f holds data of `append f 32768` \| \*"),
        ("one ` alone", r"one \` alone"),
        ("``", r"\`\`"),
    ):
        violation = replace(finding.violations[0], summary=said)
        other = replace(case, findings=(replace(finding, violations=(violation,)),))
        assert f": {shown} (" in summary_markdown(replace(summary, cases=(other,)), SOURCE)


def test_what_was_expected_to_fail_and_did_not_is_said(summary: Summary) -> None:
    """The terminal said XPASS, and the page of the job, which is what its reader sees, did not."""
    (e,) = summary.unmet
    told = f"XPASS: {e} was expected to fail and did not ({e.origin}: {e.reason}): {xpass(e, summary)}"
    text = summary_markdown(summary, SOURCE)
    assert f"\n\n{markdown_plain(told)}\n" in text
    assert "XPASS" not in summary_markdown(replace(summary, unmet=()), SOURCE)
    many = summary_markdown(replace(summary, unmet=(e,) * (MAX_FINDINGS + 2)), SOURCE)
    assert many.count("XPASS: ") == MAX_FINDINGS
    assert "... and 2 more XPASS in report.html" in many
