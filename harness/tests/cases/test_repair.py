"""Repair before the mount: the program gets an image of the crash state, and its exit code counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.cases.repair import repaired
from harness.errors import PowercutError
from harness.filesystems.tools import Tool
from harness.guests.session import Session, Target
from harness.model import CrashState

STATE = CrashState(7)


class PretendDisk:
    """Writes into an image the state from which it was made."""

    def __init__(self) -> None:
        self.state = ""

    def switch(self, state: CrashState) -> None:
        self.state = str(state)

    def image(self, path: Path) -> str:
        assert not path.exists(), "what an earlier repair left must be gone"
        path.write_text(self.state)
        return "hash"


def repair(tmp_path: Path, script: str) -> Target:
    program = tmp_path / "repair"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    disk = PretendDisk()
    session = SimpleNamespace(directory=tmp_path, show=lambda target: disk)
    target = Target("ext2", "", tmp_path / "base", tmp_path / "log")
    return repaired(cast(Session, session), target, STATE, Tool(str(program), "none", clean=(0, 1)))


@pytest.mark.parametrize("code", [0, 1])
def test_what_the_program_left_is_shown(tmp_path: Path, code: int) -> None:
    for _ in range(2):
        target = repair(tmp_path, f'printf " repaired" >>"$1"; exit {code}')
        assert target.base.read_text() == "@7 repaired"
        assert target.log is None


def test_a_program_that_could_not_repair_leaves_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(PowercutError, match="could not repair @7: exit code 8: no superblock"):
        repair(tmp_path, "echo no superblock; exit 8")
