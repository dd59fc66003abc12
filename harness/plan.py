"""The plan of a run, as data."""

from __future__ import annotations

import enum

import msgspec

SAMPLE_RATE = 0.01
"""Share of the states answered by the memo that are recovered anyway, to check it."""
LOG_BYTES = 1 << 30
"""Size of the log device."""


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


class GuestChoice(msgspec.Struct, frozen=True):
    """The guests to use: the machine (`auto`: the default one records, the fastest available one judges), its
    accelerator, and the size of the log device.
    """

    machine: str = "auto"
    accel: str = "auto"
    log_bytes: int = LOG_BYTES


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
    jobs: int = 1
    fault_models: tuple[str, ...] = ("prefix",)
    memo: bool = True
    sample_rate: float = SAMPLE_RATE
    recordings: str | None = None  # judge the recordings of this run instead of making new ones
    log_bytes: int = LOG_BYTES
    completions: Completions = Completions.HOLD
    require_all: bool = False  # a case that this host or kernel cannot run gives the run its own exit code
    shard: str = ""  # 2/5: the second of five parts of the workloads
    argv: list[str] = []

    @property
    def kernel_choice(self) -> KernelChoice:
        return KernelChoice(self.kernel, self.modules, tuple(self.replaced))

    @property
    def guests(self) -> GuestChoice:
        return GuestChoice(self.machine, self.accel, self.log_bytes)
