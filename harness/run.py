"""A run, from a kernel to a verdict: record, enumerate, recover, judge, store. Read this first.

The nine steps stand in `execute`. What one step does in detail is in the module it calls; what happens
to a single crash state is in `harness.examine`.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import platform
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from harness import __version__
from harness.errors import EnvironmentLacks, ExitCode, PowercutError, StoreError
from harness.examine import Examiner, Unseen
from harness.filesystems import Profile, select_profiles
from harness.kernels import Kernel, find_kernel, resolve_modules
from harness.machines import initramfs, qemu
from harness.machines.worker import LOG_BYTES, GuestKit, Worker, find_agent
from harness.model import CaseId, CrashState, Outcome, Workload
from harness.oracles import ORACLES
from harness.pool import Pool
from harness.recording import Recording, is_kept, load_recording, make_base, record
from harness.report import write_reports
from harness.states import FAULT_MODELS
from harness.store import (
    CaseInfo,
    CaseStatus,
    Evidence,
    Finding,
    How,
    JudgedState,
    KernelInfo,
    MachineInfo,
    RunInfo,
    RunStore,
    state_order,
    steps_of,
    timeline_of,
    write_atomically,
)
from harness.summary import Summary, exit_code, summarise
from harness.workloads import select_workloads

CHUNK_STATES = 12
"""Distinct contents that one task looks at: neighbours, so that little changes from one to the next."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as words; kept as plan.json, so that a run can be resumed."""

    configurations: list[str]
    workloads: list[str]
    kernel: str = "debian-6.12"
    modules: str | None = None
    replaced: list[str] = []
    accel: str = "auto"
    jobs: int = 1
    fault_models: tuple[str, ...] = ("prefix",)
    log_bytes: int = LOG_BYTES
    argv: list[str] = []


class Progress(Protocol):
    """Told of what goes on; draws it, or does not."""

    def say(self, text: str) -> None:
        """One line for people."""
        ...

    def begin(self, what: str, total: int) -> None:
        """Work of `total` units named `what` is known of (again: more of it)."""
        ...

    def advance(self, what: str, count: int) -> None: ...


def execute(plan: Plan, store: RunStore, progress: Progress) -> Summary:
    """Carry out what of `plan` the run in `store` does not hold yet. Findings are data: see Summary.

    On KeyboardInterrupt what was judged is kept, reports are written, and the summary says so.
    """
    # 1. What is asked for: names become profiles, workloads, a kernel.
    profiles, workloads = select_profiles(plan.configurations), select_workloads(plan.workloads)
    kernel = find_kernel(
        plan.kernel, Path(plan.modules) if plan.modules else None, [*map(Path, plan.replaced)]
    )
    with _scratch(store) as scratch:
        need_space(store.path, profiles, plan.jobs)
        # 2. Base images: poison, then mkfs on the host.
        bases = {p.name: make_base(p, _kept_base(store, p), scratch) for p in profiles}
        # 3. The guests' kit: an initramfs around the agent; the accelerator, tried on the real kernel.
        kit, accel = make_kit(plan, kernel, profiles, workloads, next(iter(bases.values())), scratch)
        store.update_info(run_info(plan, store.info, kernel, accel))
        progress.say(f"{kernel.name} under QEMU ({accel.name}: {accel.reason}), {plan.jobs} guests")
        session = _Session(plan, store, progress, scratch, bases)
        with _pool(kit, scratch, plan) as pool:
            interrupted = False
            try:
                # 4. Record every case. 5. Enumerate its crash states. 6. Recover each in a guest,
                # fsck it on the host. 7. Judge. 8. Store. Tasks of all cases share one pool.
                session.work(pool, [(p, w) for p in profiles for w in workloads])
            except KeyboardInterrupt:
                interrupted = True
        store.finish(interrupted=interrupted)
    # 9. Tell.
    write_reports(store)
    return summarise(store)


# --- the work of all cases -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What a task brought back of one distinct content: the states that have it, and their judgements."""

    outcome: Outcome | Unseen
    judged: tuple[JudgedState, ...]


