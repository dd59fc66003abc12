"""What a run directory holds, as plain records: the run, its cases, verdicts on crash states, findings."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from harness.expectations import Expectation
from harness.host.files import valid_text
from harness.model import (
    CaseId,
    CrashPoint,
    CrashState,
    EntryFlag,
    History,
    Judgement,
    LogEntry,
    Verdict,
    Violation,
)

SCHEMA = 2
"""Raised whenever a run directory changes its meaning; another number is refused."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The kernel under test. `name`: as the user named it; `release`, `version`: as uname(2) says.
    `replaced`: SHA-256 of the modules that stand in for the kernel's own, by file.
    """

    name: str
    version: str = ""
    release: str = ""
    sha256: str = ""
    details: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """How the kernel was run. `kind`: the machine that judged, as one asks for it; `name`: the same for
    people; `accel`: `kvm`, `tcg`, ...; `version`: the machine's own, if it has one.
    """

    kind: str
    accel: str = ""
    version: str = ""
    cpus: int = 1
    name: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is in run.json. Times carry a time zone; `finished` None: the run goes on, or died.
    `require_all`: a case for which this host or kernel lacks something ends the run in a code of its own.
    `pins`: hashes of what the verdicts depend on (`harness.cases.pins`). `plan`: digest of plan.json; `seal`:
    of the cases and verdicts of a run that is finished; `digest`: of all the rest of this
    (`harness.store.digests`; the store writes these three).
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
    pins: dict[str, str] = field(default_factory=dict)
    plan: str = ""
    seal: str = ""
    digest: str = ""
    schema: int = SCHEMA


class CaseStatus(enum.StrEnum):
    """How far a case has come. Only DONE counts as decided. NOT_RUN: this host or kernel lacks something for
    it. NOT_SUPPORTED: the file system does not have an operation of the workload, on any host.
    """

    PLANNED = "planned"
    RECORDED = "recorded"
    DONE = "done"
    UNKNOWN = "unknown"
    NOT_RUN = "not-run"
    NOT_SUPPORTED = "not-supported"


class How(enum.StrEnum):
    """How a verdict was reached."""

    JUDGED = "judged"  # a guest recovered it and the oracles judged what came back
    SAME_CONTENT = "same-content"  # the same bytes as a state that was judged
    MEMO = "memo"  # agrees with a judged state in all that its recovery read


class DrawnEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a drawing needs of a log entry.

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


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """What is known of a case beside its verdicts.

    `generated`, `distinct`: crash states enumerated, and different contents among them.
    `log_hash`: of the recording's log; verdicts belong to one recording. `files`: SHA-256 of the files that
    are kept of it, by name.
    `steps`, `timeline`: from `steps_of` and `timeline_of`.
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


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A case as the store has it. `info.timeline` is left empty: ask `RunStore.timeline`.

    `doubt`: why what was recalled rather than seen cannot be trusted in this case; empty where it can.
    """

    info: CaseInfo
    status: CaseStatus
    reason: str
    seconds: float
    doubt: str = ""

    @property
    def case(self) -> CaseId:
        return self.info.case


@dataclass(frozen=True, slots=True)
class JudgedState:
    """A crash state with its judgement. `content_hash`: of the device's contents, or empty."""

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
    """Of one case. `checked` states have a verdict: checked == passed + failed + unknown.
    `contents`: different contents among them. `contradictions`: states that failed without a violation, or
    have one and did not fail.
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
    """What was seen at `state` of a finding. `notes`: further named texts, such as `tree`."""

    state: CrashState
    kernel_log: str = ""
    fsck: str = ""
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Violations of one oracle with one signature in one case, shown at their smallest crash state.

    Smallest: fewest writes dropped or torn, then the shortest prefix. `states`: how many states
    show it. `expectation`: why it is known already, if it is.
    """

    case: CaseId
    oracle: str
    signature: str
    state: CrashState
    violations: tuple[Violation, ...]
    states: int
    expectation: Expectation | None = None

    @property
    def id(self) -> str:
        return finding_id(self.case, self.oracle, self.signature)

    @property
    def summary(self) -> str:
        return self.violations[0].summary

    @property
    def crash_point(self) -> CrashPoint:
        return CrashPoint(self.case, self.state)


def finding_id(case: CaseId, oracle: str, signature: str) -> str:
    """Twelve hexadecimal digits that stay the same from run to run."""
    text = f"{case}|{oracle}|{valid_text(signature)}"
    return hashlib.blake2b(text.encode()).hexdigest()[:12]


def weight(state: CrashState) -> int:
    """How much of its prefix a crash state lacks: the writes dropped, and one for a torn one."""
    return len(state.dropped) + (state.torn_sectors is not None)


def state_order(state: CrashState) -> tuple[int, int, tuple[int, ...], int]:
    """Sort key: simplest crash states first."""
    torn = -1 if state.torn_sectors is None else state.torn_sectors
    return (weight(state), state.prefix, state.dropped, torn)


def steps_of(history: History) -> tuple[Step, ...]:
    """The history in the form that is kept."""
    return tuple(Step(s.index, valid_text(str(s.operation)), s.begin, s.ack) for s in history.steps)


def timeline_of(entries: Iterable[LogEntry]) -> tuple[DrawnEntry, ...]:
    """The write log in the form that is kept. `sectors` of a `flush` counts data that came with it."""
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
