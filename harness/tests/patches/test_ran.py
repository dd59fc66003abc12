"""Which changed lines ran, from what guests noted. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.patches.mistakes import Hunk
from harness.patches.ran import (
    ChangedLines,
    RunLine,
    changed_lines,
    not_run,
    run_lines,
    united,
    with_marks,
)

FILE, OTHER = "fs/a.c", "fs/b.c"
SOURCE = "int f(int n)\n{\n\tif (n)\n\t\tn = 1;\n\t/* none */\n\tn = 2;\n\treturn n;\n}\n"


def line(number: int, *, recording: bool = False, recovering: bool = False, of: str = "f") -> RunLine:
    return RunLine(FILE, of, number, recording, recovering)


def test_marks_of_all_files_have_numbers_of_their_own() -> None:
    sources = {FILE: SOURCE, OTHER: SOURCE, "fs/c.c": "int only_data;\n"}
    changed = [
        ChangedLines(FILE, ((3, 2),)),
        ChangedLines(OTHER, ((6, 2),)),
        ChangedLines("fs/c.c", ((1, 1),)),
    ]
    texts, marks = with_marks(sources, changed)
    assert [(m.file, m.line, m.number) for m in marks] == [
        (FILE, 3, 0),
        (FILE, 4, 1),
        (OTHER, 6, 2),
        (OTHER, 7, 3),
    ]
    assert set(texts) == {FILE, OTHER}
    found = run_lines(marks, b"\1\0\0\1", b"\0\0\1\1")
    assert [(x.line, x.recording, x.recovering) for x in found] == [
        (3, True, False), (4, False, False), (6, False, True), (7, True, True),
    ]  # fmt: skip


def test_the_neighbours_of_what_is_only_removed_stand_for_it() -> None:
    """Of a patch that only removed lines, the page said no word on lines."""
    behind_a_comment = Hunk(6, 0, ("\tflush();\n",))
    assert changed_lines(FILE, SOURCE, [behind_a_comment]) == ChangedLines(FILE, ((4, 1), (6, 1)))
    assert changed_lines(FILE, SOURCE, [Hunk(4, 1, ()), behind_a_comment]).numbers == [4, 6]
    assert changed_lines(FILE, SOURCE, [Hunk(1, 0, ("\ta;\n",)), Hunk(9, 0, ("\tb;\n",))]).numbers == [1, 7]


@pytest.mark.parametrize(
    ("removed", "has"),
    [
        ("\n", False),
        ("\t/* a comment\n\t * that is gone\n\t */\n", False),
        ("\t * of one that stays\n", False),
        ("\t * its end */\n\n\t/* and a beginning\n", False),
        ("static int gone(void)\n{\n\treturn 1;\n}\n\n", False),
        ("\treturn 1;\n}\n\nstatic int gone(void)\n{\n", False),
        ("#endif\n", False),
        ("out:\n\tkfree(p);\n", True),
        ("#ifdef DEBUG\n\t*p = 1; /* why */\n#endif\n", True),
    ],
)
def test_neighbours_stand_only_for_statements_that_are_removed(removed: str, *, has: bool) -> None:
    """Of a comment that was gone, the function around it was said not to run."""
    gone = Hunk(6, 0, tuple(removed.splitlines(keepends=True)))
    assert changed_lines(FILE, SOURCE, [gone]).numbers == ([4, 6] if has else [])


def test_neighbours_are_one_piece_across_lines_that_cannot_run() -> None:
    lines = [line(4), line(6), line(7, recording=True), line(8), line(20)]
    changed = [ChangedLines(FILE, ((3, 6), (20, 2)))]
    assert list(map(str, not_run(lines, changed))) == [
        "fs/a.c:4-6 in f()", "fs/a.c:8 in f()", "fs/a.c:20 in f()",
    ]  # fmt: skip


def test_pieces_end_with_their_function_and_where_lines_are_unchanged() -> None:
    lines = [line(4), line(5, of="g"), line(7, of="g")]
    changed = [ChangedLines(FILE, ((4, 2), (7, 1)))]
    assert list(map(str, not_run(lines, changed))) == [
        "fs/a.c:4 in f()", "fs/a.c:5 in g()", "fs/a.c:7 in g()",
    ]  # fmt: skip


@given(st.dictionaries(st.integers(1, 30), st.tuples(st.booleans(), st.booleans())))
def test_every_line_that_did_not_run_is_in_one_piece_and_no_other(
    noted: dict[int, tuple[bool, bool]],
) -> None:
    lines = [RunLine(FILE, "f", n, *how) for n, how in sorted(noted.items())]
    pieces = list(not_run(lines, [ChangedLines(FILE, ((1, 30),))]))
    inside = [n for p in pieces for n in range(p.first, p.last + 1) if n in noted]
    assert sorted(inside) == [n for n, how in sorted(noted.items()) if not any(how)]


@given(st.lists(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.booleans()))))
def test_a_line_ran_if_it_did_in_any_run(runs: list[list[tuple[int, bool, bool]]]) -> None:
    found = united([RunLine(FILE, "f", *each) for each in run] for run in runs)
    flat = [each for run in runs for each in run]
    for got in found:
        assert got.recording is any(a for n, a, _ in flat if n == got.line)
        assert got.recovering is any(b for n, _, b in flat if n == got.line)
    assert {got.line for got in found} == {n for n, _, _ in flat}
