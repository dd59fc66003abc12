"""A file system below overlayfs: what is the lower layer, what is copied up, what a replacement loses."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cases.examine import Examiner
from harness.cases.recording import Recording
from harness.filesystems.profiles import Tool, select_profiles
from harness.guests.session import Session
from harness.model import CrashState, Outcome
from harness.oracles.question import why_not
from harness.tests.vm.test_shared_disk import recorded


def listed(image: Path, folder: str) -> set[str]:
    """The names in a directory of an ext4 image that nobody has mounted."""
    debugfs = Tool("debugfs", "e2fsprogs").path()
    run = subprocess.run(
        [debugfs, "-R", f"ls -p {folder}", str(image)], check=True, capture_output=True, text=True
    )
    return {line.split("/")[5] for line in run.stdout.splitlines() if line.count("/") > 5} - {".", ".."}


def looked_at(session: Session, recording: Recording) -> tuple[set[str], bool]:
    """Of the prefixes of a log: the oracles that fail, and whether the question is once answered with no."""
    examiner, stop, found, no = Examiner(recording), threading.Event(), set(), False
    asked = recording.workload.question
    assert asked is not None
    for entries in range(recording.end.prefix + 1):
        seen = examiner.visit(session, [CrashState(entries)], stop)
        assert isinstance(seen.outcome, Outcome), (entries, seen.outcome)
        found |= {v.oracle for v in examiner.judge(CrashState(entries), seen).violations}
        no |= "other" in seen.outcome.tree and bool(why_not(asked, seen.outcome.tree))
    examiner.close()
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
