"""A program's loader: read, and replaced."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from harness.host.elf import interpreter, is_program, with_interpreter

PROGRAM = Path(sys.executable).resolve()


def test_a_program_starts_with_the_loader_that_it_was_given(tmp_path: Path) -> None:
    own = interpreter(PROGRAM)
    assert own is not None
    copy, loader = tmp_path / "program", tmp_path / "loader"
    copy.write_bytes(with_interpreter(PROGRAM.read_bytes(), loader))
    copy.chmod(0o755)
    assert interpreter(copy) == loader
    with pytest.raises(FileNotFoundError):
        subprocess.run([copy, "-c", ""], check=True)
    loader.symlink_to(own)
    assert subprocess.run([copy, "-S", "-c", "print(1)"], capture_output=True, check=True).stdout == b"1\n"


# elf(5): ET_REL, and of the table of program headers neither a place, nor a size, nor entries
OBJECT = b"\x7fELF\x02\x01".ljust(16, b"\0") + struct.pack(
    "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 9, 8
)


def test_an_object_file_is_no_program(tmp_path: Path) -> None:
    """A kernel module, named as a kernel by mistake, gave a ValueError."""
    path = tmp_path / "ext4.ko"
    path.write_bytes(OBJECT)
    assert not is_program(path)
    assert interpreter(path) is None


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 90]
)
def test_other_files_have_no_loader(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert interpreter(path) is None
    assert not is_program(path)
    with pytest.raises(ValueError, match="dynamically linked"):
        with_interpreter(content, path)


def test_a_program_is_told_from_a_kernel_by_where_it_is_loaded(tmp_path: Path) -> None:
    assert is_program(PROGRAM)
    vmlinux = tmp_path / "vmlinux"
    header = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<QQIHHH", 64, 0, 0, 64, 56, 1)
    load = struct.pack("<IIQQ", 1, 5, 0x200000, 0xFFFFFFFF81000000)
    vmlinux.write_bytes(header.ljust(64, b"\0") + load.ljust(56, b"\0"))
    assert not is_program(vmlinux)
