"""`powercut` called as a test needs it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from harness.cli import main
from harness.errors import ExitCode


def powercut(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(*arguments: object) -> str:
    """What a command that is not carried out says of that, in one line."""
    done = powercut(*arguments)
    assert done.exit_code == ExitCode.USAGE, done.output
    return " ".join(done.stderr.split())


def printed(*arguments: object) -> str:
    """What a command prints that ends well."""
    done = powercut(*arguments)
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    return done.stdout
