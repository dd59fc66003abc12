"""Findings by their ids, and what somebody may have meant who named one that is not there."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

from harness.errors import UsageError
from harness.host.text import named_few
from harness.report.lines import source_in
from harness.store import RunStore
from harness.store.records import Finding

ID_DIGITS_MIN = 4
"""Of a finding's id, as git has it."""
_BESIDE = 50
"""Runs that are looked at, the latest, for a finding that this one has not."""


def not_a_point(text: str, store: RunStore, why: str) -> tuple[str, str]:
    """An error for words that name neither a finding nor a crash point, and a hint at what may be meant."""
    if text.startswith(("/", ".")):
        return (
            f"{text} is a path: a finding or a crash point is wanted",
            f"name a run with --from {shlex.quote(text)}",
        )
    findings = store.findings()
    known = [f.id for f in findings]
    if own := [f.id for f in findings if str(f.case) == text]:
        return (
            f"{text} is a case: a finding of it is wanted, or a crash point",
            f"its findings: {named_few(own)}",
        )
    if meant := [n for n in known if text and n.startswith(text)]:
        short = f"{text!r} is too short for the id of a finding: it takes {ID_DIGITS_MIN} digits or more"
        return short, f"is {' or '.join(meant[:3])} meant?"
    cases = named_few([str(c.case) for c in store.cases()])
    has = f"its findings: {named_few(known)}" if known else f"a state of one of its cases: {cases}"
    return f"{why}, nor the id of a finding of the run {store.path.name}", has


def finding_by_id(text: str, store: RunStore) -> Finding | None:
    """The finding whose id begins with `text`, as git takes the name of a commit; None if `text` is no begin
    of an id. Raises UsageError where no finding of the run has that, or several do.
    """
    if not re.fullmatch(f"[0-9a-f]{{{ID_DIGITS_MIN},12}}", text):
        return None
    findings = store.findings()
    found = [f for f in findings if f.id.startswith(text)]
    if len(found) == 1:
        return found[0]
    ids = named_few([f.id for f in found or findings])
    if found:
        raise UsageError(f"{text} may be any of {len(found)} findings", f"one more digit: {ids}")
    elsewhere = _elsewhere(text, store)
    step = f"{elsewhere} has: add --from {source_in(elsewhere)}" if elsewhere else f"its findings: {ids}"
    raise UsageError(f"the run {store.path.name} has no finding {text}", step)


def _elsewhere(text: str, store: RunStore) -> Path | None:
    """A run beside this one that has a finding with such an id, the latest; None if none is seen to have."""
    for beside in sorted(store.path.parent.glob("*/results.json"), reverse=True)[:_BESIDE]:
        with contextlib.suppress(OSError):
            if f'"id": "{text}' in beside.read_text(errors="replace"):
                return beside.parent
    return None
