"""Trees of micro-operations, as the oracles of operations judge them by a contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.litmus.promises import OF_THE_MODEL
from harness.model import (
    Extent,
    ExtentKind,
    FileKind,
    FsckClass,
    FsckResult,
    History,
    HistoryStep,
    Operation,
    OperationKind,
    Outcome,
    Position,
    Tree,
    TreeEntry,
)
from harness.oracles import ORACLES, Judge
from harness.oracles.contract import Contract
from harness.rules.calls import NotedCall, Notes
from harness.rules.micro import ZEROS, Effect
from harness.rules.states import Partial
from harness.rules.trees import Entry, Files, Maker

_CHUNK = 512
"""What programs write is a multiple of it."""
_CLEAN = FsckResult(FsckClass.CLEAN, 0, "")


def operations_of(notes: Notes) -> list[Operation]:
    """The calls as operations of a workload."""
    paths: dict[int, str] = {notes.root: ""}
    return [_operation(call, paths, notes.data) for call in notes.calls]


def _operation(call: NotedCall, paths: dict[int, str], data: bytes) -> Operation:
    kinds = {"size": OperationKind.TRUNCATE, "attributes": OperationKind.CHMOD}
    kind = kinds.get(call.word) or OperationKind(call.word)
    if call.word in ("create", "mkdir"):
        paths[call.inode] = call.path
    if call.word == "rename":
        inode = next(i for i, path in paths.items() if path == call.path)
        for replaced in [i for i, path in paths.items() if path == call.other]:
            del paths[replaced]
        paths[inode] = call.other
    path = call.path or paths.get(call.inode, "")
    if call.word == "setxattr":
        return Operation(kind, path, name=call.other, value=data[call.at : call.at + call.length])
    length = call.owner[0] if call.word == "attributes" else call.length
    return Operation(
        kind, path, call.other, call.offset, length, flags=(call.durable,) if call.durable else ()
    )


@dataclass(slots=True)
class Judged:
    """A program's trees, judged by a contract once all its calls have returned."""

    effect: Effect
    contract: Contract
    _judge: Judge = field(init=False)
    _maker: Maker = field(init=False)

    def __post_init__(self) -> None:
        self._maker = Maker(self.effect)
        steps = (
            HistoryStep(i, op, 2 * i, 2 * i + 1) for i, op in enumerate(operations_of(self.effect.notes))
        )
        oracles = {name: ORACLES[name] for name in OF_THE_MODEL}
        self._judge = Judge(self.contract, History(tuple(steps)), error_patterns=(), oracles=oracles)

    def refusal(self, state: int) -> str:
        """Why the contract forbids the tree of a set; empty if it does not."""
        return self.refusal_of(self._maker.files(Partial(state)))

    def refusal_of(self, files: Files) -> str:
        """Why the contract forbids a tree."""
        count = len(self.effect.notes.calls)
        found = self._judge.judge(Position(count, count), Outcome(tree=self.tree(files), fsck=_CLEAN))
        assert not found.unknown
        return "; ".join(v.summary for v in found.violations)

    def tree(self, files: Files) -> Tree:
        """A tree, as a guest would tell it."""
        made = {"": TreeEntry("", FileKind.DIRECTORY, 1, 0o755, 2, 0, 0, 0, 0)}
        inodes = {path: 1000 + number for number, path in enumerate(files)}
        for path, entry in files.items():
            first = entry.first or path
            made[path] = self._entry(path, files[first], inodes[first])
        return made

    def _entry(self, path: str, entry: Entry, inode: int) -> TreeEntry:
        kind = FileKind(entry.kind)
        mode = 0o755 if kind is FileKind.DIRECTORY else entry.owner[0]
        extents = tuple(self._extents(entry)) if entry.kind == "file" else ()
        xattrs = dict(entry.xattrs)
        return TreeEntry(path, kind, inode, mode, 1, 0, 0, entry.size, 64, xattrs=xattrs, extents=extents)

    def _extents(self, entry: Entry) -> Iterator[Extent]:
        calls = self.effect.notes.calls
        origins = [-1] * (entry.size // _CHUNK)
        for at, offset, length in entry.pieces:
            for start in range(0, length, _CHUNK):
                by = -1 if at == ZEROS else next(n for n, c in enumerate(calls) if _wrote(c, at + start))
                origins[(offset + start) // _CHUNK] = by
        for chunk, by in enumerate(origins):
            kind = ExtentKind.ZERO if by < 0 else ExtentKind.WRITTEN
            yield Extent(kind, chunk * _CHUNK, _CHUNK, max(by, 0))


def _wrote(call: NotedCall, at: int) -> bool:
    return call.word == "write" and call.at <= at < call.at + call.length
