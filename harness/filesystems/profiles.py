"""File systems and their modes: the TOML profiles of `vms/filesystems/`.

`vms/filesystems/<name>/filesystem.toml` holds what all modes share (mkfs, fsck, kernel messages,
tracepoints); each other TOML file beside it is a mode (mount options, contract). A new mode is a new file, a
new file system a new folder: whatever the harness knows of one file system stands there. What any kernel says
when something is wrong in it, whatever the file system, is in `vms/filesystems/complaints.toml`.
"""

from __future__ import annotations

import difflib
import functools
import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from harness.errors import UsageError
from harness.filesystems.disks import disks
from harness.filesystems.layers import layers
from harness.filesystems.profile import (
    ConsolePatterns,
    First,
    InToolsImage,
    MountCounter,
    Profile,
    RecoverySource,
    Second,
    Sectors,
)
from harness.filesystems.second import NODE
from harness.filesystems.stacks import Stack, contradiction, find_stack, stacks
from harness.filesystems.tools import SECOND, Tool
from harness.filesystems.tracepoints import Tracepoints
from harness.host.resources import resource
from harness.host.text import near_or
from harness.model import CaseId
from harness.oracles.contract import Contract
from harness.rules.promised import rules_of, why_no_rules
from harness.rules.rules import Rules

FILE_NAME = "filesystem.toml"
COMPLAINTS = "complaints.toml"
ANY = "any"
"""The file system that is only rules."""


class _ComplaintsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    errors: list[str]


@functools.cache
def complaints() -> tuple[str, ...]:
    """Regular expressions over lines in which a kernel says that something is wrong in it, whatever the file
    system. Raises UsageError for a file that does not parse.
    """
    return tuple(_decode(resource("vms", "filesystems", COMPLAINTS), _ComplaintsFile).errors)


