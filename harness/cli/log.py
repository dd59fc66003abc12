"""`powercut log`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.errors import UsageError
from harness.host.folders import OwnedFolder
from harness.host.packed import unpack
from harness.plan import LOG_BYTES
from harness.writelog import read_log, select

_EXAMPLES = """\b
powercut log ls reports/latest/cases/ext4-ordered/append-fsync/log.zst
powercut log ls /dev/sdb --start-mark fsync --next-flush
"""


@click.group("log")
def log_group() -> None:
    """Look into write logs (the format of dm-log-writes).

    \b
    powercut log ls reports/latest/cases/ext4-ordered/append-fsync/log.zst
    """


@log_group.command("ls", epilog=_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(1), help="List at most this many entries.")
@click.option("--start-entry", type=click.IntRange(0), default=0, show_default=True)
@click.option("--start-mark", help="Begin after this mark.")
@click.option("--end-mark", help="End with this mark.")
@click.option("--next-flush", is_flag=True, help="Only up to the next flush.")
@click.option("--next-fua", is_flag=True, help="Only up to the next FUA write.")
@click.option(
    "--log-size",
    "log_mib",
    type=click.IntRange(1),
    default=LOG_BYTES >> 20,
    show_default=True,
    metavar="MIB",
    help="Refuse a packed log that would unpack to more.",
)
@guarded
def log_ls(file: Path, log_mib: int, **selection: Any) -> None:
    """List the entries of a write log: a run's log.zst, or any log device."""
    with _plain_log(file, log_mib << 20) as path:
        for entry in select(replace(read_log(path), path=file), **selection):
            flags = "|".join(f.name or "" for f in entry.flags) or "-"
            what = entry.mark or f"sector {entry.sector} + {entry.sectors}"
            console.say(f"{entry.index:8} {flags:12} {what}")


@contextlib.contextmanager
def _plain_log(file: Path, limit_bytes: int) -> Iterator[Path]:
    """`file`, unpacked if it is a run's compressed log."""
    if not file.is_file() and not file.is_block_device():
        raise UsageError(
            f"{file} is not a file", "name a log.zst under cases/ in a run directory, or a log device"
        )
    if file.suffix != ".zst":
        yield file
        return
    with OwnedFolder("powercut-log-") as folder:
        yield unpack(file, folder.path / "log", limit_bytes)
