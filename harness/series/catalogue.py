"""Catalogues: the TOML files of a folder, each something that a series can try, with the modes in which it
can show and the oracles that should speak there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles, select_profiles
from harness.host.text import near_or
from harness.oracles import ORACLES


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every file says. `name`: of the file. `summary`: what goes wrong. `modes`: those in which it
    matters; `oracles`: those that should speak.
    """

    name: str = ""
    summary: str
    modes: tuple[str, ...]
    oracles: tuple[str, ...]


L = TypeVar("L", bound=Listed)


def load_all(folder: Path, kind: type[L], check: Callable[[L], None]) -> dict[str, L]:
    """Every file by its name. `check` raises UsageError for one that makes no sense by itself.

    Raises UsageError, with the file, for that, for one that does not parse, and for an unknown mode or
    oracle.
    """
    modes = profiles()
    return {path.stem: _load(path, kind, check, modes) for path in sorted(folder.glob("*.toml"))}


def _load(path: Path, kind: type[L], check: Callable[[L], None], every_mode: Mapping[str, Profile]) -> L:
    neighbours = f"compare it with its neighbours in {path.parent}"
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: {e}", neighbours) from e
    try:
        modes = [name.partition("@")[0] for name in found.modes]
        for what, names, known in (("mode", modes, every_mode), ("oracle", found.oracles, ORACLES)):
            if unknown := [name for name in names if name not in known]:
                raise UsageError(f"there is no {what} {unknown[0]!r}", f"one of: {', '.join(known)}")
        if on_others := [name for name in found.modes if "@" in name]:
            select_profiles(on_others)
        check(found)
    except UsageError as e:
        raise UsageError(f"{path}: {e.what}", e.next_step or neighbours) from e
    return msgspec.structs.replace(found, name=path.stem)


def named(known: Mapping[str, L], names: Sequence[str], what: str, command: str) -> list[L]:
    """Those of these names, each once; all if none is named. `what`: the noun for one; `command`: the one
    that lists them. Raises UsageError for an unknown name.
    """
    for name in names:
        if name not in known:
            raise UsageError(f"no {what} {name!r}", near_or(name, known, f"{command} names all {len(known)}"))
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())
