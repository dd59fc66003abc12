"""The guest's root: an initramfs (cpio "newc", Documentation/driver-api/early-userspace/buffer-format.rst)
with the static agent, the modules it loads, and the programs that a workload needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from harness.errors import EnvironmentLacks, UsageError
from harness.guests.brought import (
    ELF,
    USUAL,
    host_files,
    is_elf,
    libraries,
    library_of,
    python_files,
)
from harness.host.elf import linked
from harness.host.packed import read_module
from harness.host.programs import cached_program, command_of
from harness.model import Workload

DIRECTORIES = ("dev", "proc", "sys", "mnt", "tmp", "bin", "etc")
_FIRST_ID, _IDS = 1000, 60000
"""Users of applications have numbers from this range."""


@dataclass
class Initramfs:
    """Files by absolute path in the guest, with permission bits; directories are implied. `times`: when a
    file was last changed, where that matters.
    """

    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # symbolic links: target by path
    times: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[in_guest(path)] = (mode, data)

    def add_modules(self, paths: Iterable[Path]) -> None:
        """Modules in load order; the agent loads what `/modules` lists."""
        names = []
        for path in paths:
            name = f"lib/modules/{path.name.split('.ko')[0]}.ko"
            self.add(name, read_module(path))
            names.append("/" + name)
        self.add("modules", "".join(f"{name}\n" for name in names).encode())

    def add_program(self, wanted: str) -> None:
        """A program of this host with the shared libraries that it needs, at their own paths.

        `wanted`: `program`, or `program:package`; a program given as a path is at that path in the guest,
        and has its name as well if no other one has. Raises EnvironmentLacks if it is not installed.
        """
        asked = PurePosixPath(wanted.partition(":")[0])
        path = find_program(wanted)
        command = command_of(path)
        if len(command) > 1:
            self._add_cached(asked.name, command)
            return
        apart = asked.is_absolute() and str(asked.parent) not in ("/bin", "/usr/bin")  # these are one
        self.add(str(asked) if apart else f"bin/{asked.name}", path.read_bytes(), 0o755)
        if apart:
            self.links.setdefault(f"bin/{asked.name}", str(asked))
        self._add_libraries([path])
        if asked.name == "busybox":
            self._add_shell()

    def _add_libraries(self, paths: Iterable[Path]) -> None:
        """Add the libraries of programs or libraries of this host."""
        for name, library in libraries(paths).items():
            self.add(name, library.read_bytes(), 0o755)

    def _add_cached(self, name: str, command: Sequence[str]) -> None:
        """A program of another release, with its own loader and libraries at their own paths; a script with
        its name runs this command.
        """
        loader, _, folders, program = command
        own = libraries([Path(program)], folders.split(":"))
        for path in (loader, program, *own):
            self.add(path, Path(path).read_bytes(), 0o755)
        self.add(f"bin/{name}", f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'.encode(), 0o755)

    def add_host_files(self, files: Mapping[str, Path]) -> None:
        """Files of this host, readable by everybody, with the libraries that programs among them need. They
        keep their times: Python compares those of its modules.
        """
        for name, path in files.items():
            seen = path.stat()
            self.add(name, path.read_bytes(), 0o755 if seen.st_mode & 0o111 else 0o644)
            self.times[in_guest(name)] = int(seen.st_mtime)
        self._add_libraries(path for path in files.values() if is_elf(path))

    def add_python(self) -> None:
        """Python with its library, also as `python3` and `python`. Raises EnvironmentLacks."""
        program, files = python_files()
        self.add_host_files(files)
        name = PurePosixPath(program).name
        self.links |= {f"bin/{n}": program for n in ("python3", "python", name) if f"/bin/{n}" != program}

    def add_users(self, names: Iterable[str]) -> None:
        """Users beside root, each with a group of the same name; and `powercut-ack` for them: a mark in the
        log takes root's rights.
        """
        users = {"root": 0} | {name: user_id(name) for name in names}
        self.add("etc/passwd", "".join(f"{n}:x:{i}:{i}::/:/bin/sh\n" for n, i in users.items()).encode())
        self.add("etc/group", "".join(f"{n}:x:{i}:\n" for n, i in users.items()).encode())
        self.add("bin/powercut-ack", self.files["init"][1], 0o4755)

    def add_workload(self, files: Mapping[str, bytes]) -> None:
        """The files of a workload, and the libraries of this host that the programs among them need.

        Raises UsageError for a malformed program, EnvironmentLacks for a missing library.
        """
        for name, data in sorted(files.items()):
            self.add(name, data, 0o755)
        for name, path in libraries_of(files).items():
            # a loader is named by its path; a library is looked for where this distribution keeps them
            self.add(name if "/" in name else f"{USUAL[0]}/{name}", path.read_bytes(), 0o755)
            self._add_libraries([path])
        for name, place in _beside(files).items():
            self.links[f"{USUAL[0]}/{name}".lstrip("/")] = place

    def _add_shell(self) -> None:
        """A shell, its commands, and what applications call: see `harness.workloads.applications`."""
        listed = subprocess.run(
            [find_program("busybox"), "--list"], capture_output=True, text=True, check=True
        )
        for applet in listed.stdout.split():
            self.links[f"bin/{applet}"] = "busybox"
        del self.links["bin/busybox"]
        # vms/agent/src/main.rs
        for tool in ("ack", "ack-lines", "neighbour", "pressure", "as", "on-copy", "in"):
            self.links[f"bin/powercut-{tool}"] = "/init"
        self.links["usr/bin"] = "/bin"

    def pack(self) -> bytes:
        """The archive, uncompressed: under emulation, decompressing would cost more than copying."""
        directories = dict.fromkeys(DIRECTORIES)
        links = {name: target for name, target in self.links.items() if name not in self.files}
        for path in [*self.files, *links]:
            for parent in reversed(PurePosixPath(path).parents):
                directories.setdefault(str(parent))
        directories.pop(".", None)
        records = [
            record(i, name, stat.S_IFDIR | (0o1777 if name == "tmp" else 0o755), b"")
            for i, name in enumerate(directories)
        ]
        # early console output of PID 1 needs a node before devtmpfs is mounted
        records.append(record(len(records), "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
        for name, (mode, data) in self.files.items():
            time = self.times.get(name, 0)
            records.append(record(len(records), name, stat.S_IFREG | mode, data, time=time))
        for name, target in links.items():
            records.append(record(len(records), name, stat.S_IFLNK | 0o777, target.encode()))
        return b"".join([*records, TRAILER])


def find_program(wanted: str) -> Path:
    """The host's `program`, or `program:package`; sbin is searched too, and the cache. Raises
    EnvironmentLacks, which names the package.
    """
    name, _, package = wanted.partition(":")
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if not found and (fetched := cached_program(name, package)):
        return fetched.resolve()
    if not found:
        raise EnvironmentLacks(
            f"the program {name}, which a workload runs in the guest, is not installed",
            f"run: apt-get install {package}" if package else _whose(name),
        )
    return Path(found).resolve()


def _whose(name: str) -> str:
    """What to do about a program of which no package is known: the name may be mistyped as well."""
    search = f"apt-file search bin/{PurePosixPath(name).name}"
    return f"is {name} spelled rightly? `{search}` tells the package to install"


def in_guest(path: str) -> str:
    """Where a file with this path is put: `/usr/bin` is a link to `/bin` in the guest."""
    return re.sub("^/?usr/bin/", "bin/", path).lstrip("/")


def user_id(name: str) -> int:
    """The number of a user in the guest: always the same, whatever other users there are."""
    return 0 if name == "root" else _FIRST_ID + zlib.crc32(name.encode()) % _IDS


def libraries_of(files: Mapping[str, bytes]) -> dict[str, Path]:
    """Paths on this host of the libraries that a workload's programs need and its files do not include."""
    beside = {PurePosixPath(name).name for name in files}
    return {name: library_of(name) for name in _wanted(files) if name not in beside}


