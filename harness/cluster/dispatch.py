"""Who works on what: the run's side of a cluster, in the thread that owns the store.

A worker is asked who it is, given the requirements, and then as many cases as it takes at once, and AHEAD
more, so that it does not wait for the next. Dask would distribute tasks by itself and try those of a lost
worker again; it is not left to it, because then a task that only waited at a worker counts as one that killed
it, and how often a task is tried is the scheduler's setting, not ours.

A case belongs to one worker at a time. It comes back to the queue if that worker goes, is silent for
SILENT_S or fails; what the worker still sends is not listened to. So nothing is stored twice, and since a
case is stored only once it is decided, nothing is half stored. A case that has lost STRIKES workers is
UNKNOWN, with what was seen.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import msgspec

from harness.cases.casework import Limits
from harness.cases.pins import source_hash
from harness.cases.recording import NOTHING_KNOWN, copy_recording, is_kept
from harness.cluster.messages import (
    BusyWithAnotherRun,
    Done,
    Identity,
    Job,
    Lacking,
    Note,
    NotFitted,
    Payload,
    Requirements,
    Unfit,
    decode,
    encode,
)
from harness.cluster.payloads import adopt, files_of
from harness.cluster.worker_pool import Answer, ClusterWorker, Event, WorkerPool
from harness.errors import ClusterGone, PowercutError
from harness.filesystems.profiles import Profile
from harness.host.progress import Progress
from harness.model import CaseId, Verdict, Workload
from harness.oracles import BY_DEFAULT
from harness.plan import Plan
from harness.store import RunStore
from harness.store.layout import RunLayout
from harness.store.records import CaseInfo, CaseStatus

STRIKES = 3
AHEAD = 1
LOOK_S = 2.0
"""How often it is looked which workers there are."""
WAIT_S = 0.5
SILENT_S = 3600.0
"""A worker that says nothing of a case, or does not answer, for so long hangs: a state takes minutes at most,
a recording an hour, and a question may have to wait for a case of another run.
"""
EMPTY_S = 120.0
"""How long a run waits for a first, or another, worker."""
BUSY_S = 10.0
"""How often a worker is asked that works for another run."""


@dataclass(slots=True)
class _Case:
    """A case that is not decided. `strikes`: what was seen of each worker that was lost with it."""

    id: CaseId
    workload: Workload
    files: Mapping[str, str]
    strikes: list[str] = field(default_factory=list)


class _Stage(Enum):
    NEW = "new"
    ASKED = "asked"
    LACKING = "lacking"  # and another worker of its host is getting the blobs
    READY = "ready"
    REFUSED = "refused"


@dataclass(slots=True)
class _Worker:
    """A worker, and how far it is. `tickets`: of its cases, oldest first; it works on the first `slots` of
    them. `until`: not to be asked again before. `asked`: when it was asked last.
    """

    known: ClusterWorker
    stage: _Stage = _Stage.NEW
    identity: Identity | None = None
    lacking: set[str] = field(default_factory=set)
    tickets: list[int] = field(default_factory=list)
    until: float = 0.0
    asked: float = 0.0

    @property
    def at_work(self) -> list[int]:
        return self.tickets[: self.known.slots]


@dataclass(slots=True)
class _Given:
    """A case that a worker has. `heard`: when it was given, or last heard of."""

    case: _Case
    worker: _Worker
    heard: float
    begun: Counter[str] = field(default_factory=Counter)
    advanced: Counter[str] = field(default_factory=Counter)


class Dispatch:
    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        progress: Progress,
        pool: WorkerPool,
        requirements: Requirements,
        blobs: Mapping[str, Path],
        recorded: Mapping[CaseId, Mapping[str, str]],
        on_done: Callable[[CaseId], None],
    ) -> None:
        """`blobs`: the files of the requirements' blobs. `recorded`, `on_done`: as of `Casework`."""
        self._plan = plan
        self._store = store
        self._progress = progress
        self._pool = pool
        self._outfit = requirements
        self._requirements = encode(requirements)
        self._blobs = blobs
        self._recorded = recorded
        self._on_done = on_done
        self._limits = Limits(plan)
        self._queue: deque[_Case] = deque()
        self._given: dict[int, _Given] = {}
        self._asked: dict[int, tuple[_Worker, str]] = {}  # what: identity, fit, or a blob's hash
        self._workers: dict[str, _Worker] = {}
        self._looked = 0.0
        self._staffed = time.monotonic()  # when there was a worker last
        self._clock = time.monotonic

    def work(self, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]) -> None:
        """Have all cases decided; as `Casework.work`. Raises EnoughDone, and ClusterGone if the scheduler, or
        every worker, is gone.
        """
        self._plan_cases(wanted, lacking)
        self._progress.begin("recorded", len(self._queue))
        while self._queue or self._given:
            self._look_round()
            self._hand_out()
            for event in self._pool.events(WAIT_S):
                self._take(event)
            if self._queue or self._given:
                self._limits.need_more()

    def _plan_cases(self, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]) -> None:
        known = {record.case: record for record in self._store.cases()}
        for profile, workload in wanted:
            case = CaseId(profile.filesystem, profile.mode, workload.name)
            before = known.get(case)
            if before is None:
                oracles = self._plan.oracles or BY_DEFAULT
                self._store.add_case(
                    CaseInfo(case, profile.mkfs_line, profile.mount_options, workload.summary, oracles)
                )
            if reason := lacking.get(profile.name) or lacking.get(workload.name):
                self._store.set_case_status(case, CaseStatus.NOT_RUN, reason)
                self._on_done(case)
            elif before and before.status is CaseStatus.DONE and not before.mismatch and self._decided(case):
                self._on_done(case)
            else:
                files = (before.info.files if before else {}) or self._recorded.get(case, NOTHING_KNOWN)
                self._queue.append(_Case(case, workload, files))

    def _decided(self, case: CaseId) -> bool:
        return all(v.verdict is not Verdict.UNKNOWN for v in self._store.iter_verdicts(case))

    # --- workers ------------------------------------------------------------------------------

    def _look_round(self) -> None:
        now = self._clock()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        workers = self._pool.workers()
        for address in self._workers.keys() - workers.keys():
            worker = self._workers.pop(address)
            if worker.at_work:
                cases = ", ".join(str(self._given[ticket].case.id) for ticket in worker.at_work)
                self._progress.say(f"worker {worker.known.name} is gone; it worked on {cases}")
            self._lose(worker, "it was gone while it worked on this")
        for address, known in workers.items():
            worker = self._workers.setdefault(address, _Worker(known))
            if worker.stage is _Stage.NEW and now >= worker.until:
                self._ask(worker, "identity")
        for worker in list(self._workers.values()):
            if any(now - self._given[ticket].heard > SILENT_S for ticket in worker.at_work):
                self._refuse(worker, f"it said nothing of a case for {SILENT_S / 60:.0f} min")
            elif worker.stage in (_Stage.ASKED, _Stage.LACKING) and now - worker.asked > SILENT_S:
                self._refuse(worker, f"it did not answer for {SILENT_S / 60:.0f} min")
        self._need_workers(now)

    def _need_workers(self, now: float) -> None:
        """Raises ClusterGone if nobody is left to work, and nobody came."""
        refused = [w for w in self._workers.values() if w.stage is _Stage.REFUSED]
        if len(refused) < len(self._workers):
            self._staffed = now
        elif refused:
            raise ClusterGone("every worker was refused; see above", "mend what they lack")
        elif now - self._staffed > EMPTY_S:
            raise ClusterGone(
                f"{self._pool.description} had no worker for {EMPTY_S:.0f} s", "start workers there"
            )

    def _ask(self, worker: _Worker, what: str) -> None:
        ticket = self._pool.ticket()
        self._asked[ticket] = worker, what
        worker.stage, worker.asked = _Stage.ASKED, self._clock()
        if what == "identity":
            self._pool.identify(ticket, worker.known.address)
        elif what == "fit":
            self._pool.fit(ticket, worker.known.address, self._requirements)
        else:
            self._pool.give(ticket, worker.known.address, what, self._blobs[what])

    def _take_answer(self, worker: _Worker, what: str, answer: Answer) -> None:
        """A worker answered something else than a case."""
        if self._workers.get(worker.known.address) is not worker:
            return
        try:
            if answer.error is not None:
                raise answer.error
            if what == "identity":
                self._identified(worker, msgspec.convert(answer.value, Identity))
            elif what == "fit":
                assert isinstance(answer.value, bytes)  # noqa: S101 - what `site.fit` returns; tells mypy
                self._fitted(worker, decode(answer.value, Lacking))
            else:
                self._got(worker, what)
        except BusyWithAnotherRun as e:
            if not worker.until:
                self._progress.say(f"worker {worker.known.name}: {e.line}")
            worker.stage, worker.until = _Stage.NEW, self._clock() + BUSY_S
        except Exception as e:  # whatever it said instead, it is of no use to this run
            self._refuse(worker, _line(e))

    def _identified(self, worker: _Worker, identity: Identity) -> None:
        own = (self._outfit.pins["powercut"], source_hash())
        theirs = (identity.powercut, identity.source)
        if theirs != own:
            self._refuse(worker, f"it has powercut {_version(*theirs)}, the run has {_version(*own)}")
            return
        worker.identity = identity
        self._ask(worker, "fit")

    def _fitted(self, worker: _Worker, lacking: Lacking) -> None:
        if not lacking.blobs:
            worker.stage = _Stage.READY
            return
        worker.lacking = set(lacking.blobs)
        on_the_way = {what for other, what in self._asked.values() if self._same_host(other, worker)}
        for sha in worker.lacking - on_the_way:
            self._ask(worker, sha)
        worker.stage = _Stage.LACKING

    def _same_host(self, one: _Worker, other: _Worker) -> bool:
        return bool(one.identity and other.identity and one.identity.place == other.identity.place)

    def _got(self, worker: _Worker, sha: str) -> None:
        """A blob is in the cache of the worker's host."""
        for other in self._workers.values():
            if self._same_host(other, worker) and sha in other.lacking:
                other.lacking.discard(sha)
                if not other.lacking:
                    self._ask(other, "fit")

    def _refuse(self, worker: _Worker, why: str) -> None:
        """Use a worker no more."""
        if worker.stage is not _Stage.REFUSED:
            self._progress.say(f"worker {worker.known.name} is left out: {why}")
        worker.stage = _Stage.REFUSED
        self._lose(worker, why)
        self._pool.dismiss(worker.known.address)

    def _lose(self, worker: _Worker, why: str) -> None:
        """Give back what a worker had. What it worked on is held against the cases; what waited is not."""
        at_work = worker.at_work
        for ticket in list(worker.tickets):
            self._give_back(ticket, why if ticket in at_work else "")
        for ticket in [t for t, (of, _) in self._asked.items() if of is worker]:
            del self._asked[ticket]
            self._pool.forget(ticket)
        for other in self._workers.values():  # it may have been getting blobs for its host
            if other.stage is _Stage.LACKING and self._same_host(other, worker):
                self._ask(other, "fit")

    # --- cases --------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """One case for every free slot first, then those that wait at a worker; none of these at the end,
        when another worker may be free sooner.
        """
        ready = [w for w in self._workers.values() if w.stage is _Stage.READY]
        slots = sum(w.known.slots for w in ready)
        for ahead in (0, AHEAD):
            for worker in ready:
                while len(worker.tickets) < worker.known.slots + ahead and len(self._queue) > (
                    ahead and slots
                ):
                    self._hand(worker, self._queue.popleft())

    def _hand(self, worker: _Worker, case: _Case) -> None:
        try:
            ticket = self._pool.ticket()
            job = self._job(ticket, case)
        except (PowercutError, OSError) as e:
            self._end(case, str(e))
            return
        worker.tickets.append(ticket)
        self._given[ticket] = _Given(case, worker, self._clock())
        self._pool.work(ticket, worker.known.address, encode(job))

    def _job(self, ticket: int, case: _Case) -> Job:
        """Raises PowercutError for a recording that is to be judged again and is not there, OSError."""
        plan, run = self._plan, self._store.layout
        if plan.recordings and not is_kept(case.id, run):
            copy_recording(case.id, RunLayout(Path(plan.recordings)), run)
        record = self._store.case(case.id)
        rows = self._store.rows_of(case.id) if record and record.info.log_hash else None
        return Job(
            run=self._outfit.run,
            number=ticket,
            case=case.id,
            workload=case.id.workload if case.id.is_generated else replace(case.workload, files={}),
            payload=Payload(rows, files_of(self._store, case.id)),
            files=dict(case.files),
            all_logs=plan.all_logs,
        )

    def _give_back(self, ticket: int, strike: str) -> None:
        """Take a case from its worker. `strike`: what is held against the case, if it was worked on."""
        given = self._given.pop(ticket)
        given.worker.tickets.remove(ticket)
        self._pool.forget(ticket)
        for what in {**given.begun, **given.advanced}:
            self._count(what, -given.begun[what], -given.advanced[what])
        if strike:
            given.case.strikes.append(f"{given.worker.known.name}: {strike}")
        if not strike:
            self._queue.appendleft(given.case)
        elif len(given.case.strikes) < STRIKES:
            self._queue.append(given.case)  # for whoever comes next, and not the same worker at once
        else:
            seen = "; ".join(given.case.strikes)
            self._end(given.case, f"{STRIKES} workers were lost, or failed, with it: {seen}")

    def _end(self, case: _Case, why: str) -> None:
        """The case cannot be decided."""
        self._progress.say(f"{case.id}: {why}")
        self._progress.advance("recorded", 1)
        self._store.set_case_status(case.id, CaseStatus.UNKNOWN, why)
        self._on_done(case.id)

    # --- what arrives -------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if not isinstance(event, Answer):
            self._noted(decode(event.note, Note))
        elif asked := self._asked.pop(event.ticket, None):
            self._take_answer(*asked, event)
        elif given := self._given.get(event.ticket):
            self._answered(event, given)

    def _answered(self, answer: Answer, given: _Given) -> None:
        error, worker = answer.error, given.worker
        if isinstance(error, NotFitted):
            known = worker.identity.process if worker.identity else ""
            died = error.what != known and answer.ticket in worker.at_work
            self._give_back(answer.ticket, "it was gone while it worked on this" if died else "")
            worker.stage = _Stage.NEW
        elif isinstance(error, Unfit):
            self._refuse(worker, error.line)
        elif error is not None:
            self._give_back(answer.ticket, _line(error))
        else:
            self._done(answer, given)

    def _done(self, answer: Answer, given: _Given) -> None:
        case = given.case
        try:
            assert isinstance(answer.value, bytes)  # noqa: S101 - what `site.work` returns; tells mypy
            done = decode(answer.value, Done)
            adopt(self._store, case.id, done.payload, given.worker.known.name)
        except PowercutError as e:
            self._give_back(answer.ticket, e.line)
            return
        del self._given[answer.ticket]
        given.worker.tickets.remove(answer.ticket)
        for what in {**done.begun, **done.advanced}:
            begun, advanced = done.begun.get(what, 0), done.advanced.get(what, 0)
            self._count(what, begun - given.begun[what], advanced - given.advanced[what])
        for ticket in given.worker.at_work:  # one that had to wait begins
            self._given[ticket].heard = self._clock()
        self._limits.ended(self._store, case.id)
        self._on_done(case.id)

    def _noted(self, note: Note) -> None:
        if not (given := self._given.get(note.number)):
            return
        given.heard = self._clock()
        for text in note.said:
            self._progress.say(text)
        given.begun.update(note.begun)
        given.advanced.update(note.advanced)
        for what in {**note.begun, **note.advanced}:
            self._count(what, note.begun.get(what, 0), note.advanced.get(what, 0))

    def _count(self, what: str, begun: int, advanced: int) -> None:
        """How many cases are to be recorded is known here, so that of "recorded" only what was done
        counts.
        """
        if begun and what != "recorded":
            self._progress.begin(what, begun)
        if advanced:
            self._progress.advance(what, advanced)


def _version(powercut: str, source: str) -> str:
    return f"{powercut} (source {source[:12] or 'unknown'})"


def _line(error: BaseException) -> str:
    return error.line if isinstance(error, PowercutError) else f"{type(error).__name__}: {error}"
