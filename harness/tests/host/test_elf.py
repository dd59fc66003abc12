"""A program's loader: read, and replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.host.elf import interpreter, with_interpreter

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


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 90]
)
def test_other_files_have_no_loader(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert interpreter(path) is None
    with pytest.raises(ValueError, match="dynamically linked"):
        with_interpreter(content, path)
