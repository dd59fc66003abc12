"""Examine one crash state of a recording: recover it in a guest, fsck it, run its checks, judge it.

`run` does this thousands of times, `repro` once. It has three parts:

- `attempts`: recovers a state in guests, and decides what the loss of a guest means;
- `outcome_memo`: owns the outcomes, recalls them without a guest, and holds them against guests;
- `checks`: the workload's own checks, each run once for a content.

Four caches know results by contents: fsck's (`fsck_reads.FsckAnswers`), writing's
(`use_reads.UseAnswers`), the checks' (`checks.CheckAnswers`), and other cases' (`contents.KnownContents`). No
cache may change a verdict.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.cases.answers import SharedMessages
from harness.cases.attempts import Attempts, Unobserved, Visited, reason_of
from harness.cases.checks import Checks
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import Recording
from harness.cases.recoveries import CutOnce, Promised, RecoveryLog
from harness.cases.remote import AnySession, RemoteAttempts, RemoteSession
from harness.cases.requests_seen import UNNAMED, RequestsSeen
from harness.errors import VersionsDiffer
from harness.guests.disk import BlockReads
from harness.guests.session import Ask
from harness.model import CheckResult, CrashState, DiskFault, Judgement, Outcome, Position
from harness.oracles import Judge, chosen_oracles
from harness.oracles.case import InjectedFault
from harness.plan import SAMPLE_RATE, Plan
from harness.store.records import How, JudgedState

WITHOUT_DISK = "not looked at on a faulty disk: --disk is for single disks"
"""What is to be said of a stack where a faulty disk is asked for: of its members no faults are known."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of a content, and whether it came from the memo, or from a visit to the same content in
    another case (`elsewhere`). `number`: the outcome's in the memo; None where the memo does not own it.
    `reads`: what it depends on, for the memo to learn; None where that
    is not known, or nobody may rely on it. `recovery`: what it wrote, `requests_seen`: what it asked of the
    disk, if these were noted.
    """

    outcome: Outcome | Unobserved
    recalled: bool = False
    number: int | None = None
    reads: BlockReads | None = None
    recovery: RecoveryLog | None = None
    requests_seen: RequestsSeen | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Crash states with the same content, of which the first is visited for all. `content_hash`: empty if
    not known.
    """

    content_hash: str
    states: tuple[CrashState, ...]


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """The states of one content, what was observed of it, and the judgement of each state."""

    group: Group
    observation: Observation
    judged: tuple[JudgedState, ...]


_PASSED = Judgement()


def _ignore(_: str) -> None:
    """The default of `on_mismatch`: the mismatch is not stored."""


