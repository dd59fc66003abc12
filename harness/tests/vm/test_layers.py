"""Layers: overlayfs, with what is copied up and what a replacement loses; a file system in a file, which is
made, attached, checked and judged; daemons of FUSE; NFS; images that the kernel's erofs mounts.
"""

from __future__ import annotations

import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path

import pytest

from harness.cases.examine import Examiner
from harness.cases.recording import Recording
from harness.filesystems.profiles import select_profiles
from harness.filesystems.tools import Tool
from harness.guests.session import RunCheck, Session
from harness.model import Check, CheckResult, CrashState, FsckClass, Judgement, Outcome, Tree
from harness.oracles.question import why_not
from harness.plan import Budget, Plan
from harness.summary import CaseVerdict
from harness.tests.needs import need_program
from harness.tests.vm.conftest import in_shell, run_plan
from harness.tests.vm.test_shared_disk import recorded


def listed(image: Path, folder: str) -> set[str]:
    """The names in a directory of an ext4 image that nobody has mounted."""
    debugfs = Tool("debugfs", "e2fsprogs").path()
    run = subprocess.run(
        [debugfs, "-R", f"ls -p {folder}", str(image)], check=True, capture_output=True, text=True
    )
    return {line.split("/")[5] for line in run.stdout.splitlines() if line.count("/") > 5} - {".", ".."}


def visited(
    session: Session, recording: Recording, states: Iterable[int]
) -> Iterator[tuple[Outcome, Judgement]]:
    """Prefixes of a log: what came of each. One visit is enough for prefixes that differ in marks and flushes
    alone.
    """
    examiner, stop = Examiner(recording), threading.Event()
    changes = (bool(e.sectors) and not e.mark for e in recording.write_log.entries)
    changed = list(accumulate(changes, initial=0))
    for _, prefixes in groupby(states, changed.__getitem__):
        same = [CrashState(prefix) for prefix in prefixes]
        seen = examiner.visit(session, same, stop)
        assert isinstance(seen.outcome, Outcome), (same, seen.outcome)
        for state in same:
            yield seen.outcome, examiner.judge(state, seen)
    examiner.close()


EVERY = 5
"""Each loss that these tests look for lasts for more than ten prefixes."""


def looked_at(session: Session, recording: Recording) -> tuple[set[str], bool]:
    """Of every fifth prefix and the last: the oracles that fail, and whether the question is once answered
    with no.
    """
    found, no, asked = set(), False, recording.workload.question
    last = recording.end.prefix
    for outcome, judged in visited(session, recording, [*range(0, last, EVERY), last]):
        found |= {v.oracle for v in judged.violations}
        no |= asked is not None and "other" in outcome.tree and bool(why_not(asked, outcome.tree))
    return found, no


@pytest.mark.parametrize(("mode", "loses"), [("ext4/ordered", False), ("ext4/ordered@overlay", True)])
def test_a_file_of_the_lower_layer_that_is_replaced_may_be_empty(
    uml_kernel: Path, mode: str, loses: bool, tmp_path: Path
) -> None:
    """A control and its opposite. The contract of a mode below a layer does not promise it."""
    _, by_messages, recording = recorded(uml_kernel, mode, "replace-old", tmp_path)
    with Session(by_messages, tmp_path / "judge") as session:
        assert looked_at(session, recording) == (set(), loses)
        session.recover(recording.target, recording.end)
        session.disk.image(session.image)
    below = "/upper" if loses else "/"
    assert listed(session.image, below) >= {"f", "other"}
    if loses:
        assert listed(session.image, "/lower") == {"f"}


def test_a_layer_on_a_disk_that_does_not_hold_its_file_system_is_told(
    uml_kernel: Path, tmp_path: Path
) -> None:
    _, by_messages, recording = recorded(uml_kernel, "ext4/ordered@overlay", "append-fsync", tmp_path)
    (other,) = select_profiles(["xfs/default@overlay"])
    assert other.layer is not None
    assert recording.target.layer is not None
    with Session(by_messages, tmp_path / "judge") as session:
        seen = session.recover(replace(recording.target, layer=other.layer), recording.end)
        assert "mounting /dev/member-0 on /below failed" in seen.outcome.not_started
        again = session.recover(recording.target, recording.end)
        assert (again.outcome.not_started, again.outcome.mount_errno) == ("", 0)


