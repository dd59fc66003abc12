"""`powercut history` and `powercut matrix`: the same cases on one kernel after another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.cli.console import console, errors
from harness.cli.guard import guarded
from harness.cli.options import (
    asked_expectations,
    beside_resume,
    expect_option,
    is_typed,
    jobs_option,
    listed,
    modes_option,
    named_here,
    open_run,
    out_option,
    own_workloads_option,
    required,
    resume_option,
    source_option,
    workloads_option,
)
from harness.cli.series import absolute_kernels, run_series
from harness.errors import ExitCode, UsageError
from harness.filesystems.profiles import ANY, select_profiles
from harness.findings.shrink import finding_to_shrink
from harness.plan import Plan
from harness.releases.page import strip_of
from harness.releases.results import Sweep, SweepPlan
from harness.releases.sweep import SweepSeries, create, every_kernel, load_plan
from harness.report import write_reports as write_run_reports
from harness.report.lines import resume_sweep, run_again
from harness.report.strip import write_strip
from harness.report.words import plural, shown_path
from harness.series.journal import End
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.store.layout import RUN
from harness.trust import need_named_files, plan_here, resumable, vouched_word, without_files
from harness.workloads.load import absolute_word, select_workloads

_kernels_option = click.option(
    "--kernels",
    multiple=True,
    callback=listed,
    metavar="K,...",
    help="Pins or versions, in the order in which they are shown: debian-6.12,debian-7.3. Default: all.",
)
_resume_option = resume_option("Continue one with the kernels, and the undecided cases, that are left.")


@click.command("history")
@click.argument("case", metavar="ID", required=False)
@source_option
@click.option(
    "--oracle", default="", help="Follow this oracle's finding. Default: that of the first finding."
)
@_kernels_option
@own_workloads_option
@jobs_option
@out_option()
@_resume_option
@guarded
def history_command(case: str | None, **given: Any) -> ExitCode:
    """Which kernels have a finding? Record its workload anew on each, and judge it.

    \b
    powercut history ext4-fast_commit/random1-7-20 --from RUN
    powercut history ext4-nobarrier/append-fsync@41 --kernels debian-6.1,debian-6.12,debian-7.3
    powercut history --resume reports/runs/DATE-history

    ID is a case or a crash point of the run. A kernel that cannot be had, or cannot run the case, is listed
    with the reason. Exits 0 if every kernel was decided, 3 if one was not, 130 if interrupted.
    """
    if given["resume"]:
        beside_resume("history", ("resume", "kernels", "workloads", "source"))
        return _carry_out(_begun(given, "history"), given["resume"].resolve())
    if not case:
        raise UsageError("history of what?", "name a case: powercut history ext4-ordered/append-fsync")
    with open_run(given["source"]) as store:
        plan = _history(store, case, given)
    return _carry_out(plan, create(plan, given["out"], "history"))


def _history(store: RunStore, case: str, given: dict[str, Any]) -> SweepPlan:
    finding = finding_to_shrink(store, case, given["oracle"])
    if finding is None:
        raise UsageError(f"{case} has no finding, so it has no history", "powercut matrix compares kernels")
    named = named_here(given)
    begun = plan_here(store, named)
    if finding.case.filesystem == ANY:
        raise UsageError(
            f"{finding.case} is of a mode that is only rules: no kernel recovers there",
            "name a finding of a kernel's mode",
        )
    if begun.image:
        asked = msgspec.structs.replace(without_files(begun), image=begun.image)
        again = run_again(asked, finding.case.configuration, finding.case.workload)
        raise UsageError(
            f"{finding.case} began with the disk {begun.image.path}, and a history makes each disk by mkfs",
            f"run it on each kernel: {again} --kernel K",
        )
    if modules := store.info.kernel.replaced:
        shown = ", ".join(Path(m).name for m in modules)
        errors.say(f"the run tested {shown}; a history asks each kernel with its own modules")
    return SweepPlan(
        title=f"{finding.case}: {finding.oracle}",
        oracle=finding.oracle,
        symptom=finding.symptom.what,
        of_run=str(store.path.resolve()),
        finding=finding.id,
        kernels=_kernels(given),
        plan=msgspec.structs.replace(  # which crash states are covered stays as it was
            without_files(begun),
            configurations=[finding.case.configuration],
            workloads=[vouched_word(begun, named, finding.case.workload)],
            shard="",
            match="",
            only=(),
            max_failures=None,
            coverage=False,
            require_all=False,
            jobs=given["jobs"],
            argv=sys.argv[1:],
        ),
        argv=sys.argv[1:],
    )


def _begun(given: dict[str, Any], command: str) -> SweepPlan:
    """The plan of a sweep that is resumed. Raises UsageError, with the options to add, for files that only
    its directory names.
    """
    plan = load_plan(given["resume"], command)
    need_named_files("--kernels", plan.kernels, given["kernels"])
    run = str(given["source"].resolve()) if "source" in given and is_typed("source") else ""
    return msgspec.structs.replace(
        plan,
        plan=resumable(without_files(plan.plan), named_here(given)),
        of_run=plan.of_run if plan.of_run == run else "",  # it is written to
    )


def _kernels(given: dict[str, Any]) -> list[str]:
    return every_kernel() if given["kernels"] in ([], ["all"]) else absolute_kernels(given["kernels"])


@click.command("matrix")
@modes_option("As for powercut run. Default: all.")
@workloads_option("As for powercut run. Default: quick.")
@_kernels_option
@click.option("--states", "--fault-model", "fault_models", multiple=True, callback=listed,
              metavar="NAME,...", help=f"Which crash states, as for powercut run: {', '.join(FAULT_MODELS)}. "
              "Default: prefix.")  # fmt: skip
@expect_option()
@jobs_option
@out_option()
@_resume_option
@guarded
def matrix_command(**given: Any) -> ExitCode:
    """The consistency matrix across releases: file systems, modes and workloads on one kernel after another.

    \b
    powercut matrix -c ext4/ordered,xfs/default -w append-fsync --kernels debian-6.1,debian-7.3
    powercut matrix --kernels all
    powercut matrix --resume reports/runs/DATE-matrix

    Leaves report.html, releases.json and the run directory of each kernel. --resume keeps the kernels that
    are done; where this installation is not the one that began the run of another, that run is begun anew.
    Exits 0 if every kernel was decided, 3 if one was not, or could not run a mode that was named in full
    (xfs/default), 130 if interrupted.
    """
    if given["resume"]:
        beside_resume("matrix", ("resume", "kernels", "workloads"))
        return _carry_out(_begun(given, "matrix"), given["resume"].resolve())
    models = given["fault_models"] or ["prefix"]
    if unknown := [m for m in models if m not in FAULT_MODELS]:
        raise UsageError(f"no fault model {unknown[0]!r}", f"one of: {', '.join(FAULT_MODELS)}")
    plan = Plan(
        configurations=given["modes"] or ["all"],
        workloads=[absolute_word(w) for w in given["workloads"]] or ["quick"],
        fault_models=tuple(models),
        jobs=given["jobs"],
        require_all=required(None, given["modes"] or ["all"]),
        argv=sys.argv[1:],
    )
    if ruled := [p.name for p in select_profiles(plan.configurations) if p.rules]:
        raise UsageError(
            f"{', '.join(ruled)}: a mode that is only rules has no kernel, so it is the same across releases",
            f"ask it of a program: powercut run -c {','.join(ruled)} -w WORKLOAD",
        )
    select_workloads(plan.workloads)
    sweep = SweepPlan(
        title="Consistency across releases",
        kernels=_kernels(given),
        plan=plan,
        expectations=asked_expectations(given["expect"]),
        argv=plan.argv,
    )
    return _carry_out(sweep, create(sweep, given["out"], "matrix"))


def _carry_out(plan: SweepPlan, path: Path) -> ExitCode:
    series = SweepSeries(plan, path)
    end = run_series(series, f"{plural(len(plan.kernels), 'kernel')}, one after another", _again(plan, path))
    _add_strip(series.sweep)
    if end is End.INTERRUPTED:
        return ExitCode.INTERRUPTED
    return ExitCode.CONSISTENT if series.sweep.decided else ExitCode.UNDECIDED


def _again(plan: SweepPlan, path: Path) -> str:
    command = "history" if plan.argv[:1] == ["history"] else "matrix"  # the plan may be anybody's
    return resume_sweep(command, plan.kernels, plan.plan.workloads, plan.of_run, shown_path(path))


def _add_strip(sweep: Sweep) -> None:
    """Show a history in the report of the run whose finding it followed, if that run is still there."""
    strip, run = strip_of(sweep), Path(sweep.plan.of_run)
    if not strip or not sweep.plan.of_run or not (run / RUN).is_file():
        return
    with RunStore.open(run) as store:
        if all(f.id != sweep.plan.finding for f in store.findings()):
            return
        write_strip(store.layout, sweep.plan.finding, strip)
        write_run_reports(store)
    console.say(f"the run's report shows it, too: {shown_path(run / 'report.html')}")
