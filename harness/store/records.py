"""The records of a run directory: the run, its cases, verdicts on crash states, findings."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from harness.expectations import Expectation
from harness.host.files import valid_text
from harness.known.base import version_of
from harness.known.match import Match
from harness.model import (
    CaseId,
    CrashPoint,
    CrashState,
    EntryFlag,
    History,
    HistoryStep,
    Judgement,
    LogEntry,
    Verdict,
    Violation,
)
from harness.oracles import ORACLES
from harness.symptoms import Symptom
from harness.writelog.calls import Places, ProgramCalls
from harness.writelog.times import Times

SCHEMA = 3
"""Incremented whenever the meaning of a run directory changes; other versions are refused."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The kernel under test. `name`: as the user gave it; `release`: from uname(2); `version`: of its
    package. `replaced`: SHA-256 of the modules used instead of the kernel's own, by file.
    """

    name: str
    version: str = ""
    release: str = ""
    sha256: str = ""
    details: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    @property
    def linux(self) -> str:
        """Which Linux it is: what begins with its version. Debian's release `6.1.0-50-amd64` counts changes
        of the interface, and its package is `6.1.176-1`.
        """
        release, version = version_of(self.release), version_of(self.version)
        return (
            self.version if version[:2] == release[:2] and version > release else self.release or self.version
        )


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """How the kernel was run. `kind`: the machine that judged, by its option value; `name`: its display
    name; `accel`: `kvm`, `tcg`, ...; `version`: the machine's version, if it has one.
    """

    kind: str
    accel: str = ""
    version: str = ""
    cpus: int = 1
    name: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseNote:
    """What whoever reads of a case has to know beside what it showed. `case`: its name; empty: of all."""

    case: str
    text: str


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The contents of run.json. Times carry a time zone; `finished` None: the run is in progress, or died.
    `stopped`: why it ended early as the user had asked; then it is `interrupted`, too.
    `require_all`: a case for which this host or kernel lacks something gives the run its own exit code.
    `pins`: hashes of what the verdicts depend on (`harness.cases.pins`). `plan`: digest of plan.json; `seal`:
    digest of the cases and verdicts of a finished run; `digest`: of all other fields
    (`harness.store.digests`; the store writes these three). `notes`: on what a baseline does not know.
    """

    name: str
    powercut: str
    git_head: str
    argv: tuple[str, ...]
    kernel: KernelInfo
    machine: MachineInfo
    host: str
    started: datetime
    jobs: int = 1
    require_all: bool = False
    finished: datetime | None = None
    interrupted: bool = False
    stopped: str = ""
    notes: tuple[CaseNote, ...] = ()
    pins: dict[str, str] = field(default_factory=dict)
    plan: str = ""
    seal: str = ""
    digest: str = ""
    schema: int = SCHEMA


class CaseStatus(enum.StrEnum):
    """Progress of a case. Only DONE counts as decided. NOT_RUN: this host or kernel lacks
    something it needs. NOT_SUPPORTED: the file system lacks an operation of the workload, on any host.
    NOT_RECORDED: the harness cannot record this workload in this mode, on any host.
    """

    PLANNED = "planned"
    RECORDED = "recorded"
    DONE = "done"
    UNKNOWN = "unknown"
    NOT_RUN = "not-run"
    NOT_SUPPORTED = "not-supported"
    NOT_RECORDED = "not-recorded"


class How(enum.StrEnum):
    """How a verdict was reached."""

    JUDGED = "judged"  # a guest recovered it, and the oracles judged the outcome
    SAME_CONTENT = "same-content"  # same bytes as a judged state
    MEMO = "memo"  # agrees with a judged state on everything its recovery read


MAKE_DURABLE = frozenset({"flush", "fua", "flush+fua"})
"""Kinds of `DrawnEntry` after which something is durable."""


