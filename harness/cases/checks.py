"""A workload's own checks: which of them can be trusted, and what they say of a recovered tree."""

from __future__ import annotations

import dataclasses
import fnmatch
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.cases.attempts import Unseen
from harness.cases.recording import Recording
from harness.guests.worker import Ask, RunCheck
from harness.model import Check, CheckResult, CrashState, Outcome, Tree

See = Callable[[CrashState, Ask], Outcome | Unseen]
"""Looks at a state in a guest."""


@dataclass(frozen=True, slots=True)
class Question:
    """What checks are asked of one content.

    `machine`: the kind of guest; what one kind answered does not confirm itself in another. `acked`:
    operations that had returned at the last of the content's states. `told`: numbers of acknowledgements at
    its states, from the most down.
    """

    machine: str
    acked: int
    told: tuple[int, ...]


class Checks:
    """What the checks say of recovered trees. For all threads. Invariants:

    1. A check is tried before it is trusted: after the workload's end and a clean unmount every check must
       say yes, and so must an application's of the file system that mkfs made. One that does not cannot do
       its work here (a kernel without what the program needs), and its answer is worth nothing; nor is that
       of an application which never acknowledged anything, since its check was never asked for anything.
    2. These controls are run once, by the first thread that looks at a state; the others wait.
    3. A check is asked once for one content of the files that it reads, in one kind of guest, with one list
       of acknowledgements. Threads that want the same answer wait for it; where asking fails, the next of
       them asks.
    4. An application is asked from the most acknowledgements, which the last of the states of one content
       had, down to the first number that it is content with. It asks for less with fewer, so it would be
       content with all that are fewer still.
    """

    def __init__(self, recording: Recording) -> None:
        self._checks = recording.workload.checks
        self._history = recording.history
        self._end = CrashState(len(recording.write_log.entries))
        self._answers = CheckAnswers()
        self._trying = threading.Lock()
        self._tried = not self._checks
        self._useless: dict[int, str] = {}  # operations whose check cannot be trusted, and why

    def __bool__(self) -> bool:
        return bool(self._checks)

    # --- controls -----------------------------------------------------------------------------

    def try_once(self, machine: str, see: See) -> None:
        """Run the controls, unless that has been done."""
        if self._tried:
            return
        with self._trying:
            if self._tried:
                return
            useless = self._refusing(machine, see, self._end, "after a clean unmount")
            if any(c.application for c in self._checks):
                useless |= self._refusing(machine, see, CrashState(0), "of an empty file system")
            self._useless = useless | self._silent()
            self._tried = True

    def _refusing(self, machine: str, see: See, state: CrashState, when: str) -> dict[int, str]:
        """The operations whose check does not say yes at a state that no crash has touched."""
        seen = see(state, self.ask(self.question(machine, [state])))
        if isinstance(seen, Unseen):
            return {c.operation: seen.reason for c in self._checks}
        text = f"it does not say yes even {when}, so it cannot do its work here"
        return {c.operation: f"{text}: {c.output}" for c in seen.checks if c.exit_code != 0}

    def _silent(self) -> dict[int, str]:
        """The operations whose application never acknowledged anything."""
        acknowledged = {a.operation for a in self._history.acknowledgements}
        why = "run never called powercut-ack, so that nothing was promised that could be lost"
        checks = (c for c in self._checks if c.application)
        return {c.operation: why for c in checks if c.operation not in acknowledged}

    def trusted(self, outcome: Outcome) -> Outcome:
        """With answers that are worth nothing marked as not given, and why. The same object where there are
        none: the judge knows it again.
        """
        if not any(result.operation in self._useless for result in outcome.checks):
            return outcome
        return dataclasses.replace(outcome, checks=tuple(map(self._trusted, outcome.checks)))

    def _trusted(self, result: CheckResult) -> CheckResult:
        why = self._useless.get(result.operation)
        return result if why is None else dataclasses.replace(result, exit_code=None, output=why)

    # --- answers ------------------------------------------------------------------------------

    def question(self, machine: str, states: Sequence[CrashState]) -> Question:
        """What is asked of these states, which have one content."""
        positions = [self._history.position(s.prefix) for s in states]
        told = sorted({p.told for p in positions}, reverse=True)
        return Question(machine, max(p.acked for p in positions), tuple(told))

    def ask(self, question: Question) -> Ask:
        """Puts the question to a mounted tree; a guest is involved only for what is not known."""
        return lambda tree, run: tuple(self._all(question, tree, run))

    def known(self, question: Question, outcome: Outcome) -> Outcome | None:
        """An outcome that was recalled with what checks say of it; None if only a guest could tell."""
        if not self._checks or outcome.mount_errno or outcome.lost:
            return outcome
        try:
            answers = tuple(self._all(question, outcome.tree, _ask_nobody))
        except _NotKnown:
            return None
        return dataclasses.replace(outcome, checks=answers)

    def _all(self, question: Question, tree: Tree, run: RunCheck) -> Iterator[CheckResult]:
        for check in self._checks:
            if check.application:
                yield from self._application(check, question, tree, run)
            elif check.operation < question.acked:
                yield self._one(check, question.machine, (), tree, run)

    def _application(
        self, check: Check, question: Question, tree: Tree, run: RunCheck
    ) -> Iterator[CheckResult]:
        for told in question.told:
            acks = self._history.told(check.operation, told)
            result = self._one(check, question.machine, acks, tree, run)
            yield dataclasses.replace(result, told=told)
            if result.exit_code == 0:
                return

    def _one(
        self, check: Check, machine: str, acks: tuple[str, ...], tree: Tree, run: RunCheck
    ) -> CheckResult:
        key = (check.operation, machine, acks, _contents(tree, check.reads))
        return self._answers.get(key, lambda: run(check, acks))


@dataclass(slots=True)
class _Slot:
    """An answer, and the lock of the thread that asks for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: CheckResult | None = None


class CheckAnswers:
    """Answers that depend on their key alone, asked for once each. For all threads: one asks, the others
    wait. What `ask` raises is no answer: the next thread asks anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}

    def get(self, key: Hashable, ask: Callable[[], CheckResult]) -> CheckResult:
        """The answer for `key`, from `ask` if nobody has asked before."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.answer is None:
                slot.answer = ask()
            return slot.answer


class _NotKnown(Exception):
    """A check's answer that only a guest can give."""


def _ask_nobody(check: Check, acknowledged: Sequence[str]) -> CheckResult:
    raise _NotKnown


def _contents(tree: Tree, patterns: Sequence[str]) -> tuple[tuple[str, str, int, bytes, str], ...]:
    """What a check can see of the files that it reads."""
    return tuple(
        (e.path, e.kind, e.mode, e.target, e.digest)
        for e in tree.values()
        if any(fnmatch.fnmatch(e.path, p) for p in patterns)
    )
