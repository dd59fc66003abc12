"""Attempts to observe one crash state: a guest recovers, walks and checks it, until one attempt succeeds."""

from __future__ import annotations

import dataclasses
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

from harness.cases.fsck_reads import FsckAnswers, FsckReads
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import UNTOUCHED, Recording
from harness.cases.repair import repaired
from harness.errors import DiskError, GuestLost, PowercutError
from harness.guests.worker import Ask, Worker
from harness.model import CrashState, Outcome

ATTEMPTS = 3
"""Guests tried for one state. If the kernel dies in each of them, recovery is at fault."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A state that could not be observed, and why."""

    reason: str


class Attempts:
    """Turns a crash state into an Outcome or Unseen. Thread-safe; each thread brings its own worker.

    Invariants:

    1. An Outcome comes from one visit in which nothing went wrong, or says that the kernel died in each of
       ATTEMPTS guests. Everything else is Unseen, with its reason.
    2. `see` never raises. A lost guest or disk (GuestLost, DiskError; this includes bad frames and timeouts)
       is replaced, and the state is tried again. A guest or program that reports failure is not tried again.
       An unforeseen exception, from a defect of the harness or a hostile tree that got past the channel,
       costs this state only, and its reason names the exception and the line.
    3. No attempt that went wrong affects the next one: its guest and its disk are gone by then.
    4. The memo receives only complete outcomes: after fsck, from a visit in which nothing went wrong.
    """

    def __init__(self, recording: Recording, memo: OutcomeMemo) -> None:
        self._recording = recording
        self._memo = memo
        self._fsck = FsckAnswers()

    def see(
        self, worker: Worker, state: CrashState, ask: Ask | None, stop: threading.Event
    ) -> Outcome | Unseen:
        """The outcome of `state`. `ask`: runs the workload's checks on the tree while it is mounted."""
        losses: list[GuestLost | DiskError] = []
        while len(losses) < ATTEMPTS and not stop.is_set():
            try:
                return self._visit(worker, state, ask)
            except (GuestLost, DiskError) as e:
                worker.close()
                losses.append(e)
            except PowercutError as e:
                return Unseen(e.what)
            except Exception as e:  # whatever was raised, it costs this state and no other
                worker.close()
                return Unseen(reason_of(e))
        died = [loss.console for loss in losses if isinstance(loss, GuestLost) and loss.kernel_died]
        if len(died) == ATTEMPTS:
            return Outcome(lost=died[-1])
        return Unseen(losses[-1].what if losses else "stopped")

    def _visit(self, worker: Worker, state: CrashState, ask: Ask | None) -> Outcome:
        target, shown = self._recording.target, self._recording.on_disk(state)
        repair = self._recording.profile.repair
        if repair is not None:
            target, shown = repaired(worker, target, shown, repair), UNTOUCHED
        recovery = worker.recover(target, shown, ask)
        fsck = self._check(worker, state)
        outcome = dataclasses.replace(recovery.outcome, fsck=fsck.result)
        self._memo.remember(worker, state, outcome, fsck)
        return outcome

    def _check(self, worker: Worker, state: CrashState) -> FsckReads:
        """fsck of the recovered image; not run if its answer for the same blocks is known."""
        known = self._fsck.recall(worker.disk) if self._memo.recalls else None
        if known is not None and not self._memo.sampled(state):
            return known
        worker.disk.image(worker.image)
        answer = FsckReads.of(self._recording.profile, worker.image)
        if known is not None:
            self._memo.hold_fsck(state, known.result, answer.result)
        if self._memo.recalls:
            self._fsck.remember(worker.disk, answer)
        return answer


def reason_of(error: Exception) -> str:
    """Why a state could not be observed. For an unforeseen exception: its type, its text, and where it was
    raised.
    """
    if isinstance(error, PowercutError):
        return error.what
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in last)
    return f"unforeseen {type(error).__name__}{where}: {error}"
