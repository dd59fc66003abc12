"""QEMU as a machine: q35, direct kernel boot, one vhost-user-blk disk, no network device."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks
from harness.guests import guest, kvm
from harness.guests.guest import Guest
from harness.guests.machine import Boot, Machine, MachineProfile, Requirement, ToolBoot, load_profile
from harness.guests.saved import SAVED_MIB, Bare, BareGuest
from harness.guests.typed import run_typed
from harness.host.files import file_hash

_PREVIEWED_CHANNEL = 3
_PORTS = ("data", "record")
"""Where the disks of a guest go that gets them later."""
_SETUP_BYTES = 64 * 512
"""The setup code of a bzImage is at most 64 sectors."""


class QemuProfile(MachineProfile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`vms/machines/qemu.toml`, where each value is explained."""

    program: str
    package: str


@functools.cache
def profile() -> QemuProfile:
    return load_profile("qemu", QemuProfile)


@functools.cache
def version() -> str:
    """QEMU's own version. Raises EnvironmentLacks where it is not installed."""
    program, package = profile().program, profile().package
    if not shutil.which(program):
        raise EnvironmentLacks(f"{program} is not installed", f"run: apt-get install {package}")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split("version ", 1)[-1].split()[0]


class Qemu(Machine):
    """QEMU with an accelerator, `kvm` or `tcg`."""

    def __init__(self, accel: str) -> None:
        self.profile = profile()
        self.accel = accel

    def version(self) -> str:
        return version()

    def requirements(self) -> Sequence[Requirement]:
        return (Requirement("QEMU", lambda: f"version {version()}"),)

    def accel_lacks(self) -> str:
        return kvm.lacks() if self.accel == "kvm" else ""

    def kernel_release(self, image: Path) -> str:
        return release(image)

    def launch(self, boot: Boot) -> Guest:
        version()  # a clear error where QEMU is missing
        saves = profile().accelerators[self.accel].saves and profile().memory_of(boot) <= SAVED_MIB
        if saves and (one := bare(boot, self.accel)).works:
            return BareGuest(one, boot.directory)
        return guest.launch(lambda fd: command(boot, self.accel, fd), boot.directory)

    def launch_tools(self, boot: ToolBoot) -> Guest:
        version()
        return guest.launch(lambda fd: tool_command(boot, self.accel, fd), boot.directory)

    def shell(self, boot: Boot) -> int:
        line, source = command(boot, self.accel, None), sys.stdin.fileno()
        if os.isatty(source):
            return subprocess.run(line, check=False).returncode
        return run_typed(line, source, sys.stdout.fileno())

    def preview(self, boot: Boot) -> str:
        return shlex.join(command(boot, self.accel, _PREVIEWED_CHANNEL))


def release(image: Path) -> str:
    """The release that a kernel for x86 states in its setup header; empty for another file. Source: the
    kernel's Documentation/arch/x86/boot.rst, fields `header` and `kernel_version`.
    """
    with image.open("rb") as file:
        start = file.read(_SETUP_BYTES)
    if start[0x202:0x206] != b"HdrS":
        return ""
    at = int.from_bytes(start[0x20E:0x210], "little")
    words = start[at + 0x200 :].split(b"\0", 1)[0].split() if at else []
    return words[0].decode("ascii", "replace") if words else ""


def machine(accel: str) -> Machine:
    return Qemu(accel)


def bare(boot: Boot, accel: str) -> Bare:
    """The guest as it is saved and loaded. All that its memory and its devices depend on is in the key."""
    line = "\n".join(command(boot, accel, 0, _in_place_of_disks(0, None)))
    for path in (boot.kernel_image, boot.initramfs, boot.disk_socket, boot.log):
        line = line.replace(_value(path), "").replace(str(path), "")
    known = [version(), line, file_hash(boot.kernel_image), file_hash(boot.initramfs)]
    return Bare(
        key=hashlib.sha256(msgspec.json.encode(known)).hexdigest()[:32],
        line=lambda fd, monitor, state: command(boot, accel, fd, _in_place_of_disks(monitor, state)),
        usual=lambda fd: command(boot, accel, fd),
        disks={
            profile().data_device: {
                "driver": "vhost-user-blk-pci",
                "chardev": "disk",
                "num-queues": 1,
                "bus": _PORTS[0],
            },
            profile().log_device: {"driver": "virtio-blk-pci", "drive": "log", "bus": _PORTS[1]},
        },
    )


def _in_place_of_disks(monitor: int, state: int | None) -> list[tuple[str, str]]:
    """Ports for the disks, and how they are attached."""
    ports = [("-device", f"pcie-root-port,id={id_},chassis={n},slot={n}") for n, id_ in enumerate(_PORTS, 1)]
    asked = [("-chardev", f"socket,id=monitor,fd={monitor}"), ("-mon", "chardev=monitor,mode=control")]
    return [*ports, *asked, *([] if state is None else [("-incoming", f"fd:{state}")])]


