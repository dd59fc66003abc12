"""How reports say which of the legal crash states were looked at."""

from __future__ import annotations

import pytest

from harness.model import CrashState
from harness.report.words import covered, covered_together, state_words
from harness.store.records import Coverage

WHOLE = Coverage(moments=57, losses=None, open=0, visits=400)
PART = Coverage(moments=57, losses=2, open=1204, visits=400, why="the budget: 400 states a case")


def test_exhaustive_is_said_only_where_nothing_is_open() -> None:
    assert covered(WHOLE) == "exhaustive: every legal crash state at 57 moments"
    assert covered(PART) == (
        "up to 2 losses at 57 moments, 1,204 choices open; ended by the budget: 400 states a case"
    )
    assert covered_together([WHOLE, WHOLE], 90) == "every legal crash state (90 different ones)"
    assert covered_together([WHOLE, PART], 90) == (
        "90 crash states (every legal state in 1, up to 2 losses in 1 of 2 cases; 1,204 choices left open)"
    )


def test_a_recording_without_times_is_told_as_prefixes() -> None:
    none = Coverage(
        0, -1, 0, 0, "recorded without times (no tracefs): only prefixes of the log were looked at"
    )
    assert covered(none) == none.why
    assert "(prefixes of the log in 1 of 1 case" in covered_together([none], 9)
    cut = Coverage(0, -1, 36, 5, "5 of 41 states of the log's order; ended by the budget: 5 states a case")
    assert covered(cut) == cut.why
    told = covered_together([cut], 5)
    assert told == "5 crash states (part of the prefixes of the log in 1 of 1 case; 36 contents left open)"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("@t44", "nothing that was submitted is lost"),
        ("@t44-41,43", "#41 and #43 are lost"),
        ("@t44-41.2", "#41.2 is lost"),
        ("@t44=", "of what no flush had made durable, nothing had been written"),
        ("@t44=41", "of what no flush had made durable, only #41 had been written"),
    ],
)
def test_a_state_is_a_sentence_for_people(state: str, words: str) -> None:
    assert state_words(CrashState.parse(state)) == f"power fails before #44 completes; {words}"
