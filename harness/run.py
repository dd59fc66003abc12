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
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from harness import __version__
from harness.errors import (
    EnvironmentLacks,
    ExitCode,
    KernelError,
    NotSupported,
    PowercutError,
    StoreError,
    UsageError,
)
from harness.examine import SAMPLE_RATE, Examiner, Look
from harness.filesystems import Profile, select_profiles
from harness.kernel_build import matching_uml, outdated_uml
from harness.kernels import Kernel, find_kernel, resolve_modules
from harness.machines import initramfs, qemu, uml
from harness.machines.worker import LOG_BYTES, GuestKit, Worker, find_agent
from harness.model import CaseId, CrashState, Outcome, Workload
from harness.oracles import ORACLES
from harness.pool import Pool, Station, Task
from harness.recording import Recording, copy_recording, is_kept, load_recording, make_base, record
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

CHUNK_STATES = 32
"""Distinct contents that one task looks at: neighbours, so that little changes from one to the next."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as words; kept as plan.json, so that a run can be resumed."""

    configurations: list[str]
    workloads: list[str]
    kernel: str = "debian-6.12"
    modules: str | None = None
    replaced: list[str] = []
    # auto: QEMU records, and judges unless a UML kernel of the same source is in the cache
    machine: str = "auto"
    accel: str = "auto"
    jobs: int = 1
    fault_models: tuple[str, ...] = ("prefix",)
    memo: bool = True
    sample_rate: float = SAMPLE_RATE
    recordings: str | None = None  # a run whose recordings are judged again instead of making new ones
    log_bytes: int = LOG_BYTES
    shard: str = ""  # 2/5: the second of five parts of the workloads
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
    profiles, workloads = select_profiles(plan.configurations), select_workloads(plan.workloads, plan.shard)
    kernel = find_kernel(
        plan.kernel, Path(plan.modules) if plan.modules else None, [*map(Path, plan.replaced)]
    )
    with _scratch(store) as scratch:
        need_space(store.path, profiles, plan.jobs)
        # 2. Base images: poison, then mkfs on the host.
        if plan.recordings:
            copy_bases(profiles, Path(plan.recordings), store.path)
        lacking = {p.name: reason for p in profiles if (reason := missing_for(p, kernel))}
        able = [p for p in profiles if p.name not in lacking]
        lacking |= {w.name: reason for w in workloads if (reason := missing_program(w))}
        loaded = [w for w in workloads if w.name not in lacking]
        if not able or not loaded:
            raise EnvironmentLacks("; ".join(dict.fromkeys(lacking.values())))
        bases = {p.name: make_base(p, _kept_base(store.path, p), scratch) for p in able}
        # 3. The guests' kits: an initramfs around the agent; machines, tried on the real kernel.
        kits = make_kits(plan, kernel, able, loaded, next(iter(bases.values())), scratch)
        store.update_info(run_info(plan, store.info, kernel, kits))
        progress.say(f"{kernel.name}: {kits.told}, {plan.jobs} at once")
        session = _Session(plan, store, progress, scratch, bases)
        with _pool(kits, scratch, plan) as pool:
            interrupted = False
            try:
                # 4. Record every case. 5. Enumerate its crash states. 6. Recover each in a guest,
                # fsck it on the host. 7. Judge. 8. Store. Tasks of all cases share one pool.
                session.work(pool, [(p, w) for p in profiles for w in workloads], lacking)
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

    group: Group
    look: Look
    judged: tuple[JudgedState, ...]


@dataclass(slots=True)
class _Case:
    """A case that is being worked on. `recalled`: contents whose outcome came from the memo."""

    profile: Profile
    workload: Workload
    id: CaseId
    pending: int = 0
    seconds: float = 0.0
    examiner: Examiner | None = None
    smallest: dict[tuple[str, str], CrashState] = field(default_factory=dict)
    recalled: list[Group] = field(default_factory=list)
    confirmed: set[tuple[str, str]] = field(default_factory=set)


