"""`powercut new` and `powercut try`: begin a workload of one's own, and run it once without a power cut."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from harness.cases.attempts import Unobserved
from harness.cases.dry_run import DryRun, dry_run
from harness.cli.console import console, errors
from harness.cli.guard import code_of, guarded
from harness.cli.options import kernel_options, with_options
from harness.cli.own_program import OwnProgramCommand, folder_of, need_program, words_behind
from harness.errors import ExitCode, PowercutError, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import ruled_modes, select_profiles
from harness.host.folders import OwnedFolder
from harness.host.progress import at_work
from harness.host.text import first_few
from harness.kernels.build import title_of
from harness.kernels.find import find_chosen
from harness.model import Verdict, Workload
from harness.plan import GuestChoice, KernelChoice
from harness.report import shown_path
from harness.report.words import number
from harness.ruled.judging import followed, unsynced_lines
from harness.workloads.load import as_argument, select_workloads, what_has_the_name
from harness.workloads.match import matcher
from harness.workloads.start import KINDS, OPERATIONS, make_workload

FOLDER = Path("workloads")
SHOWN_ACKNOWLEDGEMENTS = 5
STRICTEST = "any/posix"
"""The mode whose rules promise least."""


@click.command("new")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS, case_sensitive=False),
    default="shell",
    show_default=True,
    help="shell, python, c, go, rust: an application in that language; operations: a list of operations.",
)
@guarded
def new_command(name: str, kind: str) -> ExitCode:
    """Make a workload to start from, which runs as it is.

    \b
    powercut new my-db                         # workloads/my-db: an application, in shell
    powercut new ~/src/my-db/crash --kind python
    powercut new two-renames --kind operations # workloads/two-renames.toml

    A plain name goes into the folder `workloads` here, a path where it says. Nothing that exists is replaced.
    An application is two programs: `run` works and calls powercut-ack wherever a user would be told that
    something is done; `check` gets what was acknowledged before the power failed, and says whether it is
    there. Then:

    \b
    powercut try workloads/my-db               # once, without a power cut, with all output
    powercut run -c ext4/ordered,xfs/default,any -w workloads/my-db
    """
    if Path(name).name in ("", ".."):
        raise UsageError(
            f"{name} is a folder that is there, and a workload needs one of its own",
            "name one that is not: powercut new my-db",
        )
    if "/" not in name and (what := what_has_the_name(name)):
        raise UsageError(f"{name} is the name of {what}", f"choose another one: powercut new my-{name}")
    place = make_workload(Path(name) if "/" in name else FOLDER / name, kind)
    shown = as_argument(shown_path(place))
    if place.is_dir():
        for file in sorted(place.iterdir()):
            console.say(shown_path(file))
    else:
        console.say(shown_path(place))
    console.say(f"try it:   powercut try {shown}")
    rules = "" if kind == OPERATIONS else ",any"  # a list of operations has no check that rules could ask
    console.say(f"test it:  powercut run -c ext4/ordered,xfs/default{rules} -w {shown}")
    if kind == OPERATIONS:
        console.say(
            f"see it fail, as it has to where no flush is sent:  powercut run -c ext4/nobarrier -w {shown}"
        )
    else:
        console.say(f"{place.name}-forgets passes `try`, which cuts no power, and has to fail under `run`")
        console.say("in these modes: see that before you trust the check")
    return ExitCode.CONSISTENT


@click.command("try", cls=OwnProgramCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="WORKLOAD | -- PROGRAM [ARGUMENT]...")
@click.option(
    "-c",
    "--config",
    "configuration",
    default="ext4/ordered",
    show_default=True,
    metavar="FS/MODE",
    help="The file system and mode on which it runs.",
)
@click.option(
    "-k",
    "match",
    default="",
    metavar="EXPR",
    help="Of an application with variants, only those whose names match. Default: all.",
)
@with_options(kernel_options)
@guarded
def try_command(words: Sequence[str], configuration: str, match: str, **given: Any) -> ExitCode:
    """Run WORKLOAD once in a guest without a power cut, with its output and its check.

    \b
    powercut try workloads/my-db               # an application or a file of one's own, by its path
    powercut try workloads/my-db -k synced     # one of its variants
    powercut try -- ./my-test 5                # a program of one's own, as for powercut run
    powercut try sqlite-wal-full -c btrfs/default

    The file system is then unmounted and mounted again, and the check must accept its contents. The check of
    an application must also accept an empty file system. Then the application runs once more in an empty
    directory, and the files, ranges and names are listed that no sync had covered when it acknowledged
    something, and at its end.

    Exits 0 if all is well, 1 if a promise is broken without a power cut, 3 if that is undecided, for example
    because the check refuses the files that a clean unmount left.
    """
    name, program = _asked(words)
    shown = ["--", *program] if program else ["-w", name, *(["-k", match] if match else [])]
    again = shlex.join(shown)
    profile = _mode(configuration, again)
    kernel = find_chosen(KernelChoice(given["kernel"], given["modules"], tuple(given["replaced"])))
    asked = GuestChoice(given["machine"], given["accel"])
    verdicts, is_program = [], False
    with _workloads(name, program, match) as workloads:
        for workload in workloads:
            console.say(f"{workload.name} on {configuration}, {title_of(kernel)}")
            with at_work(f"{workload.name}: a guest boots, and runs it", errors):
                tried = dry_run(profile, workload, kernel, asked)
            _print(tried)
            verdicts.append(tried.judgement.verdict)
            is_program |= tried.calls is not None
    if Verdict.UNKNOWN in verdicts:
        console.say("next: see what is undecided above; no run of it would say more")
    console.say(f"what a power cut leaves of it: powercut run -c {configuration} {again}")
    if is_program:
        console.say(f"which fsync it lacks, if any: powercut run -c any {again}")
    return code_of(*verdicts)


def _asked(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The workload's name, or the program and its arguments. Raises UsageError for neither, and for both."""
    behind = words_behind()
    if behind and behind < len(words):
        raise UsageError(f"{words[0]} is a workload, and behind -- stands a program", "name one of the two")
    if behind:
        need_program(words, "try")
        return "", words
    if len(words) != 1:
        what = f"try takes one workload, and these are {len(words)}" if words else "no workload is named"
        raise UsageError(what, "powercut try workloads/my-db, or a program: powercut try -- ./my-test")
    return words[0], ()


