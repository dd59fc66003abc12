"""One crash state in guests: recovered, walked, asked and checked, until one attempt holds."""

from __future__ import annotations

import dataclasses
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

from harness.cases.fsck_reads import FsckAnswers, FsckReads
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import Recording
from harness.cases.repair import repaired
from harness.errors import DiskError, GuestLost, PowercutError
from harness.guests.worker import Ask, Worker
from harness.model import CrashState, Outcome

ATTEMPTS = 3
"""Guests tried for one state. A kernel that dies in each of them is the kernel's fault."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A state that could not be looked at, and why."""

    reason: str


class Attempts:
    """From a crash state to an Outcome or Unseen. For all threads, each with a worker of its own.

    Invariants:

    1. An Outcome is of one visit in which nothing went wrong, or of a kernel that died in each of ATTEMPTS
       guests. Everything else is Unseen, with its reason.
    2. `see` never raises. A guest or a disk that is lost (GuestLost, DiskError: also bad frames, timeouts) is
       replaced, and the state is looked at again. A guest or program that says no is not asked again. What
       nobody foresaw, a defect of the harness or a hostile tree that got past the channel, costs this state
       only, and its reason names the exception and the line.
    3. Nothing of an attempt that went wrong reaches the next one: its guest and its disk are gone by then.
    4. The memo learns an outcome only when it is whole: after fsck, from a visit that held.
    """

    def __init__(self, recording: Recording, memo: OutcomeMemo) -> None:
        self._recording = recording
        self._memo = memo
        self._fsck = FsckAnswers()

    def see(
        self, worker: Worker, state: CrashState, ask: Ask | None, stop: threading.Event
    ) -> Outcome | Unseen:
        """What came back of `state`. `ask`: what is to be known of the tree while it is mounted."""
        losses: list[GuestLost | DiskError] = []
        while len(losses) < ATTEMPTS and not stop.is_set():
            try:
                return self._visit(worker, state, ask)
            except (GuestLost, DiskError) as e:
                worker.close()
                losses.append(e)
            except PowercutError as e:
                return Unseen(e.what)
            except Exception as e:  # whatever it is, it costs this state and no other
                worker.close()
                return Unseen(reason_of(e))
        died = [loss.console for loss in losses if isinstance(loss, GuestLost) and loss.kernel_died]
        if len(died) == ATTEMPTS:
            return Outcome(lost=died[-1])
        return Unseen(losses[-1].what if losses else "stopped")

    def _visit(self, worker: Worker, state: CrashState, ask: Ask | None) -> Outcome:
        target, shown, repair = self._recording.target, state, self._recording.profile.repair
        if repair is not None:
            target, shown = repaired(worker, target, state, repair), CrashState(0)
        recovery = worker.recover(target, shown, ask)
        fsck = self._check(worker, state)
        outcome = dataclasses.replace(recovery.outcome, fsck=fsck.result)
        self._memo.remember(worker, state, outcome, fsck)
        return outcome

    def _check(self, worker: Worker, state: CrashState) -> FsckReads:
        """fsck of what recovery left, run unless its answer is known by all that it reads."""
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
    """Why a state could not be looked at. An exception that nobody foresaw is told as one: its type, what it
    says, and where it was raised.
    """
    if isinstance(error, PowercutError):
        return error.what
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in last)
    return f"unforeseen {type(error).__name__}{where}: {error}"
