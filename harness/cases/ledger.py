"""What of one case goes into the store, and when. Only the thread that owns the store uses it.

A mismatch of the memo (`harness.cases.outcome_memo`) revokes what the memo answered. So an answer from the
memo is *provisional* until its case is DONE without mismatch, even if the run is killed in between:

1. A mismatch arises in a worker's thread, and is in the store before anything is reported that came after it.
   The thread that owns the store reads `Examiner.memo.mismatch`, which waits for that, before it stores
   anything of a case.
2. Answers recalled and stored before the mismatch are rows of a case that is not DONE. Once this run has read
   the mismatch, it makes them UNKNOWN, and the engine visits their contents. If it is killed first, the run
   that resumes it does so: it trusts no recalled answer of a case that is not DONE.
3. Answers recalled before the mismatch but not yet stored are discarded, and their contents visited.
4. A kill before the mismatch is stored loses it. When the run is resumed, everything that the memo answered
   is looked at again.
5. After a kill that comes later, the resumed case begins with the mismatch, without a memo, and ends UNKNOWN.
6. A mismatch from the last visit, or from a confirmation, is read before the case is finished, since no task
   of the case is pending then. After that, no task can find a mismatch.

A resumed run never knows less than the run did before: a case that begins anew keeps what an earlier part
stored of each state until the state is visited again, or the case has come to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.cases import application
from harness.cases.examine import Examiner, Group, JudgedGroup
from harness.cases.recording import NOTHING_KNOWN, Recording
from harness.filesystems.profile import Profile
from harness.grouping import by_key
from harness.host.progress import Progress
from harness.model import (
    CaseId,
    CrashState,
    Judgement,
    OperationKind,
    Outcome,
    Verdict,
    Violation,
    Workload,
)
from harness.oracles import BY_DEFAULT
from harness.oracles.surface import WHILE_RECORDED
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseRecord,
    CaseStatus,
    Coverage,
    DrawnCalls,
    Evidence,
    FaultyDiskResult,
    Finding,
    How,
    JudgedState,
    NestedCrashes,
    StateVerdict,
    calls_drawn,
    state_order,
    steps_of,
    timeline_of,
)

Key = tuple[str, str]
"""A finding's oracle and signature."""
CONFIRMED = "confirmed"
"""The note beside a finding's evidence that says what another machine answered."""


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """What is to be recorded. `mismatch`: of the memo, found in an earlier part of the run. `final`: that
    part had the case DONE, without mismatch. `before`: the case as that part left it. `files`: hashes that
    the files of its recording had, where there is one. `seconds`: that earlier parts worked at it. `begun`:
    whether one looked at its states.
    """

    profile: Profile
    workload: Workload
    id: CaseId
    mismatch: str = ""
    final: bool = False
    before: CaseInfo | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    begun: bool = False


def info_of(case: PlannedCase, plan: Plan) -> CaseInfo:
    """The case as it is stored before it is recorded."""
    return CaseInfo(
        case=case.id,
        mkfs_options=case.profile.mkfs_line,
        mount_options=case.profile.mount_options,
        workload_summary=case.workload.summary,
        oracles=plan.oracles or BY_DEFAULT,
    )


def line_up(
    plan: Plan,
    store: RunStore,
    wanted: Iterable[tuple[Profile, Workload]],
    lacking: Mapping[str, str],
    recorded: Mapping[CaseId, Mapping[str, str]],
    on_done: Callable[[CaseId], None],
) -> Sequence[PlannedCase]:
    """The cases that can be run here, in the order in which they are to be: where time is limited, those at
    which no earlier part looked come first. All that are `wanted` have a row then; `on_done` is told of those
    that cannot be run. `lacking`, `recorded`: as of `Casework`.
    """
    known = {record.case: record for record in store.cases()}
    planned = []
    for profile, workload in wanted:
        name = CaseId(profile.filesystem, profile.mode, workload.name)
        case = PlannedCase(profile, workload, name, files=recorded.get(name, NOTHING_KNOWN))
        if before := known.get(case.id):
            final = _is_final(before)
            case = replace(
                case,
                mismatch=before.mismatch,
                final=final,
                files=before.info.files or case.files,
                before=before.info,
                seconds=before.seconds,
                begun=before.status is not CaseStatus.PLANNED,
            )
        else:  # an existing row stays: it tells whether the recording is still the same
            store.add_case(info_of(case, plan))
        if reason := lacking.get(profile.name) or lacking.get(workload.name):
            store.set_case_status(case.id, CaseStatus.NOT_RUN, reason)
            on_done(case.id)
        else:
            planned.append(case)
    return planned if plan.minutes is None else sorted(breadth_first(planned), key=lambda case: case.begun)


