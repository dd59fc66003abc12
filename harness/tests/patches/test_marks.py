"""Marks in C code, held against gcov: a program with a mark on every line has to note exactly those lines
that the compiler counts in the unmarked one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from harness.patches.marks import DECLARED, marked

SOURCE = """\
/* A file
 * of the kernel. */
#define each(i, n) for (i = 0; i < (n); i++)
#define ASSERT(x) \\
    do { } while (0)
struct pair {
    int a, b;
};
static int table[8] = {
    1, 2,
};
static int chosen(int n)
{
    int kept = 0;
    struct pair two = { .a = n,
                        .b = 2 };

    if (n > 2)
        kept = 1;
    switch (n) {
    case 1:
        kept += 3;
        break;
    case 2:
        kept += two.a ? 5 :
            6;
        break;
    case 7: kept += 7; break;
    default:
        kept += 9;
    }
    return kept;
}
static inline int twice(int n) { return n * 2; }
static int failed(int n)
{
    if (n == 5)
        return -1;
    if (n == 6 &&
        table[0])
        return -1;
    if (n == 4
        || n == 3
        || n == 2)
        table[7] = n;
    return 0;
}
int recover(int n)
{
    int i, sum = 0;
    ASSERT(n);
    for (i = 0; i < n && i < 8; i++) {
        table[i] = twice(i);
        if (table[i] > 6)
            sum += table[i];
        else if (i == 2)
            sum -= i;
        else {
            sum -= 2 * i;
        }
    }
    each(i, n)
        if (i == 3)
            sum++;
    each(i, 2) {
        sum += i;
    }
    if (failed(n) < 0) {
        sum = 0;
        goto out;
    }
    sum += chosen(
        n);
    do
        sum -= 10; // { not a block
    while (sum > 10);
    if (n > 8) {
        return sum;
    }
out:
    return sum;
}
"""
MAIN = """\
#include <stdio.h>
extern int recover(int);
void powercut_ran(unsigned int n);
void powercut_ran(unsigned int n) { fprintf(stderr, "%u\\n", n); }
int main(int argc, char **argv) { return recover(argc) & 127; }
"""
EVERY = range(1, SOURCE.count("\n") + 1)


def built(folder: Path, source: str, *flags: str) -> Path:
    (folder / "recovery.c").write_text(source)
    (folder / "main.c").write_text(MAIN)
    gcc = ["gcc", *flags, "-o", "program", "recovery.c", "main.c"]
    subprocess.run(gcc, check=True, cwd=folder)
    return folder / "program"


def started(program: Path, arguments: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *["x"] * (arguments - 1)], capture_output=True, text=True, check=False, cwd=program.parent
    )


def counted(folder: Path, arguments: int) -> dict[int, bool]:
    """By line, whether it ran, as gcov counts."""
    started(built(folder, SOURCE, "-O0", "--coverage"), arguments)
    gcov = ["gcov", "--json-format", "--stdout", "program-recovery.gcda"]
    said = subprocess.run(gcov, capture_output=True, check=True, cwd=folder).stdout
    (file,) = (f for f in json.loads(said)["files"] if f["file"] == "recovery.c")
    return {line["line_number"]: line["count"] > 0 for line in file["lines"]}


@pytest.mark.parametrize("arguments", [1, 2, 3, 5, 6, 7, 9])
def test_marked_lines_that_ran_are_those_that_gcov_counts(tmp_path: Path, arguments: int) -> None:
    """Line numbers of optimised code said of lines that ran that they had not, and the reverse."""
    result = marked(SOURCE, EVERY, 0)
    marks = result.marks
    for name in ("ours", "theirs", "plain"):
        (tmp_path / name).mkdir()
    ours = started(built(tmp_path / "ours", result.text, "-O2"), arguments)
    noted = set(map(int, ours.stderr.split()))
    theirs = counted(tmp_path / "theirs", arguments)
    both = marks.keys() & theirs.keys()
    assert len(both) > 35
    assert {n: marks[n][0] in noted for n in both} == {n: theirs[n] for n in both}
    plain = started(built(tmp_path / "plain", SOURCE, "-O2"), arguments)
    assert ours.returncode == plain.returncode, "a mark changes nothing"


def test_lines_stay_where_they_are_and_name_their_function() -> None:
    result = marked(SOURCE, EVERY, 0)
    assert result.text.removeprefix(DECLARED).count("\n") == SOURCE.count("\n")
    of = {n: function for n, (_, function) in result.marks.items()}
    assert (of[19], of[34], of[73]) == ("chosen", "twice", "recover")


def test_a_file_that_begins_with_a_directive_can_be_built_and_keeps_its_lines(tmp_path: Path) -> None:
    """The declaration and `#include` stood on one line, which no compiler takes."""
    source = "#include <stdlib.h>\nint recover(int n)\n{\n\treturn abs(n) - n + __LINE__;\n}\n"
    done = started(built(tmp_path, marked(source, [4], 0).text), 1)
    assert (done.returncode, done.stderr) == (4, "0\n")


@pytest.mark.parametrize(
    "declared",
    [
        "int (*fn)(int) = g",
        "void*(*fn)(void)=g",
        "u32 (*fn)(u32)",
        "int (*all[])(int) = {g}",
        "int (*row)[2] = t",
    ],
)
def test_a_pointer_to_a_function_is_declared_where_it_is_used(declared: str) -> None:
    """It was wrapped in a block of its own, and nothing below it knew its name."""
    text = f"int f(int n)\n{{\n\t{declared};\n\tg(*fn);\n\treturn (*fn)(n);\n}}\n"
    result = marked(text, [3, 4, 5], 0)
    assert f"\n\t{declared};\n" in result.text
    assert "{ powercut_ran(0); g(*fn); }" in result.text
    assert "{ powercut_ran(1); return (*fn)(n); }" in result.text


def test_lines_of_one_statement_share_its_mark_and_numbers_begin_where_asked() -> None:
    result = marked(SOURCE, [25, 26, 28], 7)
    assert {n: mark for n, (mark, _) in result.marks.items()} == {25: 7, 26: 7, 28: 8}


@pytest.mark.parametrize(
    "text",
    [
        "/* A file",
        "#define each",
        "    do { }",
        "    int a, b;",
        "    1, 2,",
        "{",
        "    default:",
        "    each(i, 2)",
        "out:",
    ],
)
def test_a_line_without_a_statement_gets_no_mark(text: str) -> None:
    """Comments, macros, data, labels, braces, and loops that only a macro knows."""
    line = next(n for n, line in enumerate(SOURCE.splitlines(), 1) if line.startswith(text))
    result = marked(SOURCE, [line], 0)
    assert result.marks == {}
    assert result.text == SOURCE


def test_a_declaration_ran_if_what_follows_it_did() -> None:
    result = marked(SOURCE, [14, 15, 16, 18], 0)
    assert set(result.marks.values()) == {(0, "chosen")}


def test_a_declaration_before_a_loop_does_not_run_with_the_body_of_the_loop() -> None:
    """Of a loop that only a macro knows, which may run its body never."""
    text = "void f(int n)\n{\n\tint i = n;\n\teach(i, n)\n\t\tg(i);\n}\n"
    assert marked(text, [3, 4], 0).marks == {}


@pytest.mark.parametrize(
    ("text", "marked_text"),
    [
        ("void f(void)\n{\n\tLIST_HEAD(all);\n\n\tg(&all);\n}\n", "{ powercut_ran(0); g(&all); }"),
        ("void f(void)\n{\n\tguard(mutex)(&lock);\n\tg();\n}\n", "{ powercut_ran(0); g(); }"),
        ("int f(int n)\n{\n\tfor (int i = 0; i < n; i++)\n\t\tg();\n}\n", "0;powercut_ran(0),  i < n;"),
        ("int f(int n)\n{\n\tif (n)\n\t\tg();\n}\n", "if (powercut_ran(0), n)"),
    ],
)
def test_where_marks_go(text: str, marked_text: str) -> None:
    result = marked(text, [3], 0)
    assert marked_text in result.text
    assert result.text.startswith(DECLARED)


@pytest.mark.parametrize("text", ["}\n", "int f(int n)\n{\n", "int f(int n)\n{\n}\n}\n{{\nif (\n", "\n\n"])
def test_code_that_cannot_be_told_gets_no_mark(text: str) -> None:
    assert marked(text, range(1, text.count("\n") + 1), 0).text == text


def test_a_file_of_many_statements_is_not_gone_through_for_each_of_its_lines() -> None:
    """A wholly changed file of 10,341 lines took 14 s. Time is the host's: steps of the code are counted."""

    def steps(lines: int) -> int:
        body, count = "\tg();\n" * lines, 0

        def note(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            frame.f_trace_opcodes = True
            count += event == "opcode"
            return note

        before = sys.gettrace()
        sys.settrace(note)
        try:
            marked(f"void f(void)\n{{\n{body}}}\n", range(1, lines + 3), 0)
        finally:
            sys.settrace(before)
        return count

    assert steps(400) < 5 * steps(100)
