"""`powercut regressions`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import (
    asked_budget,
    asked_states,
    beside_resume,
    jobs_option,
    modes_option,
    out_option,
    resume_option,
    schedules_option,
    states_options,
    with_options,
    workloads_option,
)
from harness.cli.series import CODES, run_series
from harness.errors import ExitCode
from harness.filesystems.profiles import select_profiles
from harness.model.schedules import with_schedules
from harness.regressions.catalogue import Bug, select_bugs
from harness.regressions.recall import RecallSeries, create, load_plan
from harness.regressions.results import DEFAULT_SETS, Recall, RegressionsPlan, kind_of
from harness.report.lines import resume_regressions
from harness.report.words import plural, shown_path


@click.command("regressions")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@modes_option("Only in these modes. Default: those of each bug.")
@workloads_option(
    f"General sets, workloads of these, or generated ones, by name. Default: {','.join(DEFAULT_SETS)}.",
    metavar="SET,...",
)
@click.option("--shard", default="", metavar="I/N", help="Only the I-th of N parts of the workloads.")
@schedules_option
@click.option("--list", "want_list", is_flag=True, help="List the bugs; run nothing.")
@with_options(states_options())
@jobs_option
@out_option()
@resume_option("Continue one with the kernels, and the undecided cases, that are left.")
@guarded
def regressions_command(names: tuple[str, ...], want_list: bool, **given: Any) -> ExitCode:
    """Which bugs that were mended upstream does a plain run find? On the kernel before, and on the one after.

    \b
    powercut regressions --list                           the bugs, and the kernels with and without each
    powercut regressions btrfs-zero-size-after-link       one of them
    powercut regressions -c btrfs/default -w quick        those that show there, with a smaller set
    powercut regressions --resume reports/runs/DATE-regressions

    A bug is a file of kernels/regressions: the commit that mended it, the last stock kernel that has it, the
    first that has not. Only general workloads run; what one finds that was written for the bug, or for a
    planted fault like it, is counted apart. Found is what the kernel before shows and the one after, in the
    same case, does not. A kernel that cannot be had makes a bug UNKNOWN, with the reason.

    Exit codes: 0 every bug that has a mode was found, and the kernels after showed nothing unexpected, 1 one
    was missed or a kernel after was not silent, 2 usage, 3 undecided or not run, 130 interrupted.
    """
    if given["resume"]:
        beside_resume("series", ("resume",))
        return _carry_out(given["resume"].resolve())
    modes = [p.name for p in select_profiles(given["modes"])] if given["modes"] else []
    if want_list:
        return _list(select_bugs(names, modes))
    plan = RegressionsPlan(
        names=list(names),
        modes=modes,
        workloads=tuple(with_schedules(given["workloads"] or list(DEFAULT_SETS), given["schedules"])),
        shard=given["shard"],
        fault_models=asked_states(given["fault_models"]),
        budget=asked_budget(given["budget"]),
        jobs=given["jobs"],
        argv=sys.argv[1:],
    )
    return _carry_out(create(plan, given["out"]))


def _carry_out(path: Path) -> ExitCode:
    series = RecallSeries(load_plan(path), path)
    bugs = plural(len(series.recall.rows), "upstream bug")
    run_series(series, bugs, resume_regressions(shown_path(path)))
    return exit_code(series.recall)


def exit_code(recall: Recall) -> ExitCode:
    """The exit code for a series."""
    return ExitCode.INTERRUPTED if recall.interrupted else CODES[kind_of(recall)]


def _list(chosen: list[Bug]) -> ExitCode:
    for bug in chosen:
        console.say(f"{bug.name}: {bug.summary}")
        where = f"needs {bug.needs}" if bug.needs else f"in {', '.join(bug.modes)}"
        console.say(f"    {bug.before}, not {bug.after}; {where}; {bug.commit or bug.subject}")
    return ExitCode.CONSISTENT
