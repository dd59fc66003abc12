"""What the expressions of known bugs see of a workload."""

from __future__ import annotations

import pytest

from harness.known.seen import as_seen


def seen(*ran: str, lost: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The last line, as it is written and as its sync is."""
    written, spelled = as_seen(ran, lost)
    return (written[-1], *spelled[len(written) - 1 :])


@pytest.mark.parametrize(
    ("ran", "line"),
    [
        (("open f @h", "fsync @h"), "fsync f"),
        (("open d/f @h", "rename d e", "append @h 10"), "append e/f 10"),
        (("open d @h", "exchange d e", "fsync @h"), "fsync e"),
        (("open d/f @h", "exchange d e", "fsync @h"), "fsync e/f"),
        (("open f @h", "link f g", "unlink f", "fsync @h"), "fsync g"),
        (("open f @h", "link @h g"), "link f g"),
        (("open-tmpfile d @h", "link @h d/f", "fsync @h"), "fsync d/f"),
        (("link f g", "open g @h", "rename f g", "unlink f", "fsync @h"), "fsync g"),
        (("open . @h", "fsync @h"), "fsync ."),
        (("open f @h", "clone @h g"), "clone f g"),
    ],
)
def test_a_handle_is_its_inodes_name_at_the_time(ran: tuple[str, ...], line: str) -> None:
    assert seen(*ran)[0] == line


@pytest.mark.parametrize(
    "ran",
    [
        ("open f @h", "unlink f", "fsync @h"),
        ("open f @h", "rename g f", "fsync @h"),
        ("open d/f @h", "rename e d", "fsync @h"),
        ("open f @h", "unlink f", "create f", "fsync @h"),
        ("open-tmpfile d @h", "fsync @h"),
        ("open-tmpfile d @h", "link @h d/f"),
        ("open f @h", "close @h", "fsync @h"),
        ("open f @h", "close @h"),
        ("fsync @h",),
        ("run sh -c sync @h dsync",),
        ("unlink sync",),
    ],
)
def test_what_has_no_name_stays_as_it_is_written(ran: tuple[str, ...]) -> None:
    """Some bugs are about what is held open, and has no name."""
    assert seen(*ran) == (ran[-1], ran[-1])


def test_of_several_names_it_is_the_one_that_was_lost() -> None:
    """`fsync g` is fsync of `f`, where both are names of one file; `rename g h` is not `rename f h`."""
    two = ("create f", "link f g")
    assert seen(*two, "fsync g", lost=("f",))[0] == "fsync f"
    assert seen(*two, "open g @h", "fsync @h", lost=("f",))[0] == "fsync f"
    assert seen(*two, "fsync g", lost=("e",))[0] == "fsync g"
    assert seen(*two, "rename g h", lost=("f",))[0] == "rename g h"
    assert seen(*two, "unlink g", "create g", "fsync g", lost=("f",))[0] == "fsync g"


@pytest.mark.parametrize(
    ("line", "spelled"),
    [
        ("append f 10 dsync", ("append f 10", "fdatasync f")),
        ("write f 0 10 direct sync", ("write f 0 10 direct", "fsync f")),
        ("mmap-write f 0 10 sync-range", ("mmap-write f 0 10", "fsync f")),
        ("append @h 10 dsync", ("append @h 10", "fdatasync @h")),
        ("write sync 0 10", ("write sync 0 10",)),
    ],
)
def test_a_flag_that_syncs_is_seen_as_a_sync_as_well(line: str, spelled: tuple[str, ...]) -> None:
    assert seen(line) == (line, *spelled)
