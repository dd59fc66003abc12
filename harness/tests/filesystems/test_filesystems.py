"""Profiles: every one parses and is whole; fsck's exit codes; what is missing is told."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.expectations import read_expectations
from harness.filesystems.profiles import Profile, Tool, profiles, select_profiles
from harness.host.resources import resource
from harness.model import CaseId, FsckClass
from harness.tests.needs import needed
from harness.workloads.load import select_workloads

ALL = profiles()
LOG_LINES = (
    ("ext4", "EXT4-fs error (device vda): ext4_lookup:1821: inode #12: iget: checksum invalid", True),
    ("ext4", "EXT4-fs (vda): recovery complete", False),
    ("xfs", "XFS (vda): Metadata corruption detected at xfs_agf_read_verify", True),
    ("xfs", "XFS (vda): Internal error i != 1 at line 2000 of file fs/xfs/libxfs/xfs_alloc.c", True),
    ("xfs", "XFS (vda): Starting recovery (logdev: internal)", False),
    ("btrfs", "BTRFS error (device vda): bad tree block start", True),
    ("btrfs", "BTRFS info (device vda): start tree-log replay", False),
    ("f2fs", "F2FS-fs (vda): inconsistent node block, nid:3", True),
    ("f2fs", "F2FS-fs (vda): invalid crc value", False),
    ("f2fs", "F2FS-fs (vda): Mounted with checkpoint version = 6b8b4568", False),
    ("reiserfs", "REISERFS error (device vda): vs-5150 search_by_key", True),
    ("reiserfs", "REISERFS warning:  read_super_block: reiserfs filesystem is deprecated", False),
    ("jfs", "ERROR: (device vda): jfs_readdir: JFS:Dtree error", True),
    ("nilfs2", "NILFS (vda): recovery complete", False),
    ("gfs2", "gfs2: fsid=vda.0: fatal: filesystem consistency error - function = gfs2_make_fs_rw", True),
    ("gfs2", "gfs2: fsid=vda.0: first mount done, others may mount", False),
    ("minix", "MINIX-fs: mounting unchecked file system, running fsck is recommended", False),
    ("xfs", "XFS (dm-0): Metadata corruption detected at xfs_agf_read_verify", True),
)


@pytest.mark.parametrize("profile", ALL.values(), ids=list(ALL))
def test_a_profile_is_whole(profile: Profile) -> None:
    assert CaseId.parse(f"{profile.filesystem}-{profile.mode}/w").configuration == profile.name
    assert profile.size_bytes % 4096 == 0
    assert profile.contract.fsck_clean <= (profile.fsck is not None)
    assert len({t.package for t in profile.tools}) == 1
    for pattern in (*profile.console.errors, *profile.console.recovered):
        re.compile(pattern)


@pytest.mark.parametrize(("filesystem", "line", "matches"), LOG_LINES, ids=[line[1] for line in LOG_LINES])
def test_errors_are_told_from_recovery(filesystem: str, line: str, matches: bool) -> None:
    profile = select_profiles([filesystem])[0]
    assert any(re.search(p, line) for p in profile.console.errors) is matches


@pytest.mark.parametrize(
    "path",
    [
        "vms/filesystems/natural-faults.expected",
        "vms/filesystems/reordering.expected",
        "workloads/applications.expected",
    ],
)
def test_every_expectation_is_about_a_mode_and_a_workload_there_is(path: str) -> None:
    names = [w.name for w in select_workloads(["all", "applications"])]
    for expectation in read_expectations(resource(*path.split("/"))):
        assert any(
            expectation.applies_to(CaseId(p.filesystem, p.mode, name)) for p in ALL.values() for name in names
        ), f"{expectation.origin}: {expectation} speaks about nothing that can be run"


def test_a_filesystem_stands_for_its_modes() -> None:
    assert [p.mode for p in select_profiles(["xfs"])] == ["default", "external-log", "wsync"]
    with pytest.raises(UsageError, match="no file system or mode 'xsf'"):
        select_profiles(["xsf"])


def shell(tmp_path: Path, code: int) -> Tool:
    """A program that ends with this exit code, in place of a native one."""
    script = tmp_path / f"exit-{code}"
    script.write_text(f"#!/bin/sh\nexit {code}\n")
    script.chmod(0o755)
    return Tool(str(script), "none", clean=(0,), dirty=(4,))


@pytest.mark.parametrize(
    ("code", "expected"), [(0, FsckClass.CLEAN), (4, FsckClass.DIRTY), (8, FsckClass.FAILED)]
)
def test_an_exit_code_is_decoded_as_the_profile_says(tmp_path: Path, code: int, expected: FsckClass) -> None:
    profile = with_tools(fsck=shell(tmp_path, code))
    assert profile.check_filesystem(tmp_path).classified is expected


@pytest.mark.parametrize("filesystem", ["ext2", "ext3", "ext4"])
def test_e2fsck_that_gives_up_over_the_errors_it_found_has_found_errors(filesystem: str) -> None:
    tool = select_profiles([filesystem])[0].fsck
    assert tool is not None
    assert tool.dirty == (4, 12)  # and not 8, its own failure


def test_without_an_fsck_nothing_is_clean(tmp_path: Path) -> None:
    assert with_tools(fsck=None).check_filesystem(tmp_path).classified is FsckClass.FAILED


def test_what_is_missing_names_its_package(tmp_path: Path) -> None:
    here = shell(tmp_path, 0)
    assert with_tools(mkfs=here, fsck=here).lacks() == ""
    missing = with_tools(mkfs=here, fsck=Tool("fsck.nothing", "nothing-progs")).lacks()
    assert "fsck.nothing" in missing
    assert "apt-get install nothing-progs" in missing


def test_a_mode_may_leave_out_arguments_of_mkfs() -> None:
    assert "-J" in ALL["ext4/ordered"].mkfs.arguments
    assert "-J" not in ALL["ext4/no-journal"].mkfs.arguments


def with_tools(**tools: Tool | None) -> Profile:
    """ext4/ordered with other programs."""
    return dataclasses.replace(ALL["ext4/ordered"], **tools)  # type: ignore[arg-type]  # the caller's tools


JFS = """/usr/sbin/fsck.jfs version 1.1.15, 04-Mar-2011
processing started: 11/21/2026 0:00:17
The current device is:  IMAGE
Block size in bytes:  4096
Filesystem size in blocks:  16384
**Phase 1 - Check Blocks, Files/Directories, and  Directory Entries
**Phase 3 - Duplicate Block Rescan and Directory Connectedness
Directories with illegal hard links have been detected.
**Phase 4 - Report Problems
    65536 kilobytes total disk space.
