"""Names without a global order: each promise of `harness.oracles.each`, kept and broken."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from harness.filesystems.profiles import profiles
from harness.model import Extent, ExtentKind, FileKind, Judgement, Outcome, Position, Tree, TreeEntry, Verdict
from harness.oracles import Judge
from harness.oracles.contract import Contract
from harness.oracles.timeline import Entries, Entry
from harness.tests.oracles.cases import (
    CLEAN,
    EACH,
    PATTERNS,
    SYNCED,
    calls_of,
    directory,
    file,
    history,
    judged,
    oracles,
    tree,
    variant,
    written,
    zeros,
)

PASS = Verdict.PASS
UNKNOWN = Verdict.UNKNOWN


def on(operations: list[str], *entries: TreeEntry, begun: int | None = None) -> Judgement:
    return judged(operations, tree(*entries), EACH, begun)


def test_what_nobody_synced_may_be_there_in_any_combination() -> None:
    operations = ["create f", "create g", "create h"]
    assert on(operations).verdict is PASS
    assert on(operations, file("h"), file("f")).verdict is PASS


def test_a_synced_file_is_there_whatever_else_is() -> None:
    operations = ["create g", "create f", "append f 4096", "fsync f", "create h"]
    assert on(operations, file("f", written(2, 0, 4096))).verdict is PASS
    assert oracles(on(operations, file("g"))) == {"durability"}
    assert oracles(on(operations, file("f", zeros(0, 4096)))) == {"durability"}
    assert oracles(on(operations, file("f"))) == {"durability"}


@pytest.mark.parametrize("synced", ["fdatasync g", "write g 0 4096 dsync"])
def test_a_sync_of_data_covers_no_name_that_was_of_another_file(synced: str) -> None:
    """It need not make a rename durable. Then the name at which the file was opened was taken for durable as
    the name of what the rename replaced, which nobody had synced.
    """
    operations = ["create g", "create f", "append f 4096", "rename f g", synced]
    data = written(4 if synced.startswith("write") else 2, 0, 4096)
    assert on(operations, file("f", data)).verdict is PASS
    assert on(operations, file("g", data)).verdict is PASS
    assert on(operations, file("f", data), file("g", inode=9)).verdict is PASS
    assert oracles(on(operations)) == {"durability"}
    assert oracles(on(operations, file("g"))) == {"durability"}
    assert oracles(on([*operations, "fsync g"], file("f", data))) == {"durability"}


def test_names_that_nobody_made() -> None:
    assert oracles(on(["create f"], file("g"))) == {"atomicity"}
    assert oracles(on(["create f", "create g"], file("g"), begun=1)) == {"atomicity"}


def test_names_that_nobody_made_are_told_from_names_that_are_back() -> None:
    (never,) = on(["create f", "sync"], file("f"), file("g")).violations
    assert (never.oracle, never.summary) == (
        "atomicity",
        "g: is there, and no operation that had begun makes it",
    )
    (back,) = on(["create f", "unlink f", "sync"], file("f")).violations
    assert (back.oracle, back.summary) == (
        "durability",
        "f: is there again, although `sync` (operation 2) was acknowledged",
    )


@pytest.mark.parametrize("persist", ["fsync f", "sync"])
def test_a_persistence_point_in_flight_promises_nothing(persist: str) -> None:
    operations = ["create f", "append f 4096", persist, "create g"]
    assert on(operations, begun=3).verdict is PASS
    assert oracles(on(operations, begun=4)) == {"durability"}
    assert judged(operations, tree(), SYNCED, begun=3).verdict is PASS


def test_what_had_not_begun_excuses_nothing() -> None:
    gone = ["create f", "fsync f", "create g", "unlink f"]
    assert oracles(on(gone, file("g"), begun=3)) == {"durability"}
    moved = ["create f", "fsync f", "rename f g", "create h", "unlink g"]
    assert oracles(on(moved, file("h"), begun=4)) == {"durability"}
    inside = ["mkdir d", "create d/f", "fsync d", "create g", "unlink d/f"]
    assert oracles(on(inside, directory("d"), file("g"), begun=4)) == {"durability"}
    changed = ["create f", "fsync f", "create g", "chmod f 600", "truncate f 100", "truncate f 50"]
    assert oracles(on(changed, file("f", mode=0o600), begun=3)) == {"durability"}
    assert oracles(on(changed, file("f", zeros(0, 100)), begun=3)) == {"size"}


def test_permissions_of_another_file_are_nobodys() -> None:
    operations = ["create f", "create g", "chmod g 600"]
    assert on(operations, file("f"), file("g", mode=0o600)).verdict is PASS
    assert oracles(on(operations, file("f", mode=0o600))) == {"atomicity"}


def test_a_synced_file_must_be_found_by_its_contents_not_only_by_a_name_it_had() -> None:
    operations = [*REPLACE[:5], "fsync t", "rename t f"]
    assert on(operations, NEW).verdict is PASS
    (violation,) = on(operations, OLD).violations
    assert violation.signature == "made by 3: unreachable"
    assert on(operations, OLD, file("t", written(4, 0, 8192))).verdict is PASS


def test_the_root_directorys_fsync_does_not_cover_what_is_elsewhere() -> None:
    operations = ["mkdir d", "sync", "create f", "unlink f", "create d/g", "unlink d/g", "fsync d"]
    assert on(operations, directory("d"), file("f")).verdict is PASS
    assert oracles(on(operations, directory("d"), file("d/g"))) == {"durability"}
    operations[-1] = "fsync ."
    assert on(operations, directory("d"), file("d/g")).verdict is PASS
    assert oracles(on(operations, directory("d"), file("f"))) == {"durability"}


def test_what_is_in_lost_and_found_has_no_name_to_judge() -> None:
    strange = file("lost+found/#12", zeros(0, 3), mode=0o600)
    assert on(["create f"], strange).verdict is PASS
    assert judged(["create f"], tree(strange), SYNCED).verdict is PASS


def test_sync_covers_names_that_are_gone() -> None:
    operations = ["create f", "unlink f", "sync"]
    assert on(operations).verdict is PASS
    assert oracles(on(operations, file("f"))) == {"durability"}
    assert on(operations[:2], file("f")).verdict is PASS


REPLACE = ["create f", "append f 4096", "sync", "create t", "append t 8192", "rename t f"]
OLD, NEW = file("f", written(1, 0, 4096)), file("f", written(4, 0, 8192))


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    assert on(REPLACE, OLD).verdict is PASS
    assert on(REPLACE, OLD, file("t")).verdict is PASS
    assert on(REPLACE, NEW).verdict is PASS
    assert oracles(on(REPLACE)) == {"durability"}
    assert oracles(on(REPLACE, file("f", written(4, 0, 4096), written(1, 4096, 4096)))) == {"stale"}


@pytest.mark.parametrize("persist", ["fsync f", "sync"])
def test_a_replacement_that_was_synced_stays(persist: str) -> None:
    operations = [*REPLACE, persist]
    assert on(operations, NEW).verdict is PASS
    (violation,) = on(operations, OLD).violations
    assert violation.oracle == "durability"
    assert f"is what it was before, although `{persist}`" in violation.summary
    mixed = file("f", written(4, 0, 4096), written(1, 4096, 4096))
    assert oracles(on(operations, mixed)) == {"stale"}


def test_a_synced_file_that_is_renamed_has_one_of_its_names() -> None:
    operations = ["create f", "append f 4096", "fsync f", "rename f g"]
    data = written(1, 0, 4096)
    assert on(operations, file("f", data)).verdict is PASS
    assert on(operations, file("g", data)).verdict is PASS
    assert oracles(on(operations)) == {"durability"}
    both = (file("f", data, inode=7), file("g", data, inode=7))
    assert oracles(on(operations, *both)) == {"atomicity"}


def test_a_directorys_fsync_covers_the_names_in_it() -> None:
    operations = ["mkdir d", "create d/f", "create d/g", "unlink d/g", "fsync d"]
    assert on(operations, directory("d"), file("d/f")).verdict is PASS
    assert oracles(on(operations, directory("d"))) == {"durability"}
    assert oracles(on(operations, directory("d"), file("d/f"), file("d/g"))) == {"durability"}


def test_a_renamed_parent_leaves_either_path() -> None:
    operations = ["mkdir d", "create d/f", "sync", "rename d e", "fsync e/f"]
    assert on(operations, directory("d"), file("d/f")).verdict is PASS
    assert on(operations, directory("e"), file("e/f")).verdict is PASS
    assert oracles(on(operations)) == {"durability"}


MOVED = ["mkdir A", "sync", "rename A B", "create B/foo", "fsync B/foo"]


@pytest.mark.parametrize("name", ["A", "B"])
def test_a_directory_under_an_older_name_may_hold_newer_entries(name: str) -> None:
    """Names used to be judged as whole paths: `A/foo: is there, and no operation makes it`, although the old
    name of the directory and the new entry in it are each legal.
    """
    assert on(MOVED, directory(name), file(f"{name}/foo")).verdict is PASS
    (lost,) = on(MOVED, directory(name)).violations
    assert lost.summary == "B/foo: missing, although `fsync B/foo` (operation 4) was acknowledged"


def test_a_name_that_no_operation_made_is_found_in_a_renamed_directory_too() -> None:
    for name in ("A", "B"):
        (never,) = on(MOVED, directory(name), file(f"{name}/foo"), file(f"{name}/bar")).violations
        assert (never.oracle, never.subject) == ("atomicity", f"{name}/bar")


def test_renaming_a_directory_excuses_no_entry_in_it() -> None:
    """It used to: after the rename no whole path was left that had to be there."""
    operations = ["mkdir d", "create d/f", "mkdir d/s", "sync", "rename d e"]
    for name in ("d", "e"):
        whole = (directory(name), file(f"{name}/f"), directory(f"{name}/s"))
        assert on(operations, *whole).verdict is PASS
        assert oracles(on(operations, *whole[:2])) == {"durability"}
    assert oracles(on(operations, file("f"), directory("s"))) == {"atomicity", "durability"}


def test_a_directory_in_the_place_of_another_has_that_ones_names_or_its_own() -> None:
    operations = ["mkdir d", "create d/f", "sync", "rename d e", "mkdir d", "create d/g", "fsync d/g"]
    new = (directory("d"), file("d/g", inode=7))
    assert on(operations, directory("e"), file("e/f"), *new).verdict is PASS
    assert oracles(on(operations, directory("e"), file("e/f"))) == {"durability"}
    assert oracles(on(operations, directory("d"), file("d/f"))) == {"durability"}


@pytest.mark.parametrize(
    ("more", "undone", "point"),
    [
        (["mkdir a/b"], "a/b", 9),
        (["mkdir a/b", "fsync a/b"], "a/b", 12),
        (["mkdir a/b", "fsync a/b", "symlink a/b/f zz"], "a/b", 12),
        (["rmdir a", "create a", "fsync a", "unlink a", "mkdir a", "mkdir a/b"], "a", 13),
    ],
)
def test_what_was_in_an_older_directory_shows_that_this_one_is_undone(
    more: list[str], undone: str, point: int
) -> None:
    """The old directory was taken for the new one: `a/b/f` is there, and no operation makes it. Of one known
    loss that made a second, new finding.
    """
    operations = [
        "mkdir a",
        "mkdir a/b",
        "create a/b/f",
        "create a/b/g",
        "sync",
        "unlink a/b/f",
        "unlink a/b/g",
    ]
    operations += ["rmdir a/b", "create a/b", "fsync a/b", "unlink a/b", *more]
    names = (directory("a"), directory("a/b"), file("a/b/f"), file("a/b/g"))
    (violation,) = on(operations, *names).violations
    told = f"{undone}: is what it was before, although `{operations[point]}` (operation {point})"
    assert violation.summary == f"{told} was acknowledged"
    assert (violation.oracle, violation.signature) == ("durability", f"{undone}: undone")
    assert oracles(on(operations, *names, file("a/b/h"))) == {"durability", "atomicity"}, "h was never there"


@pytest.mark.parametrize("to", ["b", "c/d/b"])
def test_a_directory_that_is_at_its_new_name_is_not_at_the_old_one_as_well(to: str) -> None:
    """The invented `a/f` was put down to the directory of before, and so to a known loss."""
    operations = ["mkdir c", "mkdir c/d", "mkdir a", "create a/f", "sync", f"rename a {to}", "mkdir a"]
    operations += ["fsync .", f"unlink {to}/f"]
    names = (directory("c"), directory("c/d"), directory("a"), file("a/f"))
    (violation,) = on(operations, *names, directory(to)).violations
    assert (violation.oracle, violation.signature) == ("atomicity", "a/f: should not be there")
    undone = on(operations, *names).violations
    assert ("durability", "a: undone") in {(v.oracle, v.signature) for v in undone}, "it is nowhere else"


def test_a_directorys_fsync_does_not_cover_what_is_in_its_new_subdirectories() -> None:
    operations = ["mkdir d", "mkdir d/s", "create d/s/f", "fsync d"]
    assert on(operations, directory("d"), directory("d/s")).verdict is PASS
    assert oracles(on(operations, directory("d"))) == {"durability"}


def test_permissions_are_those_of_a_time_since_the_sync() -> None:
    operations = ["create f", "chmod f 600", "fsync f"]
    assert on(operations, file("f", mode=0o600)).verdict is PASS
    assert oracles(on(operations, file("f"))) == {"durability"}
    assert on(operations[:2], file("f")).verdict is PASS


def test_the_last_of_several_persistence_points_counts() -> None:
    operations = ["create f", "append f 4096", "fsync f", "chmod f 600", "append f 4096", "fsync f"]
    data = (written(1, 0, 4096), written(4, 4096, 4096))
    assert on(operations, file("f", *data, mode=0o600)).verdict is PASS
    assert oracles(on(operations, file("f", *data))) == {"durability"}
    assert oracles(on(operations, file("f", data[0], mode=0o600))) == {"durability"}
    assert on(operations, file("f", data[0]), begun=6).verdict is PASS
    synced = ["create f", "sync", "rename f g", "sync", "create h", "fsync h"]
    assert oracles(on(synced, file("f"), file("h"))) == {"durability"}


def test_two_names_of_one_file_that_nobody_made() -> None:
    both = (file("p", inode=5, links=2), file("q", inode=5, links=2))
    assert oracles(on(["create f"], *both)) == {"atomicity"}


def test_names_of_different_files_are_not_one_file() -> None:
    one = (file("f", inode=5, links=2), file("g", inode=5, links=2))
    assert on(["create f", "link f g"], *one).verdict is PASS
    assert oracles(on(["create f", "create g"], *one)) == {"atomicity"}


@pytest.mark.parametrize("path", ["f", "lost+found/#12"])
def test_after_a_repair_what_was_synced_can_be_reached(path: str) -> None:
    operations = ["create f", "append f 4096", "fsync f"]
    assert judged(operations, tree(file(path, written(1, 0, 4096))), SYNCED).verdict is PASS
    assert oracles(judged(operations, tree(file("other")), SYNCED)) == {"durability"}


def test_after_a_repair_only_what_has_not_changed_since_is_judged() -> None:
    operations = ["create f", "append f 4096", "fsync f", "append f 10"]
    assert judged(operations, tree(file("f", zeros(0, 9))), SYNCED).verdict is PASS
    assert oracles(judged(operations[:3], tree(file("f", zeros(0, 4096))), SYNCED)) == {"durability"}
    assert judged([*operations[:2], "sync", "append f 10"], tree(), SYNCED).verdict is Verdict.FAIL
    assert judged([*operations[:2], "sync", "unlink f"], tree(), SYNCED).verdict is PASS


def test_after_a_repair_sync_has_covered_everything() -> None:
    """sync used to promise nothing where the driver syncs names with each fsync only, since the unmodified
    kernel breaks it; that is now a known failure of the kernel.
    """
    operations = ["mkdir d", "create d/f", "append d/f 4096", "link d/f g", "sync", "create h"]
    data = written(2, 0, 4096)
    whole = (directory("d"), file("d/f", data, inode=7, links=2), file("g", data, inode=7, links=2))
    assert judged(operations, tree(*whole), SYNCED).verdict is PASS
    assert oracles(judged(operations, tree(*whole[:2]), SYNCED)) == {"durability"}
    assert oracles(judged(operations, tree(whole[0]), SYNCED)) == {"durability"}
    empty = (directory("d"), file("d/f", zeros(0, 4096), inode=7), file("g", inode=8))
    assert "durability" in oracles(judged(operations, tree(*empty), SYNCED))
    assert judged(operations[:5], tree(), SYNCED, begun=5).verdict is PASS


def test_after_a_repair_a_synced_directory_has_its_synced_names() -> None:
    operations = ["create f", "append f 4096", "fsync f", "rename f g", "fsync ."]
    data = written(1, 0, 4096)
    for path in ("g", "lost+found/#12"):
        assert judged(operations, tree(file(path, data)), SYNCED).verdict is PASS
    (violation,) = judged(operations, tree(file("f", data)), SYNCED).violations
    assert violation.summary == "g: missing, although `fsync .` (operation 4) was acknowledged"
    assert judged(operations[:4], tree(file("f", data)), SYNCED).verdict is PASS
    assert judged(["create f", "rename f g", "fsync ."], tree(), SYNCED).verdict is PASS


def test_after_a_repair_a_synced_replacement_is_in_the_synced_directory() -> None:
    operations = [*REPLACE[:2], "fsync f", *REPLACE[3:5], "fsync t", REPLACE[5], "fsync ."]
    old, new = file("f", written(1, 0, 4096)), file("f", written(4, 0, 8192))
    assert judged(operations, tree(new), SYNCED).verdict is PASS
    assert oracles(judged(operations, tree(old), SYNCED)) == {"durability"}
    assert judged(operations[:-1], tree(old, file("t", written(4, 0, 8192))), SYNCED).verdict is PASS


PUT_OVER = [
    *("mkdir a", "mkdir b", "create b/g", "append b/g 4096", "fsync b/g", "create a/h", "fsync a/h"),
    *("rename a/h b/g", "fdatasync b/g", "fsync b/g"),
]


@pytest.mark.parametrize("begun", range(8, len(PUT_OVER) + 1))
def test_after_a_repair_a_name_over_which_something_was_put_may_be_missing(begun: int) -> None:
    """ext2 was red on every kernel: the inode table says that the replaced file is gone, its directory still
    names it, and e2fsck removes the name. fsync of what replaced it writes no directory (ext4_setent).
    """
    there = (directory("a"), directory("b"))
    assert judged(PUT_OVER, tree(*there, file("a/h")), SYNCED, begun).verdict is PASS
    (gone,) = judged(PUT_OVER, tree(*there), SYNCED, begun).violations
    assert gone.signature == "made by 5: unreachable"
    assert oracles(judged(PUT_OVER, tree(*there, file("a/h")), EACH, begun)) >= {"durability"}


def test_after_a_repair_a_name_that_nothing_was_put_over_is_there() -> None:
    there = (directory("a"), directory("b"), file("a/h"))
    (gone,) = judged(PUT_OVER, tree(*there), SYNCED, 7).violations
    assert gone.summary == "b/g: missing, although `fsync b/g` (operation 4) was acknowledged"
    moved = ["mkdir a", "mkdir b", "create a/f", "fsync a/f", "rename a/f b/f", "fsync b/f"]
    assert oracles(judged(moved, tree(*there[:2], file("a/f")), SYNCED)) == {"durability"}


def test_after_a_repair_fsync_covers_the_only_name_of_a_file() -> None:
    """The driver syncs the directory of one of its names, whichever it finds first (ext4_sync_parent)."""
    operations = ["mkdir a", "mkdir b", "create a/f", "fsync a/f", "link a/f b/f", "fsync b/f"]
    one = (directory("a"), directory("b"), file("a/f", inode=7, links=1))
    assert judged(operations, tree(*one), SYNCED).verdict is PASS
    assert oracles(judged(operations, tree(*one[:2]), SYNCED)) == {"durability"}


def test_only_what_was_lost_counts_as_rescued() -> None:
    """In lost+found, as far as kind and contents tell."""
    operations = ["create f", "append f 4096", "fsync f"]
    for other in (file("lost+found/#12", zeros(0, 4096)), directory("lost+found/#12")):
        assert oracles(judged(operations, tree(other), SYNCED)) == {"durability"}
        assert oracles(on(operations, other)) == {"durability"}
    assert judged(["mkdir d", "fsync d"], tree(directory("lost+found/#12")), SYNCED).verdict is PASS


def test_what_is_in_lost_and_found_is_one_inode_each() -> None:
    """One empty file there stood for any number that were gone."""
    operations = [*(f"create f{i}" for i in range(4)), "sync"]
    found = [file(f"lost+found/#{n}") for n in range(12, 16)]
    for contract in (EACH, SYNCED):
        for there in range(5):
            lost = judged(operations, tree(*found[:there]), contract)
            assert len(lost.violations) == 4 - there


def test_which_file_is_in_lost_and_found_is_chosen_so_that_most_are_there() -> None:
    """`f` may be either of the two, and `g` the first alone."""
    operations = ["create f", "create g", "sync", "append f 4096"]
    empty, longer = file("lost+found/#12"), file("lost+found/#13", written(3, 0, 4096))
    assert judged(operations, tree(empty, longer), EACH).verdict is PASS
    assert [v.subject for v in judged(operations, tree(longer), EACH).violations] == ["g"]
    assert len(judged(operations, tree(empty), EACH).violations) == 1


def test_what_is_in_lost_and_found_has_its_inode_s_attributes_still() -> None:
    """The mode, the owner, extended attributes and the target of a link were not looked at there."""
    operations = ["create f", "append f 4096", "chmod f 600", "setxattr f user.a x", "sync"]
    data = written(1, 0, 4096)
    whole = file("lost+found/#12", data, mode=0o600, xattrs={"user.a": b"x"})
    for contract in (EACH, SYNCED):
        assert judged(operations, tree(whole), contract).verdict is PASS
        for other in (replace(whole, mode=0o644), replace(whole, xattrs={}), replace(whole, uid=7)):
            assert oracles(judged(operations, tree(other), contract)) == {"durability"}
    other = replace(whole, kind=FileKind.SYMLINK, target=b"elsewhere")
    assert oracles(judged(["symlink s target", "sync"], tree(other), EACH)) == {"durability"}
    assert oracles(judged(["mkdir d", "fsync d"], tree(), SYNCED)) == {"durability"}


def test_after_a_repair_what_nobody_synced_may_be_anything() -> None:
    odd = file("f", zeros(0, 5), mode=0)
    assert judged(["create f"], tree(odd), SYNCED).verdict is PASS
    assert oracles(judged(["create f", "fsync f"], tree(odd), SYNCED)) == {"durability"}
    one = (file("f", inode=5, links=1), file("g", inode=5, links=1))
    assert judged(["create f", "create g"], tree(*one), SYNCED).verdict is PASS
    assert judged(["mkdir d", "fsync ."], tree(directory("d", 0o700)), SYNCED).verdict is PASS


# --- rules that contracts choose ---


def test_without_a_journal_and_without_fsck_only_a_sync_that_nothing_followed_is_judged() -> None:
    """ext4 without a journal was not judged by any promise."""
    quiet = replace(SYNCED, rules=("only-sync",))
    operations = ["create f", "append f 4096", "sync"]
    assert judged(operations, tree(file("f", written(1, 0, 4096))), quiet).verdict is PASS
    assert oracles(judged(operations, tree(), quiet)) == {"durability"}
    assert oracles(judged(operations, tree(file("f", zeros(0, 4096))), quiet)) == {"durability"}
    assert judged([*operations, "create g"], tree(), quiet, begun=4).verdict is PASS
    assert judged([*operations[:2], "fsync f"], tree(), quiet).verdict is PASS


POSIX = replace(EACH, rules=("reused-name-loses",))
STRICT = replace(EACH, rules=("rename-commits",))
REUSED = [
    "mkdir A",
    "create A/foo",
    "append A/foo 4096",
    "sync",
    "rename A/foo A/bar",
    "create A/foo",
    "fsync A/foo",
]
FIRST = written(2, 0, 4096)


def test_a_name_that_was_used_again_and_synced_may_cost_the_file_that_had_it() -> None:
    """generic/342, which F2FS promises in its strict mode only. It used to be demanded in both."""
    lost = tree(directory("A"), file("A/foo"))
    assert oracles(judged(REUSED, lost, EACH)) == {"durability"}
    assert judged(REUSED, lost, POSIX).verdict is PASS
    kept = tree(directory("A"), file("A/foo"), file("A/bar", FIRST))
    for contract in (EACH, POSIX, STRICT):
        assert judged(REUSED, kept, contract).verdict is PASS
    # before anybody asked for it, recovery has nothing to put in its place
    assert oracles(judged(REUSED[:6], lost, POSIX)) == {"durability"}


@pytest.mark.parametrize("more", [["create A/bar2"], ["rename A/foo A/bar"], ["create B", "fsync B"]])
def test_what_sync_made_durable_is_not_lost_otherwise(more: list[str]) -> None:
    operations = [*REUSED[:4], *more]
    others = [file(op.split()[1]) for op in more if op.startswith("fsync ")]
    assert oracles(judged(operations, tree(directory("A"), *others), POSIX)) == {"durability"}


BOTH = ["create a", "append a 4096", "create b", "append b 4096"]
TAKES_ITS_NAME = ["rename a c", "rename b a"]
TAKEN = tree(file("a", written(3, 0, 4096), inode=7))


def test_only_an_fsync_under_the_name_that_another_had_excuses_its_loss() -> None:
    """Any fsync of the other file did, also one from before it had that name."""
    before = [*BOTH, "fsync b", "sync", *TAKES_ITS_NAME]
    assert oracles(judged(before, TAKEN, POSIX)) == {"durability"}
    assert judged([*before, "fsync a"], TAKEN, POSIX).verdict is PASS
    assert judged([*before, "fsync a"], TAKEN, POSIX, begun=9).verdict is PASS
    of_directories = ["mkdir d", "create d/x", "mkdir e", "fsync e", "sync", "rename d old", "rename e d"]
    assert oracles(judged(of_directories, tree(directory("d")), POSIX)) == {"durability"}
    assert oracles(judged([*of_directories, "fsync d"], tree(directory("d")), POSIX)) == {"durability"}


def test_an_fsync_from_before_what_is_lost_was_durable_excuses_no_loss() -> None:
    """The other file had the name twice, and was synced the first time."""
    first = ["create a", "append a 4096", "create t", "append t 4096", "fsync a", "rename a b", "rename t a"]
    operations = [*first, "sync", "rename a c", "rename b a"]
    kept = file("a", written(1, 0, 4096), inode=7)
    assert oracles(judged(operations, tree(kept), POSIX)) == {"durability"}
    assert judged([*operations, "fsync a"], tree(kept), POSIX).verdict is PASS


def test_a_directory_that_may_be_lost_may_take_along_what_is_in_it() -> None:
    operations = ["mkdir d", "create d/f", "sync", "rename d e", "create d", "fsync d"]
    assert judged(operations, tree(file("d")), POSIX).verdict is PASS
    assert oracles(judged(operations, tree(file("d")), EACH)) == {"durability"}


def test_a_new_files_fsync_commits_an_earlier_rename_into_its_directory() -> None:
    """F2FS strict was judged by what posix promises."""
    there = (file("A/foo"), file("A/bar", FIRST))
    both = [*REUSED[:3], "create c", "chmod c 600", "create e", *REUSED[4:]]
    assert oracles(judged(both, tree(directory("A"), there[0]), EACH)) == set()
    assert oracles(judged(both, tree(directory("A"), there[0]), STRICT)) == {"durability"}
    rest = (file("c", mode=0o600), file("e"))
    assert judged(both, tree(directory("A"), *there, *rest), STRICT).verdict is PASS
    old = file("c")
    assert oracles(judged(both, tree(directory("A"), *there, old, rest[1]), STRICT)) == {"durability"}


def test_an_fsync_that_commits_an_earlier_rename_takes_back_no_sync() -> None:
    """Its promise about the whole file system took the place of the sync's, which covered more: what sync
    had made durable could be lost.
    """
    renamed = ["create a", "mkdir A", "rename a A/a", "create A/f", "create g", "sync"]
    there = (directory("A"), file("A/a"), file("A/f"))
    assert oracles(judged(renamed, tree(*there), STRICT)) == {"durability"}
    later = [*renamed, "chmod A/f 600", "fsync A/f"]
    there = (*there[:2], file("A/f", mode=0o600))
    assert oracles(judged(later, tree(*there), STRICT)) == {"durability"}
    assert judged(later, tree(*there, file("g")), STRICT).verdict is PASS


@pytest.mark.parametrize(
    "operations",
    [
        ["create c", "mkdir D", "create f", "rename f D/f", "create g", "fsync g"],  # another directory's
        [
            "create c",
            "mkdir D",
            "create f",
            "create D/g",
            "rename f D/f",
            "fsync D/g",
        ],  # made before the rename
        ["create c", "mkdir D", "create f", "rename f D/f", "create D/g", "link D/g h", "fsync D/g"],
    ],
    ids=["elsewhere", "before", "linked"],
)
def test_other_fsyncs_commit_no_rename(operations: list[str]) -> None:
    named = operations[-1].split()[1]
    entries = [file(named)] if "/" not in named else [directory("D"), file(named)]
    assert judged(operations, tree(*entries), STRICT).verdict is PASS


NAMELESS = ("open-tmpfile . @h", "append @h 5000")


@pytest.mark.parametrize("synced", ["fsync @h", "fdatasync @h", "append @h 96 dsync", "append @h 96 sync"])
def test_what_was_synced_before_its_first_name_is_there_once_the_directory_is_synced(synced: str) -> None:
    """No promise was kept of a file without a name, so one that got a name later might come back empty."""
    more = "append" in synced
    operations = [*([NAMELESS[0]] if more else NAMELESS), synced, "link @h f", "fsync .", "close @h"]
    size = 96 if more else 5000
    assert on(operations, file("f", written(1, 0, size))).verdict is PASS
    assert oracles(on(operations, file("f"))) == {"durability"}
    assert oracles(on(operations, file("f", zeros(0, size)))) == {"durability"}
    assert oracles(on(operations)) == {"durability"}


def test_a_first_name_that_nobody_synced_holds_what_was_synced_before_it_or_is_missing() -> None:
    operations = [*NAMELESS, "fsync @h", "append @h 1000", "link @h f", "create g", "fsync g"]
    assert on(operations, file("g")).verdict is PASS
    assert on(operations, file("g"), file("f", written(1, 0, 5000))).verdict is PASS
    assert oracles(on(operations, file("g"), file("f"))) == {"durability"}


def test_a_first_name_put_over_an_old_file_holds_what_was_synced_before_it() -> None:
    """As above: `f` may be the old file or the new one, and the new one was synced."""
    old = ["create f", "append f 100", "sync"]
    replaced = ["link @h t", "rename t f", "fsync ."]
    operations = [*old, *NAMELESS, "fsync @h", *replaced]
    assert on(operations, file("f", written(4, 0, 5000), inode=9)).verdict is PASS
    assert oracles(on(operations, file("f", inode=9))) == {"durability"}
    assert oracles(on(operations, file("f", written(1, 0, 100)))) == {"durability"}


def test_what_has_no_name_when_the_power_fails_is_promised_nothing() -> None:
    assert on([*NAMELESS, "fsync @h", "sync"]).verdict is PASS
    gone = ["create f", "open f @h", "unlink f", "append @h 5000", "fsync @h", "create g", "fsync g"]
    assert on(gone, file("g")).verdict is PASS
    assert on(gone, file("g"), file("f")).verdict is PASS
    stored = ["create f", "append f 4096", "sync", "open f @h", "unlink f", "mmap-write @h 0 512 sync-range"]
    assert on(stored, file("f", written(1, 0, 4096))).verdict is PASS
    assert on([*stored[:4], stored[5]], file("f", written(1, 0, 4096))).verdict is Verdict.FAIL


def test_without_a_journal_a_first_name_may_lead_to_what_fsck_clears() -> None:
    """[code] ext2_tmpfile: the inode that fsync writes has no links; link changes it, and fsync of the
    directory writes it not. So only an fsync of the file that has its name counts there.
    """
    operations = [*NAMELESS, "fsync @h", "link @h f", "fsync ."]
    assert judged(operations, tree(), SYNCED).verdict is PASS
    assert oracles(judged([*operations, "fsync f", "fsync ."], tree(), SYNCED)) == {"durability"}


FAT = replace(SYNCED, rules=("fsync-leaves-names", "moved-may-be-lost"))
DIRSYNC = replace(SYNCED, rules=(*FAT.rules, "names-at-once"))
SYNC_MOUNT = replace(SYNCED, rules=(*DIRSYNC.rules, "writes-at-once"))
MADE = ["create f", "append f 4096"]
WHOLE = file("f", written(1, 0, 4096))


def test_fsync_leaves_the_name_and_keeps_the_contents() -> None:
    """FAT: an empty file's fsync writes no entry, since nothing has marked its inode (vfat_create)."""
    operations = [*MADE, "fsync f", "create g"]
    assert oracles(judged(operations, tree(), SYNCED)) == {"durability"}
    assert judged(operations, tree(), FAT).verdict is PASS
    assert judged(operations, tree(WHOLE), FAT).verdict is PASS
    assert oracles(judged(operations, tree(file("f")), FAT)) == {"durability"}
    of_directory = [*MADE, "fsync f", "fsync ."]
    assert oracles(judged(of_directory, tree(), FAT)) == {"durability"}


