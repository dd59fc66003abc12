"""A file's contents over time, compared with the simplest model of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.oracles.timeline import ENDLESS, ZERO, EventKind, FileEvent, FileHistory, fresh_parts

SIZE = 40


@st.composite
def events(draw: st.DrawFn) -> list[FileEvent]:
    made = []
    for index in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from([EventKind.WRITE, EventKind.WRITE, EventKind.ZERO, EventKind.SIZE]))
        start = draw(st.integers(0, SIZE - 1))
        end = draw(st.integers(start + 1, SIZE))
        if kind is EventKind.SIZE:
            start = end = 0
        elif kind is EventKind.ZERO and draw(st.booleans()):
            end = ENDLESS
        made.append(FileEvent(2 * index, kind, start, end, SIZE, SIZE))
    return made


@given(events(), st.data())
def test_contents_are_the_last_writers(made: list[FileEvent], data: st.DataObject) -> None:
    file = FileHistory(0, "f", made)
    for count in data.draw(st.permutations(range(len(made) + 1))):
        plain = [ZERO] * SIZE
        for e in made[:count]:
            end = min(e.end, SIZE)
            plain[e.start : end] = [e.index if e.kind is EventKind.WRITE else ZERO] * (end - e.start)
        content = file.content(count)
        bounds = [at for start, end, _ in content for at in (start, end)]
        assert bounds == sorted(bounds)
        assert all(start < end for start, end, _ in content)
        told = [ZERO] * SIZE
        for start, end, origin in content:
            told[start:end] = [origin] * (end - start)
        assert told == plain


@given(events())
def test_what_an_operation_wrote_is_known_by_its_number(made: list[FileEvent]) -> None:
    file = FileHistory(0, "f", made)
    written = {e.index for e in made if e.kind is EventKind.WRITE}
    assert {i for i in range(2 * len(made) + 2) if file.writes(i)} == written
    assert [file.before(i) for i in range(2 * len(made) + 1)] == [
        sum(1 for e in made if e.index < i) for i in range(2 * len(made) + 1)
    ]


def test_a_persistence_point_counts_from_its_return_on() -> None:
    file = FileHistory(0, "f", persists=[(2, 1), (5, 3)])
    assert [file.durable(acked) for acked in range(8)] == [(-1, 0)] * 3 + [(2, 1)] * 3 + [(5, 3)] * 2


def test_the_new_blocks_of_a_write_are_joined_where_they_touch() -> None:
    assert fresh_parts(100, 20000, [0, 1, 3]) == ((100, 8192), (12288, 16384))
    assert fresh_parts(100, 5000, []) == ()