@pytest.mark.parametrize("mode", ["ext4/ordered@bindfs", "ext4/ordered@overlay"])
def test_a_daemon_outlives_what_a_program_leaves_running(uml_kernel: Path, mode: str, tmp_path: Path) -> None:
    """After the first program the daemon was killed with all else, and the next one got ENOTCONN."""
    _, by_messages, recording = recorded(uml_kernel, mode, "append-fsync", tmp_path)
    left = "sleep 600 & sleep 601 & test -e f"
    alone = "ls && head -c 1 f && ! pidof sleep >/dev/null && echo alone"

    def ask(tree: Tree, run: RunCheck) -> tuple[CheckResult, ...]:
        return tuple(run(Check(0, ("sh", "-c", script), ()), ()) for script in (left, alone, alone))

    with Session(by_messages, tmp_path / "judge") as session:
        seen = session.recover(recording.target, recording.end, ask).outcome
    assert seen.unmount_errno == 0
    assert [(c.exit_code, "alone" in c.output) for c in seen.checks] == [(0, False), (0, True), (0, True)]


@pytest.mark.parametrize("mode", ["ext4/ordered@loop", "ext4/nobarrier@loop"])
def test_a_file_system_in_a_file_keeps_what_the_one_below_does(
    uml_kernel: Path, mode: str, tmp_path: Path
) -> None:
    """A control and its opposite: what fsync acknowledged there is lost where no flush follows below."""
    _, by_messages, recording = recorded(uml_kernel, mode, "append-fsync", tmp_path)
    with Session(by_messages, tmp_path / "judge") as session:
        found, _ = looked_at(session, recording)
    assert ("durability" in found) is ("nobarrier" in mode)
    assert found == set() or "nobarrier" in mode


