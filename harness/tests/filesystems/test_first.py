"""What a mode has done with a crashed disk before it is mounted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.cases.recording import target_of
from harness.errors import UsageError
from harness.filesystems import profiles as module
from harness.filesystems.profile import First
from harness.filesystems.profiles import profiles, select_profiles
from harness.guests import wire
from harness.host.resources import resource

FIRST = {name: p for name, p in profiles().items() if p.first}


def test_the_guest_does_the_steps_after_a_crash_and_not_before_it() -> None:
    """A recording that began with fsck or with a mount without recovery would be of another workload."""
    profile = FIRST["ext4/fsck-first"]
    target = target_of(profile, Path("base"), None)
    assert target.mount_whole == wire.MountSpec("ext4", "data=ordered")
    stack = target.mount.stack
    assert stack is not None
    assert (stack.device, stack.stop) == ("/dev/member-0", "")
    assert "e2fsck -f -y /dev/member-0 " in stack.start
    assert "{device}" not in stack.start


def test_a_console_gets_the_steps_as_the_guest_does_them() -> None:
    """It mounted the disk as the crash left it, which such a mode never does."""
    steps = FIRST["ext4/fsck-first"].console_steps
    assert steps is not None
    assert (steps.device, steps.stop) == ("", "")
    assert "e2fsck -f -y /dev/member-0 " in steps.start
    assert profiles()["ext4/ordered"].console_steps is None


@pytest.mark.parametrize("name", FIRST)
def test_such_a_mode_promises_what_it_promises_without_the_steps(name: str) -> None:
    """Else a repair that loses something would pass for a weaker mode."""
    mode = name.removesuffix("-first").rpartition("/")[2].rpartition("-")[0]
    plain = {"ext4": "ordered", "f2fs": "posix"}.get(FIRST[name].filesystem, "default")
    known = profiles()[f"{FIRST[name].filesystem}/{mode or plain}"]
    assert (FIRST[name].contract, FIRST[name].mount_options) == (known.contract, known.mount_options)
    assert FIRST[name].mkfs_arguments == known.mkfs_arguments
    assert FIRST[name].on_request


def test_the_programs_of_the_steps_come_into_the_guest() -> None:
    assert FIRST["f2fs/fsck-first"].guest_programs == ["busybox:busybox-static", "fsck.f2fs:f2fs-tools"]
    assert FIRST["ext4/norecovery-first"].guest_programs == ["busybox:busybox-static"]
    assert profiles()["ext4/ordered"].guest_programs == []


def test_the_steps_are_for_one_disk() -> None:
    with pytest.raises(UsageError, match="something is done before it is mounted, and not @raid1"):
        select_profiles(["ext4/fsck-first@raid1"])
    assert "ext4/fsck-first@raid1" not in {p.name for p in select_profiles(["ext4@raid1"])}


@pytest.mark.parametrize(
    ("beside", "wrong"), [("external-journal", True), ("ordered", False), ("../btrfs/raid1", True)]
)
def test_a_mode_with_further_devices_and_steps_is_refused(
    beside: str, wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps name one device, and the others would be left as they are."""
    folder = tmp_path / "toyfs"
    folder.mkdir()
    real = resource("vms", "filesystems", "ext4")
    (folder / "filesystem.toml").write_text((real / "filesystem.toml").read_text().partition("[tracing]")[0])
    text = (real / f"{beside}.toml").read_text()
    (folder / "mode.toml").write_text(f'{text}\n[first]\nsteps = "true"\n')
    monkeypatch.setattr(module, "resource", lambda *_: tmp_path)
    monkeypatch.setattr(module, "complaints", lambda: ())
    if wrong:
        with pytest.raises(UsageError, match="for one disk"):
            profiles()
    else:
        assert profiles()["toyfs/mode"].first == First("true")


def test_steps_with_an_unknown_word_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"steps": "true", "program": ["e2fsck"]}, First)


@pytest.mark.parametrize("name", FIRST)
def test_what_steps_may_look_at_tells_contents_apart(name: str) -> None:
    """e2fsck reads the counts of mounts and of free blocks, and says if they are wrong: two states that
    differed in these alone were one to the memo.
    """
    assert FIRST[name].mount_counters == ()
    assert profiles()["ext4/ordered"].mount_counters
