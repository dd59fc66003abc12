"""Runs that can only be read: of another user, or on a medium that takes no writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cli import repro, show, triage
from harness.plan import Plan
from harness.report import write_reports
from harness.report.explanation import Explanation
from harness.store import RunStore
from harness.store import bundle as packing
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.report.demo import demo_run


def access(path: str | Path, mode: int, ask: Callable[..., bool] = os.access) -> bool:
    """access(2), but that root may not write what nobody may."""
    return ask(path, mode) and (mode != os.W_OK or bool(Path(path).stat().st_mode & stat.S_IWUSR))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with demo_run(tmp_path / "reports") as store:
        store.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
        write_reports(store)
        path = store.path
        (path / "triage").mkdir()
        (path / "shrunk").mkdir()
    (path / "lock").touch()
    (path / "lock").chmod(0o444)
    folders = [path, *(p for p in path.rglob("*") if p.is_dir())]
    monkeypatch.setattr(os, "access", access)
    for folder in folders:
        folder.chmod(0o555)
    yield path
    for folder in folders:
        folder.chmod(0o755)


def test_work_whose_result_could_not_be_kept_is_not_begun(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took minutes, and was lost: "Read-only file system"."""
    for module, work in ((triage, "triage"), (repro, "shrink")):
        monkeypatch.setattr(module, work, lambda *_, **__: pytest.fail("it was begun"))
    assert "--output" in refused("triage", run)
    with RunStore.open(run) as store:
        case = store.findings()[0].case
    assert "--output" in refused("shrink", case, "--from", run)


def test_an_explanation_that_cannot_be_kept_is_told_all_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore.open(run) as store:
        finding = store.findings()[0]
    found = Explanation(finding.id, "lost", "No flush.", {}, (), str(finding.crash_point))
    monkeypatch.setattr(show, "find_out", lambda *_: (found, ""))
    done = powercut("show", finding.id, "--from", run)
    assert done.exit_code == 0, done.output
    assert "No flush." in done.stdout
    assert "the explanation is not kept" in done.stderr


def test_a_summary_is_printed_and_reports_stay_as_they_are(run: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*.html")}
    done = powercut("report", run)
    assert "its reports stay as they are" in done.stderr
    assert "Failed" in done.stdout
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*.html")} == before


def test_such_a_run_is_packed_without_its_lock(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the package could not be written to, it said: the run's lock was refused."""
    monkeypatch.setattr(packing, "locked", lambda *_: pytest.fail("it was locked"))
    printed("pack", run, "--output", tmp_path / "run.tar.zst")
    assert (tmp_path / "run.tar.zst").is_file()


def test_the_database_of_such_a_run_has_nothing_made_beside_it(run: Path) -> None:
    """On a read-only mount no command could open it: "unable to open database file", with a traceback."""
    with RunStore.open(run) as store:
        assert store.findings()
        assert not [p.name for p in run.glob("*.sqlite-*")]
