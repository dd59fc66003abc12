"""Carries out a campaign: one batch after another, and between them the findings shrunk and grouped by cause.

```
reports/runs/<date>-campaign/   plan.json       what was asked for
                                journal.jsonl   everything that happened: see `harness.campaigns.journal`
                                seconds         how long was worked, kept every few seconds
                                batches/N/      the run directory of a batch; deleted if nothing was found
                                causes/         the workload of each cause
                                report.html campaign.json summary.txt
```

A campaign may be killed at any moment. What was under way is continued: a batch with its run directory, a
finding with the experiments that the cache keeps.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness import __version__
from harness.campaigns.generators import next_batch
from harness.campaigns.journal import (
    Alike,
    Begun,
    CampaignPlan,
    Done,
    Found,
    Journal,
    Ledger,
    Reached,
    Shrunk,
    Started,
    Undecided,
)
from harness.campaigns.traits import numberless, traits_of
from harness.errors import EnvironmentLacks, GuestLost, PowercutError, RunChanged, StoreError, UsageError
from harness.filesystems.profiles import select_profiles
from harness.host.files import write_atomically
from harness.host.progress import Progress, Quiet
from harness.kernels.find import look_up_chosen
from harness.measurements.directory import make_directory
from harness.model import CaseId
from harness.plan import Plan
from harness.report.words import plural, seconds
from harness.revisit.causes import Member, contains
from harness.revisit.simplify import Operations
from harness.revisit.triage import Experiment, Laboratory, Suspect, Tester, examined, suspects_of
from harness.run import create_run, execute
from harness.store import RunStore
from harness.store.layout import LOCK, latest
from harness.store.lock import locked
from harness.summary import CaseSummary, Summary
from harness.trust import Named
from harness.workloads.generate import generate

Execute = Callable[[Plan, RunStore, Progress, Callable[[CaseId], None]], Summary]
Open = Callable[[RunStore, str], contextlib.AbstractContextManager[Tester]]

MOST_FAILED = 3
"""So many batches of which nothing came, one after another, end a campaign: the next would not do better."""
SHRINKING_SHARE = 0.5
"""Of the time of a campaign that shrinking may take; more findings wait."""
_TICK_S = 5.0
_REASONS = 20
"""Reasons that are kept of a batch for what it could not decide."""


class End(enum.Enum):
    """Why a campaign ended: nothing was left to do, its time was up, or the user stopped it."""

    COMPLETE = "complete"
    TIME_UP = "time up"
    INTERRUPTED = "interrupted"


class _TimeUp(Exception):
    """The campaign's time is up, in the middle of a finding that is being shrunk."""


def create(plan: CampaignPlan, out: Path, name: str) -> Path:
    """Make the directory of a campaign. Raises UsageError or KernelError for what does not exist."""
    select_profiles(plan.run.configurations)
    look_up_chosen(plan.run.kernel_choice)
    path = make_directory(out, name)
    (path / "batches").mkdir()
    write_atomically(path / "plan.json", msgspec.json.format(msgspec.json.encode(plan), indent=1))
    return path


def carry_out(
    plan: CampaignPlan,
    path: Path,
    until_s: float | None,
    progress: Progress,
    tell: Callable[[Ledger], None],
    *,
    run: Execute = execute,
    tries: Open | None = None,
) -> End:
    """Work until nothing is left to do, the time is up, or the user stops it. `until_s`: seconds of work in
    all, those before included; None: no end. `tell` is called at the start and whenever more is known. `run`
    carries out a batch; `tries` opens what shrinks.

    Raises RunLocked if another process is at work in the directory; EnvironmentLacks and UsageError for what
    this host lacks; and the error of the last batch if several in a row came to nothing.
    """
    with locked(path / LOCK, path, " ".join(["powercut", *plan.run.argv])):
        work = _Work(plan, path, until_s, progress, tell, run, tries)
        try:
            return work.until_the_end()
        except KeyboardInterrupt:
            progress.say("interrupted: what is known so far is kept")
            return End.INTERRUPTED
        finally:
            work.pause()


