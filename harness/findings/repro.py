"""Reproduces a crash point: the same bytes in a fresh guest, judged again, exported, or opened in a shell."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness.cases.attempts import Unobserved
from harness.cases.examine import Examiner
from harness.cases.recording import Recording, by_times, load_recording
from harness.cases.recoveries import load
from harness.errors import DiskError, EnvironmentLacks, StoreError, UsageError
from harness.filesystems.profiles import ANY, inspection_programs, select_profiles
from harness.findings.named import finding_by_id, not_a_point
from harness.guests.disk import Disk
from harness.guests.guest_specs import make_specs, recording_machine
from harness.guests.initramfs import find_program
from harness.guests.machine import Boot, profile_of
from harness.guests.session import GuestSpec, Session
from harness.host.elf import is_program
from harness.host.files import file_hash
from harness.host.folders import OwnedFolder
from harness.host.progress import telling
from harness.host.text import named_few
from harness.kernels.build import title_of
from harness.kernels.find import Kernel
from harness.kernels.module_files import need_replaced
from harness.model import CaseId, CrashPoint, EntryFlag, Judgement, LogEntry, Outcome
from harness.oracles.surface import WHILE_RECORDED
from harness.plan import GuestChoice, Plan
from harness.report.lines import full, resume, resume_of, run_again
from harness.states.legal import BLOCK_SECTORS
from harness.store import RunStore
from harness.store.bundle import packed_case
from harness.trust import Named, chosen_kernel, kept_module, may_hold, plan_here, vouched_workload
from harness.workloads.applications import SHELL
from harness.workloads.load import is_installed
from harness.writelog.log import changes, devices_of

_SEE = "powercut log ls CASE --from RUN shows the entries"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The new outcome of a crash point. `recorded_on`: the kernel that made the recording, if it is not
    `kernel`; then `record_anew` is the command that tests what `kernel` writes. `rebuilt`: which of the run's
    modules were built anew since; `recorder_files`: the options that name them as they were. `entries`: of
    the log. `record_again`: where the kernel complained while the workload ran, not in this recovery, the
    command that runs it again.
    """

    point: CrashPoint
    kernel: Kernel
    outcome: Outcome | Unobserved
    judgement: Judgement
    recorded_on: str = ""
    record_anew: str = ""
    rebuilt: str = ""
    recorder_files: str = ""
    entries: Sequence[LogEntry] = ()
    record_again: str = ""


@dataclass(frozen=True, slots=True)
class ReproContext:
    """A crash point of a run with all that is needed to show it; `repro_context` makes it. `loaded`: the
    recording as it was kept; `recording`: as it is looked at for this point. `spec`: the guest that recorded;
    `judge`: the one that judges such runs here.
    """

    point: CrashPoint
    recording: Recording
    loaded: Recording
    store: RunStore
    plan: Plan
    kernel: Kernel
    spec: GuestSpec
    judge: GuestSpec
    directory: Path
    recorded_on: str = ""
    record_anew: str = ""
    rebuilt: str = ""
    recorder_files: str = ""

    def at(self, point: CrashPoint) -> ReproContext:
        """Another crash point of the same case. Raises as `repro_context`."""
        return replace(self, point=point, recording=_looked_at(self.store, self.plan, self.loaded, point))


def find_point(text: str, store: RunStore) -> CrashPoint:
    """The crash point that `text` names: `ext4-ordered/append-fsync@417`, or the id of a finding, as
    far as `finding_by_id` needs it. Raises UsageError, listing what the run has, if the run does not have it.
    """
    if (by_id := finding_by_id(text, store)) is not None:
        return by_id.crash_point
    try:
        point = CrashPoint.parse(text)
    except ValueError as e:
        raise UsageError(*not_a_point(text, store, str(e))) from e
    record = store.case(point.case)
    if record is None:
        cases = named_few([str(c.case) for c in store.cases()])
        raise UsageError(f"the run {store.path.name} has no case {point.case}", f"it has: {cases}")
    entries = len(store.timeline(point.case))
    if point.case.filesystem == ANY:  # there is no log: `harness.findings.by_rules` tells what may be left
        return point
    if not point.state.prefix <= entries:
        if not entries and not store.layout.case(point.case).history.is_file():
            raise StoreError(*_not_recorded(store, point.case))
        raise UsageError(
            f"{point}: the log of {point.case} has {entries} entries; the crash point lies beyond its end",
            f"name one from {point.case}@0 to {point.case}@{entries}",
        )
    return point


def _not_recorded(store: RunStore, case: CaseId) -> tuple[str, str]:
    """An error for a case without a log, and the next step."""
    what = f"the run {store.path.name} has no recording of {case}"
    if store.info.finished and not store.info.interrupted:
        return f"{what}: it could not be recorded", "the report says why"
    return f"{what}: it was stopped before", f"go on with it: {resume(store.plan(), str(store.path))}"


