"""Judge whether a recovered state keeps the promises of its mode. Pure functions, no I/O.

    judge = Judge(contract, history, checks=workload.checks, error_patterns=profile.console.errors)
    judgement = judge.judge(history.position(state.prefix), outcome)

The head of each module says what it models and what it does not check: `replay` (operations), `names` (the
namespace), `allowance` (sizes and bytes), `contents` (naming what is wrong), `surface` (mount, reading,
kernel log, fsck, writing, programs). `vms/filesystems/CONTRACTS.md` holds the rules and their evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.errors import UsageError
from harness.model import Check, History, Judgement, Outcome, Position, Said, Violation
from harness.model.questions import Question
from harness.oracles import surface
from harness.oracles.case import Case, InjectedFault, Oracle
from harness.oracles.confluence import confluence
from harness.oracles.contents import ContentsJudge
from harness.oracles.contract import Contract
from harness.oracles.endings import any_of
from harness.oracles.honesty import honesty
from harness.oracles.question import question
from harness.oracles.replay import replay
from harness.oracles.undecided import Undecided
from harness.oracles.untouched import untouched
from harness.symptoms import paths_of, symptom_of

MAX_VIOLATIONS = 20
"""Limit per oracle and crash state. A state that lost everything needs no longer list. The limit is per
oracle so that a verbose one cannot hide another's violations: each is expected, or not, separately.
"""


def _of_the_model(name: str) -> Oracle:
    """An oracle whose violations come from comparing names and contents with the reference model."""

    def oracle(case: Case) -> Iterator[Violation | Undecided]:
        if not case.mounted:
            return
        if case.judges_names:
            yield from (v for v in case.names.violations if v.oracle == name)
        yield from (f for f in case.faults if isinstance(f, Undecided) or f.oracle == name)

    return oracle


ORACLES: Mapping[str, Oracle] = {
    "assembles": surface.assembles,
    "mountable": surface.mountable,
    "readable": surface.readable,
    "kernel-log": surface.kernel_log,
    "fsck": surface.fsck,
    "usable": surface.usable,
    "durability": _of_the_model("durability"),
    "atomicity": _of_the_model("atomicity"),
    "stale": _of_the_model("stale"),
    "foreign": _of_the_model("foreign"),
    "size": _of_the_model("size"),
    "contents": _of_the_model("contents"),
    "untouched": untouched,
    "outside": surface.outside,
    "program": surface.program,
    "confluence": confluence,
    "honesty": honesty,
    "question": question,
}
"""Every oracle by name, in the order of reporting: what explains the most comes first."""
BY_DEFAULT = tuple(name for name in ORACLES if name != "question")
"""Those that judge where none is named. A question answered with no breaks no promise by itself."""


OF_OPERATIONS = frozenset({"durability", "atomicity", "size", "contents"})
"""The oracles that judge by the operations of a workload: of what a program did, they know nothing."""


def chosen_oracles(names: Sequence[str]) -> dict[str, Oracle]:
    """The oracles of these names; those that judge by default if there are none."""
    return {name: oracle for name, oracle in ORACLES.items() if name in (names or BY_DEFAULT)}


class Judge:
    """Judges the crash states of one case.

    The constructor computes once what does not depend on the crash state. It raises UsageError for a history
    that cannot have happened and for a pattern that is not a regular expression.
    """

    def __init__(
        self,
        contract: Contract,
        history: History,
        *,
        checks: Sequence[Check] = (),
        error_patterns: Sequence[str],
        oracles: Mapping[str, Oracle] = ORACLES,
        question: Question | None = None,
    ) -> None:
        self.contract = contract
        self.timeline = replay(contract, history)
        self._contents = ContentsJudge(contract, self.timeline)
        self._checks = tuple(checks)
        for pattern in error_patterns:
            try:
                re.compile(pattern)
            except re.error as e:
                raise UsageError(f"error pattern {pattern!r}: {e}", "correct it in filesystem.toml") from e
        self._errors = any_of(error_patterns)
        self._oracles = oracles
        self._question = question
        self._paths = paths_of(self.timeline.operations)

    def promise_set(self, position: Position) -> tuple[int, ...]:
        """What positions have in common between which only operations that persist nothing begin and return.

        An outcome that passes at one of them passes at those where more has begun: a promise that held stays
        kept, nothing new is promised, and what an operation that has begun explains, it explains from then
        on.
        """
        promise_sets = self.timeline.promise_sets
        if self.timeline.opaque or self._checks or self._question:
            return (position.begun, position.acked, position.app_acks)
        return (promise_sets[position.begun], promise_sets[position.acked])

    def judge_recording(self, said: Sequence[Said]) -> Judgement:
        """The judgement of the kernel's messages during the recording, which belongs to no crash state."""
        if "kernel-log" not in self._oracles:
            return Judgement()
        found = list(surface.workload_log(said, self._errors, self.timeline.describe))
        violations = [f for f in found if isinstance(f, Violation)]
        unknown = tuple(dict.fromkeys(f.what for f in found if isinstance(f, Undecided)))
        return Judgement(tuple(self._cut("kernel-log", violations)), unknown)

    def judge(
        self,
        position: Position,
        outcome: Outcome,
        undisturbed: Outcome | None = None,
        injected_fault: InjectedFault | None = None,
    ) -> Judgement:
        """The verdict on one recovered crash state, with its violations. `position`: where the power failed.
        `undisturbed`: of the recovery in which it failed once more, or the disk was faulty, the outcome had
        that not been. `injected_fault`: how it erred; then promises are those of `honesty` alone, since all
        others are made for a disk that keeps its own.

        An oracle that raises has judged nothing, so the state is UNKNOWN unless another oracle fails it.
        """
        case = Case(
            self.contract,
            self.timeline,
            self._contents,
            self._checks,
            self._errors,
            position,
            outcome,
            undisturbed,
            injected_fault,
            self._question,
        )
        violations: list[Violation] = []
        unknown: list[str] = []
        for name, oracle in self._oracles.items():
            if injected_fault is not None and name != "honesty":
                continue
            try:
                found = list(oracle(case))
            except Exception as e:  # whatever was raised, this oracle has not judged
                unknown.append(f"oracle {name} failed: {type(e).__name__}: {e}")
                continue
            violations += self._cut(name, [f for f in found if isinstance(f, Violation)])
            unknown += [f.what for f in found if isinstance(f, Undecided)]
        return Judgement(tuple(violations), tuple(dict.fromkeys(unknown)))

    def _cut(self, oracle: str, found: Sequence[Violation]) -> Iterator[Violation]:
        """The first `MAX_VIOLATIONS` of one oracle's violations, and one more for each symptom of those left
        out, which counts them and says what the first of them does: whoever expects each of them expects it,
        and a known bug that each of them is, it is.
        """
        yield from found[:MAX_VIOLATIONS]
        left_out: dict[str, list[Violation]] = {}
        for v in found[MAX_VIOLATIONS:]:
            left_out.setdefault(symptom_of(oracle, v.signature, self._paths).what, []).append(v)
        for symptom, (first, *rest) in left_out.items():
            which = f"{len(rest) + 1} more violations of {oracle} at this crash state are" if rest else ""
            summary = f"{which or f'one more violation of {oracle} at this crash state is'} not listed"
            yield replace(first, summary=f"{summary}, such as {first.summary}", signature=symptom)
