"""`powercut litmus`: what may an application rely on?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import (
    OneOf,
    asked_budget,
    asked_expectations,
    asked_states,
    beside_resume,
    bounded,
    expect_option,
    jobs_option,
    listed,
    modes_option,
    out_option,
    resume_option,
    states_options,
    with_options,
)
from harness.cli.series import absolute_kernels, run_series
from harness.errors import ExitCode, UsageError
from harness.filesystems.profiles import select_profiles
from harness.guests.machine import buildable
from harness.guests.machine import names as machine_names
from harness.litmus.programs import programs
from harness.litmus.results import LitmusPlan
from harness.litmus.work import LitmusSeries, create, load_plan
from harness.model import bounds
from harness.report.lines import resume_litmus
from harness.report.words import plural, shown_path
from harness.series.journal import End
from harness.trust import need_named_files

DEFAULT_MODES = (
    "ext2/default,ext3/journal,ext3/ordered,ext3/writeback,ext4/journal,ext4/ordered,ext4/nodelalloc,ext4/writeback,"
    "ext4/fast_commit,ext4/no-journal,xfs/default,xfs/wsync,btrfs/default,btrfs/flushoncommit,btrfs/notreelog,"
    "f2fs/posix,f2fs/strict,nilfs2/default,nilfs2/strict"
)

DEFAULT_BUDGET = "40"
"""Visits to the states of a recording."""


def _machines() -> list[str]:
    return list(dict.fromkeys(["auto", *machine_names()]))


@click.command("litmus")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@modes_option(
    "As for powercut run. Default: the modes of ext2, ext3, ext4, XFS, btrfs, F2FS and NILFS2 "
    "that differ in what they promise."
)
@click.option("--kernels", multiple=True, callback=listed, metavar="K,...",
              help="Pins or versions; each mode is a column on each. Default: debian-6.12.")  # fmt: skip
@click.option("--compare", is_flag=True,
              help="Begin with what differs between two modes (-c) or two kernels (--kernels).")  # fmt: skip
@click.option("--schedules", type=bounded(bounds.Schedules), default=1, show_default=True, metavar="N",
              help="Record each program N times more, each time under another schedule.")  # fmt: skip
@with_options(states_options("exhaustive", "40"))
@click.option("--machine", type=OneOf(_machines), default=lambda: buildable()[0],
              help="The machine that records and judges. Default: the fastest.")  # fmt: skip
@click.option("--list", "want_list", is_flag=True, help="List the programs and their questions; run nothing.")
@expect_option()
@jobs_option
@out_option()
@resume_option("Continue one with the modes that are left.")
@guarded
def litmus_command(names: tuple[str, ...], want_list: bool, **given: Any) -> ExitCode:
    """What may an application rely on? Put the questions of small programs to every legal crash state.

    \b
    powercut litmus                                     all questions, in the modes that differ
    powercut litmus -c ext4/ordered,xfs/default replace-no-fsync
    powercut litmus -c xfs/default --kernels debian-6.12,debian-7.3 --compare --machine auto
    powercut litmus --list
    powercut litmus --resume reports/runs/DATE-litmus

    A program is a file of workloads/litmus: at most six operations behind a setup, and a question. A cell of
    the table says whether the answer is yes in every legal crash state of the recordings, and whether the
    mode's contract promises it. Leaves report.html, litmus.json, table.md and the run directory of each
    mode.

    Exit codes: 0 no promise was broken, 1 one was, or another oracle found something, known or not, 2 usage,
    3 undecided, 130 interrupted (continue with --resume).
    """
    if given["resume"]:
        if names:
            raise UsageError(f"a table is resumed as begun, not with {names[0]}", "leave the names out")
        beside_resume("litmus", ("resume", "kernels"))
        plan = load_plan(given["resume"])
        need_named_files("--kernels", plan.kernels, given["kernels"])
        return _carry_out(plan, given["resume"].resolve())
    plan = _plan(names, given)
    if want_list:
        return _list(names)
    path = create(plan, given["out"])
    return _carry_out(load_plan(path), path)


def _plan(names: tuple[str, ...], given: dict[str, Any]) -> LitmusPlan:
    modes = given["modes"] or DEFAULT_MODES.split(",")
    if ruled := [p.name for p in select_profiles(modes) if p.rules]:
        raise UsageError(
            f"{', '.join(ruled)}: rules judge programs by their own checks, and these have questions",
            f"ask them of a program: powercut run -c {','.join(ruled)} -w WORKLOAD",
        )
    return LitmusPlan(
        modes=modes,
        names=list(names),
        kernels=absolute_kernels(given["kernels"]) or ["debian-6.12"],
        machine=given["machine"],
        fault_models=asked_states(given["fault_models"] or ["exhaustive"]),
        budget=asked_budget(given["budget"] or DEFAULT_BUDGET),
        schedules=given["schedules"],
        jobs=given["jobs"],
        compare=given["compare"],
        expectations=asked_expectations(given["expect"]),
        argv=sys.argv[1:],
    )


def _carry_out(plan: LitmusPlan, path: Path) -> ExitCode:
    series = LitmusSeries(plan, path)
    what = f"{plural(len(programs(plan.names)), 'program')} in {plural(len(plan.columns), 'column')}"
    end = run_series(series, what, resume_litmus(plan.kernels, shown_path(path)))
    litmus = series.litmus
    if end is End.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if litmus.broken or litmus.others or litmus.known:
        return ExitCode.INCONSISTENT
    return ExitCode.CONSISTENT if litmus.decided else ExitCode.UNDECIDED


def _list(names: tuple[str, ...]) -> ExitCode:
    group = ""
    for program in programs(names):
        if program.question.group != group:
            group = program.question.group
            console.say(f"{group}:")
        console.say(f"    {program.name}: {program.workload.summary}. {program.question.asks}")
    return ExitCode.CONSISTENT
