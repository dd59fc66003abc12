"""What an oracle says when it could not look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that could not be looked at: the state is UNKNOWN unless something else fails."""

    what: str
