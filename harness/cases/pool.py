"""A pool of workers, each a process with its own guests and disk processes, fed from one queue."""

from __future__ import annotations

import concurrent.futures as cf
import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.cases.remote import AnySession, RemoteSession, Sessions, WorkerProcess
from harness.guests import session as guest_sessions
from harness.guests.guest_specs import GuestSpecs
from harness.guests.session import GuestSpec, Session
from harness.host.processes import keep_to, kill_children, processors_for
from harness.plan import Clock, Plan

GRACE_S = 1.0
"""How long a task may go on once its guests have been ended, before it is interrupted."""


@dataclass(frozen=True, slots=True)
class Worker:
    """The sessions of one thread. `recorder` and `judge` are the same where one machine does both."""

    recorder: AnySession
    judge: AnySession

    @property
    def sessions(self) -> tuple[AnySession, AnySession]:
        return (self.recorder, self.judge)


Callback = Callable[[], None]
"""Runs in the thread that owns the store."""

Task = Callable[[Worker], Callback]
"""Runs in a worker's thread. Returns a callback for the store's thread."""


class Pool:
    """A thread pool in which each thread has a worker, and as many threads for what needs none. `stop`: set
    when no further state should be begun. `confirms`: the recorders visit again what the judges find. `jobs`:
    how many workers it has.
    """

    def __init__(self, make_worker: Callable[[int], Worker], jobs: int, *, confirms: bool) -> None:
        self.confirms, self.jobs = confirms, jobs
        self._tasks = 0  # that take a worker, or wait for one
        self.stop = threading.Event()
        self._local = threading.local()
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._make = make_worker
        self._closing = False
        self._busy: set[threading.Thread] = set()
        self._idle = threading.Condition(self._lock)
        self._threads = cf.ThreadPoolExecutor(jobs, "worker")
        self._io_threads = cf.ThreadPoolExecutor(jobs, "io")

    def submit(self, task: Task) -> cf.Future[Callback]:
        with self._lock:
            self._tasks += 1
        return self._threads.submit(self._run_counted, lambda: task(self._worker()))

    def _run_counted(self, task: Callable[[], Callback]) -> Callback:
        try:
            return self._run(task)
        finally:
            with self._lock:
                self._tasks -= 1

    @property
    def has_idle(self) -> bool:
        """Whether a worker has nothing to do, whoever submits tasks."""
        with self._lock:
            return self._tasks < self.jobs

    def submit_aside(self, task: Callable[[], Callback]) -> cf.Future[Callback]:
        """Submit what needs no worker, so that none waits for it."""
        return self._io_threads.submit(self._run, task)

    def _run(self, task: Callable[[], Callback]) -> Callback:
        thread = threading.current_thread()
        with self._lock:
            if self._closing:
                raise cf.CancelledError
            self._busy.add(thread)
        try:
            return task()
        finally:
            with self._lock:
                self._busy.discard(thread)
                self._idle.notify_all()

    def _worker(self) -> Worker:
        if not hasattr(self._local, "worker"):
            with self._lock:
                self._local.worker = self._make(len(self._workers))
                self._workers.append(self._local.worker)
            if self.stop.is_set():  # `close` has not seen it
                for session in self._local.worker.sessions:
                    session.stop()
        worker: Worker = self._local.worker
        return worker

    def close(self) -> None:
        """Begin nothing more, end the guests, wait for the threads. A task that goes on all the same is
        interrupted: it may compute on a long history, or wait for a program that was stopped.
        """
        self.stop.set()
        with self._lock:
            self._closing = True
        for session in self._sessions():
            session.stop()
        while busy := self._still_busy():
            for session in self._sessions():
                session.kill()
            with self._lock:  # one that is no longer busy is between two tasks
                for thread in self._busy.intersection(busy):
                    _interrupt(thread)
        for session in self._sessions():  # before their threads end, and with these what they started
            session.close()
        for threads in (self._threads, self._io_threads):
            threads.shutdown(cancel_futures=True)

    def _sessions(self) -> list[AnySession]:
        with self._lock:
            return [session for worker in self._workers for session in worker.sessions]

    def _still_busy(self) -> list[threading.Thread]:
        with self._lock:
            self._idle.wait_for(lambda: not self._busy, GRACE_S)
            return [thread for thread in self._busy if thread.is_alive()]


KeptTo = Sequence[int | None] | None
"""To which processor each worker keeps, if that was chosen for more workers than these."""


class MakePool(Protocol):
    """Makes the workers of this host, as `pool_of` does."""

    def __call__(
        self, specs: GuestSpecs, scratch: Path, plan: Plan, *, processors: KeptTo = None
    ) -> Pool: ...


def pool_of(
    specs: GuestSpecs,
    scratch: Path,
    plan: Plan,
    session_of: Callable[[WorkerProcess, str, GuestSpec], RemoteSession] = RemoteSession,
    *,
    processors: KeptTo = None,
) -> Pool:
    """A pool of `plan.jobs` workers whose guests are made of these specs."""
    kept_to = processors_for(plan.jobs) if processors is None else processors
    idle_s = guest_sessions.IDLE_S

    def worker(number: int) -> Worker:
        make = functools.partial(
            sessions_of,
            specs,
            scratch,
            number,
            plan,
            processor=kept_to[number],
            idle_s=idle_s,
        )
        process = WorkerProcess(make, scratch / f"worker-{number}")
        recorder = session_of(process, "recorder", specs.recorder)
        return Worker(recorder, session_of(process, "judge", specs.judge))

    return Pool(worker, plan.jobs, confirms=specs.recorder is not specs.judge)


def sessions_of(
    specs: GuestSpecs,
    scratch: Path,
    number: int,
    plan: Plan,
    *,
    processor: int | None = None,
    idle_s: float = guest_sessions.IDLE_S,
) -> Sessions:
    """The sessions of a worker, made in its process, which keeps to `processor` with all that it starts."""
    keep_to(processor)
    notes, recorder = bool(plan.again or plan.disk), specs.recorder
    has_virtual = recorder.machine.has_virtual_time(recorder.kernel_image)
    is_virtual = plan.clock is Clock.VIRTUAL or (plan.clock is Clock.AUTO and has_virtual)

    def made(spec: GuestSpec, name: str, *, notes: bool) -> Session:
        folder = scratch / f"{name}-{number}"
        return Session(
            spec, folder, plan.log_bytes, plan.completions, notes=notes, idle_s=idle_s, clock=plan.clock
        )

    judge = made(specs.judge, "judge", notes=notes)
    if recorder is specs.judge and not judge.boots_anew_to_record and not is_virtual:
        return {"recorder": judge, "judge": judge}
    return {"recorder": made(recorder, "recorder", notes=notes and not is_virtual), "judge": judge}


class Interrupted(BaseException):
    """Raised in a worker's thread, wherever it is, once the run was stopped.

    A thread that may be interrupted holds a Lock or an RLock by `with` on the lock itself, never on a
    Condition of it: how a Condition is entered and left is Python, so an interrupt in there leaves it held
    for good, and whoever waits for it cannot be interrupted.
    """


def _interrupt(thread: threading.Thread) -> None:
    """Kill the programs that the thread waits for, and raise Interrupted at its next step in Python."""
    if thread.native_id is not None:
        kill_children(thread.native_id)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted)
    )
