"""A run goes on with what it was begun with, or not at all."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cases import pins as module
from harness.cases.pins import differences, host_pins, pin, pins_of, source_hash
from harness.errors import KernelError, RunChanged, StoreError
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import GuestSpecs
from harness.guests.machine import Machine, default_name, machine_of
from harness.guests.session import GuestSpec
from harness.host.files import file_hash
from harness.kernels.find import Kernel
from harness.model import Workload
from harness.store import RunStore
from harness.tests.store.samples import INFO
from harness.workloads.load import parse_operation, select_workloads


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, "t", INFO) as made:
        yield made


class Setting:
    """Everything that is pinned, in files that a test can change."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name in ("bzImage", "linux", "initramfs", "agent", "disk", "readtrace"):
            (folder / name).write_text(name)
        self.modules = [folder / "jbd2.ko", folder / "ext4.ko"]
        for file in self.modules:
            file.write_text(file.name)
        self.profiles = select_profiles(["ext4/ordered", "ext4/nobarrier"])
        self.workloads = [Workload("mine", "", (parse_operation("sync"),), files={"run": b"one"})]
        monkeypatch.setattr(module, "resolve_modules", lambda *_: self.modules)
        monkeypatch.setattr(module, "find_agent", lambda: folder / "agent")
        monkeypatch.setattr(module, "find_binary", lambda: folder / "disk")
        monkeypatch.setattr(module, "find_library", lambda: folder / "readtrace")
        self.judge = "linux"
        self.recorder = "bzImage"

    def pins(self) -> dict[str, str]:
        machine = machine_of(default_name())
        other = cast(Machine, cast(Any, _Other()))
        recorder = GuestSpec(machine, self.folder / self.recorder, self.folder / "initramfs")
        judge = GuestSpec(other, self.folder / self.judge, self.folder / "initramfs")
        sha = file_hash(self.folder / "bzImage")
        kernel = Kernel("k", self.folder / "bzImage", None, sha)
        return pins_of(kernel, GuestSpecs(recorder, judge, ""), self.profiles, self.workloads)


class _Other:
    """A second machine, by the profile of the first."""

    name = default_name()
    profile = machine_of(default_name()).profile

    def requirements(self) -> tuple[()]:
        return ()


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    (tmp_path / "parts").mkdir()
    return Setting(tmp_path / "parts", monkeypatch)


def test_what_is_the_same_goes_on(store: RunStore, setting: Setting) -> None:
    pin(store, setting.pins())
    with RunStore.open(store.path) as again:
        pin(again, setting.pins())
        assert again.info.pins == store.info.pins


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("linux", "boots"),
        ("initramfs", "initramfs for"),
        ("agent", "agent"),
        ("disk", "disk"),
        ("readtrace", "readtrace"),
        ("ext4.ko", "module ext4.ko"),
        ("jbd2.ko", "module jbd2.ko"),
    ],
)
def test_a_file_that_was_changed_in_place_is_named_then_and_now(
    store: RunStore, setting: Setting, part: str, said: str
) -> None:
    """`--resume` kept the verdicts of the old kernel, or module, and wrote down the hash of the new one."""
    pin(store, setting.pins())
    before = store.info.pins
    (setting.folder / part).write_text("built again")
    with pytest.raises(RunChanged) as caught:
        pin(store, setting.pins())
    name = next(n for n in before if said in n)
    now = setting.pins()[name]
    assert f"{name}: {before[name][:12]} then, {now[:12]} now" in caught.value.what
    assert "\n" not in caught.value.what
    assert "start a new run" in caught.value.next_step
    assert store.info.pins == before


