"""How UML is started: with which libraries, by its release."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from harness.guests import uml
from harness.guests.machine import Boot, VirtualTime
from harness.host.elf import interpreter, with_interpreter
from harness.host.resources import resource
from harness.kernels.build import edits_for
from harness.tests.there import there

PROGRAM = Path(sys.executable).resolve()


@pytest.mark.parametrize(
    ("release", "needed"), [("6.1.176", True), ("6.12.117", True), ("7.2.7", False), ("7.10-rc1", False)]
)
def test_only_older_uml_is_helped(release: str, needed: bool) -> None:
    """7.2 and later ask the host for the size of its registers; the library was loaded into all."""
    assert uml.needs_shim(release) is needed


@pytest.mark.parametrize("release", ["6.12.117", "7.3.4"])
def test_random_numbers_of_virtual_time_follow_from_the_seed_in_every_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    """UML 7.3 was started without the library, and two recordings differed in ext4's inode generations."""
    given: list[dict[str, str]] = []
    monkeypatch.setattr(uml, "release", lambda _: release)
    monkeypatch.setattr(uml, "find_shim", lambda: tmp_path / "shim.so")
    launch = "harness.guests.uml.guest.launch"
    monkeypatch.setattr(launch, lambda line, directory, variables, where: given.append(variables))
    image = tmp_path / "image"
    image.write_bytes(uml.RECORDS)
    assert uml.Uml().has_virtual_time(image)
    boot = Boot(image, tmp_path / "initramfs", tmp_path / "socket", tmp_path / "log", tmp_path)
    virtual = VirtualTime(script_bytes=1, order="", patience_ns=0, seed=5)
    uml.Uml().launch(dataclasses.replace(boot, disk_memory=tmp_path / "disk", virtual=virtual))
    assert given[0]["LD_PRELOAD"] == str(tmp_path / "shim.so")
    assert given[0]["POWERCUT_RANDOM_SEED"] == "5"


def test_an_image_with_a_loader_of_its_own_finds_the_library_beside_it(tmp_path: Path) -> None:
    """Debian 13's UML ended at once with Debian 12's C library. Other programs must not see that library."""
    loader = there(interpreter(PROGRAM))
    own, image, initramfs = tmp_path / "library/ld.so", tmp_path / "image", tmp_path / "initramfs"
    own.parent.mkdir()
    own.symlink_to(loader)
    image.write_bytes(with_interpreter(PROGRAM.read_bytes(), own))
    image.chmod(0o755)
    initramfs.touch()
    boot = Boot(image, initramfs, tmp_path / "socket", tmp_path / "log", tmp_path)
    assert uml.command(boot, 3)[0] == str(image)  # it has the host's library
    (own.parent / "libc.so.6").touch()
    assert uml.command(boot, 3)[:3] == ["env", f"LD_LIBRARY_PATH={own.parent}", str(image)]
    (own.parent / "libc.so.6").unlink()
    said = subprocess.run(
        ["env", f"LD_LIBRARY_PATH={own.parent}", image, "-S", "-c", "print(1)"],
        check=True,
        capture_output=True,
    )
    assert said.stdout == b"1\n"


def test_a_disk_is_memory_only_for_a_kernel_with_the_driver_of_this_version(tmp_path: Path) -> None:
    """A kernel of an earlier version, Debian's own, and one that speaks otherwise keep vhost-user."""
    for name, words, shared in (
        ("ours", uml.DRIVER, True),
        ("next", uml.DRIVER.replace(b"1", b"2"), False),
        ("plain", b"powercut_disk", False),
    ):
        (tmp_path / name).write_bytes(b"\x7fELF" + words + b"\0more")
        assert uml.has_driver(tmp_path / name) is shared
    boot = Boot(PROGRAM, tmp_path / "ours", tmp_path / "socket", tmp_path / "log", tmp_path)
    socket, memory = f"virtio_uml.device={boot.disk_socket}:2", "powercut_disk=/proc/7/fd/3"
    assert socket in uml.command(boot, 3)
    line = uml.command(dataclasses.replace(boot, disk_memory=Path("/proc/7/fd/3")), 3)
    assert memory in line
    assert socket not in line


def test_in_virtual_time_the_command_line_is_the_same_each_time(tmp_path: Path) -> None:
    """The kernel stirs it into its random numbers: the names of two folders made two recordings differ."""
    lines = []
    for name in ("one", "another"):
        (folder := tmp_path / name).mkdir()
        (folder / "initramfs").touch()
        boot = Boot(PROGRAM, folder / "initramfs", folder / "socket", folder / "log.img", folder)
        virtual = VirtualTime(4096, "newest", 5_000_000, 3)
        lines.append(
            uml.virtual_command(dataclasses.replace(boot, virtual=virtual, disk_memory=folder / "memory"))
        )
    assert lines[0] == lines[1]
    assert {"powercut_hold=newest:5000000:3", "powercut.script=/dev/powercut_log:4096"} < set(lines[0])
    source = resource("vms", "umldisk", "record_kern.c").read_text()
    for name in ("powercut_hold=", "powercut_log="):
        assert f'__setup("{name}", ' in source


def test_completions_at_once_are_asked_for_by_no_word(tmp_path: Path) -> None:
    (tmp_path / "initramfs").touch()
    boot = Boot(PROGRAM, tmp_path / "initramfs", tmp_path / "socket", tmp_path / "log", tmp_path)
    line = uml.virtual_command(dataclasses.replace(boot, virtual=VirtualTime(1, "", 0, 0)))
    assert not [word for word in line if word.startswith("powercut_hold")]


def test_a_kernel_is_told_where_to_note_what_it_runs(tmp_path: Path) -> None:
    (tmp_path / "initramfs").touch()
    boot = Boot(PROGRAM, tmp_path / "initramfs", tmp_path / "socket", tmp_path / "log", tmp_path)
    assert not [word for word in uml.command(boot, 3) if word.startswith("powercut_hits")]
    line = uml.command(dataclasses.replace(boot, hits=tmp_path / "hits"), 3)
    assert f"powercut_hits={tmp_path}/hits" in line
    source = resource("vms", "umlcoverage", "hits.c").read_text()
    assert '__setup("powercut_hits=", ' in source


def test_the_driver_says_the_words_that_are_looked_for() -> None:
    source = resource("vms", "umldisk", "disk_kern.c").read_text()
    assert f'"{uml.DRIVER[:-1].decode()}"' in source
    records = resource("vms", "umldisk", "record_kern.c").read_text()
    assert f'"{uml.RECORDS[:-1].decode()}"' in records


def test_a_seed_decides_in_a_kernel_that_has_all_it_takes(tmp_path: Path) -> None:
    """An edit that does not fit a source is left out: such a kernel would record the order of always, and
    the report would say otherwise.
    """
    for count in range(4):
        (tmp_path / f"{count}").write_bytes(b"\x7fELF" + b"".join(uml.DECIDES[:count]))
        assert uml.Uml().decides_threads(tmp_path / f"{count}") is (count == 3)
    build = there(uml.profile().build)
    threads = resource("vms", "umldisk", "threads_kern.c").read_text()
    for release in ((6, 12), (7, 3)):
        sources = [threads, *(e.replacement for e in edits_for(build, release))]
        for words in uml.DECIDES:
            assert sum(f'"{words[:-1].decode()}"' in text for text in sources) == 1
