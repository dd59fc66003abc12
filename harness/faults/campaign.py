"""A campaign: the unmodified kernel and then one kernel per fault, each under the same workloads.

```
reports/runs/<date>-faults/     plan.json       what was asked for
                                trials/NAME/    trial.json, and the run directories of that kernel
                                faults.json     what became of every fault
                                report.html summary.txt
```

A trial that has its trial.json is done; one that was interrupted goes on with its run directories. The trials
of the unmodified kernel, the control, are called `control-1`, `control-2`, ...
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from harness.errors import EnvironmentLacks, PowercutError, RunChanged, StoreError, UsageError
from harness.expectations import Expectation, read_expectations
from harness.faults.catalogue import Fault, faults, select_faults
from harness.faults.results import Row, Sighting, Trial, joined, row_of
from harness.filesystems.profiles import select_profiles
from harness.host.files import write_atomically
from harness.host.progress import Progress, Quiet
from harness.host.resources import resource
from harness.kernels.build import Built
from harness.kernels.edits import Edit
from harness.measurements.directory import make_directory
from harness.plan import Budget, Plan
from harness.report.words import plural
from harness.run import create_run, execute
from harness.store import RunStore
from harness.store.layout import latest, need_plain_run
from harness.store.lock import locked
from harness.store.records import CaseStatus
from harness.summary import CaseSummary, Summary, summarise
from harness.workloads.load import select_workloads

RESULTS_NAME = "faults.json"
CONTROL = "control"
_TRIAL_NAME = "trial.json"


class FaultsPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a campaign. `names`, `modes`: see `select_faults`. `workloads`: empty: those of each
    fault. `started`: set when the run directory is made.
    """

    names: list[str] = []
    modes: list[str] = []
    workloads: list[str] = []
    source: str = "linux-source-6.12"
    machine: str
    fault_models: tuple[str, ...] = ("prefix",)
    budget: Budget = Budget()
    jobs: int = 1
    started: datetime | None = None
    argv: list[str] = []


def known_failures() -> list[Expectation]:
    """What unmodified kernels are known to lose, in the order of the log and in any other."""
    names = ("natural-faults.expected", "reordering.expected")
    return [e for name in names for e in read_expectations(resource("vms", "filesystems", name))]


class Kernels(Protocol):
    """Where the kernels of a campaign come from: see `harness.kernels.variants.KeptTree`."""

    @property
    def built(self) -> Built:
        """What the unmodified kernel was built from."""
        ...

    @property
    def image(self) -> Path:
        """The unmodified kernel."""
        ...

    def edited(self, edits: Sequence[Edit]) -> dict[str, str]:
        """Raises UsageError for an edit that does not find its place."""
        ...

    def key(self, edits: Sequence[Edit]) -> str:
        """Identifies a variant."""
        ...

    def variant(self, edits: Sequence[Edit]) -> Path:
        """The kernel with these edits, built if need be. Raises KernelError if it does not build."""
        ...


class Campaign(msgspec.Struct, frozen=True):
    """What a campaign has shown so far; `faults.json`."""

    plan: FaultsPlan
    kernel: str
    control: Trial
    rows: tuple[Row, ...]
    finished: datetime | None = None
    interrupted: bool = False


def chosen_faults(plan: FaultsPlan) -> list[Fault]:
    """The faults of a plan, each with the workloads that it is to run. Raises UsageError for a name that does
    not exist.
    """
    chosen = select_faults(plan.names, [p.name for p in select_profiles(plan.modes)], faults().values())
    if plan.workloads:
        chosen = [msgspec.structs.replace(f, workloads=tuple(plan.workloads)) for f in chosen]
    for fault in chosen:
        try:
            select_workloads(fault.asked_workloads)
        except UsageError as e:
            raise UsageError(f"fault {fault.name}: {e.what}", e.next_step) from e
    return chosen


def create(plan: FaultsPlan, out: Path) -> Path:
    """A new run directory with its plan. Raises as `chosen_faults`."""
    chosen_faults(plan)
    path = make_directory(out, "faults")
    (path / "trials").mkdir()
    begun = msgspec.structs.replace(plan, started=datetime.now(UTC))
    write_atomically(path / "plan.json", msgspec.json.encode(begun))
    return path


def load_plan(path: Path) -> FaultsPlan:
    """The plan of a run directory. Raises StoreError if it holds no campaign."""
    need_plain_run(path)
    try:
        return msgspec.json.decode((path / "plan.json").read_bytes(), type=FaultsPlan)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(
            f"{path} holds no campaign of planted faults: {e}", "powercut faults makes one"
        ) from e


