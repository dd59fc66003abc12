"""File systems and their modes: the TOML profiles of `vms/filesystems/`.

`vms/filesystems/<name>/filesystem.toml` holds what all modes share (mkfs, fsck, kernel messages);
each other file beside it is a mode (mount options, contract). A new mode is a new file.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from harness.errors import EnvironmentLacks, UsageError
from harness.model import FsckClass, FsckResult
from harness.oracles.contract import Contract
from harness.resources import resource

FSCK_TIMEOUT_S = 120


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host program: `arguments` go before the image's path. `clean`, `dirty`: exit codes of an fsck;
    every other code means that it could not do its work. `environment` is added to the process's own.
    `writes`: it changes an image that it only checks, so it is given a copy.
    """

    program: str
    package: str
    arguments: list[str] = []
    environment: dict[str, str] = {}
    clean: tuple[int, ...] = (0,)
    dirty: tuple[int, ...] = ()
    writes: bool = False

    def path(self) -> str:
        """Where the program is; sbin is looked at too. Raises EnvironmentLacks where it is missing."""
        found = shutil.which(self.program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        if not found:
            raise EnvironmentLacks(f"{self.program} is not installed", f"run: apt-get install {self.package}")
        return found

    def run(
        self, image: Path, more: Sequence[str] = (), environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it on an image file, output and errors together in `stdout`."""
        return subprocess.run(
            [self.path(), *self.arguments, *more, image],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment, **environment},
            timeout=FSCK_TIMEOUT_S,
            check=False,
        )


class ConsolePatterns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Regular expressions over kernel messages: `errors` say that the driver met corruption,
    `recovered` that it replayed its journal.
    """

    errors: list[str] = []
    recovered: list[str] = []


class _FilesystemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    fstype: str
    size_mib: int
    modules: list[str]
    mkfs: Tool
    console: ConsolePatterns
    fsck: Tool | None = None
    repair: Tool | None = None


class _ModeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    contract: dict[str, object]
    mount_options: list[str] = []
    mkfs_arguments: list[str] = []
    mkfs_without: list[str] = []  # shared arguments that this mode leaves out


@dataclass(frozen=True, slots=True)
class Profile:
    """A file system in a mode, written `ext4/ordered`. `fsck` is None where there is no such program.
    `repair`: what must be run on the image before a mount; its `clean` exit codes say that it did its work.
    """

    filesystem: str
    mode: str
    summary: str
    fstype: str
    size_bytes: int
    modules: tuple[str, ...]
    mkfs: Tool
    mkfs_arguments: tuple[str, ...]
    fsck: Tool | None
    repair: Tool | None
    console: ConsolePatterns
    mount_options: str
    contract: Contract

    @property
    def name(self) -> str:
        return f"{self.filesystem}/{self.mode}"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Every host program that a run of this mode needs."""
        return tuple(t for t in (self.mkfs, self.fsck, self.repair) if t)

    def lacks(self) -> str:
        """What is missing on this host to run this mode, and how to get it; empty where nothing is."""
        for tool in self.tools:
            try:
                tool.path()
            except EnvironmentLacks as e:
                return str(e).replace("\n", "; ")
        return ""

    def make_filesystem(self, image: Path) -> None:
        """mkfs on an image file that has its final size. Raises EnvironmentLacks with what mkfs said."""
        done = self.mkfs.run(image, self.mkfs_arguments)
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip()
            raise EnvironmentLacks(f"{self.mkfs.program} failed with {done.returncode}: {said}")

    def check_filesystem(
        self, image: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> FsckResult:
        """The native fsck on an image file, its exit code decoded as the profile says."""
        if self.fsck is None:
            return FsckResult(FsckClass.FAILED, -1, f"there is no fsck for {self.filesystem}")
        try:
            done = self.fsck.run(image, (), environment)
        except (EnvironmentLacks, subprocess.TimeoutExpired) as e:
            return FsckResult(FsckClass.FAILED, -1, str(e))
        output = done.stdout.decode(errors="replace").replace(str(image), "IMAGE")
        if done.returncode in self.fsck.clean:
            return FsckResult(FsckClass.CLEAN, done.returncode, output)
        if done.returncode in self.fsck.dirty:
            return FsckResult(FsckClass.DIRTY, done.returncode, output)
        return FsckResult(FsckClass.FAILED, done.returncode, output)


def profiles() -> dict[str, Profile]:
    """Every file system and mode, by name, in order. Raises UsageError for a profile that does not parse."""
    found = {}
    for shared_path in sorted(resource("vms", "filesystems").glob("*/filesystem.toml")):
        shared = _decode(shared_path, _FilesystemFile)
        for path in sorted(shared_path.parent.glob("*.toml")):
            if path != shared_path:
                profile = _profile(shared_path.parent.name, path, shared)
                found[profile.name] = profile
    return found


FileT = TypeVar("FileT")


def _decode(path: Path, kind: type[FileT]) -> FileT:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as e:
        raise UsageError(f"{path}: {e}", f"compare it with its neighbours in {path.parent}") from e


def _without(tool: Tool, left_out: Sequence[str]) -> Tool:
    kept = [a for a in tool.arguments if a not in left_out]
    return msgspec.structs.replace(tool, arguments=kept)


def _profile(filesystem: str, path: Path, shared: _FilesystemFile) -> Profile:
    mode = _decode(path, _ModeFile)
    return Profile(
        filesystem=filesystem,
        mode=path.stem,
        summary=mode.summary,
        fstype=shared.fstype,
        size_bytes=shared.size_mib << 20,
        modules=tuple(shared.modules),
        mkfs=_without(shared.mkfs, mode.mkfs_without),
        mkfs_arguments=tuple(mode.mkfs_arguments),
        fsck=shared.fsck,
        repair=shared.repair,
        console=shared.console,
        mount_options=",".join(mode.mount_options),
        contract=Contract.from_table(mode.contract),
    )


def select_profiles(wanted: Sequence[str]) -> list[Profile]:
    """Those named: `ext4/ordered`, `ext4` (every mode), `all`. Raises UsageError with the nearest names."""
    known = profiles()
    return list({p.name: p for name in wanted for p in _named(name, known)}.values())


def _named(name: str, known: Mapping[str, Profile]) -> list[Profile]:
    if name == "all":
        return list(known.values())
    found = [p for p in known.values() if name in (p.name, p.filesystem)]
    if not found:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
        raise UsageError(
            f"no file system or mode {name!r}", f"try one of: {', '.join(near)} (powercut list filesystems)"
        )
    return found
