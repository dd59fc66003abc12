"""The question of a litmus program, put to the tree that came back. It runs only where it is asked for by
name: a question that is answered with no breaks no promise by itself.

A tree that could not be read whole answers nothing. Of a crash state that does not mount the answer is no,
unless mount(2) could not be tried.

Not looked at: anything that a walk of the tree does not show (times, holes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.model import SECTOR_BYTES, Extent, ExtentKind, Tree, TreeEntry, Violation
from harness.model.questions import Bytes, Look, Question
from harness.oracles.case import Case
from harness.oracles.surface import could_not_try
from harness.oracles.timeline import ZERO
from harness.oracles.undecided import Undecided
from harness.oracles.untouched import comes_from

NAME = "question"
NOT_PUT = "the question was not put"
"""How the reasons begin why a state gives no answer."""


def question(case: Case) -> Iterator[Violation | Undecided]:
    """The workload's question is answered with yes."""
    asked, position = case.question, case.position
    if asked is None or not asked.is_put(position.begun, position.acked):
        return
    outcome = case.outcome
    if could_not_try(outcome.mount_errno) or outcome.not_started:
        yield Undecided(f"{NOT_PUT}: nothing was mounted")
        return
    if outcome.mount_errno or outcome.lost:
        why = "the kernel did not survive it" if outcome.lost else "the file system does not mount"
        yield _no(asked, f"nothing comes back: {why}")
        return
    if outcome.walk_errors:
        yield Undecided(f"{NOT_PUT}: {outcome.walk_errors[0]}")
        return
    if why := why_not(asked, case.tree):
        yield _no(asked, why)


def _no(asked: Question, why: str) -> Violation:
    return Violation(NAME, "the question", f"{asked.asks} No: {why}", asked.wanted, why, "answered with no")


def why_not(asked: Question, tree: Tree) -> str:
    """Why none of the alternatives fits the tree, by those that come closest; empty if one does."""
    reasons = [list(_unlike(alternative, tree)) for alternative in asked.holds]
    least = min(map(len, reasons), default=0)
    return " and ".join(dict.fromkeys("; ".join(r) for r in reasons if len(r) == least))


def _unlike(alternative: Mapping[str, Look], tree: Tree) -> Iterator[str]:
    for path, look in alternative.items():
        if why := _look_fails(path, look, tree):
            yield f"{path} {why}"


def _look_fails(path: str, look: Look, tree: Tree) -> str:
    entry = tree.get(path)
    if entry is None:
        return "is not there" if look.there else ""
    if not look.there:
        return "is there"
    return next((why for why in _failures(look, entry, tree) if why), "")


def _failures(look: Look, entry: TreeEntry, tree: Tree) -> Iterator[str]:
    held = entry.blocks * SECTOR_BYTES
    other = tree.get(look.same_as)
    checks = (
        (look.kind and entry.kind != look.kind, f"is a {entry.kind}"),
        (look.sizes and entry.size not in look.sizes, f"has {entry.size} bytes"),
        (look.mode is not None and entry.mode != look.mode, f"has the permissions {entry.mode:o}"),
        (look.owner and (entry.uid, entry.gid) != look.owner, f"belongs to {entry.uid}:{entry.gid}"),
        (look.links is not None and entry.links != look.links, f"has {entry.links} names"),
        (look.same_as and (other is None or other.inode != entry.inode), f"is not {look.same_as}"),
        (look.target and entry.target != look.target.encode(), "leads elsewhere"),
        (held < look.allocated, f"has {held} bytes of blocks"),
    )
    yield from (why for fails, why in checks if fails)
    yield from (_bytes_fail(part, entry) for part in look.bytes)
    for name, value in look.xattrs.items():
        if entry.xattrs.get(name) != value.encode():
            yield f"has not {name}={value}"
    yield from (f"has {name}" for name in look.lacks_xattrs if name in entry.xattrs)


def _bytes_fail(part: Bytes, entry: TreeEntry) -> str:
    end = entry.size if part.end is None else part.end
    if end > entry.size:
        return f"has {entry.size} bytes"
    origins = [*part.of, *[ZERO] * part.zeros]
    for start, stop in _units(part.start, end, part.unit):
        pieces = [e for e in entry.extents if e.start < stop and e.end > start]
        each = [{o for o in origins if _from(e, start, stop, o)} for e in pieces]
        if part.unit and pieces and not set.intersection(*each):
            return f"has bytes {start} to {stop} from {_texts(pieces)}"
        if wrong := [e for e, fits in zip(pieces, each, strict=True) if not fits]:
            e = wrong[0]
            return f"has bytes {max(start, e.start)} to {min(stop, e.end)} from {e.text}"
    return ""


def _units(start: int, end: int, unit: int) -> Iterator[tuple[int, int]]:
    at = start
    while at < end:
        stop = min(end, at - at % unit + unit) if unit else end
        yield at, stop
        at = stop


def _from(extent: Extent, start: int, end: int, origin: int) -> bool:
    first = max(start, extent.start)
    unseen = extent.kind is ExtentKind.FOREIGN and first >= extent.start + len(extent.data)
    return not unseen and comes_from(extent, first, min(end, extent.end), origin)


def _texts(pieces: list[Extent]) -> str:
    return " and ".join(dict.fromkeys("zeros" if e.kind is ExtentKind.ZERO else e.text for e in pieces))
