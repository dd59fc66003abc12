"""The store: what was put in comes out, and after a kill."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.errors import StoreError
from harness.host.files import json_bytes
from harness.model import CrashState, Judgement, Part, Persisted, Verdict
from harness.store import RunStore
from harness.store.database import Database
from harness.store.records import (
    CaseInfo,
    CaseNote,
    CaseRows,
    CaseStatus,
    DrawnEntry,
    Evidence,
    How,
    JudgedState,
    finding_id,
)
from harness.summary import summarise
from harness.tests.store.samples import CASE, INFO, OTHER, broken, put


def test_putting_the_same_batch_twice_changes_nothing(store: RunStore) -> None:
    batch = [JudgedState(CrashState(3), "h", broken()), JudgedState(CrashState(4), "i", Judgement())]
    put(store, *batch)
    once = (store.counts(CASE), store.findings(), list(store.iter_verdicts(CASE)))
    put(store, *batch)
    assert (store.counts(CASE), store.findings(), list(store.iter_verdicts(CASE))) == once
    assert once[0].failed == once[0].passed == 1


def test_an_unknown_state_can_be_decided_later(store: RunStore) -> None:
    put(store, JudgedState(CrashState(3), "h", Judgement(unknown=("guest lost",))))
    assert store.judged_states(CASE) == {"@3"}
    assert store.counts(CASE).unknown == 1
    put(store, JudgedState(CrashState(3), "h", Judgement()))
    assert store.counts(CASE).unknown == 0
    assert store.unknown_reasons(CASE) == ()
    store.finish()
    RunStore.open(store.path).close()  # its digests hold


def test_findings_have_different_names_unless_they_are_the_same() -> None:
    """Evidence, folders and links go by that name."""
    asked = [(CASE, "o", "s"), (CASE, "o", "t"), (CASE, "p", "s"), (OTHER, "o", "s")]
    assert len({finding_id(*one) for one in asked}) == len(asked)
    assert finding_id(CASE, "o", "s") == finding_id(CASE, "o", "s")


def test_states_that_nobody_looked_at_are_of_one_content_each(store: RunStore) -> None:
    """Their contents have no hash: all of them counted as one."""
    unknown = Judgement(unknown=("guest lost",))
    put(store, *(JudgedState(CrashState(prefix), "", unknown) for prefix in (1, 2)))
    assert store.counts(CASE).contents == 2


def _names(file: Path) -> set[str]:
    """The states that somebody else finds in the store at this moment."""
    with contextlib.closing(sqlite3.connect(file)) as other:
        return {name for (name,) in other.execute("SELECT state FROM states")}


def test_what_is_stored_together_is_there_at_once_and_at_the_end(store: RunStore) -> None:
    """Each visit was committed on its own, with a flush of the host's disk that took as long as a visit."""
    file = store.path / "powercut.sqlite"
    with store.together():
        put(store, JudgedState(CrashState(1), "h", broken()))
        put(store, JudgedState(CrashState(2), "i", Judgement()))
        assert store.judged_states(CASE) == {"@1", "@2"}
        assert _names(file) == set()
    assert _names(file) == {"@1", "@2"}


def test_a_part_that_fails_takes_nothing_else_back(store: RunStore) -> None:
    """An interrupted run keeps its verdicts so far, also those that were about to be committed."""

    def batch() -> Iterator[JudgedState]:
        yield JudgedState(CrashState(2), "h", broken())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), store.together():
        put(store, JudgedState(CrashState(1), "h", broken()))
        store.put_judgements(CASE, batch())
    assert _names(store.path / "powercut.sqlite") == {"@1"}
    put(store, JudgedState(CrashState(3), "h", Judgement()))
    store.finish()
    with RunStore.open(store.path) as again:  # its digests hold
        assert again.judged_states(CASE) == {"@1", "@3"}


def test_a_run_ends_although_a_signal_left_a_transaction_open(store: RunStore) -> None:
    """A run ended with "database table is locked" and a traceback: SIGTERM had come after BEGIN."""
    put(store, JudgedState(CrashState(1), "h", Judgement()))
    store._database._connection.execute("BEGIN IMMEDIATE")
    store._database._connection.execute("DELETE FROM states")
    store.finish(interrupted=True)
    put(store, JudgedState(CrashState(2), "h", Judgement()))
    store.finish()
    with RunStore.open(store.path) as again:  # its digests hold
        assert again.judged_states(CASE) == {"@1", "@2"}


def test_a_mismatch_that_is_stored_together_with_others_is_checkpointed_with_them(store: RunStore) -> None:
    """SQLite refuses a checkpoint in the middle of a transaction."""
    with store.together():
        store.set_case_mismatch(CASE, "the memo was wrong")
        put(store, JudgedState(CrashState(1), "h", Judgement()))
    wal = store.path / "powercut.sqlite-wal"
    assert not wal.exists() or not wal.stat().st_size
    assert summarise(store).cases[0].mismatch == "the memo was wrong"


