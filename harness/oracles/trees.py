"""In what two trees of one disk differ.

Compared: of each name its kind, permissions, owners, links, size, bytes, link target and extended attributes.
Not compared, since a second recovery may choose them anew: inode numbers, the number of blocks allocated, the
sizes of directories, and names in lost+found. Times are not observed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from harness.model import Change, Extent, Tree, TreeEntry

LOST_AND_FOUND = "lost+found/"
BYTES = "bytes"


def changes(before: Tree, after: Tree, *, contents: bool = True) -> Iterator[Change]:
    """What differs, by path. `contents`: the bytes of files were read in both."""
    then, now = _kept(before), _kept(after)
    if then is now or then == now:
        return
    for path in sorted(then.keys() | now.keys()):
        was, is_ = then.get(path), now.get(path)
        if was is None or is_ is None:
            existence = ("not there", "there") if was is None else ("there", "not there")
            yield Change(path or ".", "existence", *existence)
            continue
        for what, old, new in zip(_NAMES, _looks(was), _looks(is_), strict=True):
            if old == new or (what == BYTES and not contents):
                continue
            shown = _parted(was, is_) if what == BYTES else (_text(what, old), _text(what, new))
            yield Change(path or ".", what, *shown)


def other(what: str) -> str:
    """`other bytes`, `another size`"""
    return f"{'other' if what in _MANY else 'another'} {what}"


def _kept(tree: Tree) -> Tree:
    if not any(path.startswith(LOST_AND_FOUND) for path in tree):
        return tree
    return {path: entry for path, entry in tree.items() if not path.startswith(LOST_AND_FOUND)}


_MANY = ("permissions", "owners", "links", "attributes", BYTES)
_NAMES = ("kind", "permissions", "owners", "links", "size", "link target", "attributes", BYTES)


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


def _text(what: str, value: object) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    if what == "permissions":
        text = f"{value:04o}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_SHOWN = 200
