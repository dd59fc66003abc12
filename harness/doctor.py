"""Check what this host has and what it lacks, with the command that fixes it."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.cases.fsck_reads import find_library
from harness.errors import EnvironmentLacks, PowercutError
from harness.filesystems.profiles import profiles
from harness.filesystems.tools import Tool
from harness.guests.accel import known_of
from harness.guests.brought import host_files
from harness.guests.contained import allowed
from harness.guests.disk import find_binary
from harness.guests.guest_specs import temporary_folder
from harness.guests.machine import Machine, machine_of, names, profile_of
from harness.guests.session import find_agent
from harness.host.cache import cache_dir
from harness.host.files import refuses
from harness.host.programs import cached_program
from harness.host.resources import resource
from harness.kernels.build import built_kernels
from harness.kernels.pins import pins
from harness.tools_image.rootfs import cached_root, recipe
from harness.workloads.load import select_workloads

SPACE_BYTES = 4 << 30
ALWAYS = "ext4/ordered"
"""The mode that `powercut smoke` and `powercut run` cannot do without."""


_BASICS = {"apt-get": "apt", "dpkg-deb": "dpkg", "depmod": "kmod", "setpriv": "util-linux"}
"""Programs for downloading and unpacking kernels and for guests, with their packages."""


def elsewhere(distribution: str, names: Iterable[str]) -> list[str]:
    """What a distribution calls these packages of Debian's (`vms/packages.toml`)."""
    tables = msgspec.toml.decode(
        resource("vms", "packages.toml").read_bytes(), type=dict[str, dict[str, str]]
    )
    table = tables.get(distribution, {})
    return [table.get(name, name) for name in names]


def packages(checks: Iterable[HostCheck], *, optional: bool) -> list[str]:
    """Debian's names of the packages that would fix what is missing; `optional`: also what only some modes
    or workloads need.
    """
    wanted = (c.package for c in checks if c.package and (c.ok is False or (optional and c.ok is None)))
    return sorted(dict.fromkeys(wanted))


