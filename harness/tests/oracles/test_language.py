"""Operations beyond those of the first workloads: what each does to the model, promised and broken."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import UsageError
from harness.model import Extent, ExtentKind, FileKind, TreeEntry, Verdict
from harness.oracles.contract import Contract
from harness.oracles.replay import need_possible, replay
from harness.tests.oracles.cases import (
    EACH,
    JOURNAL,
    ORDERED,
    WRITEBACK,
    directory,
    file,
    history,
    judged,
    oracles,
    tree,
    written,
    zeros,
)
from harness.workloads.load import parse_operation

PASS = Verdict.PASS
LEFT = dataclasses.replace(ORDERED, rules=("exchange-leaves-inodes",))


def special(path: str, kind: FileKind, numbers: bytes = b"1:3") -> TreeEntry:
    return dataclasses.replace(file(path), kind=kind, target=numbers if kind is FileKind.CHAR else b"")


def paths(*operations: str) -> dict[str, int]:
    names, version = replay(ORDERED, history(operations)).names, len(operations)
    return {path: names.inode(path, version) for path in ("", *names.names(version))}


# --- exchange ---

TWO = ("create a", "append a 4096", "create b", "append b 100", "sync")
A, B = written(1, 0, 4096), written(3, 0, 100)


def test_an_exchange_takes_what_lies_below_a_directory_along() -> None:
    assert paths("mkdir d", "create d/f", "mkdir e", "create e/g", "exchange d e") == {
        "": -1, "e": 0, "e/f": 1, "d": 2, "d/g": 3,
    }  # fmt: skip
    assert paths("mkdir d", "create d/f", "create g", "exchange g d") == {"": -1, "g": 0, "g/f": 1, "d": 2}
    assert paths("mkdir d", "create d/f", "create g", "exchange d/f g") == {"": -1, "d": 0, "g": 1, "d/f": 2}
    assert paths("create f", "link f g", "exchange f g") == {"": -1, "f": 0, "g": 0}


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        (("mkdir d", "create d/f", "exchange d d/f"), "d/f and d cannot change places"),
        (("mkdir d", "create d/f", "exchange d/f d"), "d/f and d cannot change places"),
        (("mkdir d", "exchange . d"), "cannot change places"),
        (("create f", "exchange f g"), "g does not exist"),
    ],
)
def test_an_exchange_that_the_kernel_refuses_is_told(operations: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        need_possible([parse_operation(op) for op in operations])
    assert says in caught.value.what


def test_both_names_change_at_once_or_not_at_all() -> None:
    operations = [*TWO, "exchange a b", "create c"]
    before = [file("a", A, inode=7), file("b", B, inode=8)]
    after = [file("a", B, inode=8), file("b", A, inode=7)]
    assert judged(operations, tree(*before)).verdict is PASS
    assert judged(operations, tree(*after)).verdict is PASS
    half = [file("a", B, inode=8), file("b", B, inode=8)]
    assert oracles(judged(operations, tree(*half))) == {"atomicity"}
    assert oracles(judged(operations, tree(after[0]))) == {"durability"}
    other_file = [file("a", B, inode=8), file("b", B, inode=7)]
    assert "stale" in oracles(judged(operations, tree(*other_file)))


def test_fsync_of_an_exchanged_file_makes_the_exchange_durable() -> None:
    operations = [*TWO, "exchange a b", "fsync a"]
    before = tree(file("a", A), file("b", B))
    assert oracles(judged(operations, before)) == {"durability"}
    assert oracles(judged(operations, before, EACH)) == {"durability"}


def test_where_an_exchange_leaves_the_inodes_only_a_directory_makes_it_durable() -> None:
    before = tree(file("a", A), file("b", B))
    assert judged([*TWO, "exchange a b", "fsync a"], before, LEFT).verdict is PASS
    assert oracles(judged([*TWO, "exchange a b", "fsync ."], before, LEFT)) == {"durability"}


def test_each_name_by_itself_is_what_it_was_or_what_it_became() -> None:
    operations = [*TWO, "exchange a b"]
    old, new = file("a", A, inode=7), file("a", B, inode=8)
    assert judged(operations, tree(new, file("b", A, inode=7)), EACH).verdict is PASS
    assert judged(operations, tree(old, file("b", B, inode=8)), EACH).verdict is PASS
    assert oracles(judged(operations, tree(new), EACH)) == {"durability"}
    swapped = ["mkdir d", "create d/f", "mkdir e", "create e/g", "sync", "exchange d e"]
    moved = tree(directory("d"), file("d/g", inode=8), directory("e"), file("e/f", inode=9))
    assert judged(swapped, moved, EACH).verdict is PASS
    lost = tree(directory("d"), file("d/g"), directory("e"))
    assert oracles(judged(swapped, lost, EACH)) == {"durability"}


# --- special files, eviction, writeback ---


def test_special_files_are_of_the_kind_that_they_were_made() -> None:
    operations = ["mkfifo p", "mknod n", "sync"]
    fifo, null = special("p", FileKind.FIFO), special("n", FileKind.CHAR)
    assert judged(operations, tree(fifo, null)).verdict is PASS
    assert judged(operations, tree(fifo, null), EACH).verdict is PASS
    for contract in (ORDERED, EACH):
        assert judged(operations, tree(fifo), contract).verdict is Verdict.FAIL
        assert judged(operations, tree(fifo, file("n")), contract).verdict is Verdict.FAIL


def test_a_device_has_the_numbers_that_it_was_made_with() -> None:
    """One that came back as another device, or as none, was called correct."""
    operations = ["mknod n", "sync"]
    for numbers in (b"0:0", b"1:5", b""):
        other = tree(special("n", FileKind.CHAR, numbers))
        for contract in (ORDERED, EACH):
            assert judged(operations, other, contract).verdict is Verdict.FAIL
        assert any("another device" in v.signature for v in judged(operations, other).violations)


def test_special_files_are_linked_and_removed_but_have_no_contents() -> None:
    assert paths("mkfifo p", "link p q", "unlink p", "chmod q 600") == {"": -1, "q": 0}
    for op in ("append p 1", "fsync p"):
        with pytest.raises(UsageError, match="p is a fifo"):
            need_possible([parse_operation("mkfifo p"), parse_operation(op)])


@pytest.mark.parametrize(
    "op",
    ["sync-file-range f 0 4096", "sync-file-range f 0 4096 async", "drop-caches", "begin-sync", "write-back"],
)
def test_what_promises_nothing_promises_nothing(op: str) -> None:
    operations = ["create f", "append f 4096", op]
    assert judged(operations, tree()).verdict is PASS
    assert judged(operations, tree(file("f"))).verdict is PASS
    assert judged(operations, tree(file("f", written(1, 0, 4096)))).verdict is PASS


# --- msync of a range ---

STORED = ("create f", "append f 12288", "sync", "mmap-write f 0 12288", "mmap-write f 4100 8 sync-range")
OLD, NEW = 1, 3


def pages(*origins: int) -> TreeEntry:
    """`f` with a page of each of these operations; if the second is NEW, with the small store in it."""
    runs = []
    for n, origin in enumerate(origins):
        start = 4096 * n
        if n == 1 and origin == NEW:
            runs += [written(NEW, start, 4), written(4, start + 4, 8), written(NEW, start + 12, 4084)]
        else:
            runs.append(written(origin, start, 4096))
    return file("f", *runs)


@pytest.mark.parametrize("contract", [ORDERED, EACH])
def test_msync_of_a_range_keeps_its_pages_and_promises_no_others(contract: Contract) -> None:
    for first in (OLD, NEW):
        for last in (OLD, NEW):
            assert judged(STORED, tree(pages(first, NEW, last)), contract).verdict is PASS
    lost = judged(STORED, tree(pages(NEW, OLD, NEW)), contract)
    assert oracles(lost) == {"durability"}
    assert "acknowledged by `mmap-write f 4100 8 sync-range` (operation 4)" in lost.violations[0].summary


def test_msync_of_a_range_counts_from_its_return_on() -> None:
    assert judged(STORED, tree(pages(OLD, OLD, OLD)), begun=5).verdict is PASS
    later = [*STORED, "create g"]
    assert oracles(judged(later, tree(pages(OLD, OLD, OLD)), begun=6)) == {"durability"}


def test_what_is_written_after_msync_of_a_range_may_be_there() -> None:
    later = [*STORED, "write f 4096 4096"]
    assert judged(later, tree(file("f", *pages(NEW).extents, written(5, 4096, 4096), written(1, 8192, 4096))))
    assert oracles(judged(later, tree(pages(OLD, OLD, OLD)))) == {"durability"}
    zeroed = [*STORED, "truncate f 0"]
    assert judged(zeroed, tree(file("f"))).verdict is PASS
    assert judged(zeroed, tree(pages(OLD, NEW, OLD))).verdict is PASS


def test_msync_of_a_range_promises_no_size_and_no_other_file() -> None:
    operations = ["create g", "create f", "append f 8192", "mmap-write f 0 8 sync-range"]
    assert judged(operations, tree()).verdict is PASS
    assert judged(operations, tree(file("g"), file("f"))).verdict is PASS
    assert oracles(judged(operations, tree(file("g"), file("f", zeros(0, 8192))))) == {"durability"}


def test_msync_of_a_range_commits_everything_where_contents_are_in_the_transaction() -> None:
    assert oracles(judged(STORED, tree(pages(NEW, OLD, NEW)), JOURNAL)) == {"durability"}
    assert judged(STORED, tree(pages(NEW, NEW, NEW)), JOURNAL).verdict is PASS


# --- what is held open ---


def test_a_handle_names_an_inode_whatever_becomes_of_its_name() -> None:
    gone = ["create f", "open f @h", "unlink f", "append @h 4096", "create f", "append f 100"]
    timeline = replay(ORDERED, history(gone))
    assert [(file.inode, file.size) for file in timeline.files.values()] == [(0, 4096), (4, 100)]
    moved = ["create f", "open f @h", "rename f g", "append @h 4096", "fsync @h"]
    assert judged(moved, tree(file("g", written(3, 0, 4096)))).verdict is PASS
    assert oracles(judged(moved, tree(file("f", written(3, 0, 4096))))) == {"durability"}


def test_fsync_of_what_has_no_name_makes_durable_what_came_before() -> None:
    operations = ["create f", "open f @h", "create g", "unlink f", "append @h 4096", "fsync @h"]
    assert judged(operations, tree(file("g"))).verdict is PASS
    assert oracles(judged(operations, tree(file("f"), file("g")))) == {"durability"}
    assert oracles(judged(operations, tree())) == {"durability"}


def test_where_inodes_are_durable_by_themselves_fsync_of_what_has_no_name_promises_nothing() -> None:
    """btrfs does not log it: what was in a removed directory, and the directory, may be back."""
    operations = ["mkdir d", "create d/f", "sync", "open d @h", "unlink d/f", "rmdir d", "fsync @h"]
    for left in (tree(), tree(directory("d")), tree(directory("d"), file("d/f"))):
        assert judged(operations, left, EACH).verdict is PASS
    assert oracles(judged(operations, tree(directory("d")))) == {"durability"}


def test_a_handle_covers_the_name_by_which_it_was_opened_as_renames_have_changed_it() -> None:
    operations = ["create f", "open f @h", "mkdir d", "fsync d", "rename f d/g", "append @h 100", "fsync @h"]
    moved = tree(directory("d"), file("d/g", written(5, 0, 100)))
    assert judged(operations, moved, EACH).verdict is PASS
    assert oracles(judged(operations, tree(directory("d")), EACH)) == {"durability"}
    swapped = ["create f", "create g", "open f @h", "sync", "exchange f g", "chmod @h 600", "fsync @h"]
    kept = tree(file("g", mode=0o600, inode=7), file("f", inode=8))
    assert judged(swapped, kept, EACH).verdict is PASS
    assert oracles(judged(swapped, tree(file("f", mode=0o600, inode=7)), EACH)) == {"durability"}


def test_another_name_keeps_a_handle_s_inode_findable() -> None:
    operations = ["create f", "open f @h", "link f g", "unlink f", "fsync @h"]
    assert judged(operations, tree(file("g")), EACH).verdict is PASS
    assert oracles(judged(operations, tree(), EACH)) == {"durability"}


def test_a_nameless_file_gets_its_name_with_all_that_was_written_before() -> None:
    operations = ["open-tmpfile . @h", "append @h 4096", "fsync @h", "link @h f", "create g", "fsync g"]
    whole = tree(file("f", written(1, 0, 4096)), file("g"))
    assert judged(operations, whole).verdict is PASS
    assert oracles(judged(operations, tree(file("g")))) == {"durability"}
    assert "durability" in oracles(judged(operations, tree(file("f"), file("g"))))
    assert judged(operations[:4], tree()).verdict is PASS
    only_data = [*operations[:4], "fdatasync @h"]
    assert judged(only_data, tree()).verdict is PASS
    assert judged([*operations[:2], "create g", "fsync @h", "close @h"], tree()).verdict is PASS


# --- remount ---


@pytest.mark.parametrize("contract", [ORDERED, EACH, JOURNAL])
def test_a_remount_makes_everything_durable(contract: Contract) -> None:
    operations = ["create f", "append f 4096", "mkdir d", "remount", "append f 100"]
    whole = tree(directory("d"), file("f", written(1, 0, 4096)))
    assert judged(operations, whole, contract).verdict is PASS
    assert oracles(judged(operations, tree(directory("d")), contract)) == {"durability"}
    assert judged(operations, tree(), contract, begun=4).verdict is PASS


# --- owners ---


def owned(path: str, user: int, group: int, **more: int) -> TreeEntry:
    return dataclasses.replace(file(path, **more), uid=user, gid=group)


@pytest.mark.parametrize("contract", [ORDERED, EACH])
def test_an_owner_is_that_of_some_time_since_it_was_synced(contract: Contract) -> None:
    operations = ["create f", "chown f 1000 100", "fsync f", "chown f 7 8"]
    assert judged(operations, tree(owned("f", 1000, 100)), contract).verdict is PASS
    assert judged(operations, tree(owned("f", 7, 8)), contract).verdict is PASS
    assert oracles(judged(operations, tree(owned("f", 0, 0)), contract)) == {"durability"}
    assert judged(operations, tree(owned("f", 7, 100)), contract).verdict is Verdict.FAIL


def test_chown_takes_the_bits_that_change_who_runs_it() -> None:
    for before, after in ((0o6755, 0o755), (0o2644, 0o2644), (0o4700, 0o700)):
        operations = ["create f", f"chmod f {before:o}", "chown f 1 2", "sync"]
        assert judged(operations, tree(owned("f", 1, 2, mode=after))).verdict is PASS
    kept = ["mkdir d", "chmod d 2755", "chown d 0 100", "create d/f", "sync"]
    folder = dataclasses.replace(directory("d", 0o2755), gid=100)
    assert judged(kept, tree(folder, owned("d/f", 0, 100))).verdict is PASS
    assert judged(kept, tree(folder, file("d/f"))).verdict is Verdict.FAIL


# --- clone ---

CLONED = ("create f", "append f 8192", "create g", "append g 4096", "sync", "clone f g")


@pytest.mark.parametrize("contract", [ORDERED, EACH, JOURNAL])
def test_a_clone_has_the_contents_of_its_source_once_it_is_synced(contract: Contract) -> None:
    operations = [*CLONED, "write f 0 4096", "fsync g"]
    source = file("f", written(6, 0, 4096), written(1, 4096, 4096))
    new = file("g", written(1, 0, 8192))
    assert judged(operations, tree(source, new), contract).verdict is PASS
    old = file("g", written(3, 0, 4096))
    assert oracles(judged(operations, tree(source, old), contract)) == {"durability"}
    mixed = file("g", written(6, 0, 4096), written(1, 4096, 4096))
    assert oracles(judged(operations, tree(source, mixed), contract)) == {"stale"}


def test_a_clone_that_nobody_synced_may_be_done_in_part() -> None:
    source, old, new = file("f", written(1, 0, 8192)), written(3, 0, 4096), written(1, 4096, 4096)
    for target in (file("g", old), file("g", old, new), file("g", written(1, 0, 8192))):
        assert judged(CLONED, tree(source, target), begun=6).verdict is PASS
        assert judged(CLONED, tree(source, target), EACH).verdict is PASS
    assert judged(CLONED, tree(source, file("g", zeros(0, 8192))), begun=6).verdict is Verdict.FAIL


def test_holes_are_cloned_too() -> None:
    operations = ["create f", "write f 4096 4096", "create g", "append g 8192", "clone f g", "fsync g"]
    assert judged(operations, tree(file("f"), file("g", zeros(0, 4096), written(1, 4096, 4096))))
    stayed = tree(file("f"), file("g", written(3, 0, 4096), written(1, 4096, 4096)))
    assert "durability" in oracles(judged(operations, stayed))


# --- exchange-range ---

LONG_A, SHORT_B = written(1, 0, 9000), written(3, 0, 100)
RANGES = ("create a", "append a 9000", "create b", "append b 100", "sync", "exchange-range a b")
BEFORE = (file("a", LONG_A), file("b", SHORT_B))
AFTER = (file("a", SHORT_B), file("b", LONG_A))


@pytest.mark.parametrize("contract", [ORDERED, LEFT, JOURNAL, WRITEBACK])
def test_contents_and_sizes_are_exchanged_at_once_or_not_at_all(contract: Contract) -> None:
    """XFS recovered the contents, and for one of the files another size (before 6.12.111)."""
    assert judged(RANGES, tree(*BEFORE), contract, begun=6).verdict is PASS
    assert judged(RANGES, tree(*AFTER), contract, begun=6).verdict is PASS
    sizes = file("a", written(3, 0, 100), zeros(100, 8900))
    for half in ((BEFORE[0], AFTER[1]), (sizes, AFTER[1]), (AFTER[0], file("b", written(1, 0, 100)))):
        assert judged(RANGES, tree(*half), contract, begun=6).verdict is Verdict.FAIL, half


def test_what_recovery_frees_behind_the_earlier_size_is_missed() -> None:
    """XFS recovers both sizes, and takes what is new behind the earlier one for preallocation."""
    holed = file("b", written(1, 0, 4096), zeros(4096, 4904))
    assert oracles(judged(RANGES, tree(AFTER[0], holed), begun=6)) == {"contents"}
    assert oracles(judged([*RANGES, "fsync a"], tree(AFTER[0], holed))) == {"contents"}
    synced = judged([*RANGES, "fsync b"], tree(AFTER[0], holed))
    assert oracles(synced) == {"durability"}
    assert "acknowledged by `fsync b` (operation 6)" in synced.violations[0].summary


@pytest.mark.parametrize("then", ["fsync a", "fsync b", "fdatasync b", "sync"])
def test_an_exchange_of_contents_is_there_in_both_files_once_either_is_synced(then: str) -> None:
    assert judged([*RANGES, then], tree(*AFTER)).verdict is PASS
    assert "durability" in oracles(judged([*RANGES, then], tree(*BEFORE)))


def test_an_exchange_of_contents_with_dsync_is_there_when_it_returns() -> None:
    operations = [*RANGES[:-1], "exchange-range a b dsync"]
    assert judged(operations, tree(*AFTER)).verdict is PASS
    assert "durability" in oracles(judged(operations, tree(*BEFORE)))
    assert judged(operations, tree(*BEFORE), begun=6).verdict is PASS


@pytest.mark.parametrize("persists", ["transaction", "operations"])
def test_where_operations_persist_an_exchange_of_contents_does(persists: str) -> None:
    contract = dataclasses.replace(ORDERED, persists=persists)
    assert (judged(RANGES, tree(*BEFORE), contract).verdict is PASS) == (persists == "transaction")


def test_what_was_written_in_place_after_an_exchange_that_is_lost_is_in_the_other_file() -> None:
    """The blocks of `a` held it when it was written, and are b's again."""
    operations = [*RANGES, "write a 0 50", "create c"]
    mixed = file("b", written(6, 0, 50), written(3, 50, 50))
    assert judged(operations, tree(BEFORE[0], mixed), begun=7).verdict is PASS
    exchanged = (file("a", written(6, 0, 50), written(3, 50, 50)), file("b", LONG_A), file("c"))
    assert judged(operations, tree(*exchanged)).verdict is PASS
    both = (exchanged[0], file("b", written(6, 0, 50), written(1, 50, 8950)), file("c"))
    assert oracles(judged(operations, tree(*both))) == {"stale"}


