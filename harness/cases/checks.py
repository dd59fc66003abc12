"""A workload's own checks: which of them can be trusted, and their results for a recovered tree."""

from __future__ import annotations

import dataclasses
import fnmatch
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.cases.attempts import Unobserved
from harness.cases.recording import UNTOUCHED, Recording
from harness.guests.session import Ask, RunCheck
from harness.model import Check, CheckResult, CrashState, FileKind, Outcome, Tree, TreeEntry

ACCEPTS_NOTHING = (
    "its check says yes even to an empty file system with all that the program acknowledged: it does not "
    "notice that every file is gone; see that it can say no"
)
"""The doubt about a check, see `CaseInfo`."""

# Why nothing is said of an application, and what to do about it: of both kinds of judges.
SILENT = "run acknowledged nothing, so that nothing was promised that could be lost"
CALL_ACK = "call `powercut-ack TEXT`, or print a line, where the program promises something"
MUST_PASS_AT_END = "it has to end with 0 there: it finds what `run` left in the folder in which `run` began"
MUST_PASS_EMPTY = "it has to end with 0 there: the power may fail before anything is acknowledged"

Observe = Callable[[CrashState, Ask], Outcome | Unobserved]
"""Recovers a state in a guest."""


@dataclass(frozen=True, slots=True)
class CheckQuestion:
    """What the checks are asked about one content.

    `machine`: the kind of guest; an answer from one kind confirms nothing about another. `acked`: how many
    operations had returned at the last of the content's states. `app_acks`: the numbers of acknowledgements
    at its states, descending.
    """

    machine: str
    acked: int
    app_acks: tuple[int, ...]


