"""`powercut patch`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.cli.console import console
from harness.cli.guard import guarded, say_error
from harness.cli.options import (
    OneOf,
    beside_resume,
    bounded,
    config_option,
    is_typed,
    listed,
    named_here,
    out_option,
    resume_option,
    workloads_option,
)
from harness.cli.series import show_page, show_series, work_at
from harness.errors import ExitCode, NothingToAsk, UsageError
from harness.explain.explain import Explainer, explain
from harness.faults.results import Detection
from harness.findings.repro import repro_context
from harness.guests.machine import buildable, flavour_of
from harness.host.text import named_few
from harness.kernels.build import BuildFails, with_options
from harness.kernels.commits import CommitTree, commit_tree
from harness.model import bounds
from harness.patches.nothing import write_nothing
from harness.patches.page import why_not_asked
from harness.patches.questions import affected_by, chosen, stages
from harness.patches.results import Answer, PatchPlan
from harness.patches.work import (
    PatchSeries,
    Phase,
    create,
    end_of,
    lines_in,
    load_plan,
    mistakes_in,
    need_head,
    untouched_in,
)
from harness.report.explanation import mail_text, write_explanation
from harness.report.lines import resume_patch, source_of
from harness.report.words import plural, shown_path
from harness.series.journal import End
from harness.store import RunStore
from harness.trust import Named, need_named_workloads, plan_here
from harness.workloads.load import absolute_word, select_workloads

MINUTES = 10.0
_RUNS_NONE = "the modes that are asked run none of the changed files: a pass is undecided"
ASKING_SHARE, LOOKING_SHARE = 0.6, 0.75
"""Of the time: until it is asked which lines of a patch that has passed so far run, and until mistakes are
planted in it.
"""


@click.command("patch")
@click.argument("tree", required=False, type=click.Path(file_okay=False, path_type=Path), metavar="[TREE]")
@click.argument("commits", required=False, default="", metavar="[BASE..HEAD]")
@click.option("--base", default="", metavar="REV",
              help="Where the patch begins. Default: where the branch left its upstream, "
              "else the last commit.")  # fmt: skip
@click.option("--mbox", type=click.Path(exists=True, path_type=Path), metavar="FILE",
              help="Apply the patches of a mailbox to the base (default: HEAD), "
              "and ask about those.")  # fmt: skip
@config_option
@click.option("-c", "--mode", "modes", multiple=True, callback=listed, metavar="FS/MODE,...",
              help="Ask in these modes. Default: those whose code the patch changes. One whose drivers "
              "these kernels lack, such as ext4/ordered@vdo, needs --config with their options.")  # fmt: skip
@workloads_option("Ask with these workloads. Default: general sets, those that find most first.")
@click.option("--minutes", type=bounded(bounds.Minutes), default=MINUTES,
              show_default=True, help="Stop asking after so long. What was found by then is compared with "
              "the base all the same. Beside --resume: so long again.")  # fmt: skip
@click.option("--first", is_flag=True, help="End with the first finding that is new, once the commit that "
              "brings it is named.")  # fmt: skip
@click.option("--lines/--no-lines", "looking", default=True, show_default=True,
              help="Tell which changed lines were run, of a patch that passes.")  # fmt: skip
@click.option("--mistakes/--no-mistakes", "planting", default=True, show_default=True,
              help="Plant mistakes in a patch that passes, to see which would be noticed.")  # fmt: skip
@click.option("--why/--no-why", default=True, show_default=True, help="Explain each new finding as it comes.")
@click.option("-n", "--no-action", is_flag=True, help="Print what would be asked; build and run nothing.")
@click.option("--machine", type=OneOf(buildable), default=lambda: buildable()[0],
              help="The machine that records and judges. Default: the fastest; beside --resume, the "
              "one before.")  # fmt: skip
@click.option("-j", "--jobs", type=bounded(bounds.Jobs), default=os.cpu_count() or 1, show_default=True,
              help="Guests to run at once, and processes that compile.")  # fmt: skip
@out_option()
@resume_option("Go on with the stages that are left. TREE is named again.")
@guarded
def patch_command(tree: Path | None, commits: str, **given: Any) -> ExitCode:
    """Does a patch to Linux break a promise that its base keeps, and which of its commits does?

    \b
    powercut patch                                  the branch in this folder, with what is not committed
    powercut patch ~/linux v6.12..my-branch         these commits
    powercut patch ~/linux --mbox series.mbox       patches from a mailing list, on top of HEAD
    powercut patch ~/linux --base HEAD~5 --minutes 60
    powercut patch ~/linux --base HEAD~5 --first    is there anything, and whose is it?
    powercut patch ~/linux --resume reports/runs/DATE-patch

    TREE is a git tree of Linux (default: this folder). It is only read: the kernels are built beside it, in
    the cache. The first build of a tree takes minutes, the next one the seconds that the changed files take.

    The kernel of the last commit runs general sets of workloads in the modes whose code the patch changes, in
    every legal crash state. If it breaks a promise, the base kernel runs the same cases. A finding that the
    base does not show is new: it is explained and, in a series, the first commit that shows it is named.

    A patch that passes is looked at twice more. A kernel that marks the changed lines tells which of them the
    cases run; a mistake in another line cannot have shown. Then Powercut plants mistakes in the patch, one at
    a time: it removes a statement, negates a condition or removes a flush. If the cases notice a planted
    mistake, they would have noticed the same mistake in your patch. Last, it takes back one hunk of the patch
    at a time ("as before the patch"): where a promise then breaks, that hunk keeps it.

    Exit codes: 0 nothing is new, 1 something is, 2 usage, 3 undecided (also where the modes of -c run none of
    the changed files, or the cases none of the changed lines) or a harness error, 4 there is nothing to ask
    (the range is empty, or changes no file that a mode is known to run), 5 nothing was new when the time was
    up, 125 the last commit does not build, 130 interrupted.
    """
    config = tuple(str(path.resolve()) for path in given["config"])
    select_workloads(given["workloads"])  # refused before the tree is looked at
    begun = _begun(given, config) if given["resume"] else None
    machine, jobs = (begun.machine, begun.jobs) if begun else (given["machine"], given["jobs"])
    flavour = with_options(flavour_of(machine), config)
    with commit_tree(tree or Path(), machine, flavour, jobs, console.say) as kernels:
        if begun:
            _need_commits(kernels, begun)
        try:
            plan = begun or _plan(kernels, commits, config, given)
        except NothingToAsk as e:
            return _nothing(e, commits or shown_path(kernels.tree), given)
        if given["no_action"]:
            return _show(plan)
        path = given["resume"].resolve() if begun else create(plan, given["out"])
        return _carry_out(plan, path, kernels, why=given["why"])


def _plan(kernels: CommitTree, commits: str, config: tuple[str, ...], given: dict[str, Any]) -> PatchPlan:
    series = kernels.series(commits, given["base"], given["mbox"])
    workloads = [absolute_word(w) for w in given["workloads"]]
    diff = cache(partial(kernels.diff, series.base.id, series.head.id))
    modes, changed = given["modes"], series.changed
    asked = chosen(modes, changed, diff) if modes else affected_by(changed, diff)
    return PatchPlan(
        tree=str(kernels.tree),
        base=(series.base.id, series.base.subject),
        commits=tuple((c.id, c.subject) for c in series.commits),
        brought=tuple((c.id, c.subject) for c in series.brought),
        changed=series.changed,
        stages=tuple(stages(asked, workloads)),
        lines=lines_in(kernels, series, asked.nobodys) if given["looking"] else (),
        untouched=untouched_in(kernels, series) if given["looking"] else (),
        mistakes=mistakes_in(kernels, series, asked.nobodys) if given["planting"] else (),
        nobodys=asked.nobodys,
        named=asked.named,
        recovery=asked.recovery,
        config=config,
        machine=given["machine"],
        minutes=given["minutes"],
        first=given["first"],
        jobs=given["jobs"],
        argv=sys.argv[1:],
    )


def _nothing(why: NothingToAsk, subject: str, given: dict[str, Any]) -> ExitCode:
    """Say that there is nothing to ask, also for the page of a CI job, which is no failure."""
    if given["no_action"]:
        raise why
    path, page = write_nothing(why, subject, sys.argv[1:], given["out"])
    show_page(page)
    console.say(f"report: {shown_path(path / 'report.html')}")
    return why.exit_code


def _begun(given: dict[str, Any], config: tuple[str, ...]) -> PatchPlan:
    """The plan of a series that is resumed. Raises UsageError, with the options to add, for files that only
    its directory names, and for one that was begun otherwise.
    """
    there = given["out"].resolve() in given["resume"].resolve().parents
    shared = ("resume", "tree", "config", "machine", "minutes", "why", "workloads", "no_action", "jobs")
    beside_resume("patch", (*shared, *(["out"] if there else [])))
    plan = load_plan(given["resume"])
    need_named_workloads([w for stage in plan.stages for w in stage.workloads], named_here(given))
    if plan.config != config:
        words = " ".join(f"--config {shlex.quote(path)}" for path in plan.config) or "no --config"
        raise UsageError("it was begun with other options of the kernel", f"go on with {words}")
    if is_typed("machine") and plan.machine != given["machine"]:
        raise UsageError(
            f"it was begun on {plan.machine}, and this is {given['machine']}",
            f"go on with --machine {plan.machine}",
        )
    typed = {name: given[name] for name in ("minutes", "jobs") if is_typed(name)}
    return msgspec.structs.replace(plan, **typed)


def _need_commits(kernels: CommitTree, plan: PatchPlan) -> None:
    """Raises UsageError if a commit of a series that is resumed is gone: that of changes which were not
    committed, or of a mailbox, is in the cache alone.
    """
    if gone := next((c for c in (plan.series.base, *plan.series.commits) if not kernels.knows(c.id)), None):
        raise UsageError(
            f"a commit of the series, {gone.short} ({gone.subject}), is neither in {kernels.tree} nor in the "
            "cache",
            f"name the tree that it was begun with, {plan.tree}; or begin a new one, without --resume",
        )


def _show(plan: PatchPlan) -> ExitCode:
    """Print what would be asked (--no-action)."""
    console.say(f"{plan.series.head} against {plan.series.base}: {plural(len(plan.commits), 'commit')}")
    for stage in plan.stages:  # in their order, as far as the time goes
        console.say(f"stage {stage.name}: {named_few(stage.workloads, 3)} in {', '.join(stage.modes)}")
    if mistakes := [m for m in plan.mistakes if not m.reverts]:
        console.say(f"then {plural(len(mistakes), 'mistake')} to plant, such as {mistakes[0]}")
    if hunks := len(plan.mistakes) - len(mistakes):
        console.say(f"then {plural(hunks, 'hunk')} as before the patch")
    for file in plan.nobodys:
        console.say(f"not asked: {file}: {why_not_asked(plan, file)}")
    if plan.runs_none:
        console.say(_RUNS_NONE)
    return ExitCode.CONSISTENT


def _carry_out(plan: PatchPlan, path: Path, kernels: CommitTree, *, why: bool) -> ExitCode:
    own = [w for stage in plan.stages for w in stage.workloads]
    again = resume_patch(shown_path(kernels.tree), plan.config, own, shown_path(path))
    console.say(f"{shown_path(path)}: {plural(len(plan.commits), 'commit')} up to {plan.series.head}")
    if plan.runs_none:
        console.say(_RUNS_NONE)
    try:
        need_head(kernels, plan)
    except BuildFails as e:
        say_error(e)
        return ExitCode.BISECT_SKIP
    except KeyboardInterrupt as e:
        e.add_note(again)
        raise
    series = PatchSeries(plan, path, kernels, explained if why else None)
    for phase, what, until_s in _phases(series, series.known.at):
        series.phase = phase
        if work_at(series, what, until_s) is End.INTERRUPTED:
            break
    show_series(series, end_of(series.ends, series.answer), again)
    return exit_code(series.answer)


def _phases(series: PatchSeries, begun_s: float) -> Iterator[tuple[Phase, str, float | None]]:
    """What to work at, in turn, and until when, where so long was worked before. A patch that passes has its
    mistakes planted before all of the time is over; a finding is followed to its end, whatever the time.
    """
    plan = series.plan

    def until(share: float) -> float | None:
        return None if plan.minutes is None else begun_s + share * plan.minutes * 60

    first_s, limit_s = until(ASKING_SHARE if plan.mistakes or plan.lines else 1), until(1)
    yield Phase.ASKING, "the last commit, and what its base says of findings", first_s
    if series.follows_left:
        yield Phase.FOLLOWING, "what was found, against the base", None
    if plan.lines and not series.answer.new:
        yield Phase.LOOKING, "which changed lines run", until(LOOKING_SHARE if plan.mistakes else 1)
    if plan.mistakes and not series.answer.new:
        yield Phase.PLANTING, "mistakes in the patch: are they noticed?", limit_s
    if first_s != limit_s and series.answer.left:
        yield Phase.ASKING, "the stages that are left, with the rest of the time", limit_s
        if series.follows_left:
            yield Phase.FOLLOWING, "what was found, against the base", None


def explained(run: Path, seen: Detection, image: Path) -> list[str]:
    """Why a finding failed, in the lines of `powercut show`; kept in its run directory. `image`: the kernel,
    which the directory alone may not choose.
    """
    with RunStore.open(run) as store:
        finding = next(f for f in store.findings() if f.id == seen.id)
        plan = plan_here(store, named := Named(kernel=str(image)))
        with (
            repro_context(store, finding.crash_point, named, "auto") as shown,
            Explainer(shown, plan.unit_sectors) as explainer,
        ):
            found = explain(explainer, finding, source_of(plan, str(store.path)))
        write_explanation(store.layout, found)
        return mail_text(found, str(finding.crash_point)).splitlines()


def exit_code(answer: Answer) -> ExitCode:
    """The exit code for the answer about a patch."""
    if answer.new:
        return ExitCode.INCONSISTENT
    if answer.interrupted:
        return ExitCode.INTERRUPTED
    if answer.is_open:
        return ExitCode.UNDECIDED
    return ExitCode.TIME_UP if answer.left else ExitCode.CONSISTENT
