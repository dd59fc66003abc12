"""The names that should be there beside those that came back: for people, it decides no verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.model import Extent, ExtentKind, Outcome, Tree, Violation
from harness.oracles.names import LOST_AND_FOUND, recovered_names
from harness.oracles.namespace import Name
from harness.oracles.timeline import ZERO, ModelTimeline, moved_by, pieces, writer_of
from harness.report.explanation import Mark, TreeRow, Trees, TreeSide

_ROWS = 40
_PIECES = 4
_UNKNOWN = "bytes too few to tell whose"
_Piece = tuple[int, int, str]
"""Bytes `start` to `end` of a file, and where they come from."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A name on one side, as it is compared."""

    name: Name
    size: int
    contents: tuple[_Piece, ...]


def trees_of(
    timeline: ModelTimeline,
    version: int,
    outcome: Outcome,
    violations: Sequence[Violation],
    made_by_mkfs: Iterable[str] = (),
) -> Trees | None:
    """The names after `version` operations beside those of an outcome; None for a history that the model
    cannot follow. `violations`: all that this outcome shows.
    """
    if timeline.opaque:
        return None
    expected = dict(_of_model(timeline, version))
    words = "before any operation" if not version else f"after {timeline.describe(version - 1)}"
    if outcome.lost or outcome.mount_errno:
        why = "recovery did not end" if outcome.lost else "the file system could not be mounted"
        rows = [TreeRow(path, _side(seen, None), TreeSide()) for path, seen in sorted(expected.items())]
        return Trees(words, tuple(rows[:_ROWS]), why, len(rows[_ROWS:]))
    hidden = {*made_by_mkfs, LOST_AND_FOUND, ""}
    found = dict(_of_tree({p: e for p, e in outcome.tree.items() if p not in hidden}, timeline))
    broken = {path for v in violations for path in (v.subject, *v.subject.split(", "))}
    rows = [_row(path, expected.get(path), found.get(path), broken) for path in sorted({*expected, *found})]
    order = (Mark.BROKEN, Mark.OTHER, Mark.SAME)
    kept = sorted(rows, key=lambda row: order.index(row.mark))[:_ROWS]
    kept.sort(key=lambda row: row.path)
    return Trees(words, tuple(kept), left_out=len(rows) - len(kept))


def _row(path: str, expected: _Seen | None, found: _Seen | None, broken: set[str]) -> TreeRow:
    mark = Mark.SAME
    if not _alike(expected, found):
        mark = Mark.BROKEN if path in broken else Mark.OTHER
    return TreeRow(path, _side(expected, found), _side(found, expected), mark)


def _alike(expected: _Seen | None, found: _Seen | None) -> bool:
    if expected is None or found is None:
        return expected is found
    if (expected.name, expected.size) != (found.name, found.size):
        return False
    return all(
        there == here
        for start, end, here in found.contents
        for low, high, there in expected.contents
        if here != _UNKNOWN and low < end and start < high
    )


def _side(seen: _Seen | None, other: _Seen | None) -> TreeSide:
    """One side of a comparison, in words. Permissions, owner, links and attributes are told only where they
    differ.
    """
    if seen is None:
        return TreeSide()
    name = seen.name
    more = [f"to {name.target.decode(errors='replace')}"] if name.target else []
    if other is not None and name != other.name:
        theirs = other.name
        more += [f"permissions {name.mode:04o}"] if name.mode != theirs.mode else []
        more += [f"owner {name.owner[0]}:{name.owner[1]}"] if name.owner != theirs.owner else []
        more += [f"{name.links} link{'' if name.links == 1 else 's'}"] if name.links != theirs.links else []
        more += [_attributes(name)] if name.xattrs != theirs.xattrs else []
    return TreeSide(name.kind, seen.size, _words(seen.contents), ", ".join(more))


def _attributes(name: Name) -> str:
    named = ", ".join(f"{key} of {len(value)} bytes" for key, value in name.xattrs)
    return f"attributes {named}" if named else "no attributes"


def _words(contents: Sequence[_Piece]) -> str:
    if len(contents) == 1:
        return contents[0][2]
    said = [f"{start} to {end}: {origin}" for start, end, origin in contents[:_PIECES]]
    more = len(contents) - _PIECES
    return "; ".join([*said, *([f"and {more} more"] if more > 0 else [])])


# --- the two sides --------------------------------------------------------------------------------


def _of_model(timeline: ModelTimeline, version: int) -> Iterator[tuple[str, _Seen]]:
    for path, name in timeline.names.names(version).items():
        file = timeline.files.get(timeline.names.inode(path, version))
        if file is None or name.kind != "file":
            yield path, _Seen(name, -1, ())
            continue
        events = file.before(version)
        size = file.size_at(events)
        origins = ((a, b, _origin(origin, a)) for a, b, origin in pieces(file.content(events), 0, size))
        yield path, _Seen(name, size, tuple(_merged(origins)))


def _of_tree(tree: Tree, timeline: ModelTimeline) -> Iterator[tuple[str, _Seen]]:
    for path, name in recovered_names(tree, timeline.attributes).items():
        entry = tree[path]
        size = entry.size if entry.kind == "file" else -1
        yield path, _Seen(name, size, tuple(_merged((e.start, e.end, _found(e)) for e in entry.extents)))


def _origin(origin: int, start: int) -> str:
    if origin == ZERO:
        return "zeros"
    by = moved_by(origin)
    return f"operation {writer_of(origin)}" + (f", written at offset {start - by}" if by else "")


def _found(extent: Extent) -> str:
    return {
        ExtentKind.WRITTEN: f"operation {extent.value}",
        ExtentKind.MISPLACED: f"operation {extent.value}, written at offset {extent.origin}",
        ExtentKind.ZERO: "zeros",
        ExtentKind.POISON: "what the disk held before mkfs",
        ExtentKind.LITERAL: _UNKNOWN,
        ExtentKind.FOREIGN: "bytes that nobody wrote",
        ExtentKind.UNREADABLE: "cannot be read",
    }[extent.kind]


def _merged(parts: Iterable[_Piece]) -> Iterator[_Piece]:
    """Neighbours of one origin as one piece."""
    held: _Piece | None = None
    for start, end, origin in parts:
        if held is not None and (held[1], held[2]) == (start, origin):
            held = held[0], end, origin
            continue
        if held is not None:
            yield held
        held = start, end, origin
    if held is not None:
        yield held
