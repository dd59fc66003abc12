"""What an oracle returns when it could not judge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Undecided:
    """An oracle could not judge something, and why: the state is UNKNOWN unless there is a violation."""

    what: str
