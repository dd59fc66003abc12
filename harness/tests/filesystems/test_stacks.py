"""Stacks: their files, their names, the scripts that are made of their steps."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from harness.cases.recording import target_of
from harness.errors import EnvironmentLacks, UsageError
from harness.filesystems import stacks as module
from harness.filesystems import tools
from harness.filesystems.profiles import profiles, select_profiles
from harness.filesystems.stacks import (
    MEMBERS,
    NOT_MADE,
    NOT_STARTED,
    NOT_STOPPED,
    Member,
    Stack,
    Stacked,
    find_stack,
    stacks,
)
from harness.guests import guest_specs, initramfs
from harness.guests.guest_specs import has_drivers, missing_for
from harness.guests.machine import machine_of
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashPoint

TOY = Stack(
    summary="",
    promises="",
    modules=[],
    options=[],
    programs=[],
    device="/dev/toy",
    members=[Member(share=0.5, extra_mib=2), Member(extra_mib=4), Member(share=1)],
    make="true",
    start=f"echo start {MEMBERS}",
    stop="true",
    start_degraded=f"echo degraded {MEMBERS}",
    may_miss=[0, 2],
)
MIB = 1 << 20
EMULATED = {"vdo", "vdo-dedup"}
"""Those whose driver our kernels have not, but Debian's."""


def write(path: Path, stack: Stack) -> None:
    fields = msgspec.to_builtins(stack)
    members = ", ".join(
        f"{{ share = {m['share']}, extra_mib = {m['extra_mib']} }}" for m in fields.pop("members")
    )
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    path.write_text("\n".join([*lines, f"members = [{members}]\n"]))


def exit_code(script: str) -> int:
    return subprocess.run(["busybox", "sh", "-c", script], check=False, capture_output=True).returncode


def test_members_lie_one_behind_the_other() -> None:
    toy = Stacked(TOY, 63)
    assert toy.sizes == (34 * MIB, 4 * MIB, 63 * MIB)
    assert toy.begins == (34 * MIB, 38 * MIB)


def test_steps_name_the_members_that_are_there() -> None:
    """Recorded with all of them; started after the crash without the one that is missing."""
    degraded = Stacked(TOY, 64, missing=0)
    assert Stacked(TOY, 64).start == "echo start /dev/member-0 /dev/member-1 /dev/member-2"
    assert degraded.start == "echo degraded /dev/member-1 /dev/member-2"
    assert degraded.start_whole == "echo start /dev/member-0 /dev/member-1 /dev/member-2"


@pytest.mark.parametrize(
    ("steps", "line", "code"),
    [
        ({}, "true", 0),
        ({}, "(exit 4)", 4),
        ({"start": "false\ntrue"}, "true", NOT_STARTED),
        ({"start": "true\nfalse"}, "true", NOT_STARTED),
        ({"stop": "false\ntrue"}, "(exit 4)", NOT_STOPPED),
    ],
)
def test_the_exit_code_is_that_of_the_line_unless_a_step_failed(
    steps: dict[str, str], line: str, code: int
) -> None:
    """A step that fails in the middle counts: in `sh -e`, what is left of `||` may fail unnoticed."""
    script = Stacked(msgspec.structs.replace(TOY, **steps), 64).on_it(line)
    assert exit_code(script) == code


@pytest.mark.parametrize(
    ("make", "mkfs", "code"), [("true", "true", 0), ("false", "true", NOT_MADE), ("true", "false", 1)]
)
def test_what_fails_while_it_is_made_is_told(make: str, mkfs: str, code: int) -> None:
    script = Stacked(msgspec.structs.replace(TOY, make=make), 64).making([[mkfs]])
    assert exit_code(script) == code


def test_what_follows_the_file_system_follows_it(tmp_path: Path) -> None:
    """A snapshot of a volume that had no file system yet shared nothing with it."""
    stack = msgspec.structs.replace(
        TOY, make=f"echo make >>{tmp_path}/done", finish=f"echo finish >>{tmp_path}/done"
    )
    assert exit_code(Stacked(stack, 64).making([["sh", "-c", f"echo mkfs >>{tmp_path}/done"]])) == 0
    assert (tmp_path / "done").read_text().split() == ["make", "mkfs", "finish"]
    failing = msgspec.structs.replace(TOY, finish="false")
    assert exit_code(Stacked(failing, 64).making([["true"]])) == NOT_MADE


