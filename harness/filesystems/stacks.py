"""Stacks between the disks and the file system, such as RAID: the TOML files of `vms/stacks/`.

A stack has members, each a disk with a write cache of its own, and steps, which are shell scripts of its own
programs, run in the guest: they make it, start it after a crash, and stop it. `/dev/member-0` and so on are
its members. Whatever the harness knows of one stack is in its file.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.host.resources import resource

MEMBERS = "{members}"
MEMBER = "/dev/member-0"
"""The first disk, in the guest."""
NOT_MADE, NOT_STARTED, NOT_STOPPED = 221, 222, 223
"""Exit codes of a script beside the disk, where steps failed; no mkfs or fsck has them."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A disk of a stack: `share` of the file system's size, and `extra_mib` for what the stack keeps."""

    share: float = 0.0
    extra_mib: int = 0

    def mib(self, filesystem_mib: int) -> int:
        return math.ceil(self.share * filesystem_mib) + self.extra_mib


class Stack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of `vms/stacks`. `promises`: what a file system on it may rely on, for people. `modules`: of the
    kernel; `options`: those of its configuration that stand for them in one without modules. `programs`: of
    this host, with their packages, that come into the guest; `suites`: where those are fetched from that it
    does not have. `memory_mib`: the least memory of guests. `device`: what holds the file system.
    `may_miss`: members, by number, any one of which may be gone after the power cut. `source`: files of the
    kernel's source that are its own, as patterns.

    `make`, `start`, `stop`: the steps. In `start`, `{members}` stands for those that are there.
    `start_degraded`: instead of `start` where one is missing, if its documentation names other steps.
    `finish`: what follows `make` once the file system is on it. `degraded`: mount options where one is
    missing.
    """

    summary: str
    promises: str
    modules: list[str]
    options: list[str]
    programs: list[str]
    device: str
    members: list[Member]
    make: str
    start: str
    stop: str
    start_degraded: str = ""
    finish: str = ""
    degraded: list[str] = []
    suites: list[str] = []
    memory_mib: int = 0
    may_miss: list[int] = []
    source: tuple[str, ...] = ()

    @property
    def unbuilt(self) -> list[str]:
        """Those of `options` that the kernels that Powercut builds lack."""
        ours = resource("kernels", "common.config").read_text().splitlines()
        return [option for option in self.options if f"CONFIG_{option}=y" not in ours]


@dataclass(frozen=True, slots=True)
class ConsoleSteps:
    """What a person runs by hand: `start` before `device` is mounted, `stop` after it was unmounted. An
    empty `device` is the disk itself.
    """

    device: str
    start: str
    stop: str


@dataclass(frozen=True, slots=True)
class Stacked:
    """A stack below a file system of a size. `missing`: the member that is gone after the power cut, if one
    is.
    """

    stack: Stack
    filesystem_mib: int
    missing: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the members, in bytes."""
        return tuple(member.mib(self.filesystem_mib) << 20 for member in self.stack.members)

    @property
    def begins(self) -> tuple[int, ...]:
        """The bytes of the disk at which members begin, but for the first."""
        return tuple(itertools.accumulate(self.sizes))[:-1]

    @property
    def start(self) -> str:
        """The steps after a power cut."""
        degraded = self.missing is not None and self.stack.start_degraded
        there = [f"/dev/member-{n}" for n in range(len(self.stack.members)) if n != self.missing]
        return (self.stack.start_degraded if degraded else self.stack.start).replace(MEMBERS, " ".join(there))

    @property
    def start_whole(self) -> str:
        """The steps where no member is missing, as when it is recorded."""
        there = " ".join(f"/dev/member-{n}" for n in range(len(self.stack.members)))
        return self.stack.start.replace(MEMBERS, there)

    def making(self, lines: Sequence[Sequence[str]]) -> str:
        """The script that makes the stack, and does what makes a file system on it."""
        return "\n".join(
            [
                steps_or(self.stack.make, NOT_MADE),
                *(f"{shlex.join(line)} || exit $?" for line in lines),
                steps_or(self.stack.finish, NOT_MADE),
                steps_or(self.stack.stop, NOT_STOPPED),
            ]
        )

    def on_it(self, line: str) -> str:
        """The script that starts it, runs a line, and stops it; its exit code is that of the line."""
        return between(self.start, line, self.stack.stop)


def between(start: str, line: str, stop: str) -> str:
    """The script that runs a line between steps; its exit code is that of the line."""
    lines = [steps_or(start, NOT_STARTED), f"{line}\ncode=$?", steps_or(stop, NOT_STOPPED), "exit $code"]
    return "\n".join(lines)


def steps_or(steps: str, otherwise: int) -> str:
    """Steps of which none may fail: with another exit code if one does, and what they said. (`sh -e` ignores
    failures in what is left of `||`; a shell of its own does not.)
    """
    return (
        f"said=$(busybox sh -e -c {shlex.quote(steps)} 2>&1) || "
        f'{{ echo "$said"; dmesg | tail -n 5; exit {otherwise}; }}'
    )


def stacks() -> dict[str, Stack]:
    """Every stack, by name. Raises UsageError for a file that does not parse, or contradicts itself."""
    return {path.stem: _load(path) for path in sorted(resource("vms", "stacks").glob("*.toml"))}


def find_stack(name: str) -> tuple[Stack, int | None]:
    """The stack, and the member that is missing: `raid1`, `raid1-0`. Raises UsageError with the nearest."""
    known = stacks()
    if name in known:
        return known[name], None
    whole, _, missing = name.rpartition("-")
    if whole in known and missing.isdigit():
        may_miss = known[whole].may_miss
        if int(missing) in may_miss:
            return known[whole], int(missing)
        can = ", ".join(f"{whole}-{n}" for n in may_miss) or "none"
        raise UsageError(f"{whole} does not survive the loss of member {missing}", f"it survives: {can}")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or [*known]
    raise UsageError(f"no stack {name!r}", f"try one of: {', '.join(near)} (powercut list stacks)")


def _load(path: Path) -> Stack:
    try:
        stack = msgspec.toml.decode(path.read_bytes(), type=Stack)
    except (OSError, msgspec.MsgspecError) as e:
        raise UsageError(f"{path}: {e}", f"compare it with its neighbours in {path.parent}") from e
    if wrong := _wrong(path.stem, stack):
        raise UsageError(f"{path}: {wrong}", f"compare it with its neighbours in {path.parent}")
    return stack


def _wrong(name: str, stack: Stack) -> str:
    if not _NAME.fullmatch(name) or re.search(r"-\d+$", name):
        return "its name is of small letters and digits; one that ends in -0 is of a missing member"
    return contradiction(stack)


def contradiction(stack: Stack) -> str:
    """What is wrong with its members; empty if nothing is."""
    if not stack.members:
        return "a stack has members"
    if any(m.mib(1) <= 0 for m in stack.members):
        return "each member has a share of the file system, or extra_mib"
    if any(not 0 <= n < len(stack.members) for n in stack.may_miss):
        return f"may_miss = {stack.may_miss}: members are 0 to {len(stack.members) - 1}"
    if stack.may_miss and MEMBERS not in (stack.start_degraded or stack.start):
        return f"steps that start it without a member name {MEMBERS}"
    return ""
