"""Litmus programs, mode after mode (`powercut litmus`): each mode on a kernel is an item of a series, and so
can be gone on with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.filesystems.existing import need_made
from harness.filesystems.profiles import select_profiles
from harness.grouping import by_key
from harness.host.files import write_atomically
from harness.kernels.find import build_of, look_up_kernel
from harness.litmus.page import markdown, page_of
from harness.litmus.programs import Program, programs
from harness.litmus.promises import need_told_apart, promises
from harness.litmus.results import NOT_YET, CellAnswer, Litmus, LitmusPlan, OnMode, cell_of, name_of
from harness.model import CaseId, Verdict
from harness.model.schedules import with_schedules, without_schedule
from harness.oracles import ORACLES
from harness.oracles.contract import Contract
from harness.oracles.question import NAME as QUESTION
from harness.oracles.question import NOT_PUT
from harness.plan import Plan
from harness.report.page import Page
from harness.report.words import plural
from harness.series.work import Item, Series, Work, begin, read_plan
from harness.store import RunStore
from harness.summary import CaseSummary, Summary

RESULTS_NAME = "litmus.json"


def create(plan: LitmusPlan, out: Path) -> Path:
    """Make the directory. Raises UsageError for a mode, a program or a kernel that does not exist, and where
    `compare` finds other than two columns.
    """
    _programs(plan)
    for kernel in plan.kernels:
        look_up_kernel(kernel)
    profiles = select_profiles(plan.modes)
    need_made(profiles)
    names = [p.name for p in profiles]
    plan = msgspec.structs.replace(plan, modes=names, kernels=list(dict.fromkeys(plan.kernels)))
    if plan.compare and len(plan.columns) != 2:  # a difference is between two
        raise UsageError(
            f"{plural(len(plan.columns), 'column')} cannot be compared",
            "name two modes on one kernel, or one mode on two kernels",
        )
    return begin(plan, out, "litmus")


def load_plan(path: Path) -> LitmusPlan:
    """The plan of a directory. Raises as `read_plan`."""
    return read_plan(path, LitmusPlan, "table of litmus programs", "litmus")


def _programs(plan: LitmusPlan) -> list[Program]:
    """Raises as `programs` and `need_told_apart`."""
    found = programs(plan.names)
    for program in found:
        need_told_apart(program.name, program.question)
    return found


class LitmusSeries(Series[OnMode]):
    """See `Series`. Raises UsageError for a plan that names what does not exist."""

    done = OnMode
    folder = "modes"
    results = RESULTS_NAME
    common_lacks = (UsageError,)

    def __init__(self, plan: LitmusPlan, path: Path) -> None:
        self.plan, self._programs = plan, _programs(plan)
        self._builds = {kernel: build_of(kernel) for kernel in plan.kernels}
        self._promises: dict[tuple[Contract, str], bool] = {}
        select_profiles(plan.modes)
        super().__init__(path, plan.argv, plan.expectations)

    def items(self, work: Work[OnMode]) -> Sequence[Item]:
        return [self._item(mode, kernel) for mode, kernel in self.plan.columns]

    def _item(self, mode: str, kernel: str) -> Item:
        plan = Plan(
            configurations=[mode],
            workloads=with_schedules([p.name for p in self._programs], self.plan.schedules),
            kernel=kernel,
            machine=self.plan.machine,
            fault_models=self.plan.fault_models,
            budget=self.plan.budget,
            jobs=self.plan.jobs,
            oracles=tuple(ORACLES),
            argv=self.plan.argv,
        )
        name = self.plan.column(mode, kernel)
        return Item(name, plan, self._key(name, kernel))

    def _key(self, name: str, kernel: str) -> str:
        """The answers of a column are kept as long as the same is asked, of the same build. What is promised
        is no part of it: that is looked up when the page is written. Of a file that is gone, what is known
        stays.
        """
        done, build = self.known.done.get(name), self._builds[kernel]
        if done and Path(kernel).is_absolute() and not build:
            return done.key
        programs = [
            (p.name, p.operations, p.question.holds, p.question.first, p.question.until)
            for p in self._programs
        ]
        asked = (programs, self.plan.fault_models, self.plan.budget, self.plan.schedules, build)
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()

    def keep(self, item: Item, store: RunStore, summary: Summary) -> OnMode:
        mode, kernel = next(c for c in self.plan.columns if self.plan.column(*c) == item.name)
        of = by_key((without_schedule(case.case.workload)[0], case) for case in summary.cases)
        of_kernel = summary.info.kernel
        cells = [self._cell(mode, p, of.get(p.name, []), store) for p in self._programs]
        return OnMode(
            item=item.name,
            mode=mode,
            asked=kernel,
            kernel=of_kernel.name,
            release=of_kernel.release or of_kernel.version,
            machine=summary.info.machine.details.get("how", ""),
            cells=tuple(cells),
        )

    def _cell(self, mode: str, program: Program, of: list[CaseSummary], store: RunStore) -> CellAnswer:
        no = [answered_no(store, c) for c in of]
        return cell_of(
            program.name,
            self._promised(mode, program),
            of,
            not_put=sum(not_put(store, c.case) for c in of),
            known_no=sum(known for known, _ in no),
            alone=sum(alone for _, alone in no),
        )

    def _promised(self, mode: str, program: Program) -> bool:
        contract = select_profiles([mode])[0].contract  # many modes have the same
        key = (contract, program.name)
        if key not in self._promises:
            self._promises[key] = promises(contract, program.workload.operations, program.question)
        return self._promises[key]

    def words(self, done: OnMode) -> str:
        if done.failed:
            return f"{done.item}: {done.failed}"
        no = sum(bool(c.no) for c in done.cells)
        broken = sum(bool(c.no and c.promised) for c in done.cells)
        return (
            f"{done.item}: {plural(len(done.cells), 'question')}, {no} answered with no, {broken} of these "
            f"against a promise; {done.seconds:.0f} s"
        )

    @property
    def litmus(self) -> Litmus:
        """What is known so far."""
        columns = dict[str, OnMode]()
        for mode, kernel in self.plan.columns:
            name = self.plan.column(mode, kernel)
            done = self.known.done.get(name)
            whole = done and done.key == self._key(name, kernel)
            of = self._judged(done) if done and whole else OnMode(item=name, failed=NOT_YET)
            columns[name] = msgspec.structs.replace(of, mode=mode, asked=kernel)
        return Litmus(self.plan, columns, self.path, self.known.finished, self.known.interrupted)

    def _judged(self, of: OnMode) -> OnMode:
        """With the promises of today's contracts."""
        known = {p.name: p for p in self._programs}
        cells = [
            msgspec.structs.replace(c, promised=self._promised(of.mode, known[c.program]))
            for c in of.cells
            if c.program in known
        ]
        return msgspec.structs.replace(of, cells=tuple(cells))

    def page(self) -> Page:
        return page_of(self.litmus, self._programs)

    def write(self) -> Page:
        """Write the page, and the table in Markdown."""
        write_atomically(self.path / "table.md", markdown(self.litmus, self._programs))
        return super().write()


def not_put(store: RunStore, case: CaseId) -> int:
    """How many states that another oracle refuses gave no answer."""
    why = (NOT_PUT, f"oracle {QUESTION} failed")
    return sum(any(w.startswith(why) for w in v.unknown) for v in store.iter_verdicts(case, Verdict.FAIL))


def answered_no(store: RunStore, case: CaseSummary) -> tuple[int, int]:
    """In how many states the answer is no and what other oracles found there is known, all of it; and in how
    many it is no and no other oracle found anything.
    """
    named = {(f.oracle, f.signature) for f in case.findings if name_of(f) or f.expectation}
    others = [
        {kind for kind in kinds if kind[0] != QUESTION}
        for kinds in store.violated(case.case).values()
        if any(oracle == QUESTION for oracle, _ in kinds)
    ]
    return sum(bool(found) and found <= named for found in others), sum(not found for found in others)