def tools_for_shell() -> tuple[list[str], list[str]]:
    """The programs of this host that a console in the guest gets beside busybox, and those that this host
    lacks; each with its package.
    """
    there, lacking = [SHELL], []
    for wanted in inspection_programs():
        try:
            find_program(wanted)
            there.append(wanted)
        except EnvironmentLacks:
            lacking.append(wanted)
    return there, lacking


@contextlib.contextmanager
def repro_context(
    store: RunStore, point: CrashPoint, named: Named, accel: str, tools: Sequence[str] = ()
) -> Iterator[ReproContext]:
    """Unpack the recording into a temporary directory and make a guest spec with the run's own kernel, unless
    another is named, and with these programs of the host. Raises StoreError if the recording is gone,
    UsageError for files that only the run directory names.
    """
    plan = plan_here(store, named)
    case = point.case
    (profile,) = select_profiles([case.configuration])
    workload = vouched_workload(store, named, case.workload)
    found = chosen_kernel(plan, store.info.kernel.name, named)
    same_image = found.sha256 == store.info.kernel.sha256
    machine = plan.machine if same_image else machine_for(found, plan)
    machine = console_machine(machine, found) if tools else machine
    other = not same_image or not same_modules(store, found)
    if named.replaced:
        recorder = profile_of(recording_machine(machine, found))
        need_replaced(found, [*recorder.modules, *profile.modules])
    with OwnedFolder("powercut-repro-") as folder:
        directory = folder.path
        known = _files(store, case)
        loaded = load_recording(case, profile, workload, store.layout, directory, plan.log_bytes, known)
        recording = _looked_at(store, plan, loaded, point)
        asked = GuestChoice(machine, accel, plan.log_bytes)
        carrying = replace(workload, programs=(*workload.programs, *tools))
        specs = make_specs(asked, found, [profile], [carrying], recording.base, directory)
        yield ReproContext(
            point,
            recording,
            loaded,
            store,
            plan,
            found,
            specs.recorder,
            specs.judge,
            directory,
            recorder_words(store) if other else "",
            run_again(_asked_of(plan, found, machine), case.configuration, _as_named(named, case.workload)),
            rebuilt(store, found.replaced),
            recorder_files(store),
        )


def _as_named(named: Named, workload: str) -> str:
    """A workload for `-w`: the file or folder that has it, if this command line names one."""
    own = (full(w) for w in named.workloads if not is_installed(w) and may_hold(w, workload))
    return next(own, workload)


def same_modules(store: RunStore, kernel: Kernel) -> bool:
    """Whether a kernel has the modules that the run was made with, by their contents."""
    begun = store.info.kernel.replaced
    return sorted(begun.values()) == sorted(map(file_hash, kernel.replaced))


def recorder_words(store: RunStore) -> str:
    """The kernel that a run was made with, and the modules that replaced its own."""
    info = store.info.kernel
    return " with ".join([info.name, *(module_words(Path(p), sha) for p, sha in info.replaced.items())])


def kernel_words(kernel: Kernel) -> str:
    """A kernel, and the modules that replace its own."""
    return " with ".join([title_of(kernel), *(module_words(p, file_hash(p)) for p in kernel.replaced)])


def module_words(path: Path, sha256: str) -> str:
    """A module as its contents tell it from another build."""
    return f"{path.name} (sha256 {sha256[:12]})"


def rebuilt(store: RunStore, modules: Sequence[Path]) -> str:
    """Which of the run's modules, at the same path, is another build by now; empty if none is."""
    begun = store.info.kernel.replaced
    now = {str(p): file_hash(p) for p in (m.resolve() for m in modules) if p.is_file()}
    return ", ".join(path for path, sha in now.items() if begun.get(path, sha) != sha)


def recorder_files(store: RunStore) -> str:
    """The options that name the modules with which a run was made, as they were."""
    kept = [kept_module(store, Path(path), sha) for path, sha in store.info.kernel.replaced.items()]
    there = [path for path in kept if path not in store.info.kernel.replaced]
    return shlex.join([w for path in there for w in ("--module", path)]) or "--module FILE.ko"


def machine_for(other: Kernel, plan: Plan) -> str:
    """On which machine another kernel than the run's is booted: on whatever is right for it; on the run's own
    if that runs kernels as processes of this host, and this one is such a program.
    """
    runs_programs = plan.machine != "auto" and profile_of(plan.machine).host_process
    return plan.machine if runs_programs and not other.machine and is_program(other.image) else "auto"


def console_machine(machine: str, kernel: Kernel) -> str:
    """On which machine a console is opened: one that runs kernels as processes of this host has none, and a
    packaged kernel boots elsewhere, too.
    """
    without = machine != "auto" and profile_of(machine).host_process
    return "auto" if without and kernel.package_version and not kernel.machine else machine


