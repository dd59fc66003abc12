"""Which libraries come along with what is brought into a guest."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EnvironmentLacks
from harness.guests.brought import libraries
from harness.host.elf import linked

RPATH, RUNPATH = 15, 29


def program(name: str) -> Path:
    return Path(shutil.which(name) or "").resolve()


def elf_with(needed: str, folders: str = "", kind: int = RUNPATH) -> bytes:
    """The least of an ELF file that needs a library, which it has looked for in these folders."""
    strings = f"\0{needed}\0{folders}\0".encode()
    tags = [(1, 1), *([(kind, 2 + len(needed))] if folders else []), (5, 0x200), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    head = b"\x7fELF\x02\x01".ljust(0x20, b"\0") + struct.pack("<Q", 0x40)
    head = head.ljust(0x36, b"\0") + struct.pack("<HH", 56, 2)
    load = struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 0x400, 0x400, 0)
    table = struct.pack("<IIQQQQQQ", 2, 0, 0x100, 0x100, 0, len(dynamic), len(dynamic), 0)
    return (
        (head.ljust(0x40, b"\0") + load + table).ljust(0x100, b"\0") + dynamic.ljust(0x100, b"\0") + strings
    )


@pytest.mark.parametrize("name", ["ls", "bash", sys.executable])
def test_the_libraries_of_a_program_are_those_that_the_loader_takes(name: str) -> None:
    said = subprocess.run(["ldd", program(name)], capture_output=True, text=True, check=True)
    assert set(libraries([program(name)])) == set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said.stdout, re.M))


def test_no_program_is_started_to_know_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ldd starts a loader that runs code of what it loads: with programs that a foreign directory named."""
    started: list[str] = []
    run = subprocess.run

    def watched(words: list[str], **given: Any) -> Any:
        started.append(str(words[0]))
        return run(words, **given)

    monkeypatch.setattr("harness.guests.brought.subprocess.run", watched)
    (tmp_path / "theirs").write_bytes(elf_with("libc.so.6"))
    assert any(path.endswith("/libc.so.6") for path in libraries([tmp_path / "theirs", program("ls")]))
    assert set(started) <= {"/sbin/ldconfig"}


@pytest.mark.parametrize("kind", [RPATH, RUNPATH])
def test_a_library_is_looked_for_where_its_program_says(kind: int, tmp_path: Path) -> None:
    """With DT_RPATH that holds for the libraries of its libraries too, with DT_RUNPATH for its own alone."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "tool").write_bytes(elf_with("libone.so", "$ORIGIN/lib", kind))
    one, two = tmp_path / "lib" / "libone.so", tmp_path / "lib" / "libtwo.so"
    one.write_bytes(elf_with("libtwo.so"))
    two.write_bytes(elf_with("libc.so.6"))
    if kind == RPATH:
        assert {str(one), str(two)} < set(libraries([tmp_path / "tool"]))
    else:
        with pytest.raises(EnvironmentLacks, match=r"no libtwo\.so, which libone\.so needs"):
            libraries([tmp_path / "tool"])


@pytest.mark.parametrize("name", ["/etc/passwd", "/dev/null", "libno-such.so.9"])
def test_a_library_is_a_library(name: str, tmp_path: Path) -> None:
    """By its libraries a program could name any file of the host, which went along into the guest."""
    (tmp_path / "theirs").write_bytes(elf_with(name))
    with pytest.raises(EnvironmentLacks, match=f"no {name}"):
        libraries([tmp_path / "theirs"])


def test_a_table_beyond_any_file_is_a_value_error() -> None:
    """A program whose headers were said to begin at 2^63 and more was an unforeseen OverflowError."""
    whole = bytearray(elf_with("libmine.so.1"))
    whole[32:40] = b"\xff" * 8
    with pytest.raises(ValueError, match="too large"):
        linked(bytes(whole))


@given(st.data())
def test_a_damaged_program_is_a_value_error(data: st.DataObject) -> None:
    whole = bytearray(elf_with("libmine.so.1", "$ORIGIN:/opt/lib"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(6, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        linked(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except ValueError as e:
        assert str(e)
