"""Who works on what, whatever happens to workers; without Dask, and without guests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.cases.casework import EnoughDone
from harness.cases.pins import source_hash
from harness.cluster import dispatch
from harness.cluster.dispatch import Dispatch
from harness.cluster.messages import (
    Blob,
    BusyWithAnotherRun,
    Done,
    Job,
    Lacking,
    Note,
    NotFitted,
    Payload,
    Requirements,
    SentSpec,
    Unfit,
    decode,
    encode,
)
from harness.cluster.worker_pool import Answer, ClusterWorker, Event, Said
from harness.errors import ClusterGone
from harness.filesystems.profiles import select_profiles
from harness.model import CaseId, CrashState, Judgement, Workload
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseRecord, CaseRows, CaseStatus, JudgedState
from harness.tests.store.samples import INFO, broken
from harness.workloads.load import parse_operation

(PROFILE,) = select_profiles(["ext4/ordered"])
KEPT = Judgement()
SPEC = SentSpec("qemu", "tcg", "k" * 64, "i" * 64)
OWN = {"powercut": "1.0", "source": source_hash()}


def case_of(workload: str) -> CaseId:
    return CaseId("ext4", "ordered", workload)


def decided(job: Job, judgement: Judgement = KEPT) -> Done:
    """A case that was recorded and has one state."""
    info = CaseInfo(job.case, generated=1, distinct=1, log_hash=f"log of {job.case}")
    record = CaseRecord(info, CaseStatus.DONE, "", 1.0)
    rows = CaseRows(record, (JudgedState(CrashState(0), "h", judgement),))
    return Done(Payload(rows), {"recorded": 1, "states": 1}, {"recorded": 1, "states": 1})


@dataclass
class Process:
    """A worker's process. `holds`: it does not answer for this case; `mute`: it answers nothing."""

    host: str = "here"
    number: int = 1
    identity: dict[str, str] = field(default_factory=lambda: dict(OWN))
    slots: int = 1
    fails: dict[str, Exception] = field(default_factory=dict)
    fails_all: Exception | None = None
    holds: Callable[[str], bool] = lambda workload: False
    unfit: Exception | None = None
    mute: bool = False
    fitted: bool = False
    has: list[Job] = field(default_factory=list)


class FakePool:
    """Workers that answer at once, in the order in which they were asked."""

    description = "a pool"

    def __init__(self, **workers: Process) -> None:
        self.processes = workers
        self.stores: dict[str, set[str]] = defaultdict(set)  # blobs, by host
        self.sent: list[tuple[str, str]] = []
        self.worked: list[tuple[str, str]] = []
        self.forgotten: set[int] = set()
        self.dismissed: list[str] = []
        self._events: list[Event] = []
        self._tickets = 0
        self.then: Callable[[FakePool], None] = lambda pool: None
        """Called each time it is waited for what happens."""

    def workers(self) -> dict[str, ClusterWorker]:
        return {a: ClusterWorker(a, f"worker {a}", w.slots) for a, w in self.processes.items()}

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def identify(self, ticket: int, address: str) -> None:
        worker = self.processes[address]
        if worker.mute:
            return
        told = {**worker.identity, "place": worker.host, "process": f"{worker.number}"}
        self._events.append(Answer(ticket, told))

    def fit(self, ticket: int, address: str, requirements: bytes) -> None:
        worker = self.processes[address]
        if worker.unfit:
            self._events.append(Answer(ticket, error=worker.unfit))
            return
        wanted = {blob.sha256 for blob in decode(requirements, Requirements).blobs}
        lacking = sorted(wanted - self.stores[worker.host])
        worker.fitted = not lacking
        self._events.append(Answer(ticket, encode(Lacking(tuple(lacking)))))

    def give(self, ticket: int, address: str, sha256: str, blob: Path) -> None:
        host = self.processes[address].host
        self.sent.append((host, sha256))
        self.stores[host].add(sha256)
        self._events.append(Answer(ticket))

    def work(self, ticket: int, address: str, job: bytes) -> None:
        message = decode(job, Job)
        name = message.case.workload
        self.worked.append((address, name))
        if address not in self.processes:  # it went, and nobody has noticed yet
            return
        worker = self.processes[address]
        worker.has.append(message)
        if not worker.fitted:
            self._events.append(Answer(ticket, error=NotFitted(f"{worker.number}")))
        elif error := worker.fails_all or worker.fails.get(name):
            self._events.append(Answer(ticket, error=error))
        elif not worker.holds(name):
            self._events.append(Answer(ticket, encode(decided(message))))

    def answer(self, event: Event) -> None:
        self._events.append(event)

    def forget(self, ticket: int) -> None:
        self.forgotten.add(ticket)

    def dismiss(self, address: str) -> None:
        self.dismissed.append(address)

    def events(self, timeout_s: float) -> list[Event]:
        self.then(self)
        found, self._events = self._events[:1], self._events[1:]
        return found

    def close(self) -> None:
        """Nobody to leave."""


