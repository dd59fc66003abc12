"""Which crash states of a case a run covered, for sure and at most: what one run may say of another.

Pure. Runs may have made recordings of their own, so sets of states are compared by their rules: all legal
states by blocks or by sectors, as deep as the exploration came, or the states of the log's own order. What a
budget ended is between two such sets: all of the last complete depth was covered, none beyond the next.
Cuts in recoveries (`--again`) and faults of the disk (`--disk`) are looks of their own: what only they show
was looked at again only where the other run had them as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from harness.filesystems.profiles import ANY
from harness.model import DISK_FAULTS, CrashPoint, CrashState, FaultKind, Part
from harness.plan import LEGAL, Budget, Plan
from harness.store.records import CaseInfo, Coverage, NestedCrashes

TORN = "torn"
"""The states of the log's own order that are legal only by sectors."""


@dataclass(frozen=True, slots=True)
class Region:
    """A set of crash states. `order`: fault models of the log's own order, each with all its states. `unit`:
    what the disk writes as a whole, in sectors, if it has legal states; then all in which at most `depth`
    units differ from "all lost" or from "all persisted" at each crash time; None: all.
    """

    order: frozenset[str] = frozenset()
    unit: int | None = None
    depth: int | None = None

    def contains(self, other: Region) -> bool:
        """Whether it surely has every state of the other, if both are of one workload."""
        return self._contains_order(other.order) and self._contains_legal(other)

    def _contains_order(self, models: frozenset[str]) -> bool:
        whole = self.unit is not None and self.depth is None
        legal = {m for m in models if whole and (self.unit == 1 or m != TORN)}
        return models <= self.order | legal

    def _contains_legal(self, other: Region) -> bool:
        if other.unit is None:
            return True
        if self.unit is None:
            return False
        if other.depth == 0:
            return True  # "all lost" and "all persisted" are the same in any unit
        if self.unit > other.unit:
            return False
        if self.depth is None or other.depth is None:
            return self.depth is None
        return self.depth >= other.depth * (other.unit // self.unit)


NOTHING = Region()

SectorsOf: TypeAlias = Callable[[int], range | None]
"""The sectors of an entry of a write log; None where nobody knows."""


def region_of(state: CrashState, sectors: SectorsOf) -> Region:
    """A region that has this state, in every recording in which there is one like it: that of the fault
    models that make it, or of the states that differ in as many units from "all lost" or "all persisted".
    """
    kept = state.persisted
    if kept is None:
        made = {"drop": bool(state.dropped), TORN: state.torn_sectors is not None}
        return Region(order=frozenset([name for name, by in made.items() if by] or ["prefix"]))
    every = LEGAL["exhaustive"]
    unit = 1 if any(part.sector is not None for part in kept.parts) else every
    differ: set[int | Part] = set()  # a block that was written many times is one choice
    for part in kept.parts:
        touched = _units(part, sectors(part.entry), unit)
        if touched is None:
            return Region(unit=unit)
        differ.update(touched)
    return Region(unit=unit, depth=len(differ))


def _units(part: Part, sectors: range | None, unit: int) -> Iterable[int | Part] | None:
    """The units of the disk that a part of a write has, whose `sectors` may be known: else the part itself
    stands for the one that it is. None where nobody knows how many it has.
    """
    if sectors is None:
        return None if (part.sector if unit == 1 else part.block) is None else [part]
    of_block = LEGAL["exhaustive"]
    if part.sector is not None:
        sectors = sectors[part.sector : part.sector + 1]
    elif part.block is not None:
        block = sectors.start // of_block + part.block
        sectors = range(block * of_block, (block + 1) * of_block)
    return range(sectors.start // unit, -(-sectors.stop // unit))


@dataclass(frozen=True, slots=True)
class Reach:
    """What a run covered: at least `least`, and nothing beyond `most`."""

    least: Region
    most: Region

    def covers(self, other: Reach) -> bool:
        """Whether all that the other can have covered was surely covered here. What is exact covers
        itself; a reach that a budget ended does not, since the budgets may have ended at different states.
        """
        return self.least.contains(other.most)


def reach_of(states: Iterable[str], coverage: Coverage | None) -> Reach:
    """The reach of a decided case, in a run whose plan asks for these `states`."""
    asked = frozenset(states)
    unit = next((LEGAL[name] for name in asked if name in LEGAL), None)
    if unit is None or (coverage is not None and not coverage.crash_times):
        order = Region(frozenset(asked - LEGAL.keys()) or frozenset({"prefix"}))
        return Reach(NOTHING if coverage is not None and coverage.unexplored else order, order)
    every = Region(unit=unit)
    return Reach(NOTHING, every) if coverage is None else _within(every, coverage)


def _within(every: Region, coverage: Coverage) -> Reach:
    """Of all legal states, those that were covered."""
    if coverage.losses is None:
        return Reach(every, every)
    unit = every.unit
    least = Region(unit=unit, depth=coverage.losses) if coverage.losses >= 0 else NOTHING
    # States drawn at random may be of any depth.
    return Reach(least, every if coverage.sampled else Region(unit=unit, depth=coverage.losses + 1))


@dataclass(frozen=True, slots=True)
class Looked:
    """All that a run looked at of a case. `states`: crash states; `cuts`: what cuts in recoveries leave, a
    reach a generation; `faults`: kinds of faults of the disk, tried as often as a run without a budget does.
    """

    states: Reach
    cuts: tuple[Reach, ...] = ()
    faults: frozenset[FaultKind] = frozenset()

    def covers(self, other: Looked, state: CrashState) -> bool:
        """Whether what the other run may have seen by looking as it did at `state` was surely looked at."""
        return (
            self.states.covers(other.states) and self._covers_cuts(other, state) and self._covers_fault(state)
        )

    def has_like(self, point: CrashPoint, sectors: SectorsOf) -> bool:
        """Whether every state like that of a crash point, which may be one of another recording, was surely
        looked at. `sectors`: of the entries of that recording.
        """
        state = point.state
        if point.case.filesystem == ANY:  # named by micro-operations, of which a stretch is not told
            wanted = [Region(unit=LEGAL["exhaustive"])]
        else:
            cuts = (region_of(cut, lambda _: None) for cut in state.again)
            wanted = [region_of(state.first, sectors), *cuts]
        reaches = (self.states, *self.cuts)
        deep = len(wanted) <= len(reaches)
        like = (mine.least.contains(one) for mine, one in zip(reaches, wanted, strict=False))
        return deep and all(like) and self._covers_fault(state)

    def _covers_cuts(self, other: Looked, state: CrashState) -> bool:
        depth = len(state.again)
        mine, others = self.cuts[:depth], other.cuts[:depth]
        return len(mine) == depth and all(m.covers(o) for m, o in zip(mine, others, strict=False))

    def _covers_fault(self, state: CrashState) -> bool:
        return state.fault is None or state.fault.kind in self.faults


def looked_at(plan: Plan, info: CaseInfo) -> Looked:
    """What was looked at of a decided case, in a run with this plan. Of rules, all that they allow is looked
    at, whatever states the plan asks for.
    """
    states = ("exhaustive",) if info.case.filesystem == ANY else plan.fault_models
    return Looked(reach_of(states, info.coverage), _cuts(plan, info.again), _faults(plan, info))


def _cuts(plan: Plan, again: Iterable[NestedCrashes]) -> tuple[Reach, ...]:
    """A reach for each generation that was asked for. A run ends before the
    last one where a generation had nothing to cut: what lies deeper is covered like that.
    """
    every = Region(unit=plan.unit_sectors or LEGAL["exhaustive"])
    found = [_cut(cut, every) for cut in again]
    return tuple(found + found[-1:] * (plan.again - len(found)))


def _cut(cut: NestedCrashes, every: Region) -> Reach:
    reach = _within(every, cut.coverage)
    return Reach(NOTHING, reach.most) if cut.not_cut else reach


def _faults(plan: Plan, info: CaseInfo) -> frozenset[FaultKind]:
    disk = info.disk
    if disk is None or (plan.budget != Budget() and disk.tried < disk.faults):
        return frozenset()
    return frozenset(kind for profile in disk.ways for kind in DISK_FAULTS.get(profile, ()))
