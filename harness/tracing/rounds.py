"""`powercut trace`: modes side by side in one guest, each with an empty file system, under one workload.

The records of each round go into `<mode>.jsonl` in the run directory, the results into `measurements.json`;
see `harness.measurements.results`.
"""

from __future__ import annotations

import re
import shlex
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.errors import GuestError, KernelError, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.tracepoints import Tracepoints
from harness.host.files import write_atomically
from harness.host.progress import Progress, telling
from harness.host.text import ended_with
from harness.kernels.find import Kernel
from harness.kernels.module_files import resolve_modules
from harness.measurements.directory import write_measurements
from harness.measurements.results import Histogram, Measurement
from harness.model.bounds import Pause, Rounds, Times
from harness.tools_image.guest import MOUNT_POINT, ToolsGuest, tools_guest
from harness.tracing.evaluate import Mode, Round, evaluate
from harness.tracing.probes import Probes, TracefsProbes, start_probes, wanted_families
from harness.tracing.records import Record, encode_lines, latencies_us

WORKLOAD = "dd if=/dev/zero of=f bs=1M count=10 conv=fsync"
"""10 MiB written and made durable: the workload by which journaling modes have been compared for 20 years."""
DISK_BYTES = 1 << 30
STEP = "rounds"
_ROUND_TIMEOUT_S = 1800.0
_MKFS_TIMEOUT_S = 300.0
_SAYS_WHY = "so it did not do all that it should; without INTERVAL, powercut trace tells what it printed"


class TracePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a trace. `source`: `auto`, `bcc` or `tracefs`. `interval_s` above 0: repeat the
    workload and print a histogram that often, `count` times (0: until interrupted).
    """

    workload: str = WORKLOAD
    rounds: Rounds = 10
    disk: str = "vdb"
    milliseconds: bool = False
    accel: str = "auto"
    source: str = "auto"
    interval_s: Pause = 0.0
    count: Times = 0
    argv: list[str] = []

    @property
    def unit(self) -> str:
        """The unit in which latencies are shown."""
        return "msecs" if self.milliseconds else "usecs"

    def shown(self, us: Sequence[int]) -> list[int]:
        """Latencies in that unit, rounded down."""
        return [v // 1000 for v in us] if self.milliseconds else list(us)


@dataclass
class Tracing:
    """A guest with probes loaded. `lacking`: modes that cannot be traced here, with the reason."""

    plan: TracePlan
    tools: ToolsGuest
    probes: Probes
    profiles: Sequence[Profile]
    lacking: dict[str, str]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def measurement(self, name: str, summary: str, begun: float) -> Measurement:
        """The fields that every measurement has."""
        return Measurement(
            name=name,
            summary=summary,
            command=["powercut", *self.plan.argv],
            kernel=f"Linux {self.tools.kernel_release}",
            machine=self.tools.machine,
            accel=self.tools.accel,
            started=self.started,
            seconds=round(time.monotonic() - begun, 1),
            sizes={
                "workload": self.plan.workload,
                "rounds": str(self.plan.rounds),
                "disk": f"{DISK_BYTES >> 20} MiB",
            },
            source=self.probes.source,
            missing=[f"{mode}: {why}" for mode, why in self.lacking.items()],
            notes=[f"no bcc: {self.probes.reason}"] if self.probes.reason else [],
        )


@contextmanager
def tracing(
    plan: TracePlan, kernel: Kernel, profiles: Sequence[Profile], scratch: Path, progress: Progress
) -> Iterator[Tracing]:
    """Boot a guest for these modes and load probes. Raises GuestError if neither kind of probe works."""
    able, modules, lacking = _able(kernel, profiles)
    with tools_guest(
        kernel,
        scratch,
        disk_bytes=DISK_BYTES,
        modules=modules,
        accel=plan.accel,
        progress=progress,
    ) as tools:
        progress.say(f"{kernel.name}: {tools.machine}, {tools.accel_reason}")
        if plan.disk != tools.device.removeprefix("/dev/"):
            raise UsageError(
                f"there is no file system on {plan.disk}", f"the disk that is written to is {tools.device}"
            )
        families = [p.tracing for p in able]
        if plan.source == "tracefs":
            probes: Probes = TracefsProbes(
                tools, wanted_families(families), plan.disk, "tracefs was asked for"
            )
        else:
            with telling(lambda: "loading probes", progress.say):
                probes = start_probes(tools, families, plan.disk)
        if plan.source == "bcc" and probes.source != "bcc":
            raise GuestError(
                f"no bcc: {probes.reason}", "leave out --source bcc: tracefs gives the same figures"
            )
        said = f" ({probes.reason})" if probes.reason else ""
        progress.say(f"source: {probes.source}{said}")
        yield Tracing(plan, tools, probes, able, lacking)


def _able(kernel: Kernel, profiles: Sequence[Profile]) -> tuple[list[Profile], list[str], dict[str, str]]:
    """Modes that this kernel can mount on one disk, their modules, and why the others cannot be traced."""
    able, modules, lacking = [], dict[str, None](), {}
    for profile in profiles:
        if profile.parts:
            lacking[profile.name] = "it needs more disks, and this guest has one"
            continue
        try:
            resolve_modules(kernel, profile.modules)
        except KernelError as e:
            lacking[profile.name] = e.what
            continue
        able.append(profile)
        modules.update(dict.fromkeys(profile.modules))
    if not able:
        raise KernelError(
            "; ".join(f"{mode}: {why}" for mode, why in lacking.items()),
            "name another mode, or another kernel",
        )
    return able, list(modules), lacking


# --- one mode --------------------------------------------------------------------------------


@contextmanager
def mounted(tools: ToolsGuest, profile: Profile) -> Iterator[str]:
    """Make an empty file system in that mode and mount it; yields the mount point."""
    tools.run([*profile.tools_mkfs, *profile.mkfs_arguments, tools.device], _MKFS_TIMEOUT_S)
    place = tools.mount(profile.fstype, profile.mount_options)
    try:
        yield place
    finally:
        if tools.alive:
            tools.unmount()


def take(t: Tracing) -> Round:
    """Run the workload once, in an empty file system, with nothing left to be written back.

    Raises GuestError if the workload fails.
    """
    tools = t.tools
    before = _sectors(tools, f"cd {MOUNT_POINT} && rm -rf -- ./* && sync -f . && ")
    t.probes.collect()
    begun_s = tools.cpu_s()
    said = tools.shell(
        f"cd {MOUNT_POINT}; a=$(date +%s%N)\n( {t.plan.workload}\n) 2>&1 || exit $?\n"
        'b=$(date +%s%N); echo; echo "took $((b-a)) ns"',
        _ROUND_TIMEOUT_S,
    ).output
    cpu_s = tools.cpu_s() - begun_s
    records = t.probes.collect()
    took = re.search(r"^took (\d+) ns$", said, re.MULTILINE)
    if not took:
        raise GuestError(f"the workload's shell ended early: {said[-300:]}")
    written_mib = (_sectors(tools, f"sync -f {MOUNT_POINT} && ") - before) * 512 / (1 << 20)
    return Round(records, int(took[1]) / 1e9, written_mib, throughput_mib_s(said), cpu_s)


def _sectors(tools: ToolsGuest, first: str) -> int:
    """Sectors written to the disk so far: field 7 of Documentation/block/stat.rst."""
    disk = tools.device.removeprefix("/dev/")
    said = tools.shell(f"{first}cat /sys/class/block/{disk}/stat", _ROUND_TIMEOUT_S).output
    return int(said.split()[6])


def throughput_mib_s(said: str) -> float | None:
    """From all of dd(1)'s last lines: `10485760 bytes (10 MB, 10 MiB) copied, 0.06 s, 173 MB/s`."""
    found = re.findall(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s, ", said, re.MULTILINE)
    seconds = sum(float(s) for _, s in found)
    return sum(int(size) for size, _ in found) / (1 << 20) / seconds if seconds > 0 else None


def trace(t: Tracing, run: Path, progress: Progress) -> Measurement:
    """Trace all modes in all rounds; the results are kept in the run directory too."""
    begun = time.monotonic()
    modes = [mode for mode in _rounds(t, progress) if mode.rounds]
    for mode in modes:
        write_atomically(run / mode.file_name, encode_lines(mode.records))
    m = t.measurement("trace", "commit latency and throughput per mode", begun)
    m = evaluate(modes, t.plan.unit, t.plan.shown).of(m)
    m = msgspec.structs.replace(m, figures=[mode.file_name for mode in modes])
    write_measurements(run, [m])
    return m


def _rounds(t: Tracing, progress: Progress) -> list[Mode]:
    """Every mode once per round, so that other load on the host affects all of them alike."""
    modes = {p.name: _mode(p) for p in t.profiles}
    progress.begin(STEP, len(modes) * (t.plan.rounds + 1))
    for number in range(t.plan.rounds + 1):
        for profile in t.profiles:
            progress.advance(STEP, 1)
            if profile.name in t.lacking:
                continue
            try:
                taken = _taken(t, profile, f"{profile.name}: round {number} of {t.plan.rounds}", progress)
            except GuestError as e:
                t.lacking[profile.name] = e.what
                continue
            if number:  # in the first one the emulator translates and caches fill
                modes[profile.name].rounds.append(taken)
    return list(modes.values())


def _taken(t: Tracing, profile: Profile, what: str, progress: Progress) -> Round:
    with telling(lambda: what, progress.say), mounted(t.tools, profile):
        return take(t)


def _mode(profile: Profile) -> Mode:
    events = profile.tracing
    return Mode(profile.name, events.what if events else "", events.note if events else "")


# --- intervals -------------------------------------------------------------------------------


def intervals(t: Tracing, show: Callable[[Histogram], None], run: Path) -> Measurement:
    """Repeat the workload in one mode, and show a histogram per interval, as bcc's tools do."""
    begun = time.monotonic()
    profile = t.profiles[0]
    events = profile.tracing
    what = _timed(events)
    mode = Mode(profile.name, what, events.note if events else "")
    with mounted(t.tools, profile):
        _in_background(t.tools, t.plan.workload)
        t.probes.collect()
        last = time.monotonic()
        try:
            while t.plan.count == 0 or len(mode.rounds) < t.plan.count:
                time.sleep(max(0.0, last + t.plan.interval_s - time.monotonic()))
                records = t.probes.collect()
                now = time.monotonic()
                mode.rounds.append(Round(records, now - last, 0.0, None))
                last = now
                show(_of_interval(mode, records, t.plan, what))
        except KeyboardInterrupt:
            if not mode.rounds:
                raise
        if code := _end_background(t.tools):
            t.lacking[profile.name] = f"the workload {ended_with(code)}, {_SAYS_WHY}"
    write_atomically(run / mode.file_name, encode_lines(r for taken in mode.rounds for r in taken.records))
    m = t.measurement("trace", f"{what} latency, every {t.plan.interval_s:g} s", begun)
    sizes = {
        "workload": t.plan.workload,
        "interval": f"{t.plan.interval_s:g} s",
        "outputs": str(len(mode.rounds)),
    }
    m = evaluate([mode], t.plan.unit, t.plan.shown).of(m)
    m = msgspec.structs.replace(m, sizes=sizes, figures=[mode.file_name])
    write_measurements(run, [m])
    return m


def _timed(events: Tracepoints | None) -> str:
    """What an interval shows: fsync if the journal's own events give no latency."""
    return events.what if events and events.timed else "fsync"


def _of_interval(mode: Mode, records: Sequence[Record], plan: TracePlan, what: str) -> Histogram:
    title = f"{datetime.now(UTC):%H:%M:%S} {mode.name}: {what}"
    return Histogram.of(title, plan.unit, plan.shown(latencies_us(records, what)))


def _in_background(tools: ToolsGuest, workload: str) -> None:
    """A shell of its own each time, as in `take`: one that does not parse, or exits, ends that time alone."""
    tools.put("/run/trace/workload.sh", f"{workload}\n".encode())
    # whole under its name, and once: a file that is written again and again is read while it is empty
    note = "{ echo $code >/run/trace/code; mv /run/trace/code /run/trace/failed; }"
    failed = f"{{ code=$?; [ -e /run/trace/failed ] || {note}; }}"
    again = f"cd {MOUNT_POINT}; while :; do sh /run/trace/workload.sh || {failed}; done"
    tools.shell(
        f"rm -f /run/trace/failed; setsid sh -c {shlex.quote(again)} >/dev/null 2>&1 </dev/null & "
        "echo $! >/run/trace/loop",
        60.0,
    )


def _end_background(tools: ToolsGuest) -> int:
    """The exit code of the first time that the workload failed; 0: it never did."""
    # Read before the kill, which makes it fail. setsid made it the leader of a group.
    said = tools.shell("cat /run/trace/failed 2>/dev/null; pkill -KILL -g $(cat /run/trace/loop)", 120.0)
    return int(said.output.strip() or 0)


# --- what the probes cost --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Overhead:
    """Processor time of the whole guest for the same workload, round by round, without probes and with them:
    unlike elapsed time it does not depend on what else the host does. `probes_s`: time in the guest that the
    kernel counts for the probes' programs, of `elapsed_s`; None: not known.
    """

    mode: str
    without_s: Sequence[float]
    with_s: Sequence[float]
    probes_s: float | None = None
    elapsed_s: float = 0.0

    @property
    def percent(self) -> float:
        """How much the median with probes exceeds the one without."""
        return 100 * (statistics.median(self.with_s) / statistics.median(self.without_s) - 1)

    @property
    def probes_percent(self) -> float | None:
        """The share of the rounds with probes that was spent in probes."""
        return None if self.probes_s is None else 100 * self.probes_s / self.elapsed_s

    @property
    def pairs_percent(self) -> list[float]:
        """`percent` of each pair of rounds, sorted."""
        return sorted(100 * (b / a - 1) for a, b in zip(self.without_s, self.with_s, strict=True))


def overhead(t: Tracing, progress: Progress) -> list[Overhead]:
    """Run the workload without and with probes in every mode; which goes first alternates.

    After each change one more run is not counted: attaching a probe changes the kernel's code, which an
    emulator then has to translate again.
    """
    progress.begin(STEP, len(t.profiles) * t.plan.rounds)
    with telling(lambda: "rounds with the probes and without", progress.say):
        return [_alternate(t, profile, progress) for profile in t.profiles]


def _alternate(t: Tracing, profile: Profile, progress: Progress) -> Overhead:
    without_s, with_s = list[float](), list[float]()
    spent_ns, elapsed_s = 0, 0.0
    counts = False
    with mounted(t.tools, profile):
        take(t)
        for number in range(t.plan.rounds):
            for on in (False, True) if number % 2 == 0 else (True, False):
                (t.probes.attach if on else t.probes.detach)()
                take(t)
                before_ns = t.probes.cost_ns()
                counted = take(t)
                after_ns = t.probes.cost_ns()
                (with_s if on else without_s).append(counted.cpu_s)
                if on and before_ns is not None and after_ns is not None:
                    counts = True
                    spent_ns += after_ns - before_ns
                    elapsed_s += counted.seconds
            progress.advance(STEP, 1)
    return Overhead(profile.name, without_s, with_s, spent_ns / 1e9 if counts else None, elapsed_s)