def _mode(configuration: str, again: str) -> Profile:
    """The mode on which it runs. Raises UsageError for several, and for one that is only rules."""
    profiles = select_profiles([configuration])
    if len(profiles) != 1:
        names = ", ".join(p.name for p in profiles[:3])
        raise UsageError(f"{configuration} is {len(profiles)} modes", f"name one of them: {names}")
    if profiles[0].rules:
        raise UsageError(
            f"{profiles[0].name} is rules alone: nothing is mounted there that a program could be tried on",
            f"try it on ext4/ordered, then: powercut run -c {profiles[0].name} {again}",
        )
    return profiles[0]


@contextlib.contextmanager
def _workloads(name: str, program: Sequence[str], match: str) -> Iterator[list[Workload]]:
    """What is tried: a program as an application, in a folder as long as it is needed; or a workload, of its
    variants those that match. Raises UsageError if none does.
    """
    with OwnedFolder("powercut-try-") as folder:
        every = select_workloads([str(folder_of(program, folder.path, "try")) if program else name])
        selects = matcher(match) if match else bool
        if not (found := [w for w in every if selects(w.name)]):
            raise UsageError(
                f"-k {match}: no workload matches", f"there are: {', '.join(w.name for w in every)}"
            )
        yield found


def _print(tried: DryRun) -> None:
    for i, (operation, output) in enumerate(zip(tried.workload.operations, tried.outputs, strict=True)):
        console.say(f"  {i}: {operation}")
        _say_indented(output)
    if tried.workload.checks:
        first = ", ".join(tried.acknowledged[:SHOWN_ACKNOWLEDGEMENTS])
        more = ", ..." if len(tried.acknowledged) > SHOWN_ACKNOWLEDGEMENTS else ""
        console.say(f"  acknowledged {len(tried.acknowledged)}: {first}{more}")
    console.say(f"  {number(tried.entries)} entries in the log; after a clean unmount:")
    if not isinstance(tried.outcome, Unobserved):
        for check in tried.outcome.checks:
            ended = "not run" if check.exit_code is None else f"exit code {check.exit_code}"
            console.say(f"  check of operation {check.operation}: {ended}")
            _say_indented(check.output)
    if tried.doubt:
        console.say(f"  note: {tried.doubt}")
    for line in _unsynced(tried):
        console.say(f"  {line}")
    for violation in tried.judgement.violations:
        console.say(f"  {violation.oracle}: {violation.summary}")
    for reason in tried.judgement.unknown:
        console.say(f"  undecided: {reason}")
    verdict = tried.judgement.verdict.name
    console.say(f"{tried.workload.name}: {verdict} without a power cut, in {tried.machine}")


def _unsynced(tried: DryRun) -> Iterator[str]:
    """What no sync of an application had covered, under the rules that promise least."""
    rules = ruled_modes()[STRICTEST].rules
    if tried.calls is None or rules is None:
        return
    try:
        if isinstance(tried.calls, PowercutError):
            raise tried.calls
        *acknowledged, end = unsynced_lines(followed(tried.calls, rules))
    except PowercutError as e:
        yield f"what no sync covered is not known: {e.line}"
        return
    yield f"what no sync covered, so that a power cut may take it ({STRICTEST}):"
    shown, more = first_few([a for a in acknowledged if not a.endswith(": nothing")], SHOWN_ACKNOWLEDGEMENTS)
    yield from (f"    {line}" for line in [*shown, *([f"and at {more} more"] if more else []), end])


def _say_indented(text: str) -> None:
    for line in text.splitlines():
        console.say(f"      {line}")
