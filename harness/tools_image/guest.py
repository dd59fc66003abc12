"""The guest with tools: the kernel under test, a root image full of programs, and an empty disk.

It boots like the guests that judge (kernel, agent, machine); then the agent switches to the root image. Its
disk is a plain file behind the machine's own block device: nothing is recorded here.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from harness.errors import GuestError, GuestLost, KernelError, PowercutError, UsageError
from harness.guests import wire
from harness.guests.accel import Chosen, choose_accel
from harness.guests.guest import Guest
from harness.guests.guest_specs import pack
from harness.guests.machine import Machine, ToolBoot, Tools, default_name, profile_of
from harness.host.progress import Progress, telling
from harness.kernels.find import Kernel
from harness.tools_image.rootfs import headers_image, root_image

MOUNT_POINT = "/mnt/test"
"""Where `ToolsGuest.mount` puts the file system; anything below the tmpfs /mnt will do as well."""
MOUNT_TIMEOUT_S, UNMOUNT_TIMEOUT_S = 120.0, 300.0
PUT_TIMEOUT_S = 60.0
_SAID_BYTES = 2000  # of a program's output in an error


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program in the guest ended: exit code, or 128 + signal; standard output and error."""

    exit_code: int
    output: str


class ToolsGuest:
    """A booted guest with tools. Owned by one thread; use `tools_guest` to get one.

    Programs run in the root image as root, in `/`, one at a time; their background processes keep running.
    /tmp, /run, /var/tmp and /mnt, all in memory, are writable, as is whatever is mounted.

    `device`: the data disk in the guest; `disk`: the file behind it. `accel`: `kvm` or `tcg`, chosen for
    `accel_reason`. `headers`: empty if bcc can compile, else why not.
    """

    def __init__(self, guest: Guest, kernel: Kernel, disk: Path, chosen: Chosen, headers: str) -> None:
        self._guest = guest
        self._machine = chosen.machine
        self.kernel = kernel
        self.disk = disk
        self.device = _tools(chosen.machine.name).disk_device
        self.accel = chosen.machine.accel
        self.accel_reason = chosen.reason
        self.headers = headers

    @property
    def kernel_release(self) -> str:
        """The release that uname(2) reports in the guest."""
        return self._guest.hello.release

    @property
    def machine(self) -> str:
        """For people, with its version and accelerator."""
        return f"{self._machine.described} ({self.accel})"

    def run(self, argv: Sequence[str], timeout_s: float, *, check: bool = True) -> Ran:
        """Run a program of the root image to its end and return its output, up to 32 MiB.

        Raises GuestError if it cannot be started or does not end within `timeout_s` (it is then killed with
        its process group), and, with `check`, for a non-zero exit code; GuestLost if the guest is gone.
        """
        if not self.alive:
            raise GuestLost(
                f"{_shown(argv)} cannot be run: the guest is not running any more", self.console()
            )
        request = wire.RunProgram(argv=list(argv), deadline_s=math.ceil(timeout_s))
        done = self._guest.request(request, wire.ProgramDone, timeout_s + 30.0)
        said = done.output.decode(errors="replace")
        if done.exit_code is None:
            raise GuestError(f"{_shown(argv)} did not end within {timeout_s:g} s; it said: {_tail(said)}")
        if check and done.exit_code:
            raise GuestError(f"{_shown(argv)} ended with {done.exit_code}: {_tail(said)}")
        return Ran(done.exit_code, said)

    def shell(self, script: str, timeout_s: float, *, check: bool = True) -> Ran:
        """Run a script with sh(1), without `set -e`."""
        return self.run(["/bin/sh", "-c", script], timeout_s=timeout_s, check=check)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file where the guest can write (/tmp, /run), and make the directories above it."""
        self._guest.request(wire.PutFile(path=path, mode=mode, data=data), wire.Done, PUT_TIMEOUT_S)

    def mount(self, fstype: str, options: str = "") -> str:
        """Mount the disk at MOUNT_POINT, and return that."""
        words = ["-o", options] if options else []
        self.run(["mkdir", "-p", MOUNT_POINT], timeout_s=MOUNT_TIMEOUT_S)
        self.run(["mount", "-t", fstype, *words, self.device, MOUNT_POINT], timeout_s=MOUNT_TIMEOUT_S)
        return MOUNT_POINT

    def unmount(self) -> None:
        """Unmount what `mount` mounted. Retries: a killed program that waits for the disk lets go late."""
        tries = f"for i in 1 2 3 4 5 6 7 8 9; do umount {MOUNT_POINT} 2>/dev/null && exit; sleep 0.$i; done"
        self.shell(f"{tries}; umount {MOUNT_POINT}", timeout_s=UNMOUNT_TIMEOUT_S)

    def console(self) -> str:
        """The end of what the guest's kernel printed: warnings and errors."""
        return self._guest.console()

    @property
    def alive(self) -> bool:
        return self._guest.alive

    def cpu_s(self) -> float:
        """CPU time that its machine has used on the host."""
        # The clock of another process, numbered as clock_getcpuclockid(3) does.
        return time.clock_gettime((~self._guest.process.pid << 3) | 2)

    def kill(self) -> None:
        """SIGKILL for its machine: a power cut. What its disk had completed is in the file `disk`."""
        self._guest.kill()


