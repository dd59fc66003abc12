"""Whether a finding is a known bug. Pure.

A finding is one only if all that a sighting of the bug states agrees: oracle and symptom, mode, what went
wrong beside the power cut, the kernel's version, and where stated the operations, the flushes and, of a
finding that was explained, the cause. The match says what was compared: without the cause, agreement is no
proof of the same bug.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from harness.expectations import Expectation, covers
from harness.known.base import NOT_NAMED, During, KnownBug, Severity, Sighting, version_of
from harness.known.seen import as_seen
from harness.model import CaseId, CrashState, Violation
from harness.symptoms import Symptom

_PROMISED = re.compile(r"acknowledged by `[^`]*` \(operation (\d+)\)")
_LAST = 64
"""Operations of a program that are compared: an expression over thousands would take long."""
_OPENED = 1024
"""Those among which it is looked for where its handles come from."""
_MORE = re.compile(r" \.\.\. \(\d+ in all\)\Z")
"""Behind the names of a file that has more of them."""
_HANDLE = re.compile(r"@\w")
_OF_A_LOSS = (
    *("no flush at all", "flush sent while the write was in flight", "acknowledged before the flush"),
    *("acknowledged while the write was in flight", "record ahead of its blocks", "torn write"),
    "in place ahead of its record",
)
"""Causes of `powercut show` by which alone writes were lost."""
_PROMISE = re.compile(r"\(operation (\d+)\) was acknowledged")


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """An operation of the workload, with the log entries of its marks: negative where it was acknowledged
    before the log begins.
    """

    text: str
    begin: int | None
    ack: int | None


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run knows of a finding without looking at a guest again. `kernel`: what begins with its version.
    `flushed`: whether the log has a flush, or a write with FUA, between two entries. `cause`: by which
    mechanism, as `powercut show` named it; empty of a finding that was not explained, None of one that was,
    and whose cause could not be told. `spared`: of the states that break this promise, the one in which the
    fewest writes are lost; None: `state`.
    """

    case: CaseId
    symptom: Symptom
    state: CrashState
    violation: Violation
    kernel: str
    operations: Sequence[LoggedOperation]
    flushed: Callable[[int, int], bool]
    cause: Callable[[], str | None]
    spared: CrashState | None = None

    @property
    def lacking(self) -> CrashState:
        """The state that says whether the bug takes a lost write."""
        return (self.spared or self.state).first

    @property
    def promised(self) -> int | None:
        return promised_by(self.violation)

    @property
    def during(self) -> During:
        if self.state.fault is not None:
            return During.FAULTY_DISK
        return During.CUT_RECOVERY if self.state.again else During.POWER_CUT


def promised_by(violation: Violation) -> int | None:
    """The operation whose promise is broken, as a violation names it."""
    text = f"{violation.summary}; {violation.found}"
    found = _PROMISED.search(text) or _PROMISE.search(text)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Match:
    """A finding is this bug, so far as was compared."""

    bug: KnownBug
    compared: tuple[str, ...]


def match(bugs: Iterable[KnownBug], seen: Observed) -> Match | None:
    """The known bug that a finding agrees with, of several the first of those that state most; or None: then
    it is new.
    """
    version = version_of(seen.kernel)
    found = [
        Match(bug, _compared(sighting, seen))
        for bug in bugs
        if version and bug.record.affects(version)
        for sighting in bug.record.shows
        if _agrees(sighting, seen)
    ]
    return max(found, key=lambda m: len(m.compared), default=None)


def known_of(bugs: Iterable[KnownBug], case: CaseId, kernel: str) -> list[KnownBug]:
    """The bugs that a case's mode has on a kernel, so far as is known, and that one power cut shows; whether
    or not a run did.
    """
    version = version_of(kernel)
    return [bug for bug in bugs if version and bug.record.affects(version) and _is_of(bug, case)]


def possible(
    bugs: Iterable[KnownBug], case: CaseId, kernel: str, cause: str, ran: Sequence[str]
) -> list[KnownBug]:
    """The known bugs that may be what a program's own check saw: those that lose synced data, and state this
    cause (empty: it could not be told) or, where none does, state none; of these the ones whose operations
    are among the program's, if any are. `ran`: its calls before the power failed, as operations. Such a
    finding is not called known: what was lost of which promise, a check does not say.
    """
    severe = (Severity.DESTROYS, Severity.LOSES_SYNCED)
    lose = [bug for bug in known_of(bugs, case, kernel) if bug.record.severity in severe]
    found = _by_cause(lose, case, cause) if cause else lose
    forms = [lines[-_LAST:] for lines in as_seen(tuple(ran[-_OPENED:]))]
    shows = {bug.name: [s for s in bug.record.shows if _is_in(s, case)] for bug in found}
    shown = [bug for bug in found if any(_may_show(s, ran) for s in shows[bug.name] for ran in forms)]
    return shown or found


