"""What the journal of a campaign says beside that of any series: what was generated, found, and shrunk."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from harness.expectations import Expectation
from harness.findings.causes import Cause, CauseMember, by_cause
from harness.known.base import KnownBugs
from harness.model.bounds import BatchSize, Hours, Length, Seed
from harness.plan import Plan
from harness.series import journal
from harness.symptoms import Symptom
from harness.workloads.generate import is_generated

SCHEMA = 1


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a campaign. `run`: the plan of every batch, but for its workloads. `batch`: workloads
    in one. `modules`: SHA-256 of the modules that replace the kernel's own, by path. `image`,
    `modules_folder`: of the files of the user that `run` names; empty: it names none, or an older version
    began the campaign. `seed`: the first of the random ones, of `length` operations. `keep`: keep the run
    directories of batches without findings, too. `hours`: of work, in all. `known`: known bugs beside the
    installed ones, and whether these count as expected failures.
    """

    run: Plan
    generators: tuple[str, ...]
    modules: dict[str, str] = {}
    image: str = ""
    modules_folder: str = ""
    batch: BatchSize = 50
    seed: Seed = 1
    length: Length = 20
    keep: bool = False
    hours: Hours | None = None
    expectations: tuple[Expectation, ...] = ()
    known: KnownBugs = KnownBugs()
    schema: int = SCHEMA


class BatchBegun(journal.Begun, frozen=True, kw_only=True, tag="begun"):
    """A batch was chosen."""

    generator: str
    workloads: tuple[str, ...]


