"""How reports say which of the legal crash states were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.model import CaseId, CrashState, EntryFlag, LogEntry
from harness.oracles import BY_DEFAULT
from harness.report.words import (
    MANY,
    Cell,
    choices,
    covered,
    covered_briefly,
    covered_together,
    device_of,
    extent,
    judging,
    state_words,
)
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Counts,
    Coverage,
    DrawnCalls,
    FaultyDiskResult,
    NestedCrashes,
)
from harness.summary import CaseSummary

WHOLE = Coverage(crash_times=57, losses=None, unexplored=0, visits=400)
PART = Coverage(crash_times=57, losses=2, unexplored=1204, visits=400, why="the budget: 400 states a case")


def briefly(coverage: Coverage | None, *cuts: Coverage) -> str:
    again = tuple(NestedCrashes(depth, 3, 0, cut) for depth, cut in enumerate(cuts, start=1))
    return covered_briefly(CaseInfo(CaseId("ext4", "ordered", "w"), coverage=coverage, again=again))


def test_exhaustive_is_said_only_where_nothing_is_open() -> None:
    assert covered(WHOLE) == "exhaustive: every legal crash state at 57 crash times"
    assert covered(PART) == (
        "states with up to 2 blocks lost, or up to 2 kept, at 57 crash times; 1,204 choices unexplored, "
        "ended by the budget: 400 states a case"
    )
    assert covered_together([WHOLE, WHOLE], 90) == "all 90 legal crash states"
    assert covered_together([WHOLE, PART], 90) == (
        "90 legal crash states (1 of 2 cases complete, 1,204 choices unexplored in 1)"
    )


def test_a_reason_that_is_no_limit_did_not_end_anything() -> None:
    """`ended by what fsck or a repair program reads cannot be followed`, and `ended by more sets of ...`."""
    why = "what fsck reads cannot be followed"
    assert covered(Coverage(57, 1, 9, 104, why)).endswith(f"; 9 choices unexplored: {why}")


def test_a_version_with_too_many_states_is_told_and_not_called_exhaustive() -> None:
    alike = Coverage(57, 2, 0, 1200, sampled=1, drawn=256)
    assert covered(alike) == (
        "every legal crash state at 56 crash times; at 1 with too many, states with up to 2 blocks lost, "
        "or up to 2 kept, and 256 sampled: no difference found"
    )
    assert briefly(alike) == "256 sampled where there are too many: no difference found"
    assert covered_together([WHOLE, alike], 90) == (
        "90 legal crash states (1 of 2 cases complete, 256 states sampled without a difference in 1)"
    )
    simplest = Coverage(57, 0, 9, 104, "the budget: 60 states a case")
    assert covered(simplest).endswith("60 states a case, which these two may exceed"), "104 were judged"
    cut = Coverage(57, 2, 9, 1200, "the budget: 2 minutes a case", sampled=1, drawn=256)
    assert covered(cut).endswith("9 choices unexplored, ended by the budget: 2 minutes a case")
    assert covered_together([cut], 90) == "90 legal crash states (9 choices unexplored)"


def test_a_recording_without_times_is_told_as_prefixes() -> None:
    none = Coverage(0, -1, 0, 0, "recorded without times (no tracefs): only prefixes of the log were covered")
    assert covered(none) == none.why
    assert covered_together([none], 9) == "9 crash states (only the log's own order)"
    cut = Coverage(0, -1, 36, 5, "5 of 41 states of the log's order; ended by the budget: 5 states a case")
    assert covered(cut) == cut.why
    told = covered_together([cut], 5)
    assert told == "5 crash states (36 states of the log's own order left out)"


def test_cases_without_a_word_on_their_states_are_not_called_exhaustive() -> None:
    """A case that the budget did not cut has no coverage. It was left out of the count, so that one
    exhaustive case of two made it `all legal crash states`.
    """
    assert covered_together([WHOLE, None], 90) == (
        "90 legal crash states (1 of 2 cases complete, only the log's own order in 1)"
    )


@pytest.mark.parametrize(
    ("cases", "not_ended", "told"),
    [
        ([], 1, "not ended: how far is not known"),
        ([], 2, "2 of 2 cases not ended: how far is not known"),
        ([WHOLE], 2, "1 of 3 cases complete, 2 not ended: how far is not known"),
        ([None], 1, "only the log's own order in 1 of 2 cases, 1 not ended: how far is not known"),
    ],
)
def test_of_a_case_that_was_cut_short_it_is_not_known_how_far_it_was_covered(
    cases: Sequence[Coverage | None], not_ended: int, told: str
) -> None:
    """`only the log's own order` was said of each, also where all legal states were asked for."""
    assert extent(cases, not_ended) == told


@pytest.mark.parametrize(
    ("coverage", "told"),
    [
        (None, ""),
        (WHOLE, "all legal ones"),
        (PART, "1,204 choices unexplored"),
        (replace(PART, crash_times=0, losses=-1, unexplored=36), "36 left out"),
        (replace(PART, crash_times=0, losses=-1, unexplored=0), "only the log's own order"),
    ],
)
def test_one_line_of_a_case_says_what_is_open(coverage: Coverage | None, told: str) -> None:
    assert briefly(coverage) == told


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ([], "all legal ones"),
        ([WHOLE, WHOLE], "all legal ones"),
        ([WHOLE, PART], "all legal ones, 1,204 choices unexplored in cut recoveries"),
        (
            [PART, replace(WHOLE, losses=2, sampled=1, drawn=256)],
            "all legal ones, 1,204 choices unexplored in cut recoveries, "
            "256 states sampled without a difference in cut recoveries",
        ),
    ],
)
def test_it_says_what_is_open_in_cut_recoveries(left: Sequence[Coverage], told: str) -> None:
    """It said "all legal ones", whatever was left of them."""
    assert briefly(WHOLE, *left) == told


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("@0", "no entry of the write log is on the platter"),
        ("@1", "the first entry of the write log is on the platter"),
        ("@1417", "the first 1,417 entries of the write log are on the platter"),
        (
            "@44-41,43",
            "the first 44 entries of the write log are on the platter, without entry 41 and entry 43",
        ),
        (
            "@44/t3",
            "the first 44 entries of the write log are on the platter; of the last one, only its first 3 "
            "sectors",
        ),
    ],
)
def test_a_state_of_the_logs_own_order_is_told_with_what_it_lacks(state: str, words: str) -> None:
    """A dropped or torn write was told as if it were on the platter."""
    assert state_words(CrashState.parse(state)) == words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("@t44", "nothing that was submitted is lost"),
        ("@t44-41,43", "entry 41 and entry 43 are lost"),
        ("@t44-41.2", "block 2 of entry 41 is lost"),
        ("@t44-41/13", "sector 13 of entry 41 is lost"),
        ("@t44=", "of what no flush had made durable, nothing had been written"),
        ("@t44=41", "of what no flush had made durable, only entry 41 had been written"),
    ],
)
def test_a_state_is_a_sentence_for_people(state: str, words: str) -> None:
    assert state_words(CrashState.parse(state)) == (
        f"the power fails before entry 44 of the write log completes; {words}"
    )


def test_what_is_lost_names_its_device() -> None:
    entries = [
        LogEntry(0, 0, 0, EntryFlag.MARK, 0, "devices 254,2+0 254,3+1024"),
        LogEntry(1, 8, 8, EntryFlag(0), 0),
        LogEntry(2, 1032, 8, EntryFlag(0), 0),
    ]
    told = "the power fails before entry 3 of the write log completes; entry 1 (first device) and "
    words = state_words(CrashState.parse("@t3-1,2"), device_of(entries))
    assert words == told + "entry 2 (second device) are lost"
    assert "device" not in state_words(CrashState.parse("@t3-1,2"), device_of(entries[1:]))
    without = state_words(CrashState.parse("@3-1"), device_of(entries))
    assert without.endswith("on the platter, without entry 1 (first device)")
    torn = state_words(CrashState.parse("@3/t4"), device_of(entries))
    assert torn.endswith("; of the last one (second device), only its first 4 sectors")


def test_a_log_from_elsewhere_with_devices_that_cannot_be_is_told_without_them() -> None:
    entries = [LogEntry(0, 0, 0, EntryFlag.MARK, 0, "devices nonsense"), LogEntry(1, 8, 8, EntryFlag(0), 0)]
    assert state_words(CrashState.parse("@t2-1"), device_of(entries)).endswith("entry 1 is lost")


def test_an_oracle_that_had_nothing_to_judge_is_not_among_those_that_judged() -> None:
    """A page said "Judged: assembles, ..., program, confluence, honesty" of a run that cut no recovery, had a
    sound disk, one device and no program.
    """
    plain = CaseInfo(CaseId("ext4", "ordered", "a"), oracles=BY_DEFAULT)
    idle = {"assembles", "program", "confluence", "honesty"}
    assert set(judging(plain)) == set(BY_DEFAULT) - idle
    assert "assembles" in judging(replace(plain, case=CaseId("ext4", "ordered@raid1", "a")))
    assert "assembles" in judging(replace(plain, case=CaseId("ext4", "fsck-first", "a")))
    assert "program" in judging(replace(plain, calls=DrawnCalls()))
    assert "honesty" in judging(replace(plain, disk=FaultyDiskResult((), 0, 0, 0, 0, ())))
    assert "confluence" in judging(replace(plain, again=(NestedCrashes(1, 3, 0, WHOLE),)))
    assert judging(replace(plain, oracles=("honesty",))) == ("honesty",), "what was named is said"


def test_a_limit_is_not_told_as_a_number_of_choices() -> None:
    """`1,999,999,872 choices unexplored`: each of two cases had been counted no further."""
    assert choices(MANY - 1) == "999,999,999 choices unexplored"
    assert choices(2 * MANY - 128) == "a billion choices or more unexplored"


def test_a_cell_says_how_many_of_the_logs_states_were_looked_at() -> None:
    """`49 ok` of 183, of which the budget had left out the others."""
    case = CaseId("xfs", "default", "a")
    info = CaseInfo(case, generated=49, distinct=49, coverage=Coverage(0, -1, 134, 49, "10 s a case"))
    kept = CaseSummary(info, CaseStatus.DONE, "", 1.0, Counts(49, 49, passed=49, contents=49), (), (), {})
    assert Cell((kept,)).figure == "49 of 183"
