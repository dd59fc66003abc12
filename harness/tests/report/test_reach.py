"""What one run may say of another's states: rules, held against the sets themselves."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import CaseId, CrashState
from harness.plan import Plan
from harness.report.reach import NOTHING, Reach, Region, looked_at, reach_of, region_of
from harness.store.records import CaseInfo, Coverage

SECTORS, BLOCKS = 1, 8
CHUNKS = 16
"""Sectors of the small disk: two blocks."""


@functools.cache
def legal(unit: int, depth: int | None) -> frozenset[int]:
    """All ways to lose units of two blocks, a bit a sector, that differ in at most `depth` units from none
    and all.
    """
    units = CHUNKS // unit
    whole = (1 << unit) - 1
    return frozenset(
        sum(whole << (unit * i) for i, lost in enumerate(chosen) if lost)
        for chosen in itertools.product((False, True), repeat=units)
        if depth is None or min(sum(chosen), units - sum(chosen)) <= depth
    )


def states(region: Region) -> frozenset[int]:
    return frozenset() if region.unit is None else legal(region.unit, region.depth)


legal_regions = st.builds(
    Region,
    unit=st.sampled_from([SECTORS, BLOCKS, None]),
    depth=st.one_of(st.none(), st.integers(0, CHUNKS)),
)
orders = st.frozensets(st.sampled_from(["prefix", "drop", "torn"]))
regions = st.builds(
    Region,
    order=orders,
    unit=st.sampled_from([SECTORS, BLOCKS, None]),
    depth=st.one_of(st.none(), st.integers(0, 4)),
)
coverages = st.one_of(
    st.none(),
    st.builds(
        Coverage,
        crash_times=st.integers(1, 9),
        losses=st.one_of(st.none(), st.integers(-1, 5)),
        unexplored=st.integers(0, 99),
        visits=st.integers(0, 99),
        sampled=st.integers(0, 3),
    ),
    st.builds(
        Coverage, crash_times=st.just(0), losses=st.just(-1), unexplored=st.integers(0, 9), visits=st.just(3)
    ),
)
asked = st.sampled_from([("exhaustive",), ("sectors",), ("prefix",), ("drop", "torn"), ("prefix", "torn")])
reaches = st.builds(reach_of, asked, coverages)


@given(legal_regions, legal_regions)
def test_a_region_contains_only_what_the_set_does(one: Region, other: Region) -> None:
    """All sectors were taken for no more than all blocks, and the other way round."""
    if one.contains(other):
        assert states(one) >= states(other)


@given(regions, regions, regions)
def test_containment_is_a_partial_order(a: Region, b: Region, c: Region) -> None:
    assert a.contains(a)
    assert a.contains(NOTHING)
    if a.contains(b) and b.contains(c):
        assert a.contains(c)


@given(reaches, reaches, reaches)
def test_a_reach_that_covers_more_covers_no_less_and_what_is_known_exactly_covers_itself(
    a: Reach, b: Reach, c: Reach
) -> None:
    """Monotone in the run that looks again, antitone in the one that looked before."""
    assert a.most.contains(a.least)
    assert a.covers(a) == a.least.contains(a.most)
    if a.covers(b) and b.covers(c):
        assert a.covers(c)
    if b.covers(c) and a.least.contains(b.least):
        assert a.covers(c)
    if a.covers(b) and b.most.contains(c.most):
        assert a.covers(c)


ALL = Coverage(crash_times=14, losses=None, unexplored=0, visits=40)
CUT = Coverage(crash_times=14, losses=1, unexplored=64, visits=40, why="the budget: 40 states a case")
ALIKE = Coverage(crash_times=14, losses=2, unexplored=0, visits=40, sampled=1, drawn=1024)
TIMELESS = Coverage(0, -1, 0, 0, "recorded without times")


@pytest.mark.parametrize(
    ("second", "first", "covers"),
    [
        ((("exhaustive",), ALL), (("sectors",), ALL), False),
        ((("sectors",), ALL), (("exhaustive",), ALL), True),
        ((("exhaustive",), ALL), (("torn",), None), False),
        ((("sectors",), ALL), (("torn",), None), True),
        ((("exhaustive",), ALL), (("drop", "prefix"), None), True),
        ((("torn",), None), (("prefix",), None), False),
        ((("prefix",), None), (("drop", "prefix"), None), False),
        ((("exhaustive",), CUT), (("exhaustive",), CUT), False),
        ((("exhaustive",), ALL), (("exhaustive",), CUT), True),
        ((("exhaustive",), ALIKE), (("exhaustive",), ALL), False),
        ((("exhaustive",), ALIKE), (("exhaustive",), CUT), True),
        ((("exhaustive",), ALIKE), (("exhaustive",), ALIKE), False),
        ((("exhaustive",), replace(CUT, losses=3)), (("exhaustive",), ALIKE), False),
        ((("exhaustive",), ALL), (("exhaustive",), ALIKE), True),
        ((("exhaustive",), TIMELESS), (("prefix",), None), True),
        ((("exhaustive",), TIMELESS), (("exhaustive",), ALL), False),
    ],
)
def test_other_units_a_budget_and_crash_times_drawn_at_random_do_not_cover(
    second: tuple[tuple[str, ...], Coverage | None],
    first: tuple[tuple[str, ...], Coverage | None],
    covers: bool,
) -> None:
    """Blocks covered sectors, prefixes covered torn writes, and one budget another that ended elsewhere."""
    assert reach_of(*second).covers(reach_of(*first)) is covers


def test_what_rules_allow_is_looked_at_whatever_states_are_asked_for() -> None:
    """`--states prefix` beside a mode that is only rules means nothing, and `compare` called a finding that
    was mended "not looked at again".
    """
    plan = Plan(configurations=["any/posix"], workloads=["w"])
    harder = msgspec.structs.replace(plan, fault_models=("exhaustive",))
    info = CaseInfo(CaseId("any", "posix", "w"), coverage=Coverage(3, None, 0, 5))
    one, two = looked_at(harder, info), looked_at(plan, info)
    assert one == two
    assert two.covers(one, CrashState(0))
    of_a_disk = replace(info, case=CaseId("ext4", "ordered", "w"))
    assert not looked_at(plan, of_a_disk).covers(looked_at(harder, of_a_disk), CrashState(0))


def test_a_block_that_was_written_many_times_is_one_that_is_lost() -> None:
    """All five writes to one block were five blocks: what a budget had surely covered was "not looked at
    before", and a regression hidden.
    """
    log = {
        **dict.fromkeys([10, 20, 24], range(24712, 24720)),
        30: range(24716, 24724),
        31: range(24720, 24728),
    }

    def depth(state: str) -> tuple[int | None, int | None]:
        region = region_of(CrashState.parse(state), log.get)
        return region.unit, region.depth

    assert depth("@t46-10,20,24") == (BLOCKS, 1)
    assert depth("@t46-10,20,30") == (BLOCKS, 2)
    assert depth("@t46-10,30.1,31") == (BLOCKS, 2)
    assert depth("@t46-10,30/3,31/0") == (SECTORS, 9)
    assert depth("@t46-30/0,30/4,31/0") == (SECTORS, 2)
    assert depth("@t46-10,99.1,99.2") == (BLOCKS, 3)
    assert depth("@t46-10,99") == (BLOCKS, None)