def _asked_of(plan: Plan, kernel: Kernel, machine: str) -> Plan:
    """The run's plan with another kernel."""
    modules = str(kernel.modules) if kernel.modules and not kernel.package_version else None
    replaced = [*map(str, kernel.replaced)]
    return msgspec.structs.replace(
        plan, kernel=kernel.name, modules=modules, replaced=replaced, machine=machine
    )


def _files(store: RunStore, case: CaseId) -> Mapping[str, str]:
    """Raises UsageError for a case that was not packed, StoreError where the recording was left on a cluster
    or is gone.
    """
    record = store.case(case)
    if record and record.info.left_at:
        raise StoreError(
            f"the recording of {case} stayed with the worker {record.info.left_at}: it had no findings",
            "record the case again, or have a cluster bring back all recordings",
        )
    step = f"pack it where the run was made: powercut pack RUN {case} (or the whole run: powercut pack RUN)"
    if (packed := packed_case(store.layout)) not in (None, case):
        raise UsageError(f"{store.path.name} was packed with {packed} alone, without {case}", step)
    if record and record.info.files and not store.layout.case(case).log.exists():
        raise StoreError(f"{store.path} has no recording of {case}", step)
    return record.info.files if record else {}


def _looked_at(store: RunStore, plan: Plan, loaded: Recording, point: CrashPoint) -> Recording:
    """A recording as it is looked at for a crash point, with the recoveries that are cut there. Raises
    UsageError for a state that cannot be, StoreError for recoveries that were not kept.
    """
    if point.state.persisted is not None:
        recording = _by_times(point, loaded, plan)
    else:
        recording = loaded
        need_possible(point, recording.write_log.entries)
    _stack(store, point, recording, plan)
    return recording


def _by_times(point: CrashPoint, recording: Recording, plan: Plan) -> Recording:
    """The recording for a state by times. Raises UsageError where it has no times, or no such state."""
    parts = point.state.persisted.parts if point.state.persisted else ()
    unit = 1 if any(p.sector is not None for p in parts) else plan.unit_sectors or BLOCK_SECTORS
    legal, why = by_times(recording, unit)
    if why:
        raise UsageError(f"{point}: {why}", "name a state of the log's own order, such as @417")
    legal.on_disk(point.state)
    return legal


def _stack(store: RunStore, point: CrashPoint, recording: Recording, plan: Plan) -> None:
    """Unpack the writes of the recoveries that are cut at this point. Raises StoreError if they were not kept
    or are not those of the run; UsageError for a cut that no disk that honours flushes could leave.
    """
    state, kept = point.state, store.layout.case(point.case)
    for depth in range(len(state.again)):
        earlier = replace(state, again=state.again[:depth])
        if earlier in recording.recoveries:
            continue
        shown, _ = recording.shown(earlier)
        log = recording.log.with_name(f"{recording.log.name}.kept-{len(recording.recoveries)}")
        unit = plan.unit_sectors or BLOCK_SECTORS
        recording.recoveries[earlier] = load(earlier, shown, kept.recovery(earlier), log, unit)
    target, on_disk = recording.shown(state)
    known = next((v for v in store.iter_verdicts(point.case) if v.state == state), None)
    if state.again and known is not None:
        with Disk() as disk:
            disk.open(target.base, target.log, target.order)
            if disk.hashes([on_disk]) != [known.content_hash]:
                # a part of the run that was stopped, too, may have kept another recovery since
                stopped = resume_of(store, str(store.path))
                step = f"go on with the run: {stopped}" if stopped else "its files were changed"
                raise StoreError(f"{point} is not what the run had", step)


def need_possible(point: CrashPoint, entries: Sequence[LogEntry]) -> None:
    """Raises UsageError for a state that no disk that honours flushes can be in: its verdict would accuse a
    file system wrongly.
    """
    state, of = point.state, devices_of(entries).of
    if state.prefix > len(entries):
        raise UsageError(f"{point} lies beyond the end of the log, which has {len(entries)} entries", _SEE)
    for number in state.dropped:
        entry = entries[number]
        if not changes(entry) or EntryFlag.FUA in entry.flags:
            raise UsageError(f"{point}: entry {number} is not a write that a cache could lose", _SEE)
        later = entries[number + 1 : state.prefix]
        flushes = (e.index for e in later if EntryFlag.FLUSH in e.flags)
        if flush := next((n for n in flushes if of(entries[n].sector) == of(entry.sector)), None):
            raise UsageError(f"{point}: entry {number} had been made durable by the flush {flush}", _SEE)
    if state.torn_sectors is not None:
        _need_tearable(point, entries[state.prefix - 1] if state.prefix else None, state.torn_sectors)


