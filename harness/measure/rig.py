"""The measuring guest, with a fresh file system for each sample.

The file system is made in the guest, as its users make it (`[tools_image]` of its profile): a profile's
`[mkfs]` makes small journals for small images.
"""

from __future__ import annotations

import contextlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from harness.errors import GuestError, KernelError, PowercutError
from harness.filesystems.profile import Profile
from harness.filesystems.tracepoints import Tracepoints
from harness.kernels.module_files import resolve_modules
from harness.measure.comparison import Comparison, Configuration, Host, Sizes, Surroundings
from harness.tools_image.guest import MOUNT_POINT, ToolsGuest, tools_guest
from harness.tracing.probes import Probes, start_probes

MKFS_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 1200.0
SCRIPTS = Path(__file__).parent / "guest"


class Rig:
    """A guest that boots when it is first needed, and again after it was lost."""

    def __init__(self, boot: Callable[[], AbstractContextManager[ToolsGuest]]) -> None:
        self._boot = boot
        self._life = contextlib.ExitStack()
        self._guest: ToolsGuest | None = None
        self._scripts: set[str] = set()
        self._probes: Probes | None = None

    @property
    def guest(self) -> ToolsGuest:
        """The running guest. Raises GuestLost if it does not boot."""
        if self._guest is None or not self._guest.alive:
            self.close()
            self._guest = self._life.enter_context(self._boot())
        return self._guest

    @property
    def up(self) -> bool:
        """Whether a guest is running."""
        return self._guest is not None and self._guest.alive

    def close(self) -> None:
        """End the guest; the next use boots another."""
        self._guest = self._probes = None
        self._scripts.clear()
        self._life.close()

    def run(self, argv: Sequence[str], timeout_s: float = RUN_TIMEOUT_S) -> str:
        """Run a program; returns its output. Raises GuestError with the output if the exit code is not 0."""
        return self.guest.run(argv, timeout_s=timeout_s).output

    def shell(self, line: str, timeout_s: float = RUN_TIMEOUT_S) -> str:
        """The same for a line of shell, which stops at the first command that fails."""
        return self.run(["/bin/sh", "-ec", line], timeout_s)

    def script(self, name: str, given: Mapping[str, object]) -> dict[str, object]:
        """Run a program of `harness/measure/guest` and return its answer."""
        path = f"/tmp/{name}.py"  # noqa: S108 - of the guest
        guest = self.guest  # first: a new one has no programs yet
        if name not in self._scripts:
            guest.put(path, (SCRIPTS / f"{name}.py").read_bytes())
            self._scripts.add(name)
        said = self.run(["python3", path, json.dumps(given)])
        try:
            answer = json.loads(said.strip().splitlines()[-1])
        except (ValueError, IndexError) as e:
            raise GuestError(f"{name}.py printed no JSON: {said[-300:]!r}") from e
        if not isinstance(answer, dict):
            raise GuestError(f"{name}.py printed {answer!r}, not an object")
        return answer

    def make(self, profile: Profile, device: str, more: Sequence[str] = ()) -> None:
        """Run mkfs. Raises GuestError with its output."""
        self.run([*profile.tools_mkfs, *more, device], MKFS_TIMEOUT_S)

    def probes(self, families: Sequence[Tracepoints | None]) -> Probes:
        """Probes for these tracepoints; loaded once, they stay for the guest's life."""
        guest = self.guest  # first: a new one has no probes yet
        if self._probes is None:
            self._probes = start_probes(guest, families)
        return self._probes

    def sectors_written(self) -> int:
        """Sectors of 512 bytes written to the disk so far (Documentation/block/stat.rst, field 7)."""
        name = self.guest.device.removeprefix("/dev/")
        return int(self.run(["cat", f"/sys/class/block/{name}/stat"]).split()[6])

    def drop_caches(self) -> None:
        """Write back and drop the page cache."""
        self.shell("sync; echo 3 > /proc/sys/vm/drop_caches")

    @contextlib.contextmanager
    def fresh(self, configuration: Configuration, device: str = "") -> Iterator[str]:
        """Make and mount an empty file system; yields the mount point. It is unmounted in any case; after an
        error the guest is given up.
        """
        device = device or self.guest.device
        self.make(configuration.profile, device, configuration.mkfs)
        self.mount(configuration.profile.fstype, device, configuration.options)
        try:
            yield MOUNT_POINT
        except BaseException:
            with contextlib.suppress(PowercutError):  # the first error is the one to tell
                self.run(["umount", MOUNT_POINT])
            self.close()
            raise
        self.run(["umount", MOUNT_POINT])

    def mount(self, fstype: str, device: str, options: str, where: str = MOUNT_POINT) -> None:
        """Run mount(8). Raises GuestError with the kernel's messages if it fails."""
        words = ["-o", options] if options else []
        self.run(["mkdir", "-p", where])
        try:
            self.run(["mount", "-t", fstype, *words, device, where])
        except GuestError as e:
            said = self.run(["dmesg"]).strip().splitlines()[-2:]
            raise GuestError(f"{e.what}; the kernel said: {' / '.join(said)}") from e


class InGuest(Comparison[Rig]):
    """A measurement in the guest with tools, on its disk of `disk_mib` MiB.

    `flushes`: a flush reaches the host's disk and costs what it costs there; otherwise it costs nothing, and
    only the work of processor and disk is compared. `disk_mib_s`: above 0, limits the disk's throughput.
    """

    memory_mib = 512
    warms_up = True
    flushes = False
    disk_mib_s = 0

    @abstractmethod
    def disk_mib(self, sizes: Sizes) -> int:
        """The disk that these sizes need."""

    @contextlib.contextmanager
    def rig(self, host: Host, sizes: Sizes) -> Iterator[Rig]:
        modules = _present(host, [m for c in self.configurations() for m in c.profile.modules])
        rig = Rig(
            lambda: tools_guest(
                host.kernel,
                host.scratch / "guest",
                disk_bytes=self.disk_mib(sizes) << 20,
                progress=host.progress,
                modules=modules,
                memory_mib=self.memory_mib,
                accel=host.accel,
                flushes=self.flushes,
                disk_mib_s=self.disk_mib_s,
            )
        )
        try:
            yield rig
        finally:
            rig.close()

    def surroundings(self, rig: Rig) -> Surroundings:
        guest = rig.guest
        return Surroundings(f"Linux {guest.kernel_release}", guest.machine, guest.accel)


def _present(host: Host, names: Sequence[str]) -> list[str]:
    """The modules that the kernel has; a file system that it lacks fails to mount, with a reason."""
    found = []
    for name in dict.fromkeys(names):
        with contextlib.suppress(KernelError):
            resolve_modules(host.kernel, [name])
            found.append(name)
    return found
