"""What a patch is asked: which modes, by the files that it changes, and which workloads, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from harness.errors import UsageError
from harness.filesystems.layers import layers
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles, select_profiles
from harness.filesystems.stacks import stacks
from harness.host.resources import resource
from harness.host.text import named_few
from harness.model import bounds
from harness.workloads.generate.chance import name_of as random_name
from harness.workloads.load import workload_sets

BUDGET = 300
"""Visits to the legal states of a case."""
RANDOM_WORKLOADS, RANDOM_LENGTH = 20, 20
ON_STACKS = "ext4/ordered"
"""The mode in which a stack is asked."""


class SharedCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`vms/filesystems/shared-code.toml`: code that all file systems share, and the modes that stand for
    all.
    """

    modes: tuple[str, ...]
    paths: tuple[str, ...]


class Stage(msgspec.Struct, frozen=True):
    """One run of the head's kernel. `disk`, `again`: as in `Plan`."""

    name: str
    modes: tuple[str, ...]
    workloads: tuple[str, ...]
    disk: tuple[str, ...] = ()
    again: bounds.Depth = 0


class AffectedModes(msgspec.Struct, frozen=True):
    """What follows from changed files. `first`: the modes that come first; `then`: other modes of the same
    file systems. `recovery`: changed files with recovery code. `nobodys`: changed files that none of these
    runs; `named`: of those, which mode does, if it is named. `alone`: modes that alone run one of the files,
    where `workloads` do.
    """

    first: tuple[str, ...]
    then: tuple[str, ...] = ()
    recovery: tuple[str, ...] = ()
    nobodys: tuple[str, ...] = ()
    named: dict[str, str] = {}
    alone: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


def is_of(changed: str, pattern: str) -> bool:
    """Whether a changed file is that file, lies in that folder, or fits the pattern, whose `*` ends at a
    slash.
    """
    return (
        changed == pattern
        or changed.startswith(f"{pattern}/")
        or (changed.count("/") == pattern.count("/") and PurePosixPath(changed).match(pattern))
    )


def affected_by(changed: Sequence[str]) -> AffectedModes:
    """What a change to these files of the kernel is asked. Raises UsageError if nothing here runs any of
    them.
    """
    shared = _shared_code()
    owned: set[str] = set()

    def touched(patterns: Iterable[str]) -> bool:
        hit = {file for file in changed for pattern in patterns if is_of(file, pattern)}
        owned.update(hit)
        return bool(hit)

    alone = {p.name for p in profiles().values() if any(is_of(f, s) for f in changed for s in p.mode_source)}
    own = [p for p in profiles().values() if (p.name in alone or not p.on_request) and touched(p.source)]
    first = [p.name for p in own if p.usual or p.name in alone]
    first += [f"{ON_STACKS}@{name}" for name, stack in stacks().items() if touched(stack.source)]
    first += [f"{ON_STACKS}@{name}" for name, layer in layers().items() if touched(layer.source)]
    if touched(shared.paths):
        first += shared.modes
    if not first:
        files = f"{', '.join(changed[:3])}{' ...' if len(changed) > 3 else ''}"
        if named := [
            p.name for p in profiles().values() if any(is_of(f, s) for f in changed for s in p.source)
        ]:
            raise UsageError(
                f"{files}: the modes that run this are asked only if they are named",
                f"name them: -c {','.join(named)}",
            )
        raise UsageError(
            f"nothing here is known to run {files}",
            "name modes with -c, such as -c ext4/ordered: what they break is told, and a pass is undecided",
        )
    then = [p.name for p in own if p.name not in first]
    others = [p for p in profiles().values() if p not in own]
    nobodys = [f for f in changed if f not in owned]
    on_request = {f: p.name for f in nobodys for p in others if any(is_of(f, s) for s in p.source)}
    running = [p for p in own if p.name in alone and p.workloads]
    return AffectedModes(
        tuple(dict.fromkeys(first)),
        tuple(then),
        recovery_of(changed, own),
        tuple(nobodys),
        on_request,
        tuple(p.name for p in running),
        tuple(dict.fromkeys(w for p in running for w in p.workloads)),
    )


def _shared_code() -> SharedCode:
    file = resource("vms", "filesystems", "shared-code.toml")
    return msgspec.toml.decode(file.read_bytes(), type=SharedCode)


