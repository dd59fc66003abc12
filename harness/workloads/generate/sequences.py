"""Bounded exhaustive workloads, after ACE (Mohan et al., OSDI 2018): every short sequence of steps.

Each step is an operation and what makes it durable. A setup in front of them creates what they depend on and
makes it durable with `sync`. Sequences in which one operation makes the next impossible are left out. Of
sequences that differ only in names, all but the first are left out: directories are interchangeable, and so
are the files of one directory. (In sequences that rename a directory, only the exchange of A and B counts.)

A name determines the whole workload: `ace-rename-over.A_foo.B_foo+fsync.B_foo`, and with two steps
`ace-creat.A_foo+none--link.A_foo.A_bar+fsync.A_bar`. `A_foo` is A/foo; `root` is the root directory.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.model import Operation, Workload
from harness.workloads.generate.steps import SINGLE_STEPS, STEPS, Persistence, StepKind, persistences
from harness.workloads.generate.world import Invalid, World

PREFIX = "ace-"
BETWEEN = "--"


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step of a sequence: its kind, its paths, and what makes it durable. `str`: its part of the name."""

    step: StepKind
    paths: tuple[str, ...]
    persistence: Persistence

    def __str__(self) -> str:
        after = self.persistence
        path = "" if after.path is None else f".{_coded(after.path)}"
        return f"{'.'.join([self.step.name, *map(_coded, self.paths)])}+{after.kind}{path}"


def _coded(path: str) -> str:
    return path.replace("/", "_") or "root"


def sequences(length: int) -> Iterator[str]:
    """The names of all workloads of `length` steps, in order."""
    yield from (_name(chosen) for chosen, _ in _sequences(length, STEPS))


def further_single() -> Iterator[str]:
    """The names of all workloads of one step that `sequences` leaves out, in order."""
    further = {name: step for name, step in SINGLE_STEPS.items() if name not in STEPS}
    yield from (_name(chosen) for chosen, _ in _sequences(1, further))


def _name(chosen: Sequence[PlacedStep]) -> str:
    return PREFIX + BETWEEN.join(map(str, chosen))


def _sequences(length: int, steps: Mapping[str, StepKind]) -> Iterator[tuple[tuple[PlacedStep, ...], World]]:
    if not length:
        yield (), World()
        return
    for before, world in _sequences(length - 1, steps):
        for step in steps.values():
            for paths in step.places:
                if not _is_first(before, step, paths):
                    continue
                after = copy.deepcopy(world)
                try:
                    operation = step.act(after, paths)
                except Invalid:
                    continue
                for persistence in persistences(after, paths, operation):
                    yield (*before, PlacedStep(step, paths, persistence)), after


def _is_first(before: Sequence[PlacedStep], step: StepKind, paths: tuple[str, ...]) -> bool:
    """Whether no exchange of names turns these paths into ones that come earlier."""
    moves = step.moves or any(c.step.moves for c in before)
    used = [p for c in before for p in c.paths] + list(paths)
    return all(_ranks(used) <= _ranks(used, *swaps) for swaps in _SWAPS if not (moves and any(swaps[1:])))


_SWAPS = list(itertools.product((False, True), repeat=3))
"""Whether to exchange the directories, the files of A, and the files of B."""


def _ranks(
    paths: Sequence[str], directories: bool = False, in_a: bool = False, in_b: bool = False
) -> list[int]:
    """The rank of each path in the order of names, after the exchanges."""
    ranks = []
    for path in paths:
        directory, _, name = path.partition("/")
        second = directory == "B"
        other = bool(name) and (name == "bar") != (in_b if second else in_a)
        ranks.append(4 * (second != directories) + (1 + other if name else 0))
    return ranks


def workload(name: str) -> Workload:
    """The workload of a name as in `sequences`, of any length. Raises UsageError."""
    chosen = [_parse(name, part) for part in name.removeprefix(PREFIX).split(BETWEEN)]
    world = World()
    operations: list[Operation] = []
    for c in chosen:
        try:
            operation = c.step.act(world, c.paths)
        except Invalid as e:
            raise UsageError(f"workload {name!r}: {c} is not possible here: {e}") from e
        if c.persistence not in persistences(world, c.paths, operation):
            raise UsageError(f"workload {name!r}: {c} ends in what does not belong to it")
        operations += c.persistence.after(operation)
    summary = "; ".join(map(str, operations))
    return Workload(name, summary, (*world.setup(), *operations))


def _parse(name: str, part: str) -> PlacedStep:
    m = re.fullmatch(r"([a-z-]+)((?:\.\w+)+)\+([a-z]+)(?:\.(\w+))?", part)
    step = SINGLE_STEPS.get(m[1]) if m else None
    paths = tuple(_path(word) for word in m[2][1:].split(".")) if m else ()
    if m is None or step is None or paths not in step.places:
        raise UsageError(
            f"workload {name!r}: {part!r} is no step",
            "powercut list workloads names the sets; a step reads rename.A_foo.B_foo+fsync.B_foo",
        )
    return PlacedStep(step, paths, Persistence(m[3], None if m[4] is None else _path(m[4])))


def _path(word: str) -> str:
    return "" if word == "root" else word.replace("_", "/")
