"""The checks of `workloads/`, on the host: they pass on what `run` leaves, and fail on anything damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.host.resources import resource
from harness.tests.needs import need_program

PROGRAMS = {"sqlite": ["sqlite3"], "git": ["git"], "redis": ["redis-check-rdb", "redis-cli"]}


class Application:
    """What `run` made of an empty directory, and its acknowledgements."""

    def __init__(self, folder: Path, name: str, arguments: list[str]) -> None:
        self.name, self.arguments = name, arguments
        self.mount, self.bin = folder / "mount", folder / "bin"
        self.acknowledged = folder / "acknowledged"
        self.environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(folder)}
        self.environment["TMPDIR"] = str(folder)
        self.mount.mkdir()
        self.bin.mkdir()
        (self.bin / "powercut-ack").write_text(f'#!/bin/sh\necho "$@" >>{self.acknowledged}\n')
        (self.bin / "powercut-ack").chmod(0o755)
        (self.bin / "usleep").symlink_to(shutil.which("busybox") or "")
        done = self.start("run")
        assert done.returncode == 0, done.stdout
        self.texts = self.acknowledged.read_text().splitlines()

    def start(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        script = resource("workloads") / self.name / program
        command = ["busybox", "sh", str(script), *map(str, arguments), *self.arguments]
        return subprocess.run(
            command,
            cwd=self.mount,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )

    def check(self, acknowledged: int) -> tuple[int, str]:
        self.acknowledged.write_text("".join(f"{text}\n" for text in self.texts[:acknowledged]))
        done = self.start("check", self.acknowledged)
        return done.returncode, done.stdout

    def in_(self, *command: str) -> None:
        subprocess.run(command, cwd=self.mount, env=self.environment, check=True, capture_output=True)


Make = Callable[..., Application]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(name: str, *arguments: str) -> Application:
        for program in ["busybox", *PROGRAMS[name]]:
            need_program(program)
        return Application(tmp_path, name, list(arguments))

    return made


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        ("sqlite", ["delete", "full"], 12),
        ("sqlite", ["wal", "off"], 12),
        ("git", ["all", "none"], 4),
        ("git", ["default", "none"], 4),
        ("redis", ["always"], 10),
    ],
)
def test_what_was_not_harmed_is_accepted(make: Make, name: str, arguments: list[str], count: int) -> None:
    application = make(name, *arguments)
    assert application.texts == [str(k) for k in range(1, count + 1)]
    assert application.check(count) == (0, "")
    shutil.rmtree(application.mount)
    application.mount.mkdir()
    assert application.check(0) == (0, "")
    code, said = application.check(2)
    assert code == 1
    assert "acknowledged" in said


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("DELETE FROM entry WHERE k = 10 AND part = 2", "transaction 10 has 2 of its 3 rows"),
        ("DELETE FROM entry WHERE k = 10", "rows of 3 transactions, not of 4"),
        ("UPDATE account SET balance = balance + 1 WHERE id = 1", "not 1000"),
        ("UPDATE entry SET text = 'x' WHERE k = 9 AND part = 1", "row 9.1 holds other text"),
        ("UPDATE account SET balance = balance - (id * 2 - 3) * 12", "the last one there is 11"),
        ("DROP TABLE entry", "not even its tables"),
    ],
)
def test_sqlite(make: Make, harm: str, says: str) -> None:
    application = make("sqlite", "wal", "full")
    application.in_("sqlite3", "bank.db", harm)
    code, said = application.check(12)
    assert code == 1
    assert says in said


def test_sqlite_sees_a_torn_database(make: Make) -> None:
    application = make("sqlite", "delete", "extra")
    with (application.mount / "bank.db").open("r+b") as f:
        f.seek(2 * 4096)
        f.write(bytes(4096))
    code, said = application.check(0)
    assert code == 1
    assert said


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (["update-ref", "refs/heads/main", "main~2"], "commit 4 is not there"),
        (["symbolic-ref", "HEAD", "refs/heads/other"], "HEAD points to an unborn branch"),
    ],
)
def test_git(make: Make, harm: list[str], says: str) -> None:
    application = make("git", "all", "sync")
    application.in_("git", "-C", "story", *harm)
    code, said = application.check(4)
    assert code == 1
    assert says in said or "does not have any commits" in said


def test_git_sees_an_empty_object(make: Make) -> None:
    application = make("git", "default", "none")
    for blob in (application.mount / "story" / ".git" / "objects").glob("??/*"):
        blob.chmod(0o644)
        blob.write_bytes(b"")
        break
    assert application.check(4)[0] == 1


def test_redis_loses_the_end_of_its_log_or_does_not_start(make: Make) -> None:
    application = make("redis", "always")
    (log,) = (application.mount / "appendonlydir").glob("*.incr.aof")
    whole = log.read_bytes()
    log.write_bytes(whole[:-10])
    code, said = application.check(10)
    assert (code, said) == (1, "transaction 10 was acknowledged, and the last one there is 9\n")
    log.write_bytes(whole[:-10])
    assert application.check(9) == (0, "")
    log.write_bytes(bytes(len(whole)))
    code, said = application.check(0)
    assert code == 1
    assert "the server does not start: Bad file format" in said
