"""`powercut run --baseline`: what a run from before a change makes known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from harness.cli.options import RunDirectory, open_run
from harness.errors import UsageError
from harness.expectations import IN_BASELINE, Expectation, known_failures
from harness.host.files import valid_text
from harness.model import CaseId, OperationKind
from harness.plan import Plan
from harness.run import select_cases
from harness.summary import CaseSummary, CaseVerdict, Summary, summarise
from harness.workloads.load import pin_name

OTHER_WORK = "the baseline's operations of this case are others"

baseline_option = click.option(
    "--baseline",
    type=RunDirectory(exists=True),
    metavar="RUN",
    help="A run from before a change, or a packed one: each symptom that a case showed there is known, and "
    "only what is new fails the run.",
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """A run from before a change, at `path`. `expected`: what it found, but in cases whose operations are
    others by now. `judged`: the cases of which a state was checked, each with why it may know too little of
    it, or "". `pins`: see `harness.cases.pins`.
    """

    path: Path
    expected: tuple[Expectation, ...]
    judged: Mapping[CaseId, str]
    pins: Mapping[str, str]

    def notes(self, summary: Summary) -> Iterator[str]:
        """Where a run beside it shows what may be old although it fails, or new although it is expected."""
        for c in summary.cases:
            why = self.judged.get(c.case, "it was not checked there")
            if c.verdict is CaseVerdict.FAIL and why:
                yield f"what {c.case} shows may be older than {self.path}: {why}"
            pin = pin_name(c.case.workload)
            changed = self.pins.get(pin) != summary.info.pins.get(pin)
            if changed and _runs_programs(c) and _has_expected(c):
                yield f"what {c.case} is expected to show may be new: its program is not that of {self.path}"


def asked_baseline(path: Path | None, plan: Plan) -> Baseline | None:
    """What --baseline makes known of the cases of a plan. Raises UsageError where it is no run, or checked no
    state, and for a plan that names what does not exist.
    """
    if path is None:
        return None
    with open_run(path) as store:
        summary = summarise(store)
        if not summary.checked:
            raise UsageError(f"{path} checked no crash state: it is no baseline", "name a run that did")
        others = set(_other_work(summary, plan))
        found = (f for f in summary.findings if f.case not in others)
        judged = {
            c.case: OTHER_WORK if c.case in others else c.undecided for c in summary.cases if c.counts.checked
        }
        return Baseline(path, known_failures(found, f"baseline {store.path.name}"), judged, store.info.pins)


def _other_work(summary: Summary, plan: Plan) -> Iterator[CaseId]:
    """The cases of a run whose operations differ from those of a plan. A program, which is what is being
    changed, may differ.
    """
    before = {c.case: c for c in summary.cases}
    for profile, workload in select_cases(plan):
        c = before.get(CaseId(profile.filesystem, profile.mode, workload.name))
        if c is None or not c.info.steps or (workload.opaque and _runs_programs(c)):
            continue
        if [s.operation for s in c.info.steps] != [valid_text(str(o)) for o in workload.operations]:
            yield c.case


def _runs_programs(c: CaseSummary) -> bool:
    return any(s.operation.startswith(f"{OperationKind.RUN.value} ") for s in c.info.steps)


def _has_expected(c: CaseSummary) -> bool:
    return any(f.expectation and f.expectation.reason == IN_BASELINE for f in c.findings)
