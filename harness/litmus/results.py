"""What the runs of litmus programs showed: an answer for each program in each mode on each kernel. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.expectations import Expectation
from harness.model.bounds import Jobs, Schedules
from harness.oracles.question import NAME as QUESTION
from harness.plan import Budget
from harness.report.words import plural
from harness.series.journal import Done
from harness.store.records import Finding
from harness.summary import CaseSummary

SCHEMA = 1
NOT_YET = "not yet"
"""Of a column that was not reached."""


class Standing(enum.StrEnum):
    """What a cell of the table says: whether the answer was yes, and whether the mode promises that."""

    KEPT = "kept"  # yes in every legal state, as the contract promises
    LUCK = "held"  # yes in every legal state; the contract does not promise it
    KEPT_SO_FAR = "kept-so-far"  # yes in all states that were looked at, as promised; some were not
    LUCK_SO_FAR = "held-so-far"  # the same, not promised
    NO = "no"  # no in some state; the contract does not promise it
    BROKEN = "broken"  # no in some state, although the contract promises it: a finding
    KNOWN = "known"  # the same, and each such state shows a known bug, or what the mode is known to lose
    UNSEEN = "not-looked-at"


class CellAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One program in one mode, over all its recordings.

    `promised`: by the mode's contract. `recordings`: that were looked at, each under a schedule of its own.
    `states`: crash states that gave no reason to leave the answer open; `no`: those in which the answer was
    no; `known_no`: those of them of which each finding of another oracle is known; `alone`: those in which no
    other oracle found anything. `point`: the smallest state with the answer no, `found`: what was found
    there. `left`: why not every legal state was looked at; empty if each was. `undecided`: a recording could
    not be decided; `lacks`: one was not made, as this host or kernel lacks something. `reason`: why the
    program was not looked at at all. `others`: new findings of other oracles, which the expectations do not
    name: `ORACLE: SUMMARY (CRASH POINT)`. `known`: the known bugs by name, and the reasons of known losses,
    that other oracles found; `expected`: the reasons of the expectations that name what they found.
    """

    program: str
    promised: bool = False
    recordings: int = 0
    states: int = 0
    no: int = 0
    known_no: int = 0
    alone: int = 0
    point: str = ""
    found: str = ""
    left: str = ""
    reason: str = ""
    undecided: bool = False
    lacks: bool = False
    others: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    @property
    def standing(self) -> Standing:
        if self.no:
            against = Standing.KNOWN if self.no == self.known_no else Standing.BROKEN
            return against if self.promised else Standing.NO
        if not self.states:
            return Standing.UNSEEN
        if self.left:
            return Standing.KEPT_SO_FAR if self.promised else Standing.LUCK_SO_FAR
        return Standing.KEPT if self.promised else Standing.LUCK