def test_another_contract_workload_or_source_is_refused(
    store: RunStore, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(store, setting.pins())
    kept = list(setting.profiles)
    weaker = dataclasses.replace(kept[0].contract, replace_is_safe=not kept[0].contract.replace_is_safe)
    setting.profiles = [dataclasses.replace(kept[0], contract=weaker), kept[1]]
    with pytest.raises(RunChanged, match=r"mode ext4/ordered: \w{12} then"):
        pin(store, setting.pins())
    setting.profiles = kept[:1]
    with pytest.raises(RunChanged, match=r"mode ext4/nobarrier: \w{12} then, none now"):
        pin(store, setting.pins())
    setting.profiles = kept
    setting.workloads = [dataclasses.replace(setting.workloads[0], files={"run": b"two"})]
    with pytest.raises(RunChanged, match="workload mine"):
        pin(store, setting.pins())
    setting.workloads = [dataclasses.replace(setting.workloads[0], files={"run": b"one"})]
    pin(store, setting.pins())
    monkeypatch.setattr(module, "source_hash", lambda: "other")
    with pytest.raises(RunChanged, match="powercut's source"):
        pin(store, setting.pins())


def test_all_that_differs_is_named_at_once(store: RunStore, setting: Setting) -> None:
    pin(store, setting.pins())
    for part in ("agent", "disk"):
        (setting.folder / part).write_text("built again")
    with pytest.raises(RunChanged, match=r"agent: .*; disk: "):
        pin(store, setting.pins())


def test_pins_are_written_once(store: RunStore) -> None:
    store.put_pins({"kernel": "1"})
    store.update_info(dataclasses.replace(store.info, pins={"kernel": "2"}))
    assert store.info.pins == {"kernel": "1"}
    with pytest.raises(StoreError, match="once"):
        store.put_pins({"kernel": "2"})


def test_generated_workloads_are_pinned_together(setting: Setting) -> None:
    setting.workloads = list(select_workloads(["ace1"]))
    names = [name for name in setting.pins() if "workload" in name]
    assert names == ["generated workloads"]
    before = setting.pins()["generated workloads"]
    setting.workloads.pop()
    assert setting.pins()["generated workloads"] != before


def test_the_source_is_what_verdicts_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(module._PACKAGE, tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "harness")
    before = source_hash()
    (tmp_path / "harness" / "tests" / "new.py").write_text("")
    (tmp_path / "harness" / "report" / "text.py").write_text("")
    assert source_hash() == before
    (tmp_path / "harness" / "oracles" / "each.py").write_text("")
    assert source_hash() != before


def test_no_room_that_judges_nothing_is_imported_by_one_that_does_and_each_is_known() -> None:
    """A run was refused as another version's since its explanations had been changed."""
    rooms = {path.parent.name for path in module._PACKAGE.glob("*/__init__.py")}
    imported = {"cases"}
    while new := {r for i in imported for r in _imported_by(i)} & rooms - imported:
        imported |= new
    assert not imported & set(module._NOT_JUDGING)
    beside = {"cluster", "ruled"}  # `ruled` judges the cases of modes that are only rules
    assert rooms - imported - beside == set(module._NOT_JUDGING)


def _imported_by(room: str) -> set[str]:
    files = (module._PACKAGE / room).rglob("*.py")
    return {found for file in files for found in re.findall(r"from harness\.(\w+)", file.read_text())}


def test_a_machine_with_a_kernel_of_its_own_needs_no_module_of_the_kernel_that_was_named(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run with `--machine uml` ended in "kernel debian-6.12 has no module virtio_uml"."""

    def refuses(kernel: Kernel, wanted: object) -> list[Path]:
        raise KernelError(f"kernel {kernel.name} has no module virtio_uml")

    monkeypatch.setattr(module, "resolve_modules", refuses)
    setting.recorder = "linux"
    pins = setting.pins()
    assert not [name for name in pins if name.startswith("module ")]
    assert any(name.startswith("initramfs") for name in pins)


def test_a_mode_is_the_same_wherever_powercut_is_installed() -> None:
    """Its tracepoints name programs by their paths: every session with another prefix would be refused."""
    (profile,) = select_profiles(["ext4/ordered"])
    assert profile.tracing is not None
    elsewhere = dataclasses.replace(profile, tracing=None)
    assert host_pins([], [profile]) == host_pins([], [elsewhere])
    other = dataclasses.replace(profile, mount_options="data=journal")
    listed = differences(host_pins([], [profile]), host_pins([], [other]), "here", "there")
    assert re.fullmatch("mode ext4/ordered: [0-9a-f]{12} here, [0-9a-f]{12} there", listed)


def test_a_machine_that_came_later_is_told_from_one_that_changed(store: RunStore) -> None:
    """A kernel for judging natively was built meanwhile: the run can go on without it."""
    alone = {"kernel that qemu boots": "1", "initramfs for qemu": "2"}
    store.put_pins(alone)
    with pytest.raises(RunChanged) as caught:
        pin(store, alone | {"kernel that uml boots": "3"})
    assert caught.value.machine == "qemu"
    with pytest.raises(RunChanged) as caught:
        pin(store, alone | {"kernel that qemu boots": "4"})
    assert caught.value.machine == ""
