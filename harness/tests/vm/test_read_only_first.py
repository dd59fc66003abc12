"""A disk that is mounted read-only after a crash, as a boot does with its root file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.guests.session import Session
from harness.tests.vm.test_shared_disk import recorded


@pytest.mark.parametrize(("mode", "first"), [("ext4/read-only-first", True), ("ext4/ordered", False)])
def test_recovery_happens_in_a_read_only_mount_that_becomes_writable(
    uml_kernel: Path, tmp_path: Path, mode: str, first: bool
) -> None:
    """Fast commits that fail to be replayed by such a mount, and by no other, were never seen."""
    spec, _, recording = recorded(uml_kernel, mode, "append-fsync", tmp_path)
    assert recording.target.read_only_first is first
    crashed = recording.end
    with Session(spec, tmp_path / "judge") as session:
        recovery = session.recover(recording.target, crashed)
        used = session.use(recording.target).result
    assert recovery.outcome.mount_errno == 0
    said = [line for line in recovery.outcome.kernel_log if "mounted" in line]
    assert ["re-mounted" in line for line in said if "unmounting" not in line] == [False, True][: 1 + first]
    assert (" ro " in said[0]) is first
    assert "r/w" in said[1 if first else 0]
    assert used.mount_errno == 0
    assert not used.errors
