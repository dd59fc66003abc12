"""Operations as the expressions of known bugs see them: with names in place of handles and of other names of
a file, and with a sync in place of the flags of one. Pure.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from harness.model.operations import ARGUMENTS, PERSISTS_IF, OperationFlag, OperationKind

_OF_INODES = frozenset(
    {
        OperationKind.WRITE,
        OperationKind.APPEND,
        OperationKind.MMAP_WRITE,
        OperationKind.TRUNCATE,
        OperationKind.FALLOCATE,
        OperationKind.SETXATTR,
        OperationKind.REMOVEXATTR,
        OperationKind.CHMOD,
        OperationKind.CHOWN,
        OperationKind.FSYNC,
        OperationKind.FDATASYNC,
        OperationKind.SYNC_FILE_RANGE,
    }
)
"""Kinds that do the same by any name of a file."""


@functools.lru_cache(maxsize=64)
def as_seen(ran: tuple[str, ...], lost: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Operations, a line each, with the name that a handle's inode has at the time, if it has one; of several
    names one of `lost`, by which what does the same by any of them is written as well. Behind these the same
    lines with `fsync f` or `fdatasync f` in a line of its own behind what O_SYNC, O_DSYNC or msync does so.
    """
    names = _Names(lost)
    lines = tuple(names.after(text) for text in ran)
    return lines, tuple(itertools.chain.from_iterable(map(_spelled, lines)))


def _spelled(line: str) -> Iterator[str]:
    kind, *words = line.split(" ")
    plain = len(_arguments(kind)) - 1
    flags = words[plain:] if "flags*" in _arguments(kind) else []
    if PERSISTS_IF.isdisjoint(flags):
        yield line
        return
    yield " ".join([kind, *words[:plain], *(f for f in flags if f not in PERSISTS_IF)])
    yield f"{'fdatasync' if OperationFlag.DSYNC in flags else 'fsync'} {words[0]}"


def _arguments(kind: str) -> tuple[str, ...]:
    """What stands behind a kind; nothing for what is none, such as a program's call."""
    return ARGUMENTS[OperationKind(kind)] if kind in ARGUMENTS else ()


class _Names:
    """Where the names and the handles of a workload lead: to numbers, one for each inode that was opened or
    got another name.
    """

    def __init__(self, lost: tuple[str, ...]) -> None:
        self._lost = lost
        self._inodes: dict[str, int] = {}
        self._new = itertools.count()

    def after(self, text: str) -> str:
        """An operation's line, once it was done."""
        kind, *words = text.split(" ")
        named = list(words)
        for at, (argument, word) in enumerate(zip(_arguments(kind), words, strict=False)):
            if argument in ("path", "target") and (word.startswith("@") or kind in _OF_INODES):
                named[at] = self._name(word)
        self._do(kind, words)
        return " ".join([kind, *named])

    def _name(self, word: str) -> str:
        """A name of the inode to which this one, or this handle, leads."""
        inode = self._inodes.get(word)
        if inode is None:
            return word
        names = [n for n, i in self._inodes.items() if i == inode and not n.startswith("@")]
        kept = [] if word.startswith("@") else [word]
        return next(itertools.chain((n for n in names if n in self._lost), kept, names), word)

    def _do(self, kind: str, words: list[str]) -> None:
        match [kind, *words]:
            case ["open", path, handle]:
                self._inodes[handle] = self._inode(path)
            case ["open-tmpfile", _, handle]:
                self._inodes[handle] = next(self._new)
            case ["link", path, target]:
                self._inodes[target] = self._inode(path)
            case ["rename", path, target] if self._inode(path) != self._inode(target):
                moved, _ = self._take(path), self._take(target)
                self._put(target, moved)
            case ["exchange", path, target]:
                moved, other = self._take(path), self._take(target)
                self._put(target, moved)
                self._put(path, other)
            case ["close" | "unlink" | "rmdir", path]:
                self._inodes.pop(path, None)

    def _inode(self, path: str) -> int:
        if path not in self._inodes:
            self._inodes[path] = next(self._new)
        return self._inodes[path]

    def _take(self, path: str) -> dict[str, int]:
        """What this name, and those below it, led to; they lead nowhere from here on."""
        ends = [n[len(path) :] for n in self._inodes if n == path or n.startswith(f"{path}/")]
        return {end: self._inodes.pop(f"{path}{end}") for end in ends}

    def _put(self, path: str, inodes: dict[str, int]) -> None:
        self._inodes |= {f"{path}{end}": inode for end, inode in inodes.items()}
