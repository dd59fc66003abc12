"""Steps 4 to 8 of a run: every case is recorded, and each of its crash states looked at, judged and stored.

Stations only record, recover and judge; the thread that owns the store does the rest.
"""

from __future__ import annotations

import concurrent.futures as cf
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.cases.examine import Examiner, Look
from harness.cases.pool import Pool, Station, Task
from harness.cases.recording import Recording, copy_recording, is_kept, load_recording, record
from harness.errors import NotSupported, PowercutError
from harness.filesystems.profiles import Profile
from harness.guests.worker import Worker
from harness.host.progress import Progress
from harness.model import CaseId, CrashState, Outcome, Workload
from harness.oracles import ORACLES
from harness.plan import Plan
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Evidence,
    Finding,
    How,
    JudgedState,
    state_order,
    steps_of,
    timeline_of,
)

CHUNK_STATES = 32
"""Distinct contents that one task looks at: neighbours, so that little changes from one to the next."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a task brought back of one distinct content: the states that have it, and their judgements."""

    group: Group
    look: Look
    judged: tuple[JudgedState, ...]


@dataclass(slots=True)
class _Case:
    """A case that is being worked on. `recalled`: contents whose outcome came from the memo."""

    profile: Profile
    workload: Workload
    id: CaseId
    pending: int = 0
    seconds: float = 0.0
    examiner: Examiner | None = None
    smallest: dict[tuple[str, str], CrashState] = field(default_factory=dict)
    recalled: list[Group] = field(default_factory=list)
    confirmed: set[tuple[str, str]] = field(default_factory=set)


