"""The checks of PostgreSQL and LMDB, on this host: they accept what `run` left, and refuse what is damaged or
less than was acknowledged. In guests, with every crash state: `powercut run -w postgresql,lmdb`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks
from harness.guests.initramfs import need_brought
from harness.host.resources import resource
from harness.tests.needs import needed
from harness.workloads.load import load_workload

NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Here:
    """An application on this host, in a folder of its own: not below pytest's, which only root may enter."""

    name: str
    folder: Path

    @property
    def files(self) -> Path:
        """What would be the mount point."""
        return self.folder / "mnt"

    @property
    def acknowledged(self) -> list[str]:
        return (self.folder / "told").read_text().splitlines()

    def call(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run `run` or `check`; PostgreSQL refuses to be run by root."""
        nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        words = [resource("workloads", self.name, program), *arguments]
        return subprocess.run(
            [*(nobody if os.geteuid() == 0 else []), *map(str, words)],
            cwd=self.files,
            env={
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "TMPDIR": f"{self.folder}/scratch",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            errors="replace",  # of an archive
            timeout=300,
            check=False,
        )

    def check(self, acknowledged: Sequence[str], *arguments: str) -> tuple[int, str]:
        """Exit code and output."""
        told = self.folder / "scratch" / "acknowledged"
        told.write_text("".join(f"{line}\n" for line in acknowledged))
        done = self.call("check", told, *arguments)
        return done.returncode, done.stdout


def made(name: str) -> Iterator[Here]:
    folder = Path(tempfile.mkdtemp(prefix="powercut-test-"))
    try:
        for part in ("bin", "scratch", "mnt"):
            (folder / part).mkdir()
        programs = {
            "powercut-ack": f'#!/bin/sh\necho "$*" >>{folder}/told\n',
            "usleep": '#!/bin/sh\nexec busybox usleep "$@"\n',
        }
        for program, text in programs.items():
            (folder / "bin" / program).write_text(text)
            (folder / "bin" / program).chmod(0o755)
        if os.geteuid() == 0:
            folder.chmod(0o755)
            for owned in (folder, folder / "scratch", folder / "mnt"):
                os.chown(owned, NOBODY, NOBODY)
        yield Here(name, folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def lmdb() -> Iterator[Here]:
    with needed():
        need_brought(load_workload("lmdb-sync"))
    yield from made("lmdb")


@pytest.fixture
def postgresql() -> Iterator[Here]:
    with needed():
        need_brought(load_workload("postgresql-single"))
        if not shutil.which("setpriv"):
            raise EnvironmentLacks("setpriv is not installed")
    yield from made("postgresql")


def test_lmdb_is_refused_where_something_acknowledged_is_missing(lmdb: Here) -> None:
    assert lmdb.check([], "sync") == (0, "")
    done = lmdb.call("run", "sync")
    assert done.returncode == 0, done.stdout + done.stderr
    told = lmdb.acknowledged
    assert told == ["ready", *map(str, range(1, 13))]
    whole = (lmdb.files / "data.mdb").read_bytes()
    gone = (1, "transaction 13 was acknowledged, and the last one there is 12\n")
    for more, flags, answer in (
        ([], "sync", (0, "")),
        ([], "nometasync", (0, "")),
        (["13"], "sync", gone),
        (["13"], "nometasync", (0, "")),
        (["14"], "nometasync", gone),
    ):
        assert lmdb.check([*told, *more], flags) == answer
        (lmdb.files / "data.mdb").write_bytes(whole)  # it has written; in guests to a copy
    (lmdb.files / "data.mdb").unlink()
    assert lmdb.check(told, "sync")[0] == 1


@pytest.mark.parametrize("keep", [0, 4096, 20480])
def test_a_damaged_lmdb_is_a_finding_even_if_it_ends_the_check(lmdb: Here, keep: int) -> None:
    """Pages that lie behind the end of the file end whoever reads them by SIGBUS."""
    assert lmdb.call("run", "sync").returncode == 0
    os.truncate(lmdb.files / "data.mdb", keep)
    code, output = lmdb.check(lmdb.acknowledged, "sync")
    assert code == 1, output
    assert output


def test_postgresql_is_refused_where_it_is_damaged_or_lacks_a_transaction(postgresql: Here) -> None:
    here, arguments = postgresql, ("single", "fsync=on", "synchronous_commit=on")
    assert here.check([], *arguments) == (0, "")
    done = here.call("run", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    told = here.acknowledged
    assert [line for line in told if line.isdigit()] == [str(k) for k in range(1, 11)]
    assert here.check(told, *arguments) == (0, "")
    asked = [*told, "11"]
    assert here.check(asked, *arguments) == (
        1,
        "transaction 11 had to be there, and the last one there is 10\n",
    )
    assert here.check(asked, "single", "fsync=on", "synchronous_commit=off") == (0, "")
    assert here.check([*told, "due 11"], "server", "fsync=on", "synchronous_commit=off")[0] == 1
    shutil.rmtree(here.files / "cluster" / "pg_wal")
    code, output = here.check(told, *arguments)
    assert (code, "pg_wal" in output) == (1, True), output


def test_a_cluster_of_postgresql_that_was_copied_is_not_left_elsewhere(postgresql: Here) -> None:
    """It stayed below TMPDIR: a second run, or another `prepare`, refused to make one there."""
    scratch = postgresql.folder / "scratch"
    for _ in range(2):
        assert postgresql.call("prepare").returncode == 0
        assert not list(scratch.iterdir())
    assert postgresql.call("run", "single", "fsync=on", "synchronous_commit=on").returncode == 0
    assert not (scratch / "cluster").exists()


def test_a_cluster_of_postgresql_of_somebody_else_stays(postgresql: Here) -> None:
    """initdb refused it, and the way out removed it."""
    scratch = postgresql.folder / "scratch"
    others = [scratch / "cluster" / "data", scratch / "postgresql.log"]
    others[0].parent.mkdir()
    for path in others:
        path.write_text("of somebody else")
    for path in (others[0].parent, *others) if os.geteuid() == 0 else ():
        os.chown(path, NOBODY, NOBODY)
    assert postgresql.call("prepare").returncode == 0
    assert [path.read_text() for path in others] == ["of somebody else"] * 2
    done = postgresql.call("run", "single", "fsync=on", "synchronous_commit=on")
    assert done.returncode != 0
    assert "cluster" in done.stdout + done.stderr
    assert others[0].read_text() == "of somebody else"


def test_a_page_of_postgresql_that_does_not_fit_its_checksum_is_found(postgresql: Here) -> None:
    here, arguments = postgresql, ("single", "fsync=on", "synchronous_commit=on")
    assert here.call("run", *arguments).returncode == 0
    largest = max((here.files / "cluster" / "base").rglob("[0-9]*[0-9]"), key=lambda p: p.stat().st_size)
    with largest.open("r+b") as table:
        table.seek(4000)
        table.write(b"torn")
    code, output = here.check(here.acknowledged, *arguments)
    assert code == 1, output
