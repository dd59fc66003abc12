"""A recovery that was cut, and then done again to its end, must come to what an undisturbed one comes to.

Judged: whether it mounts and unmounts, what cannot be read, and of each name its kind, permissions, owners,
links, size, bytes, link target and extended attributes. Not judged, since a second recovery may choose them
anew: inode numbers, the number of blocks allocated, and names in lost+found. Times are not observed. What
else holds of the state (the contract, fsck, writing to it) the other oracles judge, as of any state.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import zip_longest

from harness.model import Extent, Outcome, Tree, TreeEntry, Violation
from harness.oracles.case import Case

LOST_AND_FOUND = "lost+found/"


def confluence(case: Case) -> Iterator[Violation]:
    """What differs from the outcome of the undisturbed recovery, if the state is one of a recovery that was
    cut.
    """
    before, after = case.undisturbed, case.outcome
    if before is None or before.lost or after.lost:  # `mountable` tells of a kernel that died
        return
    yield from _differences(before, after)


def first_difference(before: Outcome, after: Outcome) -> str:
    """In what two outcomes differ, in a line; empty if they do in nothing that is judged here."""
    found = next(_differences(before, after), None)
    return "" if found is None else f"{found.signature}: {found.expected}, now {found.found}"


def _differences(before: Outcome, after: Outcome) -> Iterator[Violation]:
    for what, then, now in (
        ("mount", before.mount_errno, after.mount_errno),
        ("unmount", before.unmount_errno, after.unmount_errno),
    ):
        if then != now:
            yield _differs("file system", what, _result(then), _result(now))
    if before.mount_errno or after.mount_errno:
        return
    then_failed, now_failed = (sorted({str(e) for e in o.walk_errors}) for o in (before, after))
    if then_failed != now_failed:
        readable = [", ".join(f) or "everything can be read" for f in (then_failed, now_failed)]
        yield _differs("file system", "reading", *readable)
    yield from _trees(before, after)


# --- trees -----------------------------------------------------------------------------------


def _trees(before: Outcome, after: Outcome) -> Iterator[Violation]:
    then, now = _kept(before.tree), _kept(after.tree)
    if then is now or then == now:
        return
    for path in sorted(then.keys() | now.keys()):
        was, is_ = then.get(path), now.get(path)
        if was is None or is_ is None:
            existence = ("not there", "there") if was is None else ("there", "not there")
            yield _differs(path or ".", "existence", *existence)
            continue
        for what, old, new in zip(_NAMES, _looks(was), _looks(is_), strict=True):
            if old != new:
                shown = _parted(was, is_) if what == "bytes" else (_text(old), _text(new))
                yield _differs(path or ".", what, *shown)


def _kept(tree: Tree) -> Tree:
    if not any(path.startswith(LOST_AND_FOUND) for path in tree):
        return tree
    return {path: entry for path, entry in tree.items() if not path.startswith(LOST_AND_FOUND)}


_MANY = ("permissions", "owners", "links", "attributes", "bytes")
_NAMES = ("kind", "permissions", "owners", "links", "size", "link target", "attributes", "bytes")


def _looks(entry: TreeEntry) -> tuple[object, ...]:
    # of a directory, how it is stored decides the size
    size = entry.size if entry.kind != "directory" else 0
    owners = (entry.uid, entry.gid)
    contents = (entry.digest, entry.extents)
    xattrs = dict(entry.xattrs)
    return (entry.kind, entry.mode, owners, entry.links, size, entry.target, xattrs, contents)


def _parted(was: TreeEntry, is_: TreeEntry) -> tuple[str, str]:
    """What the two hold from where they part."""
    pieces = zip_longest(was.extents, is_.extents)
    then, now = next(((a, b) for a, b in pieces if a != b), (None, None))
    if then is None and now is None:  # told by their digests alone
        return f"digest {was.digest}", f"digest {is_.digest}"
    return _piece(then), _piece(now)


def _piece(extent: Extent | None) -> str:
    return "the end of the file" if extent is None else f"bytes {extent.start} to {extent.end}: {extent.text}"


def _differs(subject: str, what: str, then: str, now: str) -> Violation:
    other = "other" if what in _MANY else "another"
    return Violation(
        "confluence",
        subject,
        f"{subject}: recovery that was cut and done again comes to {other} {what}",
        then,
        now,
        f"{subject}: {what}",
    )


def _result(number: int) -> str:
    return errno.errorcode.get(abs(number), str(number)) if number else "succeeds"


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_SHOWN = 200
