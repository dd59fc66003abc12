"""The packages with a kernel's headers, unpacked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from harness.errors import EnvironmentLacks, KernelError
from harness.host.archive import Archive, unpack
from harness.kernels.find import Kernel


def unpack_headers(kernel: Kernel, root: Path, scratch: Path, *, build_tools: bool = False) -> Path:
    """Unpack the headers of exactly this kernel below `root`; returns the folder for `make -C`. Downloads go
    to `scratch`. `build_tools`: with what kbuild runs while it builds modules.

    Raises KernelError if there are none: a user's own kernel, or one that apt no longer has.
    """
    if kernel.modules is None or not kernel.package_version:
        raise KernelError(f"there are no headers for {kernel.name}: it did not come from a package")
    wanted = f"linux-headers-{kernel.modules.name}"
    archive = _archive_of(wanted, [Archive(), *map(Archive, kernel.suites)])
    depends = _fetch(archive, wanted, kernel.package_version, root, scratch)
    others = r"linux-headers-\S+-common" + (r"|linux-kbuild-[^\s,]+" if build_tools else "")
    for package in re.findall(others, depends):
        _fetch(archive, package, kernel.package_version, root, scratch)
    return root / "usr/src" / wanted


def _archive_of(package: str, archives: Sequence[Archive]) -> Archive:
    """The first that has a package. Raises KernelError, with the package's name, if none has."""
    found = next((a for a in archives if a.offered(re.escape(package))), None)
    if found is None:
        raise KernelError(f"no headers: no archive has the package {package} any more")
    return found


def _fetch(archive: Archive, package: str, version: str, root: Path, scratch: Path) -> str:
    """Unpack one package of that version into `root`; returns its dependencies."""
    try:
        found = archive.download(f"{package}={version}", scratch)
    except EnvironmentLacks as e:
        raise KernelError(f"no headers: {e.what}", e.next_step) from e
    return unpack(found, root, "Depends")
