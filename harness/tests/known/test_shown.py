"""Records against findings that runs made: `shown.json` has one for each way in which a bug was seen."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from harness.known.base import Sighting, installed
from harness.known.match import LoggedOperation, Observed, match
from harness.model import CaseId, CrashState, Violation
from harness.symptoms import Symptom


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding of a run, and the bug that it is. `cause`: as `powercut show` named it, empty if it was not
    asked. `ran`: operations with their marks, and whether the log has a flush between these.
    """

    bug: str
    mode: str
    kernel: str
    oracle: str
    symptom: str
    state: str
    spared: str
    cause: str | None
    subject: str
    summary: str
    found: str
    ran: tuple[tuple[str, int | None, int | None, bool], ...]


FINDINGS = msgspec.json.decode((Path(__file__).parent / "shown.json").read_bytes(), type=tuple[Shown, ...])


def seen(shown: Shown, ran: tuple[LoggedOperation, ...]) -> Observed:
    flushed = {(begin, ack): flush for _, begin, ack, flush in shown.ran}
    filesystem, _, mode = shown.mode.partition("/")
    return Observed(
        CaseId(filesystem, mode, "any"),
        Symptom(shown.oracle, shown.symptom),
        CrashState.parse(shown.state),
        Violation(shown.oracle, shown.subject, shown.summary, "", shown.found, ""),
        shown.kernel,
        ran,
        lambda begin, ack: flushed[begin, ack],
        lambda: shown.cause,
        CrashState.parse(shown.spared),
    )


@pytest.mark.parametrize("shown", FINDINGS, ids=lambda s: f"{s.bug}: {s.oracle}: {s.symptom}")
def test_a_finding_that_a_run_made_is_the_bug_that_it_was(shown: Shown) -> None:
    """Seven records did not know the sequence of their own README, or not the second of two symptoms."""
    found = match(installed().values(), seen(shown, tuple(LoggedOperation(*op[:3]) for op in shown.ran)))
    assert found is not None
    assert found.bug.name == shown.bug


def test_without_its_operations_a_finding_is_not_the_bug_that_states_some() -> None:
    """Else the operations of a record say nothing, and a fault planted in its mode is this bug."""
    stated = {bug.name for bug in installed().values() if all(map(states_some, bug.record.shows))}
    of_these = [shown for shown in FINDINGS if shown.bug in stated]
    assert len(of_these) > 20
    for shown in of_these:
        found = match(installed().values(), seen(shown, ()))
        assert found is None or found.bug.name != shown.bug, shown.bug


def states_some(sighting: Sighting) -> bool:
    return not all(re.search(p.replace("{lost}", "x"), "") for p in (sighting.operations, sighting.later))