class Told:
    """Progress that adds up, and a clock that goes on by a minute at each look at it."""

    def __init__(self) -> None:
        self.left: dict[str, int] = defaultdict(int)
        self.said: list[str] = []
        self.now = 0.0

    def say(self, text: str) -> None:
        self.said.append(text)

    def begin(self, what: str, total: int) -> None:
        self.left[what] += total

    def advance(self, what: str, count: int) -> None:
        self.left[what] -= count

    def clock(self) -> float:
        self.now += 2.0
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, "t", INFO) as made:
        yield made


def work(store: RunStore, pool: FakePool, *names: str, plan: Plan | None = None, recorded: str = "") -> Told:
    told = Told()
    plan = plan or Plan(configurations=["ext4/ordered"], workloads=list(names))
    blob = Blob("p" * 64, "a blob", "/nowhere")
    requirements = Requirements("run", plan, SPEC, None, {}, {}, (blob,), {"powercut": "1.0"})
    made = Dispatch(
        plan, store, told, pool, requirements, {blob.sha256: Path("/nowhere")}, {}, lambda case: None
    )
    made._clock = told.clock
    made._staffed = 0.0
    workloads = [Workload(name, "", (parse_operation("sync"),)) for name in names]
    made.work([(PROFILE, w) for w in workloads], {"no-program": "there is no program"})
    return told


def status(store: RunStore, workload: str) -> tuple[CaseStatus, str]:
    record = store.case(case_of(workload))
    assert record is not None
    return record.status, record.reason


def test_every_case_is_decided_once_and_in_the_order_of_the_plan(store: RunStore) -> None:
    names = [f"w{i}" for i in range(9)]
    pool = FakePool(a=Process(slots=2), b=Process())
    told = work(store, pool, *names, "no-program")
    assert [r.case.workload for r in store.cases()] == [*names, "no-program"]
    assert {status(store, n) for n in names} == {(CaseStatus.DONE, "")}
    assert status(store, "no-program") == (CaseStatus.NOT_RUN, "there is no program")
    assert sorted(w for _, w in pool.worked) == names, "each was given out once"
    assert {a for a, _ in pool.worked} == {"a", "b"}
    assert not any(told.left.values())
    record = store.case(case_of("w0"))
    assert record is not None
    assert record.info.left_at.startswith("worker ")


def test_a_host_gets_a_part_once_and_one_that_has_it_gets_none(store: RunStore) -> None:
    pool = FakePool(a=Process("one"), b=Process("one"), c=Process("two"), d=Process("three"))
    pool.stores["three"].add("p" * 64)
    work(store, pool, *[f"w{i}" for i in range(40)])
    assert sorted(pool.sent) == [("one", "p" * 64), ("two", "p" * 64)]
    assert {a for a, _ in pool.worked} == {"a", "b", "c", "d"}


