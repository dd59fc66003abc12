"""What a workload becomes when removing operations does no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.filesystems.profiles import select_profiles
from harness.findings.simplify import Operations, canonical, minimal
from harness.symptoms import paths_of
from harness.workloads.generate import generate
from harness.workloads.load import parse_operation

(FAST_COMMIT,) = select_profiles(["ext4/fast_commit"])


def operations(*lines: str) -> Operations:
    return tuple(map(parse_operation, lines))


def text(ops: Operations) -> list[str]:
    return [str(op) for op in ops]


def shrunk(lines: list[str], holds: Callable[[list[str]], bool]) -> list[str]:
    found = minimal(FAST_COMMIT.contract, operations(*lines), lambda ops: holds(text(ops)))
    assert holds(text(found))
    return text(found)


def named_file_is_synced(ops: list[str]) -> bool:
    """A planted fault: a file is made without a name, and synced; or another one that has changed is."""
    changed: set[str] = set()
    for op in ops:
        kind, path = [*op.split(), ""][:2]
        if kind in ("fsync", "fdatasync") and path in changed:
            return True
        if changed or kind == "tmpfile":
            changed.add(path)
    return False


@pytest.mark.parametrize("seed", [1, 4, 12, 14, 15])
def test_one_fault_met_by_many_ways_ends_in_one_workload(seed: int) -> None:
    """Without simplification these five ended in five workloads, which nothing could compare."""
    whole = text(generate(f"random1-{seed}-20").operations)
    assert named_file_is_synced(whole)
    assert shrunk(whole, named_file_is_synced) == ["tmpfile foo 0", "fsync foo"]


def test_a_file_that_only_carries_the_sync_goes() -> None:
    """`fsync foo` needed foo, and a change to it; so the fault seemed to need a truncate as well."""
    lines = ["create foo", "tmpfile bar 0", "truncate foo 0", "fsync foo"]
    assert shrunk(lines, named_file_is_synced) == ["tmpfile foo 0", "fsync foo"]


def test_what_a_fault_needs_stays() -> None:
    def sparse(ops: list[str]) -> bool:
        return any(op.startswith("write") and int(op.split()[2]) > 9000 for op in ops)

    lines = ["mkdir A", "create A/bar", "append A/bar 5000", "write A/bar 10000 77 direct", "fdatasync A/bar"]
    assert shrunk(lines, sparse) == ["create foo", "write foo 10000 4096"]


def test_every_candidate_can_be_carried_out() -> None:
    def holds(ops: list[str]) -> bool:
        minimal(FAST_COMMIT.contract, operations(*ops), lambda _: False)
        return "rename" in " ".join(ops)

    left = shrunk(["mkdir A", "create A/foo", "mkdir B", "rename A/foo B/foo", "fsync B"], holds)
    assert left == ["create foo", "rename foo bar"]


def test_names_follow_the_order_of_appearance() -> None:
    assert text(canonical(operations("mkdir B", "create B/bar", "link B/bar x", "fsync ."))) == [
        "mkdir A",
        "create A/foo",
        "link A/foo bar",
        "fsync .",
    ]


def test_a_name_in_a_directory_that_moves_keeps_it() -> None:
    moved = operations("mkdir x", "create x/f", "rename x y", "append y/f 1")
    assert text(canonical(moved)) == ["mkdir A", "create A/foo", "rename A B", "append B/foo 1"]


def test_a_symlinks_contents_are_no_path() -> None:
    assert paths_of(operations("symlink a elsewhere/far")) == ("a",)
