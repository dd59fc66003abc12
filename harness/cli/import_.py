"""`powercut import`: a workload of operations from what strace(1) saw a program do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from harness.cli.guard import guarded
from harness.cli.options import NewFile
from harness.errors import ExitCode, UsageError
from harness.report.words import number, plural, shown_path
from harness.workloads.applications import need_name
from harness.workloads.imported import Imported, imported
from harness.workloads.load import operations_of
from harness.workloads.strace import OPTIONS, calls_of


@click.command("import")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--root", required=True, metavar="DIR",
              help="The folder that the program worked in, as the log names it: the root of the file system "
              "under test stands for it.")  # fmt: skip
@click.option("-o", "--output", type=NewFile(), metavar="FILE",
              help="The workload, a *.toml; it must not be there. Default: standard output.")  # fmt: skip
@guarded
def import_command(log: Path, root: str, output: Path | None) -> ExitCode:
    """Make any program a workload of operations, from a log of strace: judged byte for byte, in any mode.

    \b
    strace OPTIONS -o strace.log my-program
    powercut import strace.log --root /srv/my-db -o my-db.toml
    powercut run -c ext4/ordered,xfs/default -w ./my-db.toml

    OPTIONS: -f -y -xx -s 256
    -e trace=%file,%desc,%process,sync,syncfs,msync,io_uring_setup,io_uring_enter,io_submit

    The operations have the names, places, lengths, flags and syncs of the program's calls below DIR, in the
    order in which they returned; the data is ours, so that each byte says where it comes from. Names that
    were there before are made first, and synced. Calls that change something and have no operation are
    counted. What a program promises its users is not in its calls: for that, see powercut new.
    """
    if output and output.suffix != ".toml":
        raise UsageError(f"{output} is not named *.toml", "the name of a workload of operations ends so")
    if output:
        need_name(output.stem, str(output))
    if output and output.exists():
        raise UsageError(f"{output} is there", "name another file, or remove it")
    with log.open(errors="surrogateescape") as lines:
        try:
            found = imported(calls_of(lines), root)
            _check(found, root)
        except UsageError as e:
            raise UsageError(f"{log}: {e.what}", e.next_step) from e
    text = _toml(found, f"imported from {log.name}")
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
    lines = [f"    {json.dumps(str(op), ensure_ascii=False)},\n" for op in found.whole]
    return f"summary = {json.dumps(summary, ensure_ascii=False)}\noperations = [\n{''.join(lines)}]\n"


def _tell(found: Imported, output: Path | None) -> None:
    _note(plural(len(found.operations), "operation"))
    if found.before:
        _note(f"{plural(len(found.before), 'operation')} before them, for what was there")
    for what, count in found.left_out.items():
        _note(f"left out: {what}: {number(count)}")
    if output:
        _note(f"next: powercut run -c ext4/ordered -w {shown_path(output)}")


def _note(text: str) -> None:
    """Beside the workload, which may go to standard output."""
    click.echo(text, err=True)
