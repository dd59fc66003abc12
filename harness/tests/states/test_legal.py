"""Legal crash states by times: held against the plain reference."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.model import CrashState, Position
from harness.states.legal import LegalStates, Moment
from harness.states.reference import all_cuts, most
from harness.tests.states.recorder import Recorder, recorders


def seen_of(legal: LegalStates, at: int, lost: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """What each block shows: the last chunk that landed on it."""
    shown = {}
    writes = {w.entry: w for w in legal._times.writes}
    for number, chunk in enumerate(legal.chunks):
        if writes[chunk.entry].submitted < at and number not in lost:
            shown[chunk.sector] = number
    return tuple(sorted(shown.items()))


def subsets(moment: Moment) -> list[frozenset[int]]:
    found: list[frozenset[int]] = [frozenset(moment.choices.absent)]
    for number in moment.choices.volatile:
        found += [s | {number} for s in found]
    return found


@given(recorders(doubt=True) | recorders())
def test_the_moments_show_all_that_any_event_can_and_nothing_else(made: Recorder) -> None:
    """Contents, each with the strongest promise: whatever a cut at any event leaves is a state of a moment
    at which as many operations had begun and at least as many were acknowledged. And each state of a moment
    is legal.
    """
    legal = made.legal()
    told: dict[object, set[Position]] = defaultdict(set)
    for moment in legal.moments:
        for lost in subsets(moment):
            told[seen_of(legal, moment.at, lost)].add(moment.position)
    rule: dict[object, set[Position]] = defaultdict(set)
    for cut in all_cuts(legal, made.times):
        rule[seen_of(legal, cut.at, cut.lost)].add(legal._position(cut.at))
    assert set(told) == set(rule)
    for contents, positions in told.items():
        assert positions <= rule[contents]
        for weaker in rule[contents]:
            assert any(p.begun == weaker.begun and p.acked >= weaker.acked for p in positions)


@given(recorders(doubt=True))
def test_what_is_legal_by_one_reading_only_is_at_a_moment_that_is_marked(made: Recorder) -> None:
    """Each state of a moment is legal by both readings of the events; whatever only the other one allows is
    at a time that ends with an ambiguous moment, under a promise that is no weaker there.
    """
    legal, times = made.legal(), made.times
    least = {(c.at, c.lost) for c in all_cuts(legal, times)}
    other = {(c.at, c.lost) for c in all_cuts(legal, most(times))}
    assert least <= other
    ambiguous = [m for m in legal.moments if m.ambiguous]
    assert legal.ambiguous == len(ambiguous)
    assert bool(ambiguous) == (least != other)
    for at, _ in other - least:
        weaker = legal._position(at)
        assert any(
            m.at >= at and m.position.begun == weaker.begun and m.position.acked >= weaker.acked
            for m in ambiguous
        )
    for moment in legal.moments:
        for lost in subsets(moment):
            assert (moment.at, lost) in least


def two_flushes(*, doubt: bool) -> Recorder:
    """A write between the submissions of two flushes, of which the first completes first."""
    made = Recorder(doubt=doubt)
    made.mark("begin 0")
    first = made.flush()
    made.write(10)
    second = made.flush()
    made.complete(first)
    made.mark("ack 0")
    made.complete(second)
    return made


def test_a_write_that_only_the_second_of_two_flushes_covers_is_lost_until_that_one_completes() -> None:
    """It counted as durable one completion early, and its loss after the acknowledgement was no state."""
    legal = two_flushes(doubt=False).legal()
    assert {str(legal.name(m, lost)) for m in legal.moments for lost in subsets(m)} >= {"@t3", "@t3="}
    assert legal.ambiguous == 0
    assert legal.position(CrashState.parse("@t3=")) == Position(begun=1, acked=1)


def test_where_nothing_tells_which_flush_completed_the_moment_is_marked_and_its_doubtful_state_no_red() -> (
    None
):
    """The write may be durable or not when the second flush completes: its loss is not judged, and not
    called impossible in silence either.
    """
    legal = two_flushes(doubt=True).legal()
    assert [(m.entry, m.ambiguous, m.choices.volatile) for m in legal.moments] == [
        (0, False, ()),
        (1, False, (0,)),
        (3, True, ()),
        (5, False, ()),
    ]
    assert legal.ambiguous == 1
    with pytest.raises(UsageError, match="not a write that a cache could lose then"):
        legal.on_disk(CrashState.parse("@t3-2"))


@given(recorders(), st.data(), st.sampled_from([1, 8]))
def test_a_states_name_rebuilds_it(made: Recorder, data: st.DataObject, unit: int) -> None:
    legal = made.legal(unit)
    moment = data.draw(st.sampled_from(legal.moments))
    lost = {n for n in moment.choices.volatile if data.draw(st.booleans())} | set(moment.choices.absent)
    state = legal.name(moment, lost)
    assert CrashState.parse(str(state)) == state
    assert legal.on_disk(state) == CrashState(moment.choices.prefix, tuple(sorted(lost)))
    assert legal.position(state) == moment.position


@given(recorders(), st.data())
def test_a_state_that_no_honest_disk_can_be_in_is_refused(made: Recorder, data: st.DataObject) -> None:
    """Whatever subset is asked for, it is refused exactly where the reference has no such cut."""
    legal = made.legal()
    moment = data.draw(st.sampled_from(legal.moments))
    free = [n for t in legal._volatile(moment.at) for n in t.chunks]
    lost = frozenset(n for n in free if data.draw(st.booleans()))
    state = legal.name(moment, lost)
    if any(c.at == moment.at and c.lost == lost for c in all_cuts(legal, made.times)):
        assert set(legal.on_disk(state).dropped) == lost
    else:
        with pytest.raises(UsageError, match="flushes the cache"):
            legal.on_disk(state)


def journal() -> Recorder:
    """A journal record and the block that it protects, in flight together: nobody waited."""
    made = Recorder()
    made.mark("begin 0")
    record, place = made.submit(10), made.submit(20)
    made.complete(record)
    made.complete(place)
    made.complete(made.flush())
    made.mark("ack 0")
    return made


def test_a_block_in_place_may_land_without_the_record_in_front_of_it() -> None:
    """What no prefix of the log shows."""
    legal = journal().legal()
    names = {str(legal.name(m, lost)) for m in legal.moments for lost in subsets(m)}
    assert "@t3-1" in names  # the flush, entry 3, is about to complete; the record, entry 1, is lost
    assert {"@t3", "@t3-2", "@t3="} <= names


def test_data_of_a_flushing_write_never_lands_ahead_of_what_it_flushes() -> None:
    made = Recorder()
    block = made.write(10)
    commit = made.submit(20, fua=True, preflush=True)
    legal = made.legal()
    before = [m for m in legal.moments if m.entry == commit]
    assert [(m.stage, m.choices.absent, m.choices.volatile) for m in before] == [
        (0, (1,), (0,)),
        (1, (), (1,)),
    ]
    with pytest.raises(UsageError, match=f"entry {block} cannot be lost"):
        legal.on_disk(CrashState.parse(f"@t{commit}-{block}"))


def test_half_of_a_write_ahead_of_a_flush_cannot_be_lost_either() -> None:
    made = Recorder()
    wide = made.submit(10, 2)
    made.complete(wide)
    commit = made.submit(20, fua=True, preflush=True)
    with pytest.raises(UsageError, match=f"entry {wide} cannot be lost"):
        made.legal().on_disk(CrashState.parse(f"@t{commit}-{wide}.1"))


@pytest.mark.parametrize("text", ["@t9", "@t3-9", "@t3-1.1", "@t3-1/0", "@3", "@t0-1"])
def test_names_of_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="@"):
        journal().legal().on_disk(CrashState.parse(text))


@pytest.mark.parametrize("text", ["@t", "@t1-", "@t1-2.", "@t1=2,", "@t1-2-3", "@t1/t3", "@t1-2/t3"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form"):
        CrashState.parse(text)