class _FilesystemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file system. `usual`: the mode that most people use."""

    summary: str
    fstype: str
    size_mib: int
    modules: list[str]
    mkfs: Tool
    console: ConsolePatterns
    mailing_list: str = ""
    fsck: Tool | None = None
    repair: Tool | None = None
    inspect: tuple[str, ...] = ()  # programs for a person who looks at a crashed disk: `xfs_db:xfsprogs`
    sectors: Sectors | None = None  # None: it is made for sectors of 512 bytes alone
    mounted_once: bool = False
    mount_counters: tuple[MountCounter, ...] = ()
    roll_forward_allocates: bool = False  # recovery decides which blocks a file has
    no_csum_no_compression: bool = False  # neither checksums nor compression join blocks of data
    seek_reads_mapping: bool = False  # lseek(SEEK_DATA) reads all that says where a file's data lies
    made_by_mkfs: tuple[str, ...] = ()
    folds_names: tuple[str, ...] = ()  # see `Contract`
    chattr: tuple[str, ...] = ()  # see `Contract`
    checksums: tuple[str, ...] = ()  # see `Contract`
    source: tuple[str, ...] = ()  # its own folders and files in the kernel's source
    usual: str = "default"
    not_in_linux: str = ""  # how to get its modules, which no kernel has
    stack: Stack | None = None  # of modes that have none of their own
    recovery: tuple[str, ...] = ()  # see `RecoverySource.parse`
    tools_image: InToolsImage | None = None
    tracing: Tracepoints | str | None = None  # text: the folder whose tracepoints it shares


class _ModeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    contract: dict[str, object]
    on_request: bool = False
    source: tuple[str, ...] = ()  # files of the kernel's source that this mode alone runs, as patterns
    words: tuple[str, ...] = ()  # what stands in other lines of the kernel's source that it alone runs
    workloads: tuple[str, ...] = ()  # those that run that source
    mount_options: list[str] = []
    mkfs_arguments: list[str] = []
    disk: str = ""  # of vms/disks; empty: the usual one
    mkfs_without: list[str] = []  # shared arguments that this mode leaves out
    block_bytes: int = 0  # where its mkfs_arguments ask for blocks smaller than a sector may be
    # Packages whose programs always come from these suites, since an older one lacks what this mode needs.
    newer: dict[str, list[str]] = {}
    modules: list[str] = []  # of the kernel, beside the file system's: `quota_v2`
    options: list[str] = []  # of the kernel, beyond the driver: `XFS_RT`
    steps: list[Tool] = []  # run after mkfs, with their complete arguments
    stack: Stack | None = None  # of its own: devices among which the file system itself divides its data
    stack_after: str = ""  # steps ahead of those that make and start the file system's own stack
    read_only_first: bool = False  # a crashed disk is mounted `ro`, then remounted
    unrepaired: bool = False  # the file system's `[repair]` does not run before the mount
    first: First | None = None
    checksums: tuple[str, ...] | None = None  # None: as the file system has them
    second: Second | None = None


class _RulesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    rules: Rules


def profiles() -> dict[str, Profile]:
    """Every mode of every file system, by name. Raises UsageError for a file that does not parse."""
    return dict(_made_of(_texts()))


def _texts() -> _Texts:
    """The files of all modes, and what they hold."""
    files = sorted(glob.glob(f"{resource('vms', 'filesystems')}/*/*.toml"))  # noqa: PTH207 - a third of the time
    return tuple((path, _read(Path(path))) for path in files)


_Texts = tuple[tuple[str, bytes], ...]


@functools.lru_cache(maxsize=2)
def _made_of(_: _Texts) -> dict[str, Profile]:
    """The modes, made once as long as the files hold the same: a run asks for them a dozen times."""
    found: dict[str, Profile] = {}
    for shared_path in sorted(resource("vms", "filesystems").glob(f"*/{FILE_NAME}")):
        shared = _decode(shared_path, _FilesystemFile)
        for path in sorted(shared_path.parent.glob("*.toml")):
            if path != shared_path:
                found |= {p.name: p for p in _profiles(shared_path.parent.name, path, shared)}
    return found


def ruled_modes() -> dict[str, Profile]:
    """The modes that are only rules, by name: those of `any`, and one for each mode whose contract can be put
    into rules. Raises UsageError for a file that does not parse.
    """
    return dict(_ruled_of(_texts()))


@functools.lru_cache(maxsize=2)
def _ruled_of(_: _Texts) -> dict[str, Profile]:
    made = {}
    for path in sorted(resource("vms", "filesystems", ANY).glob("*.toml")):
        told = _decode(path, _RulesFile)
        made[f"{ANY}/{path.stem}"] = _ruled(path.stem, told.summary, told.rules)
    for p in profiles().values():
        if not why_no_rules(p.contract):
            summary = f"what the contract of {p.name} promises, whatever its kernel does"
            made[ruled_name(p)] = _ruled(
                ruled_name(p).partition("/")[2], summary, rules_of(p.contract, p.name)
            )
    return made


def ruled_name(profile: Profile) -> str:
    """The mode that is only rules, made from a mode's contract."""
    return f"{ANY}/{profile.filesystem}-{profile.mode}"


def _ruled(mode: str, summary: str, rules: Rules) -> Profile:
    return Profile(
        filesystem=ANY,
        mode=mode,
        summary=summary,
        fstype="tmpfs",
        size_bytes=1 << 20,
        modules=(),
        mkfs=Tool("true", "coreutils"),  # the disk stays as it is
        mkfs_arguments=(),
        fsck=None,
        repair=None,
        console=ConsolePatterns(),
        mount_options="",
        contract=Contract("none", "nothing", "writeback"),
        on_request=True,
        rules=rules,
    )


def recovery_files() -> list[str]:
    """The files of the kernel's source with the recovery of any file system."""
    return sorted({source.file for profile in profiles().values() for source in profile.recovery})


