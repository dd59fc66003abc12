"""The planted faults: the TOML files of `kernels/faults`, each a few changed words in one kernel's source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource
from harness.kernels.edits import Edit
from harness.model import DISK_FAULTS
from harness.series.catalogue import Listed, load_all, named

ALL_WORKLOADS = "all"


class PlantedFault(Listed, frozen=True, kw_only=True):
    """`kernels/faults/NAME.toml`. `summary`: what the changed kernel does wrong. `modes`: those in which it
    matters. `workloads`: those that are expected to show it; none: all. `oracles`: those that should speak.
    `disk`: how the disk is faulty in recovery (`powercut run --disk`), `again`: how often recovery is cut
    (`--again`), where that shows it. `imitates`: the commit that fixed or made such a fault; empty if it is
    invented. `equivalent`: the proof that no crash breaks a promise that the unmodified kernel keeps. `gap`:
    why Powercut is known to miss it. `one_cache`: of a fault below which there are several devices, why it
    shows as if these shared one cache, too; the others are missed then (`make caches`). `source`: the source
    package that alone has the code; empty: that of a campaign that names none.
    """

    edits: tuple[Edit, ...]
    source: str = ""
    workloads: tuple[str, ...] = ()
    disk: tuple[str, ...] = ()
    again: int = 0
    imitates: str = ""
    equivalent: str = ""
    gap: str = ""
    one_cache: str = ""

    @property
    def asked_workloads(self) -> tuple[str, ...]:
        """As one would name them to run them."""
        return self.workloads or (ALL_WORKLOADS,)

    @property
    def places(self) -> str:
        """The functions that it changes, for people."""
        return ", ".join(dict.fromkeys(f"{e.file} {e.function}" for e in self.edits))


def faults() -> dict[str, PlantedFault]:
    """Every fault by name. Raises UsageError for a file that does not parse or names what does not exist."""
    return load_all(resource("kernels", "faults"), PlantedFault, _need_edits)


def _need_edits(fault: PlantedFault) -> None:
    if not fault.edits or not fault.modes:
        raise UsageError("a fault has edits and modes")
    if fault.again < 0:
        raise UsageError(f"a recovery cannot be cut {fault.again} times")
    if unknown := set(fault.disk) - set(DISK_FAULTS):
        raise UsageError(
            f"no disk is faulty in the way {min(unknown)}", f"there are: {', '.join(DISK_FAULTS)}"
        )


def select_faults(
    names: Sequence[str], modes: Sequence[str], known: Iterable[PlantedFault]
) -> list[PlantedFault]:
    """The faults of these names; all if none is named. With `modes`, only those of them; faults that have
    none of these modes are left out, but a fault that is named runs in each of them.

    Raises UsageError for an unknown name, and if nothing is left.
    """
    by_name = {f.name: f for f in known}
    chosen = named(by_name, names, "fault", "powercut faults --list")
    if modes:
        chosen = [_in_modes(f, modes, named=bool(names)) for f in chosen]
    left = [f for f in chosen if f.modes]
    if not left:
        raise UsageError(
            f"no fault is planted in {', '.join(modes)}", "powercut faults --list shows the modes"
        )
    return left


def _in_modes(fault: PlantedFault, modes: Sequence[str], *, named: bool) -> PlantedFault:
    common = tuple(m for m in modes if m in fault.modes)
    return msgspec.structs.replace(fault, modes=tuple(modes) if named else common)
