"""Undisturbed runs, which the trials damage and compare with.

`mixed` has a case of each colour: ext4/ordered passes, ext4/nobarrier fails, and one failure is expected.
`green` passes. `exhaustive` looks at all legal states: of ext4/ordered at each of them, of ext4/nobarrier as
far as a budget goes. `open` is `green` with one state undecided, `mixed_wal` is `mixed` with its database
still in the write-ahead log, as a killed run leaves it.
"""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import PowercutError
from harness.model import CrashState, Judgement
from harness.store import RunStore
from harness.store.records import JudgedState
from harness.tests.chaos.command import end_processes, start
from harness.tests.chaos.trial import Trial
from harness.tests.chaos.verdicts import Said, said

MODES, WORKLOADS = "ext4/ordered,ext4/nobarrier", "append-fsync,sync-overwrite"
GREEN = ["-c", "ext4/ordered", "-w", "append-fsync"]
MIXED = ["-c", MODES, "-w", WORKLOADS]
EXHAUSTIVE = ["-c", MODES, "-w", "append-fsync", "--states", "exhaustive", "--budget", "80"]
EXPECTED = "ext4/nobarrier sync-overwrite * # barrier=0 sends no cache flush\n"


@dataclass(frozen=True, slots=True)
class Specimen:
    """A finished run directory. `now`: its verdicts; `truth`: the verdicts a resume may reach (where it says
    UNKNOWN); `code`: exit code of its report.
    """

    name: str
    path: Path
    now: Said
    truth: Said
    code: int


@dataclass(frozen=True, slots=True)
class Reference:
    """`options`: machine and kernel, for further runs. `guests`: whether there may be further runs."""

    specimens: dict[str, Specimen]
    options: tuple[str, ...]
    expectations: Path
    guests: bool = True

    @property
    def mixed(self) -> Specimen:
        return self.specimens["mixed"]

    @property
    def exhaustive(self) -> Specimen:
        return self.specimens["exhaustive"]

    @property
    def green(self) -> Specimen:
        return self.specimens["green"]

    def points(self, specimen: Specimen, verdict: str) -> list[str]:
        """Crash points of a specimen with this verdict."""
        return [
            f"{case}{state}"
            for case, states in sorted(specimen.truth.states.items())
            for state, (was, _) in states.items()
            if was == verdict
        ]


def make_reference(directory: Path, options: Sequence[str]) -> Reference:
    """Record and judge the specimens. Raises PowercutError if an undisturbed run is not as expected."""
    expectations = directory / "expected"
    directory.mkdir(parents=True, exist_ok=True)
    expectations.write_text(EXPECTED)
    mixed = _run(directory, "mixed", 1, [*MIXED, "--expect", expectations, *options])
    green = _run(directory, "green", 0, [*GREEN, "--recordings", mixed.path, *options])
    exhaustive = _run(directory, "exhaustive", 1, [*EXHAUSTIVE, "--recordings", mixed.path, *options])
    specimens = [mixed, green, exhaustive, _open(directory, green), _in_wal(directory, mixed)]
    return Reference({s.name: s for s in specimens}, tuple(options), expectations)


@functools.cache
def load_reference(directory: Path, options: tuple[str, ...]) -> Reference:
    """Load what `make_reference` made in another process."""
    codes = {"mixed": 1, "green": 0, "exhaustive": 1, "open": 3, "mixed_wal": 1}
    now = {name: _said_of_copy(directory / name) for name in codes}
    truths = {**now, "open": now["green"]}
    specimens = {n: Specimen(n, directory / n, now[n], truths[n], codes[n]) for n in codes}
    return Reference(specimens, options, directory / "expected")


def _said_of_copy(path: Path) -> Said:
    """Read a copy: reading moves the write-ahead log into the database, and other processes read it too."""
    with tempfile.TemporaryDirectory(prefix="said-", dir=path.parent) as folder:
        copy_run(path, Path(folder) / "copy")
        return said(Path(folder) / "copy")


def copy_run(source: Path, copy: Path) -> None:
    """Hard-link files that commands only replace as a whole, so that a copy costs next to nothing.
    Another process may have the source open.
    """
    shutil.copytree(source, copy, copy_function=_copy_file)


def _copy_file(source: str, copy: str) -> None:
    if "/cases/" in source:
        os.link(source, copy)
        return
    try:
        shutil.copy2(source, copy)
    except FileNotFoundError:
        # another lane's run has just closed the database, which removes these
        if not source.endswith(("-wal", "-shm")):
            raise


def _run(directory: Path, name: str, code: int, arguments: Sequence[object]) -> Specimen:
    with Trial("reference", 0, 0, directory / f"making-{name}") as trial:
        ended = start(trial, ["run", *arguments, "-j", "2", "--out", trial.directory, "--name", name]).wait()
        end_processes(trial)
    if ended is None or ended.code != code:
        told = ended.output[-2000:] if ended else "it did not end"
        raise PowercutError(f"the undisturbed run {name!r} did not come to exit code {code}:\n{told}")
    path = directory / name
    next((trial.directory / "runs").iterdir()).rename(path)
    return Specimen(name, path, said(path), said(path), code)


def _open(directory: Path, green: Specimen) -> Specimen:
    path = directory / "open"
    shutil.copytree(green.path, path)
    with RunStore.open(path) as store:
        (case,) = [c.case for c in store.cases()]
        seen = list(store.iter_verdicts(case))[7]
        judgement = Judgement(unknown=("guest lost: nobody looked",))
        store.put_judgements(
            case, [JudgedState(CrashState.parse(str(seen.state)), seen.content_hash, judgement)]
        )
    return Specimen("open", path, said(path), green.truth, 3)


def _in_wal(directory: Path, mixed: Specimen) -> Specimen:
    """Copy a run after every page of its database was rewritten, but before a checkpoint."""
    source, path = directory / "writing", directory / "mixed_wal"
    shutil.copytree(mixed.path, source)
    connection = sqlite3.connect(source / "powercut.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        column = connection.execute(
            "SELECT name FROM pragma_table_info(?) WHERE pk = 0", (table,)
        ).fetchone()[0]
        connection.execute(f"UPDATE {table} SET {column} = {column}")  # noqa: S608  # names of our own tables
    shutil.copytree(source, path)
    connection.close()
    shutil.rmtree(source)
    return Specimen("mixed_wal", path, mixed.now, mixed.truth, mixed.code)
