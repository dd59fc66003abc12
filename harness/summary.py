"""The result of a run: counts and findings of every case, one verdict, one exit code."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.errors import ExitCode, StoreError
from harness.expectations import Expectation
from harness.grouping import by_key
from harness.model import CaseId
from harness.plan import Plan
from harness.store import RunStore
from harness.store.bundle import packed_case
from harness.store.records import CaseInfo, CaseStatus, Counts, Finding, How, RunInfo, UnknownReason


class CaseVerdict(enum.Enum):
    """The verdict of one case: the first that applies of FAIL, NOT_RUN, UNKNOWN, XFAIL, PASS."""

    PASS = "pass"  # a verdict, not a password
    FAIL = "fail"
    XFAIL = "xfail"  # every finding is expected
    UNKNOWN = "unknown"
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """One case of a run."""

    info: CaseInfo
    status: CaseStatus
    reason: str
    seconds: float
    counts: Counts
    findings: tuple[Finding, ...]
    unknown_reasons: tuple[UnknownReason, ...]
    by_how: Mapping[How, int]
    mismatch: str = ""

    @property
    def case(self) -> CaseId:
        return self.info.case

    @property
    def has_extent(self) -> bool:
        """Whether it is known how far it was covered: not of a case that a stop, or an error, cut short. One
        that is undecided for nothing but its mismatch came to its end.
        """
        coverage = self.info.coverage
        told = coverage is not None and (coverage.crash_times or coverage.unexplored)
        mismatched = self.status is CaseStatus.UNKNOWN and self.reason == self.mismatch != ""
        return self.status is CaseStatus.DONE or mismatched or bool(told)

    @property
    def undecided(self) -> str:
        """Why this case is undecided, in words; empty if it is decided or was left out."""
        counts = self.counts
        known = f" of {counts.distinct:,}" if counts.distinct > counts.contents else ""  # more may come
        done = f"{counts.contents:,}{known} distinct states"
        unfinished = {
            CaseStatus.PLANNED: "the run ended before it was recorded",
            CaseStatus.RECORDED: f"the run ended after {done}",
            CaseStatus.UNKNOWN: "it could not be decided",
        }
        if self.status in unfinished:
            return self.reason or unfinished[self.status]
        if self.was_not_run:
            return ""
        return self.mismatch or self._inconsistency or self._incomplete

    @property
    def _inconsistency(self) -> str:
        """How the stored data contradicts itself. The verdict follows from both states and findings:
        otherwise a case that lost its violations would have failed states, no finding, and PASS.
        """
        counts = self.counts
        if counts.contradictions:
            return f"{counts.contradictions:,} of {counts.checked:,} states have a verdict without its reason"
        if bool(counts.failed) != bool(self.findings):
            return f"{counts.failed:,} states failed, but there are {len(self.findings):,} findings"
        if self.counts.contents > counts.distinct or counts.checked > counts.generated:
            return f"{counts.checked:,} states were checked, but there are only {counts.generated:,}"
        return ""

    @property
    def _incomplete(self) -> str:
        """Which states were not checked, or could not be decided."""
        counts = self.counts
        if counts.unknown:
            return f"{counts.unknown:,} of {counts.checked:,} states could not be decided"
        if counts.contents < counts.distinct:
            return f"only {counts.contents:,} of {counts.distinct:,} distinct states were checked"
        if counts.checked < counts.generated:
            return f"only {counts.checked:,} of {counts.generated:,} states have a verdict"
        explored = self.info.coverage
        if (
            explored is not None
            and explored.crash_times
            and explored.losses is not None
            and explored.losses < 0
        ):
            return f"not even the simplest legal states were all covered: {explored.why}"
        return self._not_cut if counts.checked else "no state was checked"

    @property
    def _not_cut(self) -> str:
        """Which recoveries were not cut."""
        if not_cut := sum(cut.not_cut for cut in self.info.again):
            return f"{not_cut:,} recoveries could not be cut"
        if any(cut.coverage.losses is not None and cut.coverage.losses < 0 for cut in self.info.again):
            return "not even the simplest states that cut recoveries leave were all covered"
        return ""

    @property
    def was_not_run(self) -> bool:
        """Whether it was left out, for any reason: then there is nothing to decide."""
        return self.status in (CaseStatus.NOT_RUN, CaseStatus.NOT_SUPPORTED, CaseStatus.NOT_RECORDED)

    @property
    def lacks(self) -> bool:
        """Whether it was left out because this host or kernel lacks something: another one could run it."""
        return self.status is CaseStatus.NOT_RUN

    @property
    def empty(self) -> bool:
        """Whether it was done without any state to check."""
        return self.status is CaseStatus.DONE and not self.counts.checked and not self.counts.distinct

    @property
    def verdict(self) -> CaseVerdict:
        if any(f.expectation is None for f in self.findings):
            return CaseVerdict.FAIL
        if self.was_not_run:
            return CaseVerdict.NOT_RUN
        if self.undecided:
            return CaseVerdict.UNKNOWN
        return CaseVerdict.XFAIL if self.findings else CaseVerdict.PASS


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run. `unmet`: expectations that applied to something decided and matched no finding (XPASS).
    `packed`: the one case whose recording came along, where it was packed with one. `why`: a sentence for
    each finding that was explained, by its id; from a run directory, so anybody's. `fewest`: likewise the
    operations that show a finding, of those that were shrunk. `plan`: None where it cannot be read.
    """

    run: str
    info: RunInfo
    cases: tuple[CaseSummary, ...]
    unmet: tuple[Expectation, ...]
    packed: CaseId | None = None
    why: Mapping[str, str] = field(default_factory=dict)
    fewest: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(f for c in self.cases for f in c.findings)

    @property
    def unexpected(self) -> tuple[Finding, ...]:
        """New findings first, then known bugs, then known losses; of these, cases in their order."""
        found = (f for f in self.findings if f.expectation is None)
        return tuple(sorted(found, key=lambda f: f.newness))

    @property
    def checked(self) -> int:
        return sum(c.counts.checked for c in self.cases)

    @property
    def unknown(self) -> int:
        return sum(c.counts.unknown for c in self.cases)

    @property
    def missing(self) -> tuple[CaseSummary, ...]:
        """Cases that were not run and had to be: required ones for which this host or kernel lacks something,
        and all where nothing was checked.
        """
        if not self.checked:
            return tuple(c for c in self.cases if c.was_not_run)
        return tuple(c for c in self.cases if c.lacks) if self.info.require_all else ()

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped, or its process died, before it was complete."""
        return self.info.interrupted or self.info.finished is None


def summarise(store: RunStore) -> Summary:
    """Read everything a report needs except the timelines."""
    findings = by_key((finding.case, finding) for finding in store.findings())
    cases = tuple(
        CaseSummary(
            record.info,
            record.status,
            record.reason,
            record.seconds,
            store.counts(record.case),
            tuple(findings.get(record.case, ())),
            store.unknown_reasons(record.case),
            store.counts_by_how(record.case),
            record.mismatch,
        )
        for record in store.cases()
    )
    plan = _plan_of(store)
    unmet = tuple(e for e in store.expectations() if _is_unmet(e, cases, plan))
    return Summary(store.path.name, store.info, cases, unmet, packed_case(store.layout), plan=plan)


def _plan_of(store: RunStore) -> Plan | None:
    """What was asked; None of a run that was never planned."""
    try:
        return store.plan()
    except StoreError:
        return None


WORST_FIRST = (
    CaseVerdict.FAIL,
    CaseVerdict.UNKNOWN,
    CaseVerdict.XFAIL,
    CaseVerdict.PASS,
    CaseVerdict.NOT_RUN,
)


def worst(verdicts: Iterable[CaseVerdict]) -> CaseVerdict:
    """The worst verdict of several cases. NOT_RUN if there are none: an empty set is never green."""
    return min(verdicts, key=WORST_FIRST.index, default=CaseVerdict.NOT_RUN)


def exit_code(summary: Summary) -> ExitCode:
    """INCONSISTENT for any unexpected finding; else UNDECIDED for any undecided case; else NOTHING_RUN if
    no state was checked or a required case was not run; CONSISTENT only if every case was checked and kept
    every promise.
    """
    if summary.unexpected:
        return ExitCode.INCONSISTENT
    if summary.interrupted or any(c.undecided and not c.empty for c in summary.cases):
        return ExitCode.UNDECIDED
    if not summary.checked:
        return ExitCode.NOTHING_RUN
    if any(c.empty for c in summary.cases):
        return ExitCode.UNDECIDED
    return ExitCode.NOTHING_RUN if summary.missing else ExitCode.CONSISTENT


def shell_code(summary: Summary) -> ExitCode:
    """The exit code of `powercut`: INTERRUPTED; for a run that was stopped as asked, see `_stopped_code`; or
    `exit_code`.
    """
    if summary.info.stopped:
        return _stopped_code(summary)
    return ExitCode.INTERRUPTED if summary.info.interrupted else exit_code(summary)


def _stopped_code(summary: Summary) -> ExitCode:
    """TIME_UP, which a CI job may pass, only if some state was decided, nothing was inconsistent, and nothing
    but the time is why the rest is not decided.
    """
    if summary.unexpected:
        return ExitCode.INCONSISTENT
    undecided = [c for c in summary.cases if _undecided_by_more_than_time(c)]
    if any(not c.empty for c in undecided):
        return ExitCode.UNDECIDED
    if summary.checked == 0:
        return ExitCode.NOTHING_RUN
    if undecided:
        return ExitCode.UNDECIDED
    return ExitCode.NOTHING_RUN if summary.missing else ExitCode.TIME_UP


def _undecided_by_more_than_time(c: CaseSummary) -> bool:
    if c.status in (CaseStatus.PLANNED, CaseStatus.RECORDED):
        return bool(c.counts.unknown or c.mismatch)
    return bool(c.undecided)


def _is_unmet(expectation: Expectation, cases: tuple[CaseSummary, ...], plan: Plan | None) -> bool:
    """Whether nothing met the expectation. An undecided case may hide the failure: then it is not unmet."""
    covered = [
        c
        for c in cases
        if expectation.applies_to(c.case) and not c.was_not_run and _judged(expectation, c, plan)
    ]
    if not covered or any(c.undecided for c in covered):
        return False
    return not any(expectation.matches(f.case, f.symptom, f.spared) for c in covered for f in c.findings)


def _judged(expectation: Expectation, summary: CaseSummary, plan: Plan | None) -> bool:
    """Whether an oracle that the expectation names was applied (a case that lists none counts). Two of a case
    have nothing to judge unless recoveries are cut, or the disk is faulty.
    """
    oracles = summary.info.oracles
    idle = {"confluence": not plan.again, "honesty": not plan.disk} if plan else {}
    return not oracles or any(expectation.names(name) for name in oracles if not idle.get(name))
