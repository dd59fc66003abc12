"""A measurement, from its name to its result: rounds of every configuration, each figure kept as it comes.

```
reports/runs/<date>-measure-<name>/   plan.json           what was asked for
                                      samples.jsonl       every single figure
                                      surroundings.json   on what they were taken
                                      measurements.json   what they come to
```

The reports are made of measurements.json, by whoever asked for the measurement.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import EnvironmentLacks, GuestLost, PowercutError, StoreError, UsageError
from harness.host.files import write_atomically
from harness.host.folders import OwnedFolder
from harness.host.progress import Progress
from harness.kernels.find import find_kernel, look_up_pc_kernel
from harness.measure.comparison import Comparison, Configuration, Host, Sizes, Surroundings
from harness.measure.registry import COMPARISONS
from harness.measurements.directory import read_measurements, write_measurements
from harness.measurements.results import Cell, Measurement, Table
from harness.measurements.samples import FILE_NAME as SAMPLES_NAME
from harness.measurements.samples import Sample, Samples
from harness.model import Verdict
from harness.model.bounds import Rounds, Scale, Seed
from harness.store.directory import make_directory
from harness.store.layout import LOCK, need_plain_run
from harness.store.lock import locked

SURROUNDINGS_NAME = "surroundings.json"
NOT_REACHED = "not reached"
WARM_UP = 0.2
"""Share of the sizes in the round that is not counted."""

RigT = TypeVar("RigT")


class MeasurePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a measurement; kept as plan.json, so that it can be resumed. `only`: configurations by
    name; empty: all of them. `beside`: run directories of the same measurement, on other kernels, that the
    report shows too. `started`: set when the run directory is made.
    """

    name: str
    rounds: Rounds
    scale: Scale = 1.0
    kernel: str = "debian-6.12"
    modules: str | None = None
    accel: str = "auto"
    seed: Seed = 1
    only: list[str] = []
    beside: list[str] = []
    started: datetime | None = None
    argv: list[str] = []


class Result(msgspec.Struct, frozen=True):
    """A measurement and its run directory. `lacking`: what could not be measured, and why. `verdict`: whether
    promises were kept, if that was measured.
    """

    path: Path
    measurement: Measurement
    lacking: tuple[str, ...]
    verdict: Verdict
    interrupted: bool = False


def comparison(name: str) -> Comparison[object]:
    """The measurement of that name. Raises UsageError that lists the known ones."""
    try:
        return COMPARISONS[name]
    except KeyError:
        raise UsageError(
            f"there is no measurement {name!r}", f"one of: {', '.join(COMPARISONS)} (powercut measure --list)"
        ) from None


def create(plan: MeasurePlan, out: Path) -> Path:
    # before the directory: a wrong name leaves none behind
    list(_configurations(comparison(plan.name), plan))
    _beside(plan)
    look_up_pc_kernel(plan.kernel, Path(plan.modules) if plan.modules else None)
    started = datetime.now(UTC)
    path = make_directory(out, f"measure-{plan.name}", started)
    begun = msgspec.structs.replace(plan, started=started)
    write_atomically(path / "plan.json", msgspec.json.encode(begun))
    return path


def load_plan(path: Path) -> MeasurePlan:
    """The plan of a run directory. Raises StoreError if it holds no measurement."""
    need_plain_run(path)
    try:
        return msgspec.json.decode((path / "plan.json").read_bytes(), type=MeasurePlan)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(
            f"{path} holds no measurement: {e}", "powercut measure NAME makes one; for a run: powercut run"
        ) from e


def put_beside(plan: MeasurePlan, path: Path, others: Sequence[Path]) -> MeasurePlan:
    """The plan of a run directory with other ones beside it, also on disk. Raises what `create` raises."""
    more = msgspec.structs.replace(plan, beside=[str(other.resolve()) for other in others])
    _beside(more)
    write_atomically(path / "plan.json", msgspec.json.encode(more))
    return more