def test_a_directory_that_is_lost_takes_along_what_is_in_it() -> None:
    operations = ["mkdir d", "create d/f", "append d/f 4096", "fsync d/f", "fsync d"]
    assert judged(operations, tree(), FAT).verdict is PASS
    assert oracles(judged(operations, tree(directory("d")), FAT)) == {"durability"}
    assert oracles(judged([*operations, "fsync ."], tree(), FAT)) == {"durability"}
    synced = [*operations[:3], "sync"]
    assert oracles(judged(synced, tree(), FAT)) == {"durability"}
    moved = [*synced, "rename d e"]
    assert oracles(judged(moved, tree(), SYNCED)) == {"durability"}
    assert judged(moved, tree(), FAT).verdict is PASS
    cut_short = tree(directory("d"), directory("e"), file("e/f"))
    assert "durability" in oracles(judged(moved, cut_short, SYNCED))
    assert judged(moved, cut_short, FAT).verdict is PASS


def test_a_synced_file_with_two_names_is_no_moved_one() -> None:
    """Its contents were never judged: a second name counted as one that had been given since."""
    two = tree(file("f", links=2), file("g", links=2))
    operations = [*MADE, "link f g"]
    assert oracles(judged([*operations, "sync"], two, FAT)) == {"durability"}
    assert judged([*MADE, "sync", "link f g"], two, FAT).verdict is PASS


