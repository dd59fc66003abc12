"""A machine of one module and one file goes through all of powercut: no other module knows of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import run as run_module
from harness.cli.serve import Site
from harness.cluster import shards
from harness.errors import ExitCode
from harness.guests import disk as disk_module
from harness.guests import machine
from harness.guests.machine import Boot, default_name, names
from harness.guests.session import find_agent
from harness.host.resources import resource
from harness.model import Verdict
from harness.store import RunStore
from harness.store.records import CaseStatus, How
from harness.tests.cli.runner import powercut
from harness.tests.guests.test_orphans import ended
from harness.tests.guests.toy import TOML, Toy
from harness.tests.needs import need_program, needed
from harness.tests.report.test_html import Page
from harness.trust import Named

WORKLOAD = """
summary = "Two directories, one of them durable"
operations = ["mkdir a", "sync", "mkdir b"]
"""


DEFECTS = ("forgetful", "mortal", "silent")
DEADLINE_S = 120.0

# Whoever starts the tests in the background may ignore SIGINT, and children inherit that.
PROGRAM = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from harness.__main__ import main
from harness.guests import machine
folder = pathlib.Path(sys.argv.pop(1))
machine._folder = lambda: folder
main()
"""


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's file lies beside the others."""
    with needed():
        disk_module.find_binary()
        find_agent()
    need_program("mkfs.ext4")
    folder = tmp_path / "machines"
    shutil.copytree(resource("vms", "machines"), folder)
    (folder / "toy.toml").write_text(TOML)
    monkeypatch.setattr(machine, "_folder", lambda: folder)
    (tmp_path / "dirs.toml").write_text(WORKLOAD)
    for name in ("kernel", *DEFECTS):
        (tmp_path / name).write_bytes(b"\x7fELF and nothing else")


def run(tmp_path: Path, kernel: str, *more: str) -> tuple[int, str, Path]:
    """`powercut run`: its exit code, what it printed, its run directory."""
    result = powercut(*words(tmp_path, kernel), *more)
    return result.exit_code, result.output, tmp_path / "reports" / "latest"


def words(tmp_path: Path, kernel: str) -> list[str]:
    given = ["-c", "ext4/ordered", *named(tmp_path, kernel)]
    return ["run", "--machine", "toy", *given, "-j", "1", "--out", f"{tmp_path / 'reports'}"]


def named(tmp_path: Path, kernel: str) -> list[str]:
    """The files that each command has to be told of, since a run directory chooses none."""
    return ["-w", f"{tmp_path / 'dirs.toml'}", "--kernel", f"{tmp_path / kernel}"]


def test_it_is_there_beside_the_others(tmp_path: Path) -> None:
    assert "toy" in names()
    assert default_name() != "toy"
    refused = powercut("run", "--machine", "toys")
    assert refused.exit_code == ExitCode.USAGE
    assert "toy" in refused.output
    assert "always there" in powercut("doctor").output


def test_it_previews_the_line_that_would_be_run(tmp_path: Path) -> None:
    code, output, _ = run(tmp_path, "kernel", "-n", "-v")
    assert (code, "harness.tests.guests.toy" in output) == (0, True), output


def test_it_records_and_judges_a_run(tmp_path: Path) -> None:
    code, output, path = run(tmp_path, "kernel")
    assert code == ExitCode.CONSISTENT, output
    assert "Toy 1.0 (imagination)" in output
    with RunStore.open(path) as store:
        assert (store.info.machine.kind, store.info.machine.name) == ("toy", "Toy 1.0")
        (case,) = store.cases()
        verdicts = [v.verdict.value for v in store.iter_verdicts(case.case)]
    assert set(verdicts) == {"pass"}
    assert len(verdicts) > 6


def kept_of(path: Path) -> list[object]:
    """Cases, states and findings, in their order, but for what took how long."""
    with RunStore.open(path) as store:
        cases = [store.rows_of(c.case) for c in store.cases()]
        hashes = [sorted(c.record.info.files) for c in cases]
        judged = [[dataclasses.replace(j, how=How.JUDGED) for j in c.judged] for c in cases]
        findings = [(f.id, str(f.state), f.states) for f in store.findings()]
        return [[(c.case, c.record.status) for c in cases], hashes, judged, findings]


