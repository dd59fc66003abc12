"""Planted faults: the unmodified kernel and then one kernel per fault, each under the same workloads. Each is
an item of a series; those of the unmodified kernel, the baseline, are called `baseline-1`, `baseline-2`, ...

Where the first case that finds a fault is enough, the unmodified kernel is asked only in the cases in which a
fault's kernel shows something, each an item `baseline-CASE`. A fault's run stops at such a case, unless it is
known of unmodified kernels, and goes on if the unmodified kernel shows that, too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import msgspec

from harness.errors import StoreError, UsageError
from harness.expectations import known_losses
from harness.faults.catalogue import PlantedFault, faults, select_faults
from harness.faults.page import page_of
from harness.faults.results import (
    BASELINE,
    Campaign,
    Detection,
    FaultsPlan,
    OtherCampaign,
    Row,
    Trial,
    counts,
    joined,
    row_of,
    score_of,
)
from harness.filesystems.profiles import select_profiles
from harness.host.trees import need_plain
from harness.kernels.build import Built
from harness.kernels.edits import Edit
from harness.model import CaseId
from harness.model.schedules import with_schedules
from harness.plan import Plan
from harness.report.page import Page
from harness.report.words import plural
from harness.series.work import Item, Series, Work, begin, read_plan
from harness.store import RunStore
from harness.store.records import CaseStatus, Finding
from harness.summary import CaseSummary, Summary
from harness.workloads.load import select_workloads


class Editable(Protocol):
    """The source of a kernel: see `harness.kernels.variants.SourceTree`."""

    def edited(self, edits: Sequence[Edit]) -> dict[str, str]:
        """Raises UsageError for an edit that does not find its place."""


class Kernels(Editable, Protocol):
    """Where the kernels of a campaign come from: see `harness.kernels.variants.KeptTree`."""

    @property
    def built(self) -> Built: ...

    @property
    def image(self) -> Path: ...

    def key(self, edits: Sequence[Edit]) -> str: ...

    def variant(self, edits: Sequence[Edit]) -> Path:
        """The kernel with these edits, built if need be. Raises KernelError if it does not build."""


def chosen_faults(plan: FaultsPlan) -> list[PlantedFault]:
    """The faults of a plan, each with the workloads that it is to run. One that only another source package
    has is left out, unless it is named. Raises UsageError then, and for a name that does not exist.
    """
    fitting = [f for f in faults().values() if plan.names or f.source in ("", plan.source)]
    chosen = select_faults(plan.names, [p.name for p in select_profiles(plan.modes)], fitting)
    if other := next((f for f in chosen if f.source not in ("", plan.source)), None):
        raise UsageError(
            f"{other.name} is a fault in code that {plan.source} lacks", f"add --source {other.source}"
        )
    if plan.workloads or plan.schedules:
        asked = [with_schedules(plan.workloads or list(f.asked_workloads), plan.schedules) for f in chosen]
        chosen = [msgspec.structs.replace(f, workloads=tuple(w)) for f, w in zip(chosen, asked, strict=True)]
    select = cache(select_workloads)  # each set once
    for fault in chosen:
        try:
            select(fault.asked_workloads)
        except UsageError as e:
            raise UsageError(f"fault {fault.name}: {e.what}", e.next_step) from e
    return chosen


def create(plan: FaultsPlan, out: Path) -> Path:
    """A new directory with its plan. Raises as `chosen_faults`."""
    chosen_faults(plan)
    return begin(msgspec.structs.replace(plan, started=datetime.now(UTC)), out, "faults")


def load_plan(path: Path) -> FaultsPlan:
    """The plan of a directory. Raises as `read_plan`."""
    return read_plan(path, FaultsPlan, "campaign of planted faults", "faults")


def other_campaign(path: Path) -> OtherCampaign:
    """What the campaign in a directory came to, by its results. Raises StoreError if they cannot be read, or
    for a directory that holds more than files and folders.
    """
    need_plain(path)
    file = path / FaultSeries.results
    try:
        known = msgspec.json.decode(file.read_bytes(), type=_Results)
    except (OSError, msgspec.MsgspecError) as e:
        raise StoreError(
            f"{file} cannot be read: {e}", "name the directory of a campaign of planted faults"
        ) from e
    answers = {
        row.fault.name: (row.status, row.detections[0].case if row.detections else "") for row in known.rows
    }
    return OtherCampaign(tuple(known.plan.workloads), score_of(known.rows), answers)


class _Asked(msgspec.Struct, frozen=True):
    workloads: list[str]


class _Results(msgspec.Struct, frozen=True):
    """Of `faults.json`, what `other_campaign` takes."""

    plan: _Asked
    rows: list[Row]


def need_places(chosen: Sequence[PlantedFault], source: Editable) -> None:
    """Raises UsageError if an edit does not find its place."""
    for fault in chosen:
        try:
            source.edited(fault.edits)
        except UsageError as e:
            raise UsageError(f"fault {fault.name}: {e.what}", e.next_step) from e


@dataclass(frozen=True, slots=True)
class TestSet:
    """What a kernel is asked. `disk`, `again`: see `PlantedFault`. `case`: this one alone; None: all."""

    modes: tuple[str, ...]
    workloads: tuple[str, ...]
    disk: tuple[str, ...] = ()
    again: int = 0
    case: CaseId | None = None

    @property
    def words(self) -> str:
        """What is done to recoveries; empty for nothing."""
        faulty_disk = f", on a faulty disk ({', '.join(self.disk)})" if self.disk else ""
        return faulty_disk + (f", recoveries cut {self.again} deep" if self.again else "")


def test_set_of(fault: PlantedFault) -> TestSet:
    """What the kernel with a fault is asked."""
    return TestSet(fault.modes, fault.asked_workloads, fault.disk, fault.again)


def baseline_runs(chosen: Sequence[PlantedFault]) -> list[TestSet]:
    """What the unmodified kernel is asked, run by run: every case of a fault, and few others."""
    by_mode: dict[tuple[str, tuple[str, ...], int], dict[str, None]] = {}
    for fault in chosen:
        for mode in fault.modes:
            key = (mode, fault.disk, fault.again)
            by_mode.setdefault(key, {}).update(dict.fromkeys(fault.asked_workloads))
    runs: dict[tuple[tuple[str, ...], tuple[str, ...], int], list[str]] = {}
    for (mode, disk, again), workloads in by_mode.items():
        runs.setdefault((tuple(sorted(workloads)), disk, again), []).append(mode)
    return [TestSet(tuple(modes), *key) for key, modes in runs.items()]


class FaultSeries(Series[Trial]):
    """See `Series`. Raises as `chosen_faults` and `need_places`, before anything is run."""

    done = Trial
    folder = "trials"
    results = "faults.json"
    quiet = True

    def __init__(self, plan: FaultsPlan, path: Path, kernels: Kernels) -> None:
        self.plan, self._kernels, self._chosen = plan, kernels, chosen_faults(plan)
        need_places(self._chosen, kernels)
        self._done_by = cache(done_by)
        self._build_s: dict[str, float] = {}
        self._cases: dict[str, Sequence[str]] = {}  # by item
        runs = [] if plan.first else baseline_runs(self._chosen)
        self._asked = {f"{BASELINE}-{n}": asked for n, asked in enumerate(runs, 1)}
        self._baseline = [self._item(name, (), asked) for name, asked in self._asked.items()]
        self._trials = {f.name: self._trial_of(f) for f in self._chosen}
        super().__init__(path, plan.argv, list(known_losses()))

    def items(self, work: Work[Trial]) -> Iterable[Item]:
        return self._until_found(work) if self.plan.first else [*self._baseline, *self._trials.values()]

    def _until_found(self, work: Work[Trial]) -> Iterator[Item]:
        """Each fault, then the cases of the baseline that it is held against, and the rest of it if they show
        the same.
        """
        asked: set[str] = set()
        for fault in self._chosen:
            yield (trial := self._trials[fault.name])
            while new := [i for i in self._left_of_baseline(fault) if i.name not in asked]:
                asked.update(i.name for i in new)
                yield from new
                if self.whole(trial):
                    work.progress.say(_row_words(self._row(fault)))
                else:
                    yield trial

    def whole(self, item: Item) -> Trial | None:
        """None also for a run that a case ended, if nothing that it shows counts, as is known by now; but not
        if it could not go on: then what is kept says why.
        """
        done = super().whole(item)
        if done and done.ended_early and not done.failed:
            fault = next(f for f in self._chosen if f.name == item.name)
            return done if any(self._may_count(fault, d) for d in done.detections) else None
        return done

    def _trial_of(self, fault: PlantedFault) -> Item:
        item = self._item(fault.name, fault.edits, test_set_of(fault))
        return replace(item, enough=partial(self._found_by, fault)) if self.plan.first else item

    def _found_by(self, fault: PlantedFault, store: RunStore, case: CaseId) -> str:
        """Why no further case is needed after this one for now; empty if it does not find the fault. What
        unmodified kernels are known to show rarely does: its case is asked of one once the run has ended.
        """
        seen = [s for f in store.findings_of(case) if not (s := detection_of(f, 0)).reason]
        return f"{case} shows something" if any(self._may_count(fault, s) for s in seen) else ""

    def _may_count(self, fault: PlantedFault, seen: Detection) -> bool:
        """Whether a finding is credited to the fault, or may be once the unmodified kernel has been asked."""
        theirs = self.whole(self._one_case(fault, seen.case))
        return theirs is None or counts(seen, theirs)

    def _one_case(self, fault: PlantedFault, name: str) -> Item:
        """The run of the unmodified kernel in one case of a fault."""
        case = CaseId.parse(name)
        asked = replace(test_set_of(fault), modes=(case.configuration,), case=case)
        return self._item(f"{BASELINE}-{name}{asked.words}", (), asked)

    def _item(self, name: str, edits: Sequence[Edit], asked: TestSet) -> Item:
        again = [f"again {asked.again}"] if asked.again else []
        states = [*self.plan.fault_models, self.plan.budget.option, *asked.disk, *again]
        done = self._done_by(asked.workloads)
        if asked.case:
            done = [of for of in done if of[0] == asked.case.workload]
        modes = [mode.replace("/", "-", 1) for mode in asked.modes]
        self._cases[name] = [f"{mode}/{workload}" for mode in modes for workload, *_ in done]
        key = key_of(self._kernels.key(edits), asked.modes, done, states)
        return Item(name, self._built(name, edits, asked), key)

    def _built(self, name: str, edits: Sequence[Edit], asked: TestSet) -> Callable[[], Plan]:
        def plan() -> Plan:
            begun = time.monotonic()
            image = self._kernels.variant(edits) if edits else self._kernels.image
            self._build_s[name] = round(time.monotonic() - begun, 1)
            return Plan(
                configurations=list(asked.modes),
                workloads=list(asked.workloads),
                kernel=str(image),
                machine=self.plan.machine,
                fault_models=self.plan.fault_models,
                budget=self.plan.budget,
                disk=asked.disk,
                again=asked.again,
                only=(str(asked.case),) if asked.case else (),
                jobs=self.plan.jobs,
                argv=self.plan.argv,
            )

        return plan

    def keep(self, item: Item, store: RunStore, summary: Summary) -> Trial:
        before = self.known.done.get(item.name)  # whose seconds count, too
        build_s = round(self._build_s[item.name] + (before.build_seconds if before else 0), 1)
        return msgspec.structs.replace(trial_of(item, store, summary), build_seconds=build_s)

    def words(self, done: Trial) -> str:
        fault = next((f for f in self._chosen if f.name == done.item), None)
        return _row_words(self._row(fault)) if fault else _baseline_words(done)

    @property
    def campaign(self) -> Campaign:
        """What it has shown so far."""
        built = self._kernels.built
        kernel = " ".join(filter(None, [built.source, built.source_version, built.release]))
        rows = tuple(map(self._row, self._chosen))
        known = self.known
        baseline = self._joined({i.name: i for f in self._chosen for i in self._baseline_items(f)}.values())
        return Campaign(self.plan, kernel, baseline, rows, self.path, known.finished, known.interrupted)

    def page(self) -> Page:
        return page_of(self.campaign)

    def _row(self, fault: PlantedFault) -> Row:
        return row_of(fault, self.whole(self._trials[fault.name]), self._joined(self._baseline_items(fault)))

    def _baseline_items(self, fault: PlantedFault) -> list[Item]:
        """The runs of the unmodified kernel that a fault is held against: on such a disk, with recoveries cut
        as often, since cases of other runs have the same names.
        """
        if not self.plan.first:
            asked = {name: (of.disk, of.again) for name, of in self._asked.items()}
            return [i for i in self._baseline if asked[i.name] == (fault.disk, fault.again)]
        item, done = self._trials[fault.name], self.known.done.get(fault.name)  # interrupted or not
        shown = done.detections if done and done.key == item.key else ()
        cases = dict.fromkeys(d.case for d in shown)
        return [self._one_case(fault, case) for case in cases]

    def _left_of_baseline(self, fault: PlantedFault) -> list[Item]:
        items = self._baseline_items(fault)
        return [i for i in items if not ((theirs := self.whole(i)) and theirs.decided)]

    def _joined(self, items: Iterable[Item]) -> Trial:
        return joined(BASELINE, [t for item in items if (t := self.whole(item))], self._cases)


def trial_of(item: Item, store: RunStore, summary: Summary) -> Trial:
    """What to keep of a run: the cases that were decided, what was found in any, and why others were not. Of
    a run that was stopped, a case that it cut short is neither decided nor undecided, and what it showed
    counts; of one that a case was enough for, nothing is kept of those cases.
    """
    unfinished = (CaseStatus.PLANNED, CaseStatus.RECORDED) if summary.info.stopped else ()
    cases = [c for c in summary.cases if c.status not in unfinished]
    decided = [c for c in cases if not c.was_not_run and not c.undecided]
    enough = bool(summary.info.stopped) and any(item.enough(store, c.case) for c in cases)
    shown = cases if enough else summary.cases
    return Trial(
        item=item.name,
        asked=store.plan().only,
        cases=tuple(str(c.case) for c in decided),
        detections=tuple(detection_of(f, c.counts.checked) for c in shown for f in c.findings),
        undecided={str(c.case): _reason(c) for c in cases if c.undecided or c.lacks},
        states=summary.checked,
        ended_early=enough,
    )


Done = tuple[str, list[str], list[str]]
"""What a workload does: its name, its operations, and the hashes of its files."""


def done_by(workloads: Sequence[str], shard: str = "") -> list[Done]:
    """What these workloads do. Reads them all, so ask once for all items that have the same."""
    return [
        (
            w.name,
            list(map(str, w.operations)),
            [hashlib.sha256(data).hexdigest() for data in w.files.values()],
        )
        for w in select_workloads(workloads, shard)
    ]


def key_of(kernel: str, modes: Sequence[str], done: Sequence[Done], fault_models: Sequence[str]) -> str:
    """A key for the question of a trial: its kernel, its modes, and what its workloads do."""
    asked = (kernel, list(modes), done, list(fault_models))
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()


def _reason(case: CaseSummary) -> str:
    """Why a case is undecided, in one line, with what was the matter with most of its states."""
    reason = case.undecided or case.reason
    if case.status is not CaseStatus.UNKNOWN and case.unknown_reasons:
        reason = f"{reason}: {case.unknown_reasons[0].reason}"
    return "; ".join(line.strip() for line in reason.splitlines())


def detection_of(finding: Finding, states: int) -> Detection:
    """What to keep of a finding in a case of so many states."""
    return Detection(
        id=finding.id,
        case=str(finding.case),
        oracle=finding.oracle,
        states=finding.states,
        of=states,
        summary=finding.summary,
        example=str(finding.crash_point),
        known=finding.expectation.reason if finding.expectation else "",
        symptom=finding.symptom.what,
        bug=finding.known.bug.name if finding.known else "",
    )


def _baseline_words(trial: Trial) -> str:
    name = trial.item
    if trial.failed:
        return f"{name}: nothing could be run: {trial.failed}"
    new = [s for s in trial.detections if not s.reason]
    more = f", {plural(len(new), 'finding')} that no fault gets credit for" if new else ""
    left = f", {plural(len(trial.undecided), 'case')} undecided" if trial.undecided else ""
    cases = plural(len(trial.cases), "case")
    return f"{name} (the unmodified kernel): {cases}{more}{left}, {trial.seconds:.0f} s"


def _row_words(row: Row) -> str:
    if not row.detections:
        return f"{row.fault.name}: {row.status}, {row.seconds:.0f} s" + (f": {row.why}" if row.why else "")
    first = row.detections[0]
    return f"{row.fault.name}: found by {first.workload} ({first.oracle}), {row.seconds:.0f} s"
