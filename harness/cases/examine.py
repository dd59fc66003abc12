"""Look at one crash state of a recording: recover it in a guest, fsck it, run its checks, judge it.

The piece that `run` does thousands of times and `repro` does once. Two things spare work, and neither
may change a verdict:

- A check is run once for each content of the files that it reads, and an application's once for each number
  of acknowledgements: from the most, which the last of the states of one content had, down to the first that
  it is content with. It asks for less with fewer, so it would be content with all that are fewer still.
- The memo. An fsck's answer is found again by the contents of the blocks that it read. And recovery, walk and
  fsck are deterministic, so a state that agrees with one that was looked at in every block which they read
  has the same outcome, with no guest involved. The disk knows what the guest read, `FsckReads` what fsck
  read. A share of the states that the memo answers is looked at all the same; where the two differ the memo
  is given up for the whole recording, and `doubt` says so.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
import threading
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from harness.cases.fsck_reads import FsckMemo, FsckReads
from harness.cases.recording import Recording
from harness.cases.repair import repaired
from harness.errors import DiskError, GuestLost, PowercutError
from harness.guests.worker import RunCheck, Worker
from harness.model import (
    Check,
    CheckResult,
    CrashState,
    FsckClass,
    FsckResult,
    Judgement,
    Outcome,
    Position,
    Tree,
)
from harness.oracles import Judge

ATTEMPTS = 3
"""Guests tried for one state. A kernel that dies in each of them is the kernel's fault."""

SAMPLE_RATE = 0.01
"""Share of the states answered by the memo that are looked at all the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unseen:
    """A state that could not be looked at, and why."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a content, and whether the memo answered."""

    seen: Outcome | Unseen
    recalled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """What checks are to be asked of a content: `acked`: operations that had returned at the last of its
    states; `told`: numbers of acknowledgements at its states, from the most down. `machine`: where; what one
    kind of guest answered does not confirm itself in another.
    """

    machine: str
    acked: int
    told: tuple[int, ...]


