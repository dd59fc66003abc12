"""Kernels: names, packages, and modules in an order in which they load."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host import elf
from harness.host.archive import Archive
from harness.host.packed import read_module
from harness.kernels import packages
from harness.kernels.build import need_as_built, seal
from harness.kernels.find import Kernel, _no_kernel, find_kernel, look_up_kernel, look_up_pc_kernel
from harness.kernels.module_files import need_release, need_replaced, resolve_modules
from harness.kernels.pins import Pin, asked_version, pins
from harness.tests.there import there


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


@pytest.mark.parametrize(
    ("spec", "nearest"),
    [
        ("debian-6.13", "debian-6.12, debian-6.16, "),
        ("debian-5.10", "debian-6.1, debian-6.12, "),
        ("debian-99.1", "debian-7.3, debian-7.2, "),
        ("uml-6.13", "uml-6.12, uml-"),
    ],
)
def test_the_nearest_versions_are_named_first(spec: str, nearest: str) -> None:
    """Of debian-6.13, debian-6.1 was proposed first."""
    with pytest.raises(UsageError) as caught:
        look_up_kernel(spec)
    assert f"try one of: {nearest}" in str(caught.value)


def test_a_file_that_is_no_kernel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bytes(4096))
    with pytest.raises(UsageError) as caught:
        find_kernel(str(path))
    assert str(path) in str(caught.value)
    assert "vmlinux" in str(caught.value)


def test_a_modules_directory_without_modules_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "vmlinux"
    image.write_bytes(b"\x7fELF")
    with pytest.raises(KernelError) as caught:
        find_kernel(str(image), tmp_path)
    assert "modules_install" in str(caught.value)


def bzimage(release: str) -> bytes:
    """The beginning of one, as far as it says what it is (Documentation/arch/x86/boot.rst)."""
    head = bytearray(0x300)
    head[0x202:0x206], head[0x20E:0x210] = b"HdrS", (0x80).to_bytes(2, "little")
    return bytes(head[:0x280]) + f"{release} (builder@host) #1 SMP\0".encode()


@pytest.mark.parametrize("kind", ["bzImage", "vmlinux"])
def test_of_modules_of_several_releases_those_of_the_image_are_taken(tmp_path: Path, kind: str) -> None:
    """The first by name was: each module was refused, and the report named the wrong release."""
    image = tmp_path / kind
    for release in ("6.1.0-57-amd64", "6.12.117+deb12-amd64", "6.13.0"):
        folder = tmp_path / "lib/modules" / release
        (folder / "kernel/fs").mkdir(parents=True)
        (folder / "kernel/fs/ext4.ko").write_bytes(module())
        (folder / "modules.dep").touch()

    def of(release: str) -> bytes:
        return bzimage(release) if kind == "bzImage" else f"\x7fELF..Linux version {release} (a) #1".encode()

    for release in ("6.12.117+deb12-amd64", "6.1.0-57-amd64"):
        image.write_bytes(of(release))
        for given in (tmp_path, tmp_path / "lib/modules", tmp_path / "lib/modules" / release):
            assert find_kernel(str(image), given).modules == tmp_path / "lib/modules" / release
    image.write_bytes(of("6.12.9"))
    with pytest.raises(UsageError, match=r"of several releases, and none is that of .* \(6\.12\.9\)") as told:
        find_kernel(str(image), tmp_path)
    assert str(tmp_path / "lib/modules/6.13.0") in told.value.next_step
    alone = tmp_path / "lib/modules/6.13.0"
    assert find_kernel(str(image), alone).modules == alone, "it was named"


def test_a_module_that_is_no_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        find_kernel("debian-6.12", None, [tmp_path / "ext4.ko"])
    (tmp_path / "ext4.ko").write_bytes(b"")
    with pytest.raises(UsageError, match="no ELF object"):  # an empty one was found out by the guest
        find_kernel("debian-6.12", None, [tmp_path / "ext4.ko"])


@pytest.mark.parametrize(
    ("suffix", "packed"),
    [
        (".ko", bytes),
        (".ko.xz", lzma.compress),
        (".ko.gz", gzip.compress),
        (".ko.zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_a_module_is_taken_as_it_is_packed(
    suffix: str, packed: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Debian's own modules were refused: "a file whose name ends in .ko"."""
    own = tmp_path / f"ext4{suffix}"
    own.write_bytes(packed(module()))
    look_up_kernel("debian-6.12", replaced=[own])
    assert read_module(own) == module()
    own.write_bytes(packed(b"text"))
    with pytest.raises(UsageError, match="no ELF object"):
        look_up_kernel("debian-6.12", replaced=[own])
    if suffix != ".ko":
        own.write_bytes(packed(module())[:-5])
        with pytest.raises(UsageError, match="cannot be unpacked"):
            look_up_kernel("debian-6.12", replaced=[own])


