"""The measurements, each a function of the setup."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec

from harness.bench.figures import Row, part_rows, quartiles, shared_row, table, target, totals
from harness.bench.host import (
    beyond_image,
    cores,
    described,
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
from harness.cluster.shards import PER_SHARD
from harness.errors import EnvironmentLacks, PowercutError
from harness.guests.disk import Disk
from harness.guests.machine import profile_of
from harness.guests.session import Session, Target
from harness.measurements.results import Measurement, Table
from harness.model import SECTOR_BYTES, CrashState, EntryFlag
from harness.plan import Plan
from harness.run import create_run, execute
from harness.states import enumerate_prefixes
from harness.store.records import How
from harness.summary import CaseSummary
from harness.writelog import WriteLog, read_log
from harness.writelog.log import changes

# --- all of it -------------------------------------------------------------------------------


def run_bench(
    effort: Effort,
    kernel: str,
    machines: Sequence[str],
    accel: str,
    own_kernel: Path | None,
    say: Callable[[str], None],
) -> Measurement:
    """Take all measurements, one after another. One that fails is missing, with the reason; raises
    PowercutError only if none is possible (no machine, no kernel). `say` receives progress messages.
    """
    load, started = load_now(), datetime.now(UTC)
    tables: list[Table] = []
    missing: list[str] = []
    with make_setup(effort, kernel, machines, accel, own_kernel, say) as setup:

        def take(what: str, measure: Callable[[], Table]) -> None:
            setup.say(f"measuring: {what}")
            try:
                tables.append(measure())
            except PowercutError as e:
                missing.append(f"{what}: {e.what.splitlines()[0]}")

        setup.say(f"measuring: raw ({', '.join(machines)}) and the floor")
        for found in measure_states(setup):
            tables.append(found) if isinstance(found, Table) else missing.append(found)
        take("the usual way", functools.partial(measure_usual, setup))
        for what, measure in (
            ("growing logs", measure_growth),
            ("decided", measure_decided),
            ("whole runs", measure_whole),
            ("workers that only wait", measure_scaling),
        ):
            for machine in machines:
                take(f"{what}, {machine}", functools.partial(measure, setup, machine))
        targets = [str(row[-1]) for t in tables for row in t.rows if row[-1]]
        return Measurement(
            name="bench",
            summary=f"the cost of a crash state on {PROFILE}, 64 MiB",
            command=["powercut", "bench"],
            kernel=f"{setup.kernel.name} {setup.kernel.package_version}".strip(),
            machine=described(load),
            accel="",
            started=started,
            seconds=round((datetime.now(UTC) - started).total_seconds(), 1),
            sizes={
                "operations": f"{effort.operations:,}",
                "log entries": f"{setup.recording.write_log.entry_count:,}",
                "states": f"{len(setup.states)}",
            },
            answer=f"{sum(t.endswith(': met') for t in targets)} of {len(targets)} targets are met.",
            missing=missing,
            tables=tables,
            notes=[NOTE],
        )


NOTE = (
    "Medians, quartiles in brackets. Per core: by the clock or by processor time, whichever is slower; "
    "with a load above 1, other processes have affected the times."
)


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


# --- the measurements ------------------------------------------------------------------------


def measure_states(setup: Setup) -> Iterator[Table | str]:
    """Tables, or what is missing and why: states recovered, walked, checked by fsck and judged on one session
    of each machine, without memo or cached answers; and the floor, the least work for the same states:
    mount(2) and umount(2) by the host's kernel on a loop device over memory, then fsck of the result. All
    take turns at each state, so that other load affects them alike.

    mount, walk and unmount are measured in the guest, `channel` is the rest of the round trip to it; `image`
    writes the recovered disk to a file; `fsck` runs as in a run, its reads followed. What writing to the
    recovered file system takes on top, which a run does where its answer is not known, no other figure
    includes. Processor time is that of all processes for one state; of the floor, without the loop device's
    own thread.
    """
    with contextlib.ExitStack() as stack:
        racers: dict[str, _Racer] = {}
        for name, spec in setup.specs.items():
            if isinstance(spec, EnvironmentLacks):
                racers[name] = _Racer(_no_visit, failed=spec.what)
            else:
                session = stack.enter_context(Session(spec, setup.scratch / f"raw-{name}", LOG_BYTES))
                examiner = Examiner(setup.recording)
                visit = functools.partial(_visit, session, examiner)
                racers[name] = _Racer(visit, session, use=functools.partial(_use, session, examiner))
        floor = _floor_racer(setup, stack)
        for racer in (*racers.values(), floor):
            racer.run(CrashState(0), counted=False)  # boots, makes images
        for state in setup.states:
            for racer in (*racers.values(), floor):
                racer.run(state)
    floor_rate = None if floor.failed else 1000 / totals(floor.times).median
    for name, racer in racers.items():
        yield f"raw, {name}: {racer.failed}" if racer.failed else racer.raw(name, floor_rate)
    what = "floor: host mount, unmount, fsck"
    yield f"{what}: {floor.failed}" if floor.failed else way_table(what, floor.times, floor.cpu_ms)


def raw_targets(machine: str, floor_rate: float | None, by_clock: float, per_core: float) -> tuple[str, str]:
    """Of a machine's rates, by the clock and per core: a share of the floor where it is a process of this
    host, else a rate. Either may be empty.
    """
    if not profile_of(machine).host_process:
        return "", target("25 under TCG", per_core >= 25)
    if floor_rate is None:
        return "1.2 x floor: the floor was not measured", ""
    wanted = 1.2 * floor_rate
    return target(f"1.2 x floor = {wanted:.0f}: {by_clock / floor_rate:.2f}", by_clock >= wanted), ""


def way_table(title: str, times: Sequence[Mapping[str, float]], cpu_ms: float | None = None) -> Table:
    """A way to check states that is not ours."""
    total = totals(times)
    processor: list[Row] = [] if cpu_ms is None else [("processor time, ms", cpu_ms, "")]
    rows: list[Row] = [("states/s", 1000 / total.median, ""), ("ms a state", total, "")]
    return table(title, [*rows, *processor, *part_rows(times)])


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
    """One participant of the measurements that take turns. The first failure ends its part."""

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

    @property
    def cpu_ms(self) -> float:
        """Processor time of a state."""
        return self.cpu_s * 1000 / len(self.times)

    def raw(self, name: str, floor_rate: float | None) -> Table:
        """Its table. `floor_rate`: states/s of the floor, if that was measured."""
        total = totals(self.times)
        by_clock, per_core = 1000 / total.median, 1000 / max(total.median, self.cpu_ms)
        clock_target, core_target = raw_targets(name, floor_rate, by_clock, per_core)
        return table(
            f"raw, {name}",
            [
                ("states/s per core", per_core, core_target),
                ("states/s by the clock", by_clock, clock_target),
                ("ms a state", total, ""),
                ("processor time, ms", self.cpu_ms, ""),
                *part_rows(self.times),
                ("writing to it, where that is done, ms", quartiles(self.use_ms), ""),
                ("Python's part, ms", self.interpreter_s * 1000 / len(self.times), ""),
            ],
        )


def measure_usual(setup: Setup) -> Table:
    """The usual way, without a disk that switches between states: copy the base, replay the log from its
    start, mount, unmount, fsck, the last three as separate processes.
    """
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
    except (OSError, subprocess.CalledProcessError) as e:
        raise PowercutError(str(e)) from e
    return way_table("usual way: copy, replay, processes", times)


def replay_into(image: Path, log: WriteLog, state: CrashState) -> None:
    """Write the entries of the state's prefix to `image`, one after another."""
    with log.path.open("rb") as source, image.open("r+b") as target:
        for entry in filter(changes, log.entries[: state.prefix]):
            length = entry.sectors * SECTOR_BYTES
            discard = EntryFlag.DISCARD in entry.flags
            data = bytes(length) if discard else os.pread(source.fileno(), length, entry.data_offset)
            os.pwrite(target.fileno(), data, entry.sector * SECTOR_BYTES)


