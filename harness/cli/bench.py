"""`powercut bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from harness import bench
from harness.cli.console import errors
from harness.cli.guard import guarded
from harness.cli.options import NewFile, OneOf, accel_option
from harness.cli.series import show_page
from harness.guests.machine import names
from harness.host.files import write_atomically
from harness.report.measurements import page_of


@click.command("bench")
@click.option("--kernel", default="debian-6.12", show_default=True, metavar="K", help="As for powercut run.")
@click.option("--machine", "machines", multiple=True, type=OneOf(names), help="Default: all.")
@accel_option
@click.option("--uml-kernel", "own_kernel", type=click.Path(path_type=Path, exists=True), metavar="FILE")
@click.option("--json", "json_file", type=NewFile(), metavar="FILE", help="Write all figures as JSON.")
@click.option("--quick", is_flag=True, help="A few states, to check that it works; the figures mean little.")
@guarded
def bench_command(json_file: Path | None, quick: bool, machines: tuple[str, ...], **given: Any) -> None:
    """Measure the cost per crash state, against the best possible cost and as logs grow.

    \b
    powercut bench --quick
    powercut bench --json reports/bench.json
    """
    effort = bench.QUICK if quick else bench.FULL
    measured = bench.run_bench(
        effort,
        machines=machines or names(),
        say=lambda text: errors.print(text, highlight=False),
        **given,
    )
    measured = msgspec.structs.replace(measured, command=["powercut", *sys.argv[1:]])
    show_page(page_of([measured]))
    if json_file:
        write_atomically(json_file, msgspec.json.format(msgspec.json.encode([measured]), indent=1))
