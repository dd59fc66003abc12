"""Chooses a machine's accelerator: tries it once by booting the real kernel, and caches the result."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks, GuestLost, UsageError
from harness.guests.machine import Machine, machine_of, profile_of
from harness.host.cache import cache_dir
from harness.host.files import json_or_none, write_atomically


@dataclass(frozen=True, slots=True)
class Chosen:
    """A machine with an accelerator; `reason`: why this one, for the report."""

    machine: Machine
    reason: str


def choose_accel(
    name: str, wanted: str, try_one: Callable[[Machine], None], *, known_good: bool = True
) -> Chosen:
    """The machine `name` with the accelerator `wanted`; a machine with a single accelerator uses that one.

    `auto` calls `try_one` (boot the real kernel, raise GuestLost if it does not come up) for all accelerators
    but the last, since one may be present and not work. The result is cached per host kernel and machine
    version. `known_good`: whether that kernel comes up elsewhere. If not, a failed boot may not be the
    accelerator's fault, so it is not cached.

    Raises UsageError for an accelerator that the machine does not have.
    """
    profile = profile_of(name)
    *better, last = profile.accelerators
    if not better:
        return Chosen(machine_of(name, last), "its only way")
    if wanted != "auto":
        if wanted not in profile.accelerators:
            raise UsageError(
                f"{profile.title} has no accelerator {wanted!r}", f"one of: {', '.join(profile.accelerators)}"
            )
        machine = machine_of(name, wanted)
        if wanted != last:
            _need(machine, try_one, known_good=known_good)
        return Chosen(machine, "asked for")
    reason = ""
    for accel in better:
        machine = machine_of(name, accel)
        reason = machine.accel_lacks() or _tried(machine, try_one, known_good=known_good)
        if not reason:
            return Chosen(machine, f"a kernel came up under {accel.upper()}")
    return Chosen(machine_of(name, last), reason)


def _need(machine: Machine, try_one: Callable[[Machine], None], *, known_good: bool) -> None:
    """Raises EnvironmentLacks where the accelerator that was asked for is known not to work here: each case
    would be UNKNOWN, a minute later. What failed before is tried once more: it may have been mended.
    """
    why = machine.accel_lacks() or _tried(machine, try_one, known_good=known_good)
    if why and not machine.accel_lacks():
        why = _tried(machine, try_one, known_good=known_good, again=True)
    if why:
        raise EnvironmentLacks(
            f"{machine.accel.upper()} was asked for: {why}", "leave the accelerator to powercut: auto"
        )


def _tried(
    machine: Machine, try_one: Callable[[Machine], None], *, known_good: bool, again: bool = False
) -> str:
    """Why no kernel comes up with this accelerator; empty if one does. `again`: whatever is remembered."""
    memory = cache_dir() / "accel.json"
    known = _remembered(memory)
    key = _key(machine)
    if again or key not in known:
        try:
            try_one(machine)
            known[key] = ""
        except GuestLost as e:
            known[key] = e.what.splitlines()[0].partition("; machine")[0]
        if known_good or not known[key]:
            write_atomically(memory, msgspec.json.format(msgspec.json.encode(known), indent=1))
    why = known[key]
    return f"{machine.accel.upper()} is there, but a kernel does not come up under it ({why})" if why else ""


def known_of(machine: Machine) -> str | None:
    """Why no kernel came up with this accelerator when that was tried here; empty if one did, None if it was
    not tried.
    """
    return _remembered(cache_dir() / "accel.json").get(_key(machine))


def _key(machine: Machine) -> str:
    """What the answer is remembered of: this host's kernel and processor, the machine's version."""
    host = f"{platform.release()} {platform.processor() or platform.machine()}"
    return f"{host} {machine.name}-{machine.version()} {machine.accel}"


def _remembered(memory: Path) -> dict[str, str]:
    """Empty if the file cannot be read: the accelerators are then tried again."""
    return json_or_none(memory, dict[str, str]) or {}
