"""Two runs of the same recordings, verdict by verdict: what did the memo, or another machine, change?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import UsageError
from harness.model import CaseId, CrashPoint, Verdict
from harness.store import RunStore


@dataclass(frozen=True, slots=True)
class Difference:
    """A crash point on which two runs do not agree. `first`, `second`: verdict and violated promises."""

    point: CrashPoint
    first: tuple[Verdict, frozenset[tuple[str, str]]]
    second: tuple[Verdict, frozenset[tuple[str, str]]]

    def __str__(self) -> str:
        return f"{self.point}: {_told(self.first)} in the first, {_told(self.second)} in the second"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`states` were compared; `differences` among them."""

    states: int
    differences: tuple[Difference, ...]


def compare(first: RunStore, second: RunStore) -> Comparison:
    """Hold every verdict that both runs have of their common cases against each other.

    Raises UsageError where they share no case, or judged different recordings of one: then crash points of
    one name are different disks.
    """
    common = [c.case for c in first.cases() if second.case(c.case)]
    if not common:
        raise UsageError(
            f"{first.path.name} and {second.path.name} share no case",
            "compare a run with one made by: powercut run --recordings RUN",
        )
    states = 0
    differences: list[Difference] = []
    for case in common:
        count, found = _compare_case(case, first, second)
        states += count
        differences += found
    return Comparison(states, tuple(differences))


def _compare_case(case: CaseId, first: RunStore, second: RunStore) -> tuple[int, Iterator[Difference]]:
    a, b = first.case(case), second.case(case)
    if a is None or b is None or a.info.log_hash != b.info.log_hash:
        raise UsageError(
            f"{case} was recorded anew in one of the runs: its crash points cannot be compared",
            "make the second run with: powercut run --recordings FIRST",
        )
    seen_a, seen_b = _verdicts(case, first), _verdicts(case, second)
    both = seen_a.keys() & seen_b.keys()
    order = [v.state for v in first.iter_verdicts(case) if str(v.state) in both]
    return len(both), (
        Difference(CrashPoint(case, state), seen_a[str(state)], seen_b[str(state)])
        for state in order
        if seen_a[str(state)] != seen_b[str(state)]
    )


def _verdicts(case: CaseId, store: RunStore) -> dict[str, tuple[Verdict, frozenset[tuple[str, str]]]]:
    violated = store.violated(case)
    return {
        str(v.state): (v.verdict, violated.get(str(v.state), frozenset())) for v in store.iter_verdicts(case)
    }


def _told(seen: tuple[Verdict, frozenset[tuple[str, str]]]) -> str:
    verdict, violated = seen
    promises = ", ".join(sorted({f"{oracle} ({signature})" for oracle, signature in violated}))
    return f"{verdict.name} {promises}".strip()
