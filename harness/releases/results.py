"""What a sweep has shown: an answer for each case on each kernel."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from harness.expectations import Expectation
from harness.kernels.find import told_apart
from harness.known.base import KnownBugs
from harness.model import CaseId
from harness.plan import Plan
from harness.report.lines import full, source_in
from harness.report.pages import on_page
from harness.report.words import enumerated, named_loss, number, plural
from harness.series.journal import Done
from harness.store.records import CaseStatus
from harness.summary import CaseSummary, CaseVerdict

SCHEMA = 1
GONE = "its run directory is gone"


class Seen(msgspec.Struct, frozen=True):
    """A finding. `point`: the smallest crash state that shows it; `expected`: the reason, if it is known;
    `known`: the name of the known bug that it agrees with; `symptom`: what was lost, without names and
    numbers; empty where nobody kept it. `loss`: if its mode is known to lose this, the words for that.
    """

    oracle: str
    summary: str
    point: str
    states: int
    expected: str = ""
    known: str = ""
    symptom: str = ""
    loss: str = ""

    @property
    def is_new(self) -> bool:
        """Whether nothing is known of it."""
        return not (self.expected or self.known or self.loss)


class Answer(msgspec.Struct, frozen=True):
    """One case on one kernel. `reason`: why it is undecided or was not run; `lacks`: it was not run because
    this host, kernel or harness lacks something, not because the file system does. `in_part`: the budget
    left out some of its crash states; `in_order`: why only those of the log's own order were looked at,
    although all legal ones were asked for; `taken_from`: the earlier run that decided it, if one did.
    """

    configuration: str
    workload: str
    verdict: CaseVerdict
    states: int = 0
    failed: int = 0
    findings: tuple[Seen, ...] = ()
    reason: str = ""
    lacks: bool = False
    in_part: bool = False
    in_order: str = ""
    taken_from: str = ""

    @property
    def case(self) -> CaseId:
        """The case's name."""
        filesystem, _, mode = self.configuration.partition("/")
        return CaseId(filesystem, mode, self.workload)

    @property
    def undecided(self) -> bool:
        """Whether something of it is not decided, also where findings were made beside that."""
        beside = self.verdict is not CaseVerdict.NOT_RUN and bool(self.reason)
        return self.verdict is CaseVerdict.UNKNOWN or beside

    def shows(self, oracle: str, symptom: str = "") -> bool:
        """Whether a finding of this oracle and symptom (empty: of any) was made."""
        return any(self.shown(oracle, symptom))

    def shown(self, oracle: str, symptom: str) -> Iterator[Seen]:
        """Those findings. One that was kept without its symptom may be any."""
        for f in self.findings:
            if oracle in ("", f.oracle) and not (symptom and f.symptom and symptom != f.symptom):
                yield f


