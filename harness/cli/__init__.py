"""The command line: arguments become a frozen Plan, the Plan is run, the result becomes an exit code.

Each command, or group of related commands, has its own module. To add one, write a module here and a line in
COMMANDS.
"""

from __future__ import annotations

from pathlib import Path

import click

from harness import __version__
from harness.cli.bench import bench_command
from harness.cli.campaign import campaign_command
from harness.cli.complete import attach
from harness.cli.console import console
from harness.cli.coverage import coverage_command
from harness.cli.docs import docs_command
from harness.cli.doctor import doctor_command
from harness.cli.faults import faults_command
from harness.cli.fetch import fetch_command
from harness.cli.findings import bugreport_command, findings_command
from harness.cli.gc import gc_command
from harness.cli.guard import make_harmless
from harness.cli.import_ import import_command
from harness.cli.kernel import kernel_group
from harness.cli.known import known_command
from harness.cli.litmus import litmus_command
from harness.cli.log import log_group
from harness.cli.manual import man_command
from harness.cli.measure import measure_command
from harness.cli.options import REPORTS
from harness.cli.pack import pack_command
from harness.cli.patch import patch_command
from harness.cli.regressions import regressions_command
from harness.cli.releases import history_command, matrix_command
from harness.cli.report import compare_command, list_command, report_command
from harness.cli.repro import repro_command, shrink_command
from harness.cli.rootfs import rootfs_command
from harness.cli.run import run_command, smoke_command
from harness.cli.sections import command_sections
from harness.cli.show import show_command
from harness.cli.trace import trace_command
from harness.cli.triage import triage_command
from harness.cli.verdict import verdict_command
from harness.cli.workload import new_command, try_command
from harness.errors import ExitCode
from harness.report.words import shown_path
from harness.store.layout import latest

COMMANDS: tuple[click.Command, ...] = (
    run_command,
    patch_command,
    smoke_command,
    new_command,
    import_command,
    try_command,
    repro_command,
    show_command,
    shrink_command,
    triage_command,
    campaign_command,
    report_command,
    coverage_command,
    compare_command,
    list_command,
    kernel_group,
    log_group,
    pack_command,
    history_command,
    matrix_command,
    verdict_command,
    litmus_command,
    known_command,
    findings_command,
    bugreport_command,
    faults_command,
    regressions_command,
    trace_command,
    measure_command,
    rootfs_command,
    bench_command,
    docs_command,
    doctor_command,
    fetch_command,
    gc_command,
    man_command,
)


_RENAMED = {"dossier": "bugreport"}
"""Commands by their names of before, which are taken for a release and shown nowhere."""
_NOT_NEEDED = {
    "unpack": "nothing is to be unpacked: every command that takes a RUN takes a file of powercut pack",
    "bisect": "powercut patch TREE BASE..HEAD names the commit; powercut run --bisect is for git bisect run",
}
"""What users look for, and what to do instead."""


class _Group(click.Group):
    """Lists its commands with the whole first sentence of each; click would cut most of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if name in _NOT_NEEDED:
            ctx.fail(_NOT_NEEDED[name])
        return super().resolve_command(ctx, [_RENAMED.get(name, name), *rest])

    def invoke(self, ctx: click.Context) -> object:
        """An error that lacks its command would not say whose help to look into. An interrupt while options
        are looked at (a package is unpacked, say) would be click's "Aborted!", with 1, which accuses.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("powercut: interrupted", err=True)
            ctx.exit(int(ExitCode.INTERRUPTED))
        except click.ClickException as e:
            name = ctx.invoked_subcommand
            if isinstance(e, click.UsageError) and e.ctx is None and name and name in self.commands:
                e.ctx = click.Context(self.commands[name], info_name=name, parent=ctx)
            make_harmless(e)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in command_sections(self, ctx):
            with formatter.section(heading):
                formatter.write_dl([(str(c.name), c.get_short_help_str(limit=200)) for c in commands])


@click.group(
    cls=_Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="powercut")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Does this kernel's file system keep its promises when the power fails at any moment?

    \b
    powercut patch ~/linux v6.12..my-branch      does a patch break what its base keeps, and which commit?
    powercut doctor                              what this host is missing
    powercut smoke                               one mode, one workload, under a minute
    powercut run -c ext4/ordered -w all          cut the power at each write of every workload
    powercut new my-db                           a workload of your own to start from; powercut try runs it
    powercut repro ext4-ordered/append-fsync@41  judge one crash state again
    powercut show ID                             why a finding failed
    powercut pack reports/latest                 a run as one file; --from takes such a file as it is
    powercut measure double-write                what consistency costs
    powercut findings                            reproduce the bugs in reports/findings without Powercut
    powercut faults --list                       kernel faults that are planted to test powercut itself

    Exit codes: 0 consistent, 1 inconsistent, 2 usage, 3 undecided or a harness error,
    4 nothing was run or a required case was not, 5 the time was up, with something decided and
    nothing inconsistent, 125 a patch does not build, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        for line in first_steps(latest(REPORTS)):
            console.say(line)


def first_steps(run: Path) -> list[str]:
    """What to do next, for whoever types `powercut` alone. `run`: the latest run of this folder."""
    steps = [
        ("powercut smoke", "does everything work here? powercut doctor tells what is missing"),
        (
            "powercut run -c ext4/ordered --quick",
            "a file system: a power cut at each write of a few workloads",
        ),
        ("powercut new my-program", "a program of yours: a folder to begin with"),
    ]
    if (run / "run.json").is_file():
        steps[0] = ("powercut report", f"what {shown_path(run)} came to; powercut show says why")
    width = max(len(command) for command, _ in steps)
    lines = [f"  {command:{width}}  {about}" for command, about in steps]
    return ["Powercut cuts the power and looks at what comes back. Next:", *lines, "More: powercut --help"]


for command in COMMANDS:
    main.add_command(command)
attach(main)