def recovery_of(changed: Sequence[str], own: Sequence[Profile]) -> tuple[str, ...]:
    """The changed files that hold recovery code of these modes."""
    recovers = {source.file for profile in own for source in profile.recovery}
    return tuple(f for f in changed if f in recovers)


def chosen(modes: Sequence[str], changed: Sequence[str]) -> AffectedModes:
    """The same where the user named the modes, which may run none of the files. Raises UsageError for a mode
    that there is not, and for one that is only rules.
    """
    found = select_profiles(modes)
    if ruled := [p.name for p in found if p.rules is not None]:
        raise UsageError(
            f"{named_few(ruled)}: a mode that is only rules runs no kernel, so no patch changes it",
            "name modes of file systems, such as -c ext4/ordered",
        )
    run = set(_run_by(found, changed))
    nobodys = tuple(f for f in changed if f not in run)
    return AffectedModes(
        tuple(p.name for p in found),
        recovery=recovery_of([f for f in changed if f in run], found),
        nobodys=nobodys,
        named={f: name for f in nobodys if (name := _mode_for(f))},
    )


def _run_by(modes: Sequence[Profile], changed: Sequence[str]) -> Iterator[str]:
    """The changed files that these modes run: a file that a mode alone runs only if it is one of them."""
    of_one_mode = [s for p in profiles().values() for s in p.mode_source]
    alone = [s for p in modes for s in p.mode_source]
    run = [*_shared_code().paths, *(s for p in modes for s in _sources(p))]
    for file in changed:
        if any(is_of(file, s) for s in (alone if any(is_of(file, s) for s in of_one_mode) else run)):
            yield file


def _sources(mode: Profile) -> Iterator[str]:
    """The code of a mode: its file system, and what is below it, above it, or in a file of it."""
    yield from mode.source
    if mode.stacked:
        yield from mode.stacked.stack.source
    if mode.layer:
        yield from mode.layer.source
    if mode.inside:
        yield from mode.inside.source


def _mode_for(file: str) -> str:
    """The mode to name for a file, a usual one first, and of others the plainest; empty: none is known to run
    it.
    """
    modes = sorted(profiles().values(), key=lambda p: (not p.usual, len(p.name)))
    beside = [(f"{ON_STACKS}@{name}", stack.source) for name, stack in stacks().items()]
    beside += [(f"{ON_STACKS}@{name}", layer.source) for name, layer in layers().items()]
    known = [
        *((p.name, p.mode_source) for p in modes),
        *((p.name, p.source) for p in modes),
        *sorted(beside, key=lambda of: len(of[0])),
    ]
    return next((name for name, source in known if any(is_of(file, s) for s in source)), "")


def stages(asked: AffectedModes, workloads: Sequence[str] = ()) -> list[Stage]:
    """The runs of the head's kernel, in order: what finds most in the least time comes first."""
    if workloads:
        again, disk = _recoveries(asked, tuple(workloads))
        return [Stage("asked", (*asked.first, *asked.then), tuple(workloads)), *again, *disk]
    again, disk = _recoveries(asked, ("quick",))
    by_chance = tuple(random_name(seed, RANDOM_LENGTH) for seed in range(1, RANDOM_WORKLOADS + 1))
    first, sets = asked.first, workload_sets()
    return [
        *([Stage("own-workloads", asked.alone, asked.workloads)] if asked.workloads else []),
        Stage("quick", first, ("quick",)),
        Stage("all", first, tuple(w for w in sets["all"] if w not in sets["quick"])),
        Stage("more", first, ("more",)),
        *again,
        *(Stage(name, first, (name,)) for name in ("oldtree", "beside")),
        *disk,
        *([Stage("quick-other-modes", asked.then, ("quick",))] if asked.then else []),
        Stage("ace1", first, ("ace1",)),
        Stage("random", first, by_chance),
        *([Stage("more-other-modes", asked.then, ("more",))] if asked.then else []),
    ]


def _recoveries(asked: AffectedModes, workloads: tuple[str, ...]) -> tuple[list[Stage], list[Stage]]:
    """Recoveries cut again, and on a faulty disk, where their code was changed."""
    if not asked.recovery:
        return [], []
    on_disks = tuple(m for m in asked.first if "@" not in m)
    disk = Stage("recovery-on-a-faulty-disk", on_disks, workloads, disk=("errors",))
    return [Stage("recovery-cut-again", asked.first, workloads, again=1)], [disk] if on_disks else []
