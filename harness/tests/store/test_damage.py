"""A run directory that was damaged reads as what it was, or not at all: never green, never a traceback."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import ExitCode, StoreError
from harness.model import CrashState, Judgement
from harness.store import RunStore, rows
from harness.store.database import Database
from harness.store.records import CaseInfo, CaseStatus, JudgedState
from harness.summary import exit_code, summarise
from harness.tests.store.damage import (
    Change,
    Read,
    attack,
    change_byte,
    cut_off,
    flip_bit,
    read,
    small_run,
    zero_sector,
)
from harness.tests.store.samples import CASE, broken, put


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("sound"))


def test_the_sound_run_reads_as_what_it_is(run: Path) -> None:
    assert read(run) is Read.SAME


@pytest.mark.parametrize(
    ("name", "change", "times"),
    [
        ("powercut.sqlite", change_byte, 1000),
        ("powercut.sqlite", zero_sector, 50),
        ("powercut.sqlite", cut_off, 50),
        ("run.json", flip_bit, 200),
        ("run.json", cut_off, 50),
        ("plan.json", flip_bit, 100),
        ("plan.json", cut_off, 20),
    ],
)
def test_a_damaged_run_is_the_same_red_or_refused(
    run: Path, tmp_path: Path, name: str, change: Change, times: int
) -> None:
    """With the violations gone (one byte is enough) a case showed 53 failed states, no findings, and PASS;
    other bytes ended in UnicodeDecodeError, ValueError and sqlite3's errors.
    """
    found = attack(run, tmp_path, name, seed=1, times=times, change=change)
    assert found[Read.REFUSED] > 0
    assert found.total() == times


SPOILT = [
    "DELETE FROM violations",
    "DELETE FROM violations WHERE case_id = 1 AND state = '@0'",
    "DELETE FROM states WHERE case_id = 1 AND state = '@0'",
    "DELETE FROM states WHERE case_id = 1 AND verdict = 'fail'",
    "DELETE FROM cases WHERE id = 1",
    "UPDATE states SET verdict = 'pass' WHERE case_id = 1",
    "UPDATE states SET verdict = 'green' WHERE case_id = 1",
    "UPDATE states SET case_id = 4, state = '@77' WHERE case_id = 1 AND state = '@0'",
    "UPDATE cases SET name = 'ext4-nobarrier/other' WHERE id = 1",
    "UPDATE cases SET status = 'not-run' WHERE id = 1",
    "UPDATE cases SET mismatch = 'x' WHERE id = 4",
    "UPDATE cases SET timeline = x'5b5d' WHERE id = 1",
    "UPDATE expectations SET body = replace(body, 'nobarrier', '*')",
    "DELETE FROM expectations",
    "DELETE FROM meta WHERE key = 'cases'",
    "UPDATE evidence SET body = x'7b7d'",
    "INSERT INTO violations SELECT 4, '@1', number, oracle, signature, subject, summary, expected, found"
    " FROM violations WHERE case_id = 1 AND state = '@0'",
    "INSERT INTO states SELECT 99, state, prefix, weight, content_hash, verdict, how, unknown, digest"
    " FROM states WHERE case_id = 4",
    "ALTER TABLE states RENAME COLUMN verdict TO said",
    "CREATE TABLE more (x)",
]


@pytest.mark.parametrize("sql", SPOILT)
@pytest.mark.parametrize("keys", ["ON", "OFF"])
def test_rows_that_are_not_what_was_written_are_refused(tmp_path: Path, sql: str, keys: str) -> None:
    run = small_run(tmp_path)
    with sqlite3.connect(run / "powercut.sqlite") as database:
        database.execute(f"PRAGMA foreign_keys = {keys}")
        try:
            database.execute(sql)
        except sqlite3.IntegrityError:
            database.execute("DELETE FROM meta")
    database.close()
    with pytest.raises(StoreError, match=r"powercut\.sqlite is damaged"):
        RunStore.open(run)


def test_the_database_of_an_earlier_moment_is_not_that_of_the_finished_run(tmp_path: Path) -> None:
    """A WAL file with a damaged byte is one that ends there: what came later would be gone without a word."""
    run = small_run(tmp_path)
    before = (run / "powercut.sqlite").read_bytes()
    with RunStore.open(run) as store:
        store.set_case_mismatch(CASE, "two outcomes")
        store.finish()
    after = read_mismatch(run)
    (run / "powercut.sqlite").write_bytes(before)
    assert after == "two outcomes"
    with pytest.raises(StoreError, match="not the database that the run was finished with"):
        RunStore.open(run)


def read_mismatch(run: Path) -> str:
    with RunStore.open(run) as store:
        record = store.case(CASE)
        assert record is not None
        return record.mismatch


def test_what_is_judged_after_the_end_opens_the_run_again(tmp_path: Path) -> None:
    with RunStore.open(small_run(tmp_path)) as store:
        put(store, JudgedState(CrashState(1), "1", broken()))
        assert store.info.finished is None
        with RunStore.open(store.path) as again:
            assert summarise(again).interrupted


def test_rows_that_change_often_keep_their_digests(store: RunStore) -> None:
    for i in range(6):
        put(store, JudgedState(CrashState(i), "h", broken() if i % 2 else Judgement()))
        put(store, JudgedState(CrashState(i), "h", Judgement() if i % 2 else broken()))
        store.add_case_seconds(CASE, i * 0.1)
        store.set_case_status(CASE, CaseStatus.UNKNOWN, f"caf\udce9 {i}")
    with RunStore.open(store.path) as again:
        assert again.counts(CASE) == store.counts(CASE)
        assert again.findings() == store.findings()


# --- what contradicts itself, whoever wrote it -----------------------------------------------


def test_a_verdict_follows_from_states_and_findings(store: RunStore) -> None:
    """53 failed states, no findings: that read PASS, exit 0."""
    store.add_case(CaseInfo(CASE, generated=2, distinct=2))
    put(
        store,
        JudgedState(CrashState(1), "1", broken()),
        JudgedState(CrashState(2), "2", Judgement()),
    )
    store.set_case_status(CASE, CaseStatus.DONE)
    store.finish()
    assert exit_code(summarise(store)) is ExitCode.INCONSISTENT
    with store._database.transaction() as database:
        database.execute("DELETE FROM violations")
    (case,) = summarise(store).cases
    assert case.undecided == "1 of 2 states have a verdict without its reason"
    assert exit_code(summarise(store)) is ExitCode.UNDECIDED


@pytest.mark.parametrize(
    ("generated", "said"), [(3, "only 2 of 3 states have a verdict"), (1, "2 states were")]
)
def test_a_case_is_done_only_with_a_verdict_for_every_state(
    store: RunStore, generated: int, said: str
) -> None:
    store.add_case(CaseInfo(CASE, generated=generated, distinct=2))
    put(store, *(JudgedState(CrashState(i), f"{i}", Judgement()) for i in range(2)))
    store.set_case_status(CASE, CaseStatus.DONE)
    store.finish()
    assert summarise(store).cases[0].undecided.startswith(said)
    assert exit_code(summarise(store)) is ExitCode.UNDECIDED


def test_a_run_that_is_written_while_it_is_opened_is_not_damaged(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts were read one after another, so what another process wrote in between looked like damage."""
    root = rows.root

    def meanwhile(database: Database) -> str:
        store.add_case(CaseInfo(replace(CASE, workload="another"), generated=1, distinct=1))
        return root(database)

    monkeypatch.setattr(rows, "root", meanwhile)
    with RunStore.open(store.path) as opened:
        assert len(opened.cases()) == len(store.cases())
