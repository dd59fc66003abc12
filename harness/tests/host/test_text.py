"""Foreign text, and lists that are cut short."""

from __future__ import annotations

import pytest

from harness.host.text import first_few


@pytest.mark.parametrize(
    ("count", "shown", "left_out"), [(0, 0, 0), (3, 3, 0), (4, 4, 0), (5, 3, 2), (9, 3, 6)]
)
def test_one_that_is_left_is_shown(count: int, shown: int, left_out: int) -> None:
    """The words "and 1 more" took the line of what they hid."""
    few, left = first_few(range(count), 3)
    assert (len(few), left) == (shown, left_out)
