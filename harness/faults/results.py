"""What the runs of a fault and of the baseline showed, and what follows from both. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from harness.faults.catalogue import PlantedFault
from harness.model.bounds import Jobs, Schedules
from harness.plan import Budget
from harness.series.journal import Done

BASELINE = "baseline"


class Detection(msgspec.Struct, frozen=True):
    """A finding of one case. `id`: the same in every run. `states`: how many crash states show it, of `of`.
    `known`: why unmodified kernels are expected to show it, or empty. `example`: the smallest crash state.
    `symptom`: what was lost, without names and numbers (`harness.symptoms`); empty where nobody kept it.
    `bug`: the known bug that it agrees with, or empty. Such a finding may still be a fault's: only the
    unmodified kernel's are told as known by it.
    """

    id: str
    case: str
    oracle: str
    states: int
    of: int
    summary: str
    example: str
    known: str = ""
    symptom: str = ""
    bug: str = ""

    @property
    def reason(self) -> str:
        """Why it is no news of an unmodified kernel; empty: it is."""
        return ": ".join(filter(None, (self.bug, self.known)))

    @property
    def mode(self) -> str:
        return self.case.partition("/")[0]

    @property
    def workload(self) -> str:
        return self.case.partition("/")[2]


class Trial(Done, frozen=True, kw_only=True, tag="done"):
    """The run of one kernel, an item; or all of the baseline's: see `joined`. `asked`: the cases that it was
    for; empty: all. `cases`: those that were decided. `undecided`: why the others were not, by case.
    `ended_early`: by a case that was enough. `runs`: the run directories, if it is joined; `failures`: then,
    why nothing came of the run of a case, by case.
    """

    asked: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    detections: tuple[Detection, ...] = ()
    undecided: dict[str, str] = {}  # noqa: RUF012 - a struct copies its defaults
    states: int = 0
    build_seconds: float = 0
    ended_early: bool = False
    runs: tuple[str, ...] = ()
    failures: dict[str, str] = {}  # noqa: RUF012 - a struct copies its defaults

    @property
    def decided(self) -> bool:
        """Whether every case was."""
        return super().decided and not self.undecided


class Status(enum.StrEnum):
    """What became of a fault."""

    FOUND = "found"
    MISSED = "missed"
    UNDECIDED = "undecided"  # its kernel did not come up, or a case with no finding could not be decided
    EQUIVALENT = "equivalent"  # not found, and it has been shown that it cannot be
    NOT_TRIED = "not tried"


class Row(msgspec.Struct, frozen=True):
    """One fault in the table. `detections`: those that count, the case with the fewest states first. `why`:
    for a fault that was not found. `note`: where it went against what its file says.
    """

    fault: PlantedFault
    status: Status
    detections: tuple[Detection, ...] = ()
    why: str = ""
    note: str = ""
    states: int = 0
    seconds: float = 0
    build_seconds: float = 0
    runs: tuple[str, ...] = ()

    @property
    def workloads(self) -> list[str]:
        """Those that show it."""
        return list(dict.fromkeys(s.workload for s in self.detections))

    @property
    def oracles(self) -> list[str]:
        """Those that spoke."""
        return list(dict.fromkeys(s.oracle for s in self.detections))


class Score(msgspec.Struct, frozen=True):
    """How many faults were found, of those that can be."""

    found: int
    possible: int
    missed: int
    undecided: int
    equivalent: int
    not_tried: int

    @property
    def percent(self) -> float:
        return 100 * self.found / self.possible if self.possible else 0


class OtherCampaign(msgspec.Struct, frozen=True):
    """What another campaign came to, to stand beside this one's. `workloads`: empty: those of each fault.
    `answers`: by the fault's name, what became of it, and the case that found it.
    """

    workloads: tuple[str, ...]
    score: Score
    answers: dict[str, tuple[Status, str]]

    @property
    def asked(self) -> str:
        """Its workloads, in words."""
        return ",".join(self.workloads) or "its own workloads"


class FaultsPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a campaign. `names`, `modes`: see `select_faults`. `workloads`: empty: those of each
    fault. `schedules`: how many times more each is recorded, under other schedules. `first`: a fault's run
    ends with the first case that finds it. `started`: set when the run directory is made. `other`: another
    campaign's answers.
    """

    names: list[str] = []
    modes: list[str] = []
    workloads: list[str] = []
    schedules: Schedules = 0
    source: str = "linux-source-6.12"
    machine: str
    fault_models: tuple[str, ...] = ("prefix",)
    budget: Budget = Budget()
    jobs: Jobs = 1
    first: bool = False
    started: datetime | None = None
    other: OtherCampaign | None = None
    argv: list[str] = []