class _NotKnown(Exception):
    """A check's answer that only a guest can give."""


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
    """Looks at the crash states of one recording. Shared by all threads.

    `memo`: whether outcomes may be recalled; `sample_rate`: of those, the share looked at all the same.
    """

    def __init__(self, recording: Recording, *, memo: bool = False, sample_rate: float = SAMPLE_RATE) -> None:
        self.recording = recording
        self.doubt = ""
        profile = recording.profile
        self._judge = Judge(
            profile.contract,
            recording.history,
            checks=recording.workload.checks,
            error_patterns=tuple(profile.console.errors),
        )
        self._fsck = FsckMemo()
        self._checks = _Memo()
        self._trying = threading.Lock()
        self._useless: dict[int, str] | None = None  # operations whose check cannot be trusted, and why
        self._judgements: dict[tuple[Position, int], tuple[Outcome, Judgement]] = {}
        self._memo = memo and profile.repair is None  # what a repair program reads is not traced
        self._sample_rate = sample_rate
        self._outcomes: list[Outcome] = []
        self._lock = threading.Lock()
        self._errors = [re.compile(p) for p in profile.console.errors]

    def look(self, worker: Worker, states: Sequence[CrashState], stop: threading.Event) -> Look:
        """What comes back of these states, which have one content, from the memo or from a guest."""
        if self.recording.workload.checks:
            self._try_checks(worker, stop)
        state, asked = states[0], self._asked(worker, states)
        recalled = self._recall(worker, state, asked) if self._memo else None
        if recalled is not None and not self._sampled(state):
            return Look(recalled, recalled=True)
        seen = self._attempt(worker, state, asked, stop)
        if recalled is not None and isinstance(seen, Outcome) and not self._same(recalled, seen):
            self._give_up(state)
        return Look(seen)

    def judge(self, state: CrashState, seen: Outcome | Unseen) -> Judgement:
        """What the oracles say of `seen`, had the power failed at `state`."""
        if isinstance(seen, Unseen):
            return Judgement(unknown=(seen.reason,))
        position = self.recording.history.position(state.prefix)
        key = (position, id(seen))
        known = self._judgements.get(key)
        if known is None:
            known = (seen, self._judge.judge(position, seen))  # holds `seen`, so that its id stays its own
            self._judgements[key] = known
        return known[1]

    # --- a guest ------------------------------------------------------------------------------

    def _try_checks(self, worker: Worker, stop: threading.Event) -> None:
        """Controls: after the workload's end and a clean unmount every check must say yes, and so must an
        application's of the file system that mkfs made. One that does not cannot do its work here (a kernel
        without what the program needs), and its answer is worth nothing; nor is that of an application which
        never acknowledged anything, since its check was never asked for anything.
        """
        checks = self.recording.workload.checks
        with self._trying:
            if self._useless is not None:
                return
            end, start = CrashState(len(self.recording.write_log.entries)), CrashState(0)
            useless = self._refusing(worker, end, "after a clean unmount", stop)
            if any(c.application for c in checks):
                useless |= self._refusing(worker, start, "of an empty file system", stop)
            self._useless = useless | self._silent()

    def _silent(self) -> dict[int, str]:
        """The operations whose application never acknowledged anything."""
        acknowledged = {a.operation for a in self.recording.history.acknowledgements}
        why = "run never called powercut-ack, so that nothing was promised that could be lost"
        checks = (c for c in self.recording.workload.checks if c.application)
        return {c.operation: why for c in checks if c.operation not in acknowledged}

    def _refusing(
        self, worker: Worker, state: CrashState, when: str, stop: threading.Event
    ) -> dict[int, str]:
        """The operations whose check does not say yes at a state that no crash has touched."""
        seen = self._attempt(worker, state, self._asked(worker, [state]), stop)
        if isinstance(seen, Unseen):
            return {c.operation: seen.reason for c in self.recording.workload.checks}
        text = f"it does not say yes even {when}, so it cannot do its work here"
        return {c.operation: f"{text}: {c.output}" for c in seen.checks if c.exit_code != 0}

    def _trusted(self, check: CheckResult) -> CheckResult:
        why = (self._useless or {}).get(check.operation)
        return check if why is None else dataclasses.replace(check, exit_code=None, output=why)

    def _asked(self, worker: Worker, states: Sequence[CrashState]) -> _Asked:
        positions = [self.recording.history.position(s.prefix) for s in states]
        told = sorted({p.told for p in positions}, reverse=True)
        return _Asked(worker.machine_name, max(p.acked for p in positions), tuple(told))

    def _answers(self, asked: _Asked, tree: Tree, run: RunCheck) -> tuple[CheckResult, ...]:
        """What the checks that count say of this tree; `run` is called only for what is not known."""
        answers: list[CheckResult] = []
        for check in self.recording.workload.checks:
            if check.application:
                answers += self._application(check, asked, tree, run)
            elif check.operation < asked.acked:
                answers.append(self._answer(check, asked.machine, (), tree, run))
        return tuple(answers)

    def _application(self, check: Check, asked: _Asked, tree: Tree, run: RunCheck) -> Iterator[CheckResult]:
        """From the most acknowledgements down to the first number that it is content with."""
        for told in asked.told:
            acks = self.recording.history.told(check.operation, told)
            result = self._answer(check, asked.machine, acks, tree, run)
            yield dataclasses.replace(result, told=told)
            if result.exit_code == 0:
                return

    def _answer(
        self, check: Check, machine: str, acks: tuple[str, ...], tree: Tree, run: RunCheck
    ) -> CheckResult:
        key = (check.operation, machine, acks, _contents(tree, check.reads))
        return self._checks.get(key, lambda: run(check, acks))

    def _attempt(
        self, worker: Worker, state: CrashState, asked: _Asked, stop: threading.Event
    ) -> Outcome | Unseen:
        """In up to ATTEMPTS fresh guests."""
        losses: list[GuestLost] = []
        while len(losses) < ATTEMPTS and not stop.is_set():
            try:
                return self._look_once(worker, state, asked)
            except GuestLost as e:
                losses.append(e)
            except DiskError as e:
                losses.append(GuestLost(e.what))
            except PowercutError as e:
                return Unseen(e.what)
        if len(losses) == ATTEMPTS and all(loss.kernel_died for loss in losses):
            return Outcome(lost=losses[-1].console)
        return Unseen(losses[-1].what if losses else "stopped")

    def _look_once(self, worker: Worker, state: CrashState, asked: _Asked) -> Outcome:
        target, shown, repair = self.recording.target, state, self.recording.profile.repair
        if repair is not None:
            target, shown = repaired(worker, target, state, repair), CrashState(0)
        ask = functools.partial(self._answers, asked) if self.recording.workload.checks else None
        recovery = worker.recover(target, shown, ask)
        fsck = self._check(worker, state)
        results = tuple(map(self._trusted, recovery.outcome.checks))
        outcome = dataclasses.replace(recovery.outcome, fsck=fsck.result, checks=results)
        if self._memo:
            self._remember(worker, state, outcome, fsck)
        return outcome

    def _check(self, worker: Worker, state: CrashState) -> FsckReads:
        """fsck of what recovery left, run unless its answer is known by all that it reads."""
        known = self._fsck.recall(worker.disk) if self._memo else None
        if known is not None and not self._sampled(state):
            return known
        worker.disk.image(worker.image)
        answer = FsckReads.of(self.recording.profile, worker.image)
        if known is not None and _classified(known.result) is not _classified(answer.result):
            self._give_up(state)
        if self._memo:
            self._fsck.remember(worker.disk, answer)
        return answer

    # --- the memo -----------------------------------------------------------------------------

    def _recall(self, worker: Worker, state: CrashState, asked: _Asked) -> Outcome | None:
        """The outcome of a state that agrees in all that was read, if what checks say is known as well."""
        try:
            disk = worker.show(self.recording.base, self.recording.log)
            (number,) = disk.recall([state])
        except DiskError:
            worker.close()
            return None
        if number is None:
            return None
        outcome = self._outcomes[number]
        if not self.recording.workload.checks or outcome.mount_errno or outcome.lost:
            return outcome
        try:
            answers = self._answers(asked, outcome.tree, _ask_nobody)
        except _NotKnown:
            return None
        return dataclasses.replace(outcome, checks=tuple(map(self._trusted, answers)))

    def _remember(self, worker: Worker, state: CrashState, outcome: Outcome, fsck: FsckReads) -> None:
        if fsck.blocks is None:
            self._memo = False  # what this fsck reads cannot be known
            return
        with self._lock:
            number = len(self._outcomes)
            self._outcomes.append(outcome)
        worker.disk.also_read(fsck.blocks)
        earlier = worker.disk.remember(number)
        if earlier is not None and not self._same(self._outcomes[earlier], outcome):
            self._give_up(state)

    def _sampled(self, state: CrashState) -> bool:
        """By chance, but the same states in every run."""
        drawn = zlib.crc32(f"{self.recording.case}{state}".encode())
        return drawn < self._sample_rate * 2**32

    def _same(self, a: Outcome, b: Outcome) -> bool:
        """In all that the oracles look at, but for checks: those depend on the tree's contents."""
        return self._essence(a) == self._essence(b)

    def _essence(self, outcome: Outcome) -> tuple[object, ...]:
        errors = (outcome.mount_errno, outcome.unmount_errno, outcome.walk_errors, outcome.lost)
        return (errors, outcome.tree, _classified(outcome.fsck), self._complaints(outcome))

    def _complaints(self, outcome: Outcome) -> list[str]:
        return [line for line in outcome.kernel_log if any(p.search(line) for p in self._errors)]

    def _give_up(self, state: CrashState) -> None:
        self._memo = False
        self.doubt = (
            f"recovery is not deterministic: {state} and a state that is equal in all that was read "
            "gave two outcomes"
        )


def _ask_nobody(check: Check, acknowledged: Sequence[str]) -> CheckResult:
    raise _NotKnown


def _classified(result: FsckResult | None) -> FsckClass | None:
    return result.classified if result else None


def _contents(tree: Tree, patterns: Sequence[str]) -> tuple[tuple[str, str, int, bytes, str], ...]:
    """What a check can see of the files that it reads."""
    return tuple(
        (e.path, e.kind, e.mode, e.target, e.digest)
        for e in tree.values()
        if any(fnmatch.fnmatch(e.path, p) for p in patterns)
    )
