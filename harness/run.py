"""A run, from kernel to verdict: record, enumerate, recover, judge, store. Read this first.

`execute` has the nine steps; the modules it calls have the details. What happens to a single crash state is
in `harness.cases.examine`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import platform
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness import __version__
from harness.cases.casework import Casework, EnoughDone, Limits
from harness.cases.crash_and_continue import crash_of
from harness.cases.examine import WITHOUT_DISK
from harness.cases.first_mount import finish_base
from harness.cases.ledger import PlannedCase, info_of, is_decided
from harness.cases.pins import pin, pins_of
from harness.cases.pool import MakePool, pool_of
from harness.cases.recording import copy_base, is_kept, make_base
from harness.cases.recovery_lines import RecoveryLines
from harness.cluster.blobs import requirements_of
from harness.cluster.dispatch import Dispatch
from harness.cluster.earlier import take_decided
from harness.cluster.shards import Shards, shard_sizes
from harness.errors import (
    ClusterGone,
    EnvironmentLacks,
    PowercutError,
    StoreError,
    UsageError,
    VersionsDiffer,
)
from harness.expectations import Expectation
from harness.filesystems.existing import allocated_bytes, need_made
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.guests.disk import FOLDER_PREFIX
from harness.guests.guest_specs import (
    GuestSpecs,
    lacks_drivers,
    make_specs,
    missing_for,
    missing_program,
    recording_machine,
)
from harness.guests.machine import Machine, default_name, machine_of, profile_of
from harness.guests.session import GuestSpec, Session
from harness.host.console import OutputClosed
from harness.host.files import file_hash, write_atomically
from harness.host.folders import sweep
from harness.host.progress import Progress, telling
from harness.kernels.build import title_of
from harness.kernels.find import Kernel, find_chosen, look_up_chosen
from harness.kernels.instrumented import points_of
from harness.kernels.module_files import need_release, need_replaced
from harness.known.base import KnownBugs
from harness.model import CaseId, Workload
from harness.model.schedules import without_schedule
from harness.oracles import OF_OPERATIONS
from harness.plan import Clock, Plan
from harness.report import write_reports
from harness.report.lines import full, resume
from harness.report.words import plural
from harness.ruled.where import tell_where_seen
from harness.ruled.work import RuledWork
from harness.store import RunStore
from harness.store.layout import RunLayout
from harness.store.records import CaseInfo, CaseStatus, KernelInfo, MachineInfo, RunInfo
from harness.summary import Summary, summarise
from harness.workloads.applications import has_neighbour
from harness.workloads.load import select_workloads
from harness.workloads.match import matcher

if TYPE_CHECKING:  # a run on one host needs no Dask
    from harness.cluster.over_dask import DaskPool


def execute(
    plan: Plan,
    store: RunStore,
    progress: Progress,
    on_done: Callable[[CaseId], None] = lambda case: None,
    make_pool: MakePool = pool_of,
) -> Summary:
    """Carry out the part of `plan` that `store` does not hold yet. Findings are data: see Summary. `on_done`
    is told of each case that has come to its end. `make_pool`: makes the workers of this host.

    On KeyboardInterrupt, verdicts so far are kept, reports are written, and the summary says so.
    Raises RunLocked if another process is writing to the run directory, RunChanged if the run was started
    with other parts; and once the reports are written, ClusterGone if the plan's cluster cannot go on, and
    OutputClosed if nobody reads what `progress` or `on_done` says.
    """
    begun = time.monotonic()
    with store.lock(" ".join(["powercut", *plan.argv])), _scratch(store) as scratch:
        # 1. Look up names: they become profiles, workloads, a kernel.
        with telling(lambda: "finding the kernel and the cases", progress.say):
            asked = look_up(plan)
        sized = [_taking(plan, p.sized(w.image_mib)) for p, w in asked.largest]
        shards = len(shards_for(plan, store, asked))
        need_space(store.path, sized, plan.jobs, max(map(_own_images, asked.cases), default=0), shards)
        if not asked.able or not asked.loaded:
            _note_why_not(store, asked, on_done)
            return _report(store)
        if aside := without_disk(plan, asked):
            progress.say(aside)
        # 2. Make base images: poison, then mkfs on the host. A mode whose mkfs refuses cannot be run here.
        with telling(lambda: "making base images", progress.say):
            bases, refused = _base_images(plan, asked, store, scratch)
        asked = replace(asked, lacking={**asked.lacking, **refused})
        if not bases:
            _note_why_not(store, asked, on_done)
            return _report(store)
        # 3. Make the guests' specs: an initramfs around the agent; machines, tried on the real kernel. Mount
        #    once what writes the same at every mount, and make stacks.
        able, loaded, any_base = asked.able, asked.loaded, next(iter(bases.values()))
        with telling(lambda: "packing what guests boot, and trying how they boot", progress.say):
            specs = make_specs(plan.guests, asked.kernel, able, loaded, any_base, scratch)
        specs = _noting(specs, store.layout) if plan.coverage else specs
        run, spec = store.layout, specs.recorder
        finished = _finish_bases(plan, able, bases, spec, run, scratch, progress, begun)
        asked = replace(asked, lacking={**asked.lacking, **finished.refused})
        able = asked.able
        if not able:
            _note_why_not(store, asked, on_done)
            return _report(store)
        # 4. Pin what verdicts depend on: a run continues with what it started with.
        image = {"image": plan.image.sha256} if plan.image else {}
        pin(store, pins_of(asked.kernel, specs, able, loaded) | image)
        store.update_info(run_info(plan, store.info, asked.kernel, specs, finished.said, aside))
        _keep_modules(store)
        _take_earlier(store, plan, asked, progress)
        asked = _undecided(store, asked, finished.lost, on_done)
        asked = _not_reached(store, plan, asked, finished.late)
        # 5. Record each case. 6. Recover and judge its crash states. 7. Confirm its findings.
        # 8. Finish it. See `harness.cases.casework`, and `harness.cluster` for one case a worker.
        ran = RecoveryLines(specs.judge.kernel_image, able, store.layout) if plan.coverage else None
        left = with_time_left(plan, time.monotonic() - begun)
        job = _Job(left, asked, specs, bases, store, progress, scratch, _telling(on_done, ran), make_pool)
        end = _end_of(progress, lambda: job.all_but(finished.late))
        if ran:
            ran.write()
        store.finish(interrupted=end.interrupted or end.gone is not None, stopped=end.stopped)
        # 9. Report.
        tell_where_seen(store)
        summary = _report(store)
        if end.gone is not None:
            raise end.gone
        return summary


def _noting(specs: GuestSpecs, layout: RunLayout) -> GuestSpecs:
    """Guests note what they run in files of the run directory, which are there from now on."""
    files = layout.hits, layout.recording_hits
    for file in files:
        with file.open("ab") as f:
            os.ftruncate(f.fileno(), points_of(specs.judge.kernel_image).hits_bytes)
    return specs.noting(*files)


def _telling(on_done: Callable[[CaseId], None], ran: RecoveryLines | None) -> Callable[[CaseId], None]:
    """`on_done`, for which `ran` has looked first."""

    def done(case: CaseId) -> None:
        if ran:
            ran.look(case)
        on_done(case)

    return done


@dataclass(frozen=True, slots=True)
class Planned:
    """The objects a plan names. `cases`: which modes under which workloads. `lacking`: why a mode or
    workload, by name, cannot be run on this host with this kernel.
    """

    cases: Sequence[tuple[Profile, Workload]]
    kernel: Kernel
    lacking: Mapping[str, str]

    @property
    def profiles(self) -> list[Profile]:
        return list({p.name: p for p, _ in self.cases}.values())

    @property
    def largest(self) -> list[tuple[Profile, Workload]]:
        """Of each mode the case whose image is the largest."""
        by_size = sorted(self.cases, key=lambda case: case[1].image_mib)
        return [*{profile.name: (profile, workload) for profile, workload in by_size}.values()]

    @property
    def workloads(self) -> list[Workload]:
        return list({w.name: w for _, w in self.cases}.values())

    @property
    def able(self) -> list[Profile]:
        """The modes that can be run."""
        return [p for p in self.profiles if p.name not in self.lacking]

    @property
    def loaded(self) -> list[Workload]:
        """The workloads that can be run."""
        return [w for w in self.workloads if w.name not in self.lacking]


def look_up(plan: Plan) -> Planned:
    """Raises UsageError or KernelError for what does not exist, or would not be tested."""
    kernel = find_chosen(plan.kernel_choice)
    asked = Planned(select_cases(plan), kernel, {})
    _need_image(plan, asked.cases)
    lacking = {p.name: reason for p in asked.profiles if (reason := missing_for(p, kernel))}
    if plan.disk and [*plan.oracles] == ["honesty"]:
        why = "honesty would judge a faulty disk, and --disk is for single disks: name other oracles as well"
        lacking |= {p.name: why for p in asked.profiles if p.stacked}
    if plan.recordings:
        why = "a mode that is only rules has no recordings"
        lacking |= {p.name: why for p in asked.profiles if p.rules}
    lacking |= {w.name: reason for w in asked.workloads if (reason := missing_program(w))}
    if plan.oracles and OF_OPERATIONS.issuperset(plan.oracles):
        judged = ", ".join(plan.oracles)
        why = f"{judged} would judge operations, and a program is judged by its check: --oracle program"
        lacking |= {w.name: why for w in asked.workloads if any(c.application for c in w.checks)}
    machine_name = recording_machine(plan.machine, kernel)
    if not plan.coverage:
        there = (p for p in asked.profiles if p.name not in lacking)
        lacking |= {p.name: why for p in there if (why := lacks_drivers(machine_name, kernel, p))}
    asked = replace(asked, lacking=lacking)
    if kernel.replaced and asked.able:
        machine = profile_of(machine_name)
        need_replaced(kernel, [*machine.modules, *(m for p in asked.able for m in p.modules)])
        need_release(kernel, machine_of(machine_name).kernel_release(kernel.image))
    return asked


def _need_image(plan: Plan, cases: Sequence[tuple[Profile, Workload]]) -> None:
    """Raises UsageError for a mode on a disk that somebody has where the plan has none."""
    if plan.image is None and not plan.recordings:
        need_made([p for p, _ in cases])


def without_disk(plan: Plan, asked: Planned) -> str:
    """What is to be said of modes whose disks err in no case, though the plan asks for it; empty for none."""
    stacks = [p.name for p in asked.able if p.stacked]
    if not plan.disk or not stacks:
        return ""
    return f"{', '.join(stacks)}: {WITHOUT_DISK}"


def select_cases(plan: Plan) -> list[tuple[Profile, Workload]]:
    """Every mode of the plan under every workload, as far as the plan selects the case by its name. A mode
    that is only rules tries every order of a program's calls, whatever runs beside it and whenever the disk
    completes writes: it takes neither neighbours nor schedules. Raises UsageError for names that do not
    exist, and if no case is left.
    """
    profiles, workloads = select_profiles(plan.configurations), select_workloads(plan.workloads, plan.shard)
    every = [
        (CaseId(p.filesystem, p.mode, w.name), p, w)
        for p, w in itertools.product(profiles, workloads)
        if not (p.rules and (has_neighbour(w) or without_schedule(w.name)[1]))
    ]
    if profiles and workloads and not every:
        raise UsageError(
            f"{', '.join(plan.workloads)}: a mode that is only rules tries every order, and takes no "
            "neighbour and no schedule",
            "name the program itself, or a mode of a kernel",
        )
    selects = matcher(plan.match) if plan.match else None
    named = set(plan.only)
    chosen = [
        (p, w)
        for case, p, w in every
        if (not named or str(case) in named) and (selects is None or selects(str(case)))
    ]
    if every and not chosen:
        what = repr(plan.match) if plan.match else ", ".join(plan.only)
        raise UsageError(
            f"{what} selects none of {len(every)} cases",
            f"they are named like {every[0][0]}",
        )
    return chosen


def _base_images(
    plan: Plan, asked: Planned, store: RunStore, scratch: Path
) -> tuple[dict[str, Path], dict[str, str]]:
    """The base image of every mode that can be run, by name: from the recordings to judge again, from this
    run, or new. And by name, why mkfs made none: this host's may be too old for the arguments of a mode.

    The image of a mode that a guest finishes is kept in its place once it is finished: the steps that make a
    stack, or a folder, refuse an image that has one. What is to be said of a disk that somebody has is known
    from finishing it, which is done again unless something was recorded on it.
    """
    if plan.recordings:
        for profile in asked.profiles:
            copy_base(profile, RunLayout(Path(plan.recordings)), store.layout)
    made, refused = {}, {}
    for p in asked.able:
        try:
            kept = store.layout.base(p.filesystem, p.mode)
            if p.folder and not (plan.recordings or store.layout.recordings(p.filesystem, p.mode)):
                kept.unlink(missing_ok=True)
            if p.is_finished_in_guest and not kept.exists():
                kept = _unfinished(kept)
                kept.unlink(missing_ok=True)
            made[p.name] = make_base(p, kept, scratch, "", plan.image)
        except EnvironmentLacks as e:
            refused[p.name] = e.line
    return made, refused


def _unfinished(base: Path) -> Path:
    """Where a base image is until a guest has finished it."""
    return base.with_suffix(".unfinished")


def _taking(plan: Plan, profile: Profile) -> Profile:
    """The mode with the room that its base image takes on the host's disk."""
    return replace(profile, size_bytes=allocated_bytes(plan.image)) if plan.image else profile


