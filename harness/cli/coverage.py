"""`powercut coverage`."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.cli.options import NewFile, RunDirectory, open_run
from harness.errors import ExitCode, UsageError
from harness.host.files import write_atomically
from harness.report.recovery_code import page_of
from harness.report.words import plural, shown_path
from harness.store import RunStore
from harness.store.recovery_code import RecoveryCode, merged, read_recovery_code
from harness.summary import summarise


@click.command("coverage")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunDirectory())
@click.option("--html", type=NewFile(), metavar="FILE",
              help="The page with every line. Default: coverage.html of the first run.")  # fmt: skip
@click.option("--json", "json_file", type=NewFile(), metavar="FILE", help="Write the lines as JSON, too.")
@guarded
def coverage_command(runs: tuple[Path, ...], html: Path | None, json_file: Path | None) -> ExitCode:
    """Which lines of the recovery code did the crash states reach, and which functions did none of them?

    \b
    powercut kernel build --coverage                       a kernel that notes it; once
    powercut run -c ext4 -w all --coverage
    powercut coverage reports/latest
    powercut coverage reports/runs/*-nightly --html coverage.html

    Recovery is where a file system's files say (recovery in vms/filesystems/FS/filesystem.toml). Lines are
    named by file, function and number; several runs count together if their kernels are of the same source.
    """
    with contextlib.ExitStack() as opened:
        stores = [opened.enter_context(open_run(path)) for path in dict.fromkeys(map(Path.resolve, runs))]
        code = merged([_of(store) for store in stores])
        states = sum(summarise(store).checked for store in stores)
    names = " ".join(shlex.quote(shown_path(path)) for path in runs)
    subject = ", ".join(store.path.name for store in stores)
    page = page_of(code, subject, f"powercut coverage {names}", [f"{plural(states, 'crash state')} checked"])
    for line in page.text().splitlines():
        console.say(line)
    written = html or stores[0].path / "coverage.html"
    write_atomically(written, page.html())
    if json_file:
        write_atomically(json_file, page.json())
    console.say(f"every line: {shown_path(written)}")
    return ExitCode.CONSISTENT


def _of(store: RunStore) -> RecoveryCode:
    """Raises UsageError for a run that did not note it."""
    code = read_recovery_code(store.layout)
    if code is None:
        raise UsageError(
            f"{store.path} does not say which lines its crash states ran",
            "run it with --coverage, or resume it",
        )
    return code
