"""Findings that look alike: one group each, instead of many nearly equal cards."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harness.expectations import Expectation
from harness.model import CaseId, CrashState, Violation
from harness.report.explanation import Explanation, write_explanation
from harness.report.html import finding_html, report_html
from harness.report.similar import similar
from harness.store import RunStore
from harness.store.records import Finding
from harness.summary import summarise
from harness.tests.explain.test_explain import explanation
from harness.tests.report.conftest import SOURCE
from harness.tests.report.test_html import Page


def finding(case: str, what: str, oracle: str = "durability", *, expected: bool = False) -> Finding:
    violation = Violation(oracle, "f", f"f: {what}", "", "", f"f: {what}")
    known = Expectation("*", "*", oracle, "known") if expected else None
    return Finding(CaseId.parse(case), oracle, f"f: {what}", CrashState(3), (violation,), 1, known, what)


def because(of: Finding, mechanism: str) -> Explanation:
    return msgspec.structs.replace(explanation(), finding=of.id, mechanism=mechanism)


def test_findings_of_one_mechanism_are_one_group_whatever_they_lost() -> None:
    missing, older = finding("ext4-a/x", "missing"), finding("ext4-b/y", "older")
    explained = {
        missing.id: because(missing, "No flush at all. No flush was sent between 3 and 4."),
        older.id: because(older, "No flush at all. No flush was sent between 5 and 6."),
    }
    (group,) = similar([missing, older], explained)
    assert group.findings == (missing, older)
    assert group.why.endswith("between 3 and 4.")
    assert (group.modes, group.cases) == (("ext4/a", "ext4/b"), 2)


def test_one_without_an_explanation_is_with_those_of_its_mode_and_symptom() -> None:
    first, second = finding("ext4-a/x", "missing"), finding("ext4-a/y", "missing")
    (group,) = similar([first, second], {second.id: because(second, "No flush at all. Here.")})
    assert group.example == second
    assert len(group.findings) == 2


def test_two_mechanisms_another_oracle_and_another_file_system_are_groups_of_their_own() -> None:
    """One symptom may have several causes; and what is expected must not hide what is not."""
    one, two = finding("ext4-a/x", "missing"), finding("ext4-a/y", "missing")
    others = [
        finding("ext4-a/z", "missing", "size"),
        finding("xfs-a/x", "missing"),
        finding("ext4-b/x", "missing", expected=True),
    ]
    explained = {one.id: because(one, "No flush at all. X."), two.id: because(two, "Torn write. X.")}
    groups = similar([*others, one, two], explained)
    assert len(groups) == 5
    assert [g.expected for g in groups] == [False] * 4 + [True]


FINDINGS = st.lists(
    st.builds(
        finding,
        st.sampled_from(["ext4-a/x", "ext4-a/y", "ext4-b/x", "xfs-a/x"]),
        st.sampled_from(["missing", "older", "stale"]),
        st.sampled_from(["durability", "size"]),
        expected=st.booleans(),
    ),
    unique_by=lambda f: f.id,
)


@given(FINDINGS, st.data())
def test_every_finding_is_in_one_group(findings: list[Finding], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(findings), unique_by=lambda f: f.id)) if findings else []
    words = st.sampled_from(["", "No flush at all. X.", "Torn write. Y."])
    groups = similar(findings, {f.id: because(f, data.draw(words)) for f in some})
    assert sorted(f.id for g in groups for f in g.findings) == sorted(f.id for f in findings)
    assert all(len({(f.oracle, f.expectation is None) for f in g.findings}) == 1 for g in groups)
    assert all(g.example in g.findings for g in groups)


def test_the_page_links_every_finding_from_its_group_and_opens_one_of_each(demo: RunStore) -> None:
    summary = summarise(demo)
    page = Page(report_html(summary, demo, SOURCE))
    cards = [a for tag, a in page.tags if tag == "details" and "finding" in a.get("class", "").split()]
    links = {a["href"] for tag, a in page.tags if tag == "a" and a.get("href", "").startswith("#finding-")}
    assert {f"#{a['id']}" for a in cards} <= links
    opened = [a["id"] for a in cards if "open" in a]
    examples = {f"finding-{g.example.id}" for g in similar(summary.findings, {})}
    assert set(opened) <= examples


def test_a_group_without_an_explanation_says_how_to_get_one(demo: RunStore) -> None:
    summary = summarise(demo)
    text = report_html(summary, demo, SOURCE)
    (first, *_) = similar(summary.unexpected, {})
    assert f"why: powercut show {first.example.id}" in text
    write_explanation(demo.layout, because(first.example, "No flush at all. So it was."))
    try:
        again = report_html(summary, demo, SOURCE)
    finally:
        demo.layout.explanation(first.example.id).unlink()
    assert f"why: powercut show {first.example.id}" not in again
    assert again.count("No flush at all. So it was.") == 2  # in its group, and in its card


def test_a_finding_is_a_page_of_its_own(demo: RunStore) -> None:
    """For a mail: the run's page has everything else as well."""
    summary = summarise(demo)
    wanted = summary.findings[-1]
    (case,) = [c for c in summary.cases if c.case == wanted.case]
    hostile = replace(wanted, violations=(replace(wanted.violations[0], summary="<b>lost</b>"),))
    text = finding_html(demo, case, hostile, SOURCE)
    page = Page(text)
    cards = [a for tag, a in page.tags if tag == "details" and "finding" in a.get("class", "").split()]
    assert [a["id"] for a in cards] == [f"finding-{wanted.id}"]
    assert "<b>lost" not in text
    assert "powercut repro" in text
    outside = [a for _, a in page.tags for name in ("src", "href") if not a.get(name, "#").startswith("#")]
    assert not outside


