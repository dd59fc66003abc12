"""Look at one crash state of a recording: recover it in a guest, fsck it, run its checks, judge it.

The piece that `run` does thousands of times and `repro` does once, put together from three:

- `attempts`: what guests show of a state, and what it means when they are lost;
- `outcome_memo`: states whose outcome is known without a guest, and the doubt whether it is;
- `checks`: the workload's own checks, each asked once for a content.

And from two that know answers by contents: fsck's (`fsck_reads.FsckAnswers`) and the checks'
(`checks.CheckAnswers`). None of these may change a verdict.
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
from harness.oracles import Judge

SAMPLE_RATE = 0.01
"""Share of the states answered by the memo that are looked at all the same."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a content, and whether the memo answered."""

    seen: Outcome | Unseen
    recalled: bool = False


def _nobody(_: str) -> None:
    """Nobody keeps the doubt."""


class Examiner:
    """Looks at the crash states of one recording and judges them. Shared by all threads.

    `memo`: whether outcomes may be recalled; `sample_rate`: of those, the share looked at all the same.
    `doubt`: an earlier part of the run had about the memo, which is then off; `on_doubt`: keeps one that
    arises, in the thread in which it does, before anything is answered that depends on it.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        memo: bool = False,
        sample_rate: float = SAMPLE_RATE,
        doubt: str = "",
        on_doubt: Callable[[str], None] = _nobody,
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
        )
        self._judgements: dict[tuple[Position, int], tuple[Outcome, Judgement]] = {}

    @property
    def doubt(self) -> str:
        """Why what the memo answered cannot be relied on, or empty. Kept before it is told."""
        return self._memo.doubt

    def look(self, worker: Worker, states: Sequence[CrashState], stop: threading.Event) -> Look:
        """What comes back of these states, which have one content, from the memo or from a guest. Never
        raises: what goes wrong makes these states Unseen.
        """
        try:
            return self._look(worker, states, stop)
        except Exception as e:  # see Attempts, invariant 2: the memo and the checks have defects as well
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
