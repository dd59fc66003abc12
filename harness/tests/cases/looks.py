"""States looked at one by one, as an exploration does: known to the memo, or visited and learned."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from harness.cases.examine import Examiner, Observation
from harness.cases.remote import AnySession
from harness.model import CrashState


def observe(
    examiner: Examiner, session: AnySession, states: Sequence[CrashState], stop: threading.Event
) -> Observation:
    """What these states, which have one content, come to."""
    number = _recalled(examiner, states[0])
    known = None if number is None else examiner.known(number, session.machine_name, states)
    if known is not None:
        return known
    observation = examiner.visit(session, states, stop)
    examiner.learn(states[0], observation, number)
    return observation


def _recalled(examiner: Examiner, state: CrashState) -> int | None:
    if not examiner.memo.recalls:
        return None
    target, shown = examiner.recording.shown(state)
    (explored,) = examiner.memo.explore(
        [shown], target, losses=0, separate_data=False, data_together=False, to_visit_max=1
    )
    return explored.known[0].outcome if explored.known else None