def test_a_promise_about_a_file_from_the_beginning_counts() -> None:
    """One of the first operation lost to no promise at all."""
    operations = ["tmpfile a 4096", "fdatasync a"]
    for first in ([], ["create z"]):
        empty = tree(file("a"), *(file("z") for _ in first))
        assert oracles(judged([*first, *operations], empty, SYNCED)) == {"durability"}


@pytest.mark.parametrize("moved", ["rename f g", "rename t f"])
def test_what_is_renamed_or_replaced_may_be_lost_until_something_covers_it(moved: str) -> None:
    """fsck.fat cuts a file short whose clusters another has, or that are free."""
    operations = [*MADE, "create t", "sync", moved]
    for entry in (file("f"), file("g")):
        found = tree(entry, file("t"))
        assert judged(operations, found, FAT).verdict is PASS
        assert oracles(judged([*operations[:4], "create other"], found, FAT)) == {"durability"}
    assert oracles(judged([*operations, "sync"], tree(), FAT)) == {"durability"}


def test_a_rename_of_what_was_synced_is_covered_by_fsync_of_the_directories() -> None:
    """fsync(2): that of the directory is what the entry needs, once the file has had its own. FAT leaves the
    new entry empty (vfat-rename-fsync-directory), which passed as not promised.
    """
    renamed = [*MADE, "fsync f", "fsync .", "rename f g"]
    empty, whole = tree(file("g")), tree(file("g", written(1, 0, 4096)))
    assert judged(renamed, empty, FAT).verdict is PASS
    assert oracles(judged([*renamed, "fsync ."], empty, FAT)) == {"durability"}
    assert judged([*renamed, "fsync ."], whole, FAT).verdict is PASS
    over = ["create g", "append g 100", "fsync g", *[op for op in renamed if op != "fsync f"][:2], "fsync f"]
    over += ["fsync .", "rename f g", "fsync ."]
    (undone,) = judged(over, tree(file("g", written(1, 0, 100))), FAT).violations
    assert undone.signature == "g: undone"
    moved = ["mkdir d", "sync", *renamed[:4], "rename f d/g", "fsync d"]
    parted = tree(directory("d"), file("d/g"))
    assert judged(moved, parted, FAT).verdict is PASS  # the entry that it left may be there still
    assert oracles(judged([*moved, "fsync ."], parted, FAT)) == {"durability"}
    unsynced = [*MADE, "rename f g", "fsync ."]
    assert judged(unsynced, empty, FAT).verdict is PASS