@dataclass(frozen=True, slots=True)
class _Finished:
    """Of modes whose base image took a guest, by name: `refused`, why there is none, since this kernel may
    not have what the steps of their stack ask for; `lost`, why another one was not finished, which says
    nothing of this host: a log that cannot be trusted, a guest that was lost. `late`: those for which there
    was no time. `said`: of a disk that somebody has.
    """

    refused: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def _finish_bases(
    plan: Plan,
    able: Sequence[Profile],
    bases: Mapping[str, Path],
    spec: GuestSpec,
    run: RunLayout,
    scratch: Path,
    progress: Progress,
    begun: float,
) -> _Finished:
    """Finish the base images that need a guest, unless they are finished: a run that is stopped, or killed,
    goes on with those that it has. At least one, however little time there is: else a run with less would
    never come to its first state. Raises VersionsDiffer, which would cost every mode, and UsageError for a
    disk on which nothing can be judged.
    """
    finished, any_made = _Finished(), False
    for p in able:
        kept = run.base(p.filesystem, p.mode)
        if p.is_finished_in_guest and p.name in bases and not kept.exists():
            if any_made and plan.minutes is not None and time.monotonic() - begun >= plan.minutes * 60:
                finished.late.append(p.name)
                continue
            any_made = True
            done = "makes its base image" if p.is_made_in_guest else "mounts its base image once"
            what = f"{p.name}: a guest {done}"
            with (
                telling(functools.partial(str, what), progress.say),
                Session(spec, scratch / "first-mount", plan.log_bytes) as session,
            ):
                try:
                    finished.said.append(finish_base(session, p, bases[p.name], _unfinished(kept)))
                    _unfinished(kept).replace(kept)
                except (VersionsDiffer, UsageError):
                    raise
                except EnvironmentLacks as e:
                    finished.refused[p.name] = e.line
                except PowercutError as e:
                    finished.lost[p.name] = e.line
    return finished


