"""Mistakes to plant in a patch: which there are, and what each does to the text."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.kernels.edits import without_comments
from harness.patches import mistakes as mistakes_module
from harness.patches.mistakes import Hunk, Mistake, hunks, in_turn, mistakes
from harness.patches.ran import changed_lines

SOURCE = """static int sync(struct inode *inode)
{
	int ret = 0;

	/* the barrier: flush(inode); */
	if (test(inode) && (inode->dirty))
		ret = wait_for(inode,
				7);
	submit(bh, REQ_SYNC | REQ_FUA);
	trace_sync(inode);
	if (ret)
		return ret;
	inode->state &= ~DIRTY;
	return flush(inode);
}
"""


def whole(source: str) -> list[Hunk]:
    """All lines of a file as changed."""
    return [Hunk(1, source.count("\n"), ())]


def planted(what: str) -> str:
    """How the source reads with one mistake, the rest of it left away."""
    (found,) = [m for m in mistakes("a.c", SOURCE, whole(SOURCE)) if m.what == what]
    changed = difflib.unified_diff(SOURCE.splitlines(), found.planted(SOURCE).splitlines(), n=0)
    return "\n".join(line[1:].strip() for line in changed if line[0] == "+" and line[:3] != "+++")


@pytest.mark.parametrize(
    ("what", "reads"),
    [
        ("`if (test(inode) && (inode->dirty))` turned round", "if (!(test(inode) && (inode->dirty)))"),
        ("`if (ret)` turned round", "if (!(ret))"),
        ("`ret = wait_for(inode, 7)` left out", ";"),
        ("`submit(bh, REQ_SYNC | REQ_FUA)` left out", ";"),
        ("`REQ_FUA` left out of `submit(bh, REQ_SYNC | REQ_FUA);`", "submit(bh, REQ_SYNC);"),
        ("`inode->state &= ~DIRTY` left out", ";"),
    ],
)
def test_each_kind_of_mistake(what: str, reads: str) -> None:
    assert planted(what) == reads


@pytest.mark.parametrize("odd", ["\f", "\v", "\x85", "\u2028"])
def test_lines_are_those_of_the_compiler(odd: str) -> None:
    """A form feed above, as between the parts of drivers/scsi/st.c, moved every mistake by a line."""
    source = f"int first;\n{odd}\nint sync(void)\n{{\n\tflush();\n\treturn 0;\n}}\n"
    diff = f"@@ -5 +5 @@ int sync(void)\n-\told{odd}();\n+\tflush();\n"
    (hunk,) = hunks(diff)
    left_out, before = mistakes("a.c", source, [hunk])
    assert left_out.what == "`flush()` left out"
    assert left_out.planted(source) == source.replace("flush()", "")
    assert before.planted(source) == source.replace("flush", f"old{odd}")
    assert changed_lines("a.c", source, [Hunk(5, 0, ("\tgone();\n",))]).numbers == [3, 5]


def test_what_is_no_statement_of_its_own_is_not_left_out() -> None:
    """A declaration, a return, a comment, a trace point: without it no kernel is built, or the same one."""
    left_out = {m.what for m in mistakes("a.c", SOURCE, whole(SOURCE)) if m.what.endswith("left out")}
    assert not [w for w in left_out if "int ret" in w or "return" in w or "trace" in w or "barrier" in w]


def test_those_that_order_writes_come_first() -> None:
    found = [m.what for m in mistakes("a.c", SOURCE, whole(SOURCE)) if "as before" not in m.what]
    assert ["submit" in what or "wait" in what for what in found] == [True, True, True, False, False, False]


def test_lines_that_the_patch_did_not_change_have_none() -> None:
    assert {m.first for m in mistakes("a.c", SOURCE, [Hunk(9, 1, ())])} == {9}


def test_a_hunk_as_it_was_before_the_patch() -> None:
    """Also one that only takes lines away: there is no line in the new file that could be left out."""
    before = SOURCE.replace("\tsubmit(bh, REQ_SYNC | REQ_FUA);\n", "\tsubmit(bh, REQ_SYNC);\n\tflush(bh);\n")
    before = before.replace("\ttrace_sync(inode);\n", "")
    for old, new in ((before, SOURCE), (SOURCE, before)):
        found = [m for m in mistakes("a.c", new, hunks(diff_of(old, new))) if "as before" in m.what]
        text = new
        for mistake in sorted(found, key=lambda m: -m.first):
            text = mistake.planted(text)
        assert text == old


def test_a_comment_alone_has_no_mistakes() -> None:
    new = SOURCE.replace("the barrier", "the other barrier")
    assert mistakes("a.c", new, hunks(diff_of(SOURCE, new))) == []


@pytest.mark.parametrize(
    ("first", "last", "text", "other"),
    [
        (3, 3, "  int ret = 0; // none\n", False),
        (3, 3, "\tint ret = 1;\n", True),
        (5, 5, "\t/* no barrier */\n", False),
        (5, 5, "\t/* the barrier\n", True),  # the lines below are comment, up to the end of one
        (17, 17, " * other words\n", False),
        (17, 17, " */ other(words);\n", True),
        (16, 16, "", True),  # the lines of the comment are code
        (16, 15, "/*\n", False),
        (19, 19, "", True),
    ],
)
def test_a_mistake_that_a_compiler_does_not_see_is_none(
    first: int, last: int, text: str, *, other: bool
) -> None:
    """A part of a file says the same as the whole of it, also where a comment goes on."""
    source = f"{SOURCE}/* A comment\n * of lines.\n * two(lines);\n */\nint last;\n"
    mistake = Mistake("a.c", first, last, text, "")
    whole = [without_comments(t).split() for t in (source, mistake.planted(source))]
    assert (whole[0] != whole[1]) is other
    assert mistakes_module._Text(source).changes(mistake) is other


def test_a_long_file_is_not_read_again_for_each_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """405 mistakes in a file of 6,400 lines took seven seconds, before any kernel was built."""
    read = 0

    def counting(source: str) -> str:
        nonlocal read
        read += len(source)
        return without_comments(source)

    monkeypatch.setattr(mistakes_module, "without_comments", counting)
    source = SOURCE * 50
    assert len(mistakes("a.c", source, (Hunk(n, 1, ()) for n in range(1, source.count("\n"))))) > 300
    assert read < 10 * len(source)


def test_files_take_turns() -> None:
    """All minutes went to the first file."""
    a, b = (
        [Mistake(name, n, n, "", "") for n in range(1, count + 1)] for name, count in (("a.c", 3), ("b.c", 1))
    )
    assert [m.place for m in in_turn({"a.c": a, "b.c": b})] == ["a.c:1", "b.c:1", "a.c:2", "a.c:3"]


@given(st.lists(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef")))
def test_all_hunks_taken_back_give_the_file_before(old: list[str], new: list[str]) -> None:
    """For any two files: hunks name the right lines."""
    before, after = ("".join(f"{line};\n" for line in lines) for lines in (old, new))
    text = after
    for hunk in reversed(list(hunks(diff_of(before, after)))):
        text = Mistake("a.c", hunk.first, hunk.first + hunk.count - 1, "".join(hunk.before), "").planted(text)
    assert text == before


def diff_of(old: str, new: str) -> str:
    """As `git diff -U0` has it."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), "a/a.c", "b/a.c", n=0
    )
    return "".join(lines)
