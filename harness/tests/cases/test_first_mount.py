"""What a first mount writes becomes part of the base image."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from harness.cases import first_mount
from harness.filesystems.profiles import profiles
from harness.host.packed import unpack
from harness.model import BLOCK_BYTES
from harness.tests.states.recorder import Recorder, contents, write_files
from harness.writelog.times import Times


class Mounts:
    """A session whose recordings are all alike."""

    def __init__(self, log_device: Path) -> None:
        self.log = log_device

    def record(self, *_: object) -> str:
        return "its events"


@pytest.mark.parametrize("timed", [True, False])
def test_the_base_image_holds_what_mount_wrote_and_nothing_of_an_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    """dm-log-writes logs what mount left in the cache only at the next flush, behind the first operations."""
    made = Recorder()
    mounting = made.submit(0)
    made.mark("begin 0")
    made.write(1)
    made.complete(mounting)
    base, log = write_files(made, tmp_path)
    before = base.read_bytes()
    times: Times | None = made.times if timed else None
    monkeypatch.setattr(first_mount, "times_of", lambda *_: times)
    profile = profiles()["xfs/default"]
    first_mount.mount_once(cast(Any, Mounts(log)), profile, base, tmp_path / "kept.zst")
    wrote = contents(mounting, 8) if timed else before[:BLOCK_BYTES]
    assert base.read_bytes() == wrote + before[BLOCK_BYTES:]
    assert (tmp_path / "kept.zst").exists() is timed
    if timed:
        assert (
            unpack(tmp_path / "kept.zst", tmp_path / "again", len(before)).read_bytes() == base.read_bytes()
        )


def test_xfs_is_mounted_once() -> None:
    assert {name.partition("/")[0] for name, p in profiles().items() if p.mounted_once} == {"xfs"}
