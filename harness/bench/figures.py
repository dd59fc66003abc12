"""The figures of the bench, each with its definition, and NotMeasured in place of a missing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import msgspec


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A figure is missing, and why."""

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
        """The quartiles of `values`, of which there must be at least one."""
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(median(values), low, high, len(values))


@dataclass(frozen=True, slots=True)
class Raw:
    """States recovered, walked, checked by fsck and judged on one session, without memo or cached answers.
    All machines and the floor take turns at each state, so that other load affects them alike.

    `split_ms`: the parts of one state's time. mount, walk and unmount are measured in the guest, `channel` is
    the rest of the round trip to it; `image` writes the recovered disk to a file; `fsck` runs as in a run,
    its reads followed. `use_ms`: what writing to the recovered file system would take on top, which a run
    does where its answer is not known; no other figure here includes it. `cpu_ms`: processor time of all
    processes for one state, `interpreter_ms`: of Python alone. `per_second`: by wall-clock time. `per_core`:
    by wall-clock or processor time, whichever is longer.
    """

    machine: str
    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    use_ms: Quartiles
    cpu_ms: float
    interpreter_ms: float
    per_second: float
    per_core: float


@dataclass(frozen=True, slots=True)
class Floor:
    """The least work for the same states: mount(2) and umount(2) by the host's kernel on a loop device over
    memory, then fsck of the result. `cpu_ms` does not include the loop device's own thread.
    """

    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    cpu_ms: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual way, without a disk that switches between states: copy the base, replay the log from its
    start, mount, unmount, fsck, the last three as separate processes.
    """

    state_ms: Quartiles
    split_ms: Mapping[str, Quartiles]
    per_second: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one process, or of all processes of a machine, in MiB. `peak`: VmHWM, including shared and
    mapped memory. The others are the current proportional share (smaps_rollup, Pss): `own` and `shared`
    memory, `mapped` files. None where the kernel does not report it.
    """

    peak: float | None
    own: float | None
    shared: float | None
    mapped: float | None


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """The same recording, padded to a log of `entries` entries. `switch_us`: switching to a distant state;
    `switch_and_read_us`: switching and reading the blocks that changed. `state_ms`, `cpu_ms`: one state as
    in Raw, right after its neighbour, as in a run. `memory`: by process; a run has one `powercut`, whatever
    the number of sessions. `beyond_image_mib`: memory of one session (guest and disk) without the files that
    the disk maps (base image and log).
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
    """Figures by the length of the log. `real_entries`: the length of the recording without padding."""

    machine: str
    real_entries: int
    points: tuple[GrowthPoint, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """A whole `powercut run` with one job. `seconds`: from the end of the recording to the last verdict;
    `per_second`: crash states decided per second of that. `with_recording_s`: the whole run, with boot,
    recording and reports; `cpu_s`: its processor time. `by_how`: how many verdicts were reached in each way.
    `interpreter_ms`: processor time for each visit of the one process that all workers share.
    """

    machine: str
    states: int
    contents: int
    by_how: Mapping[str, int]
    seconds: float
    with_recording_s: float
    cpu_s: float
    interpreter_ms: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole `powercut run` on all processors: a set of workloads on modes. `seconds`: by the clock, with
    boots, recordings and reports; `cpu_s`: of all processes. `interpreter_ms`: as in Decided.
    """

    workloads: str
    fault_model: str
    modes: tuple[str, ...]
    jobs: int
    cases: int
    states: int
    visits: int
    seconds: float
    cpu_s: float
    interpreter_ms: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """A whole run made again with workers that only wait: see `harness.bench.scaling`. `visit_ms`: what each
    visit takes. `per_second`: visits a second by the number of workers, from the first verdict to the last.
    `interpreter_ms`: as in Decided, with the most workers.
    """

    workloads: str
    visits: int
    visit_ms: float
    per_second: Mapping[int, float]
    interpreter_ms: float


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The host that was measured. `load`: load average over one minute, before and after; if it is well above
    1, other processes have affected the times.
    """

    cpu: str
    cores: int
    memory_mib: int
    kernel: str
    machine: str
    load: tuple[float, float]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All figures. `entries`: of the recorded log. `states`: how many `raw` and `floor` were measured on."""

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
    whole: Mapping[str, tuple[Whole, ...] | NotMeasured]
    scaling: Mapping[str, Scaling | NotMeasured]


def bench_json(bench: BenchResult) -> bytes:
    """All figures as JSON; a figure that was not measured is an object with a `reason`."""
    return msgspec.json.format(msgspec.json.encode(bench), indent=2) + b"\n"
