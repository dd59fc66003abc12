"""Makes a workload simpler where removing operations does no more: plainer operations, names, sizes. Pure.

Workloads that reach one bug by different ways end in one form, so that they can be compared. Every step moves
towards that form and none leads back, so trying them ends.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from harness.findings.ddmin import ddmin
from harness.model import BLOCK_BYTES, Operation, OperationFlag, OperationKind
from harness.oracles.contract import Contract
from harness.oracles.replay import fitting
from harness.symptoms import paths_of

K = OperationKind
Operations = tuple[Operation, ...]
Holds = Callable[[Operations], bool]

_DIRECTORIES = ("A", "B", "C", "D")
_FILES = ("foo", "bar", "baz", "qux")


def minimal(contract: Contract, operations: Operations, holds: Holds) -> Operations:
    """The shortest and plainest workload found for which `holds` is true, in canonical names where it still
    is. `holds` is assumed true for `operations`; it is asked only about what the reference model accepts.
    """

    def fits(candidate: Operations) -> bool:
        return len(fitting(contract, candidate)) == len(candidate) and holds(candidate)

    def shorter(candidate: Operations) -> Operations:
        return shortest(contract, candidate, holds)

    left = shorter(operations)
    while (plain := _plainest(_by_detour(left, fits, shorter), fits)) != left:
        left = shorter(plain)
    named = canonical(left)
    return named if named == left or fits(named) else left


def shortest(contract: Contract, operations: Operations, holds: Holds) -> Operations:
    """`ddmin` of operations, of which some may be equal: places in the list are what is taken out."""

    def at(places: tuple[int, ...]) -> Operations:
        return tuple(operations[i] for i in places)

    def pruned(places: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(places[i] for i in fitting(contract, at(places)))

    return at(ddmin(range(len(operations)), lambda places: holds(at(places)), pruned))


def _by_detour(
    operations: Operations, holds: Holds, shorter: Callable[[Operations], Operations]
) -> Operations:
    """`operations`, or fewer that are found once another path is synced: a fault in one file also shows when
    another one is synced, which then seems to be needed.
    """
    for i, op in enumerate(operations):
        for path in paths_of(operations) if op.kind in (K.FSYNC, K.FDATASYNC) else ():
            other = replaced(operations, i, replace(op, path=path))
            if path != op.path and holds(other) and len(found := shorter(other)) < len(operations):
                return _by_detour(found, holds, shorter)
    return operations


def _plainest(operations: Operations, holds: Holds) -> Operations:
    """`operations` after each simplification of a single operation or path that `holds`."""
    found = operations
    for i in range(len(found)):
        candidates = (replaced(found, i, op) for op in plainer(found, i))
        while (better := next(filter(holds, candidates), None)) is not None:
            found = better
            candidates = (replaced(found, i, op) for op in plainer(found, i))
    for path in (p for p in paths_of(operations) if "/" in p and p not in directories_of(operations)):
        moved = renamed(found, {path: _free_name(path, found)})
        found = moved if holds(moved) else found
    return found


def replaced(operations: Operations, i: int, operation: Operation) -> Operations:
    """`operations` with another one in place `i`."""
    return (*operations[:i], operation, *operations[i + 1 :])


_LENGTHS = {
    K.TMPFILE: (0, BLOCK_BYTES),
    K.TRUNCATE: (0, BLOCK_BYTES),
    K.WRITE: (BLOCK_BYTES,),
    K.APPEND: (BLOCK_BYTES,),
    K.FALLOCATE: (BLOCK_BYTES,),
}
"""The plain lengths of each kind of operation, plainest first."""


def plainer(operations: Operations, i: int) -> Iterator[Operation]:
    """Simpler operations to try in place `i`, simplest first."""
    op = operations[i]
    yield from _of_another_kind(op)
    if op.kind is K.FSYNC:
        directories = directories_of(operations)
        files_first = sorted(paths_of(operations), key=lambda path: path in directories)
        earlier = itertools.takewhile(lambda path: path != op.path, files_first)
        yield from (replace(op, path=path) for path in earlier)
    lengths = itertools.takewhile(lambda n: n != op.length, _LENGTHS.get(op.kind, ()))
    yield from (replace(op, length=n) for n in lengths)
    if op.flags and "punch-hole" not in op.flags:  # without which it would do the opposite
        yield replace(op, flags=())
    if op.offset:
        yield replace(op, offset=0)


def _of_another_kind(op: Operation) -> Iterator[Operation]:
    match op.kind:
        case K.REMOUNT:
            yield Operation(K.SYNC)
        case K.TMPFILE:
            yield Operation(K.CREATE, op.path)
        case K.EXCHANGE:
            yield replace(op, kind=K.RENAME)
        case K.MKFIFO | K.MKNOD:
            yield Operation(K.CREATE, op.path)
        case K.MMAP_WRITE if OperationFlag.PAST_END not in op.flags:
            yield replace(op, kind=K.WRITE, flags=())
        case K.WRITE:
            yield Operation(K.APPEND, op.path, length=op.length, flags=op.flags)
        case K.FSYNC:
            yield Operation(K.SYNC)
        case K.FDATASYNC:
            yield Operation(K.SYNC)
            yield replace(op, kind=K.FSYNC)


def directories_of(operations: Sequence[Operation]) -> frozenset[str]:
    """The paths that are, at some time, directories."""
    made = {op.path for op in operations if op.kind is K.MKDIR}
    moved = {op.target for op in operations if op.kind in (K.RENAME, K.EXCHANGE) and op.path in made}
    moved |= {op.path for op in operations if op.kind is K.EXCHANGE and op.target in made}
    return frozenset(made | moved | {p.rpartition("/")[0] for p in paths_of(operations)} - {""})


def renamed(operations: Operations, names: Mapping[str, str]) -> Operations:
    """With other paths; those that `names` lacks stay."""
    return tuple(
        dataclasses.replace(
            op,
            path=names.get(op.path, op.path),
            target=op.target if op.kind is K.SYMLINK else names.get(op.target, op.target),
        )
        for op in operations
    )


def _free_name(path: str, operations: Operations) -> str:
    """A name at the top that none of the operations uses."""
    paths = paths_of(operations)
    return next(n for n in itertools.chain([path.rpartition("/")[2]], _numbered(_FILES)) if n not in paths)


def canonical(operations: Operations) -> Operations:
    """The same operations on names in order of appearance: directories A, B, ...; others foo, bar, ..."""
    paths, directories = paths_of(operations), directories_of(operations)
    moved = any(op.kind in (K.RENAME, K.EXCHANGE) and directories & {op.path, op.target} for op in operations)
    kinds = {True: _numbered(_DIRECTORIES), False: _numbered(_FILES)}
    names: dict[str, str] = {}
    leaves: dict[str, str] = {}
    for path in paths:
        parent, _, leaf = path.rpartition("/")
        # What lies in a directory that is renamed must keep its name there.
        known = leaf if moved else path
        if known not in leaves:
            leaves[known] = next(kinds[path in directories])
        names[path] = f"{names[parent]}/{leaves[known]}" if parent else leaves[known]
    return renamed(operations, names)


def _numbered(names: Sequence[str]) -> Iterator[str]:
    yield from names
    yield from (f"{names[-1]}{n}" for n in itertools.count(2))
