"""Foreign text, and lists that are cut short."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from harness.host.console import SafeConsole
from harness.host.text import ended_with, first_few, indented, last_lines


@pytest.mark.parametrize(
    ("count", "shown", "left_out"), [(0, 0, 0), (3, 3, 0), (4, 4, 0), (5, 3, 2), (9, 3, 6)]
)
def test_one_that_is_left_is_shown(count: int, shown: int, left_out: int) -> None:
    """The words "and 1 more" took the line of what they hid."""
    few, left = first_few(range(count), 3)
    assert (len(few), left) == (shown, left_out)


def test_a_foreign_newline_begins_no_line_of_a_console() -> None:
    """Only `say` escaped newlines: what `print` was given as a Text, such as a headline, passed them on."""
    out = io.StringIO()
    console = SafeConsole(file=out, width=100)
    for foreign in ("a\nPASS", "a\r\nPASS", "a\x1b[31m\n  next: rm"):
        console.print(foreign, highlight=False)
        console.print(Text(foreign))
        console.print(Text(indented(foreign)))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3 * 4
    assert {line[:1] for line in lines} == {"a", " "}
    assert "\x1b" not in out.getvalue()


def test_the_end_of_an_output_is_of_whole_lines() -> None:
    """Of a traceback, 200 letters began in the middle of a word."""
    assert last_lines("one\ntwo\nthree\n", 9) == "two\nthree"
    assert last_lines("a long line", 6) == "a long"
    assert last_lines(" \n") == ""


@given(st.text(st.sampled_from("ab\n \r\x0b"), max_size=30), st.integers(0, 12))
def test_the_end_of_an_output_is_the_longest_that_fits(output: str, limit: int) -> None:
    """It was found by joining all that was left for each line: of a long output, that took minutes."""
    lines = output.strip().splitlines()
    while len(lines) > 1 and len("\n".join(lines)) > limit:
        del lines[0]
    assert last_lines(output, limit) == "\n".join(lines)[:limit]


def test_of_a_long_output_only_the_end_is_looked_at() -> None:
    """Each line in turn was joined to all others: of a long output, that took minutes."""
    calls = list[str]()
    output = "a line\n" * 1000
    sys.setprofile(lambda frame, event, what: calls.append(event))
    try:
        end = last_lines(output, 20)
    finally:
        sys.setprofile(None)
    assert end == "a line\na line\na line"
    assert len(calls) < 100


def test_the_end_of_a_traceback_is_what_was_raised() -> None:
    """The reason of an undecided case was a line of code, with the marks below it."""
    frames = '  File "check", line 1, in <module>\n    open("g").read()\n    ^^^^^^^^^\n'
    raised = "FileNotFoundError: [Errno 2] No such file or directory: 'g'"
    assert last_lines(f"Traceback (most recent call last):\n{frames}{raised}\n") == raised
    assert last_lines("Traceback (most recent call last):\n") == "Traceback (most recent call last):"


def test_an_exit_code_of_a_shell_names_its_signal() -> None:
    """`ended with 139` sent its reader to the list of errno."""
    assert ended_with(139) == "ended with 139 (SIGSEGV)"
    assert ended_with(2) == "ended with 2"
