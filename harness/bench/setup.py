"""The guests and recordings on which the bench measures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.bench.work import make_workload, spaced
from harness.cases.crash_and_continue import record
from harness.cases.recording import Recording, make_base
from harness.errors import EnvironmentLacks
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles
from harness.guests.accel import choose_accel
from harness.guests.guest_specs import boot_once, built_kernel, spec_of
from harness.guests.machine import Machine, default_name, machine_of, profile_of
from harness.guests.session import GuestSpec, Session
from harness.host.folders import OwnedFolder
from harness.kernels.find import Kernel, find_kernel
from harness.model import CaseId, CrashState
from harness.store.layout import CaseLayout

PROFILE = "ext4/ordered"
WHOLE = (
    ("ace1", ("ext4/ordered",), "prefix"),
    ("quick", ("ext4/ordered", "ext4/journal", "xfs/default", "btrfs/default"), "exhaustive"),
)
"""Workloads, modes and fault model of each whole run."""
LOG_BYTES = 256 << 20
_OWN_FIX = "build one (powercut kernel build), or name one"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure. `growth_operations`: length of the workload whose log is padded; that log must
    not be longer than the smallest of `log_sizes`, in entries. `whole_shard`: of the workloads of whole runs.
    `workers`: that only wait.
    """

    operations: int = 1000
    states: int = 300
    usual_states: int = 7
    log_sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    growth_operations: int = 60
    growth_states: int = 40
    growth_rounds: int = 3
    whole_shard: str = ""
    workers: tuple[int, ...] = (2, 8, 64)


FULL = Effort()
QUICK = Effort(
    operations=60,
    states=6,
    usual_states=2,
    log_sizes=(1_000, 3_000),
    growth_states=3,
    growth_rounds=1,
    whole_shard="1/8",
    workers=(2, 8),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What the measurements work with. `specs`: by the machine's name, or why it is not available: see
    `spec`. `own_kernel`: the user's kernel, for machines whose kernels are programs. `small`: the recording
    whose log is padded.
    """

    effort: Effort
    kernel: Kernel
    profile: Profile
    base: Path
    scratch: Path
    specs: Mapping[str, GuestSpec | EnvironmentLacks]
    accel: str
    own_kernel: Path | None
    recording: Recording
    small: Recording
    say: Callable[[str], None]

    @property
    def states(self) -> list[CrashState]:
        return spaced(self.recording.write_log.entry_count, self.effort.states)

    def spec(self, machine: str) -> GuestSpec:
        """Raises EnvironmentLacks for a machine that is not available."""
        if isinstance(found := self.specs[machine], EnvironmentLacks):
            raise found
        return found


def make_specs(
    kernel: Kernel,
    profile: Profile,
    machines: Sequence[str],
    accel: str,
    own_kernel: Path | None,
    scratch: Path,
) -> tuple[GuestSpec, dict[str, GuestSpec | EnvironmentLacks]]:
    """The spec of the default machine, which records, and those of all machines to measure, by name."""

    def comes_up(machine: Machine) -> None:
        spec = spec_of(machine, kernel, [profile], [], scratch / "trial.cpio")
        boot_once(spec, make_base(profile, scratch / "base.zst", scratch), scratch / "trial", LOG_BYTES)

    def spec(name: str) -> GuestSpec:
        archive = scratch / f"{name}.cpio"
        if not profile_of(name).host_process:
            machine = choose_accel(name, accel, comes_up).machine
            return spec_of(machine, kernel, [profile], [], archive)
        found = own_kernel_of(name, kernel, own_kernel)
        if found is None:
            missing = f"no {profile_of(name).title} kernel of {kernel.package_version or kernel.name}"
            raise EnvironmentLacks(f"{missing}: {_OWN_FIX}")
        machine = machine_of(name)
        machine.kernel_release(found.image)
        for requirement in machine.requirements():
            requirement.look()
        return spec_of(machine, found, [profile], [], archive)

    specs: dict[str, GuestSpec | EnvironmentLacks] = {}
    for name in dict.fromkeys([default_name(), *machines]):
        try:
            specs[name] = spec(name)
        except EnvironmentLacks as e:
            if name == default_name():  # it boots any PC's kernel
                raise
            specs[name] = e
    recorder = specs[default_name()]
    assert not isinstance(recorder, EnvironmentLacks)  # noqa: S101  # see above; tells mypy
    return recorder, {name: specs[name] for name in machines}


def own_kernel_of(name: str, kernel: Kernel, given: Path | None) -> Kernel | None:
    """The kernel for a machine whose kernels are programs: the user's, or one built from the same source as
    `kernel`; None if there is neither.
    """
    return Kernel(str(given), given, None, "") if given else built_kernel(name, kernel.package_version)


@contextlib.contextmanager
def make_setup(
    effort: Effort,
    kernel_name: str,
    machines: Sequence[str],
    accel: str,
    own_kernel: Path | None,
    say: Callable[[str], None],
) -> Iterator[Setup]:
    """Boot the default machine and record both workloads, in a folder that is removed at the end."""
    with OwnedFolder("powercut-bench-") as folder:
        scratch = folder.path
        kernel, profile = find_kernel(kernel_name), profiles()[PROFILE]
        base = make_base(profile, scratch / "base.zst", scratch)
        recorder, specs = make_specs(kernel, profile, machines, accel, own_kernel, scratch)
        chosen = recorder.machine
        with Session(recorder, scratch / "recorder", LOG_BYTES) as session:

            def recorded(count: int) -> Recording:
                say(f"recording {count} operations under {chosen.profile.title} ({chosen.accel})")
                workload = make_workload(count)
                case = CaseId(profile.filesystem, profile.mode, workload.name)
                kept = CaseLayout(base, scratch / workload.name)
                return record(session, profile, workload, case, base, kept, scratch)

            recording = recorded(effort.operations)
            same = effort.growth_operations == effort.operations
            small = recording if same else recorded(effort.growth_operations)
        yield Setup(
            effort, kernel, profile, base, scratch, specs, chosen.accel, own_kernel, recording, small, say
        )
