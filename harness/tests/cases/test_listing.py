"""A budget for the states of the log's own order: what it never leaves out, and how the rest is spread."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.examine import Group
from harness.cases.listing import in_turn
from harness.model import CrashState, History, HistoryStep
from harness.plan import Budget
from harness.workloads.load import parse_operation


def groups(count: int) -> list[Group]:
    return [Group(f"{n}", (CrashState(n),)) for n in range(count)]


def history(*operations: str) -> History:
    """Operations with marks `begin i` at log entry 10i and `ack i` at 10i + 5."""
    steps = (HistoryStep(i, parse_operation(op), 10 * i, 10 * i + 5) for i, op in enumerate(operations))
    return History(tuple(steps))


def turns(count: int, told: History, budget: Budget) -> list[tuple[int, int]]:
    """The prefixes in their turn, with the pass that looks at them."""
    return [(t.ask.prefix, t.begins) for t in in_turn(groups(count), told, budget)]


NOTHING = history("create f")


@given(st.integers(0, 200))
def test_without_a_budget_all_come_in_the_order_of_the_log(count: int) -> None:
    assert turns(count, NOTHING, Budget()) == [(n, 0) for n in range(count)]


@given(st.integers(0, 200), st.sampled_from([Budget(visits=5), Budget(seconds=60)]))
def test_with_a_budget_every_content_has_its_turn_and_the_first_are_far_apart(
    count: int, budget: Budget
) -> None:
    found = [prefix for prefix, begins in turns(count, NOTHING, budget) if begins]
    assert sorted(found) == list(range(count))
    early = sorted(found[:8])
    assert count < 8 or min(b - a for a, b in itertools.pairwise(early)) >= count // 16


@pytest.mark.parametrize("sync", ["fsync f", "fdatasync f", "sync", "append f 10 dsync"])
def test_where_something_is_made_durable_is_looked_at_whatever_the_budget(sync: str) -> None:
    told = history("create f", sync, "create g", "create h")
    assert turns(40, told, Budget(visits=1))[:2] == [(11, 0), (16, 0)]
    assert all(begins == 1 for _, begins in turns(40, told, Budget(visits=1))[2:])
