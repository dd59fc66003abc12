"""A sweep: the same cases on one kernel after another (`powercut history`, `powercut matrix`). Each kernel is
an item of a series: a run, which may be done on the next day.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.host.files import write_atomically
from harness.kernels.find import build_of, look_up_kernel
from harness.kernels.pins import pins
from harness.releases.page import page_of
from harness.releases.results import EarlierAnswer, OnKernel, Sweep, SweepPlan, answer_of
from harness.releases.verdict_page import verdict_csv, verdict_page
from harness.report.page import Page
from harness.report.trend import read_before
from harness.report.words import plural
from harness.series.work import Item, Series, Work, begin, read_plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary

RESULTS_NAME = "releases.json"


def every_kernel() -> list[str]:
    """The pins of kernels that boot a PC, oldest series first."""
    found = [pin for pin in pins().values() if not pin.machine]
    return [p.name for p in sorted(found, key=lambda p: [int(n) for n in p.series.split(".")])]


def create(plan: SweepPlan, out: Path, name: str) -> Path:
    """Make the directory of a sweep. Raises UsageError for a kernel that does not exist."""
    for kernel in plan.kernels:
        look_up_kernel(kernel)
    return begin(plan, out, name)


def load_plan(path: Path, command: str = "matrix") -> SweepPlan:
    """The plan of a sweep that `command` began. Raises as `read_plan`."""
    plan = read_plan(path, SweepPlan, command, command)
    if not re.fullmatch("(?:[0-9a-f]{12})?", plan.finding):  # it names a file
        raise StoreError(f"{path}: {plan.finding!r} is no finding", "start a new sweep")
    return plan


class SweepSeries(Series[OnKernel]):
    """See `Series`. A kernel that cannot be had or run is an answer, too: its reason, beside what it had
    answered before.
    """

    done = OnKernel
    folder = "kernels"
    results = RESULTS_NAME
    common_lacks = ()

    def __init__(self, plan: SweepPlan, path: Path) -> None:
        self.plan, self._builds = plan, {k: build_of(k) for k in plan.kernels}
        super().__init__(path, plan.argv, plan.expectations)
        self.bugs = plan.known

    def items(self, work: Work[OnKernel]) -> Sequence[Item]:
        """Each kernel, which shares the time with the others."""
        plan, keys = self.plan.plan, {k: self._key(k) for k in self.plan.kernels}
        for kernel in keys:
            if not self._answered(kernel) and (known := self.known.done.get(kernel)) and known.key:
                work.progress.say(f"{kernel} was built anew since it was run: it is run again")
        return [Item(k, msgspec.structs.replace(plan, kernel=k), key, shares=True) for k, key in keys.items()]

    def _key(self, kernel: str) -> str:
        """Answers of another build of a file are not its own. Of one that is gone, what is known stays; so
        it does where an earlier version kept answers without their build.
        """
        known, build = self.known.done.get(kernel), self._builds[kernel]
        stays = known and (not build or (known.answers and not known.key))
        return known.key if known and stays else build

    def _answered(self, kernel: str) -> OnKernel | None:
        """What is known of a kernel, as it is built now."""
        done = self.known.done.get(kernel)
        return done if done and done.key == self._key(kernel) else None

    def keep(self, item: Item, store: RunStore, summary: Summary) -> OnKernel:
        of_kernel = summary.info.kernel
        return OnKernel(
            item=item.name,
            name=of_kernel.details.get("built from", of_kernel.name),
            release=of_kernel.release or of_kernel.version,
            linux=of_kernel.linux,
            machine=summary.info.machine.details.get("how", ""),
            answers=tuple(map(answer_of, summary.cases)),
        )

    def words(self, done: OnKernel) -> str:
        if done.failed:
            return f"{done.item}: {done.failed}"
        able = [a for a in done.answers if a.verdict is not CaseVerdict.NOT_RUN or a.lacks]
        broken, open_ = sum(bool(a.findings) for a in able), sum(a.undecided or a.lacks for a in able)
        left = f", {open_} not decided" if open_ else ""
        return f"{done.name}: {plural(len(able), 'case')}{left}, {broken} with findings"

    @property
    def sweep(self) -> Sweep:
        """What it has shown so far."""
        answers = tuple(self._answered(k) or OnKernel(item=k) for k in self.plan.kernels)
        begun = self.known.started[0].when if self.known.started else ""
        gone = frozenset(k.item for k in answers if k.run and not (self.path / k.run).is_dir())
        return Sweep(self.plan, answers, self.path, begun, self.known.finished, self.known.interrupted, gone)

    def page(self) -> Page:
        return page_of(self.sweep)


class _Row(msgspec.Struct):
    configuration: str
    asked: str
    verdict: str
    known_bugs: str


class _Verdict(msgspec.Struct):
    begun: datetime
    depth: str
    verdicts: list[_Row]


class VerdictSeries(SweepSeries):
    """A sweep as a verdict: see `harness.releases.verdict`."""

    results = "verdict.json"

    @property
    def sweep(self) -> Sweep:
        """With what the verdicts beside it said before."""
        now = super().sweep
        if not now.begun:
            return now
        begun = datetime.fromisoformat(now.begun)
        before: dict[tuple[str, str], dict[datetime, EarlierAnswer]] = {}
        for _, then in read_before(self.path, begun, self.results, _Verdict):
            if then.depth == now.plan.depth and then.begun.tzinfo and then.begun < begun:
                for row in then.verdicts:
                    said = EarlierAnswer(then.begun, row.verdict, row.known_bugs)
                    before.setdefault((row.configuration, row.asked), {})[then.begun] = said
        return replace(now, before={of: [s for _, s in sorted(d.items())] for of, d in before.items()})

    def page(self) -> Page:
        return verdict_page(self.sweep)

    def write(self) -> Page:
        write_atomically(self.path / "verdict.csv", verdict_csv(self.sweep))
        return super().write()
