"""One real power cut: QEMU dies in the middle of writing, another guest recovers the disk, it is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from harness.host.progress import Lines
from harness.kernels.find import find_kernel
from harness.measure.comparison import Configuration, Host
from harness.measure.cutting import cut_and_judge, judge, plan_cut
from harness.measure.power_cut import PowerCut
from harness.model import Operation, OperationKind, Position, Verdict

OPERATIONS = 40


class OneMode(PowerCut):
    """Its guest holds no other file systems' modules: it boots sooner."""

    def configurations(self) -> list[Configuration]:
        return [Configuration.of("ext4/ordered")]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(find_kernel("debian-6.12"), "auto", tmp_path, tmp_path, 1, Lines(Console(quiet=True)))


def test_a_power_cut_is_recovered_and_judged_and_a_lie_is_found(host: Host) -> None:
    chosen = OneMode()
    (configuration,) = chosen.configurations()
    profile = configuration.profile
    cut = plan_cut("one", OPERATIONS)
    with chosen.rig(host, chosen.sizes(1)) as plug:
        seen = cut_and_judge(plug.spec, profile, plug.base(profile), cut, host.scratch)
    assert seen.judgement.verdict is Verdict.PASS, seen.judgement
    assert "recovery complete" in seen.recovered
    assert cut.operation <= seen.position.acked <= OPERATIONS
    # The planted fault: had the host been told of a file and its fsync that never were.
    lies = (Operation(OperationKind.CREATE, "never"), Operation(OperationKind.FSYNC, "never"))
    told = (*cut.operations[: seen.position.acked], *lies)
    lied = judge(profile, told, Position(len(told), len(told)), seen.outcome)
    assert lied.verdict is Verdict.FAIL