def _undecided(
    store: RunStore, asked: Planned, lost: Mapping[str, str], on_done: Callable[[CaseId], None]
) -> Planned:
    """Without the cases of modes whose base image was not finished: these are UNKNOWN, with the reason, and
    cost no other mode anything.
    """
    for profile, workload in asked.cases:
        if reason := lost.get(profile.name):
            case = CaseId(profile.filesystem, profile.mode, workload.name)
            store.add_case(CaseInfo(case, profile.mkfs_line, profile.mount_options, workload.summary))
            store.set_case_status(case, CaseStatus.UNKNOWN, f"its base image was not finished: {reason}")
            on_done(case)
    return replace(asked, cases=[(p, w) for p, w in asked.cases if p.name not in lost])


def _not_reached(store: RunStore, plan: Plan, asked: Planned, late: Sequence[str]) -> Planned:
    """Without the cases of modes for whose base image there was no time: a run that is resumed has them."""
    for profile, workload in asked.cases:
        if profile.name in late:
            case = CaseId(profile.filesystem, profile.mode, workload.name)
            store.add_case(info_of(PlannedCase(profile, workload, case), plan))
    return replace(asked, cases=[(p, w) for p, w in asked.cases if p.name not in late])


def _take_earlier(store: RunStore, plan: Plan, asked: Planned, progress: Progress) -> None:
    """What earlier runs have decided, where the plan names a folder that may have some."""
    if plan.earlier and (taken := take_decided(store, plan, asked.cases, asked.lacking)):
        progress.say(f"{plural(sum(taken.values()), 'case')} decided by earlier runs: {', '.join(taken)}")


