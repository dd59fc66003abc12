"""`powercut pack`."""

from __future__ import annotations

import errno
import itertools
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import REPORTS, NewFile, RunDirectory, open_run
from harness.errors import ExitCode, UsageError
from harness.host.files import elsewhere, file_hash
from harness.model import CaseId
from harness.report.lines import files_of, full, reproduce
from harness.report.words import shown_path
from harness.store import RunStore
from harness.store.bundle import bundle, unpacked


@click.command("pack")
@click.argument("run", type=RunDirectory())
@click.argument("case", metavar="[CASE]", required=False)
@click.option("--output", type=NewFile(), metavar="FILE", help="Default: the run's name, and .tar.zst.")
@guarded
def pack_command(run: Path, case: str | None, output: Path | None) -> ExitCode:
    """Make one file of RUN, to attach or to keep; every command that takes a RUN takes such a file.

    \b
    powercut pack reports/latest --output run.tar.zst               in a CI job: publish that
    powercut pack reports/latest ext4-nobarrier/append-fsync        with the recording of that case alone
    powercut repro ext4-nobarrier/append-fsync@41 --from run.tar.zst

    A command that takes a RUN unpacks the file once, in reports/runs. The file is data: it chooses no kernel,
    no module and no file of the host that reads it. It contains the modules that replaced the kernel's own.
    """
    with open_run(run) as store:
        path = store.path
        chosen = _case(case, store) if case else None
        found = [f for f in store.findings() if chosen in (None, f.case)]
        default = f"{path.name}-{str(chosen).replace('/', '-')}" if chosen else path.name
        file = output or Path(f"{default}.tar.zst")
        files = files_of(store)
    try:
        bundle(path, file, chosen)
    except OSError as e:
        is_package = e.filename and Path(e.filename).absolute().parent == file.absolute().parent
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not is_package:
            raise
        raise UsageError(
            f"{file.absolute().parent} cannot be written to: {e.strerror}",
            f"name a file elsewhere: --output {elsewhere(file.name)}",
        ) from e
    console.say(f"{shown_path(file)}: {file.stat().st_size / (1 << 20):,.1f} MiB")
    if found:
        source = shlex.join([full(file), *_unpacked(files, path, file)])
        console.say(f"look at it again: {reproduce(found[0].case, found[0].state, source)}")
        copy = ", and -w with a copy of the workload, called the same" if "-w" in files else ""
        console.say(
            f"on another machine: the same, with the file's path there{copy}; nothing is to be unpacked"
        )
        for needed in _left_out(files, path):
            console.say(f"not in the file, and needed there: {needed}")
    return ExitCode.CONSISTENT


def _unpacked(files: Sequence[str], run: Path, file: Path) -> list[str]:
    """Options that name files: those in the run directory where `file` will have been unpacked."""
    inside = unpacked(REPORTS, run.name, file_hash(file))
    return [str(inside / Path(w).relative_to(run)) if Path(w).is_relative_to(run) else w for w in files]


def _left_out(files: Sequence[str], run: Path) -> Iterator[str]:
    """What a package's receiver has to have: the kernel of a run on a file, and its modules."""
    for option, value in itertools.pairwise(files):
        if option in ("--kernel", "--modules") and not Path(value).is_relative_to(run):
            yield f"{value} ({option})"


def _case(text: str, store: RunStore) -> CaseId:
    """The case named, perhaps by one of its crash points. Raises UsageError if the run does not have it."""
    try:
        case = CaseId.named_in(text)
    except ValueError as e:
        raise UsageError(str(e), "the report names the cases") from e
    if store.case(case) is None:
        raise UsageError(f"the run {store.path.name} has no case {case}", "the report names the cases")
    return case