def test_names_at_once_are_durable_with_what_was_durable_of_the_file() -> None:
    operations = [*MADE, "fsync f", "rename f g", "create h"]
    moved = file("g", written(1, 0, 4096))
    assert judged(operations, tree(moved, file("h")), DIRSYNC).verdict is PASS
    assert oracles(judged(operations, tree(moved), DIRSYNC)) == {"durability"}
    assert oracles(judged(operations, tree(WHOLE, file("h")), DIRSYNC)) == {"durability"}
    assert oracles(judged(operations, tree(file("g"), file("h")), DIRSYNC)) == {"durability"}
    assert judged(operations, tree(WHOLE), FAT).verdict is PASS
    over = ["create g", *operations]
    replaced = file("g", written(2, 0, 4096))
    assert judged(over, tree(replaced, file("h")), DIRSYNC).verdict is PASS
    assert oracles(judged(over, tree(file("g"), file("h")), DIRSYNC)) == {"durability"}


def test_names_at_once_promise_no_contents() -> None:
    assert judged(MADE, tree(file("f")), DIRSYNC).verdict is PASS
    assert oracles(judged(MADE, tree(), DIRSYNC)) == {"durability"}
    assert judged(MADE, tree(), DIRSYNC, begun=1).verdict is PASS


@pytest.mark.parametrize("persist", ["fsync f", "fdatasync f", "sync"])
def test_names_at_once_take_nothing_from_a_sync(persist: str) -> None:
    """The name's own promise covers as much as that of a sync of the file as it was made, and is older: the
    contents were not judged, though without the rule they are.
    """
    garbage = tree(file("f", zeros(0, 4096)), file("g"))
    for contract in (FAT, DIRSYNC, SYNC_MOUNT):
        assert judged(["create f", persist, "create g"], tree(file("f"), file("g")), contract).verdict is PASS
        assert oracles(judged(["create f", persist, "create g"], garbage, contract)) == {"size"}
    replaced = ["create g", "append g 4096", "sync", "create t", "rename t g"]
    assert oracles(judged(replaced, tree(file("g", written(1, 0, 4096))), DIRSYNC)) == {"durability"}


