"""However many workers there are, and whoever of them dies: states, verdicts, findings and their order are
those of one host. Everything is real but the guests (`toy_kernel`) and the way between run and workers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from harness.cases.casework import Casework, EnoughDone
from harness.cases.examine import Examiner, Observation
from harness.cases.ledger import PlannedCase, info_of
from harness.cases.pool import Pool, Worker
from harness.cases.recording import is_kept
from harness.cluster import dispatch, site
from harness.cluster.dispatch import Dispatch
from harness.cluster.messages import Done, Job, Requirements
from harness.cluster.payloads import adopt
from harness.cluster.site import Fitted, Relay, Site
from harness.guests.disk import find_binary
from harness.guests.guest_specs import GuestSpecs
from harness.host.folders import OwnedFolder
from harness.host.packed import pack
from harness.host.progress import Quiet
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.report import write_reports
from harness.store import RunStore
from harness.store.records import CaseStatus
from harness.tests.cases.toy_kernel import (
    BASE,
    BLOCKS,
    LOG_BYTES,
    Kernel,
    Kind,
    toy_profile,
    toy_session,
    toy_spec,
)
from harness.tests.cluster.test_dispatch import SPEC, FakePool, Process
from harness.tests.needs import needed
from harness.tests.said import Said
from harness.tests.store.samples import INFO
from harness.tests.there import there
from harness.workloads.load import parse_operation

DEADLINE_S = 120.0
PROFILE = toy_profile()
SYNC = parse_operation("sync")
WORKLOADS = [Workload(f"w{number}", "", (SYNC,) * number) for number in range(1, 5)]
WANTED = [(PROFILE, w) for w in WORKLOADS]
PLAN = Plan(
    configurations=[PROFILE.name],
    workloads=[w.name for w in WORKLOADS],
    fault_models=("exhaustive",),
    jobs=1,
    log_bytes=LOG_BYTES,
)
REQUIREMENTS = Requirements("run", PLAN, SPEC, None, {}, {}, {}, {"powercut": "1.0"})


def kept_in(folder: Path, requirements: Requirements = REQUIREMENTS, slots: int = 1) -> Fitted:
    """What a worker keeps for the run. Its guests are toys: they do not mount what reads `10`, and the last
    operation of the longest workload kills them.
    """
    owned = OwnedFolder("powercut-worker-")
    store = RunStore.create(owned.path, "cases", INFO, durable=False)
    base = owned.path / f"{PROFILE.filesystem}-{PROFILE.mode}.base.img"
    base.write_bytes(BASE * BLOCKS)
    pack(base, store.layout.base(PROFILE.filesystem, PROFILE.mode))

    def worker(number: int) -> Worker:
        spec = toy_spec(Kernel(Kind.NOT_MOUNTED, dies_in=3), folder)
        session = toy_session(spec, owned.path / f"worker-{number}")
        return Worker(session, session)

    pool, spec = Pool(worker, slots, confirms=False), toy_spec(Kernel(), folder)
    specs = GuestSpecs(spec, spec, "toys")
    return Fitted(requirements, specs, {PROFILE.name: PROFILE}, {PROFILE.name: base}, owned, store, pool)


class Cluster(FakePool):
    """Workers that are threads, each with a site of its own that takes `slots` cases at once. `dying`: how
    many of them end at their first case, and another one comes.
    """

    def __init__(self, count: int, dying: int = 0, slots: int = 1) -> None:
        super().__init__(**{f"worker-{number}": Process(slots=slots) for number in range(count)})
        self._sites: defaultdict[str, Site] = defaultdict(Site)
        self._dying, self.died = dying, cast(list[str], [])

    def ask(self, address: str, question: Callable[..., Any], *given: Any) -> Any:
        if question is site.fit:
            return self._sites[address].fit(*given)
        return super().ask(address, question, *given)

    def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
        if address not in self.processes:  # it went, and nobody has noticed yet
            return
        here = self._sites[address]
        if len(self.died) < self._dying:
            self.died.append(address)
            self.processes[f"{address}-anew"] = self.processes.pop(address)
            here.dismiss(job.run)
            return

        def carry_out() -> None:
            try:
                found: Done | BaseException = here.work(job, self.note)
            except BaseException as e:
                found = e
            on_end(found)

        threading.Thread(target=carry_out, daemon=True).start()

    def stop(self, address: str) -> None:
        threading.Thread(target=self._sites[address].stop, args=["run"], daemon=True).start()

    def close(self) -> None:
        for at in self._sites.values():
            at.dismiss("run")


def told(store: RunStore) -> tuple[list[Any], dict[str, Any]]:
    """What a run holds of each case, in their order, and its results.json: without times and places, and
    without which answers the memo happened to have.
    """
    cases: list[Any] = []
    for record in store.cases():
        rows = store.rows_of(record.case)
        states = [replace(judged, how="") for judged in cast(Iterable[Any], rows.judged)]
        cases.append((replace(record, info=replace(record.info, left_at="", files={}), seconds=0.0), states))
        cases.append((rows.evidence, store.timeline(record.case)))
    store.finish()
    write_reports(store)
    results = msgspec.json.decode((store.path / "results.json").read_bytes())
    for case in results["cases"]:
        assert sum(case.pop("how").values()) == case["states"]["checked"]
        del case["seconds"]
        for finding in case["findings"]:
            finding["reproduce"] = finding["reproduce"].replace(str(store.path), "RUN")
    return cases, {name: results[name] for name in results.keys() - {"started", "finished"}}


@pytest.fixture(autouse=True)
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "fitted", lambda asked, _, slots, *__: kept_in(tmp_path, asked, slots))
    monkeypatch.setattr(dispatch, "LOOK_S", 0.0)
    monkeypatch.setattr(dispatch, "WAIT_S", 0.01)


@pytest.fixture(scope="module")
def on_one_host(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, Any]]:
    with needed():
        find_binary()
    kept = kept_in(tmp_path_factory.mktemp("kept"))
    try:
        with RunStore.create(tmp_path_factory.mktemp("here"), "t", INFO) as store:
            work = Casework(PLAN, store, Quiet(), kept.folder.path, kept.bases)
            pack(kept.bases[PROFILE.name], store.layout.base(PROFILE.filesystem, PROFILE.mode))
            work.work(kept.pool, WANTED, {})
            return told(store)
    finally:
        kept.close()


def case_of(workload: Workload) -> CaseId:
    return CaseId(PROFILE.filesystem, PROFILE.mode, workload.name)


def on_cluster(store: RunStore, cluster: Cluster, plan: Plan = PLAN) -> Said:
    said, done = Said(), cast(list[str], [])
    try:
        made = Dispatch(
            plan, store, said, cast(Any, cluster), REQUIREMENTS, {}, lambda c: done.append(str(c))
        )
        made.work(WANTED, {})
    finally:
        cluster.close()
    assert len(done) == len({*done}) == len(WANTED)
    assert not any(said.left.values())
    return said


@pytest.mark.parametrize(
    ("workers", "dying", "slots"), [(1, 0, 1), (2, 1, 1), (5, 3, 1), (1, 0, 4), (2, 1, 2)]
)
def test_the_number_of_workers_changes_nothing_that_is_told(
    on_one_host: tuple[list[Any], dict[str, Any]], tmp_path: Path, workers: int, dying: int, slots: int
) -> None:
    """A case that could not be recorded had lost its options and oracles on the way from its worker."""
    cluster = Cluster(workers, dying, slots)
    with RunStore.create(tmp_path, "t", INFO) as store:
        said = on_cluster(store, cluster)
        assert told(store) == on_one_host
    assert len(cluster.died) == dying
    assert sum("is gone; it worked on" in line for line in said.lines) == dying
    cases = on_one_host[1]["cases"]
    assert {case["verdict"] for case in cases} == {"fail", "unknown"}
    assert [case["workload"] for case in cases] == [w.name for w in WORKLOADS]


def test_a_run_that_ended_early_goes_on_with_more_workers(
    on_one_host: tuple[list[Any], dict[str, Any]], tmp_path: Path
) -> None:
    with RunStore.create(tmp_path, "t", INFO) as store:
        with pytest.raises(EnoughDone):
            on_cluster(store, Cluster(1), msgspec.structs.replace(PLAN, max_failures=1))
        on_cluster(store, Cluster(5))
        assert told(store) == on_one_host


class StopsIt(Quiet):
    """Stops a worker as soon as it has stored some verdicts."""

    def __init__(self, kept: Fitted) -> None:
        self._kept = kept

    def advance(self, what: str, count: int) -> None:
        if what == "states" and count:
            self._kept.stop()


def test_a_worker_that_is_stopped_tells_what_it_knows_and_others_go_on_with_it(
    on_one_host: tuple[list[Any], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a cluster had seen of a case was lost when the time was up."""
    kept, workload, visit, visits = kept_in(tmp_path / "kept"), WORKLOADS[2], Examiner.visit, count(1)

    def held(*given: Any) -> Observation:
        if next(visits) > 2:
            assert kept.stopped.wait(DEADLINE_S)
        return visit(*given)

    monkeypatch.setattr(Examiner, "visit", held)
    job = Job("run", 1, case_of(workload), workload, all_logs=True)
    payload = kept.work(job, cast(Any, StopsIt(kept)))
    kept.close()
    rows = there(payload.rows)
    assert rows.record.status is CaseStatus.RECORDED
    assert rows.judged
    assert not any(judged.judgement.unknown for judged in rows.judged)
    with RunStore.create(tmp_path, "t", INFO) as store:
        for profile, each in WANTED:
            store.add_case(info_of(PlannedCase(profile, each, case_of(each)), PLAN))
        adopt(store, job.case, payload, "a worker")
        assert is_kept(job.case, store.layout)
        on_cluster(store, Cluster(2))
        assert told(store) == on_one_host


def test_idle_workers_of_a_process_help_with_its_last_large_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case had one worker of a process of a cluster, however many had nothing to do."""
    monkeypatch.setattr("harness.cases.casework.WORTH_HELP", 1)
    kept, workload, visit = kept_in(tmp_path, slots=2), WORKLOADS[2], Examiner.visit
    threads, both = list[int](), threading.Event()

    def seen(*given: Any) -> Observation:
        threads.append(threading.get_ident())
        if len({*threads}) == 2:
            both.set()
        elif len(threads) == 3:  # by then, two states are wanted at once
            both.wait(DEADLINE_S / 6)
        return visit(*given)

    monkeypatch.setattr(Examiner, "visit", seen)
    kept.work(Job("run", 1, case_of(workload), workload), Relay(1, lambda note: None))
    kept.close()
    assert both.is_set()
