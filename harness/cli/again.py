"""`powercut run --failed-from RUN`: the cases that RUN left red or undecided, run as RUN was.

A case is run again with the states, kernel, oracles and all else of RUN's plan that a verdict depends on:
with less, a case would turn green that nobody has fixed. What this command line names wins.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from harness.cli.options import open_run
from harness.errors import UsageError
from harness.model import CaseId
from harness.plan import Plan
from harness.report.words import enumerated, plural, shown_path
from harness.run import select_cases
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary, summarise
from harness.trust import Named, is_among, plan_here, same_image, vouched
from harness.workloads.applications import is_copy
from harness.workloads.match import matcher

INHERITED: Mapping[str, str] = MappingProxyType(
    {
        "configurations": "configurations",
        "workloads": "workloads",
        "shard": "shard",
        "fault_models": "fault_models",
        "again": "again",
        "disk": "disk",
        "budget": "budget",
        "oracles": "oracles",
        "machine": "machine",
        "accel": "accel",
        "completions": "completions",
        "clock": "clock",
        "memo": "memo",
        "sample_percent": "sample_rate",
        "log_mib": "log_bytes",
        "require_all": "require_all",
    }
)
"""Parameters of `powercut run` with the fields of a plan that they fill: RUN's, unless one is typed. Not
those that a verdict does not depend on: number of guests, cluster, when to stop. Recordings are made anew.
"""
SHOWN_MAX = 6


@dataclass(frozen=True, slots=True)
class Before:
    """What is taken over of RUN. `failed`, `undecided`: its cases to run again. `expects`: whether it knew of
    failures.
    """

    shown: str
    plan: Plan
    failed: tuple[CaseId, ...]
    undecided: tuple[CaseId, ...]
    expects: bool = False

    @property
    def cases(self) -> tuple[CaseId, ...]:
        return (*self.failed, *self.undecided)


def before(path: Path, named: Named) -> Before:
    """Read the run directory `path`. Raises UsageError if there is nothing to run again, and for files that
    only the run directory names.
    """
    with open_run(path) as store:
        summary = summarise(store)
        failed = tuple(c.case for c in summary.cases if c.verdict is CaseVerdict.FAIL)
        undecided = _undecided(summary)
        if not failed and not undecided:
            raise UsageError(
                f"no case of {path} failed, but as expected, or was left undecided",
                "there is nothing to run again",
            )
        return Before(shown_path(path), _plan_of(store, named), failed, undecided, bool(store.expectations()))


def _undecided(summary: Summary) -> tuple[CaseId, ...]:
    missing = {c.case for c in summary.missing}
    return tuple(c.case for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN or c.case in missing)


def _plan_of(store: RunStore, named: Named) -> Plan:
    """The run's plan, with the very kernel that it had, as far as it may be used; see `trust`."""
    plan, used = plan_here(store, named), store.info.kernel.name
    plan = msgspec.structs.replace(
        plan,
        kernel=plan.kernel if "/" in plan.kernel else used,
        recordings=None,
        cluster="",
        image=same_image(plan.image, named.image),
    )
    chosen = not all(is_among(word, plan.workloads) for word in named.workloads)  # others take their place
    needed = msgspec.structs.replace(plan, workloads=[]) if chosen else plan
    return msgspec.structs.replace(vouched(needed, named), workloads=plan.workloads)


def inherited(asked: Plan, begun: Plan, typed: AbstractSet[str]) -> Plan:
    """`asked`, the plan of this command line, with that of the earlier run wherever this command line names
    nothing. `typed`: the parameters that it names. Pure.
    """
    taken = {field: getattr(begun, field) for param, field in INHERITED.items() if param not in typed}
    if "kernel" not in typed:  # modules belong to their kernel
        taken["kernel"] = begun.kernel
        taken |= {f: getattr(begun, f) for f in ("modules", "replaced") if f not in typed}
    if "configurations" not in typed:  # a disk belongs to its modes
        taken["image"] = begun.image
    return msgspec.structs.replace(asked, **taken)


