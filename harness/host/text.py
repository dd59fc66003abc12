"""Untrusted text on a terminal or in a text file: text from a guest, or from somebody else's run directory,
must neither control the terminal nor pass for a line of Powercut.
"""

from __future__ import annotations

import difflib
import html
import re
import signal
from collections.abc import Collection, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_LOOSE_NEWLINE = re.compile(r"\n(?! {4})")
_OS_ERROR = re.compile(r" \(os error \d+\)")
_MANY_DIGITS = 40
_STEERING = frozenset("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Line separators, and controls of writing direction, which show text in a different order."""


def printable(text: str) -> str:
    """`text` with characters that XML 1.0 forbids or that control a terminal escaped, as in `\\x1b`. Newlines
    and tabs stay.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def one_line(text: str) -> str:
    """`printable` for a single line: a newline becomes `\\n`."""
    return printable(text).replace("\n", "\\n")


def indented(text: str, by: str = "    ") -> str:
    """`printable` for several lines: those after the first are indented, so that none of them can pass for a
    line of Powercut.
    """
    return printable(text).replace("\n", f"\n{by}")


def without_error_numbers(text: str) -> str:
    """An error of a Rust program in its words alone: without `(os error 2)`."""
    return _OS_ERROR.sub("", text)


def framed(text: str) -> str:
    """`printable`, with every newline escaped that `indented` has not made: a foreign one begins no line."""
    return _LOOSE_NEWLINE.sub(r"\\n", printable(text))


def markdown(text: str) -> str:
    """`one_line` as Markdown of GitHub and GitLab: nothing of it is markup or HTML, but that words between
    backquotes are code.
    """
    parts = one_line(text).split("`")
    if len(parts) % 2 == 0 or not all(parts[1::2]):
        return markdown_plain(text)
    return "".join(f"`{part}`" if n % 2 else markdown_plain(part) for n, part in enumerate(parts))


def markdown_plain(text: str) -> str:
    """`one_line` as Markdown in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(one_line(text), quote=False))


def near_or(name: str, known: Collection[str], else_said: str) -> str:
    """What to do about an unknown name: `did you mean append-fsync?`, or, where nothing is near it or begins
    with it, what else is said. A name that is not near would send the reader the wrong way.
    """
    begun = [k for k in known if name and k.startswith(name)]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.7) or begun[:3]
    return f"did you mean {' or '.join(near)}?" if near else else_said


def last_lines(output: str, limit: int = 200) -> str:
    """The last whole lines of an output, in so many letters at most; of a longer last line, its beginning; of
    a traceback of Python, what is behind its frames.
    """
    lines = output.strip().splitlines()
    if "Traceback (most recent call last):" in lines:
        lines = lines[max(n for n, line in enumerate(lines) if line.startswith(" ") or n == 0) + 1 :] or lines
    first, letters = len(lines) - 1, 0
    for n in range(len(lines) - 1, -1, -1):
        letters += len(lines[n]) + (n < len(lines) - 1)  # with the newline behind it
        if letters > limit:
            break
        first = n
    return "\n".join(lines[first:])[:limit]


def ended_with(code: int) -> str:
    """An exit code in words; a shell gives 128 and the number for a signal (POSIX, 2.8.2)."""
    name = next((s.name for s in signal.Signals if s == code - 128), "")
    return f"ended with {code}{f' ({name})' if name else ''}"


def first_few(items: Sequence[_T], limit: int) -> tuple[Sequence[_T], int]:
    """The first `limit` items, and how many are left out: never one, whose own line says more than that."""
    shown = items if len(items) == limit + 1 else items[:limit]
    return shown, len(items) - len(shown)


def whole_number(digits: str) -> int:
    """The number that somebody wrote; one of more than 40 digits, where int() may refuse, is above any
    limit.
    """
    return int(digits) if len(digits) <= _MANY_DIGITS else 10**_MANY_DIGITS


def named_few(items: Sequence[str], limit: int = 6) -> str:
    """`a, b, 3 more`: the first few names, and how many are left out; `none` for none."""
    shown, left = first_few(items, limit)
    return ", ".join([*shown, *([f"{left} more"] if left else [])]) or "none"


def _shown(c: str) -> str:
    return c if _bearable(c) else ascii(c)[1:-1]


def _bearable(c: str) -> bool:
    if c in "\n\t":
        return True
    code = ord(c)
    return (
        code >= 0x20
        and not 0x7F <= code < 0xA0
        and not 0xD800 <= code < 0xE000
        and code & 0xFFFE != 0xFFFE
        and c not in _STEERING
    )
