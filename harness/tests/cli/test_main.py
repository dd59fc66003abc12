"""What holds for every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli import main
from harness.errors import ExitCode
from harness.tests.cli.runner import powercut


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of every command, those of groups too."""
    for name, command in group.commands.items():
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    done = powercut(*words, "--help")
    assert done.exit_code == 0
    assert len(done.output.splitlines()) > 5


def test_a_run_directory_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 999}')
    for arguments in (
        ["report", tmp_path],
        ["run", "--resume", tmp_path],
        ["repro", "x@1", "--from", tmp_path],
    ):
        done = powercut(*arguments)
        assert done.exit_code == ExitCode.UNDECIDED, done.output
        assert "999" in done.stderr
