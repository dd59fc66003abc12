"""Trees and bytes side by side, as text and in the page."""

from __future__ import annotations

import msgspec

from harness.report.explanation import (
    BlockDifference,
    Explanation,
    Mark,
    TreeRow,
    Trees,
    TreeSide,
    read_explanation,
    write_explanation,
)
from harness.report.html import report_html
from harness.report.sides import byte_rows, sides_text
from harness.store import RunStore
from harness.summary import summarise
from harness.tests.explain.test_explain import explanation
from harness.tests.report.conftest import SOURCE
from harness.tests.report.test_html import Page

LOST = BlockDifference(
    "sector 8, byte 0 of it",
    "entry 3, data of f",
    "41 42\n00 01",
    "entry 5, data of f",
    "41 43\n00 02",
    (0, 352),
)
TREES = Trees(
    "after `fsync f` (operation 2)",
    (
        TreeRow("d", TreeSide("directory"), TreeSide("directory")),
        TreeRow("f", TreeSide("file", 4096, "operation 1"), TreeSide("file", 0), Mark.BROKEN),
        TreeRow("g\nreproduce: rm", TreeSide("file", 1, "operation 3"), TreeSide(), Mark.OTHER),
    ),
    left_out=7,
)


def with_sides(finding: str) -> Explanation:
    return msgspec.structs.replace(explanation(), finding=finding, trees=TREES, differences=(LOST,))


def test_the_text_shows_both_sides_of_what_differs() -> None:
    text = sides_text(with_sides("0" * 12))
    assert "  d: directory\n" in text
    assert "  f: broken\n    expected  file, 4096 bytes: operation 1\n    found     file, 0 bytes\n" in text
    assert "    found     nothing\n" in text
    assert "  7 more names\n" in text
    assert "    +0     platter   41 42" in text
    assert "           lost      41 43" in text
    assert "    +352   platter   00 01" in text
    assert not any(line.startswith("reproduce") for line in text.splitlines())
    assert sides_text(explanation()) == ""


def test_each_byte_that_differs_is_marked() -> None:
    first, second = byte_rows(LOST)
    assert list(first.lost) == [("41", False), ("43", True)]
    assert (first.platter_text, first.lost_text) == ("AB", "AC")
    assert (second.platter_text, second.lost_text) == ("..", "..")
    assert (first.at, second.at) == ("+0", "+352")
    (foreign,) = byte_rows(msgspec.structs.replace(LOST, platter_hex="zz", lost_hex="<b>"))
    assert (list(foreign.lost), foreign.lost_text) == ([("<b>", True)], "")


def test_the_page_has_the_expected_tree_beside_the_found_one(demo: RunStore) -> None:
    """An explanation named the write that was lost; what was in the files instead, nobody saw."""
    finding = summarise(demo).findings[0].id
    write_explanation(demo.layout, with_sides(finding))
    try:
        page = Page(report_html(summarise(demo), demo, SOURCE))
    finally:
        demo.layout.explanation(finding).unlink()
    rows = [attributes.get("class", "") for tag, attributes in page.tags if tag == "tr"]
    assert rows.count("broken") == 1
    assert rows.count("differs") == 1
    texts = [text for _, text in page.texts]
    assert "file, 4096 bytes" in texts
    assert ("b", "43") in page.texts
    assert ("b", "41") not in page.texts


def test_an_explanation_without_trees_is_read(demo: RunStore) -> None:
    """Explanations of before have none."""
    finding = summarise(demo).findings[0].id
    write_explanation(demo.layout, msgspec.structs.replace(explanation(), finding=finding))
    file = demo.layout.explanation(finding)
    known = msgspec.json.decode(file.read_bytes())
    del known["trees"]
    file.write_bytes(msgspec.json.encode(known))
    again = read_explanation(demo.layout, finding)
    file.unlink()
    assert again is not None
    assert again.trees is None


def test_a_name_of_foreign_bytes_is_kept(demo: RunStore) -> None:
    """An explanation with a name that is no UTF-8 could not be written."""
    row = TreeRow("f\udcff", TreeSide("file", 0), TreeSide(), Mark.BROKEN)
    found = msgspec.structs.replace(explanation(), trees=Trees("before any operation", (row,)))
    write_explanation(demo.layout, found)
    again = read_explanation(demo.layout, found.finding)
    demo.layout.explanation(found.finding).unlink()
    assert again is not None
    assert again.trees is not None
    assert again.trees.rows[0].path == "f\\udcff"
