"""report.html: well-formed, one file, everything said, nothing that breaks out."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape

from harness.cases import application
from harness.expectations import parse_expectations
from harness.host.resources import resource
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.plan import Plan
from harness.report import write_reports
from harness.report.html import _headline, report_html
from harness.report.lines import resume_of
from harness.report.pages import begun, sentence
from harness.store import RunStore
from harness.store.records import CaseInfo, Coverage, Evidence, JudgedState, NestedCrashes
from harness.store.recovery_code import CodeLine, RecoveryCode, write_recovery_code
from harness.summary import CaseVerdict, Summary, summarise
from harness.tests.cli.runner import powercut
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import FINISHED, run_info
from harness.tests.report.test_machine_readable import HOSTILE, hostile
from harness.tests.store.samples import put_case
from harness.tests.there import there

__all__ = ["hostile"]  # a fixture

VOID = {"meta", "link", "br", "wbr", "hr", "img", "input"}


class Page(HTMLParser):
    """The page as a tree of tags; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost tag, text
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} says an attribute twice: {names}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return re.sub(
            r"\s+", " ", " ".join(text for tag, text in self.texts if tag not in ("style", "script"))
        )


@pytest.fixture(scope="module")
def html(demo: RunStore, summary: Summary) -> str:
    return report_html(summary, demo, SOURCE)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_page_is_complete_and_needs_no_network(html: str, page: Page) -> None:
    assert html.lstrip().startswith("<!DOCTYPE html>")
    assert "://" not in html
    assert not re.search(r"@import|url\(", html)
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action"):
            assert attributes.get(name, "#").startswith("#"), f"{tag} {name}={attributes[name]}"
    assert page.all("script") == [{}]
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


def test_a_doubt_about_a_check_is_in_the_page(demo: RunStore, summary: Summary) -> None:
    first, *others = summary.cases
    first = replace(first, info=replace(first.info, doubt="it says yes to nothing"))
    told = report_html(replace(summary, cases=(first, *others)), demo, SOURCE)
    assert f"<code>{first.case}</code>: it says yes to nothing." in told


