"""Steps 5 to 8 of a run: every case is recorded, and each of its crash states visited, judged and stored.

A case takes four steps: *record* its workload, *explore* its crash states, *confirm* its findings on the
machine that people run, *finish*. Each is a task that runs in a worker's thread and returns a callback;
callbacks run in the thread that owns the store, and decide what comes next. Several workers explore one case
at once where nothing else is left to do. What goes into the store, and what mismatch about the memo revokes:
see `harness.cases.ledger`.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import functools
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from harness.cases.answers import SharedMessages
from harness.cases.attempts import reason_of
from harness.cases.contents import KnownContents
from harness.cases.crash_and_continue import crash_of, remove_own, take_parts
from harness.cases.examine import Examiner, Group, JudgedGroup, examiner_for
from harness.cases.exploration import Exploration, LeftOut, TimeCoverage, cut_again, legal_times
from harness.cases.faulty_disk import FaultyDisk
from harness.cases.first_mount import mount_once
from harness.cases.ledger import Key, Ledger, PlannedCase, line_up, next_in_turn
from harness.cases.listing import groups_of, in_turn
from harness.cases.pool import Callback, Pool, Task, Worker
from harness.cases.recording import (
    Recording,
    Taken,
    by_times,
    copy_recording,
    is_kept,
    keep_taken,
    load_recording,
    make_base,
)
from harness.cases.recoveries import keep
from harness.cases.remote import AnySession
from harness.errors import (
    CannotRecord,
    FullDisk,
    GuestLost,
    NotSupported,
    PowercutError,
    StoreError,
    VersionsDiffer,
)
from harness.filesystems.profile import Profile
from harness.guests.session import Recorder
from harness.host.progress import Progress
from harness.model import CaseId, CrashState, Verdict, Workload
from harness.oracles.endings import ending
from harness.oracles.replay import need_kept_names
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.store.layout import CaseLayout, RunLayout
from harness.store.records import CaseStatus, Coverage, NestedCrashes

WAIT_S = 0.5
"""How long results of a task that still runs may wait to be stored."""
LONG_OPERATIONS = 200
"""A workload of so many operations takes a while to record: its progress is shown."""
WORTH_HELP = 16
"""Visits after which a case counts as a large one: a further worker's guest has to boot before it helps."""


class _Clock:
    """How long workers were at a case, in sum: also those that still are. Thread-safe."""

    def __init__(self, spent: float) -> None:
        self._spent = spent
        self._begun: dict[int, float] = {}  # by thread
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While this thread is at the case."""
        with self._lock:
            self._begun[threading.get_ident()] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._spent += time.monotonic() - self._begun.pop(threading.get_ident())

    def taken(self) -> float:
        """The seconds since this was asked last."""
        with self._lock:
            now = time.monotonic()
            spent = self._spent + sum(now - begun for begun in self._begun.values())
            self._spent, self._begun = 0.0, dict.fromkeys(self._begun, now)
        return spent


@dataclass(slots=True)
class _Work:
    """A case that has been recorded. Only the thread that owns the store uses it, except for what workers
    share.

    `clock`: of all workers that are at it. `workers`: that explore it. `confirming`: tasks that confirm
    findings of it. `confirmed`: findings that were. `machine`: that visits. `earlier`: explorations that came
    to their end, of which the recoveries are now cut again. `erred`: whether the disk was made to. `failure`:
    why it could not be explored to its end. `kept`: the states whose recoveries the run directory has.
    """

    ledger: Ledger
    examiner: Examiner
    clock: _Clock
    exploration: Exploration | FaultyDisk | None = None
    workers: int = 0
    confirming: int = 0
    confirmed: set[Key] = field(default_factory=set)
    machine: str = ""
    earlier: list[Exploration] = field(default_factory=list)
    explored: bool = False
    erred: bool = False
    failure: str = ""
    kept: set[CrashState] = field(default_factory=set)

    @property
    def id(self) -> CaseId:
        return self.ledger.id


def _why_not_recorded(error: Exception) -> str:
    """Why a case has no recording: how its kernel ended, where that was what happened."""
    end = ending(error.console) if isinstance(error, GuestLost) else None
    if end is not None:
        verb = "hung" if end.hangs else "died"
        return f"the kernel {verb} while the workload was recorded: {end.line} ({error})"
    return str(error) if isinstance(error, PowercutError) else reason_of(error)


def status_of(error: Exception, profile: Profile) -> CaseStatus:
    """Of a case that could not be recorded. A disk that somebody has may well be full; one that mkfs has just
    made is not.
    """
    match error:
        case NotSupported():
            return CaseStatus.NOT_SUPPORTED
        case CannotRecord():
            return CaseStatus.NOT_RECORDED
        case FullDisk() if profile.folder:
            return CaseStatus.NOT_SUPPORTED
        case _:
            return CaseStatus.UNKNOWN


class EnoughDone(Exception):
    """The run has done as much as its plan asks for. Its text says what that was."""


class Limits:
    """When a run has done enough, by its plan: after so many minutes, or so many failed cases."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.deadline = None if plan.minutes is None else time.monotonic() + plan.minutes * 60
        """When the run's time is up, by the monotonic clock."""
        self.failures = 0
        """Cases that ended with a finding that nobody expects; counted where the plan allows so many."""
        self._stopped = False

    def stop(self) -> None:
        """From any thread: no more is wanted."""
        self._stopped = True

    def ended(self, store: RunStore, case: CaseId) -> None:
        """Count a case that came to its end."""
        if self._plan.max_failures is not None:
            self.failures += any(f.expectation is None for f in store.findings_of(case))

    @property
    def enough_failed(self) -> bool:
        """Whether as many cases have failed as the plan allows."""
        return self._plan.max_failures is not None and self.failures >= self._plan.max_failures

    def need_more(self) -> None:
        """Raises EnoughDone."""
        if self._stopped:
            raise EnoughDone("no more was asked for")
        if self.enough_failed:
            cases = "1 case" if self.failures == 1 else f"{self.failures} cases"
            raise EnoughDone(f"{cases} failed, and no more were asked for")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise EnoughDone("the time given is up")


