"""A budget for the states of the log's own order: what it never leaves out, and how the rest is spread."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.examine import Group
from harness.cases.selection import Selection
from harness.model import CrashState, History, HistoryStep
from harness.plan import Budget
from harness.workloads.load import parse_operation


def groups(count: int) -> list[Group]:
    return [Group(f"{n}", (CrashState(n),)) for n in range(count)]


def history(*operations: str) -> History:
    """Operations with marks `begin i` at log entry 10i and `ack i` at 10i + 5."""
    steps = (HistoryStep(i, parse_operation(op), 10 * i, 10 * i + 5) for i, op in enumerate(operations))
    return History(tuple(steps))


def prefixes(selection: Selection) -> list[int]:
    return [g.states[0].prefix for g in selection.groups]


NOTHING = history("create f")


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_number_of_states_is_spread_over_the_log_and_kept_in_its_order(count: int, visits: int) -> None:
    chosen = prefixes(Selection(groups(count), NOTHING, Budget(visits=visits)))
    assert len(chosen) == min(count, visits)
    assert chosen == sorted(set(chosen))
    gaps = [b - a for a, b in zip([0, *chosen], [*chosen, count], strict=True)]
    assert max(gaps) <= 4 * count / visits + 1


@given(st.integers(0, 200))
def test_with_a_time_every_content_has_its_turn_and_the_first_are_far_apart(count: int) -> None:
    turns = prefixes(Selection(groups(count), NOTHING, Budget(seconds=60)))
    assert sorted(turns) == list(range(count))
    early = sorted(turns[:8])
    assert count < 8 or min(b - a for a, b in itertools.pairwise(early)) >= count // 16


@pytest.mark.parametrize("sync", ["fsync f", "fdatasync f", "sync", "append f 10 dsync"])
def test_where_something_is_made_durable_is_looked_at_whatever_the_budget(sync: str) -> None:
    told = history("create f", sync, "create g", "create h")
    assert {11, 16} <= set(prefixes(Selection(groups(40), told, Budget(visits=1))))
    spent = Selection(groups(40), told, Budget(seconds=0))
    assert [g.states[0].prefix for g in spent.groups if spent.take(g)] == [11, 16]


def test_what_was_taken_may_be_taken_again_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubt about the memo sends contents to a guest that were looked at in time."""
    clock = [0.0]
    monkeypatch.setattr("harness.cases.selection.time.monotonic", lambda: clock[0])
    one, other = groups(2)
    selection = Selection([one, other], NOTHING, Budget(seconds=10))
    assert selection.take(one)
    clock[0] = 11.0
    assert selection.take(one)
    assert not selection.take(other)
