"""Reduces the workload of a finding to the operations it needs.

Each candidate is a subsequence of the operations that the reference model accepts. It is recorded, and all
its crash states are judged, on the mode and kernel of the run; it is kept if it still shows the finding's
symptom: another violation of the same oracle would be another finding. The result is a workload file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.cases.recording import Recording
from harness.errors import NotSupported, PowercutError, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.findings.experiment import Enough, Equipment, open_equipment, violations
from harness.findings.fewest_decisions import fewest_decisions
from harness.findings.named import finding_by_id, not_a_point
from harness.findings.simplify import shortest
from harness.guests.threads import ThreadsTold, told
from harness.host.files import toml_string
from harness.known.match import LoggedOperation
from harness.model import CaseId, CrashState, Operation, Violation, Workload
from harness.model.schedules import (
    NEVER,
    ScheduleName,
    schedule_of,
    under_schedule,
    with_threads,
    without_schedule,
)
from harness.report.explanation import read_explanation
from harness.report.shrunk import head
from harness.report.words import plural
from harness.store import RunStore
from harness.store.meaning import Meaning
from harness.store.records import MAKE_DURABLE, CaseStatus, Finding, steps_of, timeline_of
from harness.symptoms import paths_of, symptom_of
from harness.trust import Named, plan_here, vouched_workload

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """`summary`: the violation that the last recording showed. `tried`: candidates recorded. `interrupted`:
    fewer operations might do. `decisions`: which thread ran when, in words, where that is all that is left of
    a schedule.
    """

    workload: Workload
    oracle: str
    summary: str
    tried: int
    interrupted: bool = False
    decisions: tuple[str, ...] = ()


def finding_to_shrink(store: RunStore, text: str, oracle: str) -> Finding | None:
    """The finding to keep: that with the id `text`; or of a case (`ext4-nobarrier/random1-17-20`), or of one
    of its crash points, the first: those shown at that point before others, unexpected ones before expected
    ones; of `oracle`, if named. None if the case has none: it passed. Raises UsageError for a case or oracle
    that the run does not have.
    """
    if (by_id := finding_by_id(text, store)) is not None:
        if oracle not in ("", by_id.oracle):
            raise UsageError(f"{text} is a finding of {by_id.oracle}, not of {oracle}", "leave out --oracle")
        return by_id
    try:
        case = CaseId.named_in(text)
    except ValueError as e:
        raise UsageError(*not_a_point(text, store, str(e))) from e
    known = store.case(case)
    if known is None:
        raise UsageError(f"the run {store.path.name} has no case {case}", "the report names the cases")
    findings = [f for f in store.findings() if f.case == case]
    if not findings and known.status is not CaseStatus.DONE:
        raise UsageError(
            f"{case} was not decided: {known.reason or known.status.value}", "run it again first"
        )
    found = [f for f in findings if oracle in ("", f.oracle)]
    if findings and not found:
        has = ", ".join(dict.fromkeys(f.oracle for f in findings))
        raise UsageError(f"{case} has no finding of {oracle!r}", f"it has: {has}")
    return min(found, key=lambda f: (str(f.crash_point) != text, f.expectation is not None), default=None)


def shrink(store: RunStore, finding: Finding, named: Named, say: Say) -> Shrunk | None:
    """The shortest workload found that shows the finding (`SameFinding`); None if a new recording of the
    whole workload does not show it. If it is interrupted, the shortest until then. Raises
    UsageError for a workload that is not a list of operations, and for files that only the run directory
    names; what kept the whole workload from being recorded; KeyboardInterrupt if nothing shorter was known.
    """
    plan, case = plan_here(store, named), finding.case
    (profile,) = select_profiles([case.configuration])
    workload = vouched_workload(store, named, case.workload)
    if workload.opaque:
        raise UsageError(f"{workload.name} runs programs", "only lists of operations can be shrunk")
    same = SameFinding(store, finding, paths_of(workload.operations))
    with open_equipment(plan, store, profile, workload, named) as equipment:
        candidates = _Candidates(equipment, profile, case, same.is_shown, say)
        try:
            if not candidates.holds(workload.operations):
                if candidates.failed is not None:
                    raise candidates.failed
                return None
            left, interrupted = shortest(profile.contract, workload.operations, candidates.holds), False
            candidates.reduce_schedule(left)
        except KeyboardInterrupt:
            left, interrupted = candidates.left, True
            candidates.chosen = candidates.shown_under
            if not left or left == workload.operations:
                raise
    return Shrunk(
        Workload(_shrunk(case.workload, candidates.chosen), workload.summary, left),
        finding.oracle,
        candidates.seen,
        candidates.tried,
        interrupted,
        candidates.decisions,
    )


def _shrunk(name: str, chosen: ScheduleName) -> str:
    """The name of a shrunk workload, under the rest of its schedule."""
    plain, _ = without_schedule(name)
    return under_schedule(f"{plain}-shrunk", chosen)


class SameFinding:
    """Whether what another workload shows is a finding, so far as is known: it has the symptom
    (`harness.symptoms`; another violation of the same oracle would be another finding), with nothing lost if
    and only if that is so of the finding, and is no known bug or known loss that the finding is not. Of
    what a candidate shows nobody knows the cause: it is taken for that of the finding.
    """

    def __init__(self, store: RunStore, finding: Finding, paths: Sequence[str]) -> None:
        self._symptom = symptom_of(finding.oracle, finding.signature, paths)
        self._is_whole, self._name = finding.spared.is_whole, _known_as(finding)
        self._meaning = Meaning.of(store.expectations(), store.known(), store.info.kernel)
        explained = read_explanation(store.layout, finding.id)
        self._cause = explained.mechanism_name if explained else ""

    def is_shown(self, recording: Recording, state: CrashState, violation: Violation) -> bool:
        """By a violation at a crash state of a recording."""
        symptom = symptom_of(violation.oracle, violation.signature, paths_of(recording.workload.operations))
        if symptom != self._symptom or state.is_whole != self._is_whole:
            return False
        shown = Finding(
            recording.case, violation.oracle, violation.signature, state, (violation,), 1, what=symptom.what
        )
        ran = [LoggedOperation(s.operation, s.begin, s.ack) for s in steps_of(recording.history)]

        def flushed(begin: int, end: int) -> bool:
            drawn = timeline_of(recording.write_log.entries)
            return any(begin < e.index < end and e.kind in MAKE_DURABLE for e in drawn)

        told = self._meaning.given_to(shown, ran, flushed, lambda: self._cause)
        return _known_as(told) in ("", self._name)


def _known_as(finding: Finding) -> str:
    return finding.known.bug.name if finding.known else finding.loss


class _Candidates:
    """Records and judges candidates. `is_shown`: whether what one shows is the finding. `left`: the last one
    that held; `seen`: the violation that it showed, `shown_under`: the schedule. `chosen`: that of the next
    candidate, and in the end what is left of it; `decisions`: that in words. `failed`: why the last candidate
    could not be tried.
    """

    def __init__(
        self, equipment: Equipment, profile: Profile, case: CaseId, is_shown: Enough, say: Say
    ) -> None:
        self._equipment, self._profile, self._case, self._say = equipment, profile, case, say
        self._is_shown = is_shown
        self.tried = 0
        self.seen = ""
        self.left: tuple[Operation, ...] = ()
        self.chosen = self.shown_under = without_schedule(case.workload)[1]
        self.decisions: tuple[str, ...] = ()
        self.failed: PowercutError | None = None

    def reduce_schedule(self, operations: Sequence[Operation]) -> None:
        """Leave of the schedule what these operations need to show the finding."""
        if not (given := self.chosen):
            return

        def said() -> ThreadsTold | None:
            self.chosen = given
            self.holds(operations)
            return self._told()

        def holds(chosen: ScheduleName) -> bool:
            self.chosen = chosen
            return self.holds(operations)

        seen = self.seen
        schedule = schedule_of(given, len(operations))
        decides = self._equipment.recorder.decides_threads(schedule)
        threads = with_threads(schedule).threads if decides else None
        left = fewest_decisions(given, threads, said, holds)
        # What is told of a violation is what the last recording said: that must be one of this schedule.
        shows = holds(left) if left.only or left != self.shown_under else True
        self.chosen = left if shows else given
        if not shows:
            self.seen = seen
        elif left.only and (made := self._told()):
            self.decisions = tuple(f"{number}: {text}" for number, text in made.lines.items())

    def _told(self) -> ThreadsTold | None:
        return told(line for part in self._equipment.recorder.said for line in part.lines)

    def holds(self, operations: Sequence[Operation]) -> bool:
        """Whether some crash state of these operations shows the finding. A workload that
        cannot be recorded shows none.
        """
        self.tried += 1
        self.failed = None
        try:
            found = self._violation(operations)
        except NotSupported as e:
            raise UsageError(e.what) from e
        except PowercutError as e:
            self.failed = e
            self._say(f"{self._what(operations)}: cannot be tried: {e.what}")
            return False
        self._say(f"{self._what(operations)}: {found or 'does not show it'}")
        if found:
            self.seen, self.left, self.shown_under = found, tuple(operations), self.chosen
        return bool(found)

    def _what(self, operations: Sequence[Operation]) -> str:
        only = self.chosen.only
        decisions = "no decision" if only == (NEVER,) else plural(len(only), "decision")
        noun = "operation" if len(operations) == 1 else "operations"
        return f"{len(operations):3} {noun}" + (f", {decisions} of the schedule" if only else "")

    def _violation(self, operations: Sequence[Operation]) -> str:
        plain, _ = without_schedule(self._case.workload)
        case = dataclasses.replace(self._case, workload=under_schedule(plain, self.chosen))
        kept: list[str] = []

        def is_kept(recording: Recording, state: CrashState, v: Violation) -> bool:
            if shown := self._is_shown(recording, state, v):
                kept.append(f"{state} {v.oracle}: {v.summary}")
            return shown

        name = f"candidate-{self.tried}"
        violations(self._equipment, self._profile, case, name, operations, is_kept)
        return kept[0] if kept else ""


def workload_file(shrunk: Shrunk, case: CaseId, finding: str) -> str:
    """The workload in the format of `workloads/`, with a comment on what it shows, shrunk from a finding with
    this id; a bug report reads it.
    """
    lines = [
        *head(case.configuration, shrunk.summary, case, finding),
        f"summary = {toml_string(f'{shrunk.oracle}, shrunk from {case.workload}')}",
        "operations = [",
        *(f"    {toml_string(str(op))}," for op in shrunk.workload.operations),
        "]",
        *(f"# which thread runs, by number of the point: {line}" for line in shrunk.decisions),
    ]
    return "\n".join(lines).replace("\t", " ") + "\n"
