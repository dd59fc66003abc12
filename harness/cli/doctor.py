"""`powercut doctor`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness import doctor
from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import out_option
from harness.errors import ExitCode


@click.command("doctor")
@out_option()
@guarded
def doctor_command(out: Path) -> ExitCode:
    """Check everything a run needs, and print a fix for each missing item.

    \b
    powercut doctor
    powercut doctor --out /mnt/large/reports             is there enough room?

    Exits 0 if nothing is missing, 3 otherwise.
    """
    missing = 0
    for found in doctor.examine(out):
        sign, style = {True: ("ok", "green"), False: ("missing", "red"), None: ("note", "yellow")}[found.ok]
        console.print(Text(sign.ljust(7), style), Text(f"{found.what}: {found.detail}"))
        if found.ok is False:
            missing += 1
            console.print(f"          fix: {found.fix}", highlight=False)
    return ExitCode.UNDECIDED if missing else ExitCode.CONSISTENT