def test_every_identifier_is_there_once_and_every_link_has_its_target(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        for name in ("href", "aria-labelledby", "aria-describedby"):
            if name in attributes:
                assert attributes[name].lstrip("#") in ids, f"{tag} {name}={attributes[name]}"


def test_every_finding_and_unknown_has_its_command(page: Page, summary: Summary) -> None:
    codes = [text for tag, text in page.texts if tag == "code"]
    for finding in summary.findings:
        assert f"reproduce: powercut repro {finding.crash_point} --from reports/latest" in codes
        for violation in finding.violations:
            assert violation.expected in page.text
            assert violation.found in page.text
    reasons = [(c.case, r) for c in summary.cases for r in c.unknown_reasons]
    assert reasons
    for case, reason in reasons:
        assert f"reproduce: powercut repro {case}{reason.example} --from reports/latest" in codes
        assert reason.reason in page.text


def test_the_first_finding_of_a_case_offers_to_make_its_workload_short(page: Page, summary: Summary) -> None:
    """Only the terminal offered it, and a page is what is passed on."""
    codes = [text for tag, text in page.texts if tag == "code"]
    offered = [text for text in codes if text.startswith("fewer operations: powercut shrink ")]
    cases = {f.case for f in summary.unexpected}
    assert len(offered) == len(cases) > 0
    for case in cases:
        assert any(f" {case}@" in text for text in offered)


def test_the_answer_the_gaps_and_the_making_are_told(page: Page, summary: Summary) -> None:
    assert "2 of 5 modes kept every promise at every one of 326 crash states" in page.text
    assert "XFS has no nobarrier option" in page.text
    assert "Expected to fail but did not: ext4/journal * atomicity" in page.text
    for fact in (summary.info.kernel.sha256, summary.info.host, "QEMU 7.2.22 (tcg)", "d5aef4e0c9"):
        assert fact in page.text


@pytest.mark.parametrize(
    ("coverage", "covered", "told"),
    [
        (
            Coverage(14, 0, 185, 40, "the budget: 40 states a case"),
            "covered: 185 choices unexplored",
            "the two simplest states, all lost and all kept, at 14 crash times; 185 choices unexplored, "
            "ended by",
        ),
        (
            Coverage(14, 2, 0, 40, sampled=1, drawn=256),
            "covered: 256 states sampled without a difference",
            "Where that makes more states than can be visited, some were drawn at random. Case",
        ),
        (
            Coverage(14, None, 0, 40),
            "covered: complete",
            "No legal crash state of any case was left",
        ),
        (
            Coverage(0, -1, 36, 5, "5 of 41 states; ended by the budget"),
            "covered: 36 states of the log's own order left out",
            "5 of 41 states; ended by the budget",
        ),
        (
            None,
            "covered: the write log's own order",
            "Only states in the write log's own order were covered",
        ),
    ],
)
def test_what_a_budget_left_open_is_told(
    demo: RunStore, tmp_path: Path, coverage: Coverage | None, covered: str, told: str
) -> None:
    """`What was not checked` said that every crash state was decided, whatever the budget had left open."""
    kept = there(demo.case(CaseId("ext4", "ordered", "create-many")))
    with RunStore.create(tmp_path, "t", run_info()) as store:
        put_case(store, replace(kept.info, distinct=1, generated=1, coverage=coverage), Judgement(), at=1)
        store.finish(FINISHED)
        text = Page(report_html(summarise(store), store, SOURCE)).text
    assert covered in text
    assert told in text.partition("What was not checked")[2]


def test_what_a_budget_left_open_in_cut_recoveries_is_told(demo: RunStore, tmp_path: Path) -> None:
    """`No legal crash state of any case was left out`, beside 7,312 that cut recoveries might have left."""
    kept = there(demo.case(CaseId("ext4", "ordered", "create-many")))
    cut = NestedCrashes(1, 90, 0, Coverage(4000, 0, 7312, 910, "the budget of 1,000 states"))
    info = replace(kept.info, distinct=1, generated=1, coverage=Coverage(14, None, 0, 40), again=(cut,))
    with RunStore.create(tmp_path, "t", run_info()) as store:
        put_case(store, info, Judgement(), at=1)
        store.finish(FINISHED)
        text = Page(report_html(summarise(store), store, SOURCE)).text
    assert "covered: complete, 7,312 choices unexplored in cut recoveries" in text
    left = text.partition("What was not checked")[2]
    assert "No legal crash state" not in left
    assert "ext4-ordered/create-many" in left and "7,312 choices unexplored in cut recoveries" in left


def test_a_mode_that_begins_the_answer_keeps_its_name(demo: RunStore, tmp_path: Path) -> None:
    assert "Ext4/" not in grid(demo, tmp_path, modes=2, workloads=1, broken=1).text


def test_the_command_can_be_pasted(page: Page, summary: Summary) -> None:
    """It was shown without `powercut` in front, and without quotes."""
    assert shlex.join(["powercut", *summary.info.argv]) in page.text


def test_the_matrix_is_a_table_with_headers_and_words(page: Page, summary: Summary) -> None:
    scopes = [attributes.get("scope") for attributes in page.all("th")]
    assert scopes.count("row") >= 6
    assert None not in scopes
    words = [text for tag, text in page.texts if tag == "span"]
    for word in ("kept", "broken", "broken, expected", "undecided", "not run"):  # not by colour alone
        assert word in words
    cells = [attributes for attributes in page.all("td") if attributes.get("class") in ("pass", "fail")]
    assert len(cells) == sum(c.verdict.value in ("pass", "fail") for c in summary.cases)


def test_a_cell_of_what_broke_leads_to_its_first_finding(page: Page, summary: Summary) -> None:
    """It led to the case, of which the findings stand below its drawing."""
    (broken,) = [c for c in summary.cases if c.verdict is CaseVerdict.FAIL]
    links = [a["href"] for a in page.all("a") if a.get("href", "").startswith(("#finding-", "#case-"))]
    assert f"#finding-{broken.findings[0].id}" in links
    assert "#case-ext4-ordered-append-fsync" in links


def test_a_case_that_broke_is_open_and_one_that_kept_is_not(page: Page) -> None:
    cases = {a["id"]: a for a in page.all("details") if "id" in a}
    assert "open" in cases["case-ext4-writeback-nodelalloc-rename-replace"]
    assert "open" in cases["case-xfs-default-create-many"]
    assert "open" not in cases["case-ext4-ordered-append-fsync"]


def grid(demo: RunStore, root: Path, modes: int, workloads: int, broken: int = 0, known: int = 0) -> Page:
    """The page of a run of so many modes and workloads; the first cases broke, those after as expected."""
    kept = there(demo.case(CaseId("ext4", "ordered", "create-many")))
    fault = Violation("durability", "f", "f is gone", "f", "nothing", "gone")
    with RunStore.create(root, "t", run_info()) as store:
        for number in range(modes * workloads):
            mode, workload = divmod(number, workloads)
            case = CaseId("ext4", f"mode-{mode}" + "x" * (number < broken), f"w{workload}")
            case = replace(case, filesystem="ext3" if broken <= number < broken + known else "ext4")
            judgement = Judgement((fault,)) if number < broken + known else Judgement()
            put_case(store, replace(kept.info, case=case, distinct=1, generated=1), judgement, at=1)
        store.set_expectations(parse_expectations("ext3/* * * # known", "known.txt"))
        store.finish(FINISHED)
        return Page(report_html(summarise(store), store, SOURCE))


def test_what_there_is_more_of_goes_down(demo: RunStore, tmp_path: Path) -> None:
    wide = grid(demo, tmp_path, modes=7, workloads=12)
    assert [a["scope"] for a in wide.all("th")].count("row") == 12
    tall = grid(demo, tmp_path, modes=7, workloads=2)
    assert [a["scope"] for a in tall.all("th")].count("row") == 7


def test_good_news_is_folded_and_bad_news_is_open_up_to_a_page(demo: RunStore, tmp_path: Path) -> None:
    page = grid(demo, tmp_path, modes=7, workloads=12, broken=10, known=15)
    groups = [a for a in page.all("details") if a.get("class") == "group"]
    assert groups == [{"class": "group"}] * 2  # neither is open
    assert "15 cases broke a promise, as expected" in page.text
    assert "59 cases kept every promise" in page.text
    cases = [a for a in page.all("details") if a.get("class", "").startswith("case ")]
    order = [a["class"].removeprefix("case ") for a in cases]
    assert order == ["fail"] * 10 + ["xfail"] * 15 + ["pass"] * 59
    assert ["open" in a for a in cases] == [True] * 6 + [False] * 78


def test_a_few_cases_are_not_folded(demo: RunStore, tmp_path: Path) -> None:
    page = grid(demo, tmp_path, modes=2, workloads=4)
    assert not [a for a in page.all("details") if a.get("class") == "group"]
    assert "cases kept every promise" not in page.text


def test_how_verdicts_were_reached_and_the_pace_are_shown(page: Page) -> None:
    assert "272 recovered and judged, 266 same bytes as a judged state, 267 equal to a judged" in page.text
    assert "2 min 29 s of guest time, 5.4 states/s per guest" in page.text
    assert "17 s of guest time, 6.5 states/s per guest" in page.text  # of one case
    assert "38 recovered and judged; 37 same bytes" in page.text


def test_how_far_recoveries_were_cut_is_shown(demo: RunStore, summary: Summary) -> None:
    """The terminal said it, and the page did not."""
    cut = NestedCrashes(1, 3, 2, Coverage(crash_times=5, losses=1, unexplored=4, visits=9))
    first, *rest = summary.cases
    cases = (replace(first, info=replace(first.info, again=(cut,))), *rest)
    text = Page(report_html(replace(summary, cases=cases), demo, SOURCE)).text
    assert "cut again, 1 deep: 3 recoveries, 5 crash times in them" in text
    assert "4 choices unexplored, 2 recoveries not cut" in text
    assert "cut again" not in Page(report_html(summary, demo, SOURCE)).text


def test_quoted_words_are_code(demo: RunStore, tmp_path: Path) -> None:
    case = CaseId("ext4", "ordered", "create-many")
    kept = there(demo.case(case))
    texts = Violation("o", "f", "`fsync f` lost", "a ` alone", "<`b`>", "s")
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.add_case(kept.info)
        store.put_judgements(case, [JudgedState(CrashState(1), "h", Judgement((texts,)))])
        html = report_html(summarise(store), store, SOURCE)
    assert "<code>fsync f</code> lost" in html
    assert "<dd>a ` alone</dd>" in html
    assert "<dd>&lt;<code>b</code>&gt;</dd>" in html


def test_the_history_shows_where_the_power_failed(page: Page) -> None:
    assert page.text.count("the power failed here") == 3


def test_hostile_text_is_shown_not_obeyed(hostile: RunStore) -> None:
    text = report_html(summarise(hostile), hostile, HOSTILE)
    page = Page(text)
    assert page.all("script") == [{}]
    assert "<script>alert" not in text
    assert "</script><script>alert(1)</script> ]]> \\x1b[31m \\x00 \\udcff & \"'" in page.text
    text.encode()


def test_a_run_of_nothing_is_not_green(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.finish(FINISHED)
        page = Page(report_html(summarise(store), store, SOURCE))
    assert "Nothing was checked, so nothing is known." in page.text
    assert page.all("header") == [{"class": "unknown"}]


def test_a_run_that_died_is_not_green(tmp_path: Path, demo: RunStore) -> None:
    with RunStore.create(tmp_path, "t", run_info()) as store:
        kept = there(demo.case(CaseId("ext4", "ordered", "create-many")))
        store.add_case(kept.info)
        store.put_judgements(kept.case, [JudgedState(CrashState(1), "h", Judgement())])
        page = Page(report_html(summarise(store), store, SOURCE))
    assert page.all("header") == [{"class": "unknown"}]
    assert "The run was interrupted before it was complete." in page.text


def test_what_was_stopped_says_by_what_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page said "interrupted" of a run whose time was up, and neither it nor a job's had the command."""
    monkeypatch.chdir("/")  # from a folder near it, a page names the run relative to that
    with RunStore.create(tmp_path, "t", run_info()) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
        store.add_case(CaseInfo(CaseId("ext4", "ordered", "append-fsync"), "", "", ""))
        store.finish(FINISHED, interrupted=True, stopped="the time given is up")
        write_reports(store)
    again = f"powercut run --resume {store.path}"
    page = Page((store.path / "report.html").read_text())
    assert "The run was stopped before it was complete: the time given is up." in page.text
    assert f"continue with: {again}" in page.text
    assert f"\n    {again}\n" in (store.path / "summary.md").read_text()
    told = powercut("report", store.path)
    assert f"continue with: {again}" in told.stdout.splitlines()
    with RunStore.open(store.path) as store, store.lock("another process"):  # it would be refused
        assert "continue with" not in powercut("report", store.path).stdout


@pytest.mark.parametrize("form", ["--baseline {}", "--baseline={}"])
def test_how_to_go_on_names_the_baseline(tmp_path: Path, form: str) -> None:
    """The command of a page had none, and a run that went on noted nothing beside it."""
    (before := tmp_path / "before").mkdir()
    with RunStore.create(tmp_path, "t", run_info()) as store:
        argv = ["run", *form.format(before).split(), "--", "./test", "--baseline", "/"]
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], argv=argv))
        store.finish(FINISHED, interrupted=True)
        assert resume_of(store, str(store.path)).endswith(f"{store.path} --baseline {before}")
        before.rmdir()
        assert resume_of(store, str(store.path)).endswith(str(store.path))


