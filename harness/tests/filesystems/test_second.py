"""A second device: cut out and joined, named to programs, and modes that do not fit together are refused."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.fsck_reads import FsckReads
from harness.cases.recording import make_base, target_of
from harness.errors import EnvironmentLacks, UsageError
from harness.filesystems import profiles as filesystems
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles
from harness.filesystems.second import Patch, file_for, join, patch, split_off
from harness.filesystems.tools import Tool
from harness.host.resources import resource
from harness.model import FsckClass

EXTERNAL = profiles()["ext4/external-journal"]
BLOCK_BYTES = 4096


@given(front=st.binary(min_size=1, max_size=9000), tail=st.binary(min_size=1, max_size=9000))
def test_what_is_cut_out_joins_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, front: bytes, tail: bytes
) -> None:
    image = tmp_path_factory.mktemp("second") / "disk.img"
    image.write_bytes(front + tail)
    second = split_off(image, len(front))
    assert (image.read_bytes(), second.read_bytes()) == (front + tail, tail)
    image.write_bytes(front)
    join(image, second, len(front), len(tail))
    assert image.read_bytes() == front + tail
    assert not second.exists()


HOLE_BYTES = 1 << 20


@given(
    begin=st.integers(0, 3 * BLOCK_BYTES),
    holes=st.lists(st.booleans(), min_size=1, max_size=4),
    data=st.binary(min_size=1, max_size=9000),
)
def test_holes_are_cut_out_as_holes(
    tmp_path_factory: pytest.TempPathFactory, begin: int, holes: list[bool], data: bytes
) -> None:
    image = tmp_path_factory.mktemp("second") / "disk.img"
    with image.open("wb") as file:
        file.write(b"front".ljust(begin, b"f"))
        for hole in holes:
            file.write(data)
            file.seek(HOLE_BYTES if hole else 0, os.SEEK_CUR)
        file.truncate()
    second = split_off(image, begin)
    assert second.read_bytes() == image.read_bytes()[begin:]
    assert second.stat().st_blocks * 512 < HOLE_BYTES


@pytest.mark.parametrize("name", ["disk.img", "disk.second"])
def test_a_program_that_changes_a_devices_size_is_told_of(tmp_path: Path, name: str) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(20))
    second = split_off(image, 12)
    image.write_bytes(bytes(12))
    (tmp_path / name).write_bytes(bytes(5))
    with pytest.raises(EnvironmentLacks, match=f"mkfs made {name} 5 bytes long"):
        join(image, second, 12, 8)


def test_patches_are_written_where_they_say(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.write_bytes(bytes(8))
    patch(second, [Patch(2, "ff01"), Patch(7, "aa")])
    assert second.read_bytes() == bytes.fromhex("0000ff01000000aa")


def test_programs_are_given_both_files(tmp_path: Path) -> None:
    script = tmp_path / "tells"
    script.write_text('#!/bin/sh\necho "$@"\n')
    script.chmod(0o755)
    tool, image = Tool(str(script), "none", ["-j", "{second}"]), tmp_path / "disk.img"
    second = str(file_for(image))
    assert tool.run(image, ["-n"]).stdout.decode().split() == ["-j", second, "-n", str(image)]
    assert tool.run_line(["{second}"], image).stdout.decode().split() == [second]


def test_the_disk_of_two_devices_is_as_long_as_both() -> None:
    assert (EXTERNAL.second_offset, EXTERNAL.size_bytes) == (64 << 20, 72 << 20)
    assert profiles()["ext4/ordered"].second_offset == 0
    assert target_of(EXTERNAL, Path("base"), None).mount.parts == [64 << 20]


def test_how_both_are_made_is_told() -> None:
    mkfs, journal, *_ = EXTERNAL.mkfs_line.split("; ")
    assert mkfs.startswith("mkfs.ext4 ")
    assert "-O journal_dev" in journal
    assert ";" not in profiles()["xfs/external-log"].mkfs_line


def made(profile: Profile, folder: Path) -> FsckReads:
    image = make_base(profile, folder / "kept.zst", folder)
    assert image.stat().st_size == profile.size_bytes
    return FsckReads.of(profile, image)


def test_journal_and_file_system_know_each_other(tmp_path: Path) -> None:
    checked = made(EXTERNAL, tmp_path)
    assert checked.result.classified is FsckClass.CLEAN, checked.result.output
    assert checked.blocks is not None
    journal_superblock = EXTERNAL.second_offset // BLOCK_BYTES + 1
    assert journal_superblock in checked.blocks, "reads of the second device count too"


def test_a_file_system_that_does_not_know_its_journal_is_not_clean(tmp_path: Path) -> None:
    assert EXTERNAL.second is not None
    without_uuid = msgspec.structs.replace(EXTERNAL.second, steps=EXTERNAL.second.steps[:-1])
    checked = made(dataclasses.replace(EXTERNAL, second=without_uuid), tmp_path)
    assert checked.result.classified is not FsckClass.CLEAN, checked.result.output


def test_a_step_that_fails_says_so(tmp_path: Path) -> None:
    assert EXTERNAL.second is not None
    failing = msgspec.structs.replace(EXTERNAL.second, steps=[Tool("false", "coreutils")])
    with pytest.raises(EnvironmentLacks, match="false failed with 1"):
        made(dataclasses.replace(EXTERNAL, second=failing), tmp_path)


NAMED = "mount_options = ['logdev=/dev/second']"
TOLD = "fsck_arguments = ['{second}']"
WRONG = {
    "mkfs_arguments = ['{second}']": "need a second device: add \\[second\\]",
    NAMED: "/dev/second need a second device: add \\[second\\]",
    f"second = {{size_mib = 4, {TOLD}}}": "no mount option names the second device",
    f"{NAMED}\nsecond.size_mib = 4": "xfs_repair needs the second device",
    f"{NAMED}\nsecond = {{size_mib = 0, {TOLD}}}": "second.size_mib = 0: a device has a size",
    f"{NAMED}\nsecond = {{size_mib = 1, {TOLD}, patches = [{{at = 1, hex = 'x'}}]}}": "hexadecimal",
    f"{NAMED}\nsecond = {{size_mib = 1, {TOLD}, patches = [{{at = 1048575, hex = '0000'}}]}}": "not within",
}


def refused(filesystem: str, lines: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is told of a mode with these lines and the file system's default contract."""
    own = resource("vms", "filesystems") / filesystem
    (folder / filesystem).mkdir()
    shutil.copy(own / "filesystem.toml", folder / filesystem)
    contract = (own / "default.toml").read_text().split("[contract]")[1]
    (folder / filesystem / "mine.toml").write_text(f"summary = 'mine'\n{lines}\n[contract]{contract}")
    monkeypatch.setattr(filesystems, "resource", lambda *_: folder)
    with pytest.raises(UsageError) as caught:
        profiles()
    return str(caught.value)


@pytest.mark.parametrize(("lines", "told"), WRONG.items(), ids=WRONG.values())
def test_what_does_not_fit_together_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, told: str
) -> None:
    assert re.search(told, refused("xfs", lines, tmp_path, monkeypatch))


def test_a_repair_before_the_mount_has_no_second_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f"{NAMED}\nsecond = {{size_mib = 1, {TOLD}}}"
    assert "e2fsck before the mount" in refused("ext2", lines, tmp_path, monkeypatch)
