"""Examine one crash state of a recording: recover it in a guest, fsck it, run its checks, judge it.

`run` does this thousands of times, `repro` once. It has three parts:

- `attempts`: recovers a state in guests, and decides what the loss of a guest means;
- `outcome_memo`: recalls outcomes without a guest, and holds the doubt about them;
- `checks`: the workload's own checks, each run once for a content.

Two caches know results by contents: fsck's (`fsck_reads.FsckAnswers`) and the checks'
(`checks.CheckAnswers`). No cache may change a verdict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.cases.attempts import Attempts, Unseen, reason_of
from harness.cases.checks import Checks
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import Recording
from harness.guests.worker import Worker
from harness.model import CrashState, Judgement, Outcome, Position
from harness.oracles import ORACLES, Judge
from harness.plan import SAMPLE_RATE
from harness.store.records import How, JudgedState


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a content, and whether it came from the memo."""

    seen: Outcome | Unseen
    recalled: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Crash states with the same content, of which the first is looked at for all. `content_hash`: empty if
    not known.
    """

    content_hash: str
    states: tuple[CrashState, ...]


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """The states of one content, what a look at it showed, and the judgement of each state."""

    group: Group
    look: Look
    judged: tuple[JudgedState, ...]


_PASSED = Judgement()


def _ignore(_: str) -> None:
    """The default of `on_doubt`: the doubt is not stored."""


class Examiner:
    """Looks at the crash states of one recording and judges them. Shared by all threads.

    `memo`: whether outcomes may be recalled. `sample_rate`: the share of the states that could be recalled
    but are recovered in a guest anyway, to test the memo. `doubt`: about the memo, from an earlier part of
    the run; it turns the memo off. `on_doubt`: stores a new doubt; it is called in the thread in which the
    doubt arises, before any result that depends on it is returned. `oracles`: judge by these alone, by name;
    by all if there are none.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        memo: bool = False,
        sample_rate: float = SAMPLE_RATE,
        doubt: str = "",
        on_doubt: Callable[[str], None] = _ignore,
        oracles: Sequence[str] = (),
    ) -> None:
        self.recording = recording
        profile = recording.profile
        self._memo = OutcomeMemo(recording, sample_rate=sample_rate, doubt=doubt, on_doubt=on_doubt)
        if not memo or profile.repair is not None:  # what a repair program reads is not traced
            self._memo.turn_off()
        self._attempts = Attempts(recording, self._memo)
        self._checks = Checks(recording)
        self._judge = Judge(
            profile.contract,
            recording.history,
            checks=recording.workload.checks,
            error_patterns=tuple(profile.console.errors),
            oracles={name: oracle for name, oracle in ORACLES.items() if not oracles or name in oracles},
        )
        self._judgements: dict[tuple[Position, int], tuple[Outcome, Judgement]] = {}
        self._passed: dict[tuple[tuple[int, ...], int], tuple[Outcome, int]] = {}

    @property
    def doubt(self) -> str:
        """Why the memo's answers cannot be relied on, or empty. It is stored before it is returned."""
        return self._memo.doubt

    @property
    def recalls(self) -> bool:
        """Whether outcomes may be recalled; if not, no state is known to have the outcome of another."""
        return self._memo.recalls

    def outcome(self, number: int) -> Outcome:
        """The outcome of which the disk knows this number. Raises DiskError for one that is not known."""
        return self._memo.outcome(number)

    def same(self, a: Outcome, b: Outcome) -> bool:
        """Whether two outcomes agree in all that oracles judge."""
        return self._memo.same(a, b)

    def known(self, outcome: int, state: CrashState) -> Look | None:
        """The look at a state of which the disk knows the outcome's number; None if it has to be looked at
        all the same, since it is sampled or the workload has checks of its own.
        """
        if self._checks or self._memo.sampled(state):
            return None
        return Look(self._memo.outcome(outcome), recalled=True)

    def look(self, worker: Worker, states: Sequence[CrashState], stop: threading.Event) -> Look:
        """The outcome of these states, which have one content, from the memo or from a guest. Never raises: a
        failure makes these states Unseen.
        """
        try:
            return self._look(worker, states, stop)
        except Exception as e:  # see Attempts, invariant 2: the memo and the checks may have defects, too
            worker.close()
            return Look(Unseen(reason_of(e)))

    def _look(self, worker: Worker, states: Sequence[CrashState], stop: threading.Event) -> Look:
        machine, state = worker.machine_name, states[0]
        self._checks.try_once(machine, lambda control, ask: self._attempts.see(worker, control, ask, stop))
        question = self._checks.question(machine, states)
        recalled = self._memo.recall(worker, state)
        if recalled is not None:
            recalled = self._checks.known(question, recalled)
        if recalled is not None and not self._memo.sampled(state):
            return Look(self._checks.trusted(recalled), recalled=True)
        ask = self._checks.ask(question) if self._checks else None
        seen = self._attempts.see(worker, state, ask, stop)
        if isinstance(seen, Unseen):
            return Look(seen)
        if recalled is not None:
            self._memo.hold(state, recalled, seen)
        return Look(self._checks.trusted(seen))

    def judge(self, state: CrashState, seen: Outcome | Unseen) -> Judgement:
        """The oracles' judgement of `seen`, had the power failed at `state`."""
        if isinstance(seen, Unseen):
            return Judgement(unknown=(seen.reason,))
        position = self.recording.position(state)
        stretch = (self._judge.stretch(position), id(seen))
        if stretch in self._passed and self._passed[stretch][1] <= position.begun:
            return _PASSED
        key = (position, id(seen))
        known = self._judgements.get(key)
        if known is None:
            known = (seen, self._judge.judge(position, seen))  # holds `seen`: its id is not reused
            self._judgements[key] = known
            if known[1] == _PASSED:
                self._passed[stretch] = (seen, position.begun)
        return known[1]


def judge_group(examiner: Examiner, group: Group, look: Look) -> JudgedGroup:
    """Judge what a look at a content showed at each of its states, whose positions in the history differ."""
    first = group.states[0]
    how = How.MEMO if look.recalled else How.JUDGED
    judged = tuple(
        JudgedState(
            state,
            group.content_hash,
            examiner.judge(state, look.seen),
            how if state == first else How.SAME_CONTENT,
        )
        for state in group.states
    )
    return JudgedGroup(group, look, judged)