def program_of(tmp_path: Path) -> str:
    """What a shard's process runs: it knows the machine, too."""
    folder = f"machine._folder = lambda: __import__('pathlib').Path({os.fspath(tmp_path / 'machines')!r}); "
    return shards._PROGRAM.replace("serve(int", f"from harness.guests import machine; {folder}serve(int")


@pytest.mark.parametrize("count", [2, 5])
def test_a_run_in_shards_finds_what_one_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    (tmp_path / "one.toml").write_text(WORKLOAD.replace("mkdir b", "mkdir c"))
    more = ["-w", f"{tmp_path / 'one.toml'}"]
    code, output, path = run(tmp_path, "forgetful", *more)
    assert code == ExitCode.INCONSISTENT, output
    alone = kept_of(path)
    monkeypatch.setattr(shards, "_PROGRAM", program_of(tmp_path))
    monkeypatch.setattr(run_module, "shard_sizes", lambda jobs, cases: [1] * count)
    code, output, path = run(tmp_path, "forgetful", *more)
    assert code == ExitCode.INCONSISTENT, output
    assert f"{count} at once in {count} processes" in output
    assert kept_of(path) == alone


def test_guests_that_never_come_up_end_cases_of_shards_as_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shard was refused, whatever else it had found, and the run had no cluster any more."""
    more = list[str]()
    for name in "cdefgh":
        (tmp_path / f"{name}.toml").write_text(WORKLOAD.replace("mkdir b", f"mkdir {name}"))
        more += ["-w", f"{tmp_path / name}.toml"]
    monkeypatch.setattr(shards, "_PROGRAM", program_of(tmp_path))
    monkeypatch.setattr(run_module, "shard_sizes", lambda jobs, cases: [1, 1])
    code, output, path = run(tmp_path, "mortal", *more)
    assert code == ExitCode.UNDECIDED, output
    assert "is left out" not in output
    assert "refused" not in output
    with RunStore.open(path) as store:
        assert len(store.cases()) == 7
        assert {c.status for c in store.cases()} <= {CaseStatus.DONE, CaseStatus.UNKNOWN}


IN_SHARDS = """
import harness.run
from harness.cluster import shards
shards._PROGRAM = {program!r}
harness.run.shard_sizes = lambda jobs, cases: [1, 1]
main()
"""


def test_a_run_in_shards_that_is_killed_goes_on_and_finds_what_one_process_finds(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(WORKLOAD.replace("mkdir b", "mkdir c"))
    more = ["-w", f"{tmp_path / 'one.toml'}"]
    _, _, path = run(tmp_path, "forgetful", *more)
    alone = kept_of(path)
    program = PROGRAM.replace("main()", IN_SHARDS.format(program=program_of(tmp_path)))
    out = ["--out", f"{tmp_path / 'killed'}"]
    argv = [sys.executable, "-c", program, str(tmp_path / "machines")]
    with subprocess.Popen([*argv, *words(tmp_path, "forgetful"), *more, *out]) as process:
        deadline = time.monotonic() + DEADLINE_S
        while not has_done(tmp_path / "killed") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        started = descendants_of(process.pid)
        process.kill()
    assert ended(started)
    killed = (tmp_path / "killed" / "latest").resolve()
    again = [*argv, "run", "--resume", str(killed), *named(tmp_path, "forgetful"), *more]
    resumed = subprocess.run(again, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert resumed.returncode == ExitCode.INCONSISTENT, resumed.stdout + resumed.stderr
    assert kept_of(killed) == alone


def has_done(reports: Path) -> bool:
    """Whether the run there has decided a case."""
    database = f"file:{reports}/latest/powercut.sqlite?mode=ro"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(database, uri=True)) as db:
        return bool(db.execute("SELECT 1 FROM cases WHERE status = 'done'").fetchone())
    return False


def test_what_it_loses_is_found_and_reproduced(tmp_path: Path) -> None:
    code, output, path = run(tmp_path, "forgetful")
    assert code == ExitCode.INCONSISTENT, output
    found = re.search(r"powercut repro (\S+)", output)
    assert found, output
    again = powercut("repro", found[1], "--from", path, *named(tmp_path, "forgetful"))
    assert again.exit_code == ExitCode.INCONSISTENT, again.output
    assert "FAIL" in again.output


def test_a_machine_without_a_console_says_so(tmp_path: Path) -> None:
    _, _output, path = run(tmp_path, "kernel")
    with RunStore.open(path) as store:
        (case,) = store.cases()
    given = [f"{case.case}@1", "--from", path, *named(tmp_path, "kernel"), "--shell"]
    shown = powercut("repro", *given)
    assert shown.exit_code == ExitCode.USAGE, shown.output
    assert "Toy gives no console" in shown.output


def test_a_console_has_the_recovered_disk_beside_the_crashed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compare the two, one had to mount the crashed disk, look, and begin anew."""
    _, output, path = run(tmp_path, "forgetful")
    found = re.search(r"powercut repro (\S+)", output)
    assert found, output
    opened = []

    def console(_: Toy, boot: Boot) -> int:
        opened.append((boot.shell_recovered, boot.log.stat().st_size))
        return 0

    monkeypatch.setattr(Toy, "shell", console)
    done = powercut("repro", found[1], "--from", path, *named(tmp_path, "forgetful"), "--shell")
    assert done.exit_code == ExitCode.CONSISTENT, done.output
    assert opened == [(True, 64 << 20)]
    assert "recovered: `mkdir a` (operation 0) is undone" in done.output


