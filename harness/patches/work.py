"""A patch as a series: the kernel of its last commit, stage by stage; where that shows something, the kernel
of its base in the same cases; and, of several commits, those in between until the first that shows it is
known. Of a patch that passes, a kernel with marks on the changed lines tells which of them run; then it is
given mistakes, one at a time, to see whether its cases notice them.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from harness.errors import EnvironmentLacks, NothingToAsk, PowercutError, StoreError, UsageError
from harness.expectations import known_losses
from harness.faults.campaign import detection_of, done_by, key_of, trial_of
from harness.faults.results import Detection
from harness.host.files import write_atomically
from harness.kernels.commits import CommitRange, CommitTree, Revision
from harness.known.match import promised_by
from harness.model import CaseId
from harness.model.schedules import with_schedules
from harness.patches.mistakes import Mistake, hunks, in_turn, mistakes
from harness.patches.page import junit_of, lines_in_words, page_of
from harness.patches.questions import BUDGET, OPERATIONS, Stage, chosen
from harness.patches.ran import (
    ChangedLines,
    Mark,
    RunLine,
    changed_lines,
    keep_lines,
    kept_lines,
    run_lines,
    united,
    with_marks,
)
from harness.patches.results import (
    FIRST,
    Answer,
    Below,
    Broken,
    Fate,
    Found,
    KernelTrial,
    LinesSeen,
    NothingPlan,
    PatchPlan,
    Planted,
    Regression,
    Standing,
    apart,
    by_plain_names,
    culprit_of,
    cut_short,
    fresh,
    grouped,
    how_far,
    needs_more,
    next_commit,
    planted_of,
    shows,
    standing_of,
)
from harness.plan import Budget, Plan
from harness.report.page import Page
from harness.report.words import plural
from harness.series.journal import End
from harness.series.work import Item, Series, Work, begin, read_plan
from harness.store import RunStore
from harness.store.records import finding_id
from harness.summary import Summary

HEAD, BASE, AGAIN, MISTAKE, LINES = "head", "base", "again", "mistake", "lines"
MORE_SCHEDULES = 2
"""Under which the base is asked before an expected finding counts as new."""
RUNS_NONE = "its mode runs none of the changed files"
MOST_MISTAKES = 200
NEVER_RUNS = "no case of the first stage runs it"
_FULL_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
Explain = Callable[[Path, Detection, Path], Sequence[str]]
"""Why a finding of a run directory failed, in lines; by the kernel that the run was made with."""


class Kernels(Protocol):
    """Where the kernels of commits come from: see `harness.kernels.commits.CommitTree`."""

    def key(self, commit: str) -> str: ...

    def below(self, series: CommitRange) -> Below: ...

    def kernel(self, commit: Revision) -> Path:
        """Its image. Raises KernelError if it does not build."""

    def text(self, commit: str, file: str) -> str: ...

    def noting_kernel(self, commit: Revision, texts: Mapping[str, str], marks: int) -> Path:
        """The image of a commit's kernel with marks, in these texts of its files. Raises KernelError."""

    def with_text(self, commit: Revision, file: str, text: str, subject: str) -> Revision:
        """A commit on top of one, in which a file has another text."""


class Phase(enum.Enum):
    """What a process works at. The time of each is up on its own."""

    ASKING = enum.auto()  # the stages of the head, and what follows from what they show
    FOLLOWING = enum.auto()  # the time for the head is up: only what it has shown is followed further
    LOOKING = enum.auto()  # which changed lines run, of a patch that passes
    PLANTING = enum.auto()  # mistakes in a patch that passes


def create(plan: PatchPlan, out: Path) -> Path:
    return begin(plan, out, "patch")