def test_what_a_flush_makes_durable_is_said_as_the_crash_model_says_it(
    summary: Summary, demo: RunStore
) -> None:
    """The page said "what completed before a completed flush": a write may complete while that is under way.
    Its legend had FUA and flushes, and its verdicts other names than a terminal's, without a meaning.
    """
    text = report_html(summary, demo, SOURCE)
    assert "a write that completed before a flush was sent is durable once that flush completes" in text
    assert "medium" not in text
    for word in ("flush", "FUA write", "kept, broken, undecided", "platter"):
        assert f"<dt>{word}</dt>" in text


def test_quoted_words_of_a_reason_are_code(summary: Summary, demo: RunStore) -> None:
    """Why a case was not run had its backticks on the page."""
    why = "this file system does not support `setxattr f <a>`"
    left = (replace(c, reason=why) if c.verdict is CaseVerdict.NOT_RUN else c for c in summary.cases)
    text = report_html(replace(summary, cases=tuple(left)), demo, SOURCE)
    assert "does not support <code>setxattr f &lt;a&gt;</code>" in text
    assert "`setxattr" not in text


def test_headings_come_in_order_and_their_cards_have_a_style(summary: Summary, demo: RunStore) -> None:
    """Groups of findings had a heading two levels below their section's, and the name of no style."""
    text = report_html(summary, demo, SOURCE)
    levels = [int(tag[1]) for tag, _ in Page(text).tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise([0, *levels]))
    style = text.partition("<style>")[2].partition("</style>")[0]
    cards = {name for tag, had in Page(text).tags if tag == "article" for name in had["class"].split()}
    assert "similar" in cards
    assert all(re.search(rf"\.{name}\b", style) for name in cards)


