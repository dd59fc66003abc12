"""The tree that should be there beside the one that came back."""

from __future__ import annotations

import pytest

from harness.explain.explain import hex_lines
from harness.explain.trees import trees_of
from harness.filesystems.profiles import profiles
from harness.model import (
    Extent,
    ExtentKind,
    FileKind,
    History,
    HistoryStep,
    Outcome,
    TreeEntry,
    Violation,
)
from harness.oracles.replay import replay
from harness.oracles.timeline import ModelTimeline
from harness.report.explanation import Mark, Trees, TreeSide
from harness.report.sides import side_words
from harness.tests.there import there
from harness.workloads.load import parse_operation

OPERATIONS = ("mkdir d", "create d/f", "append d/f 8192", "fsync d/f", "write d/f 0 4096", "create g")
CONTRACT = profiles()["ext4/ordered"].contract


def model(*operations: str) -> ModelTimeline:
    steps = [HistoryStep(i, parse_operation(op), 2 * i, 2 * i + 1) for i, op in enumerate(operations)]
    return replay(CONTRACT, History(tuple(steps)))


def entry(path: str, kind: FileKind, *extents: Extent, size: int = 0, mode: int = 0o644) -> TreeEntry:
    numbers = {"": 2, "d": 12, "d/f": 13, "g": 14}
    links = 2 if kind is FileKind.DIRECTORY else 1
    return TreeEntry(path, kind, numbers.get(path, 99), mode, links, 0, 0, size, 8, extents=extents)


def written(start: int, length: int, operation: int) -> Extent:
    return Extent(ExtentKind.WRITTEN, start, length, operation)


def found(*extents: Extent, size: int = 8192) -> Outcome:
    tree = [
        entry("", FileKind.DIRECTORY, mode=0o755),
        entry("lost+found", FileKind.DIRECTORY, mode=0o700),
        entry("d", FileKind.DIRECTORY, mode=0o755),
        entry("d/f", FileKind.FILE, *extents, size=size),
    ]
    return Outcome(tree={e.path: e for e in tree})


def broken(path: str) -> Violation:
    return Violation("durability", path, f"{path}: lost", "", "", path)


def trees(version: int, outcome: Outcome, *violations: Violation) -> Trees:
    return there(trees_of(model(*OPERATIONS), version, outcome, violations))


def marks(seen: Trees) -> dict[str, Mark]:
    return {row.path: row.mark for row in seen.rows}


def test_what_came_back_as_it_should_is_not_marked() -> None:
    seen = trees(4, found(written(0, 8192, 2)))
    assert marks(seen) == {"d": Mark.SAME, "d/f": Mark.SAME}
    assert seen.version == "after `fsync d/f` (operation 3)"
    file = seen.rows[1]
    assert file.expected == file.found == TreeSide("file", 8192, "operation 2")
    assert side_words(file.found) == "file, 8192 bytes"


def test_contents_say_which_operation_wrote_them() -> None:
    """It was only said that data is lost; not which data is there instead."""
    seen = trees(5, found(written(0, 8192, 2)), broken("d/f"))
    (file,) = [row for row in seen.rows if row.mark is Mark.BROKEN]
    assert file.expected.contents == "0 to 4096: operation 4; 4096 to 8192: operation 2"
    assert file.found.contents == "operation 2"


def test_a_name_that_is_missing_is_broken_only_where_a_violation_says_so() -> None:
    seen = trees(6, found(written(0, 4096, 4), written(4096, 4096, 2)))
    assert marks(seen) == {"d": Mark.SAME, "d/f": Mark.SAME, "g": Mark.OTHER}
    (lost,) = [row for row in seen.rows if row.path == "g"]
    assert (side_words(lost.expected), side_words(lost.found)) == ("file, 0 bytes", "nothing")
    assert marks(trees(6, found(written(0, 8192, 2)), broken("g")))["g"] is Mark.BROKEN


def test_a_name_that_nobody_made_stands_there_as_well() -> None:
    outcome = found(written(0, 8192, 2))
    tree = {**outcome.tree, "x": entry("x", FileKind.FILE)}
    seen = trees(4, Outcome(tree=tree), broken("x"))
    assert (seen.rows[2].path, seen.rows[2].mark, seen.rows[2].expected) == ("x", Mark.BROKEN, TreeSide())


def test_permissions_are_said_where_they_differ() -> None:
    outcome = found(written(0, 8192, 2))
    tree = {**outcome.tree, "d/f": entry("d/f", FileKind.FILE, written(0, 8192, 2), size=8192, mode=0o600)}
    (file,) = [row for row in trees(4, Outcome(tree=tree)).rows if row.path == "d/f"]
    assert (file.expected.more, file.found.more) == ("permissions 0644", "permissions 0600")


def test_bytes_too_few_to_tell_whose_are_no_difference() -> None:
    """The end of a file is seldom whole words of the pattern."""
    timeline = model("create f", "append f 5003")
    tail = Extent(ExtentKind.LITERAL, 5000, 3, data=b"abc")
    tree = {"f": entry("f", FileKind.FILE, written(0, 5000, 1), tail, size=5003)}
    seen = there(trees_of(timeline, 2, Outcome(tree=tree), ()))
    assert seen.rows[0].mark is Mark.SAME


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome(mount_errno=117), "the file system could not be mounted"),
        (Outcome(lost="Kernel panic"), "recovery did not end"),
    ],
)
def test_where_nothing_came_back_it_says_why_and_accuses_no_name(outcome: Outcome, why: str) -> None:
    """Each name would have been called missing, of a file system that nobody could look into."""
    seen = trees(4, outcome, broken("mount"))
    assert seen.unseen == why
    assert set(marks(seen).values()) == {Mark.SAME}
    assert [row.path for row in seen.rows] == ["d", "d/f"]


def test_of_many_names_those_that_differ_are_shown() -> None:
    timeline = model(*(f"create {n:03}" for n in range(100)))
    tree = {f"{n:03}": entry(f"{n:03}", FileKind.FILE) for n in range(100) if n != 77}
    seen = there(trees_of(timeline, 100, Outcome(tree=tree), [broken("077")]))
    assert (len(seen.rows), seen.left_out) == (40, 60)
    assert marks(seen)["077"] is Mark.BROKEN


def test_programs_are_not_followed() -> None:
    timeline = model("create f")
    opaque = ModelTimeline(
        **{name: getattr(timeline, name) for name in timeline.__slots__ if name != "opaque"}, opaque=True
    )
    assert trees_of(opaque, 1, Outcome(), ()) is None


def test_hex_shows_the_lines_that_differ_wherever_they_are_and_a_few_at_most() -> None:
    """Of a superblock that was lost, only the checksum was shown, and not the pointer that mattered."""
    one, other = bytes(512), bytes(100) + b"\1" * 20 + bytes(200) + b"\2" + bytes(191)
    found = hex_lines(one, other)
    assert [at for at, _, _ in found] == [96, 112, 320]
    assert found[0][2].startswith("00 00 00 00 01")
    assert {here for _, here, _ in found} == {"00" + " 00" * 15}
    assert len(hex_lines(bytes(512), b"\1" * 512)) == 4
    assert hex_lines(one, one) == []
