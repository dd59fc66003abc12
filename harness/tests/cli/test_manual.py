"""The manual pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli import main
from harness.cli.manual import pages_of
from harness.tests.cli.runner import printed, refused

REQUESTS = (".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".nf", ".fi")


def commands(command: click.Command, name: str = "powercut") -> Iterator[tuple[str, click.Command]]:
    """Every command that a user can type, with the name of its page."""
    yield name, command
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from commands(below, f"{name}-{below.name}")


PAGES = dict(pages_of(main))


def test_every_command_has_a_page() -> None:
    assert sorted(PAGES) == sorted(name for name, _ in commands(main))
    assert {"powercut", "powercut-run", "powercut-campaign", "powercut-log-ls"} <= PAGES.keys()


@pytest.mark.parametrize(("name", "command"), list(commands(main)))
def test_a_page_names_every_option_and_what_the_command_does(name: str, command: click.Command) -> None:
    page = PAGES[name].replace("\\-", "-")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert [o for o in parameter.opts if o not in page] == []
    assert command.help
    assert command.help.split("\n")[0].strip().rstrip(".").split("`")[0] in page


@pytest.mark.parametrize("name", list(PAGES))
def test_text_never_reads_as_a_request(name: str) -> None:
    """A line of an example that begins with a dot would vanish from the page, or change the rest of it."""
    for line in PAGES[name].splitlines():
        assert not line.startswith("'")
        assert not line.startswith(".") or line.split()[0] in REQUESTS
        assert (
            not line.replace("\\-", "")
            .replace("\\e", "")
            .replace("\\&", "")
            .replace("\\fB", "")
            .replace("\\fR", "")
            .count("\\")
        )


def test_pages_are_written_where_man_finds_them(tmp_path: Path) -> None:
    printed("man", tmp_path / "share")
    written = {p.name for p in (tmp_path / "share" / "man1").iterdir()}
    assert written == {f"{name}.1" for name in PAGES}


def test_no_folder_is_made_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`powercut man` in / left a folder /dist."""
    monkeypatch.chdir(tmp_path)
    assert "Missing argument 'FOLDER'" in refused("man")
    assert not list(tmp_path.iterdir())
