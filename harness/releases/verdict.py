"""What a sweep says of each configuration on each kernel, for those who have to choose one. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.known.base import KnownBug, Severity, with_bugs
from harness.known.match import known_of
from harness.model import CaseId
from harness.plan import Budget
from harness.releases.results import Answer, OnKernel, Seen, Sweep
from harness.summary import CaseVerdict


@dataclass(frozen=True, slots=True)
class Depth:
    """How hard a verdict looks: workloads, crash states, cuts in recovery, and the most for one case.
    `words`: for people.
    """

    workloads: tuple[str, ...]
    fault_models: tuple[str, ...]
    again: int
    budget: Budget
    words: str


DEPTHS: Mapping[str, Depth] = {
    "quick": Depth(
        ("quick",), ("prefix",), 0, Budget(100, 10),
        "the power fails at each write, in the order in which the disk had them",
    ),
    "normal": Depth(
        ("all", "more"), ("exhaustive",), 0, Budget(400, 60),
        "the power fails at each write, and what was in the disk's cache may be lost in any order",
    ),
    "deep": Depth(
        ("all", "more", "oldtree", "beside"), ("exhaustive",), 1, Budget(1000, 120),
        "as normal, with more workloads and with a second power cut during recovery",
    ),
}  # fmt: skip


def deeper(depth: str) -> str:
    """The next depth; empty behind the last one."""
    names = [*DEPTHS]
    return "".join(names[names.index(depth) + 1 :][:1])


class Kind(enum.Enum):
    """What is known of a configuration on a kernel, the worst first. In words: what a cell says."""

    NEW = "broken: new"
    KNOWN = "broken: known"
    OPEN = "not decided"
    NOT_LOOKED = "not looked at"
    SAFE = "safe as far as looked"


NOT_REACHED = "not reached"
_NO_TIME = ("the run ended", "no state was checked")
"""How the reasons begin of what was undecided only because the time, or that of the case, was up."""


_OF_DATA = {
    **dict.fromkeys(("durability", "program", "untouched", "outside"), Severity.LOSES_SYNCED),
    **dict.fromkeys(("atomicity", "stale", "foreign", "size", "contents"), Severity.DAMAGES_UNSYNCED),
}
"""How bad it is where these oracles find what is expected; not to mount is worse, see `severity_of`."""
_WORST_FIRST = (*Severity, None)


def severity_of(oracle: str) -> Severity | None:
    """That of what an oracle finds. None: the file system was damaged; for how much, its words have to be
    read.
    """
    return Severity.DESTROYS if oracle == "mountable" else _OF_DATA.get(oracle)


@dataclass(frozen=True, slots=True)
class ByDesign:
    """Why something is expected of a configuration, and how bad the worst of it is: see `severity_of`."""

    reason: str
    severity: Severity | None


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a configuration on a kernel. `states`: crash states that were checked; `looked`, `of`:
    workloads that were decided, of those that were asked for and that the file system can run. `undecided`:
    those that were looked at, or were to be, and are not decided. `in_part`: decided ones of which the
    budget left out crash states; `in_order`: see `Answer.in_order`, for each decided one that has it. `bugs`:
    known bugs that it showed, `not_shown`: those that it has besides, `by_design`: why it is expected to
    break a promise, the worst first; `new`: findings that are neither. `why`: for a workload that is not
    decided or was not looked at, see `_why`.
    """

    configuration: str
    kernel: OnKernel
    states: int
    looked: int
    of: int
    undecided: int = 0
    in_part: int = 0
    in_order: tuple[str, ...] = ()
    bugs: tuple[KnownBug, ...] = ()
    by_design: tuple[ByDesign, ...] = ()
    not_shown: tuple[KnownBug, ...] = ()
    new: tuple[Seen, ...] = ()
    why: str = ""

    @property
    def kind(self) -> Kind:
        if self.new:
            return Kind.NEW
        if self.bugs or self.by_design:
            return Kind.KNOWN
        if not self.states:
            return Kind.NOT_LOOKED
        return Kind.SAFE if self.looked and not self.undecided else Kind.OPEN

    @property
    def is_open(self) -> bool:
        """Whether something is left to be decided, also beside what is broken."""
        return self.kind in (Kind.OPEN, Kind.NOT_LOOKED) or bool(self.undecided)

    @property
    def severity(self) -> Severity | None:
        """Of the worst that is known of it."""
        known = [*(bug.record.severity for bug in self.bugs), *(why.severity for why in self.by_design)]
        return min(known, key=_WORST_FIRST.index, default=None)


def standings(sweep: Sweep) -> Iterator[tuple[str, tuple[Standing, ...]]]:
    """Each configuration, in order, with its standing on each kernel."""
    base = with_bugs(sweep.plan.known.bug)
    asked = sweep.plan.plan.configurations
    seen = [a.configuration for k in sweep.kernels for a in k.answers]
    for configuration in dict.fromkeys([*(c for c in asked if "/" in c), *seen]):
        yield configuration, tuple(_standing(configuration, k, base) for k in sweep.kernels)


def _standing(configuration: str, kernel: OnKernel, base: Mapping[str, KnownBug]) -> Standing:
    answers = [a for a in kernel.answers if a.configuration == configuration]
    findings = [f for a in answers for f in a.findings]
    not_run = [a for a in answers if a.verdict is CaseVerdict.NOT_RUN]
    undecided = [a for a in answers if a.undecided]
    lacking = [a for a in not_run if a.lacks]
    bugs = [base[n] for n in dict.fromkeys(f.known for f in findings) if n in base]
    filesystem, _, mode = configuration.partition("/")
    has = known_of(base.values(), CaseId(filesystem, mode, ""), kernel.linux or kernel.release)
    return Standing(
        configuration,
        kernel,
        sum(a.states for a in answers),
        len(answers) - len(not_run) - len(undecided),
        len(answers) - len(not_run) + len(lacking),
        len(undecided),
        sum(a.in_part for a in answers if a not in not_run and a not in undecided),
        tuple(a.in_order for a in answers if a.in_order and a not in not_run and a not in undecided),
        tuple(bugs),
        worst_first(
            ByDesign(f.expected, severity_of(f.oracle))
            for f in findings
            if f.expected and f.known not in base
        ),
        tuple(bug for bug in has if bug not in bugs),
        tuple(f for f in findings if not f.expected and f.known not in base),
        (kernel.failed or _why(answers, [*undecided, *lacking] or not_run)).partition("\n")[0],
    )


def worst_first(found: Iterable[ByDesign]) -> tuple[ByDesign, ...]:
    """Each reason once, as bad as the worst of it."""
    worst: dict[str, ByDesign] = {}
    for why in sorted(found, key=lambda why: _WORST_FIRST.index(why.severity)):
        worst.setdefault(why.reason, why)
    return tuple(worst.values())


def _why(answers: Sequence[Answer], open_: Sequence[Answer]) -> str:
    """Of the first workload for which more than time was lacking; NOT_REACHED if there is none such."""
    for_all = len({a.reason for a in answers}) == 1
    lacking = [a for a in open_ if a.reason and not a.reason.startswith(_NO_TIME)]
    told = (a.reason if for_all else f"{a.workload}: {a.reason}" for a in lacking)
    return next(told, NOT_REACHED if open_ or not answers else "")