def test_what_fallocate_allocated_goes_with_the_contents() -> None:
    operations = ["create a", "fallocate a 0 64K keep-size", "create b", "append b 1", "sync"]
    contract = dataclasses.replace(ORDERED, rules=("allocations-stay",))
    freed = (dataclasses.replace(file("a", written(3, 0, 1)), blocks=8), file("b"))
    assert judged([*operations, "exchange-range a b", "sync"], tree(*freed), contract).verdict is PASS


def test_nothing_happens_to_two_empty_files() -> None:
    files = replay(ORDERED, history(["create a", "create b", "exchange-range a b"])).files.values()
    assert [f.events for f in files] == [[], []]


# --- collapse and insert ---

SHIFTED = ("create f", "append f 20000", "sync")
WHOLE = written(1, 0, 20000)


def shifted(start: int, length: int, by: int, operation: int = 1) -> Extent:
    """Data at `start` that was written `by` bytes before it."""
    return Extent(ExtentKind.MISPLACED, start, length, operation, start - by)


COLLAPSED = (written(1, 0, 4096), shifted(4096, 20000 - 12288, -8192))
INSERTED = (written(1, 0, 8192), zeros(8192, 4096), shifted(12288, 20000 - 8192, 4096))
COLLAPSE, INSERT = "fallocate f 4096 8192 collapse-range", "fallocate f 8192 4096 insert-range"