def _shown(argv: Sequence[str]) -> str:
    text = " ".join(argv)
    return text if len(text) <= 200 else text[:200] + "..."


def _tail(said: str) -> str:
    return said[-_SAID_BYTES:].strip() or "nothing"


class Wishes(TypedDict, total=False):
    """The optional parameters of a guest; see `boot_tools_guest`."""

    modules: Sequence[str]
    disk: Path | None
    memory_mib: int
    cpus: int
    accel: str
    flushes: bool
    disk_mib_s: int
    headers: bool


def boot_tools_guest(  # noqa: PLR0913 - by name, most with a default
    kernel: Kernel,
    directory: Path,
    *,
    disk_bytes: int,
    progress: Progress,
    modules: Sequence[str] = (),
    disk: Path | None = None,
    memory_mib: int = 1024,
    cpus: int = 1,
    accel: str = "auto",
    flushes: bool = False,
    disk_mib_s: int = 0,
    headers: bool = True,
) -> ToolsGuest:
    """Boot a guest with tools; the caller ends it (`ToolsGuest.kill`).

    `directory`: for its console and initramfs, and for its disk, a new sparse file of zeros of `disk_bytes`,
    unless `disk` names an existing one. `modules`: the kernel's modules for the file systems to be mounted.
    `flushes`: flushes reach the host's disk, so that they cost what they cost there. `disk_mib_s`: above 0, a
    limit on the disk's bandwidth. `headers`: fetch the kernel's headers, which only bcc needs.

    Makes the root image on first use. Raises EnvironmentLacks, KernelError (a module that the kernel does not
    have), GuestLost.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if disk is None:
        disk = directory / "disk.img"
        disk.unlink(missing_ok=True)
        with disk.open("wb") as f:
            f.truncate(disk_bytes)
    root = root_image(progress)
    more, lacking = _headers(kernel, progress) if headers else ((), "they were not asked for")
    wanted = [*_tools(default_name()).modules, "erofs", *modules]
    archive = pack(kernel, wanted, directory / "initramfs.cpio")
    boot = ToolBoot(kernel.image, archive, root, disk, more, directory, memory_mib, cpus, flushes, disk_mib_s)
    known_good = bool(kernel.package_version)
    with telling(lambda: "a guest with tools boots", progress.say):
        chosen = choose_accel(default_name(), accel, lambda m: _start(boot, m).kill(), known_good=known_good)
        guest = _start(boot, chosen.machine)
    tools = ToolsGuest(guest, kernel, disk, chosen, lacking)
    try:
        if more:
            image = _tools(chosen.machine.name).image_device
            tools.run(["mount", "-t", "erofs", image, "/usr/lib/modules"], PUT_TIMEOUT_S)
    except PowercutError:
        tools.kill()
        raise
    return tools


@contextlib.contextmanager
def tools_guest(
    kernel: Kernel, directory: Path, *, disk_bytes: int, progress: Progress, **more: Unpack[Wishes]
) -> Iterator[ToolsGuest]:
    """`boot_tools_guest`, ended when the block is left."""
    tools = boot_tools_guest(kernel, directory, disk_bytes=disk_bytes, progress=progress, **more)
    try:
        yield tools
    finally:
        tools.kill()


def _headers(kernel: Kernel, progress: Progress) -> tuple[tuple[Path, ...], str]:
    """The image with the kernel's headers, or why there is none."""
    try:
        return (headers_image(kernel, progress),), ""
    except KernelError as e:
        return (), e.what


def _tools(machine: str) -> Tools:
    """The machine's settings for a guest with tools. Raises UsageError if it has none."""
    profile = profile_of(machine)
    if profile.tools is None:
        raise UsageError(f"{profile.title} has no guest with tools", "choose another machine for it")
    return profile.tools


def _start(boot: ToolBoot, machine: Machine) -> Guest:
    guest = machine.launch_tools(boot)
    try:
        guest.wait_until_up(machine.boot_timeout_s)
    except GuestLost as e:
        guest.kill()
        said = [line for line in e.console.splitlines() if "powercut-agent:" in line]
        lacks = (
            "the kernel needs CONFIG_EROFS_FS and CONFIG_EROFS_FS_ZIP, built in or as modules" if said else ""
        )
        raise GuestLost("; ".join([e.what, *said[-2:]]), e.console, lacks) from e
    except BaseException:
        guest.kill()
        raise
    return guest