def test_writes_at_once_are_as_writes_with_o_dsync() -> None:
    assert oracles(judged(MADE, tree(file("f")), SYNC_MOUNT)) == {"durability"}
    assert judged(MADE, tree(WHOLE), SYNC_MOUNT).verdict is PASS
    stored = [*MADE, "sync", "mmap-write f 0 4096"]
    assert judged(stored, tree(WHOLE), SYNC_MOUNT).verdict is PASS


def test_a_synchronous_write_behind_the_end_leaves_what_lies_between_as_it_is() -> None:
    """Where a file has no holes, the zeros up to such a write are written to new clusters like any data:
    vfs_fsync_range covers the write alone. What the device held there before was called stale.
    """
    operations = ["create f", "append f 600", "fsync f", "fsync .", "write f 20000 100 sync"]
    gap = Extent(ExtentKind.POISON, 1024, 18976, 5633)
    found = file("f", written(1, 0, 600), zeros(600, 424), gap, written(4, 20000, 100))
    assert judged(operations, tree(found), FAT).verdict is PASS
    assert oracles(judged([*operations, "fsync f"], tree(found), FAT)) == {"durability"}
    assert oracles(judged(operations, tree(found), SYNCED)) == {"durability"}
    append = [*operations[:4], "append f 100 sync"]
    assert oracles(judged(append, tree(file("f", written(1, 0, 600))), FAT)) == {"durability"}


