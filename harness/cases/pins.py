"""What a run is made of, pinned: hashes of everything that a verdict depends on, beside the recordings.

They are written when the run is first carried out, and never replaced. A run is gone on with only where all
of them are the same: otherwise verdicts of one kernel, contract or harness would stand beside those of
another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness import __version__
from harness.cases.fsck_reads import find_library
from harness.errors import PowercutError, RunChanged
from harness.filesystems.profile import Profile
from harness.filesystems.tools import Tool
from harness.guests.disk import find_binary
from harness.guests.guest_specs import GuestSpecs
from harness.guests.initramfs import pinned_hash
from harness.guests.machine import Machine
from harness.guests.session import find_agent
from harness.host.files import file_hash, json_bytes
from harness.kernels.find import Kernel
from harness.kernels.module_files import resolve_modules
from harness.model import CaseId, Workload
from harness.store import RunStore
from harness.workloads.load import contents_hash, pin_name

SHOWN_DIGITS = 12
_PACKAGE = Path(__file__).resolve().parent.parent
_NOT_JUDGING = (
    "tests",
    "bench",
    "campaigns",
    "cli",
    "explain",
    "faults",
    "litmus",
    "measure",
    "measurements",
    "patches",
    "regressions",
    "releases",
    "report",
    "findings",
    "series",
    "tools_image",
    "tracing",
)
"""Rooms of the package that no verdict depends on: nothing that `cases` imports is in them."""


def pin(store: RunStore, pins: Mapping[str, str]) -> None:
    """Keep the pins of a run that has none, and hold those of one that has against them. Raises RunChanged,
    with everything that differs, where the run was begun with other parts.
    """
    before = store.info.pins
    if not before:
        store.put_pins(pins)
        return
    if listed := differences(before, pins, "then", "now"):
        raise RunChanged(
            f"{store.path} was begun with other parts than there are now: {listed}",
            "start a new run, or put back what was there; the verdicts that are kept stay as they are",
            machine=_alone(before, pins),
        )


def _alone(before: Mapping[str, str], pins: Mapping[str, str]) -> str:
    """The machine that a run had alone, if there is another beside it now: a kernel for judging was built."""
    then, now = (
        {m[1] for name in names if (m := re.fullmatch("kernel that (.+) boots", name))}
        for names in (before, pins)
    )
    return next(iter(then)) if len(then) == 1 and then < now else ""


def differences(one: Mapping[str, str], other: Mapping[str, str], of_one: str, of_other: str) -> str:
    """In which pins two sets differ, for people; empty if in none. `of_one`, `of_other`: whose they are."""
    names = dict.fromkeys([*one, *other])
    return "; ".join(
        f"{name}: {_shown(one.get(name, ''))} {of_one}, {_shown(other.get(name, ''))} {of_other}"
        for name in names
        if one.get(name) != other.get(name)
    )


def _shown(value: str) -> str:
    """A hash by its first digits; other words as they are."""
    is_hash = len(value) == 2 * hashlib.sha256().digest_size
    return (value[:SHOWN_DIGITS] if is_hash else value) or "none"


def pins_of(
    kernel: Kernel, specs: GuestSpecs, profiles: Sequence[Profile], workloads: Sequence[Workload]
) -> dict[str, str]:
    """SHA-256, or a version, of everything that the run depends on, by a name for people."""
    machines = {spec.machine.name: spec for spec in (specs.recorder, specs.judge)}
    pins = {"powercut": __version__, "powercut's source": source_hash()}
    pins[f"kernel {kernel.name}"] = kernel.sha256
    for name, spec in machines.items():
        pins[f"kernel that {name} boots"] = file_hash(spec.kernel_image)
        pins[f"initramfs for {name}"] = pinned_hash(spec.initramfs)
        pins |= _machine_pins(spec.machine)
    if specs.recorder.kernel_image == kernel.image:  # else the modules of a built kernel are in its initramfs
        of_machine, of_modes = (
            specs.recorder.machine.profile.modules,
            [m for p in profiles for m in p.modules],
        )
        wanted = list(dict.fromkeys([*of_machine, *of_modes]))
        pins |= {f"module {p.name}": file_hash(p) for p in resolve_modules(kernel, wanted)}
    pins |= {"agent": file_hash(find_agent()), "disk": file_hash(find_binary())}
    pins["readtrace"] = _found(lambda: str(find_library()))
    for profile in profiles:
        pins |= pins_of_mode(profile)
    return pins | pins_of_workloads(workloads)


def pins_of_mode(profile: Profile) -> dict[str, str]:
    """Those of `pins_of` that only the cases of this mode depend on, but for modules of the kernel."""
    return _profile_pins(profile, profile.tools)


def shared_by_cases(pins: Mapping[str, str]) -> dict[str, str]:
    """Those of `pins_of` that every case depends on. What guests boot is packed from these and from what the
    modes of the run need, so that of another set of modes it is another one.
    """
    machines = {name.removeprefix("machine ") for name in pins if name.startswith("machine ")}
    return {
        name: value
        for name, value in pins.items()
        if name.startswith(("powercut", "kernel ", "machine "))
        or name in ("agent", "disk", "readtrace")
        or name.partition(" of ")[2] in machines
    }


def host_pins(machines: Iterable[Machine], profiles: Iterable[Profile]) -> dict[str, str]:
    """Those of `pins_of` that tell the hosts of a cluster apart: machines, modes, and the programs that
    check and repair; what is made once for all of them, by mkfs or from the kernel's files, is not among
    them.
    """
    pins: dict[str, str] = {}
    for machine in machines:
        pins |= _machine_pins(machine)
    for profile in profiles:
        pins |= _profile_pins(profile, [t for t in (profile.fsck, profile.repair) if t])
    return pins


def _profile_pins(profile: Profile, tools: Iterable[Tool]) -> dict[str, str]:
    of_tools = {f"{t.title} of {profile.filesystem}": file_hash(Path(t.path())) for t in tools}
    judging = replace(profile, tracing=None)  # which has paths of this installation
    return {f"mode {profile.name}": _hash(judging)} | of_tools


def _machine_pins(machine: Machine) -> dict[str, str]:
    """Pins of a machine: its profile, and each thing that it needs of this host, a file by its contents and
    all else by its description.
    """
    name = machine.name
    pins = {f"machine {name}": _hash(machine.profile)}
    for requirement in machine.requirements():
        pins[f"{requirement.what} of {name}"] = _found(requirement.look)
    return pins


def _found(look: Callable[[], str]) -> str:
    """The hash of a file, where there is one; else what `look` says."""
    try:
        path = Path(look())
    except PowercutError:
        return ""
    return file_hash(path) if path.is_file() else str(path)


def pins_of_workloads(workloads: Iterable[Workload]) -> dict[str, str]:
    """One each; generated ones, which may be a hundred thousand, have one together."""
    pins: dict[str, str] = {}
    generated = hashlib.sha256()
    for workload in workloads:
        if CaseId("any", "any", workload.name).is_generated:
            generated.update(contents_hash(workload).encode())
            pins["generated workloads"] = generated.hexdigest()
        else:
            pins[pin_name(workload.name)] = contents_hash(workload)
    return pins


def _hash(value: object) -> str:
    return hashlib.sha256(json_bytes(value)).hexdigest()


def source_hash() -> str:
    """Of the package's own source, as far as a verdict may depend on it."""
    found = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        place = file.relative_to(_PACKAGE)
        if place.parts[0] not in _NOT_JUDGING:
            found.update(f"{place} {file_hash(file)}\n".encode())
    return found.hexdigest()
