"""Marks in C code: calls that note that a statement of a changed line ran. Pure: text in, text out.

A mark is a call of `powercut_ran` with a number of its own, before a statement or in front of a condition, on
the same line. A call with an effect stays where the language puts it, whatever the compiler does. The scanner
knows blocks, statements and the heads of `if`, `while`, `switch`, `for` and what looks like them, and no
types: code that it cannot tell gets no mark, and nothing is said of its lines.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from harness.kernels.edits import without_comments_and_strings

DECLARED = "void powercut_ran(unsigned int);\n#line 1\n"
"""On lines of its own, which the compiler does not count: the first line of a file may be a directive."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_HEAD = re.compile(r"([A-Za-z_]\w*)\s*\(")
_LABEL = re.compile(r"[A-Za-z_]\w*\s*:(?!:)")
_CASE = re.compile(r"(?:case\b[^:]*|default\s*):")
_RUNS = re.compile(
    r"(?:return|goto|break|continue)\b"
    r"|(?!\w+\s*\**\s*\(\s*\*[^()]*\)\s*[(\[])(?:"  # int (*fn)(void) = g declares
    r"(?!(?:[A-Z_0-9]+|typeof|guard|static_assert|asm)\s*\()[A-Za-z_]\w*\s*\("  # LIST_HEAD(list) declares
    r"|[\w.\->\[\]*()]+\s*(?:[|&+\-^*/%]|<<|>>)?=[^=]"
    r"|(?:\+\+|--)|[\w.\->\[\]()]+\s*(?:\+\+|--)\s*;)"
)
"""What a statement begins with that is no declaration."""
_NAME = re.compile(r"\b(?!__)([A-Za-z_]\w*)\s*\(")


class Kind(enum.Enum):
    """What a mark becomes: a block with its statement, an expression before a condition, an operand."""

    WHOLE = enum.auto()
    HEAD = enum.auto()
    AND = enum.auto()
    OR = enum.auto()


_OPERATORS = {"&&": Kind.AND, "||": Kind.OR}


@dataclass(frozen=True, slots=True)
class Statement:
    """A piece of code in a function's block. `at`: where its mark goes; -1: it takes none. `block`: a number
    that a declaration shares with what follows it.
    """

    begin: int
    end: int
    function: str
    block: int
    at: int = -1
    kind: Kind = Kind.HEAD


@dataclass(slots=True)
class Marked:
    """A text with marks. `marks`: by changed line, the number of its mark and its function; a changed line
    that is not in it has no code, or code that the scanner cannot tell.
    """

    text: str
    marks: dict[int, tuple[int, str]] = field(default_factory=dict)


def marked(source: str, changed: Collection[int], first: int) -> Marked:
    """The source with marks for these lines, numbered from `first` on."""
    code = _without_directives(without_comments_and_strings(source))
    begins = [0, *(m.end() for m in re.finditer("\n", source)), len(source)]
    statements = list(_statements(code))
    starts = [statement.begin for statement in statements]
    found = Marked(source)
    numbers: dict[int, int] = {}
    inserted: list[tuple[int, str]] = []
    for line in sorted(changed):
        of_line = _of(statements, starts, code, begins[line - 1], begins[line])
        if of_line is None:
            continue
        if of_line.at not in numbers:
            numbers[of_line.at] = first + len(numbers)
            inserted += _insertions(of_line, numbers[of_line.at])
        found.marks[line] = numbers[of_line.at], of_line.function
    if numbers:
        found.text = DECLARED + _with(source, sorted(inserted))
    return found


def _with(text: str, inserted: Sequence[tuple[int, str]]) -> str:
    """A text with others put into it: of those at one place, the first one stands first."""
    pieces, last = list[str](), 0
    for at, new in inserted:
        pieces += [text[last:at], new]
        last = at
    return "".join([*pieces, text[last:]])


def _insertions(of: Statement, number: int) -> list[tuple[int, str]]:
    if of.kind is Kind.WHOLE:
        return [(of.at, f"{{ powercut_ran({number}); "), (of.end, " }")]
    if of.kind is Kind.HEAD:
        return [(of.at, f"powercut_ran({number}), ")]
    kept = "1) &&" if of.kind is Kind.AND else "0) ||"
    return [(of.at, f"(powercut_ran({number}), {kept} ")]


def _of(
    statements: Sequence[Statement], starts: Sequence[int], code: str, begin: int, end: int
) -> Statement | None:
    """The first statement that begins on a line, or else the one that holds the begin of its text, or the
    operand of && or || that begins there: for a declaration, the statement after it in its block, which runs
    if it does. `starts`: where each statement begins; none is within another one.
    """
    text = code[begin:end]
    if not text.strip():
        return None
    here = begin + len(text) - len(text.lstrip())
    number = bisect_left(starts, begin)
    if number == len(starts) or starts[number] >= end:
        number = bisect_right(starts, here) - 1
        if number < 0 or here >= statements[number].end:
            return None
        if statements[number].at >= 0:
            return _operand(statements[number], code, here)
    after = (statements[n] for n in range(number, len(statements)))
    same = takewhile(lambda s: s.block == statements[number].block, after)
    return next((s for s in same if s.at >= 0), None)


def _operand(of: Statement, code: str, here: int) -> Statement:
    """What begins at a place within a statement, if it only runs where the operand before it lets it."""
    after = code[here : here + 2]
    operator = after if after in _OPERATORS else code[of.begin : here].rstrip()[-2:]
    if operator not in _OPERATORS:
        return of
    place = here + 2 if after in _OPERATORS else here
    after = code[place : of.end]
    place += len(after) - len(after.lstrip(" \t"))
    return Statement(place, of.end, of.function, of.block, place, _OPERATORS[operator])


def _without_directives(code: str) -> str:
    """The same length, with lines of the preprocessor blank."""
    return re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.MULTILINE
    )