def test_a_batch_that_fails_half_way_leaves_nothing(store: RunStore) -> None:
    def batch() -> Iterator[JudgedState]:
        yield JudgedState(CrashState(1), "h", broken())
        raise RuntimeError("the guest's thread died")

    with pytest.raises(RuntimeError):
        store.put_judgements(CASE, batch())
    assert store.judged_states(CASE) == set()
    put(store, JudgedState(CrashState(2), "h", Judgement()))  # and the store still works
    assert store.judged_states(CASE) == {"@2"}


def test_verdicts_come_with_how_and_why_by_prefix(store: RunStore) -> None:
    put(
        store,
        JudgedState(CrashState(12), "h", Judgement(), How.MEMO),
        JudgedState(CrashState(5, (2,)), "i", Judgement(unknown=("no fsck",)), How.SAME_CONTENT),
        JudgedState(CrashState(5), "j", broken()),
    )
    seen = list(store.iter_verdicts(CASE))
    assert [str(v.state) for v in seen] == ["@5", "@5-2", "@12"]
    assert [v.verdict for v in seen] == [Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS]
    assert [v.how for v in seen] == [How.JUDGED, How.SAME_CONTENT, How.MEMO]
    assert seen[1].unknown == ("no fsck",)
    assert store.counts_by_how(CASE) == {How.JUDGED: 1, How.SAME_CONTENT: 1, How.MEMO: 1}


def test_adding_a_case_again_keeps_its_verdicts(store: RunStore) -> None:
    store.add_case(CaseInfo(CASE, log_hash="one"))
    put(store, JudgedState(CrashState(3), "h", broken()))
    store.set_case_status(CASE, CaseStatus.DONE)
    store.add_case(CaseInfo(CASE, log_hash="one", generated=4))
    store.add_case(CaseInfo(CASE))
    assert store.judged_states(CASE) == {"@3"}
    assert store.cases()[0].status is CaseStatus.DONE
    assert store.cases()[0].info.generated == 4


def test_another_recording_drops_no_verdict(store: RunStore) -> None:
    """Its verdicts, of whatever colour, went without a word, and the case was judged anew."""
    store.add_case(CaseInfo(CASE, log_hash="one"))
    put(store, JudgedState(CrashState(3), "h", broken()))
    with pytest.raises(StoreError, match="log one then, two now"):
        store.add_case(CaseInfo(CASE, log_hash="two"))
    assert len(store.findings()) == 1


def test_a_doubt_is_there_after_reopening_and_until_it_is_withdrawn(store: RunStore) -> None:
    """It lived in memory: a resumed run turned 97 UNKNOWN states into 97 that had passed."""
    store.set_case_mismatch(CASE, "two outcomes")
    store.close()
    with RunStore.open(store.path) as again:
        again.add_case(CaseInfo(CASE, log_hash="one"))
        again.set_case_status(CASE, CaseStatus.DONE)
        assert again.cases()[0].mismatch == "two outcomes"
        assert summarise(again).cases[0].undecided == "two outcomes"
        again.set_case_mismatch(CASE, "")
        assert again.cases()[0].mismatch == ""


def test_a_case_that_was_never_added_is_named(store: RunStore) -> None:
    with pytest.raises(StoreError, match="no case xfs-default/append-fsync"):
        store.judged_states(OTHER)
    assert store.case(OTHER) is None


def test_names_that_are_no_text_are_kept_readable(store: RunStore) -> None:
    put(store, JudgedState(CrashState(3), "h", broken(subject="caf\udce9", signature="x\udcff")))
    (finding,) = store.findings()
    assert finding.violations[0].subject == r"caf\udce9"
    assert finding.id == finding_id(CASE, "durability", "x\udcff")


def test_threads_may_write_at_the_same_time(store: RunStore) -> None:
    def work(first: int) -> None:
        for i in range(20):
            put(store, JudgedState(CrashState(first + i), "h", Judgement()))

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.counts(CASE).passed == 80


# --- a kill ----------------------------------------------------------------------------------

