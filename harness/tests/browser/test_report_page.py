"""report.html in a real browser: what a reader does with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import harness
from harness.report.explanation import write_explanation
from harness.report.html import report_html
from harness.report.live import look_html
from harness.report.page import Line, Page, Section
from harness.summary import summarise
from harness.tests.browser.driver import ESCAPE, Browser, browser
from harness.tests.cli.test_serve import FOUND
from harness.tests.report.conftest import SOURCE
from harness.tests.report.demo import demo_run
from harness.tests.report.test_sides import with_sides

pytestmark = pytest.mark.browser

SHOWN = "return [...document.querySelectorAll('details.case:not([hidden]) h3')].map((h) => h.textContent)"
FOCUS = "return document.activeElement.closest('.finding')?.id ?? document.activeElement.tagName"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo run's page, with one finding explained."""
    folder = tmp_path_factory.mktemp("page")
    with demo_run(folder / "run") as run:
        summary = summarise(run)
        explained = with_sides(summary.findings[0].id)
        write_explanation(run.layout, explained)
        (folder / "report.html").write_text(report_html(summary, run, SOURCE))
    return folder / "report.html"


def test_a_search_narrows_the_cases_and_is_in_the_link(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    everything = chromium.run(SHOWN)
    assert len(everything) > 2
    mode = everything[0].partition("/")[0]
    chromium.run(
        f"const s = document.querySelector('select[name=mode]'); s.value = {mode!r};"
        "s.dispatchEvent(new Event('input', {bubbles: true}));"
    )
    narrowed = chromium.run(SHOWN)
    assert narrowed == [name for name in everything if name.startswith(f"{mode}/")]
    assert len(narrowed) < len(everything)
    link = chromium.run("return location.hash")
    assert link == f"#?mode={mode}"
    chromium.open(page, link)
    assert chromium.run(SHOWN) == narrowed


def test_the_keyboard_searches_clears_and_steps_through_findings(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    chromium.keys("/")
    assert chromium.run(FOCUS) == "INPUT"
    chromium.keys("nothing has this")
    assert chromium.run(SHOWN) == []
    chromium.keys(ESCAPE)
    assert len(chromium.run(SHOWN)) > 2
    chromium.keys("j")
    first = chromium.run(FOCUS)
    chromium.keys("j")
    second = chromium.run(FOCUS)
    assert first.startswith("finding-")
    assert second.startswith("finding-")
    assert first != second
    chromium.keys("k")
    assert chromium.run(FOCUS) == first
    assert chromium.run("return document.activeElement.closest('details').open")


def test_a_link_to_a_finding_opens_it_although_a_search_hides_it(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    target = chromium.run("return [...document.querySelectorAll('.finding[id]')].at(-1).id")
    chromium.keys("/")
    chromium.keys("nothing has this")
    chromium.run(f"location.hash = '#{target}'")
    visible = f"return document.getElementById('{target}').getClientRects().length > 0"
    for _ in range(50):
        if chromium.run(visible):
            return
    raise AssertionError(f"{target} is hidden")


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_what_scrolls_sideways_says_so_and_the_page_itself_does_not(
    chromium: Browser, page: Path, dark: bool
) -> None:
    """At 420 pixels the matrix ended at its third mode, and nothing showed that there were more."""
    chromium.resize(400, 800)
    chromium.dark(dark)
    chromium.open(page)
    many = "@t74=" + ",".join(map(str, range(30, 90)))  # the state of a finding at which 60 writes are there
    chromium.run(
        "const card = document.querySelector('.case .finding'); card.closest('.case').open = true;"
        f"card.open = false; card.querySelector('.brief').textContent = '{many}'"
    )
    assert chromium.run("return document.documentElement.scrollWidth") <= 400
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert chromium.run("return document.documentElement.scrollWidth") <= 400
    boxes = chromium.run(
        "dispatchEvent(new Event('resize'));"
        "const told = (box) => getComputedStyle(box, '::before').content.includes('scrolls sideways');"
        "return [...document.querySelectorAll('.scroll')]"
        ".map((box) => [box.scrollWidth > box.clientWidth + 1, told(box)])"
    )
    assert [True, True] in boxes
    assert all(scrolls == told for scrolls, told in boxes)
    ladder = "return getComputedStyle(document.querySelector('.ladder text.bad')).fill"
    paper = "return getComputedStyle(document.body).backgroundColor"
    assert chromium.run(ladder) != chromium.run(paper)
    assert (chromium.run(ladder) == "rgb(255, 138, 128)") is dark
    chromium.cdp("Emulation.clearDeviceMetricsOverride")


def test_a_timeline_is_read_with_keys_and_by_touch(chromium: Browser, page: Path) -> None:
    """Its shapes had only tooltips, which neither a keyboard nor a finger reaches."""
    chromium.open(page)
    idle, first, second, down, end, left, none, tapped = chromium.run(
        """
        document.querySelectorAll("details").forEach((d) => { d.open = true; });
        const box = document.querySelector(".timeline .scroll");
        const said = document.querySelector(".timeline .said"), heard = [said.textContent];
        for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "End", "ArrowLeft", "Escape"]) {
          box.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
          heard.push(said.textContent);
        }
        const flush = document.querySelector(".timeline .flushes rect");
        flush.dispatchEvent(new MouseEvent("click", {bubbles: true}));
        return [...heard, said.textContent];
        """
    )
    assert idle == none == "Tap or click a shape, or use the arrow keys here, to read what it is."
    assert (first[:2], second[:2]) == ("0:", "1:")
    assert "write" in down
    assert len({down, end, left}) == 3
    assert "flush" in tapped or "FUA" in tapped


def test_a_group_leads_to_its_finding_and_that_to_its_own_link(chromium: Browser, page: Path) -> None:
    """Whoever sends a finding sends a link to it, and not to the whole page."""
    chromium.open(page)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    target = chromium.run(
        "const link = document.querySelector('.similar h3 a'); link.click(); return link.hash.slice(1);"
    )
    card = f"document.getElementById('{target}')"
    assert chromium.run(f"return {card}.open && {card}.getClientRects().length > 0")
    own = chromium.run(f"return {card}.querySelector('a.id').hash.slice(1)")
    assert own == target
    chromium.open(page, f"#{own}")
    top = chromium.run(f"return {card}.getBoundingClientRect().top")
    assert chromium.run(f"return {card}.open")
    assert 0 <= top <= chromium.run("return innerHeight")


def test_on_a_phone_each_side_of_the_trees_says_which_it_is(chromium: Browser, page: Path) -> None:
    """Without their head, two columns of sizes tell nothing."""
    chromium.resize(400, 800)
    chromium.open(page)
    chromium.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    shown = "getComputedStyle(document.querySelector('.trees thead')).display"
    before = "(d) => getComputedStyle(d, '::before').content"
    said = f"[...document.querySelectorAll('.trees .broken td')].map({before})"
    assert chromium.run(f"return {shown}") == "none"
    assert chromium.run(f"return {said}") == ['"expected: "', '"found: "']
    chromium.cdp("Emulation.clearDeviceMetricsOverride")
    assert chromium.run(f"return {shown}") == "table-header-group"


def test_a_search_that_nothing_matches_says_so_and_escape_ends_it(chromium: Browser, page: Path) -> None:
    """All cases were gone, and "0 of 18 cases" was all that stood there."""
    chromium.open(page, "#?text=nothing-is-called-so")
    assert chromium.run(SHOWN) == []
    assert "Nothing matches" in chromium.run("return document.querySelector('.search output').textContent")
    chromium.keys(ESCAPE)
    assert len(chromium.run(SHOWN)) > 2


def test_in_narrow_cells_no_word_is_broken(chromium: Browser) -> None:
    """On a phone, "missed" was "misse" above "d"."""
    chromium.resize(400, 800)
    chromium.open(Path(harness.__file__).parent.parent / "reports/examples/faults/report.html")
    broken = chromium.run(
        """
        document.querySelectorAll("details").forEach((d) => { d.open = true; });
        const lines = (cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return new Set([...range.getClientRects()].map((r) => r.top)).size;
        };
        const cells = [...document.querySelectorAll(".rows td, .rows th")];
        return cells.filter((c) => /^\\w+$/.test(c.textContent.trim()) && lines(c) > 1)
          .map((c) => c.textContent);
        """
    )
    chromium.cdp("Emulation.clearDeviceMetricsOverride")
    assert broken == []


def test_a_live_state_is_no_wider_than_a_phone(chromium: Browser, tmp_path: Path) -> None:
    """A line of the kernel's log made the page three phones wide."""
    long = replace(FOUND, kernel_log=("EXT4-fs (vda): " + "mounted filesystem " * 20,))
    with demo_run(tmp_path / "run") as run:
        html = look_html(long, run, "entry 29 was lost", [("the state before", "x")], "powercut repro x")
    (tmp_path / "live.html").write_text(html)
    chromium.resize(400, 800)
    chromium.open(tmp_path / "live.html")
    wide = chromium.run("return document.documentElement.scrollWidth")
    said = chromium.run("return document.body.textContent")
    chromium.cdp("Emulation.clearDeviceMetricsOverride")
    assert wide <= 400
    assert "32 bytes" in said


def test_a_place_of_a_run_makes_no_page_wider_than_a_phone(chromium: Browser, tmp_path: Path) -> None:
    """The page of `powercut litmus` has one for each column."""
    line = Line("64 s", "ext4/journal", aside="modes/" + "ext4_journal_async_commit_" * 3)
    page = Page(
        what="litmus", subject="s", headline="h", kind="pass", sections=(Section("t", lines=(line,)),)
    )
    (tmp_path / "page.html").write_text(page.html())
    chromium.resize(390, 800)
    chromium.open(tmp_path / "page.html")
    wide = chromium.run("return document.documentElement.scrollWidth")
    chromium.cdp("Emulation.clearDeviceMetricsOverride")
    assert wide <= 390


def test_on_paper_a_case_is_a_line_unless_all_were_opened(chromium: Browser, page: Path) -> None:
    """A run with 80 findings was printed on 160 pages."""
    chromium.open(page)
    shown = "return [...document.querySelectorAll('.case > .body')].filter((b) => b.offsetHeight > 0).length"
    chromium.cdp("Emulation.setEmulatedMedia", media="print")
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    assert chromium.run(shown) == 0
    assert chromium.run("return document.querySelector('.similar').offsetHeight") > 0
    chromium.run("document.querySelector('.titled button').click()")
    assert chromium.run(shown) > 0
    folded = "return document.querySelectorAll('.case details.finding:not([open])').length"
    assert chromium.run(folded) > 0
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    assert chromium.run(folded) == 0, "the findings of opened cases were folded on paper"
    chromium.cdp("Emulation.setEmulatedMedia", media="")


def test_on_paper_the_only_case_of_a_run_is_shown_whole(
    chromium: Browser, page: Path, tmp_path: Path
) -> None:
    """It was a line, and there is no button to open it."""
    others = "document.querySelectorAll('details.case, details.group').forEach((d, n) => n && d.remove())"
    only = page.read_text().replace("<script>", f"<script>{others}</script><script>", 1)
    (tmp_path / "one.html").write_text(only)
    chromium.open(tmp_path / "one.html")
    chromium.cdp("Emulation.setEmulatedMedia", media="print")
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    assert chromium.run("return document.querySelector('.case > .body').offsetHeight") > 0
    chromium.cdp("Emulation.setEmulatedMedia", media="")


def test_on_paper_nothing_is_folded_where_no_script_runs(chromium: Browser, page: Path) -> None:
    """A page that was printed without JavaScript had a line for each case, and no finding."""
    plain = page.with_name("plain.html")
    plain.write_text(re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL))
    last = "[...document.querySelectorAll('details')].map((d) => d.lastElementChild.checkVisibility())"
    chromium.open(plain)
    assert False in chromium.run(f"return {last}")
    chromium.cdp("Emulation.setEmulatedMedia", media="print")
    assert set(chromium.run(f"return {last}")) == {True}
    cut = "[...document.querySelectorAll('pre, svg.ladder')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
    assert chromium.run(f"return {cut}.length") == 0
    chromium.cdp("Emulation.setEmulatedMedia", media="")
