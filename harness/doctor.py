"""What this host has, what it lacks, and the command that mends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.cache import cache_dir
from harness.errors import PowercutError
from harness.filesystems import profiles
from harness.kernels import pins
from harness.machines import qemu
from harness.machines.disk import find_binary
from harness.machines.worker import find_agent
from harness.rootfs import cached_root, recipe
from harness.workloads import select_workloads

SPACE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """`ok` None: not needed here, or cannot be known yet."""

    what: str
    ok: bool | None
    detail: str
    fix: str = ""


def examine(reports: Path) -> Iterator[Finding]:
    """Look at everything that a run needs."""
    yield _try("QEMU", lambda: f"version {qemu.version()}")
    yield from _accelerators()
    yield _try("disk process", lambda: str(find_binary()))
    yield _try("agent", lambda: str(find_agent()))
    for program, package in sorted(_programs()):
        path = shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin")
        fix = "" if path else f"apt-get install {package}"
        yield Finding(program, bool(path), path or "not installed", fix)
    for program in ("apt-get", "dpkg-deb", "depmod", "setpriv", "busybox"):
        yield Finding(
            program, bool(shutil.which(program)), shutil.which(program) or "not installed", "make setup"
        )
    cached = sorted(p.parent.name for p in cache_dir("kernels").glob("*/complete"))
    detail = ", ".join(cached) or f"none yet; {', '.join(pins())} are downloaded on first use"
    yield Finding("kernels", None if not cached else True, detail)
    yield from _tools_guest()
    yield from (_space(path) for path in (reports, cache_dir()))


def _tools_guest() -> Iterator[Finding]:
    """What `powercut trace` and `powercut measure` boot."""
    for program, package in sorted(recipe().tools.items()):
        path = shutil.which(program)
        fix = "" if path else f"apt-get install {package}"
        yield Finding(program, bool(path), path or "not installed; for trace and measure", fix)
    image = cached_root()
    if image:
        yield Finding("root image", True, f"{image} ({image.stat().st_size >> 20} MiB)")
    else:
        detail = "none yet; made on first use of powercut trace or measure (minutes, once), or by make rootfs"
        yield Finding("root image", None, detail)


def _programs() -> set[tuple[str, str]]:
    tools = [tool for p in profiles().values() for tool in p.tools]
    wanted = {p for w in select_workloads(["all", "applications"]) for p in w.programs}
    in_guest = {(name, package or name) for name, _, package in (p.partition(":") for p in wanted)}
    return {(t.program, t.package) for t in tools} | in_guest


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, look())
    except PowercutError as e:
        return Finding(what, False, e.what, e.next_step.removeprefix("run: "))


def _accelerators() -> Iterator[Finding]:
    if not Path("/dev/kvm").exists():
        yield Finding("KVM", None, "no /dev/kvm: guests run under TCG, which is slower and works everywhere")
        return
    memory = cache_dir() / "accel.json"
    known = memory.read_text() if memory.exists() else ""
    detail = "opens; " + (
        f"tried before: {known}" if known else "whether a kernel comes up is tried on the first run"
    )
    yield Finding("KVM", None, " ".join(detail.split()))


def _space(path: Path) -> Finding:
    existing = next(p for p in [path.resolve(), *path.resolve().parents] if p.exists())
    free = shutil.disk_usage(existing).free
    detail = f"{free >> 20} MiB free (a large run takes about {SPACE_BYTES >> 20})"
    return Finding(
        f"space at {path}", free >= SPACE_BYTES, detail, "" if free >= SPACE_BYTES else "free some space"
    )