def measure_growth(setup: Setup, name: str) -> Table:
    """The same recording in logs of growing length, in rounds, so that other load affects all lengths alike:
    a state as in `measure_states`, right after its neighbour, as in a run; switching to a distant state;
    switching to a neighbour and reading the blocks that changed. Memory at its peak by process: a run has one
    `powercut`, whatever the number of sessions. Beyond the images: memory of one session (guest and disk)
    without the files that the disk maps (base image and log).
    """
    spec = setup.spec(name)
    small, effort = setup.small, setup.effort
    real = small.write_log.entry_count
    if real > min(effort.log_sizes):
        raise PowercutError(
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
        rows = [row for one in series for row in one.rows(totals(series[0].times).median)]
    return table(f"log size, {name}", rows, f"Without padding the log has {real} entries.")


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

    def rows(self, first_ms: float) -> list[Row]:
        """`first_ms`: what a state of the shortest log takes."""
        pids = pids_of(self.session)
        forget_peak(pids["powercut"])
        log = read_log(self.target.log or Path())  # what a run keeps of a recording
        states = list(enumerate_prefixes(log))
        hashes = self.session.disk.hashes(states)
        memory = {name: memory_of(pid) for name, pid in pids.items()}
        assert len(hashes) == len(states)  # noqa: S101  # and keeps them alive until they are counted
        total, beyond, size = totals(self.times), beyond_image(memory), f"{self.size:,} entries"
        return [
            (f"{size}: ms a state", total, flatness(total.median, first_ms)),
            (f"{size}: processor time, ms", self.cpu_ms / len(self.times), ""),
            *((f"{size}: {name}", spread, "") for name, spread, _ in part_rows(self.times)),
            (f"{size}: switch, us", quartiles(self.switch_us), ""),
            (f"{size}: to a neighbour and read, us", quartiles(self.read_us), ""),
            *((f"{size}: peak memory of {name}, MiB", of.peak, "") for name, of in memory.items()),
            (f"{size}: one session beyond the images, MiB", beyond, _at_most(beyond, 256)),
        ]


def flatness(ms: float, first_ms: float) -> str:
    """The target of a longer log: what a state takes, beside what one of the shortest does."""
    change = ms / first_ms - 1
    return target(f"flat within 20 %: {change:+.0%}", abs(change) <= 0.2) if change else ""


def _at_most(value: float | None, limit: float) -> str:
    return "" if value is None else target(f"{limit:.0f}", value <= limit)


def measure_decided(setup: Setup, name: str) -> Table:
    """A whole `powercut run` with one job, as a user starts it. Seconds: from the end of the recording to the
    last verdict; with boot, recording and reports, it is the whole run.
    """
    setup.spec(name)
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
        raise PowercutError(f"the run did not decide: {case.undecided}")
    rate, wanted = case.counts.checked / watch.seconds, 1000 if profile_of(name).host_process else 150
    how: list[Row] = [(f"of these {way.value}", float(count), "") for way, count in case.by_how.items()]
    return table(
        f"decided, {name}",
        [
            ("states/s", rate, target(f"{wanted:,}", rate >= wanted)),
            ("states", float(case.counts.checked), ""),
            ("contents", float(case.counts.contents), ""),
            *how,
            ("seconds", watch.seconds, ""),
            ("with boot and recording, s", whole_s, ""),
            ("processor time, s", cpu_s, ""),
            shared_row(interpreter_s * 1000 / case.by_how[How.JUDGED]),
        ],
    )


_WHOLE_S = {"ace1": 20, "quick": 45}
"""What a whole run is to take on two processors, in seconds."""


def measure_whole(setup: Setup, name: str) -> Table:
    """Whole runs as a user starts them, on all processors: a set of workloads on modes. Seconds: by the
    clock, with boots, recordings and reports.
    """
    rows: list[Row] = []
    for plan in _whole_plans(setup, name):
        clock = _Clock()
        with create_run(plan, setup.scratch / f"whole-{name}", plan.workloads[0]) as store:
            cases = execute(plan, store, _Watch()).cases
        seconds, cpu_s, interpreter_s = clock.elapsed()
        visits, set_ = _visits(cases), plan.workloads[0]
        rows += [
            (
                f"{set_}, {plan.fault_models[0]}, {', '.join(plan.configurations)}: s",
                seconds,
                _at_most(seconds, _WHOLE_S[set_]) if plan.jobs == 2 else "",
            ),
            ("workers", float(plan.jobs), ""),
            ("cases", float(len(cases)), ""),
            ("states", float(sum(case.counts.checked for case in cases)), ""),
            ("visits", float(visits), ""),
            ("processor time, s", cpu_s, ""),
            shared_row(interpreter_s * 1000 / visits),
        ]
    return table(f"whole runs, {name}", rows, "Targets are for 2 cores.")


def _whole_plans(setup: Setup, name: str) -> list[Plan]:
    """Raises PowercutError for a machine that is not available, or takes too long."""
    setup.spec(name)
    if not profile_of(name).host_process:
        raise PowercutError("too long in emulated guests")
    return [
        Plan(
            configurations=list(modes),
            workloads=[workloads],
            shard=setup.effort.whole_shard,
            kernel=_kernel_name(setup, name),
            machine=name,
            accel=setup.accel,
            jobs=cores(),
            fault_models=(states,),
        )
        for workloads, modes, states in WHOLE
    ]


def _visits(cases: Iterable[CaseSummary]) -> int:
    return max(1, sum(case.by_how.get(How.JUDGED, 0) for case in cases))


def _undecided(cases: Iterable[CaseSummary]) -> int:
    return sum(case.counts.unknown for case in cases)


def measure_scaling(setup: Setup, name: str) -> Table:
    """The first of the whole runs made again with workers that only wait: see `harness.bench.scaling`. Visits
    a second are those from the first verdict to the last.
    """
    visits, reports = KeptVisits(), setup.scratch / f"scaling-{name}"
    # In one process: visits of a shard would be kept there, and go with it.
    first = msgspec.structs.replace(_whole_plans(setup, name)[0], jobs=min(cores(), PER_SHARD))
    with every_case_alone(), create_run(first, reports, "real") as store:
        undecided = _undecided(execute(first, store, _Watch(), make_pool=visits.watched).cases)
        recordings = str(store.path)
    per_second: dict[int, float] = {}
    share = 0.0
    for workers in setup.effort.workers:
        plan = msgspec.structs.replace(first, jobs=workers, recordings=recordings)
        watch, clock = _Watch(), _Clock()
        with create_run(plan, reports, f"played-{workers}") as store:
            cases = execute(plan, store, watch, make_pool=visits.played).cases
        if others := _undecided(cases) - undecided:
            raise PowercutError(f"with {workers} workers, {others} other states were visited")
        count = _visits(cases)
        per_second[workers] = count / watch.seconds
        share = clock.elapsed()[2] * 1000 / count
    fewest, most = min(per_second), max(per_second)
    return table(
        f"workers that only wait, {name}",
        [
            *((f"visits/s of {n} workers", rate, "") for n, rate in per_second.items()),
            (f"{most} beside {fewest}, times as fast", per_second[most] / per_second[fewest], ""),
            shared_row(share),
        ],
        f"{len(visits.seen):,} visits of {first.workloads[0]}, {VISIT_S * 1000:.0f} ms each.",
    )


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
