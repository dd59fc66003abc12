"""The crash states of the log's own order, by content."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from harness.cases.examine import Examiner, Group
from harness.cases.recording import Recording
from harness.model import CrashState
from harness.plan import LEGAL
from harness.states import FAULT_MODELS


def groups_of(fault_models: Iterable[str], examiner: Examiner) -> list[Group]:
    """The crash states of a recording under each of the fault models, grouped by content.

    Raises DiskError.
    """
    states = enumerate_states(fault_models, examiner.recording)
    return group_by_content(states, examiner.memo.hashes(states))


def enumerate_states(fault_models: Iterable[str], recording: Recording) -> list[CrashState]:
    """The crash states of a recording under each of the fault models, without repeats, in order. Prefixes
    where all legal states are asked for and the recording has no times.
    """
    named = [name for name in fault_models if name not in LEGAL] or ["prefix"]
    states = (state for name in named for state in FAULT_MODELS[name].states(recording.write_log))
    return list(dict.fromkeys(states))


def group_by_content(states: Sequence[CrashState], hashes: Sequence[str]) -> list[Group]:
    """Group states of equal content, in the order of each group's first state."""
    groups: dict[str, list[CrashState]] = defaultdict(list)
    for state, content_hash in zip(states, hashes, strict=True):
        groups[content_hash].append(state)
    return [Group(h, tuple(s)) for h, s in groups.items()]
