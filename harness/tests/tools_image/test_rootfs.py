"""The recipe of the root image, and what is said where it cannot be made. No image is made here."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks, KernelError
from harness.filesystems.profiles import profiles
from harness.host.resources import resource
from harness.kernels.find import Kernel
from harness.tools_image import rootfs
from harness.tools_image.rootfs import apt_sources, command, headers_image, recipe, recipe_hash, root_image


class Told:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []

    def say(self, text: str) -> None: ...

    def begin(self, what: str, total: int) -> None:
        self.steps.append((what, total))

    def advance(self, what: str, count: int) -> None:
        self.steps.append((what, count))


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """An empty cache, one apt source, and a folder for programs that come first on PATH."""
    source = tmp_path / "debian.sources"
    source.write_text("Types: deb\nURIs: file:/nowhere\n")
    monkeypatch.setattr(rootfs, "apt_sources", lambda: [source])
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name in ("mmdebstrap", "mkfs.erofs"):
        put_program(programs / name, "exit 0")
    return programs


def put_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_the_recipe_names_what_is_traced_and_measured_with() -> None:
    assert {"python3-bpfcc", "fio", "bonnie++", "xfsprogs", "reiserfsprogs"} <= set(recipe().packages)
    assert all("*" in pattern for pattern in recipe().exclude)


@pytest.mark.parametrize("changed", ["rootfs.toml", "customize.sh"])
def test_whatever_is_changed_in_the_recipe_makes_another_image(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recipe_hash()
    for name in ("rootfs.toml", "customize.sh"):
        original = resource("vms", "rootfs", name).read_bytes()
        (tmp_path / name).write_bytes(original + (b"# more\n" if name == changed else b""))
    monkeypatch.setattr(rootfs, "resource", lambda *parts: tmp_path / parts[-1])
    assert recipe_hash() != before
    monkeypatch.undo()
    assert recipe_hash() == before


def test_a_folder_of_the_image_may_have_a_space_in_its_name() -> None:
    """mmdebstrap reads a hook as a shell does: after minutes, `special hook failed with exit code 6400`."""
    hooks = [shlex.split(word) for word in command(Path("/my cache"), []) if "=download" in word]
    assert hooks == [
        ["--customize-hook=download", f"/{name}", f"/my cache/{name}"]
        for name in ("root.erofs", "packages.txt")
    ]


def test_the_mkfs_of_every_measured_file_system_is_in_the_recipe() -> None:
    """They were listed a second time, in rootfs.toml."""
    wanted = {p.mkfs.package for p in profiles().values() if p.tools_image}
    assert {"e2fsprogs", "nilfs-tools"} <= wanted <= set(recipe().packages)


def test_packages_come_from_this_machine_s_sources(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (tmp_path / "sources.list").write_text("# nothing here\n")
    (folder / "a.list").write_text("deb file:/nowhere stable main\n")
    (folder / "b.sources").write_text("Types: deb\nURIs: file:/nowhere\n")
    (folder / "c.list.disabled").write_text("deb file:/nowhere stable main\n")
    sources = apt_sources(tmp_path)
    assert [p.name for p in sources] == ["a.list", "b.sources"]
    assert command(tmp_path, sources)[-4:] == ["", "-", *map(str, sources)]


def test_an_image_is_made_once(surroundings: Path) -> None:
    script = """
echo "I: running apt-get update..."
echo "I: downloading packages with apt..."
for word; do case $word in
*download\\ /root.erofs\\ *) echo image >"${word##* }" ;;
*download\\ /packages.txt\\ *) echo list >"${word##* }" ;;
esac; done"""
    put_program(surroundings / "mmdebstrap", script)
    told = Told()
    image = root_image(told)
    assert image.read_text() == "image\n"
    assert (image.parent / "packages.txt").exists()
    assert told.steps == [(rootfs.STEP, 6), (rootfs.STEP, 1), (rootfs.STEP, 1)]
    put_program(surroundings / "mmdebstrap", "exit 1")
    assert root_image(told) == image


@pytest.mark.parametrize(
    ("said", "next_step"),
    [
        ("E: Failed to fetch file: Could not resolve host", "apt-get update"),
        ("E: unable to pick chroot mode automatically", "uidmap"),
        ("E: something else", "vms/rootfs"),
    ],
)
def test_what_went_wrong_is_said_with_the_next_step(surroundings: Path, said: str, next_step: str) -> None:
    put_program(surroundings / "mmdebstrap", f"echo '{said}' >&2; exit 100")
    with pytest.raises(EnvironmentLacks) as e:
        root_image(Told())
    assert said in e.value.what
    assert next_step in e.value.next_step
    assert not list((surroundings.parent / "cache/rootfs").glob("*"))


def test_a_missing_program_comes_with_its_package(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(surroundings))
    (surroundings / "mkfs.erofs").unlink()
    with pytest.raises(EnvironmentLacks, match="erofs-utils") as e:
        root_image(Told())
    assert e.value.next_step == "run: apt-get install erofs-utils"


def test_a_kernel_of_the_user_s_own_has_no_headers(surroundings: Path) -> None:
    with pytest.raises(KernelError, match="did not come from a package"):
        headers_image(Kernel("mine", Path("bzImage"), None, ""), Told())


def test_headers_that_no_archive_has_are_named(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """6.17 is in the archive without its headers; three lines of apt-get stood in every report instead."""

    class Empty:
        def __init__(self, *_: object) -> None: ...

        def offered(self, pattern: str) -> list[str]:
            return []

    monkeypatch.setattr("harness.kernels.headers.Archive", Empty)
    modules = surroundings / "lib/modules/6.17.13+deb13-amd64"
    kernel = Kernel("debian-6.17", Path("vmlinuz"), modules, "0", package_version="6.17.13-1")
    with pytest.raises(KernelError, match=r"no archive has the package linux-headers-6\.17\.13\+deb13-amd64"):
        headers_image(kernel, Told())
