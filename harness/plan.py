"""What a run is asked to do, as data."""

from __future__ import annotations

import msgspec

SAMPLE_RATE = 0.01
"""Share of the states answered by the memo that are looked at all the same."""
LOG_BYTES = 1 << 30
"""Size of the log device."""


class KernelChoice(msgspec.Struct, frozen=True):
    """What is asked of a kernel: a pin, a version or a file; modules of its own; single modules replaced."""

    spec: str
    modules: str | None = None
    replaced: tuple[str, ...] = ()


class GuestChoice(msgspec.Struct, frozen=True):
    """What is asked of guests: the machine (`auto`: one records, the fastest that is there judges), its
    accelerator, and the size of their log device.
    """

    machine: str = "auto"
    accel: str = "auto"
    log_bytes: int = LOG_BYTES


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as words; kept as plan.json, so that a run can be resumed."""

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
    recordings: str | None = None  # a run whose recordings are judged again instead of making new ones
    log_bytes: int = LOG_BYTES
    require_all: bool = False  # what this host or kernel lacks for a case ends in an exit code of its own
    shard: str = ""  # 2/5: the second of five parts of the workloads
    argv: list[str] = []

    @property
    def kernel_choice(self) -> KernelChoice:
        return KernelChoice(self.kernel, self.modules, tuple(self.replaced))

    @property
    def guests(self) -> GuestChoice:
        return GuestChoice(self.machine, self.accel, self.log_bytes)
