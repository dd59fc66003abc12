"""Expressions that select names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.workloads.match import matcher

NAMES = [
    "ext4-ordered/append-fsync",
    "ext4-ordered/rename-new",
    "xfs-default/rename-new",
    "btrfs-default/namespace",
]


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("rename", [1, 2]),
        ("rename and ext4", [1]),
        ("append-fsync or btrfs", [0, 3]),
        ("not rename", [0, 3]),
        ("rename and not (xfs or btrfs)", [1]),
        ("not not rename", [1, 2]),
        ("xfs or ext4 and append", [0, 2]),
        ("(xfs or ext4) and append", [0]),
    ],
)
def test_words_are_combined_as_they_read(expression: str, chosen: list[int]) -> None:
    selects = matcher(expression)
    assert [i for i, name in enumerate(NAMES) if selects(name)] == chosen


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "a word is missing"),
        ("rename and", "a word is missing"),
        ("or rename", "a word is missing"),
        ("(rename", "not closed"),
        ("rename)", "one too many"),
        ("rename new", "one too many"),
    ],
)
def test_a_malformed_one_says_what_is_wrong(expression: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        matcher(expression)


WORDS = st.sampled_from(["ext4", "xfs", "rename", "fsync"])
EXPRESSIONS = st.recursive(
    WORDS,
    lambda inner: st.one_of(
        inner.map(lambda e: f"not ({e})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda e: f"({e[0]}) {e[1]} ({e[2]})"),
    ),
)


@given(EXPRESSIONS, st.sampled_from(NAMES))
def test_it_means_what_python_would_make_of_it(expression: str, name: str) -> None:
    words = {w: w in name for w in ("ext4", "xfs", "rename", "fsync")}
    assert matcher(expression)(name) == eval(expression, {}, words)  # noqa: S307 - made above