class Examiner:
    """Visits the crash states of one recording and judges them. Shared by all threads. `close` it, if it
    has a memo.

    `memo`: whether outcomes may be recalled. `sample_rate`: the share of the states that could be recalled
    but are recovered in a guest anyway, to test the memo. `mismatch`: of the memo, from an earlier part of
    the run; it turns the memo off. `on_mismatch`: stores a new mismatch; it is called in the thread in which
    the mismatch is found, before any result that depends on it is returned. `oracles`: judge by these alone,
    by name; by all if there are none. `again`: how often recovery is to be cut. `faulty_disk`: the disk is to
    be faulty while states are recovered. `cuts`: which recoveries are cut, in all explorations of this
    recording.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        memo: bool = False,
        sample_rate: float = SAMPLE_RATE,
        mismatch: str = "",
        on_mismatch: Callable[[str], None] = _ignore,
        oracles: Sequence[str] = (),
        again: int = 0,
        faulty_disk: bool = False,
    ) -> None:
        profile = recording.profile
        # Each mount counts itself: no two generations would ever meet, nor what two recoveries left.
        # Where every state is recovered anyway, contents are told apart exactly.
        if again or (memo and sample_rate < 1.0):
            recording = replace(recording, mount_counters=profile.mount_counters)
        self.recording = recording
        self.memo = OutcomeMemo(
            recording, sample_rate=sample_rate, mismatch=mismatch, on_mismatch=on_mismatch
        )
        if not memo or profile.repair is not None:  # what a repair program reads is not traced
            self.memo.turn_off()
        self._attempts = Attempts(recording, self.memo, again, faulty_disk=faulty_disk)
        self._remote = RemoteAttempts(recording, self.memo, again, faulty_disk=faulty_disk)
        self._again = again
        self._undisturbed: dict[CrashState, int] = {}
        self._requests_seen: dict[CrashState, RequestsSeen] = {}
        self.cuts = CutOnce(self._promised)
        self._checks = Checks(recording)
        self.not_looked_at = ""
        self._judge = Judge(
            profile.contract,
            recording.history,
            checks=recording.workload.checks,
            error_patterns=tuple(profile.console.errors),
            oracles=chosen_oracles(oracles),
            question=recording.workload.question,
        )
        self._checked: dict[tuple[int, tuple[CheckResult, ...]], int] = {}
        self._judgements: dict[tuple[Position, int, int | None], Judgement] = {}
        self._passed: dict[tuple[tuple[int, ...], int, int | None], int] = {}

    def close(self) -> None:
        """End what the memo runs. Whoever still visits a state starts it again."""
        self.memo.close()

    def share(self, answers: SharedMessages) -> None:
        """From now on, what workers learn of fsck and of writing is shared with other cases of this run."""
        self._remote.share(answers)

    # --- outcomes -----------------------------------------------------------------------------

    def visit(self, session: AnySession, states: Sequence[CrashState], stop: threading.Event) -> Observation:
        """Recover these states, which have one content, in a guest. A failure makes them Unobserved. The memo
        does not know of it before `learn`. Raises VersionsDiffer alone, which would cost every state.
        """
        try:
            return self._visit(session, states, stop)
        except VersionsDiffer:
            raise
        except Exception as e:  # see Attempts, invariant 2: the checks may have defects, too
            session.close()
            return Observation(Unobserved(reason_of(e)))

    def _visit(self, session: AnySession, states: Sequence[CrashState], stop: threading.Event) -> Observation:
        machine = session.machine_name
        if states[0].fault is not None:  # the checks are made for a disk that keeps its promises
            erred = self._attempt(session, states[0], None, stop).outcome
            number = None if isinstance(erred, Unobserved) else self.memo.keep(erred)
            return Observation(erred, number=number)
        self._checks.try_once(
            machine, lambda control, ask: self._attempt(session, control, ask, stop).outcome
        )
        ask = self._checks.ask(self._checks.question(machine, states)) if self._checks else None
        visited = self._attempt(session, states[0], ask, stop)
        if isinstance(visited.outcome, Unobserved):
            return Observation(visited.outcome)
        outcome = self._checks.trusted(machine, visited.outcome)
        number = self.memo.keep(outcome)
        return Observation(outcome, False, number, visited.reads, visited.recovery, visited.requests_seen)

    @property
    def doubt(self) -> str:
        """Why the workload's check may find nothing, and what was not looked at, in words."""
        return "; ".join(filter(None, [self._checks.doubt, self.not_looked_at]))

    def _attempt(
        self, session: AnySession, state: CrashState, ask: Ask | None, stop: threading.Event
    ) -> Visited:
        if isinstance(session, RemoteSession):
            return self._remote.observe(session, state, ask, stop)
        return self._attempts.observe(session, state, ask, stop)

    def learn(self, state: CrashState, observation: Observation, expected: int | None = None) -> int | None:
        """Let the memo learn what a visit to this state showed, if anybody may rely on it. `expected`: the
        number of the outcome that the memo knew for it; another one is a mismatch. Returns the number of the
        outcome under which the state is known, else None. Raises DiskError.
        """
        if observation.number is None or not self.memo.recalls:
            return None
        if expected is not None and isinstance(observation.outcome, Outcome):
            self.memo.compare(state, self.memo.outcome(expected), observation.outcome)
        if observation.reads is None or not self.memo.recalls:
            return None
        return self.memo.learn(state, observation.reads, observation.number)

    def known(self, number: int, machine: str, states: Sequence[CrashState]) -> Observation | None:
        """The observation of states of which the memo knows the outcome's number; None if they have to be
        visited all the same, since they are sampled, or a check of the workload has to run. `machine`: that
        would visit.
        """
        if self.memo.sampled(states[0]):
            return None
        outcome = self.memo.outcome(number)
        if not self._checks:
            return Observation(outcome, recalled=True, number=number)
        answered = self._checks.known(self._checks.question(machine, states), outcome)
        if answered is None:
            return None
        trusted = self._checks.trusted(machine, answered)
        key = (number, trusted.checks)
        if key not in self._checked:
            self._checked[key] = self.memo.keep(trusted)
        number = self._checked[key]
        return Observation(self.memo.outcome(number), recalled=True, number=number)

    def _promised(self, state: CrashState) -> Promised | None:
        """What had been promised when the power failed; None if the recovery of this state is not to be cut
        any more.
        """
        if len(state.again) >= self._again:
            return None
        position = self.recording.position(state)
        return Promised(self._judge.promise_set(position), position.begun)

    def adopt(self, recovery: RecoveryLog, observation: Observation) -> None:
        """From now on, states of this recovery may be looked at, and are held against what it came to. Where
        one of that state was adopted before, that one stays: another visit may write another time of day, and
        what is known of the first one's states would hold of none.
        """
        self.recording.recoveries.setdefault(recovery.of, recovery)
        self.note_undisturbed(recovery.of, observation)

    def note_undisturbed(self, state: CrashState, observation: Observation) -> None:
        """From now on, cuts in the recovery of a state are held against what it came to."""
        if observation.number is not None and not state.again:
            self._undisturbed[state] = observation.number

    def adopt_requests(self, asked: RequestsSeen, observation: Observation) -> None:
        """From now on, the disk may err while this state is recovered, and that is held against what was
        observed.
        """
        self._requests_seen[asked.of] = asked
        if observation.number is not None:
            self._undisturbed[asked.of] = observation.number

    # --- judgement ----------------------------------------------------------------------------

    def judge(self, state: CrashState, observation: Observation) -> Judgement:
        """The oracles' judgement of an observation, had the power failed at `state`. The state after the
        workload's end also answers for the kernel's messages during the recording.
        """
        judged = self._judge_state(state, observation)
        if state != self.recording.end:
            return judged
        said = self.of_recording
        return Judgement(said.violations + judged.violations, said.unknown + judged.unknown)

    @functools.cached_property
    def of_recording(self) -> Judgement:
        """The judgement of the kernel's messages during the recording."""
        return self._judge.judge_recording(self.recording.said)

    def _judge_state(self, state: CrashState, observation: Observation) -> Judgement:
        observed, number = observation.outcome, observation.number
        if isinstance(observed, Unobserved):
            return Judgement(unknown=(observed.reason,))
        position = self.recording.position(state)
        if state.fault is not None:
            return self._judge_faulty_disk(state, state.fault, observed)
        whole = self._undisturbed.get(state.first) if state.again else None
        undisturbed = None if whole is None else self.memo.outcome(whole)
        if state.again and undisturbed is None:
            return Judgement(unknown=(f"what {state.first} comes to if recovery is not cut is not known",))
        if number is None:
            return self._judge.judge(position, observed, undisturbed)
        promise_set = (self._judge.promise_set(position), number, whole)
        if self._passed.get(promise_set, position.begun + 1) <= position.begun:
            return _PASSED
        key = (position, number, whole)
        known = self._judgements.get(key)
        if known is None:
            known = self._judgements[key] = self._judge.judge(position, observed, undisturbed)
            if known == _PASSED:
                self._passed[promise_set] = position.begun
        return known

    def _judge_faulty_disk(self, state: CrashState, fault: DiskFault, observed: Outcome) -> Judgement:
        undisturbed = self.undisturbed(state)
        if undisturbed is None:
            return Judgement(
                unknown=(f"what {state.without_fault} comes to if the disk has no fault is not known",)
            )
        injected_fault = self.injected_fault(state, fault)
        return self._judge.judge(self.recording.position(state), observed, undisturbed, injected_fault)

    def undisturbed(self, state: CrashState) -> Outcome | None:
        """What the state comes to on a disk that does nothing wrong, if that is known."""
        number = self._undisturbed.get(state.without_fault)
        return None if number is None else self.memo.outcome(number)

    def injected_fault(self, state: CrashState, fault: DiskFault) -> InjectedFault:
        """What befalls the recovery of this state."""
        asked = self._requests_seen.get(state.without_fault)
        where = asked.where(fault) if asked is not None else UNNAMED
        return InjectedFault(fault, where, self.recording.profile.contract.has_checksum(where))


