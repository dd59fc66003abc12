"""One crash state as the oracles see it: what was promised, what was done, what was recovered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from harness.model import Check, DiskFault, Outcome, Position, Tree, Violation
from harness.model.questions import Question
from harness.oracles.contents import ContentsJudge, Fault
from harness.oracles.contract import Contract
from harness.oracles.each import judge_each
from harness.oracles.names import (
    NamesFound,
    came_apart,
    find_names,
    is_own,
    older_versions,
    recovered,
    shape_of,
    undone,
)
from harness.oracles.timeline import ModelTimeline
from harness.oracles.undecided import Undecided


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault of the disk. `where`: what the block is for that it befell, in words without numbers; empty of
    a flush. `checked`: the format has a checksum for such a block, and can tell it from a torn one.
    """

    fault: DiskFault
    where: str = ""
    checked: bool = False


@dataclass(frozen=True)
class Case:
    """The input of every oracle. `errors`: matches lines of the kernel log that report an error; None where
    the file system has no such patterns. `undisturbed`: the outcome of the recovery in which the power was
    cut again, or the disk was faulty, had that not been. `injected_fault`: how it erred. `question`: of a
    litmus program.
    """

    contract: Contract
    timeline: ModelTimeline
    contents: ContentsJudge
    checks: tuple[Check, ...]
    errors: re.Pattern[str] | None
    position: Position
    outcome: Outcome
    undisturbed: Outcome | None = None
    injected_fault: InjectedFault | None = None
    question: Question | None = None

    @property
    def mounted(self) -> bool:
        return not self.outcome.mount_errno and not self.outcome.lost

    @property
    def judges_names(self) -> bool:
        return self.contract.namespace == "prefix" and not self.timeline.opaque

    @cached_property
    def tree(self) -> Tree:
        """The recovered tree without the names that mkfs made, and the workload did not."""
        made = [p for p in self.contract.made_by_mkfs if not is_own(self.timeline, self.position, p)]
        return {p: e for p, e in self.outcome.tree.items() if p not in made}

    @cached_property
    def names(self) -> NamesFound:
        """The recovered namespace, compared with the reference model's."""
        return find_names(self.timeline, self.position, self.tree)

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong with the contents, under the number of operations that explains them best."""
        tree = self.tree
        if self.contract.namespace in ("each", "synced") and not self.timeline.opaque:
            return judge_each(self.contract, self.timeline, self.contents, self.position, tree)
        if not (self.judges_names and self.names.candidates):
            return self.contents.quick_check(self.position, tree)
        apart = self.names.apart
        if apart:
            tree = {path: entry for path, entry in tree.items() if path not in apart}
        faults = self.contents.judge(self.names.candidates, self.position, tree)
        if any(isinstance(f, Violation) and f.oracle in ("stale", "contents") for f in faults):
            # The same names may have existed before and after the persistence point: the contents decide.
            for back, then in older_versions(self.timeline, self.position, tree):
                if not self.contents.judge((back,), then, tree):
                    return (undone(self.timeline, self.position, back),)
        return (*faults, *self._apart(apart)) if apart else faults

    def _apart(self, names: Mapping[str, int]) -> Iterator[Fault]:
        """What is wrong with files whose names may have come apart, or not known: nothing where one of the
        names has what was promised, and each what the file had at some time since the remount. A name that
        was the only one to be used is none of these.
        """
        used = self.names.used
        several = {path: self.tree[path] for path, inode in names.items() if inode not in used}
        yield from self.contents.quick_check(self.position, several)
        found = recovered(self.timeline, self.position, self.tree)
        acked, begun = self.position.acked, self.position.begun
        for inode in sorted(set(names.values())):
            of_it = [path for path in names if names[path] == inode]
            since = self.timeline.parted[inode]
            parted = replace(self.position, acked=min(acked, since + 1))
            if inode in used:
                for path in of_it:
                    yield from self._since_parted(path, inode, parted)
                continue
            shapes = self.timeline.names.shapes(inode, since, begun)
            promised = self.timeline.names.shapes(inode, max(since, self.timeline.floors[acked]), begun)
            whole = any(shape_of(found[path]) in promised and self._is_whole(path) for path in of_it)
            if not whole or any(
                shape_of(found[path]) not in shapes or self._since_parted(path, inode, parted)
                for path in of_it
            ):
                yield came_apart(of_it)

    def _is_whole(self, path: str) -> bool:
        """Whether a file has what was promised."""
        return not self.contents.judge(self.names.candidates, self.position, {path: self.tree[path]})

    def _since_parted(self, path: str, inode: int, position: Position) -> tuple[Fault, ...]:
        """What a file has and could not have had there."""
        entry = self.tree[path]
        return self.contents.whenever(inode, position, entry) if entry.kind == "file" else ()


Oracle = Callable[[Case], Iterable[Violation | Undecided]]
"""Judges one promise. A pure function; if it raises, the state is UNKNOWN unless another oracle fails it."""
