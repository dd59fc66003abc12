"""Legal crash states by times: held against the plain reference."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.recording import Recording, by_times
from harness.errors import UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.model import CaseId, CrashState, History, Position, Workload
from harness.states.legal import CrashTime, LegalStates, Unclear
from harness.tests.reference.__main__ import on_one_device
from harness.tests.states.recorder import Recorder, recorders
from harness.tests.states.reference import all_cuts
from harness.writelog import WriteLog

Shown: TypeAlias = tuple[tuple[int, int], ...]


def seen_of(legal: LegalStates, at: int, lost: frozenset[int]) -> Shown:
    """What each block shows: the entry of the last chunk that persisted on it."""
    shown = {}
    writes = {w.entry: w for w in legal._times.writes}
    for number, chunk in enumerate(legal.chunks):
        if writes[chunk.entry].submitted < at and number not in lost:
            shown[chunk.sector] = chunk.entry
    return tuple(sorted(shown.items()))


def subsets(crash_time: CrashTime) -> list[frozenset[int]]:
    found: list[frozenset[int]] = [frozenset(crash_time.choices.absent)]
    for number in crash_time.choices.volatile:
        found += [s | {number} for s in found]
    return found


def told_by(legal: LegalStates) -> dict[Shown, set[Position]]:
    """What the states of the crash times show, with their positions."""
    told: dict[Shown, set[Position]] = defaultdict(set)
    for crash_time in legal.crash_times:
        for lost in subsets(crash_time):
            told[seen_of(legal, crash_time.at, lost)].add(legal.position_at(crash_time.at))
    return told


def ruled_by(legal: LegalStates) -> dict[Shown, set[Position]]:
    """What the reference says may be shown, and where."""
    rule: dict[Shown, set[Position]] = defaultdict(set)
    for cut in all_cuts(legal, legal._times):
        rule[seen_of(legal, cut.at, cut.lost)].add(legal.position_at(cut.at))
    return rule


@given(recorders(ambiguous=True) | recorders())
def test_the_moments_show_all_that_any_event_can_and_nothing_else(made: Recorder) -> None:
    """Contents, each with the strongest promise: whatever a cut at any event leaves is a state of a crash
    time at which as many operations had begun and at least as many were acknowledged. And each state of a
    crash time is legal.
    """
    need_all_and_no_other(made)


@given(recorders(devices=2) | recorders(ambiguous=True, devices=2))
def test_the_crash_times_of_two_devices_show_all_that_any_event_can_and_nothing_else(made: Recorder) -> None:
    need_all_and_no_other(made)


def need_all_and_no_other(made: Recorder) -> None:
    legal = made.legal()
    told, rule = told_by(legal), ruled_by(legal)
    assert set(told) == set(rule)
    for contents, positions in told.items():
        assert positions <= rule[contents]
        for weaker in rule[contents]:
            assert any(p.begun == weaker.begun and p.acked >= weaker.acked for p in positions)


@given(recorders(ambiguous=True) | recorders(ambiguous=True, devices=2))
def test_what_the_events_leave_open_makes_no_false_alarm_and_is_marked(made: Recorder) -> None:
    """Each state of a crash time is legal by what really happened; and what happened that no crash time shows
    is at a time that ends with an ambiguous crash time, under a promise that is no weaker there.
    """
    real, legal = made.legal(real=True), made.legal()
    rule, told = ruled_by(real), told_by(legal)
    ambiguous = [legal.position_at(m.at) for m in legal.crash_times if m.ambiguous]
    assert legal.ambiguous == len(ambiguous)
    for shown, positions in told.items():
        assert positions <= rule[shown]
    for shown, positions in rule.items():
        for weaker in positions:
            looked_at = [*told[shown], *ambiguous]
            assert any(p.begun == weaker.begun and p.acked >= weaker.acked for p in looked_at)


def test_a_flush_of_one_device_leaves_what_the_other_one_holds_to_be_lost() -> None:
    """The data of a file lay in one cache, and the flush of the other was taken to have made it durable."""
    made = Recorder(second=4)
    data = made.write(0)
    made.write(4, fua=True, preflush=True)
    made.complete(made.flush(1))
    made.mark("ack 0")
    made.complete(made.flush(0))
    legal = made.legal()
    acked = next(m for m in legal.crash_times if legal.position_at(m.at).acked)
    assert acked.choices.volatile == (0,)
    assert legal.on_disk(CrashState.parse(f"@t{acked.entry}-{data}")) == CrashState(2, (0,))
    with pytest.raises(UsageError, match="entry 1 is not a write that a cache could lose then"):
        legal.on_disk(CrashState.parse(f"@t{acked.entry}-1"))
    assert made.legal().crash_times[-1].choices.volatile == ()


def test_a_flush_of_any_device_is_one_of_all_where_they_share_a_cache() -> None:
    """So what only two caches show is missed with one: how the planted faults of two devices are held."""
    made = Recorder(second=4)
    made.write(0)
    made.complete(made.flush(1))
    made.mark("begin 0")
    two = made.legal().crash_times[-1]
    log = WriteLog(Path("log"), 512, tuple(made.entries), 0)
    one = LegalStates(log, on_one_device(made.times)).crash_times[-1]
    assert (two.choices.volatile, one.choices.volatile) == ((0,), ())


def test_what_no_device_was_sent_is_missing_with_one_cache_as_with_two() -> None:
    """Why `thin-overwrite-ignores-fua` shows with one cache, too: the write with FUA is durable and has been
    acknowledged, and the mapping that leads to it is in memory until a commit, and so on no device.
    """
    made = Recorder(second=4)
    data = made.write(0, fua=True)
    made.mark("ack 0")
    made.write(4)
    made.complete(made.flush(1))
    log = WriteLog(Path("log"), 512, tuple(made.entries), 0)
    for times in (made.times, on_one_device(made.times)):
        legal = LegalStates(log, times)
        acked = next(m for m in legal.crash_times if legal.position_at(m.at).acked)
        assert ((0, data),) in [seen_of(legal, acked.at, lost) for lost in subsets(acked)]


def test_data_that_waits_for_a_flush_on_each_device_waits_for_its_own() -> None:
    made = Recorder(second=4)
    made.write(0)
    made.write(4)
    first, second = made.submit(1, preflush=True), made.submit(5, preflush=True)
    made.complete(first)
    made.complete(second)
    legal = made.legal()
    phases = [(m.choices.absent, m.choices.volatile) for m in legal.crash_times if m.at == 6]
    assert phases == [((2, 3), (0, 1)), ((2,), (0, 3)), ((3,), (1, 2)), ((), (2, 3))]
    assert legal.on_disk(CrashState.parse("@t2-0,2")) == CrashState(4, (0, 2))
    with pytest.raises(
        UsageError, match="entry 3 flushes the cache before its own data is written, so entry 1"
    ):
        legal.on_disk(CrashState.parse("@t2-1,2"))


def test_what_waits_for_flushes_of_two_devices_is_named_in_one_order() -> None:
    """The disk refuses a state whose lost entries do not ascend."""
    made = Recorder(second=4)
    waiting = [made.submit(block, preflush=True) for block in (5, 1, 6)]
    made.mark("begin 0")
    for entry in waiting:
        made.complete(entry)
    choices = [crash_time.choices for crash_time in made.legal().crash_times]
    assert (0, 1, 2) in [of.absent for of in choices]
    assert all(list(numbers) == sorted(numbers) for of in choices for numbers in (of.absent, of.volatile))


def together(*, fua: bool = False) -> Recorder:
    """Two writes to one block, of which the second is submitted before the first completes; then a flush."""
    made = Recorder()
    first, second = made.submit(10), made.submit(10, fua=fua)
    made.complete(second)
    made.mark("begin 0")
    made.complete(first)
    made.complete(made.flush())
    made.mark("ack 0")
    return made


def shown_at(legal: LegalStates, crash_time: CrashTime) -> set[Shown]:
    return {seen_of(legal, crash_time.at, lost) for lost in subsets(crash_time)}


def test_of_two_writes_in_flight_together_either_is_last_even_once_both_are_durable() -> None:
    """Only the second was: the states that a device leaves which applied them the other way were none."""
    legal = together().legal()
    end = legal.crash_times[-1]
    assert shown_at(legal, end) == {((80, 0),), ((80, 1),)}
    assert [str(legal.name(end, lost)) for lost in subsets(end)] == ["@t5", "@t5-1"]
    assert legal.on_disk(CrashState.parse("@t5-1")) == CrashState(2, (1,))
    assert legal.ambiguous == 0


def test_a_volatile_write_in_flight_with_a_durable_one_may_be_last_and_nothing_older_shows() -> None:
    legal = together(fua=True).legal()
    (crash_time,) = (m for m in legal.crash_times if m.entry == 2)
    assert shown_at(legal, crash_time) == {((80, 0),), ((80, 1),)}
    with pytest.raises(UsageError, match="entry 1 is durable, and nothing that is left was in flight"):
        legal.on_disk(CrashState.parse("@t2-0,1"))


def test_a_later_write_that_is_durable_ends_the_choice_of_order() -> None:
    made = together()
    made.write(10)
    made.complete(made.flush())
    made.mark("begin 1")
    legal = made.legal()
    assert shown_at(legal, legal.crash_times[-1]) == {((80, 5),)}
    with pytest.raises(UsageError, match="entry 1 is not a write that a cache could lose then"):
        legal.on_disk(CrashState.parse("@t8-1"))


def test_a_write_that_had_completed_is_never_on_top_of_a_later_one() -> None:
    made = Recorder()
    made.write(10)
    made.write(10)
    made.complete(made.flush())
    legal = made.legal()
    assert shown_at(legal, legal.crash_times[-1]) == {((80, 1),)}
    with pytest.raises(UsageError, match="entry 1 is not a write"):
        legal.on_disk(CrashState.parse("@t3-1"))


def test_what_comes_later_takes_no_order_of_earlier_writes_away() -> None:
    """Where two writes of the last second shared part of a block, either order of two whole ones before them
    was left out at all crash times, and no mark said so.
    """

    def recorded(sectors: int) -> LegalStates:
        made = together()
        made.mark("begin 1")
        half, whole = made.submit_sectors(80, sectors), made.submit(10)
        made.complete(half)
        made.complete(whole)
        return made.legal()

    early, late = recorded(8).crash_times[:3], recorded(4).crash_times[:3]
    assert late == early
    assert late[2].choices.volatile == (1,)
    assert not any(m.unclear for m in late)
    assert recorded(4).crash_times[-1].unclear == (Unclear.SECTORS,)


def test_what_the_last_operation_left_in_memory_is_missing_where_no_write_is_lost() -> None:
    """What the unmount sent had to be lost: a promise that the file system breaks by sending nothing had the
    looks of a missing flush, and its bug was new.
    """
    made = Recorder()
    made.mark("begin 0")
    sent = made.submit(10)
    made.complete(sent)
    made.mark("ack 0")
    made.mark("end")
    late = made.submit(20)
    made.complete(late)
    made.complete(made.flush())
    legal = made.legal()
    ended = next(m for m in legal.crash_times if m.choices.volatile == (0,))
    state = legal.name(ended, ())
    assert state.is_whole
    assert [entry for _, entry in seen_of(legal, ended.at, frozenset())] == [legal.chunks[0].entry]
    assert legal.position(state).acked == 1


def test_parts_of_a_block_in_flight_together_are_marked_by_blocks_and_all_told_by_sectors() -> None:
    """Sectors 80 to 83 and 82 to 85: no set of blocks shows the first on top of the second."""
    made = Recorder()
    first, second = made.submit_sectors(80, 4), made.submit_sectors(82, 4)
    made.complete(first)
    made.complete(second)
    made.complete(made.flush())
    made.mark("end")
    assert {m.unclear for m in made.legal().crash_times} == {(Unclear.SECTORS,)}
    by_sectors = made.legal(unit_sectors=1)
    end = by_sectors.crash_times[-1]
    assert by_sectors.ambiguous == 0
    assert {dict(shown)[82] for shown in shown_at(by_sectors, end)} == {first, second}
    assert all({80: 0, 81: 0, 84: 1, 85: 1}.items() <= dict(s).items() for s in shown_at(by_sectors, end))


@pytest.mark.parametrize(("disk", "unit"), [("@4k", 8), ("@512e", 8), ("@writethrough", 1), ("", 1)])
@given(places=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=6))
def test_no_legal_state_tears_a_physical_sector(disk: str, unit: int, places: list[tuple[int, int]]) -> None:
    """A sector had 512 bytes, whatever the disk: with `--states sectors` a block of 4 KiB was torn that the
    disk writes as a whole.
    """
    made, here = Recorder(), Path("here")
    for sector, sectors in places:
        made.complete(made.submit_sectors(sector, sectors))
    profile, log = profile_on(disk), WriteLog(here, 512, tuple(made.entries), 0)
    case, workload = CaseId("ext4", profile.mode, "writes"), Workload("writes", "", ())
    recorded = Recording(case, profile, workload, here, here, log, History(()), times=made.times)
    legal = by_times(recorded, unit_sectors=1)[0].legal
    assert legal is not None
    assert all(c.sector // unit == (c.sector + c.sectors - 1) // unit for c in legal.chunks)
    assert sum(c.sectors for c in legal.chunks) == sum(sectors for _, sectors in places)
    assert unit > 1 or {c.sectors for c in legal.chunks} == {1}


@functools.cache
def profile_on(disk: str) -> Profile:
    (profile,) = select_profiles([f"ext4/ordered{disk}"])
    return profile


def test_crash_times_share_the_numbers_of_their_chunks() -> None:
    """Each made its own: 755 MB and 26 s for 3,000 operations without a flush."""
    made = Recorder()
    for block in range(400):
        made.write(block)
    for operation in range(3):
        made.mark(f"begin {operation}")
    first, *others = [m.choices.volatile for m in made.legal().crash_times]
    assert len(first) == 400
    assert all(mine is theirs for other in others for mine, theirs in zip(first, other, strict=True))


def test_without_flushes_no_crash_time_looks_at_each_write_before_it() -> None:
    """The crash times of 4,000 operations without a flush took 4 s, and four times that for twice as many."""

    def calls(operations: int) -> int:
        made, count = Recorder(), 0
        for number in range(operations):
            made.mark(f"begin {number}")
            made.write(number)
        legal = made.legal()

        def counted(_frame: object, event: str, _of: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            crash_times = legal.crash_times
        finally:
            sys.setprofile(None)
        assert crash_times[-2].choices.volatile == tuple(range(operations - 1))
        return count

    assert calls(400) < 3 * calls(200)


def two_flushes(*, ambiguous: bool) -> Recorder:
    """A write between the submissions of two flushes, of which the first completes first."""
    made = Recorder(ambiguous=ambiguous)
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
    legal = two_flushes(ambiguous=False).legal()
    assert {str(legal.name(m, lost)) for m in legal.crash_times for lost in subsets(m)} >= {"@t3", "@t3="}
    assert legal.ambiguous == 0
    assert legal.position(CrashState.parse("@t3=")) == Position(begun=1, acked=1)


def test_where_nothing_tells_which_flush_completed_the_moment_is_marked_and_its_doubtful_state_no_red() -> (
    None
):
    """The write may be durable or not when the second flush completes: its loss is not judged, and not
    called impossible in silence either.
    """
    legal = two_flushes(ambiguous=True).legal()
    assert [(m.entry, m.ambiguous, m.choices.volatile) for m in legal.crash_times] == [
        (0, False, ()),
        (1, False, (0,)),
        (3, True, ()),
        (5, False, ()),
    ]
    assert legal.unclear == {Unclear.FLUSHES: 1}
    with pytest.raises(UsageError, match="not a write that a cache could lose then"):
        legal.on_disk(CrashState.parse("@t3-2"))


@given(recorders(), st.data(), st.sampled_from([1, 8]))
def test_a_states_name_rebuilds_it(made: Recorder, data: st.DataObject, unit: int) -> None:
    legal = made.legal(unit)
    crash_time = data.draw(st.sampled_from(legal.crash_times))
    lost = {n for n in crash_time.choices.volatile if data.draw(st.booleans())} | set(
        crash_time.choices.absent
    )
    state = legal.name(crash_time, lost)
    assert CrashState.parse(str(state)) == state
    assert legal.on_disk(state) == CrashState(crash_time.choices.prefix, tuple(sorted(lost)))
    assert legal.event(state) == crash_time.at


@given(recorders(), st.data())
def test_a_state_that_no_honest_disk_can_be_in_is_refused(made: Recorder, data: st.DataObject) -> None:
    """Whatever subset is asked for, it is refused where the reference has no such cut, and taken where it
    has.
    """
    legal = made.legal()
    crash_time = data.draw(st.sampled_from(legal.crash_times))
    losable, buried = legal._losable(crash_time.at)
    lost = frozenset(n for n in losable if data.draw(st.booleans()))
    state = legal.name(crash_time, lost)
    cuts = [c.lost for c in all_cuts(legal, made.times) if c.at == crash_time.at]
    if lost in cuts:
        assert set(legal.on_disk(state).dropped) == lost | buried
    elif seen_of(legal, crash_time.at, lost | buried) not in {seen_of(legal, crash_time.at, c) for c in cuts}:
        with pytest.raises(UsageError, match=r"flushes the cache|is durable"):
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
    names = {str(legal.name(m, lost)) for m in legal.crash_times for lost in subsets(m)}
    assert "@t3-1" in names  # the flush, entry 3, is about to complete; the record, entry 1, is lost
    assert {"@t3", "@t3-2", "@t3="} <= names


def test_data_of_a_flushing_write_never_lands_ahead_of_what_it_flushes() -> None:
    made = Recorder()
    block = made.write(10)
    commit = made.submit(20, fua=True, preflush=True)
    legal = made.legal()
    before = [m for m in legal.crash_times if m.entry == commit]
    assert [(m.phase, m.choices.absent, m.choices.volatile) for m in before] == [
        (0, (1,), (0,)),
        (1, (), (1,)),
    ]
    with pytest.raises(UsageError, match=f"entry {block} cannot be lost"):
        legal.on_disk(CrashState.parse(f"@t{commit}-{block}"))


def test_a_write_that_begins_inside_a_block_is_torn_where_the_device_tears_it() -> None:
    """At its blocks, as the disk does it (`test_disk_explore`): no write of the tests began in one."""
    made = Recorder()
    made.write(0)
    made.entries[0] = replace(made.entries[0], sector=4, sectors=14)
    assert [(c.sector, c.sectors) for c in made.legal().chunks] == [(4, 4), (8, 8), (16, 2)]


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


def test_what_an_earlier_twin_may_not_have_flushed_is_marked() -> None:
    """Of two equal writes with a flush ahead of each, the first to complete may be the one that was submitted
    before another write had completed: that it is durable then was told without a doubt.
    """
    made = Recorder()
    first = made.submit(0, fua=True, preflush=True)
    made.write(3)
    twin = made.submit(0, fua=True, preflush=True)
    made.complete(first)
    made.mark("begin 0")
    made.complete(twin)
    made.complete(made.flush())
    assert made.legal().ambiguous == 0
    since, latest = made.writes[first].submitted, made.writes[twin].submitted
    for entry in (first, twin):
        made.writes[entry] = replace(made.writes[entry], submitted=latest, since=since)
    assert {m.entry for m in made.legal().crash_times if m.ambiguous} >= {twin}
