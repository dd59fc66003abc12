"""The root of an image as the guest unpacks it."""

from __future__ import annotations

import dataclasses
import stat
import tarfile
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.guests import qemu, uml
from harness.guests.images import root_archive
from harness.guests.initramfs import Initramfs
from harness.guests.machine import Boot, Machine, machine_of
from harness.host.cache import cache_dir
from harness.host.oci import read_image
from harness.tests.guests.test_initramfs import unpacked
from harness.tests.host.images import file, folder, layout, link, tar

PROGRAM = tar(
    folder("etc"),
    file("bin/tool", b"#!", 0o4755, owner=70),
    link("bin/again", "bin/tool", tarfile.LNKTYPE),
    link("sh", "/bin/tool"),
    file("proc/stale", b"x"),
    file("mnt/own", b"x"),
)


pytestmark = pytest.mark.usefixtures("cache")


def test_the_root_is_below_a_folder_of_the_image(tmp_path: Path) -> None:
    path = layout(tmp_path / "i.tar", PROGRAM)
    archive = root_archive(path).read_bytes()
    top = f"images/{read_image(path).identity[:12]}"
    found = unpacked(archive)
    assert list(found)[:2] == ["images", top]
    inside = {name.removeprefix(f"{top}/"): of for name, of in found.items() if name.startswith(f"{top}/")}
    assert inside["bin/again"] == (stat.S_IFREG | 0o4755, b"#!")
    assert inside["bin/tool"] == (stat.S_IFLNK | 0o4755, b"/bin/again"), "a file has one name that is no link"
    assert inside["sh"][1] == b"/bin/tool"
    assert inside["etc/hosts"][1] == b"127.0.0.1 localhost\n"
    assert b"%08X%08X" % (70, 70) in archive, "the owner is the image's"


def test_what_the_guest_puts_there_is_empty(tmp_path: Path) -> None:
    """The file system under test was mounted over what the image has, or beside it."""
    archive = root_archive(layout(tmp_path / "i.tar", PROGRAM)).read_bytes()
    names = [name.split("/", 2)[-1] for name in unpacked(archive)]
    assert {"dev", "proc", "sys", "tmp", "mnt", "workload"} < set(names)
    assert not {"proc/stale", "mnt/own"} & set(names)
    source = Path(uml.__file__).parents[2] / "vms" / "agent" / "src" / "image.rs"
    assert '["/dev", "/proc", "/sys", "/tmp", "/workload", MOUNT_POINT]' in source.read_text()


def test_an_image_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = root_archive(layout(tmp_path / "i.tar", PROGRAM))
    monkeypatch.setattr("harness.guests.images.unpacked_layers", None)
    assert root_archive(layout(tmp_path / "same.tar", PROGRAM, packed="+zstd")) == made
    assert [p.name for p in cache_dir("images").iterdir()] == [made.parent.name]


def test_a_damaged_image_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    path = layout(tmp_path / "i.tar", PROGRAM, packed="")
    path.write_bytes(path.read_bytes().replace(b"stale", b"other"))
    with pytest.raises(UsageError, match="is damaged"):
        root_archive(path)
    assert not [*cache_dir("images").iterdir()]


def test_the_archive_of_an_image_follows_the_guest_s_own(tmp_path: Path) -> None:
    root = Initramfs()
    root.add("init", b"agent")
    assert len(root.pack()) % 4 == 0, "a header begins at a multiple of four"


@pytest.mark.parametrize("machine", [machine_of("uml"), machine_of("qemu")])
def test_a_workload_may_ask_for_more_memory(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / "initramfs").write_bytes(bytes(10 << 20))
    boot = Boot(Path("/bin/true"), tmp_path / "initramfs", tmp_path / "s", tmp_path / "l", tmp_path)
    usual = machine.profile.memory_mib + 20
    for asked, given in ((0, usual), (usual - 1, usual), (1500, 1500)):
        asking = dataclasses.replace(boot, memory_mib=asked)
        line = uml.command(asking, 3) if machine.name == "uml" else qemu.command(asking, "tcg", 3)
        assert {f"mem={given}M", f"{given}M"} & set(line)
