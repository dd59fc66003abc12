"""`powercut` called as a test needs it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from harness.cli import main


def powercut(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])
