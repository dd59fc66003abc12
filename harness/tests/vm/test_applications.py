"""An application from its directory to a verdict: one that acknowledges too early is caught, a careful one is
not, whatever its check does to the copy that it is given.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import CaseId
from harness.plan import Plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary
from harness.tests.needs import need_program
from harness.tests.vm.conftest import run_plan

RUN = """#!/bin/sh
for i in 1 2 3; do
    echo "line $i" >>journal
    {sync} && powercut-ack "line $i"
done
"""

# It destroys what it has checked, leaves a process behind, and acknowledges where nothing is recorded.
CHECK = """#!/bin/sh
[ "$PWD" = /mnt ] || exit 7
while read -r line; do
    grep -qx "$line" journal || { echo "$line is gone"; exit 1; }
done <"$1"
rm -rf /mnt/* && echo mine >/mnt/journal
sleep 1000 &
powercut-ack never 2>/dev/null
[ $? = 125 ] || exit 7
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    folder = tmp_path_factory.mktemp("applications")
    for name, sync in (("careful", "sync journal"), ("hasty", "true")):
        (folder / name).mkdir()
        (folder / name / "workload.toml").write_text(f'summary = "{name}"\n')
        (folder / name / "run").write_text(RUN.format(sync=sync))
        (folder / name / "check").write_text(CHECK)
    own = [str(folder / "careful"), str(folder / "hasty")]
    plan = Plan(configurations=["ext4/ordered"], workloads=[*own, "sqlite-wal-full"], jobs=2)
    return run_plan(plan, folder)


def test_one_that_syncs_before_it_acknowledges_keeps_all(ran: tuple[Summary, Path]) -> None:
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "careful")
    assert case.verdict is CaseVerdict.PASS, case.findings
    with RunStore.open(path) as store:
        marks = [e.mark for e in store.timeline(CaseId("ext4", "ordered", "careful")) if e.mark]
    assert marks[:5] == ["begin 0", "app line 1", "app line 2", "app line 3", "ack 0"]


def test_a_real_one_keeps_all(ran: tuple[Summary, Path]) -> None:
    need_program("sqlite3")
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "sqlite-wal-full")
    assert case.verdict is CaseVerdict.PASS, case.findings
    with RunStore.open(path) as store:
        marks = [e.mark for e in store.timeline(case.case) if e.mark.startswith("app ")]
    assert marks == [f"app {k}" for k in range(1, 13)]


def test_one_that_acknowledges_too_early_is_caught(ran: tuple[Summary, Path]) -> None:
    summary, _ = ran
    case = next(c for c in summary.cases if c.case.workload == "hasty")
    assert case.verdict is CaseVerdict.FAIL
    assert {f.oracle for f in case.findings} == {"program"}
    assert any("line 1 is gone" in v.summary + v.found for f in case.findings for v in f.violations)
