"""What a patch is asked: which modes, by the files that it changes, and which workloads, in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from harness.errors import NothingToAsk, UsageError
from harness.filesystems.existing import need_made
from harness.filesystems.layers import Layer, layers
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles, select_profiles
from harness.filesystems.stacks import stacks
from harness.grouping import by_key
from harness.host.resources import resource
from harness.host.text import named_few
from harness.model import bounds
from harness.workloads.generate import names_of
from harness.workloads.generate.chance import name_of as random_name
from harness.workloads.generate.sequences import PREFIX
from harness.workloads.load import workload_sets

BUDGET = 300
"""Visits to the legal states of a case."""
OPERATIONS = "operations"
"""The stage of what stands in the names of changed functions."""
SINGLE = ("ace1", "ace1more")
"""The sets of every operation by itself."""
MOST_OPERATIONS = 60
"""Cases of those in front: a patch with more is about no operation, and general sets find more in the same
time.
"""
RANDOM_WORKLOADS, RANDOM_LENGTH = 20, 20
ON_STACKS = "ext4/ordered"
"""The mode in which a stack is asked."""
Diff = Callable[[str], str]
"""How the patch changes a file, without lines around (`git diff -U0`)."""
_FUNCTION = re.compile(r"^(?:@@ [^@]* @@ |[-+])(?=[A-Za-z_])[^(\n]*?(\w+)\s*\(", re.MULTILINE)
"""In a diff: one that begins on a changed line, or that the changed lines are in."""


class SharedCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`vms/filesystems/shared-code.toml`: code that all file systems share, and the modes that stand for
    all. `operations`: regular expressions for names of functions, each with the steps of generated workloads
    that run such functions; a step stands for those that begin with it, too.
    """

    modes: tuple[str, ...]
    paths: tuple[str, ...]
    operations: dict[str, tuple[str, ...]]


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
    runs; `named`: of those, which mode does, if it is named. `own`: workloads that run code of one mode or
    layer, with the modes that have it. `operations`: generated workloads of operations that stand in the
    names of changed functions.
    """

    first: tuple[str, ...]
    then: tuple[str, ...] = ()
    recovery: tuple[str, ...] = ()
    nobodys: tuple[str, ...] = ()
    named: dict[str, str] = {}
    own: Mapping[tuple[str, ...], Sequence[str]] = {}
    operations: tuple[str, ...] = ()


def is_of(changed: str, pattern: str) -> bool:
    """Whether a changed file is that file, lies in that folder, or fits the pattern, whose `*` ends at a
    slash.
    """
    return (
        changed == pattern
        or changed.startswith(f"{pattern}/")
        or (changed.count("/") == pattern.count("/") and PurePosixPath(changed).match(pattern))
    )


def no_diff(_: str) -> str:
    """Where only the names of the changed files are known."""
    return ""


def affected_by(changed: Sequence[str], diff: Diff = no_diff) -> AffectedModes:
    """What a change to these files of the kernel is asked. Raises UsageError if nothing here runs any of
    them.
    """
    shared = _shared_code()
    owned: set[str] = set()

    def touched(patterns: Iterable[str]) -> bool:
        hit = {file for file in changed for pattern in patterns if is_of(file, pattern)}
        owned.update(hit)
        return bool(hit)

    alone = {p.name for p in profiles().values() if _runs_alone(p, changed, diff)}
    own = [
        p
        for p in profiles().values()
        if (p.name in alone and touched((*p.source, *p.mode_source)))
        or (not p.on_request and touched(p.source))
    ]
    first = [p.name for p in own if p.usual or p.name in alone]
    built = {name: stack for name, stack in stacks().items() if not stack.unbuilt}
    first += [f"{ON_STACKS}@{name}" for name, stack in built.items() if touched(stack.source)]
    first += [f"{ON_STACKS}@{name}" for name, layer in layers().items() if touched(layer.source)]
    if touched(shared.paths):
        first += shared.modes
    if not first:
        raise _none_asked(changed)
    then = [p.name for p in own if p.name not in first]
    nobodys = [f for f in changed if f not in owned]
    return AffectedModes(
        tuple(dict.fromkeys(first)),
        tuple(then),
        recovery_of(changed, own),
        tuple(nobodys),
        {f: name for f in nobodys if (name := _mode_for(f))},
        _own_workloads(select_profiles(first), changed, diff),
        _operations(sorted(owned), diff, len({*first})),
    )


def _none_asked(changed: Sequence[str]) -> NothingToAsk:
    """Of files that no mode runs, or only modes that have to be named."""
    files = f"{', '.join(changed[:3])}{' ...' if len(changed) > 3 else ''}"
    known = [(p.name, p.source) for p in profiles().values()]
    known += [(f"{ON_STACKS}@{name}", stack.source) for name, stack in stacks().items()]
    if named := [name for name, source in known if any(is_of(f, s) for f in changed for s in source)]:
        return NothingToAsk(
            f"{files}: the modes that run this are asked only if they are named",
            f"name them: {to_name(named)}",
        )
    return NothingToAsk(
        f"nothing here is known to run {files}",
        "name modes with -c, such as -c ext4/ordered: what they break is told, and a pass is undecided",
    )


def to_name(modes: Sequence[str]) -> str:
    """The options that ask modes which have to be named."""
    below = (stacks().get(mode.partition("@")[2]) for mode in modes)
    lacking = dict.fromkeys(option for stack in below if stack for option in stack.unbuilt)
    lines = " ".join(f"CONFIG_{option}=y" for option in lacking)
    config = f", and build their drivers: --config FILE, with {lines} in it" if lines else ""
    return f"-c {','.join(modes)}{config}"


def _runs_alone(mode: Profile, changed: Iterable[str], diff: Diff) -> bool:
    """Whether a mode alone runs one of the files, or some of the changed lines by what stands in them."""
    if any(is_of(f, s) for f in changed for s in mode.mode_source):
        return True
    ours = [f for f in changed if mode.words and any(is_of(f, s) for s in mode.source)]
    lines = (line for f in ours for line in diff(f).splitlines() if line.startswith(("+", "-")))
    return any(word in line for line in lines for word in mode.words)


def _own_workloads(
    found: Sequence[Profile], changed: Sequence[str], diff: Diff
) -> dict[tuple[str, ...], list[str]]:
    """Of these modes, those of which code of their own is changed, by the workloads that run that code."""

    def changes(layer: Layer) -> bool:
        return any(is_of(f, s) for f in changed for s in layer.source)

    told = [(m.workloads, m.name) for m in found if _runs_alone(m, changed, diff)]
    told += [(m.layer.workloads, m.name) for m in found if m.layer and changes(m.layer)]
    return by_key((workloads, name) for workloads, name in told if workloads)


def _operations(changed: Iterable[str], diff: Diff, modes: int) -> tuple[str, ...]:
    """The generated workloads of one operation that stands in the name of a changed function."""
    files = [f for f in changed if f.endswith((".c", ".h"))]
    functions = {name for f in files for name in _FUNCTION.findall(diff(f))}
    told = _shared_code().operations.items()
    steps = {f"{s}-" for pattern, some in told for s in some if any(re.search(pattern, f) for f in functions)}
    names = (name for of in SINGLE for name in names_of(of))
    run = [n for n in names if f"{n.removeprefix(PREFIX).split('.')[0]}-".startswith(tuple(steps))]
    return tuple(run) if len(run) * modes <= MOST_OPERATIONS else ()


def _shared_code() -> SharedCode:
    file = resource("vms", "filesystems", "shared-code.toml")
    return msgspec.toml.decode(file.read_bytes(), type=SharedCode)


def recovery_of(changed: Sequence[str], own: Sequence[Profile]) -> tuple[str, ...]:
    """The changed files that hold recovery code of these modes."""
    recovers = {source.file for profile in own for source in profile.recovery}
    return tuple(f for f in changed if f in recovers)


def chosen(modes: Sequence[str], changed: Sequence[str], diff: Diff = no_diff) -> AffectedModes:
    """The same where the user named the modes, which may run none of the files. Raises UsageError for a mode
    that there is not, one that is only rules, and one that begins with a disk that somebody has.
    """
    found = select_profiles(modes)
    need_made(found)
    if ruled := [p.name for p in found if p.rules is not None]:
        raise UsageError(
            f"{named_few(ruled)}: a mode that is only rules runs no kernel, so no patch changes it",
            "name modes of file systems, such as -c ext4/ordered",
        )
    run = list(_run_by(found, changed))
    nobodys = tuple(f for f in changed if f not in run)
    return AffectedModes(
        tuple(p.name for p in found),
        recovery=recovery_of(run, found),
        nobodys=nobodys,
        named={f: name for f in nobodys if (name := _mode_for(f))},
        own=_own_workloads(found, run, diff),
        operations=_operations(run, diff, len(found)),
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
    single = {of: tuple(n for n in names_of(of) if n not in asked.operations) for of in SINGLE}
    own = [(f"own-workloads{n or ''}", modes, words) for n, (words, modes) in enumerate(asked.own.items())]
    return [
        *(Stage(name, tuple(modes), words) for name, modes, words in own),
        *([Stage(OPERATIONS, first, asked.operations)] if asked.operations else []),
        Stage("quick", first, ("quick",)),
        Stage("all", first, tuple(w for w in sets["all"] if w not in sets["quick"])),
        Stage("more", first, ("more",)),
        *again,
        *(Stage(name, first, (name,)) for name in ("oldtree", "beside")),
        *disk,
        *([Stage("quick-other-modes", asked.then, ("quick",))] if asked.then else []),
        *(Stage(of, first, single[of] if asked.operations else (of,)) for of in SINGLE),
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
