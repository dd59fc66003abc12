"""`powercut doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from harness import doctor
from harness.cli.console import console
from harness.cli.options import out_option
from harness.errors import ExitCode
from harness.guard import guarded


@click.command("doctor")
@out_option()
@guarded
def doctor_command(out: Path) -> ExitCode:
    """Check everything that a run needs, and print the fix for each thing that is missing."""
    missing = 0
    for found in doctor.examine(out):
        sign = {True: "[green]ok     [/]", False: "[red]missing[/]", None: "[yellow]note   [/]"}[found.ok]
        console.print(f"{sign} {found.what}: {found.detail}", highlight=False)
        if found.ok is False:
            missing += 1
            console.print(f"          fix: {found.fix}", highlight=False, markup=False)
    return ExitCode.UNDECIDED if missing else ExitCode.CONSISTENT
