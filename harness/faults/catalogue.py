"""The planted faults: the TOML files of `kernels/faults`, each a few changed words in one kernel's source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.filesystems.profiles import profiles
from harness.host.resources import resource
from harness.kernels.edits import Edit
from harness.oracles import ORACLES

ALL_WORKLOADS = "all"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`kernels/faults/NAME.toml`. `summary`: what the changed kernel does wrong. `modes`: those in which it
    matters. `workloads`: those that are expected to show it; none: all. `oracles`: those that should speak.
    `imitates`: the commit that fixed or made such a fault; empty if it is invented. `equivalent`: the proof
    that no crash breaks a promise that the unmodified kernel keeps. `gap`: why Powercut is known to miss it.
    """

    name: str = ""
    summary: str
    modes: tuple[str, ...]
    oracles: tuple[str, ...]
    edits: tuple[Edit, ...]
    workloads: tuple[str, ...] = ()
    imitates: str = ""
    equivalent: str = ""
    gap: str = ""

    @property
    def asked_workloads(self) -> tuple[str, ...]:
        """As one would name them to run them."""
        return self.workloads or (ALL_WORKLOADS,)

    @property
    def places(self) -> str:
        """The functions that it changes, for people."""
        return ", ".join(dict.fromkeys(f"{e.file} {e.function}" for e in self.edits))


def faults() -> dict[str, Fault]:
    """Every fault by name. Raises UsageError for a file that does not parse or names what does not exist."""
    return {path.stem: _load(path) for path in sorted(resource("kernels", "faults").glob("*.toml"))}


def _load(path: Path) -> Fault:
    try:
        fault = msgspec.toml.decode(path.read_bytes(), type=Fault)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: {e}", f"compare it with its neighbours in {path.parent}") from e
    if not fault.edits or not fault.modes:
        raise UsageError(
            f"{path}: a fault has edits and modes", f"compare it with its neighbours in {path.parent}"
        )
    for what, names, known in (("mode", fault.modes, profiles()), ("oracle", fault.oracles, ORACLES)):
        if unknown := [name for name in names if name not in known]:
            raise UsageError(f"{path}: there is no {what} {unknown[0]!r}", f"one of: {', '.join(known)}")
    return msgspec.structs.replace(fault, name=path.stem)


def select_faults(names: Sequence[str], modes: Sequence[str], known: Iterable[Fault]) -> list[Fault]:
    """The faults of these names; all if none is named. With `modes`, only those of them; faults that have
    none of these modes are left out, but a fault that is named runs in each of them.

    Raises UsageError for an unknown name, and if nothing is left.
    """
    by_name = {f.name: f for f in known}
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.4) or list(by_name)
            raise UsageError(f"no fault {name!r}", f"try one of: {', '.join(near)} (powercut faults --list)")
    chosen = [by_name[name] for name in dict.fromkeys(names)] or list(by_name.values())
    if modes:
        chosen = [_in_modes(f, modes, named=bool(names)) for f in chosen]
    left = [f for f in chosen if f.modes]
    if not left:
        raise UsageError(
            f"no fault is planted in {', '.join(modes)}", "powercut faults --list shows the modes"
        )
    return left


def _in_modes(fault: Fault, modes: Sequence[str], *, named: bool) -> Fault:
    common = tuple(m for m in modes if m in fault.modes)
    return msgspec.structs.replace(fault, modes=tuple(modes) if named else common)
