"""fsck, and the blocks of the image that it read, on which its answer depends.

`vms/readtrace` is loaded into the program (LD_PRELOAD) and records every read of the image, and of its second
device, if it has one. Where it cannot see a read (a statically linked program, or one that maps the image or
reads through stdio), the blocks are None, and no answer may be recalled by them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.cases.block_answers import BlockAnswers
from harness.filesystems.profile import Profile
from harness.filesystems.second import file_for
from harness.filesystems.stacks import NOT_STARTED, NOT_STOPPED
from harness.guests.session import Session, Target
from harness.host.files import memory_file
from harness.host.fork_server import TRACE_OUT, ForkServers
from harness.host.resources import built_part
from harness.model import BLOCK_BYTES, FsckClass, FsckResult

_COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class FsckReads:
    """An answer of fsck. `blocks`: numbers of the 4 KiB blocks that it read, in the order of first reading;
    None where that is not known.
    """

    result: FsckResult
    blocks: tuple[int, ...] | None

    @classmethod
    def of(cls, profile: Profile, image: Path, servers: ForkServers | None = None) -> FsckReads:
        """Run the profile's fsck on an image file. `servers`: of this thread, for a program that bears it.

        One that does not come to its end is run once more: a host without memory kills one that is sound.
        That run is started anew, in case it was the server that it cannot bear, and has a trace of its own:
        what is left of the first may still write to that.
        """
        if profile.fsck is None:
            return cls(profile.check_filesystem(image), ())
        answer = cls._once(profile, image, servers)
        return cls._once(profile, image, None) if answer.gave_none else answer

    @property
    def gave_none(self) -> bool:
        """There is no answer, and what was read for it is not known: a signal ended the program, or nothing
        did.
        """
        return self.blocks is None and self.result.classified is FsckClass.FAILED

    @classmethod
    def _once(cls, profile: Profile, image: Path, servers: ForkServers | None) -> FsckReads:
        assert profile.fsck  # noqa: S101 - whoever asks has looked
        if profile.fsck.writes:
            image = Path(shutil.copyfile(image, image.with_suffix(".copy")))
        with memory_file("reads") as trace:
            environment = {
                "LD_PRELOAD": str(find_library()),
                "POWERCUT_TRACE_FILE": str(image.resolve()),
                TRACE_OUT: str(trace),
            }
            if profile.second:
                tail = f"{profile.second_offset}:{file_for(image).resolve()}"
                environment["POWERCUT_TRACE_TAIL"] = tail
            served = (servers.run,) if servers and profile.fsck.forks else ()
            result = profile.check_filesystem(image, environment, *served)
            return cls(result, parse_trace(trace.read_text()))

    @classmethod
    def in_guest(cls, profile: Profile, session: Session, target: Target) -> FsckReads:
        """Run fsck in the session's guest, on the stack that it has just recovered, or in a file there: only
        the kernel knows where that keeps the file system. Raises as `Session.beside`.
        """
        exit_code, output, blocks = session.beside(target, profile.checking_script())
        if exit_code in (NOT_STARTED, NOT_STOPPED):
            what = "starts" if exit_code == NOT_STARTED else "stops"
            refused = f"a step failed that {what} what the file system is on"
            return cls(FsckResult(FsckClass.FAILED, exit_code, output, refused), blocks)
        return cls(profile.fsck_in_guest.decoded(exit_code, output), blocks)

    def followed_by(self, other: FsckReads) -> FsckReads:
        """The other answer, which depends on what this one read, too."""
        known = None if self.blocks is None or other.blocks is None else (*self.blocks, *other.blocks)
        return FsckReads(other.result, known)


FsckAnswers = BlockAnswers[FsckReads]


def parse_trace(text: str) -> tuple[int, ...] | None:
    """Block numbers of a trace in the order of first reading, or None if it is not complete. Its lines are
    `offset length`, in bytes, and `complete` at the end.
    """
    lines = text.splitlines()
    if not lines or lines[-1] != _COMPLETE:
        return None
    blocks: dict[int, None] = {}
    for line in lines[:-1]:
        offset, length = map(int, line.split())
        blocks.update(dict.fromkeys(range(offset // BLOCK_BYTES, -(-(offset + length) // BLOCK_BYTES))))
    return tuple(blocks)


def find_library() -> Path:
    """The library that records fsck's reads; see `vms/readtrace`. Raises EnvironmentLacks."""
    return built_part("POWERCUT_READTRACE", "release", "libpowercut_readtrace.so")