@pytest.mark.parametrize("contract", [ORDERED, EACH, JOURNAL, WRITEBACK])
@pytest.mark.parametrize(("call", "after"), [(COLLAPSE, COLLAPSED), (INSERT, INSERTED)])
def test_a_range_is_gone_or_inserted_once_that_is_synced(
    contract: Contract, call: str, after: tuple[Extent, ...]
) -> None:
    synced = [*SHIFTED, call, "fsync f"]
    assert judged(synced, tree(file("f", *after)), contract).verdict is PASS
    assert "durability" in oracles(judged(synced, tree(file("f", WHOLE)), contract))
    unsynced = judged([*SHIFTED, call], tree(file("f", WHOLE)), contract, begun=4)
    assert unsynced.verdict is PASS


@pytest.mark.parametrize("contract", [ORDERED, EACH, JOURNAL])
def test_a_shift_that_nobody_synced_may_be_done_in_part(contract: Contract) -> None:
    """XFS moves each extent in a transaction of its own; ext4 may, where the journal is short of room."""
    rest = (written(1, 0, 4096), zeros(4096, 8192), written(1, 12288, 7712))
    some = (written(1, 0, 4096), shifted(4096, 4096, -8192), zeros(8192, 8192), written(1, 16384, 3616))
    for part in (rest, some):
        assert judged([*SHIFTED, COLLAPSE], tree(file("f", *part)), contract, begun=4).verdict is PASS
        done = judged([*SHIFTED, COLLAPSE, "fsync f"], tree(file("f", *part)), contract)
        assert "durability" in oracles(done)
    other = (written(1, 0, 4096), shifted(4096, 15904, -4096))
    assert judged([*SHIFTED, COLLAPSE], tree(file("f", *other)), contract).verdict is Verdict.FAIL
    grown = (written(1, 0, 20000), zeros(20000, 4096))
    assert judged([*SHIFTED, INSERT], tree(file("f", *grown)), contract, begun=4).verdict is PASS


