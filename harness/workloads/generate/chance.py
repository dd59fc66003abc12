"""Longer random workloads: `random2-17-20` is twenty operations from seed 17, after those that make an old
tree: what is on disk before anything else happens.

The name determines the whole workload: 2 is the version of this module. A change to the operations that a
seed gives must increase the version, so that an old name never means another workload. Version 1 can still be
had: it begins on an empty file system, with its two directories among the twenty, opens nothing, and knows
fewer operations.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Mapping, Sequence

from harness.errors import UsageError
from harness.model import BLOCK_BYTES, Operation, OperationKind, Workload
from harness.workloads.generate.steps import MORE_STEPS, STEPS, Act, Persistence, StepKind, persistences
from harness.workloads.generate.world import (
    DIRECTORIES,
    FILES,
    TAIL_START,
    Directory,
    File,
    Invalid,
    World,
)

VERSION = 2
NAME = re.compile(r"random(\d{1,9})-(\d{1,40})-(\d{1,9})")
MAX_LENGTH = 10_000
_STEPS: Mapping[int, Mapping[str, StepKind]] = {1: STEPS, 2: MORE_STEPS}
_PERSISTS = 0.35  # of the operations are followed by a persistence point
_HOLDS = 0.1  # of the operations are followed by opening something, or closing it
_EVICTS = 0.05  # of the operations are followed by another mount, or by dropping what is cached
_TRIES = 10_000  # for one operation; more would mean a defect here
_MAKE = ("creat", "tmpfile", "mkdir")

K = OperationKind


class _Dice:
    """Random choices that are the same for a seed in every version of Python. Only `random.Random.random`
    promises that, not the functions built on it (`choice`, `randrange`).
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # for variety, not for secrets

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def below(self, limit: int) -> int:
        return int(self._random.random() * limit)

    def one(self, of: Sequence[str]) -> str:
        return of[self.below(len(of))]


def name_of(seed: int, length: int, version: int = VERSION) -> str:
    return f"random{version}-{seed}-{length}"


def longer(name: str, most: int) -> str | None:
    """The workload of the same seed and twice the length, which begins with the same operations; None if it
    would be longer than `most`.
    """
    m = NAME.fullmatch(name)
    if m is None or int(m[3]) * 2 > most:
        return None
    return name_of(int(m[2]), int(m[3]) * 2, int(m[1]))


def workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError, also for a name of an unknown version."""
    m = NAME.fullmatch(name)
    if not m or int(m[1]) not in _STEPS:
        raise UsageError(f"no random workload {name!r}", f"they are named {name_of(17, 20)}: SEED and LENGTH")
    version, length = int(m[1]), int(m[3])
    if not 2 < length <= MAX_LENGTH:
        raise UsageError(f"workload {name!r}: {length} operations", f"3 to {MAX_LENGTH} are possible")
    dice = _Dice(int(m[2]))
    operations = _first_operations(dice, length) if version == 1 else _Writer(dice).write(length)
    return Workload(name, f"{length} operations by chance from seed {m[2]}", tuple(operations))


def _first_operations(dice: _Dice, length: int) -> list[Operation]:
    """Those of version 1."""
    world = World.empty()
    operations = [STEPS["mkdir"].act(world, [path]) for path in DIRECTORIES]
    while len(operations) < length:
        operation, paths, world = _one(dice, world, STEPS)
        operations.append(operation)
        if len(operations) < length and dice.chance(_PERSISTS):
            operations.append(_persistence(dice, world, paths, operation))
    return operations


class _Writer:
    """Writes a workload on an old tree."""

    def __init__(self, dice: _Dice) -> None:
        self._dice, self._world = dice, World.empty()
        self._held: list[str] = []  # handles
        self._opened = 0

    def write(self, length: int) -> list[Operation]:
        before = self._old_tree()
        operations: list[Operation] = []
        while len(operations) < length:
            operation, paths, self._world = _one(self._dice, self._world, MORE_STEPS)
            operations.append(operation)
            if self._dice.chance(_HOLDS):
                operations += self._hold()
            if self._dice.chance(_PERSISTS):
                operations.append(self._persistence(paths, operation))
            if self._dice.chance(_EVICTS):
                operations += self._evict()
        return before + operations[:length]

    def _old_tree(self) -> list[Operation]:
        """Both directories and some of the files, one perhaps with a second name; on disk, and perhaps no
        longer in memory.
        """
        steps, world = [("mkdir", [path]) for path in DIRECTORIES], self._world
        for path in FILES:
            if self._dice.chance(0.6):
                steps += [("creat", [path]), ("write-start", [path]), ("append", [path])]
        operations = [STEPS[step].act(world, paths) for step, paths in steps]
        free = [path for path in FILES if world.now[path] is None]
        taken = [path for path in FILES if world.now[path] is not None]
        if free and taken and self._dice.chance(0.5):
            operations.append(STEPS["link"].act(world, [self._dice.one(taken), self._dice.one(free)]))
        return [*operations, Operation(K.REMOUNT if self._dice.chance(0.5) else K.SYNC)]

    def _hold(self) -> list[Operation]:
        if self._held and self._dice.chance(0.5):
            return [Operation(K.CLOSE, self._held.pop(self._dice.below(len(self._held))))]
        there = [p for p, thing in self._world.now.items() if isinstance(thing, (File, Directory))]
        if not there:
            return []
        self._opened += 1
        self._held.append(f"@h{self._opened}")
        return [Operation(K.OPEN, self._dice.one(there), self._held[-1])]

    def _persistence(self, paths: Sequence[str], operation: Operation) -> Operation:
        if self._held and self._dice.chance(0.3):
            return Operation(K.FSYNC, self._dice.one(self._held))
        return _persistence(self._dice, self._world, paths, operation)

    def _evict(self) -> list[Operation]:
        if self._dice.chance(0.5):
            return [Operation(K.DROP_CACHES)]
        closed = [Operation(K.CLOSE, handle) for handle in self._held]
        self._held = []
        return [*closed, Operation(K.REMOUNT)]


def _one(dice: _Dice, world: World, steps: Mapping[str, StepKind]) -> tuple[Operation, Sequence[str], World]:
    """A random operation that is possible, its paths, and the world after it."""
    for _ in range(_TRIES):
        # Often a write, or something new: most steps need an existing file.
        if dice.chance(0.3):
            paths: Sequence[str] = (dice.one(FILES),)
            act = _somewhere(dice)
        else:
            step = steps[dice.one(_MAKE if dice.chance(0.2) else list(steps))]
            paths, act = step.places[dice.below(len(step.places))], step.act
        after = copy.deepcopy(world)
        try:
            return act(after, paths), paths, after
        except Invalid:
            continue
    raise AssertionError("no operation is possible")


def _somewhere(dice: _Dice) -> Act:
    """A write, truncate or hole at a random offset, such that files mostly stay small."""
    offset, length = dice.below(TAIL_START), 1 + dice.below(3 * BLOCK_BYTES)
    kind = dice.one(["write", "write", "append", "truncate", "punch-hole", "zero-range", "mmap-write"])

    def act(world: World, paths: Sequence[str]) -> Operation:
        (path,) = paths
        file = world.file(path)
        match kind:
            case "append":
                file.size += length
                return Operation(K.APPEND, path, length=length)
            case "truncate":
                file.size = offset
                return Operation(K.TRUNCATE, path, length=offset)
            case "punch-hole":
                return Operation(K.FALLOCATE, path, offset=offset, length=length, flags=("punch-hole",))
            case "mmap-write":
                return _store(file, path, offset, length)
            case _:
                file.size = max(file.size, offset + length)
                if kind == "write":
                    return Operation(K.WRITE, path, offset=offset, length=length)
                return Operation(K.FALLOCATE, path, offset=offset, length=length, flags=("zero-range",))

    return act


def _store(file: File, path: str, offset: int, length: int) -> Operation:
    if offset >= file.size:
        raise Invalid("a mapping cannot make a file longer")
    return Operation(K.MMAP_WRITE, path, offset=offset, length=min(length, file.size - offset))


def _persistence(dice: _Dice, world: World, paths: Sequence[str], operation: Operation) -> Operation:
    """A random persistence point for this operation; not msync or none, which are not operations."""
    possible = [p for p in persistences(world, paths, operation) if p.kind not in ("none", "msync")]
    chosen: Persistence = possible[dice.below(len(possible))]
    return Operation(K(chosen.kind), chosen.path or "")
