"""What an oracle says when it could not look. (Doubt is the memo's: `harness.cases.outcome_memo`.)"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something that could not be looked at: the state is UNKNOWN unless something else fails."""

    what: str