def test_a_shift_that_a_later_name_shows_to_be_committed_is_whole() -> None:
    operations = [*SHIFTED, COLLAPSE, "create g"]
    assert judged(operations, tree(file("f", *COLLAPSED), file("g"))).verdict is PASS
    forgotten = file("f", written(1, 0, 4096), zeros(4096, 7712))
    assert judged(operations, tree(forgotten, file("g"))).verdict is Verdict.FAIL


def test_what_was_written_in_place_after_a_shift_that_is_lost_is_where_the_block_was() -> None:
    """The blocks that the write went to are those of the old place again."""
    stray = file("f", written(1, 0, 16384), shifted(16384, 100, 8192, 4), written(1, 16484, 3516))
    operations = [*SHIFTED, COLLAPSE, "write f 8192 100"]
    assert judged(operations, tree(stray)).verdict is PASS
    assert "durability" in oracles(judged([*operations, "fsync f"], tree(stray)))
    back = file("f", written(1, 0, 8192), shifted(8192, 50, -4096, 4), written(1, 8242, 11758))
    operations = [*SHIFTED, INSERT, "write f 12288 50"]
    assert judged(operations, tree(back)).verdict is PASS
    assert judged([*operations[:-1], "write f 4096 50"], tree(back)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "call",
    [
        "fallocate f 4096 16K collapse-range",
        "fallocate f 20K 4096 insert-range",
        "fallocate f 100 4096 collapse-range",
        "fallocate f 0 100 insert-range",
        "fallocate f 0 0 insert-range",
        "fallocate f 0 4096 insert-range keep-size",
    ],
)
def test_a_shift_that_the_kernel_refuses_is_told(call: str) -> None:
    with pytest.raises(UsageError):
        need_possible([parse_operation(op) for op in (*SHIFTED, call)])
    for kept in (COLLAPSE, INSERT):
        need_possible([parse_operation(op) for op in (*SHIFTED, kept)])


