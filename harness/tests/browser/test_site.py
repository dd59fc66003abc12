"""The site of the documents in a real browser: its look on dark and narrow screens, and its search."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tests.browser.driver import Browser, browser
from harness.tests.markdown import ROOT
from harness.tests.needs import need_program

pytestmark = pytest.mark.browser

PAGE = """# A page

```{graphviz}
digraph { rankdir=LR; a -> b }
```

| a wide table | of which a narrow screen shows a part |
| --- | --- |
| `a-word-that-no-line-ends-in-and-that-is-wider-than-a-narrow-screen` | a *superblock* and its flush |
"""
FILTERS = """
const drawn = document.querySelector('object.graphviz, .graphviz img, .graphviz svg'), found = [];
for (let e = drawn; e; e = e.parentElement)
  if (getComputedStyle(e).filter !== 'none') found.push(getComputedStyle(e).filter);
return drawn ? found : null;
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one page, made as `make docs` makes that of all documents."""
    need_program("dot")
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.md").write_text(PAGE)
    one_page = ["-D", "root_doc=index", "-D", "include_patterns=index.md"]
    argv = ["-q", "-W", "-c", str(ROOT / "docs"), *one_page, str(folder), str(folder / "out")]
    subprocess.run([sys.executable, "-m", "sphinx", *argv], check=True, timeout=300)
    return folder / "out"


def test_a_diagram_is_turned_round_once_on_a_dark_page(chromium: Browser, site: Path) -> None:
    """It was turned round twice, by two elements of one class: dark grey lines on black."""
    for dark, times in ((False, 0), (True, 1)):
        chromium.dark(dark)
        chromium.open(site / "index.html")
        found = chromium.run(FILTERS)
        assert found is not None
        assert len(found) == times, found


def test_a_narrow_screen_scrolls_a_table_and_not_the_page(chromium: Browser, site: Path) -> None:
    chromium.resize(420, 900)
    chromium.open(site / "index.html")
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")


def test_the_search_needs_no_server(chromium: Browser, site: Path) -> None:
    chromium.open(site / "search.html", "?q=superblock")
    found = """
    const end = Date.now() + 30000;
    return new Promise((done) => {
      const look = () => {
        const names = [...document.querySelectorAll('#search-results li a')].map((a) => a.textContent);
        names.length || Date.now() > end ? done(names) : setTimeout(look, 50);
      };
      look();
    });
    """
    assert "A page" in chromium.run(found)
