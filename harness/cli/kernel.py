"""`powercut kernel`."""

from __future__ import annotations

import functools
import os
import re
import shlex
from pathlib import Path

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import OneOf, bounded, config_option
from harness.errors import EnvironmentLacks, PowercutError, UsageError
from harness.filesystems.profiles import recovery_files
from harness.guests.machine import buildable, flavour_of
from harness.host.archive import listed_archives
from harness.host.cache import cache_dir
from harness.kernels.build import build, with_options
from harness.kernels.instrumented import instrument
from harness.kernels.pins import pins
from harness.kernels.variants import kept_tree
from harness.model import bounds

DEFAULT_SOURCE = "linux-source-6.12"


@click.group("kernel")
def kernel_group() -> None:
    """Build kernels for judging, and look for new ones.

    \b
    powercut kernel build                             a kernel that judges Debian's 6.12 at native speed
    powercut kernel update                            which versions does Debian have today?
    """


@kernel_group.command("build")
@click.argument("source", required=False)
@click.option("--source", "named", metavar="SRC", help="The same as SOURCE.")
@click.option("--machine", type=OneOf(buildable), default="uml", show_default=True)
@click.option("--coverage", is_flag=True,
              help="One that notes which lines of recovery it runs: for run --coverage.")  # fmt: skip
@config_option
@click.option(
    "-j", "--jobs", type=bounded(bounds.Jobs), default=min(os.cpu_count() or 1, 256), show_default=True
)
@guarded
def kernel_build(
    source: str | None,
    named: str | None,
    machine: str,
    jobs: int,
    config: tuple[Path, ...],
    *,
    coverage: bool,
) -> None:
    """Build a small kernel with every file system built in, and cache it by content.

    SOURCE is a source package (default: linux-source-6.12; 7.3 is linux-source-7.3), or the top directory of
    your own kernel tree.

    \b
    powercut kernel build                           User Mode Linux from Debian's 6.12: judges at native speed
    powercut kernel build linux-source-7.3          the same for --kernel debian-7.3
    powercut kernel build ~/linux                   from your own tree
    powercut kernel build --coverage                for powercut run --coverage
    powercut kernel build --config kasan.config     with options of your own
    powercut run --machine uml --kernel IMAGE       test your own tree, or your own options
    """
    if source and named:
        raise UsageError(f"two sources: {source} and {named}", "name one")
    if coverage and config:
        raise UsageError("run --coverage takes a kernel without options of your own", "leave out --config")
    wanted = source or named or DEFAULT_SOURCE
    if series := re.fullmatch(r"v?(\d+\.\d+)", wanted):
        wanted = f"linux-source-{series[1]}"
    _need_source(wanted)
    path = cache_dir() / f"build-{machine}.log"
    flavour = with_options(flavour_of(machine), [str(path.resolve()) for path in config])
    say = functools.partial(console.print, highlight=False)
    if coverage:
        with kept_tree(wanted, machine, flavour, jobs, say) as tree:
            image, built = instrument(tree, recovery_files()), tree.built
        console.print(f"{built.machine} {built.release} {built.source_version}: {image}", highlight=False)
        return
    image, built = build(wanted, machine, flavour, jobs, path, say)
    console.print(f"{built.machine} {built.release} {built.source_version}: {image}", highlight=False)
    console.print(f"next: {_next(wanted, machine, image, own=bool(config))}", highlight=False)


def _need_source(named: str) -> None:
    """Raises UsageError for what can be neither a kernel tree nor a source package, before a tool is looked
    for.
    """
    if Path(named).is_dir():
        return
    is_package = re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", named)  # Debian Policy, 5.6.7
    if Path(named).exists() or not is_package:
        why = "is not a directory" if Path(named).exists() else "does not exist"
        raise UsageError(f"{named} {why}", "name the top folder of a kernel tree, or a source package")


def _next(source: str, machine: str, image: Path, *, own: bool = False) -> str:
    """What to do with a kernel that was built. `own`: with options of the user's."""
    if own or "/" in source or Path(source).is_dir():  # `.` is the tree that one stands in
        return f"powercut run --machine {machine} --kernel {shlex.quote(str(image))} -c ext4/ordered -w quick"
    series = source.removeprefix("linux-source-")
    return f"powercut run --kernel debian-{series} -c ext4/ordered -w quick  (this kernel judges it)"


@kernel_group.command("update")
@guarded
def kernel_update() -> None:
    """Download new package lists of the suites that kernels/*.toml name, into Powercut's cache.

    Lists are downloaded on first use; this asks for newer ones, and renews all others that are in the cache,
    such as those from which programs of file systems come. Those of your own apt sources are renewed by
    apt-get update. A suite that your mirror lacks is reported, and the others are renewed.

    \b
    powercut kernel update && powercut list kernels
    """
    problems: list[PowercutError] = []
    of_kernels = (a for pin in pins().values() for a in pin.archives if a.suite)
    for archive in dict.fromkeys((*of_kernels, *listed_archives())):
        try:
            archive.refresh()
            console.say(f"{archive}: renewed")
        except EnvironmentLacks as e:
            problems.append(e)
    for problem in problems[1:]:
        console.say(problem.line)
    if problems:
        raise problems[0]
