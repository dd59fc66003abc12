"""QEMU as a machine: q35, direct kernel boot, one vhost-user-blk disk, no network device."""

from __future__ import annotations

import functools
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from harness.cache import cache_dir
from harness.errors import EnvironmentLacks, GuestLost, PowercutError
from harness.machines.guest import Guest
from harness.machines.machine import Boot, die_with_parent
from harness.resources import resource

BOOT_TIMEOUT_S = {"kvm": 20.0, "tcg": 120.0}


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`vms/machines/qemu.toml`, where each value is explained. `cpu`: model by accelerator."""

    summary: str
    program: str
    package: str
    memory_mib: int
    modules: list[str]
    data_device: str
    log_device: str
    channel: str
    command_line: list[str]
    cpu: dict[str, str]


@functools.cache
def profile() -> Profile:
    """How QEMU is started."""
    return msgspec.toml.decode(resource("vms", "machines", "qemu.toml").read_bytes(), type=Profile)


@functools.cache
def version() -> str:
    """QEMU's own version. Raises EnvironmentLacks where it is not installed."""
    program, package = profile().program, profile().package
    if not shutil.which(program):
        raise EnvironmentLacks(f"{program} is not installed", f"run: apt-get install {package}")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split("version ", 1)[-1].split()[0]


@dataclass(frozen=True, slots=True)
class Qemu:
    """QEMU with an accelerator, `kvm` or `tcg`; see `harness.machines.machine.Machine`."""

    accel: str
    name: str = "qemu"

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
        return start(boot, self.accel)


def command(boot: Boot, accel: str, channel_fd: int | None) -> list[str]:
    """The QEMU line, option beside value; `channel_fd` None: the guest talks to the terminal (shell)."""
    # the archive stands in memory twice while the kernel unpacks it
    memory = profile().memory_mib + 2 * (boot.initramfs.stat().st_size >> 20)
    kernel_words = [*profile().command_line, f"powercut.port={profile().channel}"]
    if boot.shell_mount:
        kernel_words += [f"powercut.shell=1 powercut.mount={boot.shell_mount}"]
        kernel_words += [f"powercut.device={profile().data_device}"]
    arguments: list[tuple[str, str] | tuple[str]] = [
        ("-nodefaults",),
        ("-no-user-config",),
        ("-display", "none"),
        ("-no-reboot",),
        ("-accel", accel),
        ("-cpu", profile().cpu[accel]),
        ("-smp", "1"),
        ("-m", f"{memory}M"),
        # vhost-user needs the guest's memory in a file that the disk process can map
        ("-object", f"memory-backend-memfd,id=mem,size={memory}M,share=on"),
        ("-machine", "q35,memory-backend=mem,usb=off,vmport=off"),
        ("-kernel", str(boot.kernel_image)),
        ("-initrd", str(boot.initramfs)),
        ("-append", " ".join(kernel_words)),
        ("-serial", "mon:stdio" if boot.shell_mount else f"file:{boot.directory / 'console.txt'}"),
        ("-chardev", f"socket,id=disk,path={boot.disk_socket}"),
        ("-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"),
        ("-drive", f"file={boot.log},format=raw,if=none,id=log,cache=unsafe,aio=threads"),
        ("-device", "virtio-blk-pci,drive=log"),
    ]
    if channel_fd is not None:
        arguments += [
            ("-device", "virtio-serial-pci"),
            ("-chardev", f"socket,id=agent,fd={channel_fd}"),
            ("-device", f"virtserialport,chardev=agent,name={profile().channel}"),
        ]
    return [profile().program, *(word for pair in arguments for word in pair)]


def start(boot: Boot, accel: str) -> Guest:
    """Boot and wait for the agent. Raises GuestLost where it does not come up in time."""
    version()  # a clear error where QEMU is missing
    ours, theirs = socket.socketpair()
    with theirs:
        line = command(boot, accel, theirs.fileno())
        stderr = (boot.directory / "qemu.txt").open("wb")
        with stderr:
            process = subprocess.Popen(
                die_with_parent(line),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for us; we end the guest
            )
    guest = Guest(process, ours, boot.directory / "console.txt")
    try:
        guest.wait_until_up(BOOT_TIMEOUT_S[accel])
    except PowercutError as e:
        guest.kill()
        said = (boot.directory / "qemu.txt").read_text(errors="replace").strip()
        if isinstance(e, GuestLost) and said:
            raise GuestLost(f"{e.what}; QEMU said: {said[-400:]}", e.console) from e
        raise
    return guest


def shell_line(line: list[str]) -> str:
    """As one would type it."""
    return shlex.join(line)


# --- accelerator -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accel:
    """`name`: kvm or tcg; `reason`: how that came about, for the report."""

    name: str
    reason: str


def choose_accel(wanted: str, try_kvm: Callable[[], None]) -> Accel:
    """The accelerator to use. `auto` asks `try_kvm` (boot the real kernel, raise PowercutError where it does
    not come up), and remembers the answer for this host kernel and QEMU: /dev/kvm may exist and not work.
    """
    if wanted != "auto":
        return Accel(wanted, "asked for")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accel("tcg", "/dev/kvm is missing or not accessible")
    memory = cache_dir() / "accel.json"
    key = f"{platform.release()} qemu-{version()} {platform.processor() or platform.machine()}"
    known: dict[str, str] = json.loads(memory.read_text()) if memory.exists() else {}
    if key not in known:
        try:
            try_kvm()
            known[key] = ""
        except PowercutError as e:
            known[key] = e.what.splitlines()[0].partition("; machine")[0]
        memory.write_text(json.dumps(known, indent=1))
    if known[key]:
        return Accel("tcg", f"/dev/kvm opens, but a kernel does not come up under it ({known[key]})")
    return Accel("kvm", "a kernel came up under KVM")
