"""Who works on what, whatever happens to workers; without Dask, and without guests."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from harness.cases.casework import EnoughDone
from harness.cases.pins import source_hash
from harness.cluster import dispatch, site
from harness.cluster.dispatch import Dispatch
from harness.cluster.messages import (
    BusyWithAnotherRun,
    ClusterWorker,
    Done,
    Job,
    Note,
    NotFitted,
    Payload,
    Requirements,
    SentSpec,
    Unfit,
)
from harness.errors import ClusterGone
from harness.filesystems.profiles import select_profiles
from harness.model import CaseId, CrashState, Judgement, Workload
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseRecord, CaseRows, CaseStatus, JudgedState
from harness.tests.said import Said
from harness.tests.store.samples import INFO, broken
from harness.tests.there import there
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
    all_of_it = {"recorded": 1, "states": 1}
    return Done(Payload(rows), Note(job.number, "", all_of_it, all_of_it))


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
    """Workers that answer at once, in the order in which they were asked; and the queue of what arrives."""

    description = "a pool"

    def __init__(self, **workers: Process) -> None:
        self.processes = workers
        self.stores: dict[str, set[str]] = defaultdict(set)  # blobs, by host
        self.sent: list[tuple[str, str]] = []
        self.worked: list[tuple[str, str]] = []
        self.dismissed: list[str] = []
        self.stopped: list[str] = []
        self.done: list[str] = []
        self.words: dict[str, str] = {}
        self.ends: dict[int, Callable[[Done | BaseException], None]] = {}
        self._arrived: list[Callable[[], None]] = []
        self.then: Callable[[FakePool], None] = lambda pool: None
        """Called each time it is waited for what happens."""

    def workers(self) -> dict[str, ClusterWorker]:
        return {a: ClusterWorker(a, f"worker {a}", w.slots) for a, w in self.processes.items()}

    def last_words(self, address: str) -> str:
        return self.words.get(address, "")

    def listen(self, on_note: Callable[[Note], None]) -> None:
        self.note = on_note

    def ask(self, address: str, question: Callable[..., Any], *given: Any) -> Any:
        worker = self.processes[address]
        if question is site.identity:
            return {**worker.identity, "place": worker.host, "process": f"{worker.number}"}
        if worker.unfit:
            raise worker.unfit
        requirements, slots = given
        assert slots == worker.slots
        lacking = sorted(requirements.blobs.keys() - self.stores[worker.host])
        worker.fitted = not lacking
        return tuple(lacking)

    def give(self, address: str, sha256: str, blob: Path) -> None:
        host = self.processes[address].host
        self.sent.append((host, sha256))
        self.stores[host].add(sha256)

    def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
        name = job.case.workload
        self.worked.append((address, name))
        self.ends[job.number] = on_end
        if address not in self.processes:  # it went, and nobody has noticed yet
            return
        worker = self.processes[address]
        worker.has.append(job)
        if not worker.fitted:
            on_end(NotFitted(f"{worker.number}"))
        elif error := worker.fails_all or worker.fails.get(name):
            on_end(error)
        elif not worker.holds(name):
            on_end(decided(job))

    def forget(self, address: str) -> None:
        """What it answers all the same is not listened to."""

    def stop(self, address: str) -> None:
        self.stopped.append(address)

    def dismiss(self, address: str) -> None:
        self.dismissed.append(address)

    def put(self, event: Callable[[], None]) -> None:
        self._arrived.append(event)

    def get(self, timeout: float) -> Callable[[], None]:
        self.then(self)
        if not self._arrived:
            raise queue.Empty
        return self._arrived.pop(0)

    def close(self) -> None:
        """Nobody to leave."""


class Told(Said):
    """A clock that goes on by a minute at each look at it."""

    now = 0.0

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
    blobs = {"p" * 64: "/nowhere"}
    requirements = Requirements("run", plan, SPEC, None, {}, {}, blobs, {"powercut": "1.0"})
    made = Dispatch(
        plan, store, told, cast(Any, pool), requirements, {}, lambda case: pool.done.append(case.workload)
    )
    made._clock = told.clock
    made._staffed = 0.0
    made._events = cast(Any, pool)
    made._start = lambda join: None if any(p.mute for p in pool.processes.values()) else join()
    workloads = [Workload(name, "", (parse_operation("sync"),)) for name in names]
    made.work([(PROFILE, w) for w in workloads], {"no-program": "there is no program"})
    return told


def status(store: RunStore, workload: str) -> tuple[CaseStatus, str]:
    record = there(store.case(case_of(workload)))
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
    record = there(store.case(case_of("w0")))
    assert record.info.left_at.startswith("worker ")


def test_a_host_gets_a_part_once_and_one_that_has_it_gets_none(store: RunStore) -> None:
    pool = FakePool(a=Process("one"), b=Process("one"), c=Process("two"), d=Process("three"))
    pool.stores["three"].add("p" * 64)
    work(store, pool, *[f"w{i}" for i in range(40)])
    assert sorted(pool.sent) == [("one", "p" * 64), ("two", "p" * 64)]
    assert {a for a, _ in pool.worked} == {"a", "b", "c", "d"}


def test_a_case_that_loses_three_workers_is_unknown_and_says_what_was_seen(store: RunStore) -> None:
    class Killed(FakePool):
        def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
            if job.case.workload == "bad":
                self.worked.append((address, "bad"))
                del self.processes[address]
                self.processes[f"{address}+"] = Process()
            else:
                super().work(address, job, on_end)

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
    (line,) = [s for s in told.lines if "worker old is left out" in s]
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
    assert any("worker a is left out: 3 guests did not come up" in s for s in told.lines)


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
    assert sum("it works for the run other" in s for s in told.lines) == 1


def test_a_silent_worker_gives_its_case_back_and_is_not_listened_to_any_more(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SILENT_S", 100.0)
    pool = FakePool(a=Process(holds=lambda _: True))

    def late(pool: FakePool) -> None:
        if pool.dismissed and "b" not in pool.processes:
            pool.processes["b"] = Process()
            for job in pool.processes["a"].has:
                pool.ends[job.number](decided(job, broken()))
                pool.note(Note(job.number, "too late"))

    pool.then = late
    pool.processes["c"] = Process(holds=lambda _: False, unfit=BusyWithAnotherRun("busy"))
    told = work(store, pool, "v", "w")
    assert pool.dismissed == ["a"]
    assert "too late" not in told.lines
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
        def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
            self.worked.append((address, ""))
            on_end(decided(job, broken()))

    plan = Plan(configurations=["ext4/ordered"], workloads=list("vwxyz"), max_failures=1)
    with pytest.raises(EnoughDone, match="1 case failed"):
        work(store, Broken(a=Process()), *"vwxyz", plan=plan)
    assert [r.status for r in store.cases()].count(CaseStatus.DONE) == 1


def test_what_workers_know_when_a_run_ends_early_is_kept(store: RunStore) -> None:
    """All that a cluster had seen of its cases was lost when the time was up."""

    class Partly(FakePool):
        def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
            super().work(address, job, on_end)
            if job.case.workload == "v":
                on_end(decided(job, broken()))

        def stop(self, address: str) -> None:
            super().stop(address)
            job = self.processes[address].has[-1]
            done = decided(job)
            rows = there(done.payload.rows)
            rows = replace(rows, record=replace(rows.record, status=CaseStatus.RECORDED))
            self.ends[job.number](msgspec.structs.replace(done, payload=Payload(rows)))

    pool = Partly(a=Process(holds=lambda _: True), b=Process(holds=lambda _: True))
    plan = Plan(configurations=["ext4/ordered"], workloads=list("vwx"), max_failures=1)
    with pytest.raises(EnoughDone, match="1 case failed"):
        work(store, pool, *"vwx", plan=plan)
    assert pool.stopped == ["b"]
    assert pool.done == ["v"]
    assert status(store, "w") == (CaseStatus.RECORDED, "")
    assert store.judged_states(case_of("w")) == {"@0"}
    assert status(store, "x") == (CaseStatus.PLANNED, "")


def test_progress_that_a_lost_worker_told_of_does_not_count_twice(store: RunStore) -> None:
    pool, lives = FakePool(a=Process(holds=lambda _: True)), 2

    def then(pool: FakePool) -> None:
        nonlocal lives
        if "a" in pool.processes and pool.worked:
            number = pool.processes["a"].has[0].number
            pool.note(Note(number, "", {"states": 9, "recorded": 1}, {"states": 4}))
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
    record = there(store.case(case_of("open")))
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


def test_failures_of_an_earlier_part_count_as_they_do_on_one_host(store: RunStore) -> None:
    """A resumed run with -x failed one case more; on this host it begins none."""
    plan = Plan(configurations=["ext4/ordered"], workloads=list("vw"), max_failures=1)
    for name in "vw":
        store.add_case(CaseInfo(case_of(name), generated=1, distinct=1, log_hash=name))
    store.put_judgements(case_of("v"), [JudgedState(CrashState(0), "h", broken())])
    store.set_case_status(case_of("v"), CaseStatus.DONE)
    pool = FakePool(a=Process())
    with pytest.raises(EnoughDone, match="1 case failed"):
        work(store, pool, *"vw", plan=plan)
    assert not pool.worked


def test_what_a_worker_that_is_gone_printed_last_is_told(store: RunStore) -> None:
    pool = FakePool(a=Process(holds=lambda _: True))
    pool.words["a"] = "MemoryError"

    def then(pool: FakePool) -> None:
        if pool.worked and "a" in pool.processes:
            del pool.processes["a"]
            pool.processes["b"] = Process()

    pool.then = then
    told = work(store, pool, "w")
    assert any(line.endswith("worked on ext4-ordered/w: MemoryError") for line in told.lines), told.lines