@dataclass(frozen=True, slots=True)
class _Job:
    """Steps 5 to 8, and all that they need: here, or on a cluster."""

    plan: Plan
    asked: Planned
    specs: GuestSpecs
    bases: dict[str, Path]
    store: RunStore
    progress: Progress
    scratch: Path
    on_done: Callable[[CaseId], None]
    make_pool: MakePool

    def all_but(self, late: Sequence[str]) -> None:
        """All cases that are asked. Raises EnoughDone if the time was up for modes before that."""
        self.all()
        if late:
            raise EnoughDone("the time given is up")

    def all(self) -> None:
        """First the modes that are only rules, which take one guest of this host; then all others, which the
        run knows by then, and which have what is left of the plan's time.
        """
        ruled = [(p, w) for p, w in self.asked.cases if p.rules]
        rest = [(p, w) for p, w in self.asked.cases if not p.rules]
        begun = time.monotonic()
        if ruled:
            for p, w in rest:  # or a run that ends among the rules says nothing of these
                planned = PlannedCase(p, w, CaseId(p.filesystem, p.mode, w.name))
                self.store.add_case(info_of(planned, self.plan))
            work = RuledWork(
                self.plan, self.store, self.progress, self.specs.judge, self.scratch, self.on_done
            )
            work.work(ruled, self.bases, self.asked.lacking)
        if rest:
            plan = with_time_left(self.plan, time.monotonic() - begun)
            plan = with_failures_left(
                plan, self.store, [CaseId(p.filesystem, p.mode, w.name) for p, w in ruled]
            )
            others = replace(self, plan=plan, asked=replace(self.asked, cases=rest))
            (others.on_cluster if self.plan.cluster else others.here)()

    def here(self) -> None:
        """With `plan.jobs` workers of this host: in this process, or in shards, one case each at a time."""
        plan, asked = self.plan, self.asked
        sizes = shards_for(plan, self.store, asked)
        if len(sizes) > 1:
            self._dispatched(lambda run: Shards(run, sizes, self.scratch, self.make_pool), all_logs=True)
            return
        self.progress.say(f"{title_of(asked.kernel)}, {plan.jobs} at once: {self.specs.description}")
        recorded = recorded_files(plan)
        casework = Casework(plan, self.store, self.progress, self.scratch, self.bases, recorded, self.on_done)
        with contextlib.closing(self.make_pool(self.specs, self.scratch, plan)) as pool:
            casework.work(pool, asked.cases, asked.lacking)

    def on_cluster(self) -> None:
        """On the workers of the plan's cluster, one case each at a time. Raises ClusterGone."""
        from harness.cluster.over_dask import DaskPool  # noqa: PLC0415 - a run on one host needs no Dask

        self._dispatched(lambda run: DaskPool(self.plan.cluster, run, self.scratch))

    def _dispatched(self, pool_for: Callable[[str], DaskPool | Shards], *, all_logs: bool = False) -> None:
        """On the workers of a pool, made for a run of this name. `all_logs`: bring back every recording."""
        store, layout = self.store, self.store.layout
        plan = msgspec.structs.replace(self.plan, all_logs=self.plan.all_logs or all_logs)
        places = {p.name: layout.base(p.filesystem, p.mode) for p in self.asked.able}
        named = {name: base for name, base in places.items() if name in self.bases and base.exists()}
        run = f"{store.path.name}-{secrets.token_hex(4)}"
        requirements = requirements_of(run, plan, self.specs, named, store.info.pins)
        with contextlib.closing(pool_for(run)) as pool:
            self.progress.say(
                f"{title_of(self.asked.kernel)}, on {pool.description}: {self.specs.description}"
            )
            recorded = recorded_files(plan)
            dispatch = Dispatch(plan, store, self.progress, pool, requirements, recorded, self.on_done)
            dispatch.work(self.asked.cases, self.asked.lacking)


