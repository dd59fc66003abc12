"""The seam between the harness and what runs kernels.

A machine is a module with a subclass of `Machine` and a function `machine`, and a file of
`vms/machines` named after the machine. Everything else learns from here which machines there are and what
each can do; nothing else names one.
"""

from __future__ import annotations

import functools
import importlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec

from harness.errors import UsageError
from harness.guests.guest import Guest
from harness.host.processes import crowding
from harness.host.resources import resource
from harness.kernels.build import Flavour

IN_VIRTUAL_TIME = "uml"
"""The machine whose kernels may have virtual time."""
_PROFILES = 32


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """What a guest that records in virtual time is given. `script_bytes`: of its script, which begins the log
    device (`harness.guests.script`); `order`: of completions that are held for `patience_ns`; empty: none is;
    `seed`: of all that is left to chance.
    """

    script_bytes: int
    order: str
    patience_ns: int
    seed: int


@dataclass(frozen=True, slots=True)
class Boot:
    """What a guest is started with. `disk_socket`: the vhost-user socket of its disk; `disk_memory`: the same
    disk as memory, for a kernel that has the driver, instead of the socket; `log`: the file behind its log
    device; `directory`: for its console. `shell_mount`: if not empty, `FSTYPE:OPTIONS`:
    instead of serving requests, the agent opens a shell on the terminal and shows this as the mount to try.
    `shell_parts`: bytes of the disk at which its further devices begin; `shell_stack`: what is mounted once
    the steps of a stack or a layer were run. `shell_recovered`: the log device is the same disk after
    recovery, and the shell says so.
    `hits`: the file in which an instrumented kernel notes what it runs. `virtual`: it records in virtual
    time, with `disk_memory`. `memory_mib`: the least memory.
    """

    kernel_image: Path
    initramfs: Path
    disk_socket: Path
    log: Path
    directory: Path
    shell_mount: str = ""
    shell_parts: tuple[int, ...] = ()
    shell_stack: str = ""
    shell_recovered: bool = False
    disk_memory: Path | None = None
    hits: Path | None = None
    virtual: VirtualTime | None = None
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class ToolBoot:
    """What a guest with tools is started with. `root`: the root image; `disk`: the file behind its disk;
    `more`: further read-only images. `flushes`: the guest's flushes reach the host's disk. `directory`: for
    its console. `disk_mib_s` above 0: a limit on the disk's bandwidth, reads and writes together.
    """

    kernel_image: Path
    initramfs: Path
    root: Path
    disk: Path
    more: tuple[Path, ...]
    directory: Path
    memory_mib: int
    cpus: int
    flushes: bool
    disk_mib_s: int = 0


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a machine executes instructions. `boot_timeout_s`: the deadline for the agent's greeting, on a host
    that is not busy. `cpu`: the processor model, if the machine has several. `saves`: whether guests go on
    from the state of one that has booted.
    """

    boot_timeout_s: float
    cpu: str = ""
    saves: bool = False


class Tools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The guest with tools on this machine: the modules without which it cannot be reached, and its devices;
    `image_device` is the first of `ToolBoot.more`.
    """

    modules: list[str]
    root_device: str
    disk_device: str
    image_device: str


class MachineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of `vms/machines`. A machine with values of its own extends it.

    `title`: the machine's name for people. `default`: it records unless another is named. `confirms`:
    machines whose findings this one confirms. `host_process`: its kernels run as processes of this host, with
    the privileges of whoever runs the harness. `accelerators`: by name, the best first; the last works
    everywhere. `data_device`: the crashed disk as the guest sees it; `log_device`: where dm-log-writes logs;
    `modules`: required to reach the guest at all, and to record; `channel`: the agent's port. `build`: how
    kernels for it are built; `tools`: for the guest with tools, if it can boot one.
    """

    name: str = ""
    module: str = ""
    title: str
    summary: str
    default: bool = False
    confirms: list[str] = []
    host_process: bool = False
    accelerators: dict[str, Accelerator]
    memory_mib: int
    modules: list[str]
    data_device: str
    log_device: str
    channel: str
    command_line: list[str]
    build: Flavour | None = None
    tools: Tools | None = None

    def memory_of(self, boot: Boot) -> int:
        """The memory of a guest, in MiB. The archive stands there twice while the kernel unpacks it."""
        return max(boot.memory_mib, self.memory_mib + 2 * (boot.initramfs.stat().st_size >> 20))


@dataclass(frozen=True, slots=True)
class Requirement:
    """Something that a machine needs on this host: `look` returns where it is, or raises PowercutError."""

    what: str
    look: Callable[[], str]


class Machine(Protocol):
    """A way to run a kernel: a profile with one of its accelerators."""

    profile: MachineProfile
    accel: str

    @property
    def name(self) -> str:
        """The name that users give and that a run stores."""
        return self.profile.name

    @property
    def data_device(self) -> str:
        return self.profile.data_device

    @property
    def log_device(self) -> str:
        return self.profile.log_device

    @property
    def boot_timeout_s(self) -> float:
        """That of the accelerator; longer while this host is busy."""
        return self.profile.accelerators[self.accel].boot_timeout_s * crowding()

    @property
    def described(self) -> str:
        """For people, with its version if it has one: `QEMU 7.2.22`."""
        return " ".join(filter(None, [self.profile.title, self.version()]))

    def version(self) -> str:
        """The machine's own version; empty if it has none. Raises EnvironmentLacks if it is not installed."""
        return ""

    def requirements(self) -> Sequence[Requirement]:
        """What this host must have to run it."""
        return ()

    def accel_lacks(self) -> str:
        """Why its accelerator cannot work here; empty if only a trial can tell."""
        return ""

    def kernel_release(self, image: Path) -> str:
        """A kernel's release, if that can be known without booting it; else empty. Raises EnvironmentLacks
        for a file that this machine cannot boot.
        """
        return ""

    def shares_disk(self, image: Path) -> bool:
        """Whether this kernel can have its disk as memory: `Boot.disk_memory`."""
        return False

    def has_virtual_time(self, image: Path) -> bool:
        """Whether this kernel can record in virtual time: `Boot.virtual`."""
        return False

    def decides_threads(self, image: Path) -> bool:
        """Whether this kernel can let a seed decide which thread runs: `harness.model.schedules.Threads`."""
        return False

    @abstractmethod
    def launch(self, boot: Boot) -> Guest:
        """Start it. Does not wait for the agent: see `Guest.wait_until_up` and `boot_timeout_s`."""

    def launch_tools(self, boot: ToolBoot) -> Guest:
        """The same for a guest with tools. Raises UsageError if the machine has none."""
        raise UsageError(f"{self.profile.title} has no guest with tools", "choose another machine for it")

    def shell(self, boot: Boot) -> int:
        """Run a shell in the guest on this terminal; returns the exit code. Raises UsageError if the machine
        has no console.
        """
        raise self._no_console()

    def need_console(self) -> None:
        """Raises UsageError if the machine has none."""
        if type(self).shell is Machine.shell:
            raise self._no_console()

    def _no_console(self) -> UsageError:
        return UsageError(
            f"{self.profile.title} gives no console to type in",
            "name a kernel that another machine boots: --kernel debian-6.12",
        )

    @abstractmethod
    def preview(self, boot: Boot) -> str:
        """The command line that would start it, as one would type it."""


# --- registry --------------------------------------------------------------------------------


def names() -> list[str]:
    """Every machine, the default one first."""
    found = {path.stem: _profile(path).default for path in sorted(_folder().glob("*.toml"))}
    return sorted(found, key=lambda name: not found[name])


def default_name() -> str:
    """The machine that records unless another is named."""
    return names()[0]


def buildable() -> list[str]:
    """Machines for which kernels can be built; first those whose kernels are host processes."""
    found = [p for p in map(profile_of, names()) if p.build]
    return [p.name for p in sorted(found, key=lambda p: not p.host_process)]


def profile_of(name: str) -> MachineProfile:
    """Raises UsageError for an unknown machine."""
    if name not in names():
        raise UsageError(f"no machine {name!r}", f"one of: {', '.join(names())}")
    return _profile(_folder() / f"{name}.toml")


def flavour_of(name: str) -> Flavour:
    """How kernels are built for a machine. Raises UsageError for one for which none are."""
    if (flavour := profile_of(name).build) is None:
        raise UsageError(f"no kernels are built for {name}", f"one of: {', '.join(buildable())}")
    return flavour


def machine_of(name: str, accel: str = "") -> Machine:
    """The machine of that name; if `accel` is empty, with the accelerator that works everywhere."""
    profile = profile_of(name)
    module = importlib.import_module(profile.module or f"harness.guests.{name}")
    return cast(Machine, module.machine(accel or list(profile.accelerators)[-1]))


def accelerators() -> list[str]:
    """Every accelerator that can be chosen, the best first: those of machines that have more than one."""
    several = [p.accelerators for p in map(profile_of, names()) if len(p.accelerators) > 1]
    return list(dict.fromkeys(accel for found in several for accel in found))


ProfileT = TypeVar("ProfileT", bound=MachineProfile)


def load_profile(name: str, of: type[ProfileT]) -> ProfileT:
    """The profile of a machine, as the class `of` that has the machine's own fields."""
    return cast(ProfileT, _decoded((_folder() / f"{name}.toml").read_bytes(), name, of))


@functools.lru_cache(maxsize=_PROFILES)
def _decoded(file: bytes, name: str, of: type[MachineProfile]) -> MachineProfile:
    """Decoded once for each contents: a run asks hundreds of times, and a file takes milliseconds."""
    return msgspec.structs.replace(msgspec.toml.decode(file, type=of), name=name)


def _profile(path: Path) -> MachineProfile:
    return load_profile(path.stem, MachineProfile)


def _folder() -> Path:
    return resource("vms", "machines")