class _Session:
    """Steps 4 to 8, from the thread that owns the store. Stations only record, recover and judge."""

    def __init__(
        self, plan: Plan, store: RunStore, progress: Progress, scratch: Path, bases: dict[str, Path]
    ) -> None:
        self._plan = plan
        self._store = store
        self._progress = progress
        self._scratch = scratch
        self._bases = bases
        self._unrecorded_cases: deque[_Case] = deque()
        self._waiting: dict[cf.Future[Callable[[], None]], None] = {}

    def work(
        self, pool: Pool, wanted: Sequence[tuple[Profile, Workload]], lacking: Mapping[str, str]
    ) -> None:
        """Until every task, and every task that those led to, is done. `lacking`: modes and
        workloads that cannot be run here, by name, and why.
        """
        for profile, workload in wanted:
            case = _Case(profile, workload, CaseId(profile.filesystem, profile.mode, workload.name))
            self._store.add_case(self._info(case))
            if reason := lacking.get(profile.name) or lacking.get(workload.name):
                self._store.set_case_status(case.id, CaseStatus.NOT_RUN, reason)
                continue
            self._unrecorded_cases.append(case)
        self._progress.begin("recorded", len(self._unrecorded_cases))
        # A recording for each station; further ones as cases are done: the first verdict comes soon,
        # and logs do not pile up.
        for _ in range(self._plan.jobs):
            self._next_recording(pool)
        while self._waiting:
            done, _ = cf.wait(self._waiting, timeout=1.0, return_when=cf.FIRST_COMPLETED)
            for future in done:
                del self._waiting[future]
                future.result()()

    def _submit(self, pool: Pool, task: Task) -> None:
        self._waiting[pool.submit(task)] = None

    def _next_recording(self, pool: Pool) -> None:
        if self._unrecorded_cases:
            case = self._unrecorded_cases.popleft()
            self._submit(pool, lambda station: self._record(pool, station, case))

    # in a station's thread: each returns what is then to be done in the store's thread

    def _record(self, pool: Pool, station: Station, case: _Case) -> Callable[[], None]:
        begun = time.monotonic()
        try:
            recording = self._recording(station.recorder, case)
            states = enumerate_states(self._plan.fault_models, recording)
            hashes = station.judge.show(recording.base, recording.log).hashes(states)
            case.examiner = Examiner(recording, memo=self._plan.memo, sample_rate=self._plan.sample_rate)
        except PowercutError as e:
            reason = str(e)
            status = CaseStatus.NOT_RUN if isinstance(e, NotSupported) else CaseStatus.UNKNOWN
            return lambda: self._unrecorded(pool, case, status, reason)
        case.seconds += time.monotonic() - begun
        return lambda: self._recorded(pool, case, recording, group_by_content(states, hashes))

    def _recording(self, recorder: Worker, case: _Case) -> Recording:
        cases = self._store.path / "cases"
        if self._plan.recordings and not is_kept(case.id, cases):
            copy_recording(case.id, Path(self._plan.recordings) / "cases", cases)
        if is_kept(case.id, cases):
            return load_recording(case.id, case.profile, case.workload, cases, self._scratch)
        kept = self._store.case_directory(case.id)
        base = self._bases[case.profile.name]
        return record(recorder, case.profile, case.workload, case.id, base, kept, self._scratch)

    def _look(
        self, pool: Pool, station: Station, case: _Case, examiner: Examiner, groups: Sequence[Group]
    ) -> Callable[[], None]:
        begun = time.monotonic()
        seen = [look_at(examiner, station.judge, g, pool.stop) for g in groups if not pool.stop.is_set()]
        case.seconds += time.monotonic() - begun
        return lambda: self._looked(pool, case, examiner, seen)

    def _confirm(
        self, pool: Pool, station: Station, case: _Case, examiner: Examiner, key: tuple[str, str]
    ) -> Callable[[], None]:
        """Look at a finding's state again, on the machine that people run."""
        state = case.smallest[key]
        machine = station.recorder.machine_name
        look = examiner.look(station.recorder, [state], pool.stop)
        judgement = examiner.judge(state, look.seen)
        found = {(v.oracle, v.signature) for v in judgement.violations}
        answer = "yes" if key in found else f"no: {judgement.verdict.value} there"
        return lambda: self._confirmed(pool, case, key, f"{machine}: {answer}")

    # in the store's thread

    def _unrecorded(self, pool: Pool, case: _Case, status: CaseStatus, reason: str) -> None:
        self._progress.say(f"{case.id}: {reason}")
        self._progress.advance("recorded", 1)
        self._store.set_case_status(case.id, status, reason)
        self._next_recording(pool)

    def _recorded(self, pool: Pool, case: _Case, recording: Recording, groups: Sequence[Group]) -> None:
        generated = sum(len(g.states) for g in groups)
        self._store.add_case(
            replace(
                self._info(case),
                generated=generated,
                distinct=len(groups),
                log_hash=recording.digest(),
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
        self._submit_looks(pool, case, left)
        self._finish(pool, case)

    def _submit_looks(self, pool: Pool, case: _Case, groups: Sequence[Group]) -> None:
        examiner = case.examiner
        assert examiner is not None  # noqa: S101  # the recording made it
        for start in range(0, len(groups), CHUNK_STATES):
            chunk = groups[start : start + CHUNK_STATES]
            case.pending += 1
            self._submit(pool, lambda station, chunk=chunk: self._look(pool, station, case, examiner, chunk))  # type: ignore[misc]

    def _looked(self, pool: Pool, case: _Case, examiner: Examiner, seen: Sequence[Seen]) -> None:
        judged = [j for s in seen for j in s.judged]
        self._store.put_judgements(case.id, judged)
        for s in seen:
            self._keep_evidence(case, s)
            if s.look.recalled:
                case.recalled.append(s.group)
        self._progress.advance("states", len(judged))
        case.pending -= 1
        if examiner.doubt and case.recalled:
            self._progress.say(f"{case.id}: {examiner.doubt}; looking again at what the memo answered")
            again, case.recalled = case.recalled, []
            self._progress.begin("states", sum(len(g.states) for g in again))
            self._submit_looks(pool, case, again)
        self._finish(pool, case)

    def _keep_evidence(self, case: _Case, seen: Seen) -> None:
        """What the smallest state of each finding showed; the store folds findings itself."""
        outcome = seen.look.seen
        if not isinstance(outcome, Outcome):
            return
        for judged in seen.judged:
            for violation in judged.judgement.violations:
                key = (violation.oracle, violation.signature)
                known = case.smallest.get(key)
                if known is None or state_order(judged.state) < state_order(known):
                    case.smallest[key] = judged.state
                    self._store.put_evidence(finding_at(case, key), evidence_of(judged.state, outcome))

    def _confirmed(self, pool: Pool, case: _Case, key: tuple[str, str], answer: str) -> None:
        finding = finding_at(case, key)
        evidence = self._store.evidence(finding) or Evidence(case.smallest[key])
        self._store.put_evidence(finding, replace(evidence, notes={**evidence.notes, "confirmed": answer}))
        case.confirmed.add(key)
        case.pending -= 1
        self._finish(pool, case)

    def _finish(self, pool: Pool, case: _Case) -> None:
        """Once nothing of the case is pending: confirm its findings, then close it and begin another."""
        if case.pending or pool.stop.is_set():
            return
        examiner = case.examiner
        assert examiner is not None  # noqa: S101  # the recording made it
        unconfirmed = case.smallest.keys() - case.confirmed if pool.confirms else set()
        for key in sorted(unconfirmed):
            case.pending += 1
            self._submit(pool, lambda station, key=key: self._confirm(pool, station, case, examiner, key))  # type: ignore[misc]
        if case.pending:
            return
        record_ = self._store.case(case.id)
        self._store.set_case_seconds(case.id, (record_.seconds if record_ else 0.0) + case.seconds)
        status = CaseStatus.UNKNOWN if examiner.doubt else CaseStatus.DONE
        self._store.set_case_status(case.id, status, examiner.doubt)
        examiner.recording.log.unlink(missing_ok=True)
        self._next_recording(pool)

    def _info(self, case: _Case) -> CaseInfo:
        profile = case.profile
        return CaseInfo(
            case=case.id,
            mkfs_options=profile.mkfs_line,
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
    look = examiner.look(worker, group.states, stop)
    how = How.MEMO if look.recalled else How.JUDGED
    judged = tuple(
        JudgedState(
            state,
            group.content_hash,
            examiner.judge(state, look.seen),
            how if state == first else How.SAME_CONTENT,
        )
        for state in group.states
    )
    return Seen(group, look, judged)


def finding_at(case: _Case, key: tuple[str, str]) -> Finding:
    """The finding of that (oracle, signature) at its smallest state, as the store asks for it."""
    return Finding(case.id, *key, state=case.smallest[key], violations=(), states=1)


def evidence_of(state: CrashState, outcome: Outcome) -> Evidence:
    """What a person wants to see beside a violation."""
    return Evidence(
        state,
        kernel_log="\n".join(outcome.kernel_log) or outcome.lost,
        fsck=outcome.fsck.output if outcome.fsck else "",
    )


def missing_for(profile: Profile, kernel: Kernel) -> str:
    """Why this mode cannot be run on this host with this kernel; empty where it can."""
    if reason := profile.lacks():
        return reason
    try:
        resolve_modules(kernel, profile.modules)
    except KernelError as e:
        return str(e).replace("\n", "; ")
    return ""


def missing_program(workload: Workload) -> str:
    """Which program of the workload this host lacks, and how to get it; empty where it has them all."""
    try:
        for program in workload.programs:
            initramfs.find_program(program)
    except EnvironmentLacks as e:
        return str(e).replace("\n", "; ")
    return ""


# --- guests ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kits:
    """What records, and what judges: the same kit where one machine does both. `told`: for people."""

    recorder: GuestKit
    judge: GuestKit
    accel: qemu.Accel
    told: str


@contextlib.contextmanager
def _pool(kits: Kits, scratch: Path, plan: Plan) -> Iterator[Pool]:
    def station(number: int) -> Station:
        judge = Worker(kits.judge, scratch / f"judge-{number}", plan.log_bytes)
        if kits.recorder is kits.judge:
            return Station(judge, judge)
        return Station(Worker(kits.recorder, scratch / f"recorder-{number}", plan.log_bytes), judge)

    pool = Pool(station, plan.jobs, confirms=kits.recorder is not kits.judge)
    try:
        yield pool
    finally:
        pool.close()


def make_kits(
    plan: Plan,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    base: Path,
    scratch: Path,
) -> Kits:
    """Pack initramfs archives and choose machines: see `Plan.machine`.

    `qemu`, `uml`: that machine records and judges. `auto`: QEMU records; UML judges where one of the same
    source is in the cache, since it runs at native speed; findings are then confirmed in QEMU.
    Raises KernelError for a missing module, or where there is no UML kernel for `uml`.
    """
    uml_kernel = _uml_kernel(plan, kernel)
    if "uml" in (plan.machine, kernel.machine):
        kit = _uml_kit(uml_kernel, profiles, workloads, scratch)
        return Kits(kit, kit, qemu.Accel("native", "asked for"), f"UML {uml.release(kit.kernel_image)}")
    archive = _pack(kernel, qemu.profile().modules, profiles, workloads, scratch / "initramfs.cpio")

    def kit_for(accel: str) -> GuestKit:
        return GuestKit(qemu.Qemu(accel), kernel.image, archive)

    def try_kvm() -> None:
        with Worker(kit_for("kvm"), scratch / "kvm-trial", plan.log_bytes) as worker:
            worker.show(base, None)
            worker.guest()

    accel = qemu.choose_accel(plan.accel, try_kvm)
    recorder = kit_for(accel.name)
    told = f"QEMU ({accel.name}: {accel.reason})"
    if plan.machine == "qemu" or uml_kernel is None:
        if plan.machine == "auto" and outdated_uml(kernel.package_version):
            told += "; the UML kernel in the cache is of another configuration: powercut kernel build"
        return Kits(recorder, recorder, accel, told)
    judge = _uml_kit(uml_kernel, profiles, workloads, scratch)
    told = f"recorded in {told}, judged in UML of the same source, findings confirmed in QEMU"
    return Kits(recorder, judge, accel, told)


def _uml_kernel(plan: Plan, kernel: Kernel) -> Kernel | None:
    """The UML kernel for this run: the one that the user names, else one of the same source."""
    if kernel.machine == "uml" and plan.machine == "qemu":
        raise UsageError(f"{kernel.name} is a User Mode Linux kernel", "leave out --machine qemu")
    if kernel.machine == "uml" or (plan.machine == "uml" and not kernel.package_version):
        return kernel
    image = None if kernel.replaced or plan.machine == "qemu" else matching_uml(kernel.package_version)
    return Kernel(image.parent.name, image, None, "") if image else None


def _uml_kit(
    kernel: Kernel | None, profiles: Sequence[Profile], workloads: Sequence[Workload], scratch: Path
) -> GuestKit:
    if kernel is None:
        raise KernelError(
            "no User Mode Linux kernel of this kernel's source is in the cache",
            "build one (minutes, once): powercut kernel build; or take Debian's: --kernel uml-6.1",
        )
    archive = _pack(kernel, uml.profile().modules, profiles, workloads, scratch / "initramfs-uml.cpio")
    return GuestKit(uml.Uml(), kernel.image, archive)


def _pack(
    kernel: Kernel,
    machine_modules: Sequence[str],
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    archive: Path,
) -> Path:
    wanted = dict.fromkeys([*machine_modules, *(m for p in profiles for m in p.modules)])
    archive.write_bytes(
        initramfs.build(
            find_agent(),
            resolve_modules(kernel, list(wanted)),
            [program for w in workloads for program in w.programs],
            {path: data for w in workloads for path, data in w.files.items()},
        )
    )
    return archive


# --- the run directory -----------------------------------------------------------------------


def create_run(plan: Plan, reports: Path, name: str) -> RunStore:
    """A new run directory with its plan. Its names are looked up first: a typing error costs nothing."""
    select_profiles(plan.configurations)
    select_workloads(plan.workloads, plan.shard)
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


def run_info(plan: Plan, info: RunInfo, kernel: Kernel, kits: Kits) -> RunInfo:
    """What has become known since the run directory was made."""
    details = {str(p): "replaces the kernel's own module" for p in kernel.replaced}
    return replace(
        info,
        kernel=KernelInfo(kernel.name, kernel.package_version, _release(kernel), kernel.sha256, details),
        machine=MachineInfo(
            kits.judge.machine.name,
            kits.judge.machine.accel,
            qemu.version() if kits.judge.machine.name == "qemu" else "",
            1,
            {"how": kits.told},
        ),
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


def copy_bases(profiles: Sequence[Profile], source: Path, run: Path) -> None:
    """Base images of another run's recordings: logs are worth nothing on any other base."""
    for profile in profiles:
        kept, own = _kept_base(source, profile), _kept_base(run, profile)
        if kept.exists() and not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept, own)


def _kept_base(run: Path, profile: Profile) -> Path:
    return run / "cases" / f"{profile.filesystem}-{profile.mode}" / "base.img.zst"


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