def test_a_module_that_this_kernel_refuses_for_certain_needs_no_boot(tmp_path: Path) -> None:
    """The guest said ENOEXEC, after 31 s."""
    own = tmp_path / "ext4.ko"
    own.write_bytes(module("6.1.0-56-amd64"))
    with pytest.raises(UsageError, match=r"built for 6\.1\.0-56-amd64, and k is 6\.12\.117"):
        need_release(kernel(None, own), "6.12.117+deb12-amd64")
    need_release(kernel(None, own), "6.1.0-56-amd64")
    need_release(kernel(None, own), "")
    for section in (b"__versions", b"__version_ext_crcs"):  # their checksums may agree
        own.write_bytes(module("6.1.0-56-amd64") + b"\0" + section + b"\0")
        need_release(kernel(None, own), "6.12.117+deb12-amd64")
    own.write_bytes(module())
    need_release(kernel(None, own), "6.12.117+deb12-amd64")


def module(release: str = "") -> bytes:
    head = b"\x7fELF\x02\x01".ljust(16, b"\0") + b"\x01\0" + bytes(100)
    return head + (f"\0license=GPL\0vermagic={release} SMP mod_unload \0".encode() if release else b"")


OFFERED = {
    "linux-image-6.12.100+deb12-amd64",
    "linux-image-6.12.9+deb12-amd64",
    "linux-image-6.12.117+deb12-cloud-amd64",
    "linux-image-6.12.117+deb12-amd64-unsigned",
}


Offer = Mapping[str, set[str]]


def offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packages: set[str] | Offer) -> None:
    """What apt has: in the machine's own sources, or by suite."""
    by_suite = packages if isinstance(packages, Mapping) else {"": packages}

    def offered(archive: Archive, pattern: str) -> set[str]:
        return {p for p in by_suite.get(archive.suite, ()) if re.fullmatch(pattern, p)}

    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    monkeypatch.setattr(Archive, "offered", offered)
    monkeypatch.setattr(Archive, "listed", True)


def chosen(pin: str, version: str = "") -> tuple[str, str]:
    """The package that a pin chooses, and its suite."""
    chosen = packages._choose(pins()[pin], version)
    package, archive = chosen.package, chosen.archive
    return package, archive.suite


def test_the_newest_package_of_the_right_flavour_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, OFFERED)
    assert chosen("debian-6.12") == ("linux-image-6.12.100+deb12-amd64", "")


def test_a_version_that_mirrors_have_dropped_names_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, OFFERED)
    with pytest.raises(UsageError) as caught:
        find_kernel("debian-6.12.3")
    assert "debian-6.12.100" in str(caught.value)


def test_no_package_at_all_says_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, set())
    with pytest.raises(KernelError, match="suite trixie") as caught:
        find_kernel("debian-6.12")
    assert "powercut kernel update" in str(caught.value)


def test_other_suites_are_asked_only_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs = {"linux-image-6.12.200+deb13-amd64", "linux-image-6.17.13+deb13-amd64"}
    offer(monkeypatch, tmp_path, {"": OFFERED, "trixie": theirs, "trixie-backports": theirs})
    assert chosen("debian-6.12") == ("linux-image-6.12.100+deb12-amd64", "")
    assert chosen("debian-6.12", "6.12.200") == ("linux-image-6.12.200+deb13-amd64", "trixie")
    assert chosen("debian-6.17") == ("linux-image-6.17.13+deb13-amd64", "trixie-backports")


SPLIT = {
    "linux-image-7.3.4+deb13-amd64",
    "linux-binary-unsigned-7.3.4+deb13-amd64",
    "linux-modules-7.3.4+deb13-amd64",
    "linux-base-7.3.4+deb13-amd64",
    "linux-image-7.3.5+deb13-amd64",
    "linux-binary-7.3.5+deb13-amd64",
    "linux-base-7.3.5+deb13-amd64",
}


def test_the_newest_whole_kernel_is_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch, tmp_path, {"trixie-backports": SPLIT})
    assert chosen("debian-7.3") == ("linux-image-7.3.4+deb13-amd64", "trixie-backports")


def test_a_kernel_without_its_modules_is_refused_by_the_name_of_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, {"trixie-backports": SPLIT})
    with pytest.raises(KernelError, match=r"not linux-modules-7\.3\.5\+deb13-amd64"):
        find_kernel("debian-7.3.5")
    only_image = {"linux-image-6.19.14+deb13-amd64", "linux-binary-6.19.14+deb13-amd64"}
    offer(monkeypatch, tmp_path, {"trixie-backports": only_image})
    with pytest.raises(KernelError, match=r"linux-modules-6\.19\.14\+deb13-amd64, linux-base-6\.19\.14"):
        find_kernel("debian-6.19")