class Casework:
    """Steps 5 to 8, from the thread that owns the store. Workers only record, recover and judge. Several may
    have one pool, each for cases of its own.
    """

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        progress: Progress,
        scratch: Path,
        bases: dict[str, Path],
        recorded: Mapping[CaseId, Mapping[str, str]] = MappingProxyType({}),
        on_done: Callable[[CaseId], None] = lambda case: None,
        answers: SharedMessages | None = None,
    ) -> None:
        """`recorded`: of another run's recordings, if there are any to be judged again, the files' hashes.
        `answers`: of earlier cases that the same workers decided.
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
        self._answers = answers or SharedMessages()
        self._contents = (
            None if plan.again or plan.disk else KnownContents(on_case_mismatch=store.set_case_mismatch)
        )
        self._unrecorded: deque[PlannedCase] = deque()
        self._spent: defaultdict[str, float] = defaultdict(float)  # seconds of work, by mode
        self._to_record: set[CaseId] = set()  # what an earlier part of the run kept is no work done by this
        self._open: dict[CaseId, _Work] = {}
        self._waiting: dict[cf.Future[Callback], bool] = {}  # and whether it takes a worker
        # From tasks that still run.
        self._arrived: queue.SimpleQueue[tuple[Ledger, Sequence[JudgedGroup]]] = queue.SimpleQueue()

    def work(
        self, pool: Pool, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]
    ) -> None:
        """Work on all cases until every task, and every task that it led to, is done. `lacking`: modes and
        workloads that cannot be run here, by name, with the reason. Raises EnoughDone if there is work left
        when the plan's time is up, or when as many cases have failed as it allows; VersionsDiffer if guests
        are of another version.
        """
        planned = line_up(self._plan, self._store, wanted, lacking, self._recorded_files, self._on_done)
        for case in planned:
            self._spent[case.profile.name] += case.seconds
            elsewhere = case.before and (case.before.left_at or case.before.taken_from)
            if case.final and elsewhere:  # nothing to visit again
                self._on_done(case.id)
            else:
                self._unrecorded.append(case)
        kept = self._store.layout
        self._to_record = {case.id for case in self._unrecorded if not is_kept(case.id, kept)}
        if self._to_record:
            self._progress.begin("recorded", len(self._to_record))
        # Two recordings per worker at first, of which one is kept while the other is made, and another
        # whenever a case is done: the first verdict comes early, and logs do not pile up.
        for _ in range(2 * self._plan.jobs):
            self._next_recording(pool)
        try:
            while self._waiting:
                self._carry_on(pool)
                if self._waiting or self._unrecorded:
                    self._limits.need_more()
        finally:
            for work in self._open.values():
                work.examiner.close()

    def stop(self) -> None:
        """From any thread: `work` raises EnoughDone soon, if there is work left."""
        self._limits.stop()

    def _carry_on(self, pool: Pool) -> None:
        """Wait for tasks, and do what their results lead to."""
        done, _ = cf.wait(self._waiting, timeout=WAIT_S, return_when=cf.FIRST_COMPLETED)
        self._take_arrived()
        for future in done:
            del self._waiting[future]
            callback = future.result()
            self._take_arrived()  # what a task sent comes before its end
            callback()
        if not done:
            self._progress.advance("recorded", 0)  # while guests boot nothing else tells that work goes on
        self._help(pool)

    def _take_arrived(self) -> None:
        """Store what has come by now, with one flush of the host's disk for all."""
        arrived: dict[Ledger, list[JudgedGroup]] = {}
        while not self._arrived.empty():
            ledger, observed = self._arrived.get()
            arrived.setdefault(ledger, []).extend(observed)
        if arrived:
            for ledger, groups in arrived.items():
                self._keep_recoveries(self._open[ledger.id], groups)
            with self._store.together():
                for ledger, groups in arrived.items():
                    ledger.keep(groups)
                    self._put_seconds(self._open[ledger.id])  # a run that is killed has both

    def _put_seconds(self, work: _Work) -> None:
        seconds = work.clock.taken()
        self._spent[work.examiner.recording.profile.name] += seconds
        self._store.add_case_seconds(work.id, seconds)

    def _submit(self, pool: Pool, task: Task) -> None:
        self._waiting[pool.submit(task)] = True

    # --- record: the workload's log -------------------------------------------------------------

    def _next_recording(self, pool: Pool) -> None:
        if self._unrecorded and not self._limits.enough_failed:
            case = self._next_case()
            self._submit(pool, lambda worker: self._record(pool, worker, case))

    def _next_case(self) -> PlannedCase:
        """The next in line; where time is limited, see `next_in_turn`."""
        if self._plan.minutes is None:
            return self._unrecorded.popleft()
        case = next_in_turn(self._unrecorded, self._spent)
        self._unrecorded.remove(case)
        return case

    def _record(self, pool: Pool, worker: Worker, case: PlannedCase) -> Callback:
        """Runs in a worker's thread. A failure is reported for this case and costs no other. Raises
        VersionsDiffer, which ends the run.
        """
        begun = time.monotonic()
        try:
            worker.judge.refuse_if_given_up()  # do not record what no guest can recover
            taken = None if self._has_recording(case) else self._take(worker.recorder, case)
        except VersionsDiffer:  # it would cost every case
            raise
        except Exception as e:  # whatever was raised, it costs this case and no other
            if not isinstance(e, PowercutError):
                for session in worker.sessions:
                    session.close()
            return self._failed_to_record(pool, case, e)
        seconds, machine = time.monotonic() - begun, worker.judge.machine_name
        keep = functools.partial(self._keep, pool, case, taken, seconds, machine)
        return lambda: self._waiting.update({pool.submit_aside(keep): False})

    def _failed_to_record(self, pool: Pool, case: PlannedCase, error: Exception) -> Callback:
        status, reason = status_of(error, case.profile), _why_not_recorded(error)
        return lambda: self._not_recorded(pool, case, status, reason)

    def _keep(
        self, pool: Pool, case: PlannedCase, taken: Taken | None, seconds: float, machine: str
    ) -> Callback:
        """Keep a recording, or take one that is kept, and look at it. Runs in a thread without a worker: a
        worker would wait for the host's disk. A failure costs this case alone.
        """
        begun, why = time.monotonic(), ""
        try:
            recording = self._recording(case, taken)
            if self._plan.unit_sectors is not None:
                recording, why = by_times(recording, self._plan.unit_sectors)
            examiner = self._examiner(case, recording)
            groups = [] if recording.legal else groups_of(self._plan.fault_models, examiner)
        except VersionsDiffer:
            raise
        except Exception as e:  # whatever was raised, it costs this case and no other
            return self._failed_to_record(pool, case, e)
        ledger = Ledger(case, examiner, self._store, self._plan, self._progress)
        work = _Work(ledger, examiner, _Clock(seconds + time.monotonic() - begun))
        return lambda: self._recorded(pool, work, groups, why, machine)

    def _has_recording(self, case: PlannedCase) -> bool:
        """Whether nothing is to be recorded: this run kept it, or another one's recordings are judged."""
        return bool(self._plan.recordings or case.files) or is_kept(case.id, self._store.layout)

    def _recording(self, case: PlannedCase, taken: Taken | None) -> Recording:
        plan, run = self._plan, self._store.layout
        if taken is not None:
            own = taken.profile is not case.profile or crash_of(case.workload.operations) is not None
            return keep_taken(taken, self._kept(case, own=own), self._scratch)
        if plan.recordings and not is_kept(case.id, run):
            copy_recording(case.id, RunLayout(Path(plan.recordings)), run)
        return load_recording(
            case.id, case.profile, case.workload, run, self._scratch, plan.log_bytes, case.files
        )

    def _kept(self, case: PlannedCase, *, own: bool) -> CaseLayout:
        """Where a recording is kept. `own`: it has a base image of its own."""
        kept = self._store.layout.case(case.id)
        return replace(kept, base=kept.own_base) if own else kept

    def _take(self, recorder: AnySession, case: PlannedCase) -> Taken:
        need_kept_names(case.profile.contract, case.workload.operations)
        self._store.case_directory(case.id)
        profile = case.profile.sized(case.workload.image_mib)
        base, kept = self._bases[case.profile.name], self._kept(case, own=True)
        if profile is not case.profile:
            base = self._own_base(recorder, profile, case.workload, kept)
        operations = len(case.workload.operations)
        if operations >= LONG_OPERATIONS:
            self._progress.begin("operations", operations)
        return take_parts(
            recorder,
            profile,
            case.workload,
            case.id,
            base,
            kept,
            self._scratch,
            functools.partial(self._progress.advance, "operations")
            if operations >= LONG_OPERATIONS
            else lambda _: None,
        )

    def _own_base(self, recorder: Recorder, profile: Profile, workload: Workload, kept: CaseLayout) -> Path:
        """A base image for this case alone, whose workload needs a larger one than the mode's."""
        if profile.is_made_in_guest:
            raise CannotRecord(
                f"{workload.name} needs a larger image; on a stack or in a file, only the mode's is made"
            )
        kept.base.unlink(missing_ok=True)  # nothing was recorded on it, and it may be what a crash left
        base = make_base(profile, kept.base, self._scratch, workload.name)
        if profile.mounted_once:
            mount_once(recorder, profile, base, kept.base)
        return base

    def _examiner(self, case: PlannedCase, recording: Recording) -> Examiner:
        examiner = examiner_for(
            self._plan,
            recording,
            mismatch=case.mismatch,
            on_mismatch=lambda mismatch: self._store.set_case_mismatch(case.id, mismatch),
        )
        examiner.share(self._answers)
        return examiner

    def _recording_done(self, case: CaseId) -> None:
        if case in self._to_record:
            self._progress.advance("recorded", 1)

    def _not_recorded(self, pool: Pool, case: PlannedCase, status: CaseStatus, reason: str) -> None:
        self._progress.say(f"{case.id}: {reason}")
        self._recording_done(case.id)
        remove_own(case.profile, case.workload, self._scratch)
        self._store.set_case_status(case.id, status, reason)
        self._limits.ended(self._store, case.id)  # an earlier part may have found something
        self._on_done(case.id)
        self._next_recording(pool)

    def _recorded(
        self, pool: Pool, work: _Work, groups: Sequence[Group], why_not_legal: str, machine: str
    ) -> None:
        self._recording_done(work.id)
        self._open[work.id] = work
        try:
            decided = work.ledger.recorded(groups, why_not_legal)
        except StoreError as e:
            self._close(pool, work, e.line)
            return
        if decided:
            self._go_on_decided(pool, work)
            return
        times = self._times(work, groups, why_not_legal)
        if times:
            work.machine = machine
            self._begin(pool, work, times, Budget() if why_not_legal else self._plan.budget)
        else:
            work.explored = True
            self._go_on(pool, work)

    def _go_on_decided(self, pool: Pool, work: _Work) -> None:
        """A case that an earlier part decided stays as it is; at most, its findings are confirmed."""
        work.confirmed = work.ledger.resume_decided()
        if pool.confirms and work.ledger.smallest.keys() - work.confirmed:
            work.explored = True
            self._go_on(pool, work)
        else:
            self._close(pool, work)

    def _begin(
        self,
        pool: Pool,
        work: _Work,
        times: Sequence[TimeCoverage],
        budget: Budget,
        left_out: Sequence[LeftOut] = (),
    ) -> None:
        work.exploration = Exploration(
            work.examiner,
            times,
            work.machine,
            budget,
            pool.stop,
            lambda observed: self._arrived.put((work.ledger, observed)),
            self._contents,
            left_out,
        )
        self._add_worker(pool, work)

    def _times(self, work: _Work, groups: Sequence[Group], why_not_legal: str) -> list[TimeCoverage]:
        """The crash times to cover; none if an earlier part of the run decided each state."""
        ledger, recording = work.ledger, work.examiner.recording
        if recording.legal is not None:
            ledger.begin(expected=0)
            return legal_times(recording.legal)
        left = groups if ledger.begins_anew else ledger.left(groups)
        ledger.begin(expected=sum(len(g.states) for g in left))
        budget = Budget() if why_not_legal else self._plan.budget
        return in_turn(left, recording.history, budget)

    # --- explore: see `harness.cases.exploration` -----------------------------------------------

    def _add_worker(self, pool: Pool, work: _Work) -> None:
        assert work.exploration is not None  # noqa: S101 - it has begun; tells mypy
        helps = work.workers > 0
        work.workers += 1
        self._submit(pool, functools.partial(self._explore, pool, work, work.exploration, helps))

    def _help(self, pool: Pool) -> None:
        """Let idle workers help with the large cases that are left."""
        while sum(self._waiting.values()) < pool.jobs and pool.has_idle:
            large = [w for w in self._open.values() if w.exploration and w.exploration.visits >= WORTH_HELP]
            large = [w for w in large if not w.explored and 0 < w.workers < pool.jobs]
            if not large:
                return
            self._add_worker(pool, min(large, key=lambda w: w.workers))

    def _explore(
        self, pool: Pool, work: _Work, exploration: Exploration | FaultyDisk, helps: bool, worker: Worker
    ) -> Callback:
        """Runs in a worker's thread. A failure is reported for this case and costs no other. Raises
        VersionsDiffer, which ends the run.
        """
        failure = ""
        with work.clock.running():
            if helps:  # boot before a state is taken: the others wait for what is taken
                with contextlib.suppress(PowercutError):  # a visit will say it
                    worker.judge.boot(work.examiner.recording.target)
            try:
                exploration.work(worker.judge)
            except VersionsDiffer:  # it would cost every case
                raise
            except PowercutError as e:
                failure = e.line
            except Exception as e:  # a defect of the engine, or of the store behind `on_mismatch`
                failure = reason_of(e)
            if failure:
                worker.judge.close()
        return lambda: self._explored(pool, work, exploration, failure)

    def _explored(self, pool: Pool, work: _Work, exploration: Exploration | FaultyDisk, failure: str) -> None:
        """One worker has nothing more to do."""
        work.workers -= 1
        self._put_seconds(work)
        work.failure = work.failure or failure
        if work.workers or pool.stop.is_set():  # stopped: it is unfinished, and what it covers is not known
            return
        if work.failure:
            self._close(pool, work, work.failure)
            return
        self._put_coverage(work, exploration)
        if not self._next_exploration(pool, work, exploration):
            work.explored = True
            self._go_on(pool, work)

    def _put_coverage(self, work: _Work, exploration: Exploration | FaultyDisk) -> None:
        if isinstance(exploration, FaultyDisk):
            work.ledger.put_disk(exploration.erred())
            return
        coverage = exploration.coverage()
        if not work.earlier:
            work.ledger.put_coverage(coverage)
            work.ledger.count()
        elif exploration not in work.earlier and coverage is not None:
            last = work.earlier[-1]
            cut = NestedCrashes(len(work.earlier), len(last.recoveries), last.not_cut, coverage)
            work.ledger.put_again(cut)

    def _next_exploration(self, pool: Pool, work: _Work, exploration: Exploration | FaultyDisk) -> bool:
        """Visit again what a mismatched memo had answered in any exploration; else cut the recoveries of this
        one, or, when no more are to be cut, let the disk be faulty. False: nothing is left to do.
        """
        if isinstance(exploration, FaultyDisk):
            return False
        for earlier in work.earlier:
            if earlier.reopen():
                work.exploration = earlier
                self._add_worker(pool, work)
                return True
        depth = len(work.earlier)
        if exploration in work.earlier or depth >= self._plan.again:
            return self._err(pool, work, exploration)
        if not exploration.recoveries:
            nothing = Coverage(0, None, 0, 0)
            work.ledger.put_again(NestedCrashes(depth + 1, 0, exploration.not_cut, nothing))
            return self._err(pool, work, exploration)
        work.earlier.append(exploration)
        times = cut_again(exploration.recoveries)
        self._begin(pool, work, times, self._plan.budget, exploration.left_out)
        return True

    def _err(self, pool: Pool, work: _Work, last: Exploration) -> bool:
        """Visit again what all explorations visited, on a faulty disk, if that is wanted and was not done.
        False: it is not, or there is a stack, of whose members no faults are known.
        """
        if not self._plan.disk or work.erred or work.examiner.recording.profile.stacked:
            return False
        work.erred = True
        work.exploration = FaultyDisk(
            work.examiner,
            list(dict.fromkeys([*work.earlier, last])),
            self._plan.disk,
            self._plan.fault_kinds,
            self._plan.budget,
            pool.stop,
            lambda observed: self._arrived.put((work.ledger, observed)),
        )
        self._add_worker(pool, work)
        return True

    # --- confirm: findings once more, on the machine that people run ----------------------------

    def _go_on(self, pool: Pool, work: _Work) -> None:
        """An explored case: confirm its findings, then finish it."""
        if pool.stop.is_set():
            return
        if pool.confirms:
            self._confirm_findings(pool, work)
        if not work.confirming:
            self._finish(pool, work)

    def _confirm_findings(self, pool: Pool, work: _Work) -> None:
        """One visit for each state that shows a finding."""
        by_state: dict[CrashState, list[Key]] = {}
        for key in sorted(work.ledger.smallest.keys() - work.confirmed):
            by_state.setdefault(work.ledger.smallest[key], []).append(key)
        if by_state:
            self._progress.begin("confirmed", sum(map(len, by_state.values())))
        for state, keys in by_state.items():
            work.confirming += 1
            self._submit(pool, functools.partial(self._confirm, pool, work, keys, state))

    def _confirm(
        self, pool: Pool, work: _Work, keys: Sequence[Key], state: CrashState, worker: Worker
    ) -> Callback:
        """Runs in a worker's thread."""
        observation = work.examiner.visit(worker.recorder, [state], pool.stop)
        judgement = work.examiner.judge(state, observation)
        found = {(v.oracle, v.signature) for v in judgement.violations}
        name = worker.recorder.machine_name
        answers = {
            key: f"{name}: {'yes' if key in found else f'no: {judgement.verdict.value} there'}"
            for key in keys
        }
        return lambda: self._confirmed(pool, work, answers)

    def _confirmed(self, pool: Pool, work: _Work, answers: Mapping[Key, str]) -> None:
        for key, answer in answers.items():
            work.ledger.confirmed(key, answer)
            work.confirmed.add(key)
        self._progress.advance("confirmed", len(answers))
        work.confirming -= 1
        if work.confirming or pool.stop.is_set():
            return
        last = work.exploration
        if isinstance(last, FaultyDisk):
            last = last.before[-1]
        for explored in dict.fromkeys([*work.earlier, last]):
            if explored is not None and explored.reopen():
                work.exploration, work.explored = explored, False
                self._add_worker(pool, work)
                return
        self._finish(pool, work)

    # --- finish -------------------------------------------------------------------------------

    def _finish(self, pool: Pool, work: _Work) -> None:
        self._put_seconds(work)
        work.ledger.finish()
        self._close(pool, work)

    def _keep_recoveries(self, work: _Work, observed: Iterable[JudgedGroup]) -> None:
        """Keep what recoveries wrote in whose cuts something was found or left undecided. Comes before those
        verdicts are stored: a run that is stopped has what shows them again.
        """
        recoveries, kept = work.examiner.recording.recoveries, self._store.layout.case(work.id)
        for judged in (one for group in observed for one in group.judged):
            state = judged.state
            while state.again and judged.judgement.verdict is not Verdict.PASS:
                state = state.recovered
                if state not in work.kept and state in recoveries:  # an earlier part's, it visits no more
                    keep(recoveries[state], kept.recovery(state))
                    work.kept.add(state)

    def _close(self, pool: Pool, work: _Work, failure: str = "") -> None:
        """Let go of the case, and begin the next recording. `failure`: why it was given up; what it showed
        until then counts.
        """
        if failure:
            work.ledger.give_up(failure)
        self._limits.ended(self._store, work.id)
        self._open.pop(work.id, None)
        work.examiner.close()
        recording = work.examiner.recording
        for log in (recording.log, *(r.log for r in recording.recoveries.values())):
            log.unlink(missing_ok=True)
        remove_own(recording.profile, recording.workload, self._scratch)
        self._on_done(work.id)
        self._next_recording(pool)