def _is_final(record: CaseRecord) -> bool:
    return record.status is CaseStatus.DONE and not record.mismatch


def is_decided(store: RunStore, record: CaseRecord) -> bool:
    """Whether an earlier part of the run left nothing to do of a case."""
    return _is_final(record) and not store.counts(record.case).unknown


def breadth_first(cases: Iterable[PlannedCase]) -> list[PlannedCase]:
    """A workload in all modes before the next one: a run that ends early has looked at every mode."""
    rounds = by_key((case.workload.name, case) for case in cases)
    return [case for together in rounds.values() for case in together]


def next_in_turn(cases: Iterable[PlannedCase], spent: Mapping[str, float]) -> PlannedCase:
    """The first case of the mode at which least was worked, so that a slow mode does not take the time of
    all; before any that an earlier part began. `spent`: seconds, by mode.
    """
    return min(cases, key=lambda case: (case.begun, spent.get(case.profile.name, 0.0)))


class Ledger:
    """See the module. `smallest`: the smallest state of each finding that this part of the run, or one that
    it goes on with, has visited.
    """

    def __init__(
        self, case: PlannedCase, examiner: Examiner, store: RunStore, plan: Plan, progress: Progress
    ) -> None:
        self._case, self._examiner, self._store = case, examiner, store
        self._plan, self._progress = plan, progress
        self._mismatch = case.mismatch
        self._provisional: list[Group] = []
        self._told: set[int] = set()
        self._expected = 0
        self._counted = (0, 0)
        self._in_order = (0, 0)  # states, and contents, of the log's own order, whatever a budget leaves out
        self._earlier: set[str] = set()  # states of an earlier part, until this one has visited them
        self.smallest: dict[Key, CrashState] = {}

    @property
    def id(self) -> CaseId:
        return self._case.id

    # --- begin --------------------------------------------------------------------------------

    def recorded(self, groups: Sequence[Group], why_not_legal: str) -> bool:
        """Store what is known of a case once it is recorded. `groups`: its states, if they are those of the
        log's own order. Returns whether an earlier part of the run decided all of it: then it stays as that
        part left it. Raises StoreError if it was judged on another recording; those verdicts stay as they
        are.
        """
        recording, before = self._examiner.recording, self._case.before
        self._in_order = sum(len(g.states) for g in groups), len(groups)
        info = replace(
            info_of(self._case, self._plan),
            generated=self._in_order[0],
            distinct=self._in_order[1],
            log_hash=recording.digest(),
            steps=steps_of(recording.history),
            timeline=timeline_of(recording.write_log.entries),
            files=dict(recording.files),
            calls=_calls(recording),
            coverage=Coverage(0, -1, 0, 0, why_not_legal) if why_not_legal else None,
        )
        places = application.calls_by_lines(recording.calls, recording.times)
        if why := application.at_once(self._case.workload, places):
            self._progress.say(f"{self.id}: {why}")
        if before is not None:
            info = replace(info, doubt=before.doubt)
        decided = before is not None and self._is_decided
        if before is not None and decided:
            info = replace(before, log_hash=info.log_hash, timeline=info.timeline)
        elif before is not None and before.coverage is not None and self._case.final and not self.begins_anew:
            info = replace(
                info, generated=before.generated, distinct=before.distinct, coverage=before.coverage
            )
        self._store.add_case(info)
        return decided

    @property
    def _is_decided(self) -> bool:
        """Whether an earlier part of the run decided all of it."""
        verdicts = self._store.iter_verdicts(self.id)
        return self._case.final and all(v.verdict is not Verdict.UNKNOWN for v in verdicts)

    @property
    def begins_anew(self) -> bool:
        """Whether what an earlier part of the run left unfinished is looked at from the begin: of legal
        states, and where recoveries are cut or the disk is faulty.
        """
        return self._examiner.recording.legal is not None or bool(self._plan.again or self._plan.disk)

    def left(self, groups: Sequence[Group]) -> list[Group]:
        """The contents still to be visited: those with an UNKNOWN or missing verdict, and those that the
        memo answered. What a budget left out of a final case stays out.
        """
        verdicts = {v.state: v for v in self._store.iter_verdicts(self.id)}
        before = self._case.before
        if self._case.final and before is not None and before.coverage is not None:
            known = {v.content_hash for v in verdicts.values()}
            groups = [g for g in groups if g.content_hash in known]
        return [g for g in groups if not _is_decided([verdicts.get(s) for s in g.states])]

    def begin(self, *, expected: int) -> None:
        """From now on, states are visited. `expected`: how many, as far as that is known."""
        if self.begins_anew:
            self._earlier = self._store.judged_states(self.id)
            if self._mismatch:
                self._forget_recalled()
        self._store.set_case_status(self.id, CaseStatus.RECORDED)
        self._expected = expected
        self._progress.begin("states", expected)
        self.smallest = self._smallest()

    def resume_decided(self) -> set[Key]:
        """No state is visited. Returns the findings that another machine was asked about."""
        self.smallest = self._smallest()
        return {key for key, state in self.smallest.items() if self._was_confirmed(key, state)}

    def _was_confirmed(self, key: Key, state: CrashState) -> bool:
        evidence = self._store.evidence(finding_at(self.id, key, state))
        return evidence is not None and CONFIRMED in evidence.notes

    # --- keep ---------------------------------------------------------------------------------

    def keep(self, observed: Sequence[JudgedGroup]) -> None:
        """Store judgements, without those that a mismatched memo recalled."""
        mismatched = self.mismatched()
        kept = [s for s in observed if not (mismatched and s.observation.recalled)]
        self._store.put_judgements(self.id, [j for s in kept for j in s.judged])
        if self._earlier:
            self._earlier.difference_update(str(j.state) for s in kept for j in s.judged)
        for s in kept:
            self._keep_evidence(s)
        self._provisional += [s.group for s in observed if s.observation.recalled]
        self._advance([j.state for s in observed for j in s.judged])

    def _advance(self, states: Sequence[CrashState]) -> None:
        """Tell of the states that were not judged before: one may be of several crash times."""
        known = len(self._told)
        self._told.update(map(hash, states))
        count = len(self._told) - known
        if count > self._expected:
            self._progress.begin("states", count - self._expected)
        self._expected = max(0, self._expected - count)
        self._progress.advance("states", count)

    def mismatched(self) -> str:
        """The mismatch of the memo, if there is one. Stores it, and makes what the memo answered UNKNOWN.
        Must be called before anything of a case is stored.
        """
        mismatch = self._examiner.memo.mismatch
        if mismatch and mismatch != self._mismatch:
            self._progress.say(f"{self.id}: {mismatch}; visiting again what the memo answered")
            self._store.set_case_mismatch(self.id, mismatch)  # again, in case it could not be stored at once
            self._store.put_judgements(
                self.id,
                [
                    JudgedState(state, group.content_hash, Judgement(unknown=(mismatch,)), How.MEMO)
                    for group in self._provisional
                    for state in group.states
                ],
            )
            self._mismatch = mismatch
            self._forget_recalled()
            self.smallest = self._smallest()
        return mismatch

    def _forget_recalled(self) -> None:
        """Forget what the memo answered in an earlier part, of states that this one has not visited yet."""
        recalled = {str(v.state) for v in self._store.iter_verdicts(self.id) if v.how is How.MEMO}
        self._store.forget_states(self.id, recalled & self._earlier)
        self._earlier -= recalled

    def _smallest(self) -> dict[Key, CrashState]:
        found = self._store.findings_of(self.id)
        return {(f.oracle, f.signature): f.state for f in found if str(f.state) not in self._earlier}

    def _counts(self) -> tuple[int, int]:
        """The states, and the contents, that have a verdict, without those of an earlier part."""
        if not self._earlier:
            counts = self._store.counts(self.id)
            return counts.checked, counts.contents
        rows = [v for v in self._store.iter_verdicts(self.id) if str(v.state) not in self._earlier]
        return len(rows), len({v.content_hash or str(v.state) for v in rows})

    def _keep_evidence(self, observed: JudgedGroup) -> None:
        """Store the evidence of each finding's smallest state; the store itself folds violations into
        findings.
        """
        outcome = observed.observation.outcome
        if not isinstance(outcome, Outcome):
            return
        for judged in observed.judged:
            for violation in judged.judgement.violations:
                key = (violation.oracle, violation.signature)
                known = self.smallest.get(key)
                if known is None or state_order(judged.state) < state_order(known):
                    self.smallest[key] = judged.state
                    finding = finding_at(self.id, key, judged.state)
                    self._store.put_evidence(finding, self._evidence(judged.state, outcome, violation))

    def _evidence(self, state: CrashState, outcome: Outcome, violation: Violation) -> Evidence:
        recording = self._examiner.recording
        if violation.signature.startswith(WHILE_RECORDED):
            return evidence_of_recording(recording)
        if not application.has_notes(recording.workload):
            return evidence_of(state, outcome, {})
        position, before = recording.position(state), recording.cut_before(state)
        calls = application.lines(recording.calls, recording.times, before)
        notes = application.notes(recording.workload, recording.history, position, outcome, calls)
        return evidence_of(state, outcome, notes)

    def confirmed(self, key: Key, answer: str) -> None:
        """Note beside a finding's evidence what another machine said."""
        self.mismatched()
        if key not in self.smallest:  # only the memo had found it, and that is mismatched now
            return
        finding = finding_at(self.id, key, self.smallest[key])
        evidence = self._store.evidence(finding) or Evidence(self.smallest[key])
        self._store.put_evidence(finding, replace(evidence, notes={**evidence.notes, CONFIRMED: answer}))

    # --- end ----------------------------------------------------------------------------------

    def put_coverage(self, coverage: Coverage | None) -> None:
        """Store how far the case was looked at; None: all that was to be covered."""
        if coverage is None:
            return
        record = self._store.case(self.id)
        assert record is not None  # noqa: S101 - it was added when it was recorded; tells mypy
        (checked, contents), (states, distinct), info = self._counts(), self._in_order, record.info
        if not coverage.crash_times:
            why = (
                f"{checked:,} of {states:,} states of the log's order, {contents:,} of "
                f"{distinct:,} different ones; ended by {coverage.why}"
            )
            self._progress.say(
                f"{self.id}: looked at {checked:,} of {states:,} crash states; ended by {coverage.why}"
            )
            left = max(coverage.unexplored, states - checked)  # states, as the reports count them
            coverage = replace(coverage, unexplored=left, why=why)
        self._store.add_case(
            replace(
                info,
                generated=checked,
                distinct=contents,
                coverage=coverage,
                timeline=self._store.timeline(self.id),
            )
        )

    def put_again(self, cut: NestedCrashes) -> None:
        """Store how far recoveries were cut at one more depth; what was looked at before is stored."""
        self._add(lambda info: replace(info, again=(*info.again, cut)))

    def put_disk(self, erred: FaultyDiskResult) -> None:
        """Store the result of a faulty disk. The states looked at before are stored already."""
        self._add(lambda info: replace(info, disk=erred))

    def _add(self, changed: Callable[[CaseInfo], CaseInfo]) -> None:
        """Store what was looked at since the last count."""
        record = self._store.case(self.id)
        assert record is not None  # noqa: S101 - it was added when it was recorded; tells mypy
        before, info = self._counted, changed(record.info)
        self._counted = checked, contents = self._counts()
        self._store.add_case(
            replace(
                info,
                generated=info.generated + checked - before[0],
                distinct=info.distinct + contents - before[1],
                timeline=self._store.timeline(self.id),
            )
        )

    def count(self) -> None:
        """What is stored from now on belongs to cuts in recoveries, or to a faulty disk."""
        self._counted = self._counts()

    def _put_recording(self) -> None:
        """Store what the kernel said while the workload ran, if the state after its end, to which that
        belongs, was not visited: a budget left it out, or its name is another one.
        """
        recording, judged = self._examiner.recording, self._examiner.of_recording
        end = recording.end
        record = self._store.case(self.id)
        if judged == Judgement() or record is None or str(end) in self._store.judged_states(self.id):
            return
        known = self._store.counts(self.id).contents
        (content,) = self._examiner.memo.hashes([recording.on_disk(end)])
        self._store.put_judgements(self.id, [JudgedState(end, content, judged)])
        for violation in judged.violations:
            key = (violation.oracle, violation.signature)
            self._store.put_evidence(finding_at(self.id, key, end), evidence_of_recording(recording))
        more = self._store.counts(self.id).contents - known
        info = replace(record.info, timeline=self._store.timeline(self.id))
        self._store.add_case(replace(info, generated=info.generated + 1, distinct=info.distinct + more))

    def finish(self) -> None:
        """Close the case. What this part did not visit, and an earlier one did, is forgotten."""
        self._store.forget_states(self.id, self._earlier)
        self._earlier = set()
        self._put_recording()
        self._progress.begin("states", -self._expected)  # a budget left these out
        before = self._store.case(self.id)
        if before and self._examiner.doubt:
            timeline = self._store.timeline(self.id)
            self._store.add_case(replace(before.info, doubt=self._examiner.doubt, timeline=timeline))
        mismatched = self.mismatched()
        self._store.set_case_status(
            self.id, CaseStatus.UNKNOWN if mismatched else CaseStatus.DONE, mismatched
        )

    def give_up(self, reason: str) -> None:
        """Close the case as UNKNOWN: nothing says how far it was covered."""
        self._progress.say(f"{self.id}: {reason}")
        self._store.set_case_status(self.id, CaseStatus.UNKNOWN, reason)


