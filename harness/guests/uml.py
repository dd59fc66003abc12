"""User Mode Linux as a machine: the kernel is a process of this host, so it runs at native speed.

It sees the same disk as QEMU, through the same vhost-user socket, or, where the kernel has our driver
(vms/umldisk), as memory: then a read costs a call instead of two switches between processes. It is not the
architecture that people run, with its interrupts and processors, so findings are confirmed in QEMU.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.errors import EnvironmentLacks
from harness.guests import guest
from harness.guests.guest import Guest
from harness.guests.machine import Boot, Machine, MachineProfile, Requirement, load_profile
from harness.host import elf
from harness.host.files import remembered
from harness.host.resources import built_part

_VIRTIO_ID_BLOCK = 2  # virtio 1.2, 5 Device Types
_PREVIEWED_CHANNEL = 3
DRIVER = b"powercut_disk driver 1\0"
"""In the file of a kernel that has the driver (vms/umldisk/disk_kern.c)."""
RECORDS = b"powercut_disk records 1\0"
"""In the file of a kernel that can record in virtual time (vms/umldisk/record_kern.c)."""
DECIDES = tuple(b"powercut_threads %s\0" % part for part in (b"decides 2", b"points 1", b"picks 1"))
"""In the file of a kernel in which a seed may decide which thread runs: it has vms/umldisk/threads_kern.c,
and its scheduler our edits.
"""
BEGIN_S = 1_700_000_000
"""The time at which virtual time begins."""
SOUND_SINCE = (7, 2)
"""From this release on UML needs no help: see `needs_shim`. Releases between 6.12, which does, and this one
have not been tried.
"""


class UmlProfile(MachineProfile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`vms/machines/uml.toml`, where each value is explained."""


@functools.cache
def profile() -> UmlProfile:
    return load_profile("uml", UmlProfile)


class Uml(Machine):
    def __init__(self) -> None:
        self.profile = profile()
        self.accel = "native"

    def requirements(self) -> Sequence[Requirement]:
        return (Requirement("UML's library", lambda: str(find_shim())),)

    def kernel_release(self, image: Path) -> str:
        return release(image)

    def shares_disk(self, image: Path) -> bool:
        return has_driver(image)

    def has_virtual_time(self, image: Path) -> bool:
        return RECORDS in _said_by(image)

    def decides_threads(self, image: Path) -> bool:
        return _said_by(image).issuperset(DECIDES)

    def launch(self, boot: Boot) -> Guest:
        # UML traces its processes, each a process of this host: they are killed as one group
        of_uml = environment(boot.directory, boot.kernel_image)
        if boot.virtual:
            where = _named_alike(boot)
            # whatever the release: a recording follows from its seed only with the library's random numbers
            of_uml |= {"LD_PRELOAD": str(find_shim()), "POWERCUT_RANDOM_SEED": str(boot.virtual.seed)}
            return guest.launch(lambda _: virtual_command(boot), boot.directory, of_uml, where)
        return guest.launch(lambda fd: command(boot, fd), boot.directory, of_uml)

    def preview(self, boot: Boot) -> str:
        return shlex.join(command(boot, _PREVIEWED_CHANNEL))


def machine(_: str) -> Machine:
    """See `harness.guests.machine`: there is one accelerator."""
    return Uml()


def command(boot: Boot, channel_fd: int) -> list[str]:
    return [
        *_with_its_library(boot.kernel_image),
        f"mem={profile().memory_of(boot)}M",
        f"initrd={boot.initramfs}",
        f"powercut_disk={boot.disk_memory}"
        if boot.disk_memory
        else f"virtio_uml.device={boot.disk_socket}:{_VIRTIO_ID_BLOCK}",
        f"ubd0={boot.log}",
        f"ssl0=fd:{channel_fd}",
        *([f"powercut_hits={boot.hits}"] if boot.hits else []),
        f"uml_dir={boot.directory}/",
        *profile().command_line,
        f"powercut.port={profile().channel}",
    ]


