"""Who works on what: the run's side of a cluster, in the thread that owns the store.

A worker is asked who it is, given the requirements, and then as many cases as it takes at once. Dask would
distribute tasks by itself and try those of a lost worker again; it is not left to it, because then a task
that only waited at a worker counts as one that killed it, and how often a task is tried is the scheduler's
setting, not ours.

A case belongs to one worker at a time. It comes back to the queue if that worker goes, is silent for
SILENT_S or fails; what the worker still sends is not listened to. So nothing is stored twice, and since a
case is stored only once it is decided, nothing is half stored. A case that has lost STRIKES workers is
UNKNOWN, with what was seen.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.cases.casework import EnoughDone, Limits
from harness.cases.ledger import PlannedCase, line_up
from harness.cases.pins import source_hash
from harness.cases.recording import copy_recording, is_kept
from harness.cluster import site
from harness.cluster.messages import (
    BusyWithAnotherRun,
    ClusterWorker,
    Done,
    HostFull,
    Identity,
    Job,
    Note,
    NotFitted,
    Payload,
    Requirements,
    Unfit,
)
from harness.cluster.payloads import adopt, files_of
from harness.errors import ClusterGone, PowercutError, VersionsDiffer
from harness.filesystems.profile import Profile
from harness.host.progress import Progress
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.store import RunStore
from harness.store.layout import RunLayout
from harness.store.records import CaseStatus

if TYPE_CHECKING:  # a run on one host needs no Dask
    from harness.cluster.over_dask import DaskPool
    from harness.cluster.shards import Shards

STRIKES = 3
LOOK_S = 2.0
"""How often it is looked which workers there are."""
WAIT_S = 0.5
SILENT_S = 3600.0
"""A worker that says nothing of a case, or does not answer, for so long hangs: a state takes minutes at most,
a recording an hour, and a question may have to wait for a case of another run.
"""
EMPTY_S = 120.0
"""How long a run waits for a first, or another, worker."""
STOP_S = 15.0
"""How long workers have to tell what they know, once the run ends early."""
BUSY_S = 10.0
"""How often a worker is asked that works for another run."""


class _Stage(Enum):
    NEW = "new"
    ASKED = "asked"
    READY = "ready"
    REFUSED = "refused"


@dataclass(slots=True)
class _Worker:
    """A worker, and how far it is. `process`: see `Identity`. `until`: not to be asked again before. `asked`:
    when it was asked last.
    """

    known: ClusterWorker
    stage: _Stage = _Stage.NEW
    process: str = ""
    until: float = 0.0
    asked: float = 0.0


@dataclass(slots=True)
class _Given:
    """A case that a worker has. `heard`: when it was given, or last heard of. `note`: what was told of it."""

    case: PlannedCase
    worker: _Worker
    heard: float
    note: Note


class Dispatch:
    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        progress: Progress,
        pool: DaskPool | Shards,
        requirements: Requirements,
        recorded: Mapping[CaseId, Mapping[str, str]],
        on_done: Callable[[CaseId], None],
    ) -> None:
        """`recorded`, `on_done`: as of `Casework`."""
        self._plan = plan
        self._store = store
        self._progress = progress
        self._pool = pool
        self._requirements = requirements
        self._recorded = recorded
        self._on_done = on_done
        self._limits = Limits(plan)
        self._queue: deque[PlannedCase] = deque()
        self._to_record: set[CaseId] = set()
        self._strikes: defaultdict[CaseId, list[str]] = defaultdict(list)
        """What was seen of each worker that was lost with a case."""
        self._given: dict[int, _Given] = {}
        self._numbers = itertools.count(1)
        self._workers: dict[str, _Worker] = {}
        self._hosts: dict[str, threading.Lock] = {}  # one worker of each gets its blobs
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What has arrived, to be done in this thread."""
        self._looked = 0.0
        self._staffed = time.monotonic()  # when there was a worker last
        self._clock = time.monotonic
        self._start: Callable[[Callable[[], None]], None] = _in_thread

    def work(self, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]) -> None:
        """Have all cases decided; as `Casework.work`. Raises EnoughDone, and ClusterGone if the scheduler, or
        every worker, is gone.
        """
        for case in line_up(self._plan, self._store, wanted, lacking, self._recorded, self._on_done):
            if case.final and not self._store.counts(case.id).unknown:
                self._limits.ended(self._store, case.id)
                self._on_done(case.id)
            else:
                self._queue.append(case)
        kept = self._store.layout
        if not self._plan.recordings:
            self._to_record = {case.id for case in self._queue if not is_kept(case.id, kept)}
            self._progress.begin("recorded", len(self._to_record))
        if self._queue:  # as many may have failed in an earlier part
            self._limits.need_more()
        self._pool.listen(lambda note: self._events.put(functools.partial(self._noted, note)))
        try:
            while self._queue or self._given:
                self._look_round()
                self._hand_out()
                self._await_event()
                if self._queue or self._given:
                    self._limits.need_more()
        except (EnoughDone, KeyboardInterrupt):
            self._take_unfinished()
            raise

    def _await_event(self) -> None:
        with contextlib.suppress(queue.Empty):
            self._events.get(timeout=WAIT_S)()

    def _take_unfinished(self) -> None:
        """Take over what workers know of the cases that they have, for a run that goes on."""
        for address, worker in self._workers.items():
            if self._of(worker):
                self._pool.stop(address)
        until = self._clock() + STOP_S
        while self._given and self._clock() < until:
            self._await_event()

    # --- workers ------------------------------------------------------------------------------

    def _look_round(self) -> None:
        now = self._clock()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        workers = self._pool.workers()
        for address in self._workers.keys() - workers.keys():
            worker = self._workers.pop(address)
            if cases := ", ".join(str(given.case.id) for given in self._of(worker).values()):
                words = f": {said}" if (said := self._pool.last_words(address)) else ""
                self._progress.say(f"worker {worker.known.name} is gone; it worked on {cases}{words}")
            self._lose(worker, "it was gone while it worked on this")
        for address, known in workers.items():
            worker = self._workers.setdefault(address, _Worker(known))
            if worker.stage is _Stage.NEW and now >= worker.until:
                worker.stage, worker.asked = _Stage.ASKED, now
                self._start(functools.partial(self._join, worker))
        for worker in list(self._workers.values()):
            if any(now - given.heard > SILENT_S for given in self._of(worker).values()):
                self._refuse(worker, f"it said nothing of a case for {SILENT_S / 60:.0f} min")
            elif worker.stage is _Stage.ASKED and now - worker.asked > SILENT_S:
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

    def _join(self, worker: _Worker) -> None:
        """In a thread of its own: have a worker get ready for the run."""
        try:
            process = self._made_ready(worker.known.address, worker.known.slots)
        except Exception as e:  # whatever it said instead
            self._events.put(functools.partial(self._not_joined, worker, e))
        else:
            self._events.put(functools.partial(self._joined, worker, process))

    def _made_ready(self, address: str, slots: int) -> str:
        """Returns the worker's process. Raises Unfit, and whatever the worker does."""
        ask, requirements = self._pool.ask, self._requirements
        identity = msgspec.convert(ask(address, site.identity), Identity)
        own, theirs = (requirements.pins["powercut"], source_hash()), (identity.powercut, identity.source)
        if theirs != own:
            raise Unfit(f"it has powercut {_version(*theirs)}, the run has {_version(*own)}")
        if ask(address, site.fit, requirements, slots):
            with self._hosts.setdefault(identity.place, threading.Lock()):
                for sha in ask(address, site.fit, requirements, slots):
                    self._pool.give(address, sha, Path(requirements.blobs[sha]))
            if lacking := ask(address, site.fit, requirements, slots):
                raise Unfit(f"it did not keep {len(lacking)} of the run's files")
        return identity.process

    def _joined(self, worker: _Worker, process: str) -> None:
        if worker.stage is _Stage.ASKED:
            worker.stage, worker.process = _Stage.READY, process

    def _not_joined(self, worker: _Worker, why: Exception) -> None:
        """Raises as `_need_no_end`."""
        _need_no_end(why)
        if worker.stage is not _Stage.ASKED or self._workers.get(worker.known.address) is not worker:
            return
        if not isinstance(why, BusyWithAnotherRun):
            self._refuse(worker, _line(why))
            return
        if not worker.until:
            self._progress.say(f"worker {worker.known.name}: {why.line}")
        worker.stage, worker.until = _Stage.NEW, self._clock() + BUSY_S

    def _refuse(self, worker: _Worker, why: str) -> None:
        """Use a worker no more."""
        if worker.stage is not _Stage.REFUSED:
            self._progress.say(f"worker {worker.known.name} is left out: {why}")
        worker.stage = _Stage.REFUSED
        self._lose(worker, why)
        self._pool.dismiss(worker.known.address)

    def _lose(self, worker: _Worker, why: str) -> None:
        """Give back what a worker had."""
        self._pool.forget(worker.known.address)
        for number in self._of(worker):
            self._give_back(number, why)

    def _of(self, worker: _Worker) -> dict[int, _Given]:
        """What a worker works on."""
        return {number: given for number, given in self._given.items() if given.worker is worker}

    # --- cases --------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """A case for every free slot, first where most are free."""
        free = {
            address: worker.known.slots - len(self._of(worker))
            for address, worker in self._workers.items()
            if worker.stage is _Stage.READY
        }
        while self._queue and free and free[address := max(free, key=free.__getitem__)] > 0:
            free[address] -= 1
            self._hand(self._workers[address], self._queue.popleft())

    def _hand(self, worker: _Worker, case: PlannedCase) -> None:
        number = next(self._numbers)
        try:
            job = self._job(number, case)
        except (PowercutError, OSError) as e:
            self._end(case, str(e))
            return
        self._given[number] = _Given(case, worker, self._clock(), Note(number))

        def on_end(found: Done | BaseException) -> None:
            self._events.put(functools.partial(self._answered, number, found))

        self._pool.work(worker.known.address, job, on_end)

    def _job(self, number: int, case: PlannedCase) -> Job:
        """Raises PowercutError for a recording that is to be judged again and is not there, OSError."""
        plan, run = self._plan, self._store.layout
        if plan.recordings and not is_kept(case.id, run):
            copy_recording(case.id, RunLayout(Path(plan.recordings)), run)
        record = self._store.case(case.id)
        rows = self._store.rows_of(case.id) if record and record.info.log_hash else None
        return Job(
            run=self._requirements.run,
            number=number,
            case=case.id,
            workload=case.id.workload if case.id.is_generated else replace(case.workload, files={}),
            payload=Payload(rows, files_of(self._store, case.id)),
            files=dict(case.files),
            all_logs=plan.all_logs,
        )

    def _give_back(self, number: int, strike: str) -> None:
        """Take a case from its worker. `strike`: what is held against the case; empty for nothing."""
        given = self._given.pop(number)
        self._count(given, Note(number))
        if not strike:
            self._queue.appendleft(given.case)
            return
        strikes = self._strikes[given.case.id]
        strikes.append(f"{given.worker.known.name}: {strike}")
        if len(strikes) < STRIKES:
            self._queue.append(given.case)  # for whoever comes next, and not the same worker at once
        else:
            seen = "; ".join(strikes)
            self._end(given.case, f"{STRIKES} workers were lost, or failed, with it: {seen}")

    def _end(self, case: PlannedCase, why: str) -> None:
        """The case cannot be decided."""
        self._progress.say(f"{case.id}: {why}")
        self._progress.advance("recorded", int(case.id in self._to_record))
        self._store.set_case_status(case.id, CaseStatus.UNKNOWN, why)
        self._limits.ended(self._store, case.id)
        self._on_done(case.id)

    # --- what arrives -------------------------------------------------------------------------

    def _answered(self, number: int, found: Done | BaseException) -> None:
        """What came of a case, unless it was taken from that worker. Raises as `_need_no_end`."""
        _need_no_end(found)
        if (given := self._given.get(number)) is None:
            return
        if isinstance(found, NotFitted):
            died = found.what != given.worker.process
            self._give_back(number, "it was gone while it worked on this" if died else "")
            given.worker.stage = _Stage.NEW
        elif isinstance(found, Unfit):
            self._refuse(given.worker, found.line)
        elif isinstance(found, BaseException):
            self._give_back(number, _line(found))
        else:
            self._done(number, given, found)

    def _done(self, number: int, given: _Given, done: Done) -> None:
        case = given.case
        try:
            adopt(self._store, case.id, done.payload, given.worker.known.name)
        except PowercutError as e:
            self._give_back(number, e.line)
            return
        del self._given[number]
        self._count(given, done.note)
        rows = done.payload.rows
        if rows and rows.record.status not in (CaseStatus.PLANNED, CaseStatus.RECORDED):
            self._limits.ended(self._store, case.id)
            self._on_done(case.id)

    def _noted(self, note: Note) -> None:
        if not (given := self._given.get(note.number)):
            return
        given.heard = self._clock()
        if note.said:
            self._progress.say(note.said)
        self._count(given, note)

    def _count(self, given: _Given, note: Note) -> None:
        """Pass on how far a case is. How many cases are to be recorded is known here, so that of "recorded"
        only what was done counts.
        """
        before, given.note = given.note, note
        for what, begun in _more(before.begun, note.begun):
            if what != "recorded":
                self._progress.begin(what, begun)
        for what, advanced in _more(before.advanced, note.advanced):
            self._progress.advance(what, advanced)


def _more(before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """What differs, and by how much; less than nothing where a case is given back."""
    for what in {**before, **now}:
        if more := now.get(what, 0) - before.get(what, 0):
            yield what, more


def _need_no_end(found: object) -> None:
    """Raises, as one process does, what a shard found that no other shard would do better with: OSError if
    the disk of this host is full, VersionsDiffer for a part of another version.
    """
    if isinstance(found, HostFull):
        raise OSError(errno.ENOSPC, found.what)
    if isinstance(found, VersionsDiffer):
        raise found


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _version(powercut: str, source: str) -> str:
    return f"{powercut} (source {source[:12] or 'unknown'})"


def _line(error: BaseException) -> str:
    return error.line if isinstance(error, PowercutError) else f"{type(error).__name__}: {error}"
