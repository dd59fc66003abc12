"""How a run scales with its workers, on a host that has not so many processors.

What all workers share is one interpreter: exploration, memo, oracles and the store. A run is made with real
guests, and what each visit came to is kept. Then the same run is made again with workers that take a fixed
time for each visit, in which they use no processor, and answer with what was kept. What that takes beyond
its visits is the shared part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cases import contents
from harness.cases.pool import KeptTo, Pool, Worker, pool_of
from harness.cases.remote import Attempt, Observed, RemoteSession, WorkerProcess
from harness.errors import PowercutError
from harness.guests.guest_specs import GuestSpecs
from harness.guests.session import GuestSpec, Target
from harness.model import CaseId, CrashState
from harness.plan import Plan

VISIT_S = 0.025
"""What a visit takes, with its guest on a processor of its own."""


@contextlib.contextmanager
def every_case_alone() -> Iterator[None]:
    """In the block, no run takes a content from another of its cases: which one comes first depends on the
    workers, and with it what is visited.
    """
    usual, contents.ENTRIES_MAX = contents.ENTRIES_MAX, 0
    try:
        yield
    finally:
        contents.ENTRIES_MAX = usual


@dataclass(slots=True)
class KeptVisits:
    """What visits came to."""

    seen: dict[tuple[CaseId, CrashState], Observed] = field(default_factory=dict)

    def watched(self, specs: GuestSpecs, scratch: Path, plan: Plan, *, processors: KeptTo = None) -> Pool:
        """Real workers, whose visits are kept. As `pool_of`."""

        def session_of(process: WorkerProcess, name: str, spec: GuestSpec) -> RemoteSession:
            return _Watched(process, name, spec, self)

        return pool_of(specs, scratch, plan, session_of, processors=processors)

    def played(self, specs: GuestSpecs, scratch: Path, plan: Plan, *, processors: KeptTo = None) -> Pool:
        """Workers that answer with what was kept. As `pool_of`."""

        def worker(number: int) -> Worker:
            process = WorkerProcess(dict, scratch / f"worker-{number}")  # is never started
            session = _Played(process, "judge", specs.judge, self)
            return Worker(session, session)

        return Pool(worker, plan.jobs, confirms=False)


class _Watched(RemoteSession):
    """Keeps what its visits come to."""

    def __init__(self, process: WorkerProcess, name: str, spec: GuestSpec, visits: KeptVisits) -> None:
        super().__init__(process, name, spec)
        self.visits = visits

    def attempt(self, asked: Attempt, *rest: Any) -> Observed:
        observed = super().attempt(asked, *rest)
        self.visits.seen[asked.recording.case, asked.state] = dataclasses.replace(
            observed, note=b"", answers=b""
        )
        return observed


class _Played(_Watched):
    """Answers with what was kept."""

    def boot(self, target: Target) -> None:
        """Nothing is needed."""

    def attempt(self, asked: Attempt, *_: object) -> Observed:
        """After VISIT_S. Raises PowercutError for a state that was not visited."""
        time.sleep(VISIT_S)
        try:
            return self.visits.seen[asked.recording.case, asked.state]
        except KeyError:
            raise PowercutError(f"{asked.state} of {asked.recording.case} was not visited before") from None
