"""The store: what was put in comes out, in whatever order, and after a kill."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import StoreError, UsageError
from harness.model import CaseId, CrashState, EntryFlag, Judgement, LogEntry, Verdict, Violation
from harness.store import (
    CaseInfo,
    CaseStatus,
    Evidence,
    How,
    JudgedState,
    KernelInfo,
    MachineInfo,
    RunInfo,
    RunStore,
    finding_id,
    state_order,
    timeline_of,
)

CASE = CaseId("ext4", "ordered", "append-fsync")
OTHER = CaseId("xfs", "default", "append-fsync")
INFO = RunInfo(
    name="any",
    powercut="0.1.0",
    git_head="abc",
    argv=("powercut", "run"),
    kernel=KernelInfo("bzImage"),
    machine=MachineInfo("qemu", "tcg"),
    host="host",
    started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, "t", INFO) as made:
        made.add_case(CaseInfo(CASE, generated=9, distinct=8))
        yield made


def broken(signature: str = "s", oracle: str = "durability", subject: str = "a") -> Judgement:
    return Judgement((Violation(oracle, subject, "gone", "data", "nothing", signature),))


def put(store: RunStore, *judged: JudgedState) -> None:
    store.put_judgements(CASE, judged)


# --- the directory ---------------------------------------------------------------------------


def test_two_runs_in_one_second_have_two_directories_and_latest_is_the_second(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO) as first, RunStore.create(tmp_path, "t", INFO) as second:
        assert first.path != second.path
        assert first.path.name == "20260102-030405-t"
        assert (tmp_path / "latest").resolve() == second.path
        assert not (tmp_path / "latest").readlink().is_absolute()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "runs"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "-x", "a\n"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        RunStore.create(tmp_path, name, INFO)


def test_a_place_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(StoreError, match="cannot make a run directory"):
        RunStore.create(tmp_path, "t", INFO)


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
    (run / "run.json").write_text('{"schema": 1, "name":')
    return run


def incomplete_json(run: Path) -> Path:
    (run / "run.json").write_text('{"schema": 1}')
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
    (run / "run.json").write_text(text.replace('"schema": 1', '"schema": 7'))
    return run


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_directory, "is no run directory"),
        (no_database, "no powercut.sqlite"),
        (damaged_json, "run.json is damaged"),
        (incomplete_json, "run.json is damaged"),
        (damaged_database, "powercut.sqlite is damaged"),
        (torn_database, "powercut.sqlite is damaged"),
        (foreign_database, "it names no schema"),
        (other_schema, "written in schema 7, this powercut reads schema 1"),
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
    with pytest.raises(StoreError, match="written in schema 9, this powercut reads schema 1"):
        RunStore.open(store.path)


# --- verdicts --------------------------------------------------------------------------------


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
    assert store.judged_states(CASE, decided_only=True) == set()
    put(store, JudgedState(CrashState(3), "h", Judgement()))
    assert store.judged_states(CASE, decided_only=True) == {"@3"}
    assert store.counts(CASE).unknown == 0
    assert store.unknown_reasons(CASE) == ()


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


def test_adding_a_case_again_keeps_its_verdicts_unless_it_was_recorded_anew(store: RunStore) -> None:
    store.add_case(CaseInfo(CASE, log_hash="one"))
    put(store, JudgedState(CrashState(3), "h", broken()))
    (finding,) = store.findings()
    store.put_evidence(finding, Evidence(finding.state, "oops"))
    store.set_case_status(CASE, CaseStatus.DONE)
    number = store.add_case(CaseInfo(CASE, log_hash="one", generated=4))
    assert number == store.add_case(CaseInfo(CASE, log_hash="one", generated=4))
    assert store.judged_states(CASE) == {"@3"}
    assert store.cases()[0].status is CaseStatus.DONE
    store.add_case(CaseInfo(CASE, log_hash="two"))
    assert store.judged_states(CASE) == set()
    assert store.findings() == ()
    assert store.evidence(finding) is None


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


def test_the_drawn_log_names_what_each_entry_was() -> None:
    flags = [EntryFlag(0), EntryFlag.FLUSH, EntryFlag.FUA, EntryFlag.FLUSH | EntryFlag.FUA, EntryFlag.DISCARD]
    entries = [LogEntry(i, 8, 8, f, 0) for i, f in enumerate([*flags, EntryFlag.MARK])]
    assert [e.kind for e in timeline_of(entries)] == ["write", "flush", "fua", "flush+fua", "discard", "mark"]


# --- findings --------------------------------------------------------------------------------


@st.composite
def states(draw: st.DrawFn) -> CrashState:
    prefix = draw(st.integers(1, 12))
    dropped = draw(st.sets(st.integers(0, prefix - 1), max_size=3))
    return CrashState(prefix, tuple(sorted(dropped)), draw(st.sampled_from([None, None, 1, 3])))


judgements = st.lists(
    st.tuples(st.sampled_from(["durability", "fsck"]), st.sampled_from("pq"), st.sampled_from("abc")),
    max_size=3,
    unique=True,
).map(lambda vs: Judgement(tuple(Violation(o, subject, "gone", "x", "y", s) for o, s, subject in vs)))


@settings(max_examples=25, deadline=None)
@given(by_state=st.dictionaries(states(), judgements, max_size=12), seed=st.integers(0, 999))
def test_findings_do_not_depend_on_the_order_or_the_batches(
    tmp_path_factory: pytest.TempPathFactory, by_state: dict[CrashState, Judgement], seed: int
) -> None:
    order = [JudgedState(s, "h", j) for s, j in by_state.items()]
    shuffled = random.Random(seed).sample(order, len(order))  # noqa: S311  # no secret
    root = tmp_path_factory.mktemp("runs")
    with RunStore.create(root, "one", INFO) as one, RunStore.create(root, "two", INFO) as two:
        for store in (one, two):
            store.add_case(CaseInfo(CASE))
        one.put_judgements(CASE, order)
        for judged in shuffled:
            two.put_judgements(CASE, [judged])
        assert one.findings() == two.findings()
        expected = {(v.oracle, v.signature) for j in by_state.values() for v in j.violations}
        assert {(f.oracle, f.signature) for f in one.findings()} == expected
        for finding in one.findings():
            showing = [
                s
                for s, j in by_state.items()
                if (finding.oracle, finding.signature) in {(v.oracle, v.signature) for v in j.violations}
            ]
            assert finding.states == len(showing)
            assert finding.state == min(showing, key=state_order)


def test_the_smallest_state_drops_least_and_then_comes_first(store: RunStore) -> None:
    for state in (
        CrashState(3, (1, 2)),
        CrashState(9),
        CrashState(7),
        CrashState(5, (), 1),
        CrashState(4, (0,)),
    ):
        put(store, JudgedState(state, "h", broken()))
    (finding,) = store.findings()
    assert (finding.state, finding.states) == (CrashState(7), 5)


def test_a_reduced_state_represents_its_finding_and_is_not_counted(store: RunStore) -> None:
    put(store, JudgedState(CrashState(9, (3, 4)), "h", broken()))
    put(store, JudgedState(CrashState(9, (3,)), "i", broken(), How.REDUCED))
    (finding,) = store.findings()
    assert (finding.state, finding.states) == (CrashState(9, (3,)), 1)
    assert store.counts(CASE).checked == 1


def test_findings_of_two_cases_stay_apart(store: RunStore) -> None:
    store.add_case(CaseInfo(OTHER))
    put(store, JudgedState(CrashState(3), "h", broken()))
    store.put_judgements(OTHER, [JudgedState(CrashState(3), "h", broken())])
    assert [f.case for f in store.findings()] == [CASE, OTHER]
    assert len({f.id for f in store.findings()}) == 2
    assert all(re.fullmatch("[0-9a-f]{12}", f.id) for f in store.findings())


def test_evidence_is_replaced_and_names_its_state(store: RunStore) -> None:
    put(store, JudgedState(CrashState(3), "h", broken()))
    (finding,) = store.findings()
    assert store.evidence(finding) is None
    store.put_evidence(finding, Evidence(CrashState(9), "old"))
    store.put_evidence(finding, Evidence(CrashState(3), "log \udcff", "fsck", {"tree": "a"}))
    assert store.evidence(finding) == Evidence(CrashState(3), r"log \udcff", "fsck", {"tree": "a"})


# --- a kill ----------------------------------------------------------------------------------

_WRITER = """
import os, signal, sys
from pathlib import Path
from harness.model import CrashState, Judgement
from harness.store import JudgedState, RunStore
from harness.tests.store.test_run_store import CASE

store = RunStore.open(Path(sys.argv[1]))
number = 0
while True:
    batch = [JudgedState(CrashState(number + i), "h", Judgement()) for i in range(5)]
    store.put_judgements(CASE, batch)
    number += 5
    print(number, flush=True)
    if number == 50:
        store._database.execute("BEGIN IMMEDIATE")
        store._database.execute("DELETE FROM states")
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