def test_the_promise_that_a_rename_has_voided_is_not_the_one_that_is_told() -> None:
    """fsync of the file was named, which promises nothing of what is renamed: sync was what broke."""
    renamed = [*MADE, "fsync f", "rename f g", "sync"]
    (lost,) = judged(renamed, tree(file("g")), FAT).violations
    assert lost.signature == "g: size after 4 (sync)"
    in_place = [*MADE, "mkdir d", "fsync f", "create g", "sync"]
    (lost,) = judged(in_place, tree(file("f"), file("g"), directory("d")), FAT).violations
    assert lost.signature == "f: size after 3"
    above = ["mkdir d", "create d/f", "append d/f 4096", "fsync d/f", "rename d e", "sync"]
    (lost,) = judged(above, tree(directory("e"), file("e/f")), FAT).violations
    assert lost.signature == "e/f: size after 5 (sync)"
    (data,) = judged(renamed, tree(file("g", zeros(0, 4096))), FAT).violations
    assert data.signature == "g: data of operation 1 lost (sync)"


def test_a_name_that_is_left_takes_the_contents_until_its_removal_is_durable() -> None:
    """fsync of a file that was renamed promises no name. With both entries on the disk, fsck.fat cuts one of
    them short: the old one, cut short, was called a loss of what fsync of the file had promised.
    """
    renamed = ["mkdir d", *[op.replace("f", "d/f") for op in MADE], "fsync d/f", "fsync d", "fsync ."]
    renamed += ["rename d/f g", "fsync g", "fsync ."]
    whole, old = file("g", written(2, 0, 4096)), file("d/f", written(2, 0, 4096))
    assert judged(renamed, tree(directory("d"), whole, file("d/f")), FAT).verdict is PASS
    cut = tree(directory("d"), file("g"), old)
    assert judged(renamed, cut, FAT).verdict is PASS
    for more in ("fsync d", "sync"):
        assert oracles(judged([*renamed, more], cut, FAT)) == {"durability"}
    assert oracles(judged(renamed, cut, DIRSYNC)) == {"durability"}
    assert oracles(judged(renamed, tree(directory("d"), file("g")), FAT)) == {"durability"}
    torn = tree(directory("d"), file("g", zeros(0, 4096)), old)
    assert oracles(judged(renamed, torn, FAT)) == {"durability"}
    above = [
        "mkdir d",
        *[op.replace("f", "d/f") for op in MADE],
        "sync",
        "rename d e",
        "fsync e/f",
        "fsync e",
    ]
    both = (directory("d"), directory("e"))
    assert judged(above, tree(*both, file("e/f", written(2, 0, 4096)), file("d/f")), FAT).verdict is PASS
    cut = tree(*both, file("e/f"), file("d/f", written(2, 0, 4096)))
    assert judged(above, cut, FAT).verdict is PASS
    assert oracles(judged([*above, "fsync ."], cut, FAT)) == {"durability"}


