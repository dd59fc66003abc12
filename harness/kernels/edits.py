"""Edits of C source that find their place by a function and a few words.

A fault of `kernels/faults` has to fit every kernel of a series, so it names no line: an edit is a pattern
that occurs exactly once in one function, or in the whole file. White space and comments do not count.
Pure: text in, text out.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import msgspec

from harness.errors import UsageError

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')
_HIDDEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_ANNOTATIONS = re.compile(r"(?:\s*__\w+(?:\s*\((?:[^()]|\([^()]*\))*\))?)*\s*\{")
_PAIRS = {"(": ")", "{": "}"}


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace the only place in `function` of `file` that reads like `pattern`; in the pattern, white space
    only separates words. `function`: empty for the whole file.
    """

    file: str
    function: str
    pattern: str
    replacement: str


def apply_edit(source: str, edit: Edit) -> str:
    """The text of a C file with the edit done. Raises UsageError unless the file defines the function once
    and the pattern occurs once in it.
    """
    start, end = _function(source, edit)
    found = list(_pattern(edit).finditer(without_comments(source), start, end))
    if len(found) != 1:
        raise _misplaced(
            edit,
            f"{edit.function or 'it'} has {len(found)} places that read {edit.pattern.strip()!r}, not one",
        )
    at, to = found[0].span()
    return source[:at] + edit.replacement.strip() + source[to:]


def _misplaced(edit: Edit, what: str) -> UsageError:
    return UsageError(f"{edit.file}: {what}", "this source differs from the one the edit was written for")


def _pattern(edit: Edit) -> re.Pattern[str]:
    """The pattern's tokens, with any white space between them, and some between two words."""
    tokens = _TOKEN.findall(edit.pattern)
    if not tokens:
        raise _misplaced(edit, "an empty pattern finds no place")
    parts = [r"\b" if _is_word(tokens[0]) else ""]
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        both_words = _is_word(token) and bool(following) and _is_word(following)
        parts += [re.escape(token), r"\s+" if both_words else r"\s*" if following else ""]
    parts.append(r"\b" if _is_word(tokens[-1]) else "")
    return re.compile("".join(parts))


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def lines_of(text: str) -> list[str]:
    """Its lines as git and compilers count them, with their ends: a form feed ends one for Python alone."""
    return io.StringIO(text).readlines()


def without_comments(source: str) -> str:
    """The same text with comments as spaces, so that places in it are places in `source`."""
    return _HIDDEN.sub(lambda m: _blank(m[0]) if m[0][0] == "/" else m[0], source)


def without_comments_and_strings(source: str) -> str:
    """Braces and parentheses of what is left are those of the program."""
    return _HIDDEN.sub(lambda m: _blank(m[0]), source)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _function(source: str, edit: Edit) -> tuple[int, int]:
    """Where the definition of the edit's function begins and ends; the whole file without a function."""
    if not edit.function:
        return 0, len(source)
    found = list(_definitions(without_comments_and_strings(source), edit.function))
    if len(found) != 1:
        raise _misplaced(edit, f"it defines {edit.function} {len(found)} times, not once")
    return found[0]


def _definitions(code: str, name: str) -> Iterator[tuple[int, int]]:
    """From the name to the closing brace. The name at the depth of the file, its parameters, then a body;
    between them may be words like `__must_hold(lock_of(queue))`.
    """
    for m in re.finditer(rf"\b{re.escape(name)}\s*\(", code):
        after = _closed(code, m.end() - 1)
        between = _ANNOTATIONS.match(code, after)
        if between and (end := _closed(code, between.end() - 1)) > between.end():
            yield m.start(), end


def _closed(code: str, at: int) -> int:
    """The place behind the bracket that closes the one at `at`; the end if none does."""
    opening, closing = code[at], _PAIRS[code[at]]
    depth = 0
    for m in re.compile(rf"[{re.escape(opening + closing)}]").finditer(code, at):
        depth += 1 if m[0] == opening else -1
        if depth == 0:
            return m.end()
    return len(code)