@dataclass(slots=True)
class _Case:
    """A case that is being worked on."""

    profile: Profile
    workload: Workload
    id: CaseId
    pending: int = 0
    seconds: float = 0.0
    smallest: dict[tuple[str, str], CrashState] = field(default_factory=dict)


class _Session:
    """Steps 4 to 8, from the thread that owns the store. Workers' threads only record, recover and judge."""

    def __init__(
        self, plan: Plan, store: RunStore, progress: Progress, scratch: Path, bases: dict[str, Path]
    ) -> None:
        self._plan = plan
        self._store = store
        self._progress = progress
        self._scratch = scratch
        self._bases = bases
        self._waiting: dict[cf.Future[Callable[[], None]], None] = {}

    def work(self, pool: Pool, wanted: Sequence[tuple[Profile, Workload]]) -> None:
        """Until every task, and every task that those led to, is done."""
        for profile, workload in wanted:
            case = _Case(profile, workload, CaseId(profile.filesystem, profile.mode, workload.name))
            self._progress.begin("recorded", 1)
            self._store.add_case(self._info(case))
            self._submit(pool, lambda worker, case=case: self._record(pool, worker, case))  # type: ignore[misc]
        while self._waiting:
            done, _ = cf.wait(self._waiting, timeout=1.0, return_when=cf.FIRST_COMPLETED)
            for future in done:
                del self._waiting[future]
                future.result()()

    def _submit(self, pool: Pool, task: Callable[[Worker], Callable[[], None]]) -> None:
        self._waiting[pool.submit(task)] = None

    # in a worker's thread: each returns what is then to be done in the store's thread

    def _record(self, pool: Pool, worker: Worker, case: _Case) -> Callable[[], None]:
        begun = time.monotonic()
        try:
            recording = self._recording(worker, case)
            states = enumerate_states(self._plan.fault_models, recording)
            hashes = worker.show(recording.base, recording.log).hashes(states)
        except PowercutError as e:
            reason = str(e)
            return lambda: self._unrecorded(case, reason)
        case.seconds += time.monotonic() - begun
        return lambda: self._recorded(pool, case, recording, group_by_content(states, hashes))

    def _recording(self, worker: Worker, case: _Case) -> Recording:
        cases = self._store.path / "cases"
        if is_kept(case.id, cases):
            return load_recording(case.id, case.profile, case.workload, cases, self._scratch)
        kept = self._store.case_directory(case.id)
        base = self._bases[case.profile.name]
        return record(worker, case.profile, case.workload, case.id, base, kept, self._scratch)

    def _look(
        self, pool: Pool, worker: Worker, case: _Case, examiner: Examiner, groups: Sequence[Group]
    ) -> Callable[[], None]:
        begun = time.monotonic()
        seen = [look_at(examiner, worker, group, pool.stop) for group in groups if not pool.stop.is_set()]
        case.seconds += time.monotonic() - begun
        return lambda: self._looked(case, seen)

    # in the store's thread

    def _unrecorded(self, case: _Case, reason: str) -> None:
        self._progress.say(f"{case.id}: {reason}")
        self._progress.advance("recorded", 1)
        self._store.set_case_status(case.id, CaseStatus.UNKNOWN, reason)

    def _recorded(self, pool: Pool, case: _Case, recording: Recording, groups: Sequence[Group]) -> None:
        generated = sum(len(g.states) for g in groups)
        self._store.add_case(
            replace(
                self._info(case),
                generated=generated,
                distinct=len(groups),
                log_hash=groups[-1].content_hash,
                steps=steps_of(recording.history),
                timeline=timeline_of(recording.write_log.entries),
            )
        )
        known = self._store.judged_states(case.id, decided_only=True)
        left = [g for g in groups if not known.issuperset(map(str, g.states))]
        self._progress.advance("recorded", 1)
        self._progress.begin("states", generated)
        self._progress.advance("states", generated - sum(len(g.states) for g in left))
        self._store.set_case_status(case.id, CaseStatus.RECORDED)
        case.smallest = {
            (f.oracle, f.signature): f.state for f in self._store.findings() if f.case == case.id
        }
        examiner = Examiner(recording)
        chunks = [left[i : i + CHUNK_STATES] for i in range(0, len(left), CHUNK_STATES)]
        case.pending = len(chunks)
        for chunk in chunks:
            self._submit(
                pool,
                lambda worker, chunk=chunk: self._look(pool, worker, case, examiner, chunk),  # type: ignore[misc]
            )
        self._finish(case)

    def _looked(self, case: _Case, seen: Sequence[Seen]) -> None:
        judged = [j for s in seen for j in s.judged]
        self._store.put_judgements(case.id, judged)
        for s in seen:
            self._keep_evidence(case, s)
        self._progress.advance("states", len(judged))
        case.pending -= 1
        self._finish(case)

    def _keep_evidence(self, case: _Case, seen: Seen) -> None:
        """What the smallest state of each finding showed; the store folds findings itself."""
        if not isinstance(seen.outcome, Outcome):
            return
        for judged in seen.judged:
            for violation in judged.judgement.violations:
                key = (violation.oracle, violation.signature)
                known = case.smallest.get(key)
                if known is None or state_order(judged.state) < state_order(known):
                    case.smallest[key] = judged.state
                    finding = Finding(case.id, *key, state=judged.state, violations=(violation,), states=1)
                    self._store.put_evidence(finding, evidence_of(judged.state, seen.outcome))

    def _finish(self, case: _Case) -> None:
        if case.pending == 0:
            record_ = self._store.case(case.id)
            before = record_.seconds if record_ else 0.0
            self._store.set_case_seconds(case.id, before + case.seconds)
            self._store.set_case_status(case.id, CaseStatus.DONE)

    def _info(self, case: _Case) -> CaseInfo:
        profile = case.profile
        return CaseInfo(
            case=case.id,
            mkfs_options=" ".join([profile.mkfs.program, *profile.mkfs.arguments, *profile.mkfs_arguments]),
            mount_options=profile.mount_options,
            workload_summary=case.workload.summary,
            oracles=tuple(ORACLES),
        )