def test_only_the_old_entry_itself_is_a_name_that_is_left() -> None:
    """Any path with its last component was taken for it, and so was the one that was judged."""
    dirs = directory("a"), directory("b")
    moved = ["mkdir a", "mkdir b", "create a/f", "append a/f 4096", "fsync a/f", "rename a/f b/f"]
    moved += ["fsync b/f"]
    assert oracles(judged(moved, tree(*dirs, file("b/f")), FAT)) == {"durability"}
    whole = file("b/f", written(3, 0, 4096))
    assert judged(moved, tree(*dirs, file("a/f"), whole), FAT).verdict is PASS
    assert judged(moved, tree(*dirs, file("b/f"), file("a/f", written(3, 0, 4096))), FAT).verdict is PASS
    assert oracles(judged(moved, tree(*dirs, file("a/f")), FAT)) == {"durability"}
    elsewhere = tree(directory("x"), dirs[1], file("x/f", written(3, 0, 4096)), file("b/f"))
    assert judged([*moved, "rename a x"], elsewhere, FAT).verdict is PASS
    assert oracles(judged([*moved, "mkdir x", "create x/f"], elsewhere, FAT)) == {"durability"}
    other = replace(file("a/f"), kind=FileKind.FIFO)
    again = [*moved, "mkfifo a/f"]
    assert oracles(judged(again, tree(*dirs, file("b/f"), other), FAT)) == {"durability"}


def test_a_directory_that_came_back_empty_is_no_loss_only_beside_its_old_entry() -> None:
    moved = ["mkdir a", "mkdir b", "mkdir a/d", "create a/d/f", "append a/d/f 4096", "fsync a/d/f", "sync"]
    moved += ["rename a/d b/d", "fsync b/d", "fsync b", "fsync ."]
    new = directory("a"), directory("b"), directory("b/d")
    assert oracles(judged(moved, tree(*new), FAT)) == {"durability"}
    assert judged(moved, tree(*new, directory("a/d")), FAT).verdict is PASS


SPLIT = {
    "by sync": ["create f", "append f 4096", "link f h", "sync"],
    "by fsync": ["create f", "append f 4096", "link f h", "fsync f", "fsync h", "fsync ."],
    "by rename": ["create f", "append f 4096", "sync", "rename f h", "fsync h"],
}


@pytest.mark.parametrize("operations", SPLIT.values(), ids=SPLIT)
def test_one_file_does_not_come_back_as_two(operations: list[str]) -> None:
    """Each name was judged by itself, so that two inodes with its contents passed."""
    data = written(1, 0, 4096)
    two = tree(file("f", data, inode=7), file("h", data, inode=8))
    for contract in (EACH, SYNCED):
        assert oracles(judged(operations, two, contract)) == {"atomicity"}
    one = tree(file("f", data, inode=7, links=2), file("h", data, inode=7, links=2))
    assert judged(operations, one, EACH).verdict is PASS
    assert judged(operations, one, SYNCED).verdict is PASS
    (odd,) = on(operations, file("f", data, inode=7, links=3), file("h", data, inode=7, links=3)).violations
    assert odd.summary == "f, h: one file with 3 links has these 2 names"


def test_links_of_a_lower_layer_come_apart_where_that_is_allowed() -> None:
    """Overlayfs without an index: a whiteout leaves the link count of the lower inode as it is, and what is
    copied up is another file.
    """
    layered = replace(EACH, rules=("links-may-part",))
    made = ["create f", "append f 4096", "link f g", "remount"]
    data = written(1, 0, 4096)
    removed, left = [*made, "unlink g", "fsync ."], tree(file("f", data, links=2))
    assert judged(removed, left, layered).verdict is PASS
    assert oracles(judged(removed, left, EACH)) == {"atomicity"}
    assert oracles(judged([op for op in removed if op != "remount"], left, layered)) == {"atomicity"}
    changed = [*made, "chmod f 600", "append f 4096", "fsync f"]
    own = file("f", data, written(5, 4096, 4096), mode=0o600)
    assert judged(changed, tree(own, file("g", data, links=2)), layered).verdict is PASS
    assert len(judged(changed, tree(own, file("g", data, links=2)), EACH).violations) > 2
    assert "durability" in oracles(judged(changed[:5], tree(file("f"), file("g", links=2)), layered))
    lost = judged(changed, tree(file("f", data, mode=0o600), file("g", data, links=2)), layered)
    assert [v.signature for v in lost.violations] == ["f: size after 6"]
    odd = judged(changed, tree(own, file("g", written(1, 0, 100), links=2)), layered)
    assert [v.signature for v in odd.violations] == ["g: size after 3 (remount)"]
    both = judged([*changed, "fsync g"], tree(file("f", data, mode=0o600), file("g", data, links=2)), layered)
    assert both.verdict is UNKNOWN
    assert "f, g: a file whose names came apart" in both.unknown[0]
    never = tree(own, file("g", data, mode=0o777, links=2))
    assert oracles(judged(changed, never, layered)) == {"durability"}
    one = [replace(entry, inode=7) for entry in (file("f", data, links=1), file("g", data, links=1))]
    assert oracles(judged(made, tree(*one), layered)) == {"atomicity"}


@pytest.mark.parametrize(
    ("since", "of_f", "of_g", "signatures"),
    [
        ("chmod f 600", {}, {}, ["f: attributes (sync)"]),
        ("chmod f 600", {}, {"mode": 0o600}, ["f: attributes (sync)"]),
        (
            "chmod f 600",
            {"inode": 7, "links": 2},
            {"inode": 7},
            ["f: attributes (sync)", "g: attributes (sync)"],
        ),
        ("setxattr f user.a x", {}, {}, ["f: attributes (sync)"]),
        (
            "write f 0 4096",
            {},
            {"extents": (written(4, 0, 4096),)},
            ["f: data of operation 4 lost (sync)"],
        ),
        ("chmod f 600", {"mode": 0o600}, {}, []),
        ("write f 0 4096", {"extents": (written(4, 0, 4096),)}, {}, []),
    ],
)
def test_the_one_name_that_was_used_has_what_was_promised(
    since: str, of_f: dict[str, Any], of_g: dict[str, Any], signatures: list[str]
) -> None:
    """A change of one name passed where another had it, and an undone one of attributes at all times."""
    layered = replace(EACH, rules=("links-may-part",))
    data = written(1, 0, 4096)
    recovered = tree(replace(file("f", data), **of_f), replace(file("g", data, links=2), **of_g))
    operations = ["create f", "append f 4096", "link f g", "remount", since]
    assert [v.signature for v in judged([*operations, "sync"], recovered, layered).violations] == signatures
    early = tree(file("f", data), file("g", data, links=2))
    assert judged(operations, early, layered, begun=5).verdict is PASS