class _Work:
    """One process's part of a campaign."""

    def __init__(
        self,
        plan: CampaignPlan,
        path: Path,
        until_s: float | None,
        progress: Progress,
        tell: Callable[[Ledger], None],
        run: Execute,
        tries: Open | None,
    ) -> None:
        self._plan, self._path, self._until_s = plan, path.resolve(), until_s
        self._progress, self._tell, self._run = progress, tell, run
        self._tries = tries or self._laboratory
        self._journal = Journal(path)
        self._ledger = self._journal.ledger
        self._before = self._ledger.at
        self._begun = self._ticked = time.monotonic()
        self._ticking = threading.Lock()
        self._failed = 0

    # --- time ---

    @property
    def _at(self) -> float:
        """Seconds of work in the whole campaign."""
        return self._before + time.monotonic() - self._begun

    @property
    def _left_s(self) -> float | None:
        return None if self._until_s is None else self._until_s - self._at

    @property
    def _time_is_up(self) -> bool:
        return self._left_s is not None and self._left_s <= 0

    def _tick(self) -> None:
        """In any thread: keep the time, now and then."""
        with self._ticking:
            if time.monotonic() - self._ticked >= _TICK_S:
                self._ticked = time.monotonic()
                self._journal.tick(self._at)

    def pause(self) -> None:
        """Keep the time, and write the page once more."""
        with self._ticking:
            self._journal.tick(self._at)
        self._tell(self._ledger)

    # --- the loop ---

    def until_the_end(self) -> End:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._journal.put(Started(at=self._at, when=now, powercut=__version__))
        if self._ledger.damaged:
            lines = plural(self._ledger.damaged, "line")
            self._progress.say(f"{lines} of the journal cannot be read: what they told of is done again")
        self._sweep()
        self._tell(self._ledger)
        while True:
            try:
                self._group(all_of_them=False)
                if self._time_is_up:
                    return End.TIME_UP
                batch = self._ledger.unfinished or self._next()
                if batch is None:
                    self._group(all_of_them=True)
                    return End.TIME_UP if self._time_is_up else End.COMPLETE
                if not self._batch(batch):
                    return End.TIME_UP
            except _TimeUp:
                return End.TIME_UP

    def _next(self) -> Begun | None:
        chosen = next_batch(self._plan, self._ledger)
        if chosen is None:
            return None
        number = max(self._ledger.begun, default=0) + 1
        begun = Begun(batch=number, at=self._at, generator=chosen[0], workloads=chosen[1])
        self._journal.put(begun)
        return begun

    def _sweep(self) -> None:
        """Delete what a kill left of batches that are done and not to be kept."""
        for number, done in self._ledger.done.items():
            if not done.run:
                shutil.rmtree(self._folder(number), ignore_errors=True)

    def _folder(self, batch: int) -> Path:
        return self._path / "batches" / str(batch)

    # --- a batch ---

    def _batch(self, begun: Begun) -> bool:
        """Carry out a batch, or what is left of it; False if the time was up before it was done."""
        started = time.monotonic()
        spent_before = self._begun_at(begun)
        try:
            with self._opened(begun) as store:
                plan = msgspec.structs.replace(store.plan(), minutes=self._minutes())
                summary = self._run(plan, store, Quiet(self._tick), lambda _: self._tick())
                if summary.info.stopped:
                    return False
                if summary.info.interrupted:
                    raise KeyboardInterrupt
                done = self._result(begun, store, summary, spent_before + time.monotonic() - started)
        except (EnvironmentLacks, UsageError):  # what this host lacks, all batches lack
            raise
        except RunChanged as e:
            self._progress.say(f"batch {begun.batch} is begun anew: {e.what}")
            shutil.rmtree(self._folder(begun.batch))
            return self._batch(begun)
        except PowercutError as e:
            done = self._nothing_came(begun, e, time.monotonic() - started)
        self._journal.put(done)
        if not done.run:
            shutil.rmtree(self._folder(begun.batch), ignore_errors=True)
        self._progress.say(self._words(begun, done))
        self._tell(self._ledger)
        return True

    def _begun_at(self, begun: Begun) -> float:
        """Seconds that earlier processes worked on this batch."""
        return max(0.0, self._before - begun.at) if begun.batch in self._ledger.begun else 0.0

    def _minutes(self) -> float | None:
        return None if self._left_s is None else max(self._left_s, 1.0) / 60

    def _nothing_came(self, begun: Begun, error: PowercutError, took: float) -> Done:
        self._failed += 1
        if self._failed == MOST_FAILED:
            raise error
        return Done(batch=begun.batch, at=self._at, seconds=took, failed=error.line)

    def _opened(self, begun: Begun) -> RunStore:
        """The run directory of a batch that was begun, or a new one. One that is damaged or was begun by
        another version is begun anew.
        """
        folder = self._folder(begun.batch)
        plan = msgspec.structs.replace(self._plan.run, workloads=list(begun.workloads))
        there = latest(folder)
        if there.exists():
            try:
                store = RunStore.open(there)
            except StoreError as e:
                self._progress.say(f"batch {begun.batch} is begun anew: {e.what}")
            else:
                if store.plan() == plan:
                    return store
                store.close()
        shutil.rmtree(folder, ignore_errors=True)
        store = create_run(plan, folder, "batch")
        store.set_expectations(self._plan.expectations)
        return store

    def _result(self, begun: Begun, store: RunStore, summary: Summary, took: float) -> Done:
        """What a batch came to. Raises EnvironmentLacks if nothing in it can be run here, GuestLost if
        nothing of it was judged, such as where no guest comes up.
        """
        lacking = {c.case.configuration: c.reason for c in summary.cases if c.lacks}
        if summary.cases and all(c.was_not_run for c in summary.cases) and lacking:
            raise EnvironmentLacks("; ".join(dict.fromkeys(lacking.values())), "powercut doctor says more")
        if not any(c.counts.passed + c.counts.failed for c in summary.cases):
            why = next((c.undecided for c in summary.cases if c.undecided), "it has no cases")
            raise GuestLost(f"nothing was judged: {why}", next_step="powercut doctor says what a run needs")
        self._failed = 0
        suspects, expected = suspects_of(store, Named(), expected=False)
        kept = bool(suspects) or self._plan.keep or any(c.undecided for c in summary.cases)
        return Done(
            batch=begun.batch,
            at=self._at,
            seconds=took,
            cases=sum(not c.was_not_run for c in summary.cases),
            states=summary.checked,
            run=str(store.path.relative_to(self._path)) if kept else "",
            size_bytes=_size(store.path) if kept else 0,
            reached=tuple(_reached(store, self._ledger.traits)),
            found=tuple(map(_found, suspects)),
            expected=expected,
            undecided=tuple(_undecided(summary.cases)),
            not_run=lacking,
        )

    def _words(self, begun: Begun, done: Done) -> str:
        new = sum(len(r.traits) for r in done.reached)
        parts = [
            f"{begun.generator}: {plural(done.cases, 'workload')}, {plural(done.states, 'crash state')}",
            f"{plural(new, 'new trait')}" if new else "nothing new",
            plural(len(done.found), "finding") if done.found else "",
            done.failed,
        ]
        return f"[{begun.batch}] {', '.join(filter(None, parts))}; {seconds(self._at)} of work so far"

    # --- causes ---

    def _group(self, *, all_of_them: bool) -> None:
        """Shrink what waits, or find what it is like, as far as the time for that goes. Raises _TimeUp."""
        for done, found in self._ledger.waiting:
            if like := self._like(found):
                self._journal.put(Alike(finding=found.id, like=like.finding, at=self._at))
                continue
            if not all_of_them and self._ledger.shrinking_s > SHRINKING_SHARE * self._at:
                continue
            if self._time_is_up:
                raise _TimeUp
            self._shrink(done, found)
            self._tell(self._ledger)

    def _like(self, found: Found) -> Member | None:
        """A finding that was shrunk and that this one seems to repeat."""
        operations = tuple(map(str, generate(found.workload).operations))
        return next(
            (
                m
                for m in self._ledger.members
                if m.configuration == found.configuration
                and found.symptom in {symptom for symptom, _ in m.shows}
                and contains(operations, m.minimal)
            ),
            None,
        )

    def _shrink(self, done: Done, found: Found) -> None:
        began = time.monotonic()
        self._progress.say(f"{found.point} {found.symptom}: being shrunk")
        try:
            member = self._shrunk(done, found)
        except StoreError as e:  # of this finding's run directory: the campaign goes on without it
            member = _not_shrunk(done, found, e.line)
        took = time.monotonic() - began
        self._journal.put(Shrunk(member=member, at=self._at, seconds=took))
        left = f"{member.operations} to {len(member.minimal)} operations"
        self._progress.say(f"{found.point} {found.symptom}: {left if member.minimal else member.reason}")

    def _shrunk(self, done: Done, found: Found) -> Member:
        """Raises StoreError if the batch's run directory, or the finding in it, is gone or damaged."""
        with RunStore.open(self._path / done.run) as store:
            suspects, _ = suspects_of(store, Named(), expected=False)
            suspect = next((s for s in suspects if s.finding.id == found.id), None)
            if suspect is None:
                raise StoreError(f"{store.path} has no finding {found.id} any more")
            with self._tries(store, found.configuration) as tester:
                bounded = _Bounded(tester, self._tick, lambda: self._time_is_up)
                return examined(suspect, done.run, store.info.kernel.name, bounded)

    def _laboratory(self, store: RunStore, configuration: str) -> contextlib.AbstractContextManager[Tester]:
        return Laboratory(store, configuration, _named(self._plan.run), Quiet(self._tick))