# --- crash states ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Crash states of one content; the first stands for all."""

    content_hash: str
    states: tuple[CrashState, ...]


def enumerate_states(fault_models: Iterable[str], recording: Recording) -> list[CrashState]:
    """The crash states of a recording under each of the fault models, without repeats, in order."""
    states = (state for name in fault_models for state in FAULT_MODELS[name].states(recording.write_log))
    return list(dict.fromkeys(states))


def group_by_content(states: Sequence[CrashState], hashes: Sequence[str]) -> list[Group]:
    """States of equal content together, in the order of their first."""
    groups: dict[str, list[CrashState]] = defaultdict(list)
    for state, content_hash in zip(states, hashes, strict=True):
        groups[content_hash].append(state)
    return [Group(h, tuple(s)) for h, s in groups.items()]


def look_at(examiner: Examiner, worker: Worker, group: Group, stop: threading.Event) -> Seen:
    """Recover the content once; judge it at each of its states, whose positions in the history differ."""
    first = group.states[0]
    outcome = examiner.look(worker, first, max(s.prefix for s in group.states), stop)
    return Seen(
        outcome,
        tuple(
            JudgedState(
                state,
                group.content_hash,
                examiner.judge(state, outcome),
                How.JUDGED if state == first else How.SAME_CONTENT,
            )
            for state in group.states
        ),
    )


def evidence_of(state: CrashState, outcome: Outcome) -> Evidence:
    """What a person wants to see beside a violation."""
    return Evidence(
        state,
        kernel_log="\n".join(outcome.kernel_log) or outcome.lost,
        fsck=outcome.fsck.output if outcome.fsck else "",
    )


# --- guests ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _pool(kit: GuestKit, scratch: Path, plan: Plan) -> Iterator[Pool]:
    pool = Pool(lambda number: Worker(kit, scratch / f"worker-{number}", plan.log_bytes), plan.jobs)
    try:
        yield pool
    finally:
        pool.close()


