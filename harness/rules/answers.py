"""What a check said of trees, and what it would say of others. Pure.

A check that ran on one tree says the same of another if that has the same names, kinds, sizes, attributes
and links, and the same contents of the files that the check opened: it saw nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.model import CheckResult
from harness.rules.trees import Files, outside_key_of


@dataclass(frozen=True, slots=True)
class Tried:
    """What a check said of a tree. `opened`: the files that it opened, by the names that they had in the
    tree, and files of its own (vms/agent/src/trees.rs); None if that is not known.
    """

    result: CheckResult
    opened: frozenset[str] | None = None


_Outside = tuple[bytes, int]
_Opened = tuple[str, ...]
_Contents = tuple[bytes, ...]


@dataclass(slots=True)
class Answers:
    """All that a check said, by what it saw: first from outside, then of the files that it opened."""

    _known: dict[_Outside, dict[_Opened, dict[_Contents, CheckResult]]] = field(default_factory=dict)

    def add(self, files: Files, acks: int, tried: Tried) -> None:
        """A check said this of a tree, given so many acknowledgements."""
        opened = tuple(sorted(files if tried.opened is None else tried.opened & files.keys()))
        there = self._known.setdefault((outside_key_of(files), acks), {})
        there.setdefault(opened, {})[_contents(files, opened)] = tried.result

    def find(self, files: Files, acks: int) -> CheckResult | None:
        """What the check would say of a tree; None if that is not known."""
        for opened, answers in self._known.get((outside_key_of(files), acks), {}).items():
            if (found := answers.get(_contents(files, opened))) is not None:
                return found
        return None


def _contents(files: Files, opened: _Opened) -> _Contents:
    return tuple(files[path].digest for path in opened)
