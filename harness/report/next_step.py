"""What a run without findings has not asked, and the command that asks some of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from harness.errors import UsageError
from harness.filesystems.profiles import ANY, select_profiles
from harness.model.schedules import without_schedule
from harness.plan import FIRST_BUDGET, Budget, Plan
from harness.report.lines import run_of
from harness.report.words import plural
from harness.summary import CaseSummary, CaseVerdict, Summary
from harness.workloads.load import folder_sets, is_installed, is_own_application, workload_files

_PAGE = "docs/howto/look-harder.md"
"""Has the stages, in this order."""
_OUT_OF_ORDER = "states out of the log's order"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a run left out, in a sentence. `how`: the command that asks the first of it, or the page that says
    how. Both are empty where something else comes first, and where nothing was left out.
    """

    left_out: str = ""
    how: str = ""

    @property
    def text(self) -> str:
        """Both as plain text, without an end: a command is pasted."""
        return f"{self.left_out} Next: {self.how}" if self.how else ""


def next_step(summary: Summary) -> NextStep:
    """What to do after a run in which each promise was kept."""
    plan = summary.plan
    # Where nothing recovers, and nothing but rules decides, there are no such questions.
    cases = [c for c in summary.cases if not c.was_not_run and c.case.filesystem != ANY]
    if plan is None or not cases or not _is_green(summary) or _is_part(plan):
        return NextStep()
    of_kernels = [word for word in plan.configurations if word.partition("/")[0] != ANY]
    plan = msgspec.structs.replace(plan, configurations=of_kernels)
    left = [*_left_out(plan, cases)]
    if not left:
        return NextStep()
    asking = next((asked for _, asked in left if asked), None)
    return NextStep(f"Not asked: {', '.join(what for what, _ in left)}.", run_of(asking) if asking else _PAGE)


def _left_out(plan: Plan, cases: Sequence[CaseSummary]) -> Iterator[tuple[str, Plan | None]]:
    """What a plan has not asked of cases, each with the plan that would; None: a page says how."""
    change = msgspec.structs.replace
    if plan.unit_sectors is None:
        budget = FIRST_BUDGET if plan.budget == Budget() else plan.budget
        yield _OUT_OF_ORDER, change(plan, fault_models=("exhaustive",), budget=budget)
    elif without := {c.info.coverage.not_legal for c in cases if c.info.coverage} - {""}:
        yield f"{_OUT_OF_ORDER} ({min(without)})", None
    if not plan.again:
        yield "a power cut during recovery", change(plan, again=1)
    if not plan.disk and any(map(_has_one_disk, {c.case.configuration for c in cases})):
        yield "a faulty disk", change(plan, disk=("errors",))
    names = [without_schedule(c.case.workload) for c in cases]
    if all(is_installed(word) and not is_own_application(word) for word in plan.workloads):
        asked = {name for name, _ in names}
        for of_set, known in _sets().items():
            if left := known - asked:
                words = list(dict.fromkeys([*plan.workloads, of_set]))
                yield f"{plural(len(left), 'workload')} of the set {of_set}", change(plan, workloads=words)
                break
    if not any(schedule for _, schedule in names):
        yield "other schedules", None


def _sets() -> Mapping[str, set[str]]:
    """Sets of workloads for any file system, the one to begin with first."""
    return {"all": {*workload_files()}, "more": {*folder_sets()["more"]}}


def _is_green(summary: Summary) -> bool:
    """Whether a run came to its end, and no case of it leaves anything else to do: none broke a promise, was
    undecided, was missed or had its states cut short by a budget.
    """
    clean = (CaseVerdict.PASS, CaseVerdict.NOT_RUN)
    explored = [[c.info.coverage, *(cut.coverage for cut in c.info.again)] for c in summary.cases]
    return (
        all(c.verdict in clean for c in summary.cases)
        and not (summary.missing or summary.interrupted or summary.packed)
        and not any(coverage and coverage.unexplored for of_case in explored for coverage in of_case)
    )


def _is_part(plan: Plan) -> bool:
    """Whether a run is part of something else, or of another kind, so that its command would not be this."""
    of_others = plan.only or plan.match or plan.shard or plan.recordings or plan.cluster
    return bool(of_others or plan.oracles or plan.coverage)


def _has_one_disk(mode: str) -> bool:
    """Whether a disk can be faulty in a mode: not in a stack, and not in a mode of another installation."""
    with suppress(UsageError):
        return not any(p.stacked for p in select_profiles([mode]))
    return False
