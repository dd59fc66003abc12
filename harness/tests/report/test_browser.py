"""What the pages' scripts do, in a real browser without a window."""

from __future__ import annotations

import html as html_text
import json
import subprocess
from pathlib import Path

from harness.report.html import report_html
from harness.summary import summarise
from harness.tests.needs import need_program
from harness.tests.report.demo import demo_run

KEYS = """
<script>
const box = document.querySelector(".timeline .scroll"), said = document.querySelector(".timeline .said");
const heard = [said.textContent];
const press = (key) => {
  box.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  heard.push(said.textContent);
};
document.querySelectorAll("details").forEach((d) => { d.open = true; });
["ArrowRight", "ArrowRight", "ArrowDown", "End", "ArrowLeft", "Escape"].forEach(press);
document.querySelector(".timeline .flushes rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));
heard.push(said.textContent);
document.title = JSON.stringify(heard);
</script>
"""
PHONE = """
<script>
document.querySelectorAll("details").forEach((d) => { d.open = true; });
dispatchEvent(new Event("resize"));
const told = (box) => getComputedStyle(box, "::before").content.includes("scrolls sideways");
const said = [...document.querySelectorAll(".scroll")].map((box) =>
  [box.scrollWidth > box.clientWidth + 1, told(box)]);
const root = document.documentElement;
document.title = JSON.stringify({said, width: innerWidth, over: root.scrollWidth - root.clientWidth});
</script>
"""
WAIT_S = 180


def page(tmp_path: Path, script: str, width: int = 1200) -> str:
    """The page's title after the script, which puts there what it saw."""
    need_program("chromium")
    with demo_run(tmp_path / "runs") as store:
        html = report_html(summarise(store), store, "RUN")
    file = tmp_path / "page.html"
    file.write_text(html.replace("</body>", script + "</body>"))
    document = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"),
            *(f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900"),
            *("--dump-dom", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    ).stdout
    return html_text.unescape(document.partition("<title>")[2].partition("</title>")[0])


def test_a_timeline_is_read_with_keys_and_by_touch(tmp_path: Path) -> None:
    """Its shapes had only tooltips, which neither a keyboard nor a finger reaches."""
    idle, first, second, down, end, left, none, tapped = json.loads(page(tmp_path, KEYS))
    assert idle == none == "Tap or click a shape, or use the arrow keys here, to read what it is."
    assert (first[:2], second[:2]) == ("0:", "1:")
    assert "write" in down
    assert len({down, end, left}) == 3
    assert "flush" in tapped or "FUA" in tapped


def test_on_a_phone_what_scrolls_sideways_says_so_and_the_page_itself_does_not(tmp_path: Path) -> None:
    """At 420 pixels the matrix ended at its third mode, and nothing showed that there were more."""
    seen = json.loads(page(tmp_path, PHONE, width=420))
    assert seen["width"] <= 500
    assert [True, True] in seen["said"]
    assert all(scrolls == told for scrolls, told in seen["said"])
    assert seen["over"] <= 0
