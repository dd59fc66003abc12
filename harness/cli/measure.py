"""`powercut measure`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import (
    RunDirectory,
    accel_option,
    beside_resume,
    bounded,
    listed,
    named_here,
    out_option,
    resume_option,
)
from harness.cli.series import show_page
from harness.errors import ExitCode, UsageError
from harness.host.progress import progress_for
from harness.measure.registry import COMPARISONS
from harness.measure.run import (
    MeasurePlan,
    Result,
    comparison,
    create,
    load_plan,
    measure,
    put_beside,
    said_size,
)
from harness.model import Verdict, bounds
from harness.report.lines import resume_measurement
from harness.report.measurements import write_measurement_reports
from harness.report.words import shown_path
from harness.trust import need_known, need_named_files, resumable_kernel


def _listed() -> str:
    width = max(map(len, COMPARISONS))
    return "\n".join(f"{name.ljust(width)}  {c.summary}" for name, c in COMPARISONS.items())


_HELP = f"""Repeat a published comparison of journaling modes and file systems.

\b
{_listed()}

\b
powercut measure double-write                   10 MiB written twice, or once
powercut measure power-cut --repeat 50          50 power cuts per mode
powercut measure bonnie --only ext4,XFS         two of its file systems
powercut measure many-entries --scale 80        all 500,000 entries: for real hardware
powercut measure double-write --kernel debian-6.17 --beside RUN    another kernel than RUN's, in one report
powercut measure --resume reports/runs/DATE-measure-bonnie

The default sizes let each measurement finish in minutes under emulation. Configurations alternate, round by
round, and every ratio is computed within a round. The first use builds the guest with tools, which takes
minutes. reports/latest keeps pointing to the last `powercut run`.

Exit codes: 0 measured, 1 a power cut broke a promise, 2 usage, 3 something could not be measured or decided
(the report says what and why), 130 interrupted (continue with --resume).
"""


@click.command("measure", help=_HELP)
@click.argument("name", required=False)
@click.option(
    "--list",
    "want_list",
    is_flag=True,
    help="List the measurements, their sources, configurations and sizes.",
)
@click.option(
    "--repeat", type=bounded(bounds.Rounds), metavar="N", help="Rounds. Default: the measurement's own."
)
@click.option(
    "--scale",
    type=bounded(bounds.Scale),
    default=1.0,
    show_default=True,
    metavar="F",
    help="Multiplies the default sizes, which suit emulation.",
)
@click.option(
    "--only",
    multiple=True,
    callback=listed,
    metavar="CONFIGURATION,...",
    help="Measure only these configurations.",
)
@click.option("--kernel", default="debian-6.12", show_default=True, metavar="K", help="As for powercut run.")
@click.option("--modules", type=click.Path(path_type=Path), metavar="DIR", help="Modules of your own kernel.")
@accel_option
@click.option(
    "--beside",
    multiple=True,
    type=RunDirectory(exists=True),
    metavar="RUN",
    help="Show this measurement of another kernel in the same report; with --resume, too. Repeatable.",
)
@click.option(
    "--seed", type=bounded(bounds.Seed), default=1, show_default=True, help="Seed of everything random."
)
@out_option()
@resume_option("Continue a stopped run: measure what is missing, and write its report again.", metavar="RUN")
@guarded
def measure_command(
    name: str | None, want_list: bool, resume: Path | None, out: Path, **given: Any
) -> ExitCode:
    if want_list:
        console.block(_described())
        return ExitCode.CONSISTENT
    if resume:
        beside_resume("measurement", ("resume", "kernel", "modules", "beside"))
        plan = _planned(resume)
        image = resumable_kernel(plan.kernel, plan.modules, [], named_here(given))
        need_known("auto", plan.accel)
        if given["beside"]:
            plan = put_beside(plan, resume, given["beside"])
        else:
            need_named_files("--beside", plan.beside, ())
        plan = msgspec.structs.replace(plan, kernel=image)
        return _measure(plan, resume.resolve())
    if not name:
        raise UsageError("no measurement was named", f"one of: {', '.join(COMPARISONS)}")
    kernel = Path(given["kernel"])
    plan = MeasurePlan(
        name=name,
        rounds=given["repeat"] or comparison(name).rounds,
        scale=given["scale"],
        kernel=str(kernel.resolve()) if kernel.is_file() else given["kernel"],
        modules=str(given["modules"].resolve()) if given["modules"] else None,
        accel=given["accel"],
        seed=given["seed"],
        only=given["only"],
        beside=[str(path.resolve()) for path in given["beside"]],
        argv=sys.argv[1:],
    )
    return _measure(plan, create(plan, out))


def _planned(run: Path) -> MeasurePlan:
    if not (run / "plan.json").is_file():
        raise UsageError(f"{run} holds no measurement", "create one with: powercut measure NAME")
    return load_plan(run)


def _measure(plan: MeasurePlan, path: Path) -> ExitCode:
    with progress_for(console) as progress:
        result = measure(plan, path, progress)
    show_page(write_measurement_reports(path))
    shown = shown_path(result.path)
    console.print(f"report: {shown}/report.html", highlight=False)
    if result.interrupted:
        again = resume_measurement(plan.kernel, plan.modules, shown, plan.beside)
        console.say(f"interrupted; continue with: {again}")
        return ExitCode.INTERRUPTED
    return exit_code(result)


def exit_code(result: Result) -> ExitCode:
    """The exit code of a finished measurement."""
    if result.verdict is Verdict.FAIL:
        return ExitCode.INCONSISTENT
    undecided = result.lacking or result.verdict is Verdict.UNKNOWN
    return ExitCode.UNDECIDED if undecided else ExitCode.CONSISTENT


def _described() -> str:
    parts = []
    for name, c in COMPARISONS.items():
        sizes = ", ".join(" ".join(said_size(what, size)) for what, size in c.sizes(1).items())
        configurations = ", ".join(configuration.name for configuration in c.configurations())
        parts.append(
            f"{name}: {c.summary}\n  repeats: {c.repeats}\n  configurations: {configurations}\n"
            f"  sizes: {sizes}, {c.rounds} rounds"
        )
    return "\n\n".join(parts)
