"""The guest's root: an initramfs (cpio "newc", Documentation/driver-api/early-userspace/buffer-format.rst)
around the static agent, the modules it loads, and the programs that a workload needs.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from harness.errors import EnvironmentLacks
from harness.kernels.find import read_module

DIRECTORIES = ("dev", "proc", "sys", "mnt", "tmp", "bin", "etc")


@dataclass
class Initramfs:
    """Files by absolute path in the guest, with permission bits; directories follow from them."""

    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # symbolic links: target by path

    def add(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path.lstrip("/")] = (mode, data)

    def add_modules(self, paths: Iterable[Path]) -> None:
        """Modules in load order; the agent loads what `/modules` lists."""
        names = []
        for path in paths:
            name = f"lib/modules/{path.name.split('.ko')[0]}.ko"
            self.add(name, read_module(path))
            names.append("/" + name)
        self.add("modules", "".join(f"{name}\n" for name in names).encode())

    def add_program(self, wanted: str) -> None:
        """A program of this host with the shared libraries that ldd(1) names, at their own paths.

        `wanted`: `program`, or `program:package`. Raises EnvironmentLacks where it is not installed.
        """
        name = wanted.partition(":")[0]
        path = find_program(wanted)
        self.add(f"bin/{name}", path.read_bytes(), 0o755)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        for library in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed.stdout, re.MULTILINE):
            self.add(library, Path(library).read_bytes(), 0o755)
        if name == "busybox":
            self._add_shell()

    def _add_shell(self) -> None:
        """A shell, its commands, and what applications call: see `harness.workloads.applications`."""
        listed = subprocess.run(
            [find_program("busybox"), "--list"], capture_output=True, text=True, check=True
        )
        for applet in listed.stdout.split():
            self.links[f"bin/{applet}"] = "busybox"
        del self.links["bin/busybox"]
        for tool in ("powercut-ack", "powercut-on-copy"):  # vms/agent/src/main.rs
            self.links[f"bin/{tool}"] = "/init"
        self.links["usr/bin"] = "/bin"

    def pack(self) -> bytes:
        """The archive, uncompressed: under emulation unpacking would cost more than copying."""
        directories = dict.fromkeys(DIRECTORIES)
        links = {name: target for name, target in self.links.items() if name not in self.files}
        for path in [*self.files, *links]:
            for parent in reversed(PurePosixPath(path).parents):
                directories.setdefault(str(parent))
        directories.pop(".", None)
        records = [_record(i, name, stat.S_IFDIR | 0o755, b"") for i, name in enumerate(directories)]
        # early console output of PID 1 needs a node before devtmpfs is mounted
        records.append(_record(len(records), "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
        for name, (mode, data) in self.files.items():
            records.append(_record(len(records), name, stat.S_IFREG | mode, data))
        for name, target in links.items():
            records.append(_record(len(records), name, stat.S_IFLNK | 0o777, target.encode()))
        records.append(_record(0, "TRAILER!!!", 0, b""))
        return b"".join(records)


def find_program(wanted: str) -> Path:
    """The host's `program`, or `program:package`. Raises EnvironmentLacks that names the package."""
    name, _, package = wanted.partition(":")
    found = shutil.which(name)
    if not found:
        raise EnvironmentLacks(
            f"the program {name}, which a workload runs in the guest, is not installed",
            f"run: apt-get install {package or name}",
        )
    return Path(found).resolve()


def _record(inode: int, name: str, mode: int, data: bytes, device: tuple[int, int] = (0, 0)) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode + 1, mode, 0, 0, links, 0, len(data), 0, 0, *device, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % f for f in fields) + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def build(agent: Path, modules: Iterable[Path], programs: Iterable[str], files: Mapping[str, bytes]) -> bytes:
    """The archive for a guest: agent as /init, modules, host programs, plain files."""
    root = Initramfs()
    root.add("init", agent.read_bytes(), 0o755)
    root.add_modules(modules)
    if busybox := shutil.which("busybox"):
        root.add("bin/busybox", Path(busybox).read_bytes(), 0o755)
    for program in sorted(set(programs)):
        root.add_program(program)
    for name, data in sorted(files.items()):
        root.add(name, data, 0o755)
    return root.pack()
