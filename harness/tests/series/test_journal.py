"""What the journal of a series believes: its own lines, whole, about its own directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.litmus.results import LitmusPlan
from harness.report.page import Page
from harness.series.journal import JOURNAL, Begun, Done, End, Ended, Journal, Known, Started
from harness.series.work import Item, Series, Work, in_short
from harness.store import RunStore
from harness.summary import Summary


class Empty(Series[Done]):
    """Of no items."""

    done = Done

    def items(self, work: Work[Done]) -> Iterable[Item]:
        return ()

    def keep(self, item: Item, store: RunStore, summary: Summary) -> Done:
        return Done(item=item.name)

    def words(self, done: Done) -> str:
        return done.item

    def page(self) -> Page:
        return Page("series", "of nothing", "no items", "pass", ())


def read(path: Path) -> Known[Done]:
    known = Known(Done)
    Journal(path, known)
    return known


def test_what_was_put_is_read_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Known(Done))
    for line in (
        Started(at=0, when="2026", powercut="1"),
        Begun(at=1, item="a"),
        Done(at=5, item="a", run="items/a/runs/r"),
        Ended(at=6, when="2027", how=End.COMPLETE),
    ):
        journal.put(line)
    known = read(tmp_path)
    assert (known.done, known.at, known.finished) == ({"a": journal.known.done["a"]}, 6, "2027")


@pytest.mark.parametrize("cut", [1, 9, 60])
def test_a_line_that_was_cut_off_did_not_happen(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path, Known(Done))
    journal.put(Done(item="a"))
    journal.put(Done(item="b"))
    file = tmp_path / JOURNAL
    file.write_bytes(file.read_bytes()[: -1 - cut])
    Journal(tmp_path, Known(Done)).put(Done(item="c"))
    known = read(tmp_path)
    assert ([*known.done], known.damaged) == (["a", "c"], 1)


@pytest.mark.parametrize(
    "run",
    [
        "/home/me/runs/private",
        "items/a/runs/../../../../private",
        "items/../runs/private",
        "../a/runs/private",
        "items/a/runs/.hidden",
    ],
)
def test_a_journal_of_somebody_else_names_no_directory_of_this_host(tmp_path: Path, run: str) -> None:
    Journal(tmp_path, Known(Done)).put(Done(item="a", run=run))
    assert (read(tmp_path).done, read(tmp_path).damaged) == ({}, 1)


@pytest.mark.parametrize("item", ["..", ".", "", "/", "../../etc", "/boot/vmlinuz", "a/../../b"])
def test_the_folder_of_an_item_is_below_that_of_the_series(tmp_path: Path, item: str) -> None:
    """What is not kept of an item is deleted: an item that was called `..` would have been the directory."""
    series = Empty(tmp_path, [])
    assert series.place(item).parent == tmp_path / "items"
    assert ".." not in series.place(item).parts


def test_two_names_have_two_folders(tmp_path: Path) -> None:
    """Each of two kernels began the other's run anew, and deleted it."""
    series = Empty(tmp_path, [])
    assert series.place("/src/linux/new/bzImage") != series.place("/src/linux_new/bzImage")
    assert series.place("debian-6.12").name == "debian-6.12"


def test_of_an_installation_that_was_renewed_not_every_part_is_named() -> None:
    """Seventy modes and programs, each with two digests, stood before a resumed verdict began."""
    several = "RUN was begun with other parts than there are now: source: 1 then, 2 now"
    assert in_short(several) == several
    assert in_short(f"{several}; mode a: 1 then, 2 now; b: 1 then, 2 now; c: 1 then, 2 now") == (
        f"{several}; mode a: 1 then, 2 now; 2 more"
    )


def test_a_guest_that_is_a_process_finds_the_folder_of_a_column_with_its_kernel(tmp_path: Path) -> None:
    """`powercut litmus --kernels A,B` was refused on UML: 'cannot open files in a folder with ' ''."""
    plan = LitmusPlan(modes=["xfs/default"], kernels=["debian-6.12", "debian-7.3"], machine="uml")
    folders = {Empty(tmp_path, []).place(plan.column(*column)) for column in plan.columns}
    assert len(folders) == 2
    assert not [f for f in folders if re.search(r"[\s,]", f.name)]


def test_a_name_longer_than_that_of_a_folder_has_a_place(tmp_path: Path) -> None:
    """A kernel's path of 250 letters: "File name too long; name a folder that you may write to"."""
    series, path = Empty(tmp_path, []), f"/home/{'ä' * 200}/arch/x86/boot/bzImage"
    place = series.place(path)
    place.mkdir(parents=True)
    assert "bzImage" in place.name
    assert place != series.place(path.replace("home", "work"))
