"""The list of changes that `ground_truth.py` asks about, and what its table says. No kernel is built here."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.errors import ExitCode
from harness.faults.catalogue import faults
from harness.regressions.catalogue import bugs
from harness.tests.patches.ground_truth import (
    Change,
    Kind,
    Row,
    changes,
    in_order,
    keep_row,
    keep_rows,
    known_rows,
    page,
    why_missed,
)


def named(kind: Kind) -> list[str]:
    return [c.name for c in changes() if c.kind is kind]


def row(kind: Kind, name: str, *, found: bool, code: int, commit: str = "") -> Row:
    return Row(kind, name, found, 10.0 if found else None, 60.0, commit, "", "headline", code)


def test_upstream_bugs_are_those_of_the_catalogue_and_can_be_shown() -> None:
    upstream = named(Kind.UPSTREAM)
    assert len(upstream) >= 12
    assert all(bugs()[name].modes for name in upstream)


def test_there_are_twenty_harmless_changes_and_each_has_a_name_of_its_own() -> None:
    assert len(named(Kind.HARMLESS)) >= 20
    names = [c.name for c in in_order(1)]
    assert len(names) == len(set(names)) == len(changes()) + len(faults())


def test_each_kind_has_its_turn_in_an_order_that_the_seed_fixes() -> None:
    order = in_order(1)
    assert order == in_order(1)
    assert order != in_order(2)
    assert sorted(c.kind for c in order[:9]) == sorted(list(Kind) * 3)


@pytest.mark.parametrize(
    ("kind", "found", "code", "right"),
    [
        (Kind.PLANTED, True, ExitCode.INCONSISTENT, True),
        (Kind.UPSTREAM, False, ExitCode.TIME_UP, False),
        (Kind.HARMLESS, True, ExitCode.INCONSISTENT, False),
        (Kind.HARMLESS, False, ExitCode.TIME_UP, True),
        (Kind.HARMLESS, False, ExitCode.UNDECIDED, False),
        (Kind.HARMLESS, False, ExitCode.BISECT_SKIP, False),
    ],
)
def test_a_bug_has_to_be_found_and_a_harmless_change_to_be_passed(
    kind: Kind, found: bool, code: int, right: bool
) -> None:
    """A harmless change whose kernel did not build counted as one that was passed."""
    assert row(kind, "x", found=found, code=code).as_it_should is right


def test_the_table_says_how_many_were_run_of_how_many() -> None:
    chosen = [
        *(Change(Kind.PLANTED, name, ()) for name in ("one", "two", "three")),
        Change(Kind.HARMLESS, "four", ()),
    ]
    rows = [
        row(Kind.PLANTED, "one", found=True, code=1, commit="right"),
        row(Kind.PLANTED, "two", found=True, code=1, commit="wrong"),
        row(Kind.HARMLESS, "four", found=False, code=5),
    ]
    told = page(rows, chosen, "make patches")
    assert told.headline == "0 of 0 upstream found, 2 of 2 planted found, 1 of 1 harmless passed"
    text = told.text()
    assert "named for 1 of 2 planted faults" in text
    assert "3 of 4 were run (0 upstream, 3 planted, 1 harmless)" in text
    assert "planted: three" in text[text.index("What was not run") :]
    assert msgspec.json.decode(told.json())["left"]["planted"] == ["three"]


def test_rows_of_a_page_are_taken_over_once_and_those_here_stay(tmp_path: Path) -> None:
    here = row(Kind.PLANTED, "one", found=True, code=1)
    there = [row(Kind.PLANTED, "one", found=False, code=5), row(Kind.HARMLESS, "two", found=False, code=5)]
    told, kept = tmp_path / "patches.json", tmp_path / "rows.jsonl"
    told.write_text(page(there, [], "make patches").json())
    keep_row(kept, here)
    for _ in range(2):
        keep_rows(kept, told)
        assert known_rows(kept) == [here, there[1]]


@pytest.mark.parametrize(
    ("name", "left", "why"),
    [
        ("stale-log-flushed", ("all",), "no stage asks parallel-overwrite.s2 in xfs/default"),
        ("unwritten-log-counts", ("beside",), "the time was up in stage beside; it shows in beside"),
        ("fsync-no-barrier", ("more",), "stage quick was done, and showed nothing"),
        ("fsync-no-barrier", ("quick", "all"), "the time was up in stage quick; it shows in quick"),
        ("btrfs-new-name-skips-dentries", ("more", "ace1"), "the time was up in stage more"),
    ],
)
def test_a_miss_has_a_reason(name: str, left: tuple[str, ...], why: str) -> None:
    missed = msgspec.structs.replace(row(Kind.PLANTED, name, found=False, code=5), left=left)
    assert why_missed(missed) == why
    assert why in page([missed], [], "make patches").text().replace("\n", " ")


def test_a_patch_that_is_refused_says_why() -> None:
    """The modes of HFS+ are asked only if they are named: the command came to no directory, and to no row."""
    why = "powercut: fs/hfsplus/inode.c: the modes that run this are asked only if they are named"
    refused = msgspec.structs.replace(
        row(Kind.PLANTED, "hfsplus-fsync-no-flush", found=False, code=ExitCode.USAGE), headline=why
    )
    assert why_missed(refused) == why
