"""The measurements, each a function of the setup."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from harness.bench.figures import (
    BenchResult,
    Decided,
    Floor,
    Growth,
    GrowthPoint,
    NotMeasured,
    Quartiles,
    Raw,
    Scaling,
    Usual,
    Whole,
)
from harness.bench.host import (
    beyond_image,
    describe_host,
    forget_peak,
    load_now,
    memory_of,
    open_loop,
    own_cpu_s,
    pids_of,
    session_cpu_s,
    time_fsck,
)
from harness.bench.scaling import VISIT_S, KeptVisits, every_case_alone
from harness.bench.setup import LOG_BYTES, PROFILE, WHOLE, Effort, Setup, make_setup, own_kernel_of
from harness.bench.work import pad_log, spaced, unused_blocks, write_workload
from harness.cases.examine import Examiner, Observation
from harness.cases.fsck_reads import FsckReads
from harness.cases.recording import Recording
from harness.errors import EnvironmentLacks, PowercutError
from harness.guests.disk import Disk
from harness.guests.machine import profile_of
from harness.guests.session import Session, Target
from harness.model import SECTOR_BYTES, CrashState, EntryFlag
from harness.plan import Plan
from harness.run import create_run, execute
from harness.states import enumerate_prefixes
from harness.store.records import How
from harness.summary import CaseSummary
from harness.writelog import WriteLog, read_log
from harness.writelog.log import changes

# --- all of it -------------------------------------------------------------------------------

Figure = TypeVar("Figure")


def run_bench(
    effort: Effort,
    kernel: str,
    machines: Sequence[str],
    accel: str,
    own_kernel: Path | None,
    say: Callable[[str], None],
) -> BenchResult:
    """Take all measurements, one after another. One that fails is NotMeasured, with the reason; raises
    PowercutError only if none is possible (no machine, no kernel). `say` receives progress messages.
    """
    load = load_now()
    with make_setup(effort, kernel, machines, accel, own_kernel, say) as setup:

        def each(what: str, measure: Callable[[Setup, str], Figure]) -> dict[str, Figure | NotMeasured]:
            return {m: _try(setup, f"{what}, {m}", functools.partial(measure, setup, m)) for m in machines}

        setup.say(f"measuring: raw ({', '.join(machines)}) and the floor")
        raw, floor = measure_states(setup)
        return BenchResult(
            raw=raw,
            floor=floor,
            usual=_try(setup, "the usual way", functools.partial(measure_usual, setup)),
            growth=each("growing logs", measure_growth),
            decided=each("decided", measure_decided),
            whole=each("whole runs", measure_whole),
            scaling=each("many workers", measure_scaling),
            host=describe_host(load),
            tested_kernel=f"{setup.kernel.name} {setup.kernel.package_version}".strip(),
            operations=effort.operations,
            entries=setup.recording.write_log.entry_count,
            states=len(setup.states),
        )


def _try(setup: Setup, what: str, measure: Callable[[], Figure]) -> Figure | NotMeasured:
    setup.say(f"measuring: {what}")
    try:
        return measure()
    except PowercutError as e:
        return NotMeasured(e.what.splitlines()[0])


# --- one state -------------------------------------------------------------------------------

PARTS = ("switch", "mount", "walk", "unmount", "channel", "image", "fsck", "judge")


def time_state(
    session: Session, target: Target, state: CrashState, examiner: Examiner, judged_at: CrashState
) -> dict[str, float]:
    """The times of one state, from the switch to the judgement: ms, by part of PARTS. `judged_at`: the same
    state in the examiner's recording.

    Each part is what a visit of a run does. Raises PowercutError if the state does not mount or violates a
    promise: the times would mean nothing.
    """
    disk = session.show(target)
    session.guest()
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return (clock[-1] - clock[-2]) * 1000

    disk.switch(state)
    times = {"switch": lap()}
    recovery = session.recover(target, state)
    round_trip = lap()
    inside = [us / 1000 for us in recovery.times_us]
    times |= zip(("mount", "walk", "unmount"), inside, strict=True)
    times["channel"] = max(round_trip - sum(inside), 0.0)
    disk.image(session.image)
    times["image"] = lap()
    checked = FsckReads.of(examiner.recording.profile, session.image, session.servers)
    times["fsck"] = lap()
    outcome = dataclasses.replace(recovery.outcome, fsck=checked.result)
    judgement = examiner.judge(judged_at, Observation(outcome))
    times["judge"] = lap()
    if outcome.mount_errno or judgement.violations:
        why = judgement.violations[0].summary if judgement.violations else f"errno {outcome.mount_errno}"
        raise PowercutError(f"state {state} of the bench is not consistent: {why}", "run: powercut smoke")
    return times


def _split(times: Sequence[Mapping[str, float]]) -> dict[str, Quartiles]:
    return {part: Quartiles.of([t[part] for t in times]) for part in times[0]}


def _totals(times: Sequence[Mapping[str, float]]) -> Quartiles:
    return Quartiles.of([sum(t.values()) for t in times])


# --- the measurements ------------------------------------------------------------------------


def measure_states(setup: Setup) -> tuple[dict[str, Raw | NotMeasured], Floor | NotMeasured]:
    """Measure Raw on one session of each machine, without a memo and with an fsck for every state; and Floor,
    on images of the same states.
    """
    raw: dict[str, Raw | NotMeasured] = {}
    with contextlib.ExitStack() as stack:
        racers: dict[str, _Racer] = {}
        for name, spec in setup.specs.items():
            if isinstance(spec, NotMeasured):
                raw[name] = spec
            else:
                session = stack.enter_context(Session(spec, setup.scratch / f"raw-{name}", LOG_BYTES))
                examiner = Examiner(setup.recording)
                visit = functools.partial(_visit, session, examiner)
                racers[name] = _Racer(visit, session, use=functools.partial(_use, session, examiner))
        racers["floor"] = _floor_racer(setup, stack)
        for racer in racers.values():
            racer.run(CrashState(0), counted=False)  # boots, makes images
        for state in setup.states:
            for racer in racers.values():
                racer.run(state)
        floor = racers.pop("floor")
        return raw | {name: racer.raw(name) for name, racer in racers.items()}, floor.floor()


def _visit(session: Session, examiner: Examiner, state: CrashState) -> dict[str, float]:
    return time_state(session, examiner.recording.target, state, examiner, state)


def _use(session: Session, examiner: Examiner) -> float:
    """The time, in ms, to write to the file system that was recovered last, and to take that back."""
    recording, begun = examiner.recording, time.perf_counter()
    session.use(recording.target, recording.profile.contract.made_by_mkfs)
    return (time.perf_counter() - begun) * 1000


def _floor_racer(setup: Setup, stack: contextlib.ExitStack) -> _Racer:
    """The floor's racer: the host's kernel. `stack` closes what it opens."""
    try:
        loop = stack.enter_context(open_loop(setup.base, setup.scratch))
    except (OSError, EnvironmentLacks) as e:
        return _Racer(_no_visit, failed=str(e).splitlines()[0])
    disk = stack.enter_context(Disk())
    disk.open(setup.recording.base, setup.recording.log)
    crashed = setup.scratch / "crashed.img"

    def prepare(state: CrashState) -> None:
        disk.switch(state)
        disk.image(crashed)
        shutil.copyfile(crashed, loop.file)

    def visit(_: CrashState) -> dict[str, float]:
        return loop.mount_and_unmount(setup.profile) | time_fsck(setup.profile, loop.file)

    return _Racer(visit, prepare=prepare)


_Visit: TypeAlias = Callable[[CrashState], dict[str, float]]


def _no_visit(_: CrashState) -> dict[str, float]:
    return {}


@dataclass(slots=True)
class _Racer:
    """One participant of the measurements that take turns. The first failure ends its part, and becomes its
    NotMeasured.
    """

    visit: _Visit
    session: Session | None = None
    prepare: Callable[[CrashState], None] | None = None
    use: Callable[[], float] | None = None
    times: list[dict[str, float]] = field(default_factory=list)
    use_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    interpreter_s: float = 0.0
    failed: str = ""

    def run(self, state: CrashState, counted: bool = True) -> None:
        if self.failed:
            return
        try:
            if self.prepare:
                self.prepare(state)
            before, interpreter_s = self._cpu_s() if counted else 0.0, time.process_time()
            times = self.visit(state)
            if counted:
                self.times.append(times)
                self.interpreter_s += time.process_time() - interpreter_s
                self.cpu_s += self._cpu_s() - before
            if counted and self.use:
                self.use_ms.append(self.use())
        except (OSError, PowercutError) as e:
            self.failed = str(e).splitlines()[0]

    def _cpu_s(self) -> float:
        return session_cpu_s(self.session) if self.session else own_cpu_s()

    def raw(self, name: str) -> Raw | NotMeasured:
        if self.failed:
            return NotMeasured(self.failed)
        total, cpu_ms = _totals(self.times), self.cpu_s * 1000 / len(self.times)
        return Raw(
            name,
            total,
            _split(self.times),
            Quartiles.of(self.use_ms),
            cpu_ms,
            self.interpreter_s * 1000 / len(self.times),
            1000 / total.median,
            1000 / max(total.median, cpu_ms),
        )

    def floor(self) -> Floor | NotMeasured:
        if self.failed:
            return NotMeasured(self.failed)
        total, cpu_ms = _totals(self.times), self.cpu_s * 1000 / len(self.times)
        return Floor(total, _split(self.times), cpu_ms, 1000 / total.median)


def measure_usual(setup: Setup) -> Usual | NotMeasured:
    """Measure Usual: replay each state's log from the start, and run a process for every step."""
    recording = setup.recording
    times = []
    try:
        with open_loop(setup.base, setup.scratch) as loop:
            for state in spaced(recording.write_log.entry_count, setup.effort.usual_states):
                begun = time.perf_counter()
                shutil.copyfile(recording.base, loop.file)
                copied = time.perf_counter()
                replay_into(loop.file, recording.write_log, state)
                replayed = time.perf_counter()
                mounted = loop.mount_by_processes(setup.profile)
                times.append(
                    {"copy": (copied - begun) * 1000, "replay": (replayed - copied) * 1000}
                    | mounted
                    | time_fsck(setup.profile, loop.file)
                )
    except (OSError, EnvironmentLacks, subprocess.CalledProcessError) as e:
        return NotMeasured(str(e).splitlines()[0])
    return Usual(_totals(times), _split(times), 1000 / _totals(times).median)


