"""A campaign: one batch of generated workloads after another, each an item of a series, and between them the
findings shrunk and grouped by cause. A finding that was being shrunk when the campaign was killed is shrunk
again, with the experiments that the cache keeps.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from harness.campaigns.features import features_of, numberless
from harness.campaigns.generators import GENERATORS, next_batch
from harness.campaigns.journal import (
    Batch,
    BatchBegun,
    CampaignPlan,
    Found,
    KnownBatches,
    LeftOutCases,
    Reached,
    ShrunkFinding,
    Similar,
    UndecidedCases,
)
from harness.campaigns.page import page_of
from harness.errors import EnvironmentLacks, GuestLost, StoreError, UsageError
from harness.filesystems.existing import need_made
from harness.filesystems.profiles import select_profiles
from harness.findings.causes import CauseMember, contains
from harness.findings.simplify import Operations
from harness.findings.triage import (
    FAST,
    Experiment,
    Laboratory,
    Suspect,
    Tester,
    Way,
    examined,
    suspects_of,
)
from harness.host.files import file_hash
from harness.host.progress import Quiet
from harness.kernels.find import build_of, look_up_chosen
from harness.plan import Plan
from harness.report.page import Page
from harness.report.words import known_lines, plural, seconds
from harness.series.work import Item, Series, Work, begin, read_plan
from harness.store import RunStore
from harness.store.recovery_code import read_recovery_code
from harness.summary import CaseSummary, Summary
from harness.trust import Named
from harness.workloads.generate import generate

Open = Callable[[RunStore, str], contextlib.AbstractContextManager[Tester]]

SHRINKING_SHARE = 0.5
"""Of the time of a campaign that shrinking may take; more findings wait."""
_REASONS = 20
"""Reasons that are kept of a batch for what it could not decide."""


class _TimeUp(Exception):
    """The campaign's time is up, in the middle of a finding that is being shrunk."""


def create(plan: CampaignPlan, out: Path, name: str) -> Path:
    """Make the directory of a campaign. Raises UsageError or KernelError for what does not exist."""
    need_made(select_profiles(plan.run.configurations))
    look_up_chosen(plan.run.kernel_choice)
    return begin(plan, out, name)


def folder_hash(run: Plan) -> str:
    """SHA-256 of all modules in the folder that a plan names; empty if it names none, or it is not there."""
    folder = Path(run.modules) if run.modules else None
    if folder is None or not folder.is_dir():
        return ""
    files = sorted(p for p in folder.rglob("*.ko*") if p.is_file())
    lines = [f"{file_hash(path)} {path.relative_to(folder)}" for path in files]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def need_same_build(plan: CampaignPlan, run: Plan) -> None:
    """Raises UsageError for a kernel, or a folder of modules, that was built anew since the campaign began:
    verdicts on two builds would stand beside each other. A file that is gone is named by whoever needs it.
    """
    for path, then, now in (
        (run.kernel, plan.image, build_of(run.kernel)),
        (run.modules, plan.modules_folder, folder_hash(run)),
    ):
        if then and now and then != now:
            raise UsageError(
                f"{path} is another build than this was begun with: sha256 {then[:12]} then, {now[:12]} now",
                "put that build there again, or begin anew with this one",
            )


def load_plan(path: Path) -> CampaignPlan:
    """The plan of a campaign. Raises as `read_plan`; StoreError as well for generators that there are not."""
    plan = read_plan(path, CampaignPlan, "campaign", "campaign")
    if unknown := [g for g in plan.generators if g not in GENERATORS]:
        what = f"{path} holds no campaign that can be read: no generator is called {unknown[0]!r}"
        raise StoreError(what, f"one of: {', '.join(GENERATORS)}")
    return plan