def load_plan(path: Path) -> PatchPlan:
    """The plan of a directory. Raises as `read_plan`, NothingToAsk where that was so, and StoreError for a
    commit that is no full name of one: it is a word of git's command line.
    """
    what = "series of a patch", "patch"
    try:
        plan = read_plan(path, PatchPlan, *what)
    except StoreError:
        with contextlib.suppress(StoreError):
            why = f"there was nothing to ask: {read_plan(path, NothingPlan, *what).nothing_to_ask}"
            raise NothingToAsk(f"{path}: {why}", "begin anew, without --resume") from None
        raise
    for commit, _ in (plan.base, *plan.commits):
        if not _FULL_NAME.fullmatch(commit):
            raise StoreError(f"{path}: {commit!r} is no full name of a commit", "start a new series")
    if not plan.commits or not plan.stages:
        raise StoreError(f"{path}: it asks nothing", "start a new series")
    return plan


class PatchSeries(Series[KernelTrial]):
    """See `Series`. `explain`: None: findings are not explained. `phase`: what is worked at; `ends`: how each
    phase of this process ended last.
    """

    done = KernelTrial
    folder = "kernels"
    results = "patch.json"
    quiet = False
    common_lacks = (EnvironmentLacks, UsageError)

    def __init__(self, plan: PatchPlan, path: Path, kernels: Kernels, explain: Explain | None = None) -> None:
        self.plan, self._kernels, self._explain = plan, kernels, explain
        self._series = plan.series
        self._build_s: dict[str, float] = {}
        self._explained: dict[Found, tuple[str, ...]] = {}
        self._fitting: dict[str, bool] = {}
        self._noted: dict[str, tuple[RunLine, ...]] = {}
        self.phase, self.ends = Phase.ASKING, dict[Phase, End]()
        super().__init__(path, plan.argv, list(known_losses()))

    # --- items --------------------------------------------------------------------------------

    def items(self, work: Work[KernelTrial]) -> Iterator[Item]:
        if self.phase is Phase.PLANTING:
            for number, mistake in enumerate(self.plan.mistakes, 1):
                if not self._never_runs(mistake):
                    yield self._planted(mistake, number)
            return
        if self.phase is Phase.LOOKING:
            yield from self._looked()
            return
        for stage in self.plan.stages:
            yield from self._asked(stage, work, first=self.plan.first)
            if self.plan.first and any(self._new_in(stage)):
                return
            if self.plan.first and (trial := self._trial(HEAD, stage)) and cut_short(trial):
                yield from self._asked(stage, work, first=False)  # the base shows it as well

    def _asked(self, stage: Stage, work: Work[KernelTrial], *, first: bool) -> Iterator[Item]:
        """A stage of the head, `first`: until it shows something; and the items that follow from its
        findings.
        """
        item, known = self._item(f"{HEAD}-{stage.name}", self._series.head, stage), self._trial(HEAD, stage)
        if first and not (known and known.key == item.key):
            item = replace(item, key=f"{item.key}{FIRST}", enough=self._shows_something)
        if self.phase is Phase.ASKING:
            yield item
        if (trial := self._trial(HEAD, stage)) is not None:
            yield from self._followed(stage, trial, work)

    def _shows_something(self, store: RunStore, case: CaseId) -> str:
        """Why no further case is needed before the base is asked; empty if this one shows nothing."""
        seen = (detection_of(f, 0) for f in store.findings_of(case))
        return f"{case} shows something" if any(not d.known for d in seen) else ""

    def _followed(self, stage: Stage, head: KernelTrial, work: Work[KernelTrial]) -> Iterator[Item]:
        """What a stage of the head showed, asked of the base and of the commits in between."""
        found = self._to_follow(stage, head)
        if not found:
            return
        cases = sorted({d.case for seen in found.values() for d in seen})
        yield self._item(f"{BASE}-{stage.name}", self._series.base, stage, cases)
        yield from self._under_schedules(stage, found)
        new = []
        for (oracle, symptom), seen in found.items():
            for standing, (why, those) in told_of(seen, *self._bases(stage)).items():
                said = f"{standing}: {those[0].case}: {oracle}: {those[0].summary}"
                work.progress.say(said + (f" ({why})" if why else ""))
                if standing is Standing.NEW:
                    new.append(those[0])
                    self._explain_first((oracle, symptom), those[0], head, work)
        yield from self._bisected(stage, new)

    def _under_schedules(self, stage: Stage, found: Mapping[Found, Sequence[Broken]]) -> Iterator[Item]:
        """The base under other schedules, where one recording of it does not tell: see `needs_more`."""
        base = self._trial(BASE, stage)
        if base is None or base.failed or base.interrupted:
            return
        cases = sorted({d.case for seen in found.values() for d in seen if needs_more(d, base)})
        if cases:
            workloads = tuple(with_schedules(list(stage.workloads), MORE_SCHEDULES))
            asked = msgspec.structs.replace(stage, workloads=workloads)
            under = [u for case in cases for u in with_schedules([case], MORE_SCHEDULES)[1:] or [case]]
            yield self._item(f"{AGAIN}-{stage.name}", self._series.base, asked, sorted({*under}))

    def _bases(self, stage: Stage) -> tuple[KernelTrial | None, KernelTrial | None]:
        """What the base came to, and what it came to under other schedules."""
        again = self._trial(AGAIN, stage)
        return self._trial(BASE, stage), by_plain_names(again) if again and not again.interrupted else None

    def _to_compare(self, head: KernelTrial) -> list[Broken]:
        """The findings of which the base is asked: also expected ones, where the patch changes the file
        system.
        """
        return [d for d in head.detections if not d.known or self._fits(d)]

    def _fits(self, seen: Broken) -> bool:
        """Whether its mode runs a changed file."""
        mode = CaseId.parse(seen.case).configuration
        if mode not in self._fitting:
            changed = self.plan.changed
            self._fitting[mode] = set(chosen([mode], changed).nobodys) != set(changed)
        return self._fitting[mode]

    def _to_follow(self, stage: Stage, head: KernelTrial) -> dict[Found, tuple[Broken, ...]]:
        """The findings of a stage of the head to compare, without those that an earlier stage showed to be
        new.
        """
        stages = self.plan.stages
        known = {f for earlier in stages[: stages.index(stage)] for f in self._new_in(earlier)}
        return {f: seen for f, seen in grouped(self._to_compare(head)).items() if f not in known}

    def _new_in(self, stage: Stage) -> Iterator[Found]:
        head = self._trial(HEAD, stage)
        for found, seen in grouped(self._to_compare(head)).items() if head else ():
            if Standing.NEW in apart(seen, *self._bases(stage)):
                yield found

    def _bisected(self, stage: Stage, new: Sequence[Broken]) -> Iterator[Item]:
        """The commits to try until the first that shows each of these is known. A commit is asked for all of
        them at once: they mostly have one cause.
        """
        commits, cases = self._series.commits, sorted({d.case for d in new})
        while (n := self._next_commit(stage, new)) is not None:
            yield self._item(self._between(commits[n], stage), commits[n], stage, cases)
            if self._known(self._between(commits[n], stage)) is None:
                return

    def _next_commit(self, stage: Stage, new: Sequence[Broken]) -> int | None:
        following = (next_commit(self._below, self._answers(stage, seen)) for seen in new)
        return next((n for n in following if n is not None), None)

    @functools.cached_property
    def _below(self) -> Below:
        return self._kernels.below(self._series)

    def _answers(self, stage: Stage, seen: Broken) -> dict[int, bool | None]:
        """Of the commits that were tried, whether each shows the finding. One that was asked for other cases,
        or whose time was up before that was known, was not tried.
        """
        commits = self._series.commits
        trials = {n: self._known(self._between(c, stage)) for n, c in enumerate(commits[:-1])}
        tried = {n: t for n, t in trials.items() if t and (not t.asked or seen.case in t.asked)}
        told = {n: (trial, shows(trial, seen)) for n, trial in tried.items()}
        return {n: shown for n, (trial, shown) in told.items() if shown is not None or not trial.interrupted}

    def _between(self, commit: Revision, stage: Stage) -> str:
        return f"{commit.short}-{stage.name}"

    def _item(self, name: str, commit: Revision, stage: Stage, cases: Sequence[str] = ()) -> Item:
        again = [f"again {stage.again}"] if stage.again else []
        states = ["exhaustive", str(BUDGET), *stage.disk, *again, *cases]
        key = key_of(self._kernels.key(commit.id), stage.modes, done_by(stage.workloads), states)
        return Item(name, self._planned(name, commit, stage, cases), key)

    def _looked(self) -> Iterator[Item]:
        """The stages that the head has done, once more on a kernel with marks on the changed lines."""
        for stage in self.plan.stages:
            head = self._trial(HEAD, stage)
            if head is None or head.interrupted or head.failed or not head.states:
                continue
            item = self._item(f"{LINES}-{stage.name}", self._series.head, stage)
            yield replace(item, plan=self._noting(item.name, stage), key=f"{item.key} {LINES}")
            if (done := self._trial(LINES, stage)) is not None and done.failed:
                return

    def _noting(self, name: str, stage: Stage) -> Callable[[], Plan]:
        """The plan of a run, with a kernel that notes which changed lines it runs."""

        def plan() -> Plan:
            begun, head = time.monotonic(), self._series.head
            texts, marks = self._marked
            if not marks:
                raise UsageError("no changed line has a statement that can take a mark")
            image = self._kernels.noting_kernel(head, texts, 1 + max(m.number for m in marks))
            self._build_s[name] = round(time.monotonic() - begun, 1)
            return self._plan_of(stage, image, (), coverage=True)

        return plan

    @functools.cached_property
    def _marked(self) -> tuple[dict[str, str], list[Mark]]:
        """The changed files with marks, and the marks."""
        head = self._series.head.id
        return with_marks(
            {c.file: self._kernels.text(head, c.file) for c in self.plan.lines}, self.plan.lines
        )

    def _planted(self, mistake: Mistake, number: int) -> Item:
        """The cases of the first stage, on a kernel with the mistake, until one shows what the head does
        not.
        """
        head, stages = self._series.head, self._given
        workloads = tuple(w for stage in stages for w in stage.workloads)
        stage = msgspec.structs.replace(stages[0], workloads=workloads)
        text = mistake.planted(self._kernels.text(head.id, mistake.file))
        commit = self._kernels.with_text(head, mistake.file, text, str(mistake))
        item = self._item(f"{MISTAKE}-{number}", commit, stage)
        return replace(item, enough=self._noticed)

    @property
    def _given(self) -> tuple[Stage, ...]:
        """The stages that mistakes are given: the first; and the one behind those of operations, once the
        head has done it, for an operation by itself notices little.
        """
        first, *others = self.plan.stages
        if first.name == OPERATIONS and others and others[0].modes == first.modes:
            head = self._trial(HEAD, others[0])
            return (first, others[0]) if head and how_far(head) == "done" else (first,)
        return (first,)

    def _never_runs(self, mistake: Mistake) -> bool:
        """Whether it is known that no case of the first stage, which a mistake is given, gets to the
        statement that it changes. What stood there before the patch may run all the same.
        """
        looked = [self._trial(LINES, stage) for stage in self._given]
        first = [trial for trial in looked if trial and _looked_at_all(trial)]
        if mistake.reverts or len(first) < len(looked):
            return False
        lines, seen = range(mistake.first, mistake.last + 1), united(map(self._lines_of, first))
        there = [x for x in seen if x.file == mistake.file and x.line in lines]
        return bool(there) and not any(line.ran for line in there)

    def _noticed(self, store: RunStore, case: CaseId) -> str:
        """Why no further case is needed after this one; empty if it shows nothing but what the head does."""
        seen = (detection_of(f, 0) for f in store.findings_of(case))
        return f"{case} notices it" if any(fresh(seen, list(self._heads.values()))) else ""

    def _planned(self, name: str, commit: Revision, stage: Stage, cases: Sequence[str]) -> Callable[[], Plan]:
        def plan() -> Plan:
            begun = time.monotonic()
            image = self._kernels.kernel(commit)
            self._build_s[name] = round(time.monotonic() - begun, 1)
            return self._plan_of(stage, image, cases)

        return plan

    def _plan_of(self, stage: Stage, image: Path, cases: Sequence[str], *, coverage: bool = False) -> Plan:
        return Plan(
            configurations=list(stage.modes),
            workloads=list(stage.workloads),
            kernel=str(image),
            machine=self.plan.machine,
            coverage=coverage,
            fault_models=("exhaustive",),
            budget=Budget(BUDGET),
            disk=stage.disk,
            again=stage.again,
            only=tuple(cases),
            jobs=self.plan.jobs,
            argv=self.plan.argv,
        )

    def keep(self, item: Item, store: RunStore, summary: Summary) -> KernelTrial:
        if item.name.startswith(f"{LINES}-"):
            marks, layout = self._marked[1], store.layout
            noted = (
                file.read_bytes() if file.exists() else b"" for file in (layout.recording_hits, layout.hits)
            )
            keep_lines(store.path, run_lines(marks, *noted))
        kept = {
            **msgspec.structs.asdict(trial_of(item, store, summary)),
            "build_seconds": self._build_s[item.name],
        }
        return KernelTrial(**{**kept, "detections": tuple(with_promises(kept["detections"], store))})

    def words(self, done: KernelTrial) -> str:
        kind, _, number = done.item.partition("-")
        if kind == MISTAKE:
            return str(planted_of(self.plan.mistakes[int(number) - 1], done, list(self._heads.values())))
        if done.failed:
            return f"not decided: {done.failed}"
        if kind == LINES:
            return f"{lines_in_words(self._seen)}, {done.seconds:.0f} s"
        shown = sum(not d.known for d in done.detections)
        undecided = plural(len(done.undecided), "case")
        left = f", {undecided} undecided ({next(iter(done.undecided.values()))})" if done.undecided else ""
        found = plural(shown, "unexpected finding")
        looked = f"{plural(done.states, 'state')} of {plural(len(done.cases), 'case')}"
        return f"{looked}: {found}{left}, {done.seconds:.0f} s"

    @property
    def follows_left(self) -> bool:
        """Whether what the head has shown was not followed to its end: the time was up before."""
        for stage in self.plan.stages:
            head, base = self._trial(HEAD, stage), self._trial(BASE, stage)
            found = self._to_follow(stage, head).values() if head else ()
            if found and (base is None or base.interrupted):
                return True
            bases = self._bases(stage)
            if bases[1] is None and base and any(needs_more(d, base) for seen in found for d in seen):
                return True
            new = [of[Standing.NEW][1][0] for seen in found if Standing.NEW in (of := apart(seen, *bases))]
            if self._next_commit(stage, new) is not None:
                return True
        return False

    # --- what is known ------------------------------------------------------------------------

    def _explain_first(
        self, found: Found, seen: Detection, head: KernelTrial, work: Work[KernelTrial]
    ) -> None:
        """Once in a process for each symptom, or for the first of all (`PatchPlan.first`); what cannot be
        explained is said, and is no error.
        """
        if self._explain is None or found in self._explained or not head.run:
            return
        if self.plan.first and self._explained:
            return
        try:
            image = self._kernels.kernel(self._series.head)
            self._explained[found] = tuple(self._explain(self.path / head.run, seen, image))
        except PowercutError as e:
            self._explained[found] = (f"no cause is known: {e.what}",)
        for line in self._explained[found]:
            work.progress.say(f"   {line}")

    def _trial(self, of: str, stage: Stage) -> KernelTrial | None:
        return self._known(f"{of}-{stage.name}")

    def _known(self, item: str) -> KernelTrial | None:
        """The result of an item; of an interrupted one, its result so far."""
        return self.known.done.get(item)

    @property
    def answer(self) -> Answer:
        """What the patch has come to so far."""
        head = self._heads
        return Answer(
            self.plan, self.path, head, tuple(self._regressions(head)), self._explained,
            bool(self.known.finished), self.known.interrupted, tuple(self._tried(head)), self._seen,
            tuple(self._expected(head)),
        )  # fmt: skip

    def _expected(self, head: Mapping[str, KernelTrial]) -> Iterator[str]:
        """See `Answer.expected`."""
        for stage in self.plan.stages:
            for d in head[stage.name].detections if stage.name in head else ():
                if d.known:
                    yield standing_of(d, *self._bases(stage))[1] if self._fits(d) else RUNS_NONE

    @property
    def _heads(self) -> dict[str, KernelTrial]:
        return {s.name: t for s in self.plan.stages if (t := self._trial(HEAD, s)) is not None}

    def _lines_of(self, trial: KernelTrial) -> tuple[RunLine, ...]:
        """What a run noted; read once, since every page asks for it."""
        if trial.run not in self._noted or trial.interrupted:
            self._noted[trial.run] = kept_lines(self.path / trial.run)
        return self._noted[trial.run]

    @property
    def _seen(self) -> LinesSeen:
        """Which changed lines ran, as far as somebody looked."""
        done = {s.name: t for s in self.plan.stages if (t := self._trial(LINES, s)) is not None}
        runs = [self._lines_of(t) for t in done.values() if t.run]
        whole = tuple(name for name, t in done.items() if _looked_at_all(t))
        why = next((t.failed for t in done.values() if t.failed), "")
        return LinesSeen(united(runs), whole, why)

    def _tried(self, head: Mapping[str, KernelTrial]) -> Iterator[Planted]:
        for number, mistake in enumerate(self.plan.mistakes, 1):
            trial = self._known(f"{MISTAKE}-{number}")
            if trial is None and self._never_runs(mistake):
                yield Planted(mistake, Fate.UNNOTICED, 0, why=NEVER_RUNS)
            elif trial is not None and not trial.interrupted:
                yield planted_of(mistake, trial, list(head.values()))

    def _regressions(self, head: Mapping[str, KernelTrial]) -> Iterator[Regression]:
        """Each symptom once for each way in which it stands to the base, of the first stage that shows it so.
        What is new is followed in one stage alone, so that others do not compare it.
        """
        best: dict[tuple[Found, Standing], Regression] = {}
        for stage in self.plan.stages:
            if stage.name not in head:
                continue
            for found, seen in grouped(self._to_compare(head[stage.name])).items():
                for standing, (why, those) in told_of(seen, *self._bases(stage)).items():
                    if (found, standing) not in best:
                        told = self._regression(stage, head[stage.name], standing, those, why)
                        best[found, standing] = told
        order = list(Standing)
        for (found, standing), told in sorted(best.items(), key=lambda item: order.index(item[0][1])):
            if standing is not Standing.UNDECIDED or (found, Standing.NEW) not in best:
                yield told

    def _regression(
        self, stage: Stage, head: KernelTrial, standing: Standing, seen: tuple[Broken, ...], why: str
    ) -> Regression:
        culprits = {}
        for d in seen if standing is Standing.NEW else ():
            answers = self._answers(stage, d)
            if d is seen[0] or len(self._series.commits) == 1 or any(a is not None for a in answers.values()):
                culprits[d.case] = culprit_of(self._series.commits, self._below, answers)
        return Regression(seen, standing, stage.name, head.run, head.at, why, culprits)

    def ended(self, end: End) -> End:
        self.ends[self.phase] = end
        return end_of(self.ends, self.answer)

    def page(self) -> Page:
        return page_of(self.answer)

    def write(self) -> Page:
        write_atomically(self.path / "junit.xml", junit_of(self.answer))
        return super().write()


