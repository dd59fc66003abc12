"""A run on a disk that somebody has: what it does to the disk, what it refuses, and what it notices."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cases.crash_and_continue import record
from harness.cases.examine import Examiner
from harness.cases.first_mount import finish_base
from harness.cases.recording import Recording, make_base
from harness.errors import ExitCode, UsageError
from harness.filesystems.existing import look_at
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.filesystems.tools import Tool
from harness.guests.guest_specs import spec_of
from harness.guests.session import GuestSpec, Session, _made
from harness.kernels.find import Kernel
from harness.model import SECTOR_BYTES, CaseId, CrashState, Outcome
from harness.plan import Plan
from harness.store import RunStore
from harness.store.layout import CaseLayout
from harness.store.records import CaseStatus
from harness.summary import CaseVerdict, shell_code
from harness.tests.vm.conftest import run_plan
from harness.tests.vm.test_shared_disk import LOG_BYTES, ByMessages
from harness.workloads.load import load_workload
from harness.writelog import read_log

FILES = 150
MIB = 1 << 20


def debugfs(disk: Path, request: str) -> str:
    words = [Tool("debugfs", "e2fsprogs").path(), "-w", "-R", request, str(disk)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """16 MiB with some files."""
    tree = tmp_path / "tree"
    (tree / "etc" / "deep").mkdir(parents=True)
    for number in range(FILES):
        (tree / "etc" / f"f{number}").write_bytes(b"%d\n" % number * 700)
    (tree / "etc" / "deep" / "link").symlink_to("../f1")
    path = tmp_path / "root.ext4"
    mkfs = [Tool("mke2fs", "e2fsprogs").path(), "-q", "-t", "ext4", "-b", "4096", "-d", str(tree), str(path)]
    subprocess.run([*mkfs, "16M"], check=True)
    return path


@dataclass(frozen=True)
class Equipment:
    """What recordings on a disk are made with."""

    profile: Profile
    spec: GuestSpec
    folder: Path

    def finished(self, disk: Path) -> tuple[Path, str]:
        """The base image of a disk, and what is said of it."""
        name = disk.stem
        folder = self.folder / name
        folder.mkdir()
        base = make_base(self.profile, folder / "base.zst", folder, existing=look_at(disk, [self.profile]))
        with Session(self.spec, folder / "first-mount", LOG_BYTES) as session:
            return base, finish_base(session, self.profile, base, folder / "base.zst")

    def recorded(self, base: Path, workload: str) -> Recording:
        case = CaseId(self.profile.filesystem, self.profile.mode, workload)
        kept = CaseLayout(base.parent / "base.zst", base.parent / "case")
        with Session(self.spec, base.parent / "recorder", LOG_BYTES) as session:
            asked = load_workload(workload)
            return record(session, self.profile, asked, case, base, kept, base.parent)


@pytest.fixture
def equipment(uml_kernel: Path, tmp_path: Path) -> Equipment:
    (profile,) = select_profiles(["ext4/ordered@image"])
    own = Kernel("uml", uml_kernel, None, "")
    folder = tmp_path / "equipment"
    folder.mkdir()
    spec = spec_of(ByMessages(), own, [profile], [], folder / "initramfs.cpio")
    return Equipment(profile, spec, folder)


def judged(recording: Recording, session: Session, state: CrashState) -> list[str]:
    examiner = Examiner(recording)
    try:
        seen = examiner.visit(session, [state], threading.Event())
        assert isinstance(seen.outcome, Outcome), seen.outcome
        return [f"{v.oracle} {v.subject}" for v in examiner.judge(state, seen).violations]
    finally:
        examiner.close()


def redirected(recording: Recording, block: int, to: int) -> Recording:
    """With the writes to one block of 4 KiB landing on another, and with them what lies behind it."""
    log = bytearray(recording.log.read_bytes())
    entries = [e for e in recording.write_log.entries if e.sectors and e.sector == block * 8]
    assert entries
    for entry in entries:
        header = entry.data_offset - SECTOR_BYTES
        assert struct.unpack_from("<Q", log, header) == (entry.sector,)
        struct.pack_into("<Q", log, header, to * 8)
    path = recording.log.with_suffix(".redirected")
    path.write_bytes(log)
    return dataclasses.replace(recording, log=path, write_log=read_log(path))


def test_what_nobody_touched_stays_and_a_loss_of_it_is_seen(equipment: Equipment, disk: Path) -> None:
    """A write of the workload's file that lands on a file of the user's: fsck has nothing to say of that."""
    before = disk.read_bytes()
    base, said = equipment.finished(disk)
    names = FILES + 5  # with the root, etc, etc/deep, its link and lost+found
    assert said.startswith(f"{names} names outside the folder powercut, of which all are compared")
    assert f"the contents of {FILES} of {FILES} files" in said
    recording = equipment.recorded(base, "append-fsync")
    theirs, end = int(debugfs(base, "bmap /etc/f7 0")), base.with_suffix(".end")
    with Session(equipment.spec, equipment.folder / "judge", LOG_BYTES) as session:
        for prefix in range(0, recording.end.prefix + 1, 6):
            assert judged(recording, session, CrashState(prefix)) == [], prefix
        session.show(recording.target).switch(recording.end)
        session.disk.image(end)
        wrong = redirected(recording, int(debugfs(end, "bmap /powercut/f 0")), theirs)
        found = judged(wrong, session, wrong.end)
    assert "outside etc/f7" in found
    assert not any(line.startswith("fsck") for line in found)
    assert 1 <= sum(line.startswith("outside") for line in found) <= 8, "and of no file beyond that write"
    assert disk.read_bytes() == before, "the user's disk is only read"


def test_a_folder_that_is_lost_is_no_empty_one(equipment: Equipment, disk: Path) -> None:
    base, _ = equipment.finished(disk)
    recording = equipment.recorded(base, "append-fsync")
    damaged = base.with_suffix(".damaged")
    damaged.write_bytes(base.read_bytes())
    debugfs(damaged, "unlink /powercut")
    with Session(equipment.spec, equipment.folder / "judge", LOG_BYTES) as session:
        session.remember(recording.target)
        assert recording.target.outside is not None
        # the guest still remembers the disk as it was
        session._remembered = (damaged, *_made(damaged))
        seen = session.recover(dataclasses.replace(recording.target, base=damaged, log=None), CrashState(0))
    assert seen.outcome.mount_errno == 2


def test_a_disk_on_which_nothing_can_be_judged_is_refused(equipment: Equipment, disk: Path) -> None:
    """Each crash state would have failed, for what was wrong before any crash."""
    for name, request, says in (
        ("taken", "mkdir /powercut", "has a folder powercut already"),
        ("torn", "clri /etc/f9", "finds fault with the disk before any crash"),
        ("future", "feature FEATURE_I20", "does not mount the disk as ext4/ordered@image.*0x100000|100000"),
    ):
        other = disk.with_name(f"{name}.ext4")
        other.write_bytes(disk.read_bytes())
        debugfs(other, request)
        with pytest.raises(UsageError, match=says):
            equipment.finished(other)


def test_a_disk_that_was_not_unmounted_is_recovered_first_and_that_is_said(
    equipment: Equipment, disk: Path
) -> None:
    base, said = equipment.finished(disk)
    assert "unmounted" not in said
    recording = equipment.recorded(base, "append-fsync")
    crashed = disk.with_name("crashed.ext4")
    with Session(equipment.spec, equipment.folder / "judge", LOG_BYTES) as session:
        session.show(recording.target).switch(CrashState(recording.end.prefix - 12))
        session.disk.image(crashed)
    debugfs(crashed, "ln /powercut /renamed")
    debugfs(crashed, "unlink /powercut")
    _, said = equipment.finished(crashed)
    assert said.startswith("it was not unmounted cleanly, and this kernel recovered it first; ")


def test_a_disk_that_has_no_room_for_a_workload_says_so_and_keeps_its_promises_else(
    uml_kernel: Path, disk: Path, tmp_path: Path
) -> None:
    """95 % full: a workload that fits is judged as on any other disk."""
    big = tmp_path / "more-than-there-is.toml"
    big.write_text(
        'summary = "more than there is room for"\noperations = ["create f", "append f 16777216"]\n'
    )
    (profile,) = select_profiles(["ext4/ordered@image"])
    plan = Plan(
        configurations=[profile.name],
        workloads=["append-fsync", str(big)],
        machine="uml",
        image=look_at(disk, [profile]),
    )
    summary, path = run_plan(plan, tmp_path / "reports")
    assert shell_code(summary) is ExitCode.CONSISTENT
    fits, full = sorted(summary.cases, key=lambda c: c.case.workload)
    assert fits.verdict is CaseVerdict.PASS
    with RunStore.open(path) as store:
        record_ = store.case(full.case)
        assert record_ is not None
        assert record_.status is CaseStatus.NOT_SUPPORTED
        assert "ENOSPC" in record_.reason
        assert "names outside the folder" in store.info.machine.details["image"]
    assert "names outside the folder" in (path / "report.html").read_text()