def test_the_name_of_a_workload_stays_as_it_is_in_the_headline(summary: Summary) -> None:
    """`My-db lost ...` is none of the user's workloads."""
    broken = summary.cases[7]
    case = CaseId("ext4", "ordered", "my-db")
    finding = replace(broken.findings[0], case=case, oracle="program", expectation=None)
    own = replace(broken, info=replace(broken.info, case=case), findings=(finding,))
    assert _headline(replace(summary, cases=(own,)))[1].startswith("my-db lost or damaged")
    assert _headline(replace(summary, cases=summary.cases[:6]))[1].startswith("2 of 2 modes")


def test_the_last_calls_of_an_application_are_open_and_begin_at_their_end(demo: RunStore) -> None:
    """The pane was folded, and showed its first lines: the last call before the power failed is the last."""
    summary = summarise(demo)
    finding = next(f for c in summary.cases for f in c.findings)
    notes = {application.ACKNOWLEDGED: "1", application.CALLS: "write(a)\nfsync(a)", application.FILES: "a"}
    known = demo.evidence(finding)
    evidence = replace(known, notes=notes) if known else Evidence(finding.state, notes=notes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunStore, "evidence", lambda self, f: evidence)
        text = report_html(summary, demo, SOURCE)
    heading = escape(sentence(application.CALLS))
    pane = f'<details class="log" open><summary>{heading}</summary><div class="end"><pre tabindex="0">'
    assert pane in text
    assert ".log .end { display: flex; flex-direction: column-reverse;" in text