class Reached(msgspec.Struct, frozen=True):
    """A case that showed novelty features which no case before had shown: its workload joins the corpus."""

    configuration: str
    workload: str
    features: tuple[str, ...]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The first finding of a symptom in a case. `states`: of the case, that show it. `known`: the name of the
    known bug that it agrees with. `loss`: in words, what its mode is known to lose, if it is that.
    """

    id: str
    configuration: str
    workload: str
    point: str
    symptom: Symptom
    summary: str
    states: int
    known: str = ""
    loss: str = ""


class UndecidedCases(msgspec.Struct, frozen=True):
    """Cases of a batch that were not decided, for one reason; `example` is the first of them."""

    reason: str
    cases: int
    example: str


class LeftOutCases(msgspec.Struct, frozen=True):
    """Cases of a mode in which nothing was looked at: it does not support their workloads, or the harness
    cannot record them there, on any host. `example` is the first of them, left out for this `reason`.
    """

    configuration: str
    cases: int
    example: str
    reason: str


class Batch(journal.Done, frozen=True, kw_only=True, tag="done"):
    """A batch came to its end. `run`: empty if that was deleted. `expected`: number of findings that were.
    `judged`: the modes in which anything was. `broken`: of one that was interrupted, the findings until then;
    of such a one, only cases and states that were judged are told besides.
    """

    cases: int = 0
    states: int = 0
    size_bytes: int = 0
    reached: tuple[Reached, ...] = ()
    found: tuple[Found, ...] = ()
    expected: int = 0
    undecided: tuple[UndecidedCases, ...] = ()
    not_run: dict[str, str] = {}  # noqa: RUF012 - a struct copies its defaults
    left_out: tuple[LeftOutCases, ...] = ()
    judged: tuple[str, ...] = ()
    broken: int = 0


class ShrunkFinding(journal.Line, frozen=True, kw_only=True, tag="shrunk"):
    """A finding was shrunk, in so many seconds; or could not be: see `Member.reason`."""

    member: CauseMember
    seconds: float


class Similar(journal.Line, frozen=True, kw_only=True, tag="similar"):
    """The finding `finding` was not shrunk: its workload contains the minimal one of the finding `like`,
    which shows the same symptom in the same mode.
    """

    finding: str
    like: str


class KnownBatches(journal.Known[Batch]):
    """What the lines of a campaign's journal come to. A batch that was interrupted is not done; `partial` is
    what it had come to, until it is.
    """

    def __init__(self) -> None:
        super().__init__(Batch, BatchBegun, ShrunkFinding, Similar)
        self.chosen: dict[str, BatchBegun] = {}
        self.shrunk: dict[str, ShrunkFinding] = {}
        self.similar: dict[str, Similar] = {}
        self.features: set[str] = set()
        self.partial: Batch | None = None

    def add(self, line: journal.Line) -> None:
        if isinstance(line, Batch) and line.interrupted:
            self.at = max(self.at, line.at)
            self.partial = line
            return
        if isinstance(line, Batch):
            if self.partial and self.partial.item == line.item:
                self.partial = None
            self.done.pop(line.item, None)  # one that had another turn is the last that was done
        super().add(line)
        match line:
            case BatchBegun():
                self.chosen[line.item] = line
            case Batch():
                self.features.update(t for r in line.reached for t in r.features)
            case ShrunkFinding():
                self.shrunk[line.member.finding] = line
            case Similar():
                self.similar[line.finding] = line

    def need_ours(self, line: journal.Line) -> None:
        """Raises ValueError, also for workloads that are files of this host."""
        super().need_ours(line)
        if isinstance(line, BatchBegun) and not all(map(is_generated, line.workloads)):
            raise ValueError("it names workloads that are not generated")
        if isinstance(line, BatchBegun | Batch) and not line.item.isdecimal():
            raise ValueError("a batch is a number")

    @property
    def last(self) -> int:
        """The highest number that a batch has; 0: there is none."""
        return max(map(int, {*self.chosen, *self.done}), default=0)

    @property
    def damaged_batches(self) -> int:
        """Batches of which it is not known what they ran: the line that said so is damaged."""
        return self.last - len(self.chosen)

    @property
    def unfinished(self) -> BatchBegun | None:
        """The first batch that was begun and has not come to its end."""
        return next((b for number, b in self.chosen.items() if number not in self.done), None)

    @property
    def failed(self) -> list[BatchBegun]:
        """The batches of which nothing came."""
        return [b for number, b in self.chosen.items() if number in self.done and self.done[number].failed]

    @property
    def found(self) -> list[tuple[Batch, Found]]:
        """Every finding to be grouped, with its batch, in order."""
        return [(done, f) for done in self.done.values() for f in done.found]

    @property
    def is_broken(self) -> bool:
        """Whether a promise was, also in a batch that has not come to its end."""
        return bool(self.found) or (self.partial is not None and self.partial.broken > 0)

    @property
    def any_judged(self) -> bool:
        """Whether any crash state was, also in a batch that has not come to its end."""
        return any(done.states for done in (*self.done.values(), *filter(None, [self.partial])))

    @property
    def waiting(self) -> list[tuple[Batch, Found]]:
        """Those of which nothing is known yet."""
        return [(done, f) for done, f in self.found if f.id not in self.shrunk and f.id not in self.similar]

    @property
    def never_judged(self) -> list[str]:
        """The modes whose cases were left out, each of them: nothing is known of these."""
        judged = {mode for done in self.done.values() for mode in done.judged}
        left_out = (u.configuration for done in self.done.values() for u in done.left_out)
        return [mode for mode in dict.fromkeys(left_out) if mode not in judged]

    @property
    def shrinking_s(self) -> float:
        """Seconds of work that went into shrinking."""
        return sum(s.seconds for s in self.shrunk.values())

    @property
    def members(self) -> list[CauseMember]:
        """The findings that showed again when they were shrunk."""
        return [s.member for s in self.shrunk.values() if s.member.minimal]

    @property
    def not_again(self) -> list[CauseMember]:
        """Those that did not."""
        return [s.member for s in self.shrunk.values() if not s.member.minimal]

    @property
    def causes(self) -> list[Cause]:
        """The findings that were shrunk, by cause."""
        return by_cause(self.members)

    @property
    def corpus(self) -> list[tuple[Batch, Reached]]:
        """Cases that reached something new, in order, each with its batch."""
        return [(done, r) for done in self.done.values() for r in done.reached]


def totals(batches: Iterable[Batch]) -> tuple[int, int, float]:
    """Cases, crash states and seconds of these batches."""
    batches = list(batches)
    return sum(b.cases for b in batches), sum(b.states for b in batches), sum(b.seconds for b in batches)
