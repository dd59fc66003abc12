"""Symptoms: what an oracle says was lost, without the names and numbers of one workload. Pure.

What one defect leaves behind has other names, offsets and operations in every workload; its symptom is the
same. The same symptom alone proves no common cause: see `harness.findings.causes`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

import msgspec

from harness.model import Operation, OperationKind

_NUMBER = re.compile(r"\d+")
_HEAD = re.compile(r"(?:\w+ |second mount: |[^:]+, )?")
"""What may stand before the name that a symptom is about: `statx f: EIO`, `f, g: links`."""


class Symptom(msgspec.Struct, frozen=True, order=True):
    """What an oracle says was lost, without names and numbers: `durability`, `NAME: missing`."""

    oracle: str
    what: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.what}"


def symptom_of(oracle: str, signature: str, paths: Iterable[str]) -> Symptom:
    """The symptom of a violation in a workload that has these paths."""
    names = _names(frozenset(filter(None, paths)))
    return Symptom(oracle, _NUMBER.sub("N", names.sub(_nameless, signature) if names else signature))


def _nameless(found: re.Match[str]) -> str:
    """NAME in place of a path. A path of letters or digits alone may be a word or a number of ours, of a
    kernel or of fsck (`data of operation 3 lost`, of files called `data` and `3`): it counts only where names
    stand.
    """
    root, path = found.groups()
    before, after = found.string[: found.start()], found.string[found.end() :]
    quoted = before[-1:] in ("'", '"', "`") and after[:1] == before[-1:]
    about = after[:1] in (":", ",") and _HEAD.fullmatch(before)
    stands = root or quoted or about or after.startswith(" twice)")
    stands = stands or not (path.isalpha() or path.isdecimal())
    return f"{root}NAME" if stands else found[0]


@functools.lru_cache(maxsize=64)
def _names(paths: frozenset[str]) -> re.Pattern[str] | None:
    longest_first = sorted(paths, key=lambda path: (-len(path), path))
    words = "|".join(map(re.escape, longest_first))
    below = r"(?:/[^\s/:,()]+)*"  # a file of a directory that was renamed has a path that no operation names
    return re.compile(rf"(?<![\w/.])(/?)((?:{words}){below})(?![\w/])") if words else None


def paths_of(operations: Sequence[Operation]) -> tuple[str, ...]:
    """Every path of the operations and its parents, in order of appearance, without the root and handles."""
    found: dict[str, None] = {}
    for op in operations:
        for path in (op.path, op.target if op.kind is not OperationKind.SYMLINK else ""):
            parts = path.split("/") if path and not path.startswith("@") else []
            found |= dict.fromkeys("/".join(parts[: n + 1]) for n in range(len(parts)))
    return tuple(found)
