"""fsck with what it read of the image: the blocks on which its answer depends.

`vms/readtrace` is loaded into the program (LD_PRELOAD) and notes every read of the image. Where it could
not see a read (a program linked statically, one that maps the image or reads through stdio), the blocks
are None, and nobody may rely on them.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentLacks
from harness.filesystems import Profile
from harness.model import BLOCK_BYTES, FsckResult

_LIBRARY_VARIABLE = "POWERCUT_READTRACE"
_COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class FsckReads:
    """`blocks`: numbers of the 4 KiB blocks that were read, or None where that is not known."""

    result: FsckResult
    blocks: tuple[int, ...] | None

    @classmethod
    def of(cls, profile: Profile, image: Path) -> FsckReads:
        """Run the profile's fsck on an image file."""
        with tempfile.NamedTemporaryFile(prefix="powercut-reads-", dir=image.parent) as trace:
            environment = {
                "LD_PRELOAD": str(find_library()),
                "POWERCUT_TRACE_FILE": str(image.resolve()),
                "POWERCUT_TRACE_OUT": trace.name,
            }
            result = profile.check_filesystem(image, environment)
            return cls(result, parse_trace(Path(trace.name).read_text()))


def parse_trace(text: str) -> tuple[int, ...] | None:
    """Blocks of a trace: lines `offset length` in bytes, and at the end a line that it is complete."""
    lines = text.splitlines()
    if not lines or lines[-1] != _COMPLETE:
        return None
    blocks: set[int] = set()
    for line in lines[:-1]:
        offset, length = map(int, line.split())
        blocks.update(range(offset // BLOCK_BYTES, -(-(offset + length) // BLOCK_BYTES)))
    return tuple(sorted(blocks))


def find_library() -> Path:
    """What `make setup` built, or $POWERCUT_READTRACE."""
    configured = os.environ.get(_LIBRARY_VARIABLE)
    built = Path(__file__).resolve().parents[1] / "target/release/libpowercut_readtrace.so"
    path = Path(configured) if configured else built
    if not path.is_file():
        raise EnvironmentLacks(f"the library {path} is not there", "run: make setup")
    return path
