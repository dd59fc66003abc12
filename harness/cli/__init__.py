"""The command line: arguments become a frozen Plan, the Plan is run, the result becomes an exit code.

Each command, or group of related commands, has its own module, which is imported once the command is asked
for. To add one, write a module here and a line in COMMANDS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping

import click

from harness import __version__
from harness.cli.sections import headed
from harness.errors import ExitCode

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": (
        "run",
        "Record workloads, cut the power at every entry of the write log, recover, judge, report.",
    ),
    "patch": (
        "patch",
        "Does a patch to Linux break a promise that its base keeps, and which of its commits does?",
    ),
    "smoke": (
        "run",
        "Check that everything works here: one mode, one workload, a power cut at each write; under a "
        "minute.",
    ),
    "new": ("workload", "Make a workload to start from, which runs as it is."),
    "import": (
        "import_",
        "Make any program a workload of operations, from a log of strace: judged byte for byte, in any mode.",
    ),
    "try": ("workload", "Run WORKLOAD once in a guest without a power cut, with its output and its check."),
    "repro": ("repro", "Rebuild one crash state in a fresh guest and judge it again."),
    "show": (
        "show",
        "Say why a finding failed: what was promised, written and lost, and which flush would have saved it.",
    ),
    "shrink": ("repro", "Reduce the workload of a finding to the operations it needs."),
    "triage": ("triage", "How many bugs are behind these findings? Group the findings of runs by cause."),
    "campaign": (
        "campaign",
        "Look for findings with generated workloads, without end, and group them by cause.",
    ),
    "report": ("report", "Rewrite the reports of RUN (default: reports/latest) and print its summary."),
    "coverage": (
        "coverage",
        "Which lines of the recovery code did the crash states reach, and which functions did none of them?",
    ),
    "compare": (
        "report",
        "Compare two runs: of the same recordings state by state, of others finding by finding.",
    ),
    "list": (
        "report",
        "List what can be named: modes of file systems, stacks, layers, kinds of disk, workloads, "
        "kernels, and what is stored: runs, campaigns and other series, measurements, each with its "
        "state.",
    ),
    "kernel": ("kernel", "Build kernels for judging, and look for new ones."),
    "log": ("log", "Look into write logs (the format of dm-log-writes)."),
    "pack": (
        "pack",
        "Make one file of RUN, to attach or to keep; every command that takes a RUN takes such a file.",
    ),
    "history": ("releases", "Which kernels have a finding? Record its workload anew on each, and judge it."),
    "matrix": (
        "releases",
        "The consistency matrix across releases: file systems, modes and workloads on one kernel after "
        "another.",
    ),
    "verdict": ("verdict", "Which configurations are safe on which kernels? One table, and what to do."),
    "litmus": (
        "litmus",
        "What may an application rely on? Put the questions of small programs to every legal crash state.",
    ),
    "known": (
        "known",
        "List the known bugs with which every run compares its findings; with NAME, all that is known of "
        "one.",
    ),
    "findings": ("findings", "Reproduce the findings of reports/findings without Powercut's own machinery."),
    "bugreport": (
        "findings",
        "Begin the bug report of a finding: a folder for its maintainers, as far as a program can write it.",
    ),
    "faults": (
        "faults",
        "Plant faults in kernels, and see which of them Powercut finds: how much is a green run worth?",
    ),
    "regressions": (
        "regressions",
        "Which bugs that were mended upstream does a plain run find? On the kernel before, and on the one"
        " after.",
    ),
    "trace": (
        "trace",
        "Measure commit latency and throughput per journaling mode, with probes in the running kernel.",
    ),
    "measure": ("measure", "Repeat a published comparison of journaling modes and file systems."),
    "rootfs": ("rootfs", "Build the root image of the guest with tools, and print its path."),
    "bench": ("bench", "Measure the cost per crash state, against the best possible cost and as logs grow."),
    "docs": ("docs", "Open the documents, or print where they are."),
    "doctor": ("doctor", "Check everything a run needs, and print a fix for each missing item."),
    "fetch": ("fetch", "Fill the cache, so that later runs need no network."),
    "gc": ("gc", "Show what runs and the cache take, and delete what is old."),
    "man": ("manual", "Write the manual pages to FOLDER/man1."),
}
"""The module of each command, and the first sentence of its help: `--help` imports no command."""

_RENAMED = {"dossier": "bugreport"}
"""Commands by their names of before, which are taken for a release and shown nowhere."""
_NOT_NEEDED = {
    "unpack": "nothing is to be unpacked: every command that takes a RUN takes a file of powercut pack",
    "bisect": "powercut patch TREE BASE..HEAD names the commit; powercut run --bisect is for git bisect run",
}
"""What users look for, and what to do instead."""


class _Commands(MutableMapping[str, click.Command]):
    """Commands by name, each imported when it is looked up."""

    def __init__(self) -> None:
        self._found: dict[str, click.Command | None] = dict.fromkeys(COMMANDS)

    def __getitem__(self, name: str) -> click.Command:
        if (found := self._found[name]) is None:
            there = vars(importlib.import_module(f"harness.cli.{COMMANDS[name][0]}")).values()
            found = next(c for c in there if isinstance(c, click.Command) and c.name == name)
            self._found[name] = found
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Group(click.Group):
    """Lists its commands with the whole first sentence of each; click would cut most of them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command and ctx.resilient_parsing:  # a shell asks for what completes a word
            from harness.cli.complete import attach  # noqa: PLC0415 - it knows of all that can be named

            attach(command)
        return command

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
            from harness.cli.guard import make_harmless  # noqa: PLC0415 - it loads rich

            make_harmless(e)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in headed(COMMANDS):
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])


@click.group(
    cls=_Group,
    commands=_Commands(),
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
        from harness.cli.first_steps import say_first_steps  # noqa: PLC0415 - no command needs it

        say_first_steps()
