"""What stands beside an application's finding."""

from __future__ import annotations

from dataclasses import replace

from harness.cases.application import (
    ACKNOWLEDGED,
    CALLS,
    CALLS_SHOWN,
    FILES,
    FILES_SHOWN,
    LAST_SHOWN,
    at_once,
    lines,
    notes,
)
from harness.model import (
    Acknowledgement,
    Check,
    Extent,
    ExtentKind,
    FileKind,
    History,
    Operation,
    OperationKind,
    Outcome,
    Position,
    TreeEntry,
    Workload,
)
from harness.writelog.calls import NOT_NOTED, ProgramCall, ProgramCalls
from harness.writelog.times import TimedMark, Times

RUN = Operation(OperationKind.RUN, argv=("/workload/my-db/run",))
APPLICATION = Workload("my-db", "", (RUN,), (Check(0, ("/workload/my-db/check",), ("*",), application=True),))

CALLS_BEFORE = ("fsync(journal) = 0",)


def history(count: int) -> History:
    return History((), tuple(Acknowledgement(0, f"line {i}", 10 * i) for i in range(1, count + 1)))


def entry(path: str, size: int = 0, data: bytes = b"") -> TreeEntry:
    runs = (Extent(ExtentKind.FOREIGN, 0, size, data=data),) if data else ()
    kind = FileKind.FILE if path else FileKind.DIRECTORY
    return TreeEntry(path, kind, 12, 0o644, 1, 0, 0, size, 8, extents=runs)


def test_what_was_acknowledged_and_what_came_back_stand_beside_the_finding() -> None:
    """A check said "line 3 is gone", and nothing told what else had been promised, or what was there."""
    tree = {e.path: e for e in (entry(""), entry("journal", 14, b"line 1\nline 2\n"))}
    found = notes(APPLICATION, history(4), Position(1, 0, 3), Outcome(tree=tree), CALLS_BEFORE)
    assert found[ACKNOWLEDGED].splitlines() == [
        "line 1 (log entry 10)",
        "line 2 (log entry 20)",
        "line 3 (log entry 30)",
        "not yet: line 4 (log entry 40)",
    ]
    assert found[FILES] == r"-rw-r--r-- 1 0 0        14 journal  'line 1\nline 2\n'"


def test_lines_that_a_program_kept_until_its_end_are_told() -> None:
    """A program in C that flushes nothing kept every promise at each of 400 states: it had made none."""
    argv = ("powercut-ack-lines", *RUN.argv)
    by_lines = replace(APPLICATION, operations=(replace(RUN, argv=argv),))
    assert "its 3 lines were acknowledged at once" in at_once(by_lines, [7, 7, 7])
    assert not at_once(by_lines, [7, 8, 8])
    beside = replace(by_lines, operations=(replace(RUN, argv=("powercut-neighbour", *argv)),))
    assert at_once(beside, [7, 7, 7])
    assert not at_once(by_lines, [7])
    assert not at_once(APPLICATION, [7, 7]), "it says itself when something is done"


def test_nothing_is_said_as_such() -> None:
    found = notes(APPLICATION, history(0), Position(1, 0), Outcome(), CALLS_BEFORE)
    assert found == {ACKNOWLEDGED: "nothing", CALLS: "fsync(journal) = 0", FILES: "none"}


def test_many_are_counted() -> None:
    count = LAST_SHOWN + 5
    tree = {f"f{i:04}": entry(f"f{i:04}") for i in range(FILES_SHOWN + 3)}
    found = notes(APPLICATION, history(count), Position(1, 1, count), Outcome(tree=tree), CALLS_BEFORE)
    assert found[ACKNOWLEDGED].splitlines()[0] == "... and 5 before these"
    assert found[ACKNOWLEDGED].splitlines()[-1] == f"line {count} (log entry {10 * count})"
    assert found[FILES].splitlines()[-1] == "... and 3 more"


def test_names_and_texts_of_a_guest_stay_one_line_each() -> None:
    evil = entry("a\n\x1b[31mb", 3, b"\x1b]\n")
    found = notes(
        APPLICATION,
        History((), (Acknowledgement(0, "x", 1),)),
        Position(1, 0, 1),
        Outcome(tree={"a": evil}),
        CALLS_BEFORE,
    )
    assert len(found[FILES].splitlines()) == 1
    assert "\x1b" not in found[FILES]


def test_a_workload_that_the_model_judges_has_its_words_already() -> None:
    assert not notes(Workload("w", "", ()), history(1), Position(0, 0, 1), Outcome(), CALLS_BEFORE)


def test_the_last_calls_before_the_cut_stand_between_the_acknowledgements() -> None:
    """A check said that line 2 was gone, and nothing told whether the program had ever synced it."""
    calls = (
        ProgramCall(7, "write(journal, 7)", 1, 2, 7),
        ProgramCall(7, "fsync(journal)", 3, 4, 0),
        ProgramCall(7, "write(journal, 7)", 6, 7, 7),
        ProgramCall(7, "fsync(journal)", 8, 12, -5),
        ProgramCall(7, "rename(journal, old)", 15),
    )
    times = Times((), (), (TimedMark(2, 5, "app line 1"), TimedMark(9, 13, "ack 0")), 16)
    told = lines(ProgramCalls(calls, 3), times, lambda event: event < 10)
    assert told == [
        "write(journal, 7) = 7",
        "fsync(journal) = 0",
        "acknowledged: line 1",
        "write(journal, 7) = 7",
        "fsync(journal) had not returned",
        "not yet: rename(journal, old)",
        "3 more calls of this recording were not noted",
    ]
    assert "fsync(journal) = EIO" in lines(ProgramCalls(calls, 0), times, lambda event: event < 14)
    assert lines(ProgramCalls((), 0), times, lambda event: False) == ["none", "not yet: acknowledged: line 1"]


def test_many_calls_are_counted_and_none_is_told_apart_from_not_noted() -> None:
    many = tuple(ProgramCall(7, f"write(f{n}, 1)", 2 * n, 2 * n + 1, 1) for n in range(CALLS_SHOWN + 4))
    told = lines(ProgramCalls(many, 0), Times((), (), (), 99), lambda event: True)
    assert (len(told), told[0]) == (CALLS_SHOWN + 1, "... and 4 before these")
    assert lines(NOT_NOTED, Times((), (), (), 0), lambda event: True) == ["not noted"]
    assert lines(NOT_NOTED, None, lambda event: True) == ["not noted: this recording has no times"]
