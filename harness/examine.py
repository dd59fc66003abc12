"""Look at one crash state of a recording: recover it in a guest, fsck it, run its checks, judge it.

The piece that `run` does thousands of times and `repro` does once.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from harness.errors import DiskError, GuestLost, PowercutError
from harness.machines.worker import Worker
from harness.model import Check, CheckResult, CrashState, FsckResult, Judgement, Outcome, Tree
from harness.oracles import Judge
from harness.recording import Recording

ATTEMPTS = 3
"""Guests tried for one state. A kernel that dies in each of them is the kernel's fault."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unseen:
    """A state that could not be looked at, and why."""

    reason: str


Answer = TypeVar("Answer")


class _Memo:
    """Answers that depend on contents alone, asked for once each. For all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Hashable, object] = {}

    def get(self, key: Hashable, ask: Callable[[], Answer]) -> Answer:
        with self._lock:
            known = self._answers.get(key)
        if known is None:
            known = ask()
            with self._lock:
                self._answers[key] = known
        return known  # type: ignore[return-value]  # what `ask` for this key answered


class Examiner:
    """Looks at the crash states of one recording. Shared by all threads."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        profile = recording.profile
        self._judge = Judge(
            profile.contract,
            recording.history,
            checks=recording.workload.checks,
            error_patterns=tuple(profile.console.errors),
        )
        self._fsck = _Memo()
        self._checks = _Memo()

    def look(
        self, worker: Worker, state: CrashState, last_prefix: int, stop: threading.Event
    ) -> Outcome | Unseen:
        """Recover `state`. `last_prefix`: the longest prefix among the states with this same content;
        checks of every operation acknowledged by then are run. A guest that is lost is replaced.
        """
        acked = self.recording.history.position(last_prefix).acked
        checks = [c for c in self.recording.workload.checks if c.operation < acked]
        losses: list[GuestLost] = []
        while len(losses) < ATTEMPTS and not stop.is_set():
            try:
                return self._look_once(worker, state, checks)
            except GuestLost as e:
                losses.append(e)
            except DiskError as e:
                losses.append(GuestLost(e.what))
            except PowercutError as e:
                return Unseen(e.what)
        if losses and all(loss.kernel_died for loss in losses):
            return Outcome(lost=losses[-1].console)
        return Unseen(losses[-1].what if losses else "stopped")

    def _look_once(self, worker: Worker, state: CrashState, checks: Sequence[Check]) -> Outcome:
        def answer(tree: Tree, check: Check, run: Callable[[], CheckResult]) -> CheckResult:
            return self._checks.get((check.operation, _contents(tree, check.reads)), run)

        recovery = worker.recover(self.recording.target, state, checks, answer)
        content = worker.disk.image(worker.image)
        fsck: FsckResult = self._fsck.get(
            content, lambda: self.recording.profile.check_filesystem(worker.image)
        )
        return dataclasses.replace(recovery.outcome, fsck=fsck)

    def judge(self, state: CrashState, seen: Outcome | Unseen) -> Judgement:
        """What the oracles say of `seen`, had the power failed at `state`."""
        if isinstance(seen, Unseen):
            return Judgement(unknown=(seen.reason,))
        return self._judge.judge(self.recording.history.position(state.prefix), seen)


def _contents(tree: Tree, patterns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names and digests of the files that a check reads."""
    return tuple(
        (e.path, e.digest) for e in tree.values() if any(fnmatch.fnmatch(e.path, p) for p in patterns)
    )