def end_of(ends: Mapping[Phase, End], answer: Answer) -> End:
    """How a process's part of a series ended, by the last end of each phase. What was found is followed to
    its end even where the time was up before all was asked.
    """
    if End.INTERRUPTED in ends.values():
        return End.INTERRUPTED
    left = answer.left and not (answer.plan.first and answer.new)
    cut = [p for p, end in ends.items() if end is End.TIME_UP and (left or p is not Phase.ASKING)]
    return End.TIME_UP if cut else End.COMPLETE


def told_of(
    seen: Sequence[Broken], base: KernelTrial | None, again: KernelTrial | None
) -> dict[Standing, tuple[str, tuple[Broken, ...]]]:
    """See `apart`, without expected findings that the base shows as well."""
    of = {s: (why, those) for s, (why, those) in apart(seen, base, again).items()}
    if Standing.IN_BASE in of:
        why, those = of.pop(Standing.IN_BASE)
        if kept := tuple(d for d in those if not d.known):
            of[Standing.IN_BASE] = why, kept
    return of


def with_promises(seen: Iterable[Detection], store: RunStore) -> Iterator[Broken]:
    """Findings of a run, with the operations whose promises they break."""
    promised: dict[str, dict[str, set[int]]] = {}
    for d in seen:
        if d.case not in promised:
            of = promised[d.case] = dict[str, set[int]]()
            case = CaseId.parse(d.case)
            for v in (v for judged in store.rows_of(case).judged for v in judged.judgement.violations):
                if (operation := promised_by(v)) is not None:
                    of.setdefault(finding_id(case, v.oracle, v.signature), set()).add(operation)
        broken = tuple(sorted(promised[d.case].get(d.id, ())))
        yield Broken(**{**msgspec.structs.asdict(d), "promised": broken})


