"""A page in its four forms."""

from __future__ import annotations

import html
import json
import os
import shlex
from pathlib import Path

import jinja2
import pytest

from harness.report.page import Cell, Finding, Line, Page, PageTable, Section
from harness.report.pages import on_page, template

FOREIGN = "<script>alert(1)</script> \x1b[31m\nreproduce: rm -rf /"


def page() -> Page:
    """Every place of a page with what a guest may say."""
    lines = (Line(FOREIGN, FOREIGN, FOREIGN, FOREIGN),)
    table = PageTable(
        ("case", "states"), (("a", Cell("7", "fail", FOREIGN)), (FOREIGN, "12,000")), FOREIGN, 1
    )
    found = Finding(FOREIGN, lines, (FOREIGN,), ("reproduce: powercut repro a@1",))
    sections = (
        Section("What was found", tables=(table,), findings=(found,), lines=lines),
        Section("Nothing", "there is nothing"),
        Section("In full", lines=(Line("only on the page"),), in_text=False),
    )
    return Page(
        "test", FOREIGN, "promises were broken: 1 `case`", "fail", sections, data={"found": [FOREIGN]}
    )


def test_no_form_lets_foreign_text_through() -> None:
    """A name that a guest chose stood as markup, moved the cursor, or began a line as one of ours."""
    html, text = page().html(), page().text()
    assert html.count("<script>") == 1, "the page's own"
    assert "\x1b" not in html + text + page().json()
    assert [line for line in text.splitlines() if line.startswith("reproduce:")] == [
        "reproduce: powercut repro a@1"
    ]


def test_all_forms_tell_the_same() -> None:
    html, text = page().html(), page().text()
    for words in ("1 `case`", "reproduce: powercut repro a@1", "12,000", "What was found"):
        assert words in text
        assert words in html
    assert "only on the page" in html and "only on the page" not in text
    assert "Nothing" not in html + text, "a section that holds nothing"
    assert json.loads(page().json()) == {"headline": page().headline, "found": [FOREIGN]}


def test_in_markdown_foreign_text_is_no_markup() -> None:
    """A mail or a job's page would show a guest's words as ours: a heading, a row, a link."""
    text = page().markdown()
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if "<script>" in line and not line.startswith("    ")]
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(headings) == 2 and headings[1] == "### What was found"
    assert [line for line in text.splitlines() if "reproduce:" in line and "rm" not in line] == [
        "    reproduce: powercut repro a@1"
    ]
    assert "only on the page" not in text


def test_a_bar_in_a_cell_ends_no_cell_of_markdown() -> None:
    table = PageTable(("case", "words"), (("a", "`x | y`"),))
    rows = Page("t", "s", "h", "pass", (Section("S", tables=(table,)),)).markdown().splitlines()[-3:]
    assert rows == ["| case | words |", "| --- | --- |", r"| a | \`x \| y\` |"]


def test_no_line_of_a_summary_is_wider_than_a_screen() -> None:
    """A verdict on three kernels had lines of 250 characters; a command is pasted, and stays in one."""
    words = "safe as far as looked (451 states, 8 of 8 workloads)"
    table = PageTable(("mode", "6.1", "7.3"), (("ext4/ordered", words, f"{words}; {words}"),))
    repro = f"reproduce: powercut repro a@1 --from /{'x' * 150}"
    found = Finding("f", (Line(words * 3),), (words * 3,), (repro,))
    section = Section("S", words, (table, PageTable(("a", "b"), (("c", "d"),))), (), (found,))
    lines = Page("t", "s", words * 3, "pass", (section,), figures=(words * 3,)).text(110).splitlines()
    assert [line for line in lines if len(line) > 110] == [repro]
    at = lines.index("ext4/ordered")
    in_lines = (f"  6.1: {words}", f"  7.3: {words}; {words.removesuffix(' workloads)')}", "      workloads)")
    assert tuple(lines[at + 1 : at + 4]) == in_lines, "none can pass for another line"
    assert "a  b" in lines


def test_figures_of_a_table_are_to_the_right() -> None:
    table = PageTable(("case", "states"), (("a", "7"), ("long", "12,000")), figures=1)
    text = Page("t", "s", "h", "pass", (Section("S", tables=(table,)),)).text()
    assert text.splitlines()[-3:] == ["case  states", "a          7", "long  12,000"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("show f --from /home/me/reports/runs/X", "show f --from reports/runs/X"),
        (
            "show f --from /srv/ci/reports/runs/20261129-120000-r -w /home/me/a.toml",
            "show f --from /srv/ci/reports/runs/20261129-120000-r -w ./a.toml",
        ),
        ("repro a/b@1 --from '/home/me/a b/runs/X'", "repro a/b@1 --from 'a b/runs/X'"),
        (
            "repro a --from /home/v/runs/20261129-110000-v/kernels/k/runs/20261129-120000-r",
            "repro a --from ../v/runs/20261129-110000-v/kernels/k/runs/20261129-120000-r",
        ),
        ("run --kernel /srv/linux/bzImage", "run --kernel /srv/linux/bzImage"),
        ("not here: it's packed; /home/me/x", "not here: it's packed; /home/me/x"),
    ],
)
def test_a_page_has_no_path_of_its_makers(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was mailed said `--from /home/me/reports/runs/X`."""
    monkeypatch.setattr(Path, "cwd", lambda: Path("/home/me"))
    found = Finding("f", commands=(f"powercut {command}",))
    page = Page("t", "s", "h", "fail", (Section("Found", findings=(found,)),), command=f"powercut {command}")
    for form in (html.unescape(page.html()), page.markdown()):
        assert form.count(f"powercut {shown}") == 2, form
    assert page.text().count(f"powercut {command}") == 2, "on a terminal it is pasted in any folder"


@pytest.mark.parametrize("word", ["/srv/runs/mine/bzImage", "/srv/runs/workload.toml"])
def test_a_path_is_relative_only_if_it_is_of_a_run(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path below a folder `runs` lost what stands before it."""
    monkeypatch.setattr(Path, "cwd", lambda: Path("/srv/w"))
    assert on_page(f"powercut run -w {word}") == f"powercut run -w {word}"


def test_a_command_of_a_page_works_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run outside it the last names were left, beside paths relative to it: no folder had both."""
    (here := tmp_path / "w").mkdir()
    monkeypatch.chdir(here)
    for out in (here, tmp_path, tmp_path / "b", tmp_path.parent, Path("/srv/ci")):
        run = out / "runs/20261129-120000-r"
        *_, shown = shlex.split(on_page(shlex.join(["powercut", "verdict", "--resume", str(run)])))
        assert os.path.abspath(shown) == str(run)  # noqa: PTH100  # Path.absolute keeps `..`


def test_a_template_is_compiled_once_whatever_its_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page compiled its own anew: most of the time of a run's reports."""
    assert ">PROMISES WERE BROKEN" in template("page.html", capitalised=str.upper).render(page=page())
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert ">promises were broken" in template("page.html", capitalised=str.lower).render(page=page())
