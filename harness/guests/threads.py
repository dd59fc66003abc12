"""What a kernel in which a seed decides which thread runs tells of it, and which decisions a seed may make.

The kernel's part is vms/umldisk/threads_kern.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.model import Threads

SHOWN_MAX = 4
"""A sentence has room for so many decisions."""
_WORDS = "powercut_threads: "
_ALL_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ThreadsTold:
    """`points`: how many there were at which another thread might have run. `decisions`: at how many it did.
    `lines`: the first of these, by number of the point: `jbd2/vda-8 is kept from running in submit_bio`.
    """

    points: int
    decisions: int
    lines: dict[int, str]

    @property
    def is_whole(self) -> bool:
        """Whether every decision has a line."""
        return len(self.lines) == self.decisions

    def __str__(self) -> str:
        if self.is_whole and self.decisions <= SHOWN_MAX:
            return "; ".join(f"at point {n} of {self.points:,}, {line}" for n, line in self.lines.items())
        return (
            f"a seed decided at {self.decisions:,} of {self.points:,} points which thread runs; powercut "
            "shrink leaves the decisions that the finding needs"
        )


def told(log: Iterable[str]) -> ThreadsTold | None:
    """From the lines of a recording's kernel log; None if no seed decided there."""
    lines = [line.partition(_WORDS)[2] for line in log if _WORDS in line]
    begin = next((m for line in lines if (m := re.fullmatch(r"(\d+) points, (\d+) decisions", line))), None)
    if begin is None:
        return None
    made = [m for line in lines if (m := re.fullmatch(r"(\d+): (.+)", line))]
    return ThreadsTold(int(begin[1]), int(begin[2]), {int(m[1]): m[2] for m in made})


def may_decide(threads: Threads, points: int) -> tuple[int, ...]:
    """The numbers of the points at which the seed may decide otherwise than a kernel by default: where
    there is another thread that can run, or the thread may wait, it does.
    """
    seed = _mixed(threads.seed + 1)

    def decides(number: int) -> bool:
        chance = _mixed(seed + _mixed(number + 1)) | 1
        stalls = _hits(_mixed(chance), threads.stalls)
        return stalls or _hits(chance, threads.yields) or _hits(chance, threads.picks)

    return tuple(filter(decides, range(points)))


def _mixed(value: int) -> int:
    value &= _ALL_BITS
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _ALL_BITS
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _ALL_BITS
    return value ^ value >> 31


def _hits(chance: int, rate: int) -> bool:
    return bool(rate) and (chance >> 32) % rate == 0
