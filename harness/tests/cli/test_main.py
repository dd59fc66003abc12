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


def test_a_renamed_command_keeps_its_old_name_and_hides_it() -> None:
    """`powercut dossier`, in scripts of before, was no command any more."""
    assert powercut("dossier", "--help").output == powercut("bugreport", "--help").output
    assert "dossier" not in powercut("--help").output


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_every_help_teaches_by_an_example(words: tuple[str, ...]) -> None:
    said = powercut(*words, "--help").output
    assert f"powercut {' '.join(words)}" in said


def test_the_help_names_every_exit_code_and_where_runs_are_kept() -> None:
    """5 was missing; `--out X` keeps runs in X/runs, which nothing said."""
    said = powercut("--help").output.partition("Exit codes:")[2]
    for code in (*range(ExitCode.TIME_UP + 1), int(ExitCode.INTERRUPTED)):
        assert f"{code} " in said
    assert "DIR/runs" in powercut("run", "--help").output


BAD_PATHS: list[list[str]] = [
    ["report", "/gone"],
    ["compare", "/gone", "/gone"],
    ["repro", "ext4-ordered/append-fsync@1", "--from", "/gone"],
    ["repro", "ext4-ordered/append-fsync@1", "--export", "/gone/disk.img"],
    ["shrink", "ext4-ordered/append-fsync", "--from", "/gone"],
    ["shrink", "ext4-ordered/append-fsync", "--output", "/gone/short.toml"],
    ["run", "--resume", "/gone"],
    ["run", "--recordings", "/gone"],
    ["run", "--recordings", "/"],
    ["run", "--kernel", "/gone/bzImage"],
    ["run", "--modules", "/gone"],
    ["run", "--module", "/gone/ext4.ko"],
    ["run", "--expect", "/gone"],
    ["run", "-w", "/gone/w.toml"],
    ["run", "--out", "/dev/null/reports"],
    ["smoke", "--out", "/dev/null"],
    ["log", "ls", "/gone"],
    ["kernel", "build", "--source", "/gone"],
    ["measure", "--resume", "/gone"],
    ["measure", "--resume", "/"],
    ["bench", "--json", "/gone/bench.json"],
    ["trace", "--json", "/gone/trace.json"],
    ["trace", "--kernel", "/gone"],
]


@pytest.mark.parametrize("arguments", BAD_PATHS, ids=" ".join)
def test_a_path_that_is_wrong_is_a_usage_error_in_every_command(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 2 in some and 3 in others, and some found out after minutes of work."""
    monkeypatch.chdir(tmp_path)
    done = powercut(*arguments)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert not list(tmp_path.iterdir())


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
