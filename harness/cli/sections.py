"""The headings under which --help and the manual pages show commands and options: what is needed every day
comes first.

click has none of its own. rich-click and cloup do; either would be one more package in every image, in
versions far apart (Debian 12 has cloup 2.0, the newest is 4.0), for what is a page of code here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

import click

COMMANDS: Mapping[str, Sequence[str]] = {
    "Test": ("run", "patch", "smoke", "campaign", "verdict", "matrix", "litmus"),
    "Understand": ("show", "report", "repro", "compare", "shrink", "triage", "log", "history", "known"),
    "Your own": ("new", "try", "import"),
    "Hand on": ("pack", "bugreport", "findings"),
    "Kernels and machines": ("list", "kernel", "doctor", "docs", "fetch", "gc", "rootfs", "man"),
    "How good is it": ("faults", "regressions", "coverage", "bench"),
    "What it costs": ("measure", "trace"),
}
OPTIONS = "Options"
COMMANDS_BELOW = "Commands"


class Sectioned(click.Command):
    """A command whose options stand under headings. `headings`: by the first form of each option; what is
    under none stands under the last.
    """

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, rows in option_sections(self, ctx):
            with formatter.section(heading):
                formatter.write_dl(rows)


def option_sections(
    command: click.Command, ctx: click.Context
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The headings of a command's options, each with what --help says of them; none without options."""
    headings = command.headings if isinstance(command, Sectioned) else {}
    records = {p.opts[0]: r for p in command.get_params(ctx) if (r := p.get_help_record(ctx))}
    placed = {name for names in headings.values() for name in names}
    rest = [name for name in records if name not in placed]
    last = [*headings][-1] if headings else OPTIONS
    for heading, names in (headings or {OPTIONS: ()}).items():
        rows = [records[name] for name in (*names, *(rest if heading == last else ())) if name in records]
        if rows:
            yield heading, rows


def headed(names: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """The headings of commands, and their names; those under none come last."""
    placed = [name for under in COMMANDS.values() for name in under]
    for heading, under in {**COMMANDS, COMMANDS_BELOW: [n for n in names if n not in placed]}.items():
        if found := [name for name in under if name in names]:
            yield heading, found


def command_sections(group: click.Group, ctx: click.Context) -> Iterator[tuple[str, list[click.Command]]]:
    """The headings of the commands of a group, and the commands."""
    there = {name: group.commands[name] for name in group.list_commands(ctx)}
    for heading, names in headed([name for name, command in there.items() if not command.hidden]):
        yield heading, [there[name] for name in names]
