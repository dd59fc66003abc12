"""`powercut pack`."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import NewFile, RunDirectory
from harness.errors import ExitCode, UsageError
from harness.model import CaseId
from harness.report.lines import reproduce, source_words
from harness.report.words import shown_path
from harness.store import RunStore
from harness.store.bundle import bundle


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

    Such a file is unpacked once, in reports/runs, and is data: it chooses no kernel, no module and no file of
    the host that reads it.
    """
    with RunStore.open(run) as store:
        path = store.path
        chosen = _case(case, store) if case else None
        found = [f for f in store.findings() if chosen in (None, f.case)]
        default = f"{path.name}-{str(chosen).replace('/', '-')}" if chosen else path.name
        file = output or Path(f"{default}.tar.zst")
        again = [reproduce(f.case, f.state, source_words(store, str(file))) for f in found[:1]]
    try:
        bundle(path, file, chosen)
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UsageError(
            f"{file.absolute().parent} cannot be written to: {e.strerror}",
            f"name a file elsewhere: --output {Path(tempfile.gettempdir(), file.name)}",
        ) from e
    console.say(f"{shown_path(file)}: {file.stat().st_size / (1 << 20):,.1f} MiB")
    for line in again:
        console.say(f"look at it again: {line}")
    return ExitCode.CONSISTENT


def _case(text: str, store: RunStore) -> CaseId:
    """The case named, perhaps by one of its crash points. Raises UsageError if the run does not have it."""
    try:
        case = CaseId.parse(text.partition("@")[0])
    except ValueError as e:
        raise UsageError(str(e), "the report names the cases") from e
    if store.case(case) is None:
        raise UsageError(f"the run {store.path.name} has no case {case}", "the report names the cases")
    return case
