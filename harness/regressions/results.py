"""What the kernel before and the kernel after showed, and what follows from both. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.faults.results import Detection, Trial, first_of, is_not_of
from harness.model.bounds import Jobs
from harness.plan import Budget
from harness.regressions.catalogue import Bug

DEFAULT_SETS = ("all", "more", "oldtree", "beside", "ace1")


class BugOutcome(enum.StrEnum):
    """What became of a bug."""

    FOUND = "found"
    OWN = "own workload"  # found, but only by a workload that was written for it
    MISSED = "missed"
    UNKNOWN = "UNKNOWN"  # a kernel could not be had or did not come up, or a case could not be decided
    NOT_RUN = "not run"
    NO_MODE = "no mode"  # Powercut lacks what it takes to run it


class RegressionsPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked. `names`, `modes`: see `select_bugs`. `workloads`: general sets; `shard`: a part of
    them.
    """

    names: list[str] = []
    modes: list[str] = []
    workloads: tuple[str, ...] = DEFAULT_SETS
    shard: str = ""
    fault_models: tuple[str, ...] = ("prefix",)
    budget: Budget = Budget()
    jobs: Jobs = 1
    argv: list[str] = []


class Row(msgspec.Struct, frozen=True):
    """One bug in the table. `credited`: the findings on the kernel before that make it found, the case with
    the fewest states first. `why`: for one that was not found. `after`: what the kernel after showed, in
    words; `silent`: whether it showed nothing unexpected; None: it is not known. `shared`: other bugs that
    the same findings are credited to. `runs`: the run directories of the kernel before, by mode as
    a case names it.
    """

    bug: Bug
    outcome: BugOutcome
    credited: tuple[Detection, ...] = ()
    why: str = ""
    after: str = ""
    silent: bool | None = None
    shared: tuple[str, ...] = ()
    states: int = 0
    cases: int = 0
    runs: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Recall:
    """What the bugs of a plan have come to so far. `path`: of its directory."""

    plan: RegressionsPlan
    rows: tuple[Row, ...]
    path: Path = Path()
    finished: str = ""
    interrupted: bool = False

    def count(self, *outcomes: BugOutcome) -> int:
        """How many bugs came to one of these."""
        return sum(r.outcome in outcomes for r in self.rows)


def kind_of(recall: Recall) -> str:
    """`fail` if a bug was not found by general sets, or a kernel after was not silent; `unknown` if one was
    not decided.
    """
    rows = [r for r in recall.rows if r.outcome is not BugOutcome.NO_MODE]
    if any(r.outcome in (BugOutcome.MISSED, BugOutcome.OWN) or r.silent is False for r in rows):
        return "fail"
    decided = all(r.outcome is BugOutcome.FOUND and r.silent for r in rows)
    return "pass" if rows and decided and not recall.interrupted else "unknown"


def row_of(bug: Bug, before: Sequence[Trial | None], after: Sequence[Trial | None]) -> Row:
    """What became of a bug. `before`, `after`: the runs in each of its modes; None: not made, or not to its
    end.

    It is found by an unexpected finding of one of its oracles on the kernel before, in a case that the kernel
    after decided, and there does not show; where the same symptom showed otherwise in that case, as with a
    race that hits now this file, now that one, more states have to show it than show all of those. What only
    workloads show that were written for the bug is an outcome of its own. It is missed only if the kernel
    before decided every case, and nothing there is left to be compared with the kernel after.
    """
    if bug.needs:
        return Row(bug, BugOutcome.NO_MODE, why=f"needs {bug.needs}")
    ran = [t for t in before if t]
    outcome, credited, why = _outcome(bug, before, after)
    said, silent = _after(after)
    return Row(
        bug=bug,
        outcome=outcome,
        credited=credited,
        why=why,
        after=said,
        silent=silent,
        states=sum(t.states for t in ran),
        cases=sum(len(t.cases) for t in ran),
        runs={
            mode.replace("/", "-"): t.run for mode, t in zip(bug.modes, before, strict=True) if t and t.run
        },
    )


def _outcome(
    bug: Bug, before: Sequence[Trial | None], after: Sequence[Trial | None]
) -> tuple[BugOutcome, tuple[Detection, ...], str]:
    asked = list(zip(before, after, strict=True))
    could = [(d, then) for now, then in asked if now for d in now.detections if _may_show(bug, d)]
    credited = [d for d, then in could if then and is_not_of(then, d)]
    if credited:
        general = [d for d in credited if d.workload not in bug.own]
        outcome = BugOutcome.FOUND if general else BugOutcome.OWN
        return outcome, tuple(sorted(general or credited, key=lambda d: (d.of, d.case, -d.states))), ""
    if failed := next((t.failed for t in before if t and t.failed), ""):
        return BugOutcome.UNKNOWN, (), f"{bug.before}: {failed}"
    if None in before:
        return BugOutcome.NOT_RUN, (), ""
    if undecided := {case: why for t in before if t for case, why in t.undecided.items()}:
        return BugOutcome.UNKNOWN, (), first_of(undecided)
    if not any(t.cases for t in before if t):
        return BugOutcome.UNKNOWN, (), f"{bug.before}: no case was decided"
    return _compared(bug, could)


def _compared(
    bug: Bug, could: Sequence[tuple[Detection, Trial | None]]
) -> tuple[BugOutcome, tuple[Detection, ...], str]:
    """What follows where the kernel before decided everything, and nothing is credited yet."""
    for seen, then in could:
        if then is None:
            return (
                BugOutcome.NOT_RUN,
                (),
                f"{bug.before} shows {seen.example}, and {bug.after} has not been run",
            )
        if then.failed:
            return BugOutcome.UNKNOWN, (), f"{bug.after}: {then.failed}"
        if seen.case not in then.cases:
            reason = then.undecided.get(seen.case, "it was not run")
            return BugOutcome.UNKNOWN, (), f"{bug.after}: {seen.case}: {reason}"
    both = f"{bug.after} shows what {bug.before} does: {could[0][0].example}" if could else ""
    return BugOutcome.MISSED, (), both


def _may_show(bug: Bug, seen: Detection) -> bool:
    """Whether a finding on the kernel before may be the bug."""
    expected = bool(seen.known) and not (bug.known and bug.known in seen.known)
    return seen.oracle in bug.oracles and not expected


def _after(after: Iterable[Trial | None]) -> tuple[str, bool | None]:
    """What the kernel after showed, and whether that is nothing unexpected."""
    trials = list(after)
    shown = [d for t in trials if t for d in t.detections if not d.known]
    if shown:
        return f"{len(shown)} unexpected, such as {shown[0].example} ({shown[0].oracle})", False
    if failed := next((t.failed for t in trials if t and t.failed), ""):
        return f"UNKNOWN: {failed}", None
    if undecided := {case: why for t in trials if t for case, why in t.undecided.items()}:
        return f"UNKNOWN: {first_of(undecided)}", None
    return ("not run", None) if None in trials else ("silent", True)


def with_shared(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows, each with the other bugs that it shares a finding with: those were mended between the same
    two kernels, and one finding cannot tell which of them it was.
    """
    all_of = list(rows)
    owners: dict[tuple[str, str, str], list[str]] = {}
    for row in all_of:
        for seen in row.credited:
            owners.setdefault((row.bug.before, row.bug.after, seen.id), []).append(row.bug.name)
    return tuple(
        msgspec.structs.replace(
            row,
            shared=tuple(
                dict.fromkeys(
                    name
                    for seen in row.credited
                    for name in owners[row.bug.before, row.bug.after, seen.id]
                    if name != row.bug.name
                )
            ),
        )
        for row in all_of
    )