def _by_cause(lose: Sequence[KnownBug], case: CaseId, cause: str) -> list[KnownBug]:
    stated = {
        bug.name: {c.lower() for s in bug.record.shows if _is_in(s, case) for c in s.causes} for bug in lose
    }
    named = [bug for bug in lose if cause.lower() in stated[bug.name]]
    return named or [bug for bug in lose if not stated[bug.name]]


def _may_show(sighting: Sighting, ran: Sequence[str]) -> bool:
    """Whether the operations that a sighting states are among these, whatever was lost; the promise may be
    that of any sync.
    """
    syncs = [n for n, line in enumerate(ran, 1) if "sync" in line.split()[0]]
    stated = [p.replace("{lost}", r"\S+") for p in (sighting.operations, sighting.later)]
    until = ["\n".join(ran[:n]) for n in (*syncs, len(ran))]
    return any(re.search(stated[0], text) for text in until) and bool(re.search(stated[1], until[-1]))


def _is_of(bug: KnownBug, case: CaseId) -> bool:
    shows = [s for s in bug.record.shows if s.during is During.POWER_CUT]
    return any(_is_in(s, case) for s in shows)


def _is_in(sighting: Sighting, case: CaseId) -> bool:
    return any(covers(pattern, case) for pattern in sighting.modes)


def _agrees(sighting: Sighting, seen: Observed) -> bool:
    return (
        seen.symptom.oracle in sighting.oracles
        and any(fnmatchcase(seen.symptom.what, p) for p in sighting.symptoms)
        and _is_in(sighting, seen.case)
        and sighting.during is seen.during
        and re.search(sighting.says, f"{seen.violation.summary}\n{seen.violation.found}") is not None
        and _same_operations(sighting, seen)
        and (not sighting.quiet or _was_quiet(seen))
        and sighting.loses in (None, _lacks_writes(seen.lacking))
        and (sighting.whole or not seen.lacking.is_whole)
        and not (sighting.loses is False and _lost_writes(seen))
        and (not sighting.causes or _has_cause(sighting, seen.cause()))
    )


def _has_cause(sighting: Sighting, cause: str | None) -> bool:
    """Whether a cause is one of a sighting's. Any may be that of a finding which was not explained."""
    told = NOT_NAMED if cause is None else cause.lower()
    return told in ("", *map(str.lower, sighting.causes))


def _same_operations(sighting: Sighting, seen: Observed) -> bool:
    begun = tuple(o.text for o in seen.operations if o.begin is not None and o.begin < seen.state.prefix)
    until = None if seen.promised is None else seen.promised + 1
    lost = tuple(_MORE.sub("", seen.violation.subject).split(" or "))
    one_of_them = f"(?:{'|'.join(map(re.escape, lost))})"
    asked = (sighting.operations, begun[:until]), (sighting.later, begun)
    return all(
        any(re.search(p.replace("{lost}", one_of_them), "\n".join(ran)) for ran in _forms(p, told, lost))
        for p, told in asked
    )


def _forms(pattern: str, told: tuple[str, ...], lost: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The forms in which operations are compared: as they were written, too, with an expression that names a
    handle. Any other might not see there what excludes it.
    """
    return (*as_seen(told, lost), told) if _HANDLE.search(pattern) else as_seen(told, lost)


def _was_quiet(seen: Observed) -> bool:
    """Whether the operation whose promise is broken returned without anything that makes data durable."""
    at = seen.promised
    if at is None or at >= len(seen.operations):
        return False
    op = seen.operations[at]
    if (
        op.begin is None or op.ack is None or op.begin < 0
    ):  # what was flushed before the log, it does not tell
        return False
    return not seen.flushed(op.begin, op.ack)


def _lacks_writes(state: CrashState) -> bool:
    kept = state.persisted
    torn = state.torn_sectors is not None
    return torn or bool(state.dropped) or (kept is not None and (kept.only or bool(kept.parts)))


def _says_nothing(state: CrashState) -> bool:
    """Whether nobody can tell of a state if it lacks writes: a prefix of the log, which is all that was
    sent until then.
    """
    return not (_lacks_writes(state) or state.is_whole)


def _lost_writes(seen: Observed) -> bool:
    """Whether that is the cause of a finding that was explained in a prefix of the log."""
    return _says_nothing(seen.lacking) and (seen.cause() or "").lower() in _OF_A_LOSS


def _compared(sighting: Sighting, seen: Observed) -> tuple[str, ...]:
    also = ["operations"] * bool(sighting.operations or sighting.later) + ["flushes"] * sighting.quiet
    stated = sighting.loses is not None or not sighting.whole
    also += ["lost writes"] * (stated and not _says_nothing(seen.lacking))
    if sighting.causes and seen.cause() != "":
        also += ["cause"]
    return ("symptom", "mode", "kernel version", *also)


def as_expectation(bug: KnownBug) -> Expectation:
    """The known failure that a known bug counts as where only new findings fail a run."""
    return Expectation("*", "*", "*", f"{bug.name}: {bug.title}", "known bugs")
