"""Steps 5 to 8 of a run: every case is recorded, and each of its crash states looked at, judged and stored.

A case takes four steps: *record* its workload, *look* at the contents of its crash states, *confirm* its
findings on the machine that people run, *finish*. Each step is a task that runs in a station's thread and
returns a callback; callbacks run in the thread that owns the store, and decide what comes next.

Doubt about the memo (`harness.cases.outcome_memo`) revokes what the memo answered. So an answer from the memo
is *provisional* until its case is DONE without doubt, even if the run is killed in between:

1. Doubt arises in a station's thread, and is in the store when the look that found it returns. The thread
   that owns the store reads `Examiner.doubt`, which waits for that, before it stores anything of a case.
2. Answers recalled and stored before the doubt are rows of a case that is not DONE. Once this run has read
   the doubt, it makes them UNKNOWN and looks at their contents again (`_Work.provisional`). If it is killed
   first, the run that resumes it looks again: it trusts no recalled answer of a case that is not DONE.
3. Answers recalled before the doubt but not yet stored are discarded, and their contents looked at again.
4. A kill before the doubt is stored loses it, and with it the look that found it: nothing of that look is
   stored, and when the run is resumed, everything that the memo answered is looked at again.
5. After a kill that comes later, the resumed case begins with the doubt, without a memo, and ends UNKNOWN.
6. Doubt from the last look, or from a confirmation, is read before the case is finished, since no task of
   the case is pending then. After that, no task can raise doubt.
"""

from __future__ import annotations

import concurrent.futures as cf
import functools
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from harness.cases.attempts import reason_of
from harness.cases.examine import Examiner, Group, JudgedGroup, judge_group
from harness.cases.exploration import Exploration
from harness.cases.pool import Callback, Pool, Station, Task
from harness.cases.recording import (
    NOTHING_KNOWN,
    Recording,
    by_times,
    copy_recording,
    is_kept,
    load_recording,
    make_base,
    record,
)
from harness.cases.selection import Selection
from harness.cases.settle import settle
from harness.errors import NotSupported, PowercutError, StoreError, VersionsDiffer
from harness.filesystems.profiles import Profile
from harness.guests.worker import Worker
from harness.host.progress import Progress
from harness.model import CaseId, CrashState, Judgement, Outcome, Verdict, Workload
from harness.oracles import ORACLES
from harness.plan import LEGAL, Budget, Plan
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.store.layout import CaseLayout, RunLayout
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Coverage,
    Evidence,
    Finding,
    How,
    JudgedState,
    state_order,
    steps_of,
    timeline_of,
)

WAIT_S = 0.5
"""How long results of a task that still runs may wait to be stored."""
LONG_OPERATIONS = 200
"""A workload of so many operations takes a while to record: its progress is shown."""
CHUNK_STATES = 32
"""Distinct contents per task. They are neighbours, so that little changes from one to the next."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What is to be recorded. `doubt`: an earlier part of the run had about the memo. `settled`: that part
    had the case DONE, without doubt. `before`: the case as that part left it. `files`: hashes that the files
    of its recording had, where there is one.
    """

    profile: Profile
    workload: Workload
    id: CaseId
    doubt: str = ""
    settled: bool = False
    before: CaseInfo | None = None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Work:
    """A case that has been recorded. Only the thread that owns the store uses it, except for `examiner`.

    `seconds`: spent on it by all stations. `pending`: tasks that have not reported yet. `smallest`: the
    smallest state of each finding, by (oracle, signature). `provisional`: contents whose outcome came from
    the memo. `confirmed`: findings that a confirmation has looked at. `why_not_legal`: why only the log's
    own order is looked at, where all legal states were asked for. `selection`: what to look at, if there is a
    budget for the states of the log's own order.
    """

    case: _Case
    examiner: Examiner
    seconds: float = 0.0
    pending: int = 0
    smallest: dict[tuple[str, str], CrashState] = field(default_factory=dict)
    provisional: list[Group] = field(default_factory=list)
    confirmed: set[tuple[str, str]] = field(default_factory=set)
    why_not_legal: str = ""
    selection: Selection | None = None

    @property
    def id(self) -> CaseId:
        return self.case.id


class EnoughDone(Exception):
    """The run has done as much as its plan asks for. Its text says what that was."""