_WRITER = """
import os, signal, sys
from pathlib import Path
from harness.model import CrashState, Judgement
from harness.store import RunStore
from harness.store.records import JudgedState
from harness.summary import summarise
from harness.tests.store.samples import CASE

store = RunStore.open(Path(sys.argv[1]))
number = 0
while True:
    batch = [JudgedState(CrashState(number + i), "h", Judgement()) for i in range(5)]
    store.put_judgements(CASE, batch)
    number += 5
    print(number, flush=True)
    if number == 50:
        with store._database.transaction() as database:
            database.execute("DELETE FROM states")
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_kill_9_every_batch_that_returned_is_there(store: RunStore) -> None:
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", _WRITER, str(store.path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.splitlines()[-1] == "50"
    with RunStore.open(store.path) as again:
        assert again.judged_states(CASE) == {f"@{i}" for i in range(50)}
        again.put_judgements(CASE, [JudgedState(CrashState(50), "h", Judgement())])
        assert again.counts(CASE).passed == 51
        assert again.info.finished is None


def test_a_case_travels_whole_from_one_run_directory_to_another(store: RunStore, tmp_path: Path) -> None:
    """Rows, violations, evidence, mismatch, timeline: all is as it was, and passes every digest."""
    info = CaseInfo(CASE, log_hash="one", generated=3, timeline=(DrawnEntry(0, "write", 8, 8),))
    store.add_case(info)
    by_times = CrashState(9, persisted=Persisted((Part(4, block=2),), only=True))
    put(
        store,
        JudgedState(CrashState(3, (1,), 2), "h", broken()),
        JudgedState(by_times, "i", Judgement(unknown=("guest lost",)), How.MEMO),
        JudgedState(CrashState(4), "j", Judgement()),
    )
    store.put_evidence(store.findings_of(CASE)[0], Evidence(CrashState(3), "log \udcff", "fsck", {"a": "b"}))
    store.set_case_status(CASE, CaseStatus.UNKNOWN, "why")
    store.set_case_mismatch(CASE, "two outcomes")
    store.add_case_seconds(CASE, 1.5)
    rows = msgspec.json.decode(json_bytes(store.rows_of(CASE)), type=CaseRows)
    assert rows.record.seconds == 1.5
    with RunStore.create(tmp_path / "other", "other", INFO) as other:
        other.add_case(CaseInfo(OTHER))
        other.add_case(CaseInfo(CASE))
        other.put_judgements(CASE, [JudgedState(CrashState(1), "gone", broken("other"))])
        other.adopt(rows)
        assert other.rows_of(CASE) == store.rows_of(CASE)
        assert other.findings_of(CASE) == store.findings_of(CASE)
        other.adopt(rows)
        assert other.rows_of(CASE) == rows
    RunStore.open(other.path).close()


def test_a_case_of_another_recording_is_not_adopted(store: RunStore) -> None:
    store.add_case(CaseInfo(CASE, log_hash="one"))
    put(store, JudgedState(CrashState(3), "h", broken()))
    rows = store.rows_of(CASE)
    for log_hash in ("", "two"):
        other = replace(rows, record=replace(rows.record, info=CaseInfo(CASE, log_hash=log_hash)))
        with pytest.raises(StoreError):
            store.adopt(other)
        assert store.rows_of(CASE) == rows


def test_a_case_that_is_dropped_leaves_no_trace(store: RunStore) -> None:
    """A session's own run directory would grow with every case, and each take longer than the one before."""
    store.add_case(CaseInfo(OTHER))
    (store.case_directory(CASE) / "log.zst").write_bytes(b"log")
    put(store, JudgedState(CrashState(3), "h", broken()))
    store.put_evidence(store.findings_of(CASE)[0], Evidence(CrashState(3)))
    store.drop(CASE)
    assert [record.case for record in store.cases()] == [OTHER]
    assert not store.layout.case(CASE).folder.exists()
    assert not store.findings()
    store.close()
    with RunStore.open(store.path) as again:
        again.add_case(CaseInfo(CASE))
        assert again.counts(CASE).checked == 0


def test_a_run_that_is_resumed_while_it_is_opened_is_not_damaged(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run.json was read first: "is damaged: it is not the database that the run was finished with"."""
    store.finish()
    opened = Database.open

    def slow(file: Path) -> Database:
        database = opened(file)
        store.set_case_status(CASE, CaseStatus.RECORDED)  # another process
        return database

    monkeypatch.setattr(Database, "open", slow)
    with RunStore.open(store.path) as found:
        assert found.info.finished is None


def test_notes_are_kept_and_leave_the_seal_as_it_is(tmp_path: Path) -> None:
    """A run without any, such as those of before, has the digest that it had."""
    with RunStore.create(tmp_path, "t", INFO) as store:
        store.finish(INFO.started)
        before = store.info
        assert '"notes":[{' not in "".join((store.path / "run.json").read_text().split())
        store.put_notes([CaseNote(str(CASE), "what it shows may be older")])
        assert store.info.digest != before.digest
        assert replace(store.info, digest=before.digest, notes=()) == before
    with RunStore.open(store.path) as again:
        assert again.info == store.info
        again.put_notes([])
        assert again.info == before
