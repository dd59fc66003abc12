"""Litmus programs with real guests: what holds, what does not, and a planted fault that turns a cell red."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.faults.catalogue import faults
from harness.guests.machine import flavour_of
from harness.kernels.variants import kept_tree
from harness.litmus.results import Litmus, LitmusPlan, Standing
from harness.litmus.work import LitmusSeries, create, load_plan
from harness.plan import Budget
from harness.series.work import carry_out
from harness.tests.said import Said

SYNCED, NOT_SYNCED, NEIGHBOUR = "append-fsync-file", "overwrite-sync-file-range", "creates-in-order"


def table(kernel: str, names: list[str], reports: Path, mode: str = "ext4/ordered") -> Litmus:
    plan = LitmusPlan(
        modes=[mode],
        names=names,
        kernels=[kernel],
        machine="uml",
        budget=Budget(40 if "nobarrier" in mode else None),  # without a flush the states are too many
        schedules=0,
        jobs=2,
    )
    path = create(plan, reports)
    series = LitmusSeries(load_plan(path), path)
    carry_out(series, Said())
    return series.litmus


def standings(litmus: Litmus) -> dict[str, Standing]:
    (mode,) = litmus.columns.values()
    return {c.program: c.standing for c in mode.cells}


def test_a_question_is_answered_from_every_legal_state(uml_kernel: Path, tmp_path: Path) -> None:
    litmus = table("debian-6.12", [SYNCED, NOT_SYNCED, NEIGHBOUR], tmp_path)
    assert standings(litmus) == {
        SYNCED: Standing.KEPT,
        NOT_SYNCED: Standing.NO,
        NEIGHBOUR: Standing.KEPT,
    }
    assert not litmus.broken and not litmus.others
    again = LitmusSeries(load_plan(litmus.path), litmus.path)
    said = Said()
    carry_out(again, said)
    assert standings(again.litmus) == standings(litmus), "what is decided is not run again"
    assert msgspec.structs.asdict(again.litmus.columns["ext4/ordered"])["at"] == (
        litmus.columns["ext4/ordered"].at
    )


def test_a_planted_fault_turns_what_always_held_into_a_broken_promise(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """The commit record is written without FUA: fsync returns while it is in the volatile cache."""
    flavour = flavour_of("uml")
    with kept_tree("linux-source-6.12", "uml", flavour, 2, print) as tree:
        image = tree.variant(faults()["commit-no-fua"].edits)
        litmus = table(str(image), [SYNCED], tmp_path)
    assert standings(litmus) == {SYNCED: Standing.BROKEN}
    ((_, cell),) = litmus.broken
    assert cell.others, "and the contract's own oracles say so"
    assert cell.point.startswith("ext4-ordered/append-fsync-file@")


def test_what_a_mode_is_known_to_lose_is_no_new_break_of_its_promise(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """Without barriers fsync returns while the commit is in the cache, and the mode is known for it."""
    litmus = table("debian-6.12", [SYNCED], tmp_path, mode="ext4/nobarrier")
    assert standings(litmus) == {SYNCED: Standing.KNOWN}
    assert not litmus.broken and not litmus.others
    ((_, cell),) = litmus.known
    assert cell.no == cell.known_no
    assert any("barrier=0 sends no cache flush" in name for name in cell.known)


def test_permissions_that_fat_drops_in_silence_are_an_operation_that_it_lacks(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """chmod returned 0 and changed nothing; so permissions that fsync had covered were missed."""
    litmus = table("debian-6.12", ["chmod-fsync"], tmp_path, mode="vfat/default")
    assert standings(litmus) == {"chmod-fsync": Standing.UNSEEN}
    assert not litmus.others
    ((cell,),) = (m.cells for m in litmus.columns.values())
    assert "chmod" in cell.reason