class Limits:
    """When a run has done enough, by its plan: after so many minutes, or so many failed cases."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._deadline = None if plan.minutes is None else time.monotonic() + plan.minutes * 60
        self._failures = 0  # cases that ended with a finding that nobody expects

    def ended(self, store: RunStore, case: CaseId) -> None:
        """Count a case that came to its end."""
        self._failures += any(f.expectation is None for f in store.findings_of(case))

    def need_more(self) -> None:
        """Raises EnoughDone."""
        plan = self._plan
        if plan.max_failures is not None and self._failures >= plan.max_failures:
            cases = "1 case" if self._failures == 1 else f"{self._failures} cases"
            raise EnoughDone(f"{cases} failed, and no more were asked for")
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise EnoughDone(f"the time given, {plan.minutes:g} min, is up")


class Casework:
    """Steps 5 to 8, from the thread that owns the store. Stations only record, recover and judge."""

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        progress: Progress,
        scratch: Path,
        bases: dict[str, Path],
        recorded: Mapping[CaseId, Mapping[str, str]] = MappingProxyType({}),
        on_done: Callable[[CaseId], None] = lambda case: None,
    ) -> None:
        """`recorded`: of another run's recordings, if there are any to be judged again, the files' hashes.
        `on_done` is told of each case that has come to its end, in the store's thread.
        """
        self._plan = plan
        self._store = store
        self._progress = progress
        self._scratch = scratch
        self._bases = bases
        self._recorded_files = recorded
        self._on_done = on_done
        self._limits = Limits(plan)
        self._unrecorded: deque[_Case] = deque()
        self._waiting: dict[cf.Future[Callback], None] = {}
        self._arrived: queue.SimpleQueue[Callback] = queue.SimpleQueue()  # from tasks that still run

    def work(
        self, pool: Pool, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]
    ) -> None:
        """Work on all cases until every task, and every task that it led to, is done. `lacking`: modes and
        workloads that cannot be run here, by name, with the reason. Raises EnoughDone if there is work left
        when the plan's time is up, or when as many cases have failed as it allows; VersionsDiffer if guests
        are of another version.
        """
        known = {record_.case: record_ for record_ in self._store.cases()}
        for profile, workload in wanted:
            name = CaseId(profile.filesystem, profile.mode, workload.name)
            case = _Case(profile, workload, name, files=self._recorded_files.get(name, NOTHING_KNOWN))
            if before := known.get(case.id):
                settled = before.status is CaseStatus.DONE and not before.doubt
                files = before.info.files or case.files
                case = replace(case, doubt=before.doubt, settled=settled, files=files, before=before.info)
            else:  # an existing row stays: it tells whether the recording is still the same
                self._store.add_case(self._info(case))
            if reason := lacking.get(profile.name) or lacking.get(workload.name):
                self._store.set_case_status(case.id, CaseStatus.NOT_RUN, reason)
                self._on_done(case.id)
                continue
            if case.settled and case.before is not None and case.before.left_at:  # nothing to look at again
                self._on_done(case.id)
                continue
            self._unrecorded.append(case)
        self._progress.begin("recorded", len(self._unrecorded))
        # One recording per station at first, and another whenever a case is done: the first verdict comes
        # early, and logs do not pile up.
        for _ in range(self._plan.jobs):
            self._next_recording(pool)
        while self._waiting:
            done, _ = cf.wait(self._waiting, timeout=WAIT_S, return_when=cf.FIRST_COMPLETED)
            while not self._arrived.empty():  # what a task sent comes before its end
                self._arrived.get()()
            for future in done:
                del self._waiting[future]
                future.result()()
            if self._waiting:
                self._limits.need_more()

    def _submit(self, pool: Pool, task: Task) -> None:
        self._waiting[pool.submit(task)] = None

    # --- record: the workload's log, and the contents of its crash states -----------------------

    def _next_recording(self, pool: Pool) -> None:
        if self._unrecorded:
            case = self._unrecorded.popleft()
            self._submit(pool, lambda station: self._record(pool, station, case))

    def _record(self, pool: Pool, station: Station, case: _Case) -> Callback:
        """Runs in a station's thread. A failure is reported for this case and costs no other. Raises
        VersionsDiffer, which ends the run.
        """
        begun, why = time.monotonic(), ""
        try:
            station.judge.require_hope()  # do not record what no guest can recover
            recording = self._recording(station.recorder, case)
            if self._plan.unit_sectors is not None:
                recording, why = by_times(recording, self._plan.unit_sectors)
            groups: list[Group] = []
            if recording.legal is None:
                states = enumerate_states(self._plan.fault_models, recording)
                groups = group_by_content(states, station.judge.show(recording.target).hashes(states))
            work = _Work(case, self._examiner(case, recording), why_not_legal=why)
        except VersionsDiffer:  # it would cost every case
            raise
        except PowercutError as e:
            status = CaseStatus.NOT_SUPPORTED if isinstance(e, NotSupported) else CaseStatus.UNKNOWN
            reason = str(e)
            return lambda: self._not_recorded(pool, case, status, reason)
        except Exception as e:  # whatever was raised, it costs this case and no other
            for worker in station.workers:
                worker.close()
            reason = reason_of(e)
            return lambda: self._not_recorded(pool, case, CaseStatus.UNKNOWN, reason)
        seconds = time.monotonic() - begun
        return lambda: self._recorded(pool, work, groups, seconds)

    def _recording(self, recorder: Worker, case: _Case) -> Recording:
        plan, run = self._plan, self._store.layout
        if plan.recordings and not is_kept(case.id, run):
            copy_recording(case.id, RunLayout(Path(plan.recordings)), run)
        if case.files or is_kept(case.id, run):
            return load_recording(
                case.id, case.profile, case.workload, run, self._scratch, plan.log_bytes, case.files
            )
        self._store.case_directory(case.id)
        profile = case.profile.sized(case.workload.image_mib)
        base, kept = self._bases[profile.name], run.case(case.id)
        if profile is not case.profile:
            base, kept = self._own_base(recorder, profile, case.workload, kept)
        operations = len(case.workload.operations)
        if operations >= LONG_OPERATIONS:
            self._progress.begin("operations", operations)
        return record(
            recorder,
            profile,
            case.workload,
            case.id,
            base,
            kept,
            self._scratch,
            self._operations_done if operations >= LONG_OPERATIONS else lambda _: None,
        )

    def _own_base(
        self, recorder: Worker, profile: Profile, workload: Workload, kept: CaseLayout
    ) -> tuple[Path, CaseLayout]:
        """A base image for this case alone, whose workload needs a larger one than the mode's."""
        kept = replace(kept, base=kept.own_base)
        base = make_base(profile, kept.base, self._scratch, workload.name)
        if profile.mounted_once:
            settle(recorder, profile, base, kept.base)
        return base, kept

    def _operations_done(self, count: int) -> None:
        self._progress.advance("operations", count)

    def _examiner(self, case: _Case, recording: Recording) -> Examiner:
        # Only the memo's tree tells which legal states there are. Without recalls, each is recovered as well.
        every = recording.legal is not None and not self._plan.memo
        return Examiner(
            recording,
            memo=self._plan.memo or every,
            sample_rate=1.0 if every else self._plan.sample_rate,
            doubt=case.doubt,
            on_doubt=lambda doubt: self._store.set_case_doubt(case.id, doubt),
            oracles=self._plan.oracles,
        )

    def _not_recorded(self, pool: Pool, case: _Case, status: CaseStatus, reason: str) -> None:
        self._progress.say(f"{case.id}: {reason}")
        self._progress.advance("recorded", 1)
        self._store.set_case_status(case.id, status, reason)
        self._on_done(case.id)
        self._next_recording(pool)

    def _recorded(self, pool: Pool, work: _Work, groups: Sequence[Group], seconds: float) -> None:
        work.seconds += seconds
        recording = work.examiner.recording
        generated = sum(len(g.states) for g in groups)
        info = replace(
            self._info(work.case),
            generated=generated,
            distinct=len(groups),
            log_hash=recording.digest(),
            steps=steps_of(recording.history),
            timeline=timeline_of(recording.write_log.entries),
            files=dict(recording.files),
            coverage=Coverage(0, -1, 0, 0, work.why_not_legal) if work.why_not_legal else None,
        )
        before = work.case.before
        cut = before is not None and before.coverage is not None and work.case.settled
        if (recording.legal is not None or cut) and before is not None:
            info = replace(
                info, generated=before.generated, distinct=before.distinct, coverage=before.coverage
            )
        try:
            self._store.add_case(info)
        except StoreError as e:  # it was judged on another recording; those verdicts stay as they are
            self._not_recorded(pool, work.case, CaseStatus.UNKNOWN, e.line)
            return
        self._progress.advance("recorded", 1)
        if recording.legal is not None:
            self._explore_legal(pool, work)
            return
        chosen = self._chosen(work, groups)
        left = self._left(work, chosen)
        planned = sum(len(g.states) for g in chosen)
        self._progress.begin("states", planned)
        self._progress.advance("states", planned - sum(len(g.states) for g in left))
        self._store.set_case_status(work.id, CaseStatus.RECORDED)
        work.smallest = self._smallest(work)
        self._look_at(pool, work, left)
        self._go_on(pool, work)

    def _chosen(self, work: _Work, groups: Sequence[Group]) -> Sequence[Group]:
        """What to look at in all, in this order. What a budget left out of a settled case stays out."""
        before = work.case.before
        if work.case.settled and before is not None and before.coverage is not None:
            known = {v.content_hash for v in self._store.iter_verdicts(work.id)}
            return [g for g in groups if g.content_hash in known]
        if self._plan.budget == Budget() or work.why_not_legal:
            return groups
        work.selection = Selection(groups, work.examiner.recording.history, self._plan.budget)
        return work.selection.groups

    def _left(self, work: _Work, groups: Sequence[Group]) -> list[Group]:
        """The contents still to be looked at. A content with an UNKNOWN or missing verdict is looked at
        again, and so is one that the memo answered, unless the case was settled; of a settled case, answers
        from the memo stay provisional.
        """
        verdicts = {str(v.state): v for v in self._store.iter_verdicts(work.id)}
        left: list[Group] = []
        for group in groups:
            known = [verdicts.get(str(state)) for state in group.states]
            decided = all(v is not None and v.verdict is not Verdict.UNKNOWN for v in known)
            recalled = any(v is not None and v.how is How.MEMO for v in known)
            if not decided or (recalled and not work.case.settled):
                left.append(group)
            elif recalled:
                work.provisional.append(group)
        return left

    # --- look: each content once, judged at each of its states ----------------------------------

    def _look_at(self, pool: Pool, work: _Work, groups: Sequence[Group]) -> None:
        for start in range(0, len(groups), CHUNK_STATES):
            chunk = groups[start : start + CHUNK_STATES]
            work.pending += 1
            self._submit(pool, functools.partial(self._look, pool, work, chunk))

    def _look(self, pool: Pool, work: _Work, groups: Sequence[Group], station: Station) -> Callback:
        """Runs in a station's thread."""
        begun = time.monotonic()
        stop = pool.stop
        may = work.selection.take if work.selection else lambda group: True
        seen = [
            look_at(work.examiner, station.judge, g, stop) for g in groups if not stop.is_set() and may(g)
        ]
        seconds = time.monotonic() - begun
        return lambda: self._looked(pool, work, seen, seconds)

    def _looked(self, pool: Pool, work: _Work, seen: Sequence[JudgedGroup], seconds: float) -> None:
        work.seconds += seconds
        self._keep(work, seen)
        work.pending -= 1
        self._go_on(pool, work)

    def _keep(self, work: _Work, seen: Sequence[JudgedGroup]) -> None:
        """Store what was judged, but for what a memo in doubt answered."""
        doubted = self._doubted(work)
        kept = [s for s in seen if not (doubted and s.look.recalled)]
        self._store.put_judgements(work.id, [j for s in kept for j in s.judged])
        for s in kept:
            self._keep_evidence(work, s)
        work.provisional += [s.group for s in seen if s.look.recalled]
        self._progress.advance("states", sum(len(s.judged) for s in seen))

    def _doubted(self, work: _Work) -> bool:
        """Whether the memo is in doubt. If so, stores the doubt and makes what the memo answered UNKNOWN.
        Must be called before anything of a case is stored.
        """
        doubt = work.examiner.doubt
        if doubt and doubt != work.case.doubt:
            self._store.set_case_doubt(work.id, doubt)  # again, in case it could not be stored at once
            self._store.put_judgements(
                work.id,
                [
                    JudgedState(state, group.content_hash, Judgement(unknown=(doubt,)), How.MEMO)
                    for group in work.provisional
                    for state in group.states
                ],
            )
            work.case = replace(work.case, doubt=doubt)
            work.smallest = self._smallest(work)
        return bool(doubt)

    def _smallest(self, work: _Work) -> dict[tuple[str, str], CrashState]:
        return {(f.oracle, f.signature): f.state for f in self._store.findings_of(work.id)}

    def _keep_evidence(self, work: _Work, seen: JudgedGroup) -> None:
        """Store the evidence of each finding's smallest state; the store itself folds violations into
        findings.
        """
        outcome = seen.look.seen
        if not isinstance(outcome, Outcome):
            return
        for judged in seen.judged:
            for violation in judged.judgement.violations:
                key = (violation.oracle, violation.signature)
                known = work.smallest.get(key)
                if known is None or state_order(judged.state) < state_order(known):
                    work.smallest[key] = judged.state
                    finding = finding_at(work.id, key, judged.state)
                    self._store.put_evidence(finding, evidence_of(judged.state, outcome))

    def _go_on(self, pool: Pool, work: _Work) -> None:
        """Called after each task: begin what comes next for this case, if none of its tasks is pending."""
        if pool.stop.is_set():
            return
        if self._doubted(work) and work.provisional:
            self._look_again(pool, work)
        if not work.pending and pool.confirms:
            self._confirm_findings(pool, work)
        if not work.pending:
            self._finish(pool, work)

    def _look_again(self, pool: Pool, work: _Work) -> None:
        """Look again, in guests, at everything that the memo answered."""
        self._progress.say(f"{work.id}: {work.case.doubt}; looking again at what the memo answered")
        again, work.provisional = work.provisional, []
        self._progress.begin("states", sum(len(g.states) for g in again))
        self._look_at(pool, work, again)

    # --- explore: all legal states, by times ----------------------------------------------------

    def _explore_legal(self, pool: Pool, work: _Work) -> None:
        """Explore in one task: the disk process that it uses knows the outcomes. What an earlier part of the
        run left unfinished begins anew; a settled case stays as it is.
        """
        unknown = any(v.verdict is Verdict.UNKNOWN for v in self._store.iter_verdicts(work.id))
        if work.case.settled and not unknown:
            work.smallest = self._smallest(work)
            self._go_on(pool, work)
            return
        self._store.forget_states(work.id)
        self._store.set_case_status(work.id, CaseStatus.RECORDED)
        work.pending += 1
        self._submit(pool, lambda station: self._explore(pool, station, work))

    def _explore(self, pool: Pool, station: Station, work: _Work) -> Callback:
        """Runs in a station's thread."""
        begun = time.monotonic()

        def report(seen: Sequence[JudgedGroup]) -> None:
            self._arrived.put(lambda: self._explored_some(work, seen))

        exploration = Exploration(work.examiner, station.judge, self._plan.budget, pool.stop, report)
        try:
            coverage = exploration.run()
        except PowercutError as e:
            station.judge.close()
            reason = e.line
            return lambda: self._not_explored(pool, work, reason)
        seconds = time.monotonic() - begun
        return lambda: self._explored(pool, work, coverage, seconds)

    def _explored_some(self, work: _Work, seen: Sequence[JudgedGroup]) -> None:
        self._progress.begin("states", sum(len(s.judged) for s in seen))
        self._keep(work, seen)

    def _explored(self, pool: Pool, work: _Work, coverage: Coverage, seconds: float) -> None:
        work.seconds += seconds
        work.pending -= 1
        if not pool.stop.is_set():  # else it is unfinished, and what it covers is not known
            self._put_coverage(work, coverage)
        self._go_on(pool, work)

    def _put_coverage(self, work: _Work, coverage: Coverage) -> None:
        record_ = self._store.case(work.id)
        assert record_ is not None  # noqa: S101 - it was added when it was recorded; tells mypy
        counts = self._store.counts(work.id)
        info = replace(
            record_.info,
            generated=counts.checked,
            distinct=counts.contents,
            coverage=coverage,
            timeline=self._store.timeline(work.id),
        )
        self._store.add_case(info)

    def _not_explored(self, pool: Pool, work: _Work, reason: str) -> None:
        work.pending -= 1
        self._progress.say(f"{work.id}: {reason}")
        self._store.set_case_status(work.id, CaseStatus.UNKNOWN, reason)
        self._on_done(work.id)
        self._next_recording(pool)

    # --- confirm: findings once more, on the machine that people run ----------------------------

    def _confirm_findings(self, pool: Pool, work: _Work) -> None:
        unconfirmed = sorted(work.smallest.keys() - work.confirmed)
        if unconfirmed:
            self._progress.begin("confirmed", len(unconfirmed))
        for key in unconfirmed:
            state = work.smallest[key]
            work.pending += 1
            self._submit(pool, functools.partial(self._confirm, pool, work, key, state))

    def _confirm(
        self, pool: Pool, work: _Work, key: tuple[str, str], state: CrashState, station: Station
    ) -> Callback:
        """Runs in a station's thread."""
        look = work.examiner.look(station.recorder, [state], pool.stop)
        judgement = work.examiner.judge(state, look.seen)
        found = {(v.oracle, v.signature) for v in judgement.violations}
        answer = "yes" if key in found else f"no: {judgement.verdict.value} there"
        return lambda: self._confirmed(pool, work, key, f"{station.recorder.machine_name}: {answer}")

    def _confirmed(self, pool: Pool, work: _Work, key: tuple[str, str], answer: str) -> None:
        self._doubted(work)
        finding = finding_at(work.id, key, work.smallest[key])
        evidence = self._store.evidence(finding) or Evidence(work.smallest[key])
        self._store.put_evidence(finding, replace(evidence, notes={**evidence.notes, "confirmed": answer}))
        work.confirmed.add(key)
        self._progress.advance("confirmed", 1)
        work.pending -= 1
        self._go_on(pool, work)

    def _info(self, case: _Case) -> CaseInfo:
        profile = case.profile
        return CaseInfo(
            case=case.id,
            mkfs_options=profile.mkfs_line,
            mount_options=profile.mount_options,
            workload_summary=case.workload.summary,
            oracles=self._plan.oracles or tuple(ORACLES),
        )

    # --- finish -------------------------------------------------------------------------------

    def _finish(self, pool: Pool, work: _Work) -> None:
        """Close the case, and begin the next recording."""
        if work.selection:
            self._put_cut(work)
        before = self._store.case(work.id)
        self._store.set_case_seconds(work.id, (before.seconds if before else 0.0) + work.seconds)
        doubted = self._doubted(work)
        status = CaseStatus.UNKNOWN if doubted else CaseStatus.DONE
        self._store.set_case_status(work.id, status, work.case.doubt)
        work.examiner.recording.log.unlink(missing_ok=True)
        self._on_done(work.id)
        self._limits.ended(self._store, work.id)
        self._next_recording(pool)

    def _put_cut(self, work: _Work) -> None:
        """Say what the budget left out, if anything."""
        record_ = self._store.case(work.id)
        assert record_ is not None  # noqa: S101 - it was added when it was recorded; tells mypy
        counts, info = self._store.counts(work.id), record_.info
        if counts.contents == info.distinct:
            return
        why = (
            f"{counts.checked:,} of {info.generated:,} states of the log's order, {counts.contents:,} of "
            f"{info.distinct:,} different ones; ended by the budget: {self._plan.budget.text}"
        )
        self._progress.say(f"{work.id}: looked at {why}")
        cut = Coverage(0, -1, info.distinct - counts.contents, counts.contents, why)
        self._store.add_case(replace(info, generated=counts.checked, distinct=counts.contents, coverage=cut))


