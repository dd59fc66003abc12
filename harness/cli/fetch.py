"""`powercut fetch`."""

from __future__ import annotations

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import modes_option
from harness.errors import EnvironmentLacks, ExitCode, PowercutError
from harness.filesystems.profiles import select_profiles
from harness.host.progress import progress_for
from harness.kernels.find import find_chosen
from harness.plan import KernelChoice
from harness.tools_image.rootfs import root_image


@click.command("fetch")
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
@modes_option(
    "Modes whose file-system tools this machine's release lacks and another suite has.", name="configurations"
)
@click.option(
    "--rootfs", "with_rootfs", is_flag=True, help="Also the root image of powercut trace and measure."
)
@guarded
def fetch_command(kernels: tuple[str, ...], configurations: list[str], with_rootfs: bool) -> ExitCode:
    """Fill the cache, so that later runs need no network.

    \b
    powercut fetch                                  the default kernel
    powercut fetch debian-6.1 debian-7.3            others
    powercut fetch -c bcachefs/default --rootfs     file-system tools of another suite; the root image

    Exits 0 if all of it is in the cache, 3 otherwise.
    """
    problems: list[PowercutError] = []
    for spec in kernels or ("debian-6.12",):
        try:
            kernel = find_chosen(KernelChoice(spec))
            console.say(f"{spec}: {kernel.name}, {kernel.image}")
        except PowercutError as e:
            problems.append(e)
    for profile in select_profiles(configurations) if configurations else ():
        try:
            profile.fetch_tools()
            if lacks := profile.lacks():
                raise EnvironmentLacks(f"{profile.name}: {lacks}")
            console.say(f"{profile.name}: its tools are here")
        except PowercutError as e:
            problems.append(e)
    if with_rootfs:
        with progress_for(console) as progress:
            console.say(f"root image: {root_image(progress)}")
    for problem in problems[1:]:
        console.say(problem.line)
    if problems:
        raise problems[0]
    return ExitCode.CONSISTENT
