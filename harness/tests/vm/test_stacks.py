"""File systems on md RAID, with real guests: with all members after the power cut, and less one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.filesystems.profiles import select_profiles
from harness.findings.repro import repro_context, reproduce
from harness.model import CaseId, CrashPoint, CrashState, Judgement, Verdict
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary
from harness.tests.vm.conftest import in_shell, run_plan
from harness.trust import Named

Harm = Callable[[Path, tuple[int, ...]], None]


def verdict(path: Path, point: CrashPoint, mode: str = "", harm: Harm = lambda *_: None) -> Judgement:
    """Of one crash state, in another mode on the same members, or whose base image comes to some harm."""
    with RunStore.open(path) as store, repro_context(store, point, Named(), "auto") as shown:
        (profile,) = select_profiles([mode or point.case.configuration])
        recording = dataclasses.replace(shown.recording, profile=profile)
        harm(recording.base, profile.parts)
        return reproduce(dataclasses.replace(shown, recording=recording)).judgement


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    """A mirror, judged by its second half alone."""
    plan = Plan(configurations=["ext4/ordered@raid1-0"], workloads=["append-fsync"], budget=Budget(visits=25))
    return run_plan(plan, tmp_path_factory.mktemp("mirrored"))


CASE = CaseId("ext4", "ordered@raid1-0", "append-fsync")


def test_both_halves_of_a_mirror_are_recorded_and_each_alone_keeps_every_promise(
    mirrored: tuple[Summary, Path],
) -> None:
    summary, path = mirrored
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.PASS, case.findings
    point = CrashPoint(CASE, CrashState(0))
    with RunStore.open(path) as store, repro_context(store, point, Named(), "auto") as shown:
        log, times = shown.recording.write_log, shown.recording.times
        (last, *_) = (v.state for v in reversed([*store.iter_verdicts(CASE)]))
    assert times is not None, "one clock over both halves"
    first, second = (
        {e.sector - begin for e in log.entries if e.sectors and log.device(e) == number}
        for number, begin in enumerate(log.devices.begins)
    )
    assert len(first) > 10
    assert first == second, "what is written to one half is written to the other"
    for mode in ("ext4/ordered@raid1", "ext4/ordered@raid1-1"):
        assert not verdict(path, CrashPoint(CASE, last), mode).violations


def test_uml_judges_a_stack_as_qemu(mirrored: tuple[Summary, Path], uml_kernel: Path, tmp_path: Path) -> None:
    """The kernels that we build had no drivers of stacks."""
    _, path = mirrored
    plan = Plan(
        configurations=[CASE.configuration],
        workloads=[CASE.workload],
        budget=Budget(visits=6),
        machine="qemu",
        recordings=str(path),
    )
    _, emulated = run_plan(plan, tmp_path)
    with RunStore.open(path) as native, RunStore.open(emulated) as other:
        first, second = ({v.state: v for v in store.iter_verdicts(CASE)} for store in (native, other))
        assert native.info.machine != other.info.machine
    common = first.keys() & second.keys()
    assert len(common) > 6
    assert all(first[state].verdict is second[state].verdict is Verdict.PASS for state in common)


def test_the_shell_starts_a_stack_by_its_steps(mirrored: tuple[Summary, Path]) -> None:
    """Nobody had opened one on a stack."""
    words = ["repro", f"{CASE}@0", "--from", str(mirrored[1]), "--shell"]
    typed = b"sh -e /start-stack && mount -t ext4 -o data=ordered /dev/md0 /mnt && ls /mnt; "
    typed += b"cat /proc/mdstat; exit\n"
    said, answer = in_shell(words, typed)
    assert "/dev/md0 is what the steps in /start-stack make of them" in said
    assert "lost+found" in answer, said + answer
    assert "active raid1" in answer


def spoil_superblock(base: Path, parts: tuple[int, ...]) -> None:
    """Of member 1: with metadata 1.2 it is 4 KiB from the start (md(4))."""
    with base.open("r+b") as image:
        image.seek(parts[0] + 4096)
        image.write(b"\xa5" * 4096)


def test_a_mirror_whose_last_half_is_spoilt_does_not_start(mirrored: tuple[Summary, Path]) -> None:
    """A planted error for the oracle: that mount fails would be all that was said."""
    point = CrashPoint(CASE, CrashState(0))
    assert not verdict(mirrored[1], point).violations
    found = verdict(mirrored[1], point, harm=spoil_superblock)
    assert [v.oracle for v in found.violations] == ["assembles"], found


def test_raid5_less_a_member_loses_data_that_nothing_touched_and_is_reproduced(tmp_path: Path) -> None:
    """The write hole: md(4), "UNCLEAN SHUTDOWN". With all members, the same crash loses nothing."""
    plan = Plan(configurations=["ext4/ordered@raid5-1"], workloads=["neighbours"])
    summary, path = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert case.verdict is CaseVerdict.FAIL
    found = next(f for f in case.findings if f.oracle == "untouched")
    assert "nothing has touched the file since" in found.summary
    assert "untouched" in {v.oracle for v in verdict(path, found.crash_point).violations}
    assert not verdict(path, found.crash_point, "ext4/ordered@raid5").violations


def spoil_data(base: Path, parts: tuple[int, ...]) -> None:
    """Of member 1, where the file system has nothing."""
    with base.open("r+b") as image:
        image.seek(parts[0] + (41 << 20))
        image.write(b"\xa5" * 4096)


def test_halves_that_differ_after_the_resync_are_told(mirrored: tuple[Summary, Path]) -> None:
    """A planted error: a block of one half, in an array that is clean, so that no resync mends it."""
    point, resync = CrashPoint(CASE, CrashState(0)), "ext4/ordered@raid1-resync"
    assert not verdict(mirrored[1], point, resync).violations
    (found,) = verdict(mirrored[1], point, resync, spoil_data).violations
    assert found.oracle == "assembles"
    assert "the halves differ after the resync" in found.summary
