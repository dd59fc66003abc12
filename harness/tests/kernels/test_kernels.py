"""Kernels: names, packages, and modules in an order in which they load."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.errors import KernelError, UsageError
from harness.kernels import find as kernels
from harness.kernels.find import (
    Kernel,
    find_kernel,
    look_up_kernel,
    look_up_pc_kernel,
    need_replaced,
    pins,
    read_module,
    resolve_modules,
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A modules directory: ext4 needs jbd2 and mbcache, and softly crc32c, which is an alias."""
    (tmp_path / "kernel/fs").mkdir(parents=True)
    for name in ("ext4", "jbd2", "mbcache", "crc32c_generic"):
        (tmp_path / f"kernel/fs/{name}.ko").write_bytes(name.encode())
    (tmp_path / "modules.dep").write_text(
        "kernel/fs/ext4.ko: kernel/fs/mbcache.ko kernel/fs/jbd2.ko\n"
        "kernel/fs/jbd2.ko:\nkernel/fs/mbcache.ko:\nkernel/fs/crc32c_generic.ko:\n"
    )
    (tmp_path / "modules.softdep").write_text("# Soft\nsoftdep jbd2 pre: crypto-crc32c\n")
    (tmp_path / "modules.alias").write_text("alias crypto-crc32c crc32c_generic\n")
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    return tmp_path


def kernel(modules: Path | None, *replaced: Path) -> Kernel:
    return Kernel("k", Path("bzImage"), modules, "", "", replaced)


def names(paths: list[Path]) -> list[str]:
    return [p.name for p in paths]


def test_dependencies_come_first(tree: Path) -> None:
    order = names(resolve_modules(kernel(tree), ["virtio_pci", "ext4"]))
    assert order == ["crc32c_generic.ko", "jbd2.ko", "mbcache.ko", "ext4.ko"]


def test_a_replaced_module_stands_in_for_the_kernels_own(tree: Path, tmp_path: Path) -> None:
    own = tmp_path / "jbd2.ko"
    own.write_bytes(b"mine")
    order = resolve_modules(kernel(tree, own), ["ext4"])
    assert own in order
    assert tree / "kernel/fs/jbd2.ko" not in order


def test_a_missing_module_names_its_option(tree: Path) -> None:
    with pytest.raises(KernelError) as caught:
        resolve_modules(kernel(tree), ["dm-log-writes"])
    assert "CONFIG_DM_LOG_WRITES" in str(caught.value)


def test_compressed_modules_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ko.xz"
    path.write_bytes(lzma.compress(b"ELF"))
    assert read_module(path) == b"ELF"


def test_an_unknown_kernel_names_the_pins() -> None:
    with pytest.raises(UsageError) as caught:
        find_kernel("debain-6.12")
    assert "debian-6.12" in str(caught.value)


def test_a_file_that_is_no_kernel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bytes(4096))
    with pytest.raises(KernelError) as caught:
        find_kernel(str(path))
    assert str(path) in str(caught.value)
    assert "vmlinux" in str(caught.value)


def test_a_modules_directory_without_modules_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "vmlinux"
    image.write_bytes(b"\x7fELF")
    with pytest.raises(KernelError) as caught:
        find_kernel(str(image), tmp_path)
    assert "modules_install" in str(caught.value)


def test_a_module_that_is_no_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        find_kernel("debian-6.12", None, [tmp_path / "ext4.ko"])


OFFERED = {
    "linux-image-6.12.100+deb12-amd64",
    "linux-image-6.12.9+deb12-amd64",
    "linux-image-6.12.117+deb12-cloud-amd64",
    "linux-image-6.12.117+deb12-amd64-unsigned",
}


def offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packages: set[str]) -> None:
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_apt_packages", lambda pin: packages)


def test_the_newest_package_of_the_right_flavour_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, OFFERED)
    assert kernels._choose_package(pins()["debian-6.12"], "") == "linux-image-6.12.100+deb12-amd64"


def test_a_version_that_mirrors_have_dropped_names_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, OFFERED)
    with pytest.raises(KernelError) as caught:
        find_kernel("debian-6.12.3")
    assert "debian-6.12.100" in str(caught.value)