class Checks:
    """Runs the checks on recovered trees and caches their results. Thread-safe. Invariants:

    1. A check is tried before it is trusted: every check must pass after the workload's end and a clean
       unmount, and an application's check must also pass on the file system that mkfs made. A check that
       fails there cannot work here (for instance on a kernel without what the program needs), and its
       results are not used; nor are those of an application that never acknowledged anything, since its
       check then demands nothing.
    2. The first thread that visits a state runs these controls, once for each kind of guest; the others wait.
    3. A check runs once for each combination of the contents of the files that it reads, kind of guest, and
       list of acknowledgements. Threads that want the same result wait for it; if the run fails, the next of
       them tries.
    4. An application's check runs first with the most acknowledgements, those of the last of a content's
       states, and then with fewer until it passes. With fewer acknowledgements it demands less, so it would
       pass with all smaller numbers.
    """

    def __init__(self, recording: Recording) -> None:
        self._checks = recording.workload.checks
        self._recording = recording
        self._history = recording.history
        self._answers = CheckAnswers()
        self._trying = threading.Lock()
        # By the kind of guest: operations whose check cannot be trusted there, and why.
        self._useless: dict[str, dict[int, str]] = {}
        self.doubt = ""  # why a check may find nothing, in words

    def __bool__(self) -> bool:
        return bool(self._checks)

    # --- controls -----------------------------------------------------------------------------

    def try_once(self, machine: str, observe: Observe) -> None:
        """Run the controls, unless that has been done on this kind of guest."""
        if not self._checks or machine in self._useless:
            return
        with self._trying:
            if machine in self._useless:
                return
            end = self._recording.end
            useless = self._refusing(machine, observe, end, "after a clean unmount", MUST_PASS_AT_END)
            if any(c.application for c in self._checks):
                when = "of an empty file system"
                useless |= self._refusing(machine, observe, UNTOUCHED, when, MUST_PASS_EMPTY)
            if not useless and not all(c.application for c in self._checks):
                useless |= self._accepting_nothing(machine, observe)
            useless |= self._silent()
            if not useless:
                self.doubt = self.doubt or self._yes_to_nothing(machine, observe)
            self._useless[machine] = useless

    def _refusing(
        self, machine: str, observe: Observe, state: CrashState, when: str, next_step: str
    ) -> dict[int, str]:
        """The operations whose check fails at a state that no crash has touched, with the reason, and of an
        application what to do about it.
        """
        observed = observe(state, self.ask(self.question(machine, [state])))
        if isinstance(observed, Unobserved):
            return {c.operation: observed.reason for c in self._checks}
        text = f"it does not say yes even {when}, so it cannot do its work here"
        steps = {c.operation: f"; {next_step}" for c in self._checks if c.application}
        return {
            c.operation: f"{text}: {c.output.strip() or f'it ended with {c.exit_code} and said nothing'}"
            f"{steps.get(c.operation, '')}"
            for c in observed.checks
            if c.exit_code != 0
        }

    def _accepting_nothing(self, machine: str, observe: Observe) -> dict[int, str]:
        """The operations whose check, of a tool, says yes to an empty file system: it verifies nothing."""
        of_tools = [c for c in self._checks if not c.application]
        acked = max(c.operation for c in of_tools) + 1
        question = dataclasses.replace(self.question(machine, [UNTOUCHED]), acked=acked)
        observed = observe(UNTOUCHED, self.ask(question))
        if isinstance(observed, Unobserved):
            return {c.operation: observed.reason for c in of_tools}
        text = "it says yes to an empty file system, so it verifies nothing"
        tools = {c.operation for c in of_tools}
        return {c.operation: text for c in observed.checks if c.operation in tools and c.exit_code == 0}

    def _yes_to_nothing(self, machine: str, observe: Observe) -> str:
        """The doubt about a check that accepts an empty file system although all was acknowledged."""
        most = self._recording.position(self._recording.end).app_acks
        question = dataclasses.replace(self.question(machine, [UNTOUCHED]), app_acks=(most,))
        if not most:
            return ""
        observed = observe(UNTOUCHED, self.ask(question))
        if isinstance(observed, Unobserved):
            return f"whether the check can say no is not known: {observed.reason}"
        codes = [c.exit_code for c in observed.checks if c.app_acks]
        return ACCEPTS_NOTHING if codes and all(code == 0 for code in codes) else ""

    def _silent(self) -> dict[int, str]:
        """The operations whose application never acknowledged anything."""
        acknowledged = {a.operation for a in self._history.acknowledgements}
        checks = (c for c in self._checks if c.application)
        return {c.operation: f"{SILENT}; {CALL_ACK}" for c in checks if c.operation not in acknowledged}

    def trusted(self, machine: str, outcome: Outcome) -> Outcome:
        """`outcome`, as this kind of guest gave it, with untrusted results marked as not run, with the
        reason. Returns the same object where there are none, so that the judge's cache recognises it.
        """
        useless = self._useless.get(machine, {})
        if not any(result.operation in useless for result in outcome.checks):
            return outcome
        checks = tuple(self._trusted(result, useless.get(result.operation)) for result in outcome.checks)
        return dataclasses.replace(outcome, checks=checks)

    def _trusted(self, result: CheckResult, why: str | None) -> CheckResult:
        return result if why is None else dataclasses.replace(result, exit_code=None, output=why)

    # --- answers ------------------------------------------------------------------------------

    def question(self, machine: str, states: Sequence[CrashState]) -> CheckQuestion:
        """The question for these states, which have one content."""
        positions = [self._recording.position(s) for s in states]
        app_acks = sorted({p.app_acks for p in positions}, reverse=True)
        return CheckQuestion(machine, max(p.acked for p in positions), tuple(app_acks))

    def ask(self, question: CheckQuestion) -> Ask:
        """Returns a function that answers the question for a mounted tree, and runs in the guest only the
        checks whose result is not known.
        """
        return lambda tree, run: tuple(self._all(question, tree, run))

    def known(self, question: CheckQuestion, outcome: Outcome) -> Outcome | None:
        """A recalled outcome with the results of its checks; None if one of them has to run in a guest."""
        if not self._checks or outcome.mount_errno or outcome.lost:
            return outcome
        try:
            answers = tuple(self._all(question, outcome.tree, _run_nothing))
        except _NotKnown:
            return None
        return dataclasses.replace(outcome, checks=answers)

    def _all(self, question: CheckQuestion, tree: Tree, run: RunCheck) -> Iterator[CheckResult]:
        for check in self._checks:
            if check.application:
                yield from self._application(check, question, tree, run)
            elif check.operation < question.acked:
                yield self._one(check, question.machine, (), tree, run)

    def _application(
        self, check: Check, question: CheckQuestion, tree: Tree, run: RunCheck
    ) -> Iterator[CheckResult]:
        for count in question.app_acks:
            acks = self._history.app_acks(check.operation, count)
            result = self._one(check, question.machine, acks, tree, run)
            yield dataclasses.replace(result, app_acks=count)
            if result.exit_code == 0:
                return

    def _one(
        self, check: Check, machine: str, acks: tuple[str, ...], tree: Tree, run: RunCheck
    ) -> CheckResult:
        # Where none of its files is there, as in a queue that is empty, or under a name that nobody gave
        # one, what else there is tells states apart.
        seen = _contents(tree, check.reads) or _contents(tree, _ALL)
        key = (check.operation, machine, acks, seen)
        return self._answers.get(key, lambda: run(check, acks))


@dataclass(slots=True)
class _Slot:
    """A result, and the lock that the thread which obtains it holds."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: CheckResult | None = None


class CheckAnswers:
    """Results that depend on their key alone, obtained once each. Thread-safe: one thread calls `ask`, the
    others wait. If `ask` raises, nothing is kept, and the next thread calls its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}

    def get(self, key: Hashable, ask: Callable[[], CheckResult]) -> CheckResult:
        """The result for `key`, from `ask` if it is not known yet."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.answer is None:
                slot.answer = ask()
            return slot.answer


class _NotKnown(Exception):
    """The result of a check is not known; it has to run in a guest."""


def _run_nothing(check: Check, acknowledged: Sequence[str]) -> CheckResult:
    raise _NotKnown


_ALL = ("*",)


def _contents(tree: Tree, patterns: Sequence[str]) -> tuple[tuple[object, ...], ...]:
    """What is visible to a check of the files that it reads: path, kind, mode, owner, links, size, target,
    digest of contents. How a directory is stored decides its size. Of times it sees none
    (vms/agent/src/copy.rs).
    """
    return tuple(
        (e.path, e.kind, e.mode, e.uid, e.gid, e.links, _size(e), e.target, e.digest)
        for e in tree.values()
        if any(fnmatch.fnmatch(e.path, p) for p in patterns)
    )


def _size(entry: TreeEntry) -> int:
    return 0 if entry.kind is FileKind.DIRECTORY else entry.size
