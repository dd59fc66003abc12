"""`powercut` alone: what to do next."""

from __future__ import annotations

from pathlib import Path

from harness.cli.console import console
from harness.cli.options import REPORTS
from harness.report.words import shown_path
from harness.store.layout import latest


def say_first_steps() -> None:
    for line in first_steps(latest(REPORTS)):
        console.say(line)


def first_steps(run: Path) -> list[str]:
    """What to do next, for whoever types `powercut` alone. `run`: the latest run of this folder."""
    steps = [
        ("powercut smoke", "does everything work here? powercut doctor tells what is missing"),
        (
            "powercut run -c ext4/ordered --quick",
            "a file system: a power cut at each write of a few workloads",
        ),
        ("powercut new my-program", "a program of yours: a folder to begin with"),
    ]
    if (run / "run.json").is_file():
        steps[0] = ("powercut report", f"what {shown_path(run)} came to; powercut show says why")
    width = max(len(command) for command, _ in steps)
    lines = [f"  {command:{width}}  {about}" for command, about in steps]
    return ["Powercut cuts the power and looks at what comes back. Next:", *lines, "More: powercut --help"]