def replay_into(image: Path, log: WriteLog, state: CrashState) -> None:
    """Write the entries of the state's prefix to `image`, one after another."""
    with log.path.open("rb") as source, image.open("r+b") as target:
        for entry in filter(changes, log.entries[: state.prefix]):
            length = entry.sectors * SECTOR_BYTES
            discard = EntryFlag.DISCARD in entry.flags
            data = bytes(length) if discard else os.pread(source.fileno(), length, entry.data_offset)
            os.pwrite(target.fileno(), data, entry.sector * SECTOR_BYTES)


def measure_growth(setup: Setup, name: str) -> Growth | NotMeasured:
    """Measure Growth: the same recording in logs of growing length, in rounds, so that other load affects all
    lengths alike.
    """
    spec = setup.specs[name]
    if isinstance(spec, NotMeasured):
        return spec
    small, effort = setup.small, setup.effort
    real = small.write_log.entry_count
    if real > min(effort.log_sizes):
        return NotMeasured(
            f"the recording has {real} entries, more than a log of {min(effort.log_sizes)} may"
        )
    blocks = unused_blocks(small.base, small.write_log)
    with contextlib.ExitStack() as stack:
        series = []
        for size in effort.log_sizes:
            folder = setup.scratch / f"growth-{name}-{size}"
            session = stack.enter_context(Session(spec, folder, LOG_BYTES))
            stack.callback(shutil.rmtree, folder)
            series.append(_Series.begin(small, blocks, size, session))
        for _ in range(effort.growth_rounds):
            for one in series:
                one.round(spaced(real, effort.growth_states))
        points = tuple(one.point() for one in series)
    return Growth(name, real, points)


