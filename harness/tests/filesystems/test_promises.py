"""What single modes promise beyond others: recovered trees that only the stronger contract refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.filesystems.profiles import profiles
from harness.model import Tree
from harness.tests.oracles.cases import directory, file, judged, oracles, tree, written, zeros

BOTH = ["create f", "append f 4096", "create g", "append g 4096", "fsync g"]
OVERWRITTEN = [*BOTH[:4], "sync", "write f 0 4096", "write g 0 4096", "fdatasync g"]
F, G = written(1, 0, 4096), written(3, 0, 4096)
NEW_F, NEW_G = written(5, 0, 4096), written(6, 0, 4096)
OLD = ["create f", "append f 4000", "fsync f", "truncate f 100", "truncate f 4096", "create g", "fsync g"]
KEPT = ["create f", "append f 4096", "fallocate f 0 65536 keep-size", "fdatasync f", "create g"]
REUSED = ["mkdir a", "create a/f", "sync", "rename a/f a/g", "create a/f", "fsync a/f"]
SYNCED = ["mkdir a", "create a/f", "sync"]


def few_blocks() -> Tree:
    return tree(replace(file("f", F), blocks=8), file("g"))


@pytest.mark.parametrize(
    ("stronger", "weaker", "operations", "recovered"),
    [
        ("btrfs/notreelog", "btrfs/default", BOTH, tree(file("g", G))),
        ("btrfs/flushoncommit-notreelog", "btrfs/notreelog", BOTH, tree(file("f"), file("g", G))),
        ("nilfs2/strict", "nilfs2/default", OVERWRITTEN, tree(file("f", F), file("g", NEW_G))),
        ("f2fs/strict", "f2fs/posix", REUSED, tree(directory("a"), file("a/f"))),
        (
            "xfs/default",
            "reiserfs/ordered",
            OLD,
            tree(file("f", written(1, 0, 4000), zeros(4000, 96)), file("g")),
        ),
        ("xfs/default", "reiserfs/ordered", BOTH, tree(file("f", zeros(0, 4096)), file("g", G))),
        ("ext4/ordered", "ext3/ordered", KEPT, few_blocks()),
        ("btrfs/default", "f2fs/posix", KEPT, few_blocks()),
        ("ext2/default", "minix/default", SYNCED, tree(directory("a"))),
        ("ext4/no-journal", "minix/default", SYNCED, tree()),
    ],
)
def test_only_the_stronger_contract_refuses(
    stronger: str, weaker: str, operations: list[str], recovered: Tree
) -> None:
    known = profiles()
    assert oracles(judged(operations, recovered, known[stronger].contract)) & {
        "durability",
        "contents",
        "size",
    }
    assert oracles(judged(operations, recovered, known[weaker].contract)) == set()


@pytest.mark.parametrize(
    ("mode", "operations", "recovered"),
    [
        ("btrfs/notreelog", BOTH, tree(file("f"), file("g", G))),
        ("btrfs/flushoncommit-notreelog", BOTH, tree(file("f", F), file("g", G))),
        ("nilfs2/strict", OVERWRITTEN, tree(file("f", NEW_F), file("g", NEW_G))),
        ("nilfs2/default", OVERWRITTEN, tree(file("f", F), file("g", NEW_G))),
        ("f2fs/strict", REUSED, tree(directory("a"), file("a/f"), file("a/g"))),
        ("xfs/default", BOTH, tree(file("f"), file("g", G))),
        ("ext4/no-journal", [*SYNCED, "fsync a/f"], tree()),
    ],
)
def test_what_is_promised_is_accepted(mode: str, operations: list[str], recovered: Tree) -> None:
    assert oracles(judged(operations, recovered, profiles()[mode].contract)) == set()
