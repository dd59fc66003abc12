"""The run directory: made, found again, and refused with the reason where it cannot be used."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.errors import StoreError, UsageError
from harness.store import RunStore
from harness.store.database import Database
from harness.store.directory import make_directory
from harness.tests.store.samples import INFO


def test_two_runs_in_one_second_have_two_directories_and_latest_is_the_second(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO) as first, RunStore.create(tmp_path, "t", INFO) as second:
        assert first.path != second.path
        assert first.path.name == "20260102-030405-t"
        assert (tmp_path / "latest").resolve() == second.path
        assert not (tmp_path / "latest").readlink().is_absolute()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "runs"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "-x", "a\n", "n" * 65])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        RunStore.create(tmp_path, name, INFO)


def test_a_place_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    """Measurements and series ended with the bare error of the system call."""
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(StoreError, match="cannot make a run directory"):
        RunStore.create(tmp_path, "t", INFO)
    with pytest.raises(StoreError, match="cannot make a run directory"):
        make_directory(tmp_path, "measure-t", INFO.started)


def test_run_json_comes_back_through_the_latest_link(tmp_path: Path, store: RunStore) -> None:
    store.finish(datetime(2026, 1, 2, 4, 0, 0, tzinfo=UTC), interrupted=True)
    store.close()
    with RunStore.open(tmp_path / "latest") as again:
        assert again.info == store.info
        assert again.info.interrupted
        assert again.path == store.path


# --- what cannot be opened -------------------------------------------------------------------


def no_directory(run: Path) -> Path:
    return run / "nowhere"


def no_database(run: Path) -> Path:
    (run / "powercut.sqlite").unlink()
    return run


def damaged_json(run: Path) -> Path:
    (run / "run.json").write_text('{"schema": 3, "name":')
    return run


def incomplete_json(run: Path) -> Path:
    (run / "run.json").write_text('{"schema": 3}')
    return run


def damaged_database(run: Path) -> Path:
    (run / "powercut.sqlite").write_bytes(b"not a database, but long enough to look at" * 99)
    return run


def torn_database(run: Path) -> Path:
    file = run / "powercut.sqlite"
    file.write_bytes(file.read_bytes()[: 3 * 4096])
    return run


def foreign_database(run: Path) -> Path:
    (run / "powercut.sqlite").unlink()
    sqlite3.connect(run / "powercut.sqlite").execute("CREATE TABLE meta (key TEXT, value TEXT)").close()
    return run


def other_schema(run: Path) -> Path:
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"schema": 3', '"schema": 7'))
    return run


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_directory, "is not a run directory"),
        (no_database, "no powercut.sqlite"),
        (damaged_json, "run.json is damaged"),
        (incomplete_json, "run.json is damaged"),
        (damaged_database, "powercut.sqlite is damaged"),
        (torn_database, "powercut.sqlite is damaged"),
        (foreign_database, "it names no schema"),
        (other_schema, "written in schema 7, this powercut reads schema 3"),
    ],
)
def test_what_cannot_be_opened_says_why_and_what_to_do(
    store: RunStore, spoil: Callable[[Path], Path], said: str
) -> None:
    store.close()
    with pytest.raises(StoreError, match=re.escape(said)) as caught:
        RunStore.open(spoil(store.path))
    assert caught.value.next_step


def test_a_database_of_another_schema_is_refused(store: RunStore) -> None:
    store.close()
    with sqlite3.connect(store.path / "powercut.sqlite") as database:
        database.execute("UPDATE meta SET value = '9'")
    with pytest.raises(StoreError, match="written in schema 9, this powercut reads schema 3"):
        RunStore.open(store.path)


def test_a_run_of_before_runs_could_be_stopped_still_loads(tmp_path: Path) -> None:
    """Its run.json has no `stopped`, and its digest was made without one."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        path = store.path
    fields = json.loads((path / "run.json").read_text())
    assert fields.pop("stopped") == ""
    (path / "run.json").write_text(json.dumps(fields))
    with RunStore.open(path) as store:
        assert store.info.stopped == ""


def test_why_a_run_was_stopped_cannot_be_taken_away(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.finish(stopped="the time was up")
        path = store.path
    file = path / "run.json"
    file.write_text(file.read_text().replace("the time was up", ""))
    with pytest.raises(StoreError, match="digest"):
        RunStore.open(path)


def test_a_run_that_a_full_disk_ends_while_it_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try left a folder that gc did not see; "name a folder that you may write to"."""

    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Database, "create", full)
    with pytest.raises(StoreError, match="disk is full") as caught:
        RunStore.create(tmp_path, "t", INFO)
    assert caught.value.next_step == "free some space, or name a folder on another disk: --out DIR"
    assert not list((tmp_path / "runs").iterdir())
