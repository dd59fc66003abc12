"""What the pages' scripts do, in a real browser without a window."""

from __future__ import annotations

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
WAIT_S = 180


def page(tmp_path: Path, script: str) -> str:
    """What the page's document is after the script, as the browser has it."""
    need_program("chromium")
    with demo_run(tmp_path / "runs") as store:
        html = report_html(summarise(store), store, "RUN")
    file = tmp_path / "page.html"
    file.write_text(html.replace("</body>", script + "</body>"))
    return subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"),
            *(f"--user-data-dir={tmp_path}/profile", "--dump-dom", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    ).stdout


def test_a_timeline_is_read_with_keys_and_by_touch(tmp_path: Path) -> None:
    """Its shapes had only tooltips, which neither a keyboard nor a finger reaches."""
    title = page(tmp_path, KEYS).partition("<title>")[2].partition("</title>")[0]
    heard = title.strip("[]").split('","')
    idle, first, second, down, end, left, none, tapped = (text.strip('"') for text in heard)
    assert idle == none == "Tap or click a shape, or use the arrow keys here, to read what it is."
    assert (first[:2], second[:2]) == ("0:", "1:")
    assert "write" in down
    assert len({down, end, left}) == 3
    assert "flush" in tapped or "FUA" in tapped
