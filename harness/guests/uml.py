"""User Mode Linux as a machine: the kernel is a process of this host, and so runs at native speed.

It shows the same disk as QEMU, by the same vhost-user socket. What it is not: the architecture that
people run, with its interrupts and its processors; a finding is therefore confirmed in QEMU.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks, GuestLost, PowercutError
from harness.guests.guest import Guest
from harness.guests.machine import Boot, die_with_parent
from harness.host.resources import built_part, resource

BOOT_TIMEOUT_S = 30.0
_VIRTIO_ID_BLOCK = 2  # virtio 1.2, 5 Device Types


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`vms/machines/uml.toml`, where each value is explained."""

    summary: str
    memory_mib: int
    modules: list[str]
    data_device: str
    log_device: str
    channel: str
    command_line: list[str]


@functools.cache
def profile() -> Profile:
    """How UML is started."""
    return msgspec.toml.decode(resource("vms", "machines", "uml.toml").read_bytes(), type=Profile)


@dataclass(frozen=True, slots=True)
class Uml:
    """See `harness.guests.machine.Machine`."""

    name: str = "uml"
    accel: str = "native"

    @property
    def data_device(self) -> str:
        return profile().data_device

    @property
    def log_device(self) -> str:
        return profile().log_device

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(profile().modules)

    def start(self, boot: Boot) -> Guest:
        """Boot and wait for the agent. Raises GuestLost where it does not come up in time."""
        ours, theirs = socket.socketpair()
        console = boot.directory / "console.txt"
        with theirs, console.open("wb") as output:
            process = subprocess.Popen(
                die_with_parent(command(boot, theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(boot.directory),
                pass_fds=[theirs.fileno()],
                # UML traces its processes, each a process of this host: they are killed as one group
                start_new_session=True,
            )
        guest = Guest(process, ours, console, group=True)
        try:
            guest.wait_until_up(BOOT_TIMEOUT_S)
        except PowercutError as e:
            guest.kill()
            if isinstance(e, GuestLost):
                raise GuestLost(e.what, e.console, f"the console is in {console}") from e
            raise
        return guest


def command(boot: Boot, channel_fd: int) -> list[str]:
    """The UML line."""
    memory = profile().memory_mib + 2 * (boot.initramfs.stat().st_size >> 20)
    return [
        str(boot.kernel_image),
        f"mem={memory}M",
        f"initrd={boot.initramfs}",
        f"virtio_uml.device={boot.disk_socket}:{_VIRTIO_ID_BLOCK}",
        f"ubd0={boot.log}",
        f"ssl0=fd:{channel_fd}",
        f"uml_dir={boot.directory}/",
        *profile().command_line,
        f"powercut.port={profile().channel}",
    ]


def environment(directory: Path) -> dict[str, str]:
    """HOME: where UML would otherwise put files. TMPDIR: its memory is a file, which belongs in memory."""
    shared_memory = "/dev/shm"  # noqa: S108  # the host's tmpfs, as UML's own default is where it is mounted
    return {
        "HOME": str(directory),
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": shared_memory,
        "LD_PRELOAD": str(find_shim()),
    }


def find_shim() -> Path:
    """The library that lets UML run on hosts with AMX; see `vms/umlshim`."""
    return built_part("POWERCUT_UMLSHIM", "release", "libpowercut_umlshim.so")


def release(image: Path) -> str:
    """What the kernel calls itself, by `--version`. Raises EnvironmentLacks for another file."""
    try:
        said = subprocess.run([image, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise EnvironmentLacks(
            f"{image} is no UML kernel: {e}", "name the file `linux` of a build ARCH=um"
        ) from e
    version = re.search(r"\d+\.\d+\S*", said.stdout)
    if said.returncode or not version:
        raise EnvironmentLacks(f"{image} is no UML kernel", "name the file `linux` of a build ARCH=um")
    return version[0]