@dataclass(slots=True)
class _Series:
    """The measurements for one length of log. `where[n]`: prefix n of the recording in the padded log."""

    size: int
    where: Sequence[int]
    target: Target
    session: Session
    examiner: Examiner
    times: list[Mapping[str, float]] = field(default_factory=list)
    switch_us: list[float] = field(default_factory=list)
    read_us: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0

    @classmethod
    def begin(cls, small: Recording, blocks: Sequence[int], size: int, session: Session) -> _Series:
        """Pad the log, boot the guest, make the image; none of this is measured."""
        log = session.directory / "padded.log"
        where = pad_log(small.write_log, blocks, size, log)
        one = cls(size, where, dataclasses.replace(small.target, log=log), session, Examiner(small))
        session.show(one.target)
        time_state(session, one.target, CrashState(0), one.examiner, CrashState(0))
        for pid in pids_of(session).values():
            forget_peak(pid)
        return one

    def round(self, states: Sequence[CrashState]) -> None:
        before = session_cpu_s(self.session)
        for state in states:
            placed = self.where[state.prefix]
            for neighbour in (placed - 1, placed):
                times = time_state(self.session, self.target, CrashState(neighbour), self.examiner, state)
            self.times.append(times)
        self.cpu_ms += (session_cpu_s(self.session) - before) * 1000 / 2
        image = self.session.directory / "switched.img"
        disk = self.session.disk
        for state in states:
            far, near = CrashState(self.size - self.where[state.prefix]), CrashState(self.where[state.prefix])
            disk.switch(CrashState(max(near.prefix - 1, 0)))
            disk.image(image)
            begun = time.perf_counter()
            disk.switch(far)
            self.switch_us.append((time.perf_counter() - begun) * 1e6)
            begun = time.perf_counter()
            disk.switch(near)
            disk.image(image)
            self.read_us.append((time.perf_counter() - begun) * 1e6)

    def point(self) -> GrowthPoint:
        pids = pids_of(self.session)
        forget_peak(pids["powercut"])
        log = read_log(self.target.log or Path())  # what a run keeps of a recording
        states = list(enumerate_prefixes(log))
        hashes = self.session.disk.hashes(states)
        memory = {name: memory_of(pid) for name, pid in pids.items()}
        assert len(hashes) == len(states)  # noqa: S101  # and keeps them alive until they are counted
        return GrowthPoint(
            self.size,
            Quartiles.of(self.switch_us),
            Quartiles.of(self.read_us),
            _totals(self.times),
            _split(self.times),
            self.cpu_ms / len(self.times),
            memory,
            beyond_image(memory),
        )


