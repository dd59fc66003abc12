"""The worker's side: what one worker process keeps between cases, and how it carries one out.

A process works for one run at a time. It keeps its slots (a worker each, with guests that are booted and
base images unpacked), as many as the scheduler gives it cases at once, and dismisses them when the run says
so or when nothing has come for IDLE_S: a run that was killed says nothing any more.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness import __version__
from harness.cases.casework import Casework
from harness.cases.pins import differences, host_pins, source_hash
from harness.cases.pool import Pool, pool_of
from harness.cluster.blobs import FOLDER, found
from harness.cluster.messages import (
    BusyWithAnotherRun,
    Done,
    Job,
    Lacking,
    Note,
    NotFitted,
    Payload,
    Requirements,
    SentSpec,
    Unfit,
)
from harness.cluster.payloads import payload_of, put_files
from harness.errors import NeverBoots, PowercutError, VersionsDiffer
from harness.filesystems.profiles import Profile, select_profiles
from harness.guests.guest_specs import GuestSpecs
from harness.guests.machine import Machine, machine_of
from harness.guests.session import GuestSpec
from harness.host.cache import cache_dir
from harness.host.folders import OwnedFolder
from harness.host.packed import unpack
from harness.model import CaseId
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, KernelInfo, MachineInfo, RunInfo
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


def fit(requirements: Requirements) -> Lacking:
    """Get ready for a run; answers with what is lacking. Raises Unfit, BusyWithAnotherRun."""
    return SITE.fit(requirements)


def work(job: Job, send: Send) -> Done:
    """Carry out a job. Raises NotFitted, Unfit."""
    return SITE.work(job, send)


def dismiss(run: str) -> None:
    """End all that is done for this run here, and its guests."""
    SITE.dismiss(run)


# --- slots -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fitted:
    """requirements with everything in its place. `packed`, `bases`: base images by mode, packed and not."""

    requirements: Requirements
    specs: GuestSpecs
    profiles: dict[str, Profile]
    packed: dict[str, Path]
    bases: dict[str, Path]
    folder: OwnedFolder

    @property
    def plan(self) -> Plan:
        return self.requirements.plan


class Slot:
    """One case at a time: a worker, and a folder for the small run directory of that case."""

    def __init__(self, fitted: _Fitted, number: int) -> None:
        self._fitted = fitted
        self._scratch = fitted.folder.path / f"slot-{number}"
        self._scratch.mkdir()
        self._store = RunStore.create(self._scratch, "cases", _INFO, durable=False)
        self.pool: Pool = pool_of(fitted.specs, self._scratch, fitted.plan)
        for name, profile in fitted.profiles.items():
            packed = self._store.layout.base(profile.filesystem, profile.mode)
            packed.parent.mkdir(parents=True)
            packed.symlink_to(fitted.packed[name])
            # where a recording that is loaded looks for its base image
            image = self._scratch / f"{profile.filesystem}-{profile.mode}.base.img"
            image.symlink_to(fitted.bases[name])

    def close(self) -> None:
        """End its guests. What it does is left undone."""
        self.pool.close()
        self._store.close()

    def work(self, job: Job, progress: Relay) -> Payload:
        """Record and decide the case. Raises Unfit if the guests of this host do not come up."""
        fitted, store, case = self._fitted, self._store, job.case
        profile = fitted.profiles[case.configuration]
        workload = generate(job.workload) if isinstance(job.workload, str) else job.workload
        store.add_case(CaseInfo(case))
        try:
            put_files(store, case, job.payload)
            if job.payload.rows:
                store.adopt(job.payload.rows)
            casework = Casework(fitted.plan, store, progress, self._scratch, fitted.bases, {case: job.files})
            try:
                casework.work(self.pool, [(profile, workload)], {})
                self._need_hope(store, case)
            except (NeverBoots, VersionsDiffer) as e:
                raise Unfit(e.what, e.next_step) from e
            wanted = job.all_logs or _is_of_interest(store, case)
            return payload_of(store, case, files=wanted and not job.payload.files)
        finally:
            store.drop(case)

    def _need_hope(self, store: RunStore, case: CaseId) -> None:
        """Raises NeverBoots, if the case was not decided because of that."""
        record = store.case(case)
        if record is not None and record.status is CaseStatus.DONE:
            return
        for spec in (self._fitted.specs.recorder, self._fitted.specs.judge):
            spec.boots.refuse_if_given_up()


_INFO = RunInfo(
    name="cases",
    powercut=__version__,
    git_head="",
    argv=(),
    kernel=KernelInfo(""),
    machine=MachineInfo(""),
    host="",
    started=datetime.now(UTC),
)


def _is_of_interest(store: RunStore, case: CaseId) -> bool:
    """Whether people, or a resumed run, will look at the recording again."""
    record, counts = store.case(case), store.counts(case)
    return record is None or record.status is not CaseStatus.DONE or bool(counts.unknown or counts.failed)


class Site:
    """See the module. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fitted: _Fitted | None = None
        self._free: list[Slot] = []
        self._busy: list[Slot] = []
        self._made = 0
        self._used = time.monotonic()

    def fit(self, requirements: Requirements) -> Lacking:
        with self._lock:
            if self._fitted and self._fitted.requirements.run != requirements.run:
                if self._busy:
                    raise BusyWithAnotherRun(
                        f"it works for the run {self._fitted.requirements.run}", "wait for its end"
                    )
                self._give_up()
            if self._fitted:
                return Lacking()
            places = {blob.sha256: found(blob) for blob in requirements.blobs}
            if lacking := tuple(sha for sha, path in places.items() if path is None):
                return Lacking(lacking)
            self._fitted = _fitted(requirements, {sha: path for sha, path in places.items() if path})
            self._used = time.monotonic()
            threading.Thread(target=self._watch, args=[self._fitted], daemon=True).start()
            return Lacking()

    def work(self, job: Job, send: Send) -> Done:
        relay = Relay(job.number, send)
        with self._slot(job.run) as slot:
            payload = slot.work(job, relay)
        return Done(payload, *relay.totals())

    def dismiss(self, run: str) -> None:
        """See `dismiss`. Jobs on the way end with an exception."""
        with self._lock:
            if self._fitted is None or self._fitted.requirements.run != run:
                return
            fitted, slots = self._fitted, [*self._free, *self._busy]
            self._fitted, self._free, self._busy = None, [], []
        _close(slots, fitted)

    @contextlib.contextmanager
    def _slot(self, run: str) -> Iterator[Slot]:
        with self._lock:
            if self._fitted is None or self._fitted.requirements.run != run:
                raise NotFitted(_process())
            if self._free:
                slot = self._free.pop()
            else:
                self._made += 1
                slot = Slot(self._fitted, self._made)
            self._busy.append(slot)
        try:
            yield slot
        finally:
            with self._lock:
                self._used = time.monotonic()
                if slot in self._busy:  # else it was dismissed
                    self._busy.remove(slot)
                    self._free.append(slot)

    def _watch(self, fitted: _Fitted) -> None:
        """In a thread of its own: dismiss slots that nobody needs any more."""
        while self._fitted is fitted:
            time.sleep(IDLE_S / 8)
            with self._lock:
                if self._fitted is fitted and not self._busy and time.monotonic() - self._used > IDLE_S:
                    self._give_up()

    def _give_up(self) -> None:
        """With the lock held, and no slot at work."""
        if self._fitted:
            slots, fitted = self._free, self._fitted
            self._fitted, self._free = None, []
            _close(slots, fitted)


