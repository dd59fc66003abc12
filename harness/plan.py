"""The plan of a run, as data."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from harness.model import DISK_FAULTS, FaultKind
from harness.model.bounds import Cases, Depth, Jobs, LogBytes, Minutes, Seconds, Share, States

SAMPLE_RATE = 0.01
"""Share of the states answered by the memo that are recovered anyway, to check it."""
LOG_BYTES = 1 << 30
"""Size of the log device."""
LEGAL: Mapping[str, int] = MappingProxyType({"exhaustive": 8, "sectors": 1})
"""Ways to look at all legal crash states, with what the disk writes as a whole: sectors of 512 bytes."""


class Budget(msgspec.Struct, frozen=True):
    """How much to spend on the legal crash states of one case. `visits`: states that guests recover;
    `seconds`: by the clock, so that two runs may end at different states. None: no limit.
    """

    visits: States | None = None
    seconds: Seconds | None = None

    def is_spent(self, visits: int, seconds: float) -> bool:
        """Whether that much uses it up."""
        return (self.visits is not None and visits >= self.visits) or (
            self.seconds is not None and seconds >= self.seconds
        )

    def share(self, visits: int, seconds: float) -> float:
        """How much of it that uses up, by what it limits most."""
        used = [(visits, self.visits), (seconds, self.seconds)]
        return max((spent / limit for spent, limit in used if limit is not None), default=0.0)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """`400` (states), `90s`, `2m` or both, `400,2m`. Raises ValueError that shows the form expected."""
        given: dict[str, int] = {}
        for word in text.split(","):
            m = re.fullmatch(r"(\d+)(s|m)?", word.strip(), re.ASCII)
            if not m or not int(m[1][:20]):
                raise ValueError(f"budget {text!r} is not of the form 400 (states), 90s, 2m or 400,2m")
            kind = "seconds" if m[2] else "visits"
            if kind in given:
                what = "times" if m[2] else "numbers of states"
                raise ValueError(f"budget {text!r} names two {what}: one of each is enough, as in 400,2m")
            given[kind] = int(m[1][:20]) * (60 if m[2] == "m" else 1)
        return _within_bounds(text, given)

    @property
    def option(self) -> str:
        """Inverse of `parse`; empty for no limit."""
        parts = [str(self.visits)] if self.visits is not None else []
        return ",".join(parts + ([f"{self.seconds:.0f}s"] if self.seconds is not None else []))

    @property
    def text(self) -> str:
        """In words: `400 states a case`, `90 s a case`."""
        said = [f"{self.visits:,} states"] if self.visits is not None else []
        said += [f"{self.seconds:,.10g} s"] if self.seconds is not None else []
        return f"{' or '.join(said) or 'no limit'} a case"


def _within_bounds(text: str, given: Mapping[str, int]) -> Budget:
    try:
        return msgspec.convert(given, Budget)
    except msgspec.ValidationError:
        raise ValueError(f"budget {text!r} is too large: a billion states, or 366 days, at most") from None


FIRST_BUDGET = Budget(visits=400, seconds=120)
"""For a first look at all legal crash states."""


class KernelChoice(msgspec.Struct, frozen=True):
    """The kernel to use: a pin, a version or a file; its modules directory; single modules to replace."""

    spec: str
    modules: str | None = None
    replaced: tuple[str, ...] = ()


class Completions(enum.StrEnum):
    """When the disk reports writes as completed while a recording is made: as late as the guest allows, which
    catches a file system that does not wait for a write; or at once.
    """

    HOLD = "hold"
    PROMPT = "prompt"

    @property
    def description(self) -> str:
        """For people."""
        if self is Completions.HOLD:
            return "while recording, writes completed as late as the guest allowed"
        return "while recording, writes completed at once"


class Clock(enum.StrEnum):
    """How time passes while a recording is made: as on the host; or in virtual time, in which a guest that
    has nothing to do is at once at its next timer, and each recording of a workload is the same. `auto`:
    under a schedule in virtual time, where kernel and disk can; else as on the host.
    """

    AUTO = "auto"
    REAL = "real"
    VIRTUAL = "virtual"


class GuestChoice(msgspec.Struct, frozen=True):
    """The guests to use: the machine (`auto`: the default one records, the fastest available one judges), its
    accelerator, and the size of the log device. `coverage`: judge on a kernel that notes the lines it runs.
    `clock`: while recordings are made.
    """

    machine: str = "auto"
    accel: str = "auto"
    log_bytes: int = LOG_BYTES
    coverage: bool = False
    clock: Clock = Clock.AUTO


class ExistingDisk(msgspec.Struct, frozen=True):
    """A disk that somebody has, with which a run begins in place of mkfs: a file or a block device, by its
    contents.
    """

    path: str
    sha256: str
    size_bytes: int


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as given; stored as plan.json, so that a run can be resumed."""

    configurations: list[str]
    workloads: list[str]
    kernel: str = "debian-6.12"
    modules: str | None = None
    replaced: list[str] = []
    # auto: the default machine records, and judges unless a faster one has a kernel of the same source
    machine: str = "auto"
    accel: str = "auto"
    jobs: Jobs = 1
    fault_models: tuple[str, ...] = ("prefix",)  # or LEGAL's, alone
    again: Depth = 0  # how often recovery is cut as well
    disk: tuple[str, ...] = ()  # how the disk is faulty while states are recovered: of DISK_FAULTS
    budget: Budget = Budget()
    memo: bool = True
    sample_rate: Share = SAMPLE_RATE
    recordings: str | None = None  # judge the recordings of this run instead of making new ones
    earlier: str = ""  # take what runs in this folder of reports decided, as `harness.cluster.earlier` says
    image: ExistingDisk | None = None  # the modes' base image, in place of mkfs
    log_bytes: LogBytes = LOG_BYTES
    completions: Completions = Completions.HOLD
    clock: Clock = Clock.AUTO
    require_all: bool = False  # a case that this host or kernel cannot run gives the run its own exit code
    shard: str = ""  # 2/5: the second of five parts of the workloads
    only: tuple[str, ...] = ()  # these cases, by name; empty: all
    match: str = ""  # cases whose names this expression selects (`harness.workloads.match`)
    oracles: tuple[str, ...] = ()  # judge by these alone; empty: all
    minutes: Minutes | None = None  # stop in good order after so long
    max_failures: Cases | None = None  # stop in good order once so many cases have failed
    coverage: bool = False  # note which lines of recovery the crash states run
    cluster: str = ""  # tcp://HOST:8786 or local:4: record and judge on the workers of this Dask scheduler
    all_logs: bool = False  # from there, bring back the recordings of cases without findings too
    argv: list[str] = []

    @property
    def unit_sectors(self) -> int | None:
        """What the disk writes as a whole, if all legal crash states are wanted."""
        return next((LEGAL[name] for name in self.fault_models if name in LEGAL), None)

    @property
    def fault_kinds(self) -> frozenset[FaultKind]:
        """What goes wrong with the disk."""
        return frozenset(kind for name in self.disk for kind in DISK_FAULTS[name])

    @property
    def kernel_choice(self) -> KernelChoice:
        return KernelChoice(self.kernel, self.modules, tuple(self.replaced))

    @property
    def guests(self) -> GuestChoice:
        return GuestChoice(self.machine, self.accel, self.log_bytes, self.coverage, self.clock)