def _statements(code: str) -> Iterator[Statement]:
    """Those of every function's body, in order."""
    at = since = 0
    while (brace := code.find("{", at)) >= 0:
        since = max(since, code.rfind(";", since, brace) + 1)
        head = code[since:brace]
        at = _closed(code, brace)
        if head.rstrip().endswith(")") and (name := _NAME.search(head)):
            yield from _in_body(code, brace, at, name[1])
        since = at


def _in_body(code: str, begin: int, end: int, function: str) -> Iterator[Statement]:
    at, blocks, last = begin + 1, [begin], begin
    while at < end - 1:
        char = code[at]
        if char.isspace() or char == ";":
            at += 1
        elif char == "{":
            last = at
            blocks.append(at)
            at += 1
        elif char == "}":
            if len(blocks) == 1:  # branches of the preprocessor that do not match
                return
            blocks.pop()
            last = at
            at += 1
        elif after := _passed_over(code, at):
            at = after
            last = at
        elif head := _head(code, at):
            yield Statement(at, head[0], function, last, head[1])
            at = last = head[0]
        else:
            stop = _end(code, at, end)
            if stop < 0:
                return
            runs = bool(_RUNS.match(code, at))
            yield Statement(at, stop, function, last, at if runs else -1, Kind.WHOLE)
            if runs:
                last = at
            at = stop


def _passed_over(code: str, at: int) -> int:
    """The end of a label, `else` or `do` that begins here; 0: there is none."""
    if m := _CASE.match(code, at) or re.compile(r"(?:else|do)\b").match(code, at):
        return m.end()
    label = _LABEL.match(code, at)
    return label.end() if label else 0


def _head(code: str, at: int) -> tuple[int, int] | None:
    """Of the head of a branch or a loop: its end, and where its mark goes, or -1; None: there is none."""
    opening = _HEAD.match(code, at)
    if not opening:
        return None
    word, end = opening[1], _closed(code, opening.end() - 1)
    if word not in ("if", "while", "switch", "for"):
        body = code[end : end + 200].lstrip()[:1]
        return (end, -1) if body == "{" or _WORD.match(body) else None  # list_for_each(...) and its like
    if word != "for":
        return end, opening.end()
    depth, condition = 0, -1
    for n in range(opening.end(), end - 1):
        depth += (code[n] in "([{") - (code[n] in ")]}")
        if code[n] == ";" and depth == 0:
            condition = n + 1
            break
    empty = condition < 0 or code[condition : end - 1].lstrip().startswith(";")
    return end, -1 if empty else condition


def _end(code: str, at: int, limit: int) -> int:
    """Behind the semicolon of a statement; -1: it has none."""
    depth = 0
    for n in range(at, limit):
        depth += (code[n] in "([{") - (code[n] in ")]}")
        if depth < 0:
            return -1
        if code[n] == ";" and depth == 0:
            return n + 1
    return -1


def _closed(code: str, at: int) -> int:
    """The place behind the bracket that closes the one at `at`; the end if none does."""
    depth = 0
    for m in re.compile(r"[(){}\[\]]").finditer(code, at):
        depth += 1 if m[0] in "([{" else -1
        if depth == 0:
            return m.end()
    return len(code)
