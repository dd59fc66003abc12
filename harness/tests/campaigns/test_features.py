"""What counts as something new."""

from __future__ import annotations

import pytest

from harness.campaigns.features import in_words, numberless, written
from harness.store.records import DrawnEntry, Step


def entries(*kinds: tuple[str, int, int]) -> list[DrawnEntry]:
    return [DrawnEntry(i, kind, sector, sectors) for i, (kind, sector, sectors) in enumerate(kinds)]


def test_an_order_of_writes_is_told_by_place_and_flag() -> None:
    log = entries(
        ("mark", 0, 0), ("write", 80, 8), ("write", 800, 8), ("write", 808, 8), ("write", 816, 8),
        ("flush+fua", 824, 0), ("fua", 824, 8), ("mark", 0, 0),
    )  # fmt: skip
    assert list(written([Step(0, "fsync f", 0, 7)], log)) == [
        "fsync: new next flush+fua next+fua",
        "fsync: 4 to 7 writes",
    ]


def test_a_place_that_was_written_before_is_told_apart() -> None:
    log = entries(("write", 80, 8), ("mark", 0, 0), ("write", 84, 2), ("flush", 0, 0), ("mark", 0, 0))
    both = [Step(0, "sync", 0, 1), Step(1, "sync", 1, 4)]
    assert list(written(both, log)) == [
        "sync: new",
        "sync: 1 write",
        "sync: again flush",
        "sync: 2 to 3 writes",
    ]


def test_an_operation_that_wrote_nothing_has_no_feature() -> None:
    log = entries(("mark", 0, 0), ("mark", 0, 0), ("write", 80, 8))
    assert list(written([Step(0, "mkdir d", 0, 1), Step(1, "fsync d", 1, None)], log)) == []


def test_lengths_and_numbers_do_not_make_a_feature() -> None:
    """Else every recording would be new."""
    assert numberless("inode 12 at 0xffff81: 3\nmore") == "inode N at N: N\\nmore"


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        (
            "fsync: new next again flush next+fua new+flush+fua ...",
            "fsync wrote in a new order: a new place, right behind it, a place written before, a flush, "
            "right behind it (FUA), a new place (flush, FUA), ...",
        ),
        ("sync: flush+fua", "sync wrote in a new order: a flush with FUA"),
        ("fsync: 4 to 7 writes", "fsync: 4 to 7 writes"),
        ("broken: durability: NAME: missing", "broken: durability: NAME: missing"),
        ("kernel: new mount of N", "kernel: new mount of N"),
    ],
)
def test_an_order_of_writes_is_told_in_whole_words(feature: str, said: str) -> None:
    """The page said "fsync: new next new next again flush+fua", which was for its author."""
    assert in_words(feature) == said
