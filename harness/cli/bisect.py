"""Exit codes for `git bisect run`: 0 good, 1 bad, 125 this commit cannot be tested, 128 stop.

git reads every other code from 1 to 127 as "bad", so a mistake on the command line, a program missing on this
host or a defect of ours must not end in one.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

import click

from harness.cli.console import errors
from harness.cli.guard import make_harmless, say_error
from harness.errors import EnvironmentLacks, ExitCode, PowercutError, StoreError, UsageError
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import missing_program
from harness.host.console import OutputClosed
from harness.plan import Plan
from harness.summary import Summary, shell_code
from harness.workloads.load import select_workloads

FLAG = "--bisect"


class BisectCommand(click.Command):
    """A command with `--bisect`, whose usage errors stop the bisection when it is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asked = FLAG in args  # click consumes args while parsing
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as e:
            if not asked:
                raise
            make_harmless(e)
            e.show()
            ctx.exit(ExitCode.BISECT_STOP)


def for_bisect(work: Callable[[], ExitCode]) -> ExitCode:
    """The exit code of `work`; an exception becomes a code that git understands."""
    try:
        return work()
    except OutputClosed:
        raise
    except PowercutError as e:
        say_error(e)
        return _code(e)
    except Exception:  # never 1, which git reads as "bad"
        errors.block(traceback.format_exc())
        return ExitCode.BISECT_STOP


def _code(e: PowercutError) -> ExitCode:
    """A missing name, run or program is still missing at the next commit: skipping every commit would take
    hours and find nothing.
    """
    always = isinstance(e, (UsageError, StoreError, EnvironmentLacks))
    return ExitCode.BISECT_STOP if always else ExitCode.BISECT_SKIP


def need_host(plan: Plan) -> None:
    """Raises EnvironmentLacks, before anything is recorded, if this host lacks something at every commit."""
    lacks = [p.lacks() for p in select_profiles(plan.configurations)]
    lacks += [missing_program(w) for w in select_workloads(plan.workloads, plan.shard)]
    if reasons := [reason for reason in lacks if reason]:
        raise EnvironmentLacks(f"this cannot be bisected here: {reasons[0]}")


def verdict_code(summary: Summary) -> ExitCode:
    """The code for a run on this commit. A kernel that cannot run it, or leaves it undecided, is skipped."""
    code = shell_code(summary)
    if code in (ExitCode.CONSISTENT, ExitCode.INCONSISTENT, ExitCode.INTERRUPTED):
        return code
    return ExitCode.BISECT_STOP if _never_runs(summary) else ExitCode.BISECT_SKIP


def _never_runs(summary: Summary) -> bool:
    """Whether no kernel could run it, because the file systems lack operations of the workloads."""
    return bool(summary.cases) and all(c.was_not_run and not c.lacks for c in summary.cases)


def refuse_beside_bisect(options: Sequence[str]) -> None:
    """Raises UsageError for options that prevent a new recording on the kernel under test."""
    if options:
        raise UsageError(
            f"{FLAG} records anew on every kernel; {', '.join(options)} would judge an old recording",
            "leave out one of the two",
        )
