"""Carries out a study: a run of the same cases on each kernel, one kernel after another.

```
reports/runs/<date>-<name>/     plan.json         what was asked for
                                kernels/KERNEL/   the run directories of that kernel
                                releases.json     the answers so far
                                report.html summary.txt
```

A kernel whose run decided everything is done; another goes on with its run. Where that cannot be, since this
installation is not the one that began it, the kernel's run is begun anew, as campaigns do with a batch: the
answers of one kernel come from one installation.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.errors import PowercutError, RunChanged, StoreError, UsageError
from harness.expectations import Expectation
from harness.host.files import write_atomically
from harness.host.progress import Progress
from harness.kernels.find import look_up_kernel, pins
from harness.measurements.directory import make_directory
from harness.plan import Plan
from harness.releases.results import SCHEMA, OnKernel, Study, StudyPlan, answer_of
from harness.report.words import plural
from harness.run import create_run, execute
from harness.store import RunStore
from harness.store.layout import latest, need_plain_run
from harness.store.lock import locked
from harness.summary import CaseVerdict, Summary, summarise

RESULTS_NAME = "releases.json"
_PLAN_NAME = "plan.json"


def every_kernel() -> list[str]:
    """The pins of kernels that boot a PC, oldest series first."""
    found = [pin for pin in pins().values() if not pin.machine]
    return [p.name for p in sorted(found, key=lambda p: [int(n) for n in p.series.split(".")])]


def create(plan: StudyPlan, out: Path, name: str) -> Path:
    """Make the run directory of a study. Raises UsageError for a kernel that does not exist."""
    for kernel in plan.kernels:
        look_up_kernel(kernel)
    path = make_directory(out, name)
    write_atomically(path / _PLAN_NAME, msgspec.json.format(msgspec.json.encode(plan), indent=1))
    return path


def load_plan(path: Path) -> StudyPlan:
    """The plan of a study that was begun. Raises UsageError for a directory that is none, StoreError for a
    plan that cannot be read.
    """
    file = path / _PLAN_NAME
    need_plain_run(path)
    if not file.is_file() or (path / "run.json").exists():
        raise UsageError(f"{path} is not the directory of a study", "name one that powercut matrix made")
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=StudyPlan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(f"{file}: {e}", "start a new study") from e
    if not re.fullmatch("(?:[0-9a-f]{12})?", plan.finding):  # it names a file
        raise StoreError(f"{file}: {plan.finding!r} is no finding", "start a new study")
    return plan


def carry_out(
    plan: StudyPlan,
    path: Path,
    expectations: Sequence[Expectation],
    progress: Progress,
    tell: Callable[[Study], None],
) -> Study:
    """Run the cases on every kernel whose answers the directory does not hold yet. `tell` is called after
    each.

    A kernel that cannot be had or run is an answer, too: its reason, beside what it had answered before. On
    KeyboardInterrupt the answers so far are kept. Raises RunLocked if another process is at work in the
    directory.
    """
    with locked(path / "lock", path, " ".join(["powercut", *plan.argv])):
        known = {k.asked: k for k in _kept(path)}
        took: list[float] = []

        def so_far(finished: datetime | None = None, *, interrupted: bool = False) -> Study:
            answers = tuple(known.get(kernel, OnKernel(kernel)) for kernel in plan.kernels)
            study = Study(plan, answers, finished, interrupted)
            write_atomically(path / RESULTS_NAME, msgspec.json.format(msgspec.json.encode(study), indent=1))
            tell(study)
            return study

        left = [kernel for kernel in plan.kernels if kernel not in known or not known[kernel].decided]
        for number, kernel in enumerate(left, 1):
            begun = time.monotonic()
            folder = path / "kernels" / kernel.replace("/", "_")
            answered = _on_kernel(
                plan.plan, known.get(kernel, OnKernel(kernel)), folder, expectations, progress
            )
            known[kernel] = msgspec.structs.replace(answered, seconds=time.monotonic() - begun)
            if answered.interrupted:
                progress.say("interrupted: the answers so far are kept")
                return so_far(interrupted=True)
            if not answered.failed:
                took.append(time.monotonic() - begun)
            progress.say(f"[{number}/{len(left)}] {_words(answered)}{_left(took, len(left) - number)}")
            so_far()
        return so_far(datetime.now(UTC))


def _kept(path: Path) -> tuple[OnKernel, ...]:
    """The answers in a directory. Raises StoreError for a file that another version wrote."""
    file = path / RESULTS_NAME
    if not file.exists():
        return ()
    try:
        study = msgspec.json.decode(file.read_bytes(), type=Study)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(f"{file}: {e}", "start a new study") from e
    if study.schema != SCHEMA:
        raise StoreError(f"{file} has schema {study.schema}, not {SCHEMA}", "start a new study")
    return tuple(k for k in study.kernels if k.run)


def _words(done: OnKernel) -> str:
    if done.failed:
        return f"{done.asked}: {done.failed}"
    broken = [a for a in done.answers if a.findings]
    return f"{done.name}: {plural(len(done.answers), 'case')}, {len(broken)} with findings"


def _left(took: Sequence[float], kernels: int) -> str:
    if not took or not kernels:
        return ""
    minutes = max(1, round(kernels * sum(took) / len(took) / 60))
    return f"; about {plural(minutes, 'minute')} left"


def _on_kernel(
    plan: Plan, before: OnKernel, folder: Path, expectations: Sequence[Expectation], progress: Progress
) -> OnKernel:
    """The answers of one kernel, or those that there are when the user stops it; `before`: the earlier ones,
    which stay if none can be had now.
    """
    kernel = before.asked
    shown = _OfKernel(kernel, progress)
    try:
        done = _summary(msgspec.structs.replace(plan, kernel=kernel), folder, expectations, shown)
    except PowercutError as e:
        return msgspec.structs.replace(before, failed=e.line)
    summary, of_kernel = done.summary, done.summary.info.kernel
    return OnKernel(
        kernel,
        of_kernel.name,
        of_kernel.release or of_kernel.version,
        summary.info.machine.details.get("how", ""),
        str(done.run),
        answers=tuple(map(answer_of, summary.cases)),
        interrupted=summary.interrupted,
        anew=done.anew or before.anew,
    )


@dataclass(frozen=True, slots=True)
class _Done:
    """The run of one kernel. `anew`: why it was begun anew, if it was."""

    summary: Summary
    run: Path
    anew: str = ""


def _summary(plan: Plan, folder: Path, expectations: Sequence[Expectation], progress: Progress) -> _Done:
    """Carry out the run of one kernel, or what is left of it. One that cannot be gone on with is begun anew,
    with the same known failures if they can be read.
    """
    begun = latest(folder)
    if begun.exists():
        try:
            with _opened(begun) as store:
                expectations = expectations or store.expectations()
                return _carried_out(plan, store, expectations, progress)
        except RunChanged as e:
            anew = e.what
        progress.say(f"its run is begun anew: {anew}")
        shutil.rmtree(folder)
        return replace(_summary(plan, folder, expectations, progress), anew=anew)
    with create_run(plan, folder, "kernel") as store:
        return _carried_out(plan, store, expectations, progress)


def _opened(begun: Path) -> RunStore:
    """Raises RunChanged for one that is damaged, or was begun by a version that stored other things."""
    try:
        return RunStore.open(begun)
    except StoreError as e:
        raise RunChanged(e.what, e.next_step) from e


def _carried_out(
    plan: Plan, store: RunStore, expectations: Sequence[Expectation], progress: Progress
) -> _Done:
    """By `plan`, not by the one that lies in the folder."""
    if not store.cases():
        store.set_expectations(list(expectations))
    so_far = summarise(store)
    undecided = any(case.verdict is CaseVerdict.UNKNOWN for case in so_far.cases)
    if store.info.finished is None or store.info.interrupted or undecided:
        return _Done(execute(plan, store, progress), store.path)
    return _Done(so_far, store.path)


class _OfKernel:
    """The progress of the run of one kernel, whose messages say which."""

    def __init__(self, kernel: str, progress: Progress) -> None:
        self._kernel, self._progress = kernel, progress

    def say(self, text: str) -> None:
        self._progress.say(text if text.startswith(self._kernel) else f"{self._kernel}: {text}")

    def begin(self, what: str, total: int) -> None:
        self._progress.begin(what, total)

    def advance(self, what: str, count: int) -> None:
        self._progress.advance(what, count)
