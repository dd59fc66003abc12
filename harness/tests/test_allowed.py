"""The run through every application and mode: which cells come first, and what of a row is explained."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from harness.filesystems.profiles import profiles
from harness.model import CrashState
from harness.rules.calls import STORE
from harness.tests import allowed
from harness.tests.allowed import FIRST, Known, Refused, Row, cells, known_losses, page_of, told
from harness.tests.rules.programs import Calls
from harness.tests.vm.came_back import NO_MOUNT, Back, NotMounted, call_times, made_before, spread
from harness.writelog.calls import ProgramCall, ProgramCalls


def refused(why: str, trees: int = 1) -> Refused:
    return Refused(why, f"{why}, after 3 calls", "@t5", trees)


def row(
    *found: Refused, mode: str = "ext4/ordered", program: str = "git-commit-all", why_not: str = ""
) -> Row:
    return Row(mode, program, 9, 40, True, 30, found, 20, why_not, 1.5)


def test_a_part_of_the_cells_is_a_fair_part() -> None:
    """Each mode once before one has its turn again, and each time with another program."""
    modes = [*FIRST[:3], "x/one", "x/two"]
    listed = cells(modes, ["a", "b", "postgresql-server"])
    assert sorted(listed) == sorted((m, p) for m in modes for p in ("a", "b", "postgresql-server"))
    assert listed[:3] == [(FIRST[0], "a"), (FIRST[1], "b"), (FIRST[2], "a")]
    assert {mode for mode, _ in listed[:6]} == set(FIRST[:3])
    assert [mode for mode, program in listed if program == "postgresql-server"] == modes
    assert all(program == "postgresql-server" for _, program in listed[-5:])


def test_what_is_known_of_a_mode_explains_it_and_no_other() -> None:
    known = [Known("ext2/.*", ".*neither zeros nor from a call", "old contents")]
    stale = refused("f: its bytes N to N are neither zeros nor from a call")
    assert allowed.unknown(row(stale, mode="ext2/default"), known) == []
    assert allowed.unknown(row(stale, mode="ext4/ordered"), known) == [stale]
    lost = refused("f is not what the call N, create(f), made (durable by fsync)")
    assert allowed.unknown(row(stale, lost, mode="ext2/default"), known) == [lost]


def test_where_a_name_may_be_of_several_files_one_explanation_is_enough() -> None:
    known = [Known("ext2/.*", ".*neither zeros nor from a call", "old contents")]
    either = refused("f: it has N bytes; or its bytes N to N are neither zeros nor from a call")
    assert allowed.unknown(row(either, mode="ext2/default"), known) == []


def test_each_line_of_what_is_known_is_of_a_mode_that_there_is() -> None:
    for one in known_losses():
        assert any(
            msgspec.structs.replace(one, why=".*", programs=".*").names(row(mode=m), "x") for m in profiles()
        )


@pytest.mark.parametrize(
    "mode", ["ext4/ordered", "xfs/default", "btrfs/default", "nilfs2/default", "ext3/ordered"]
)
def test_nothing_is_known_of_a_mode_that_keeps_what_it_promises(mode: str) -> None:
    """A line that is too wide would explain what nobody has looked at."""
    for why in (
        NO_MOUNT,
        NotMounted("EUCLEAN", ("JBD2: corrupted journal superblock",)).why,
        "f: its bytes N to N are neither zeros nor from a call",
        "f is not what the call N, create(f), made (durable by fsync)",
    ):
        assert allowed.unknown(row(refused(why), mode=mode), known_losses())


def test_refusals_that_differ_in_numbers_are_one() -> None:
    backs = [Back(CrashState(n), frozenset(), n, n) for n in range(4)]
    not_mounted = [NotMounted("EIO", (f"EXT4-fs error, block {n}",)).why for n in range(2)]
    whys = ["f: its bytes 0 to 9 differ", "f: its bytes 4 to 7 differ", *not_mounted]
    found = told(zip(backs, whys, strict=True))
    kernel_said = f"{NO_MOUNT}: EIO: EXTN-fs error, block N"
    assert [(r.why, r.trees) for r in found] == [("f: its bytes N to N differ", 2), (kernel_said, 2)]
    assert (found[0].example, found[0].state) == (
        "f: its bytes 0 to 9 differ, after 0 calls",
        str(CrashState(0)),
    )


def test_a_mount_that_fails_for_another_reason_is_not_known() -> None:
    """The line of the kernel is a part of what is known."""
    full = NotMounted("EUCLEAN", ("JBD2: corrupted journal superblock",)).why
    other = NotMounted("EUCLEAN", ("EXT4-fs (ubda): group descriptors corrupted!",)).why
    for why, new in ((full, False), (other, True), (NO_MOUNT, True)):
        (found,) = told([(Back(CrashState(1), frozenset(), 1, 1), why)])
        assert bool(allowed.unknown(row(found, mode="ext4/fast_commit"), known_losses())) == new


def test_a_page_has_each_cell_and_says_which_are_missing() -> None:
    stale = refused("f: its bytes N to N are neither zeros nor from a call", 4)
    rows = [row(), row(stale, mode="ext2/default"), row(mode="jfs/default", why_not="it made io_uring calls")]
    wanted = [*((r.mode, r.program) for r in rows), ("xfs/default", "git-commit-all")]
    page = page_of(rows, wanted, ["ntfs/default"])
    assert "4 known" in page
    assert "not judged" in page
    assert "it made io_uring calls" in page
    assert "not run: 1 cells" in page
    assert "`xfs/default`: no application was run" in page
    assert "this kernel lacks `ntfs/default`" in page


def test_cells_with_one_reason_are_one_item() -> None:
    whys = ("no space after 17 blocks", "no space after 4 blocks", "no time")
    rows = [
        msgspec.structs.replace(row(mode=f"ext{n}/x", why_not=why), trees=0) for n, why in enumerate(whys)
    ]
    page = page_of(rows, [(r.mode, r.program) for r in rows], [])
    assert "in `ext0/x`, `ext1/x`: no space after 17 blocks" in page
    assert page.count("not judged: ") == 2


def test_the_first_of_any_number_of_times_are_spread_over_all() -> None:
    for length in range(40):
        order = spread(range(length))
        assert sorted(order) == list(range(length))
        for count in range(1, length + 1):
            cuts = sorted(order[:count])
            assert max(b - a for a, b in pairwise([*cuts, length])) <= 4 * length // count


# --- when calls were made ---------------------------------------------------------------------


class Recording:
    """Two calls, the first from event 3 to 5, the second from 8 to 11."""

    calls = ProgramCalls((ProgramCall(7, "write(f, 1 at 0)", 3, 5, 1), ProgramCall(7, "fsync(f)", 8, 11)), 0)


def test_a_sync_counts_once_it_has_returned_and_a_store_from_the_call_before_it_on() -> None:
    made = Calls().create("f").write("f", b"a").write("f", b"b", 9).fsync("f").notes().calls[1:]
    calls = (made[0], replace(made[1], text=STORE), replace(made[2], number=1))
    notes = replace(Calls().notes([]), calls=calls)
    times = call_times(notes, Recording())  # type: ignore[arg-type]  # what it looks at
    assert times == [(3, 5), (3, 3), (8, 11)]
    at = [made_before(times, range(cut).__contains__) for cut in (3, 4, 6, 9, 12)]
    assert at == [(0, 0), (0, 2), (2, 2), (2, 3), (3, 3)]


def test_calls_that_are_not_those_of_the_recording_are_refused() -> None:
    calls = Calls().create("f").write("f", b"a").notes().calls[1:]
    notes = replace(Calls().notes([]), calls=(replace(calls[0], number=1),))
    with pytest.raises(AssertionError):
        call_times(notes, Recording())  # type: ignore[arg-type]  # what it looks at


def test_a_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"

    class Trial:
        def row(self, mode: str, program: str) -> Row:
            return msgspec.structs.replace(row(mode=mode), program=program)

    wanted = [("a/b", "one"), ("a/b", "two"), ("c/d", "one")]
    never = float("inf")
    assert len(list(allowed.rows(Trial(), wanted[:2], kept, never))) == 2  # type: ignore[arg-type]  # it makes rows
    assert [r.mode for r in allowed.rows(Trial(), wanted, kept, never)] == ["c/d"]  # type: ignore[arg-type]  # it makes rows
    assert len(allowed.known_rows(kept)) == 3
    assert not list(allowed.rows(Trial(), [("e/f", "one")], kept, 0.0))  # type: ignore[arg-type]  # it makes rows