def inspection_programs() -> list[str]:
    """The programs with which people look at file systems of any kind, each with its package."""
    files = sorted(resource("vms", "filesystems").glob(f"*/{FILE_NAME}"))
    return [*dict.fromkeys(p for path in files for p in _decode(path, _FilesystemFile).inspect)]


FileT = TypeVar("FileT")


def _decode(path: Path, kind: type[FileT]) -> FileT:
    try:
        return cast("FileT", _decoded(_read(path), kind))  # type: ignore[arg-type]  # a class is hashable
    except msgspec.MsgspecError as e:
        raise _unreadable(path, e) from e


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise _unreadable(path, e) from e


def _unreadable(path: Path, why: Exception) -> UsageError:
    return UsageError(f"{path}: {why}", f"compare it with its neighbours in {path.parent}")


@functools.lru_cache(maxsize=1024)
def _decoded(text: bytes, kind: type[object]) -> object:
    """Nobody changes what it returns. A catalogue asks for all modes for each of its files, and to parse them
    takes most of that time.
    """
    return msgspec.toml.decode(text, type=kind)


def _without(tool: Tool, left_out: Sequence[str]) -> Tool:
    kept = [a for a in tool.arguments if a not in left_out]
    return msgspec.structs.replace(tool, arguments=kept)


def _newer(tool: Tool, packages: Mapping[str, list[str]]) -> Tool:
    """The program from the suites that its package is to come from, if any are named."""
    if tool.package not in packages:
        return tool
    return msgspec.structs.replace(tool, suites=packages[tool.package], always=True)


def _names_cases(filesystem: str, mode: str) -> bool:
    """Whether the name of a case leads back to both."""
    case = CaseId(filesystem, mode, "workload")
    try:
        return "@" not in mode and CaseId.parse(str(case)) == case
    except ValueError:
        return False


def _profiles(filesystem: str, path: Path, shared: _FilesystemFile) -> list[Profile]:
    """The mode of a file; and where it has devices of its own, the same less each that may be missing."""
    if not _names_cases(filesystem, path.stem):
        names = "small letters and digits name a file system; these, '-', '_' and '+' a mode of it"
        raise UsageError(f"{path}: {names}", "rename it: a case is named by both")
    mode = _decode(path, _ModeFile)
    stack = mode.stack or shared.stack
    if mode.stack_after:
        if mode.stack or not shared.stack:
            raise UsageError(
                f"{path}: stack_after is for the stack of {FILE_NAME}",
                "see vms/filesystems/zfs/nocacheflush.toml",
            )
        stack = _behind(mode.stack_after, shared.stack)
    if stack and (what := contradiction(stack)):
        raise UsageError(f"{path}: {what}", "see vms/filesystems/btrfs/raid1.toml")
    if wrong := next(_wrong_with_second(mode, shared), None):
        raise UsageError(f"{path}: {wrong}", "see vms/filesystems/ext4/external-journal.toml")
    if mode.disk and mode.disk not in disks():
        raise UsageError(f"{path}: no disk {mode.disk!r}", f"one of: {', '.join(disks())} (vms/disks)")
    if mode.first and (mode.second or stack or shared.repair):
        raise UsageError(f"{path}: [first] is for one disk, which no program of the host repairs", _SEE_FIRST)
    in_guest = [*mode.first.programs] if mode.first else []
    if mode.newer and (in_guest or mode.second):
        raise UsageError(f"{path}: newer is for mkfs and fsck alone", "leave out programs and [second]")
    second_mib = mode.second.size_mib if mode.second else 0
    made = Profile(
        filesystem=filesystem,
        mode=path.stem,
        summary=mode.summary,
        fstype=shared.fstype,
        size_bytes=(shared.size_mib + second_mib) << 20,
        modules=(*shared.modules, *mode.modules),
        mkfs=_newer(_without(shared.mkfs, mode.mkfs_without), mode.newer),
        mkfs_arguments=tuple(mode.mkfs_arguments),
        fsck=shared.fsck and _newer(shared.fsck, mode.newer),
        repair=None if mode.unrepaired else shared.repair and _newer(shared.repair, mode.newer),
        console=msgspec.structs.replace(shared.console, errors=[*shared.console.errors, *complaints()]),
        mount_options=",".join(mode.mount_options),
        contract=replace(
            Contract.from_table(
                mode.contract,
                shared.made_by_mkfs,
                shared.checksums if mode.checksums is None else mode.checksums,
            ),
            folds_names=shared.folds_names,
            chattr=shared.chattr,
        ),
        second=mode.second,
        sectors=shared.sectors,
        options=tuple(mode.options),
        steps=tuple(mode.steps),
        block_bytes=mode.block_bytes,
        tools_image=shared.tools_image,
        tracing=_tracing(path.parent, shared.tracing),
        on_request=mode.on_request,
        mounted_once=shared.mounted_once,
        mailing_list=shared.mailing_list,
        read_only_first=mode.read_only_first,
        first=mode.first,
        source=shared.source,
        mode_source=mode.source,
        words=mode.words,
        workloads=mode.workloads,
        usual=path.stem == shared.usual,
        not_in_linux=shared.not_in_linux,
        recovery=tuple(map(RecoverySource.parse, shared.recovery)),
        # A program that looks at the disk first may look at these, and say so.
        mount_counters=() if mode.first else shared.mount_counters,
        roll_forward_allocates=shared.roll_forward_allocates,
        no_csum_no_compression=shared.no_csum_no_compression,
        seek_reads_mapping=shared.seek_reads_mapping,
    )
    if mode.disk:
        made = made.on_disk(disks()[mode.disk])
    return [*made.on_members(stack)] if stack else [made]


