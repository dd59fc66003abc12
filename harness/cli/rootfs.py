"""`powercut rootfs`."""

from __future__ import annotations

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.host.progress import progress_for
from harness.tools_image.rootfs import root_image


@click.command("rootfs")
@click.option("--again", is_flag=True, help="Build it from today's packages even if it is cached.")
@guarded
def rootfs_command(again: bool) -> None:
    """Build the root image of the guest with tools, and print its path.

    \b
    powercut rootfs             takes a minute or two, once; then it is cached
    powercut rootfs --again     after the packages have changed

    `powercut trace` and `powercut measure` build it on first use. The recipe is vms/rootfs.
    """
    with progress_for(console) as progress:
        image = root_image(progress, again=again)
    console.print(str(image), highlight=False, soft_wrap=True)
