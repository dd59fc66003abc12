"""Visits to a disk as a run makes them: what was read is learned, and what is known is asked for."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from harness.guests.disk import Disk
from harness.model import BLOCK_BYTES, CrashState


def remember(disk: Disk, state: CrashState, outcome: int) -> int | None:
    """The disk learns what was read of the state that it shows."""
    return disk.learn(state, disk.reads(), outcome)


def recall(disk: Disk, states: Sequence[CrashState]) -> list[int | None]:
    """The outcomes of states, where they are known."""
    found = disk.explore(states, losses=0)
    return [of.known[0].outcome if of.known else None for of in found]


def block_of(content: bytes, block: int) -> bytes:
    return content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]


def recovered(content: bytes) -> tuple[tuple[int, ...], int]:
    """A deterministic recovery: which block it reads next depends on what it read. (blocks, outcome)"""
    blocks = [0]
    outcome = 0
    while len(blocks) < 4:
        outcome = zlib.crc32(block_of(content, blocks[-1]), outcome)
        blocks.append(outcome % 4)
    return tuple(blocks), zlib.crc32(block_of(content, blocks[-1]), outcome)