def colours(css: str, selector: str) -> set[str]:
    """The colours that a rule of the page names."""
    rules = re.findall(rf"(?:^|[}},\s]){re.escape(selector)} {{([^}}]*)}}", css)
    return set(re.findall(r"var\((--[a-z-]+)\)", " ".join(rules)))


@pytest.mark.parametrize(
    ("drawn", "key"),
    [
        (".operations .operation", ".k.operation"),
        (".operations .persist", ".k.persist"),
        (".acknowledgements .acknowledged", ".k.acknowledged"),
        (".calls .call", ".k.call"),
        (".calls .call-name", ".k.call-name"),
        (".calls .call-persist", ".k.call-persist"),
        (".writes .write", ".k.write"),
        (".writes .discard", ".k.discard"),
        (".flushes .flush", ".k.flush"),
        (".flushes .fua-tick", ".k.fua"),
        (".bands .odd", ".k.epoch"),
        (".points .pass", ".k.pass"),
        (".points .fail", ".k.fail"),
        (".points .unknown", ".k.unknown"),
        (".marker line", ".k.marker"),
        (".marker.xfail line", ".k.marker.xfail"),
    ],
)
def test_the_legend_has_each_colour_of_the_timeline(drawn: str, key: str) -> None:
    """The bands had another colour than their entry, and findings and discards had none."""
    css = resource("reports", "templates", "report.css").read_text()
    assert colours(css, drawn)
    assert colours(css, drawn) <= colours(css, key)
    classes = " ".join(key.removeprefix(".").split("."))
    assert f'<i class="{classes}">' in resource("reports", "templates", "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "workload", "shown"),
    [
        ("my-db: each line is synced", "my-db-synced", "my-db: each line is synced"),
        ("kv loses nothing", "kv", "kv loses nothing"),
        ("a file of eBPF is synced", "append", "A file of eBPF is synced"),
        ("k is another word", "kv", "K is another word"),
    ],
)
def test_an_application_is_called_as_its_user_wrote_it(text: str, workload: str, shown: str) -> None:
    """A page said "My-db: each line is synced"."""
    assert begun(text, workload) == shown


