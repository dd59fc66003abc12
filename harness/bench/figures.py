"""What is measured: every figure with its meaning, and what stands in for one that could not be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import msgspec


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """There is no figure, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Quartiles:
    """`count` measurements of one thing: the median, and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        """Of at least one value."""
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(median(values), low, high, len(values))


@dataclass(frozen=True, slots=True)
class Raw:
    """States that were recovered, walked, fsck'd and judged on one worker, no two sharing an answer. All
    machines and the floor take turns at each state, so that a busy minute hits them alike.

    `split_ms`: of one state. mount, walk and unmount are the guest's own times, `channel` the rest of the
    round trip to it; `image` makes the recovered disk a file. `cpu_ms`: processor time of all processes
    for one state. `per_second`: by the clock. `per_core`: by whichever of the two is longer.
    """

    machine: str
    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    cpu_ms: float
    per_second: float
    per_core: float


@dataclass(frozen=True, slots=True)
class Floor:
    """The least that can be done for the same states: mount(2) and umount(2) by the host's kernel on a
    loop device over memory, then fsck of what that left. `cpu_ms` leaves out the loop device's own thread.
    """

    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    cpu_ms: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Usual:
    """Without a disk that switches: copy the base, replay the log from its start, mount, unmount, fsck,
    each a process of its own.
    """

    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    per_second: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, or of a machine's several, MiB. `peak`: VmHWM, with what it shares and maps. The others
    are its share now (smaps_rollup, Pss): `own` and `shared` memory, `mapped` files; None where the kernel
    does not tell.
    """

    peak: float | None
    own: float | None
    shared: float | None
    mapped: float | None


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """A log of `entries` entries: the same recording, padded. `switch_us`: to another state;
    `switch_and_read_us`: to a neighbouring one, and reading what changed. `state_ms`, `cpu_ms`: one state as
    in Raw, its neighbour having been looked at before it, as in a run. `memory`: by process; `powercut` is
    there once in a run. `beyond_image_mib`: of one worker, guest and disk, all but the files that the disk
    maps (base image and log).
    """

    entries: int
    switch_us: Quartiles
    switch_and_read_us: Quartiles
    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    cpu_ms: float
    memory: Mapping[str, Memory]
    beyond_image_mib: float | None


@dataclass(frozen=True, slots=True)
class Growth:
    machine: str
    real_entries: int
    points: tuple[GrowthPoint, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """The whole way of `powercut run` with one job: crash states with a verdict per second, from the end of
    the recording to the last verdict. `with_recording_s`: all of it, with boot, recording and reports.
    `cpu_s`: processor time of it all.
    """

    machine: str
    states: int
    contents: int
    by_how: Mapping[str, int]
    seconds: float
    with_recording_s: float
    cpu_s: float
    per_second: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """`load`: of the last minute, before and after; much above 1, others have had a part in the times."""

    cpu: str
    cores: int
    memory_mib: int
    kernel: str
    machine: str
    load: tuple[float, float]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All of it. `entries`: of the recorded log; `states`: that raw and floor were measured on."""

    host: HostFacts
    tested_kernel: str
    operations: int
    entries: int
    states: int
    raw: Mapping[str, Raw | NotMeasured]
    floor: Floor | NotMeasured
    usual: Usual | NotMeasured
    growth: Mapping[str, Growth | NotMeasured]
    decided: Mapping[str, Decided | NotMeasured]


def bench_json(bench: BenchResult) -> bytes:
    """All figures for programs; a figure that was not measured is an object with a `reason`."""
    return msgspec.json.format(msgspec.json.encode(bench), indent=2) + b"\n"