def command(
    boot: Boot, accel: str, channel_fd: int | None, without_disks: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """The QEMU line, option beside value; `channel_fd` None: the guest talks to the terminal (shell).
    `without_disks`: what a guest has that gets them later.
    """
    memory = profile().memory_of(boot)
    words = []
    if boot.shell_mount:
        words = ["powercut.shell=1", f"powercut.mount={boot.shell_mount}"]
        words += [f"powercut.device={profile().data_device}"]
        words += [f"powercut.parts={','.join(map(str, boot.shell_parts))}"] if boot.shell_parts else []
        words += [f"powercut.stack={boot.shell_stack}"] if boot.shell_stack else []
        words += [f"powercut.recovered={profile().log_device}"] if boot.shell_recovered else []
    return _line(
        [
            ("-accel", accel),
            ("-cpu", profile().accelerators[accel].cpu),
            ("-smp", "1"),
            ("-m", f"{memory}M"),
            # vhost-user needs the guest's memory in a file that the disk process can map
            ("-object", f"memory-backend-memfd,id=mem,size={memory}M,share=on"),
            ("-machine", "q35,memory-backend=mem,usb=off,vmport=off"),
            *_kernel(boot.kernel_image, boot.initramfs, words),
            ("-serial", "mon:stdio" if boot.shell_mount else "stdio"),
            ("-chardev", f"socket,id=disk,path={_value(boot.disk_socket)}"),
            *([] if without_disks else [("-device", "vhost-user-blk-pci,chardev=disk,num-queues=1")]),
            # Report a host error (disk full) to the guest; by default QEMU pauses for ever
            (
                "-drive",
                f"file={_value(boot.log)},format=raw,if=none,id=log,cache=unsafe,aio=threads,"
                "werror=report,rerror=report",
            ),
            *(without_disks or [("-device", "virtio-blk-pci,drive=log")]),
        ],
        channel_fd,
    )


def tool_command(boot: ToolBoot, accel: str, channel_fd: int | None) -> list[str]:
    """The QEMU line of a guest with tools."""
    # With cache=unsafe a flush does nothing on the host. Completed writes are in the host's page cache,
    # which outlives a killed QEMU: a disk with no volatile cache.
    cache = "writeback" if boot.flushes else "unsafe"
    tools = profile().tools
    assert tools is not None  # noqa: S101  # qemu.toml has them; tells mypy
    arguments: list[tuple[str, str]] = [
        ("-accel", accel),
        ("-cpu", profile().accelerators[accel].cpu),
        ("-smp", str(boot.cpus)),
        ("-m", f"{boot.memory_mib}M"),
        ("-machine", "q35,usb=off,vmport=off"),
        *_kernel(boot.kernel_image, boot.initramfs, [f"powercut.root={tools.root_device}:erofs"]),
        ("-serial", "stdio"),
    ]
    limit = f",throttling.bps-total={boot.disk_mib_s << 20}" if boot.disk_mib_s else ""
    drives = [
        (boot.root, "readonly=on"),
        (boot.disk, f"cache={cache},aio=threads,werror=report,rerror=report{limit}"),
    ]
    drives += [(image, "readonly=on") for image in boot.more]
    for i, (path, how) in enumerate(drives):
        arguments += [
            ("-drive", f"file={_value(path)},format=raw,if=none,id=d{i},{how}"),
            ("-device", f"virtio-blk-pci,drive=d{i}"),
        ]
    return _line(arguments, channel_fd)


def _kernel(image: Path, initramfs: Path, words: list[str]) -> list[tuple[str, str]]:
    line = " ".join([*profile().command_line, f"powercut.port={profile().channel}", *words])
    return [("-kernel", str(image)), ("-initrd", str(initramfs)), ("-append", line)]


def _value(path: Path) -> str:
    """A path as the value of an option, which ends at a single comma."""
    return str(path).replace(",", ",,")


def _line(arguments: list[tuple[str, str]], channel_fd: int | None) -> list[str]:
    """Add what every guest has; `channel_fd`: the socket behind the agent's port."""
    pairs: list[tuple[str, str] | tuple[str]] = [
        ("-nodefaults",),
        ("-no-user-config",),
        ("-display", "none"),
        ("-no-reboot",),
        *arguments,
    ]
    if channel_fd is not None:
        pairs += [
            ("-device", "virtio-serial-pci"),
            ("-chardev", f"socket,id=agent,fd={channel_fd}"),
            ("-device", f"virtserialport,chardev=agent,name={profile().channel}"),
        ]
    return [profile().program, *(word for pair in pairs for word in pair)]
