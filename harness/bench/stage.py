"""Guests to measure with, and the recordings to measure on."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.bench.figures import NotMeasured
from harness.bench.work import make_workload, spaced
from harness.cases.recording import Recording, make_base, record
from harness.errors import EnvironmentLacks
from harness.filesystems.profiles import Profile, profiles
from harness.guests import initramfs, qemu, uml
from harness.guests.machine import Machine
from harness.guests.worker import GuestKit, Worker, find_agent
from harness.kernels.build import matching_uml
from harness.kernels.find import Kernel, find_kernel, resolve_modules
from harness.model import CaseId, CrashState

PROFILE = "ext4/ordered"
MACHINES = ("qemu", "uml")
LOG_BYTES = 256 << 20
_UML_FIX = "powercut kernel build, or --uml-kernel FILE"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured. `growth_operations`: the workload that is padded must fit the smallest log."""

    operations: int = 1000
    states: int = 300
    usual_states: int = 7
    log_sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    growth_operations: int = 60
    growth_states: int = 40
    growth_rounds: int = 3


FULL = Effort()
QUICK = Effort(
    operations=60, states=6, usual_states=2, log_sizes=(1_000, 3_000), growth_states=3, growth_rounds=1
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What is measured on. `kits`: by the machine's name, or why that machine is not to be had."""

    effort: Effort
    kernel: Kernel
    profile: Profile
    base: Path
    scratch: Path
    kits: Mapping[str, GuestKit | NotMeasured]
    accel: str
    uml_kernel: Path | None
    recording: Recording
    small: Recording
    say: Callable[[str], None]

    @property
    def states(self) -> list[CrashState]:
        return spaced(self.recording.write_log.entry_count, self.effort.states)


def make_kits(
    kernel: Kernel,
    profile: Profile,
    machines: Sequence[str],
    accel: str,
    uml_kernel: Path | None,
    scratch: Path,
) -> tuple[dict[str, GuestKit | NotMeasured], str]:
    """What guests of each machine are made of; and QEMU's accelerator. QEMU is always there: it records."""
    chosen = _choose_accel(kernel, profile, accel, scratch)
    kits: dict[str, GuestKit | NotMeasured] = {
        "qemu": _kit(qemu.Qemu(chosen), kernel.image, _modules(kernel, profile), scratch)
    }
    if "uml" in machines:
        kits["uml"] = NotMeasured(f"no UML kernel of {kernel.package_version or kernel.name}: {_UML_FIX}")
        if uml_kernel:
            try:
                uml.release(uml_kernel)
                uml.find_shim()
                kits["uml"] = _kit(uml.Uml(), uml_kernel, [], scratch)
            except EnvironmentLacks as e:
                kits["uml"] = NotMeasured(e.what)
    return kits, chosen


def _modules(kernel: Kernel, profile: Profile) -> list[Path]:
    return resolve_modules(kernel, [*qemu.profile().modules, *profile.modules])


def _kit(machine: Machine, image: Path, modules: Sequence[Path], scratch: Path) -> GuestKit:
    archive = scratch / f"{machine.name}.cpio"
    archive.write_bytes(initramfs.build(find_agent(), modules, [], {}))
    return GuestKit(machine, image, archive)


def _choose_accel(kernel: Kernel, profile: Profile, accel: str, scratch: Path) -> str:
    def try_kvm() -> None:
        kit = _kit(qemu.Qemu("kvm"), kernel.image, _modules(kernel, profile), scratch)
        with Worker(kit, scratch / "kvm-trial", LOG_BYTES) as worker:
            worker.show(make_base(profile, scratch / "base.zst", scratch), None)
            worker.guest()

    return qemu.choose_accel(accel, try_kvm).name


@contextlib.contextmanager
def make_stage(
    effort: Effort,
    kernel_name: str,
    machines: Sequence[str],
    accel: str,
    uml_kernel: Path | None,
    say: Callable[[str], None],
) -> Iterator[Stage]:
    """Boot QEMU, record both workloads; everything in a folder that goes again."""
    with tempfile.TemporaryDirectory(prefix="powercut-bench-") as folder:
        scratch = Path(folder)
        kernel, profile = find_kernel(kernel_name), profiles()[PROFILE]
        uml_kernel = uml_kernel or matching_uml(kernel.package_version)
        base = make_base(profile, scratch / "base.zst", scratch)
        kits, chosen = make_kits(kernel, profile, machines, accel, uml_kernel, scratch)
        recorder = kits["qemu"]
        assert not isinstance(recorder, NotMeasured)  # noqa: S101  # make_kits raises instead; tells mypy
        with Worker(recorder, scratch / "recorder", LOG_BYTES) as worker:

            def recorded(count: int) -> Recording:
                say(f"recording {count} operations under QEMU ({chosen})")
                workload = make_workload(count)
                case = CaseId(profile.filesystem, profile.mode, workload.name)
                return record(worker, profile, workload, case, base, scratch / workload.name, scratch)

            recording = recorded(effort.operations)
            same = effort.growth_operations == effort.operations
            small = recording if same else recorded(effort.growth_operations)
        wanted = {name: kit for name, kit in kits.items() if name in machines}
        yield Stage(effort, kernel, profile, base, scratch, wanted, chosen, uml_kernel, recording, small, say)