def test_a_file_that_exchanged_its_contents_is_not_shifted_nor_the_other_way_round() -> None:
    shift = COLLAPSE.replace(" f ", " g ")
    for calls in (["exchange-range f g", shift], [COLLAPSE, "exchange-range g f"]):
        with pytest.raises(UsageError, match="is not followed"):
            need_possible([parse_operation(op) for op in (*SHIFTED, "create g", "append g 1", *calls)])


# --- copy-range ---

COPIED = ("create f", "append f 9000", "create g", "append g 5000", "sync", "copy-range f g 4096 4904")


@pytest.mark.parametrize("contract", [ORDERED, EACH, JOURNAL, WRITEBACK])
def test_a_copy_is_there_once_it_is_synced_and_before_that_in_any_part(contract: Contract) -> None:
    source, copy = file("f", written(1, 0, 9000)), file("g", written(3, 0, 4096), written(1, 4096, 4904))
    old = file("g", written(3, 0, 5000))
    assert judged([*COPIED, "fsync g"], tree(source, copy), contract).verdict is PASS
    assert "durability" in oracles(judged([*COPIED, "fsync g"], tree(source, old), contract))
    for target in (copy, old):
        assert judged(COPIED, tree(source, target), contract, begun=6).verdict is PASS


def test_what_the_source_gets_later_is_not_in_the_copy() -> None:
    operations = [*COPIED, "write f 4096 100", "fsync g"]
    later = file("g", written(3, 0, 4096), written(6, 4096, 100), written(1, 4196, 4804))
    source = file("f", written(1, 0, 4096), written(6, 4096, 100), written(1, 4196, 4804))
    assert oracles(judged(operations, tree(source, later))) == {"stale"}
    need_possible([parse_operation(op) for op in operations])
    for refused in ("copy-range f g 8192 4096", "copy-range f f 0 1"):
        with pytest.raises(UsageError):
            need_possible([parse_operation(op) for op in (*operations, refused)])