def measure_decided(setup: Setup, name: str) -> Decided | NotMeasured:
    """Measure Decided: a run as a user starts it."""
    if isinstance(spec := setup.specs[name], NotMeasured):
        return spec
    plan = Plan(
        configurations=[PROFILE],
        workloads=[str(write_workload(setup.recording.workload, setup.scratch))],
        kernel=_kernel_name(setup, name),
        machine=name,
        accel=setup.accel,
        jobs=1,
    )
    watch = _Watch()
    clock = _Clock()
    with create_run(plan, setup.scratch / f"decided-{name}", "bench") as store:
        (case,) = execute(plan, store, watch).cases
    whole_s, cpu_s, interpreter_s = clock.elapsed()
    if case.undecided:
        return NotMeasured(f"the run did not decide: {case.undecided}")
    return Decided(
        name,
        case.counts.checked,
        case.counts.contents,
        {how.value: count for how, count in case.by_how.items()},
        watch.seconds,
        whole_s,
        cpu_s,
        interpreter_s * 1000 / case.by_how[How.JUDGED],
        case.counts.checked / watch.seconds,
    )


def measure_whole(setup: Setup, name: str) -> tuple[Whole, ...] | NotMeasured:
    """Measure Whole: runs as a user starts them, on all processors."""
    if isinstance(plans := _whole_plans(setup, name), NotMeasured):
        return plans
    found = []
    for plan in plans:
        clock = _Clock()
        with create_run(plan, setup.scratch / f"whole-{name}", plan.workloads[0]) as store:
            cases = execute(plan, store, _Watch()).cases
        seconds, cpu_s, interpreter_s = clock.elapsed()
        visits = _visits(cases)
        found.append(
            Whole(
                plan.workloads[0],
                plan.fault_models[0],
                tuple(plan.configurations),
                plan.jobs,
                len(cases),
                sum(case.counts.checked for case in cases),
                visits,
                seconds,
                cpu_s,
                interpreter_s * 1000 / visits,
            )
        )
    return tuple(found)