def _behind(steps: str, stack: Stack) -> Stack:
    """The stack, with steps ahead of its own."""
    make, start = (f"{steps}\n{own}" for own in (stack.make, stack.start))
    return msgspec.structs.replace(stack, make=make, start=start)


_SEE_FIRST = "see vms/filesystems/ext4/fsck-first.toml"


def _tracing(folder: Path, given: Tracepoints | str | None) -> Tracepoints | None:
    if isinstance(given, str):
        folder = folder.parent / given
        given = _decode(folder / FILE_NAME, _FilesystemFile).tracing
        if not isinstance(given, Tracepoints):
            raise UsageError(
                f"{folder / FILE_NAME} has no tracepoints of its own", "name the folder that has"
            )
    if given is None:
        return None
    return msgspec.structs.replace(given, programs=tuple(str(folder / name) for name in given.programs))


def _wrong_with_second(mode: _ModeFile, shared: _FilesystemFile) -> Iterator[str]:
    """Contradictions in the description of a second device."""
    mounted = any(o.endswith(f"={NODE}") for o in mode.mount_options)
    if mode.second is None:
        if mounted or any(SECOND in a for a in mode.mkfs_arguments):
            yield f"{SECOND} and {NODE} need a second device: add [second] with size_mib"
        return
    if mode.second.size_mib <= 0:
        yield f"second.size_mib = {mode.second.size_mib}: a device has a size"
    if not mounted:
        yield f"no mount option names the second device: end one of them in ={NODE}"
    if shared.fsck and not any(SECOND in a for a in mode.second.fsck_arguments):
        yield f"{shared.fsck.program} needs the second device: name {SECOND} in second.fsck_arguments"
    if shared.repair:
        yield f"{shared.repair.program} before the mount is not told of a second device"
    yield from _wrong_patches(mode.second)


def _wrong_patches(second: Second) -> Iterator[str]:
    for p in second.patches:
        try:
            end = p.at + len(p.data)
        except ValueError:
            yield f"second.patches: {p.hex!r} is not hexadecimal"
        else:
            if not 0 <= p.at < end <= second.size_bytes:
                yield f"second.patches: {p.at} to {end} is not within the second device"


