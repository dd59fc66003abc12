"""The worker's side: what one worker process keeps between cases, and how it carries one out.

A process works for one run at a time. It keeps what that run needs, booted guests above all, and dismisses it
when the run says so or when nothing has come for IDLE_S: a run that was killed says nothing any more.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness import __version__
from harness.cases.answers import SharedMessages
from harness.cases.casework import Casework, EnoughDone
from harness.cases.crash_and_continue import remove_own
from harness.cases.ledger import PlannedCase, info_of
from harness.cases.pins import differences, host_pins, source_hash
from harness.cases.pool import MakePool, Pool, pool_of
from harness.cluster.blobs import FOLDER, found
from harness.cluster.messages import (
    BusyWithAnotherRun,
    Done,
    Job,
    Note,
    NotFitted,
    Payload,
    Requirements,
    SentSpec,
    Unfit,
)
from harness.cluster.payloads import payload_of, put_files
from harness.errors import NeverBoots, PowercutError, VersionsDiffer
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import GuestSpecs
from harness.guests.machine import Machine, machine_of
from harness.guests.session import GuestSpec
from harness.host.cache import cache_dir
from harness.host.folders import OwnedFolder
from harness.host.packed import unpack
from harness.model import CaseId
from harness.store import RunStore
from harness.store.records import CaseStatus, KernelInfo, MachineInfo, RunInfo
from harness.workloads.generate import generate

IDLE_S = 120.0
"""How long guests wait for the next case."""
NOTE_S = 1.0
"""How often a case tells of its progress, at most."""

Send = Callable[[Note], None]
"""Sends a note to the run."""


# --- entry points: what the run asks a worker's process to do ---------------------------------


def identity() -> dict[str, str]:
    """Who this worker is, in words that every version understands: see `Identity`."""
    return {
        "powercut": __version__,
        "source": source_hash(),
        "place": f"{socket.gethostname()}:{cache_dir(FOLDER)}",
        "process": _process(),
    }


@functools.cache
def _process() -> str:
    """This process, and no other that had or will have its number."""
    return f"{os.getpid()}@{time.time_ns()}"


def fit(requirements: Requirements, slots: int) -> tuple[str, ...]:
    """Get ready for a run's cases, so many at once. Answers with the hashes of blobs that this host does not
    have; none: it is ready. Raises Unfit, BusyWithAnotherRun.
    """
    return SITE.fit(requirements, slots)


def work(job: Job, send: Send) -> Done:
    """Carry out a job. Raises NotFitted, Unfit."""
    return SITE.work(job, send)


def stop(run: str) -> None:
    """Begin nothing more for this run here. Jobs on the way answer soon, with what they know of a case."""
    SITE.stop(run)


def dismiss(run: str) -> None:
    """End all that is done for this run here, and its guests."""
    SITE.dismiss(run)


class Site:
    """See the module. Thread-safe. `make_pool`: makes the workers. `folder`: in which files of a run are, if
    not the host's for temporary files: a shard's.
    """

    def __init__(self, make_pool: MakePool = pool_of, folder: Path | None = None) -> None:
        self.make_pool, self.folder = make_pool, folder
        self._lock = threading.Lock()
        self._fitted: Fitted | None = None
        self._jobs = 0  # that are at work
        self._used = time.monotonic()

    def fit(self, requirements: Requirements, slots: int) -> tuple[str, ...]:
        with self._lock:
            if self._fitted and (run := self._fitted.requirements.run) != requirements.run:
                if self._jobs:
                    raise BusyWithAnotherRun(f"it works for the run {run}", "wait for its end")
                self._close()
            if self._fitted:
                return ()
            places = {sha: found(sha, Path(path)) for sha, path in requirements.blobs.items()}
            if lacking := tuple(sha for sha, path in places.items() if path is None):
                return lacking
            there = {sha: path for sha, path in places.items() if path}
            self._fitted = fitted(requirements, there, slots, self.make_pool, self.folder)
            self._used = time.monotonic()
            threading.Thread(target=self._watch, args=[self._fitted], daemon=True).start()
            return ()

    def work(self, job: Job, send: Send) -> Done:
        with self._lock:
            if (here := self._fitted) is None or here.requirements.run != job.run:
                raise NotFitted(_process())
            self._jobs += 1
        relay = Relay(job.number, send)
        try:
            return Done(here.work(job, relay), relay.note)
        finally:
            with self._lock:
                self._used = time.monotonic()
                self._jobs -= 1

    def stop(self, run: str) -> None:
        """See `stop`."""
        with self._lock:
            here = self._fitted
        if here and here.requirements.run == run:
            here.stop()

    def dismiss(self, run: str) -> None:
        """See `dismiss`. Jobs on the way end with an exception."""
        with self._lock:
            if self._fitted and self._fitted.requirements.run == run:
                self._close()

    def close(self) -> None:
        """End all that is done here, and its guests."""
        with self._lock:
            self._close()

    def _watch(self, here: Fitted) -> None:
        """In a thread of its own: dismiss what nobody needs any more."""
        while self._fitted is here:
            time.sleep(IDLE_S / 8)
            with self._lock:
                if self._fitted is here and not self._jobs and time.monotonic() - self._used > IDLE_S:
                    self._close()

    def _close(self) -> None:
        """With the lock held."""
        if self._fitted:
            self._fitted.close()
        self._fitted = None


SITE = Site()


# --- what it keeps for a run -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitted:
    """Requirements with everything in its place: guests, unpacked base images, and a small run directory in
    which each case is as long as it is worked on. Thread-safe. `of_run`: on the run's own host, where no
    other worker would do better: that guests cannot be used is told as in one process.
    """

    requirements: Requirements
    specs: GuestSpecs
    profiles: dict[str, Profile]
    bases: dict[str, Path]
    folder: OwnedFolder
    store: RunStore
    pool: Pool
    answers: SharedMessages = field(default_factory=SharedMessages)
    at_work: dict[CaseId, Casework] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)
    of_run: bool = False

    def work(self, job: Job, progress: Relay) -> Payload:
        """Record and decide the case, as far as it comes before `stop`. Raises Unfit if the guests of this
        host do not come up, or differ; `of_run`, NeverBoots and VersionsDiffer.
        """
        store, case = self.store, job.case
        profile = self.profiles[case.configuration]
        workload = generate(job.workload) if isinstance(job.workload, str) else job.workload
        store.add_case(info_of(PlannedCase(profile, workload, case), self.requirements.plan))
        try:
            put_files(store, case, job.payload)
            if job.payload.rows:
                store.adopt(job.payload.rows)
            plan, folder = self.requirements.plan, self.folder.path
            files = {case: job.files}
            casework = Casework(plan, store, progress, folder, self.bases, files, answers=self.answers)
            self.at_work[case] = casework
            if self.stopped.is_set():
                casework.stop()
            try:
                with contextlib.suppress(EnoughDone):  # stopped: whoever goes on has what is known by now
                    casework.work(self.pool, [(profile, workload)], {})
                    if not self.of_run:
                        self._need_hope(case)
            except (NeverBoots, VersionsDiffer) as e:
                if self.of_run:
                    raise
                raise Unfit(e.what, e.next_step) from e
            wanted = job.all_logs or _is_of_interest(store, case)
            return payload_of(store, case, files=wanted and not job.payload.files)
        finally:
            self.at_work.pop(case, None)
            store.drop(case)
            remove_own(profile, workload, self.folder.path)

    def stop(self) -> None:
        """See `stop`, above."""
        self.stopped.set()
        for casework in [*self.at_work.values()]:
            casework.stop()

    def close(self) -> None:
        """End its guests. What it does is left undone."""
        self.pool.close()
        self.store.close()
        self.folder.remove()

    def _need_hope(self, case: CaseId) -> None:
        """Raises NeverBoots, if the case was not decided because of that."""
        record = self.store.case(case)
        if record is not None and record.status is CaseStatus.DONE:
            return
        for spec in (self.specs.recorder, self.specs.judge):
            spec.boots.refuse_if_given_up()


def _is_of_interest(store: RunStore, case: CaseId) -> bool:
    """Whether people, or a resumed run, will look at the recording again."""
    record, counts = store.case(case), store.counts(case)
    return record is None or record.status is not CaseStatus.DONE or bool(counts.unknown or counts.failed)


# --- getting ready ---------------------------------------------------------------------------

_INFO = RunInfo("cases", __version__, "", (), KernelInfo(""), MachineInfo(""), "", datetime.now(UTC))


def fitted(
    requirements: Requirements,
    places: dict[str, Path],
    slots: int,
    make_pool: MakePool = pool_of,
    below: Path | None = None,
) -> Fitted:
    """`places`: of all blobs. `make_pool`, `below`: see `Site`. Raises Unfit, with everything in which this
    host differs from the run's.
    """
    os.environ.update({name: str(places[sha]) for name, sha in requirements.variables.items()})
    try:
        profiles = {p.name: p for p in select_profiles(list(requirements.bases))}
        machines = [_machine(spec, places) for spec in (requirements.recorder, requirements.judge) if spec]
        pins = host_pins(machines, list(profiles.values()))
    except PowercutError as e:
        raise Unfit(e.what, e.next_step) from e
    of_run = {name: requirements.pins.get(name, "") for name in pins}
    if differ := differences(of_run, pins, "in the run", "there"):
        raise Unfit(f"it differs from the run in {differ}", "give every worker what the run's host has")
    recorder = _spec(requirements.recorder, places)
    judge = _spec(requirements.judge, places) if requirements.judge else recorder
    specs, bases = GuestSpecs(recorder, judge, ""), {}
    with contextlib.ExitStack() as made:  # what was made goes again where a later step fails
        folder = made.enter_context(OwnedFolder("powercut-worker-", below))
        store = made.enter_context(RunStore.create(folder.path, "cases", _INFO, durable=False))
        for name, sha in requirements.bases.items():
            profile = profiles[name]
            packed = store.layout.base(profile.filesystem, profile.mode)
            packed.parent.mkdir(parents=True)
            packed.symlink_to(places[sha])
            # where a recording that is loaded looks for its base image
            image = folder.path / f"{profile.filesystem}-{profile.mode}.base.img"
            bases[name] = unpack(places[sha], image, profile.base_bytes_max)
        pool = make_pool(specs, folder.path, msgspec.structs.replace(requirements.plan, jobs=slots))
        made.pop_all()
    return Fitted(requirements, specs, profiles, bases, folder, store, pool, of_run=below is not None)


def _machine(spec: SentSpec, places: dict[str, Path]) -> Machine:
    """Raises PowercutError if this host cannot run it."""
    machine = machine_of(spec.machine, spec.accel)
    machine.kernel_release(places[spec.kernel])  # it may need a C library that is not here
    if lacks := machine.accel_lacks():
        raise PowercutError(f"{machine.profile.title} cannot use {spec.accel}: {lacks}")
    return machine


def _spec(spec: SentSpec, places: dict[str, Path]) -> GuestSpec:
    machine = machine_of(spec.machine, spec.accel)
    return GuestSpec(machine, places[spec.kernel], places[spec.initramfs], memory_mib=spec.memory_mib)


# --- progress --------------------------------------------------------------------------------


class Relay:
    """Progress of one job, sent to the run in notes. Thread-safe."""

    def __init__(self, number: int, send: Send) -> None:
        self._lock = threading.Lock()
        self._number, self._send = number, send
        self._sent = time.monotonic()
        self._begun: Counter[str] = Counter()
        self._advanced: Counter[str] = Counter()

    @property
    def note(self) -> Note:
        """What was begun and advanced in all."""
        return Note(self._number, "", dict(self._begun), dict(self._advanced))

    def say(self, text: str) -> None:
        with self._lock:
            self._send(msgspec.structs.replace(self.note, said=text))

    def begin(self, what: str, total: int) -> None:
        with self._lock:
            self._begun[what] += total

    def advance(self, what: str, count: int) -> None:
        with self._lock:
            self._advanced[what] += count
            if time.monotonic() - self._sent >= NOTE_S:
                self._send(self.note)
                self._sent = time.monotonic()
