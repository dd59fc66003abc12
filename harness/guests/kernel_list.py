"""Which kernels can be had, which are in the cache, and what judges them: `powercut list kernels`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import EnvironmentLacks
from harness.guests.guest_specs import built_kernel
from harness.guests.machine import default_name, profile_of
from harness.host.archive import Archive
from harness.kernels.build import source_packages
from harness.kernels.packages import cached_packages, cached_version, offered, why_not_offered
from harness.kernels.pins import Pin, version_of

NEITHER = "-"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A pin. `newest`: the newest version that can be had; `cached`: the versions in the cache; `judge`: what
    judges the newest of these at native speed, or how to get that; `why_not`: why none can be had.
    """

    name: str
    newest: str
    cached: str
    judge: str
    summary: str
    why_not: str = ""

    @property
    def words(self) -> tuple[str, str, str, str, str]:
        """Its cells, for people."""
        return (self.name, self.newest, self.cached, self.judge, self.summary)


HEAD = KernelRow("kernel", "can be had", "in the cache", "judged at native speed", "what it is")


def row_of(pin: Pin) -> KernelRow:
    """What is known of a pin. Downloads package lists where there are none yet."""
    cached = cached_packages(pin)
    versions = ", ".join(version_of(pin, p) for p in cached) or NEITHER
    newest, package_version, why_not = NEITHER, "", ""
    try:
        found = offered(pin)
        if found:
            newest, package_version = version_of(pin, found[0]), _exact_version(*found)
        else:
            why_not = why_not_offered(pin)
    except EnvironmentLacks as e:
        newest, why_not = "unknown", e.line
    if cached:
        package_version = cached_version(cached[-1])
    return KernelRow(pin.name, newest, versions, _judge(pin, package_version), pin.summary, why_not)


def _exact_version(package: str, archive: Archive) -> str:
    """The version of a package, as its distribution writes it."""
    name, _, version = package.partition("=")
    return version or max(archive.offered(f"{re.escape(name)}=.*"), default="=").partition("=")[2]


def _judge(pin: Pin, package_version: str) -> str:
    """The machine that judges this kernel natively; else the command that builds a kernel for it."""
    if pin.machine:
        return f"{profile_of(pin.machine).title} itself"
    if not package_version:
        return NEITHER
    for machine in profile_of(default_name()).confirms:
        if built := built_kernel(machine, package_version):
            return f"{profile_of(machine).title}: {built.name}"
    if f"{pin.source}={package_version}" in source_packages(pin):
        return f"powercut kernel build {pin.source}"
    return f"{NEITHER} (no package has its source)"
