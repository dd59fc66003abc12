"""Pins: series of distribution kernels, a file of `kernels/` each."""

from __future__ import annotations

import re

import msgspec

from harness.host.archive import Archive
from harness.host.resources import resource


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A series of distribution kernels, a file of `kernels/`.

    Group 1 of the regular expression `package_pattern`, if it has one, matches the version, which users may
    name; a pattern with `=` is one of `NAME=VERSION`. `suites`: where to look if this machine's own apt
    sources do not offer it. `parts`: the packages in which the kernel is, if not in that one; `{}` stands for
    what follows `linux-image-` in its name, `|` separates alternatives. `machine`: the only one that can boot
    it; empty: any that boots a PC's kernel. `image`, `modules`: glob patterns of their places in the
    packages, or below `usr` there. `library`: the package of the C library with which a program of another
    suite runs.
    """

    summary: str
    series: str
    package_pattern: str
    name: str = ""
    suites: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    machine: str = ""
    image: str = "boot/vmlinuz-*"
    modules: str = "lib/modules/*"
    library: str = ""

    @property
    def archives(self) -> tuple[Archive, ...]:
        """Where its packages are looked for, in order."""
        return (Archive(), *map(Archive, self.suites))

    @property
    def source(self) -> str:
        """The package with its source; empty if there is none for this series alone."""
        return f"linux-source-{self.series}" if self.series else ""

    def needed(self, package: str) -> list[list[str]]:
        """The packages of which the kernel is made, each with its alternatives."""
        suffix = package.removeprefix("linux-image-")
        return [part.replace("{}", suffix).split("|") for part in self.parts] or [[package]]


def pins() -> dict[str, Pin]:
    """Every pin of `kernels/`, by name."""
    found = {}
    for path in sorted(resource("kernels").glob("*.toml")):
        pin = msgspec.toml.decode(path.read_bytes(), type=Pin)
        found[path.stem] = msgspec.structs.replace(pin, name=path.stem)
    return found


def asked_version(pin: Pin, spec: str) -> str | None:
    """ "" if `spec` names the pin itself, the version if it names one of the pin's versions, else None."""
    if spec == pin.name:
        return ""
    version = spec.removeprefix("debian-")
    return version if spec != version and version.startswith(pin.series + ".") else None


def matching(pin: Pin, version: str, packages: set[str]) -> list[str]:
    """The packages of the pin, only those of `version` if it is not empty; oldest first."""
    mine = [p for p in packages if re.fullmatch(pin.package_pattern, p)]
    wanted = [p for p in mine if version in ("", version_in(pin, p))]
    return sorted(wanted, key=lambda p: [int(n) for n in re.findall(r"\d+", version_in(pin, p) or p)])


def version_of(pin: Pin, package: str) -> str:
    """The version of a pin's package, for people."""
    return version_in(pin, package) or package.partition("=")[2]


def version_in(pin: Pin, package: str) -> str:
    """The version in the package's name; "" for a pin whose pattern has no version."""
    match = re.fullmatch(pin.package_pattern, package)
    return match[1] if match and match.re.groups else ""
