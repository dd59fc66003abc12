"""`powercut campaign`: generated workloads without end, and their findings grouped by cause."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.campaigns.generators import GENERATORS
from harness.campaigns.journal import CampaignPlan, KnownBatches
from harness.campaigns.page import HOUR_S
from harness.campaigns.work import (
    CampaignSeries,
    create,
    folder_hash,
    load_plan,
    need_same_build,
)
from harness.cli.guard import guarded
from harness.cli.options import (
    asked_budget,
    asked_expectations,
    asked_kernel,
    asked_known,
    asked_states,
    beside_resume,
    bounded,
    expect_option,
    jobs_option,
    kernel_options,
    known_options,
    listed,
    modes_option,
    named_here,
    out_option,
    required,
    resume_option,
    states_options,
    with_options,
)
from harness.cli.series import run_series
from harness.errors import ExitCode, UsageError
from harness.host.files import file_hash
from harness.kernels.find import build_of
from harness.model import bounds
from harness.plan import Plan
from harness.series.journal import End
from harness.trust import need_same_modules, resumable, with_modules


@click.command("campaign")
@modes_option("Modes, as for powercut run. Default: ext4/ordered.", name="configurations")
@click.option("-g", "--generators", multiple=True, callback=listed, metavar="NAME,...",
              help=f"Where workloads come from. {'; '.join(map(': '.join, GENERATORS.items()))}. "
              "Each gets an equal share of the time. Default: all.")  # fmt: skip
@click.option("--seed", type=bounded(bounds.Seed), default=1, show_default=True, help="The first random one.")
@click.option("--length", type=bounded(bounds.Length), default=20, show_default=True,
              help="Operations of a random workload.")  # fmt: skip
@click.option("--batch", type=bounded(bounds.BatchSize), default=50, show_default=True, metavar="N",
              help="Workloads in a batch; the page is written after each.")  # fmt: skip
@click.option("--hours", type=bounded(bounds.Hours), metavar="N",
              help="Stop in good order after so many hours of work. Beside --resume: so many more. "
              "Default: no end.")  # fmt: skip
@with_options(kernel_options)
@with_options(states_options())
@click.option("--coverage", is_flag=True,
              help="Judge on a kernel that notes which lines of recovery run (powercut kernel build "
              "--coverage); a workload that reaches a new one counts as new.")  # fmt: skip
@expect_option()
@with_options(known_options)
@click.option("--keep", is_flag=True, help="Keep the run directories of batches without findings, too.")
@jobs_option
@out_option()
@click.option("--name", default="campaign", show_default=True, help="Part of the directory's name.")
@resume_option("Go on with a campaign that was stopped or killed.")
@guarded
def campaign_command(**given: Any) -> ExitCode:
    """Look for findings with generated workloads, without end, and group them by cause.

    \b
    powercut campaign --hours 8
    powercut campaign -c xfs/default,btrfs/default -g random,grown --states exhaustive --budget 200
    powercut campaign --resume reports/runs/DATE-campaign --hours 4

    Workloads come in batches, each a run of its own. The findings of a batch are shrunk and grouped as by
    powercut triage. A workload that showed something new (a new order of writes, a new way to break a
    promise, with --coverage recovery code that had not run) is kept, made longer, and recorded under further
    schedules. report.html, summary.txt and campaign.json are written after each batch.

    It may be killed at any moment: --resume goes on where it was. Run directories without findings are
    deleted (--keep).

    Exit codes: 0 nothing was found and nothing is left to generate, 1 a promise was broken (with --new-only:
    in a new way), 3 some cases were not decided, 4 nothing was run, 5 nothing was found when the time was up
    (--hours), 130 interrupted.
    """
    if given["resume"]:
        beside_resume("campaign", ("resume", "hours", "kernel", "modules", "replaced"))
        path = given["resume"].resolve()
        plan = load_plan(path)
        run = msgspec.structs.replace(
            plan.run, workloads=[], cluster="", recordings=None
        )  # it begins none with
        named = named_here(given)
        need_same_modules(plan.modules, named)
        run = resumable(with_modules(run, plan.modules, named), named)
        need_same_build(plan, run)
        plan = msgspec.structs.replace(plan, run=run)
        return _carry_out(plan, path, _until_s(plan, path, given["hours"]))
    plan = _plan(given)
    path = create(plan, given["out"], given["name"])
    return _carry_out(plan, path, plan.hours * HOUR_S if plan.hours else None)


def _until_s(plan: CampaignPlan, path: Path, hours: float | None) -> float | None:
    """When to stop, in seconds of work in all. Raises UsageError if that time is over."""
    worked = CampaignSeries(plan, path).ledger.at
    until = worked + hours * HOUR_S if hours else plan.hours * HOUR_S if plan.hours else None
    if until is not None and worked >= until:
        raise UsageError(f"its {plan.hours:g} hours are over", "--hours N adds as many more")
    return until


def _plan(given: dict[str, Any]) -> CampaignPlan:
    generators = list(dict.fromkeys(given["generators"] or GENERATORS))
    if unknown := [g for g in generators if g not in GENERATORS]:
        raise UsageError(f"no generator is called {unknown[0]!r}", f"one of: {', '.join(GENERATORS)}")
    run = Plan(
        configurations=given["configurations"] or ["ext4/ordered"],
        workloads=[],
        **asked_kernel(given),
        jobs=given["jobs"],
        fault_models=asked_states(given["fault_models"]),
        budget=asked_budget(given["budget"]),
        require_all=required(None, given["configurations"]),
        coverage=given["coverage"],
        argv=sys.argv[1:],
    )
    return CampaignPlan(
        run=run,
        modules={path: file_hash(Path(path)) for path in run.replaced if Path(path).is_file()},
        image=build_of(run.kernel),
        modules_folder=folder_hash(run),
        generators=tuple(generators),
        batch=given["batch"],
        seed=given["seed"],
        length=given["length"],
        keep=given["keep"],
        hours=given["hours"],
        expectations=asked_expectations(given["expect"]),
        known=asked_known(given),
    )


def _carry_out(plan: CampaignPlan, path: Path, until_s: float | None) -> ExitCode:
    series = CampaignSeries(plan, path)
    what = f"{', '.join(plan.generators)} on {', '.join(plan.run.configurations)}"
    end = run_series(series, what, "", until_s)  # its page says how to go on
    return exit_code(series.ledger, end, require_all=plan.run.require_all)


def exit_code(ledger: KnownBatches, end: End, *, require_all: bool) -> ExitCode:
    """As for a run; what waits to be shrunk is a finding, too, and so is that of a batch which has not come
    to its end. `require_all`: of the plan of its runs.
    """
    if end is End.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if ledger.is_broken:
        return ExitCode.INCONSISTENT
    if any(d.undecided or d.failed for d in ledger.done.values()):
        return ExitCode.UNDECIDED
    lacking = require_all and (ledger.never_judged or any(d.not_run for d in ledger.done.values()))
    if lacking or not ledger.any_judged:
        return ExitCode.NOTHING_RUN
    return ExitCode.TIME_UP if end is End.TIME_UP else ExitCode.CONSISTENT
