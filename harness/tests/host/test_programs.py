"""Programs of other releases, with the libraries of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.host.archive import Archive
from harness.host.elf import interpreter
from harness.host.programs import cached_program, command_of, fetch_program

PROGRAM = Path(sys.executable).resolve()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite `next` with a program that needs a library, and `base` with that library and the loader."""
    loader = interpreter(PROGRAM)
    assert loader is not None
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    lib = "usr/lib/x86_64-linux-gnu"
    packed = {
        ("next", "odd-tools"): ("libodd1 (>= 2) | libeven1, python3:any", {"usr/sbin/odd": PROGRAM}),
        ("base", "libodd1"): ("libc6", {f"{lib}/libodd.so.1": PROGRAM}),
        ("base", "libc6"): ("libodd1", {f"{lib}/ld-linux-x86-64.so.2": loader}),
    }

    def offered(archive: Archive, pattern: str) -> set[str]:
        return {name for suite, name in packed if suite == archive.suite and re.fullmatch(pattern, name)}

    def download(archive: Archive, name: str, folder: Path) -> Path:
        depends, files = packed[archive.suite, name]
        tree = tmp_path / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@b>\nDescription: a\n"
            f"Depends: {depends}\n"
        )
        for place, source in files.items():
            (tree / place).parent.mkdir(parents=True, exist_ok=True)
            (tree / place).write_bytes(source.resolve().read_bytes())
            (tree / place).chmod(0o755)
        deb = folder / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", "-Znone", tree, deb], check=True, capture_output=True)
        return deb

    monkeypatch.setattr(Archive, "offered", offered)
    monkeypatch.setattr(Archive, "download", download)
    return tmp_path / "cache"


def test_a_program_of_another_release_runs_with_its_own_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached_program("odd", "odd-tools") is None
    path = fetch_program("odd", "odd-tools", ["base", "next"])
    assert cached_program("odd", "odd-tools") == path
    loader, option, folders, program = command_of(path)
    assert (option, program) == ("--library-path", str(path))
    assert (Path(folders.split(":")[0]) / "libodd.so.1").exists()
    assert "programs/odd-tools" in loader
    said = subprocess.run([*command_of(path), "-S", "-c", "print(1)"], check=True, capture_output=True)
    assert said.stdout == b"1\n"
    monkeypatch.setattr(Archive, "download", None)  # it is in the cache now
    assert fetch_program("odd", "odd-tools", ["base", "next"]) == path


def test_a_package_of_a_named_release_is_kept_apart(cache: Path) -> None:
    """A mode that needs a newer program would else have given it to all others."""
    newer = fetch_program("odd", "odd-tools", ["base", "next"], "base+next")
    assert cache / "programs/odd-tools@base+next" in newer.parents
    assert cached_program("odd", "odd-tools", "base+next") == newer
    assert cached_program("odd", "odd-tools") is None
    assert "odd-tools@base+next" in command_of(newer)[0]


def test_a_program_of_this_machine_starts_as_it_is() -> None:
    assert command_of(PROGRAM) == [str(PROGRAM)]


def test_a_package_that_no_suite_has_is_named(cache: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="no package odd-tools in suite base"):
        fetch_program("odd", "odd-tools", ["base"])
    with pytest.raises(EnvironmentLacks, match="has no program even"):
        fetch_program("even", "odd-tools", ["base", "next"])
    assert not list(cache.glob("programs/fetching-*"))
