"""Subvolumes and snapshots of btrfs: there as a whole or not at all, and apart from each other."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.model import Outcome
from harness.oracles import Judge
from harness.oracles.replay import need_possible
from harness.tests.oracles.cases import (
    CLEAN,
    EACH,
    ORDERED,
    dice,
    directory,
    file,
    history,
    judged,
    oracles,
    power_cut,
    tree,
    written,
)
from harness.tests.oracles.test_judge import KEPT
from harness.workloads.load import parse_operation

TAKEN = ("create f", "append f 8192", "mkdir d", "create d/g", "snapshot . s")
F, G = file("f", written(1, 0, 8192)), file("d/g")
COPY = (directory("s"), file("s/f", written(1, 0, 8192)), directory("s/d"), file("s/d/g"))
CONTRACTS = {"each": EACH, "prefix": ORDERED}


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_a_snapshot_is_there_as_a_whole_or_not_at_all(contract: object) -> None:
    source = (F, directory("d"), G)
    for copy in ((), COPY):
        assert not judged(TAKEN, tree(*source, *copy), contract, begun=5).violations  # type: ignore[arg-type]
    for lost in ("s/f", "s/d/g"):
        part = tree(*source, *(entry for entry in COPY if entry.path != lost))
        assert "atomicity" in oracles(judged(TAKEN, part, contract, begun=5)), lost  # type: ignore[arg-type]


def test_a_snapshot_holds_what_nobody_has_synced() -> None:
    for held in ((), (written(1, 0, 4096),)):
        short = tree(F, directory("d"), G, COPY[0], file("s/f", *held), *COPY[2:])
        assert judged(TAKEN, short, EACH, begun=5).violations, held


def test_a_snapshot_that_returned_is_durable_with_its_source() -> None:
    assert oracles(judged(TAKEN, tree(F, directory("d"), G), EACH)) == {"durability"}
    for lost in ("f", "d/g"):
        rest = tree(*(e for e in (F, directory("d"), G, *COPY) if e.path != lost))
        assert oracles(judged(TAKEN, rest, EACH)) == {"durability"}, lost
    empty = tree(file("f"), directory("d"), G, *COPY)
    assert oracles(judged(TAKEN, empty, EACH)) == {"durability"}
    assert not judged(TAKEN, tree(F, directory("d"), G, *COPY), EACH).violations


def test_data_outside_the_source_of_a_snapshot_is_not_promised() -> None:
    outside = ("create o", "append o 4096", "subvolume v", "create v/f", "append v/f 4096", "snapshot v s")
    made = (
        directory("v"),
        file("v/f", written(4, 0, 4096)),
        directory("s"),
        file("s/f", written(4, 0, 4096)),
    )
    assert not judged(outside, tree(file("o"), *made), EACH).violations
    assert oracles(judged(outside, tree(*made), EACH)) == {"durability"}


def test_what_is_written_to_one_side_is_not_in_the_other() -> None:
    later = (*TAKEN, "write s/f 0 4096", "sync")
    changed = file("s/f", written(5, 0, 4096), written(1, 4096, 4096))
    there = (directory("d"), G, COPY[0], *COPY[2:])
    assert not judged(later, tree(F, changed, *there), EACH).violations
    swapped = file("f", written(5, 0, 4096), written(1, 4096, 4096))
    assert judged(later, tree(swapped, changed, *there), EACH).violations


def test_the_links_of_a_file_are_links_of_its_copy() -> None:
    linked = ("create f", "link f g", "snapshot . s")
    pair = (file("f", inode=7, links=2), file("g", inode=7, links=2), directory("s"))
    whole = (*pair, file("s/f", inode=8, links=2), file("s/g", inode=8, links=2))
    assert not judged(linked, tree(*whole), EACH).violations
    apart = (*pair, file("s/f", inode=8), file("s/g", inode=9))
    assert "atomicity" in oracles(judged(linked, tree(*apart), EACH))


def test_a_deleted_snapshot_is_there_as_a_whole_or_not_at_all() -> None:
    deleted = (*TAKEN, "subvolume-delete s")
    source = (F, directory("d"), G)
    for copy in ((), COPY):
        assert not judged(deleted, tree(*source, *copy), EACH).violations
    part = tree(*source, *(entry for entry in COPY if entry.path != "s/d/g"))
    assert oracles(judged(deleted, part, EACH)) == {"durability"}
    assert oracles(judged((*deleted, "sync"), tree(*source, *COPY), EACH)) == {"durability"}


def test_a_subvolume_is_not_durable_when_it_was_made() -> None:
    made = ("subvolume v", "create v/f", "append v/f 4096", "fsync v/f")
    assert not judged(made[:1], tree(), EACH).violations
    assert not judged(made, tree(directory("v"), file("v/f", written(2, 0, 4096))), EACH).violations
    assert oracles(judged(made, tree(), EACH)) == {"durability"}


@pytest.mark.parametrize("mode", ["ordered", "each"])
def test_a_snapshot_without_a_commit_is_found(mode: str) -> None:
    operations = [parse_operation(text) for text in (*TAKEN, "create h")]
    found: set[str] = set()
    for bug in ([], ["snapshot-without-commit"]):
        assert not found
        for seed in range(200):
            position, recovered = power_cut(KEPT[mode], operations, dice(seed), bug)
            judge = Judge(KEPT[mode], history(operations), error_patterns=())
            found |= oracles(judge.judge(position, Outcome(tree=recovered, fsck=CLEAN)))
    assert "durability" in found


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        (["subvolume v", "create f"], "rename f v/f"),
        (["subvolume v", "create f"], "link f v/f"),
        (["subvolume v", "create f", "create v/f"], "exchange f v/f"),
        (["subvolume v", "mkdir d"], "rename d v"),
        (["mkdir d"], "snapshot d s"),
        (["subvolume v"], "snapshot . s"),
        (["subvolume v", "subvolume v/w"], "subvolume-delete v"),
        (["mkdir d"], "subvolume-delete d"),
        ([], "subvolume-delete ."),
        (["subvolume v", "create v/f", "open v/f @h"], "subvolume-delete v"),
    ],
)
def test_what_btrfs_refuses_is_refused(before: list[str], refused: str) -> None:
    need_possible([parse_operation(text) for text in before])
    with pytest.raises(UsageError):
        need_possible([parse_operation(text) for text in (*before, refused)])


def test_a_subvolume_itself_can_be_moved_to_another() -> None:
    moved = ["subvolume v", "subvolume w", "create v/f", "rename v w/v", "create w/g"]
    need_possible([parse_operation(text) for text in moved])
    with pytest.raises(UsageError):
        need_possible([parse_operation(text) for text in (*moved, "rename w/g w/v/g")])
