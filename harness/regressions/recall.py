"""A series over the upstream bugs: each kernel that one of them names, in each mode in which it can show, is
an item; bugs that name the same kernel and mode share its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.errors import StoreError, UsageError
from harness.expectations import known_losses
from harness.faults.campaign import done_by, key_of, trial_of
from harness.faults.results import Trial
from harness.model.schedules import without_schedule
from harness.plan import Plan
from harness.regressions.catalogue import select_bugs
from harness.regressions.page import page_of
from harness.regressions.results import Recall, RegressionsPlan, row_of, with_shared
from harness.report.page import Page
from harness.report.words import plural
from harness.series.work import Item, Series, Work, begin, read_plan
from harness.store import RunStore
from harness.summary import Summary
from harness.workloads.generate import SETS as GENERATED_SETS
from harness.workloads.generate import is_generated
from harness.workloads.load import select_workloads, workload_sets

GENERAL_SETS = ("quick", "all", "more", "oldtree", "beside", *GENERATED_SETS)
"""Sets that were not written for a bug of somebody else's; `fstests` was."""


def need_general(workloads: Iterable[str]) -> None:
    """Raises UsageError for what is neither a general set, nor a workload of one, nor a generated one."""
    sets = workload_sets()
    general = {*GENERAL_SETS, *(name for of in GENERAL_SETS for name in sets.get(of, ()))}
    for word in workloads:
        plain, _ = without_schedule(word)
        if plain not in general and not is_generated(plain):
            raise UsageError(
                f"{word!r} is no general set and in none: a workload written for a bug finds that, and says "
                "nothing of a plain run",
                f"one of: {', '.join(GENERAL_SETS)}, or a workload of these",
            )


def create(plan: RegressionsPlan, out: Path) -> Path:
    """A new directory with its plan. Raises as `select_bugs` and `need_general`."""
    select_bugs(plan.names, plan.modes)
    need_general(plan.workloads)
    select_workloads(plan.workloads, plan.shard)
    return begin(plan, out, "regressions")


def load_plan(path: Path) -> RegressionsPlan:
    """The plan of a directory. Raises as `read_plan`, and StoreError for workloads of its own."""
    plan = read_plan(path, RegressionsPlan, "series of upstream bugs", "regressions")
    try:
        need_general(plan.workloads)
    except UsageError as e:
        raise StoreError(f"{path}: {e.what}", "start a new series") from e
    return plan


class RecallSeries(Series[Trial]):
    """See `Series`. A kernel that cannot be had or run is an answer, too: its reason. Bug by bug, so that a
    series that is stopped has decided some of them.
    """

    done = Trial
    folder = "kernels"
    results = "regressions.json"
    common_lacks = ()

    def __init__(self, plan: RegressionsPlan, path: Path) -> None:
        self.plan, self._bugs = plan, select_bugs(plan.names, plan.modes)
        pairs = [(b, m) for b in self._bugs if not b.needs for m in b.modes]
        self._done = done_by(plan.workloads, plan.shard)
        asked = [(kernel, mode, b.disk) for b, mode in pairs for kernel in (b.before, b.after)]
        self._items = {key: self._item(*key) for key in dict.fromkeys(asked)}
        super().__init__(path, plan.argv, list(known_losses()))

    def items(self, work: Work[Trial]) -> Sequence[Item]:
        return [*self._items.values()]

    def _item(self, kernel: str, mode: str, disk: tuple[str, ...]) -> Item:
        plan = self.plan
        run = Plan(
            configurations=[mode],
            workloads=[*plan.workloads],
            kernel=kernel,
            fault_models=plan.fault_models,
            budget=plan.budget,
            disk=disk,
            shard=plan.shard,
            jobs=plan.jobs,
            argv=plan.argv,
        )
        states = [*plan.fault_models, plan.budget.option, *disk]
        key = key_of(kernel, [mode], self._done, states)
        return Item("_".join([kernel, mode.replace("/", "-"), *disk]), run, key)

    def keep(self, item: Item, store: RunStore, summary: Summary) -> Trial:
        return trial_of(item, store, summary)

    def words(self, done: Trial) -> str:
        if done.failed:
            return f"{done.item}: UNKNOWN: {done.failed}"
        shown = sum(not d.known for d in done.detections)
        left = f", {plural(len(done.undecided), 'case')} undecided" if done.undecided else ""
        found = plural(shown, "unexpected finding")
        return f"{done.item}: {plural(len(done.cases), 'case')}, {found}{left}, {done.seconds:.0f} s"

    @property
    def recall(self) -> Recall:
        """What it has come to so far."""
        rows = with_shared(
            row_of(
                b,
                *([self._trial(kernel, m, b.disk) for m in b.modes] for kernel in (b.before, b.after)),
            )
            for b in self._bugs
        )
        return Recall(self.plan, rows, self.path, self.known.finished, self.known.interrupted)

    def page(self) -> Page:
        return page_of(self.recall)

    def _trial(self, kernel: str, mode: str, disk: tuple[str, ...]) -> Trial | None:
        """The whole run of a kernel in a mode, if it is of what is asked now."""
        item = self._items.get((kernel, mode, disk))
        return self.whole(item) if item else None
