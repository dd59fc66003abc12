"""`powercut gc`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.cli.console import console, errors
from harness.cli.guard import agreed, guarded
from harness.cli.options import out_option
from harness.errors import ExitCode
from harness.host.cache import cache_dir
from harness.host.progress import at_work
from harness.report.words import shown_path
from harness.store.garbage import Kept, delete, kept_cache, kept_runs, old

MIB = 1 << 20


MAX_DAYS = 36_600


class Age(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """`14d` or `36h`, in days."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        unit = {"d": 1.0, "h": 1 / 24}.get(text[-1:])
        if unit is None or not text[:-1].isascii() or not text[:-1].isdigit():
            self.fail(f"{text!r} is not of the form 14d (days) or 36h (hours)", param, ctx)
        days = int(text[:9].rstrip("dh")) * unit  # more digits are too many in any case
        if days > MAX_DAYS or len(text) > 9:
            self.fail(f"{text!r} is more than {MAX_DAYS:,} days", param, ctx)
        return days


@click.command("gc")
@click.option(
    "--runs",
    "run_days",
    type=Age(),
    metavar="AGE",
    help="Delete runs that nobody read or changed for so long: 14d, 36h.",
)
@click.option(
    "--cache",
    "cache_days",
    type=Age(),
    metavar="AGE",
    help="Delete what the cache holds and nobody used for so long.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "-v", "--verbose", is_flag=True, help="List every run and entry, not only what would be deleted."
)
@out_option()
@guarded
def gc_command(
    run_days: float | None, cache_days: float | None, yes: bool, verbose: bool, out: Path
) -> ExitCode:
    """Show what runs and the cache take, and delete what is old.

    \b
    powercut gc                            how much is there?
    powercut gc --runs 14d                 delete runs that nobody looked at for two weeks
    powercut gc --cache 90d --yes          delete kernels and images that nobody used for three months

    Says first what would be deleted, and asks. The latest run, runs in progress and cache entries in use
    stay. A deleted cache entry is downloaded or built again when it is needed.

    Exits 0 if it did what was asked, 3 if you said no or something could not be deleted.
    """
    with at_work(f"looking at every file of the runs in {shown_path(out)} and of the cache", errors):
        runs, cache = kept_runs(out), kept_cache(cache_dir())
    for what, kept in ((f"runs in {shown_path(out)}", runs), (f"cache {cache_dir()}", cache)):
        console.say(f"{what}: {_sized(kept)}")
        for each in kept if verbose else ():
            console.say(f"  {_line(each)}")
    asked = [(runs, run_days), (cache, cache_days)]
    for each in (k for kept, days in asked if days is not None for k in kept if k.stays and k.days >= days):
        console.say(f"kept: {shown_path(each.path)} ({each.stays})")
    doomed = [k for kept, days in asked if days is not None for k in old(kept, days)]
    if run_days is None and cache_days is None:
        return ExitCode.CONSISTENT
    if not doomed:
        console.say("nothing of that age")
        return ExitCode.CONSISTENT
    console.say(f"to be deleted: {_sized(doomed)}")
    for each in doomed:
        console.say(f"  {_line(each)}")
    if not yes and not agreed("delete them?"):
        return ExitCode.UNDECIDED
    with at_work("deleting", errors):
        freed = delete(doomed)
    console.say(f"freed {freed // MIB:,} MiB")
    return ExitCode.CONSISTENT if not any(k.path.exists() for k in doomed) else ExitCode.UNDECIDED


def _sized(kept: Sequence[Kept]) -> str:
    return f"{len(kept):,} in all, {sum(k.size_bytes for k in kept) // MIB:,} MiB"


def _line(kept: Kept) -> str:
    stays = f" (stays: {kept.stays})" if kept.stays else ""
    return f"{kept.size_bytes // MIB:8,} MiB  {kept.days:5.0f} days  {shown_path(kept.path)}{stays}"
