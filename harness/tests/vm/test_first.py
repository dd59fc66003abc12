"""What a mode does with a crashed disk before it mounts it: repairs that are cut, mounts without recovery."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cases.attempts import Unobserved
from harness.cases.examine import Examiner
from harness.cases.recording import Recording, Recoveries
from harness.filesystems.profile import First
from harness.filesystems.profiles import profiles
from harness.guests.session import Session
from harness.model import CrashState, Outcome, Persisted, Verdict
from harness.plan import Budget, Plan
from harness.tests.vm.conftest import in_shell, run_plan
from harness.tests.vm.test_shared_disk import recorded

TOY = """
if [ "$(dd if={device} bs=1 count=4 2>/dev/null)" = busy ]; then
    dd if=/dev/zero of={device} bs=1024 seek=1 count=1 conv=fsync,notrunc
fi
printf busy | dd of={device} bs=1 conv=fsync,notrunc
printf done | dd of={device} bs=1 conv=fsync,notrunc
"""
"""A repair that takes what it left half-done for a broken superblock, and wipes that. (ext4 does not use the
first 1024 bytes.)
"""
SOUND = TOY.replace("seek=1 count=1", "seek=1 count=0")
E2FSCK = "recovering journal"


@pytest.fixture(scope="module")
def made(uml_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Recording]]:
    folder = tmp_path_factory.mktemp("first")
    _, by_messages, recording = recorded(uml_kernel, "ext4/fsck-first", "append-fsync", folder)
    with Session(by_messages, folder / "judge", notes=True) as session:
        yield session, recording


def cut_everywhere(
    session: Session, recording: Recording, of: CrashState
) -> tuple[Outcome, list[tuple[str, ...]], int]:
    """What the recovery of a state comes to, what the cuts at each entry violate, and how many flushes it
    made.
    """
    examiner = Examiner(replace(recording, recoveries=Recoveries()), again=1)
    stop = threading.Event()
    whole = examiner.visit(session, [of], stop)
    assert isinstance(whole.outcome, Outcome), whole.outcome
    assert examiner.judge(of, whole).verdict is Verdict.PASS, examiner.judge(of, whole)
    assert whole.recovery is not None
    examiner.adopt(whole.recovery, whole)
    found = []
    for at in range(len(whole.recovery.steps) + 1):
        state = of.cut_at(whole.recovery.legal.losing(CrashState(at, persisted=Persisted()), ()))
        seen = examiner.visit(session, [state], stop)
        assert not isinstance(seen.outcome, Unobserved), (str(state), seen.outcome)
        found.append(tuple(v.oracle for v in examiner.judge(state, seen).violations))
    examiner.close()
    return whole.outcome, found, sum(bool(flags) for _, _, flags in whole.recovery.steps)


def with_steps(recording: Recording, steps: str) -> Recording:
    return replace(recording, profile=replace(recording.profile, first=First(steps)))


def dirty_state(session: Session, recording: Recording) -> CrashState:
    """The last state of the log's order whose journal has to be replayed."""
    for entries in range(recording.end.prefix, 0, -1):
        seen = session.recover(recording.target, CrashState(entries))
        if any(E2FSCK in line for line in seen.outcome.kernel_log):
            return CrashState(entries)
    raise AssertionError("nothing to replay in any state")


def test_e2fsck_replays_the_journal_and_may_be_cut_at_each_of_its_writes(
    made: tuple[Session, Recording],
) -> None:
    """Only the kernel's recovery was cut. Where e2fsck has replayed the journal, the kernel does nothing."""
    session, recording = made
    outcome, found, flushes = cut_everywhere(session, recording, dirty_state(session, recording))
    said = "\n".join(outcome.kernel_log)
    assert f"e2fsck: /dev/member-0: {E2FSCK}" in said
    assert "recovery complete" not in said  # as the kernel says when it replays
    assert outcome.mount_errno == 0
    assert len(found) > 8
    assert flushes > 2
    assert not any(found), found


@pytest.mark.parametrize(("steps", "differs"), [(TOY, True), (SOUND, False)])
def test_a_repair_that_does_not_bear_to_be_cut_is_found(
    made: tuple[Session, Recording], steps: str, differs: bool
) -> None:
    """The oracle must fail where it should: done again, this repair makes what it had left unmountable."""
    session, recording = made
    toy = with_steps(recording, steps)
    _, found, _ = cut_everywhere(session, toy, recording.end)
    assert found[-1] == ()  # it was over
    cut = [oracles for oracles in found if "confluence" in oracles]
    assert bool(cut) is differs, found
    assert all({"mountable", "confluence"} <= set(oracles) for oracles in cut)


def test_a_mount_without_recovery_that_writes_is_told(made: tuple[Session, Recording]) -> None:
    """The check of the modes `norecovery-first`, on steps that do write."""
    session, recording = made
    first = profiles()["ext4/norecovery-first"].first
    assert first is not None
    for options, told in (("ro,noload", ""), ("rw", "the disk was written to")):
        target = replace(recording.target, first=first.script.replace("ro,noload", options))
        seen = session.recover(target, recording.end)
        assert told in seen.outcome.not_started
        assert bool(seen.outcome.not_started) is bool(told)


def test_the_shell_of_such_a_mode_has_its_steps(tmp_path: Path) -> None:
    """It said to mount the disk as the crash had left it."""
    plan = Plan(
        configurations=["ext4/fsck-first"], workloads=["append-fsync"], budget=Budget(visits=2), accel="tcg"
    )
    _, path = run_plan(plan, tmp_path)
    words = ["repro", "ext4-fsck-first/append-fsync@40", "--from", str(path), "--accel", "tcg", "--shell"]
    typed = b"sh -e /start-stack && dmesg | grep -c 'e2fsck: .*recovering'; "
    typed += b"mount -t ext4 -o data=ordered /dev/vda /mnt && ls /mnt; exit\n"
    said, answer = in_shell(words, typed)
    assert "    sh -e /start-stack\r\n    mount -t ext4 -o data=ordered /dev/vda /mnt\r\n" in said
    assert "\r\n1\r\n" in answer, said + answer
    assert "lost+found" in answer
