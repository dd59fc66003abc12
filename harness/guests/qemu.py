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
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks, GuestLost, PowercutError
from harness.guests.guest import Guest
from harness.guests.machine import Boot, die_with_parent
from harness.host.cache import cache_dir
from harness.host.resources import resource

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
    """QEMU with an accelerator, `kvm` or `tcg`; see `harness.guests.machine.Machine`."""

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
    words = []
    if boot.shell_mount:
        words = ["powercut.shell=1", f"powercut.mount={boot.shell_mount}"]
        words += [f"powercut.device={profile().data_device}", f"powercut.second={boot.shell_second}"]
    return _line(
        [
            ("-accel", accel),
            ("-cpu", profile().cpu[accel]),
            ("-smp", "1"),
            ("-m", f"{memory}M"),
            # vhost-user needs the guest's memory in a file that the disk process can map
            ("-object", f"memory-backend-memfd,id=mem,size={memory}M,share=on"),
            ("-machine", "q35,memory-backend=mem,usb=off,vmport=off"),
            *_kernel(boot.kernel_image, boot.initramfs, words),
            ("-serial", "mon:stdio" if boot.shell_mount else f"file:{boot.directory / 'console.txt'}"),
            ("-chardev", f"socket,id=disk,path={boot.disk_socket}"),
            ("-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"),
            ("-drive", f"file={boot.log},format=raw,if=none,id=log,cache=unsafe,aio=threads"),
            ("-device", "virtio-blk-pci,drive=log"),
        ],
        channel_fd,
    )


@dataclass(frozen=True, slots=True)
class ToolBoot:
    """What a guest with tools is started with. `root`: the image that it goes on in, as /dev/vda; `disk`: the
    file behind /dev/vdb; `more`: further read-only images, as /dev/vdc and so on. `flushes`: a flush of the
    guest's reaches the host's disk. `directory`: for its console. `disk_mib_s` above 0: the disk takes and
    gives no more than that, all its requests together.
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


def tool_command(boot: ToolBoot, accel: str, channel_fd: int | None) -> list[str]:
    """The QEMU line of a guest with tools."""
    # With cache=unsafe a flush does nothing on the host. What the guest was told is written lies in the
    # host's page cache, which outlives a QEMU that is killed: a disk with no volatile cache.
    cache = "writeback" if boot.flushes else "unsafe"
    arguments: list[tuple[str, str]] = [
        ("-accel", accel),
        ("-cpu", profile().cpu[accel]),
        ("-smp", str(boot.cpus)),
        ("-m", f"{boot.memory_mib}M"),
        ("-machine", "q35,usb=off,vmport=off"),
        *_kernel(boot.kernel_image, boot.initramfs, ["powercut.root=/dev/vda:erofs"]),
        ("-serial", f"file:{boot.directory / 'console.txt'}"),
    ]
    limit = f",throttling.bps-total={boot.disk_mib_s << 20}" if boot.disk_mib_s else ""
    drives = [(boot.root, "readonly=on"), (boot.disk, f"cache={cache},aio=threads{limit}")]
    drives += [(image, "readonly=on") for image in boot.more]
    for i, (path, how) in enumerate(drives):
        arguments += [
            ("-drive", f"file={path},format=raw,if=none,id=d{i},{how}"),
            ("-device", f"virtio-blk-pci,drive=d{i}"),
        ]
    return _line(arguments, channel_fd)


def _kernel(image: Path, initramfs: Path, words: list[str]) -> list[tuple[str, str]]:
    line = " ".join([*profile().command_line, f"powercut.port={profile().channel}", *words])
    return [("-kernel", str(image)), ("-initrd", str(initramfs)), ("-append", line)]


def _line(arguments: list[tuple[str, str]], channel_fd: int | None) -> list[str]:
    """With what every guest has; `channel_fd`: the socket that the agent's port leads to."""
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


def start(boot: Boot, accel: str) -> Guest:
    """Boot and wait for the agent. Raises GuestLost where it does not come up in time."""
    return launch(lambda fd: command(boot, accel, fd), boot.directory, accel)


def launch(line_for: Callable[[int], list[str]], directory: Path, accel: str) -> Guest:
    """Run the QEMU line for a channel's descriptor, its words in `directory`, and wait for the agent.

    Raises GuestLost where it does not come up in time.
    """
    version()  # a clear error where QEMU is missing
    ours, theirs = socket.socketpair()
    with theirs:
        line = line_for(theirs.fileno())
        stderr = (directory / "qemu.txt").open("wb")
        with stderr:
            process = subprocess.Popen(
                die_with_parent(line),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for us; we end the guest
            )
    guest = Guest(process, ours, directory / "console.txt")
    try:
        guest.wait_until_up(BOOT_TIMEOUT_S[accel])
    except PowercutError as e:
        guest.kill()
        said = (directory / "qemu.txt").read_text(errors="replace").strip()
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


def choose_accel(wanted: str, try_kvm: Callable[[], None], *, known_good: bool = True) -> Accel:
    """The accelerator to use. `auto` asks `try_kvm` (boot the real kernel, raise GuestLost where it does
    not come up), and remembers the answer for this host kernel and QEMU: /dev/kvm may exist and not work.

    `known_good`: whether that kernel comes up elsewhere. That one which does not may be no fault of KVM's,
    so it is not remembered.
    """
    if wanted != "auto":
        return Accel(wanted, "asked for")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accel("tcg", "/dev/kvm is missing or not accessible")
    memory = cache_dir() / "accel.json"
    key = f"{platform.release()} qemu-{version()} {platform.processor() or platform.machine()}"
    known = _remembered(memory)
    if key not in known:
        try:
            try_kvm()
            known[key] = ""
        except GuestLost as e:
            known[key] = e.what.splitlines()[0].partition("; machine")[0]
        if known_good or not known[key]:
            memory.write_text(json.dumps(known, indent=1))
    if known[key]:
        return Accel("tcg", f"/dev/kvm opens, but a kernel does not come up under it ({known[key]})")
    return Accel("kvm", "a kernel came up under KVM")


def _remembered(memory: Path) -> dict[str, str]:
    """Nothing where it cannot be read: it is found out again."""
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
