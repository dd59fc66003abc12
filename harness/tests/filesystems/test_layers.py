"""Layers: their files, their names, the steps around the file system below, what they leave of a contract."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cases.recording import target_of
from harness.errors import UsageError
from harness.filesystems.disks import disks
from harness.filesystems.layers import BELOW, layers
from harness.filesystems.profiles import profiles, select_profiles
from harness.filesystems.stacks import stacks
from harness.host.resources import resource


@pytest.mark.parametrize("name", layers())
def test_each_layer_has_what_it_needs(name: str) -> None:
    layer = layers()[name]
    assert layer.summary
    assert layer.promises
    assert layer.source or layer.folder
    assert name not in (stacks().keys() | disks().keys())
    assert BELOW in layer.start
    assert BELOW in layer.record
    for steps in (layer.start, layer.record, layer.stop):
        assert subprocess.run(["busybox", "sh", "-n", "-c", steps], check=False).returncode == 0


def test_a_mode_runs_below_a_layer_by_name() -> None:
    (above,) = select_profiles(["ext4/journal@overlay"])
    plain = profiles()["ext4/journal"]
    assert (above.name, above.size_bytes, above.parts) == ("ext4/journal@overlay", plain.size_bytes, ())
    assert "overlay" in above.modules
    assert [program.partition(":")[0] for program in above.guest_programs] == ["busybox"]
    target = target_of(above, Path("base"), None)
    for spec, options in ((target.mount, "-o noatime"), (target.mount_whole, "")):
        assert (spec.fstype, spec.stack.device if spec.stack else "") == ("overlay", "overlay")
        assert "upperdir=/below/upper" in spec.options
        lines = spec.stack.start.splitlines() if spec.stack else []
        (line,) = [" ".join(line.split()) for line in lines if line.startswith("mount")]
        assert line == f"mount {options} -t ext4 -o data=journal /dev/member-0 /below".replace("  ", " ")
    assert target_of(plain, Path("base"), None).mount.stack is None


def test_a_mode_without_options_is_mounted_without_any() -> None:
    (above,) = select_profiles(["xfs/default@overlay"])
    assert above.layer is not None
    assert "mount -o noatime -t xfs /dev/member-0 /below" in above.layer.start


def test_a_layer_leaves_of_a_contract_what_it_keeps() -> None:
    plain, above, volatile = (
        p.contract
        for p in select_profiles(["ext4/ordered", "ext4/ordered@overlay", "ext4/ordered@overlay-volatile"])
    )
    assert plain.replace_is_safe
    assert not above.replace_is_safe
    assert set(plain.rules) ^ set(above.rules) == {"allocations-stay", "links-may-part"}
    (indexed,) = select_profiles(["ext4/ordered@overlay-metacopy"])
    assert "links-may-part" not in indexed.contract.rules
    assert (above.namespace, above.persists, above.data) == (plain.namespace, plain.persists, plain.data)
    assert (volatile.namespace, volatile.persists, volatile.rules) == ("none", "nothing", ())


@pytest.mark.parametrize(("name", "direct"), [("loop", False), ("loop-direct", True)])
def test_a_file_system_in_a_file_brings_its_own_contract_and_programs(name: str, *, direct: bool) -> None:
    inside = profiles()["ext4/ordered"]
    (above,) = select_profiles([f"btrfs/default@{name}"])
    assert above.contract == replace(
        inside.contract, checksums=profiles()["btrfs/default"].contract.checksums
    )
    assert above.seek_reads_mapping is False  # reading its data reads the mapping of the file that it is in
    assert {"btrfs", "loop", "ext4"} <= set(above.modules)
    assert {*inside.console.errors, *profiles()["btrfs/default"].console.errors} <= {*above.console.errors}
    programs = [program.partition(":")[0] for program in above.guest_programs]
    assert programs == ["busybox", "losetup", "mkfs.ext4", "e2fsck"]
    spec = target_of(above, Path("base"), None).mount
    assert (spec.fstype, spec.options) == ("ext4", "data=ordered")
    assert spec.stack is not None
    assert spec.stack.device == "/dev/loop0"
    assert ("--direct-io=on" in spec.stack.start) is direct
    assert above.is_finished_in_guest
    assert "mkfs.ext4 -q" in above.making_script()
    assert "e2fsck -f -n /dev/loop0" in above.checking_script()


def test_a_file_system_without_fsck_leaves_one_in_a_file_of_it_without() -> None:
    assert not profiles()["nilfs2/default"].contract.fsck_clean
    (above,) = select_profiles(["nilfs2/default@loop"])
    assert not above.contract.fsck_clean


@pytest.mark.parametrize(
    ("name", "reads"), [("overlay", True), ("nfs", True), ("bindfs", False), ("gocryptfs", False)]
)
def test_where_a_daemon_has_no_seek_data_is_looked_for_as_it_is_read(name: str, *, reads: bool) -> None:
    """Else the memo would know an outcome by the blocks of data alone, and the mapping was read with them."""
    (above,) = select_profiles([f"xfs/default@{name}"])
    assert profiles()["xfs/default"].seek_reads_mapping
    assert above.seek_reads_mapping is reads


def test_an_nfs_server_promises_more_of_names_where_the_contract_has_words_for_it() -> None:
    ext4, btrfs = (p.contract for p in select_profiles(["ext4/ordered@nfs", "btrfs/default@nfs"]))
    assert ext4 == replace(profiles()["ext4/ordered"].contract, persists="operations")
    assert btrfs == profiles()["btrfs/default"].contract


@pytest.mark.parametrize("name", ["nfs", "nfs3"])
def test_after_a_power_cut_nothing_of_a_network_file_system_is_needed(name: str) -> None:
    """The second name was refused, since it has a digit."""
    (above,) = select_profiles([f"ext4/ordered@{name}"])
    target = target_of(above, Path("base"), None)
    before, after = (spec.stack.start if spec.stack else "" for spec in (target.mount_whole, target.mount))
    assert "nfsd" in before
    assert after == "mkdir -p /above\nmount -o noatime -t ext4 -o data=ordered /dev/member-0 /above\n"


def test_a_disk_below_a_layer_is_as_large_as_that_needs() -> None:
    ext4, xfs = select_profiles(["ext4/ordered@loop", "xfs/default@loop"])
    assert ext4.size_bytes == 128 << 20
    assert xfs.size_bytes == profiles()["xfs/default"].size_bytes


def test_modes_of_a_file_system_run_below_a_layer_where_they_can() -> None:
    names = {p.name for p in select_profiles(["ext4@overlay"])}
    assert {"ext4/ordered@overlay", "ext4/journal@overlay"} <= names
    assert "ext4/external-journal@overlay" not in names
    assert not any(p.layer for p in select_profiles(["all"]))
    assert [p.name for p in select_profiles(["xfs/default@overlay@4k"])] == ["xfs/default@overlay@4k"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ext4/external-journal@overlay", "a second device, and not @overlay"),
        ("ext4/read-only-first@overlay", "two mounts, and not @overlay"),
        ("ext4/ordered@overlay@loop", "one layer or stack alone, and not @loop"),
        ("ext4/ordered@overlay@raid1", "one layer or stack alone, and not @raid1"),
        ("ext4/ordered@raid1@overlay", "devices of its own, and not @overlay"),
        (
            "vfat/default@image",
            "fsck.fat of this host, which repairs its disk before the mount, and not --image",
        ),
        ("ext4/no-journal@loop", "no fsync for a promise, on which all in a file of it would depend"),
    ],
)
def test_what_cannot_be_below_a_layer_is_refused(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        select_profiles([name])


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("mine.toml", 'summary = "x"', "missing required field"),
        ("Mine.toml", 'like = "overlay"', "small letters"),
        ("mine.toml", 'like = "other"', "No such file"),
        (
            "mine.toml",
            'like = "overlay"\nmode = "ext4/ordered"',
            "either fstype, or mode with make and device",
        ),
        ("mine.toml", 'like = "overlay"\nfstype = ""', "either fstype, or mode with make and device"),
    ],
)
def test_a_file_that_is_no_layer_is_refused(
    file: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = resource("vms", "layers", "overlay.toml").read_text()
    (tmp_path / "overlay.toml").write_text(overlay)
    (tmp_path / file).write_text(text)
    monkeypatch.setattr("harness.filesystems.layers.resource", lambda *words: tmp_path.joinpath(*words[2:]))
    with pytest.raises(UsageError, match=told):
        layers()


@pytest.mark.parametrize("name", ["loop", "overlay", "overlay-volatile", "image"])
def test_a_person_starts_a_layer_by_its_own_steps_on_whichever_disk(name: str) -> None:
    (above,) = select_profiles([f"ext4/nobarrier@{name}"])
    assert above.layer is not None
    steps = above.console_steps
    assert steps is not None
    assert (steps.device, steps.stop) == (above.layer.device or above.layer.fstype, above.layer.stop)
    assert "data=ordered,barrier=0 ${1:-/dev/member-0} /below\n" in steps.start
    assert steps.start.replace("${1:-/dev/member-0}", "/dev/member-0") == above.layer.start