def _close(slots: list[Slot], fitted: _Fitted) -> None:
    for slot in slots:
        slot.close()
    fitted.folder.remove()


SITE = Site()


# --- getting ready ---------------------------------------------------------------------------


def _fitted(requirements: Requirements, places: dict[str, Path]) -> _Fitted:
    """Raises Unfit, with everything in which this host differs from the run's."""
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
    folder = OwnedFolder("powercut-worker-")
    packed, bases = {}, {}
    for name, sha in requirements.bases.items():
        packed[name] = places[sha]
        image = folder.path / f"{name.replace('/', '-')}.base.img"
        bases[name] = unpack(places[sha], image, profiles[name].base_bytes_max)
    return _Fitted(requirements, GuestSpecs(recorder, judge, ""), profiles, packed, bases, folder)


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
        self._send = send
        self._note = Note(number)
        self._sent = time.monotonic()
        self._begun: dict[str, int] = {}
        self._advanced: dict[str, int] = {}

    def say(self, text: str) -> None:
        with self._lock:
            self._note.said.append(text)
            self._flush()

    def begin(self, what: str, total: int) -> None:
        with self._lock:
            _add(self._note.begun, what, total)
            _add(self._begun, what, total)

    def advance(self, what: str, count: int) -> None:
        with self._lock:
            _add(self._note.advanced, what, count)
            _add(self._advanced, what, count)
            if time.monotonic() - self._sent >= NOTE_S:
                self._flush()

    def totals(self) -> tuple[dict[str, int], dict[str, int]]:
        """What was begun and advanced in all."""
        with self._lock:
            return dict(self._begun), dict(self._advanced)

    def _flush(self) -> None:
        self._send(self._note)
        self._note, self._sent = Note(self._note.number), time.monotonic()


def _add(counts: dict[str, int], what: str, count: int) -> None:
    counts[what] = counts.get(what, 0) + count
