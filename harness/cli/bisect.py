"""Exit codes as `git bisect run` takes them: 0 good, 1 bad, 125 this commit cannot be tested, 128 stop.

Every other code from 1 to 127 would say that the commit is bad: a mistake on the command line, a program that
this host lacks, a defect of ours.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

import click

from harness.cli.console import OutputClosed, errors
from harness.cli.guard import say_error
from harness.errors import EnvironmentLacks, ExitCode, PowercutError, StoreError, UsageError
from harness.filesystems.profiles import select_profiles
from harness.guests.kits import missing_program
from harness.plan import Plan
from harness.summary import Summary, shell_code
from harness.workloads.load import select_workloads

FLAG = "--bisect"


class BisectCommand(click.Command):
    """A command with `--bisect`, whose usage errors then stop the bisection."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked = FLAG in args  # click takes words out as it goes
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as e:
            if not asked:
                raise
            e.show()
            ctx.exit(ExitCode.BISECT_STOP)


def for_bisect(work: Callable[[], ExitCode]) -> ExitCode:
    """What `work` returns; what it raises as the code that is true of this commit."""
    try:
        return work()
    except OutputClosed:
        raise
    except PowercutError as e:
        say_error(e)
        return _code(e)
    except Exception:  # never 1, which accuses the commit
        errors.print(traceback.format_exc(), highlight=False)
        return ExitCode.BISECT_STOP


def _code(e: PowercutError) -> ExitCode:
    """A name, a run or a program that is not there is the same at the next commit: to skip them all would
    take hours and find nothing.
    """
    always = isinstance(e, (UsageError, StoreError, EnvironmentLacks))
    return ExitCode.BISECT_STOP if always else ExitCode.BISECT_SKIP


def need_host(plan: Plan) -> None:
    """Raises EnvironmentLacks for what this host lacks at every commit, before anything is recorded."""
    lacks = [p.lacks() for p in select_profiles(plan.configurations)]
    lacks += [missing_program(w) for w in select_workloads(plan.workloads, plan.shard)]
    if reasons := [reason for reason in lacks if reason]:
        raise EnvironmentLacks(f"this cannot be bisected here: {reasons[0]}")


def verdict_code(summary: Summary) -> ExitCode:
    """What a run says of the commit. A kernel that cannot run it, or leaves it undecided, is skipped."""
    code = shell_code(summary)
    if code in (ExitCode.CONSISTENT, ExitCode.INCONSISTENT, ExitCode.INTERRUPTED):
        return code
    return ExitCode.BISECT_STOP if _never_runs(summary) else ExitCode.BISECT_SKIP


def _never_runs(summary: Summary) -> bool:
    """Whether no kernel could run it: the file systems do not have the operations of the workloads."""
    return bool(summary.cases) and all(c.was_not_run and not c.lacks for c in summary.cases)


def refuse_beside_bisect(options: Sequence[str]) -> None:
    """Raises UsageError for options with which nothing would be recorded on the kernel in question."""
    if options:
        raise UsageError(
            f"{FLAG} records anew on every kernel; {', '.join(options)} would judge an old recording",
            "leave one of the two out",
        )