class Casework:
    """Steps 4 to 8, from the thread that owns the store. Stations only record, recover and judge."""

    def __init__(
        self, plan: Plan, store: RunStore, progress: Progress, scratch: Path, bases: dict[str, Path]
    ) -> None:
        self._plan = plan
        self._store = store
        self._progress = progress
        self._scratch = scratch
        self._bases = bases
        self._unrecorded_cases: deque[_Case] = deque()
        self._waiting: dict[cf.Future[Callable[[], None]], None] = {}

    def work(
        self, pool: Pool, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]
    ) -> None:
        """Until every task, and every task that those led to, is done. `lacking`: modes and
        workloads that cannot be run here, by name, and why.
        """
        known = {record_.case for record_ in self._store.cases()}
        for profile, workload in wanted:
            case = _Case(profile, workload, CaseId(profile.filesystem, profile.mode, workload.name))
            if case.id not in known:  # what is known of a recording tells whether it is still the same
                self._store.add_case(self._info(case))
            if reason := lacking.get(profile.name) or lacking.get(workload.name):
                self._store.set_case_status(case.id, CaseStatus.NOT_RUN, reason)
                continue
            self._unrecorded_cases.append(case)
        self._progress.begin("recorded", len(self._unrecorded_cases))
        # A recording for each station; further ones as cases are done: the first verdict comes soon,
        # and logs do not pile up.
        for _ in range(self._plan.jobs):
            self._next_recording(pool)
        while self._waiting:
            done, _ = cf.wait(self._waiting, timeout=1.0, return_when=cf.FIRST_COMPLETED)
            for future in done:
                del self._waiting[future]
                future.result()()

    def _submit(self, pool: Pool, task: Task) -> None:
        self._waiting[pool.submit(task)] = None

    def _next_recording(self, pool: Pool) -> None:
        if self._unrecorded_cases:
            case = self._unrecorded_cases.popleft()
            self._submit(pool, lambda station: self._record(pool, station, case))

    # in a station's thread: each returns what is then to be done in the store's thread

    def _record(self, pool: Pool, station: Station, case: _Case) -> Callable[[], None]:
        begun = time.monotonic()
        try:
            recording = self._recording(station.recorder, case)
            states = enumerate_states(self._plan.fault_models, recording)
            hashes = station.judge.show(recording.base, recording.log).hashes(states)
            case.examiner = Examiner(recording, memo=self._plan.memo, sample_rate=self._plan.sample_rate)
        except PowercutError as e:
            reason = str(e)
            status = CaseStatus.NOT_RUN if isinstance(e, NotSupported) else CaseStatus.UNKNOWN
            return lambda: self._unrecorded(pool, case, status, reason)
        case.seconds += time.monotonic() - begun
        return lambda: self._recorded(pool, case, recording, group_by_content(states, hashes))

    def _recording(self, recorder: Worker, case: _Case) -> Recording:
        cases = self._store.path / "cases"
        if self._plan.recordings and not is_kept(case.id, cases):
            copy_recording(case.id, Path(self._plan.recordings) / "cases", cases)
        if is_kept(case.id, cases):
            return load_recording(case.id, case.profile, case.workload, cases, self._scratch)
        kept = self._store.case_directory(case.id)
        base = self._bases[case.profile.name]
        return record(recorder, case.profile, case.workload, case.id, base, kept, self._scratch)

    def _look(
        self, pool: Pool, station: Station, case: _Case, examiner: Examiner, groups: Sequence[Group]
    ) -> Callable[[], None]:
        begun = time.monotonic()
        seen = [look_at(examiner, station.judge, g, pool.stop) for g in groups if not pool.stop.is_set()]
        case.seconds += time.monotonic() - begun
        return lambda: self._looked(pool, case, examiner, seen)

    def _confirm(
        self, pool: Pool, station: Station, case: _Case, examiner: Examiner, key: tuple[str, str]
    ) -> Callable[[], None]:
        """Look at a finding's state again, on the machine that people run."""
        state = case.smallest[key]
        machine = station.recorder.machine_name
        look = examiner.look(station.recorder, [state], pool.stop)
        judgement = examiner.judge(state, look.seen)
        found = {(v.oracle, v.signature) for v in judgement.violations}
        answer = "yes" if key in found else f"no: {judgement.verdict.value} there"
        return lambda: self._confirmed(pool, case, key, f"{machine}: {answer}")

    # in the store's thread

    def _unrecorded(self, pool: Pool, case: _Case, status: CaseStatus, reason: str) -> None:
        self._progress.say(f"{case.id}: {reason}")
        self._progress.advance("recorded", 1)
        self._store.set_case_status(case.id, status, reason)
        self._next_recording(pool)

    def _recorded(self, pool: Pool, case: _Case, recording: Recording, groups: Sequence[Group]) -> None:
        generated = sum(len(g.states) for g in groups)
        self._store.add_case(
            replace(
                self._info(case),
                generated=generated,
                distinct=len(groups),
                log_hash=recording.digest(),
                steps=steps_of(recording.history),
                timeline=timeline_of(recording.write_log.entries),
            )
        )
        known = self._store.judged_states(case.id, decided_only=True)
        left = [g for g in groups if not known.issuperset(map(str, g.states))]
        self._progress.advance("recorded", 1)
        self._progress.begin("states", generated)
        self._progress.advance("states", generated - sum(len(g.states) for g in left))
        self._store.set_case_status(case.id, CaseStatus.RECORDED)
        case.smallest = {
            (f.oracle, f.signature): f.state for f in self._store.findings() if f.case == case.id
        }
        self._submit_looks(pool, case, left)
        self._finish(pool, case)

    def _submit_looks(self, pool: Pool, case: _Case, groups: Sequence[Group]) -> None:
        examiner = case.examiner
        assert examiner is not None  # noqa: S101  # the recording made it
        for start in range(0, len(groups), CHUNK_STATES):
            chunk = groups[start : start + CHUNK_STATES]
            case.pending += 1
            self._submit(pool, lambda station, chunk=chunk: self._look(pool, station, case, examiner, chunk))  # type: ignore[misc]

    def _looked(self, pool: Pool, case: _Case, examiner: Examiner, seen: Sequence[Seen]) -> None:
        judged = [j for s in seen for j in s.judged]
        self._store.put_judgements(case.id, judged)
        for s in seen:
            self._keep_evidence(case, s)
            if s.look.recalled:
                case.recalled.append(s.group)
        self._progress.advance("states", len(judged))
        case.pending -= 1
        if examiner.doubt and case.recalled:
            self._progress.say(f"{case.id}: {examiner.doubt}; looking again at what the memo answered")
            again, case.recalled = case.recalled, []
            self._progress.begin("states", sum(len(g.states) for g in again))
            self._submit_looks(pool, case, again)
        self._finish(pool, case)

    def _keep_evidence(self, case: _Case, seen: Seen) -> None:
        """What the smallest state of each finding showed; the store folds findings itself."""
        outcome = seen.look.seen
        if not isinstance(outcome, Outcome):
            return
        for judged in seen.judged:
            for violation in judged.judgement.violations:
                key = (violation.oracle, violation.signature)
                known = case.smallest.get(key)
                if known is None or state_order(judged.state) < state_order(known):
                    case.smallest[key] = judged.state
                    self._store.put_evidence(finding_at(case, key), evidence_of(judged.state, outcome))

    def _confirmed(self, pool: Pool, case: _Case, key: tuple[str, str], answer: str) -> None:
        finding = finding_at(case, key)
        evidence = self._store.evidence(finding) or Evidence(case.smallest[key])
        self._store.put_evidence(finding, replace(evidence, notes={**evidence.notes, "confirmed": answer}))
        case.confirmed.add(key)
        case.pending -= 1
        self._finish(pool, case)

    def _finish(self, pool: Pool, case: _Case) -> None:
        """Once nothing of the case is pending: confirm its findings, then close it and begin another."""
        if case.pending or pool.stop.is_set():
            return
        examiner = case.examiner
        assert examiner is not None  # noqa: S101  # the recording made it
        unconfirmed = case.smallest.keys() - case.confirmed if pool.confirms else set()
        for key in sorted(unconfirmed):
            case.pending += 1
            self._submit(pool, lambda station, key=key: self._confirm(pool, station, case, examiner, key))  # type: ignore[misc]
        if case.pending:
            return
        record_ = self._store.case(case.id)
        self._store.set_case_seconds(case.id, (record_.seconds if record_ else 0.0) + case.seconds)
        status = CaseStatus.UNKNOWN if examiner.doubt else CaseStatus.DONE
        self._store.set_case_status(case.id, status, examiner.doubt)
        examiner.recording.log.unlink(missing_ok=True)
        self._next_recording(pool)

    def _info(self, case: _Case) -> CaseInfo:
        profile = case.profile
        return CaseInfo(
            case=case.id,
            mkfs_options=profile.mkfs_line,
            mount_options=profile.mount_options,
            workload_summary=case.workload.summary,
            oracles=tuple(ORACLES),
        )


