"""Where the shapes of a drawing go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import CaseId, CrashState, Verdict, Violation
from harness.report.timeline import LEFT, RIGHT, WIDTH, Shape, draw
from harness.store.records import DrawnCall, DrawnCalls, DrawnEntry, Finding, How, StateVerdict, Step
from harness.tests.there import there

CASE = CaseId("ext4", "ordered", "w")


def seen(prefix: int, verdict: Verdict = Verdict.PASS, how: How = How.JUDGED) -> StateVerdict:
    return StateVerdict(CrashState(prefix), "", verdict, how, ())


def writes(count: int) -> list[DrawnEntry]:
    return [DrawnEntry(i, "write", i * 8, 8) for i in range(count)]


def test_no_log_no_drawing() -> None:
    assert draw([], [], [], []) is None


@st.composite
def logs(draw_: st.DrawFn) -> list[DrawnEntry]:
    kinds = draw_(
        st.lists(st.sampled_from(["write", "flush", "fua", "flush+fua", "discard", "mark"]), max_size=60)
    )
    repeat = draw_(st.sampled_from([1, 1, 40]))
    sectors = st.integers(0, 1 << 40)
    return [
        DrawnEntry(i, kind, draw_(sectors) if repeat == 1 else i * 8, 0 if kind == "mark" else i % 3 * 8)
        for i, kind in enumerate(kinds * repeat)
    ]


@settings(max_examples=60, deadline=None)
@given(log=logs(), prefixes=st.lists(st.integers(0, 2400), max_size=30))
def test_every_shape_lies_in_the_drawing_however_odd_the_log(
    log: list[DrawnEntry], prefixes: list[int]
) -> None:
    verdicts = [seen(min(p, len(log)), list(Verdict)[p % 3]) for p in prefixes]
    steps = [Step(i, f"fsync f{i}", i, None) for i in range(0, len(log), 7)]
    drawing = draw(log, steps, verdicts, [])
    if not log:
        assert drawing is None
        return
    assert drawing is not None
    everything = (
        drawing.bands
        + drawing.areas
        + drawing.writes
        + drawing.flushes
        + drawing.operations
        + drawing.crash_points
    )
    for shape in everything:
        assert shape.x >= LEFT - 3.1, shape
        assert shape.x + shape.width <= WIDTH - RIGHT + 3.1, shape
        assert shape.y >= 0, shape
        assert shape.y + shape.height <= drawing.height + 0.2, shape
        assert shape.width > 0, shape
        assert shape.height > 0, shape
    assert {e.kind for e in drawing.crash_points} <= {v.verdict.value for v in verdicts}


def test_neighbours_of_one_verdict_become_one_shape() -> None:
    verdicts = [seen(p) for p in range(20)] + [seen(20, Verdict.FAIL)] + [seen(p) for p in range(21, 40)]
    drawing = there(draw(writes(40), [], verdicts, []))
    assert [s.kind for s in drawing.crash_points] == ["pass", "fail", "pass"]
    assert drawing.crash_points[0].title == "crash points @0 to @19: 20 kept"


def test_crash_points_that_were_not_judged_leave_a_gap() -> None:
    drawing = there(draw(writes(40), [], [seen(5), seen(6), seen(30)], []))
    first, second = drawing.crash_points
    assert first.x + first.width < second.x


@pytest.mark.parametrize(
    ("others", "kind"),
    [([Verdict.PASS], "pass"), ([Verdict.UNKNOWN], "unknown"), ([Verdict.UNKNOWN, Verdict.FAIL], "fail")],
)
def test_a_crash_point_has_the_worst_verdict_of_its_states(others: list[Verdict], kind: str) -> None:
    drawing = there(draw(writes(9), [], [seen(3), *(seen(3, v) for v in others)], []))
    assert [s.kind for s in drawing.crash_points] == [kind]


def test_one_failure_among_ten_thousand_states_is_drawn() -> None:
    verdicts = [seen(p, Verdict.FAIL if p == 7321 else Verdict.PASS) for p in range(10_000)]
    drawing = there(draw(writes(10_000), [], verdicts, []))
    assert [s.kind for s in drawing.crash_points] == ["pass", "fail", "pass"]
    (failure,) = (s for s in drawing.crash_points if s.kind == "fail")
    assert "1 broken" in failure.title
    assert failure.width >= 1


def test_long_logs_stay_small_and_lose_no_entry() -> None:
    drawing = there(draw(writes(20_000), [Step(i, "fsync a", i, i + 1) for i in range(0, 20_000, 2)], [], []))
    assert len(drawing.writes) < 1000
    assert len(drawing.operations) < 400
    told = [s.title.split(": ")[1].split(" write")[0].replace(",", "") for s in drawing.writes]
    assert sum(map(int, told)) == 20_000


def test_epochs_end_with_their_flush() -> None:
    log = [
        *writes(4),
        DrawnEntry(4, "flush", 0, 0),
        DrawnEntry(5, "write", 0, 8),
        DrawnEntry(6, "flush+fua", 8, 8),
    ]
    drawing = there(draw(log, [], [], []))
    assert [b.title for b in drawing.bands] == [
        "from one flush to the next: entries 0 to 4",
        "from one flush to the next: entries 5 to 6",
    ]
    assert drawing.description.startswith("Write log: 7 entries; flushes divide them into 2 parts. ")


def test_of_several_devices_each_write_and_flush_says_which_one_it_is_of() -> None:
    devices = DrawnEntry(0, "mark", 0, 0, "devices 254,2+0 254,3+1024")
    entries = [
        devices,
        DrawnEntry(1, "write", 8, 8),
        DrawnEntry(2, "write", 1032, 8),
        DrawnEntry(3, "flush", 1024, 0),
    ]
    drawing = there(draw(entries, [], [], []))
    titles = [shape.title for shape in drawing.writes]
    assert [title.rpartition(", ")[2] for title in titles] == ["first device", "second device"]
    assert [shape.title for shape in drawing.flushes] == ["entry 3: flush (second device)"]


def test_operations_span_their_marks_and_say_so() -> None:
    steps = [Step(0, "write a 0 4096", 0, 3), Step(1, "fsync a", 4, None), Step(2, "unlink a", None, None)]
    drawing = there(draw(writes(10), steps, [], []))
    first, second = drawing.operations
    assert (first.kind, second.kind) == ("operation", "persist")
    assert first.label == "write a 0 4096"
    assert "acknowledged at entry 3" in first.title
    assert "not acknowledged" in second.title
    assert second.x + second.width == pytest.approx(WIDTH - RIGHT - 1)


def test_an_o_sync_write_is_shown_as_asking_for_durability() -> None:
    steps = [
        Step(0, "write a 0 4096 sync", 0, 2),
        Step(1, "append a 4096 dsync", 3, 5),
        Step(2, "write sync 0 1", 6, 7),
    ]
    drawing = there(draw(writes(9), steps, [], []))
    assert [s.kind for s in drawing.operations] == ["persist", "persist", "operation"]


def test_places_far_apart_get_areas_of_their_own() -> None:
    log = [
        DrawnEntry(0, "write", 2, 8),
        DrawnEntry(1, "write", 100_000, 8),
        DrawnEntry(2, "write", 100_008, 8),
    ]
    drawing = there(draw(log, [], [], []))
    assert [a.label for a in drawing.areas] == ["0\u20130.1 MiB", "48.8\u201348.9 MiB"]
    low, high = (a for a in drawing.areas)

    def inside(shape: Shape, area: Shape) -> bool:
        return area.y <= shape.y and shape.y + shape.height <= area.y + area.height + 0.2

    assert [inside(w, low) for w in drawing.writes] == [True, False, False]
    assert [inside(w, high) for w in drawing.writes] == [False, True, True]


def test_findings_mark_their_crash_point() -> None:
    violation = Violation("fsck", "a", "errors", "e", "f", "s")
    finding = Finding(CASE, "fsck", "s", CrashState(5), (violation,), 1)
    drawing = there(draw(writes(10), [], [], [finding, finding]))
    (marker,) = drawing.markers
    assert marker.x == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) / 2, abs=0.1)
    assert (marker.kind, marker.title) == ("fail", "@5 fsck: errors\n@5 fsck: errors")


def test_the_drawing_counts_states_and_places_in_one_sentence() -> None:
    """`cut at 32 places: 7 broken` stood beside `190 states, 64 broken`."""
    broken = [replace(seen(3, Verdict.FAIL), state=CrashState(3, (n,))) for n in (0, 1)]
    drawing = there(draw(writes(5), [], [seen(2), seen(3), *broken, seen(4)], []))
    assert drawing.description.endswith(
        "The power was cut at 3 places in it, in 5 states: some broken at 1, all kept at 2."
    )


def test_acknowledgements_of_an_application_stand_in_its_timeline() -> None:
    """A run of a program was one bar: what it had promised by a crash point was not to be seen."""
    log = [*writes(40), DrawnEntry(40, "mark", 0, 0, "app line 1"), DrawnEntry(41, "mark", 0, 0, "ack 0")]
    drawing = there(draw(log, [Step(0, "run /workload/my-db/run", 0, 41)], [], []))
    (tick,) = drawing.acknowledgements
    assert tick.title == "entry 40: the application acknowledged line 1"
    assert drawing.operations[0].y < tick.y < drawing.areas[0].y
    assert drawing.operations[0].x < tick.x < drawing.right_edge


def test_many_acknowledgements_share_a_tick() -> None:
    log = [DrawnEntry(i, "mark", 0, 0, f"app line {i}") for i in range(5000)]
    drawing = there(draw([*log, *writes(1)], [], [], []))
    assert len(drawing.acknowledgements) <= WIDTH
    assert "acknowledgements of the application, from line 0 to line" in drawing.acknowledgements[0].title


APPLICATION_LOG = [
    DrawnEntry(0, "mark", 0, 0, "begin 0"),
    DrawnEntry(1, "write", 8, 8),
    DrawnEntry(2, "flush", 0, 0),
    DrawnEntry(3, "mark", 0, 0, "app line 1"),
    DrawnEntry(4, "write", 16, 8),
    DrawnEntry(5, "mark", 0, 0, "ack 0"),
]
CALLS = DrawnCalls(
    (
        DrawnCall(1, 1, "openat(new, create)", "= 3"),
        DrawnCall(1, 1, "write(new, 7)", "= 7"),
        DrawnCall(1, 3, "fsync(new)", "= 0"),
        DrawnCall(3, 3, "rename(new, journal)", "= 0"),
        DrawnCall(4, None, "write(journal, 7)", "did not return"),
    ),
    more=2,
)


def test_the_calls_of_an_application_stand_in_a_lane_of_their_own(
    golden: Callable[[str, str], None],
) -> None:
    """That a program renames before it syncs was to be guessed from its blocks."""
    drawing = there(draw(APPLICATION_LOG, [Step(0, "run /workload/my-db/run", 0, 5)], [], [], CALLS))
    shown = {"description": drawing.description, "calls": drawing.calls, "areas": drawing.areas}
    golden("timeline-calls.json", msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n")
    assert all(drawing.acknowledgements[0].y < c.y for c in drawing.calls)
    assert max(c.y + c.height for c in drawing.calls) < drawing.areas[0].y == drawing.areas_y


def test_a_timeline_without_calls_says_why_or_nothing() -> None:
    def said(calls: DrawnCalls | None) -> str:
        drawing = there(draw(APPLICATION_LOG, [], [], [], calls))
        assert not drawing.calls
        return drawing.description

    assert said(DrawnCalls(lacking="no tracefs")).endswith("system calls were not noted: no tracefs.")
    assert said(DrawnCalls()).endswith("made 0 system calls on files of this file system.")
    assert "system call" not in said(None)


@settings(max_examples=60, deadline=None)
@given(
    log=logs(),
    spans=st.lists(st.tuples(st.integers(-9, 2400), st.none() | st.integers(-9, 2400)), max_size=200),
)
def test_every_call_lies_in_the_drawing(log: list[DrawnEntry], spans: list[tuple[int, int | None]]) -> None:
    """A run directory of other people may say anything."""
    calls = [DrawnCall(a, b, f"write(f, {n})", "= 1") for n, (a, b) in enumerate(spans)]
    drawing = draw(log, [], [], [], DrawnCalls(tuple(calls)))
    if drawing is None:
        return
    assert len(drawing.calls) <= WIDTH / 3
    assert bool(drawing.calls) == bool(calls)
    for shape in drawing.calls:
        assert shape.x >= LEFT - 0.1
        assert shape.x + shape.width <= WIDTH - RIGHT + 0.2
