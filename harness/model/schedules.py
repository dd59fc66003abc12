"""Schedules: what a disk completes when, and how time passes, while a workload is recorded.

Threads that meet, writes that are still under way and timers that fire are different in each recording of a
workload. A schedule makes some of that happen on purpose. Its number is part of a workload's name, and so of
a case's: `append-fsync.s2` is `append-fsync` under schedule 2, and says all of it. Where the number decides
which thread runs, `append-fsync.s2+513+4711` is the same with these two decisions alone, and
`append-fsync.s2+none` without any.
"""

from __future__ import annotations

import dataclasses
import enum
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_SUFFIX = re.compile(r"(.+)\.s([1-9]\d{0,8})(\+none|(?:\+\d{1,9})*)")


NEVER = 10**9
"""The number of a point that no recording has: a schedule with that decision alone has none."""


class HoldOrder(enum.StrEnum):
    """Which of the completions that it holds a disk releases, when the guest waits or asks for a flush."""

    ALL = "all"  # everything, the newest first
    NEWEST = "newest"  # half of them, the newest; for a flush, none
    OLDEST = "oldest"  # half of them, the oldest; for a flush, everything
    RANDOM = "random"  # any half of them; for a flush, any


class ScheduleName(NamedTuple):
    """A schedule, as the name of a workload says it: its number, 0 for the default one; and the numbers of
    the points at which it may decide which thread runs, none: all. False for the default one.
    """

    number: int = 0
    only: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.number)

    def __str__(self) -> str:
        only = "+none" if self.only == (NEVER,) else "".join(f"+{n}" for n in self.only)
        return f".s{self.number}{only}" if self else ""


@dataclass(frozen=True, slots=True)
class Threads:
    """Which thread runs, for a kernel that lets a seed decide. Of the points at which another may, one in
    `yields` lets another run, one in `stalls` keeps the running one from it for `stall_s`; of those at which
    one of several is picked, one in `picks` picks any. 0: none. `slow`: only one thread in so many is kept
    from running, 0: any. `only`: see `ScheduleName`.
    """

    seed: int
    yields: int
    picks: int
    stalls: int
    stall_s: float
    slow: int = 0
    only: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """`number`: seed of what is left to chance. `patience`: how many times as long as usual a guest asks for
    nothing until it counts as waiting. `pauses`: numbers of operations, and seconds that pass before each.
    `timers`: after how many hundredths of a second the kernel writes back what is dirty, and how often it
    looks (vm.dirty_expire_centisecs, vm.dirty_writeback_centisecs); None: as they are, 30 s and 5 s.
    `only`: see `ScheduleName`. `threads`: None: each runs until it waits, as ever.
    """

    number: int = 0
    order: HoldOrder = HoldOrder.ALL
    patience: int = 1
    pauses: tuple[tuple[int, float], ...] = ()
    timers: tuple[int, int] | None = None
    only: tuple[int, ...] = ()
    threads: Threads | None = None


SHORT_TIMERS = (20, 5)
SHORT_PAUSES = 12
"""Of a workload at most, so that one of hundreds of operations takes seconds longer and not minutes."""
SHORT_PAUSE_S = 0.4
LONG_PAUSE_S = 6.0
"""Longer than jbd2 lets a transaction grow (5 s)."""

VIRTUAL_PAUSES_S = (6.0, 35.0)
"""In virtual time, where pauses cost nothing: longer than jbd2 lets a transaction grow (5 s), and longer than
the flusher lets data wait (30 s).
"""
VIRTUAL_PAUSES = 4

YIELDS, PICKS, STALLS = (4, 32, 256), (0, 2, 16), (64, 512, 4096)
STALLS_S = (0.1, 1.0, 6.0)
"""Longer than the short timers of writeback; longer than jbd2 lets a transaction grow. Where the workload is
one thread, only a stall changes the order of writes (measured on `append-fsync`).
"""

SLOW, SLOW_STALLS = (2, 4), (4, 16, 64)
"""Even numbers choose threads that lose every race. These lose often, and STALLS_S[0] each time: of longer
ones, the kernel would soon have had all that a recording may have.
"""