class OnMode(Done, frozen=True, kw_only=True, tag="done"):
    """The answers of one mode on one kernel, the item. `kernel`, `release`, `machine`: what the kernel that
    was asked for turned out to be.
    """

    mode: str = ""
    asked: str = ""
    kernel: str = ""
    release: str = ""
    machine: str = ""
    cells: tuple[CellAnswer, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether it was run to the end, and left nothing undecided."""
        return super().decided and not any(c.undecided for c in self.cells)

    def cell(self, program: str) -> CellAnswer:
        """The answer of a program; UNSEEN, with the reason, where there is none."""
        reason = self.failed or "the run did not reach it"
        return next(
            (c for c in self.cells if c.program == program), CellAnswer(program=program, reason=reason)
        )


class LitmusPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked. `names`: of programs; empty: all. `schedules`: so many further recordings of each.
    `compare`: the page begins with what differs between its two columns.
    """

    modes: list[str]
    names: list[str] = []
    kernels: list[str]
    machine: str
    fault_models: tuple[str, ...] = ("exhaustive",)
    budget: Budget = Budget()
    schedules: Schedules = 1
    jobs: Jobs = 1
    compare: bool = False
    expectations: tuple[Expectation, ...] = ()
    argv: list[str] = []

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The mode and the kernel of each column."""
        return [(mode, kernel) for kernel in self.kernels for mode in self.modes]

    def column(self, mode: str, kernel: str) -> str:
        """What a column is called: by its mode, and by its kernel where there are several."""
        return f"{mode} {kernel}" if len(self.kernels) > 1 else mode


@dataclass(frozen=True, slots=True)
class Litmus:
    """All that is known. `columns`: the answers, by the name of the column, in the order of the table."""

    plan: LitmusPlan
    columns: dict[str, OnMode]
    path: Path = Path()
    finished: str = ""
    interrupted: bool = False

    @property
    def shown(self) -> dict[str, OnMode]:
        """The columns that have answers, or a reason why there are none."""
        return {name: m for name, m in self.columns.items() if m.cells or m.failed != NOT_YET}

    @property
    def broken(self) -> list[tuple[OnMode, CellAnswer]]:
        """Promises that a program broke, and not by what is known alone."""
        return self._cells(lambda c: c.standing is Standing.BROKEN)

    @property
    def others(self) -> list[tuple[OnMode, CellAnswer]]:
        """Programs under which another oracle found something new."""
        return self._cells(lambda c: bool(c.others))

    @property
    def known(self) -> list[tuple[OnMode, CellAnswer]]:
        """Programs under which another oracle found a known bug or loss, or that broke a promise in states
        that show what is known alone.
        """
        return self._cells(lambda c: bool(c.known) or c.standing is Standing.KNOWN)

    def _cells(self, are: Callable[[CellAnswer], bool]) -> list[tuple[OnMode, CellAnswer]]:
        return [(m, c) for m in self.columns.values() for c in m.cells if are(c)]

    @property
    def decided(self) -> bool:
        """Whether the run of every column came to its end, with an answer to all that could be asked there;
        and to anything at all.
        """
        cells = [c for m in self.columns.values() for c in m.cells]
        ran = all(m.decided and m.run for m in self.columns.values())
        return ran and any(c.states for c in cells) and not any(c.lacks for c in cells)


def cell_of(
    program: str,
    promised: bool,
    cases: Sequence[CaseSummary],
    *,
    not_put: int = 0,
    known_no: int = 0,
    alone: int = 0,
) -> CellAnswer:
    """The answer of a program from the cases of its recordings. A recording that was not looked at leaves the
    answer open. `not_put`: states that another oracle refuses, and to which the question could not be put;
    `known_no`, `alone`: see `CellAnswer`.
    """
    seen = [c for c in cases if c.counts.checked]
    found = [(c, f) for c in cases for f in c.findings]
    no = [f for _, f in found if f.oracle == QUESTION]
    others = [f for _, f in found if f.oracle != QUESTION and f.expectation is None]
    smallest = min(no, key=lambda f: (f.state.prefix, str(f.crash_point)), default=None)
    states = sum(c.counts.checked - c.counts.unknown for c in seen) - not_put
    unread = (
        f"{plural(not_put, 'state')} could not be read, so that the question was not put" if not_put else ""
    )
    return CellAnswer(
        program=program,
        promised=promised,
        recordings=len(seen),
        states=states,
        no=sum(f.states for f in no),
        known_no=known_no,
        alone=alone,
        point=str(smallest.crash_point) if smallest else "",
        found=smallest.violations[0].found if smallest else "",
        left="; ".join(dict.fromkeys(filter(None, [*map(_left, cases), unread]))),
        reason="" if states else "; ".join(dict.fromkeys([c.reason or c.undecided or unread for c in cases])),
        undecided=any(c.undecided for c in cases),
        lacks=any(c.lacks for c in cases),
        others=tuple(f"{f.oracle}: {f.summary} ({f.crash_point})" for f in others if not name_of(f)),
        known=tuple(dict.fromkeys(filter(None, map(name_of, others)))),
        expected=tuple(
            dict.fromkeys(f.expectation.reason for _, f in found if f.oracle != QUESTION and f.expectation)
        ),
    )


def name_of(f: Finding) -> str:
    """The known bug that a finding is, or why its mode is known to lose this; empty for a new one."""
    return f.known.bug.name if f.known else f.loss


def _left(case: CaseSummary) -> str:
    """Why not every legal state of a recording was looked at; empty if each was."""
    if case.was_not_run:
        return f"a recording was not made: {case.reason}"
    if case.undecided:
        return case.undecided
    covered = case.info.coverage
    if covered is None or not covered.crash_times:
        return "only states in the order of the write log were looked at"
    if not covered.exhaustive:
        drawn = f"where there are too many, {covered.drawn:,} were drawn at random" * bool(covered.sampled)
        return covered.why or drawn or f"{covered.unexplored:,} choices were left open"
    return ""


def contradictions(litmus: Litmus) -> list[tuple[OnMode, CellAnswer]]:
    """Cells where contract and table disagree: the contract is said to promise what was broken, and in some
    of those states none of the oracles that hold the mode to its contract complained. Either the planted
    answers are too narrow or an oracle is.
    """
    return [(m, c) for m, c in litmus.broken if c.alone]
