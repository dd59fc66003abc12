"""What oracles say of an outcome."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """The result for one crash state. UNKNOWN is never rounded up to PASS."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not kept.

    `subject`: the path or operation concerned. `signature`: the same for the same fault at
    different crash points; findings are folded by (case, oracle, signature).
    """

    oracle: str
    subject: str
    summary: str
    expected: str
    found: str
    signature: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """FAIL if there is a violation; UNKNOWN if there is none but something could not be judged (`unknown`
    says what); PASS otherwise.
    """

    violations: tuple[Violation, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if self.violations:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.unknown else Verdict.PASS
