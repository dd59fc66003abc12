"""Foreign text on a terminal or in a text file: what a guest, or somebody else's run directory, says must not
steer the terminal, and must not look like a line of ours.
"""

from __future__ import annotations

_STEERING = frozenset("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Line separators, and controls of the writing direction: they show a text in another order than it has."""


def printable(text: str) -> str:
    """`text` without what XML 1.0 and terminals cannot bear: a control character becomes `\\x1b`. Newlines
    and tabs stay.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def one_line(text: str) -> str:
    """The same where a line is expected: a newline becomes `\\n`."""
    return printable(text).replace("\n", "\\n")


def indented(text: str, by: str = "    ") -> str:
    """The same where several lines may be: those after the first are indented, so that none of them reads as
    a line of ours.
    """
    return printable(text).replace("\n", f"\n{by}")


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