def again(asked: Plan, run: Before, typed: AbstractSet[str]) -> Plan:
    """The plan that runs the cases of `run` again. Raises UsageError for cases that are gone: without them
    the result would be better than what was covered.
    """
    vouched = [word for word in asked.workloads if "/" in word and is_among(word, run.plan.workloads)]
    if vouched == asked.workloads:  # such a word only says that the file may be used
        typed = typed - {"workloads"}
    plan = inherited(asked, run.plan, typed)
    _need_cases(plan, run, chosen=bool(typed & {"configurations", "workloads", "shard"}))
    return msgspec.structs.replace(plan, only=tuple(map(str, run.cases)))


def _need_cases(plan: Plan, run: Before, *, chosen: bool) -> None:
    there = {
        CaseId(p.filesystem, p.mode, w.name) for p, w in select_cases(msgspec.structs.replace(plan, match=""))
    }
    gone = [case for case in run.cases if case not in there]
    if plan.match:
        gone = [case for case in gone if matcher(plan.match)(str(case))]
    if gone and not chosen:
        raise UsageError(
            f"{plural(len(gone), 'case')} of {run.shown} cannot be run again, since there is no such mode or "
            f"workload any more: {_some(gone)}",
            "put it back, or name the modes and workloads to run again",
        )


def summary_of(plan: Plan, run: Before, typed: AbstractSet[str]) -> list[str]:
    """What is run again, and how, for people: a line each."""
    counts = [
        f"{plural(len(cases), 'case')} {what}"
        for what, cases in (("that failed", run.failed), ("left undecided", run.undecided))
        if cases
    ]
    lines = [f"again from {run.shown}: {enumerated(counts)}"]
    if copies := [Path(word).name for word in plan.workloads if is_copy(Path(word))]:
        lines.append(f"{', '.join(copies)}: as copied then; one mended since is run by: -- ./{copies[0]}")
    if words := _options(plan, typed):
        lines.append(f"as there: {shlex.join(words)}")
    wanted = {CaseId(p.filesystem, p.mode, w.name) for p, w in select_cases(plan)}
    if left_out := [case for case in run.cases if case not in wanted]:
        lines.append(f"left out, since this command line chooses others: {_some(left_out)}")
    if run.expects and "expect" not in typed:
        lines.append(f"the known failures of {run.shown} are not taken over: name them with --expect")
    return lines


def _options(plan: Plan, typed: AbstractSet[str]) -> list[str]:
    """What was taken over, as options; of the less important only what is no default."""
    usual = Plan(configurations=[], workloads=[])
    kernel = {"kernel": plan.kernel, "modules": plan.modules, "module": plan.replaced}
    shown: list[tuple[str, str, object]] = [
        ("kernel", f"--{name}", value) for name, value in kernel.items() if "kernel" not in typed
    ]
    shown += [
        ("fault_models", "--states", plan.fault_models),
        ("again", "--again", plan.again),
        ("disk", "--disk", plan.disk),
        ("budget", "--budget", plan.budget.option),
        ("oracles", "--oracle", plan.oracles),
        ("shard", "--shard", plan.shard),
        *(
            (param, f"--{param.replace('_', '-')}", getattr(plan, param))
            for param in ("machine", "accel", "completions", "clock")
            if getattr(plan, param) != getattr(usual, param)
        ),
    ]
    words = [
        word
        for param, option, value in shown
        if param not in typed and value
        for word in (option, ",".join(value) if isinstance(value, (list, tuple)) else str(value))
    ]
    if "memo" not in typed and not plan.memo:
        words.append("--no-memo")
    if "sample_percent" not in typed and plan.sample_rate != usual.sample_rate:
        words += ["--memo-sample", f"{plan.sample_rate * 100:g}"]
    if "log_mib" not in typed and plan.log_bytes != usual.log_bytes:
        words += ["--log-size", str(plan.log_bytes >> 20)]
    return words


def _some(cases: Sequence[CaseId]) -> str:
    more = [f"{len(cases) - SHOWN_MAX} more"] * (len(cases) > SHOWN_MAX)
    return enumerated([*map(str, cases[:SHOWN_MAX]), *more])