def test_what_is_explained_and_what_is_frequent_comes_first() -> None:
    """A run of 539 findings had 106 groups, and those that say why stood anywhere among them."""
    rare, told = finding("ext4-a/x", "older"), finding("ext4-a/x", "size", "size")
    often = [finding(f"ext4-a/{n}", "missing") for n in range(3)]
    groups = similar([rare, *often, told], {told.id: because(told, "No flush at all. X.")})
    assert [g.example.id for g in groups] == [told.id, often[0].id, rare.id]


def test_what_two_programs_checks_say_is_not_one_cause() -> None:
    """`the program acknowledged without fsync` was said of another program, whose rename was not synced."""
    early, rename = (
        finding("ext4-a/early", "exit 1", "program"),
        finding("ext4-a/rename", "exit 1", "program"),
    )
    explained = {early.id: because(early, "The program acknowledged without fsync. early did.")}
    assert [(g.findings, bool(g.why)) for g in similar([early, rename], explained)] == [
        ((early,), True),
        ((rename,), False),
    ]


def test_what_a_mode_is_known_to_lose_comes_last_a_group_for_each_reason() -> None:
    """A known bug stood behind 27 groups of what a mode without barriers loses."""
    lost = [
        finding(f"ext4-a/{what}", what, oracle)
        for what, oracle in (("x", "fsck"), ("y", "stale"), ("z", "size"))
    ]
    lost = [replace(f, loss="no barrier" if f.oracle != "size" else "no flush") for f in lost]
    new = finding("ext4-b/x", "missing")
    explained = {lost[1].id: because(lost[1], "Reordered. A later write was there.")}
    groups = similar([*lost, new], explained)
    assert [[f.oracle for f in g.findings] for g in groups] == [["durability"], ["fsck", "stale"], ["size"]]
    assert not any(g.why for g in groups), "one cause stood for four oracles, and was that of one finding"


def test_one_that_nobody_explained_is_with_no_explained_one_where_its_symptom_has_two_causes() -> None:
    one, two, open_one = (finding(f"ext4-a/{name}", "missing") for name in "xyz")
    explained = {one.id: because(one, "No flush at all. X."), two.id: because(two, "Torn write. X.")}
    assert (open_one,) in [g.findings for g in similar([open_one, one, two], explained)]
