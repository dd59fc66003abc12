"""File systems on md RAID, with real guests: with all members after the power cut, and less one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.findings.repro import repro_context, reproduce
from harness.model import CaseId, CrashPoint, CrashState, Judgement
from harness.plan import Plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary
from harness.tests.vm.conftest import run_plan
from harness.trust import Named

WORKLOAD = "neighbours"


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    plan = Plan(configurations=["ext4/ordered@raid1", "ext4/ordered@raid1-0"], workloads=["append-fsync"])
    return run_plan(plan, tmp_path_factory.mktemp("mirrored"))


def test_a_mirror_keeps_every_promise_with_both_halves_and_with_the_second_alone(
    mirrored: tuple[Summary, Path],
) -> None:
    summary, path = mirrored
    assert [case.verdict for case in summary.cases] == [CaseVerdict.PASS] * 2, summary.findings
    case = CaseId("ext4", "ordered@raid1", "append-fsync")
    with (
        RunStore.open(path) as store,
        repro_context(store, CrashPoint(case, CrashState(0)), Named(), "auto") as shown,
    ):
        log, times = shown.recording.write_log, shown.recording.times
    assert len(log.devices.begins) == 2
    assert times is not None, "one clock over both halves"
    written = [
        {e.sector - begin for e in log.entries if e.sectors and log.device(e) == n}
        for n, begin in enumerate(log.devices.begins)
    ]
    assert written[0] == written[1], "what is written to one half is written to the other"


def spoil(file: Path, at: int) -> None:
    with file.open("r+b") as image:
        image.seek(at)
        image.write(b"\xa5" * 4096)


def verdict(
    path: Path, point: CrashPoint, harm: Callable[[Path, tuple[int, ...]], None] = lambda *_: None
) -> Judgement:
    """Of one crash state, whose base image comes to some harm."""
    with RunStore.open(path) as store, repro_context(store, point, Named(), "auto") as shown:
        harm(shown.recording.base, shown.recording.profile.parts)
        return reproduce(shown).judgement


def test_a_mirror_whose_last_half_is_gone_does_not_start(mirrored: tuple[Summary, Path]) -> None:
    """A planted error for the oracle: without it, that mount fails is all that would be said."""
    point = CrashPoint(CaseId("ext4", "ordered@raid1-0", "append-fsync"), CrashState(0))
    assert not verdict(mirrored[1], point).violations
    # The superblock of metadata 1.2 is 4 KiB from the start (md(4)).
    found = verdict(mirrored[1], point, lambda base, parts: spoil(base, parts[0] + 4096))
    assert [v.oracle for v in found.violations] == ["assembles"], found


def test_raid5_with_a_missing_member_loses_data_that_nothing_touched(tmp_path: Path) -> None:
    """The write hole: md(4), "UNCLEAN SHUTDOWN". With all members, the same crash loses nothing."""
    plan = Plan(configurations=["ext4/ordered@raid5-1"], workloads=[WORKLOAD])
    summary, path = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.FAIL
    untouched = next(f for f in case.findings if f.oracle == "untouched")
    assert "nothing has touched the file since" in untouched.summary
    again = verdict(path, untouched.crash_point)
    assert "untouched" in {v.oracle for v in again.violations}, "it is reproduced"


def test_raid5_with_all_members_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered@raid5"], workloads=[WORKLOAD])
    summary, _ = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.PASS, case.findings
