"""What power cuts come to: outcomes by mode, each cut, and the answer in a sentence."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness.measure.comparison import Surroundings
from harness.measure.power_cut import PowerCut, answer
from harness.measure.run import MeasurePlan, _measurement
from harness.measurements.samples import Sample, Samples
from harness.model import Verdict


def cut(mode: str, number: int, verdict: str, recovered: str = "recovery complete") -> Sample:
    return Sample(
        mode,
        number,
        {"acknowledged": 20.0 + number, "in_flight": number % 2, "recovery_ms": 50.0},
        {
            "verdict": verdict,
            "recovered": recovered,
            "operation": "fsync f1",
            "seed": f"1/{mode}/{number}",
            "why": "durability: f1 is gone" if verdict == "fail" else "",
        },
    )


CUTS = [
    cut("ext4/ordered", 0, "pass"),
    cut("ext4/ordered", 1, "pass"),
    cut("ext4/nobarrier", 0, "fail"),
    cut("ext4/nobarrier", 1, "unknown", ""),
    Sample("xfs/default", 0, reason="guest lost"),
]


def test_outcomes_are_counted_by_mode() -> None:
    told = PowerCut().evaluate(Samples(list(CUTS)), {"operations": 120})
    rows = {row[0]: row[1:6] for row in told.tables[0].rows}
    assert rows["ext4/ordered"] == ["2", "2", "2", "0", "0"]
    assert rows["ext4/nobarrier"] == ["2", "1", "0", "1", "1"]
    assert rows["xfs/default"] == ["0", "0", "0", "0", "0"]


def test_each_cut_can_be_found_by_its_seed_and_says_what_was_wrong() -> None:
    told = PowerCut().evaluate(Samples(list(CUTS)), {"operations": 120})
    rows = [[str(cell) for cell in row] for row in told.tables[1].rows]
    assert len(rows) == 4
    twice = PowerCut().evaluate(Samples([*CUTS, CUTS[0]]), {"operations": 120})
    assert len(twice.tables[1].rows) == 4, "as in the outcomes"
    broken = next(row for row in rows if "fail" in row[-1])
    assert broken[1] == "1/ext4/nobarrier/0"
    assert broken[2] == "before operation 20, fsync f1"
    assert "f1 is gone" in broken[-1]
    assert any(row[3] == "not said" for row in rows)
    assert any(row[2].startswith("in operation") for row in rows)


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        (CUTS[:2], "2 power cuts in 1 mode: every promise was kept after each."),
        (
            CUTS[:4],
            "4 power cuts in 2 modes: every promise was kept after 2; broken after 1 (ext4/nobarrier); "
            "undecided after 1.",
        ),
        ([], ""),
    ],
)
def test_the_answer(cuts: list[Sample], words: str) -> None:
    assert answer(Samples(list(cuts))) == words


@pytest.mark.parametrize(
    ("cuts", "verdict"), [(CUTS[:2], Verdict.PASS), (CUTS[3:4], Verdict.UNKNOWN), (CUTS[:4], Verdict.FAIL)]
)
def test_the_verdict_is_the_worst(cuts: list[Sample], verdict: Verdict) -> None:
    assert PowerCut().verdict(Samples(list(cuts))) is verdict


def test_a_measurement_keeps_that_a_promise_was_broken() -> None:
    """Its page had the colour of a figure, and measurements.json said nothing."""
    chosen, plan = PowerCut(), MeasurePlan(name="power-cut", rounds=1)
    for cuts, verdict in ((CUTS[:2], ""), (CUTS[:3], "fail"), (CUTS[3:4], "unknown")):
        made = _measurement(
            cast("Any", chosen), plan, {}, Samples(list(cuts)), Surroundings("Linux 6.12", "QEMU", "tcg")
        )
        assert made.verdict == verdict