_FIXED: Mapping[int, tuple[HoldOrder, int, bool, bool]] = {
    1: (HoldOrder.NEWEST, 1, False, False),
    2: (HoldOrder.RANDOM, 4, True, False),
    3: (HoldOrder.OLDEST, 1, False, True),
}
"""Order, patience, whether timers are short with short pauses, and whether there is a long pause."""


def schedule_of(chosen: ScheduleName, operations: int) -> Schedule:
    """The schedule for so many operations; by default as every workload is recorded. The first three numbers
    are a kind each; what the further ones do is left to chance.
    """
    number, only = chosen
    if not number:
        return Schedule()
    dice = random.Random(number)  # noqa: S311  # for variety; only `random` is the same in every Python
    orders = (HoldOrder.NEWEST, HoldOrder.RANDOM, HoldOrder.OLDEST)
    drawn = (orders[int(dice.random() * 3)], 1 << int(dice.random() * 4), dice.random() < 0.5)
    order, patience, is_short, is_long = _FIXED.get(number, (*drawn, dice.random() < 0.25))
    pauses: dict[int, float] = {}
    if is_short:
        for _ in range(SHORT_PAUSES):
            pauses[int(dice.random() * operations)] = round(dice.random() * SHORT_PAUSE_S, 3)
    if is_long:
        pauses[int(dice.random() * operations)] = LONG_PAUSE_S
    timers = SHORT_TIMERS if is_short else None
    return Schedule(number, order, patience, tuple(sorted(pauses.items())), timers, only)


def with_long_pauses(schedule: Schedule, operations: int) -> Schedule:
    """The schedule in virtual time: with long pauses as well. The default schedule has none."""
    if not schedule.number or not operations:
        return schedule
    dice = random.Random(f"pauses {schedule.number}")  # noqa: S311  # see `schedule_of`
    pauses = dict(schedule.pauses)
    for _ in range(1 + int(dice.random() * VIRTUAL_PAUSES)):
        pauses[int(dice.random() * operations)] = VIRTUAL_PAUSES_S[int(dice.random() * 2)]
    return dataclasses.replace(schedule, pauses=tuple(sorted(pauses.items())))


def with_threads(schedule: Schedule) -> Schedule:
    """The schedule where the kernel lets a seed decide which thread runs. The default schedule does not."""
    if not schedule.number:
        return schedule
    dice = random.Random(f"threads {schedule.number}")  # noqa: S311  # see `schedule_of`
    yields, picks, stalls, stall_s = (
        of[int(dice.random() * len(of))] for of in (YIELDS, PICKS, STALLS, STALLS_S)
    )
    slow = 0
    if schedule.number % 2 == 0:
        slow, stalls = (of[int(dice.random() * len(of))] for of in (SLOW, SLOW_STALLS))
        stall_s = STALLS_S[0]
    number, only = schedule.number, schedule.only
    threads = Threads(number, int(yields), int(picks), int(stalls), stall_s, slow, only)
    return dataclasses.replace(schedule, threads=threads)


def without_schedule(workload: str) -> tuple[str, ScheduleName]:
    """The name of a workload without its schedule, and the schedule; the default one for a name without."""
    m = _SUFFIX.fullmatch(workload)
    if not m:
        return workload, ScheduleName()
    numbers = [NEVER if n == "none" else int(n) for n in m[3].split("+")[1:]]
    return m[1], ScheduleName(int(m[2]), tuple(numbers))


def under_schedule(workload: str, chosen: ScheduleName) -> str:
    """Inverse of `without_schedule`."""
    return f"{workload}{chosen}"


def with_schedules(workloads: list[str], count: int) -> list[str]:
    """Every name or set, and then again under each of so many schedules. One with a schedule comes once."""
    plain = [w for w in workloads if not without_schedule(w)[1].number]
    under = [under_schedule(w, ScheduleName(number)) for number in range(1, count + 1) for w in plain]
    return list(dict.fromkeys([*workloads, *under]))