@pytest.mark.parametrize("name", stacks())
def test_the_kernels_that_we_build_have_the_drivers_of_each_stack(name: str) -> None:
    """A driver that only Debian's kernel has is judged in emulation alone; patches to it are asked if it is
    named.
    """
    stack = stacks()[name]
    assert stack.options
    assert stack.unbuilt == (stack.options if name in EMULATED else [])


@pytest.mark.parametrize("name", stacks())
def test_each_stack_has_what_it_needs(name: str) -> None:
    stack = stacks()[name]
    assert stack.summary
    assert stack.promises
    assert all(re.fullmatch(r"[a-z0-9._-]+:[a-z0-9.+-]+", p) for p in stack.programs), "program:package"
    assert stack.device.startswith("/dev/")
    for steps in (stack.make, stack.finish, stack.start, stack.stop, stack.start_degraded):
        numbers = {int(n) for n in re.findall(r"/dev/member-(\d+)", steps)}
        assert numbers <= set(range(len(stack.members)))
        assert subprocess.run(["busybox", "sh", "-n", "-c", steps], check=False).returncode == 0
    made = {int(n) for n in re.findall(r"/dev/member-(\d+)", stack.make)}
    assert made == set(range(len(stack.members))), "each member has a place in it"


def test_a_program_that_this_release_has_not_is_fetched_for_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vdoformat is in Debian 12's backports, so there was no vdo."""
    (profile,) = select_profiles(["ext4/ordered@vdo"])
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name, path="": None if name == "vdoformat" else f"/bin/{name}")
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(tools, "fetch_program", lambda *words: asked.append(words))
    profile.fetch_tools()
    assert asked == [("vdoformat", "vdo", ["bookworm-backports", "bookworm"], "")]
    with pytest.raises(EnvironmentLacks, match=r"vdoformat.* is not installed\s.*apt-get install vdo"):
        initramfs.find_program("vdoformat:vdo")
    (tmp_path / "programs/vdo/usr/bin").mkdir(parents=True)
    for name in ("complete", "usr/bin/vdoformat"):
        (tmp_path / "programs/vdo" / name).touch()
    assert initramfs.find_program("vdoformat:vdo").parent == tmp_path / "programs/vdo/usr/bin"


def test_a_guest_has_the_memory_that_its_stack_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_specs, "pack", lambda *_: tmp_path)
    monkeypatch.setattr(guest_specs, "need_as_built", lambda *_: None)
    kernel = Kernel("debian-9.9", tmp_path / "bzImage", None, "")
    modes = select_profiles(["ext4/ordered", "ext4/ordered@vdo", "ext4/ordered@raid1"])
    of = {p.name: guest_specs.spec_of(machine_of("qemu"), kernel, [p], [], tmp_path) for p in modes}
    assert [spec.memory_mib for spec in of.values()] == [0, stacks()["vdo"].memory_mib, 0]


def test_a_mode_runs_on_a_stack_by_name() -> None:
    (whole,) = select_profiles(["ext4/ordered@raid1"])
    (less,) = select_profiles(["ext4/ordered@raid1-0"])
    plain = profiles()["ext4/ordered"]
    assert (whole.name, less.name) == ("ext4/ordered@raid1", "ext4/ordered@raid1-0")
    assert whole.size_bytes == sum(whole.stacked.sizes) if whole.stacked else False
    assert whole.parts == (66 * MIB,)
    assert "raid1" in whole.modules
    assert set(whole.contract.rules) - set(plain.contract.rules) == {"untouched-stays"}
    assert "/dev/member-0" not in target_of(less, Path("base"), None).mount.stack.start  # type: ignore[union-attr]
    assert "/dev/member-0" in target_of(less, Path("base"), None).mount_whole.stack.start  # type: ignore[union-attr]
    assert target_of(plain, Path("base"), None).mount.stack is None


def test_all_modes_of_a_file_system_run_on_a_stack() -> None:
    names = {p.name for p in select_profiles(["ext4@raid1"])}
    assert {"ext4/ordered@raid1", "ext4/journal@raid1"} <= names
    assert "ext4/external-journal@raid1" not in names


def test_none_runs_on_a_stack_unasked() -> None:
    assert not any(p.stacked for p in select_profiles(["all"]))