def _need_tearable(point: CrashPoint, last: LogEntry | None, torn_sectors: int) -> None:
    if last is None or not changes(last) or EntryFlag.DISCARD in last.flags:
        raise UsageError(f"{point}: the last entry is not a write that could be torn", _SEE)
    if not 0 < torn_sectors < last.sectors:
        raise UsageError(
            f"{point}: entry {last.index} has {last.sectors} sectors: it cannot be torn after {torn_sectors}",
            _SEE,
        )


def reproduce(shown: ReproContext) -> Reproduction:
    """Recover the crash point in a fresh guest and judge it."""
    notes = shown.point.state.fault is not None
    with Session(shown.spec, shown.directory / "session", notes=notes) as session:
        outcome, judgement = recover_and_judge(shown, session)
    return Reproduction(
        shown.point,
        shown.kernel,
        outcome,
        judgement,
        shown.recorded_on,
        shown.record_anew,
        shown.rebuilt,
        shown.recorder_files,
        shown.recording.write_log.entries,
        _record_again(shown, judgement),
    )


def _record_again(shown: ReproContext, judgement: Judgement) -> str:
    if not any(v.signature.startswith(WHILE_RECORDED) for v in judgement.violations):
        return ""
    return shown.record_anew


def recover_and_judge(
    shown: ReproContext, session: Session, *, notes: bool = False
) -> tuple[Outcome | Unobserved, Judgement]:
    """Recover the crash point, and before it the whole state if it is a cut in that one's recovery, or if the
    disk errs at it, and judge it as a run does. The session's disk then shows what recovery left. `notes`:
    what recovery writes may be asked of that disk. For that, and where the disk is faulty, the session must
    have been made with notes.
    """
    state = shown.point.state
    depth, faulty_disk = len(state.again) + 1 if notes else 0, state.fault is not None
    # every look that the sample has
    examiner = Examiner(shown.recording, sample_rate=1.0, again=depth, faulty_disk=faulty_disk)
    if state.fault is not None:
        undisturbed = examiner.visit(session, [state.without_fault], threading.Event())
        if undisturbed.requests_seen is not None:
            examiner.adopt_requests(undisturbed.requests_seen, undisturbed)
    elif state.again:
        whole = examiner.visit(session, [state.first], threading.Event())
        examiner.adopt(shown.recording.recoveries[state.first], whole)
    seen = examiner.visit(session, [state], threading.Event())
    return seen.outcome, examiner.judge(state, seen)


def export(shown: ReproContext, file: Path) -> None:
    """Write the crashed disk, before any recovery, as a raw image. Raises UsageError if `file` exists."""
    if file.exists():
        raise UsageError(f"{file} already exists", "name a file that does not")
    with Session(shown.spec, shown.directory / "session") as session:
        target, state = shown.recording.shown(shown.point.state)
        disk = session.show(target)
        disk.switch(state)
        disk.image(file)


def shell(shown: ReproContext, say: Callable[[str], None]) -> int:
    """Open a console in a fresh guest with the crashed disk attached, not mounted, and beside it the disk as
    recovery left it, where it could be recovered. Writes to both are discarded at the end. Returns the
    machine's exit code; raises UsageError for a machine without a console.
    """
    shown.spec.machine.need_console()  # before a guest is booted for nothing
    profile = shown.recording.profile
    steps = profile.console_steps
    with Session(shown.spec, shown.directory / "session") as session:
        target, state = shown.recording.shown(shown.point.state)
        options = target.mount_options if profile.layer else profile.first_options
        disk = session.show(target)
        disk.switch(state)
        recovered = not profile.parts and _recovered(shown, session.log_device, say)
        if not recovered:
            session.log_device.write_bytes(bytes(1 << 20))
        boot = Boot(
            kernel_image=shown.spec.kernel_image,
            initramfs=shown.spec.initramfs,
            disk_socket=disk.socket,
            log=session.log_device,
            directory=session.directory,
            memory_mib=shown.spec.memory_mib,
            shell_mount=f"{target.fstype}:{options}",
            shell_parts=profile.parts,
            shell_stack=steps.device if steps else "",
            shell_recovered=recovered,
        )
        return shown.spec.machine.shell(boot)


def _recovered(shown: ReproContext, file: Path, say: Callable[[str], None]) -> bool:
    """Write the disk as recovery leaves it into a file. Says what came of it; False if nothing did."""
    notes = shown.point.state.fault is not None
    with Session(shown.spec, shown.directory / "recovered", notes=notes) as session:
        with telling(lambda: "a guest recovers the disk first; then the console's own guest boots", say):
            _, judged = recover_and_judge(shown, session)
        said = [v.summary for v in judged.violations] or [*judged.unknown, "it keeps every promise"]
        say(f"recovered: {said[0]}")
        image = session.directory / "beside.img"
        try:
            session.disk.image(image)
        except DiskError:  # its disk is gone with the guest
            return False
        shutil.copyfile(image, file)
    return True
