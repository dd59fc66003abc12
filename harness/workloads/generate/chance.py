"""Longer random workloads: `random1-17-20` is twenty operations from seed 17.

The name determines the whole workload: 1 is the version of this module. A change to the operations that a
seed gives must increase the version, so that an old name never means another workload.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Sequence

from harness.errors import UsageError
from harness.model import BLOCK_BYTES, Operation, OperationKind, Workload
from harness.workloads.generate.steps import STEPS, Act, Persistence, persistences
from harness.workloads.generate.world import FILES, TAIL_START, File, Invalid, World

VERSION = 1
PREFIX = f"random{VERSION}-"
NAME = re.compile(r"random(\d+)-(\d+)-(\d+)")
MAX_LENGTH = 10_000
_PERSISTS = 0.35  # of the operations are followed by a persistence point
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


def name_of(seed: int, length: int) -> str:
    return f"{PREFIX}{seed}-{length}"


def workload(name: str) -> Workload:
    """The workload of that name. Raises UsageError, also for a name of another version."""
    m = NAME.fullmatch(name)
    if not m or int(m[1]) != VERSION:
        raise UsageError(f"no random workload {name!r}", f"they are named {name_of(17, 20)}: SEED and LENGTH")
    length = int(m[3])
    if not 2 < length <= MAX_LENGTH:
        raise UsageError(f"workload {name!r}: {length} operations", f"3 to {MAX_LENGTH} are possible")
    operations = tuple(_operations(_Dice(int(m[2])), length))
    return Workload(name, f"{length} operations by chance from seed {m[2]}", operations)


def _operations(dice: _Dice, length: int) -> list[Operation]:
    world = World.empty()
    operations = [STEPS["mkdir"].act(world, [path]) for path in ("A", "B")]
    while len(operations) < length:
        operation, paths, world = _one(dice, world)
        operations.append(operation)
        if len(operations) < length and dice.chance(_PERSISTS):
            operations.append(_persistence(dice, world, paths, operation))
    return operations


def _one(dice: _Dice, world: World) -> tuple[Operation, Sequence[str], World]:
    """A random operation that is possible, its paths, and the world after it."""
    for _ in range(_TRIES):
        # Often a write, or something new: most steps need an existing file.
        if dice.chance(0.3):
            paths: Sequence[str] = (dice.one(FILES),)
            act = _somewhere(dice)
        else:
            step = STEPS[dice.one(_MAKE if dice.chance(0.2) else list(STEPS))]
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