@dataclass(frozen=True, slots=True)
class Campaign:
    """What the faults of a plan have shown so far. `path`: of its directory; `finished`: ISO 8601;
    empty: it is not.
    """

    plan: FaultsPlan
    kernel: str
    baseline: Trial
    rows: tuple[Row, ...]
    path: Path = Path()
    finished: str = ""
    interrupted: bool = False


def row_of(fault: PlantedFault, trial: Trial | None, baseline: Trial) -> Row:
    """What became of a fault. `trial`: None if it has not been tried.

    A finding counts if the baseline decided the same case and does not show it. Where the same symptom showed
    otherwise in the baseline, as with a race that hits now this file, now that one, more states have to show
    it than show all of those; another symptom of the same oracle says nothing of it. What unmodified kernels
    are known to show counts only in such a comparison: by itself it may be that race, which the baseline
    happened to miss. A fault is missed only if all its cases were decided, and those that show something in
    the baseline too; an undecided case never makes it found or missed.
    """
    if trial is None:
        return Row(fault, Status.NOT_TRIED)
    counted = sorted(
        (s for s in trial.detections if counts(s, baseline)), key=lambda s: (s.of, s.case, -s.states)
    )
    status, why = (Status.FOUND, "") if counted else _not_found(fault, trial, baseline)
    return Row(
        fault=fault,
        status=status,
        detections=tuple(counted),
        why=why,
        note=_note(fault, status),
        states=trial.states,
        seconds=round(max(0.0, trial.seconds - trial.build_seconds), 1),
        build_seconds=trial.build_seconds,
        runs=(trial.run,) if trial.run else (),
    )


def counts(seen: Detection, baseline: Trial) -> bool:
    """Whether what a fault's kernel shows is credited to the fault; see `row_of`."""
    if seen.known and not alike(seen, baseline):
        return False
    return is_not_of(baseline, seen)


def alike(seen: Detection, other: Trial) -> list[Detection]:
    """What another kernel shows in the same case with the same symptom. Of one that was kept without its
    symptom, any finding of its oracle may be that.
    """
    found = [d for d in other.detections if (d.case, d.oracle) == (seen.case, seen.oracle)]
    return [d for d in found if not (d.symptom and seen.symptom) or d.symptom == seen.symptom]


def is_not_of(other: Trial, seen: Detection) -> bool:
    """Whether another kernel decided the case of a finding and does not show it: see `row_of`."""
    theirs = alike(seen, other)
    return (
        seen.case in other.cases
        and all(d.id != seen.id for d in theirs)
        and seen.states > sum(d.states for d in theirs)
    )


def _not_found(fault: PlantedFault, trial: Trial, baseline: Trial) -> tuple[Status, str]:
    if trial.failed:
        return Status.UNDECIDED, trial.failed
    undecided = dict(trial.undecided)
    for case in dict.fromkeys(d.case for d in trial.detections if d.case not in baseline.cases):
        why = baseline.undecided.get(case) or baseline.failures.get(case)
        asked = f"the unmodified kernel's case is undecided: {why}"
        was_asked = baseline.runs and (not baseline.asked or case in baseline.asked)
        left = "did not run it" if was_asked else "is asked next"
        undecided[case] = asked if why else f"the unmodified kernel {left}"
    if undecided:
        return Status.UNDECIDED, first_of(undecided)
    if not trial.cases:
        return Status.UNDECIDED, "no case was decided"
    if fault.equivalent:
        return Status.EQUIVALENT, fault.equivalent
    return Status.MISSED, "; ".join(filter(None, (fault.gap, _uncredited(trial, baseline))))


