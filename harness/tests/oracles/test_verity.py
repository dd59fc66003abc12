"""fs-verity: when a file has it after a crash, and what may no longer be done to it."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import UsageError
from harness.model import TreeEntry, Verdict
from harness.oracles.contract import Contract
from harness.oracles.replay import need_possible
from harness.tests.oracles.cases import EACH, ORDERED, file, judged, oracles, tree, written
from harness.workloads.load import parse_operation

PASS = Verdict.PASS
MADE = ("create f", "append f 4096", "fsync f", "enable-verity f")
PLAIN = file("f", written(1, 0, 4096))


def verified(entry: TreeEntry) -> TreeEntry:
    return dataclasses.replace(entry, xattrs={"verity": b""})


@pytest.mark.parametrize("contract", [ORDERED, EACH])
def test_verity_is_durable_once_the_file_was_synced_and_not_before(contract: Contract) -> None:
    for recovered in (PLAIN, verified(PLAIN)):
        assert judged(MADE, tree(recovered), contract).verdict is PASS
    assert judged((*MADE, "fsync f"), tree(verified(PLAIN)), contract).verdict is PASS
    assert "durability" in oracles(judged((*MADE, "fsync f"), tree(PLAIN), contract))


def test_a_file_that_nobody_gave_verity_has_none() -> None:
    operations = ("create f", "append f 4096", "create g", "fsync f", "enable-verity g")
    assert oracles(judged(operations, tree(verified(PLAIN), file("g"))))
    assert judged(operations, tree(PLAIN, verified(file("g")))).verdict is PASS


def test_verity_goes_with_the_inode() -> None:
    operations = (*MADE, "rename f g", "fsync g")
    moved = dataclasses.replace(PLAIN, path="g")
    assert judged(operations, tree(verified(moved))).verdict is PASS
    assert "atomicity" in oracles(judged(operations, tree(moved)))


@pytest.mark.parametrize(
    "last",
    ["write f 0 10", "append f 10", "truncate f 0", "fallocate f 0 8192", "mmap-write f 0 10", "clone g f"],
)
def test_a_file_with_verity_is_not_written_again(last: str) -> None:
    operations = [*MADE, "create g", "append g 8192"]
    need_possible([parse_operation(text) for text in operations])
    with pytest.raises(UsageError, match="f has verity, and is never written again"):
        need_possible([parse_operation(text) for text in [*operations, last]])


@pytest.mark.parametrize(
    "last", ["unlink f", "rename f g", "link f g", "chmod f 600", "touch f 7", "fsync f"]
)
def test_all_else_is_possible(last: str) -> None:
    need_possible([parse_operation(text) for text in [*MADE, last]])


def test_verity_is_enabled_once() -> None:
    with pytest.raises(UsageError, match="f has verity already"):
        need_possible([parse_operation(text) for text in [*MADE, "enable-verity f"]])
