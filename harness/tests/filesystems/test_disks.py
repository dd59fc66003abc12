"""Other kinds of disk: their files, their names, and what mkfs is told of them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cases.recording import make_base, target_of
from harness.errors import UsageError
from harness.filesystems import disks as module
from harness.filesystems.disks import USUAL, disks, with_sectors
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.model import CaseId, CrashPoint


def one(name: str) -> Profile:
    (profile,) = select_profiles([name])
    return profile


def test_sectors_are_named_by_their_sizes() -> None:
    assert with_sectors("4096").name == "4k"
    assert with_sectors("512/4096").name == "512e"
    assert with_sectors("512") == with_sectors("512/512") == USUAL
    for wrong in ("1024", "4096/512", "4k", "", "512/", "/512", "-1", "512/4096/1", "²"):
        with pytest.raises(UsageError, match="no disk has sectors"):
            with_sectors(wrong)


def test_a_mode_on_a_disk_is_another_mode_that_runs_if_it_is_named() -> None:
    profile = one("ext4/ordered@4k")
    assert (profile.name, profile.on_request) == ("ext4/ordered@4k", True)
    assert profile.disk is disks()["4k"]
    assert target_of(profile, Path("base"), None).disk is profile.disk
    point = CrashPoint.parse("ext4-ordered@4k/append-fsync@417")
    assert point.case == CaseId("ext4", "ordered@4k", "append-fsync")
    assert str(point) == "ext4-ordered@4k/append-fsync@417"


def test_the_members_of_a_stack_are_disks_of_that_kind() -> None:
    profile = one("ext4/ordered@raid1-0@4k")
    assert profile.stacked is not None
    assert (profile.stacked.missing, profile.disk.name) == (0, "4k")
    assert CaseId.parse("ext4-ordered@raid1-0@4k/append-fsync").mode == "ordered@raid1-0@4k"


def test_a_mode_that_mkfs_cannot_make_for_such_sectors_is_refused_and_left_out_of_all() -> None:
    with pytest.raises(UsageError, match="minix/default needs sectors of 512 bytes"):
        select_profiles(["minix/default@4k"])
    with pytest.raises(UsageError, match="ext4/1k-blocks needs sectors of 1024 bytes at most"):
        select_profiles(["ext4/1k-blocks@4k"])  # which ended in mkfs
    every = {p.name for p in select_profiles(["all@4k"])}
    assert {"ext4/ordered@4k", "xfs/default@4k", "btrfs/default@4k"} < every
    assert not any(name.startswith(("minix", "ext4/1k-blocks")) for name in every)
    assert {"minix/default@512e", "ext4/1k-blocks@512e"} < {p.name for p in select_profiles(["all@512e"])}


def test_a_name_that_is_no_disk_names_the_nearest() -> None:
    """Of all modes of a file system that can be on no stack it said that they cannot be on that one."""
    for word in ("vfat@ovrlay", "ext4/ordered@ovrlay"):
        with pytest.raises(UsageError, match="no stack or layer 'ovrlay'") as e:
            select_profiles([word])
        assert "overlay" in e.value.next_step
    with pytest.raises(UsageError, match="no stack 'nosuch'"):
        select_profiles(["vfat@nosuch"])
    with pytest.raises(UsageError, match="no mode of vfat can be on raid1"):
        select_profiles(["vfat@raid1"])
    with pytest.raises(UsageError, match="no stack or disk '4kn'") as e:
        select_profiles(["ext4/ordered@4kn"])
    assert "4k" in e.value.next_step
    with pytest.raises(UsageError, match="no stack 'raid'"):
        select_profiles(["ext4/ordered@raid"])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('summary = "a"\nlogical_bytes = 4096', "a physical sector holds whole logical ones"),
        ('summary = "a"\nphysical_bytes = 520', "sectors have 512 or 4096 bytes"),
        ('summary = "a"\nsectors = 1', "unknown field"),
        ('summary = "a"', "begins with a digit if only sectors differ"),
    ],
)
def test_a_file_that_describes_no_disk_is_refused(
    text: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.toml").write_text(text)
    monkeypatch.setattr(module, "resource", lambda *_: tmp_path)
    with pytest.raises(UsageError, match=wrong):
        disks.__wrapped__()


def sectors_of(image: Path) -> tuple[int, int]:
    """The bytes of a sector, and of one of the log (0: 512), as XFS's superblock has them (sb_sectsize,
    sb_logsectsize in fs/xfs/libxfs/xfs_format.h).
    """
    head = image.read_bytes()[:512]
    return int.from_bytes(head[102:104], "big"), int.from_bytes(head[194:196], "big")


@pytest.mark.parametrize(
    ("disk", "bytes_"), [("", 512), ("@4k", 4096), ("@512e", 4096), ("@writethrough", 512)]
)
def test_xfs_has_the_sectors_of_the_disk(disk: str, bytes_: int, tmp_path: Path) -> None:
    """mkfs sees an image file, and took its sectors for 512 bytes: no such file system mounts on 4 KiB."""
    for mode in ("xfs/default", "xfs/external-log"):
        image = make_base(one(f"{mode}{disk}"), tmp_path / f"{mode.replace('/', '-')}.zst", tmp_path)
        assert sectors_of(image) == (bytes_, bytes_ if bytes_ > USUAL.logical_bytes else 0)
        image.unlink()


def test_ext4_takes_no_blocks_smaller_than_a_sector(tmp_path: Path) -> None:
    unsaid = replace(one("ext4/1k-blocks"), block_bytes=0).on_disk(disks()["4k"])
    with pytest.raises(Exception, match=r"mkfs\.ext4 failed"):
        make_base(unsaid, tmp_path / "kept.zst", tmp_path)
    image = make_base(one("ext4/ordered@4k"), tmp_path / "ordered.zst", tmp_path)
    assert subprocess.run(["e2fsck", "-fn", str(image)], check=False, capture_output=True).returncode == 0
