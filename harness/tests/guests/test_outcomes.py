"""Which trees of a guest become trees: what the agent cannot have sent is refused, damage is not."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from msgspec.structs import replace

from harness.guests import wire
from harness.guests.outcomes import KnownEntries, outcome_of
from harness.model import Call, CallError, Extent, ExtentKind, FileKind

ROOT = wire.TreeEntry(b"", FileKind.DIRECTORY, 2, 0o755, 2, 0, 0, 4096, 8, b"", [], [], "")


def run(kind: ExtentKind, start: int, length: int, value: int = 0, data: bytes = b"") -> wire.Extent:
    return wire.Extent(kind, start, length, value, 0, data)


def file(path: bytes, *runs: wire.Extent, **more: Any) -> wire.TreeEntry:
    size = runs[-1].start + runs[-1].length if runs else 0
    return replace(
        ROOT,
        **{"path": path, "kind": FileKind.FILE, "inode": 12, "size": size, "extents": list(runs), **more},
    )


def seen(*entries: wire.TreeEntry, **more: Any) -> wire.Recovered:
    return replace(wire.Recovered(0, [ROOT, *entries], [], 0, [], True, 1, 1, 1), **more)


def test_a_tree_becomes_a_tree() -> None:
    told = seen(
        replace(ROOT, path=b"d"),
        replace(ROOT, path=b"d-e", kind=FileKind.FIFO, size=0),
        file(b"d/\xff", run(ExtentKind.WRITTEN, 0, 8, 3), run(ExtentKind.LITERAL, 8, 2, 0, b"xy")),
        walk_errors=[wire.CallError(Call.GETXATTR, b"d/\xff", "user.a", errno.EUCLEAN)],
    )
    outcome = outcome_of(told)
    assert list(outcome.tree) == ["", "d", "d-e", "d/\udcff"]
    assert outcome.tree["d/\udcff"].extents == (
        Extent(ExtentKind.WRITTEN, 0, 8, 3),
        Extent(ExtentKind.LITERAL, 8, 2, 0, 0, b"xy"),
    )
    assert outcome.walk_errors == (CallError(Call.GETXATTR, "d/\udcff", errno.EUCLEAN, "user.a"),)


def test_what_is_the_same_in_two_trees_is_there_once() -> None:
    """The trees of a thousand recoveries of 3,000 names each took gigabytes."""
    known = KnownEntries()
    changed = file(b"b", run(ExtentKind.WRITTEN, 0, 8, 4))
    one = outcome_of(seen(file(b"a"), file(b"b", run(ExtentKind.WRITTEN, 0, 8, 3))), known).tree
    other = outcome_of(seen(file(b"a"), changed), known).tree
    assert one["a"] is other["a"]
    assert one["b"].extents == (Extent(ExtentKind.WRITTEN, 0, 8, 3),)
    assert other["b"].extents == (Extent(ExtentKind.WRITTEN, 0, 8, 4),)


def test_no_more_entries_are_kept_to_share_than_allowed() -> None:
    known = KnownEntries(limit_bytes=300)
    trees = [outcome_of(seen(file(b"%d" % n)), known).tree for n in range(5)]
    assert [list(tree) for tree in trees] == [["", str(n)] for n in range(5)]
    assert trees[3]["3"] is not outcome_of(seen(file(b"3")), known).tree["3"]


def test_an_error_reads_as_a_line() -> None:
    """Findings are folded by these lines: another text would make another finding of each."""
    lines = {
        CallError(Call.OPENAT, "a/b", errno.EUCLEAN): "openat a/b: EUCLEAN (117)",
        CallError(Call.STATX, "", errno.ENOENT): "statx: ENOENT (2)",
        CallError(Call.GETXATTR, "f", errno.EIO, "user.a"): "getxattr user.a f: EIO (5)",
        CallError(Call.GETDENTS, "d", errno.EEXIST, "x"): "getdents (x twice) d: EEXIST (17)",
        CallError(Call.INSIDE_ITSELF, "d/d", errno.ELOOP): "a directory inside itself: d/d: ELOOP (40)",
        CallError(Call.READ, "f", 4000): "read f: errno (4000)",
    }
    assert [str(error) for error in lines] == list(lines.values())


@pytest.mark.parametrize(
    "told",
    [
        seen(file(b"f", size=1 << 62, extents=[run(ExtentKind.ZERO, 0, 1 << 62)])),
        seen(file(b"\x01\n\x1b[31m\xff", mode=0o7777, links=0, uid=(1 << 32) - 1)),
        seen(file(b"f", size=5, extents=[]), walk_errors=[wire.CallError(Call.OPENAT, b"f", "", 5)]),
        seen(entries=[], walk_errors=[wire.CallError(Call.STATX, b"", "", 5)]),
        seen(file(b"f", run(ExtentKind.UNREADABLE, 0, 4096, errno.EIO))),
        seen(entries=[], mount_errno=errno.EUCLEAN),
    ],
    ids=["huge", "strange", "not opened", "no root", "unreadable", "not mounted"],
)
def test_damage_passes(told: wire.Recovered) -> None:
    """It is what the oracles are there to judge."""
    outcome_of(told)


@pytest.mark.parametrize(
    "told",
    [
        seen(file(b"a"), file(b"a")),
        seen(file(b"b"), file(b"a")),
        seen(file(b"d/a")),
        seen(file(b"a"), file(b"a/b")),
        seen(file(b"/a")),
        seen(file(b"..")),
        seen(replace(ROOT, path=b"d"), file(b"d/")),
        seen(file(b"a\0b")),
        seen(file(b"n" * 256)),
        seen(entries=[file(b"a")]),
        seen(entries=[]),
        seen(mount_errno=errno.EIO),
        seen(file(b"f", size=1 << 63)),
        seen(file(b"f", size=5, extents=[])),
        seen(file(b"f", run(ExtentKind.ZERO, 0, 5), size=6)),
        seen(file(b"f", run(ExtentKind.ZERO, 0, 5), run(ExtentKind.ZERO, 6, 1))),
        seen(file(b"f", run(ExtentKind.ZERO, 0, 5), run(ExtentKind.ZERO, 6, 1), size=6)),
        seen(file(b"f", run(ExtentKind.ZERO, 0, 5), run(ExtentKind.WRITTEN, 4, 2, 1))),
        seen(file(b"f", run(ExtentKind.ZERO, 0, 0))),
        seen(file(b"f", run(ExtentKind.WRITTEN, 0, 8, 0xFFFF))),
        seen(file(b"f", run(ExtentKind.LITERAL, 0, 8, 0, b"x"))),
        seen(file(b"f", run(ExtentKind.FOREIGN, 0, 100, 0, b"x" * 65))),
        seen(file(b"f", run(ExtentKind.UNREADABLE, 0, 8, 4096))),
        seen(replace(ROOT, path=b"d", extents=[run(ExtentKind.ZERO, 0, 4096)])),
        seen(file(b"f", xattrs=[wire.Xattr("user.a", b""), wire.Xattr("user.a", b"x")])),
    ],
    ids=[
        "twice",
        "out of order",
        "no parent",
        "below a file",
        "absolute",
        "dot dot",
        "no name",
        "NUL",
        "a long name",
        "no root",
        "nothing",
        "a tree without a mount",
        "more than a file can have",
        "nothing told of a file",
        "runs too short",
        "a gap",
        "a gap that the size does not show",
        "an overlap",
        "an empty run",
        "written by poison",
        "literal without its bytes",
        "too many bytes",
        "no errno",
        "contents of a directory",
        "an attribute twice",
    ],
)
def test_what_no_walk_can_have_given_is_refused(told: wire.Recovered) -> None:
    """Of two entries of one path the second hid the first, and with it what was lost of it."""
    with pytest.raises(wire.WireError):
        outcome_of(told)


def test_a_tree_of_three_thousand_names_is_told_and_taken() -> None:
    files = [file(b"%06d" % n, run(ExtentKind.WRITTEN, 0, 4096, 7), digest="0" * 32) for n in range(3000)]
    body = wire.encode(seen(*files))
    assert len(outcome_of(wire.decode(body, wire.AgentReply)).tree) == 3001
