"""`powercut man`: a manual page for each command, made of what --help says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from harness import __version__
from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import Folder
from harness.cli.sections import COMMANDS_BELOW, command_sections, option_sections
from harness.errors import ExitCode, UsageError
from harness.host.files import not_made, write_atomically
from harness.report.words import plural, shown_path

_SECTION = 1


@click.command("man")
@click.argument("folder", type=Folder())
@guarded
def man_command(folder: Path) -> ExitCode:
    """Write the manual pages to FOLDER/man1.

    \b
    powercut man ~/.local/share/man && man powercut-run

    There is one for each command; they say what --help says.
    """
    pages = dict(pages_of(click.get_current_context().find_root().command))
    target = folder / f"man{_SECTION}"
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(not_made(target, e), "name a folder to write to") from e
    for name, text in pages.items():
        write_atomically(target / f"{name}.{_SECTION}", text)
    console.say(f"{plural(len(pages), 'page')} in {shown_path(target)}")
    return ExitCode.CONSISTENT


def pages_of(command: click.Command, parents: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The name and the text of the page of a command and of each below it: `powercut-log-ls`."""
    name = "powercut" if not parents else str(command.name)
    words = (*parents, name)
    yield "-".join(words), "\n".join(_page(command, words)) + "\n"
    if isinstance(command, click.Group):
        for below in command.commands.values():
            if not below.hidden:
                yield from pages_of(below, words)


def _page(command: click.Command, words: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(words))
    name = "-".join(words)
    yield f'.TH "{name.upper()}" "{_SECTION}" "" "powercut {__version__}" "Powercut"'
    yield ".SH NAME"
    yield f"{_escaped(name)} \\- {_escaped(_summary(command))}"
    yield ".SH SYNOPSIS"
    yield f".B {_escaped(' '.join(words))}"
    yield _line(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _prose(inspect.cleandoc(command.help or ""))
    for heading, options in option_sections(command, context):
        yield f".SH {_escaped(heading.upper())}"
        for flags, about in options:
            yield from (".TP", f"\\fB{_escaped(flags)}\\fR", _line(about))
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for heading, commands in command_sections(command, context):
            if heading != COMMANDS_BELOW:
                yield f".SS {_escaped(heading)}"
            for below in commands:
                shown = f"\\fB{_escaped('-'.join((*words, str(below.name))))}\\fR({_SECTION})"
                yield from (".TP", shown, _line(_summary(below)))
    elif len(words) > 1:
        yield ".SH SEE ALSO"
        yield f"\\fB{_escaped('-'.join(words[:-1]))}\\fR({_SECTION})"


def _summary(command: click.Command) -> str:
    """The first paragraph of its help, in one line."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split()).rstrip(".")


def _prose(text: str) -> Iterator[str]:
    """Paragraphs; one that begins with \\b keeps its lines, as in click."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield from (".PP", ".nf", *map(_line, paragraph.splitlines()[1:]), ".fi")
        elif paragraph.strip():
            yield from (".PP", _line(" ".join(paragraph.split())))


def _line(text: str) -> str:
    """A line of text: one that begins like a request is none."""
    escaped = _escaped(re.sub(r"\s+", " ", text) if not text.startswith("  ") else text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