def test_changes_by_several_names_are_in_a_copy_each() -> None:
    """The attributes of a copy were called ones that it never had."""
    layered = replace(EACH, rules=("links-may-part",))
    operations = ["create f", "link f g", "remount", "chmod f 600", "chown g 3 4", "sync"]
    own = replace(file("g", links=2), uid=3, gid=4)
    assert judged(operations, tree(file("f", mode=0o600), own), layered).verdict is PASS
    never = judged(operations, tree(file("f", mode=0o600), replace(own, mode=0o777)), layered)
    assert [v.signature for v in never.violations] == ["g: attributes (sync)"]


def test_two_files_of_equal_contents_may_be_each_other() -> None:
    operations = ["create f", "create g", "create h", "rename h g", "sync", "rename g f", "create g"]
    assert on(operations, file("f", inode=7), file("g", inode=8)).verdict is PASS
    swapped = ["create f", "create g", "exchange f g", "create h", "exchange g h"]
    assert on(swapped, *(file(name, inode=n) for n, name in enumerate("fgh", 7))).verdict is PASS


def test_one_directory_does_not_come_back_as_two_and_has_one_name() -> None:
    moved = ["mkdir d", "sync", "rename d e", "fsync e"]
    two = directory("d"), directory("e")
    (split,) = on(moved, *two).violations
    assert split.signature == "d, e: split"
    (links,) = on(moved, *(replace(each, inode=7) for each in two)).violations
    assert links.signature == "d, e: links"


SPECIAL = ["mkdir d", "mkfifo p", "mknod n", "symlink s d", "setxattr d user.a x", "chown d 3 4", "sync"]
AS_MADE = (
    replace(directory("d"), uid=3, gid=4, xattrs={"user.a": b"x"}),
    replace(file("p", inode=5), kind=FileKind.FIFO),
    replace(file("n", inode=6), kind=FileKind.CHAR, target=b"1:3"),
    replace(file("s", inode=7, mode=0o777), kind=FileKind.SYMLINK, target=b"d"),
)


@pytest.mark.parametrize(
    ("at", "other"),
    [
        (0, {"mode": 0o700}),
        (0, {"uid": 0}),
        (0, {"xattrs": {}}),
        (1, {"kind": FileKind.SOCKET}),
        (2, {"target": b"1:5"}),
        (3, {"target": b"e"}),
    ],
)
def test_after_a_repair_what_is_no_file_is_as_it_was_synced(at: int, other: dict[str, Any]) -> None:
    """Only files were judged: a symbolic link might lead elsewhere."""
    assert judged(SPECIAL, tree(*AS_MADE), SYNCED).verdict is PASS
    changed = tree(*AS_MADE[:at], replace(AS_MADE[at], **other), *AS_MADE[at + 1 :])
    assert oracles(judged(SPECIAL, changed, SYNCED)) == {"durability"}
    assert judged(SPECIAL[:-1], changed, SYNCED).verdict is PASS
    path = AS_MADE[at].path
    assert judged([*SPECIAL, f"rename {path} x"], changed, SYNCED).verdict is PASS
    assert (
        judged([*SPECIAL, f"chown {path} 8 9"] if at != 3 else SPECIAL[:-1], changed, SYNCED).verdict is PASS
    )


def test_fat_has_no_attributes_of_directories() -> None:
    assert judged(["mkdir d", "sync"], tree(directory("d", 0o700)), FAT).verdict is PASS


@pytest.mark.parametrize("covers", ["fsync .", "sync"])
def test_after_a_repair_a_directory_may_be_at_the_name_whose_removal_is_not_durable(covers: str) -> None:
    """With both entries on the disk, e2fsck clears the one that it comes to last: the name that fsync of its
    directory had covered was called missing.
    """
    moved = ["mkdir a", "mkdir c", "create c/x", "fsync c/x", "fsync c", "fsync a", "fsync .", "rename c a/c"]
    old = tree(directory("a"), directory("c"), file("c/x"))
    assert judged([*moved, "fsync a"], old, SYNCED).verdict is PASS
    assert oracles(judged([*moved, "fsync a"], tree(directory("a")), SYNCED)) == {"durability"}
    assert oracles(judged([*moved, "fsync a", covers], old, SYNCED)) == {"durability"}


def test_what_many_fsyncs_cover_is_found_without_asking_each_of_each_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every fsync of a directory was asked for every name in it, in every state."""
    asked: list[int] = []
    been = Entries.been

    def count(known: Entries, entry: Entry, since: int, until: int) -> dict[int, None]:
        asked.append(since)
        return been(known, entry, since, until)

    monkeypatch.setattr(Entries, "been", count)
    files = range(60)
    made = [op for n in files for op in (f"create d/f{n}", f"fsync d/f{n}", "fsync d")]
    found = tree(directory("d"), *(file(f"d/f{n}", inode=5000 + n) for n in files))
    assert judged(["mkdir d", *made], found, SYNCED).verdict is PASS
    assert len(asked) < 20 * len(files)


@pytest.mark.parametrize("covers", ["sync", "fsync s/e/f"])
def test_what_is_missing_is_named_as_it_was_when_it_was_promised(covers: str) -> None:
    """It was called by the directory's first name, which was gone by then."""
    operations = ["mkdir d", "mkdir d/e", "create d/e/f", "rename d s", covers]
    (lost,) = judged(operations, tree(directory("s"), directory("s/e")), SYNCED).violations
    assert lost.summary.startswith("s/e/f: missing, although ")


AMONG_ALL = [
    line
    for i, j in itertools.permutations(range(8), 2)
    for line in (f"rename d{i} d{j}/d{i}", f"rename d{j}/d{i} d{i}")
]
"""Eight directories, each of which has been in each."""


def calls_to_judge(operations: list[str], recovered: Tree, contract: Contract) -> int:
    """The calls that one judgement of the whole history takes."""
    judge = Judge(contract, history(operations), error_patterns=PATTERNS)
    position, outcome = Position(len(operations), len(operations)), Outcome(tree=recovered, fsck=CLEAN)
    return calls_of(lambda: judge.judge(position, outcome))


def test_directories_that_were_in_each_other_are_looked_at_once_each() -> None:
    """All ways by which a directory can have come where it was were gone through: 9 seconds a crash state for
    eight directories, and ten times that for each one more.
    """
    made = [*(f"mkdir d{i}" for i in range(8)), "sync"]
    removed = variant(namespace="each", persists="inode", replace_is_safe=False, rules=["reused-name-loses"])
    there = [directory(f"d{i}") for i in range(1, 8)]
    assert calls_to_judge([*made, *AMONG_ALL], tree(*there), removed) < 50_000
    cut = [
        *made,
        *AMONG_ALL,
        "rename d0 q",
        "create q/f",
        "append q/f 4096",
        "fsync q/f",
        "fsync q",
        "fsync .",
    ]
    empty = tree(*there, directory("q"), file("q/f"))
    assert calls_to_judge(cut, empty, profiles()["vfat/default"].contract) < 50_000
