"""A program of the user's own behind `--`: of `powercut run` and `powercut try`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.errors import UsageError
from harness.workloads.applications import of_program

_BEHIND = "powercut.behind"


class OwnProgramCommand(click.Command):
    """A command that takes a program behind `--`: click does not say whether that was there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        behind = len(args) - args.index("--") - 1 if "--" in args else None
        if behind is not None:
            ctx.meta[_BEHIND] = behind
        return super().parse_args(ctx, args)


def words_behind() -> int | None:
    """How many words of this command line stand behind `--`; None if that is not there.

    Raises UsageError for none: the script of a CI job, `-- $PROGRAM`, would have tested no program.
    """
    context = click.get_current_context()
    found: int | None = context.meta.get(_BEHIND)
    if found == 0:
        need_program([], context.info_name or "")
    return found


def need_program(words: Sequence[str], command: str) -> None:
    """Raises UsageError if no program is named."""
    if not words or not words[0]:
        raise UsageError(
            "no program stands behind --",
            f"name it, powercut {command} -c ext4/ordered -- ./my-test; without a program, leave -- out",
        )


def folder_of(words: Sequence[str], place: Path, command: str) -> Path:
    """The folder of `place` that is made of a program and its arguments. Raises UsageError."""
    need_program(words, command)
    program, *arguments = words
    return of_program(Path(program), arguments, place)
