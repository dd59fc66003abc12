"""Measurements of the host: its own mounts, processor time and memory of processes, its description."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.bench.figures import Memory
from harness.errors import EnvironmentLacks
from harness.filesystems.profile import Profile
from harness.filesystems.tools import attached
from harness.guests.machine import default_name, machine_of
from harness.guests.session import Session

# --- mounts ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop device over `file`, and where it is mounted."""

    device: str
    file: Path
    mount_point: Path

    def mount_and_unmount(self, profile: Profile) -> dict[str, float]:
        """Mount and unmount by system calls; the times in ms. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)
        words = [self.device, str(self.mount_point), profile.fstype, 0, profile.mount_options]
        arguments = [w.encode() if isinstance(w, str) else w for w in words]
        begun = time.perf_counter()
        failed = libc.mount(*arguments)
        mounted = time.perf_counter()
        if failed:
            raise OSError(ctypes.get_errno(), f"mount(2): {os.strerror(ctypes.get_errno())}", self.device)
        failed = libc.umount2(str(self.mount_point).encode(), 0)
        ended = time.perf_counter()
        if failed:
            raise OSError(ctypes.get_errno(), f"umount2(2): {os.strerror(ctypes.get_errno())}", self.device)
        return {"mount": (mounted - begun) * 1000, "unmount": (ended - mounted) * 1000}

    def mount_by_processes(self, profile: Profile) -> dict[str, float]:
        """Mount and unmount by mount(8) and umount(8); the times in ms. Raises CalledProcessError."""
        options = ["-t", profile.fstype, "-o", profile.mount_options or "defaults"]
        begun = time.perf_counter()
        subprocess.run(
            ["mount", *options, self.device, str(self.mount_point)], check=True, capture_output=True
        )
        mounted = time.perf_counter()
        subprocess.run(["umount", str(self.mount_point)], check=True)
        return {"mount": (mounted - begun) * 1000, "unmount": (time.perf_counter() - mounted) * 1000}


@contextlib.contextmanager
def open_loop(base: Path, scratch: Path) -> Iterator[Loop]:
    """A loop device over a copy of `base`, in memory where the host has /dev/shm: a flush then costs nothing,
    as on Powercut's disk.

    Raises EnvironmentLacks if this user may not mount, or the host has no free loop device.
    """
    if os.geteuid():
        raise EnvironmentLacks("mounting a loop device on the host needs root")
    with attached():
        yield from _loop(base, scratch)


def _loop(base: Path, scratch: Path) -> Iterator[Loop]:
    memory = Path("/dev/shm")  # noqa: S108  # the host's tmpfs, wanted for being one
    folder = Path(tempfile.mkdtemp(prefix="powercut-bench-", dir=memory if memory.is_dir() else scratch))
    try:
        file, mount_point = folder / "image", folder / "mnt"
        shutil.copyfile(base, file)
        mount_point.mkdir()
        said = subprocess.run(
            ["losetup", "--find", "--show", str(file)], capture_output=True, text=True, check=False
        )
        if said.returncode:
            raise EnvironmentLacks(f"no loop device to be had: {said.stderr.strip()}")
        device = said.stdout.strip()
        try:
            yield Loop(device, file, mount_point)
        finally:
            subprocess.run(["umount", "-q", str(mount_point)], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["losetup", "--detach", device], check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def time_fsck(profile: Profile, image: Path) -> dict[str, float]:
    begun = time.perf_counter()
    profile.check_filesystem(image)
    return {"fsck": (time.perf_counter() - begun) * 1000}


# --- processes -------------------------------------------------------------------------------

_TICKS = os.sysconf("SC_CLK_TCK")


def pids_of(session: Session) -> dict[str, int]:
    """Process ids of one session, by name."""
    session.guest()
    guest = session.guest_pid
    assert guest is not None  # noqa: S101  # it was started above; tells mypy
    return {"powercut": os.getpid(), "disk": session.disk.pid, "guest": guest}


def session_cpu_s(session: Session) -> float:
    """Processor time so far, in seconds, of the session's processes and of all programs that have ended."""
    pids = pids_of(session)
    guests = [pids["guest"], *_group(pids["guest"])]
    return own_cpu_s() + sum(map(_process_cpu_s, {pids["disk"], *guests, *session.servers.pids()}))


def own_cpu_s() -> float:
    usages = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def _process_cpu_s(pid: int) -> float:
    """utime, stime, cutime and cstime of /proc/PID/stat (proc(5)), in seconds: of a process and of its
    children that have ended. 0 for one that has ended itself.
    """
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11:15])) / _TICKS
    return 0.0


def _group(leader: int) -> list[int]:
    """Processes of the group that `leader` leads, such as a machine's; empty if it leads none."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if int(words[2]) == leader:
                members.append(int(stat.parent.name))
    return members


def forget_peak(pid: int) -> None:
    """Reset VmHWM (proc(5), clear_refs). Where that is not possible, the peak includes earlier use."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_of(pid: int) -> Memory:
    """Memory of a process, and of the group that it leads: shares are summed, the peak is the process's."""
    peak = _kibibytes(Path(f"/proc/{pid}/status")).get("VmHWM")
    shares = [_kibibytes(Path(f"/proc/{p}/smaps_rollup")) for p in {pid, *_group(pid)}]
    counted = [share for share in shares if share]
    sums = [sum(share.get(f"Pss_{kind}", 0) for share in counted) for kind in ("Anon", "Shmem", "File")]
    own, shared, mapped = (kib / 1024 if counted else None for kib in sums)
    return Memory(None if peak is None else peak / 1024, own, shared, mapped)


def _kibibytes(file: Path) -> dict[str, int]:
    """The values of lines such as `VmHWM:   81472 kB`, by name."""
    with contextlib.suppress(OSError):
        lines = [line.split() for line in file.read_text().splitlines()]
        return {words[0].rstrip(":"): int(words[1]) for words in lines if words[2:] == ["kB"]}
    return {}


def beyond_image(memory: Mapping[str, Memory]) -> float | None:
    """Memory of one session (guest and disk) without the files that the disk maps, in MiB; shared memory
    counts once. None where the kernel does not report it.
    """
    guest, disk = memory["guest"], memory["disk"]
    parts = (guest.own, guest.shared, guest.mapped, disk.own, disk.shared)
    return None if None in parts else sum(p for p in parts if p is not None)


# --- what it is ------------------------------------------------------------------------------


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def described(load_before: float) -> str:
    """The properties of this host on which the figures depend. Load: its average over one minute, before and
    after; if it is well above 1, other processes have affected the times.
    """
    cpus = [
        line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")
    ]
    memory = _kibibytes(Path("/proc/meminfo")).get("MemTotal", 0)
    return (
        f"{cpus[0] if cpus else platform.machine()}, {cores()} cores, {memory >> 10:,} MiB, "
        f"Linux {platform.release()}, {machine_of(default_name()).described}, "
        f"load {load_before} before and {load_now()} after"
    )


def load_now() -> float:
    return round(os.getloadavg()[0], 1)


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []
