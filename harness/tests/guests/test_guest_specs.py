"""Which kernel judges, and what a mode lacks on this host with this kernel."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.filesystems import tools
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.filesystems.tools import Tool
from harness.guests import guest_specs
from harness.guests.guest_specs import (
    GuestSpecs,
    has_drivers,
    how_to_speed_up,
    lacks_drivers,
    make_specs,
    missing_for,
    recording_machine,
)
from harness.guests.machine import machine_of
from harness.guests.session import GuestSpec
from harness.kernels.find import Kernel
from harness.plan import GuestChoice


def mode(name: str) -> Profile:
    (profile,) = select_profiles([name])
    return profile


def kernel(folder: Path, *modules: str) -> Kernel:
    """A kernel with these modules and no others."""
    (folder / "modules.dep").write_text("".join(f"kernel/{name}.ko:\n" for name in modules))
    return Kernel("debian-9.9", Path("bzImage"), folder, "00")


def test_a_built_kernel_without_the_file_system_does_not_judge(tmp_path: Path) -> None:
    """UML without bcachefs could mount none of the states that QEMU had recorded."""
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\nCONFIG_XFS_FS=y\n# CONFIG_BCACHEFS_FS is not set\n")
    image = tmp_path / "image"
    assert has_drivers(image, [mode("ext4/ordered"), mode("xfs/default")])
    assert not has_drivers(image, [mode("ext4/ordered"), mode("bcachefs/default")])


def test_a_built_kernel_judges_a_stack_if_it_has_its_drivers(tmp_path: Path) -> None:
    """None did: each visit took five times as long."""
    image, config = tmp_path / "image", "CONFIG_EXT4_FS=y\n# CONFIG_MD_RAID456 is not set\n"
    (tmp_path / "config").write_text(config)
    assert not has_drivers(image, [mode("ext4/ordered@raid1")])
    (tmp_path / "config").write_text(config + "CONFIG_MD_RAID1=y\n")
    assert has_drivers(image, [mode("ext4/ordered@raid1")])
    assert not has_drivers(image, [mode("ext4/ordered@raid1"), mode("ext4/ordered@raid5")])


def test_a_built_kernel_judges_below_a_layer_if_it_has_its_drivers(tmp_path: Path) -> None:
    """The module loop is of CONFIG_BLK_DEV_LOOP."""
    image, config = tmp_path / "image", "CONFIG_EXT4_FS=y\nCONFIG_XFS_FS=y\n"
    (tmp_path / "config").write_text(config)
    assert not has_drivers(image, [mode("xfs/default@loop")])
    (tmp_path / "config").write_text(config + "CONFIG_BLK_DEV_LOOP=y\n")
    assert has_drivers(image, [mode("xfs/default@loop")])
    assert not has_drivers(image, [mode("xfs/default@overlay")])


def test_a_kernel_that_only_judges_needs_no_drivers_of_a_layer_that_is_not_there_then(tmp_path: Path) -> None:
    """NFS: the server's file system is judged by itself."""
    image, config = tmp_path / "image", "CONFIG_EXT4_FS=y\n"
    (tmp_path / "config").write_text(config)
    assert has_drivers(image, [mode("ext4/ordered@nfs")])
    assert not has_drivers(image, [mode("ext4/ordered@nfs"), mode("ext4/ordered@bindfs")])
    assert not has_drivers(image, [mode("xfs/default@nfs")])
    assert not has_drivers(image, [mode("ext4/ordered@nfs")], records=True)
    (tmp_path / "config").write_text(config + "CONFIG_NFSD=y\nCONFIG_NFSD_V4=y\nCONFIG_NFS_V4_2=y\n")
    assert has_drivers(image, [mode("ext4/ordered@nfs")], records=True)


def test_a_table_of_names_has_an_option_that_is_not_called_as_its_module(tmp_path: Path) -> None:
    """FAT was not run on a kernel that had all of it: the module nls_cp437 is of CONFIG_NLS_CODEPAGE_437."""
    options = ("VFAT_FS", "NLS_CODEPAGE_437", "NLS_ISO8859_1")
    image, config = tmp_path / "image", "".join(f"CONFIG_{name}=y\n" for name in options)
    (tmp_path / "config").write_text(config)
    assert has_drivers(image, [mode("vfat/default")])
    (tmp_path / "config").write_text(config.replace("NLS_CODEPAGE_437=y", "NLS_CODEPAGE_437=m"))
    assert not has_drivers(image, [mode("vfat/default")])


def test_a_mode_may_need_modules_beside_its_file_system(tmp_path: Path) -> None:
    """ext4 with quotas does not mount without the format of their files, quota_v2 of CONFIG_QFMT_V2."""
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\n")
    image = tmp_path / "image"
    assert has_drivers(image, [mode("ext4/ordered")])
    assert not has_drivers(image, [mode("ext4/quota")])
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\nCONFIG_QFMT_V2=y\n")
    assert has_drivers(image, [mode("ext4/quota")])


def test_a_named_machine_whose_kernel_lacks_a_driver_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each state would have been UNKNOWN: its stack did not start."""
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\n")
    found = Kernel("built-uml", tmp_path / "image", None, "", machine="uml")
    monkeypatch.setattr(guest_specs, "spec_of", lambda *_: pytest.fail("packed all the same"))
    with pytest.raises(UsageError, match="built-uml is built without its drivers"):
        make_specs(GuestChoice("uml"), found, [mode("ext4/ordered@raid1")], [], tmp_path, tmp_path)


def test_what_a_built_kernel_lacks_for_a_mode_is_told_by_its_options(tmp_path: Path) -> None:
    """`patch -c ext4/ordered@vdo` was told to leave the machine to powercut, which had chosen it."""
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=y\nCONFIG_DM_ZERO=y\n")
    built = Kernel("built-uml", tmp_path / "image", None, "", machine="uml")
    said = lacks_drivers("uml", built, mode("ext4/ordered@vdo"))
    assert "its drivers (CONFIG_DM_VDO): build a kernel with these options" in said
    assert lacks_drivers("uml", built, mode("ext4/ordered")) == ""


@pytest.mark.parametrize(
    ("of", "config", "options"),
    [
        ("ntfs/default", "# CONFIG_NTFS_FS is not set\nCONFIG_NTFS3_FS=y\n", "CONFIG_NTFS_FS"),
        ("bcachefs/default", "# CONFIG_BCACHEFS_FS is not set\n", "CONFIG_BCACHEFS_FS"),
        ("ext4/ordered", "CONFIG_EXT4_FS=m\n", "CONFIG_EXT4_FS"),
        ("xfs/realtime", "CONFIG_XFS_FS=y\n", "CONFIG_XFS_RT"),
        ("reiserfs/ordered", "CONFIG_EXT4_FS=y\n", ""),
        ("zfs/default", "CONFIG_EXT4_FS=y\n", ""),
    ],
)
def test_an_option_that_a_kernel_lacks_is_named_as_its_configuration_does(
    tmp_path: Path, of: str, config: str, options: str
) -> None:
    """`run -c ntfs/default` said to set CONFIG_NTFS, of ZFS CONFIG_ZFS: no kernel's source has them."""
    (tmp_path / "config").write_text(config)
    said = lacks_drivers("uml", Kernel("built", tmp_path / "image", None, "", machine="uml"), mode(of))
    how = f" ({options}): build a kernel with these options, or" if options else ":"
    assert said.endswith(
        f"without its drivers{how} leave the machine to powercut, which takes a kernel that has them"
    )


@pytest.mark.parametrize(("of", "records"), [("nfs", True), ("nfs3", True), ("loop", False)])
def test_who_records_and_judges_in_one_guest_has_what_a_recording_needs(of: str, *, records: bool) -> None:
    """`try -c ext4/ordered@nfs3` recorded in UML, whose kernel judges below NFS and has none."""
    recorder, judge = (GuestSpec(machine_of(name), Path(name), Path(name)) for name in ("qemu", "uml"))
    chosen = GuestSpecs(recorder, judge, "").doing_both(mode(f"ext4/ordered@{of}"))
    assert chosen is (recorder if records else judge)


def test_a_kernel_without_the_module_is_the_reason_and_no_program_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the missing program: installing that would not have helped."""
    fetched: list[str] = []
    monkeypatch.setattr(tools, "fetch_program", lambda program, *_: fetched.append(program))
    reason = missing_for(mode("bcachefs/default"), kernel(tmp_path, "ext4"))
    assert "debian-9.9 has no module bcachefs" in reason
    assert fetched == []


def test_a_program_that_only_another_suite_has_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    tool = Tool("mkfs.never-heard-of", "never-heard-of", suites=["elsewhere"])
    profile = dataclasses.replace(mode("ext4/ordered"), mkfs=tool, fsck=None)

    def refused(program: str, package: str, suites: list[str], release: str) -> Path:
        raise EnvironmentLacks(f"there is no package {package} in suite {suites[0]}")

    monkeypatch.setattr(tools, "fetch_program", refused)
    reason = missing_for(profile, kernel(tmp_path, "ext4"))
    assert reason == "there is no package never-heard-of in suite elsewhere"
    monkeypatch.setattr(tools, "fetch_program", lambda *_: Path("/elsewhere/mkfs.never-heard-of"))
    monkeypatch.setattr(tools, "cached_program", lambda *_: Path("/elsewhere/mkfs.never-heard-of"))
    assert missing_for(profile, kernel(tmp_path, "ext4")) == ""


def test_a_kernel_with_modules_and_its_configuration_beside_it_lacks_nothing(tmp_path: Path) -> None:
    """Debian's 7.3 keeps both in one folder, and ext4, a module there, was not run."""
    (tmp_path / "config").write_text("CONFIG_EXT4_FS=m\n")
    kernel = Kernel("debian-7.3.4", tmp_path / "vmlinuz", tmp_path, "7.3.4")
    assert lacks_drivers("qemu", kernel, mode("ext4/ordered")) == ""
    own = Kernel("built", tmp_path / "image", None, "", machine="uml")
    assert "built without its drivers" in lacks_drivers("uml", own, mode("ext4/ordered"))


def test_a_kernel_that_is_a_program_is_run_only_on_the_machine_that_was_named_for_it(tmp_path: Path) -> None:
    """QEMU was tried with a kernel for User Mode Linux, and every case was undecided."""
    own = Kernel(sys.executable, Path(sys.executable), None, "00")
    for machine in ("auto", "qemu"):
        with pytest.raises(UsageError, match="is a program of this host, as kernels for UML are") as caught:
            recording_machine(machine, own)
        assert "choose the machine uml" in caught.value.next_step
    assert recording_machine("uml", own) == "uml"
    image = tmp_path / "bzImage"
    image.write_bytes(bytes(1024))
    assert recording_machine("auto", dataclasses.replace(own, image=image)) == "qemu"


@pytest.mark.parametrize("name", ["a,b", "a b", "a:b", 'a"b'])
def test_a_folder_that_uml_cannot_name_is_refused_before_anything_is_recorded(
    name: str, tmp_path: Path
) -> None:
    """Every case was UNKNOWN: "device /dev/ubda does not appear", and nothing named the letter."""
    own = Kernel("uml-own", tmp_path / "image", None, "", machine="uml")
    with pytest.raises(UsageError, match="UML cannot open files in a folder with") as caught:
        make_specs(GuestChoice("uml"), own, [mode("ext4/ordered")], [], tmp_path, tmp_path / name)
    assert caught.value.next_step == "keep runs in another one: --out, or --powercut-reports of pytest"


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, choice: GuestChoice) -> GuestSpecs:
    """What judges runs in a folder where a kernel for UML has been built."""
    debian = Kernel("debian-6.12", folder / "vmlinuz", None, "00", "6.12.1", source="linux-source-6.12")
    built = Kernel("built-uml", folder / "image", None, "")
    (folder / "config").write_text("CONFIG_EXT4_FS=y\n")
    built.image.write_bytes(b"a kernel")
    recorded = GuestSpec(machine_of("qemu", "tcg"), debian.image, folder / "initramfs")
    monkeypatch.setattr(guest_specs, "_recorder", lambda *_: (recorded, ""))
    monkeypatch.setattr(guest_specs, "built_kernel", lambda *_: built)
    monkeypatch.setattr(
        guest_specs, "spec_of", lambda machine, kernel, *_: GuestSpec(machine, kernel.image, kernel.image)
    )
    monkeypatch.setattr(type(machine_of("uml")), "shares_disk", lambda *_: True)
    return make_specs(choice, debian, [mode("ext4/ordered")], [], folder, folder / "r")


def test_where_uml_cannot_name_the_folder_another_machine_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run could be made there, and `--machine qemu`, which no message named, could all the time. Then the
    run was slow, and did not say how to make it fast.
    """
    (unnamed := tmp_path / "a b").mkdir()
    specs = in_folder(unnamed, monkeypatch, GuestChoice("auto"))
    assert specs.judge is specs.recorder
    assert specs.description == (
        f"QEMU (tcg); {unnamed / 'r'}: UML cannot open files in a folder with ' ' in its path, so QEMU "
        "judges; keep runs in another one: --out, or --powercut-reports of pytest"
    )
    with pytest.raises(UsageError, match="UML cannot open files") as caught:
        in_folder(unnamed, monkeypatch, GuestChoice("uml"))
    assert "--out" in caught.value.next_step
    assert "leave the machine to powercut" in caught.value.next_step
    specs = in_folder(tmp_path, monkeypatch, GuestChoice("auto"))
    assert "judged in UML" in specs.description


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", ["a:b", "a b"])
def test_a_folder_of_temporary_files_that_uml_cannot_name_is_refused(
    name: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every case was UNKNOWN: "device /dev/vda does not appear", also of a kernel that shares the disk when
    it judges.
    """
    monkeypatch.setattr(tempfile, "tempdir", f"/{name}")  # that of the test is long
    monkeypatch.setattr(type(machine_of("uml")), "shares_disk", lambda *_: shared)
    own = Kernel("uml-own", tmp_path / "image", None, "", machine="uml")
    own.image.write_bytes(b"a kernel")
    with pytest.raises(UsageError, match="UML cannot open files in a folder with") as caught:
        make_specs(GuestChoice("uml"), own, [mode("ext4/ordered")], [], tmp_path, Path("/plain"))
    assert "TMPDIR" in caught.value.next_step


