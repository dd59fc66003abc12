"""A file system in a mode: what it is made of, and where it can be put."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from harness.errors import EnvironmentLacks, ToolKilled, UsageError
from harness.filesystems.disks import USUAL, DiskKind
from harness.filesystems.layers import Layer
from harness.filesystems.second import Patch, file_for, join, patch, split_off
from harness.filesystems.stacks import MEMBER, ConsoleSteps, Stack, Stacked, find_stack
from harness.filesystems.tools import IMAGE, Tool, succeed
from harness.filesystems.tracepoints import Tracepoints
from harness.host.fork_server import Start, start_anew
from harness.model import FsckClass, FsckResult
from harness.oracles.contract import Contract
from harness.rules.rules import Rules

EXISTING_BYTES_MAX = 64 << 30
"""Of a disk that somebody has."""
SHELL = "busybox:busybox-static"
_NO_FLUSHES = re.compile(r"\b(nobarrier|barrier=(0|none))\b")
"""Among mount options."""


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
    when it replays its journal. Each file system also gets the patterns of `complaints.toml`, which hold for
    any kernel.
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


def _other(on: str) -> str:
    """What to name in place of a mode that cannot be on that."""
    return f"name a mode that can, such as ext4/ordered{on}; powercut list modes names all"


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
    `words`: what stands in lines of its file system that it alone runs; `workloads`: those that run them;
    `recovery`: where its recovery is there. `usual`: the mode that most people use.
    `not_in_linux`: how to get its modules, which no kernel has. `mount_counters`: where
    it counts its mounts.
    `roll_forward_allocates`: recovery decides which blocks a file has. `no_csum_no_compression`: neither
    checksums nor compression join blocks of data, nor does any structure that is read with them.
    `block_bytes`: of a mode whose blocks are small, how small; else 0.
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
    words: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    usual: bool = False
    not_in_linux: str = ""
    recovery: tuple[RecoverySource, ...] = ()
    disk: DiskKind = USUAL
    sectors: Sectors | None = None
    options: tuple[str, ...] = ()
    steps: tuple[Tool, ...] = ()
    mount_counters: tuple[MountCounter, ...] = ()
    roll_forward_allocates: bool = False
    no_csum_no_compression: bool = False
    block_bytes: int = 0
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
        """What it takes, if that is neither a stack nor to be below a layer; empty if it can be there."""
        older = any(tool.always for tool in self.tools)
        whys = (
            (self.rules, "no disk at all"),
            (self.second, "a second device"),
            (self.stacked, "devices of its own"),
            (self.layer, "one layer or stack alone"),
            (self.first, "a disk on which something is done before it is mounted"),
            (older, "programs of another release, which the guest does not have"),
        )
        return next((why for holds, why in whys if holds), self._of_host)

    @property
    def _of_host(self) -> str:
        """The program of this host that changes its disk; empty if there is none."""
        if self.repair:
            return f"{self.repair.program} of this host, which repairs its disk before the mount"
        writes = self.fsck if self.fsck and self.fsck.writes else None
        return f"{writes.program} of this host, which writes to its disk" if writes else ""

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
            raise UsageError(f"{self.name} takes {why}, and not @{name}", _other(f"@{name}"))
        made = Stacked(stack, self.size_bytes >> 20, missing)
        there = replace(self, mode=f"{self.mode}@{name}", summary=f"{self.summary}; on {stack.summary}")
        return replace(there._divided(made), on_request=True)

    def below_layer(self, name: str, layer: Layer, inside: Profile | None) -> Profile:
        """The same mode below a layer of this name; `inside`: the mode of the file system that the layer
        makes in a file of it. Raises UsageError for a mode that takes one disk as it is.
        """
        if why := self.why_not_below(layer):
            on, asked = ("", "--image") if layer.folder else (f"@{name}", f"@{name}")
            raise UsageError(f"{self.name} takes {why}, and not {asked}", _other(on))
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
        return below._with(inside, layer) if inside else below

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
            made = replace(self, mode=name)._divided(Stacked(stack, self.size_bytes >> 20, missing))
            yield made if missing is None else replace(made, on_request=True)

    def _divided(self, stacked: Stacked) -> Profile:
        """On these members."""
        stack, missing = stacked.stack, stacked.missing
        options = [self.mount_options, *(stack.degraded if missing is not None else ())]
        return replace(
            self,
            summary=self.summary
            + ("" if missing is None else f"; device {missing} is missing after the power cut"),
            size_bytes=sum(stacked.sizes),
            modules=(*self.modules, *stack.modules),
            mount_options=",".join(filter(None, options)),
            contract=replace(self.contract, rules=(*self.contract.rules, "untouched-stays")),
            stacked=stacked,
        )

    def needs_small_sectors(self, disk: DiskKind) -> str:
        """Why it cannot be on a disk of this kind; empty if it can."""
        if self.block_bytes and disk.logical_bytes > self.block_bytes:
            return f"sectors of {self.block_bytes} bytes at most, as its blocks are no larger"
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
        if self.stacked and (suites := self.stacked.stack.suites):
            for wanted in self.stacked.stack.programs:
                name, _, package = wanted.partition(":")
                Tool(name, package, suites=suites).fetch()

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
            succeed(self.mkfs, mkfs_words, image)
            for step in self.steps:
                succeed(step, step.arguments, image)
            return
        second = split_off(image, self.second_offset)
        os.truncate(image, self.second_offset)
        succeed(self.mkfs, mkfs_words, image)
        for step in (*self.second.steps, *self.steps):
            succeed(step, step.arguments, image)
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
