"""In what a recovery that was cut and done again must not differ, and in what it may."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.model import Call, CallError, Change, FileKind, Outcome, Position, TreeEntry
from harness.oracles import ORACLES, Judge
from harness.oracles.confluence import first_difference
from harness.oracles.trees import changes
from harness.tests.oracles.cases import ORDERED, history, written, zeros

ROOT = TreeEntry("", FileKind.DIRECTORY, 2, 0o755, 3, 0, 0, 4096, 8)
FOUND = TreeEntry("lost+found", FileKind.DIRECTORY, 11, 0o700, 2, 0, 0, 16384, 32)
FILE = TreeEntry("f", FileKind.FILE, 12, 0o644, 1, 0, 0, 100, 8, extents=(written(1, 0, 100),), digest="a")
LINK = TreeEntry("s", FileKind.SYMLINK, 13, 0o777, 1, 0, 0, 1, 0, target=b"f")
ONLY = {"confluence": ORACLES["confluence"]}
WHOLE = Outcome(tree={e.path: e for e in (ROOT, FOUND, FILE, LINK)})


def with_(path: str, **changes: Any) -> Outcome:
    return replace(WHOLE, tree={**WHOLE.tree, path: replace(WHOLE.tree[path], **changes)})


def without(path: str) -> Outcome:
    return replace(WHOLE, tree={p: e for p, e in WHOLE.tree.items() if p != path})


def signatures(outcome: Outcome, undisturbed: Outcome | None = WHOLE) -> list[str]:
    judge = Judge(ORDERED, history([]), error_patterns=(), oracles=ONLY)
    judged = judge.judge(Position(0, 0, 0), outcome, undisturbed)
    return [violation.signature for violation in judged.violations]


@pytest.mark.parametrize(
    ("path", "changes", "what"),
    [
        ("f", {"kind": FileKind.SYMLINK}, "kind"),
        ("f", {"mode": 0o600}, "permissions"),
        ("f", {"uid": 1}, "owners"),
        ("f", {"gid": 1}, "owners"),
        ("f", {"links": 2}, "links"),
        ("f", {"size": 101}, "size"),
        ("s", {"target": b"g"}, "link target"),
        ("f", {"xattrs": {"user.a": b"1"}}, "attributes"),
        ("f", {"extents": (zeros(0, 100),)}, "bytes"),
        ("f", {"digest": "b"}, "bytes"),
        ("", {"mode": 0o700}, "permissions"),
    ],
)
def test_each_of_these_must_stay(path: str, changes: Mapping[str, Any], what: str) -> None:
    """A recovery that loses an attribute when it is done twice would have passed."""
    assert signatures(with_(path, **changes)) == [f"{path or '.'}: {what}"]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("f", {"inode": 99}),
        ("f", {"blocks": 16}),
        ("", {"size": 8192}),
        ("lost+found", {"size": 4096}),
    ],
)
def test_each_of_these_may_differ(path: str, changes: Mapping[str, Any]) -> None:
    assert signatures(with_(path, **changes)) == []


@pytest.mark.parametrize(
    ("changes", "then", "now"),
    [
        (
            {"extents": (written(1, 0, 50), zeros(50, 50))},
            "bytes 0 to 100: data of operation 1",
            "bytes 0 to 50: data of operation 1",
        ),
        (
            {"extents": (written(1, 0, 100), zeros(100, 100)), "size": 200},
            "the end of the file",
            "bytes 100 to 200: zeros",
        ),
        ({"digest": "b"}, "digest a", "digest b"),
    ],
)
def test_of_bytes_it_tells_where_they_part(changes: Mapping[str, Any], then: str, now: str) -> None:
    judge = Judge(ORDERED, history([]), error_patterns=(), oracles=ONLY)
    told = judge.judge(Position(0, 0, 0), with_("f", **changes), WHOLE).violations[-1]
    assert told.summary == "f: recovery that was cut and done again comes to other bytes"
    assert (told.expected, told.found) == (then, now)


def test_what_differs_is_told_as_people_write_it() -> None:
    """Permissions were decimal numbers, and the target of a link was b'x'."""
    tree = {"f": replace(FILE, mode=0o4644), "s": LINK}
    other = {"f": replace(FILE, mode=0o60), "s": replace(LINK, target=b"y\xff")}
    told = [(c.what, c.then, c.now) for c in changes(tree, other)]
    assert told == [("permissions", "4644", "0060"), ("link target", "f", "y\\xff")]


def test_names_are_there_in_both_but_for_those_in_lost_and_found() -> None:
    """e2fsck names what it finds after inodes, so a second run may name it anew."""
    assert signatures(without("f")) == ["f: existence"]
    assert signatures(WHOLE, without("f")) == ["f: existence"]
    there = replace(WHOLE, tree={**WHOLE.tree, "lost+found/#12": replace(FILE, path="lost+found/#12")})
    assert signatures(there) == []
    assert signatures(WHOLE, there) == []
    assert signatures(without("lost+found")) == ["lost+found: existence"]


def test_both_mount_unmount_and_read_alike() -> None:
    failed = CallError(Call.READ, "f", errno.EIO)
    assert signatures(replace(WHOLE, unmount_errno=errno.EIO)) == ["file system: unmount"]
    assert signatures(replace(WHOLE, walk_errors=(failed,))) == ["file system: reading"]
    assert signatures(WHOLE, replace(WHOLE, walk_errors=(failed,))) == ["file system: reading"]
    once, twice = (replace(WHOLE, walk_errors=(failed,) * n) for n in (1, 2))
    assert signatures(twice, once) == []
    # of one that is not mounted there is no tree to compare
    assert signatures(Outcome(mount_errno=errno.EUCLEAN)) == ["file system: mount"]
    assert signatures(WHOLE, Outcome(mount_errno=errno.EUCLEAN)) == ["file system: mount"]
    assert signatures(Outcome(mount_errno=errno.EIO), Outcome(mount_errno=errno.EUCLEAN)) == [
        "file system: mount"
    ]


def test_where_nobody_could_look_nothing_differs() -> None:
    """A mount without memory was "recovery that was cut comes to another mount"."""
    for outcome in (Outcome(mount_errno=errno.ENOMEM), replace(WHOLE, unmount_errno=errno.EBUSY)):
        assert signatures(outcome) == []
        assert signatures(WHOLE, outcome) == []


def test_a_kernel_that_died_is_told_of_elsewhere() -> None:
    assert signatures(Outcome(lost="Kernel panic")) == []
    assert signatures(WHOLE, Outcome(lost="Kernel panic")) == []
    assert signatures(WHOLE, None) == []


def test_the_first_difference_is_a_line() -> None:
    assert first_difference(WHOLE, WHOLE) == ""
    assert first_difference(WHOLE, with_("f", size=101)) == "f: size: 100, now 101"


def test_what_changed_outside_the_folder_counts() -> None:
    change = Change("etc/hosts", "size", "10", "0")
    found = replace(WHOLE, outside=(change,))
    assert signatures(found) == ["outside the folder: names or bytes"]
    assert signatures(found, found) == []
