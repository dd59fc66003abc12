"""The namespace: whole operations, in order, and what was made durable."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from harness.errors import NotSupported, UsageError
from harness.filesystems.profiles import profiles
from harness.model import (
    Extent,
    ExtentKind,
    FileKind,
    History,
    Operation,
    OperationKind,
    Tree,
    TreeEntry,
    Verdict,
)
from harness.oracles.contract import Contract
from harness.oracles.replay import replay
from harness.tests.oracles.cases import (
    EACH,
    JOURNAL,
    ORDERED,
    SYNCED,
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


@pytest.mark.parametrize(
    ("entry", "symptom"),
    [
        (file("f", mode=0), "f: should not be there, without permissions"),
        (file("f"), "f: should not be there"),
        (directory("f", 0), "f: should not be there"),
    ],
)
def test_half_of_an_open_of_nfs_is_told_from_what_nobody_makes(entry: TreeEntry, symptom: str) -> None:
    """Both counted as the file that NFS 3 makes with the mode 0, and then gives permissions."""
    (v,) = judged(["create a", "sync"], tree(file("a"), entry)).violations
    assert (v.oracle, v.signature) == ("atomicity", symptom)


def test_what_a_promise_removed_has_one_symptom_whatever_its_mode() -> None:
    operations = ["create f", "chmod f 0", "unlink f", "sync", "create g"]
    (v,) = judged(operations, tree(file("f", mode=0), file("g"))).violations
    assert (v.oracle, v.signature) == ("durability", "f: should not be there (sync)")


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


def test_the_first_promise_that_is_broken_is_told_with_the_first_change_that_is_undone() -> None:
    operations = ["create f", "sync", "append f 10", "unlink f", "mkdir d", "fsync .", "sync", "sync"]
    (v,) = judged(operations, tree(file("f", written(2, 0, 10))), begun=8).violations
    assert (
        v.summary == "`unlink f` (operation 3) is undone, although `fsync .` (operation 5) was acknowledged"
    )
    assert (v.subject, v.found) == (
        "f",
        "the names after the first 3 operations: d: no such name; f: file 0644",
    )
    assert judged(operations, tree(file("f", written(2, 0, 10))), begun=6).verdict is Verdict.PASS


def test_one_operation_is_not_told_as_several() -> None:
    """It said "the first 1 operations", and of none "the first 0"."""
    (v,) = judged(["create f", "sync"], tree()).violations
    assert v.expected == "the names after at least the first operation: f: file 0644"
    assert v.found == "the names after no operation: f: no such name"


def test_names_that_went_back_are_told_with_what_they_lack() -> None:
    """Of a lost attribute the box said "the names after the first 4" and nothing of the attribute."""
    operations = ["create f", "sync", "setxattr f user.a x", "fsync f"]
    (v,) = judged(operations, tree(file("f"))).violations
    assert "f: file 0644 user.a=" in v.expected
    assert v.found == "the names after the first 2 operations: f: file 0644"


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
    backwards = tree(file("g", inode=5, links=2), file("f", inode=5, links=2))
    assert judged(operations, backwards).verdict is Verdict.PASS
    copies = tree(file("f", inode=5, links=2), file("g", inode=6, links=2))
    assert {v.summary.split(",")[0] for v in judged(operations, copies).violations} == {
        "f: other hard links",
        "g: other hard links",
    }


def test_attributes_come_in_no_order() -> None:
    operations = ["create f", "setxattr f user.b y", "setxattr f user.a x", "setxattr f trusted.c z", "sync"]
    labels = {"trusted.c": b"z", "user.b": b"y", "user.a": b"x"}
    assert judged(operations, tree(file("f", xattrs=labels))).verdict is Verdict.PASS
    assert judged(operations, tree(file("f", xattrs=dict(sorted(labels.items()))))).verdict is Verdict.PASS
    assert oracles(judged(operations, tree(file("f", xattrs={**labels, "trusted.c": b"?"})))) == {"atomicity"}


def test_directories_inherit_the_group_bit_and_files_do_not() -> None:
    operations = ["mkdir d", "chmod d 2775", "mkdir d/e", "create d/f", "sync"]
    inner = (directory("d/e", 0o2755), file("d/f"))
    assert judged(operations, tree(directory("d", 0o2775), *inner)).verdict is Verdict.PASS
    plain = (directory("d/e"), file("d/f"))
    assert oracles(judged(operations, tree(directory("d", 0o2775), *plain))) == {"atomicity"}


def test_the_roots_own_attributes_are_not_judged() -> None:
    operations = ["create f", "chmod . 700", "setxattr . user.a x", "sync"]
    assert judged(operations, tree(file("f"))).verdict is Verdict.PASS


def test_symbolic_links_hold_their_target() -> None:
    def link(target: bytes) -> TreeEntry:
        return TreeEntry("s", FileKind.SYMLINK, 9, 0o777, 1, 0, 0, len(target), 0, target=target)

    assert judged(["symlink s a/b", "sync"], tree(link(b"a/b"))).verdict is Verdict.PASS
    assert oracles(judged(["symlink s a/b", "sync"], tree(link(b"")))) == {"atomicity"}


def test_names_of_an_operation_that_had_not_begun() -> None:
    (v,) = judged(["create f", "create g", "create h"], tree(file("f"), file("g")), begun=1).violations
    assert (v.oracle, v.subject, v.expected) == (
        "atomicity",
        "g",
        "no such name (nearest: the names after `create f` (operation 0))",
    )


@pytest.mark.parametrize(
    ("operations", "entry", "expected", "found"),
    [
        (["create f", "sync"], file("f", mode=0o600), "file 0644", "file 0600"),
        (["mkdir f", "sync"], file("f"), "directory 0755", "file 0644"),
        (["symlink f a", "sync"], file("f"), "symlink to 'a'", "file 0644"),
        (["create f", "sync"], file("f", xattrs={"user.a": b"x"}), "file 0644", "file 0644 user.a=b'x'"),
        (["create f", "sync"], file("f", links=2), "file 0644", "file 0644 links=2 {f}"),
    ],
    ids=lambda p: p[0] if isinstance(p, list) else "",
)
def test_names_are_told_by_what_can_be_seen_of_them(
    operations: list[str], entry: TreeEntry, expected: str, found: str
) -> None:
    (v,) = judged(operations, tree(entry)).violations
    assert (v.expected.partition(" (nearest")[0], v.found) == (expected, found)


def test_a_file_called_lost_and_found_is_no_directory_of_mkfs() -> None:
    recovered = {**tree(file("f")), "lost+found": file("lost+found")}
    assert oracles(judged(["create f", "sync"], recovered)) == {"atomicity"}


OWN = ["mkdir lost+found", "create lost+found/f", "create g", "sync"]
KEPT = {e.path: e for e in (directory(""), directory("lost+found"), file("lost+found/f"), file("g"))}


@pytest.mark.parametrize("contract", [ORDERED, EACH, SYNCED])
def test_a_workload_may_have_a_lost_and_found_of_its_own(contract: Contract) -> None:
    """Where mkfs makes none (XFS, btrfs, below overlayfs), it was missing in every state."""
    assert judged(OWN, KEPT, contract).verdict is Verdict.PASS
    for gone in ("lost+found/f", "g"):
        lost = {path: entry for path, entry in KEPT.items() if path != gone}
        assert oracles(judged(OWN, lost, contract)) == {"durability"}
    assert oracles(judged(OWN, {"": directory("")}, contract)) == {"durability"}
    other = {**KEPT, "lost+found": directory("lost+found", 0o700)}
    assert judged(OWN, other, contract).violations
    before = ["create g", "sync", *OWN[:2]]
    assert judged(before, tree(file("g")), contract, begun=2).verdict is Verdict.PASS


@pytest.mark.parametrize("contract", [ORDERED, EACH, SYNCED])
def test_a_name_that_mkfs_might_have_made_is_judged_if_the_workload_has_made_it(contract: Contract) -> None:
    """As above: DamagedFiles of HFS+, which only its fsck makes."""
    made = replace(contract, made_by_mkfs=("DamagedFiles",))
    there = tree(directory("DamagedFiles"), file("DamagedFiles/f"))
    assert (
        judged(["mkdir DamagedFiles", "create DamagedFiles/f", "sync"], there, made).verdict is Verdict.PASS
    )
    assert (
        judged(["create g", "sync"], tree(file("g"), directory("DamagedFiles")), made).verdict is Verdict.PASS
    )
    assert oracles(judged(["mkdir DamagedFiles", "sync"], tree(), made)) == {"durability"}


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


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ([], "create d/g", [file("d/g")]),
        ([], "tmpfile d/g 0", [file("d/g")]),
        ([], "mkdir d/g", [directory("d/g")]),
        (["mkdir d/g"], "rmdir d/g", []),
        (["create d/g"], "unlink d/g", []),
        (["create g"], "rename g d/g", [file("d/g")]),
        (["create d/g"], "rename d/g g", [file("g")]),
        (["create g"], "link g d/g", [file("g", inode=5, links=2), file("d/g", inode=5, links=2)]),
    ],
    ids=str,
)
def test_fsync_of_a_directory_keeps_what_last_changed_it(
    before: list[str], change: str, after: list[TreeEntry]
) -> None:
    operations = ["mkdir d", *before, "sync", change, "fsync d"]
    assert judged(operations, tree(directory("d"), *after)).verdict is Verdict.PASS
    was = [directory(op.split()[1]) if op.startswith("mkdir") else file(op.split()[1]) for op in before]
    assert oracles(judged(operations, tree(directory("d"), *was))) == {"durability"}


@pytest.mark.parametrize("change", ["unlink g", "rename t g"])
def test_fsync_of_one_link_keeps_what_happened_to_the_other(change: str) -> None:
    operations = ["create f", "link f g", "create t", "sync", change, "fsync f"]
    f, t = file("f"), file("g" if change.startswith("rename") else "t")
    assert judged(operations, tree(f, t)).verdict is Verdict.PASS
    both = (file("f", inode=5, links=2), file("g", inode=5, links=2), file("t"))
    assert oracles(judged(operations, tree(*both))) == {"durability"}


CHANGES = [
    "truncate f 0",
    "truncate f 20000",
    "append f 104",
    "write f 12288 104",
    "fallocate f 0 4096 punch-hole",
    "fallocate f 0 4096 zero-range",
    "fallocate f 8192 8192",
]
NO_CHANGES = [
    "truncate f 8296",
    "write f 9000 0",
    "append f 0 sync",
    "fallocate f 0 4096",
    "fallocate f 8296 4096 punch-hole",
    "fallocate f 8192 8192 keep-size",
    "chmod f 644",
    "setxattr f user.a x",
]


@pytest.mark.parametrize("change", [*CHANGES, *NO_CHANGES])
@pytest.mark.parametrize("persist", ["fsync f", "fdatasync f"])
def test_what_changes_an_inode_has_its_fsync_keep_the_operations_before(change: str, persist: str) -> None:
    operations = ["create f", "append f 8296", "setxattr f user.a x", "sync", "mkdir d", change, persist]
    f = file("f", written(1, 0, 8296), xattrs={"user.a": b"x"})
    names = {v.summary.startswith("`mkdir d`") for v in judged(operations, tree(f)).violations}
    assert names == ({True} if change in CHANGES else set())


def test_a_write_into_a_hole_changes_the_inode_and_a_write_of_nothing_does_nothing() -> None:
    operations = ["create f", "truncate f 8192", "sync", "mkdir d", "write f 0 4096", "fsync f"]
    filled = tree(file("f", written(4, 0, 4096), zeros(4096, 4096)))
    assert oracles(judged(operations, filled)) == {"durability"}
    assert judged(["create f", "append f 0 sync"], tree()).verdict is Verdict.PASS


def test_fsync_keeps_a_removed_attribute_removed() -> None:
    operations = ["create f", "setxattr f user.a x", "sync", "removexattr f user.a", "fsync f"]
    assert judged(operations, tree(file("f"))).verdict is Verdict.PASS
    assert oracles(judged(operations, tree(file("f", xattrs={"user.a": b"x"})))) == {"durability"}


def test_a_synchronous_write_keeps_the_name_if_it_is_more_than_dsync() -> None:
    operations = ["create f", "append f 4096", "rename f g", "write g 0 4096 dsync"]
    assert judged(operations, tree(file("f", written(3, 0, 4096)))).verdict is Verdict.PASS
    operations[-1] = "write g 0 4096 sync"
    assert oracles(judged(operations, tree(file("f", written(3, 0, 4096))))) == {"durability"}


@pytest.mark.parametrize("persist", ["fsync f", "sync", "write f 0 512 sync"])
def test_where_nothing_makes_durable_nothing_is_lost(persist: str) -> None:
    operations = ["create f", "append f 4096", persist]
    assert judged(operations, tree(), variant(persists="nothing")).verdict is Verdict.PASS
    assert oracles(judged(operations, tree())) == {"durability"}


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


@pytest.mark.parametrize("persist", ["fsync .", "fdatasync ."])
def test_an_unchanged_root_directory_promises_nothing(persist: str) -> None:
    assert judged([persist, "create f", "create g"], tree()).verdict is Verdict.PASS
    expected = {"durability"} if persist == "fsync ." else set()
    assert oracles(judged(["create f", persist, "create g"], tree())) == expected


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


def test_contents_tell_that_the_names_are_those_of_an_older_version() -> None:
    operations = ["create f", "append f 4096", "sync", "unlink f", "create f", "sync"]
    (v,) = judged(operations, tree(file("f", DATA))).violations
    assert v.oracle == "durability"
    assert v.summary.startswith("`unlink f` (operation 3) is undone")


def test_with_synchronous_names_each_is_durable_when_it_returns() -> None:
    wsync = variant(persists="operations")
    assert oracles(judged(["create f", "link f g"], tree(file("f")), wsync)) == {"durability"}
    assert judged(["create f", "link f g"], tree(file("f")), wsync, begun=2).verdict is Verdict.PASS
    assert judged(["create f", "chmod f 600"], tree(file("f")), wsync).verdict is Verdict.PASS


@pytest.mark.parametrize("kind", ["rename", "exchange"])
def test_what_changes_no_name_makes_nothing_durable(kind: str) -> None:
    """Of two names of one file, where names are durable at once: all that came before was demanded."""
    wsync = variant(persists="operations")
    operations = ["create a", "link a b", "chmod a 600", f"{kind} a b", "create c"]
    before = tree(*(file(path, inode=9, links=2) for path in "ab"))
    assert not judged(operations[:4], before, wsync).violations
    assert oracles(judged(operations, before, wsync)) == {"durability"}
    dirsync = replace(SYNCED, rules=("names-at-once",))
    assert [p.index for p in replay(dirsync, history(operations)).persistence] == [0, 1, 4]


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
        (["create f", "create g", "link f g"], "g exists already"),
        (["mkdir d", "unlink d"], "d is a directory, not a file or symlink"),
        (["create f", "rmdir f"], "f is a file, not a directory"),
        (["rmdir ."], ". is not empty"),
        (["mkdir d", "rename . e"], ". has no other name"),
        (["mkdir d", "rename d ."], ". has no other name"),
        (["mkdir d", "mkdir e", "create e/f", "rename d e"], "e cannot be replaced"),
        (["create f", "append f 10", "mmap-write f 8 4"], "f has 10 bytes"),
        (["create f", "append f 10", "mmap-write f 9 4 past-end"], "f has 10 bytes: what lies past its end"),
        (
            ["create f", "append f 10", "mmap-write f 4090 10 past-end"],
            "f has 10 bytes: what lies past its end",
        ),
        (["create f", "append f 4096", "mmap-write f 4096 1 past-end"], "has to be in its last page of 4096"),
        (["create f", "mmap-write f 0 1 past-end"], "f has 0 bytes: what lies past its end"),
    ],
    ids=str,
)
def test_a_history_that_cannot_have_happened_is_refused(operations: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="operation") as e:
        judged(operations, tree(), ORDERED)
    assert message in str(e.value)


def test_operations_that_had_not_begun_and_those_of_programs_are_not_replayed() -> None:
    steps = history(["create f", "create f"]).steps
    unbegun = replace(steps[1], begin=None, ack=None)
    assert len(replay(ORDERED, History((steps[0], unbegun))).operations) == 1
    run = Operation(OperationKind.RUN, argv=("db",))
    assert replay(ORDERED, history([run, "append db 10"])).opaque
    assert replay(ORDERED, history(["append db 10", run])).opaque


def test_names_of_no_version_give_files_no_identity() -> None:
    """Contents are not judged then, but for what is wrong anywhere."""
    operations = ["create f", "append f 8", "create g", "append g 8"]
    swapped = written(3, 0, 8)
    assert oracles(judged(operations, tree(file("nobody", swapped)))) == {"atomicity"}
    assert oracles(judged(operations, tree(file("nobody", swapped)), begun=3)) == {"atomicity", "foreign"}


LAYERED = replace(ORDERED, rules=("links-may-part",))


def test_a_whiteout_leaves_the_link_count_of_a_lower_layer_where_that_is_allowed() -> None:
    operations = ["create f", "link f g", "remount", "unlink g", "fsync ."]
    left = tree(file("f", links=2))
    assert judged(operations, left, LAYERED).verdict is Verdict.PASS
    assert oracles(judged(operations, left, ORDERED)) == {"atomicity"}
    both = tree(file("f", inode=7, links=2), file("g", inode=7, links=2))
    assert oracles(judged(operations, both, LAYERED)) == {"durability"}
    assert oracles(judged([*operations[:2], *operations[3:]], left, LAYERED)) == {"atomicity"}


SHORT = written(1, 0, 100)
LOWER = file("g", SHORT, links=2)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ("chmod f 600", file("f", SHORT, mode=0o600)),
        ("append f 50", file("f", SHORT, written(4, 100, 50))),
        ("write f 0 100", file("f", written(4, 0, 100))),
        ("setxattr f user.a x", file("f", SHORT, xattrs={"user.a": b"x"})),
    ],
)
def test_a_name_that_comes_apart_from_a_lower_layer_s_is_no_torn_operation(
    change: str, changed: TreeEntry
) -> None:
    """The copy of one name was called a loss, or a change of the other, in every mode with an order of names.

    [doc] overlayfs.rst: without an index, "this will "break" the link".
    """
    operations = ["create f", "append f 100", "link f g", "remount", change, "create h", "sync"]
    there = judged(operations, tree(changed, LOWER, file("h")), LAYERED)
    assert there.verdict is Verdict.PASS
    assert oracles(judged(operations, tree(changed, LOWER, file("h")), ORDERED)) >= {"atomicity"}
    copied = tree(file("f", SHORT), LOWER)
    assert judged(operations[:5], copied, LAYERED, begun=5).verdict is Verdict.PASS
    lost = judged(operations, tree(file("f", SHORT), LOWER, file("h")), LAYERED)
    assert lost.verdict is Verdict.FAIL
    broken = judged(operations, tree(changed, LOWER), LAYERED)
    assert [v.signature for v in broken.violations] == ["names undone after 6 (sync)"]


def test_what_came_apart_keeps_its_names_and_hides_nothing_else() -> None:
    operations = ["create f", "append f 100", "link f g", "remount", "chmod f 600", "sync", "create h"]
    own = file("f", SHORT, mode=0o600)
    assert {v.signature for v in judged(operations, tree(own), LAYERED).violations} == {"g: missing (sync)"}
    stale = Extent(ExtentKind.POISON, 0, 100, 7)
    assert oracles(judged(operations, tree(own, file("g", stale, links=2)), LAYERED)) == {"stale"}
    never = judged(operations, tree(own, file("g", SHORT, mode=0o777, links=2)), LAYERED)
    assert [v.signature for v in never.violations] == ["g: other permissions"]
    gone = [*operations[:4], "write f 0 100", "unlink f", "sync"]
    assert judged(gone, tree(LOWER), LAYERED).verdict is Verdict.UNKNOWN
    before = ["create f", "append f 100", "link f g", "remount", "create h", "sync"]
    assert oracles(judged(before, tree(own, LOWER, file("h")), LAYERED)) >= {"atomicity"}


def one_file(*entries: TreeEntry) -> Tree:
    return tree(*(replace(entry, inode=7, links=len(entries)) for entry in entries))


AS_PARTED = one_file(file("f", SHORT), file("g", SHORT))
NEW = written(4, 0, 100)
CHMOD, WRITE = ["chmod f 600", "sync"], ["write f 0 100", "sync"]
BY_TWO = ["chmod f 600", "chown g 3 4", "sync"]
PRIVATE, OWNED = file("f", SHORT, mode=0o600), replace(LOWER, uid=3, gid=4)


@pytest.mark.parametrize(
    ("since", "recovered", "signatures"),
    [
        (CHMOD, AS_PARTED, ["names undone after 5 (sync)"]),
        (["setxattr f user.a x", "sync"], AS_PARTED, ["names undone after 5 (sync)"]),
        (BY_TWO, AS_PARTED, ["names undone after 6 (sync)"]),
        (CHMOD, tree(file("f", SHORT), LOWER), ["names undone after 5 (sync)"]),
        (CHMOD, tree(file("f", SHORT), replace(LOWER, mode=0o600)), ["f: other permissions (sync)"]),
        (CHMOD, tree(file("f", SHORT, mode=0o777), LOWER), ["f: other permissions"]),
        (BY_TWO, tree(PRIVATE, replace(OWNED, mode=0o777)), ["g: other permissions"]),
        (
            WRITE,
            tree(file("f", SHORT), file("g", NEW, links=2)),
            ["f: data of operation 4 lost (sync)"],
        ),
        (WRITE, AS_PARTED, ["f: data of operation 4 lost (sync)"]),
        (["write f 0 100", "fsync f"], tree(file("f"), LOWER), ["f: size after 3 (remount)"]),
        (WRITE, tree(file("f", NEW), file("g", links=2)), ["g: size after 3 (remount)"]),
    ],
)
def test_the_one_name_that_was_used_has_what_was_promised(
    since: list[str], recovered: Tree, signatures: list[str]
) -> None:
    """The names were compared by their kinds alone, and what was lost for certain was called unknown, or
    passed because a name had it that nobody had used.
    """
    operations = ["create f", "append f 100", "link f g", "remount", *since]
    assert [v.signature for v in judged(operations, recovered, LAYERED).violations] == signatures


@pytest.mark.parametrize(
    ("since", "recovered"),
    [
        (BY_TWO, tree(PRIVATE, OWNED)),
        (["write f 0 50", "write g 50 50", "sync"], tree(file("f", SHORT), LOWER)),
        (["write f 0 100", "fsync g"], tree(file("f", SHORT), LOWER)),
        (["chmod f 600", "fsync g"], AS_PARTED),
        (["open f @h", "write @h 0 100", "fsync @h"], tree(file("f", SHORT), LOWER)),
        (["write f 0 100", "unlink f", "link g f", "sync"], AS_PARTED),
    ],
)
def test_names_that_came_apart_by_several_are_unknown(since: list[str], recovered: Tree) -> None:
    """fsync of a name that was not copied does nothing, and a name that is linked anew is that of another."""
    operations = ["create f", "append f 100", "link f g", "remount", *since]
    assert judged(operations, recovered, LAYERED).verdict is Verdict.UNKNOWN


def test_a_copy_is_a_step_of_its_own_and_need_not_be_made() -> None:
    for change in ("chmod f 600", "write f 0 100", "append f 50"):
        operations = ["create f", "append f 100", "link f g", "remount", change]
        for there in (AS_PARTED, tree(file("f", SHORT), LOWER)):
            assert judged(operations, there, LAYERED).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        (["create Foo", "rename Foo foo"], "'Foo' and 'foo' are one name"),
        (["create Foo", "create bar", "rename bar foo"], "'Foo' and 'foo' are one name"),
        (
            ["mkdir d", "create d/Foo", "mkdir e", "rename d e", "create e/foo"],
            "'Foo' and 'foo' are one name",
        ),
        (["create f."], "no dot or space at the end of a name: 'f.'"),
        (["mkdir d.", "create d./f"], "no dot or space at the end of a name: 'd.'"),
    ],
)
def test_names_that_a_file_system_takes_for_others_are_not_judged(operations: list[str], told: str) -> None:
    """FAT renamed `Foo` to `foo` by doing nothing, and was said to have lost both."""
    for mode in ("vfat/default", "exfat/default"):
        with pytest.raises(NotSupported, match=re.escape(told)):
            replay(profiles()[mode].contract, history(operations))
    assert replay(profiles()["ntfs3/default"].contract, history(operations)).operations
    assert replay(profiles()["vfat/default"].contract, history(["mkdir d.x", "create d.x/Foo"])).operations
    assert replay(profiles()["hfsplus/default"].contract, history(["create f.", "create \u00e9"])).operations
    with pytest.raises(NotSupported, match="composes a letter and its accent"):
        replay(profiles()["hfsplus/default"].contract, history(["create e\u0301"]))


def test_a_fold_of_names_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="folds_names has 'cases'"):
        replace(ORDERED, folds_names=("cases",))


def test_a_whiteout_changes_no_inode_of_a_lower_layer() -> None:
    """fsync of the other name was said to promise that the one is gone."""
    layered = replace(ORDERED, rules=("links-may-part",))
    both = tree(file("f", inode=7, links=2), file("g", inode=7, links=2))
    made = ["create f", "link f g", "remount"]
    assert judged([*made, "unlink g", "fsync f"], both, layered).verdict is Verdict.PASS
    assert oracles(judged([*made, "unlink g", "fsync ."], both, layered)) == {"durability"}
    assert oracles(judged([*made, "unlink g", "fsync f"], both, ORDERED)) == {"durability"}
    three = tree(file("f", inode=7, links=2), file("g", inode=7, links=2), file("h", inode=8))
    over = [*made[:2], "create h", "remount", "rename h g", "fsync f"]
    assert judged(over, three, layered).verdict is Verdict.PASS
    assert oracles(judged([*over[:-1], "fsync ."], three, layered)) == {"durability"}
