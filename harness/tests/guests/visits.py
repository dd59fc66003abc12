"""Visits to a disk as a run makes them: what was read is learned, and what is known is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.guests.disk import Disk
from harness.model import CrashState


def remember(disk: Disk, state: CrashState, outcome: int) -> int | None:
    """The disk learns what was read of the state that it shows."""
    return disk.learn(state, disk.reads(), outcome)


def recall(disk: Disk, states: Sequence[CrashState]) -> list[int | None]:
    """The outcomes of states, where they are known."""
    found = disk.explore(states, losses=0)
    return [of.known[0].outcome if of.known else None for of in found]