class DrawnEntry(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a log entry that the timeline draws.

    `kind`: `write`, `flush`, `fua`, `flush+fua`, `discard` or `mark`.
    """

    index: int
    kind: str
    sector: int
    sectors: int
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation as text with the log entries of its marks; see `harness.model.HistoryStep`."""

    index: int
    text: str
    begin: int | None
    ack: int | None

    @property
    def operation(self) -> str:
        """The operation as the workload has it, without what `steps_of` adds of a crash."""
        return _OF_A_CRASH.sub("", self.text)


_OF_A_CRASH = re.compile(r": @\S+$| \(before the crash(?:, lost)?\)$")


class DrawnCall(msgspec.Struct, frozen=True, array_like=True):
    """A system call of a program. `begin`, `end`: the log entries before it began and before it returned; it
    may not have returned. `text`: such as `fsync(journal)`; `outcome`: such as `= 0`.
    """

    begin: int
    end: int | None
    text: str
    outcome: str


class DrawnCalls(msgspec.Struct, frozen=True):
    """The calls of a workload's programs. `more`: so many were not noted. `lacking`: why none were."""

    calls: tuple[DrawnCall, ...] = ()
    more: int = 0
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far the crash states of a case were covered: all legal ones, or with a budget those of the log's
    own order, of which there are no `crash_times`, and `unexplored` counts the states that were left out.

    A state makes a choice for every block that may or may not have persisted. `losses`: every state was
    covered in which at most so many choices differ from "all lost" or from "all persisted"; -1: not even
    those two everywhere; None: every state. `unexplored`: branches that were not followed. `why`: what ended
    it, if something is unexplored. `crash_times`: at which the power may fail. `visits`: states that guests
    recovered. `sampled`: crash times with too many states; all up to `losses`, and others `drawn` at random,
    had one outcome. What else these crash times have was not covered, and is not counted as open.
    """

    crash_times: int
    losses: int | None
    unexplored: int
    visits: int
    why: str = ""
    sampled: int = 0
    drawn: int = 0

    @property
    def exhaustive(self) -> bool:
        return self.losses is None

    @property
    def not_legal(self) -> str:
        """Why only the log's own order was covered although all legal states were asked for; else empty."""
        return "" if self.crash_times or self.unexplored or self.exhaustive else self.why


@dataclass(frozen=True, slots=True)
class NestedCrashes:
    """How far recoveries were cut. `depth`: 1 for those of crash states, 2 for those of what a cut in these
    had left, and so on. `recoveries`: that were cut; `not_cut`: that could not be, since nobody saw them to
    their end, or since they wrote more than a disk keeps. Where there were none of either, the generation
    before came to nothing new: deeper there is nothing. `coverage`: its crash times are those at which they
    were cut, its visits came to states that differ from all before in what is read.
    """

    depth: int
    recoveries: int
    not_cut: int
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class DiskCell:
    """What came of one kind of fault of the disk at one kind of block. `where`: that kind; empty for a flush.
    `checked`: the format can tell that such a block was damaged. `counts`: how often what was seen
    (`harness.oracles.honesty.Seen`, or `undecided`); `examples`: a crash state for each of these.
    """

    fault: str
    where: str
    checked: bool
    counts: dict[str, int]
    examples: dict[str, str]


@dataclass(frozen=True, slots=True)
class FaultyDiskResult:
    """What came of a faulty disk while states were recovered. `ways`: in which it was faulty, as asked for.
    `recoveries`: that were disturbed, with one fault at a time; `left_out`: those that failed undisturbed
    already, or of which nobody knows what they asked for. `faults`: that could have befallen something;
    `tried`: of these.
    """

    ways: tuple[str, ...]
    recoveries: int
    left_out: int
    faults: int
    tried: int
    cells: tuple[DiskCell, ...]


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """A case without its verdicts.

    `generated`, `distinct`: number of crash states enumerated, and of different contents among them.
    `log_hash`: hash of the recording's log; verdicts belong to one recording. `files`: SHA-256 of the
    recording's files, by name. `steps`, `timeline`: from `steps_of` and `timeline_of`. `coverage`: of all
    legal crash states, where those were explored. `again`: of cuts in recoveries, by depth. `disk`: of a disk
    that erred, where that was asked for. `left_at`: the worker of a cluster where the recording stayed; then
    the run directory has none, and `files` is empty. `calls`: of the workload's programs, if it has any.
    `taken_from`: the run that decided it, if it was an earlier one.
    `doubt`: why its check may find nothing, in words.
    """

    case: CaseId
    mkfs_options: str = ""
    mount_options: str = ""
    workload_summary: str = ""
    oracles: tuple[str, ...] = ()
    generated: int = 0
    distinct: int = 0
    log_hash: str = ""
    steps: tuple[Step, ...] = ()
    timeline: tuple[DrawnEntry, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    coverage: Coverage | None = None
    again: tuple[NestedCrashes, ...] = ()
    disk: FaultyDiskResult | None = None
    left_at: str = ""
    calls: DrawnCalls | None = None
    doubt: str = ""
    taken_from: str = ""


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A stored case. `info.timeline` is left empty: see `RunStore.timeline`.

    `mismatch`: why the outcomes recalled by the memo cannot be trusted in this case; empty if they can.
    """

    info: CaseInfo
    status: CaseStatus
    reason: str
    seconds: float
    mismatch: str = ""

    @property
    def case(self) -> CaseId:
        return self.info.case


@dataclass(frozen=True, slots=True)
class JudgedState:
    """A crash state with its judgement. `content_hash`: hash of the device's contents, or empty."""

    state: CrashState
    content_hash: str
    judgement: Judgement
    how: How = How.JUDGED


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """A crash state's verdict without its violations."""

    state: CrashState
    content_hash: str
    verdict: Verdict
    how: How
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """Why `states` states could not be decided; `example` is the smallest of them."""

    reason: str
    states: int
    example: CrashState


@dataclass(frozen=True, slots=True)
class Counts:
    """State counts of one case. `checked` states have a verdict: checked == passed + failed + unknown.
    `contents`: different contents among them. `contradictions`: states that failed without a violation, or
    have a violation and did not fail.
    """

    generated: int = 0
    distinct: int = 0
    passed: int = 0
    failed: int = 0
    unknown: int = 0
    contents: int = 0
    contradictions: int = 0

    @property
    def checked(self) -> int:
        return self.passed + self.failed + self.unknown


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen at `state` of a finding. `notes`: other texts by name, such as `tree`."""

    state: CrashState
    kernel_log: str = ""
    fsck: str = ""
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseRows:
    """Everything that a run's database holds of one case, as it travels from one run directory to another.
    `record.info` has its timeline. `evidence`: by the id of its finding.
    """

    record: CaseRecord
    judged: tuple[JudgedState, ...] = ()
    evidence: dict[str, Evidence] = field(default_factory=dict)

    @property
    def case(self) -> CaseId:
        return self.record.case


@dataclass(frozen=True, slots=True)
class Finding:
    """Violations of one oracle with one signature in one case, shown at their smallest crash state; or, where
    a known bug breaks the promise there, at the smallest at which another is broken: not `is_smallest`.

    `what`: the signature without the names and numbers of its workload (`harness.symptoms`).
    Smallest: fewest writes dropped or torn, then the shortest prefix. `states`: number of states
    that show it. `expectation`: the known failure it matches, if any. `known`: the known bug it agrees with.
    `loss`: if neither, why its mode is known to lose this on an unmodified kernel. `unmounted`: what another
    finding says of the mount that failed at this state. `whole`: a state that breaks the same promise though
    the disk had all that it was sent, if one does: then no lost write is the cause.
    """

    case: CaseId
    oracle: str
    signature: str
    state: CrashState
    violations: tuple[Violation, ...]
    states: int
    expectation: Expectation | None = None
    what: str = ""
    known: Match | None = None
    loss: str = ""
    unmounted: str = ""
    is_smallest: bool = True
    whole: CrashState | None = None

    @property
    def spared(self) -> CrashState:
        """Of the states that break its promise, the one in which the fewest writes are lost."""
        return self.whole or self.state

    @property
    def symptom(self) -> Symptom:
        """What was lost, in words that fit other workloads, too."""
        return Symptom(self.oracle, self.what or self.signature)

    @property
    def id(self) -> str:
        return finding_id(self.case, self.oracle, self.signature)

    @property
    def newness(self) -> int:
        """0: new, 1: a known bug, 2: what its mode is known to lose."""
        return 2 if self.loss else 1 if self.known else 0

    @property
    def summary(self) -> str:
        return self.violations[0].summary

    @property
    def crash_point(self) -> CrashPoint:
        return CrashPoint(self.case, self.state)


def finding_id(case: CaseId, oracle: str, signature: str) -> str:
    """Twelve hexadecimal digits that are the same in every run."""
    text = f"{case}|{oracle}|{valid_text(signature)}"
    return hashlib.blake2b(text.encode()).hexdigest()[:12]


def weight(state: CrashState) -> int:
    """How far a crash state is from a simple one: the number of dropped writes, plus one for a torn write;
    by times, the number of writes, or parts of writes, that differ from "all lost" or "all persisted".
    """
    if state.fault:
        return weight(state.without_fault) + 1
    if state.again:
        return weight(state.first) + sum(map(weight, state.again))
    if state.persisted is not None:
        return len(state.persisted.parts)
    return len(state.dropped) + (state.torn_sectors is not None)


def state_order(state: CrashState) -> tuple[object, ...]:
    """Sort key: simplest crash states first, those without a fault of the disk before all others, and of
    either those without a cut in a recovery.
    """
    torn = -1 if state.torn_sectors is None else state.torn_sectors
    own = (weight(state), state.prefix, state.dropped, torn, str(state.persisted))
    return (bool(state.fault), len(state.again), *own, str(state.fault or ""), *map(state_order, state.again))


def finding_order(finding: Finding) -> tuple[object, ...]:
    """Sort key: the earliest crash point first. At one point, the oracle that explains most comes first:
    mount, then fsck, then the others in their order, since damage that fsck finds loses names and contents.
    """
    first = ("mountable", "fsck")
    names = [*first, *(name for name in ORACLES if name not in first)]
    rank = names.index(finding.oracle) if finding.oracle in names else len(names)
    return (finding.state.prefix, state_order(finding.state), rank, finding.oracle, finding.signature)


def steps_of(history: History) -> tuple[Step, ...]:
    """The history in its stored form. A step before the crash says so, and whether it was lost."""

    def text(step: HistoryStep) -> str:
        life = history.earlier
        if life is None or step.index >= life.operations:
            return str(step.operation)
        if step.index == life.operations - 1:
            return f"{step.operation}: {life.state}"
        return f"{step.operation} (before the crash{', lost' if step.index >= life.kept else ''})"

    return tuple(Step(s.index, valid_text(text(s)), s.begin, s.ack) for s in history.steps)


def calls_drawn(
    entries: Sequence[LogEntry], times: Times | None, noted: ProgramCalls, why_not: str
) -> DrawnCalls:
    """The calls of programs in their stored form. `why_not`: what to say where nobody noted any."""
    if times is None or noted.more is None:
        return DrawnCalls(lacking=valid_text(why_not))
    places = Places(entries, times)
    calls = tuple(
        DrawnCall(
            places.before(c.began),
            None if c.returned is None else places.before(c.returned),
            valid_text(c.text),
            c.outcome,
        )
        for c in noted.calls
    )
    return DrawnCalls(calls, noted.more)


def timeline_of(entries: Iterable[LogEntry]) -> tuple[DrawnEntry, ...]:
    """The write log in its stored form. `sectors` of a `flush` counts the data written with it."""
    kinds = (
        (EntryFlag.MARK, "mark"),
        (EntryFlag.DISCARD, "discard"),
        (EntryFlag.FLUSH | EntryFlag.FUA, "flush+fua"),
        (EntryFlag.FUA, "fua"),
        (EntryFlag.FLUSH, "flush"),
    )
    return tuple(
        DrawnEntry(
            e.index,
            next((kind for flags, kind in kinds if flags in e.flags), "write"),
            e.sector,
            e.sectors,
            valid_text(e.mark),
        )
        for e in entries
    )