@pytest.mark.parametrize(("mode", "direct"), [("xfs/default@loop", "0"), ("xfs/default@loop-direct", "1")])
def test_fsck_runs_on_the_file_system_in_the_file_too(
    uml_kernel: Path, mode: str, direct: str, tmp_path: Path
) -> None:
    """The planted damage, an inode that no kernel reads, shows nowhere else."""
    _, by_messages, recording = recorded(uml_kernel, mode, "append-fsync", tmp_path)
    layer, bare = recording.target.layer, replace(recording.target, log=None, order=None)
    assert layer is not None
    damaged = tmp_path / "damaged.img"
    with Session(by_messages, tmp_path / "judge") as session:
        code, told = session.change(
            bare, layer.checking("cat /sys/block/loop0/loop/dio; head -c 8192 /dev/loop0 | xxd -p"), damaged
        )
        assert code == 0, told
        dio, _, written = told.partition("\n")
        assert dio == direct
        (table,) = struct.unpack_from(
            "<I", bytes.fromhex(written), 4096 + 8
        )  # bg_inode_table_lo, 4 KiB blocks
        resize_inode = table * (4096 // 256) + 6
        line = f"dd if=/dev/zero of=/dev/loop0 bs=256 seek={resize_inode} count=1 conv=notrunc,fsync"
        code, told = session.change(bare, layer.checking(line), damaged)
        assert code == 0, told
        for base, wanted in ((recording.target.base, FsckClass.CLEAN), (damaged, FsckClass.DIRTY)):
            shown = replace(recording, base=base)
            ((outcome, judged),) = visited(session, shown, [0])
            assert outcome.fsck is not None
            assert outcome.fsck.classified is wanted, outcome.fsck.output
            assert {v.oracle for v in judged.violations} == ({"fsck"} if base == damaged else set())


@pytest.mark.parametrize(
    ("mode", "workload", "fails"),
    [
        ("ext4/ordered@bindfs", "rename-directory-fsync-parent", {"durability"}),
        ("ext4/ordered@bindfs", "append-fsync-file", set()),
        ("ext4/ordered@gocryptfs", "mkdir-fsync-file-inside", {"readable", "durability"}),
        ("ext4/ordered@gocryptfs-deterministic-names", "mkdir-fsync-file-inside", set()),
    ],
)
def test_what_a_daemon_does_not_sync_is_missed(
    uml_kernel: Path, mode: str, workload: str, fails: set[str], tmp_path: Path
) -> None:
    """bindfs syncs files and no directories; gocryptfs not what it needs to read a new directory."""
    for program in ("bindfs", "gocryptfs", "fusermount"):
        need_program(program)
    _, by_messages, recording = recorded(uml_kernel, mode, workload, tmp_path)
    with Session(by_messages, tmp_path / "judge") as session:
        found, _ = looked_at(session, recording)
    assert found == fails


def test_a_folder_is_read_with_its_key_and_its_names_are_not_on_the_disk(
    uml_kernel: Path, tmp_path: Path
) -> None:
    """The kernel forgets the key with the unmount: without it, what fsync kept would be unreadable."""
    need_program("xfs_io")
    _, by_messages, recording = recorded(uml_kernel, "ext4/encrypt@encrypt", "append-fsync", tmp_path)
    bare, layer = replace(recording.target, log=None, order=None), recording.target.layer
    assert layer is not None
    disk = tmp_path / "disk.img"
    with Session(by_messages, tmp_path / "judge") as session:
        (seen, judged), *_ = visited(session, recording, [recording.end.prefix])
        code, told = session.change(
            bare, layer.checking("touch /below/secret/telling-name /below/plain-name"), disk
        )
    assert (code, judged.violations, {*seen.tree} >= {"f", "g"}) == (0, (), True), told
    on_disk = disk.read_bytes()
    assert (b"plain-name" in on_disk, b"telling-name" in on_disk) == (True, False)


@pytest.mark.parametrize("mode", ["ext4/ordered", "ext4/nobarrier"])
def test_an_image_that_was_acknowledged_is_mounted_by_the_kernel(
    uml_kernel: Path, mode: str, tmp_path: Path
) -> None:
    """A control and its opposite."""
    _, by_messages, recording = recorded(uml_kernel, mode, "erofs-mounted", tmp_path)
    with Session(by_messages, tmp_path / "judge") as session:
        found, _ = looked_at(session, recording)
    assert ("program" in found) is ("nobarrier" in mode)
    assert found == set() or "nobarrier" in mode


@pytest.mark.parametrize(
    ("mode", "loses"),
    [
        ("ext4/ordered@nfs", set()),
        ("btrfs/default@nfs", {"durability"}),
        ("ext4/ordered@nfs3", {"atomicity"}),
        ("ext4/ordered@nfs-async", {"durability"}),
    ],
)
def test_what_an_nfs_server_acknowledged_is_judged_on_its_file_system(
    mode: str, loses: set[str], tmp_path: Path
) -> None:
    """Controls and their opposites. After the `remount`, which ends the server and starts it again, Btrfs has
    nothing commit the change of names; exported async, ext4 has not either. NFS 3 makes a file whose mode is
    0, and then changes its mode.
    """
    workload = tmp_path / "remounted.toml"
    operations = ["create f", "append f 5000", "remount", "rename f g", "fsync .", "create other"]
    workload.write_text(f'summary = "x"\noperations = {operations}\n')
    plan = Plan(configurations=[mode], workloads=[str(workload)], accel="tcg", budget=Budget(visits=60))
    summary, _ = run_plan(plan, tmp_path)
    (case,) = summary.cases
    assert {finding.oracle for finding in case.findings} == loses
    assert case.verdict is (CaseVerdict.FAIL if loses else CaseVerdict.PASS)


def test_the_shell_starts_a_layer_by_its_steps_on_either_disk(tmp_path: Path) -> None:
    """It said to mount ext4 in a file of ext4 as if it were the one below."""
    plan = Plan(
        configurations=["ext4/nobarrier@loop"],
        workloads=["append-fsync"],
        budget=Budget(visits=2),
        accel="tcg",
    )
    _, path = run_plan(plan, tmp_path)
    words = ["repro", "ext4-nobarrier@loop/append-fsync@0", "--from", str(path), "--accel", "tcg", "--shell"]
    mounted = "mount -t ext4 -o data=ordered /dev/loop0 /mnt && ls /mnt && grep loop0 /proc/mounts"
    undone = "umount /mnt && sh -e /stop-stack && grep -c below /proc/mounts"
    typed = f"sh -e /start-stack && {mounted}; {undone}; sh -e /start-stack /dev/vdb && {mounted}; exit\n"
    said, answer = in_shell(words, typed.encode())
    assert "    sh -e /start-stack\r\n    mount -t ext4 -o data=ordered /dev/loop0 /mnt\r\n" in said
    assert "first umount /mnt && sh -e /stop-stack, then:" in said
    assert answer.count("lost+found") == 2, said + answer
    assert "\r\n0\r\n" in answer, answer