class _Bounded:
    """A tester that stops when the campaign's time is up. Raises _TimeUp."""

    def __init__(self, tester: Tester, tick: Callable[[], None], is_up: Callable[[], bool]) -> None:
        self._tester, self._tick, self._is_up = tester, tick, is_up
        self.profile = tester.profile

    @property
    def made(self) -> int:
        """See `Tester`."""
        return self._tester.made

    @made.setter
    def made(self, count: int) -> None:
        self._tester.made = count

    def experiment(self, operations: Operations, attempt: int = 0, *, fast: bool = True) -> Experiment:
        """See `Tester`."""
        if self._is_up():
            raise _TimeUp
        self._tick()
        return self._tester.experiment(operations, attempt, fast=fast)


def _named(plan: Plan) -> Named:
    """The kernel files of the campaign's plan, which the command line named, or the cache holds."""
    kernel = plan.kernel if "/" in plan.kernel else None
    return Named(kernel, Path(plan.modules) if plan.modules else None, tuple(map(Path, plan.replaced)))


def _reached(store: RunStore, known: set[str]) -> Iterator[Reached]:
    """The cases of a batch with traits that neither the campaign nor a case before them had."""
    seen = set(known)
    for record in store.cases():
        if new := sorted(traits_of(store, record) - seen):
            seen.update(new)
            yield Reached(record.case.configuration, record.case.workload, tuple(new))