def shards_for(plan: Plan, store: RunStore, asked: Planned) -> list[int]:
    """How many workers each shard of the run has; at most one shard for each case that is still open."""
    if plan.cluster or plan.again or plan.disk or plan.coverage:
        return [plan.jobs]
    decided = {r.case for r in store.cases() if is_decided(store, r)}
    able = [(p, w) for p, w in asked.cases if not p.rules and not {p.name, w.name} & asked.lacking.keys()]
    left = {CaseId(p.filesystem, p.mode, w.name) for p, w in able} - decided
    return shard_sizes(plan.jobs, len(left))


def with_failures_left(plan: Plan, store: RunStore, done: Iterable[CaseId]) -> Plan:
    """The plan with as many failed cases as are left of those that it allows. Raises EnoughDone for none."""
    if plan.max_failures is None:
        return plan
    limits = Limits(plan)
    for case in done:
        limits.ended(store, case)
    limits.need_more()
    return msgspec.structs.replace(plan, max_failures=plan.max_failures - limits.failures)


def with_time_left(plan: Plan, spent_s: float) -> Plan:
    """The plan when so much of its time is spent, if it has any."""
    if plan.minutes is None:
        return plan
    return msgspec.structs.replace(plan, minutes=max(0.0, plan.minutes - spent_s / 60))


