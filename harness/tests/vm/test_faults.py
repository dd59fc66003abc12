"""A campaign on a real kernel. No fault is compiled in, which takes minutes: every variant is the unmodified
kernel, so nothing may be found. That toys with defects are found: `harness/tests/faults/test_campaign.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.faults import campaign as campaign_module
from harness.faults.campaign import FaultSeries, create, load_plan
from harness.faults.catalogue import PlantedFault
from harness.faults.results import FaultsPlan, Status
from harness.kernels.build import Built
from harness.kernels.edits import Edit
from harness.series.work import carry_out
from harness.tests.faults.test_campaign import Progress


class OneKernel:
    """Every variant is the same image."""

    built = Built("uml", "linux-source-6.12", "", "", "")

    def __init__(self, image: Path) -> None:
        self.image = image

    def edited(self, edits: Sequence[Edit]) -> dict[str, str]:
        return {}

    def key(self, edits: Sequence[Edit]) -> str:
        return repr(edits)

    def variant(self, edits: Sequence[Edit]) -> Path:
        return self.image


def fault(mode: str) -> PlantedFault:
    edit = Edit("fs/x.c", "f", "1", mode)
    return PlantedFault(
        name=mode.split("/")[1], summary="none", modes=(mode,), oracles=("durability",), edits=(edit,)
    )


def test_an_unmodified_kernel_gets_no_credit_for_what_it_loses_anyway(
    tmp_path: Path, uml_kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = [fault("ext4/ordered"), fault("ext4/nobarrier")]
    monkeypatch.setattr(campaign_module, "faults", lambda: {f.name: f for f in planted})
    plan = FaultsPlan(machine="uml", workloads=["append-fsync"])
    path = create(plan, tmp_path)
    series = FaultSeries(load_plan(path), path, OneKernel(uml_kernel))
    carry_out(series, Progress())
    campaign = series.campaign
    assert [r.status for r in campaign.rows] == [Status.MISSED, Status.MISSED]
    assert campaign.baseline.undecided == {}
    assert {s.case for s in campaign.baseline.detections} == {"ext4-nobarrier/append-fsync"}
    assert all(r.states > 20 for r in campaign.rows)