def _found(suspect: Suspect) -> Found:
    finding = suspect.finding
    return Found(
        id=finding.id,
        configuration=finding.case.configuration,
        workload=finding.case.workload,
        point=str(finding.crash_point),
        symptom=suspect.symptom,
        summary=finding.summary,
        states=finding.states,
    )


def _not_shrunk(done: Done, found: Found, reason: str) -> Member:
    """A finding of which nothing is left but what the journal says."""
    return Member(
        run=done.run,
        kernel="",
        configuration=found.configuration,
        workload=found.workload,
        point=found.point,
        finding=found.id,
        symptom=found.symptom,
        summary=found.summary,
        operations=len(generate(found.workload).operations),
        reason=reason,
    )


def _undecided(cases: Sequence[CaseSummary]) -> Iterator[Undecided]:
    by_reason: dict[str, list[CaseSummary]] = {}
    for case in cases:
        if case.undecided:
            by_reason.setdefault(numberless(case.undecided), []).append(case)
    for reason, alike in list(by_reason.items())[:_REASONS]:
        yield Undecided(reason, len(alike), str(alike[0].case))


def _size(path: Path) -> int:
    """What a directory takes on the disk, in bytes."""
    return sum(p.lstat().st_blocks * 512 for p in path.rglob("*") if not p.is_symlink())
