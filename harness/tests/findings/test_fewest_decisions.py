"""A schedule is reduced to what a finding needs of it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from harness.findings.fewest_decisions import LISTED_MAX, NAMED_MAX, TRIES, fewest_decisions
from harness.guests.threads import ThreadsTold, may_decide
from harness.model import Threads
from harness.model.schedules import NEVER, ScheduleName

THREADS = Threads(7, 4, 0, 0, 0.0)
MADE = tuple(range(3, 63, 2))
"""The points at which the schedule decides."""


def kernel(*needed: int) -> Callable[[ScheduleName], bool]:
    """Shows the finding where each of these is decided."""
    return lambda chosen: bool(chosen) and set(needed) <= (set(chosen.only) or set(MADE))


def said(made: tuple[int, ...] = MADE, points: int = 100) -> Callable[[], ThreadsTold]:
    return lambda: ThreadsTold(points, len(made), dict.fromkeys(made[:64], "is kept"))


@given(st.sets(st.sampled_from(MADE), min_size=1, max_size=2))
def test_the_decisions_that_it_takes_are_left(needed: set[int]) -> None:
    left = fewest_decisions(ScheduleName(7), THREADS, said(), kernel(*needed))
    assert left == ScheduleName(7, tuple(sorted(needed)))


def test_a_finding_that_needs_no_schedule_loses_it() -> None:
    assert fewest_decisions(ScheduleName(7), THREADS, said(), lambda _: True) == ScheduleName()


def test_a_finding_of_the_disks_order_alone_needs_no_decision() -> None:
    assert fewest_decisions(ScheduleName(7), THREADS, said(), bool) == ScheduleName(7, (NEVER,))


def test_where_no_seed_decides_the_schedule_stays() -> None:
    assert fewest_decisions(ScheduleName(7), None, said(), bool) == ScheduleName(7)


def test_decisions_that_the_kernel_did_not_tell_are_found_too() -> None:
    """It tells the first 64."""
    all_of_them = may_decide(THREADS, 1000)
    needed = all_of_them[200]

    def holds(chosen: ScheduleName) -> bool:
        return bool(chosen) and (not chosen.only or needed in chosen.only)

    assert len(all_of_them) > 200
    left = fewest_decisions(ScheduleName(7), THREADS, said(all_of_them, 1000), holds)
    assert left == ScheduleName(7, (needed,))


def test_a_search_has_an_end_and_what_needs_too_many_keeps_its_schedule() -> None:
    tried: list[ScheduleName] = []

    def holds(chosen: ScheduleName) -> bool:
        tried.append(chosen)
        return False

    made = tuple(range(64))
    assert len(made) > NAMED_MAX
    assert fewest_decisions(ScheduleName(7), THREADS, said(made), holds) == ScheduleName(7)
    assert len(tried) <= TRIES + 2
    assert all(len(c.only) <= LISTED_MAX for c in tried)
