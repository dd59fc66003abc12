"""Chaos with real guests can fail: each defect that is planted in the attacked processes is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.tests.chaos.full_disk import run_full_disk, why_not
from harness.tests.chaos.kills import run_exhaustive_kills, run_kills
from harness.tests.chaos.lanes import Attack
from harness.tests.chaos.many_runs import run_history
from harness.tests.chaos.reference import Reference, make_reference
from harness.tests.chaos.together import run_together
from harness.tests.chaos.trial import Trial
from harness.tests.needs import needed

TRIALS = 8
"""A plant shows only where chance has it that something happens after it: so many trials at most."""


@pytest.fixture(scope="module")
def reference(uml_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return make_reference(tmp_path_factory.mktemp("chaos") / "reference", ("--machine", "uml"))


@pytest.mark.parametrize(
    ("attack", "plant", "kinds"),
    [
        (run_kills, "resume_forgets", {"false green", "changed states"}),
        (run_exhaustive_kills, "resume_forgets", {"false green", "changed states"}),
        (run_history, "resume_forgets", {"false green"}),
        (run_kills, "leaves_things", {"left behind"}),
        (run_together, "no_lock", {"false green", "false red", "changed states", "undecided", "traceback"}),
    ],
)
def test_a_planted_defect_is_found(
    reference: Reference, tmp_path: Path, attack: Attack, plant: str, kinds: set[str]
) -> None:
    told: list[str] = []
    for number in range(TRIALS):
        with Trial("planted", number, 1, tmp_path / f"{plant}-{number}") as trial:
            attack(trial, reference, plant)
        told += [f"{d.kind}: {d.what}" for d in trial.defects]
        if kinds & {d.kind for d in trial.defects}:
            return
    pytest.fail(f"{plant} was not found in {TRIALS} trials; told was only: {told}")


def test_a_traceback_in_a_full_disk_is_found(reference: Reference, tmp_path: Path) -> None:
    with needed():
        if reason := why_not():
            raise EnvironmentLacks(reason, "run the tests as root, with a free loop device")
    for number in range(TRIALS):
        with Trial("planted", number, 1, tmp_path / str(number)) as trial:
            run_full_disk(trial, reference, "falls_over")
        if any("planted" in d.what for d in trial.defects):
            return
    pytest.fail(f"a traceback was not found in {TRIALS} trials")