def first_of(undecided: Mapping[str, str]) -> str:
    """The first case that was not decided, why, and how many more there are."""
    case, why = next(iter(undecided.items()))
    return f"{case}: {why}" + (f" (and {len(undecided) - 1} more cases)" if len(undecided) > 1 else "")


def _uncredited(trial: Trial, baseline: Trial) -> str:
    """Of a fault without credit: a finding that is expected of its mode, and that the unmodified kernel did
    not show in that case.
    """
    shown = next((d for d in trial.detections if d.known and is_not_of(baseline, d)), None)
    if shown is None:
        return ""
    return (
        f"{shown.case} shows `{shown.summary}` in {shown.states:,} of {shown.of:,} states, and the "
        f"unmodified kernel does not; it is not credited, since unmodified kernels are expected to show it: "
        f"{shown.known}"
    )


def _note(fault: PlantedFault, status: Status) -> str:
    if status is Status.FOUND and fault.equivalent:
        return "its file says that it is equivalent to the unmodified kernel"
    if status is Status.FOUND and fault.gap:
        return "its file says that it is missed"
    return ""


def score_of(rows: Sequence[Row]) -> Score:
    """Undecided faults, and those not tried, count as not found."""

    def count(*statuses: Status) -> int:
        return sum(r.status in statuses for r in rows)

    equivalent = count(Status.EQUIVALENT)
    return Score(
        found=count(Status.FOUND),
        possible=len(rows) - equivalent,
        missed=count(Status.MISSED),
        undecided=count(Status.UNDECIDED),
        equivalent=equivalent,
        not_tried=count(Status.NOT_TRIED),
    )


DEFAULT_STATES = ["exhaustive"]


def kind_of(campaign: Campaign) -> str:
    """`fail` if a fault was missed, or found, against what its file says; `unknown` if one was not decided. A
    gap is one of the default crash states and workloads: with others, the fault may be found.
    """
    plan, rows = campaign.plan, campaign.rows
    default = list(plan.fault_models) == DEFAULT_STATES and not (plan.workloads or plan.schedules)
    if any(r.note and (r.fault.equivalent or default) for r in rows):
        return "fail"
    if any(r.status is Status.MISSED and not r.fault.gap for r in rows):
        return "fail"
    is_open = not rows or any(r.status in (Status.UNDECIDED, Status.NOT_TRIED) for r in rows)
    return "unknown" if is_open or campaign.interrupted else "pass"


def joined(name: str, trials: Iterable[Trial], asked_of: Mapping[str, Sequence[str]] | None = None) -> Trial:
    """Several runs as one: those of the baseline. `asked_of`: the cases of which nothing came where a run
    failed, by its item.
    """
    all_of = list(trials)
    return Trial(
        item=name,
        key=" ".join(t.key for t in all_of),
        asked=tuple(c for t in all_of for c in t.asked),
        cases=tuple(c for t in all_of for c in t.cases),
        detections=tuple(s for t in all_of for s in t.detections),
        undecided={c: why for t in all_of for c, why in t.undecided.items()},
        failed="; ".join(dict.fromkeys(t.failed for t in all_of if t.failed)),
        states=sum(t.states for t in all_of),
        seconds=sum(t.seconds for t in all_of),
        runs=tuple(t.run for t in all_of if t.run),
        failures={c: t.failed for t in all_of if t.failed for c in (asked_of or {}).get(t.item, ())},
    )