def need_head(kernels: Kernels, plan: PatchPlan) -> None:
    """Build the kernel of the last commit. Raises BuildFails, for git bisect's 125, if it does not build."""
    kernels.kernel(plan.series.head)


def _looked_at_all(trial: KernelTrial) -> bool:
    """Whether every case of a run was decided."""
    return bool(trial.run) and trial.decided


def lines_in(kernels: CommitTree, series: CommitRange, nobodys: Sequence[str]) -> tuple[ChangedLines, ...]:
    """The lines of C files that a patch changes, `nobodys` left out: see `changed_lines`."""
    base, head = series.base.id, series.head.id
    files = [f for f in series.changed if f.endswith(".c") and f not in nobodys and kernels.has(head, f)]
    found = (changed_lines(f, kernels.text(head, f), hunks(kernels.diff(base, head, f))) for f in files)
    return tuple(lines for lines in found if lines.pieces)


def untouched_in(kernels: CommitTree, series: CommitRange) -> tuple[str, ...]:
    """See `PatchPlan.untouched`."""
    base, head = series.base.id, series.head.id
    files = (f for f in series.changed if f.endswith((".c", ".h")))
    return tuple(f for f in files if not any(hunks(kernels.diff(base, head, f))))


def mistakes_in(kernels: CommitTree, series: CommitRange, nobodys: Sequence[str]) -> tuple[Mistake, ...]:
    """Those that can be planted in the C code of a patch, `nobodys` left out: MOST_MISTAKES at most."""
    base, head = series.base.id, series.head.id
    files = [
        f for f in series.changed if f.endswith((".c", ".h")) and f not in nobodys and kernels.has(head, f)
    ]
    by_file = {f: mistakes(f, kernels.text(head, f), hunks(kernels.diff(base, head, f))) for f in files}
    return tuple(in_turn(by_file)[:MOST_MISTAKES])