def _calls(recording: Recording) -> DrawnCalls | None:
    """What programs of the workload asked of the kernel; None where it has no programs."""
    if all(o.kind is not OperationKind.RUN for o in recording.workload.operations):
        return None
    why_not = (
        f"recorded without times ({recording.no_times})" if recording.no_times else "the recording has none"
    )
    return calls_drawn(recording.write_log.entries, recording.times, recording.calls, why_not)


def _is_decided(verdicts: Sequence[StateVerdict | None]) -> bool:
    """Whether these states of one content have a verdict that a guest decided."""
    known = [v for v in verdicts if v is not None and v.verdict is not Verdict.UNKNOWN]
    return len(known) == len(verdicts) and not any(v.how is How.MEMO for v in known)


def finding_at(case: CaseId, key: Key, state: CrashState) -> Finding:
    """The finding of that (oracle, signature) at this state, in the form that the store takes."""
    return Finding(case, *key, state=state, violations=(), states=1)


def evidence_of_recording(recording: Recording) -> Evidence:
    """What the kernel said while the workload ran, with the operations in which it did."""
    operations = recording.workload.operations
    log: list[str] = []
    for part in recording.said:
        at = "mount or unmount" if part.operation is None else f"operation {part.operation}: "
        log += [f"--- {at}{'' if part.operation is None else operations[part.operation]} ---", *part.lines]
    return Evidence(recording.end, kernel_log="\n".join(log))


def evidence_of(state: CrashState, outcome: Outcome, notes: Mapping[str, str]) -> Evidence:
    """The kernel log and fsck's output, which people need beside a violation, and other texts."""
    log = [*outcome.kernel_log] or [outcome.lost]
    if (used := outcome.usable) is not None and (said := [*used.kernel_log] or [used.lost]) != [""]:
        log += ["--- when the recovered file system was mounted again, written to and emptied ---", *said]
    after_fault = outcome.after_fault
    if after_fault is not None:
        log += ["--- the next mount, when the disk was faulty no more ---", *after_fault.kernel_log]
    fsck = after_fault.fsck if after_fault is not None else outcome.fsck
    return Evidence(
        state,
        kernel_log="\n".join(log),
        fsck=fsck.output if fsck else "",
        notes=dict(notes),
    )
