"""What a run directory says, and when that is wrong. Pure, except for reading the directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import ExitCode
from harness.model import Verdict
from harness.store import RunStore
from harness.store.records import Coverage
from harness.summary import CaseVerdict, summarise
from harness.tests.chaos.trial import Defect

State = tuple[str, frozenset[tuple[str, str]]]
"""A verdict, and the violated promises as (oracle, signature)."""


@dataclass(frozen=True, slots=True)
class Said:
    """The verdict, log hash and states of each case; of explored ones, how far they were looked at.
    `in_part`: states that fail, and of which a check could not be made, as where its fsck was killed.
    """

    verdicts: Mapping[str, CaseVerdict]
    logs: Mapping[str, str]
    states: Mapping[str, Mapping[str, State]]
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    in_part: Mapping[str, frozenset[str]] = field(default_factory=dict)


def said(run: Path) -> Said:
    """Read a run directory as the reports do. Raises StoreError like the store."""
    with RunStore.open(run) as store:
        summary = summarise(store)
        states: dict[str, dict[str, State]] = {}
        in_part: dict[str, frozenset[str]] = {}
        for case in summary.cases:
            violated = store.violated(case.case)
            states[str(case.case)] = {
                str(v.state): (v.verdict.value, violated.get(str(v.state), frozenset()))
                for v in store.iter_verdicts(case.case)
            }
            failing = store.iter_verdicts(case.case, Verdict.FAIL)
            in_part[str(case.case)] = frozenset(str(v.state) for v in failing if v.unknown)
        return Said(
            {str(c.case): c.verdict for c in summary.cases},
            {str(c.case): c.info.log_hash for c in summary.cases},
            states,
            {str(c.case): c.info.coverage for c in summary.cases if c.info.coverage},
            in_part,
        )


def of_other_recordings(truth: Said) -> Said:
    """What a run must agree with that made its own recordings: its states and their number may differ."""
    return replace(truth, logs=dict.fromkeys(truth.logs, "of another recording"))


def wrong(truth: Said, now: Said) -> list[Defect]:
    """The defects in `now`: what contradicts `truth`. UNKNOWN is never wrong, it claims nothing."""
    found: list[Defect] = []
    for case, before in truth.verdicts.items():
        after = now.verdicts.get(case)
        if after is None:
            found.append(Defect("false green", f"{case} was {before.value} and is gone"))
        elif after is not CaseVerdict.UNKNOWN:
            if after is not before:
                found.append(Defect(_colour(after), f"{case} is {after.value}, was {before.value}"))
            elif truth.logs[case] == now.logs[case]:
                found += _wrong_states(case, truth.states[case], _completed(truth, now, case))
                found += _wrong_coverage(case, truth.coverage.get(case), now.coverage.get(case))
    return found


def wrong_so_far(truth: Said, now: Said) -> list[Defect]:
    """The defects in a run that was cut off: a state that nobody could look at is UNKNOWN or absent, and what
    is decided is decided as in the undisturbed run.
    """
    found: list[Defect] = []
    for case in now.states:
        if truth.logs.get(case) != now.logs[case]:
            continue
        for state, after in _completed(truth, now, case).items():
            before = truth.states[case].get(state, after)
            if after != before and after[0] != Verdict.UNKNOWN.value:
                kind = "false green" if after[0] == Verdict.PASS.value else "changed states"
                what = f"{_told(after)}, was {_told(before)}"
                found.append(Defect(kind, f"{case}{state}, cut off: {what}"))
                break
    return found


def _completed(truth: Said, now: Said, case: str) -> Mapping[str, State]:
    """The states of a case. Where a check could not be made, the promises that it would have found broken are
    those of `truth`: it claims nothing of them.
    """
    states = dict(now.states[case])
    for name in now.in_part.get(case, frozenset()):
        verdict, violated = states[name]
        wanted = truth.states[case].get(name)
        if wanted is not None and violated and violated < wanted[1]:
            states[name] = verdict, wanted[1]
    return states


def _colour(after: CaseVerdict) -> str:
    return "false red" if after is CaseVerdict.FAIL else "false green"


def _wrong_states(case: str, truth: Mapping[str, State], now: Mapping[str, State]) -> list[Defect]:
    differing = [s for s in truth.keys() | now.keys() if truth.get(s) != now.get(s)]
    if not differing:
        return []
    state = min(differing)
    before, after = _told(truth.get(state)), _told(now.get(state))
    return [
        Defect(
            "changed states", f"{case}: {len(differing)} states differ, e.g. {state}: {after}, was {before}"
        )
    ]


def _wrong_coverage(case: str, before: Coverage | None, after: Coverage | None) -> list[Defect]:
    """How many guests it took is no claim."""
    if before is not None and after is not None:
        after = replace(after, visits=before.visits)
    if before == after:
        return []
    return [Defect("changed coverage", f"{case} covers {after}, was {before}")]


def _told(state: State | None) -> str:
    return "absent" if state is None else " ".join([state[0], *sorted({o for o, _ in state[1]})])


def wrong_code(truth: int, code: int) -> Defect | None:
    """The defect of an exit code that contradicts the undamaged run's. Refusing (2, 3) is always right."""
    if code in (truth, ExitCode.USAGE, ExitCode.UNDECIDED):
        return None
    if code == ExitCode.CONSISTENT:
        return Defect("false green", f"exit code 0 instead of {truth}")
    if code == ExitCode.INCONSISTENT:
        return Defect("false red", f"exit code 1 instead of {truth}")
    return Defect("exit code", f"exit code {code} instead of {truth}")


def wrong_words(output: str) -> Defect | None:
    """The defect of a traceback in `output`, named by its last line."""
    if "Traceback (most recent call last)" not in output and "panicked at" not in output:
        return None
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if line[0].isalpha() and ("Error" in line or "Exception" in line or "panicked" in line)
    ]
    where = [line.strip() for line in lines if line.startswith("  File ")]
    last = errors[-1] if errors else lines[-1]
    return Defect("traceback", f"{last} ({where[-1] if where else 'no place'})")
