"""What guests are made of: machines with their accelerators, and initramfs archives with the agent.

The only place that packs archives and chooses machines: for runs, measurements and the toolbox.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import recovery_files
from harness.guests import initramfs
from harness.guests.accel import choose_accel
from harness.guests.boots import Boots
from harness.guests.disk import FOLDER_PREFIX
from harness.guests.images import root_archive
from harness.guests.machine import Machine, default_name, machine_of, names, profile_of
from harness.guests.session import GuestSpec, Session, Target, find_agent
from harness.host import elf
from harness.host.packed import read_module
from harness.kernels.build import matching_kernel, need_as_built, outdated_kernel
from harness.kernels.find import Kernel
from harness.kernels.instrumented import instrumented_kernel, is_instrumented
from harness.kernels.module_files import option_of, resolve_modules
from harness.kernels.pins import pins
from harness.model import Workload
from harness.plan import Clock, GuestChoice

START_STACK, STOP_STACK = "start-stack", "stop-stack"
"""A file in the guest's root: `vms/agent/src/boot.rs`."""
_MAX_PATH_OF_SOCKET_BYTES = 107  # unix(7)
_PID_MAX = 1 << 22  # proc(5)
_MAX_TEMPORARY_BYTES = _MAX_PATH_OF_SOCKET_BYTES - len(f"/{FOLDER_PREFIX}{_PID_MAX}-abcdefgh/control")


@dataclass(frozen=True, slots=True)
class GuestSpecs:
    """The specs that record and judge: the same spec if one machine does both. `description`: for people;
    `accel_reason`: why this accelerator, which each run on a host has in common.
    """

    recorder: GuestSpec
    judge: GuestSpec
    description: str
    accel_reason: str = ""

    def doing_both(self, profile: Profile) -> GuestSpec:
        """The one that records and judges at once: the judge, unless its kernel may lack what only a
        recording of this mode needs.
        """
        return self.recorder if profile.layer and profile.layer.judged_below else self.judge

    def noting(self, hits: Path, recording_hits: Path) -> GuestSpecs:
        """The same, where guests that judge note in one file what they run, and those of the same kernel that
        record in another.
        """
        judge = replace(self.judge, hits=hits, recording_hits=recording_hits)
        return replace(self, judge=judge, recorder=judge if self.recorder is self.judge else self.recorder)


def make_specs(
    asked: GuestChoice,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    base: Path,
    scratch: Path,
) -> GuestSpecs:
    """Pack initramfs archives and choose machines: see `GuestChoice`.

    A named machine records and judges. `auto`: the default machine records; a faster machine whose findings
    it confirms judges, if a kernel of the same source has been built for that one and can open the files of
    the run. Raises KernelError for a missing module, or if the machine has no such kernel; UsageError if a
    named machine cannot open the files.
    """
    name = recording_machine(asked.machine, kernel)
    of_host = profile_of(name).host_process
    temporary_folder([name] if of_host else [])  # a guest that records opens sockets there, whatever its disk
    if of_host:
        own = _instrumented(name, kernel) if asked.coverage else _own_kernel(name, kernel)
        other = "" if own is kernel else "; or leave the machine to powercut, which takes one that opens them"
        spec = _own_spec(name, own, profiles, workloads, scratch, other)
        need_clock(asked.clock, spec.machine, spec.kernel_image)
        return GuestSpecs(spec, spec, _with_release(spec))
    recorder, reason = _recorder(asked, name, kernel, profiles, workloads, base, scratch)
    machine = recorder.machine
    need_clock(asked.clock, machine, recorder.kernel_image)
    description = f"{machine.profile.title} ({machine.accel})"
    if asked.coverage and asked.machine != "auto":
        raise UsageError(
            f"no kernel for {machine.profile.title} notes which lines it runs",
            "leave the machine to powercut, or name one whose kernels are built for that",
        )
    if asked.machine != "auto":
        return GuestSpecs(recorder, recorder, description, reason)
    hints: list[str] = []
    for judge in machine.profile.confirms:
        if asked.coverage:
            found: Kernel | None = _instrumented(judge, kernel)
        else:
            found = None if kernel.replaced else built_kernel(judge, kernel.package_version)
        if found is None or not has_drivers(found.image, profiles):
            hints.append(how_to_speed_up(judge, kernel))
        elif not asked.coverage and (why := _cannot_open(machine_of(judge), found, scratch)):
            hints.append(f"{why[0]}, so {machine.profile.title} judges; {why[1]}")
        else:
            spec = _own_spec(judge, found, profiles, workloads, scratch)
            how = f"judged in {spec.machine.profile.title} of the same source{_slow_disk(spec, kernel)}"
            description = f"recorded in {description}, {how}, findings confirmed in {machine.profile.title}"
            return GuestSpecs(recorder, spec, description, reason)
    description = "; ".join([description, *filter(None, hints)])
    return GuestSpecs(recorder, recorder, description, reason)


