"""What a run directory names that is used only if this command line names it too.

A run directory may come from somebody else: it is data. But it names files on this host, which are treated as
follows:

- its kernel: on some machines a program that runs on the host with the user's rights. It is used if it is a
  pin (a distribution's package), if the cache holds the same bytes, or if this command line names it.
- module directories and single modules: they become part of that kernel, and depmod(8) writes into the
  directory. They are used if this command line names them.
- workload paths: files are parsed; an application's directory is copied into the guest and runs only there,
  on its own disk and without a network. None of it runs on the host.
- another run's recordings: copied and read as data, like the run's own.

Modes, machines, agent, disk and fsck are this installation's; a run directory cannot name others.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.host.cache import cache_dir
from harness.kernels.build import built_kernels
from harness.kernels.find import Kernel, find_kernel, pins
from harness.plan import Plan


@dataclass(frozen=True, slots=True)
class Named:
    """The kernel and modules that this command line names."""

    kernel: str | None = None
    modules: Path | None = None
    replaced: tuple[Path, ...] = ()


def chosen_kernel(plan: Plan, name: str, named: Named) -> Kernel:
    """The kernel that this command line names, with the modules it names; otherwise the run's own, called
    `name`. Raises UsageError for files that only the run directory names.
    """
    if named.kernel:
        return find_kernel(named.kernel, named.modules, named.replaced)
    modules = named.modules.resolve() if named.modules else None
    replaced = [p.resolve() for p in named.replaced]
    _need_named(
        [
            *([] if modules or not plan.modules else [("--modules", plan.modules)]),
            *([] if replaced else [("--module", path) for path in plan.replaced]),
        ]
    )
    return find_kernel(_trusted(name), modules, replaced)


def need_resumable(plan: Plan, named: Named) -> None:
    """Raises UsageError if the plan of a resumed run names files that this command line does not name, or if
    this command line names other files: a run continues with what it started with.
    """
    need_same_files(plan.kernel, plan.modules, plan.replaced, named)


def need_same_files(kernel: str, modules: str | None, replaced: Sequence[str], named: Named) -> None:
    """`need_resumable` for the parts of a plan: kernel, modules directory, single replaced modules."""
    now = {str(p.resolve()) for p in named.replaced}
    for option, begun_with, given in (
        ("--kernel", kernel, str(_resolved(named.kernel)) if named.kernel else None),
        ("--modules", modules, str(named.modules.resolve()) if named.modules else None),
    ):
        if given and given != begun_with:
            raise UsageError(
                f"{option} {given}: the run was started with {begun_with or 'none'}",
                "start a new run for that",
            )
    if other := now - set(replaced):
        raise UsageError(
            f"the run was not started with {', '.join(sorted(other))}", "start a new run for that"
        )
    if not named.kernel:
        _trusted(kernel)
    missing = [("--modules", modules)] if modules and not named.modules else []
    _need_named([*missing, *(("--module", path) for path in replaced if path not in now)])


def _resolved(kernel: str) -> Path | str:
    return Path(kernel).resolve() if Path(kernel).is_file() else kernel


def _trusted(kernel: str) -> str:
    """`kernel`, which a run directory names: a pin's name, or the cache's own copy of that file."""
    path = Path(kernel)
    if not path.is_file():
        return kernel  # a pin, or unknown: the lookup reports that
    cached = _in_cache(_sha256(path))
    if cached is None:
        _need_named([("--kernel", kernel)])
    return str(cached)


def _in_cache(sha256: str) -> Path | None:
    packages = (p.parent for p in cache_dir("kernels").glob("*/complete"))
    images = [image for image, _ in built_kernels()]
    images += [image for root in packages for pin in pins().values() for image in root.glob(pin.image)]
    return next((p for p in images if p.is_file() and _sha256(p) == sha256), None)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _need_named(files: list[tuple[str, str]]) -> None:
    if files:
        options = shlex.join(word for option in files for word in option)
        named = ", ".join(path for _, path in files)
        raise UsageError(
            f"{named}: only the run directory names this, and it would run with your rights; a run "
            "directory may come from somebody else, so its contents are treated as data",
            f"check it; if you trust it, name it yourself: {options}",
        )