def _beside(files: Mapping[str, bytes]) -> dict[str, str]:
    """The libraries that a workload's programs need and its files include: paths in the guest by name."""
    beside = {PurePosixPath(name).name: name for name in files}
    return {name: beside[name] for name in _wanted(files) if name in beside}


def _wanted(files: Mapping[str, bytes]) -> list[str]:
    return [*dict.fromkeys(n for name, data in files.items() if data[:4] == ELF for n in needed(data, name))]


def record(
    inode: int,
    name: str,
    mode: int,
    data: bytes = b"",
    device: tuple[int, int] = (0, 0),
    time: int = 0,
    owner: tuple[int, int] = (0, 0),
) -> bytes:
    """A file in the archive. Numbers are cut to the 32 bits that they have there."""
    encoded = os.fsencode(name) + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode + 1, mode, *owner, links, time, len(data), 0, 0, *device, len(encoded), 0)
    head = _MAGIC + b"".join(b"%08X" % (f & 0xFFFFFFFF) for f in fields) + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


_MAGIC = b"070701"
_NUMBERED = len(_MAGIC) + 8
"""How long the part of a record is that tells its number, which the records before it make."""
_HEAD_BYTES = len(_MAGIC) + 13 * 8
_COMPILED = re.compile(rb"/__pycache__(/[^/]*\.pyc)?$")
TRAILER = record(0, "TRAILER!!!", 0)
"""The end of an archive. Another archive may follow."""