def carry_out(
    plan: FaultsPlan, path: Path, kernels: Kernels, progress: Progress, tell: Callable[[Campaign], None]
) -> Campaign:
    """Try what the run directory does not hold yet. `tell` is called after each trial.

    On KeyboardInterrupt the trials so far are kept. Raises UsageError if an edit does not find its place,
    before anything is run; RunLocked if another process is at work in the directory.
    """
    chosen = chosen_faults(plan)
    for fault in chosen:
        _need_place(fault, kernels)
    with locked(path / "lock", path, " ".join(["powercut", *plan.argv])):
        work = _Work(plan, path, kernels, progress, chosen, tell)
        try:
            work.all_trials()
        except KeyboardInterrupt:
            progress.say("interrupted: the trials so far are kept")
            return work.so_far(interrupted=True)
        return work.so_far(finished=datetime.now(UTC))


def _need_place(fault: Fault, kernels: Kernels) -> None:
    try:
        kernels.edited(fault.edits)
    except UsageError as e:
        raise UsageError(f"fault {fault.name}: {e.what}", e.next_step) from e


def control_runs(chosen: Sequence[Fault]) -> list[tuple[list[str], list[str]]]:
    """The modes and workloads of the unmodified kernel's runs: every case of a fault, and few others."""
    by_mode: dict[str, dict[str, None]] = {}
    for fault in chosen:
        for mode in fault.modes:
            by_mode.setdefault(mode, {}).update(dict.fromkeys(fault.asked_workloads))
    runs: dict[tuple[str, ...], list[str]] = {}
    for mode, workloads in by_mode.items():
        runs.setdefault(tuple(sorted(workloads)), []).append(mode)
    return [(modes, list(workloads)) for workloads, modes in runs.items()]


class _Work:
    """The trials of one campaign, in order, and the time that they take."""

    def __init__(
        self,
        plan: FaultsPlan,
        path: Path,
        kernels: Kernels,
        progress: Progress,
        chosen: Sequence[Fault],
        tell: Callable[[Campaign], None],
    ) -> None:
        self._plan, self._path, self._kernels, self._progress = plan, path, kernels, progress
        self._chosen, self._tell = chosen, tell
        self._control: list[Trial] = []
        self._trials: dict[str, Trial] = {}
        self._took: list[float] = []
        self._expected = known_failures()

    def all_trials(self) -> None:
        control = control_runs(self._chosen)
        total = len(control) + len(self._chosen)
        for number, (modes, workloads) in enumerate(control, 1):
            name = f"{CONTROL}-{number}"
            trial = self._trial(name, (), modes, workloads)
            self._control.append(trial)
            self._say(number, total, _control_words(name, trial))
        for number, fault in enumerate(self._chosen, len(control) + 1):
            self._trials[fault.name] = self._trial(
                fault.name, fault.edits, fault.modes, fault.asked_workloads
            )
            self._say(number, total, _row_words(self._row(fault)))

    def so_far(self, *, finished: datetime | None = None, interrupted: bool = False) -> Campaign:
        built = self._kernels.built
        kernel = " ".join(filter(None, [built.source, built.source_version, built.release]))
        rows = tuple(map(self._row, self._chosen))
        return Campaign(self._plan, kernel, joined(CONTROL, self._control), rows, finished, interrupted)

    def _row(self, fault: Fault) -> Row:
        return row_of(fault, self._trials.get(fault.name), joined(CONTROL, self._control))

    def _say(self, done: int, total: int, words: str) -> None:
        left = (total - done) * sum(self._took) / len(self._took) if self._took and done < total else 0
        about = f"; about {plural(max(1, round(left / 60)), 'minute')} left" if left else ""
        self._progress.say(f"[{done}/{total}] {words}{about}")
        self._tell(self.so_far())

    def _trial(
        self, name: str, edits: Sequence[Edit], modes: Sequence[str], workloads: Sequence[str]
    ) -> Trial:
        """The result in the run directory if it is of the same kernel and cases and decided, else a new
        one.
        """
        folder = self._path / "trials" / name
        states = [*self._plan.fault_models, self._plan.budget.option]
        key = _key(self._kernels.key(edits), modes, workloads, states)
        done = _read(folder / _TRIAL_NAME)
        if done and done.key == key and not done.failed and not done.undecided:
            return done
        if done:
            shutil.rmtree(folder)
        begun = time.monotonic()
        trial = self._run(Trial(name, key), folder, edits, modes, workloads)
        write_atomically(folder / _TRIAL_NAME, msgspec.json.encode(trial))
        self._took.append(time.monotonic() - begun)
        return trial

    def _run(
        self,
        trial: Trial,
        folder: Path,
        edits: Sequence[Edit],
        modes: Sequence[str],
        workloads: Sequence[str],
    ) -> Trial:
        folder.mkdir(exist_ok=True)
        begun = time.monotonic()
        try:
            image = self._kernels.variant(edits) if edits else self._kernels.image
            build_seconds = time.monotonic() - begun
            summary, run = self._executed(self._run_plan(image, modes, workloads), folder)
        except (EnvironmentLacks, UsageError):  # what this host lacks, all trials lack
            raise
        except PowercutError as e:
            return msgspec.structs.replace(trial, failed=e.line, seconds=time.monotonic() - begun)
        return trial_of(
            trial,
            summary,
            run=str(run.relative_to(self._path.resolve())),
            seconds=round(time.monotonic() - begun - build_seconds, 1),
            build_seconds=round(build_seconds, 1),
        )

    def _run_plan(self, image: Path, modes: Sequence[str], workloads: Sequence[str]) -> Plan:
        return Plan(
            configurations=list(modes),
            workloads=list(workloads),
            kernel=str(image),
            machine=self._plan.machine,
            fault_models=self._plan.fault_models,
            budget=self._plan.budget,
            jobs=self._plan.jobs,
            argv=self._plan.argv,
        )

    def _executed(self, plan: Plan, folder: Path) -> tuple[Summary, Path]:
        """The run of a trial, continued if it was interrupted. Raises KeyboardInterrupt if it is interrupted
        again.
        """
        with _opened(plan, folder, self._expected) as store:
            try:
                summary = execute(plan, store, Quiet())
            except RunChanged:
                shutil.rmtree(folder)
                folder.mkdir()
                return self._executed(plan, folder)
            if summary.info.interrupted:
                raise KeyboardInterrupt
            return summarise(store), store.path


