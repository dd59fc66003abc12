"""Programs that the harness starts: none of them outlives it."""

from __future__ import annotations

from collections.abc import Sequence


def die_with_parent(line: Sequence[str]) -> list[str]:
    """`line`, killed by the kernel when the thread that started it ends (PR_SET_PDEATHSIG, prctl(2)):
    a killed orchestrator leaves no process behind, not even a stopped one.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", *line]
