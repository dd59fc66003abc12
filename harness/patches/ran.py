"""Which changed lines of a patch ran, in recordings and in recoveries: what marks in its kernel noted.

A line counts if a statement, a condition or an operand begins on it or goes on in it, so that it can take a
mark (`harness.patches.marks`). It ran if the guests got there: while a workload was recorded, or while a
crash state was recovered and checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.host.files import write_atomically
from harness.kernels.edits import without_comments_and_strings
from harness.patches.marks import marked
from harness.patches.mistakes import Hunk

_CODE = re.compile(r"\w")
_NO_CODE = re.compile(r"^[ \t]*(?:\*(?:[ \t].*)?|#.*)$", re.MULTILINE)
"""A line in a comment, and one for the preprocessor."""
_OUTSIDE = re.compile(r"^(?:[{}]|[A-Za-z_](?!\w*[ \t]*:))", re.MULTILINE)
"""Where a function begins or ends, or a line of none; labels are of one."""
NAME = "changed-lines.json"
"""In the directory of a run whose kernel has marks."""


class ChangedLines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lines of a file of which it is asked whether they run: those that a patch adds or changes, and the
    neighbours of those that it removes. As pieces: the first one, and how many.
    """

    file: str
    pieces: tuple[tuple[int, int], ...]

    @property
    def numbers(self) -> list[int]:
        return [n for first, count in self.pieces for n in range(first, first + count)]


def changed_lines(file: str, source: str, changed: Iterable[Hunk]) -> ChangedLines:
    """The lines of these hunks. For statements that are only removed, the next lines with code before and
    behind stand: what runs neither did not run what was removed.
    """
    code = without_comments_and_strings(source).split("\n")
    numbers: set[int] = set()
    for hunk in changed:
        behind = hunk.first + hunk.count
        numbers.update(range(hunk.first, behind))
        if not hunk.count and _removes_statements(hunk.before):
            before = next((n for n in range(hunk.first - 1, 0, -1) if _CODE.search(code[n - 1])), None)
            after = next((n for n in range(behind, len(code) + 1) if _CODE.search(code[n - 1])), None)
            numbers.update(n for n in (before, after) if n)
    runs = (list(run) for _, run in groupby(enumerate(sorted(numbers)), lambda at: at[1] - at[0]))
    return ChangedLines(file, tuple((run[0][1], len(run)) for run in runs))


def _removes_statements(removed: Iterable[str]) -> bool:
    """Whether these lines have code, and all of it is of one function. They may begin or end in a comment."""
    text = "".join(removed)
    inside = text.find("*/")
    if inside >= 0 and "/*" not in text[:inside]:
        text = text[inside + 2 :]
    code = _NO_CODE.sub("", without_comments_and_strings(text).partition("/*")[0])
    return bool(_CODE.search(code)) and not _OUTSIDE.search(code)


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A changed line with the number of its mark."""

    file: str
    function: str
    line: int
    number: int


class RunLine(msgspec.Struct, frozen=True, array_like=True):
    """A changed line that can run, and when it did."""

    file: str
    function: str
    line: int
    recording: bool
    recovering: bool

    @property
    def ran(self) -> bool:
        return self.recording or self.recovering


class Piece(msgspec.Struct, frozen=True):
    """Lines of one function of which none ran, `last` included."""

    file: str
    first: int
    last: int
    function: str

    def __str__(self) -> str:
        """`fs/ext4/inode.c:1234-1240 in ext4_foo()`"""
        lines = f"{self.first}-{self.last}" if self.last > self.first else f"{self.first}"
        return f"{self.file}:{lines} in {self.function}()"


def with_marks(
    sources: Mapping[str, str], changed: Iterable[ChangedLines]
) -> tuple[dict[str, str], list[Mark]]:
    """The text of each file that takes a mark, and all marks. `sources`: the files of the last commit."""
    texts: dict[str, str] = {}
    marks: list[Mark] = []
    for lines in changed:
        first = 1 + max((m.number for m in marks), default=-1)
        found = marked(sources[lines.file], lines.numbers, first)
        if found.marks:
            texts[lines.file] = found.text
        marks += [Mark(lines.file, name, line, n) for line, (n, name) in sorted(found.marks.items())]
    return texts, marks


def run_lines(marks: Iterable[Mark], recording: bytes, recovering: bytes) -> list[RunLine]:
    """What guests noted: a byte for each mark in either file; nothing where no guest came up."""
    return [
        RunLine(m.file, m.function, m.line, any(recording[m.number :][:1]), any(recovering[m.number :][:1]))
        for m in marks
    ]


def united(runs: Iterable[Iterable[RunLine]]) -> tuple[RunLine, ...]:
    """Each line once, by its place; it ran if it did in any of these."""
    found: dict[tuple[str, int], RunLine] = {}
    for line in (line for run in runs for line in run):
        known = found.get((line.file, line.line), line)
        found[line.file, line.line] = msgspec.structs.replace(
            line,
            recording=line.recording or known.recording,
            recovering=line.recovering or known.recovering,
        )
    return tuple(found[place] for place in sorted(found))


def not_run(lines: Sequence[RunLine], changed: Iterable[ChangedLines]) -> Iterator[Piece]:
    """What did not run. Neighbours are one piece, also across changed lines that cannot run."""
    known = {(line.file, line.line): line for line in lines}
    for of_file in changed:
        piece: Piece | None = None
        before = 0
        for number in sorted(of_file.numbers):
            line = known.get((of_file.file, number))
            apart = number != before + 1
            if piece and (apart or (line and (line.ran or line.function != piece.function))):
                yield piece
                piece = None
            if line and not line.ran:
                first = piece.first if piece else number
                piece = Piece(of_file.file, first, number, line.function)
            before = number
        if piece:
            yield piece


def keep_lines(run: Path, lines: Sequence[RunLine]) -> None:
    """In a run directory."""
    write_atomically(run / NAME, msgspec.json.encode(lines))


def kept_lines(run: Path) -> tuple[RunLine, ...]:
    """Raises StoreError if they cannot be read."""
    try:
        return msgspec.json.decode((run / NAME).read_bytes(), type=tuple[RunLine, ...])
    except (OSError, msgspec.MsgspecError) as e:
        raise StoreError(f"{run / NAME} cannot be read: {e}", "start a new series") from e
