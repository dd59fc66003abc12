"""Cases of modes that are only rules, as far as no guest is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from harness.filesystems.profiles import ruled_modes
from harness.host.progress import Quiet
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.ruled.work import RuledWork
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus
from harness.tests.store.samples import INFO
from harness.workloads.load import parse_operation


class Begun(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, int]] = []

    def begin(self, what: str, total: int) -> None:
        self.begun.append((what, total))


def test_what_an_earlier_part_decided_counts_as_no_work_of_this_one(tmp_path: Path) -> None:
    """Nine of ten were "done" in no time, and the last one took longer than was told."""
    profile = next(iter(ruled_modes().values()))
    cases = [(profile, Workload(name, "", (parse_operation("sync"),))) for name in ("done", "left")]
    plan, progress, told = Plan(configurations=[], workloads=[]), Begun(), list[CaseId]()
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        done = CaseId(profile.filesystem, profile.mode, "done")
        store.add_case(CaseInfo(done, "", "", ""))
        store.set_case_status(done, CaseStatus.DONE)
        work = RuledWork(plan, store, progress, cast(Any, None), tmp_path, told.append)
        work.work(cases, {}, {"left": "not here"})
    assert progress.begun == [("recorded", 1)]
    assert [case.workload for case in told] == ["done", "left"]