class OnKernel(Done, frozen=True, kw_only=True, tag="done", dict=True):
    """The answers on one kernel, the item. `name`, `release`: what the kernel that was asked for turned out
    to be; `linux`: its version, as far as that is known.
    """

    name: str = ""
    release: str = ""
    linux: str = ""
    machine: str = ""
    answers: tuple[Answer, ...] = ()

    @property
    def title(self) -> str:
        """What it is called in a table."""
        return self.name or self.item

    @property
    def words(self) -> str:
        """What it is, and what became of its run."""
        parts = [
            f"not run: {self.failed}" if self.failed else "",
            ", ".join(filter(None, [self.release, self.machine])),
            "not finished" if self.interrupted else "",
            f"begun anew, so its answers are of this installation: {self.anew}" if self.anew else "",
            self._of_earlier_runs,
        ]
        return "; ".join(filter(None, parts)) or "not reached"

    @property
    def _of_earlier_runs(self) -> str:
        taken = [a.taken_from for a in self.answers if a.taken_from]
        of = enumerated(list(dict.fromkeys(taken)))
        return f"{number(len(taken))} of {plural(len(self.answers), 'case')} decided by {of}" if taken else ""

    @property
    def decided(self) -> bool:
        """Whether it was run to the end, and left nothing undecided. Where nothing could be run for want of
        something, all of it is tried again; with answers beside that, their run would be begun anew.
        """
        undecided = any(a.undecided for a in self.answers)
        lacking = any(a.lacks for a in self.answers) and not any(a.states for a in self.answers)
        return super().decided and bool(self.run) and not undecided and not lacking

    def answer(self, case: CaseId) -> Answer | None:
        """The answer for a case, if there is one."""
        return self._by_case.get(case)

    @functools.cached_property
    def _by_case(self) -> dict[CaseId, Answer]:
        return {a.case: a for a in reversed(self.answers)}


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked. `plan`: of the run on each kernel, whose own kernel is replaced. `oracle`, `symptom`: of
    the finding that a history follows; empty: any, and in a matrix. `of_run`, `finding`: the run directory of
    that finding, and its id. `expectations`: known failures. `known`: known bugs beside the installed ones.
    `depth`: of a verdict, by its name; `new_only`: known bugs do not make it fail.
    """

    title: str
    kernels: list[str]
    plan: Plan
    oracle: str = ""
    symptom: str = ""
    of_run: str = ""
    finding: str = ""
    expectations: tuple[Expectation, ...] = ()
    known: KnownBugs = KnownBugs()
    depth: str = ""
    new_only: bool = False
    argv: list[str] = []


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """What a verdict said that was begun at `when`: see `harness.releases.verdict.Kind`; `bugs`: by names."""

    when: datetime
    verdict: str
    bugs: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep has shown so far. `path`: its directory. `begun`, `finished`: when (ISO 8601). Kernels of
    one name, such as two builds of a tree, have in it the end of what each was asked for by. `gone`: kernels,
    as they were asked for, whose run directories somebody has deleted since. `before`: what
    verdicts of the same depth said before of a configuration on a kernel, as it was asked for, the oldest
    first.
    """

    plan: SweepPlan
    kernels: tuple[OnKernel, ...]
    path: Path = Path()
    begun: str = ""
    finished: str = ""
    interrupted: bool = False
    gone: frozenset[str] = frozenset()
    before: Mapping[tuple[str, str], Sequence[EarlierAnswer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(_told_apart(self.kernels)))

    def run_of(self, kernel: OnKernel) -> Path | None:
        """The run directory of a kernel, if there is one, still."""
        return self.path / kernel.run if kernel.run and kernel.item not in self.gone else None

    def where(self, kernel: OnKernel) -> str:
        """The same in words."""
        run = self.run_of(kernel)
        return on_page(full(run)) if run else GONE if kernel.run else ""

    def repro(self, kernel: OnKernel, seen: Seen) -> str:
        """The command that repeats a finding of a kernel; empty without its run directory."""
        run = self.run_of(kernel)
        return f"powercut repro {seen.point} --from {source_in(run)}" if run else ""

    @property
    def decided(self) -> bool:
        """Whether every kernel was run, and left nothing undecided; and something was looked at, and all of
        it where that is required.
        """
        answers = [a for k in self.kernels for a in k.answers]
        lacking = self.plan.plan.require_all and any(a.lacks for a in answers)
        return self.all_tried and any(a.states for a in answers) and not lacking

    @property
    def all_tried(self) -> bool:
        """Whether nothing would be tried again."""
        return all(k.decided for k in self.kernels)

    @property
    def cases(self) -> list[CaseId]:
        """Every case of any kernel, in order."""
        return list(dict.fromkeys(a.case for k in self.kernels for a in k.answers))


def _told_apart(kernels: Sequence[OnKernel]) -> Iterator[OnKernel]:
    count = Counter(k.title for k in kernels)
    for k in kernels:
        end = told_apart([other.item for other in kernels if other.title == k.title])[k.item]
        yield msgspec.structs.replace(k, name=f"{k.title} ({end})") if count[k.title] > 1 else k


def answer_of(case: CaseSummary) -> Answer:
    """The result of one case of a run."""
    seen = [
        Seen(
            f.oracle,
            f.summary,
            str(f.crash_point),
            f.states,
            f.expectation.reason if f.expectation else "",
            f.known.bug.name if f.known else "",
            f.symptom.what,
            named_loss(f),
        )
        for f in case.findings
    ]
    covered = (case.info.coverage, *(cut.coverage for cut in case.info.again))
    return Answer(
        case.case.configuration,
        case.case.workload,
        case.verdict,
        case.counts.checked,
        case.counts.failed,
        tuple(seen),
        case.reason if case.was_not_run else case.undecided,
        case.was_not_run and case.status is not CaseStatus.NOT_SUPPORTED,
        any(c.unexplored for c in covered if c),
        next((c.not_legal for c in covered if c), ""),
        case.info.taken_from,
    )


def story(kernels: Sequence[OnKernel], case: CaseId, oracle: str, symptom: str = "") -> str:
    """When a finding came and went, in one sentence, from the kernels that show it, and those that do not and
    decided the case, in the order given.
    """
    decided = [
        (k.title, a.shows(oracle, symptom), ", where some crash states were left out" * a.in_part)
        for k in kernels
        if (a := k.answer(case))
        and a.verdict is not CaseVerdict.NOT_RUN
        and (a.shows(oracle, symptom) or not a.undecided)
    ]
    if not decided:
        return "no kernel decided it"
    first, last = decided[0], decided[-1]
    changes = [(a, b) for a, b in itertools.pairwise(decided) if a[1] != b[1]]
    if not changes:
        if len(decided) == 1:
            return f"{first[0]} shows it" if first[1] else f"{first[0]} does not show it{first[2]}"
        span = f"of the {len(decided)} kernels from {first[0]} to {last[0]}"
        return (
            f"all {span} show it" if first[1] else f"none {span} shows it{max(note for *_, note in decided)}"
        )
    words = [f"there in {first[0]}"] if first[1] else []
    for before, after in changes:
        words.append(
            f"came after {before[0]}{before[2]}, first seen in {after[0]}"
            if after[1]
            else f"gone in {after[0]}{after[2]} (last seen in {before[0]})"
        )
    return "; ".join([*words, f"still there in {last[0]}"] if last[1] else words)