def measure(plan: MeasurePlan, path: Path, progress: Progress) -> Result:
    """Measure what the run directory does not hold yet, and evaluate all of it.

    On KeyboardInterrupt the samples so far are kept and evaluated. Raises RunLocked if another process is at
    it: each would take what the other had not.
    """
    with locked(path / LOCK, path, shlex.join(["powercut", *plan.argv])):
        return _measured(plan, path, progress)


def _measured(plan: MeasurePlan, path: Path, progress: Progress) -> Result:
    chosen = comparison(plan.name)
    sizes = chosen.sizes(plan.scale)
    samples = Samples.load(path / SAMPLES_NAME)
    interrupted = False
    with OwnedFolder("powercut-measure-") as folder:
        kernel = find_kernel(plan.kernel, Path(plan.modules) if plan.modules else None)
        host = Host(kernel, plan.accel, folder.path, path, plan.seed, progress)
        try:
            _take_all(chosen, host, plan, sizes, samples)
        except KeyboardInterrupt:
            interrupted = True
    m = _measurement(chosen, plan, sizes, samples, _surroundings(path))
    others = _beside(plan)
    if others:
        m = msgspec.structs.replace(m, tables=[by_kernel([m, *others]), *m.tables])
    write_measurements(path, [m, *others])
    return Result(path, m, lacking(chosen, plan, samples), chosen.verdict(samples), interrupted)


def _beside(plan: MeasurePlan) -> list[Measurement]:
    """The same measurement in other run directories. Raises UsageError for one that does not hold it,
    StoreError for one that cannot be read.
    """
    found = []
    for path in map(Path, plan.beside):
        same = [m for m in read_measurements(path) if m.name == plan.name]
        if not same:
            raise UsageError(f"{path} holds no {plan.name}", f"make one with: powercut measure {plan.name}")
        found.append(same[0])  # the others are what stood beside it
    return found


def by_kernel(found: Sequence[Measurement]) -> Table:
    """The ratios of one measurement on several kernels, beside what was published."""
    names = dict.fromkeys(r.name for m in found for r in m.ratios)
    rows: list[list[Cell]] = []
    for name in names:
        same = [next((r for r in m.ratios if r.name == name), None) for m in found]
        published = next((r.published for r in same if r and r.published), None)
        rows.append([name, *(r.measured if r else None for r in same), published or "-"])
    return Table("By kernel", ["ratio", *(m.kernel or "no kernel" for m in found), "published"], rows)


def lacking(chosen: Comparison[object], plan: MeasurePlan, samples: Samples) -> tuple[str, ...]:
    """What the plan asks for and the samples lack: `ext3/journal, round 2: why`."""
    why = {(s.configuration, s.round): s.reason for s in samples.taken if s.reason}
    wanted = [(c.name, n) for n in range(plan.rounds) for c in _configurations(chosen, plan)]
    missing = [key for key in wanted if not samples.has(*key)]
    reasons = [f"{name}, round {n + 1}: {why[name, n]}" for name, n in missing if (name, n) in why]
    left = [f"{name}, round {n + 1}" for name, n in missing if (name, n) not in why]
    if left:
        names = left[0] if len(left) == 1 else f"{len(left)} of {len(wanted)} samples, from {left[0]} on"
        reasons.append(f"{names}: {NOT_REACHED}")
    return tuple(reasons)