@dataclass(frozen=True, slots=True)
class _End:
    """How the work ended before it was complete, if it did. `gone`: the cluster on which it was done is, or
    the reader of the output.
    """

    interrupted: bool = False
    stopped: str = ""
    gone: ClusterGone | OutputClosed | None = None


def _end_of(progress: Progress, work: Callable[[], None]) -> _End:
    """Do the work until its end, until the plan's limits stop it, or until the user does; say which."""
    try:
        try:
            work()
        except EnoughDone as e:
            progress.say(f"{e}: stopping guests and saving the verdicts so far")
            return _End(stopped=str(e))
        except ClusterGone as e:
            progress.say(f"{e.what}: saving the verdicts so far")
            return _End(gone=e)
        except KeyboardInterrupt:
            progress.say("interrupted: stopping guests and saving the verdicts so far")
            return _End(interrupted=True)
    except OutputClosed as e:  # by the work, or while that was said
        return _End(gone=e)
    return _End()


def _report(store: RunStore) -> Summary:
    """Write the reports; returns the summary."""
    write_reports(store)
    return summarise(store)


def _note_why_not(store: RunStore, asked: Planned, on_done: Callable[[CaseId], None]) -> None:
    """Finish a run of which nothing can be run here: add every case, with what it lacks. Raises
    EnvironmentLacks if something could be run when the run was started: its verdicts stay as they are.
    """
    if store.info.pins:
        why = "; ".join(dict.fromkeys(asked.lacking.values()))
        raise EnvironmentLacks(
            f"nothing in {store.path} can be run any more: {why}", "restore what is missing"
        )
    for profile, workload in asked.cases:
        case = CaseId(profile.filesystem, profile.mode, workload.name)
        store.add_case(CaseInfo(case, profile.mkfs_line, profile.mount_options, workload.summary))
        reason = asked.lacking.get(profile.name) or asked.lacking[workload.name]
        store.set_case_status(case, CaseStatus.NOT_RUN, reason)
        on_done(case)
    store.update_info(replace(store.info, kernel=kernel_info(asked.kernel)))
    store.finish(interrupted=False)


# --- the run directory -----------------------------------------------------------------------


@contextlib.contextmanager
def new_run(
    plan: Plan,
    reports: Path,
    name: str,
    expectations: Sequence[Expectation] = (),
    known: KnownBugs | None = None,
) -> Iterator[RunStore]:
    """`create_run`, as a context. If it ends by an error before anything was recorded or judged, no guest
    having come up, say, the directory goes again: nobody could resume or read it. Otherwise see `note_next`.
    """
    with create_run(plan, reports, name, expectations, known) as store:
        try:
            yield store
        except BaseException as e:
            if store.info.pins or store.cases():
                note_next(e, plan, store)
            else:
                store.discard()
            raise


