"""Compares two runs of the same recordings by verdict: what did the memo, or another machine, change?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import StoreError, UsageError
from harness.model import CaseId, CrashPoint, Verdict
from harness.report.lines import full, resume
from harness.store import RunStore
from harness.store.records import CaseRecord, CaseStatus

Judged = tuple[Verdict, frozenset[tuple[str, str]]]
"""A verdict, and the violated promises, each as (oracle, signature)."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A crash point on which two runs disagree. None: that run has no verdict on it."""

    point: CrashPoint
    first: Judged | None
    second: Judged | None

    def __str__(self) -> str:
        return f"{self.point}: {_described(self.first)} in the first, {_described(self.second)} in the second"


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """A case whose status differs between the runs: `first` in one, `second` in the other."""

    case: CaseId
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.case}: {self.first} in the first, {self.second} in the second"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`states`: number of states with a verdict in both runs. `differences`: states on which the runs differ,
    including those that only one of them judged. `cases`: cases that only one run has, or that ended
    differently. `undecided`: states and cases that neither run decided, with their names: two UNKNOWN are
    the same word, but they do not agree on anything. `compared`: number of cases that both runs have.
    """

    states: int
    differences: tuple[Disagreement, ...]
    cases: tuple[CaseDifference, ...] = ()
    undecided: tuple[str, ...] = ()
    compared: int = 0

    @property
    def one_sided(self) -> int:
        """Number of states that only one of the runs judged."""
        return sum(None in (d.first, d.second) for d in self.differences)


def compare(first: RunStore, second: RunStore) -> Comparison:
    """Compare every verdict of two runs. A case or state that only one of them has is a difference: agreement
    on the rest says nothing about it.

    Raises UsageError if they share no case, or judged different recordings of one: then equal crash points
    name different disks.
    """
    mine, others = ({c.case: c for c in store.cases()} for store in (first, second))
    for store, cases in ((first, mine), (second, others)):
        if not cases:
            raise UsageError(f"{store.path.name} has no case yet", _resume(store))
    common = [case for case in mine if case in others]
    if not common:
        raise UsageError(
            f"{first.path.name} and {second.path.name} share no case",
            "compare runs of the same modes and workloads",
        )
    compared = [_compare_case(case, first, second) for case in common]
    return Comparison(
        sum(c.states for c in compared),
        tuple(d for c in compared for d in c.differences),
        tuple(_case_differences(mine, others)),
        tuple(name for c in compared for name in c.undecided)
        + tuple(f"{case}: undecided in both" for case in common if _open(mine[case]) and _open(others[case])),
        len(common),
    )


def _resume(store: RunStore) -> str:
    """The command that goes on with a run, as far as its plan can be read."""
    try:
        return resume(store.plan(), str(store.path))
    except StoreError:
        return f"powercut run --resume {shlex.quote(full(store.path))}"


def _open(case: CaseRecord) -> bool:
    """Whether a case has not been decided as a whole; one that was left out has nothing to decide."""
    return case.status in (CaseStatus.PLANNED, CaseStatus.RECORDED, CaseStatus.UNKNOWN)


def _case_differences(
    mine: dict[CaseId, CaseRecord], others: dict[CaseId, CaseRecord]
) -> Iterator[CaseDifference]:
    for case in dict.fromkeys([*mine, *others]):
        came = [c.status.value if (c := cases.get(case)) else "no such case" for cases in (mine, others)]
        if came[0] != came[1]:
            yield CaseDifference(case, *came)


def _compare_case(case: CaseId, first: RunStore, second: RunStore) -> Comparison:
    """The states of a case that both runs have."""
    a, b = first.case(case), second.case(case)
    if a is None or b is None or _other_recording(a.info.log_hash, b.info.log_hash):
        raise UsageError(
            f"{case}: the runs judged different recordings, so their crash points cannot be compared",
            "make the second run with: powercut run --recordings FIRST",
        )
    mine, theirs = _verdicts(case, first), _verdicts(case, second)
    order = dict.fromkeys(v.state for store in (first, second) for v in store.iter_verdicts(case))
    pairs = [(CrashPoint(case, s), mine.get(str(s)), theirs.get(str(s))) for s in order]
    return Comparison(
        len(mine.keys() & theirs.keys()),
        tuple(Disagreement(point, one, two) for point, one, two in pairs if one != two),
        undecided=tuple(
            f"{point}: UNKNOWN in both" for point, one, two in pairs if one == two and _is_unknown(one)
        ),
    )


def _is_unknown(judged: Judged | None) -> bool:
    return judged is not None and judged[0] is Verdict.UNKNOWN


def same_recordings(first: RunStore, second: RunStore) -> bool:
    """Whether some case was recorded in both runs, and none that both have was recorded differently: then
    crash points name the same disks.
    """
    others = {c.case: c.info.log_hash for c in second.cases()}
    both = [(c.info.log_hash, others.get(c.case, "")) for c in first.cases()]
    return any(one and two for one, two in both) and not any(_other_recording(*pair) for pair in both)


def _other_recording(first: str, second: str) -> bool:
    """An empty hash means not recorded in that run; then every state of the other is a difference."""
    return bool(first and second and first != second)


def _verdicts(case: CaseId, store: RunStore) -> dict[str, Judged]:
    violated = store.violated(case)
    return {
        str(v.state): (v.verdict, violated.get(str(v.state), frozenset())) for v in store.iter_verdicts(case)
    }


def _described(judged: Judged | None) -> str:
    if judged is None:
        return "not judged"
    verdict, violated = judged
    promises = ", ".join(sorted({f"{oracle} ({signature})" for oracle, signature in violated}))
    return f"{verdict.name} {promises}".strip()
