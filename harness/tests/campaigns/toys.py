"""A campaign without guests: runs whose workloads show planted faults, and what happens to them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.campaigns.journal import Batch, CampaignPlan, KnownBatches
from harness.campaigns.work import CampaignSeries, load_plan
from harness.filesystems.profiles import select_profiles
from harness.findings.simplify import Operations
from harness.findings.triage import FAST, Experiment, Way
from harness.host.progress import Progress
from harness.model import CaseId, Judgement, Violation
from harness.plan import Plan
from harness.series.journal import End, Journal, Line
from harness.series.work import OnDone, carry_out
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, DrawnEntry, Step
from harness.summary import Summary, summarise
from harness.symptoms import paths_of, symptom_of
from harness.tests.said import Said
from harness.tests.store.samples import put_case
from harness.workloads.generate import generate

MODE = "ext4/fast_commit"
Planted = Callable[[list[str]], Mapping[str, str]]


class Killed(BaseException):
    """The process ends here: nothing after this is done, not even what cleans up."""


def tmpfile_lost(ops: list[str]) -> Mapping[str, str]:
    """A file that got its name late is lost if anything is synced after that."""
    made = next((i for i, op in enumerate(ops) if op.startswith("tmpfile")), len(ops))
    if not any("sync" in op for op in ops[made:]):
        return {}
    return {"durability": f"{ops[made].split()[1]}: missing"}


def nothing(ops: list[str]) -> Mapping[str, str]:
    """A kernel without faults."""
    return {}


class ToyRuns:
    """Executes plans by judging one state of each workload, a case after another. `batches`: the user stops
    the campaign in the next one. `kill_at`: the process is killed when so many cases have been judged.
    `cases`: those judged, in order.
    """

    def __init__(
        self, planted: Planted = tmpfile_lost, *, batches: int = 2, kill_at: int | None = None
    ) -> None:
        self.planted, self.batches, self.kill_at = planted, batches, kill_at
        self.cases: list[str] = []

    def __call__(self, plan: Plan, store: RunStore, progress: Progress, on_done: OnDone) -> Summary:
        if int(store.path.parent.parent.name) > self.batches:
            raise KeyboardInterrupt
        known = {c.case for c in store.cases() if c.status is CaseStatus.DONE}
        for name in plan.workloads:
            case = CaseId("ext4", "fast_commit", name)
            if case not in known:
                self._judge(store, case)
                progress.advance("cases", 1)
        store.finish()
        return summarise(store)

    def _judge(self, store: RunStore, case: CaseId) -> None:
        if self.kill_at is not None and len(self.cases) == self.kill_at:
            self.kill_at = None
            raise Killed
        self.cases.append(case.workload)
        ops = [str(op) for op in generate(case.workload).operations]
        steps = tuple(Step(i, op, 3 * i, 3 * i + 2) for i, op in enumerate(ops))
        writes = tuple(DrawnEntry(3 * i + 1, "write", 8 * i, 8) for i in range(len(ops)))
        info = CaseInfo(case, distinct=1, generated=1, steps=steps)
        found = tuple(Violation(o, "f", s, "x", "y", s) for o, s in self.planted(ops).items())
        put_case(store, replace(info, timeline=writes), Judgement(found), at=1)


class ToyTries:
    """Shrinks by asking the planted fault. `kill_at`: killed at that experiment."""

    def __init__(self, planted: Planted, kill_at: int | None = None) -> None:
        (self.profile,) = select_profiles([MODE])
        self.made = 0
        self._planted, self.kill_at = planted, kill_at

    def __enter__(self) -> ToyTries:
        return self

    def __exit__(self, *_: object) -> None: ...

    def experiment(self, operations: Operations, way: Way = FAST, attempt: int = 0) -> Experiment:
        if self.made == self.kill_at:
            self.kill_at = None
            raise Killed
        self.made += 1
        text = [str(op) for op in operations]
        paths = paths_of(operations)
        shown = tuple((symptom_of(o, s, paths), f"@7 {o}: {s}") for o, s in self._planted(text).items())
        return Experiment(tuple(text), attempt, way.fast, shown)


def plan_of(*generators: str, batch: int = 4, keep: bool = False) -> CampaignPlan:
    """A plan of small batches of short workloads. From this seed on, most of them make a nameless file."""
    run = Plan(configurations=[MODE], workloads=[], argv=["campaign"])
    return CampaignPlan(run=run, generators=generators, batch=batch, length=6, seed=33, keep=keep)


def carried_out(
    plan: CampaignPlan, path: Path, run: ToyRuns, tries: ToyTries | None = None
) -> tuple[End | None, KnownBatches, list[str]]:
    """One process's part: how it ended (None: killed), what is on the disk then, and what was said."""
    said, end = Said(), None
    tries = tries or ToyTries(run.planted)
    with contextlib.suppress(Killed):
        end = carry_out(CampaignSeries(plan, path, lambda *_: tries), said, run=run)
    return end, read_ledger(path), said.lines


def read_ledger(path: Path) -> KnownBatches:
    """What a campaign has come to, by what is on the disk."""
    return CampaignSeries(load_plan(path), path).ledger


def killed_at_put(count: int, *, torn: bool) -> Callable[[Journal[Batch], Line], None]:
    """`Journal.put` that kills the process at the line of that number: before it, or with half of it."""
    real, left = Journal.put, [count]

    def put(journal: Journal[Batch], line: Line) -> None:
        left[0] -= 1
        if left[0] < 0:
            if torn:
                real(journal, line)
                file = journal._file
                file.write_bytes(file.read_bytes()[:-9])
            raise Killed
        real(journal, line)

    return put
