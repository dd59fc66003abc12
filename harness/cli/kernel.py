"""`powercut kernel`."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import OneOf
from harness.errors import UsageError
from harness.guests.machine import buildable, profile_of
from harness.host.cache import cache_dir
from harness.kernels.build import build


@click.group("kernel")
def kernel_group() -> None:
    """Build kernels for judging.

    \b
    powercut kernel build                             a kernel that judges Debian's 6.12 at native speed
    """


@kernel_group.command("build")
@click.option("--source", default="linux-source-6.12", show_default=True, metavar="SRC",
              help="A source package, or the top directory of your own kernel tree.")  # fmt: skip
@click.option("--machine", type=OneOf(buildable), default="uml", show_default=True)
@click.option("-j", "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
@guarded
def kernel_build(source: str, machine: str, jobs: int) -> None:
    """Build a small kernel with every file system built in, and cache it by content.

    \b
    powercut kernel build                             User Mode Linux from Debian's 6.12: judges at native
    speed powercut kernel build --source ~/linux            from your own tree powercut run --machine uml
    --kernel IMAGE         test your own tree only
    """
    if "/" in source and not Path(source).is_dir():
        raise UsageError(f"{source} is not a directory", "name a kernel tree, or a source package")
    path = cache_dir() / f"build-{machine}.log"
    flavour = profile_of(machine).build
    if flavour is None:
        raise UsageError(f"no kernels are built for {machine}", f"one of: {', '.join(buildable())}")
    say = functools.partial(console.print, highlight=False)
    image, built = build(source, machine, flavour, jobs, path, say)
    console.print(f"{built.machine} {built.release} {built.source_version}: {image}", highlight=False)
