"""File systems and their modes: the TOML profiles of `vms/filesystems/`.

`vms/filesystems/<name>/filesystem.toml` holds what all modes share (mkfs, fsck, kernel messages,
tracepoints); each other TOML file beside it is a mode (mount options, contract). A new mode is a new file, a
new file system a new folder: whatever the harness knows of one file system stands there. What any kernel says
when something is wrong in it, whatever the file system, is in `vms/filesystems/complaints.toml`.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast

import msgspec

from harness.errors import EnvironmentLacks, ToolKilled, UsageError
from harness.filesystems.disks import USUAL, DiskKind, disks
from harness.filesystems.layers import Layer, find_layer, layers
from harness.filesystems.second import NODE, Patch, file_for, join, patch, split_off
from harness.filesystems.stacks import MEMBER, ConsoleSteps, Stack, Stacked, contradiction, find_stack, stacks
from harness.filesystems.tracepoints import Tracepoints
from harness.host.fork_server import Start, start_anew
from harness.host.programs import cached_program, command_of, fetch_program
from harness.host.resources import resource
from harness.host.text import near_or
from harness.model import FsckClass, FsckResult
from harness.oracles.contract import Contract
from harness.rules.promised import rules_of, why_no_rules
from harness.rules.rules import Rules

FILE_NAME = "filesystem.toml"
COMPLAINTS = "complaints.toml"
TOOL_TIMEOUT_S = 120
ANY = "any"
"""The file system that is only rules."""
IMAGE, SECOND = "{image}", "{second}"
EXISTING_BYTES_MAX = 64 << 30
"""Of a disk that somebody has."""
SHELL = "busybox:busybox-static"
_NO_FLUSHES = re.compile(r"\b(nobarrier|barrier=(0|none))\b")
"""Among mount options."""


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host program. `arguments` come before the image's path; in them `{image}` and `{second}` stand for
    the files of the disk and of its second device. `clean`, `dirty`: exit codes of an fsck; any other code
    means that it could not check. `environment` is added to the process's own. `writes`: it changes the image
    even when it only checks, so it gets a copy. `chatter`: regular expressions for whole lines of an fsck's
    output that report no error. `allowed`: those for runs of whole lines that call an error what recovery
    means to leave; where an fsck finds nothing else, it has found nothing. `too_old`: those for parts of
    lines in which it says that it does not know the file system's features: a newer kernel may use some that
    this host's program has never heard of.
    `taken`: those in which an mkfs says that this host has a file system with the same UUID: an exported
    image that is mounted or attached.
    `forks`: a fork of it that has been loaded, but has not begun, is as good as another start of it.
    `suites`: where its package and the libraries it needs are fetched from if this host does not have it;
    `always`: even if it has.
    """

    program: str
    package: str
    arguments: list[str] = []
    environment: dict[str, str] = {}
    clean: tuple[int, ...] = (0,)
    dirty: tuple[int, ...] = ()
    writes: bool = False
    chatter: list[str] = []
    allowed: list[str] = []
    too_old: list[str] = []
    taken: list[str] = []
    suites: list[str] = []
    always: bool = False
    forks: bool = False

    def unknown_features(self, output: str) -> str:
        """The line in which it says that it does not know the file system's features; empty if none."""
        return _line_like(self.too_old, output)

    def is_taken(self, output: str) -> str:
        """The line in which it says that the UUID is in use on this host; empty if none."""
        return _line_like(self.taken, output)

    def complaint(self, output: str) -> str:
        """The first line of output that reports an error which is not allowed; empty if there is none, or no
        chatter is known.
        """
        if not self.chatter:
            return ""
        lines = (line.strip() for line in self._without_allowed(output).splitlines())
        no_complaint = re.compile("|".join(["", *self.chatter]), re.IGNORECASE)
        return next((line for line in lines if not no_complaint.fullmatch(line)), "")

    def _without_allowed(self, output: str) -> str:
        for pattern in self.allowed:
            output = re.sub(rf"^(?:{pattern})$", "", output, flags=re.MULTILINE)
        return output

    def path(self) -> str:
        """Its path; sbin is searched too, and the cache. Raises EnvironmentLacks if it is missing."""
        if self.always:
            return self._fetched()
        found = shutil.which(self.program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        fetched = cached_program(self.program, self.package) if self.suites and not found else None
        if fetched:
            return str(fetched)
        if not found:
            raise EnvironmentLacks(f"{self.program} is not installed", f"run: apt-get install {self.package}")
        return found

    def _fetched(self) -> str:
        if found := cached_program(self.program, self.package, self.release):
            return str(found)
        raise EnvironmentLacks(
            f"{self.title} is not in the cache",
            "run powercut fetch for this mode, where there is a network",
        )

    @property
    def release(self) -> str:
        """The suites of which it always is, in a word; empty if any will do."""
        return "+".join(self.suites) if self.always else ""

    @property
    def title(self) -> str:
        """For people: `mkfs.xfs`, or `mkfs.xfs (trixie)`."""
        return f"{self.program} ({self.release})" if self.release else self.program

    def fetch(self) -> None:
        """Get it from another suite, if it is missing and one has it. Raises EnvironmentLacks."""
        try:
            self.path()
        except EnvironmentLacks:
            if self.suites:
                fetch_program(self.program, self.package, self.suites, self.release)

    def run(
        self,
        image: Path,
        more: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        start: Start = start_anew,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it on an image file; `stdout` of the result holds output and errors. Raises as `run_line`."""
        return self.run_line([*self.arguments, *more, IMAGE], image, environment, start)

    def run_line(
        self,
        words: Sequence[str],
        image: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
        start: Start = start_anew,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it with exactly these arguments, after filling in placeholders. Raises EnvironmentLacks if it
        is missing, ToolKilled if a signal ended it, or nothing did.
        """
        second = str(file_for(image))
        filled = [w.replace(IMAGE, str(image)).replace(SECOND, second) for w in words]
        next_step = "see what kills it (dmesg tells if memory ran out), then try again"
        try:
            line = [*command_of(Path(self.path())), *filled]
            done = start(line, {**os.environ, **self.environment, **environment}, TOOL_TIMEOUT_S)
        except subprocess.TimeoutExpired as e:
            raise ToolKilled(f"{self.program} did not end within {TOOL_TIMEOUT_S} s", next_step) from e
        if done.returncode < 0:
            raise ToolKilled(f"{self.program} was killed by signal {-done.returncode}", next_step)
        return done

    def words_in_guest(self, device: str, more: Sequence[str] = ()) -> list[str]:
        """Its command line in a guest that has it, for a device there."""
        environment = [f"{name}={value}" for name, value in self.environment.items()]
        setting = ["env", *environment] if environment else []
        return [*setting, self.program, *self.arguments, *more, device]

    def decoded(self, exit_code: int, output: str) -> FsckResult:
        """What an fsck says with this exit code and output."""
        if line := self.unknown_features(output):
            refused = f"{self.program} of this host is too old for what this kernel's file system has: {line}"
            return FsckResult(FsckClass.FAILED, exit_code, output, refused)
        if exit_code in self.clean:
            return FsckResult(FsckClass.CLEAN, exit_code, output)
        if exit_code in self.dirty:
            complaint = self.complaint(output)
            if not complaint and self._without_allowed(output) != output:
                return FsckResult(FsckClass.CLEAN, exit_code, output)
            return FsckResult(FsckClass.DIRTY, exit_code, output, complaint)
        return FsckResult(FsckClass.FAILED, exit_code, output)


class First(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done in the guest with a crashed disk before each mount: `steps`, a shell script of which no
    command may fail, in which `{device}` stands for the disk. One whose steps fail counts as one that does
    not mount. `programs`: of this host, with their packages, that come into the guest.
    """

    steps: str
    programs: list[str] = []

    @property
    def script(self) -> str:
        """The steps, in a guest."""
        return self.steps.replace("{device}", MEMBER)


class Second(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A second device behind the first. `fsck_arguments` tell fsck where it is. `steps`: programs that run
    after mkfs, with their complete arguments; `patches`: bytes to write after those.
    """

    size_mib: int
    fsck_arguments: list[str] = []
    steps: list[Tool] = []
    patches: list[Patch] = []

    @property
    def size_bytes(self) -> int:
        return self.size_mib << 20


class ConsolePatterns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Regular expressions over kernel messages: `errors` match when the driver finds corruption, `recovered`
    when it replays its journal. Those of a profile include the complaints of any kernel.
    """

    errors: list[str] = []
    recovered: list[str] = []


class Sectors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How mkfs is told of a disk's sectors, which it cannot see in an image file: `{logical}` and
    `{physical}` stand for their bytes in `mkfs_arguments` and `environment`.
    """

    mkfs_arguments: list[str] = []
    environment: dict[str, str] = {}

    def told(self, mkfs: Tool, disk: DiskKind) -> Tool:
        """mkfs with what it is told."""
        sizes = {"logical": disk.logical_bytes, "physical": disk.physical_bytes}
        return msgspec.structs.replace(
            mkfs,
            arguments=[*mkfs.arguments, *(a.format(**sizes) for a in self.mkfs_arguments)],
            environment=mkfs.environment | {k: v.format(**sizes) for k, v in self.environment.items()},
        )


class _ComplaintsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    errors: list[str]


@functools.cache
def complaints() -> tuple[str, ...]:
    """Regular expressions over lines in which a kernel says that something is wrong in it, whatever the file
    system. Raises UsageError for a file that does not parse.
    """
    return tuple(_decode(resource("vms", "filesystems", COMPLAINTS), _ComplaintsFile).errors)


class InToolsImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the guest with tools makes the file system: as users do, with mkfs's defaults, but without discard
    and lazy initialisation, so that nothing is written later that no operation asked for.
    """

    mkfs: tuple[str, ...]


class MountCounter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A structure on the disk, from byte `at` on, in which a file system counts; or, where it is `marked` (in
    hexadecimal), in each sector that begins so and has zeros at `zeros`. `fields`: offset in it and length of
    what no mount and no fsck goes by: mounts, times, bytes written. `recounted`: of what a mount finds out
    anew. `crc32c_at`: where the checksum of all before it stands, as the kernel's crc32c of ~0; of a
    structure that it does not fit, nothing is left out of account.
    """

    size_bytes: int
    fields: tuple[tuple[int, int], ...]
    at: int = 0
    marked: str = ""
    zeros: tuple[tuple[int, int], ...] = ()
    recounted: tuple[tuple[int, int], ...] = ()
    crc32c_at: int | None = None

    @property
    def mark(self) -> bytes:
        """What it begins with; empty for one that is in one place. Raises UsageError."""
        try:
            return bytes.fromhex(self.marked)
        except ValueError as e:
            raise UsageError(
                f"mount counters.marked: {self.marked!r} is not hexadecimal", "see vms/filesystems/xfs"
            ) from e


class _FilesystemFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    checksums: tuple[str, ...] = ()  # see `Contract`
    source: tuple[str, ...] = ()  # its own folders and files in the kernel's source
    usual: str = "default"  # the mode that most people use
    recovery: tuple[str, ...] = ()  # see `RecoverySource.parse`
    tools_image: InToolsImage | None = None
    tracing: Tracepoints | str | None = None  # text: the folder whose tracepoints it shares


class _ModeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    contract: dict[str, object]
    on_request: bool = False
    source: tuple[str, ...] = ()  # files of the kernel's source that this mode alone runs, as patterns
    mount_options: list[str] = []
    mkfs_arguments: list[str] = []
    disk: str = ""  # of vms/disks; empty: the usual one
    mkfs_without: list[str] = []  # shared arguments that this mode leaves out
    # Packages whose programs always come from these suites, since an older one lacks what this mode needs.
    newer: dict[str, list[str]] = {}
    options: list[str] = []  # of the kernel, beyond the driver: `XFS_RT`
    steps: list[Tool] = []  # run after mkfs, with their complete arguments
    stack: Stack | None = None  # of its own: devices among which the file system itself divides its data
    read_only_first: bool = False  # a crashed disk is mounted `ro`, then remounted
    unrepaired: bool = False  # the file system's `[repair]` does not run before the mount
    first: First | None = None
    checksums: tuple[str, ...] | None = None  # None: as the file system has them
    second: Second | None = None


class _RulesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str
    rules: Rules


@dataclass(frozen=True, slots=True)
class RecoverySource:
    """A file of the kernel's source, and a regular expression for those of its functions that recover."""

    file: str
    functions: str

    @classmethod
    def parse(cls, text: str) -> RecoverySource:
        """`FILE`, all of it, or `FILE:FUNCTIONS`."""
        file, _, functions = text.partition(":")
        return cls(file, functions or ".+")

    def holds(self, file: str, function: str) -> bool:
        """Whether a function of a file is one of them."""
        return file == self.file and re.fullmatch(self.functions, function) is not None


@dataclass(frozen=True, slots=True)
class Profile:
    """A file system in a mode, written `ext4/ordered`; on a stack, `ext4/ordered@raid1`; below a layer,
    `ext4/ordered@overlay`; on another kind of disk, `ext4/ordered@4k`. `size_bytes`: of the disk, second
    device or all members of the stack included. `fsck`: None if there is no such program. `repair`: must run
    on the image before it is mounted; `clean` exit codes mean that it succeeded. `tools_image`: None if the
    guest with tools has no mkfs for it. `tracing`: None if the kernel has no tracepoints for its journal; its
    `programs` are paths. `on_request`: runs only if it is named in full, never as one of `all` or of its file
    system's modes. `mounted_once`: its base image holds what a first mount writes
    (`harness.cases.first_mount`). `mailing_list`: of those who look after it in Linux. `options`: that the
    kernel must have been built with, beside its driver. `steps`: programs that run after mkfs.
    `read_only_first`: after a crash it is mounted read-only, as a boot does with its root file system, and
    then remounted. `first`: what is done with a crashed disk before it is mounted. `source`: its file
    system's own folders and files in the kernel's source; `mode_source`: files that this mode alone runs;
    `recovery`: where its recovery is there. `usual`: the mode that most people use. `mount_counters`: where
    it counts its mounts.
    `roll_forward_allocates`: recovery decides which blocks a file has. `no_csum_no_compression`: neither
    checksums nor compression join blocks of data, nor does any structure that is read with them.
    `seek_reads_mapping`: lseek(SEEK_DATA) and lseek(SEEK_HOLE) read all that says where a file's data lies,
    so that nothing of it is read with the data. `layer`: what is mounted above it; `inside`: the mode of the
    file system that the layer makes in a file of it. `rules`: of a mode that is only rules: no kernel's file
    system is tested, and nothing is on the disk.
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
    second: Second | None = None
    tools_image: InToolsImage | None = None
    tracing: Tracepoints | None = None
    on_request: bool = False
    mounted_once: bool = False
    mailing_list: str = ""
    read_only_first: bool = False
    stacked: Stacked | None = None
    source: tuple[str, ...] = ()
    mode_source: tuple[str, ...] = ()
    usual: bool = False
    recovery: tuple[RecoverySource, ...] = ()
    disk: DiskKind = USUAL
    sectors: Sectors | None = None
    options: tuple[str, ...] = ()
    steps: tuple[Tool, ...] = ()
    mount_counters: tuple[MountCounter, ...] = ()
    roll_forward_allocates: bool = False
    no_csum_no_compression: bool = False
    seek_reads_mapping: bool = False
    first: First | None = None
    layer: Layer | None = None
    inside: Profile | None = None
    rules: Rules | None = None

    @property
    def is_of_any(self) -> bool:
        """Whether it is only rules, and of no file system."""
        return self.rules is not None and self.rules.contract is None

    @property
    def first_options(self) -> str:
        """Options of the first mount after a crash."""
        return ",".join(filter(None, ["ro" if self.read_only_first else "", self.mount_options]))

    @property
    def second_offset(self) -> int:
        """Offset of the second device on the disk; 0 if there is none."""
        return self.size_bytes - self.second.size_bytes if self.second else 0

    @property
    def parts(self) -> tuple[int, ...]:
        """The bytes of the disk at which its further devices begin."""
        if self.stacked:
            return self.stacked.begins
        return (self.second_offset,) if self.second else ()

    @property
    def name(self) -> str:
        return f"{self.filesystem}/{self.mode}"

    @property
    def folder(self) -> str:
        """The folder in which operations run, on a disk that somebody has; else empty."""
        return self.layer.folder if self.layer else ""

    @property
    def base_bytes_max(self) -> int:
        """How large its base image may be."""
        return EXISTING_BYTES_MAX if self.folder else self.size_bytes

    @property
    def is_finished_in_guest(self) -> bool:
        """Whether its base image takes a guest (`harness.cases.first_mount`)."""
        return bool(self.mounted_once or self.is_made_in_guest or self.folder)

    @property
    def is_made_in_guest(self) -> bool:
        """Whether a file system is made there: on a stack, or in a file of this one."""
        return bool(self.stacked or self.inside)

    @property
    def needs_bare_disk(self) -> str:
        """Why it can neither be on a stack nor below a layer; empty if it can."""
        if self.rules:
            return "no disk at all"
        if self.second:
            return "a second device"
        if self.stacked:
            return "devices of its own"
        if self.first or self.layer:
            return "a disk on which something is done before it is mounted"
        if any(tool.always for tool in self.tools):
            return "programs of another release, which the guest does not have"
        writes = self.repair or (self.fsck and self.fsck.writes)
        return "programs of the host that write to its disk" if writes else ""

    def why_not_below(self, layer: Layer) -> str:
        """What it takes, if that is not to be below this layer; empty if it can."""
        if why := self.needs_bare_disk or (self.read_only_first and "two mounts"):
            return why
        if layer.mode and not self.contract.keeps_files_synced:
            return "no fsync for a promise, on which all in a file of it would depend"
        of_mkfs = [*self.mkfs_arguments, *(step.program for step in self.steps)]
        return f"a disk of its own mkfs ({shlex.join(of_mkfs)})" if layer.folder and of_mkfs else ""

    def on_stack(self, name: str) -> Profile:
        """The same mode on a stack: `raid1`, or `raid1-0` where member 0 is missing after the power cut.
        Raises UsageError for a stack that is none, and for a mode that takes one disk as it is.
        """
        stack, missing = find_stack(name)
        if why := self.needs_bare_disk:
            raise UsageError(f"{self.name} takes {why}, and not a stack", "name another mode")
        made = Stacked(name, stack, self.size_bytes >> 20, missing)
        there = replace(self, mode=f"{self.mode}@{name}", summary=f"{self.summary}; on {stack.summary}")
        return replace(there._divided(made), on_request=True)

    def below_layer(self, name: str) -> Profile:
        """The same mode below a layer. Raises UsageError for a layer that is none, and for a mode that takes
        one disk as it is.
        """
        layer = find_layer(name)
        if why := self.why_not_below(layer):
            raise UsageError(f"{self.name} takes {why}, and no layer", "name another mode")
        below = replace(
            self.sized(layer.image_mib),
            mode=f"{self.mode}@{name}",
            summary=f"{self.summary}; below {layer.summary}",
            modules=(*self.modules, *layer.modules),
            contract=layer.kept_of(self.contract),
            seek_reads_mapping=self.seek_reads_mapping and layer.passes_seek,
            layer=layer.above(self.fstype, self.mount_options),
            on_request=True,
        )
        return below._with(profiles()[layer.mode], layer) if layer.mode else below

    def _with(self, inside: Profile, layer: Layer) -> Profile:
        """The same, with a file system in a file of it, whose promises are judged. What reads the data of
        that reads where this one has the file, too.
        """
        contract = replace(
            layer.kept_of(inside.contract),
            fsck_clean=self.contract.fsck_clean and inside.contract.fsck_clean,
            checksums=self.contract.checksums,
        )
        both = (self.console, inside.console)
        return replace(
            self,
            modules=(*self.modules, *inside.modules),
            console=ConsolePatterns(
                errors=[*dict.fromkeys(line for of in both for line in of.errors)],
                recovered=[*dict.fromkeys(line for of in both for line in of.recovered)],
            ),
            contract=contract,
            layer=self.layer and self.layer.holding(inside.fstype, inside.mount_options),
            inside=inside,
            seek_reads_mapping=False,
        )

    def on_members(self, stack: Stack) -> Iterator[Profile]:
        """A mode that divides its data among devices itself: with all of them, and less each that it can do
        without.
        """
        for missing in (None, *stack.may_miss):
            name = self.mode if missing is None else f"{self.mode}-{missing}"
            made = replace(self, mode=name)._divided(Stacked(name, stack, self.size_bytes >> 20, missing))
            yield made if missing is None else replace(made, on_request=True)

    def _divided(self, stacked: Stacked) -> Profile:
        """On these members."""
        stack, missing = stacked.stack, stacked.missing
        options = [self.mount_options, *(stack.degraded if missing is not None else ())]
        return replace(
            self,
            summary=self.summary + ("" if missing is None else f" less {missing}"),
            size_bytes=sum(stacked.sizes),
            modules=(*self.modules, *stack.modules),
            mount_options=",".join(filter(None, options)),
            contract=replace(self.contract, rules=(*self.contract.rules, "untouched-stays")),
            stacked=stacked,
        )

    def needs_small_sectors(self, disk: DiskKind) -> str:
        """Why it cannot be on a disk of this kind; empty if it can."""
        if disk.logical_bytes == USUAL.logical_bytes or self.sectors:
            return ""
        return f"sectors of {USUAL.logical_bytes} bytes: nothing says how its mkfs is told of others"

    def on_disk(self, disk: DiskKind, suffix: str = "") -> Profile:
        """The same mode on another kind of disk; `suffix`: of its name. Raises UsageError for a file system
        that cannot be on that disk.
        """
        if why := self.needs_small_sectors(disk):
            raise UsageError(
                f"{self.name} needs {why}", "name another mode, or a disk of powercut list disks"
            )
        larger = disk.physical_bytes > USUAL.physical_bytes
        return replace(
            self,
            mode=f"{self.mode}{suffix}",
            summary=f"{self.summary}; on {disk.summary}",
            mkfs=self.sectors.told(self.mkfs, disk) if self.sectors and larger else self.mkfs,
            disk=disk,
        )

    @property
    def guest_programs(self) -> list[str]:
        """The programs of this host that come into the guest, each with its package: what is run there before
        a mount; mkfs and fsck of a file system that is made there, since only the kernel knows where its
        bytes are.
        """
        if self.first:
            return [SHELL, *self.first.programs]
        if not (self.stacked or self.layer):
            return []
        own = [
            *(self.stacked.stack.programs if self.stacked else ()),
            *(self.layer.programs if self.layer else ()),
        ]
        made = (self.inside or self) if self.is_made_in_guest else None
        tools = (made.mkfs, made.fsck) if made else ()
        return [SHELL, *own, *(f"{tool.program}:{tool.package}" for tool in tools if tool)]

    @property
    def apart(self) -> tuple[str, ...]:
        """What a pattern has to name if it is to say something of this mode, since others do not show it. A
        mode that is told to send no flushes breaks promises by that alone; below a layer that holds a file
        system, the promises of that are judged.
        """
        mode = self.mode.partition("@")[0]
        no_flushes = bool(_NO_FLUSHES.search(self.mount_options))
        return (*[mode] * no_flushes, *["@"] * bool(self.inside))

    @property
    def console_steps(self) -> ConsoleSteps | None:
        """The steps for a console after a power cut: of a stack, of a layer, or of the mode. Those of a layer
        take another disk as their argument: the recovered one.
        """
        if self.stacked:
            stack = self.stacked.stack
            return ConsoleSteps(stack.device, self.stacked.start, stack.stop)
        if self.layer:
            start = self.layer.start.replace(MEMBER, f"${{1:-{MEMBER}}}")
            return ConsoleSteps(self.layer.device or self.layer.fstype, start, self.layer.stop)
        return ConsoleSteps("", self.first.script, "") if self.first else None

    def making_script(self) -> str:
        """What makes a stack or a file, and the file system on it, in the guest."""
        if self.inside and self.layer:
            mkfs = self.inside.mkfs.words_in_guest(self.layer.device, self.inside.mkfs_arguments)
            return self.layer.making(shlex.join(mkfs))
        assert self.stacked  # noqa: S101 - who asks has seen it
        device = self.stacked.stack.device
        lines = [self.mkfs.words_in_guest(device, self.mkfs_arguments)]
        if self.mounted_once:
            lines += [["mount", "-t", self.fstype, device, "/mnt"], ["umount", "/mnt"]]
        return self.stacked.making(lines)

    @property
    def fsck_in_guest(self) -> Tool:
        """The fsck of the file system that is made there."""
        fsck = (self.inside or self).fsck
        assert fsck  # noqa: S101 - as above
        return fsck

    def checking_script(self) -> str:
        """What starts the stack, or attaches the file, runs fsck on it and stops it, in the guest."""
        if self.inside and self.layer:
            return self.layer.checking(shlex.join(self.fsck_in_guest.words_in_guest(self.layer.device)))
        assert self.stacked  # noqa: S101 - as above
        return self.stacked.on_it(shlex.join(self.fsck_in_guest.words_in_guest(self.stacked.stack.device)))

    def sized(self, image_mib: int) -> Profile:
        """The same mode on a first device of at least so many MiB; itself where that is so already, and on a
        disk that somebody has.
        """
        if self.folder:
            return self
        if self.stacked:
            larger = replace(self.stacked, filesystem_mib=max(image_mib, self.stacked.filesystem_mib))
            same = larger == self.stacked
            return self if same else replace(self, size_bytes=sum(larger.sizes), stacked=larger)
        second_bytes = self.second.size_bytes if self.second else 0
        size_bytes = (image_mib << 20) + second_bytes
        return replace(self, size_bytes=size_bytes) if size_bytes > self.size_bytes else self

    @property
    def mkfs_line(self) -> str:
        """The programs that make it, with their arguments, for people."""
        lines = [[self.mkfs.program, *self.mkfs.arguments, *self.mkfs_arguments]]
        lines += [[step.program, *step.arguments] for step in self.steps]
        if self.second:
            lines += [[step.program, *step.arguments] for step in self.second.steps]
        if self.stacked:
            steps = self.stacked.stack.make.strip().replace("\n", "; ")
            return f"{steps}; {shlex.join(lines[0])}"
        return "; ".join(map(shlex.join, lines))

    @property
    def tools_mkfs(self) -> tuple[str, ...]:
        """The command that makes it in the guest with tools, to be followed by the device."""
        return self.tools_image.mkfs if self.tools_image else (self.mkfs.program, *self.mkfs.arguments)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The host programs that a run of this mode needs."""
        steps = self.second.steps if self.second else ()
        return tuple(t for t in (self.mkfs, self.fsck, self.repair, *steps, *self.steps) if t)

    def fetch_tools(self) -> None:
        """Get the programs that this host's release does not have. Raises EnvironmentLacks."""
        for tool in self.tools:
            tool.fetch()

    def lacks(self) -> str:
        """What this host lacks to run this mode, and how to get it; empty if nothing."""
        for tool in self.tools:
            try:
                tool.path()
            except EnvironmentLacks as e:
                return e.line
        return ""

    def make_filesystem(self, image: Path) -> None:
        """Run mkfs on an image file of its final size. Raises EnvironmentLacks with mkfs's output if it
        refuses, ToolKilled if it did not come to its end.
        """
        mkfs_words = [*self.mkfs.arguments, *self.mkfs_arguments, IMAGE]
        if self.second is None:
            _succeed(self.mkfs, mkfs_words, image)
            for step in self.steps:
                _succeed(step, step.arguments, image)
            return
        second = split_off(image, self.second_offset)
        os.truncate(image, self.second_offset)
        _succeed(self.mkfs, mkfs_words, image)
        for step in (*self.second.steps, *self.steps):
            _succeed(step, step.arguments, image)
        patch(second, self.second.patches)
        join(image, second, self.second_offset, self.second.size_bytes)

    def check_filesystem(
        self,
        image: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
        start: Start = start_anew,
    ) -> FsckResult:
        """Run the native fsck on an image file and decode its exit code. Not for one on a stack, whose bytes
        only the guest can find.
        """
        if self.fsck is None:
            return FsckResult(FsckClass.FAILED, -1, f"there is no fsck for {self.filesystem}")
        if self.stacked:
            return FsckResult(FsckClass.FAILED, -1, "on a stack, fsck runs in the guest")
        if self.second is not None:
            split_off(image, self.second_offset)
        try:
            more = self.second.fsck_arguments if self.second else ()
            done = self.fsck.run(image, more, environment, start)
        except (EnvironmentLacks, ToolKilled) as e:
            return FsckResult(FsckClass.FAILED, -1, str(e))
        output = done.stdout.decode(errors="replace")
        output = output.replace(str(file_for(image)), "SECOND").replace(str(image), "IMAGE")
        return self.fsck.decoded(done.returncode, output)


def _line_like(patterns: Sequence[str], output: str) -> str:
    """The first line that one of the regular expressions finds a part of; empty if none does."""
    says = re.compile("|".join(patterns) or "(?!)")
    return next((line.strip() for line in output.splitlines() if says.search(line)), "")


def _succeed(tool: Tool, words: Sequence[str], image: Path) -> None:
    """Run a program with these arguments. Raises ToolKilled, and EnvironmentLacks with what it said."""
    done = tool.run_line(words, image)
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip()
        if taken := tool.is_taken(said):
            raise EnvironmentLacks(
                f"{tool.program} makes no file system with the UUID of one that this host has: {taken}",
                "an exported image is mounted or attached: unmount it (findmnt), detach it (losetup --list)",
            )
        raise EnvironmentLacks(
            f"{tool.program} failed with {done.returncode}: {said}",
            f"correct its arguments in vms/filesystems, or get a newer {tool.package}",
        )


def profiles() -> dict[str, Profile]:
    """Every mode of every file system, by name. Raises UsageError for a file that does not parse."""
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
        return cast("FileT", _decoded(path.read_bytes(), kind))  # type: ignore[arg-type]  # a class is hashable
    except (OSError, msgspec.MsgspecError) as e:
        raise UsageError(f"{path}: {e}", f"compare it with its neighbours in {path.parent}") from e


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


def _profiles(filesystem: str, path: Path, shared: _FilesystemFile) -> list[Profile]:
    """The mode of a file; and where it has devices of its own, the same less each that may be missing."""
    mode = _decode(path, _ModeFile)
    if mode.stack and (what := contradiction(mode.stack)):
        raise UsageError(f"{path}: {what}", "see vms/filesystems/btrfs/raid1.toml")
    if wrong := next(_wrong_with_second(mode, shared), None):
        raise UsageError(f"{path}: {wrong}", "see vms/filesystems/ext4/external-journal.toml")
    if mode.disk and mode.disk not in disks():
        raise UsageError(f"{path}: no disk {mode.disk!r}", f"one of: {', '.join(disks())} (vms/disks)")
    if mode.first and (mode.second or mode.stack or shared.repair):
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
        modules=tuple(shared.modules),
        mkfs=_newer(_without(shared.mkfs, mode.mkfs_without), mode.newer),
        mkfs_arguments=tuple(mode.mkfs_arguments),
        fsck=shared.fsck and _newer(shared.fsck, mode.newer),
        repair=None if mode.unrepaired else shared.repair and _newer(shared.repair, mode.newer),
        console=msgspec.structs.replace(shared.console, errors=[*shared.console.errors, *complaints()]),
        mount_options=",".join(mode.mount_options),
        contract=Contract.from_table(
            mode.contract,
            shared.made_by_mkfs,
            shared.checksums if mode.checksums is None else mode.checksums,
        ),
        second=mode.second,
        sectors=shared.sectors,
        options=tuple(mode.options),
        steps=tuple(mode.steps),
        tools_image=shared.tools_image,
        tracing=_tracing(path.parent, shared.tracing),
        on_request=mode.on_request,
        mounted_once=shared.mounted_once,
        mailing_list=shared.mailing_list,
        read_only_first=mode.read_only_first,
        first=mode.first,
        source=shared.source,
        mode_source=mode.source,
        usual=path.stem == shared.usual,
        recovery=tuple(map(RecoverySource.parse, shared.recovery)),
        # A program that looks at the disk first may look at these, and say so.
        mount_counters=() if mode.first else shared.mount_counters,
        roll_forward_allocates=shared.roll_forward_allocates,
        no_csum_no_compression=shared.no_csum_no_compression,
        seek_reads_mapping=shared.seek_reads_mapping,
    )
    if mode.disk:
        made = made.on_disk(disks()[mode.disk])
    return [*made.on_members(mode.stack)] if mode.stack else [made]


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
                yield profile.below_layer(what)
        elif what not in stacks() and (near := difflib.get_close_matches(what, disks(), n=1, cutoff=0.4)):
            raise UsageError(f"no stack or disk {what!r}", f"is it {near[0]} (powercut list disks)?")
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
    if not found:
        candidates = [*dict.fromkeys(p.filesystem for p in known.values()), *known]
        raise UsageError(
            f"no file system or mode {name!r}",
            near_or(name, candidates, "powercut list filesystems names all"),
        )
    return found