class CampaignSeries(Series[Batch]):
    """See `Series`. `tries` opens what shrinks."""

    done = Batch
    folder = "batches"
    results = "campaign.json"
    most_failed = 3  # the next would not do better
    quiet = True

    def __init__(self, plan: CampaignPlan, path: Path, tries: Open | None = None) -> None:
        self.plan, self._tries, self.bugs = plan, tries or self._laboratory, plan.known
        super().__init__(path, plan.run.argv, plan.expectations)

    def nothing(self) -> KnownBatches:
        self.ledger = KnownBatches()
        self._compared: dict[str, int] = {}  # of a waiting finding, with how many members
        return self.ledger

    def items(self, work: Work[Batch]) -> Iterator[Item]:
        """Batches that failed in an earlier process have one more turn, first."""
        again = list(self.ledger.failed)
        with contextlib.suppress(_TimeUp):
            while True:
                self._group(work, all_of_them=False)
                if work.time_is_up:
                    return
                begun = again.pop(0) if again else self.ledger.unfinished or self._next(work)
                if begun is None:
                    return self._group(work, all_of_them=True)
                plan = msgspec.structs.replace(self.plan.run, workloads=list(begun.workloads))
                yield Item(begun.item, plan)

    def _next(self, work: Work[Batch]) -> BatchBegun | None:
        chosen = next_batch(self.plan, self.ledger)
        if chosen is None:
            return None
        begun = BatchBegun(
            item=str(self.ledger.last + 1), at=work.at, generator=chosen[0], workloads=chosen[1]
        )
        work.put(begun)
        return begun

    def keep(self, item: Item, store: RunStore, summary: Summary) -> Batch:
        """Raises EnvironmentLacks if nothing in it can be run here, GuestLost if nothing of it was judged,
        such as where no guest comes up.
        """
        if summary.interrupted:
            cases, broken = sum(map(_judged, summary.cases)), len(summary.unexpected)
            return Batch(item=item.name, cases=cases, states=summary.checked, broken=broken)
        lacking = {c.case.configuration: c.reason for c in summary.cases if c.lacks}
        if summary.cases and all(c.was_not_run for c in summary.cases) and lacking:
            raise EnvironmentLacks("; ".join(dict.fromkeys(lacking.values())), "powercut doctor says more")
        if not any(map(_judged, summary.cases)):
            why = next((c.undecided for c in summary.cases if c.undecided), "it has no cases")
            raise GuestLost(f"nothing was judged: {why}", next_step="powercut doctor says what a run needs")
        suspects, expected = suspects_of(store, Named(), expected=False)
        return Batch(
            item=item.name,
            cases=sum(not c.was_not_run for c in summary.cases),
            states=summary.checked,
            size_bytes=_size(store.path),
            reached=tuple(_reached(store, self.ledger.features)),
            found=tuple(map(_found, suspects)),
            expected=expected,
            undecided=tuple(_undecided(summary.cases)),
            not_run=lacking,
            left_out=tuple(_left_out(summary.cases)),
            judged=tuple(dict.fromkeys(c.case.configuration for c in summary.cases if _judged(c))),
        )

    def keeps_run(self, done: Batch) -> bool:
        return not done.failed and bool(done.found or done.undecided or self.plan.keep)

    def words(self, done: Batch) -> str:
        new = sum(len(r.features) for r in done.reached)
        parts = [
            f"{self.ledger.chosen[done.item].generator}: {plural(done.cases, 'case')}",
            plural(done.states, "crash state"),
            f"{plural(new, 'novelty feature')}" if new else "nothing new",
            plural(len(done.found), "finding") if done.found else "",
            done.failed,
        ]
        return f"{', '.join(filter(None, parts))}; {seconds(done.at)} of work so far"

    def page(self) -> Page:
        return page_of(self.path, self.plan, self.ledger)

    # --- causes ---

    def _group(self, work: Work[Batch], *, all_of_them: bool) -> None:
        """Shrink each waiting finding, or find one that it is like, as far as the time for that goes. Raises
        _TimeUp.
        """
        for done, found in self.ledger.waiting:
            if like := self._like(found):
                work.put(Similar(finding=found.id, like=like.finding, at=work.at))
                continue
            if not all_of_them and self.ledger.shrinking_s > SHRINKING_SHARE * work.at:
                continue
            if work.time_is_up:
                raise _TimeUp
            self._shrink(work, done, found)
            work.tell()

    def _like(self, found: Found) -> CauseMember | None:
        """A finding that was shrunk and that this one seems to repeat; of those that it was not compared with
        yet, since it waits for many batches.
        """
        members = self.ledger.members
        new, self._compared[found.id] = members[self._compared.get(found.id, 0) :], len(members)
        if not new:
            return None
        operations = tuple(map(str, generate(found.workload).operations))
        return next(
            (
                m
                for m in new
                if m.configuration == found.configuration
                and found.symptom in {symptom for symptom, _ in m.shows}
                and contains(operations, m.minimal)
            ),
            None,
        )

    def _shrink(self, work: Work[Batch], done: Batch, found: Found) -> None:
        began = time.monotonic()
        work.progress.say(f"{found.point} {found.symptom}: being shrunk")
        try:
            member = self._shrunk(work, done, found)
        except StoreError as e:  # of this finding's run directory: the campaign goes on without it
            member = _not_shrunk(done, found, e.line)
        took = time.monotonic() - began
        work.put(ShrunkFinding(member=member, at=work.at, seconds=took))
        left = f"{member.operations} to {len(member.minimal)} operations"
        work.progress.say(f"{found.point} {found.symptom}: {left if member.minimal else member.reason}")

    def _shrunk(self, work: Work[Batch], done: Batch, found: Found) -> CauseMember:
        """Raises StoreError if the batch's run directory, or the finding in it, is gone or damaged."""
        with RunStore.open(self.path / done.run) as store:
            suspects, _ = suspects_of(store, Named(), expected=False)
            suspect = next((s for s in suspects if s.finding.id == found.id), None)
            if suspect is None:
                raise StoreError(f"{store.path} has no finding {found.id} any more")
            with self._tries(store, found.configuration) as tester:
                bounded = _Bounded(tester, work.tick, lambda: work.time_is_up)
                return examined(suspect, done.run, store.info.kernel.name, bounded)

    def _laboratory(self, store: RunStore, configuration: str) -> contextlib.AbstractContextManager[Tester]:
        return Laboratory(store, configuration, _named(self.plan.run), Quiet())