def need_clock(clock: Clock, recorder: Machine, kernel: Path) -> None:
    """Raises UsageError if virtual time is asked for and cannot be had."""
    if clock is Clock.VIRTUAL and not recorder.has_virtual_time(kernel):
        raise UsageError(
            f"{recorder.profile.title} cannot record in virtual time on {kernel.name}",
            "name --machine uml, and build its kernel with: powercut kernel build",
        )


def how_to_speed_up(judge: str, kernel: Kernel) -> str:
    """How to get a faster machine to judge the recordings of this kernel; empty where nothing is known."""
    other = profile_of(judge)
    if not other.build or (kernel.machine and kernel.machine != judge):
        return ""
    if kernel.replaced:
        return (
            f"no {other.title} kernel has this module; one of its whole source tree would judge at native "
            "speed: powercut kernel build TREE"
        )
    if not kernel.package_version or not kernel.source:
        return ""
    if outdated_kernel(judge, other.build, kernel.package_version):
        return f"the {other.title} kernel in the cache is of another configuration: {_how_to_build(kernel)}"
    if built_kernel(judge, kernel.package_version):
        return ""  # it lacks a file system of this run
    return f"a {other.title} kernel would judge several times as fast, once built: {_how_to_build(kernel)}"


def recording_machine(wanted: str, kernel: Kernel) -> str:
    """The machine that records: the named one, else the kernel's own, else the default.

    Raises UsageError for a kernel made for a machine other than the named one. A user's file is executed as a
    process of this host only if that machine is named.
    """
    if wanted == "auto":
        name = kernel.machine or default_name()
        _need_image_for(name, kernel)
        return name
    title = profile_of(wanted).title  # first: it may be none
    if kernel.machine not in ("", wanted):
        raise UsageError(
            f"{kernel.name} is a kernel for {profile_of(kernel.machine).title}, and {title} was asked for",
            "name another kernel, or leave the machine to powercut",
        )
    _need_image_for(wanted, kernel)
    return wanted


def _need_image_for(name: str, kernel: Kernel) -> None:
    """Raises UsageError for a user's file that is a program, where the machine boots images."""
    machine = profile_of(name)
    if machine.host_process or kernel.machine or kernel.package_version or not elf.is_program(kernel.image):
        return
    fitting = [m for m in map(profile_of, names()) if m.host_process]
    titles, machines = " or ".join(m.title for m in fitting), " or ".join(m.name for m in fitting)
    raise UsageError(
        f"{kernel.image} is a program of this host, as kernels for {titles} are; {machine.title} boots none",
        f"choose the machine {machines}, which runs it as a process of this host",
    )


def _slow_disk(spec: GuestSpec, kernel: Kernel) -> str:
    """That a kernel could have its disk as memory and does not, and what to do; empty if it could not."""
    build = spec.machine.profile.build
    if build is None or build.addition is None or spec.machine.shares_disk(spec.kernel_image):
        return ""
    return f" (slower than it could: its kernel is older than our disk driver; {_how_to_build(kernel)})"


def has_drivers(image: Path, profiles: Sequence[Profile], *, records: bool = False) -> bool:
    """Whether a kernel that Powercut built has the file systems of all these modes, and what their stacks and
    layers are made of, by the configuration beside it. `records`: also those that only a recording needs.
    """
    return not _lacking_options(image, profiles, records=records)