def virtual_command(boot: Boot) -> list[str]:
    """The UML command line for a recording in virtual time. The kernel's random numbers follow from it, too:
    so it names nothing that differs from one boot to the next. Nor may the host's addresses (ASLR).
    """
    assert boot.virtual  # noqa: S101  # tells mypy
    virtual = boot.virtual
    hold = f"powercut_hold={virtual.order}:{virtual.patience_ns}:{virtual.seed}"
    return [
        *("setarch", "--addr-no-randomize"),
        *_with_its_library(boot.kernel_image),
        f"mem={profile().memory_of(boot)}M",
        "initrd=initramfs",
        "powercut_disk=disk",
        "powercut_log=log",
        "ssl0=null,fd:0",
        *(["powercut_hits=hits"] if boot.hits else []),
        "uml_dir=./",
        *profile().command_line,
        "time-travel=inf-cpu",
        f"time-travel-start={BEGIN_S * 10**9}",
        *([hold] if virtual.order else []),
        f"powercut.port={profile().channel}",
        f"powercut.script=/dev/powercut_log:{virtual.script_bytes}",
    ]


def _named_alike(boot: Boot) -> Path:
    """A folder in which what a guest is given has the same names each time."""
    where = boot.directory / "virtual"
    where.mkdir(exist_ok=True)
    assert boot.disk_memory  # noqa: S101  # see Boot; tells mypy
    named = {"initramfs": boot.initramfs, "disk": boot.disk_memory, "log": boot.log}
    for name, file in (named | ({"hits": boot.hits} if boot.hits else {})).items():
        (where / name).unlink(missing_ok=True)
        (where / name).symlink_to(file.absolute())
    return where


def has_driver(image: Path) -> bool:
    """Whether a kernel has our driver, in the version that this disk speaks with."""
    return DRIVER in _said_by(image)


@remembered
def _said_by(image: Path) -> frozenset[bytes]:
    """Which of the words that we look for in a kernel are in it: it has tens of megabytes."""
    with image.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        return frozenset(words for words in (DRIVER, RECORDS, *DECIDES) if contents.find(words) >= 0)


def _with_its_library(image: Path) -> list[str]:
    """The start of a command line. An image that comes with a loader of its own (see `Pin.library`) finds
    the C library beside it. No other program may see that library, so this is no variable of the whole
    environment.
    """
    loader = elf.interpreter(image)
    if loader is None or not (loader.parent / "libc.so.6").exists():
        return [str(image)]
    return ["env", f"LD_LIBRARY_PATH={loader.parent}", str(image)]


def environment(directory: Path, image: Path) -> dict[str, str]:
    """HOME: UML puts files there. TMPDIR: UML's memory is a file, which belongs in RAM."""
    shared_memory = "/dev/shm"  # noqa: S108  # the host's tmpfs, as UML's own default is where it is mounted
    shim = {"LD_PRELOAD": str(find_shim())} if needs_shim(release(image)) else {}
    return {
        "HOME": str(directory),
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": shared_memory,
        **shim,
    }


def needs_shim(version: str) -> bool:
    """Whether UML of this release needs `find_shim` in real time: it panics on hosts with AMX, or leaves its
    processes behind when it is killed.
    """
    numbers = re.findall(r"\d+", version)
    return tuple(map(int, numbers[:2])) < SOUND_SINCE


def find_shim() -> Path:
    """The library that lets older UML run on hosts with AMX, and leaves none of its processes behind; see
    `vms/umlshim`.
    """
    return built_part("POWERCUT_UMLSHIM", "release", "libpowercut_umlshim.so")


def release(image: Path) -> str:
    """The kernel's release, from `--version`. Raises EnvironmentLacks for a file that is not a UML kernel."""
    next_step = "name the file `linux` of a build ARCH=um"
    try:
        said = _version_said_by(image)
    except (OSError, subprocess.SubprocessError) as e:
        raise EnvironmentLacks(f"{image} is no UML kernel: {e}", next_step) from e
    version = re.search(r"\d+\.\d+\S*", said)
    if not version:
        raise EnvironmentLacks(f"{image} is no UML kernel", next_step)
    return version[0]


@remembered
def _version_said_by(image: Path) -> str:
    line = [*_with_its_library(image), "--version"]
    return subprocess.run(line, capture_output=True, text=True, timeout=10, check=True).stdout