def build(
    agent: Path,
    modules: Iterable[Path],
    programs: Iterable[str],
    files: Mapping[str, bytes],
    workloads: Iterable[Workload] = (),
) -> bytes:
    """The archive for a guest: agent as /init, modules, host programs, plain files, what workloads bring;
    without the roots of images.
    """
    workloads = [*workloads]
    root = Initramfs()
    root.add("init", agent.read_bytes(), 0o755)
    root.add_modules(modules)
    if busybox := shutil.which("busybox"):
        root.add("bin/busybox", Path(busybox).read_bytes(), 0o755)
    for program in sorted({*programs, *(p for w in workloads for p in w.programs)}):
        root.add_program(program)
    for wanted in sorted({wanted for w in workloads for wanted in w.host_files}):
        root.add_host_files(host_files(wanted))
    if any(w.runtime == "python" for w in workloads):
        root.add_python()
    if users := sorted({w.user for w in workloads if w.user and not w.image}):
        root.add_users(users)
    for workload in workloads:
        if workload.image:  # which has the libraries
            root.files |= {in_guest(path): (0o755, data) for path, data in workload.files.items()}
    alone = [w for w in workloads if not w.image]
    root.add_workload({**files, **{path: data for w in alone for path, data in w.files.items()}})
    return root.pack()


def pinned_hash(archive: Path) -> str:
    """SHA-256 of an archive, but for the modules that Python on the host has compiled: it may compile another
    one at any time, and runs none that is not of the source beside it.
    """
    found = hashlib.sha256()
    with archive.open("rb") as file:
        while head := file.read(_HEAD_BYTES):
            if not head.startswith(_MAGIC):
                found.update(head)
                continue
            size, name_size = int(head[54:62], 16), int(head[94:102], 16)
            name = file.read(name_size + -(_HEAD_BYTES + name_size) % 4)[: name_size - 1]
            data = file.read(size + -size % 4)
            if not _COMPILED.search(name):
                found.update(head[_NUMBERED:] + name + data)
    return found.hexdigest()


def need_brought(workload: Workload) -> None:
    """Raises EnvironmentLacks if this host lacks something that the workload brings into the guest."""
    for program in workload.programs:
        find_program(program)
    for wanted in workload.host_files:
        libraries(path for path in host_files(wanted).values() if is_elf(path))
    if workload.runtime == "python":
        python_files()
    if not workload.image:
        libraries_of(workload.files)


def needed(data: bytes, name: str) -> list[str]:
    """What an ELF file needs to start: its loader by path, and libraries by name. Raises UsageError, with
    `name` as the file's name, if the file is damaged or for another architecture.
    """
    try:
        found = linked(data)
    except ValueError as e:
        raise UsageError(f"{name} cannot be started in the guest: {e}", "build it again, for x86-64") from e
    return [*filter(None, [found.loader]), *found.libraries]