def _lacking_options(image: Path, profiles: Sequence[Profile], *, records: bool) -> list[str]:
    """The options that `has_drivers` misses, without CONFIG_ in front: `DM_VDO`. See `option_of` of a
    module's.
    """
    config = _config_of(image)
    parts = [
        part for p in profiles for part in (p.stacked and p.stacked.stack, p.layer) if part and part.options
    ]
    of_parts = {module for part in parts for module in part.modules}
    names = {option_of(m) for p in profiles for m in p.modules if m not in of_parts}
    left_out = [p.layer for p in profiles if p.layer and p.layer.judged_below and not records]
    options = {o for part in (*parts, *profiles) if part not in left_out for o in part.options}
    wanted = sorted(names | options)
    return [name for name in wanted if not re.search(rf"(?m)^CONFIG_{name}(_FS)?=y$", config)]


def _config_of(image: Path) -> str:
    return (image.parent / "config").read_text()


def _to_set(lacking: Sequence[str], image: Path, profile: Profile) -> list[str]:
    """The options to build a kernel with: those that the configuration mentions, as it does, and those that
    a file names. Any other is a guess by a module's name, and there may be none such.
    """
    config = _config_of(image)
    parts = (profile, profile.stacked and profile.stacked.stack, profile.layer)
    named = {o for part in parts if part for o in part.options}
    forms = [f for name in lacking for f in (name, f"{name}_FS")]
    return [f"CONFIG_{f}" for f in forms if f in named or re.search(rf"\bCONFIG_{f}\b", config)]


def booted_kernel(name: str, kernel: Kernel) -> Kernel:
    """The kernel that a machine boots for this one: the one of the same source that was built for it, where
    it takes no other. Raises KernelError if there is none.
    """
    return _own_kernel(name, kernel) if profile_of(name).host_process else kernel


def lacks_drivers(name: str, kernel: Kernel, profile: Profile) -> str:
    """Why the kernel that a machine boots for this one cannot mount a mode, by the configuration beside it;
    empty if it can, or nobody can tell. Of a kernel that loads modules, `missing_for` tells.
    """
    if not profile_of(name).host_process:
        return ""
    booted = booted_kernel(name, kernel)
    if not (booted.image.parent / "config").is_file():
        return ""
    if not (lacking := _lacking_options(booted.image, [profile], records=True)):
        return ""
    lacks = f"{profile_of(name).title} {booted.name} is built without its drivers"
    other_way = "leave the machine to powercut, which takes a kernel that has them"
    if not (options := _to_set(lacking, booted.image, profile)):
        return f"{lacks}: {other_way}"
    return f"{lacks} ({', '.join(options)}): build a kernel with these options, or {other_way}"


def built_kernel(name: str, package_version: str) -> Kernel | None:
    """The kernel in the cache that was built for that machine from this package's source, if any."""
    build = profile_of(name).build
    image = matching_kernel(name, build, package_version) if build else None
    return Kernel(image.parent.name, image, None, "") if image else None


def spec_of(
    machine: Machine,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    archive: Path,
) -> GuestSpec:
    """A spec whose guests can mount these profiles' file systems and run these workloads' programs. Raises
    KernelError for a kernel of the cache that is not what was built.
    """
    need_as_built(kernel.image)
    modules = [*machine.profile.modules, *(m for p in profiles for m in p.modules)]
    programs = [program for p in profiles for program in p.guest_programs]
    console = next((p.console_steps for p in profiles if p.console_steps), None)  # a console has one mode
    files = {START_STACK: console.start.encode(), STOP_STACK: console.stop.encode()} if console else {}
    packed = pack(kernel, modules, archive, programs, files, workloads)
    built_for = {p.name.split(".ko")[0]: elf.module_release(read_module(p)) for p in kernel.replaced}
    asked = [w.memory_mib for w in workloads] + [p.stacked.stack.memory_mib for p in profiles if p.stacked]
    memory_mib = max(asked, default=0)
    return GuestSpec(machine, kernel.image, packed, memory_mib=memory_mib, built_for=built_for)


