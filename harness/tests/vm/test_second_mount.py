"""What real guests say of a second mount, and of one that cannot be written to."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest

from harness.guests import wire
from harness.guests.script import RECOVER_TIMEOUT_S
from harness.guests.session import CLOCK_S, Session
from harness.oracles.trees import changes
from harness.tests.vm.test_shared_disk import recorded


@pytest.mark.parametrize("mode", ["ext4/ordered", "xfs/default", "btrfs/default"])
def test_a_second_mount_shows_what_the_first_showed(uml_kernel: Path, tmp_path: Path, mode: str) -> None:
    """By the digests of both, and entry by entry, bytes included. Nobody made one before writing to it."""
    spec, _, recording = recorded(uml_kernel, mode, "append-fsync", tmp_path)
    target = recording.target
    with Session(spec, tmp_path / "judge") as session:
        recovery = session.recover(target, recording.end)
        alike = session.use(target, None, before=recovery.looks, contents=True)
        whole = session.use(target, None, contents=True)
        names = session.use(target, None, before=recovery.looks)
    assert not recovery.outcome.read_only
    assert (alike.tree, alike.looks) == (None, recovery.looks)
    assert (names.tree, names.looks) == (None, wire.Looks(names=recovery.looks.names))
    assert whole.tree is not None
    assert list(changes(recovery.outcome.tree, whole.tree)) == []
    assert any(entry.extents for entry in whole.tree.values())


def test_a_guest_tells_of_a_mount_that_cannot_be_written_to(uml_kernel: Path, tmp_path: Path) -> None:
    """It was not asked: a file system that came back read-only after each crash passed. A mode that is
    mounted so is no such case.
    """
    spec, _, recording = recorded(uml_kernel, "ext4/ordered", "append-fsync", tmp_path)
    target = dataclasses.replace(recording.target, mount_options=f"{recording.target.mount_options},ro")
    with Session(spec, tmp_path / "judge") as session:
        assert not session.recover(target, recording.end).outcome.read_only
        request = wire.Recover(
            device=spec.machine.data_device, mount=target.mount, clock_s=CLOCK_S, keep_mounted=False
        )
        assert session.guest().request(request, wire.Recovered, RECOVER_TIMEOUT_S).read_only
        refused = session.use(target).result.errors
    assert errno.EROFS in {error.errno for error in refused}
