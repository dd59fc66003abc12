"""A run as it might have been, made without a machine: what tests of store and reports look at.

The logs are those of a small made-up journaling file system (data, journal, FUA commit block, later
checkpoint), so that a drawing of them looks like one of ext4. Times are fixed; nothing is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.expectations import parse_expectations
from harness.model import (
    CaseId,
    CrashState,
    EntryFlag,
    History,
    HistoryStep,
    Judgement,
    LogEntry,
    Operation,
    OperationKind,
    Violation,
)
from harness.oracles import BY_DEFAULT
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Evidence,
    How,
    JudgedState,
    KernelInfo,
    MachineInfo,
    RunInfo,
    steps_of,
    timeline_of,
)

STARTED = datetime(2026, 11, 20, 18, 40, 0, tzinfo=UTC)
FINISHED = datetime(2026, 11, 20, 18, 43, 27, tzinfo=UTC)
EXPECTED = """\
# configuration  workload  oracle
ext4/nobarrier   *         durability  # barrier=0 sends no flush, so fsynced data may be lost
ext4/journal     *         atomicity   # was broken on 5.4, fixed since
"""
K = OperationKind
F = EntryFlag


@dataclass
class Recorder:
    """Writes a log as a journaling file system would."""

    barrier: bool = True
    entries: list[LogEntry] = field(default_factory=list)
    steps: list[HistoryStep] = field(default_factory=list)
    journal: int = 65536
    block: int = 98304

    def do(self, operation: Operation) -> None:
        index = len(self.steps)
        begin = self.put(F.MARK, mark=f"begin {index}")
        if operation.kind in (K.APPEND, K.WRITE):
            self.put(F(0), self.block, 8 * (1 + index % 3))
            self.block += 8 * (1 + index % 3)
        elif operation.kind in (K.FSYNC, K.SYNC):
            self.commit()
        ack = self.put(F.MARK, mark=f"ack {index}")
        self.steps.append(HistoryStep(index, operation, begin, ack))

    def commit(self) -> None:
        for _ in range(3):
            self.put(F.METADATA, self.journal, 8)
            self.journal += 8
        self.put(F.FLUSH | F.FUA if self.barrier else F(0), self.journal, 8)
        self.journal += 8
        if len(self.steps) % 4 == 3:
            for sector in (2, 1032, 2056, 34816):
                self.put(F.METADATA, sector, 8)
            if self.barrier:
                self.put(F.FLUSH)

    def put(self, flags: F, sector: int = 0, sectors: int = 0, mark: str = "") -> int:
        self.entries.append(LogEntry(len(self.entries), sector, sectors, flags, 0, mark))
        return len(self.entries) - 1

    @property
    def history(self) -> History:
        return History(tuple(self.steps))


def append_fsync() -> list[Operation]:
    return [op for _ in range(9) for op in (Operation(K.APPEND, "a", length=4096), Operation(K.FSYNC, "a"))]


def rename_replace() -> list[Operation]:
    operations = []
    for i in range(6):
        operations += [
            Operation(K.CREATE, f"tmp{i}"),
            Operation(K.WRITE, f"tmp{i}", length=8192),
            Operation(K.RENAME, f"tmp{i}", "config"),
        ]
        if i % 2:
            operations.append(Operation(K.SYNC))
    return operations


def create_many() -> list[Operation]:
    operations = [Operation(K.MKDIR, "d")]
    operations += [Operation(K.CREATE, f"d/{i}") for i in range(20)]
    return [*operations, Operation(K.FSYNC, "d"), Operation(K.UNLINK, "d/7"), Operation(K.SYNC)]


WORKLOADS: dict[str, tuple[str, Callable[[], list[Operation]]]] = {
    "append-fsync": ("append a block, fsync, nine times over", append_fsync),
    "rename-replace": ("write a new file and rename it over the old one", rename_replace),
    "create-many": ("twenty files in one directory, then fsync it", create_many),
}
MODES = {
    "ext4/ordered": "data=ordered",
    "ext4/journal": "data=journal",
    "ext4/writeback-nodelalloc": "data=writeback,nodelalloc",
    "ext4/nobarrier": "barrier=0",
    "xfs/default": "",
    "xfs/nobarrier": "nobarrier",
}

Judge = Callable[[CrashState], Judgement]


def lost(state: CrashState) -> Judgement:
    """fsynced data that is gone, in the middle of the log."""
    if not 33 <= state.prefix <= 70 or not state.dropped:
        return Judgement()
    violation = Violation(
        "durability",
        "a",
        "data that fsync had acknowledged is gone",
        "12,288 bytes, written by operations 0, 2 and 4 and made durable by operation 5 (fsync a)",
        "8,192 bytes",
        "append-lost-after-fsync",
    )
    return Judgement((violation,))


def stale(state: CrashState) -> Judgement:
    """Stale blocks, and one state whose fsck complains as well."""
    violations = []
    if 20 <= state.prefix <= 26:
        violations.append(
            Violation(
                "no-stale-data",
                "config",
                "the file shows what the device held before mkfs",
                "zeros or data of operation 4 at offset 4,096",
                "4,096 bytes of poison from device block 12,291",
                "stale-blocks-within-size",
            )
        )
    if state.prefix == 24:
        violations.append(
            Violation(
                "fsck",
                "/dev/vdb",
                "e2fsck finds errors after recovery",
                "exit code 0",
                "exit code 4: Free blocks count wrong (13984, counted=13982)",
                "e2fsck-4-free-blocks",
            )
        )
    return Judgement(tuple(violations))


def half_unknown(state: CrashState) -> Judgement:
    """A guest that was lost on a few states."""
    if state.prefix > 40:
        return Judgement(unknown=("the guest did not answer within 30 s in two fresh guests",))
    return Judgement()


def clean(state: CrashState) -> Judgement:
    assert state.prefix >= 0
    return Judgement()


JUDGES: dict[str, Judge] = {
    "ext4-nobarrier/append-fsync": lost,
    "ext4-writeback-nodelalloc/rename-replace": stale,
    "xfs-default/create-many": half_unknown,
}


def states_of(entries: list[LogEntry]) -> list[CrashState]:
    """Every prefix that ends in a write, and the same less the write before."""
    states = []
    for i, entry in enumerate(entries):
        if entry.flags & F.MARK:
            continue
        states.append(CrashState(i + 1))
        if i and entries[i - 1].sectors:
            states.append(CrashState(i + 1, (i - 1,)))
    return states


def run_info(name: str = "demo") -> RunInfo:
    return RunInfo(
        name=name,
        powercut="0.1.0",
        git_head="d5aef4e0c9",
        argv=("run", "-c", "ext4/*,xfs/*", "-w", "append-fsync,rename-replace,create-many"),
        kernel=KernelInfo(
            "debian-6.12",
            "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-10-30)",
            "6.12.117+deb12-amd64",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ),
        machine=MachineInfo("qemu", "tcg", "7.2.22", 1, "QEMU 7.2.22"),
        host="Linux 6.1.0 x86_64, 2 CPUs",
        started=STARTED,
        jobs=2,
    )


def judged(states: Iterable[CrashState], judge: Judge) -> list[JudgedState]:
    """Every third in a guest, the others by comparison."""
    ways = (How.JUDGED, How.MEMO, How.SAME_CONTENT)
    return [JudgedState(s, f"{i:032x}", judge(s), ways[i % 3]) for i, s in enumerate(states)]


def add_case(store: RunStore, case: CaseId, mount_options: str) -> None:
    """Record and judge one case of the demo."""
    summary, operations = WORKLOADS[case.workload]
    recorder = Recorder(barrier=case.mode != "nobarrier")
    for operation in operations():
        recorder.do(operation)
    states = states_of(recorder.entries)
    info = CaseInfo(
        case=case,
        mkfs_options="-b 4096 -O metadata_csum" if case.filesystem == "ext4" else "",
        mount_options=mount_options,
        workload_summary=summary,
        oracles=BY_DEFAULT,
        generated=len(states),
        distinct=len(states),
        log_hash=f"{case}",
        steps=steps_of(recorder.history),
        timeline=timeline_of(recorder.entries),
    )
    store.add_case(info)
    store.put_judgements(case, judged(states, JUDGES.get(str(case), clean)))
    store.set_case_status(case, CaseStatus.DONE)
    store.add_case_seconds(case, 3.25 + len(states) / 8)


def demo_run(root: Path) -> RunStore:
    """The demo, finished, with findings that are expected and that are not, unknowns and a mode not run."""
    store = RunStore.create(root, "demo", run_info())
    store.set_expectations(parse_expectations(EXPECTED, "known.txt"))
    for configuration, mount_options in MODES.items():
        filesystem, mode = configuration.split("/")
        for workload in WORKLOADS:
            case = CaseId(filesystem, mode, workload)
            if configuration == "xfs/nobarrier":
                store.add_case(CaseInfo(case, mount_options=mount_options))
                store.set_case_status(case, CaseStatus.NOT_RUN, "XFS has no nobarrier option")
            else:
                add_case(store, case, mount_options)
    for finding in store.findings():
        log = (
            "EXT4-fs (vdb): recovery complete\nEXT4-fs (vdb): mounted filesystem r/w with ordered data mode\n"
        )
        store.put_evidence(finding, Evidence(finding.state, log, "/dev/vdb: clean, 12/16384 files\n"))
    store.finish(FINISHED)
    return store