def distribution(os_release: str) -> str:
    """`debian`, `fedora` or `arch`, by the contents of /etc/os-release; empty for another one."""
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    return next((n for n in ("debian", "ubuntu", "fedora", "arch") if n in names), "").replace(
        "ubuntu", "debian"
    )


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One thing that runs need. `ok` None: not every run needs it (`detail` says which do), or it cannot be
    known yet. `fix`: the command that provides it; `package`: Debian's name for what it installs, if it does.
    """

    what: str
    ok: bool | None
    detail: str
    fix: str = ""
    package: str = ""


def examine(reports: Path) -> Iterator[HostCheck]:
    """Check everything that a run needs. `reports`: where run directories are kept. Where there is no place
    for the cache, that comes first, and what only the cache could tell is left out.
    """
    cache = _try("cache", lambda: str(cache_dir()))
    if not cache.ok:
        yield cache
    parts: list[Callable[[], Iterable[HostCheck]]] = [
        *(lambda name=name: _machine(name) for name in names()),
        _built,
        _of_file_systems,
        _of_workloads,
        _basics,
        _written,
        _kernels,
        _tools_guest,
        lambda: [_temporary()],
        lambda: [_space(reports)],
        lambda: [_space(cache_dir())],
    ]
    for part in parts:
        try:
            yield from part()
        except EnvironmentLacks:
            if cache.ok:
                raise


def _written() -> Iterator[HostCheck]:
    """What of the cache this user may not write to, as after a command of another user's: a run then has
    what is there, and makes nothing.
    """
    top = cache_dir()
    names = ("", "kernels", "kernels/building.lock", "rootfs", "rootfs.lock")
    if why := next(filter(None, (refuses(top / name) for name in names)), ""):
        fix = f"chown -R {getpass.getuser()} {shlex.quote(str(top))}, or export POWERCUT_CACHE=DIR"
        yield HostCheck("cache", None, f"{why}, so nothing can be downloaded or built: {fix}")


def _machine(name: str) -> Iterator[HostCheck]:
    for requirement in machine_of(name).requirements():
        yield _try(requirement.what, requirement.look)
    yield from _accelerators(name)


def _built() -> Iterator[HostCheck]:
    yield _try("disk process", lambda: str(find_binary()))
    yield _try("agent", lambda: str(find_agent()))
    yield _try("fsck's reads", lambda: str(find_library()))
    yield _namespaces()


def _namespaces() -> HostCheck:
    if allowed():
        return HostCheck("user namespaces", True, "checks run in them under any/*")
    slow = "not allowed here: checks under any/* run in a guest, which takes up to ten times as long"
    return HostCheck("user namespaces", None, slow)


def _of_file_systems() -> Iterator[HostCheck]:
    suites = {tool.program: tool.suites for p in profiles().values() for tool in p.tools}
    for (program, package), users in sorted(_programs().items()):
        yield _program(program, package, sorted(users), suites.get(program, ()))
    yield from _of_other_releases()


def _of_other_releases() -> Iterator[HostCheck]:
    """Programs that some modes take from another release even where this host has them."""
    users: dict[str, tuple[Tool, list[str]]] = {}
    for profile in profiles().values():
        for tool in profile.tools:
            if tool.always:
                users.setdefault(tool.title, (tool, []))[1].append(profile.name)
    for title, (tool, modes) in sorted(users.items()):
        found = None
        with contextlib.suppress(EnvironmentLacks):
            found = tool.path()
        where = found or f"for {', '.join(modes[:3])} fetched from {' and '.join(tool.suites)}, on first use"
        yield HostCheck(title, True if found else None, where)


def _of_workloads() -> Iterator[HostCheck]:
    """The files of the host that workloads bring. Of those of one package the first stands for all."""
    users: dict[tuple[str, str], set[str]] = {}
    packages: dict[str, str] = {}
    for workload in select_workloads(["applications"]):
        for wanted in workload.host_files:
            path, _, package = wanted.partition(":")
            first = packages.setdefault(package or path, path)
            users.setdefault((first, package), set()).add(workload.name)
    for (path, package), whose in sorted(users.items()):
        yield _file(path, package, sorted(whose))


def _basics() -> Iterator[HostCheck]:
    for program, package in _BASICS.items():
        path = shutil.which(program)
        yield HostCheck(program, bool(path), path or "not installed", f"apt-get install {package}", package)


def _kernels() -> Iterator[HostCheck]:
    cached = sorted(p.parent.name for p in cache_dir("kernels").glob("*/complete"))
    detail = ", ".join(cached) or f"none yet; {', '.join(pins())} are downloaded on first use"
    yield HostCheck("kernels", None if not cached else True, detail)
    built = sorted({f"{b.machine.upper()} {b.release}" for _, b in built_kernels()})
    none = "none yet; powercut kernel build makes one (minutes, once), and runs become several times as fast"
    yield HostCheck("built kernels", True if built else None, ", ".join(built) or none)


def _tools_guest() -> Iterator[HostCheck]:
    """The guest that `powercut trace` and `powercut measure` boot. `_programs` checks the programs that make
    it.
    """
    image = cached_root()
    if image:
        yield HostCheck("root image", True, f"{image} ({image.stat().st_size >> 20} MiB)")
    else:
        detail = "none yet; powercut trace, measure or findings makes it on first use (minutes, once)"
        yield HostCheck("root image", None, detail)


def _programs() -> dict[tuple[str, str], set[str]]:
    """The modes, workloads and commands that need each program, by (program, package)."""
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for needed in recipe().tools.items():
        users[needed] |= {"powercut trace", "powercut measure"}
    for profile in profiles().values():
        for tool in profile.tools:
            if not tool.always:
                users[tool.program, tool.package].add(profile.name)
    for workload in select_workloads(["all", "applications"]):
        for wanted in workload.programs:
            name, _, package = wanted.partition(":")
            users[name, package or name].add(workload.name)
    return users


def _file(path: str, package: str, users: Sequence[str]) -> HostCheck:
    """A file that applications bring into the guest; without it they are not run."""
    try:
        found = [*host_files(path)]
    except EnvironmentLacks:
        some = ", ".join(users[:3]) + (" and more" if len(users) > 3 else "")
        install = f"apt-get install {package}" if package else "install what it belongs to"
        return HostCheck(path, None, f"not here; for {some}: {install}", install, package)
    return HostCheck(path, True, found[-1])


def _program(name: str, package: str, users: Sequence[str], suites: Sequence[str] = ()) -> HostCheck:
    """A missing program that only some modes or workloads need is no failure: those are then not run. One of
    another release (`suites`) is fetched when a run needs it.
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if path:
        return HostCheck(name, True, path)
    install = f"apt-get install {package}"
    if ALWAYS in users:
        return HostCheck(name, False, "not installed", install, package)
    some = ", ".join(users[:3]) + (" and more" if len(users) > 3 else "")
    if suites:
        fetched = None
        with contextlib.suppress(EnvironmentLacks):  # no cache: that is told by itself
            fetched = cached_program(name, package)
        where = f"in the cache: {fetched}" if fetched else "on first use"
        return HostCheck(
            name, None, f"not installed; for {some} fetched from {' and '.join(suites)}, {where}"
        )
    return HostCheck(name, None, f"not installed; for {some}: {install}", install, package)


def _try(what: str, look: Callable[[], str]) -> HostCheck:
    try:
        return HostCheck(what, True, look())
    except PowercutError as e:
        return HostCheck(what, False, e.what, e.next_step.removeprefix("run: "))


def _accelerators(name: str) -> Iterator[HostCheck]:
    """The accelerators that may be missing; the last of a machine's list works everywhere."""
    *better, last = profile_of(name).accelerators
    for accel in better:
        machine = machine_of(name, accel)
        reason, works = machine.accel_lacks(), "opens and makes a virtual machine"
        known = None if reason else _known(machine)
        if known:
            reason = f"{works}, but a kernel does not come up under it ({known})"
        if reason:
            detail = f"{reason}: guests run under {last.upper()}, which is slower and works everywhere"
        elif known is None:
            detail = f"{works}; whether a kernel comes up is tried on the first run"
        else:
            detail = f"{works}, and a kernel came up under it"
        yield HostCheck(accel.upper(), None, detail)


def _known(machine: Machine) -> str | None:
    """What is remembered of it; nothing without the program itself, which has a version."""
    try:
        return known_of(machine)
    except PowercutError:
        return None


def _temporary() -> HostCheck:
    processes = [name for name in names() if profile_of(name).host_process]
    return _try("temporary folder", lambda: str(temporary_folder(processes)))


def _space(path: Path) -> HostCheck:
    existing = next(p for p in [path.resolve(), *path.resolve().parents] if p.exists())
    free = shutil.disk_usage(existing).free
    detail = f"{free >> 20} MiB free (a large run takes about {SPACE_BYTES >> 20})"
    return HostCheck(
        f"space at {path}", free >= SPACE_BYTES, detail, "" if free >= SPACE_BYTES else "free some space"
    )
