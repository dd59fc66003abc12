"""The crash states of the log's own order, by content."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from harness.cases.examine import Examiner, Group
from harness.model import CrashState
from harness.states import enumerate_states


def groups_of(fault_models: Iterable[str], examiner: Examiner) -> list[Group]:
    """The crash states of a recording under each of the fault models, grouped by content.

    Raises DiskError.
    """
    recording = examiner.recording
    unit = recording.profile.disk.physical_sectors
    states = enumerate_states(fault_models, recording.write_log, unit, recording.times)
    return group_by_content(states, examiner.memo.hashes(states))


def group_by_content(states: Sequence[CrashState], hashes: Sequence[str]) -> list[Group]:
    """Group states of equal content, in the order of each group's first state."""
    groups: dict[str, list[CrashState]] = defaultdict(list)
    for state, content_hash in zip(states, hashes, strict=True):
        groups[content_hash].append(state)
    return [Group(h, tuple(s)) for h, s in groups.items()]
