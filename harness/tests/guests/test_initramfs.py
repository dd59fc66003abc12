"""The guest's root: cpio(1) must find in it what was put there."""

from __future__ import annotations

import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.guests.brought import library_of
from harness.guests.initramfs import Initramfs, build, pinned_hash, user_id


def unpacked(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Mode and contents by name, read by the format's description and not by our code."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        data_at = (at + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            assert len(archive) == (data_at + size + 3) & ~3
            return found
        found[name] = (mode, archive[data_at : data_at + size])
        at = (data_at + size + 3) & ~3


def test_files_and_their_directories_are_in_it() -> None:
    root = Initramfs()
    root.add("/init", b"agent", 0o755)
    root.add("/usr/lib/deep/file", b"x" * 5)
    found = unpacked(root.pack())
    assert found["init"] == (stat.S_IFREG | 0o755, b"agent")
    assert found["usr/lib/deep/file"] == (stat.S_IFREG | 0o644, b"xxxxx")
    names = list(found)
    for folder in ("usr", "usr/lib", "usr/lib/deep"):
        assert stat.S_ISDIR(found[folder][0])
        assert names.index(folder) < names.index("usr/lib/deep/file")
    assert stat.S_ISCHR(found["dev/console"][0])


def test_modules_are_listed_in_load_order(tmp_path: Path) -> None:
    paths = [tmp_path / "jbd2.ko", tmp_path / "ext4.ko"]
    for path in paths:
        path.write_bytes(path.name.encode())
    (tmp_path / "agent").write_bytes(b"agent")
    found = unpacked(build(tmp_path / "agent", paths, [], {"/etc/job.fio": b"[a]"}))
    assert found["modules"][1] == b"/lib/modules/jbd2.ko\n/lib/modules/ext4.ko\n"
    assert found["lib/modules/ext4.ko"][1] == b"ext4.ko"
    assert found["etc/job.fio"][1] == b"[a]"


def test_a_program_comes_with_its_libraries() -> None:
    root = Initramfs()
    root.add_program("ls")
    found = unpacked(root.pack())
    assert found["bin/ls"][1] == Path(shutil.which("ls") or "").resolve().read_bytes()
    loader = struct.pack("<I", 0x464C457F)
    assert any("libc.so" in name and data[:4] == loader for name, (_, data) in found.items())


def test_a_program_of_another_release_comes_with_its_own_loader_and_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode that is made in the guest took programs of this host's release alone."""
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path))
    package = tmp_path / "programs/odd-tools"
    for name, source in {
        "sbin/odd": Path(shutil.which("echo") or "").resolve(),
        "lib/ld-linux-x86-64.so.2": library_of("/lib64/ld-linux-x86-64.so.2"),
        "lib/libc.so.6": library_of("libc.so.6"),
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, package / name)
    (package / "complete").touch()
    root = Initramfs()
    root.add_program("odd:odd-tools")
    found = unpacked(root.pack())
    for path in ("sbin/odd", "lib/ld-linux-x86-64.so.2", "lib/libc.so.6"):
        assert found[f"{package}/{path}".lstrip("/")][1] == (package / path).read_bytes()
    mode, script = found["bin/odd"]
    assert mode == stat.S_IFREG | 0o755
    (tmp_path / "script").write_bytes(script)
    said = subprocess.run(["sh", tmp_path / "script", "a  b", "c"], capture_output=True, check=True)
    assert said.stdout == b"a  b c\n"


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(EnvironmentLacks) as caught:
        Initramfs().add_program("no-such-program")
    assert "no-such-program" in str(caught.value)


def test_a_module_that_the_host_compiles_meanwhile_is_none_that_a_run_depends_on(tmp_path: Path) -> None:
    """Each import on the host may leave another one, also those of powercut itself: no run of a workload with
    `runtime = "python"` could be gone on with then. What is run without its source counts.
    """

    def pinned(**files: bytes) -> str:
        root = Initramfs()
        for name, data in {"init": b"agent", "lib/json/__init__.py": b"source"}.items():
            root.add(name, data)
        for name, data in files.items():
            root.add(name, data)
        (tmp_path / "archive").write_bytes(root.pack())
        return pinned_hash(tmp_path / "archive")

    alone = pinned()
    assert pinned(**{"lib/json/__pycache__/__init__.cpython-311.pyc": b"compiled"}) == alone
    assert pinned(**{"lib/json/decoder.pyc": b"compiled"}) != alone
    assert pinned(**{"lib/json/__init__.py": b"Source"}) != alone
    assert pinned(**{"lib/json/__pycache__/data": b"data"}) != alone
    (tmp_path / "archive").write_bytes(b"no archive")
    assert pinned_hash(tmp_path / "archive") != alone


def test_root_is_root_also_where_a_workload_names_it() -> None:
    """`user = "root"` became an ordinary user of that name, and root was nobody's."""
    root = Initramfs()
    root.add("init", b"agent", 0o755)
    root.add_users(["me", "root"])
    lines = unpacked(root.pack())["etc/passwd"][1].decode().splitlines()
    numbers = {name: number for name, _, number, *_ in (line.split(":") for line in lines)}
    assert numbers == {"root": "0", "me": str(user_id("me"))}
