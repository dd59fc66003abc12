"""Schedules: a number says all of one, and stands in the name of a case."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import CaseId, CrashPoint, HoldOrder, Schedule, Threads
from harness.model.schedules import (
    LONG_PAUSE_S,
    NEVER,
    SHORT_PAUSE_S,
    VIRTUAL_PAUSES_S,
    ScheduleName,
    schedule_of,
    under_schedule,
    with_long_pauses,
    with_schedules,
    with_threads,
    without_schedule,
)


def test_number_zero_is_how_every_workload_is_recorded() -> None:
    assert schedule_of(ScheduleName(0), 20) == Schedule() == schedule_of(ScheduleName(0), 1)
    assert not Schedule().pauses
    assert Schedule().timers is None


def test_the_first_three_are_a_kind_each() -> None:
    """A user who asks for three gets each order once, short timers once, and a pause that is longer than a
    transaction lives.
    """
    made = [schedule_of(ScheduleName(n), 20) for n in (1, 2, 3)]
    assert [s.order for s in made] == [HoldOrder.NEWEST, HoldOrder.RANDOM, HoldOrder.OLDEST]
    assert [bool(s.timers) for s in made] == [False, True, False]
    assert [LONG_PAUSE_S in dict(s.pauses).values() for s in made] == [False, False, True]


@given(st.integers(1, 10**9 - 1), st.integers(1, 500))
def test_a_schedule_follows_from_its_number_and_costs_seconds(number: int, operations: int) -> None:
    made = schedule_of(ScheduleName(number), operations)
    assert made == schedule_of(ScheduleName(number), operations)
    assert all(0 <= before < operations for before, _ in made.pauses)
    assert sum(dict(made.pauses).values()) <= LONG_PAUSE_S + 12 * SHORT_PAUSE_S


def test_a_schedule_travels_to_a_workers_process() -> None:
    assert pickle.loads(pickle.dumps(schedule_of(ScheduleName(2), 20))) == schedule_of(ScheduleName(2), 20)  # noqa: S301 - our own


def test_schedules_by_chance_are_of_every_order() -> None:
    made = [schedule_of(ScheduleName(n), 20) for n in range(4, 40)]
    assert {s.order for s in made} == {HoldOrder.NEWEST, HoldOrder.RANDOM, HoldOrder.OLDEST}
    assert {bool(s.timers) for s in made} == {True, False}
    assert {LONG_PAUSE_S in dict(s.pauses).values() for s in made} == {True, False}


NAMES = st.from_regex(r"[a-z][A-Za-z0-9_+-]{0,9}(\.[a-rt-z_]{1,3})?", fullmatch=True)


ONLY = st.lists(st.integers(0, NEVER - 1), max_size=4).map(tuple) | st.just((NEVER,))


@given(NAMES, st.integers(1, 999_999_999), ONLY)
def test_a_name_with_a_schedule_is_taken_apart_as_it_was_put_together(
    name: str, number: int, only: tuple[int, ...]
) -> None:
    for chosen in (ScheduleName(), ScheduleName(number, only)):
        assert without_schedule(under_schedule(name, chosen)) == (name, chosen)


def test_a_name_says_which_decisions_are_left_of_a_schedule() -> None:
    assert without_schedule("append-fsync.s2+513+4711") == ("append-fsync", ScheduleName(2, (513, 4711)))
    assert without_schedule("append-fsync.s2+none") == ("append-fsync", ScheduleName(2, (NEVER,)))
    assert with_threads(schedule_of(ScheduleName(2, (513,)), 20)).threads == dataclasses.replace(
        with_threads(schedule_of(ScheduleName(2), 20)).threads or Threads(0, 0, 0, 0, 0.0), only=(513,)
    )


@pytest.mark.parametrize("name", ["append-fsync", "ace-creat.A_foo+fsync.A_foo", "x.s0", "x.s01", "x.sync"])
def test_other_names_ask_for_no_schedule(name: str) -> None:
    assert without_schedule(name) == (name, ScheduleName())


def test_the_schedule_is_part_of_a_cases_name() -> None:
    point = CrashPoint.parse("ext4-ordered/append-fsync.s2@t52-40")
    assert str(point) == "ext4-ordered/append-fsync.s2@t52-40"
    assert point.case != CaseId("ext4", "ordered", "append-fsync")


def test_generated_workloads_stand_together_by_schedule() -> None:
    """Hundreds of rows, were each one of its own."""
    assert CaseId("ext4", "ordered", "random2-7-20.s1").family == "random.s1"
    assert CaseId("ext4", "ordered", "ace-creat.A_foo+none.s2").family == "ace1.s2"
    assert not CaseId("ext4", "ordered", "append-fsync.s2").is_generated


def test_every_schedule_of_a_workload_comes_after_the_workload() -> None:
    assert with_schedules(["quick", "x"], 2) == ["quick", "x", "quick.s1", "x.s1", "quick.s2", "x.s2"]


def test_a_workload_that_is_named_with_its_schedule_gets_no_second_one() -> None:
    """`parallel-fsync.s1.s2` is the name of nothing; planted faults name some of their workloads so."""
    assert with_schedules(["x", "x.s1"], 2) == ["x", "x.s1", "x.s2"]


@given(st.integers(1, 10**9 - 1), st.integers(1, 500))
def test_in_virtual_time_a_schedule_waits_for_timers_of_5_and_30_seconds(
    number: int, operations: int
) -> None:
    made = schedule_of(ScheduleName(number), operations)
    longer = with_long_pauses(made, operations)
    assert longer == with_long_pauses(made, operations)
    assert dataclasses.replace(longer, pauses=made.pauses) == made, "nothing but the pauses differs"
    assert any(seconds in VIRTUAL_PAUSES_S for _, seconds in longer.pauses)
    assert all(0 <= before < operations for before, _ in longer.pauses)


def test_the_default_schedule_has_no_pauses_in_virtual_time() -> None:
    assert with_long_pauses(Schedule(), 20) == Schedule()


@given(st.integers(1, 10**9 - 1))
def test_a_number_says_which_threads_meet(number: int) -> None:
    made = with_threads(schedule_of(ScheduleName(number), 20))
    assert made == with_threads(schedule_of(ScheduleName(number), 20))
    assert dataclasses.replace(made, threads=None) == schedule_of(ScheduleName(number), 20), (
        "nothing else differs"
    )
    assert made.threads is not None
    assert (made.threads.seed, made.threads.only) == (number, ())
    assert made.threads.yields, "or it would be the order of always"
    assert bool(made.threads.slow) is (number % 2 == 0)


def test_threads_are_made_to_meet_in_more_than_one_way() -> None:
    made = [with_threads(schedule_of(ScheduleName(n), 20)).threads for n in range(1, 60)]
    for name in ("yields", "picks", "stalls", "stall_s", "slow"):
        assert len({getattr(threads, name) for threads in made}) >= 3, name


def test_in_the_default_schedule_each_thread_runs_until_it_waits() -> None:
    assert with_threads(Schedule()) == Schedule()
