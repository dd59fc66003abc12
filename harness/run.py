"""A run, from a kernel to a verdict: record, enumerate, recover, judge, store. Read this first.

The nine steps stand in `execute`. What one step does in detail is in the module it calls; what happens
to a single crash state is in `harness.cases.examine`.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness import __version__
from harness.cases.casework import Casework
from harness.cases.pool import Pool, Station
from harness.cases.recording import copy_base, is_kept, make_base
from harness.errors import EnvironmentLacks, StoreError
from harness.filesystems.profiles import Profile, select_profiles
from harness.guests.kits import Kits, make_kits, missing_for, missing_program, recording_machine
from harness.guests.machine import default_name, profile_of
from harness.guests.worker import Worker
from harness.host.progress import Progress
from harness.kernels.find import Kernel, find_kernel, look_up_kernel, need_replaced
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.report import write_reports
from harness.store import RunStore
from harness.store.layout import RunLayout
from harness.store.records import CaseInfo, CaseStatus, KernelInfo, MachineInfo, RunInfo
from harness.summary import Summary, summarise
from harness.workloads.load import select_workloads


def execute(plan: Plan, store: RunStore, progress: Progress) -> Summary:
    """Carry out what of `plan` the run in `store` does not hold yet. Findings are data: see Summary.

    On KeyboardInterrupt what was judged is kept, reports are written, and the summary says so.
    Raises RunLocked where another process writes into that run directory.
    """
    with store.lock(" ".join(["powercut", *plan.argv])):
        return _execute(plan, store, progress)


def _execute(plan: Plan, store: RunStore, progress: Progress) -> Summary:
    # 1. What is asked for: names become profiles, workloads, a kernel.
    profiles, workloads = select_profiles(plan.configurations), select_workloads(plan.workloads, plan.shard)
    kernel = find_kernel(
        plan.kernel, Path(plan.modules) if plan.modules else None, [*map(Path, plan.replaced)]
    )
    with _scratch(store) as scratch:
        need_space(store.path, profiles, plan.jobs)
        # 2. Base images: poison, then mkfs on the host.
        if plan.recordings:
            for profile in profiles:
                copy_base(profile, RunLayout(Path(plan.recordings)), store.layout)
        lacking = {p.name: reason for p in profiles if (reason := missing_for(p, kernel))}
        able = [p for p in profiles if p.name not in lacking]
        lacking |= {w.name: reason for w in workloads if (reason := missing_program(w))}
        loaded = [w for w in workloads if w.name not in lacking]
        if not able or not loaded:
            return _tell_why_not(store, kernel, profiles, workloads, lacking)
        if kernel.replaced:
            machine = profile_of(recording_machine(plan.machine, kernel))
            need_replaced(kernel, [*machine.modules, *(m for p in able for m in p.modules)])
        bases = {p.name: make_base(p, store.layout.base(p.filesystem, p.mode), scratch) for p in able}
        # 3. The guests' kits: an initramfs around the agent; machines, tried on the real kernel.
        kits = make_kits(plan, kernel, able, loaded, next(iter(bases.values())), scratch)
        store.update_info(run_info(plan, store.info, kernel, kits))
        progress.say(f"{kernel.name}: {kits.description}, {plan.jobs} at once")
        casework = Casework(plan, store, progress, scratch, bases, recorded_files(plan))
        with _pool(kits, scratch, plan) as pool:
            interrupted = False
            try:
                # 4. Record every case. 5. Enumerate its crash states. 6. Recover each in a guest,
                # fsck it on the host. 7. Judge. 8. Store. Tasks of all cases share one pool.
                casework.work(pool, [(p, w) for p in profiles for w in workloads], lacking)
            except KeyboardInterrupt:
                progress.say("interrupted: guests are ended, and what was judged is written down")
                interrupted = True
        store.finish(interrupted=interrupted)
    # 9. Tell.
    write_reports(store)
    return summarise(store)


def _tell_why_not(
    store: RunStore,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    lacking: Mapping[str, str],
) -> Summary:
    """The end of a run of which nothing can be run here: every case is there with what it lacks."""
    for profile, workload in itertools.product(profiles, workloads):
        case = CaseId(profile.filesystem, profile.mode, workload.name)
        store.add_case(CaseInfo(case, profile.mkfs_line, profile.mount_options, workload.summary))
        reason = lacking.get(profile.name) or lacking[workload.name]
        store.set_case_status(case, CaseStatus.NOT_RUN, reason)
    store.update_info(replace(store.info, kernel=kernel_info(kernel)))
    store.finish(interrupted=False)
    write_reports(store)
    return summarise(store)


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


# --- the run directory -----------------------------------------------------------------------


def create_run(plan: Plan, reports: Path, name: str) -> RunStore:
    """A new run directory with its plan. Its names are looked up first: a typing error costs nothing.

    Raises UsageError, KernelError or StoreError for what cannot be run.
    """
    profiles, workloads = select_profiles(plan.configurations), select_workloads(plan.workloads, plan.shard)
    look_up_kernel(plan.kernel, Path(plan.modules) if plan.modules else None, [*map(Path, plan.replaced)])
    if plan.recordings:
        _need_recordings(Path(plan.recordings), profiles, workloads)
    asked = profile_of(default_name() if plan.machine == "auto" else plan.machine)
    info = RunInfo(
        name=name,
        powercut=__version__,
        git_head=_git_head(),
        argv=tuple(plan.argv),
        kernel=KernelInfo(plan.kernel),
        machine=MachineInfo(asked.name, name=asked.title),
        host=f"{platform.system()} {platform.release()} {platform.machine()}",
        started=datetime.now(UTC),
        jobs=plan.jobs,
        require_all=plan.require_all,
    )
    store = RunStore.create(reports, name, info)
    store.put_plan(plan)
    return store


def run_info(plan: Plan, info: RunInfo, kernel: Kernel, kits: Kits) -> RunInfo:
    """What has become known since the run directory was made."""
    return replace(
        info,
        kernel=kernel_info(kernel),
        machine=MachineInfo(
            kind=kits.judge.machine.name,
            name=kits.judge.machine.described,
            accel=kits.judge.machine.accel,
            version=kits.judge.machine.version(),
            details={"how": kits.description},
        ),
        finished=None,
        interrupted=False,
        jobs=plan.jobs,
    )


def kernel_info(kernel: Kernel) -> KernelInfo:
    """What is kept of a kernel."""
    details = {str(p): "replaces the kernel's own module" for p in kernel.replaced}
    release = kernel.modules.name if kernel.modules else ""
    return KernelInfo(kernel.name, kernel.package_version, release, kernel.sha256, details)


def _git_head() -> str:
    """Of the checkout that powercut runs from; empty for an installed one."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    if not shutil.which("git") or not (here.parent / ".git").exists():
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _need_recordings(source: Path, profiles: Sequence[Profile], workloads: Sequence[Workload]) -> None:
    """Raises StoreError where the run has not one of the recordings that are to be judged again."""
    with RunStore.open(source) as store:
        kept = [c.case for c in store.cases() if is_kept(c.case, RunLayout(source))]
    wanted = {CaseId(p.filesystem, p.mode, w.name) for p in profiles for w in workloads}
    if wanted.isdisjoint(kept):
        has = ", ".join(map(str, kept[:6])) or "none"
        raise StoreError(
            f"--recordings {source} has none of the {len(wanted)} cases that were asked for",
            f"name its modes (-c) and workloads (-w); its recordings: {has}",
        )


def recorded_files(plan: Plan) -> dict[CaseId, dict[str, str]]:
    """Hashes of the recordings that are judged again, by case, as the run that made them has them."""
    if not plan.recordings or not Path(plan.recordings).exists():  # all may have been taken over
        return {}
    with RunStore.open(Path(plan.recordings)) as source:
        return {c.case: c.info.files for c in source.cases() if c.info.files}


@contextlib.contextmanager
def _scratch(store: RunStore) -> Iterator[Path]:
    """A folder for uncompressed images, in the run directory, that goes when the run ends."""
    path = store.layout.scratch
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
