"""The nouns of Powercut, one class each. Imports the standard library only, nothing of the harness.

Names end in their unit (`size_bytes`, `timeout_s`). Everything is frozen, so that any thread may use a value.
"""

from harness.model.cases import CaseId, CrashPoint
from harness.model.disk_faults import DISK_FAULTS, DiskFault, FaultKind, RequestKind
from harness.model.history import (
    BEFORE_THE_LOG,
    Acknowledgement,
    BeforeCrash,
    History,
    HistoryStep,
    Position,
    Said,
)
from harness.model.judgement import Judgement, Verdict, Violation
from harness.model.log import CrashState, EntryFlag, LogEntry, Part, Persisted
from harness.model.operations import Check, Operation, OperationFlag, OperationKind, Workload
from harness.model.outcomes import (
    Call,
    CallError,
    Change,
    ChangeKind,
    CheckResult,
    Difference,
    DifferenceKind,
    Extent,
    ExtentKind,
    FileKind,
    FsckClass,
    FsckResult,
    Outcome,
    Tree,
    TreeEntry,
    Usability,
)
from harness.model.schedules import HoldOrder, Schedule, Threads
from harness.model.units import BLOCK_BYTES, SECTOR_BYTES

__all__ = [
    "BEFORE_THE_LOG",
    "BLOCK_BYTES",
    "DISK_FAULTS",
    "SECTOR_BYTES",
    "Acknowledgement",
    "BeforeCrash",
    "Call",
    "CallError",
    "CaseId",
    "Change",
    "ChangeKind",
    "Check",
    "CheckResult",
    "CrashPoint",
    "CrashState",
    "Difference",
    "DifferenceKind",
    "DiskFault",
    "EntryFlag",
    "Extent",
    "ExtentKind",
    "FaultKind",
    "FileKind",
    "FsckClass",
    "FsckResult",
    "History",
    "HistoryStep",
    "HoldOrder",
    "Judgement",
    "LogEntry",
    "Operation",
    "OperationFlag",
    "OperationKind",
    "Outcome",
    "Part",
    "Persisted",
    "Position",
    "RequestKind",
    "Said",
    "Schedule",
    "Threads",
    "Tree",
    "TreeEntry",
    "Usability",
    "Verdict",
    "Violation",
    "Workload",
]