ERRORS HAVE BEEN DETECTED.  Run fsck with the -f parameter to repair.
"""
XFS = """Cannot get host filesystem geometry.
Repair may fail if there is a sector size mismatch between
the image and the host filesystem.
Phase 1 - find and verify superblock...
Phase 2 - using internal log
        - zero log...
        - scan filesystem freespace and inode maps...
bad CRC for inode 139
        - found root inode chunk
"""
F2FS = """Info: Dry run
Info: MKFS version
  "Linux version 6.12 (builder) #1 SMP"
Info: FSCK version
  from "Linux version 6.12 (builder) #1 SMP"
    to "Linux version 6.12 (builder) #1 SMP"
Info: checkpoint state = 85 :  nat_bits compacted_summary unmount

NID[0x28] is unreachable, blkaddr:0x4000
[FSCK] Unreachable nat entries                        [Fail] [0x1]
"""
REISERFS = """reiserfsck 3.6.27

Will read-only check consistency of the filesystem on IMAGE
Will put log info to 'stdout'
###########
reiserfsck --check started at Sat Nov 21 02:06:35 2026
###########
Replaying journal: No transactions found
Checking internal tree..  \\finished
Comparing bitmaps..Checking Semantic tree:
vpf-10640: The on-disk and the correct bitmaps differs.
1 found corruptions can be fixed when running with --fix-fixable
"""
GFS2 = """Initializing fsck
Validating resource group index.
Level 1 resource group check: Checking if all rgrp and rindex values are good.
(level 1 passed)
Starting pass1
Block 18 (0x12) bitmap says 3 (inode) but FSCK saw 0 (free)
"""

EXT4 = """\
e2fsck 1.47.0 (5-Feb-2023)
Warning: skipping journal recovery because doing a read-only filesystem check.
Pass 1: Checking inodes, blocks, and sizes
Pass 2: Checking directory structure
Pass 3: Checking directory connectivity
Pass 4: Checking reference counts
Inode 2 ref count is 7, should be 3.  Fix? no

