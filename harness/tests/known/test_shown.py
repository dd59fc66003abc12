"""Records against findings that runs made: `shown.json` has one for each way in which a bug was seen,
`controls.json` what runs on the same kernels, and in the same modes, showed of something else.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from harness.known.base import Sighting, installed
from harness.known.match import LoggedOperation, Observed, match
from harness.model import CaseId, CrashState, Violation
from harness.regressions.catalogue import bugs
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


CONTROLS = msgspec.json.decode((Path(__file__).parent / "controls.json").read_bytes(), type=tuple[Shown, ...])
"""Of each, `bug` is the one that it is not."""
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
    found = match(installed().values(), seen(shown, _ran(shown)))
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


@pytest.mark.parametrize("shown", CONTROLS, ids=lambda s: f"{s.bug}: {s.subject}")
def test_what_the_kernel_without_the_bug_shows_as_well_is_not_the_bug(shown: Shown) -> None:
    """Of btrfs-preallocated-size, which 6.17.13 has no more, 6.17.13 shows these; of the others, the run on
    the kernel with the bug showed them in states in which the bug has no part.
    """
    bug = installed()[shown.bug]
    assert match([bug], seen(shown, _ran(shown))) is None


def test_no_upstream_bug_is_what_a_run_showed_of_another_bug() -> None:
    """Nor on the last kernel that has it, whatever the kernel of that run was."""
    taken = set()
    for bug in (installed()[name] for name in bugs()):
        for shown in FINDINGS:
            on_it = msgspec.structs.replace(shown, kernel=bug.record.last or bug.record.first)
            if bug.name != shown.bug and match([bug], seen(on_it, _ran(shown))):
                taken.add((shown.bug, bug.name))
    assert not taken


def test_each_upstream_bug_has_a_record_that_says_what_a_run_shows_of_it() -> None:
    """38 of them had none: a run on an old kernel called such a bug new. Of one that a run can show, and that
    has no symptom here, the status says why.
    """
    for bug in bugs().values():
        record = bug.record
        assert record, bug.name
        told = record.shows or bug.needs
        assert told or "no run has shown it" in record.status or "what runs show of it: " in record.status
        assert record.mended and record.mended_by and record.last
    by_source = {b.name for b in bugs().values() if b.record and "no run has shown it" in b.record.status}
    seen_in_runs = {shown.bug for shown in FINDINGS} | _BY_PAGES
    have = {b.name for b in bugs().values() if b.record and b.record.shows}
    assert have <= seen_in_runs | by_source
    assert not seen_in_runs & by_source


_BY_PAGES = {
    "btrfs-new-name-last-log-commit", "xfs-attr-inactivation-window", "ext4-nojournal-fsync-inode",
    "fat-fsync-beside-writeback", "btrfs-nameless-fsync", "btrfs-symlink-renamed", "ntfs-dir-fsync-no-flush",
}  # fmt: skip
"""Bugs whose runs docs/results/upstream-bugs.md, or their own files, tell."""


def _ran(shown: Shown) -> tuple[LoggedOperation, ...]:
    return tuple(LoggedOperation(*op[:3]) for op in shown.ran)


def states_some(sighting: Sighting) -> bool:
    return not all(re.search(p.replace("{lost}", "x"), "") for p in (sighting.operations, sighting.later))