# --- crash states ----------------------------------------------------------------------------


def enumerate_states(fault_models: Iterable[str], recording: Recording) -> list[CrashState]:
    """The crash states of a recording under each of the fault models, without repeats, in order. Prefixes
    where all legal states are asked for and the recording has no times.
    """
    named = [name for name in fault_models if name not in LEGAL] or ["prefix"]
    states = (state for name in named for state in FAULT_MODELS[name].states(recording.write_log))
    return list(dict.fromkeys(states))


def group_by_content(states: Sequence[CrashState], hashes: Sequence[str]) -> list[Group]:
    """Group states of equal content, in the order of each group's first state."""
    groups: dict[str, list[CrashState]] = defaultdict(list)
    for state, content_hash in zip(states, hashes, strict=True):
        groups[content_hash].append(state)
    return [Group(h, tuple(s)) for h, s in groups.items()]


def look_at(examiner: Examiner, worker: Worker, group: Group, stop: threading.Event) -> JudgedGroup:
    """Recover the content once, and judge it at each of its states."""
    return judge_group(examiner, group, examiner.look(worker, group.states, stop))


def finding_at(case: CaseId, key: tuple[str, str], state: CrashState) -> Finding:
    """The finding of that (oracle, signature) at this state, in the form that the store takes."""
    return Finding(case, *key, state=state, violations=(), states=1)


def evidence_of(state: CrashState, outcome: Outcome) -> Evidence:
    """The kernel log and fsck's output, which people need beside a violation."""
    log = [*outcome.kernel_log] or [outcome.lost]
    if (used := outcome.usable) is not None and (said := [*used.kernel_log] or [used.lost]) != [""]:
        log += ["--- when the recovered file system was mounted again, written to and emptied ---", *said]
    return Evidence(
        state,
        kernel_log="\n".join(log),
        fsck=outcome.fsck.output if outcome.fsck else "",
    )
