"""A run on a cluster of worker processes: the verdicts of one host, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from harness.cluster.addresses import need_cluster
from harness.errors import StoreError
from harness.findings.repro import repro_context, reproduce
from harness.host.progress import Lines
from harness.model import CaseId, CrashPoint, CrashState
from harness.plan import Plan
from harness.run import create_run, execute
from harness.store import RunStore
from harness.store.records import CaseStatus
from harness.summary import CaseVerdict, Summary
from harness.tests.needs import needed
from harness.tests.vm.conftest import run_plan
from harness.trust import Named

ORDERED = CaseId("ext4", "ordered", "append-fsync")
NOBARRIER = CaseId("ext4", "nobarrier", "append-fsync")


@pytest.fixture(scope="module", autouse=True)
def dask_can_be_had() -> None:
    with needed():
        need_cluster("local:1")


def again(source: Path, cluster: str) -> Plan:
    """Judge these recordings again."""
    return Plan(
        configurations=["ext4/ordered", "ext4/nobarrier"],
        workloads=["append-fsync"],
        recordings=str(source),
        jobs=2,
        cluster=cluster,
    )


def lasting(run: Path) -> dict[str, Any]:
    """results.json without times, the run's own name, and which answers the memo happened to have."""
    found = msgspec.json.decode((run / "results.json").read_bytes())
    for name in ("run", "argv", "started", "finished"):
        del found[name]
    for case in found["cases"]:
        assert sum(case.pop("how").values()) == case["states"]["checked"]
        del case["seconds"]
        for finding in case["findings"]:
            finding["reproduce"] = finding["reproduce"].replace(str(run), "RUN")
    return dict(found)


def find_scene(store: RunStore, point: CrashPoint) -> None:
    with repro_context(store, point, Named(), "auto"):
        """There is none."""


def worker_processes() -> dict[int, str]:
    """Worker processes of this one, with their command lines."""
    listed = subprocess.run(
        ["ps", "--ppid", f"{os.getpid()}", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(None, 1) for line in listed.splitlines())
    return {int(pid): line for pid, line in rows if "multiprocessing.spawn" in line}


class _KillsWorkers(Lines):
    """Kills every worker process, once, when the first states are judged."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.killed: Mapping[int, str] = {}

    def begin(self, what: str, total: int) -> None:
        super().begin(what, total)
        if what == "states" and not self.killed:
            self.killed = worker_processes()
            for pid in self.killed:
                os.kill(pid, signal.SIGKILL)


def test_killed_workers_change_no_finding(tmp_path: Path, compared: tuple[Summary, Path]) -> None:
    """The results are those of one host, but for times and names."""
    here, single = run_plan(again(compared[1], ""), tmp_path / "here")
    progress = _KillsWorkers()
    with create_run(again(compared[1], "local:2"), tmp_path / "there", "test") as store:
        there = execute(store.plan(), store, progress)
    assert len(progress.killed) == 2
    assert lasting(store.path) == lasting(single)
    assert [c.counts for c in there.cases] == [c.counts for c in here.cases]
    with RunStore.open(store.path) as reopened, RunStore.open(single) as other:
        for case in (ORDERED, NOBARRIER):
            assert reopened.rows_of(case).record.info == other.rows_of(case).record.info
    assert not worker_processes(), "none is left behind"


def test_recordings_come_back_for_findings_and_the_rest_stays_as_it_is(tmp_path: Path) -> None:
    """A run begun on a cluster goes on here: what was decided stays, though its recording is elsewhere."""
    plan = Plan(
        configurations=["ext4/ordered", "ext4/nobarrier"], workloads=["append-fsync"], cluster="local:2"
    )
    with create_run(plan, tmp_path, "test") as store:
        summary = execute(plan, store, Lines(Console(quiet=True)))
        assert [c.verdict for c in summary.cases] == [CaseVerdict.PASS, CaseVerdict.FAIL]
        passed, failed = store.case(ORDERED), store.case(NOBARRIER)
        assert passed is not None
        assert failed is not None
        assert passed.status is failed.status is CaseStatus.DONE
        assert passed.info.left_at
        assert not failed.info.left_at
        assert not (store.layout.case(ORDERED).history).exists()
        rows = [store.rows_of(case).judged for case in (ORDERED, NOBARRIER)]
        here = msgspec.structs.replace(plan, cluster="")
        resumed = execute(here, store, Lines(Console(quiet=True)))
        assert [c.verdict for c in resumed.cases] == [CaseVerdict.PASS, CaseVerdict.FAIL]
        assert [store.rows_of(case).judged for case in (ORDERED, NOBARRIER)] == rows
        finding = summary.findings[0]
        with pytest.raises(StoreError, match="stayed with the worker"):
            find_scene(store, CrashPoint(ORDERED, CrashState(5)))
        point = CrashPoint(NOBARRIER, finding.state)
        with repro_context(store, point, Named(), "auto") as at:
            assert finding.signature in {v.signature for v in reproduce(at).judgement.violations}