def test_what_waits_at_a_worker_that_goes_is_not_held_against_the_case(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask holds it against both: a case could be given up that no worker had begun."""
    monkeypatch.setattr(dispatch, "STRIKES", 1)

    def die(pool: FakePool) -> None:
        if "a" in pool.processes and len(pool.processes["a"].has) == 2:
            del pool.processes["a"]
            pool.processes["b"] = Process()

    pool = FakePool(a=Process(holds=lambda _: True))
    pool.then = die
    told = work(store, pool, "begun", "waits", "other")
    assert status(store, "begun")[0] is CaseStatus.UNKNOWN
    assert status(store, "waits")[0] is status(store, "other")[0] is CaseStatus.DONE
    assert [w for a, w in pool.worked if a == "a"] == ["begun", "waits"]
    assert not any(told.left.values())


def test_a_case_that_loses_three_workers_is_unknown_and_says_what_was_seen(store: RunStore) -> None:
    class Killed(FakePool):
        def work(self, ticket: int, address: str, job: bytes) -> None:
            if decode(job, Job).case.workload == "bad":
                self.worked.append((address, "bad"))
                del self.processes[address]
                self.processes[f"{address}+"] = Process()
            else:
                super().work(ticket, address, job)

    pool = Killed(a=Process(), b=Process())
    told = work(store, pool, "v", "bad", "w")
    assert status(store, "v")[0] is status(store, "w")[0] is CaseStatus.DONE
    code, why = status(store, "bad")
    assert code is CaseStatus.UNKNOWN
    assert why.count("was gone while it worked on this") == 3
    assert "worker a" in why or "worker b" in why
    assert told.left["recorded"] == 0


def test_what_a_worker_raises_costs_a_case_and_no_other(store: RunStore) -> None:
    pool = FakePool(a=Process(fails={"bad": RuntimeError("a defect")}))
    work(store, pool, "bad", "v", "w")
    assert status(store, "v")[0] is status(store, "w")[0] is CaseStatus.DONE
    assert status(store, "bad")[0] is CaseStatus.UNKNOWN
    assert status(store, "bad")[1].count("RuntimeError: a defect") == 3


def test_another_version_is_left_out_by_name_with_both_versions(store: RunStore) -> None:
    pool = FakePool(old=Process(identity={"powercut": "0.9", "source": "f" * 64}), good=Process())
    told = work(store, pool, "v", "w")
    assert {a for a, _ in pool.worked} == {"good"}
    (line,) = [s for s in told.said if "worker old is left out" in s]
    assert "0.9 (source ffffffffffff)" in line
    assert f"1.0 (source {OWN['source'][:12]})" in line


def test_a_run_ends_if_every_worker_is_left_out(store: RunStore) -> None:
    pool = FakePool(a=Process(unfit=Unfit("it has another e2fsck")))
    with pytest.raises(ClusterGone, match="every worker"):
        work(store, pool, "w")
    assert status(store, "w")[0] is CaseStatus.PLANNED, "it can be resumed"


def test_a_worker_whose_guests_do_not_come_up_is_left_out_and_its_case_comes_back(store: RunStore) -> None:
    """It would make every case UNKNOWN, faster than the others decide them."""
    pool = FakePool(a=Process(fails_all=Unfit("3 guests did not come up")), b=Process())
    told = work(store, pool, *"vwxyz")
    assert {status(store, n)[0] for n in "vwxyz"} == {CaseStatus.DONE}
    assert pool.dismissed == ["a"]
    assert any("worker a is left out: 3 guests did not come up" in s for s in told.said)


def test_a_worker_that_forgot_the_outfit_gets_it_again(store: RunStore) -> None:
    pool = FakePool(a=Process())

    def forget(pool: FakePool) -> None:
        if len(pool.worked) == 1:
            pool.processes["a"].fitted = False

    pool.then = forget
    work(store, pool, *"vwx")
    assert {status(store, n)[0] for n in "vwx"} == {CaseStatus.DONE}


def test_a_worker_of_another_run_is_asked_again(store: RunStore) -> None:
    pool, waited = FakePool(a=Process(unfit=BusyWithAnotherRun("it works for the run other"))), False

    def end(pool: FakePool) -> None:
        nonlocal waited
        if waited:
            pool.processes["a"].unfit = None
        waited = True

    pool.then = end
    told = work(store, pool, "w")
    assert status(store, "w")[0] is CaseStatus.DONE
    assert sum("it works for the run other" in s for s in told.said) == 1


def test_a_silent_worker_gives_its_case_back_and_is_not_listened_to_any_more(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SILENT_S", 100.0)
    pool = FakePool(a=Process(holds=lambda _: True))

    def late(pool: FakePool) -> None:
        if pool.dismissed and "b" not in pool.processes:
            pool.processes["b"] = Process()
            for job in pool.processes["a"].has:
                ticket = job.number
                pool.answer(Answer(ticket, encode(decided(job, broken()))))
                pool.answer(Said(encode(Note(ticket, ["too late"]))))

    pool.then = late
    pool.processes["c"] = Process(holds=lambda _: False, unfit=BusyWithAnotherRun("busy"))
    told = work(store, pool, "v", "w")
    assert pool.dismissed == ["a"]
    assert "too late" not in told.said
    assert not store.findings(), "the late answers were not stored"
    assert {status(store, n)[0] for n in "vw"} == {CaseStatus.DONE}


def test_a_worker_that_never_answers_is_left_out(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose only worker hung before its first case waited for it without a word, and without end."""
    monkeypatch.setattr(dispatch, "SILENT_S", 600.0)
    pool, looks = FakePool(a=Process(mute=True)), 0

    def count(pool: FakePool) -> None:
        nonlocal looks
        looks += 1
        assert looks < 10_000

    pool.then = count
    with pytest.raises(ClusterGone, match="every worker was refused"):
        work(store, pool, "w")
    assert pool.dismissed == ["a"]


def test_a_run_stops_after_as_many_failures_as_it_allows(store: RunStore) -> None:
    class Broken(FakePool):
        def work(self, ticket: int, address: str, job: bytes) -> None:
            self.worked.append((address, ""))
            self.answer(Answer(ticket, encode(decided(decode(job, Job), broken()))))

    plan = Plan(configurations=["ext4/ordered"], workloads=list("vwxyz"), max_failures=1)
    with pytest.raises(EnoughDone, match="1 case failed"):
        work(store, Broken(a=Process()), *"vwxyz", plan=plan)
    assert [r.status for r in store.cases()].count(CaseStatus.DONE) == 1


def test_progress_that_a_lost_worker_told_of_does_not_count_twice(store: RunStore) -> None:
    pool, lives = FakePool(a=Process(holds=lambda _: True)), 2

    def then(pool: FakePool) -> None:
        nonlocal lives
        if "a" in pool.processes and pool.worked:
            number = pool.processes["a"].has[0].number
            pool.answer(Said(encode(Note(number, [], {"states": 9, "recorded": 1}, {"states": 4}))))
            pool.processes["b"] = Process()
            pool.processes["a"].holds = lambda _: False
            lives -= 1
            if not lives:
                del pool.processes["a"]

    pool.then = then
    told = work(store, pool, "w")
    assert status(store, "w")[0] is CaseStatus.DONE
    assert not any(told.left.values())


def test_a_resumed_run_sends_what_is_open_with_its_recording_and_leaves_the_rest(store: RunStore) -> None:
    """Recorded anew, an open case could not keep the verdicts that it has."""
    for name, verdict in (("done", Judgement()), ("open", Judgement(unknown=("guest lost",)))):
        store.add_case(CaseInfo(case_of(name), log_hash=f"log of {case_of(name)}", files={"log.zst": ""}))
        store.put_judgements(case_of(name), [JudgedState(CrashState(0), "h", verdict)])
        store.set_case_status(case_of(name), CaseStatus.DONE)
        folder = store.case_directory(case_of(name))
        for file in ("log.zst", "history.json"):
            (folder / file).write_text(f"{file} of {name}")
    before = store.rows_of(case_of("done"))
    pool = FakePool(a=Process())
    work(store, pool, "done", "open", "new")
    assert store.rows_of(case_of("done")) == before
    by_name = {e.case.workload: e for e in pool.processes["a"].has}
    assert set(by_name) == {"open", "new"}
    assert by_name["open"].payload.files == {
        "log.zst": b"log.zst of open",
        "history.json": b"history.json of open",
    }
    assert by_name["open"].payload.rows is not None
    assert by_name["new"].payload == Payload()
    record = store.case(case_of("open"))
    assert record is not None
    assert (record.status, record.info.left_at) == (CaseStatus.DONE, ""), "the recording is here"
    assert store.counts(case_of("open")).passed == 1


def test_the_text_of_a_workload_travels_and_the_name_of_a_generated_one(store: RunStore) -> None:
    pool = FakePool(a=Process())
    generated = "ace-creat.foo+fsync.foo"
    work(store, pool, "mine", generated)
    sent = {e.case.workload: e.workload for e in pool.processes["a"].has}
    mine = sent["mine"]
    assert isinstance(mine, Workload)
    assert mine == replace(Workload("mine", "", (parse_operation("sync"),)), files={})
    assert sent[generated] == generated
