"""What stands beside an application's finding."""

from __future__ import annotations

from harness.cases.application import ACKNOWLEDGED, FILES, FILES_SHOWN, LAST_SHOWN, notes
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

RUN = Operation(OperationKind.RUN, argv=("/workload/my-db/run",))
APPLICATION = Workload("my-db", "", (RUN,), (Check(0, ("/workload/my-db/check",), ("*",), application=True),))


def history(count: int) -> History:
    return History((), tuple(Acknowledgement(0, f"line {i}", 10 * i) for i in range(1, count + 1)))


def entry(path: str, size: int = 0, data: bytes = b"") -> TreeEntry:
    runs = (Extent(ExtentKind.FOREIGN, 0, size, data=data),) if data else ()
    kind = FileKind.FILE if path else FileKind.DIRECTORY
    return TreeEntry(path, kind, 12, 0o644, 1, 0, 0, size, 8, extents=runs)


def test_what_was_acknowledged_and_what_came_back_stand_beside_the_finding() -> None:
    """A check said "line 3 is gone", and nothing told what else had been promised, or what was there."""
    tree = {e.path: e for e in (entry(""), entry("journal", 14, b"line 1\nline 2\n"))}
    found = notes(APPLICATION, history(4), Position(1, 0, 3), Outcome(tree=tree))
    assert found[ACKNOWLEDGED].splitlines() == [
        "line 1 (log entry 10)",
        "line 2 (log entry 20)",
        "line 3 (log entry 30)",
        "not yet: line 4 (log entry 40)",
    ]
    assert found[FILES] == r"-rw-r--r-- 1 0 0        14 journal  'line 1\nline 2\n'"


def test_nothing_is_said_as_such() -> None:
    found = notes(APPLICATION, history(0), Position(1, 0), Outcome())
    assert found == {ACKNOWLEDGED: "nothing", FILES: "none"}


def test_many_are_counted() -> None:
    count = LAST_SHOWN + 5
    tree = {f"f{i:04}": entry(f"f{i:04}") for i in range(FILES_SHOWN + 3)}
    found = notes(APPLICATION, history(count), Position(1, 1, count), Outcome(tree=tree))
    assert found[ACKNOWLEDGED].splitlines()[0] == "... and 5 before these"
    assert found[ACKNOWLEDGED].splitlines()[-1] == f"line {count} (log entry {10 * count})"
    assert found[FILES].splitlines()[-1] == "... and 3 more"


def test_names_and_texts_of_a_guest_stay_one_line_each() -> None:
    evil = entry("a\n\x1b[31mb", 3, b"\x1b]\n")
    found = notes(
        APPLICATION, History((), (Acknowledgement(0, "x", 1),)), Position(1, 0, 1), Outcome(tree={"a": evil})
    )
    assert len(found[FILES].splitlines()) == 1
    assert "\x1b" not in found[FILES]


def test_a_workload_that_the_model_judges_has_its_words_already() -> None:
    assert not notes(Workload("w", "", ()), history(1), Position(0, 0, 1), Outcome())