def select_profiles(wanted: Sequence[str]) -> list[Profile]:
    """The modes named: `ext4/ordered`, `ext4` (all its modes), `all`; those that run on request only if they
    are named in full. With `@raid1` behind it, the same on a stack; with `@overlay`, below a layer; with
    `@4k`, on another kind of disk, which comes last. Raises UsageError with the nearest.
    """
    known = profiles() | ruled_modes()
    found: dict[str, Profile] = {}
    for word in wanted:
        name, *on = word.split("@")
        if len(on_disks := [what for what in on if what in disks()]) > 1:
            raise UsageError(
                f"{word} names {len(on_disks)} kinds of disk: {' and '.join(on_disks)}",
                "a mode is on one: name it once",
            )
        chosen = _named(name, known)
        for what in on:
            _need_known(what)
            chosen = list(_put_on(chosen, what, every=name not in known))
            if not chosen:
                raise UsageError(
                    f"{word}: no mode of {name} can be on {what}", "name another file system or disk"
                )
        found |= {p.name: p for p in chosen}
    return list(found.values())


@functools.lru_cache(maxsize=1024)
def what_sets_apart(configuration: str) -> tuple[str, ...]:
    """See `Profile.apart`; nothing of a mode that this installation does not have."""
    try:
        (profile,) = select_profiles([configuration])
    except UsageError:
        return ()
    return profile.apart


def _need_known(what: str) -> None:
    """Raises UsageError for what is neither a disk nor a layer nor a stack, with the nearest."""
    if what in stacks() or what in disks() or what in layers():
        return
    if near := difflib.get_close_matches(what, disks(), n=1, cutoff=0.4):
        raise UsageError(f"no stack or disk {what!r}", f"is it {near[0]} (powercut list disks)?")
    if near := difflib.get_close_matches(what, layers(), n=1):
        raise UsageError(f"no stack or layer {what!r}", f"is it {near[0]} (powercut list layers)?")
    find_stack(what)


def _put_on(chosen: Sequence[Profile], what: str, *, every: bool) -> Iterator[Profile]:
    """These modes on a disk or a stack, or below a layer. `every`: all modes of a file system, or all there
    are, less those that cannot be there.
    """
    disk = disks().get(what)
    for profile in chosen:
        if disk is not None:
            if not (every and profile.needs_small_sectors(disk)):
                yield replace(profile.on_disk(disk, f"@{what}"), on_request=True)
        elif what in layers():
            if not (every and profile.why_not_below(layers()[what])):
                layer = layers()[what]
                yield profile.below_layer(what, layer, profiles()[layer.mode] if layer.mode else None)
        elif not (every and profile.needs_bare_disk):
            yield profile.on_stack(what)


def _named(name: str, known: Mapping[str, Profile]) -> list[Profile]:
    if name == "all":
        return [p for p in known.values() if not p.on_request]
    of_all = (p for p in known.values() if name == p.filesystem)
    found = [known[name]] if name in known else [p for p in of_all if p.is_of_any or not p.on_request]
    for p in profiles().values() if name.startswith(f"{ANY}/") and not found else ():
        if name == ruled_name(p):
            rules_of(p.contract, p.name)
    if not found and (named := [p.name for p in known.values() if p.filesystem == name]):
        raise UsageError(
            f"no mode of {name} runs unless it is named in full", f"name it: {' or '.join(named[:3])}"
        )
    filesystem, _, mode = name.partition("/")
    if not found and mode and (modes := [p.mode for p in known.values() if p.filesystem == filesystem]):
        near = difflib.get_close_matches(mode, modes, n=3, cutoff=0.7)
        raise UsageError(
            f"no mode of {filesystem} is called {mode!r}",
            near_or(name, [f"{filesystem}/{m}" for m in near], f"name one of: {', '.join(modes)}"),
        )
    if not found:
        candidates = [*dict.fromkeys(p.filesystem for p in known.values()), *known]
        raise UsageError(
            f"no file system or mode {name!r}",
            near_or(name, candidates, "powercut list modes names all"),
        )
    return found