# --- touch ---


@pytest.mark.parametrize("promised", [True, False])
def test_times_count_as_a_change_of_the_inode_for_fsync_and_not_for_fdatasync(promised: bool) -> None:
    """An fsync of the file commits what was done before its times were set."""
    operations = ["create f", "sync", "create g", "touch f 5", "fsync f" if promised else "fdatasync f"]
    assert (judged(operations, tree(file("f"))).verdict is PASS) != promised
    assert judged(operations, tree(file("f"), file("g"))).verdict is PASS


# --- fsync through a symbolic link ---


@pytest.mark.parametrize("contract", [ORDERED, EACH])
def test_fsync_of_a_symbolic_link_is_that_of_the_file_it_leads_to(contract: Contract) -> None:
    """The model refused such a workload, so what a program syncs by another name was never asked."""
    operations = ["mkdir d", "create d/f", "append d/f 4096", "symlink d/s f", "fsync d/s"]
    whole = file("d/f", written(2, 0, 4096))
    assert judged(operations, tree(directory("d"), whole), contract).verdict is PASS
    assert oracles(judged(operations, tree(directory("d")), contract)) == {"durability"}
    assert "durability" in oracles(judged(operations, tree(directory("d"), file("d/f")), contract))


def test_a_symbolic_link_that_leads_nowhere_or_up_cannot_be_synced() -> None:
    for target, why in (("g", "g does not exist"), ("../f", "no path below"), ("s", "more than 40")):
        with pytest.raises(UsageError, match=why):
            judged(["create f", f"symlink s {target}", "fsync s"], tree())
