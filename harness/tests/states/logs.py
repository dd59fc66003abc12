"""Random logs and states for properties."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from harness.model import SECTOR_BYTES, CrashState, EntryFlag
from harness.writelog import Discard, Flush, MarkText, Step, Write, write_log

# 3 blocks and a half: states that overlap often, and a device that ends inside a block
SECTORS = 28
BASE = b"".join(bytes([ord("a") + s % 3]) * SECTOR_BYTES for s in range(SECTORS))

# few letters, those of the base among them, so that different states often agree in content
_letters = st.sampled_from(b"abcXY\0")


@st.composite
def extents(draw: st.DrawFn) -> tuple[int, int]:
    first = draw(st.integers(0, SECTORS - 1))
    return first, draw(st.integers(1, min(12, SECTORS - first)))


@st.composite
def writes(draw: st.DrawFn) -> Write:
    sector, sectors = draw(extents())
    data = b"".join(bytes([draw(_letters)]) * SECTOR_BYTES for _ in range(sectors))
    flags = draw(st.sampled_from([EntryFlag(0), EntryFlag.FUA, EntryFlag.FLUSH | EntryFlag.FUA]))
    return Write(sector, data, flags)


steps: st.SearchStrategy[Step] = st.one_of(
    writes(),
    writes(),
    extents().map(lambda extent: Discard(*extent)),
    st.just(Flush()),
    st.just(MarkText("begin 1")),
)
logs = st.lists(steps, min_size=1, max_size=8)


def new_log(tmp_path: Path, made: list[Step]) -> Path:
    """A log in place of the last example's, which a disk still has mapped."""
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    write_log(path, made)
    return path


def step_sectors(step: Step) -> int:
    match step:
        case Write(_, data, _):
            return len(data) // SECTOR_BYTES
        case Discard(_, sectors):
            return sectors
        case _:
            return 0


@st.composite
def states(draw: st.DrawFn, log: list[Step]) -> CrashState:
    """Any state of the log, legal for a disk or not."""
    prefix = draw(st.integers(0, len(log)))
    dropped = draw(st.sets(st.integers(0, prefix - 1), max_size=3)) if prefix else set()
    torn = None
    if prefix and draw(st.booleans()):
        torn = draw(st.integers(0, step_sectors(log[prefix - 1])))
    return CrashState(prefix, tuple(sorted(dropped)), torn)