def packed(folder: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """A Debian package with these files."""
    tree = folder / f"tree-{name}"
    for path, content in {"DEBIAN/control": CONTROL.format(name=name).encode(), **files}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    deb = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", "-Znone", tree, deb], check=True, capture_output=True)
    return deb


CONTROL = (
    "Package: {name}\nVersion: 7.3.4-1~bpo13+1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n"
)


def test_a_kernel_of_several_packages_is_put_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where only the unsigned image is there yet, and with a modules.dep that depmod has made."""
    offer(monkeypatch, tmp_path, {"trixie-backports": SPLIT})
    modules = "usr/lib/modules/7.3.4"
    inside = {
        "linux-binary-unsigned-7.3.4+deb13-amd64": {f"{modules}/vmlinuz.unsigned": b"kernel"},
        "linux-modules-7.3.4+deb13-amd64": {f"{modules}/kernel/fs/a.ko": b""},
        "linux-base-7.3.4+deb13-amd64": {f"{modules}/modules.builtin": b"", f"{modules}/modules.order": b""},
    }
    monkeypatch.setattr(Archive, "download", lambda _, name, folder: packed(folder, name, inside[name]))
    found = find_kernel("debian-7.3")
    assert (found.name, found.package_version) == ("debian-7.3.4", "7.3.4-1~bpo13+1")
    assert found.image.read_bytes() == b"kernel"
    assert found.modules is not None
    assert (found.modules / "modules.dep").exists()
    assert (found.modules / "modules.builtin").exists()
    monkeypatch.setattr(Archive, "download", None)  # from here on it is in the cache
    assert find_kernel("debian-7.3.4") == find_kernel("debian-7.3") == found


def test_a_package_that_the_mirror_has_dropped_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Lists are downloaded once, and a mirror keeps only the newest versions of backports."""
    lists = {"trixie-backports": {"linux-image-6.17.8+deb13-amd64"}}
    offer(monkeypatch, tmp_path, lists)
    files = {"boot/vmlinuz-6.17": b"kernel", "usr/lib/modules/6.17/modules.dep": b""}

    def download(_: Archive, name: str, folder: Path) -> Path:
        if "6.17.8" in name:
            raise EnvironmentLacks("404")
        return packed(folder, name, files)

    monkeypatch.setattr(Archive, "download", download)
    newer = {"linux-image-6.17.13+deb13-amd64"}
    monkeypatch.setattr(Archive, "refresh", lambda _: lists.update({"trixie-backports": newer}))
    assert find_kernel("debian-6.17").name == "debian-6.17.13"


def test_uml_of_another_release_comes_with_its_c_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Debian 13's UML does not start with Debian 12's."""
    offer(monkeypatch, tmp_path, {"": {"user-mode-linux=6.1um4"}, "trixie": {"user-mode-linux=6.12um1+b21"}})
    program = Path(sys.executable).resolve().read_bytes()
    inside = {
        "user-mode-linux=6.12um1+b21": {
            "usr/bin/linux.uml": program,
            "usr/lib/uml/modules/6/modules.dep": b"",
        },
        "libc6": {"usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": b"loader"},
    }
    monkeypatch.setattr(Archive, "download", lambda _, n, folder: packed(folder, n.split("=")[0], inside[n]))
    found = find_kernel("uml-6.12")
    loader = there(elf.interpreter(found.image))
    assert loader.read_bytes() == b"loader"
    assert "=" not in str(found.image)  # env(1), which gives it its library, would not start it


def test_what_is_in_the_cache_is_found_without_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch, tmp_path, set())
    root = tmp_path / "kernels/linux-image-6.12.7+deb12-amd64"
    (root / "lib/modules/6.12.7/kernel").mkdir(parents=True)
    (root / "boot").mkdir()
    (root / "boot/vmlinuz-6.12.7").write_bytes(b"kernel")
    (root / "complete").write_text("6.12.7-1\n")
    found = find_kernel("debian-6.12.7")
    assert (found.name, found.package_version) == ("debian-6.12.7", "6.12.7-1")


@pytest.mark.parametrize("state", ["as it was", "damaged", "not ours"])
def test_uml_with_its_c_library_starts_in_a_cache_that_was_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str
) -> None:
    """The path of its library was that of the cache that it had been unpacked in: "is no UML kernel"."""
    offer(monkeypatch, tmp_path, set())
    root = tmp_path / "kernels/user-mode-linux_6.12um1+b22"
    loader = root / "library/usr/lib64/ld-linux-x86-64.so.2"
    image = root / "usr/bin/linux.uml"
    for file in (loader, image, root / "usr/lib/uml/modules/6.12/kernel/a.ko"):
        file.parent.mkdir(parents=True)
    shutil.copy(there(elf.interpreter(Path(sys.executable))), loader)
    image.write_bytes(elf.with_interpreter(Path("/bin/true").read_bytes(), Path("/gone/ld.so")))
    image.chmod(0o755)
    (root / "complete").write_text("6.12um1+b22\n")
    seal(image)
    if state == "damaged":
        image.write_bytes(image.read_bytes() + b"damage")
        find_kernel("uml-6.12")
        with pytest.raises(KernelError, match="is not what was built"):
            need_as_built(image)
        return
    if state == "not ours":

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(packages, "write_atomically", refuse)
        with pytest.raises(KernelError, match=r"/gone/ld\.so, which is not there, and cannot be mended"):
            find_kernel("uml-6.12")
        return
    for _ in range(2):
        found = find_kernel("uml-6.12")
        need_as_built(found.image)
        assert elf.interpreter(found.image) == loader
        subprocess.run([found.image], check=True)


def test_a_pin_of_one_version_at_a_time_has_its_own_layout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(monkeypatch, tmp_path, set())
    root = tmp_path / "kernels/user-mode-linux_6.1um4+b13"
    (root / "usr/lib/uml/modules/6.1.176/kernel").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/linux.uml").write_bytes(b"kernel")
    (root / "complete").write_text("6.1um4+b13\n")
    found = find_kernel("uml-6.1")
    assert (found.name, found.machine, found.image.name) == ("uml-6.1", "uml", "linux.uml")
    assert found.modules is not None
    assert found.modules.name == "6.1.176"


def test_pins_are_told_apart() -> None:
    known: Mapping[str, Pin] = pins()
    assert asked_version(known["debian-6.1"], "debian-6.12.117") is None
    assert asked_version(known["debian-6.12"], "debian-6.12.117") == "6.12.117"
    assert asked_version(known["debian-6.1"], "debian-6.1.0-50") == "6.1.0-50"
    assert asked_version(known["debian-6.1"], "debian-6.1") == ""


def test_a_kernel_is_looked_up_without_being_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_choose", None)
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


def test_a_users_folder_of_modules_is_not_written_to(tmp_path: Path) -> None:
    """A question about --modules made an index in it, which depmod could not where that is read only."""
    folder = tmp_path / "lib/modules/6.12.0"
    (folder / "kernel/fs").mkdir(parents=True)
    (folder / "kernel/fs/x.ko").write_bytes(b"")
    (folder / "modules.builtin").write_text("kernel/fs/y.ko\n")
    (folder / "modules.alias").write_text("of a depmod that was killed\n")
    (image := tmp_path / "vmlinux").write_bytes(b"\x7fELF" + bytes(1020))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    found = find_kernel(str(image), tmp_path)
    assert look_up_kernel(str(image), folder) is None
    assert resolve_modules(found, ["x", "y"]) == [folder / "kernel/fs/x.ko"]
    with pytest.raises(KernelError, match="has no module z"):
        resolve_modules(found, ["z"])
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


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


def test_a_kernel_of_another_machine_that_loads_no_such_module_names_one_that_does(tmp_path: Path) -> None:
    """`--kernel uml-6.1 --module ext4.ko`: "loaded are none: all that is needed is built in"."""
    uml = replace(kernel(None, tmp_path / "ext4.ko"), modules=tmp_path, machine="uml")
    (tmp_path / "modules.builtin").write_text("kernel/fs/ext4/ext4.ko\n")
    with pytest.raises(UsageError, match="would not be tested") as caught:
        need_replaced(uml, ["ext4"])
    assert "such as debian-6.12" in caught.value.next_step
    assert "powercut kernel build TREE" in caught.value.next_step


def test_a_version_of_any_length_is_refused_in_words() -> None:
    """Numbers of more than 4,300 digits are more than int() takes."""
    with pytest.raises(UsageError, match="no kernel"):
        raise _no_kernel("debian-" + "9" * 5000)


def test_a_version_alone_is_a_kernel_of_debian() -> None:
    """The help of `verdict` has 7.3.4 for an example, and it was refused."""
    found = there(look_up_kernel("6.12.117"))
    assert (found[0].name, found[1]) == ("debian-6.12", "6.12.117")
    with pytest.raises(UsageError, match=r"debian-6\.18"):
        look_up_kernel("6.18x")
