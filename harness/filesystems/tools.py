"""Programs of this host that make, check and repair file systems: mkfs, fsck and their kin."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from harness.errors import EnvironmentLacks, ToolKilled
from harness.filesystems.second import file_for
from harness.host.cache import cache_dir
from harness.host.fork_server import Start, start_anew
from harness.host.locks import exclusive
from harness.host.programs import cached_program, command_of, fetch_program
from harness.model import FsckClass, FsckResult

TOOL_TIMEOUT_S = 120
ATTACHED_S = 120.0
IMAGE, SECOND = "{image}", "{second}"
"""In the arguments of a program: the files of the disk and of its second device."""
_PATH_ALONE = re.compile(r"^(/[^:\n]*?)[^\S\n]*\n[^\S\n]+(?=\S)", re.MULTILINE)
"""fsck.fat names a file on a line of its own, and indents what is wrong with it."""
_TWO_PATHS = re.compile(r"^(/[^:\n]*?)[^\S\n]+and\n(?=/)([^\n]*)", re.MULTILINE)
"""Of two files that share clusters, the first one's line ends with `and`."""


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host program. `arguments` come before the image's path; in them `{image}` and `{second}` stand for
    the files of the disk and of its second device. `clean`, `dirty`: exit codes of an fsck; any other code
    means that it could not check. `environment` is added to the process's own. `writes`: it changes the image
    even when it only checks, so it gets a copy. `chatter`: regular expressions for whole lines of an fsck's
    output that report no error. `damaged`: those for whole lines that say that the file system is damaged,
    whatever the exit code, which may be that of a program that could not look. `allowed`: those for runs of
    whole lines that call an error what recovery means to leave; where an fsck finds nothing else, it has
    found nothing. `lesser`: those for whole lines that are its complaint only where it has no other.
    `too_old`: those for parts of lines in which it says that it does not know the file system's features: a
    newer kernel may use some that this host's program has never heard of.
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
    damaged: list[str] = []
    allowed: list[str] = []
    lesser: list[str] = []
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
        """The first line of output that reports an error which is not allowed, lesser ones last; empty if
        there is none, or no chatter is known. A path alone on a line is followed by what is said of it.
        """
        if not self.chatter:
            return ""
        said = _TWO_PATHS.sub(r"\1 and \2", self._without_allowed(output))
        said = _PATH_ALONE.sub(r"\1: ", said)
        lines = (line.strip() for line in said.splitlines())
        no_complaint = re.compile("|".join(["", *self.chatter]), re.IGNORECASE)
        complaints = [line for line in lines if not no_complaint.fullmatch(line)]
        lesser = re.compile("|".join(["", *self.lesser]))
        return next((line for line in complaints if not lesser.fullmatch(line)), next(iter(complaints), ""))

    def _without_allowed(self, output: str) -> str:
        for pattern in self.allowed:
            output = re.sub(rf"^(?:{pattern})$", "", output, flags=re.MULTILINE)
        return output

    def path(self) -> str:
        """Its path; sbin is searched too, and the cache. Raises EnvironmentLacks if it is missing."""
        if self.always:
            if kept := cached_program(self.program, self.package, self.release):
                return str(kept)
            raise EnvironmentLacks(
                f"{self.title} is not in the cache",
                "run powercut fetch for this mode, where there is a network",
            )
        found = shutil.which(self.program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        fetched = cached_program(self.program, self.package) if self.suites and not found else None
        if fetched:
            return str(fetched)
        if not found:
            raise EnvironmentLacks(f"{self.program} is not installed", f"run: apt-get install {self.package}")
        return found

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
        if line := _line_like([f"^{pattern}$" for pattern in self.damaged], output):
            return FsckResult(FsckClass.DIRTY, exit_code, output, line)
        return FsckResult(FsckClass.FAILED, exit_code, output)


def attached() -> contextlib.AbstractContextManager[None]:
    """Hold while an image made by a tool is attached to this host: its UUID cannot be given twice meanwhile.
    Raises InUse after `ATTACHED_S`.
    """
    what = "an image that is attached to this host"
    return exclusive(cache_dir() / "attached.lock", what, lambda _: None, ATTACHED_S)


def succeed(tool: Tool, words: Sequence[str], image: Path) -> None:
    """Run a program with these arguments. Raises ToolKilled, and EnvironmentLacks with what it said."""
    done = tool.run_line(words, image)
    if done.returncode and tool.is_taken(done.stdout.decode(errors="replace")):
        with attached():  # whoever has attached one for a while, as `powercut bench`, is waited for
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


def _line_like(patterns: Sequence[str], output: str) -> str:
    """The first line that one of the regular expressions finds a part of; empty if none does."""
    says = re.compile("|".join(patterns) or "(?!)")
    return next((line.strip() for line in output.splitlines() if says.search(line)), "")
