"""`powercut import`: a workload of operations from what strace(1) saw a program do."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harness.cli.guard import guarded
from harness.cli.options import NewFile
from harness.errors import EnvironmentLacks, ExitCode, UsageError
from harness.host.files import toml_string
from harness.host.folders import OwnedFolder
from harness.report.words import number, plural, shown_path
from harness.workloads.applications import need_name
from harness.workloads.imported import Imported, imported
from harness.workloads.load import as_argument, operations_of
from harness.workloads.strace import OPTIONS, calls_of

_OF_A_LOG = "of a log, --root says in which folder the program worked"
_IN_EMPTY = "it ran in an empty folder: it has to make there all that it needs"


@click.command("import")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED,
                metavar="[LOG | -- PROGRAM ARGUMENT...]")  # fmt: skip
@click.option("--root", metavar="DIR",
              help="Of a log: the folder that the program worked in, as the log names it. The root of the "
              "file system under test stands for it.")  # fmt: skip
@click.option("-o", "--output", type=NewFile(), metavar="FILE",
              help="The workload, a *.toml; it must not be there. Default: standard output.")  # fmt: skip
@guarded
def import_command(words: tuple[str, ...], root: str | None, output: Path | None) -> ExitCode:
    """Make any program a workload of operations, from a log of strace: judged byte for byte, in any mode.

    \b
    powercut import -o my-db.toml -- my-program ARGUMENT...
    powercut run -c ext4/ordered,xfs/default -w ./my-db.toml

    PROGRAM runs here under strace, in an empty folder that is deleted behind it. For a program that runs
    elsewhere, make the log there, and import it:

    \b
    strace OPTIONS -o strace.log my-program
    powercut import strace.log --root /srv/my-db -o my-db.toml

    OPTIONS: -f -y -xx -s 256 -e trace=CALLS, where CALLS is
    %file,%desc,%process,unshare,sync,syncfs,msync,mprotect,pkey_mprotect,io_uring_setup,io_uring_enter,io_submit

    The operations have the names, places, lengths, flags and syncs of the program's calls below DIR, in the
    order in which they returned; the data is ours, so that each byte says where it comes from. Names that
    were there before are made first, and synced. Calls that change something and have no operation are
    counted. What a program promises its users is not in its calls: for that, see powercut new.
    """
    _need_new(output)
    if root is not None:
        if len(words) == 1 and not Path(words[0]).exists():
            raise UsageError(f"there is no {words[0]}", "name a file that strace wrote: strace -o FILE")
        if len(words) != 1 or not Path(words[0]).is_file():
            raise UsageError(
                f"{shlex.join(words)} is not a log", "name one file that strace wrote, and --root"
            )
        log = Path(words[0])
        try:
            return _import(log, root, "", f"imported from {log.name}", output)
        except UsageError as e:
            raise UsageError(f"{log}: {e.what}", e.next_step) from e
    with OwnedFolder("powercut-import-") as folder:
        log, place = _traced(words, folder.path.resolve())
        try:
            return _import(log, place, place, f"imported from {shlex.join(words)}", output)
        except UsageError as e:
            what = e.what.replace(place, "the folder that it ran in")
            raise UsageError(
                f"{shlex.join(words)}: {what}", _IN_EMPTY if place in e.what else e.next_step
            ) from e


def _need_new(output: Path | None) -> None:
    if output and output.suffix != ".toml":
        raise UsageError(f"{output} is not named *.toml", "the name of a workload of operations ends so")
    if output:
        need_name(output.stem, str(output))
    if output and output.exists():
        raise UsageError(f"{output} is there", "name another file, or remove it")


def _traced(words: Sequence[str], folder: Path) -> tuple[Path, str]:
    """Run a program under strace. Returns the log, and the folder that it worked in."""
    program = shutil.which(words[0])
    if program is None:
        what = "no program that can be run here"
        if Path(words[0]).is_file():
            raise UsageError(f"{words[0]} is {what}", _OF_A_LOG)
        raise UsageError(f"{words[0]} is {what}, and no file", f"name a program, or a log; {_OF_A_LOG}")
    strace = shutil.which("strace")
    if strace is None:
        raise EnvironmentLacks("strace is not installed", "run: apt-get install strace")
    log, work = folder / "strace.log", folder / "work"
    work.mkdir()
    traced = [strace, *shlex.split(OPTIONS), "-o", str(log), str(Path(program).absolute())]
    printed = folder / "printed"
    with printed.open("wb") as told:
        done = subprocess.run([*traced, *words[1:]], cwd=work, stdout=told, stderr=told, check=False)
    if done.returncode:
        said = printed.read_text(errors="replace").strip().rpartition("\n")[2]
        raise UsageError(
            f"{shlex.join(words)} ended with {done.returncode}{f': {said}' if said else ''}",
            _IN_EMPTY,
        )
    return log, str(work)


def _import(log: Path, root: str, directory: str, summary: str, output: Path | None) -> ExitCode:
    with log.open(errors="surrogateescape") as lines:
        found = imported(calls_of(lines), root, directory)
    _check(found, root)
    text = _toml(found, summary)
    if output:
        output.write_text(text)
    else:
        sys.stdout.write(text)
    _tell(found, output)
    return ExitCode.CONSISTENT


def _check(found: Imported, root: str) -> None:
    """Raises UsageError for what `powercut run` would refuse."""
    if not found.operations:
        raise UsageError(
            f"no call changes anything below {root}", f"another --root? or another trace: strace {OPTIONS}"
        )
    operations_of(map(str, found.whole))


def _toml(found: Imported, summary: str) -> str:
    lines = [f"    {toml_string(str(op))},\n" for op in found.whole]
    return f"summary = {toml_string(summary)}\noperations = [\n{''.join(lines)}]\n"


def _tell(found: Imported, output: Path | None) -> None:
    _note(plural(len(found.operations), "operation"))
    if found.before:
        _note(f"{plural(len(found.before), 'operation')} before them, for what was there")
    for what, count in found.left_out.items():
        _note(f"left out: {what}: {number(count)}")
    if not any(op.persists for op in found.operations):
        _note("none of them syncs anything, so no mode promises that a power cut leaves any of it")
    if output:
        _note(f"next: powercut run -c ext4/ordered -w {as_argument(shown_path(output))}")


def _note(text: str) -> None:
    """Beside the workload, which may go to standard output."""
    click.echo(text, err=True)
