"""Edits find their place in C source by a function and a few words, or say why not."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.kernels.edits import Edit, apply_edit

SOURCE = """
/* submit(int) is called by everybody: if (flags & BARRIER) flush(); */
static int submit(int flags);

static int other(int flags)
{
	if (flags & BARRIER)
		flush();
	return submit(flags);
}

static int
submit(
	int		flags)
	__releases(lock)
{
	const char *brace = "}";	/* a } in a string, and one here */
	char c = '{';

	/* Only a barrier
	needs a flush. */
	if (flags & BARRIER)	/* why */
		flush();

	write(brace, c);
	write(brace, c + 1);
	return 0;
}
"""


def edit(pattern: str, replacement: str = "CHANGED;", function: str = "submit") -> Edit:
    return Edit("fs/x.c", function, pattern, replacement)


def test_an_edit_changes_one_place_in_its_function_and_nothing_else() -> None:
    """White space and comments between the words differ; the same words stand in another function."""
    changed = apply_edit(SOURCE, edit("if (flags & BARRIER) flush();", ";"))
    whole = "\tif (flags & BARRIER)\t/* why */\n\t\tflush();\n\n\twrite"
    assert changed == SOURCE.replace(whole, "\t;\n\n\twrite")


def test_a_function_of_several_lines_ends_at_its_own_brace() -> None:
    assert "return CHANGED;" in apply_edit(SOURCE, edit("0;"))


def test_an_annotation_of_a_function_may_hold_a_call() -> None:
    """The scheduler of 7.3 says so of nearly each function, and none of these was found."""
    source = "int pick(int rq)\n\t__must_hold(lock_of(rq))\n{\n\treturn 1;\n}\n"
    assert apply_edit(source, edit("1", "2", "pick")) == source.replace("1", "2")


def test_a_call_and_a_declaration_are_no_definition() -> None:
    assert apply_edit(SOURCE, edit("return submit(flags);", function="other")).count("CHANGED;") == 1


def test_words_are_whole_words() -> None:
    with pytest.raises(UsageError, match="0 places"):
        apply_edit(SOURCE, edit("rite(brace"))
    with pytest.raises(UsageError, match="0 places"):
        apply_edit(SOURCE, edit("write(brac"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (edit("write(brace, c"), r"submit has 2 places that read 'write\(brace, c', not one"),
        (edit("nothing like this"), "submit has 0 places"),
        (edit("needs a flush"), "submit has 0 places"),  # only in a comment
        (edit(" "), "an empty pattern"),
        (edit("x", function="nowhere"), "it defines nowhere 0 times, not once"),
    ],
)
def test_a_place_that_is_not_there_once_is_refused(wrong: Edit, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        apply_edit(SOURCE, wrong)
    assert caught.value.what.startswith("fs/x.c: ")


def test_a_function_that_is_defined_twice_is_refused() -> None:
    twice = "#ifdef A\nint f(void) { return 1; }\n#else\nint f(void) { return 2; }\n#endif\n"
    with pytest.raises(UsageError, match="it defines f 2 times"):
        apply_edit(twice, edit("return 1", function="f"))


def test_without_a_function_the_whole_file_is_searched() -> None:
    """The releases that a file of ours is compiled for stand before its first function."""
    source = "#if RELEASE < 13\nint f(void) { return RELEASE; }\n#endif\n"
    changed = apply_edit(source, Edit("x.c", "", "RELEASE < 13", "RELEASE < 14"))
    assert changed == source.replace("13", "14")
    with pytest.raises(UsageError, match=r"x\.c: it has 2 places that read 'RELEASE', not one"):
        apply_edit(source, Edit("x.c", "", "RELEASE", "14"))


def test_strings_are_searched_too() -> None:
    assert '"CHANGED"' in apply_edit(SOURCE, edit('"}"', '"CHANGED"'))


def test_two_edits_of_one_file_follow_each_other() -> None:
    once = apply_edit(SOURCE, edit("write(brace, c);", "first();"))
    assert "first();\n\tsecond();" in apply_edit(once, edit("write(brace, c + 1);", "second();"))