# --- crash states ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Crash states of one content; the first stands for all."""

    content_hash: str
    states: tuple[CrashState, ...]


def enumerate_states(fault_models: Iterable[str], recording: Recording) -> list[CrashState]:
    """The crash states of a recording under each of the fault models, without repeats, in order."""
    states = (state for name in fault_models for state in FAULT_MODELS[name].states(recording.write_log))
    return list(dict.fromkeys(states))


def group_by_content(states: Sequence[CrashState], hashes: Sequence[str]) -> list[Group]:
    """States of equal content together, in the order of their first."""
    groups: dict[str, list[CrashState]] = defaultdict(list)
    for state, content_hash in zip(states, hashes, strict=True):
        groups[content_hash].append(state)
    return [Group(h, tuple(s)) for h, s in groups.items()]


def look_at(examiner: Examiner, worker: Worker, group: Group, stop: threading.Event) -> Seen:
    """Recover the content once; judge it at each of its states, whose positions in the history differ."""
    first = group.states[0]
    look = examiner.look(worker, group.states, stop)
    how = How.MEMO if look.recalled else How.JUDGED
    judged = tuple(
        JudgedState(
            state,
            group.content_hash,
            examiner.judge(state, look.seen),
            how if state == first else How.SAME_CONTENT,
        )
        for state in group.states
    )
    return Seen(group, look, judged)


def finding_at(case: _Case, key: tuple[str, str]) -> Finding:
    """The finding of that (oracle, signature) at its smallest state, as the store asks for it."""
    return Finding(case.id, *key, state=case.smallest[key], violations=(), states=1)


def evidence_of(state: CrashState, outcome: Outcome) -> Evidence:
    """What a person wants to see beside a violation."""
    return Evidence(
        state,
        kernel_log="\n".join(outcome.kernel_log) or outcome.lost,
        fsck=outcome.fsck.output if outcome.fsck else "",
    )
