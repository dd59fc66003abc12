"""`powercut verdict`: which configurations are safe on which kernels?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.cli.guard import guarded
from harness.cli.options import (
    MACHINE,
    asked_expectations,
    asked_known,
    beside_resume,
    bounded,
    expect_option,
    is_typed,
    jobs_option,
    known_options,
    listed,
    modes_option,
    out_option,
    resume_option,
    with_options,
)
from harness.cli.series import absolute_kernels, run_series
from harness.errors import ExitCode, UsageError
from harness.expectations import Expectation
from harness.filesystems.existing import need_made
from harness.filesystems.profiles import select_profiles
from harness.host.resources import resource
from harness.model import bounds
from harness.plan import Plan
from harness.releases.results import SweepPlan
from harness.releases.sweep import VerdictSeries, create, load_plan
from harness.releases.verdict import DEPTHS, Depth, Kind, Standing, standings
from harness.report.lines import resume_sweep
from harness.report.words import plural, shown_path
from harness.series.journal import End
from harness.trust import need_named_files


@click.command("verdict")
@modes_option("The configurations, as for powercut run. Default: all.")
@click.option("--kernels", multiple=True, callback=listed, metavar="K,...",
              help="The kernels: pins or versions, 6.12.117,debian-7.3. Default: debian-6.12.")  # fmt: skip
@click.option("--depth", type=click.Choice([*DEPTHS], case_sensitive=False), default="quick",
              show_default=True, help="How hard to look: "
              + "; ".join(f"{name}: {d.words}" for name, d in DEPTHS.items()) + ".")  # fmt: skip
@click.option("--minutes", type=bounded(bounds.Minutes), metavar="N",
              help="Stop in good order after N minutes; each kernel gets an equal share, and in it every "
              "configuration its turn. Beside --resume: N more. Default: no end.")  # fmt: skip
@click.option("--machine", type=MACHINE, default="auto", show_default=True,
              help="As for powercut run. uml: no emulation; a UML kernel has to be there.")  # fmt: skip
@expect_option("Losses that are expected, as for powercut run. Default: those of this installation.")
@with_options(known_options)
@click.option("--anew", is_flag=True, help="Run every case again. Default: a case that a run in --out has "
              "decided, on the same kernel and by the same installation, keeps its answer.")  # fmt: skip
@jobs_option
@out_option()
@resume_option("Continue with what was not decided.")
@guarded
def verdict_command(**given: Any) -> ExitCode:
    """Which configurations are safe on which kernels? One table, and what to do.

    \b
    powercut verdict -c ext4/ordered,xfs/default --kernels debian-6.12,debian-7.3 --minutes 20
    powercut verdict -c ext4,xfs,btrfs --kernels 7.3.4 --depth normal
    powercut verdict --resume reports/runs/DATE-verdict --minutes 30

    A configuration on a kernel is safe as far as looked; broken by known bugs, which are named with what
    to do (powercut known lists them); broken in a new way, with the command that repeats it; not decided;
    or not looked at.

    Leaves report.html, summary.txt, summary.md, verdict.csv, verdict.json, and the run directory of each
    kernel, which every other command takes.

    Exit codes: 0 all are safe as far as looked, 1 one is broken (with --new-only: in a new way), 2 usage,
    3 one is not decided or was not looked at, 130 interrupted.
    """
    if given["resume"]:
        beside_resume("verdict", ("resume", "kernels", "new_only", "minutes", "jobs"))
        path = given["resume"].resolve()
        plan = load_plan(path, "verdict")
        if plan.depth not in DEPTHS:
            raise UsageError(f"{path} holds no verdict", "powercut verdict begins one")
        need_named_files("--kernels", plan.kernels, given["kernels"])
        given["machine"] = plan.plan.machine
        given["jobs"] = given["jobs"] if is_typed("jobs") else plan.plan.jobs
        given["anew"], given["out"] = not plan.plan.earlier, path.parent.parent
        run = _run(plan.plan.configurations, DEPTHS[plan.depth], given)  # names no file of DIR
        new_only = plan.new_only or given["new_only"]
        return _carry_out(msgspec.structs.replace(plan, plan=run, new_only=new_only), path, given)
    plan = _plan(given)
    return _carry_out(plan, create(plan, given["out"], "verdict"), given)


def _plan(given: dict[str, Any]) -> SweepPlan:
    depth, modes = DEPTHS[given["depth"]], given["modes"] or ["all"]
    if ruled := [p.name for p in select_profiles(modes) if p.rules]:
        raise UsageError(
            f"{', '.join(ruled)}: rules judge programs by their own checks, and a verdict runs none",
            f"ask them of a program: powercut run -c {','.join(ruled)} -w WORKLOAD",
        )
    return SweepPlan(
        title="Verdict",
        kernels=absolute_kernels(given["kernels"]) or ["debian-6.12"],
        plan=_run(modes, depth, given),
        depth=given["depth"],
        expectations=asked_expectations(given["expect"]) or _usual(depth),
        known=msgspec.structs.replace(asked_known(given), new_only=False),  # the table tells both apart
        new_only=given["new_only"],
        argv=sys.argv[1:],
    )


def _run(modes: list[str], depth: Depth, given: dict[str, Any]) -> Plan:
    """The run on each kernel. Raises UsageError for an unknown mode, and one that begins with a disk."""
    profiles = select_profiles(modes)
    need_made(profiles)
    return Plan(
        configurations=[p.name for p in profiles],
        workloads=list(depth.workloads),
        fault_models=depth.fault_models,
        again=depth.again,
        budget=depth.budget,
        earlier="" if given["anew"] else str(given["out"].resolve()),
        machine=given["machine"],
        jobs=given["jobs"],
        argv=sys.argv[1:],
    )


def _usual(depth: Depth) -> tuple[Expectation, ...]:
    """What unmodified kernels are known to lose at this depth, by the files of this installation."""
    names = ["natural-faults"]
    names += ["reordering"] * ("exhaustive" in depth.fault_models) + ["recovery"] * bool(depth.again)
    return asked_expectations([resource("vms", "filesystems", f"{name}.expected") for name in names])


def _carry_out(plan: SweepPlan, path: Path, given: dict[str, Any]) -> ExitCode:
    series = VerdictSeries(plan, path)
    until_s = series.known.at + given["minutes"] * 60 if given["minutes"] else None
    modes, kernels = len(plan.plan.configurations), len(plan.kernels)
    what = f"{plural(modes, 'configuration')} on {plural(kernels, 'kernel')}"
    again = resume_sweep("verdict", plan.kernels, [], "", shown_path(path))
    again += f" --minutes {given['minutes']:g}" if given["minutes"] else ""
    end = run_series(series, f"{what}, depth {plan.depth}", again, until_s)
    if end is End.INTERRUPTED:
        return ExitCode.INTERRUPTED
    found = [s for _, of in standings(series.sweep) for s in of]
    return exit_code(found, new_only=plan.new_only)


def exit_code(found: Sequence[Standing], *, new_only: bool) -> ExitCode:
    """That of a verdict with these in its table."""
    kinds = {s.kind for s in found}
    if Kind.NEW in kinds or (Kind.KNOWN in kinds and not new_only):
        return ExitCode.INCONSISTENT
    return ExitCode.UNDECIDED if not found or any(s.is_open for s in found) else ExitCode.CONSISTENT