def test_a_state_is_opened_live_with_what_recovery_read_and_wrote(tmp_path: Path) -> None:
    """`powercut report --serve`, with a guest, a disk and a file system of its own."""
    _, output, path = run(tmp_path, "forgetful")
    found = re.search(r"powercut repro (\S+)", output)
    assert found, output
    named_here = Named(kernel=f"{tmp_path / 'forgetful'}", workloads=(f"{tmp_path / 'dirs.toml'}",))
    with RunStore.open(path) as store:
        site = Site(store, named_here, "auto")
        site.look(f"/state/{found[1]}")
        page = Page(site.page(f"/state/{found[1]}"))
    said = [text for _, text in page.texts]
    assert any("`mkdir a`" in text or "is undone" in text for text in said)
    read = said[said.index("What recovery read, in order, and what the walk read behind it") :]
    assert read[4] == "0"  # the block with its only sector
    assert "Nothing." in read[read.index("What recovery and unmount wrote") :]


def test_a_kernel_that_no_longer_boots_ends_the_run_undecided(tmp_path: Path) -> None:
    """Three boots in vain for every state; the last of thousands was given up after days."""
    code, output, path = run(tmp_path, "mortal")
    assert code == ExitCode.UNDECIDED, output
    assert "3 guests in a row did not come up" in output
    assert (tmp_path / "boots").read_text().split() == ["mortal"] * 4
    with RunStore.open(path) as store:
        (case,) = store.cases()
        judged = list(store.iter_verdicts(case.case))
    assert len(judged) > 6
    assert {v.verdict for v in judged} == {Verdict.UNKNOWN}


def descendants_of(pid: int) -> list[int]:
    """Its disk and its guest, and of a run the process of the worker whose children they are."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found |= {child, *descendants_of(child)}
    return sorted(found)


def interrupted(tmp_path: Path, number: signal.Signals, *given: str, stopped: bool) -> tuple[int, str]:
    """Signal a command whose guest boots: its exit code, and what it said. What it has started has ended."""
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "machines"), *given]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + DEADLINE_S
        while not (tmp_path / "boots").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        started = descendants_of(process.pid)
        if stopped:
            for pid in started:
                os.kill(pid, signal.SIGSTOP)
        process.send_signal(number)
        try:
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert len(started) >= 2
    assert ended(started)
    return process.returncode, output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_signal_ends_a_run_whose_guest_boots_or_whose_disk_is_stopped(
    tmp_path: Path, number: signal.Signals, stopped: bool
) -> None:
    """It was heard after minutes, once only when it was sent again."""
    code, output = interrupted(tmp_path, number, *words(tmp_path, "silent"), stopped=stopped)
    assert code == ExitCode.INTERRUPTED, output


@pytest.mark.parametrize("stopped", [False, True])
def test_a_signal_ends_a_repro_whose_guest_boots_or_whose_disk_is_stopped(
    tmp_path: Path, stopped: bool
) -> None:
    _, _output, path = run(tmp_path, "kernel")
    (tmp_path / "boots").unlink()
    with RunStore.open(path) as store:
        (case,) = store.cases()
    given = [f"{case.case}@1", "--from", str(path), *named(tmp_path, "silent")]
    code, output = interrupted(tmp_path, signal.SIGTERM, "repro", *given, stopped=stopped)
    assert code == ExitCode.INTERRUPTED, output