def note_next(e: BaseException, plan: Plan, store: RunStore) -> None:
    """Note on what ended a run the command that goes on with it. Of a complete run, whose reports may have
    been interrupted, it writes these; nothing is noted if only nobody read all that was said of it.
    """
    complete = store.info.finished and not store.info.interrupted
    if complete and isinstance(e, KeyboardInterrupt):
        e.add_note(f"powercut report {shlex.quote(full(store.path))}")
    elif not (complete and isinstance(e, OutputClosed)):
        e.add_note(resume(plan, str(store.path)))


def create_run(
    plan: Plan,
    reports: Path,
    name: str,
    expectations: Sequence[Expectation] = (),
    known: KnownBugs | None = None,
) -> RunStore:
    """Create a run directory with its plan. Names are looked up first, so a typo leaves nothing behind. A run
    that is killed meanwhile has no plan, so nobody resumes it without its known failures. `known`: known bugs
    beside the installed ones.

    Raises UsageError, KernelError or StoreError for a plan that cannot be run.
    """
    cases = select_cases(plan)
    _need_image(plan, cases)
    look_up_chosen(plan.kernel_choice)
    if Path(plan.kernel).is_file():
        recording_machine(plan.machine, find_chosen(plan.kernel_choice))
    if plan.recordings:
        recorded_by(Path(plan.recordings), cases)
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
    store.set_expectations(expectations)
    if known:
        store.set_known(known)
    store.put_plan(plan)
    return store


def run_info(
    plan: Plan, info: RunInfo, kernel: Kernel, specs: GuestSpecs, said: Sequence[str] = (), aside: str = ""
) -> RunInfo:
    """`info` with what became known after the run directory was created. `said`: of the plan's disk, unless
    an earlier part of the run found it out. `aside`: see `without_disk`.
    """
    return replace(
        info,
        kernel=kernel_info(kernel, specs.judge.machine),
        machine=MachineInfo(
            kind=specs.judge.machine.name,
            name=specs.judge.machine.described,
            accel=specs.judge.machine.accel,
            version=specs.judge.machine.version(),
            details={"how": specs.description}
            | ({"accelerator": specs.accel_reason} if specs.accel_reason else {})
            | ({} if plan.recordings else {"completions": plan.completions.description})
            | ({"clock": clock} if (clock := _clock(plan, specs)) else {})
            | ({"faulty disk": aside} if aside else {})
            | _image_details(plan, info, said),
        ),
        finished=None,
        interrupted=False,
        stopped="",
        jobs=plan.jobs,
    )


def _image_details(plan: Plan, info: RunInfo, said: Sequence[str]) -> dict[str, str]:
    """What the report says of the disk with which the run began."""
    if plan.image is None:
        return {}
    found = next(filter(None, said), "")
    begun = f"{plan.image.path}, {plan.image.size_bytes >> 20:,} MiB, sha256 {plan.image.sha256}"
    return {"image": f"{begun}: {found}" if found else info.machine.details.get("image", begun)}


def _clock(plan: Plan, specs: GuestSpecs) -> str:
    """How time passed while recordings were made, where some may be in virtual time."""
    recorder = specs.recorder
    scheduled = any(without_schedule(name)[1] for name in plan.workloads)
    can = recorder.machine.has_virtual_time(recorder.kernel_image)
    if plan.clock is Clock.REAL or not can or (plan.clock is Clock.AUTO and not scheduled):
        return ""
    what = "recorded" if plan.clock is Clock.VIRTUAL else "schedules recorded"
    if recorder.machine.decides_threads(recorder.kernel_image):
        return f"{what} in virtual time; under a schedule its number decides which thread runs"
    return f"{what} in virtual time; this kernel lets no schedule decide which thread runs"


