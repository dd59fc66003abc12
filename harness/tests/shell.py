"""Carries out the sessions of a document."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.tests.markdown import Session, matches, plain

STEP_TIMEOUT_S = 1800  # one that hangs ends; those that build a kernel take minutes
_WHO = {f"GIT_{who}_{what}": "reader" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
"""Whoever reads it has told git."""
_BIN = Path(sys.executable).parent


def carry_out(of_document: Sequence[Session], folder: Path) -> None:
    """Run each step in a shell, where the one before it ended; its output must be the document's."""
    place = folder
    environment = {
        **os.environ,
        "PATH": f"{_BIN}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "TERM": "dumb",
        **_WHO,
    }
    for session in of_document:
        for step in session.steps:
            done = subprocess.run(  # noqa: S602  # a session is what a user types into a shell
                f"{step.command}\npwd >{folder}/.place",
                shell=True,
                cwd=place,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=STEP_TIMEOUT_S,
                check=False,
            )
            place = Path((folder / ".place").read_text().rstrip("\n"))
            printed = done.stdout.rstrip("\n").splitlines()
            told = "\n".join(map(plain, printed))
            assert matches(step.output, printed), f"{session.document}: $ {step.command}\n{told}"