Pass 5: Checking group summary information

i: ********** WARNING: Filesystem still has errors **********

i: 11/4096 files (0.0% non-contiguous), 2325/16384 blocks
"""
NOTHING_ELSE = EXT4.replace("Inode 2 ref count is 7, should be 3.  Fix? no", "")


@pytest.mark.parametrize(
    ("filesystem", "output", "complaint"),
    [
        ("ext4", EXT4, "Inode 2 ref count is 7, should be 3.  Fix? no"),
        ("ext2", EXT4, "Inode 2 ref count is 7, should be 3.  Fix? no"),
        ("ext4", NOTHING_ELSE, ""),
        ("jfs", JFS, "Directories with illegal hard links have been detected."),
        ("xfs", XFS, "bad CRC for inode 139"),
        ("f2fs", F2FS, "NID[0x28] is unreachable, blkaddr:0x4000"),
        ("reiserfs", REISERFS, "vpf-10640: The on-disk and the correct bitmaps differs."),
        ("gfs2", GFS2, "Block 18 (0x12) bitmap says 3 (inode) but FSCK saw 0 (free)"),
        (
            "btrfs",
            "[1/7] checking root items\nref mismatch\n",
            "ref mismatch",
        ),
    ],
)
def test_a_finding_of_fsck_says_its_complaint_not_its_banner(
    filesystem: str, output: str, complaint: str
) -> None:
    """All faults of one case were one finding, called `/usr/sbin/fsck.jfs version 1.1.15`, or on ext4
    `Warning: skipping journal recovery because doing a read-only filesystem check`.
    """
    fsck = select_profiles([filesystem])[0].fsck
    assert fsck is not None
    assert fsck.complaint(output) == complaint


def test_without_known_chatter_no_line_is_picked() -> None:
    assert Tool("fsck", "util-linux").complaint("fsck 1.0\nbad\n") == ""


def test_a_mode_on_request_runs_only_if_it_is_named_in_full() -> None:
    """Modes for planted faults would have made `-c ext4` and `-c all` slower for everybody."""
    assert ALL["ext4/dioread_lock"].on_request
    for several in (["all"], ["ext4"]):
        assert not any(p.on_request for p in select_profiles(several))
    assert [p.name for p in select_profiles(["ext4/dioread_lock"])] == ["ext4/dioread_lock"]


# --- a host's programs that are older than the kernel ----------------------------------------


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def with_unknown_feature_xfs(image: Path) -> None:
    """fs/xfs/libxfs/xfs_format.h, struct xfs_dsb: sb_features_incompat at 216, sb_crc at 224."""
    with image.open("r+b") as file:
        block = bytearray(file.read(512))
        (features,) = struct.unpack_from(">I", block, 216)
        struct.pack_into(">I", block, 216, features | 1 << 30)
        block[224:228] = bytes(4)
        struct.pack_into("<I", block, 224, crc32c(bytes(block)))
        file.seek(0)
        file.write(block)


def with_unknown_feature_btrfs(image: Path) -> None:
    """struct btrfs_super_block: csum at 0, of all from 32 on; incompat_flags at 188."""
    with image.open("r+b") as file:
        for copy in (64 << 10, 64 << 20):
            file.seek(copy)
            block = bytearray(file.read(4096))
            (features,) = struct.unpack_from("<Q", block, 188)
            struct.pack_into("<Q", block, 188, features | 1 << 62)
            struct.pack_into("<I", block, 0, crc32c(bytes(block[32:])))
            file.seek(copy)
            file.write(block)


@pytest.mark.parametrize(
    ("mode", "change"),
    [("xfs/default", with_unknown_feature_xfs), ("btrfs/default", with_unknown_feature_btrfs)],
)
def test_an_fsck_that_does_not_know_the_features_does_not_judge(
    mode: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    """Both end with 1, as for an error found: a kernel newer than the host's programs was accused."""
    (profile,) = select_profiles([mode])
    with needed():
        for tool in profile.tools:
            tool.path()
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(profile.size_bytes)
    profile.make_filesystem(image)
    assert profile.check_filesystem(image).classified is FsckClass.CLEAN
    change(image)
    seen = profile.check_filesystem(image)
    assert (seen.classified, seen.exit_code) == (FsckClass.FAILED, 1)
    assert "too old" in seen.complaint