def _whole_plans(setup: Setup, name: str) -> list[Plan] | NotMeasured:
    if isinstance(spec := setup.specs[name], NotMeasured):
        return spec
    if not profile_of(name).host_process:
        return NotMeasured("too long in emulated guests")
    return [
        Plan(
            configurations=list(modes),
            workloads=[workloads],
            shard=setup.effort.whole_shard,
            kernel=_kernel_name(setup, name),
            machine=name,
            accel=setup.accel,
            jobs=describe_host(0.0).cores,
            fault_models=(states,),
        )
        for workloads, modes, states in WHOLE
    ]


def _visits(cases: Iterable[CaseSummary]) -> int:
    return max(1, sum(case.by_how.get(How.JUDGED, 0) for case in cases))


def measure_scaling(setup: Setup, name: str) -> Scaling | NotMeasured:
    """Measure Scaling, on the first of the whole runs."""
    if isinstance(plans := _whole_plans(setup, name), NotMeasured):
        return plans
    first, visits, reports = plans[0], KeptVisits(), setup.scratch / f"scaling-{name}"
    with every_case_alone(), create_run(first, reports, "real") as store:
        execute(first, store, _Watch(), make_pool=visits.watched)
        recordings = str(store.path)
    per_second: dict[int, float] = {}
    share = 0.0
    for workers in setup.effort.workers:
        plan = msgspec.structs.replace(first, jobs=workers, recordings=recordings)
        watch, clock = _Watch(), _Clock()
        with create_run(plan, reports, f"played-{workers}") as store:
            count = _visits(execute(plan, store, watch, make_pool=visits.played).cases)
        if visits.unseen:
            return NotMeasured(f"with {workers} workers, {visits.unseen} other states were visited")
        per_second[workers] = count / watch.seconds
        share = clock.elapsed()[2] * 1000 / count
    return Scaling(first.workloads[0], len(visits.seen), VISIT_S * 1000, per_second, share)


class _Clock:
    """Time since it was made."""

    def __init__(self) -> None:
        self._begun = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return (time.perf_counter(), own_cpu_s(), time.process_time())

    def elapsed(self) -> tuple[float, float, float]:
        """Seconds by the clock, of all processes that have ended and this one, and of this one alone."""
        wall, cpu, own = (now - then for now, then in zip(self._now(), self._begun, strict=True))
        return wall, cpu, own


def _kernel_name(setup: Setup, machine: str) -> str:
    """The kernel for that machine, as a user would name it."""
    own = own_kernel_of(machine, setup.kernel, setup.own_kernel) if profile_of(machine).host_process else None
    return str(own.image) if own else setup.kernel.name


class _Watch:
    """A Progress that records when the first states became known, and when the last was decided."""

    def __init__(self) -> None:
        self._begun = self._ended = 0.0

    @property
    def seconds(self) -> float:
        return self._ended - self._begun

    def say(self, text: str) -> None:
        """Ignore messages."""

    def begin(self, what: str, total: int) -> None:
        if what == "states" and total and not self._begun:
            self._begun = time.perf_counter()

    def advance(self, what: str, count: int) -> None:
        if what == "states" and count:
            self._ended = time.perf_counter()
