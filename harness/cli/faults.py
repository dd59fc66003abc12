"""`powercut faults`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import (
    OneOf,
    RunDirectory,
    asked_budget,
    asked_states,
    beside_resume,
    jobs_option,
    modes_option,
    named_here,
    out_option,
    resume_option,
    schedules_option,
    states_options,
    with_options,
    workloads_option,
)
from harness.cli.series import CODES, run_series
from harness.errors import ExitCode
from harness.faults.campaign import (
    FaultSeries,
    baseline_runs,
    chosen_faults,
    create,
    load_plan,
    need_places,
    other_campaign,
    test_set_of,
)
from harness.faults.catalogue import PlantedFault, faults, select_faults
from harness.faults.results import DEFAULT_STATES, Campaign, FaultsPlan, kind_of
from harness.filesystems.profiles import select_profiles
from harness.guests.machine import buildable, flavour_of
from harness.kernels.variants import SourceTree, kept_tree
from harness.report.lines import resume_faults
from harness.report.words import shown_path
from harness.trust import need_named_workloads
from harness.workloads.load import absolute_word


@click.command("faults")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@modes_option("Only in these modes: ext4/ordered, ext4 (all its modes). Default: those of each fault.")
@workloads_option("Workloads, as for powercut run. Default: those that each fault's file names, or all.")
@schedules_option
@click.option(
    "--other-campaign",
    type=RunDirectory(exists=True),
    metavar="RUN",
    help="Another campaign of planted faults, such as one with each fault's own workloads: what became of "
    "each fault there is a column of the table.",
)
@click.option(
    "-x",
    "--first",
    is_flag=True,
    help="End a fault's run with the first case that finds it, and ask the unmodified kernel only in cases "
    "in which a fault's kernel shows something: many workloads in little time, but it is not known how many "
    "of them find it.",
)
@click.option("--list", "want_list", is_flag=True, help="List the faults; run nothing.")
@click.option("-n", "--no-action", is_flag=True, help="Print what would be run; run nothing.")
@with_options(states_options("exhaustive", "300"))
@click.option(
    "--source",
    default="linux-source-6.12",
    show_default=True,
    metavar="PACKAGE",
    help="The source package that the faults are planted in.",
)
@click.option(
    "--machine",
    type=OneOf(buildable),
    default=lambda: buildable()[0],
    help="The machine that records and judges. Default: the fastest.",
)
@jobs_option
@out_option()
@resume_option(
    "Continue a stopped campaign: try the faults that are left, or were left undecided.", metavar="RUN"
)
@guarded
def faults_command(names: tuple[str, ...], want_list: bool, no_action: bool, **given: Any) -> ExitCode:
    """Plant faults in kernels, and see which of them Powercut finds: how much is a green run worth?

    \b
    powercut faults --list                           the faults, and in which modes they matter
    powercut faults commit-no-fua                    one of them
    powercut faults -c ext4 -w quick                 all of ext4's, under the workloads of `quick`
    powercut faults                                  all of them
    powercut faults -w all,more -x --other-campaign reports/runs/DATE-faults    and what do general sets find?
    powercut faults -x --schedules 20 stale-log-flushed        record each workload 20 times more
    powercut faults --resume reports/runs/DATE-faults

    A fault is a file of kernels/faults: a few changed words in one function of Linux. The first use downloads
    the kernel's source and builds it, which takes minutes; each fault then takes about ten seconds to build.
    The unmodified kernel runs first, or with -x as needed: what it shows too does not count. Unless --states
    says otherwise, all legal crash states are covered, with a budget of 300 states a case.
    reports/latest keeps pointing to the last `powercut run`.

    Exit codes: 0 every fault was found, or its file says why it is not, 1 another one was missed, or one was
    found that its file calls equivalent, or missed under the defaults, 2 usage, 3 undecided or a harness
    error, 130 interrupted (continue with --resume).
    """
    if given["resume"]:
        begun = load_plan(given["resume"])
        same = ("machine",) if given["machine"] == begun.machine else ()
        beside_resume("campaign", ("resume", "workloads", *same))
        need_named_workloads(begun.workloads, named_here(given))
        return _carry_out(begun, given["resume"].resolve())
    plan = _plan(names, given)
    if want_list:
        return _list(
            select_faults(plan.names, [p.name for p in select_profiles(plan.modes)], faults().values())
        )
    if no_action:
        return _show(plan)
    path = create(plan, given["out"])
    return _carry_out(load_plan(path), path)


DEFAULT_BUDGET = "300"


def _plan(names: tuple[str, ...], given: dict[str, Any]) -> FaultsPlan:
    states = given["fault_models"] or DEFAULT_STATES
    budget = given["budget"] or ("" if given["fault_models"] else DEFAULT_BUDGET)
    return FaultsPlan(
        names=list(names),
        modes=given["modes"],
        workloads=[absolute_word(w) for w in given["workloads"]],
        schedules=given["schedules"],
        source=given["source"],
        machine=given["machine"],
        fault_models=asked_states(states),
        budget=asked_budget(budget),
        jobs=given["jobs"],
        first=given["first"],
        other=other_campaign(given["other_campaign"]) if given["other_campaign"] else None,
        argv=sys.argv[1:],
    )


def _carry_out(plan: FaultsPlan, path: Path) -> ExitCode:
    flavour = flavour_of(plan.machine)
    chosen = chosen_faults(plan)

    def fits(source: SourceTree) -> None:
        need_places(chosen, source)

    with kept_tree(plan.source, plan.machine, flavour, plan.jobs, console.say, fits) as kernels:
        series = FaultSeries(plan, path, kernels)
        run_series(series, "trials of planted faults", resume_faults(plan.workloads, shown_path(path)))
    return exit_code(series.campaign)


def exit_code(campaign: Campaign) -> ExitCode:
    """What the page says, but for an interrupt."""
    return ExitCode.INTERRUPTED if campaign.interrupted else CODES[kind_of(campaign)]


def _list(chosen: list[PlantedFault]) -> ExitCode:
    for fault in chosen:
        known = " (equivalent)" if fault.equivalent else " (missed)" if fault.gap else ""
        console.say(f"{fault.name}{known}: {fault.summary}")
        only = f"; only with --source {fault.source}" if fault.source else ""
        console.say(f"    {fault.places}; in {', '.join(fault.modes)}{only}")
    return ExitCode.CONSISTENT


def _show(plan: FaultsPlan) -> ExitCode:
    """Print what a campaign would do (--no-action)."""
    chosen = chosen_faults(plan)
    runs = [] if plan.first else [("the unmodified kernel", asked) for asked in baseline_runs(chosen)]
    for name, asked in [*runs, *((f.name, test_set_of(f)) for f in chosen)]:
        console.say(f"{name}: {', '.join(asked.modes)}: {', '.join(asked.workloads)}{asked.words}")
    if plan.first:
        console.say("the unmodified kernel: each case in which one of these shows something")
    return ExitCode.CONSISTENT
