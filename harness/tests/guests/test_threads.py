"""What a kernel tells of the threads that a seed let meet, and what a seed may decide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.guests.threads import may_decide, told
from harness.model import Threads
from harness.tests.there import there

SAID = [
    "EXT4-fs (vda): mounted filesystem",
    "powercut_threads: 1900 points, 2 decisions",
    "powercut_threads: 513: jbd2/vda-8 is kept from running in submit_bio_noacct",
    "[    1.000000] powercut_threads: 514: kworker/0:1 lets run agent in __flush_work",
]


def test_decisions_are_told_by_the_number_of_their_point() -> None:
    seen = there(told(SAID))
    assert (seen.points, seen.decisions, seen.is_whole) == (1900, 2, True)
    assert seen.lines[513] == "jbd2/vda-8 is kept from running in submit_bio_noacct"
    assert seen.lines[514] == "kworker/0:1 lets run agent in __flush_work"


def test_a_list_that_a_kernel_cut_short_is_not_whole() -> None:
    seen = there(told(SAID[:-1]))
    assert not seen.is_whole


def test_a_kernel_in_which_no_seed_decides_tells_nothing() -> None:
    assert told(SAID[:1]) is None


def test_few_decisions_are_told_and_many_counted() -> None:
    assert str(told(SAID)) == (
        "at point 513 of 1,900, jbd2/vda-8 is kept from running in submit_bio_noacct; "
        "at point 514 of 1,900, kworker/0:1 lets run agent in __flush_work"
    )
    assert str(told(SAID[:-1])).startswith("a seed decided at 2 of 1,900 points which thread runs; ")


@given(st.integers(1, 10**9), st.integers(0, 5))
def test_without_rates_a_seed_decides_nothing_and_with_rate_one_everything(seed: int, stall_s: int) -> None:
    assert may_decide(Threads(seed, 0, 0, 0, stall_s), 100) == ()
    assert may_decide(Threads(seed, 1, 0, 0, stall_s), 100) == tuple(range(100))