def kernel_info(kernel: Kernel, machine: Machine | None = None) -> KernelInfo:
    """The kernel as stored in run.json. Of a file, `machine` says the release."""
    replaced = {str(p): file_hash(p) for p in kernel.replaced}
    details = {path: f"replaces the kernel's own module; sha256 {sha}" for path, sha in replaced.items()}
    release = kernel.modules.name if kernel.modules else ""
    if machine and not release:
        release = machine.kernel_release(kernel.image)
    if (built := title_of(kernel)) != kernel.name:
        details["built from"] = built
    return KernelInfo(kernel.name, kernel.package_version, release, kernel.sha256, details, replaced)


def _keep_modules(store: RunStore) -> None:
    """Copy the modules that replace the kernel's own into the run directory: they are built anew, and whoever
    gets the run has none. Not a file that has become another since it was looked at.
    """
    for path, sha256 in store.info.kernel.replaced.items():
        kept, data = store.layout.module(Path(path).name), Path(path).read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256 or kept.exists():
            continue
        kept.parent.mkdir(exist_ok=True)
        if not _linked(kept, sha256):
            write_atomically(kept, data)


def _linked(kept: Path, sha256: str) -> bool:
    """Make it one file with the copy of the last run beside this one that has the same: a series has many
    runs with a module of some megabytes.
    """
    beside = kept.parent.parent.parent.glob(f"*/{kept.parent.name}/{kept.name}")
    last = max((p for p in beside if not p.is_symlink()), key=lambda p: p.stat().st_mtime, default=None)
    if last is None or file_hash(last) != sha256:
        return False
    with contextlib.suppress(OSError):
        os.link(last, kept)
    return kept.exists()


def _git_head() -> str:
    """The commit of the checkout powercut runs from; empty if installed."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    if not shutil.which("git") or not (here.parent / ".git").exists():
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def recorded_by(source: Path, cases: Sequence[tuple[Profile, Workload]]) -> set[CaseId]:
    """The cases of which `source` has recordings to judge again. Raises StoreError if it has none."""
    with RunStore.open(source) as store:
        kept = [c.case for c in store.cases() if is_kept(c.case, RunLayout(source))]
    wanted = {CaseId(p.filesystem, p.mode, w.name) for p, w in cases}
    if wanted.isdisjoint(kept):
        has = ", ".join(map(str, kept[:6])) or "none"
        raise StoreError(
            f"{source} has none of the {len(wanted)} recordings requested",
            f"ask for modes and workloads that it recorded: {has}",
        )
    return wanted.intersection(kept)


def recorded_files(plan: Plan) -> dict[CaseId, dict[str, str]]:
    """Hashes of the recordings to judge again, by case, from the run that made them."""
    if not plan.recordings or not Path(plan.recordings).exists():  # all may have been copied already
        return {}
    with RunStore.open(Path(plan.recordings)) as source:
        return {c.case: c.info.files for c in source.cases() if c.info.files}


@contextlib.contextmanager
def _scratch(store: RunStore) -> Iterator[Path]:
    """A directory in the run directory for uncompressed images; removed when the run ends. What a killed run
    left is removed as well: before, since this one may need no disk; and after, since that one's workers may
    have ended only meanwhile.
    """
    path = store.layout.scratch
    shutil.rmtree(path, ignore_errors=True)
    sweep(FOLDER_PREFIX)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        sweep(FOLDER_PREFIX)


def _own_images(case: tuple[Profile, Workload]) -> int:
    """How many base images a case has that are its own."""
    profile, workload = case
    sized = profile.sized(workload.image_mib) is not profile
    return sized + (crash_of(workload.operations) is not None)


def need_space(
    path: Path, profiles: Sequence[Profile], jobs: int, own_images: int = 0, shards: int = 1
) -> None:
    """Raises EnvironmentLacks if the run would fill the host's disk. `own_images`: base images that a case
    has of its own, at most. `shards`: each has all base images.
    """
    largest = max(p.size_bytes for p in profiles)
    # For each worker: the log that it makes, the image that it checks, and two recordings that it works on,
    # with the base images that are theirs alone.
    bases = sum(p.size_bytes for p in profiles) * 2 * shards
    need = bases + jobs * (4 + 2 * own_images) * largest + (256 << 20)
    free = shutil.disk_usage(path).free
    if free < need:
        raise EnvironmentLacks(
            f"{path} has {free >> 20} MiB free; this run needs about {need >> 20} MiB for images and logs",
            "free some space, or put the run elsewhere",
        )
