"""The namespace: whole operations, in order, and what was made durable."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.model import TreeEntry, Verdict
from harness.tests.oracles.cases import (
    JOURNAL,
    ORDERED,
    directory,
    file,
    judged,
    oracles,
    tree,
    variant,
    written,
    zeros,
)

RENAME = ["create f", "append f 4096", "sync", "rename f g", "create other"]
DATA = written(1, 0, 4096)


def test_every_prefix_after_the_persistence_point_passes() -> None:
    for names in (["f"], ["g"], ["g", "other"]):
        entries = [file(n, *([DATA] if n != "other" else []), inode=ord(n[0])) for n in names]
        assert judged(RENAME, tree(*entries)).verdict is Verdict.PASS, names


def test_a_rename_that_left_both_names() -> None:
    (v,) = judged(RENAME, tree(file("f", DATA, inode=5), file("g", DATA, inode=5))).violations
    assert v.oracle == "atomicity"
    assert v.summary == "`rename f g` (operation 3): both the old and the new name are there"


def test_a_rename_that_left_neither_name() -> None:
    (v,) = judged(RENAME, tree(file("other"))).violations
    assert v.oracle == "atomicity"
    assert "neither the old nor the new name" in v.summary


def test_a_replacing_rename_that_left_both_names() -> None:
    operations = ["create f", "create t", "sync", "rename t f"]
    entries = file("f", inode=7, links=1), file("t", inode=7, links=1)
    (v,) = judged(operations, tree(*entries)).violations
    assert (v.oracle, v.found) == ("atomicity", "both")


def test_a_directory_rename_that_left_both_names() -> None:
    operations = ["mkdir a", "create a/f", "sync", "rename a b"]
    (v, *_) = judged(operations, tree(directory("a"), file("a/f"), directory("b"))).violations
    assert (v.oracle, v.found) == ("atomicity", "both")


def test_a_later_operation_without_an_earlier_one() -> None:
    (v,) = judged(["create f", "create g"], tree(file("g"))).violations
    assert (v.oracle, v.subject, v.found) == ("atomicity", "f", "no such name")


def test_a_name_from_before_the_persistence_point_comes_back() -> None:
    operations = ["create f", "sync", "unlink f", "fsync .", "create g", "create h"]
    (v,) = judged(operations, tree(file("f"))).violations
    assert v.oracle == "durability"
    assert (
        v.summary == "`unlink f` (operation 2) is undone, although `fsync .` (operation 3) was acknowledged"
    )


def test_one_lost_promise_among_kept_later_operations() -> None:
    operations = ["create f", "fsync f", "setxattr f user.a x", "fsync f", "create g", "sync"]
    (v,) = judged(operations, tree(file("f"), file("g"))).violations
    assert (v.oracle, v.subject) == ("durability", "f")
    assert "user.a" in v.expected
    assert "(operation 3) was acknowledged" in v.summary


def test_a_lost_attribute_that_was_in_flight_is_no_violation() -> None:
    operations = ["create f", "fsync f", "setxattr f user.a x"]
    assert judged(operations, tree(file("f"))).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (file("f", mode=0o600), "other permissions"),
        (file("f", xattrs={"user.z": b"?"}), "other extended attributes"),
        (file("f", links=2), "another link count"),
        (directory("f"), "of another kind"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_attributes_that_nobody_set(entry: TreeEntry, word: str) -> None:
    (v,) = judged(["create f", "sync"], tree(entry)).violations
    assert v.oracle == "atomicity"
    assert word in v.summary


def test_labels_of_the_kernels_own_are_not_judged() -> None:
    labelled = file("f", xattrs={"security.selinux": b"label"})
    assert judged(["create f", "sync"], tree(labelled)).verdict is Verdict.PASS


def test_hard_links_are_told_apart_from_copies() -> None:
    operations = ["create f", "link f g", "sync"]
    assert (
        judged(operations, tree(file("f", inode=5, links=2), file("g", inode=5, links=2))).verdict
        is Verdict.PASS
    )
    copies = tree(file("f", inode=5, links=2), file("g", inode=6, links=2))
    assert {v.summary.split(",")[0] for v in judged(operations, copies).violations} == {
        "f: other hard links",
        "g: other hard links",
    }


def test_symbolic_links_hold_their_target() -> None:
    def link(target: bytes) -> TreeEntry:
        return TreeEntry("s", "symlink", 9, 0o777, 1, 0, 0, len(target), 0, target=target)

    assert judged(["symlink s a/b", "sync"], tree(link(b"a/b"))).verdict is Verdict.PASS
    assert oracles(judged(["symlink s a/b", "sync"], tree(link(b"")))) == {"atomicity"}


def test_something_in_lost_and_found() -> None:
    (v,) = judged(["create f"], tree(file("lost+found/#12"))).violations
    assert (v.oracle, v.subject) == ("atomicity", "lost+found/#12")


def test_fsync_of_a_file_keeps_the_operations_before_its_last_change() -> None:
    operations = ["create a", "rename a b", "create f", "fsync f"]
    assert oracles(judged(operations, tree(file("a"), file("f")))) == {"durability"}
    assert oracles(judged(operations, tree(file("a")))) == {"durability"}


def test_fsync_of_one_link_keeps_the_other() -> None:
    operations = ["create f", "link f g", "fsync f"]
    assert oracles(judged(operations, tree(file("f")))) == {"durability"}


def test_an_overwrite_in_place_promises_no_more_than_its_data() -> None:
    """The inode is dirtied only if the clock has ticked: the mkdir between need not be durable."""
    operations = ["create f", "append f 4096", "fsync f", "mkdir d", "write f 0 512", "fsync f"]
    recovered = tree(file("f", written(4, 0, 512), written(1, 512, 3584)))
    assert judged(operations, recovered).verdict is Verdict.PASS
    assert oracles(judged(operations, recovered, JOURNAL)) == {"durability"}


def test_fdatasync_promises_no_names_that_came_after_the_data() -> None:
    operations = ["create f", "append f 4096", "rename f g", "fdatasync g"]
    assert judged(operations, tree(file("f", DATA))).verdict is Verdict.PASS
    operations[-1] = "fsync g"
    assert oracles(judged(operations, tree(file("f", DATA)))) == {"durability"}


def test_fdatasync_promises_not_the_name_that_tmpfile_came_by_last() -> None:
    """The link changes no data: fdatasync finds nothing to commit, where a commit came before the link."""
    operations = ["create a", "tmpfile f 4096", "fdatasync f"]
    assert judged(operations, tree(file("a"))).verdict is Verdict.PASS
    assert oracles(judged(operations, tree())) == {"durability"}
    operations[-1] = "fsync f"
    assert oracles(judged(operations, tree(file("a")))) == {"durability"}


def test_a_sync_in_flight_promises_nothing() -> None:
    assert judged(["create f", "sync"], tree(), begun=2).verdict is Verdict.PASS
    assert oracles(judged(["create f", "sync"], tree())) == {"durability"}


def test_renames_to_itself_and_onto_another_link_do_nothing() -> None:
    operations = ["create f", "link f g", "rename f f", "rename f g", "sync"]
    recovered = tree(file("f", inode=5, links=2), file("g", inode=5, links=2))
    assert judged(operations, recovered).verdict is Verdict.PASS


def test_a_recreated_name_is_another_file() -> None:
    operations = ["create f", "append f 4096", "sync", "unlink f", "create f", "sync"]
    assert judged(operations, tree(file("f"))).verdict is Verdict.PASS
    assert oracles(judged(operations, tree(file("f", zeros(0, 100))))) == {"size"}


def test_contents_tell_that_the_names_are_those_of_an_older_moment() -> None:
    operations = ["create f", "append f 4096", "sync", "unlink f", "create f", "sync"]
    (v,) = judged(operations, tree(file("f", DATA))).violations
    assert v.oracle == "durability"
    assert v.summary.startswith("`unlink f` (operation 3) is undone")


def test_with_synchronous_names_each_is_durable_when_it_returns() -> None:
    wsync = variant(persists="operations")
    assert oracles(judged(["create f", "link f g"], tree(file("f")), wsync)) == {"durability"}
    assert judged(["create f", "link f g"], tree(file("f")), wsync, begun=2).verdict is Verdict.PASS
    assert judged(["create f", "chmod f 600"], tree(file("f")), wsync).verdict is Verdict.PASS


def test_the_signature_is_the_same_at_other_crash_points() -> None:
    recovered = tree(file("f", DATA, inode=5), file("g", DATA, inode=5))
    signatures = {judged(RENAME, recovered, begun=n).violations[0].signature for n in (4, 5)}
    assert signatures == {"rename 3: both"}


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (["append f 10"], "operation 0, `append f 10`: f does not exist"),
        (["create f", "create f"], "f exists already"),
        (["create f", "create f/g"], "f is a file, not a directory"),
        (["mkdir d", "create d/f", "rmdir d"], "d is not empty"),
        (["mkdir d", "rename d d/e"], "d/e lies in d"),
        (["mkdir d", "create f", "rename f d"], "d cannot be replaced"),
        (["create f", "removexattr f user.a"], "f has no attribute user.a"),
        (["mkdir d", "append d 1"], "d is a directory, not a file"),
    ],
    ids=str,
)
def test_a_history_that_cannot_have_happened_is_refused(operations: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="operation") as e:
        judged(operations, tree(), ORDERED)
    assert message in str(e.value)


def test_names_of_no_moment_give_files_no_identity() -> None:
    """Contents are not judged then, but for what is wrong anywhere."""
    operations = ["create f", "append f 8", "create g", "append g 8"]
    swapped = written(3, 0, 8)
    assert oracles(judged(operations, tree(file("nobody", swapped)))) == {"atomicity"}
    assert oracles(judged(operations, tree(file("nobody", swapped)), begun=3)) == {"atomicity", "foreign"}
