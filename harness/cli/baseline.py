"""`powercut run --baseline`: what a run from before a change makes known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from harness.cli.console import errors
from harness.cli.options import RunDirectory, open_run
from harness.errors import PowercutError, UsageError
from harness.expectations import IN_BASELINE, Expectation, known_failures
from harness.host.files import valid_text
from harness.model import CaseId, OperationKind
from harness.plan import Plan
from harness.report.changes import Side, decided_itself, is_other_work, unseen
from harness.run import select_cases
from harness.store import RunStore
from harness.store.records import CaseNote
from harness.summary import CaseSummary, Summary, summarise
from harness.workloads.load import pin_name

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
    others by now.
    """

    path: Path
    expected: tuple[Expectation, ...]

    def notes(self, store: RunStore) -> tuple[CaseNote, ...]:
        """Where the run beside it shows what may be old although it fails, or new although it is expected."""
        try:
            with open_run(self.path) as before:
                return tuple(_notes(Side.of(before, str(self.path)), Side.of(store, "run"), self.path))
        except PowercutError as e:
            return (CaseNote("", f"what is older than {self.path} cannot be told any more: {e.what}"),)


def _notes(first: Side, second: Side, path: Path) -> Iterator[CaseNote]:
    then, now = first.summary.info.pins, second.summary.info.pins
    for c in second.summary.cases:
        for why in _whys(c, first, second):
            yield CaseNote(str(c.case), f"what {c.case} shows may be older than {path}: {why}")
        pin = pin_name(c.case.workload)
        if then.get(pin) != now.get(pin) and _runs_programs(c) and _has_expected(c):
            what = f"what {c.case} is expected to show may be new: its program is not that of {path}"
            yield CaseNote(str(c.case), what)


def _whys(case: CaseSummary, first: Side, second: Side) -> dict[str, None]:
    """Why the first run may know nothing of what fails in a case of the second: each reason once."""
    earlier = first.cases.get(case.case)
    undecided = earlier.undecided if earlier else ""
    new = [f for f in case.findings if f.expectation is None]
    whys = (unseen(f, first, second) or ("" if decided_itself(f, first, second) else undecided) for f in new)
    return dict.fromkeys(why for why in whys if why)


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
        return Baseline(path, known_failures(found, f"baseline {store.path.name}"))


def baseline_of(path: Path | None, plan: Plan, store: RunStore) -> Baseline | None:
    """The baseline of a run that goes on. Raises UsageError for another than it was begun with."""
    baseline, known = asked_baseline(path, plan), set(store.expectations())
    if path is None and any(e.reason == IN_BASELINE for e in known):
        errors.say("this run has a baseline; what that does not know is noted if it is named: --baseline RUN")
    if baseline and not known.issuperset(baseline.expected):
        raise UsageError(f"{store.path} was not begun with the baseline {path}", "name the one that it has")
    return baseline


def _other_work(summary: Summary, plan: Plan) -> Iterator[CaseId]:
    """The cases of a run whose operations differ from those of a plan."""
    before = {c.case: c for c in summary.cases}
    for profile, workload in select_cases(plan):
        c = before.get(CaseId(profile.filesystem, profile.mode, workload.name))
        now = [valid_text(str(o)) for o in workload.operations]
        if c and is_other_work([s.operation for s in c.info.steps], now):
            yield c.case


def _runs_programs(c: CaseSummary) -> bool:
    return any(s.operation.startswith(f"{OperationKind.RUN.value} ") for s in c.info.steps)


def _has_expected(c: CaseSummary) -> bool:
    return any(f.expectation and f.expectation.reason == IN_BASELINE for f in c.findings)
