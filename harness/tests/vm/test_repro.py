"""One crash point again: the same verdict in fresh guests, and the exact bytes as a file."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ExitCode, UsageError
from harness.findings.repro import export, find_point, repro_context, reproduce
from harness.model import CrashPoint, CrashState, Outcome, Verdict
from harness.store import RunStore
from harness.summary import Summary
from harness.tests.states.replay import replay
from harness.tests.vm.conftest import in_shell
from harness.trust import Named

REPEATS = 3


def test_a_finding_gives_the_same_verdict_in_fresh_guests(compared_store: RunStore) -> None:
    finding = next(f for f in compared_store.findings() if f.oracle == "durability")
    for _ in range(REPEATS):
        with repro_context(compared_store, finding.crash_point, Named(), "auto") as shown:
            again = reproduce(shown)
        assert again.judgement.verdict is Verdict.FAIL
        assert (finding.oracle, finding.signature) in {
            (v.oracle, v.signature) for v in again.judgement.violations
        }


def test_the_printed_command_works_and_exits_1(compared: tuple[Summary, Path]) -> None:
    summary, path = compared
    finding = summary.unexpected[0]
    script = path / "findings" / finding.id / "repro.sh"
    assert "powercut repro" in script.read_text()
    command = [sys.executable, "-m", "harness", "repro", str(finding.crash_point), "--from", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.INCONSISTENT, done.stdout + done.stderr
    assert "FAIL" in done.stdout


def test_a_state_that_passed_passes_again(compared_store: RunStore) -> None:
    point = find_point("ext4-ordered/append-fsync@40", compared_store)
    with repro_context(compared_store, point, Named(), "auto") as shown:
        assert reproduce(shown).judgement.verdict is Verdict.PASS


def test_a_durable_write_that_is_dropped_is_seen(compared_store: RunStore) -> None:
    """The oracles are not asleep on a real kernel: take away a journal commit that an fsync waited for."""
    case = next(c.case for c in compared_store.cases() if c.case.mode == "ordered")
    with repro_context(compared_store, CrashPoint(case, CrashState(0)), Named(), "auto") as shown:
        history, log = shown.recording.history, shown.recording.write_log
        fsync = next(s for s in history.steps if str(s.operation) == "fsync f")
        assert fsync.ack is not None
        commits = [e.index for e in log.entries if e.flags.FUA in e.flags and e.index < fsync.ack]
        state = CrashState(fsync.ack + 1, tuple(commits))
        seen = reproduce(dataclasses.replace(shown, point=CrashPoint(case, state)))
    assert {v.oracle for v in seen.judgement.violations} & {"durability", "mountable", "fsck"}


def test_a_fault_of_the_disk_is_done_again(compared_store: RunStore) -> None:
    """A superblock that cannot be read is refused, and read when it can be; a fault that befalls nothing
    tells nothing.
    """
    case = next(c.case for c in compared_store.cases() if c.case.mode == "ordered")
    found = {}
    for fault in ("eio-read2-on", "eio-read130000"):
        point = CrashPoint(case, CrashState.parse(f"@40+{fault}"))
        with repro_context(compared_store, point, Named(), "auto") as shown:
            found[fault] = reproduce(shown)
    refused, missed = found.values()
    assert isinstance(refused.outcome, Outcome)
    assert refused.outcome.after_fault is not None
    assert refused.outcome.mount_errno
    assert not refused.outcome.after_fault.mount_errno
    assert refused.judgement.verdict is Verdict.PASS
    assert missed.judgement.verdict is Verdict.UNKNOWN


def test_export_writes_the_crashed_disk(compared_store: RunStore, tmp_path: Path) -> None:
    point = find_point("ext4-ordered/append-fsync@50", compared_store)
    with repro_context(compared_store, point, Named(), "auto") as shown:
        export(shown, tmp_path / "crashed.img")
        expected = replay(shown.recording.base.read_bytes(), shown.recording.write_log, point.state)
        with pytest.raises(UsageError):
            export(shown, tmp_path / "crashed.img")
    assert (tmp_path / "crashed.img").read_bytes() == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ext4-ordered/append-fsync", "ext4-ordered/append-fsync@417"),
        ("ext4-journal/append-fsync@4", "it has: ext4-ordered/append-fsync"),
        ("ext4-ordered/append-fsync@999999", "beyond its end"),
    ],
)
def test_a_point_that_is_not_there_says_what_is(compared_store: RunStore, text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_point(text, compared_store)
    assert says in str(caught.value)


def test_the_shell_has_the_tools_of_file_systems_and_both_disks(compared: tuple[Summary, Path]) -> None:
    """There was nothing but busybox in it, and nothing but the crashed disk."""
    _, path = compared
    words = ["repro", "ext4-ordered/append-fsync@40", "--from", str(path), "--shell"]
    typed = b"e2fsck -fn /dev/vda | tail -n 1; xfs_db -V; btrfs --version; dump.f2fs -V; "
    typed += b"e2fsck -fn /dev/vdb | tail -n 1; mount -t ext4 /dev/vdb /mnt && ls /mnt; exit\n"
    said, answer = in_shell(words, typed)
    assert "/dev/vda: 1" in answer, said + answer
    assert "mount -t ext4 -o data=ordered /dev/vdb /mnt" in said
    assert "/dev/vdb: 1" in answer
    assert "lost+found" in answer
    for program in ("xfs_db version", "btrfs-progs v", "dump.f2fs 1"):
        assert program in answer
