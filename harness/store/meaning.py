"""What the findings of a run mean: which known failure each one is, and which known bug."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from harness.errors import UsageError
from harness.expectations import Expectation, first_match, known_losses
from harness.known.base import KnownBug, KnownBugs, installed, version_of, with_bugs
from harness.known.match import LoggedOperation, Observed, as_expectation, match
from harness.oracles.surface import WHILE_RECORDED
from harness.store.records import Finding, KernelInfo, Step
from harness.symptoms import paths_of
from harness.workloads.load import parse_operation

FOLLOWS = "the mount, which fails by it at each of these states"
"""What was compared of a finding that follows from a known bug."""
_OF_BUG = re.compile(r"\b(?:reports/findings|kernels/regressions)/([\w-]+)")
_BEFORE = re.compile(r"\(before (\d+\.\d+)\)")


@dataclass(frozen=True, slots=True)
class Meaning:
    """Known failures, known bugs, and the Linux of the run's kernel. `new_only`: known bugs count as
    expected failures.
    """

    expectations: Sequence[Expectation]
    bugs: Sequence[KnownBug]
    new_only: bool
    kernel: str

    @classmethod
    def of(cls, expectations: Sequence[Expectation], known: KnownBugs, kernel: KernelInfo) -> Self:
        """That of a run with these. Raises UsageError for an installed bug that does not parse."""
        bugs = tuple(with_bugs(known.bug).values())
        return cls(expectations, bugs, known.new_only, kernel.linux)

    def given_to(
        self,
        f: Finding,
        ran: Sequence[LoggedOperation],
        flushed: Callable[[int, int], bool],
        cause: Callable[[], str | None],
    ) -> Finding:
        """The finding with what it means. `ran`, `flushed`, `cause`: see `Observed`."""
        seen = Observed(
            f.case, f.symptom, f.state, f.violations[0], self.kernel, ran, flushed, cause, f.spared
        )  # fmt: skip
        known = match(self.bugs, seen)
        expected = first_match(self._holding(self.expectations), f.case, f.symptom, f.spared)
        if known and self.new_only:
            expected = expected or as_expectation(known.bug)
        losses = self._holding(known_losses())
        loss = None if expected or known else first_match(losses, f.case, f.symptom, f.spared)
        return replace(f, expectation=expected, known=known, loss=loss.reason if loss else "")

    def _holding(self, lines: Iterable[Expectation]) -> Iterator[Expectation]:
        return (line for line in lines if _holds(line, self.kernel))

    def following(self, f: Finding, mounts: Sequence[Finding]) -> Finding:
        """A finding of states that all fail to mount, as these findings say. Nothing was recovered there, so
        what fsck or the kernel's log says follows from the bugs by which the mounts fail, if all are known.
        What the kernel said while the workload ran does not.
        """
        bugs = [mount.known for mount in mounts if mount.known]
        earlier = f.signature.startswith(WHILE_RECORDED)
        if earlier or f.known or f.expectation or f.loss or len(bugs) < len(mounts):
            return f
        known = replace(bugs[0], compared=(FOLLOWS,))
        return replace(f, known=known, expectation=as_expectation(known.bug) if self.new_only else None)


def _holds(line: Expectation, kernel: str) -> bool:
    """Whether a kernel may lose what a line of expected failures says: not where the bug that its reason
    names is mended, nor from the version on that its reason has, as in `(before 7.3)`.
    """
    version = version_of(kernel)
    named, before = _OF_BUG.search(line.reason), _BEFORE.search(line.reason)
    bug = installed().get(named[1]) if named else None
    mended = bug is not None and not bug.record.may_affect(version)
    return not version or not (mended or (before is not None and version >= version_of(before[1])))


def paths_in(steps: Sequence[Step]) -> tuple[str, ...]:
    """The paths of a case's operations; none of a program's, whose names are its own."""
    try:
        return paths_of([parse_operation(step.operation) for step in steps])
    except UsageError:
        return ()