def judge_group(examiner: Examiner, group: Group, observation: Observation) -> JudgedGroup:
    """Judge what was observed of a content at each of its states, whose positions in the history differ."""
    first = group.states[0]
    how = How.MEMO if observation.recalled else How.SAME_CONTENT if observation.elsewhere else How.JUDGED
    judged = tuple(
        JudgedState(
            state,
            group.content_hash,
            examiner.judge(state, observation),
            how if state == first else How.SAME_CONTENT,
        )
        for state in group.states
    )
    return JudgedGroup(group, observation, judged)


def examiner_for(
    plan: Plan, recording: Recording, *, mismatch: str = "", on_mismatch: Callable[[str], None] = _ignore
) -> Examiner:
    """The examiner of a recording with all looks that a plan asks for. `mismatch`, `on_mismatch`: see
    `Examiner`.
    """
    # Only the memo's tree tells which legal states there are. Without recalls, each is recovered as well.
    disturbed = bool(plan.again or plan.disk)
    every = (recording.legal is not None or disturbed) and not plan.memo
    stacked = recording.profile.stacked
    examiner = Examiner(
        recording,
        memo=plan.memo or every,
        sample_rate=1.0 if every else plan.sample_rate,
        mismatch=mismatch,
        on_mismatch=on_mismatch,
        oracles=plan.oracles,
        again=plan.again,
        faulty_disk=bool(plan.disk) and not stacked,
    )
    examiner.not_looked_at = WITHOUT_DISK if plan.disk and stacked else ""
    return examiner
