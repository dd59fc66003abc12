"""Reduces a schedule to what a finding needs of it: nothing, or a few of its decisions which thread runs."""

from __future__ import annotations

from collections.abc import Callable

from harness.findings.ddmin import ddmin
from harness.guests.threads import ThreadsTold, may_decide
from harness.model import Threads
from harness.model.schedules import NEVER, ScheduleName

TRIES = 60
"""Candidates at most. What is left then may be more than it takes."""
LISTED_MAX = 500
"""So many decisions can be listed for a kernel."""
NAMED_MAX = 16
"""More are not worth a name: the schedule stays as it is."""


def fewest_decisions(
    chosen: ScheduleName,
    threads: Threads | None,
    told: Callable[[], ThreadsTold | None],
    holds: Callable[[ScheduleName], bool],
) -> ScheduleName:
    """The least schedule found that shows the finding: the default one, or `chosen` without decisions, with
    few, or as it is. `threads`: how the kernel decides under `chosen`; None: it does not. `told`: what the
    kernel said of the recording under `chosen`.
    """
    if holds(ScheduleName()):
        return ScheduleName()
    said = told() if threads else None
    if threads is None or said is None:
        return chosen
    if holds(none := ScheduleName(chosen.number, (NEVER,))):
        return none
    tried = 0

    def still(numbers: tuple[int, ...]) -> bool:
        nonlocal tried
        if len(numbers) > LISTED_MAX or tried >= TRIES:
            return False
        tried += 1
        return holds(ScheduleName(chosen.number, numbers))

    made = tuple(said.lines) if said.is_whole else may_decide(threads, said.points)
    left = ddmin([n for n in made if not chosen.only or n in chosen.only], still)
    return chosen if len(left) > NAMED_MAX else ScheduleName(chosen.number, left)