def pack(
    kernel: Kernel,
    modules: Sequence[str],
    archive: Path,
    programs: Sequence[str] = (),
    files: dict[str, bytes] | None = None,
    workloads: Sequence[Workload] = (),
) -> Path:
    """Write the archive for guests of this kernel. Raises KernelError for a module that it does not have."""
    resolved = resolve_modules(kernel, list(dict.fromkeys(modules)))
    with archive.open("wb") as file:
        file.write(initramfs.build(find_agent(), resolved, programs, files or {}, workloads))
        for image in sorted({w.image for w in workloads if w.image}):
            with root_archive(Path(image)).open("rb") as root:
                shutil.copyfileobj(root, file)
    return archive


def _recorder(
    asked: GuestChoice,
    name: str,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    base: Path,
    scratch: Path,
) -> tuple[GuestSpec, str]:
    """The recording spec, with an accelerator that was tried on the real kernel; and why that accelerator."""
    archive = scratch / "initramfs.cpio"
    made = spec_of(machine_of(name), kernel, profiles, workloads, archive)

    def comes_up(machine: Machine) -> None:
        boot_once(replace(made, machine=machine, boots=Boots()), base, scratch / "trial", asked.log_bytes)

    chosen = choose_accel(name, asked.accel, comes_up, known_good=bool(kernel.package_version))
    return replace(made, machine=chosen.machine, boots=Boots()), chosen.reason


def boot_once(spec: GuestSpec, base: Path, directory: Path, log_bytes: int) -> None:
    """Boot a guest with this disk, and end it. Raises GuestLost if it does not come up."""
    with Session(spec, directory, log_bytes) as session:
        session.show(Target("", "", base, None))
        session.guest()


def _own_kernel(name: str, kernel: Kernel) -> Kernel:
    """The kernel for a machine whose kernels are host processes: one made for it, the user's own file, or
    one built from the same source.
    """
    if kernel.machine == name or not kernel.package_version:
        return kernel
    if kernel.replaced:
        raise KernelError(
            f"no {profile_of(name).title} kernel loads {', '.join(p.name for p in kernel.replaced)}: it was "
            f"built for {kernel.name}",
            "leave the machine to powercut, which takes one that loads it; or build a kernel of the whole "
            "source tree that the module is of: powercut kernel build TREE",
        )
    found, machine = built_kernel(name, kernel.package_version), profile_of(name)
    if found is None:
        ready = ", ".join(pin.name for pin in pins().values() if pin.machine == name)
        older = machine.build and outdated_kernel(name, machine.build, kernel.package_version)
        raise KernelError(
            f"the {machine.title} kernel in the cache is of another configuration, of an older Powercut"
            if older
            else f"no {machine.title} kernel of this kernel's source is in the cache",
            f"build one (minutes, once): {_how_to_build(kernel)}" + (ready and f"; ready ones are {ready}"),
        )
    return found


def _instrumented(name: str, kernel: Kernel) -> Kernel:
    """The kernel for a machine that notes which lines of recovery it runs: the user's own file, or one of the
    same source. Raises KernelError if there is none.
    """
    if not kernel.package_version and is_instrumented(kernel.image):
        return kernel
    build = profile_of(name).build
    image = (
        instrumented_kernel(name, build, kernel.package_version, recovery_files())
        if build and not kernel.replaced
        else None
    )
    if image is None:
        raise KernelError(
            f"no {profile_of(name).title} kernel of {kernel.name}'s source notes which lines it runs",
            f"build one (minutes, once): {_how_to_build(kernel)} --coverage",
        )
    return Kernel(image.parent.name, image, None, "")


def _how_to_build(kernel: Kernel) -> str:
    """The command that builds a kernel of this kernel's source."""
    return f"powercut kernel build {kernel.source}".rstrip()


def _own_spec(
    name: str,
    kernel: Kernel,
    profiles: Sequence[Profile],
    workloads: Sequence[Workload],
    scratch: Path,
    other_way: str = "",
) -> GuestSpec:
    """`other_way`: what else can be done where this machine cannot open the files of a run."""
    stacked = next((p.name for p in profiles if p.stacked or p.options), "")
    if stacked and (kernel.image.parent / "config").is_file() and not has_drivers(kernel.image, profiles):
        raise UsageError(
            f"{stacked}: {kernel.name} is built without its drivers",
            "leave the machine to powercut, which takes a kernel that has them",
        )
    machine = machine_of(name)
    if why := _cannot_open(machine, kernel, scratch):
        raise UsageError(why[0], why[1] + other_way)
    return spec_of(machine, kernel, profiles, workloads, scratch / f"initramfs-{name}.cpio")