def make_kit(
    plan: Plan,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    base: Path,
    scratch: Path,
) -> tuple[GuestKit, qemu.Accel]:
    """Pack the initramfs and choose the accelerator. Raises KernelError for a missing module."""
    wanted = dict.fromkeys([*qemu.profile().modules, *(m for p in profiles for m in p.modules)])
    archive = scratch / "initramfs.cpio"
    archive.write_bytes(
        initramfs.build(
            find_agent(),
            resolve_modules(kernel, list(wanted)),
            [program for w in workloads for program in w.programs],
            {path: data for w in workloads for path, data in w.files.items()},
        )
    )

    def kit(accel: str) -> GuestKit:
        return GuestKit(qemu.Qemu(accel), kernel.image, archive)

    def try_kvm() -> None:
        with Worker(kit("kvm"), scratch / "kvm-trial", plan.log_bytes) as worker:
            worker.show(base, None)
            worker.guest()

    accel = qemu.choose_accel(plan.accel, try_kvm)
    return kit(accel.name), accel


# --- the run directory -----------------------------------------------------------------------


def create_run(plan: Plan, reports: Path, name: str) -> RunStore:
    """A new run directory with its plan. Its names are looked up first: a typing error costs nothing."""
    select_profiles(plan.configurations)
    select_workloads(plan.workloads)
    info = RunInfo(
        name=name,
        powercut=__version__,
        git_head=_git_head(),
        argv=tuple(plan.argv),
        kernel=KernelInfo(plan.kernel),
        machine=MachineInfo("qemu"),
        host=f"{platform.system()} {platform.release()} {platform.machine()}",
        started=datetime.now(UTC),
        jobs=plan.jobs,
    )
    store = RunStore.create(reports, name, info)
    write_atomically(store.path / "plan.json", msgspec.json.encode(plan))
    return store


def load_plan(store: RunStore) -> Plan:
    """The plan of a run that is to be resumed. Raises StoreError where it is of another version."""
    path = store.path / "plan.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except (OSError, msgspec.MsgspecError) as e:
        raise StoreError(f"{path} is no plan of this version: {e}", "start a new run") from e


def run_info(plan: Plan, info: RunInfo, kernel: Kernel, accel: qemu.Accel) -> RunInfo:
    """What has become known since the run directory was made."""
    details = {str(p): "replaces the kernel's own module" for p in kernel.replaced}
    return replace(
        info,
        kernel=KernelInfo(kernel.name, kernel.package_version, _release(kernel), kernel.sha256, details),
        machine=MachineInfo("qemu", accel.name, qemu.version(), 1, {"accel": accel.reason}),
        finished=None,
        interrupted=False,
        jobs=plan.jobs,
    )


def _release(kernel: Kernel) -> str:
    return kernel.modules.name if kernel.modules else ""


def _git_head() -> str:
    """Of the checkout that powercut runs from; empty for an installed one."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    if not shutil.which("git") or not (here.parent / ".git").exists():
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _kept_base(store: RunStore, profile: Profile) -> Path:
    return store.path / "cases" / f"{profile.filesystem}-{profile.mode}" / "base.img.zst"


@contextlib.contextmanager
def _scratch(store: RunStore) -> Iterator[Path]:
    """A folder for uncompressed images, in the run directory, that goes when the run ends."""
    path = store.path / "scratch"
    shutil.rmtree(path, ignore_errors=True)  # of a run that was killed
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def need_space(path: Path, profiles: Sequence[Profile], jobs: int) -> None:
    """Raises EnvironmentLacks where the run would fill the host's disk."""
    largest = max(p.size_bytes for p in profiles)
    need = sum(p.size_bytes for p in profiles) * 2 + jobs * 3 * largest + (256 << 20)
    free = shutil.disk_usage(path).free
    if free < need:
        raise EnvironmentLacks(
            f"{path} has {free >> 20} MiB free; this run needs about {need >> 20} MiB for images and logs",
            "free some space, or put the run elsewhere: --out DIR",
        )


def code_of(summary: Summary) -> ExitCode:
    """What the shell is told."""
    return ExitCode.INTERRUPTED if summary.info.interrupted else exit_code(summary)
