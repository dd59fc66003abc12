"""A disk that somebody has: what is on it, a copy of it, and the modes that it can be of."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.cases.recording import make_base, target_of
from harness.errors import UsageError
from harness.filesystems.existing import allocated_bytes, copy_of, look_at
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles, select_profiles
from harness.filesystems.tools import Tool
from harness.guests.session import OUTSIDE_BYTES, OUTSIDE_NAMES
from harness.host.packed import unpack
from harness.plan import ExistingDisk

MIB = 1 << 20


def one(name: str) -> Profile:
    (profile,) = select_profiles([name])
    return profile


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """8 MiB and a half, ext4, with a file."""
    (tmp_path / "tree" / "etc").mkdir(parents=True)
    (tmp_path / "tree" / "etc" / "hosts").write_text("localhost\n")
    path = tmp_path / "root.ext4"
    mkfs = Tool("mke2fs", "e2fsprogs").path()
    subprocess.run([mkfs, "-q", "-t", "ext4", "-d", str(tmp_path / "tree"), str(path), "8704k"], check=True)
    return path


def test_a_disk_is_known_by_its_contents_and_its_file_system(disk: Path) -> None:
    image = look_at(disk, [one("ext4/ordered@image")])
    assert image == ExistingDisk(str(disk), hashlib.sha256(disk.read_bytes()).hexdigest(), 8704 << 10)
    assert allocated_bytes(image) == disk.stat().st_blocks * 512 < image.size_bytes


def test_a_disk_of_another_file_system_is_refused_with_what_it_is(disk: Path) -> None:
    with pytest.raises(UsageError, match="is ext4, and xfs/default@image takes xfs"):
        look_at(disk, [one("ext4/ordered@image"), one("xfs/default@image")])


def _partitioned() -> bytes:
    """A master boot record with one partition (UEFI specification 2.10, 5.2.1)."""
    entry = bytes([0, 0, 2, 0, 0x83, 0, 0, 0]) + (8).to_bytes(4, "little") + (1024).to_bytes(4, "little")
    return bytes(446) + entry + bytes(48) + b"\x55\xaa" + bytes(MIB)


@pytest.mark.parametrize(
    ("contents", "says"),
    [(bytes(MIB), "nothing that blkid knows"), (_partitioned(), "a partition table, and not a file system")],
)
def test_a_disk_without_a_file_system_is_refused(contents: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(contents)
    with pytest.raises(UsageError, match=says):
        look_at(path, [one("ext4/ordered@image")])


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_what_is_no_disk_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        look_at(tmp_path / name, [one("ext4/ordered@image")])


def test_a_copy_is_filled_up_to_whole_mib_and_the_disk_stays_as_it_is(disk: Path, tmp_path: Path) -> None:
    image, before = look_at(disk, [one("ext4/ordered@image")]), disk.read_bytes()
    copy_of(image, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == before + bytes(MIB // 2)
    assert disk.read_bytes() == before
    assert (tmp_path / "copy").stat().st_blocks <= disk.stat().st_blocks


def test_a_copy_is_compared_while_it_is_made(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a disk of many GiB was read from its copy once more."""
    image, opened = look_at(disk, [one("ext4/ordered@image")]), []
    really = Path.open

    def counted(path: Path, *args: Any, **fields: Any) -> Any:
        opened.append((path, args[0]))
        return really(path, *args, **fields)

    monkeypatch.setattr(Path, "open", counted)
    copy_of(image, tmp_path / "copy")
    assert opened == [(disk, "rb"), (tmp_path / "copy", "wb")]


def test_a_disk_that_has_changed_since_is_refused(disk: Path, tmp_path: Path) -> None:
    image = look_at(disk, [one("ext4/ordered@image")])
    with pytest.raises(UsageError, match="not what it was when the run began"):
        copy_of(msgspec.structs.replace(image, sha256="0" * 64), tmp_path / "copy")


def test_a_base_image_is_the_disk_and_unpacks_whatever_its_size(disk: Path, tmp_path: Path) -> None:
    """The size of a mode's own disk is no limit for it."""
    profile = replace(one("ext4/ordered@image"), size_bytes=MIB)
    image = look_at(disk, [profile])
    made = make_base(profile, tmp_path / "kept.zst", tmp_path, existing=image)
    assert made.read_bytes()[: image.size_bytes] == disk.read_bytes()
    again = unpack(tmp_path / "kept.zst", tmp_path / "again", profile.base_bytes_max)
    assert again.read_bytes() == made.read_bytes()


def test_operations_run_in_a_folder_that_is_bound_to_the_mount_point() -> None:
    profile = one("ext4/journal@image")
    assert (profile.folder, profile.is_finished_in_guest, profile.mode) == ("powercut", True, "journal@image")
    target = target_of(profile, Path("base"), None)
    assert (target.mount.fstype, target.mount.options) == ("none", "bind")
    assert target.mount.stack is not None
    assert target.mount.stack.device == "/below/powercut"
    assert "mount -o noatime -t ext4 -o data=journal /dev/member-0 /below" in target.mount.stack.start
    assert "powercut" not in target.mount.stack.start, "a folder that is lost is not made again"
    assert target.outside is not None
    assert (target.outside.root, target.outside.folder) == ("/below", "powercut")
    assert target_of(one("ext4/ordered@overlay"), Path("base"), None).outside is None


def test_a_workload_that_wants_a_larger_disk_gets_the_one_that_is_there() -> None:
    profile = one("ext4/ordered@image")
    assert profile.sized(4096) is profile
    assert profiles()["ext4/ordered"].sized(4096).size_bytes == 4096 * MIB


def test_a_mode_that_mkfs_makes_is_on_no_disk_that_somebody_has() -> None:
    """Nothing says whether the disk has what the contract of the mode relies on."""
    with pytest.raises(UsageError, match="a disk of its own mkfs"):
        select_profiles(["ext4/1k-blocks@image"])
    names = {p.name for p in select_profiles(["ext4@image"])}
    assert "ext4/ordered@image" in names
    assert "ext4/1k-blocks@image" not in names
    assert "ext4/1k-blocks@overlay" in {p.name for p in select_profiles(["ext4@overlay"])}


def test_the_page_says_how_much_is_compared() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "howto" / "existing-disk.md").read_text()
    assert f"{OUTSIDE_NAMES:,} names" in page
    assert f"{OUTSIDE_BYTES >> 20} MiB in all" in page