def _cannot_open(machine: Machine, kernel: Kernel, scratch: Path) -> tuple[str, str] | None:
    """Why this machine's kernel, a process of this host, cannot open the files of a run, and the next step;
    None if it can.
    """
    why = _unnamed(machine.profile.name, scratch)
    if why or machine.shares_disk(kernel.image):
        return why
    return _unnamed(machine.profile.name, Path(tempfile.gettempdir()))


def _unnamed(name: str, folder: Path) -> tuple[str, str] | None:
    """Why files of a folder cannot be named to a kernel that is a process of this host, and the next step;
    None if they can. It gets files on its command line, which ends a word at a space and takes `"` away;
    `ubd0=` ends a file's name at a comma or a colon.
    """
    found = _ends_a_name(folder)
    if not found:
        return None
    temporary = Path(tempfile.gettempdir())
    is_temporary = folder.is_relative_to(temporary) and _ends_a_name(temporary)
    return (
        f"{folder}: {profile_of(name).title} cannot open files in a folder with {found!r} in its path",
        "name another one: export TMPDIR=DIR"
        if is_temporary
        else "keep runs in another one: --out, or --powercut-reports of pytest",
    )


def _ends_a_name(folder: Path) -> str:
    """The letter of a path that ends a file's name on a kernel's command line; empty if none does."""
    found = re.search(r'[\s",:]', str(folder))
    return found[0] if found else ""


def temporary_folder(machines: Iterable[str]) -> Path:
    """Where temporary files are, the sockets of disks among them. Raises EnvironmentLacks if its path is too
    long for these, UsageError if kernels of these machines, which are processes of this host, cannot open
    files there.
    """
    folder = Path(tempfile.gettempdir())
    if (length := len(os.fsencode(folder))) > _MAX_TEMPORARY_BYTES:
        raise EnvironmentLacks(
            f"{folder}, the folder of temporary files, has a path of {length} bytes; sockets in it can be "
            f"named if it has at most {_MAX_TEMPORARY_BYTES}",
            "name another one: export TMPDIR=DIR",
        )
    for name in machines:
        if why := _unnamed(name, folder):
            raise UsageError(*why)
    return folder


def _with_release(spec: GuestSpec) -> str:
    """The machine's title and its kernel's release."""
    release = spec.machine.kernel_release(spec.kernel_image)
    return " ".join(filter(None, [spec.machine.profile.title, release]))


# --- what is missing -------------------------------------------------------------------------


def missing_for(profile: Profile, kernel: Kernel) -> str:
    """Why this mode cannot run on this host with this kernel; empty if it can. The kernel's reason comes
    first: where it lacks the file system, no program of the host would help. Programs that only other
    releases have are downloaded.
    """
    try:
        resolve_modules(kernel, profile.modules)
        if lacks := _lacking_option(profile, kernel):
            return lacks
        profile.fetch_tools()
        for program in profile.guest_programs:
            initramfs.find_program(program)
    except KernelError as e:
        return KernelError(e.what, profile.not_in_linux or e.next_step).line
    except EnvironmentLacks as e:
        return e.line
    return profile.lacks()


def _lacking_option(profile: Profile, kernel: Kernel) -> str:
    """Which option of the mode this kernel was built without; empty if none, or nobody can tell."""
    configs = [*kernel.image.parent.glob("config*")]
    text = configs[0].read_text() if len(configs) == 1 else ""
    lacking = [o for o in profile.options if text and not re.search(rf"(?m)^CONFIG_{o}=[ym]$", text)]
    return f"{kernel.name} was built without CONFIG_{lacking[0]}" if lacking else ""


def missing_program(workload: Workload) -> str:
    """Which of the workload's programs, libraries and files this host lacks, and how to get it; empty if it
    has them all.
    """
    try:
        initramfs.need_brought(workload)
    except EnvironmentLacks as e:
        return e.line
    return ""
