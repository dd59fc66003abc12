"""`powercut doctor`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from harness import doctor
from harness.cli.console import console
from harness.cli.guard import agreed, guarded
from harness.cli.options import out_option
from harness.errors import EnvironmentLacks, ExitCode, UsageError

OS_RELEASE = Path("/etc/os-release")


@click.command("doctor")
@click.option(
    "--fix", is_flag=True, help="Install the packages that are missing (Debian, Ubuntu); asks first."
)
@click.option(
    "--all", "optional", is_flag=True, help="With --fix: also what only some modes and workloads need."
)
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@out_option()
@guarded
def doctor_command(out: Path, fix: bool, optional: bool, yes: bool) -> ExitCode:
    """Check everything a run needs, and print a fix for each missing item.

    \b
    powercut doctor
    powercut doctor --fix --all                          install every file-system tool, too
    powercut doctor --out /mnt/large/reports             is there enough room?

    On Fedora and Arch, --fix prints the command that installs the packages; their names were not tried.

    Exits 0 if nothing is missing, 3 otherwise.
    """
    checks = []
    for found in doctor.examine(out):
        checks.append(found)
        sign, style = {True: ("ok", "green"), False: ("missing", "red"), None: ("note", "yellow")}[found.ok]
        console.print(Text(sign.ljust(7), style), Text(f"{found.what}: {found.detail}"))
        if found.ok is False:
            console.print(f"          fix: {found.fix}", highlight=False)
    if fix and (names := doctor.packages(checks, optional=optional)):
        _install(names, yes=yes)
        checks = list(doctor.examine(out))
        for found in checks:
            if found.ok is False:
                console.say(f"still missing: {found.what}: {found.fix}")
    return ExitCode.UNDECIDED if any(c.ok is False for c in checks) else ExitCode.CONSISTENT


def _install(names: Sequence[str], *, yes: bool) -> None:
    """Install Debian packages, or say how to elsewhere. Raises UsageError or EnvironmentLacks."""
    known = doctor.distribution(OS_RELEASE.read_text() if OS_RELEASE.is_file() else "")
    if known != "debian":
        raise _elsewhere(known, names)
    command = [
        *([] if os.geteuid() == 0 else ["sudo"]),
        "apt-get",
        "install",
        "-y",
        "--no-install-recommends",
    ]
    console.say(" ".join([*command, *names]))
    if not yes and not agreed("run this?"):
        raise UsageError("nothing was installed", "run the command above yourself")
    if subprocess.run([*command, *names], check=False).returncode:
        raise EnvironmentLacks(
            "apt-get could not install them",
            "if it cannot reach its mirror: check the network; else: run apt-get update, then try again",
        )


def _elsewhere(known: str, names: Sequence[str]) -> EnvironmentLacks:
    """The way to install packages where there is no apt-get of Debian's."""
    there = " ".join(doctor.elsewhere(known, names))
    how = {"fedora": "dnf install", "arch": "pacman -S"}.get(known, "install what corresponds to Debian's")
    return EnvironmentLacks("packages are installed on Debian and Ubuntu only", f"as root: {how} {there}")
