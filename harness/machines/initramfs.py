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
from harness.kernels import read_module

DIRECTORIES = ("dev", "proc", "sys", "mnt", "tmp", "bin", "etc")


@dataclass
class Initramfs:
    """Files by absolute path in the guest, with permission bits; directories follow from them."""

    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)

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

    def add_program(self, name: str) -> None:
        """A program of this host with the shared libraries that ldd(1) names, at their own paths.

        Raises EnvironmentLacks where it is not installed.
        """
        found = shutil.which(name)
        if not found:
            raise EnvironmentLacks(
                f"the program {name}, which a workload runs in the guest, is not installed",
                f"run: apt-get install {name}",
            )
        path = Path(found).resolve()
        self.add(f"bin/{name}", path.read_bytes(), 0o755)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        for library in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed.stdout, re.MULTILINE):
            self.add(library, Path(library).read_bytes(), 0o755)

    def pack(self) -> bytes:
        """The archive, uncompressed: under emulation unpacking would cost more than copying."""
        directories = dict.fromkeys(DIRECTORIES)
        for path in self.files:
            for parent in reversed(PurePosixPath(path).parents):
                directories.setdefault(str(parent))
        directories.pop(".", None)
        records = [_record(i, name, stat.S_IFDIR | 0o755, b"") for i, name in enumerate(directories)]
        # early console output of PID 1 needs a node before devtmpfs is mounted
        records.append(_record(len(records), "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
        for name, (mode, data) in self.files.items():
            records.append(_record(len(records), name, stat.S_IFREG | mode, data))
        records.append(_record(0, "TRAILER!!!", 0, b""))
        return b"".join(records)


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
        root.add(name, data)
    return root.pack()