def test_no_package_at_all_says_apt_get_update(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch, tmp_path, set())
    with pytest.raises(KernelError) as caught:
        find_kernel("debian-6.12")
    assert "apt-get update" in str(caught.value)


def test_what_is_in_the_cache_is_found_without_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch, tmp_path, set())
    root = tmp_path / "kernels/linux-image-6.12.7+deb12-amd64"
    (root / "lib/modules/6.12.7/kernel").mkdir(parents=True)
    (root / "boot").mkdir()
    (root / "boot/vmlinuz-6.12.7").write_bytes(b"kernel")
    (root / "complete").write_text("6.12.7-1\n")
    found = find_kernel("debian-6.12.7")
    assert (found.name, found.package_version) == ("debian-6.12.7", "6.12.7-1")


def test_a_pin_of_one_version_at_a_time_has_its_own_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, set())
    root = tmp_path / "kernels/user-mode-linux"
    (root / "usr/lib/uml/modules/6.1.176/kernel").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/linux.uml").write_bytes(b"kernel")
    (root / "complete").write_text("6.1um4+b13\n")
    found = find_kernel("uml-6.1")
    assert (found.name, found.machine, found.image.name) == ("uml-6.1", "uml", "linux.uml")
    assert found.modules is not None
    assert found.modules.name == "6.1.176"


def test_pins_are_told_apart() -> None:
    known: Mapping[str, kernels.Pin] = pins()
    assert kernels._asked_version(known["debian-6.1"], "debian-6.12.117") is None
    assert kernels._asked_version(known["debian-6.12"], "debian-6.12.117") == "6.12.117"
    assert kernels._asked_version(known["debian-6.1"], "debian-6.1.0-50") == "6.1.0-50"
    assert kernels._asked_version(known["debian-6.1"], "debian-6.1") == ""


def test_a_kernel_is_looked_up_without_being_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_choose_package", None)
    assert look_up_kernel("debian-6.12") == (pins()["debian-6.12"], "")
    assert look_up_kernel("debian-6.12.117") == (pins()["debian-6.12"], "6.12.117")
    image = tmp_path / "vmlinux"
    image.write_bytes(b"\x7fELF" + bytes(1020))
    assert look_up_kernel(str(image)) is None
    with pytest.raises(UsageError):
        look_up_kernel("debain")
    with pytest.raises(UsageError):
        look_up_kernel("debian-6.12", replaced=[tmp_path / "ext4.ko"])
    with pytest.raises(KernelError):
        look_up_kernel("debian-6.12", modules=tmp_path)


def test_what_needs_a_whole_pc_refuses_a_pin_of_uml() -> None:
    look_up_pc_kernel("debian-6.12")
    with pytest.raises(UsageError, match="UML") as caught:
        look_up_pc_kernel("uml-6.1")
    assert "debian-6.12" in str(caught.value)


def test_a_directory_named_kernel_is_not_yet_modules(tmp_path: Path) -> None:
    """/etc has one."""
    (tmp_path / "kernel/postinst.d").mkdir(parents=True)
    with pytest.raises(KernelError, match="holds no modules"):
        look_up_kernel("debian-6.12", modules=tmp_path)


def test_a_module_that_would_not_be_loaded_is_refused(tree: Path, tmp_path: Path) -> None:
    """`--module ext4-mine.ko` passed: the kernel's own ext4 had been tested."""
    for name in ("ext4-mine.ko", "virtio_pci.ko", "crc32c_intel.ko"):
        own = tmp_path / name
        own.write_bytes(b"mine")
        with pytest.raises(UsageError, match="would not be tested") as caught:
            need_replaced(kernel(tree, own), ["virtio_pci", "ext4"])
        assert str(own) in str(caught.value)
        assert "jbd2" in str(caught.value)
    for name in ("ext4.ko", "jbd2.ko", "crc32c-generic.ko"):
        need_replaced(kernel(tree, tmp_path / name), ["virtio_pci", "ext4"])
    need_replaced(kernel(None, tmp_path / "ext4.ko"), ["ext4"])