def test_the_folder_of_temporary_files_may_have_no_longer_path_than_a_disks_sockets_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every case was UNKNOWN: "path must be shorter than SUN_LEN"."""
    monkeypatch.setattr(tempfile, "tempdir", f"/{'d' * 150}")
    own = Kernel("uml-own", tmp_path / "image", None, "", machine="uml")
    with pytest.raises(EnvironmentLacks, match="a path of 151 bytes") as caught:
        make_specs(GuestChoice("uml"), own, [mode("ext4/ordered")], [], tmp_path, tmp_path)
    assert "TMPDIR" in caught.value.next_step


def test_a_run_that_only_emulation_can_judge_says_how_to_get_more(tmp_path: Path, cache: Path) -> None:
    """On a fresh machine a run took five times as long as it had to, and nothing said so."""
    stock = dataclasses.replace(
        kernel(tmp_path, "ext4"), package_version="9.9.1-1", source="linux-source-9.9"
    )
    assert how_to_speed_up("uml", stock).endswith("once built: powercut kernel build linux-source-9.9")
    own_module = dataclasses.replace(stock, replaced=(tmp_path / "ext4.ko",))
    assert how_to_speed_up("uml", own_module).endswith("native speed: powercut kernel build TREE")
    assert how_to_speed_up("uml", kernel(tmp_path, "ext4")) == ""


def test_why_there_is_no_kvm_is_not_said_by_each_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first line of every run was of KVM, and so long that what follows it was not read."""
    machine = machine_of("qemu", "tcg")
    why = "KVM is there, but a kernel does not come up under it"
    recorded = GuestSpec(machine, tmp_path / "vmlinuz", tmp_path / "initramfs")
    monkeypatch.setattr(guest_specs, "_recorder", lambda *_: (recorded, why))
    debian = Kernel("debian-6.12", tmp_path / "vmlinuz", None, "00", "6.12.1")
    specs = make_specs(GuestChoice("qemu"), debian, [], [], tmp_path, tmp_path)
    assert specs.description == "QEMU (tcg)"
    assert specs.accel_reason == why


def test_a_module_of_one_kernel_is_not_looked_for_in_another_machines(tmp_path: Path) -> None:
    """`--machine uml --module ext4.ko` was told to build a kernel that would not load it either."""
    debian = Kernel("debian-6.12", tmp_path / "k", None, "00", "6.12.1", replaced=(tmp_path / "ext4.ko",))
    with pytest.raises(
        KernelError, match=r"no UML kernel loads ext4\.ko: it was built for debian-6\.12"
    ) as caught:
        make_specs(GuestChoice("uml"), debian, [], [], tmp_path, tmp_path)
    assert "leave the machine to powercut" in caught.value.next_step


def test_a_kernel_that_notes_nothing_does_not_judge_where_coverage_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """The run would say that no line of recovery had run."""
    debian = Kernel("debian-6.12", tmp_path / "k", None, "00", "6.12.1", source="linux-source-6.12")
    with pytest.raises(KernelError, match=r"no UML kernel of debian-6\.12's source notes") as caught:
        make_specs(GuestChoice("uml", coverage=True), debian, [], [], tmp_path, tmp_path)
    assert "powercut kernel build linux-source-6.12 --coverage" in caught.value.next_step
    recorded = GuestSpec(machine_of("qemu", "tcg"), tmp_path / "vmlinuz", tmp_path / "initramfs")
    monkeypatch.setattr(guest_specs, "_recorder", lambda *_: (recorded, ""))
    with pytest.raises(UsageError, match="no kernel for QEMU notes which lines it runs"):
        make_specs(GuestChoice("qemu", coverage=True), debian, [], [], tmp_path, tmp_path)


def test_only_the_judge_notes_what_it_runs_unless_it_records_too(tmp_path: Path) -> None:
    one = GuestSpec(machine_of("qemu", "tcg"), tmp_path / "vmlinuz", tmp_path / "initramfs")
    other = dataclasses.replace(one, kernel_image=tmp_path / "image")
    hits, recording = tmp_path / "hits", tmp_path / "recording"
    apart = guest_specs.GuestSpecs(one, other, "").noting(hits, recording)
    assert (apart.recorder.hits, apart.recorder.recording_hits, apart.judge.hits) == (None, None, hits)
    both = guest_specs.GuestSpecs(one, one, "").noting(hits, recording)
    assert both.recorder is both.judge
    assert (both.judge.hits, both.judge.recording_hits) == (hits, recording)