def _take_all(
    chosen: Comparison[RigT], host: Host, plan: MeasurePlan, sizes: Sizes, samples: Samples
) -> None:
    """Every configuration once per round."""
    wanted = [
        (number, configuration)
        for number in range(plan.rounds)
        for configuration in _configurations(chosen, plan)
        if not samples.has(configuration.name, number)
    ]
    if not wanted:
        return
    with chosen.rig(host, sizes) as rig:
        if chosen.warms_up:
            host.progress.say("warming up: a small round that is not counted")
            small = chosen.sizes(plan.scale * WARM_UP)
            for configuration in {c.name: c for _, c in wanted}.values():
                _take(chosen, rig, configuration, small, 0)
        for done, (number, configuration) in enumerate(wanted, 1):
            begun = time.monotonic()
            sample = _take(chosen, rig, configuration, sizes, number)
            seconds = round(time.monotonic() - begun, 1)
            sample = msgspec.structs.replace(sample, seconds=seconds)
            samples.add(sample, host.kept / SAMPLES_NAME)
            if not sample.reason:
                around = msgspec.json.encode(chosen.surroundings(rig))
                write_atomically(host.kept / SURROUNDINGS_NAME, around)
            outcome = f"not measured: {sample.reason}" if sample.reason else _brief(sample)
            what = f"{configuration.name}, round {number + 1}"
            host.progress.say(f"[{done}/{len(wanted)}] {what}, {seconds:.0f} s: {outcome}")


def _take(
    chosen: Comparison[RigT], rig: RigT, configuration: Configuration, sizes: Sizes, number: int
) -> Sample:
    """A sample, or one with the reason why it failed. What this host lacks, all lack: that is raised."""
    try:
        return chosen.take(rig, configuration, sizes, number)
    except (EnvironmentLacks, UsageError):
        raise
    except GuestLost as e:
        last = " ".join(e.console.strip().splitlines()[-2:])
        return Sample(configuration.name, number, reason=f"{e.what}; its console ends: {last}")
    except PowercutError as e:
        return Sample(configuration.name, number, reason=e.what)


def _configurations(chosen: Comparison[RigT], plan: MeasurePlan) -> Iterator[Configuration]:
    known = chosen.configurations()
    names = [c.name for c in known]
    for name in plan.only:
        if name not in names:
            raise UsageError(f"{chosen.name} has no configuration {name!r}", f"one of: {', '.join(names)}")
    return (c for c in known if not plan.only or c.name in plan.only)


def _brief(sample: Sample) -> str:
    """A few of the figures, for the log."""
    figures = [f"{name} {value:.4g}" for name, value in list(sample.values.items())[:3]]
    return ", ".join([*figures, *list(sample.words.values())[:2]])


def _measurement(
    chosen: Comparison[object], plan: MeasurePlan, sizes: Sizes, samples: Samples, around: Surroundings
) -> Measurement:
    shown = dict(said_size(name, size) for name, size in sizes.items())
    m = Measurement(
        name=chosen.name,
        summary=chosen.summary,
        command=["powercut", *plan.argv],
        kernel=around.kernel,
        machine=around.machine,
        accel=around.accel,
        source=around.source,
        started=plan.started or datetime.now(UTC),
        seconds=round(sum(s.seconds for s in samples.taken), 1),
        sizes={**shown, "rounds": str(plan.rounds)},
        repeats=chosen.repeats,
        verdict="" if (judged := chosen.verdict(samples)) is Verdict.PASS else judged.value,
        missing=list(lacking(chosen, plan, samples)),
        figures=[SAMPLES_NAME],
    )
    return chosen.evaluate(samples, sizes).of(m)


UNITS = {"mib": "MiB", "s": "s", "bytes": "bytes"}


def said_size(name: str, size: int) -> tuple[str, str]:
    """`written_mib`, 10 as `written`, `10 MiB`."""
    what, _, unit = name.rpartition("_")
    if what and unit in UNITS:
        return what.replace("_", " "), f"{size:,} {UNITS[unit]}"
    return name.replace("_", " "), f"{size:,}"


def _surroundings(path: Path) -> Surroundings:
    """What the figures were measured on; empty fields if there are none yet."""
    file = path / SURROUNDINGS_NAME
    if not file.exists():
        return Surroundings("", "", "")
    return msgspec.json.decode(file.read_bytes(), type=Surroundings)
