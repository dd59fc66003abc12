"""What guests are made of, for a run: a machine for each task, and an initramfs around the agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.filesystems.profiles import Profile
from harness.guests import initramfs, qemu, uml
from harness.guests.worker import GuestKit, Worker, find_agent
from harness.kernels.build import matching_uml, outdated_uml
from harness.kernels.find import Kernel, resolve_modules
from harness.model import Workload
from harness.plan import Plan


@dataclass(frozen=True, slots=True)
class Kits:
    """What records, and what judges: the same kit where one machine does both. `told`: for people."""

    recorder: GuestKit
    judge: GuestKit
    accel: qemu.Accel
    told: str


def make_kits(
    plan: Plan,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    base: Path,
    scratch: Path,
) -> Kits:
    """Pack initramfs archives and choose machines: see `Plan.machine`.

    `qemu`, `uml`: that machine records and judges. `auto`: QEMU records; UML judges where one of the same
    source is in the cache, since it runs at native speed; findings are then confirmed in QEMU.
    Raises KernelError for a missing module, or where there is no UML kernel for `uml`.
    """
    uml_kernel = _uml_kernel(plan, kernel)
    if "uml" in (plan.machine, kernel.machine):
        kit = _uml_kit(uml_kernel, profiles, workloads, scratch)
        return Kits(kit, kit, qemu.Accel("native", "asked for"), f"UML {uml.release(kit.kernel_image)}")
    archive = _pack(kernel, qemu.profile().modules, profiles, workloads, scratch / "initramfs.cpio")

    def kit_for(accel: str) -> GuestKit:
        return GuestKit(qemu.Qemu(accel), kernel.image, archive)

    def try_kvm() -> None:
        with Worker(kit_for("kvm"), scratch / "kvm-trial", plan.log_bytes) as worker:
            worker.show(base, None)
            worker.guest()

    accel = qemu.choose_accel(plan.accel, try_kvm, known_good=bool(kernel.package_version))
    recorder = kit_for(accel.name)
    told = f"QEMU ({accel.name}: {accel.reason})"
    if plan.machine == "qemu" or uml_kernel is None:
        if plan.machine == "auto" and outdated_uml(kernel.package_version):
            told += "; the UML kernel in the cache is of another configuration: powercut kernel build"
        return Kits(recorder, recorder, accel, told)
    judge = _uml_kit(uml_kernel, profiles, workloads, scratch)
    told = f"recorded in {told}, judged in UML of the same source, findings confirmed in QEMU"
    return Kits(recorder, judge, accel, told)


def _uml_kernel(plan: Plan, kernel: Kernel) -> Kernel | None:
    """The UML kernel for this run: the one that the user names, else one of the same source."""
    if kernel.machine == "uml" and plan.machine == "qemu":
        raise UsageError(f"{kernel.name} is a User Mode Linux kernel", "leave out --machine qemu")
    if kernel.machine == "uml" or (plan.machine == "uml" and not kernel.package_version):
        return kernel
    image = None if kernel.replaced or plan.machine == "qemu" else matching_uml(kernel.package_version)
    return Kernel(image.parent.name, image, None, "") if image else None


def _uml_kit(
    kernel: Kernel | None, profiles: Sequence[Profile], workloads: Sequence[Workload], scratch: Path
) -> GuestKit:
    if kernel is None:
        raise KernelError(
            "no User Mode Linux kernel of this kernel's source is in the cache",
            "build one (minutes, once): powercut kernel build; or take Debian's: --kernel uml-6.1",
        )
    archive = _pack(kernel, uml.profile().modules, profiles, workloads, scratch / "initramfs-uml.cpio")
    return GuestKit(uml.Uml(), kernel.image, archive)


def _pack(
    kernel: Kernel,
    machine_modules: Sequence[str],
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    archive: Path,
) -> Path:
    wanted = dict.fromkeys([*machine_modules, *(m for p in profiles for m in p.modules)])
    archive.write_bytes(
        initramfs.build(
            find_agent(),
            resolve_modules(kernel, list(wanted)),
            [program for w in workloads for program in w.programs],
            {path: data for w in workloads for path, data in w.files.items()},
        )
    )
    return archive


# --- what is missing -------------------------------------------------------------------------


def missing_for(profile: Profile, kernel: Kernel) -> str:
    """Why this mode cannot be run on this host with this kernel; empty where it can."""
    if reason := profile.lacks():
        return reason
    try:
        resolve_modules(kernel, profile.modules)
    except KernelError as e:
        return e.line
    return ""


def missing_program(workload: Workload) -> str:
    """Which program of the workload this host lacks, and how to get it; empty where it has them all."""
    try:
        for program in workload.programs:
            initramfs.find_program(program)
    except EnvironmentLacks as e:
        return e.line
    return ""
