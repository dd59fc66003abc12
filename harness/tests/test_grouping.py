"""Things by what they have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.grouping import by_key


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())))
def test_nothing_is_left_out_and_all_is_in_its_order(pairs: list[tuple[str, int]]) -> None:
    found = by_key(pairs)
    assert [*found] == [*dict.fromkeys(key for key, _ in pairs)]
    assert found == {key: [value for k, value in pairs if k == key] for key in found}
