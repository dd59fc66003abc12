"""What --help and `powercut` alone show, and what presets and choices stand for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import click
import pytest

from harness.cli import COMMANDS as SENTENCES
from harness.cli import main, run
from harness.cli.first_steps import first_steps
from harness.cli.manual import pages_of
from harness.cli.options import OneOf, asked_oracles, asked_states
from harness.cli.presets import PRESETS, words_of
from harness.cli.run import RunCommand, _asked_disk, run_command
from harness.cli.sections import COMMANDS, option_sections
from harness.errors import UsageError
from harness.model import DISK_FAULTS
from harness.oracles import ORACLES
from harness.plan import LEGAL
from harness.states import FAULT_MODELS
from harness.tests.cli.runner import powercut, refused


def test_every_command_has_one_heading_and_the_everyday_ones_come_first() -> None:
    """Thirty commands stood in one list: whoever looked for the next step read all of it."""
    placed = [name for names in COMMANDS.values() for name in names]
    assert sorted(placed) == sorted(main.commands)
    said = powercut("--help").output
    places = [said.index(f"{heading}:\n") for heading in COMMANDS]
    assert places == sorted(places)
    assert said.index("\n  run ") < said.index("\n  show ") < said.index("\n  faults ")


@pytest.mark.parametrize("name", SENTENCES)
def test_help_lists_a_command_with_its_own_first_sentence(name: str) -> None:
    """--help takes it from a table, and imports no command for it."""
    assert SENTENCES[name][1] == main.commands[name].get_short_help_str(limit=1000)


def test_help_imports_no_command() -> None:
    """Each start of `powercut` imported all commands, in 0.6 s."""
    words = "import sys; from harness.cli import main; main(['--help'], standalone_mode=False); "
    words += "sys.exit(' '.join(m for m in sys.modules if m.startswith('harness.')))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert set(done.stderr.split()) == {"harness.cli", "harness.cli.sections", "harness.errors"}
    assert "Test:" in done.stdout


def test_every_option_of_run_has_one_heading_and_ten_are_for_every_day() -> None:
    """Of thirty-nine options in one list, those that everybody needs were the first, the third, the last."""
    placed = [name for names in RunCommand.headings.values() for name in names]
    assert sorted(placed) == sorted(p.opts[0] for p in run_command.params if isinstance(p, click.Option))
    assert len(RunCommand.headings["Every day"]) == 10
    sections = dict(option_sections(run_command, click.Context(run_command)))
    assert next(iter(sections)) == "Every day"
    assert "--help" in " ".join(flags for flags, _ in [*sections.values()][-1])


def test_a_manual_page_has_the_headings_of_help() -> None:
    pages = dict(pages_of(main))
    for heading in RunCommand.headings:
        assert f".SH {heading.upper()}" in pages["powercut-run"]
    for heading in COMMANDS:
        assert f".SS {heading}" in pages["powercut"]


def test_powercut_alone_says_three_things_that_can_be_done_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It printed the help of thirty commands, and ended with 2."""
    monkeypatch.chdir(tmp_path)
    done = powercut()
    assert done.exit_code == 0
    assert re.findall(r"^  powercut (\w+)", done.output, re.MULTILINE) == ["smoke", "run", "new"]
    latest = tmp_path / "reports" / "latest"
    latest.mkdir(parents=True)
    (latest / "run.json").write_text("{}")
    assert any(line.startswith("  powercut report") for line in first_steps(latest))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_options_that_it_prints(preset: str) -> None:
    """What is shown may be pasted: the same cases and states come of it."""
    words = ("-c", "ext4/ordered", "-k", "append", "-n")
    short, long = powercut("run", *words, f"--{preset}"), powercut("run", *words, *words_of(preset).split())
    assert short.exit_code == long.exit_code == 0, short.output
    assert short.stdout == long.stdout
    assert f"--{preset}: {words_of(preset)}" in short.stderr


def test_a_preset_asks_a_stack_for_no_faulty_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--overnight` of a stack alone ran nothing."""
    monkeypatch.setattr(run, "_plan", lambda given: refuse(given["disk"]))

    def refuse(disk: Sequence[str]) -> NoReturn:
        raise UsageError(f"it would be faulty: {', '.join(disk) or 'never'}")

    for modes in ("ext4/ordered@raid1", "any,ext4/ordered@raid1"):
        assert "it would be faulty: never" in refused("run", "-c", modes, "--overnight")
    both = refused("run", "-c", "ext4/ordered,ext4/ordered@raid1", "--overnight")
    assert "it would be faulty: errors" in both


def test_what_is_typed_beside_a_preset_counts_instead() -> None:
    done = powercut("run", "-n", "--quick", "-w", "append-fsync")
    assert done.exit_code == 0
    assert "--quick: --budget 100,10s" in done.stderr
    assert "replace-rename" not in done.stdout


@pytest.mark.parametrize("other", ["--overnight", "--thorough"])
def test_two_presets_are_refused(other: str) -> None:
    """The one that was typed last counted, without a word of the other."""
    assert f"--quick and {other} each say how to run" in refused("run", "-n", other, "--quick")


@pytest.mark.parametrize("option", ["--resume", "--failed-from"])
def test_a_preset_changes_no_run_that_is_gone_on_with(option: str, tmp_path: Path) -> None:
    done = powercut("run", "--thorough", option, tmp_path)
    assert done.exit_code == 2
    assert "--thorough" in done.output


def choices(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from choices(inner, (*path, name))
    for p in command.params:
        if isinstance(p.type, (click.Choice, OneOf)):
            yield " ".join([*path, p.opts[0]]), p


CHOICES = dict(choices(main))


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_taken_in_both_cases_and_shown_as_it_is_written(name: str) -> None:
    """`--completions prompt`, as the documents and --help have it, was refused: only PROMPT was taken."""
    parameter = CHOICES[name]
    context = click.Context(main)
    kind = parameter.type
    known = kind._names() if isinstance(kind, OneOf) else [*getattr(kind, "choices", ())]
    assert known
    for choice in map(str, known):
        assert choice == choice.lower()
        for typed in (choice, choice.upper()):
            assert kind.convert(typed, parameter, context) == choice


def test_names_in_lists_are_taken_in_both_cases() -> None:
    for name in (*LEGAL, *FAULT_MODELS):
        assert asked_states([name.upper()]) == (name,)
    for name in ORACLES:
        assert asked_oracles([name.upper()]) == [name]
    for name in DISK_FAULTS:
        assert _asked_disk([name.upper()]) == (name,)
