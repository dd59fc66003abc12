"""What a mode promises of a question, by its contract; and what documents promise. Pure.

A contract promises the answer yes if it refuses every planted answer no (`Question.broken`), wherever in
the history the question is put. So a promise in the table is one that a run would report as broken. Planted
as well is each answer yes with one piece of a file as zeros, or as what the device held before, where that
turns the answer: what a contract allows of new blocks, it allows there, too. A question whose planted answers
leave out another kind of no may look promised although it is not.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from harness.errors import UsageError
from harness.model import (
    SECTOR_BYTES,
    Extent,
    ExtentKind,
    FileKind,
    FsckClass,
    FsckResult,
    History,
    HistoryStep,
    Operation,
    Outcome,
    Position,
    Tree,
    TreeEntry,
)
from harness.model.questions import Answer, PlantedEntry, Question
from harness.oracles import ORACLES, Judge
from harness.oracles.contract import Contract
from harness.oracles.question import why_not

OF_THE_MODEL = ("durability", "atomicity", "stale", "foreign", "size", "contents")
"""The oracles that compare a tree with what was done: all others look at more than a tree."""
_HOW = "see docs/howto/litmus.md"
_CLEAN = FsckResult(FsckClass.CLEAN, 0, "")
_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_OWN_INODES = 1000  # above the numbers that a planted answer may give


def promises(contract: Contract, operations: Sequence[Operation], asked: Question) -> bool:
    """Whether the contract refuses every planted answer no, at every position at which the question is put.
    `fsck` and what a mount says are no part of it.
    """
    steps = tuple(HistoryStep(i, op, 2 * i, 2 * i + 1) for i, op in enumerate(operations))
    oracles = {name: ORACLES[name] for name in OF_THE_MODEL}
    judge = Judge(contract, History(steps), error_patterns=(), oracles=oracles)
    positions = list(_positions(asked, len(operations)))

    def refused(trees: Iterable[Tree]) -> bool:
        return all(
            judge.judge(position, Outcome(tree=tree, fsck=_CLEAN)).violations
            for tree in trees
            for position in positions
        )

    return refused(map(tree_of, asked.broken)) and refused(_unwritten(asked))


def need_told_apart(name: str, asked: Question) -> None:
    """Raises UsageError where the predicate of a program's question and its planted answers contradict each
    other, or there are none of one kind: without an answer no, each mode would promise the answer yes.
    """
    for kind, wanted, planted in (("kept", "yes", asked.kept), ("broken", "no", asked.broken)):
        if not planted:
            raise UsageError(f"litmus program {name}: `{kind}` is empty", f"plant an answer {wanted}: {_HOW}")
        for n, tree in enumerate(map(tree_of, planted)):
            why = why_not(asked, tree)
            if bool(why) is (wanted == "yes"):
                planted_as = f"`{kind}` plants answers {wanted}, but its tree {n} answers"
                raise UsageError(
                    f"litmus program {name}: {planted_as} {f'no: {why}' if why else 'yes'}",
                    f"change `holds`, or that tree: {_HOW}",
                )


def _unwritten(asked: Question) -> Iterator[Tree]:
    """Each planted answer yes with one written extent as zeros, or as the device's old contents, if that
    makes the answer no.
    """
    for tree in map(tree_of, asked.kept):
        for path, entry in tree.items():
            for n, extent in enumerate(entry.extents):
                for kind in (ExtentKind.ZERO, ExtentKind.POISON) if extent.kind is ExtentKind.WRITTEN else ():
                    lost = Extent(kind, extent.start, extent.length)
                    extents = (*entry.extents[:n], lost, *entry.extents[n + 1 :])
                    changed = {**tree, path: dataclasses.replace(entry, extents=extents)}
                    if why_not(asked, changed):
                        yield changed


def _positions(asked: Question, operations: int) -> Iterator[Position]:
    for acked in range(asked.first, operations + 1):
        for begun in (acked, acked + 1):
            if begun <= operations and asked.is_put(begun, acked):
                yield Position(begun, acked)


def tree_of(answer: Answer) -> Tree:
    """A planted answer as a guest would tell it."""
    shared = Counter(entry.inode for entry in answer.values() if entry.inode)
    inside = Counter(
        posixpath.dirname(path) for path, entry in answer.items() if entry.kind == FileKind.DIRECTORY.value
    )
    tree = {"": TreeEntry("", FileKind.DIRECTORY, 1, _DIRECTORY_MODE, 2 + inside[""], 0, 0, 0, 0)}
    for number, (path, entry) in enumerate(answer.items(), _OWN_INODES):
        is_directory = entry.kind == FileKind.DIRECTORY.value
        links = 2 + inside[path] if is_directory else shared[entry.inode] or 1
        tree[path] = _entry(path, entry, entry.inode or number, links)
    return tree


def _entry(path: str, planted: PlantedEntry, inode: int, links: int) -> TreeEntry:
    kind = FileKind(planted.kind)
    usual = _DIRECTORY_MODE if kind is FileKind.DIRECTORY else _FILE_MODE
    mode = 0o777 if kind is FileKind.SYMLINK else usual
    extents = tuple(_extents(planted.contents))
    size = extents[-1].end if extents else len(planted.target)
    held = size if planted.allocated is None else planted.allocated
    return TreeEntry(
        path,
        kind,
        inode,
        mode if planted.mode is None else planted.mode,
        links,
        *planted.owner,
        size,
        -(-held // SECTOR_BYTES),
        planted.target.encode(),
        {name: value.encode() for name, value in planted.xattrs.items()},
        extents,
    )


def _extents(contents: Sequence[tuple[int, int]]) -> Iterator[Extent]:
    at = 0
    for length, operation in contents:
        if operation < 0:
            yield Extent(ExtentKind.ZERO, at, length)
        else:
            yield Extent(ExtentKind.WRITTEN, at, length, operation)
        at += length