class _Bounded:
    """A tester that stops when the campaign's time is up. Raises _TimeUp."""

    def __init__(self, tester: Tester, tick: Callable[[], None], is_up: Callable[[], bool]) -> None:
        self._tester, self._tick, self._is_up = tester, tick, is_up
        self.profile = tester.profile

    @property
    def made(self) -> int:
        return self._tester.made

    @made.setter
    def made(self, count: int) -> None:
        self._tester.made = count

    def experiment(self, operations: Operations, way: Way = FAST, attempt: int = 0) -> Experiment:
        if self._is_up():
            raise _TimeUp
        self._tick()
        return self._tester.experiment(operations, way, attempt)


def _named(plan: Plan) -> Named:
    """The kernel files of the campaign's plan, which the command line named, or the cache holds."""
    kernel = plan.kernel if "/" in plan.kernel else None
    return Named(kernel, Path(plan.modules) if plan.modules else None, tuple(map(Path, plan.replaced)))


def _reached(store: RunStore, known: set[str]) -> Iterator[Reached]:
    """The cases of a batch with novelty features that neither the campaign nor a case before them had."""
    seen = set(known)
    code = read_recovery_code(store.layout)
    for record in store.cases():
        if new := sorted(features_of(store, record, code.lines if code else ()) - seen):
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
        known=finding.known.bug.name if finding.known else "",
        loss=known_lines(finding)[0] if finding.loss else "",
    )


def _not_shrunk(done: Batch, found: Found, reason: str) -> CauseMember:
    """A finding of which nothing is left but what the journal says."""
    return CauseMember(
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


def _judged(case: CaseSummary) -> bool:
    return case.counts.passed + case.counts.failed > 0


def _undecided(cases: Sequence[CaseSummary]) -> Iterator[UndecidedCases]:
    by_reason: dict[str, list[CaseSummary]] = {}
    for case in cases:
        if case.undecided:
            by_reason.setdefault(numberless(case.undecided), []).append(case)
    told = list(by_reason.items())
    for reason, similar in told[:_REASONS]:
        yield UndecidedCases(reason, len(similar), str(similar[0].case))
    if others := [case for _, similar in told[_REASONS:] for case in similar]:
        yield UndecidedCases("other reasons", len(others), str(others[0].case))


def _left_out(cases: Sequence[CaseSummary]) -> Iterator[LeftOutCases]:
    by_mode: dict[str, list[CaseSummary]] = {}
    for case in cases:
        if case.was_not_run and not case.lacks:
            by_mode.setdefault(case.case.configuration, []).append(case)
    for mode, members in by_mode.items():
        yield LeftOutCases(mode, len(members), str(members[0].case), members[0].reason)


def _size(path: Path) -> int:
    """What a directory takes on the disk, in bytes."""
    return sum(p.lstat().st_blocks * 512 for p in path.rglob("*") if not p.is_symlink())