def _key(kernel: str, modes: Sequence[str], workloads: Sequence[str], fault_models: Sequence[str]) -> str:
    """Identifies what a trial is asked: its kernel, its modes, and what its workloads do."""
    done = [
        (
            w.name,
            list(map(str, w.operations)),
            [hashlib.sha256(data).hexdigest() for data in w.files.values()],
        )
        for w in select_workloads(workloads)
    ]
    asked = (kernel, list(modes), done, list(fault_models))
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()


def _opened(plan: Plan, folder: Path, expected: Sequence[Expectation]) -> RunStore:
    """The run directory of an interrupted trial with the same plan, or a new one."""
    begun = latest(folder)
    if begun.exists():
        store = RunStore.open(begun)
        if store.plan() == plan:
            return store
        store.close()
    store = create_run(plan, folder, "run")
    store.set_expectations(expected)
    return store


def _read(path: Path) -> Trial | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Trial)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(
            f"{path} is damaged: {e}", "remove its directory: that trial is then made again"
        ) from e


def trial_of(trial: Trial, summary: Summary, *, run: str, seconds: float, build_seconds: float) -> Trial:
    """A finished run as a trial."""
    decided = [c for c in summary.cases if not c.was_not_run and not c.undecided]
    undecided = {str(c.case): _reason(c) for c in summary.cases if c.undecided or c.lacks}
    return msgspec.structs.replace(
        trial,
        cases=tuple(str(c.case) for c in decided),
        sightings=tuple(_sightings(summary)),
        undecided=undecided,
        states=summary.checked,
        seconds=seconds,
        build_seconds=build_seconds,
        runs=(run,),
    )


def _reason(case: CaseSummary) -> str:
    """Why a case is undecided, in one line, with what was the matter with most of its states."""
    reason = case.undecided or case.reason
    if case.status is not CaseStatus.UNKNOWN and case.unknown_reasons:
        reason = f"{reason}: {case.unknown_reasons[0].reason}"
    return "; ".join(line.strip() for line in reason.splitlines())


def _sightings(summary: Summary) -> Iterator[Sighting]:
    for case in summary.cases:
        for f in case.findings:
            yield Sighting(
                id=f.id,
                case=str(case.case),
                oracle=f.oracle,
                states=f.states,
                of=case.counts.checked,
                summary=f.summary,
                example=str(f.crash_point),
                known=f.expectation.reason if f.expectation else "",
            )


def _control_words(name: str, trial: Trial) -> str:
    if trial.failed:
        return f"{name}: nothing could be run: {trial.failed}"
    known = [s for s in trial.sightings if not s.known]
    more = f", {plural(len(known), 'finding')} that no fault gets credit for" if known else ""
    left = f", {plural(len(trial.undecided), 'case')} undecided" if trial.undecided else ""
    cases = plural(len(trial.cases), "case")
    return f"{name} (the unmodified kernel): {cases}{more}{left}, {trial.seconds:.0f} s"


def _row_words(row: Row) -> str:
    if not row.sightings:
        return f"{row.fault.name}: {row.status}, {row.seconds:.0f} s" + (f": {row.why}" if row.why else "")
    first = row.sightings[0]
    return f"{row.fault.name}: found by {first.workload} ({first.oracle}), {row.seconds:.0f} s"
