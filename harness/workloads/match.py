"""Which names an expression selects: `-k 'rename and not sync'`, as pytest users know it.

A word selects the names that contain it; `and`, `or`, `not` and parentheses combine words.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from harness.errors import UsageError

Selects = Callable[[str], bool]
MAX_DEPTH = 100
"""How deep `not` and parentheses may nest. An expression may come from somebody else's run directory."""
_SHOWN = 200  # characters of an expression in an error
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")


def matcher(expression: str) -> Selects:
    """The names that `expression` selects. Raises UsageError for one that is malformed."""
    parser = _Parser(expression)
    selects = parser.either()
    if parser.left:
        raise parser.malformed(f"{parser.left[0]!r} is one too many")
    return selects


class _Parser:
    """Recursive descent: either = both {"or" both}; both = term {"and" term}; a term is a word, a "not" with
    a term behind it, or an either in parentheses.
    """

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self.left = deque(_TOKEN.findall(expression))
        self._depth = 0

    def malformed(self, why: str) -> UsageError:
        shown = self._expression if len(self._expression) <= _SHOWN else f"{self._expression[:_SHOWN]}..."
        return UsageError(
            f"expression {shown!r}: {why}",
            "words, and, or, not and parentheses: rename and not (sync or stale)",
        )

    def _takes(self, word: str) -> bool:
        if not self.left or self.left[0] != word:
            return False
        self.left.popleft()
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
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.malformed(f"it nests deeper than {MAX_DEPTH}")
        selects = self._word()
        self._depth -= 1
        return selects

    def _word(self) -> Selects:
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
        word = self.left.popleft()
        return lambda name: word in name
