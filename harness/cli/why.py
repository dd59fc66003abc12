"""Why a finding failed: for `powercut show`, and at the end of a run for the first of each symptom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from harness.cli.console import console, errors
from harness.errors import PowercutError, UsageError
from harness.explain.explain import Explainer, explain
from harness.findings.repro import kernel_words, repro_context
from harness.host.progress import at_work
from harness.host.text import one_line
from harness.known.match import as_expectation
from harness.report import rewrite_reports
from harness.report.explanation import Explanation, read_explanation, write_explanation
from harness.report.lines import source_of, source_words
from harness.store import RunStore
from harness.store.records import Finding
from harness.symptoms import Symptom
from harness.trust import Named, plan_here

LIMIT_S = 60.0
"""For all explanations at the end of a run together."""


class _TimeUp(Exception):
    """The time for explanations is up."""


def find_out(
    store: RunStore, finding: Finding, named: Named, accel: str, on_visit: Callable[[int], None]
) -> tuple[Explanation, str]:
    """Visit states of a finding's case in a guest until it can be said why it failed. `on_visit` is told how
    many were visited. Behind the explanation stands why it is not the run's: it was explained on another
    kernel; else it is empty. Raises UsageError where no write of the workload was lost.
    """
    if finding.state.fault:
        raise UsageError(
            f"{finding.crash_point}: the disk was faulty, and no write was lost",
            "powercut repro shows it",
        )
    if finding.state.again:
        raise UsageError(
            f"{finding.crash_point}: the writes lost there are those of a recovery, not of the workload",
            "powercut repro shows it",
        )
    with (
        repro_context(store, finding.crash_point, named, accel) as shown,
        Explainer(shown, store.plan().unit_sectors, on_visit) as explainer,
    ):
        found = explain(explainer, finding, source_of(plan_here(store, named), str(store.path)))
        other = f"recorded on {shown.recorded_on}, explained on {kernel_words(shown.kernel)}: not kept"
        return found, other if shown.recorded_on else ""


def explain_first(store: RunStore, named: Named, accel: str) -> bool:
    """Explain the first finding of each symptom, as far as LIMIT_S allows; print each in a line, and write
    the reports of the run again, unless another process works on it. What cannot be explained is left to
    `powercut show`. Ctrl-C ends it, and nothing else of the run. Returns whether one was explained: a finding
    whose cause is not that of the known bug that it agrees with in all else is new from then on.
    """
    chosen = list(first_of_each(store))
    if not chosen:
        return False
    console.say(
        f"why, for the first finding of each symptom (at most {LIMIT_S:.0f} s; --no-why leaves it out):"
    )
    until = time.monotonic() + LIMIT_S

    def need_time(_: int) -> None:
        if time.monotonic() >= until:
            raise _TimeUp

    told, controls = 0, set[str]()
    try:
        for finding in chosen:
            need_time(0)
            with at_work(f"{finding.crash_point}: recovered with fewer writes lost", errors):
                found = _kept_or_found(store, finding, named, accel, need_time)
            if found:
                told += 1
                why = found.mechanism or "; ".join((found.headline, *_by_control(found, controls)))
                console.say(one_line(f"{finding.id}, {found.point}: {why}"))
    except (_TimeUp, KeyboardInterrupt):
        others = f"powercut show --all --from {source_words(store, str(store.path))}"
        console.say(f"{told} of {len(chosen)} explained; the others: {one_line(others)}")
    if told:
        _say_new(chosen, store)
        rewrite_reports(store)
    return bool(told)


def _by_control(found: Explanation, told: set[str]) -> Iterator[str]:
    """What tells the cause, and the control; one that another line has, in two words."""
    for label in ("cause" if found.lines.get("cause") else "missing", "control"):
        if said := found.lines.get(label):
            yield f"{label}: {'as above' if said in told else said}"
    told.add(found.lines.get("control", ""))


def _say_new(before: Sequence[Finding], store: RunStore) -> None:
    """Of which findings the cause shows that they are not the known bug that they had been taken for."""
    known = {f.id: f.known.bug.name for f in before if f.known}
    for finding in store.findings():
        if finding.id in known and finding.known is None:
            console.say(f"{finding.id} is new: it was not shown to have the cause of {known[finding.id]}")


def _kept_or_found(
    store: RunStore, finding: Finding, named: Named, accel: str, on_visit: Callable[[int], None]
) -> Explanation | None:
    if (known := read_explanation(store.layout, finding.id)) is not None:  # of a run that was resumed
        return known
    try:
        found, other = find_out(store, finding, named, accel, on_visit)
    except PowercutError:
        return None
    if not other:
        write_explanation(store.layout, found)
    return found


def first_of_each(store: RunStore) -> Iterator[Finding]:
    """The first finding of each symptom that the loss of writes of the workload shows: of those that are
    unexpected, or expected for a known bug alone. What a program's check says is a symptom of each mode: one
    may show what another hides. Where the mount fails as well, that is what has to be explained.
    """
    seen: set[tuple[Symptom, str]] = set()
    for finding in store.findings():
        only_known = finding.known and finding.expectation == as_expectation(finding.known.bug)
        shown = (
            (finding.expectation is None or only_known)
            and not finding.state.fault
            and not finding.state.again
            and not finding.unmounted
        )
        mode = finding.case.configuration if finding.oracle == "program" else ""
        if shown and (finding.symptom, mode) not in seen:
            seen.add((finding.symptom, mode))
            yield finding