def test_a_larger_image_makes_larger_members() -> None:
    (mode,) = select_profiles(["ext4/ordered@raid5"])
    assert mode.sized(64) is mode
    larger = mode.sized(128)
    assert larger.stacked is not None
    assert larger.stacked.sizes == (66 * MIB,) * 3
    assert larger.size_bytes == 3 * 66 * MIB


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ext4/ordered@riad1", "no stack 'riad1'"),
        ("ext4/ordered@raid1-2", "does not survive the loss of member 2"),
        ("ext4/ordered@", "no stack ''"),
        ("ext4/external-journal@raid1", "a second device, and not @raid1"),
        ("ext2/default@raid1", "of this host, which repairs its disk before the mount, and not @raid1"),
    ],
)
def test_what_cannot_be_on_a_stack_is_refused(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        select_profiles([name])


def test_ids_of_modes_on_a_stack_are_read_back() -> None:
    """The @ of the stack was taken for the one in front of the crash state."""
    case = CaseId("ext4", "ordered@raid1-0", "append-fsync")
    assert CaseId.parse(str(case)) == case
    for text in ("ext4-ordered@raid1-0/append-fsync@417", "ext4-ordered/append-fsync@t417-402"):
        assert str(CrashPoint.parse(text)) == text
    assert CrashPoint.parse("ext4-ordered@raid1-0/append-fsync@417").case == case
    for wrong in ("ext4-ordered@raid1/append-fsync", "ext4-ordered@/append-fsync@4", "@raid1/x@4"):
        with pytest.raises(ValueError, match="is not of the form"):
            CrashPoint.parse(wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"members": []}, "a stack has members"),
        ({"members": [Member()]}, "share of the file system"),
        ({"may_miss": [3]}, "members are 0 to 2"),
        ({"start": "true", "start_degraded": "true"}, f"without a member name {MEMBERS}"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    wrong: dict[str, object], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "resource", lambda *_: tmp_path)
    write(tmp_path / "toy.toml", msgspec.structs.replace(TOY, **wrong))
    with pytest.raises(UsageError, match=re.escape(told)):
        find_stack("toy")


def test_a_stack_whose_name_looks_like_a_missing_member_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "resource", lambda *_: tmp_path)
    write(tmp_path / "toy-0.toml", TOY)
    with pytest.raises(UsageError, match="of a missing member"):
        stacks()


def test_a_mode_with_devices_of_its_own_is_there_whole_and_less_each_that_may_be_missing() -> None:
    """btrfs had one device in every mode: nothing said of its mirrors what a power cut may leave of one."""
    whole, less = select_profiles(["btrfs/raid1", "btrfs/raid1-2"])
    assert whole.stacked is not None
    assert less.stacked is not None
    assert (whole.mount_options, less.mount_options) == ("", "degraded")
    assert (whole.stacked.missing, less.stacked.missing) == (None, 2)
    assert whole.parts == less.parts == (MIB, 129 * MIB)
    assert less.on_request
    assert less.contract.rules[-1] == "untouched-stays"
    assert "--data raid1 --metadata raid1 /dev/member-1 /dev/btrfs" in whole.making_script()
    assert '" /dev/member-0 /dev/member-1 "' in less.stacked.start
    assert '" /dev/member-0 /dev/member-1 /dev/member-2 "' in less.stacked.start_whole
    with pytest.raises(UsageError, match="takes devices of its own, and not @raid1"):
        select_profiles(["btrfs/raid1@raid1"])
    assert "btrfs/raid1@raid1" not in {p.name for p in select_profiles(["btrfs@raid1"])}
    with pytest.raises(UsageError, match="no mode of btrfs is called 'raid1-0'"):
        select_profiles(["btrfs/raid1-0"])


def test_a_mode_may_need_an_option_of_the_kernel(tmp_path: Path) -> None:
    """UML's kernels have XFS without its realtime device: each mount that failed was a broken promise."""
    (profile,) = select_profiles(["xfs/realtime"])
    kernel = Kernel("mine", tmp_path / "linux", None, "")
    for config, lacks in (
        ("CONFIG_XFS_FS=y\n# CONFIG_XFS_RT is not set\n", "mine was built without CONFIG_XFS_RT"),
        ("CONFIG_XFS_FS=y\nCONFIG_XFS_RT=y\n", ""),
    ):
        (tmp_path / "config").write_text(config)
        assert missing_for(profile, kernel) == lacks
        assert has_drivers(kernel.image, [profile]) is not bool(lacks)
