"""Which names an expression selects: `-k 'rename and not sync'`, as pytest users know it.

A word selects the names that contain it; `and`, `or`, `not` and parentheses combine words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.errors import UsageError

Selects = Callable[[str], bool]
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")


def matcher(expression: str) -> Selects:
    """The names that `expression` selects. Raises UsageError for one that is malformed."""
    parser = _Parser(expression)
    selects = parser.either()
    if parser.left:
        raise parser.malformed(f"{parser.left[0]!r} is one too many")
    return selects


class _Parser:
    """Recursive descent: either = both {"or" both}; both = term {"and" term}; term = ["not"] word."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self.left = _TOKEN.findall(expression)

    def malformed(self, why: str) -> UsageError:
        return UsageError(
            f"expression {self._expression!r}: {why}",
            "words, and, or, not and parentheses: rename and not (sync or stale)",
        )

    def _takes(self, word: str) -> bool:
        if self.left[:1] != [word]:
            return False
        del self.left[0]
        return True

    def either(self) -> Selects:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return lambda name: any(part(name) for part in parts)

    def _both(self) -> Selects:
        parts = [self._term()]
        while self._takes("and"):
            parts.append(self._term())
        return lambda name: all(part(name) for part in parts)

    def _term(self) -> Selects:
        if self._takes("not"):
            inner = self._term()
            return lambda name: not inner(name)
        if self._takes("("):
            inside = self.either()
            if not self._takes(")"):
                raise self.malformed("a parenthesis is not closed")
            return inside
        if not self.left or self.left[0] in ("and", "or", ")"):
            raise self.malformed("a word is missing")
        word = self.left.pop(0)
        return lambda name: word in name