def test_the_page_names_the_recovery_code_that_no_state_reached(demo: RunStore, tmp_path: Path) -> None:
    """Only the page of `powercut coverage` did; to readers of the run's page, green was an answer to all."""
    lines = (
        CodeLine("fs/jbd2/recovery.c", "do_one_pass", 500, "ext4-ordered/create-many"),
        CodeLine("fs/ext4/orphan.c", "ext4_orphan_cleanup", 400),
        CodeLine("fs/ext4/orphan.c", "ext4_orphan_file_empty", 650),
    )
    kept = there(demo.case(CaseId("ext4", "ordered", "create-many")))
    with RunStore.create(tmp_path, "t", run_info()) as store:
        put_case(store, replace(kept.info, distinct=1, generated=1), Judgement(), at=1)
        store.finish(FINISHED)
        without = Page(report_html(summarise(store), store, SOURCE)).text
        write_recovery_code(RecoveryCode("linux", lines), store.layout)
        text = Page(report_html(summarise(store), store, SOURCE)).text
    assert "of recovery" not in without
    _, _, not_checked = text.partition("What was not checked")
    assert "1 of 3 lines of recovery ran; 2 of 3 functions were not reached" in not_checked
    for word in ("ext4_orphan_cleanup", "ext4_orphan_file_empty", "fs/ext4/orphan.c", "powercut coverage"):
        assert word in not_checked
    assert "do_one_pass" not in not_checked


def test_a_case_that_the_end_of_the_run_cut_off_has_no_time(demo: RunStore, summary: Summary) -> None:
    """`47 checked; Took 0.0 s`: nobody had added up what its workers took."""
    timed = tuple(replace(case, seconds=2.5) for case in summary.cases)
    first = (replace(timed[0], seconds=0.0), *timed[1:])
    taken = [
        Page(report_html(replace(summary, cases=cases), demo, SOURCE)).text.count(" Took ")
        for cases in (timed, first)
    ]
    assert taken[0] == taken[1] + 1
